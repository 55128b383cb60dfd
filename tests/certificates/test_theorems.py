"""The theorems behind certificates: martingales, and Ville's bound on whole game trees."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import understudy as us
from tests.support.strategies import behaviors, policies, quick, unit_numbers
from understudy.certificates import UncenteredEvidence
from understudy.learners import Learner

Array = NDArray[np.float64]
Rewards = Callable[[tuple[int, ...]], Array]


def wealths(certificate: us.Certificate) -> list[Array]:
    """e^{S_i} of the four parts: of the lower bound, the upper bound, the gain and the loss."""
    parts = [certificate.bets.place(part) for part in range(4)]
    return [np.exp(certificate.evidence.log_wealths()[part]) for part in parts]


def means(certificate: us.Certificate, policy: Array, pi_b: Array, r: Array) -> list[Array]:
    """1 + λ μ of every bet of the four parts, whatever its center."""
    values, gains = certificate.bets.values, certificate.bets.gains
    mean, gain = float(policy @ r), float((policy - pi_b) @ r)
    rows = certificate.bets.rows
    return [
        np.tile(1 + grid * x, rows)
        for grid, x in ((values, mean), (values, 1 - mean), (gains, gain), (gains, -gain))
    ]


@quick
@given(pi_b=behaviors(zeros=False), data=st.data())
def test_every_factor_is_one_in_expectation(pi_b: Array, data: st.DataObject) -> None:
    """E_b[1 + λ x] = 1 + λ E_b[x], and E_b[x] is the mean that is bounded: all actions summed."""
    K = len(pi_b)
    policy = data.draw(policies(K))
    r, past = (
        np.array(data.draw(st.lists(unit_numbers, min_size=K, max_size=K))) for _ in range(2)
    )
    for centers in (None, [0.25, 1.0]):
        start = us.Certificate(behavior=pi_b, centers=centers)
        start = start.observe(us.Log(np.arange(K), past), np.full(K, 0.0))  # any past
        before = wealths(start)
        after = [
            wealths(start.observe(us.Feedback(b, r[b]), us.FixedPolicy(policy))) for b in range(K)
        ]
        for part, wanted in enumerate(means(start, policy, pi_b, r)):
            found = sum(q * (x[part] / before[part]) for q, x in zip(pi_b, after, strict=True))
            np.testing.assert_allclose(found, wanted, rtol=1e-9)


def test_an_action_that_is_never_shown_only_makes_the_bounds_wider() -> None:
    """Where q = 0 < π the factors are at most the martingale's, in expectation."""
    pi_b, policy, r = (
        np.array([0.5, 0.5, 0.0]),
        np.array([0.2, 0.2, 0.6]),
        np.array([0.3, 1.0, 0.7]),
    )
    start = us.Certificate(behavior=pi_b)
    for target in (us.FixedPolicy(policy), None):
        after = [
            wealths(start.observe(us.Feedback(b, r[b]), policy[b] if target is None else target))
            for b in range(2)
        ]
        for part, wanted in enumerate(means(start, policy, pi_b, r)):
            assert (0.5 * after[0][part] + 0.5 * after[1][part] < wanted).all()


class Node(NamedTuple):
    """Where a walk is: what was played and believed, its probability, the truth, what was wrong.

    `gains` are the gains of the rounds so far.
    """

    certificate: us.Certificate
    state: Any
    past: tuple[int, ...]
    probability: float
    truth: float
    gains: tuple[float, ...]
    wrong: Array


