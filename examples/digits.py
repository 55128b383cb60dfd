"""Learn a digit classifier from the log of a weak one, and certify that it is better.

    python examples/digits.py

The contexts are scikit-learn's 1 797 bundled images, the actions are the ten digits, and an action
earns 1 if it is the label. Production is a weak classifier: it was trained on a hundred labels and
guesses at random three times in ten. Learners see its log only (context, action, reward,
propensity): a wrong guess does not reveal the label. Contexts are drawn from the images with
replacement. So the log can be longer than the set of images, all rounds have the same
distribution, and the true reward of a policy is its mean over all images.

The learner is LinProd in constant memory with disjoint features φ(x, a) = e_a ⊗ x, where x is a
constant and 64 pixels: ten blocks of 65 parameters. It needs V(π_B), the covariance of these
features under production, before its first round. V comes from the contexts of the first rounds
and production's known policy; these rounds are neither learned from nor certified. Some pixels are
the same in all images, which makes V singular: a ridge of a tenth of its mean eigenvalue makes it
invertible. The ridge shrinks the estimates a little, and labels are no linear function of pixels,
so Theorem 3 does not apply. The certificate does: it holds for any learner. Vowpal Wabbit, which
does not guard against the worst case, learns faster; logistic regression, which sees the whole log
at once, has the best final policy.
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
RIDGE = 0.1
VOWPAL_KINDS, VOWPAL_RATES = ("ips", "mtr", "dr"), (0.1, 0.2, 0.5)


@dataclass(frozen=True, eq=False)
class World:
    """Images as contexts x (X, 65), their labels, and production's π_B(a|x), (X, K)."""

    contexts: Array
    labels: Integers
    production: Array

    def reward(self, policy: Array) -> float:
        """The true reward of a policy (X, K): its mean probability of the label."""
        return float(policy[np.arange(len(self.labels)), self.labels].mean())


@dataclass(frozen=True, eq=False)
class Learned:
    """The true rewards of production and LinProd, round by round, and the certificate."""

    production: Array
    earned: Array
    final: float
    certified: us.certificates.Certified


def make_world(rng: np.random.Generator) -> World:
    digits: Any = load_digits()
    pixels, labels = digits.data / 16.0, digits.target.astype(np.int64)
    known = rng.choice(len(labels), LABELS_OF_PRODUCTION, replace=False)
    reader = LogisticRegression(max_iter=2000).fit(pixels[known], labels[known])
    production = np.full((len(labels), K), GUESSES / K)
    production[:, reader.classes_] += (1 - GUESSES) * reader.predict_proba(pixels)
    return World(np.insert(pixels, 0, 1.0, axis=1), labels, production)


def make_log(world: World, rounds: int, rng: np.random.Generator) -> tuple[Integers, us.Log]:
    """The image of each round, and production's log."""
    shown = rng.integers(len(world.labels), size=rounds)
    edges = world.production[shown].cumsum(axis=1)
    actions = (rng.random((rounds, 1)) * edges[:, -1:] > edges).sum(axis=1)
    return shown, us.Log(
        actions=actions,
        rewards=(actions == world.labels[shown]).astype(float),
        propensities=world.production[shown, actions],
        features=world.contexts[shown],
    )


def make_learner(world: World, prefix: Integers) -> us.learners.LinProdCompact:
    """LinProd in constant memory at its largest admissible rate, with V of the prefix."""
    V = us.theory.feature_covariance(world.production[prefix], world.contexts[prefix])
    V += RIDGE * np.linalg.eigvalsh(V).mean() * np.eye(V.shape[-1])
    kappa = us.theory.largest_leverage(world.contexts, V)  # over all images
    eta = us.theory.largest_lin_prod_rate(kappa)
    return us.lin_prod_compact(V, n_actions=K, eta=eta, kappa=kappa)


def learn(world: World, shown: Integers, log: us.Log) -> Learned:
    """Learn from the log after its prefix, and certify the policies while they learn."""
    learner = make_learner(world, shown[:PREFIX])
    shown, log = shown[PREFIX:], log[PREFIX:]
    state, policies = learner.policies(
        learner.init(), log.visible(propensities=False, features=True)
    )
    each = np.arange(len(log))
    certified = us.certify(
        log.visible(propensities=True, features=False),
        policies[each, log.actions],
        behavior=us.Logged(n_actions=K),
        confidence=0.95,
    )
    final = np.array([learner.policy(state, x) for x in world.contexts])
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
    return float((reader.predict(world.contexts) == world.labels).mean())


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
    final = np.array([workspace.predict(text) for text in texts])
    workspace.finish()
    return right / len(log), float((final == world.labels + 1).mean())


def main() -> None:
    start, rng = time.perf_counter(), np.random.default_rng(0)
    world = make_world(rng)
    shown, log = make_log(world, PREFIX + ROUNDS, rng)
    learned = learn(world, shown, log)
    certified = learned.certified
    print(f"{ROUNDS:,} rounds of production's log, after {PREFIX:,} for V alone\n")
    print(f"{'true reward a round':44} while learning    in the end")
    show("production", learned.production.mean(), world.reward(world.production))
    show("Understudy, lin_prod_compact", learned.earned.mean(), learned.final)
    final = logistic_regression(world, shown[PREFIX:], log[PREFIX:])
    show("IPW logistic regression, scikit-learn", None, final)
    if importlib.util.find_spec("vowpalwabbit") is None:
        print("Vowpal Wabbit is not installed; to compare: pip install vowpalwabbit")
    else:
        setting, earned, final = vowpal_wabbit(world, shown[PREFIX:], log[PREFIX:])
        show(f"Vowpal Wabbit, {setting}", earned, final)
        tried = len(VOWPAL_KINDS) * len(VOWPAL_RATES)
        print(
            f"\nVowpal Wabbit's setting is the best of {tried} by true reward, which no log shows."
        )
    print(
        f"\nFrom the log alone, Understudy's estimate is {certified.estimate / ROUNDS:.3f} (IPS)."
    )
    print(f"{certified!r}.")
    print(f"\n{time.perf_counter() - start:.0f} s")


def show(name: str, earned: float | None, final: float) -> None:
    print(f"{name:44} {'–' if earned is None else f'{earned:.3f}':>14} {final:13.3f}")


if __name__ == "__main__":
    main()
