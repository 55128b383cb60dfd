"""Learn a digit classifier from the log of a weak one, and certify that it is better.

    python examples/digits.py

The contexts are scikit-learn's 1 797 bundled images, the actions are the ten digits, and an action
earns 1 if it is the label. Production is a weak classifier: it was trained on a hundred labels and
guesses at random three times in ten. Learners see its log only (context, action, reward,
propensity): a wrong guess does not reveal the label. A fifth of the images is held out for the
final policies. The log draws from the others with replacement, so it can be longer than the set of
images, and all rounds have the same distribution.

The learners, all without a look at the truth:

- LinProd in constant memory: Theorem 3's learner. It needs V(π_B), the covariance of the features
  under production, before its first round. V comes from the contexts of the first rounds and
  production's known policy; no learner learns from these rounds, and none is certified on them.
  Some pixels are the same in all images, so V gets a ridge of a tenth of its mean eigenvalue.
- Ridge regression for every digit, on the pixels, and on random Fourier features of them.
- The mixture (`us.exp4`) of production and all of these. It does not know which one is good.

Labels are no linear function of pixels, so neither Theorem 3 nor the theorem of ridge applies. The
theorem of the mixture does, against each of its experts, and the certificates hold for any learner.
Vowpal Wabbit and logistic regression get the best of some settings by the truth, or see the whole
log at once.
"""

from __future__ import annotations

import importlib.util
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import understudy as us

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

K = 10
PREFIX, ROUNDS = 3_000, 30_000
LABELS_OF_PRODUCTION = 100
GUESSES = 0.3
HELD_OUT = 0.2
RIDGE = 0.1  # of V, in mean eigenvalues
TEMPERATURES = (0.002, 0.02)  # those of the default: two experts
FOURIER_FEATURES, FOURIER_RIDGE = 300, 0.1
VOWPAL_KINDS, VOWPAL_RATES = ("ips", "mtr", "dr"), (0.1, 0.2, 0.5)


@dataclass(frozen=True, eq=False)
class World:
    """Images as contexts x (X, 65), their labels, production's π_B(a|x), (X, K), and a split."""

    contexts: Array
    labels: Integers
    production: Array
    shown: Integers
    held_out: Integers

    def reward(self, policy: Array) -> float:
        """The true reward of a policy (H, K) of the images held out."""
        return float(policy[np.arange(len(self.held_out)), self.labels[self.held_out]].mean())


@dataclass(frozen=True, eq=False)
class Learned:
    """The true rewards of production and a learner, round by round, and the certificate."""

    production: Array
    earned: Array
    final: float
    certified: us.certificates.Certified


def make_world(rng: np.random.Generator) -> World:
    digits: Any = load_digits()
    pixels, labels = digits.data / 16.0, digits.target.astype(np.int64)
    order = rng.permutation(len(labels))
    cut = int(HELD_OUT * len(order))
    known = order[cut : cut + LABELS_OF_PRODUCTION]
    reader = LogisticRegression(max_iter=2000).fit(pixels[known], labels[known])
    production = np.full((len(labels), K), GUESSES / K)
    production[:, reader.classes_] += (1 - GUESSES) * reader.predict_proba(pixels)
    contexts = np.insert(pixels, 0, 1.0, axis=1)
    return World(contexts, labels, production, order[cut:], order[:cut])


def make_log(world: World, rounds: int, rng: np.random.Generator) -> tuple[Integers, us.Log]:
    """The image of each round, and production's log."""
    shown = rng.choice(world.shown, size=rounds)
    edges = world.production[shown].cumsum(axis=1)
    actions = (rng.random((rounds, 1)) * edges[:, -1:] > edges).sum(axis=1)
    return shown, us.Log(
        actions=actions,
        rewards=(actions == world.labels[shown]).astype(float),
        propensities=world.production[shown, actions],
        features=world.contexts[shown],
    )


def make_lin_prod(world: World, prefix: Integers) -> us.learners.LinProdCompact:
    """LinProd in constant memory at its largest admissible rate, with V of the prefix."""
    V = us.theory.feature_covariance(world.production[prefix], world.contexts[prefix])
    V += RIDGE * np.linalg.eigvalsh(V).mean() * np.eye(V.shape[-1])
    kappa = us.theory.largest_leverage(world.contexts, V)  # over all images
    eta = us.theory.largest_lin_prod_rate(kappa)
    return us.lin_prod_compact(V, n_actions=K, eta=eta, kappa=kappa)


def make_learners(world: World, prefix: Integers) -> dict[str, us.learners.Learner[Any]]:
    """All learners by name; the prefix gives V, and γ = 1/median ‖x − x'‖² of the kernel."""
    p = world.contexts.shape[1]
    some = world.contexts[prefix[:500]]  # 124 750 pairs are enough for a median
    squares = ((some[:, np.newaxis] - some) ** 2).sum(axis=2)
    fourier = us.learners.random_fourier(
        dimension=p,
        features=FOURIER_FEATURES,
        gamma=1 / float(np.median(squares[squares > 0])),
        rng=np.random.default_rng(0),
    )
    settings: dict[str, Any] = {"n_actions": K, "temperature": TEMPERATURES}
    on_cosines = us.ridge(dimension=FOURIER_FEATURES + 1, ridge=FOURIER_RIDGE, **settings)
    learners: dict[str, us.learners.Learner[Any]] = {
        "lin_prod_compact": make_lin_prod(world, prefix),
        "ridge, pixels": us.ridge(dimension=p, **settings),
        "ridge, Fourier features": us.learners.Mapped(on_cosines, fourier),
    }
    behavior = us.Logged(n_actions=K)
    context_free = us.prod_grid(behavior)
    experts = {"production": "production", "prod_grid": context_free, **learners}
    # Production guesses any digit with this probability at least: estimates can be centred.
    mixture = us.exp4(behavior, experts, least_propensity=GUESSES / K)
    return {**learners, "exp4, of all": mixture}