@dataclass(frozen=True)
class Tree:
    """A game small enough to enumerate all sequences of behavior actions.

    The rewards may depend on everything that was played before, and the target may be a learner.
    """

    pi_b: Array
    rewards: Rewards
    target: Array | Learner[Any]
    rounds: int
    crude: bool = False  # the largest ratio is that of any policy

    def walk(self, start: us.Certificate) -> Iterator[tuple[float, Array]]:
        """Every sequence: its probability, and in which rounds each bound was wrong.

        Lower, upper, gain, its upper bound, and the gain in a window.
        """
        state = None if isinstance(self.target, np.ndarray) else self.target.init()
        node = Node(start, state, (), 1.0, 0.0, (), np.zeros((0, 5), dtype=bool))
        yield from self._walk(node)

    def _walk(self, node: Node) -> Iterator[tuple[float, Array]]:
        before, state, past, probability, truth, gains, wrong = node
        if len(past) == self.rounds:
            yield probability, wrong
            return
        r = self.rewards(past)
        learner = None if isinstance(self.target, np.ndarray) else self.target
        policy = self.target if learner is None else learner.policy(state)
        assert isinstance(policy, np.ndarray)
        total, gained = truth + float(policy @ r), (*gains, float((policy - self.pi_b) @ r))
        for b in np.flatnonzero(self.pi_b > 0):
            event = us.Feedback(int(b), float(r[b]))
            target = float(policy[b]) if self.crude else us.FixedPolicy(policy)
            after = before.observe(event, target)
            window, gain, most = after.window, after.gain, after.gain_upper
            row = [
                after.lower > total + 1e-9,
                after.upper < total - 1e-9,
                gain is not None and gain > sum(gained) + 1e-9,
                most is not None and most < sum(gained) - 1e-9,
                window is not None and window.gain > np.mean(gained[window.start - 1 :]) + 1e-9,
            ]
            state_after = None if learner is None else learner.update(state, event)
            share, played = probability * float(self.pi_b[b]), (*past, int(b))
            yield from self._walk(
                Node(
                    after,
                    state_after,
                    played,
                    share,
                    total,
                    gained,
                    np.vstack([wrong, np.array(row)]),
                )
            )


def ever_wrong(tree: Tree, start: us.Certificate) -> Array:
    """The exact probability that each bound is wrong in any round."""
    return np.asarray(sum(p * wrong.any(axis=0) for p, wrong in tree.walk(start)))


RARE = np.array([0.1, 0.9])


def punishing(past: tuple[int, ...]) -> Array:
    """Pays for the action that was not played last, and only half as well after a repetition."""
    if not past:
        return np.array([1.0, 0.0])
    high = 0.5 if past[-2:-1] == past[-1:] else 1.0
    return np.array([high, 0.0]) if past[-1] == 1 else np.array([0.0, high])


TREES = {
    "a rare action that pays": Tree(RARE, lambda _: np.array([1.0, 0.2]), np.array([1.0, 0.0]), 8),
    "a rare action that fails": Tree(RARE, lambda _: np.array([0.0, 1.0]), np.array([0.9, 0.1]), 8),
    "an adversary that watches": Tree(RARE, punishing, np.array([0.6, 0.4]), 8),
    "a learner": Tree(RARE, punishing, us.exp3_ix(RARE, eta=1.0), 8),
    "probabilities of logged actions": Tree(RARE, punishing, np.array([0.6, 0.4]), 8, crude=True),
    "three actions": Tree(
        np.array([0.1, 0.3, 0.6]),
        lambda past: np.array([1.0, len(past) % 2, 0.5]),
        np.array([0.8, 0.1, 0.1]),
        5,
    ),
}


@pytest.mark.parametrize("lambdas", [None, [4.0, 1.0], [0.25]], ids=["grid", "two", "one"])
@pytest.mark.parametrize("name", TREES)
def test_the_probability_of_ever_being_wrong_is_what_was_promised(
    name: str, lambdas: list[float] | None
) -> None:
    """Ville's bound, exactly, over all sequences and all rounds: δ/2, δ/2 and δ."""
    for confidence, form in ((0.2, {}), (0.8, {}), (0.2, {"centers": [0.5]}), (0.2, {"rules": 1})):
        delta = 1 - confidence
        start = us.Certificate(
            behavior=TREES[name].pi_b, confidence=confidence, lambdas=lambdas, **form
        )
        lower, upper, gain, most, window = ever_wrong(TREES[name], start)
        assert max(lower, upper) <= delta / 2
        assert max(gain, most, window) <= delta


def test_ville_is_not_bounded_in_vain() -> None:
    """In these games each bound is wrong with some probability: the test above bites."""
    found = sum(
        ever_wrong(tree, us.Certificate(behavior=tree.pi_b, confidence=0.2, lambdas=[4.0, 1.0]))
        for tree in TREES.values()
    )
    assert (np.asarray(found) > 0.05).all()


def kl(q: float, p: float) -> float:
    """Bernoulli kl, as it is written."""
    terms = ((q, p), (1 - q, 1 - p))
    return sum(a * math.log(a / b) if a else 0.0 for a, b in terms)


def upper_confidence(count: int, t: int, n_actions: int, delta: float) -> float:
    """max{p : (t−1) kl(q̂, p) ≤ log(K t (t+1)/δ₁)}, δ₁ = δ/4, by bisection."""
    if t == 1 or count == t - 1:
        return 1.0
    low, high = q_hat, _ = count / (t - 1), 1.0
    budget = math.log(n_actions * t * (t + 1) / (delta / 4))
    for _ in range(200):
        middle = (low + high) / 2
        inside = middle < 1.0 and (t - 1) * kl(q_hat, middle) <= budget
        low, high = (middle, high) if inside else (low, middle)
    return high


def test_a_counted_behavior_is_bounded_by_rounds_before() -> None:
    """x_t = π R / u_t(b), with u_t made of the rounds before t, in the sums and the estimate."""
    rng = np.random.default_rng(5)
    actions, rewards = rng.choice(3, p=[0.1, 0.3, 0.6], size=60), rng.random(60)
    policy, delta = np.array([0.5, 0.3, 0.2]), 0.1
    u = [
        upper_confidence(int((actions[:k] == b).sum()), k + 1, 3, delta)
        for k, b in enumerate(actions)
    ]
    found = us.certify(us.Log(actions, rewards), policy, behavior=None, confidence=1 - delta)
    assert found.estimate == pytest.approx((policy[actions] * rewards / u).sum(), rel=1e-9)
    start = us.Certificate(behavior=us.Logged(n_actions=3), confidence=1 - 0.75 * delta)
    known = start.observe(us.Log(actions, rewards, u), policy)
    assert found.lower == pytest.approx(known.lower, rel=1e-9)
    assert found.upper == pytest.approx(known.upper, rel=1e-9)
    assert (found.gain, found.promoted, found.promoted_at, found.gain_curve) == (None,) * 4
    assert isinstance(found.certificate.evidence, UncenteredEvidence)
    assert found.certificate.evidence.counts.tolist() == np.bincount(actions, minlength=3).tolist()


@pytest.mark.parametrize("name", TREES)
def test_certificates_of_a_counted_behavior_hold_too(name: str) -> None:
    tree = TREES[name]
    start = us.Certificate(behavior=None, n_actions=len(tree.pi_b), confidence=0.2)
    lower, upper, *_ = ever_wrong(tree, start)
    assert max(lower, upper) <= 0.8 * (1 / 4 + 3 / 8)


@quick
@given(pi_b=behaviors(max_actions=3, decades=1.0, zeros=False), seed=st.integers(0, 1000))
def test_upper_bounds_on_the_propensity_never_help_the_target(pi_b: Array, seed: int) -> None:
    """On the event that u_t ≥ q, all S_i are at most those of the true propensities."""
    rng = np.random.default_rng(seed)
    log = us.Log(rng.choice(len(pi_b), p=pi_b, size=50), rng.random(50))
    u = [
        upper_confidence(int((log.actions[:k] == b).sum()), k + 1, len(pi_b), 0.05)
        for k, b in enumerate(log.actions)
    ]
    if (np.array(u) < pi_b[log.actions]).any():
        return  # outside of the event
    policy = pi_b[::-1]
    true = us.Certificate(behavior=pi_b, rules=1).observe(log, policy)
    counted = us.Certificate(behavior=None, n_actions=len(pi_b)).observe(log, policy)
    both = 2 * len(true.lambdas)
    S, S_true = counted.evidence.log_wealths(), true.evidence.log_wealths()[:both]
    assert (S - S_true).max() <= 1e-12
    assert counted.lower <= true.lower + 1e-9
    assert counted.upper >= true.upper - 1e-9


@pytest.mark.large
def test_a_counted_behavior_costs_little_in_the_long_run() -> None:
    rng = np.random.default_rng(0)
    pi_b, means = np.linspace(1, 3, 10) / 20, np.append(np.full(9, 0.4), 0.7)
    actions = rng.choice(10, p=pi_b, size=200_000)
    log = us.Log(actions, (rng.random(len(actions)) < means[actions]).astype(float))
    shortfalls = []
    for part in (log[:20_000], log):
        known, counted = (us.certify(part, np.eye(10)[9], behavior=q) for q in (pi_b, None))
        assert counted.lower < known.lower < 0.7 * len(part) < known.upper < counted.upper
        shortfalls.append(1 - counted.lower / known.lower)
    assert shortfalls[1] < shortfalls[0] / 2  # about 1/√10


def test_an_event_at_a_time_is_one_event() -> None:
    """The game trees above observe events; a log of one round is the same to the bit."""
    start = us.Certificate(behavior=RARE)
    event = us.Feedback(0, 0.7)
    one, other = start.observe(event, 0.3), start.observe(us.Log([0], [0.7]), [0.3])
    assert one.evidence.products.tobytes() == other.evidence.products.tobytes()