def learn(world: World, shown: Integers, log: us.Log, learner: us.learners.Learner[Any]) -> Learned:
    """Learn from the log after its prefix, and certify the policies while they learn."""
    shown, log = shown[PREFIX:], log[PREFIX:]
    given: dict[str, Any] = {}
    if learner.spec.outside:
        given["production"] = world.production[shown]
    state, policies = learner.policies(learner.init(), learner.spec.visible(log), **given)
    each = np.arange(len(log))
    certified = us.certify(
        log.visible(propensities=True, features=False),
        policies[each, log.actions],
        behavior=us.Logged(n_actions=K),
        confidence=0.95,
    )
    if learner.spec.outside:
        given["production"] = world.production[world.held_out]
    final = learner.policies_at(state, world.contexts[world.held_out], **given)
    return Learned(
        production=world.production[shown, world.labels[shown]],
        earned=policies[each, world.labels[shown]],
        final=world.reward(final),
        certified=certified,
    )


def logistic_regression(world: World, shown: Integers, log: us.Log) -> float:
    """The true reward of a classifier fitted to the log, with weights R/q."""
    assert log.propensities is not None
    weights = np.zeros(world.production.shape)
    np.add.at(weights, (shown, log.actions), log.rewards / log.propensities)
    images, actions = np.nonzero(weights)  # equal rows become one row with the sum of their weights
    reader = LogisticRegression(max_iter=2000)
    reader.fit(
        world.contexts[images],
        actions,
        sample_weight=weights[images, actions] * len(world.labels) / len(log),
    )
    found = reader.predict(world.contexts[world.held_out])
    return float((found == world.labels[world.held_out]).mean())


def vowpal_wabbit(world: World, shown: Integers, log: us.Log) -> tuple[str, float, float]:
    """The best setting by true reward while learning, that reward, and the final true reward."""
    found = []
    for kind in VOWPAL_KINDS:
        for rate in VOWPAL_RATES:
            arguments = f"--cb {K} --cb_type {kind} -l {rate}"
            found.append((arguments, *run_vowpal_wabbit(world, shown, log, arguments)))
    return max(found, key=lambda row: row[1])


def run_vowpal_wabbit(
    world: World, shown: Integers, log: us.Log, arguments: str
) -> tuple[float, float]:
    """True reward while learning (it predicts each round before it learns from it), and final."""
    import vowpalwabbit  # noqa: PLC0415 - an optional peer

    workspace = vowpalwabbit.Workspace(f"{arguments} --quiet")
    texts = [
        "| " + " ".join(f"p{i}:{value:g}" for i, value in enumerate(x[1:]) if value)
        for x in world.contexts
    ]
    assert log.propensities is not None
    right = 0
    rounds = zip(shown.tolist(), log.actions, log.rewards, log.propensities, strict=True)
    for image, action, reward, propensity in rounds:
        right += workspace.predict(texts[image]) == world.labels[image] + 1
        workspace.learn(f"{action + 1}:{-reward:g}:{propensity:.9g} {texts[image]}")
    final = np.array([workspace.predict(texts[image]) for image in world.held_out.tolist()])
    workspace.finish()
    return right / len(log), float((final == world.labels[world.held_out] + 1).mean())


def main() -> None:
    start, rng = time.perf_counter(), np.random.default_rng(0)
    world = make_world(rng)
    shown, log = make_log(world, PREFIX + ROUNDS, rng)
    print(f"{ROUNDS:,} rounds of production's log, after {PREFIX:,} that scale and encode\n")
    columns = ("while learning", "held out", "certified gain", "promoted after")
    print(f"{'true reward a round':40}" + "".join(f"{column:>16}" for column in columns))
    after, rest = shown[PREFIX:], log[PREFIX:]
    value = world.production[after, world.labels[after]].mean()
    show("production", value, world.reward(world.production[world.held_out]))
    for name, learner in make_learners(world, shown[:PREFIX]).items():
        learned = learn(world, shown, log, learner)
        show(f"Understudy, {name}", learned.earned.mean(), learned.final, learned.certified)
    final = logistic_regression(world, after, rest)
    show("IPW logistic regression, scikit-learn", None, final)
    if importlib.util.find_spec("vowpalwabbit") is None:
        print("Vowpal Wabbit is not installed; to compare: pip install vowpalwabbit")
    else:
        setting, earned, final = vowpal_wabbit(world, after, rest)
        show(f"Vowpal Wabbit, {setting}", earned, final)
        tried = len(VOWPAL_KINDS) * len(VOWPAL_RATES)
        print(
            f"\nVowpal Wabbit's setting is the best of {tried} by true reward, which no log shows."
        )
    print("\nGains are certified with 95 % confidence, from the log alone.")
    print(f"{time.perf_counter() - start:.0f} s")


def show(
    name: str,
    earned: float | None,
    final: float,
    certified: us.certificates.Certified | None = None,
) -> None:
    row = [f"{name:40}", f"{'–' if earned is None else f'{earned:.3f}':>16}", f"{final:16.3f}"]
    if certified is not None and certified.gain is not None:
        at = certified.promoted_at
        row += [f"{certified.gain / ROUNDS:16.3f}", f"{'–' if at is None else f'{at:,}':>16}"]
    print("".join(row))


if __name__ == "__main__":
    main()
