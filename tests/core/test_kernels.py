"""`understudy.kernels.exponential_weights`: right after a million rounds, the same bits in parts.

What is exact here is exact in two ways: products of fifty digits (`reference.py`) for a few rounds,
and sums without rounding (`math.fsum`) for many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import mpmath
import numpy as np
import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

import understudy as us
from tests.support import formulas
from tests.support.enumeration import RECIPES
from tests.support.kernel_arrays import kernel_view
from tests.support.reference import multiplicative_weights
from tests.support.strategies import Array, Integers, quick
from understudy import kernels
from understudy.estimators import KnownBehavior
from understudy.learners import ExponentialWeights, Scores

MILLION = 1_000_000
SMALLEST = 1e-200  # probabilities above it are right relative to their size
TOLERANCE = 1e-9
FIELDS = ("scores", "residues", "rounds", "memory", "reference", "total")
BOUNDARIES = (1, 1023, 1024, 1025, 2047, 2048, 2049)


@dataclass
class Carried:
    """The kernels' own state, without a learner around it: so gains may be anything."""

    eta: float
    scores: Array
    residues: Array
    reference: float
    total: float
    rounds: int = 0

    @staticmethod
    def new(eta: float, n_actions: int) -> Carried:
        nothing = np.zeros(n_actions)
        return Carried(eta, nothing, nothing.copy(), 0.0, float(n_actions))

    def replay(self, actions: Integers, gains: Array) -> Array:
        """The trace."""
        trace = np.empty(len(actions))
        nothing = np.empty(0)
        rest = trace, nothing, nothing, nothing
        self._run(kernels.exponential_weights.replay, actions, gains, *rest)
        return trace

    def policies(self, actions: Integers, gains: Array) -> Array:
        table = np.empty((len(actions), len(self.scores)))
        self._run(kernels.exponential_weights.policies, actions, gains, table)
        return table

    def expected_reward(
        self, actions: Integers, gains: Array, rewards: Array, starts: Integers
    ) -> float:
        more = (kernel_view(rewards), kernel_view(starts))
        (earned,) = self._run(kernels.exponential_weights.expected_reward, actions, gains, *more)
        return float(earned)

    def policy(self) -> Array:
        policy, own = (
            np.empty(len(self.scores)),
            (kernel_view(self.scores), kernel_view(self.residues)),
        )
        kernels.exponential_weights.policy(self.eta, *own, self.reference, self.total, policy)
        return policy

    def _run(self, kernel: Any, actions: Integers, gains: Array, *rest: Any) -> Any:
        scores, residues = self.scores.copy(), self.residues.copy()
        carried = (self.reference, self.total, self.rounds)
        self.reference, self.total, *found = kernel(
            self.eta, scores, residues, *carried, kernel_view(actions), kernel_view(gains), *rest
        )
        self.scores, self.residues, self.rounds = scores, residues, self.rounds + len(actions)
        return found


class ExactScores:
    """G(a) as two numbers, to more than thirty digits: the sum without rounding, and its rest."""

    def __init__(self, n_actions: int) -> None:
        self.high, self.low = np.zeros(n_actions), np.zeros(n_actions)

    def add(self, actions: Integers, gains: Array) -> None:
        order = np.argsort(actions, kind="stable")
        played, first = np.unique(actions[order], return_index=True)
        for a, own in zip(played, np.split(gains[order], first[1:]), strict=True):
            terms = [self.high[a], self.low[a], *own.tolist()]
            self.high[a] = math.fsum(terms)
            self.low[a] = math.fsum([*terms, -self.high[a]])

    def policy(self, eta: float) -> Array:
        lead = int(np.argmax(self.high))
        x = eta * ((self.high - self.high[lead]) + (self.low - self.low[lead]))
        weights = np.exp(x - x.max())
        return np.asarray(weights / math.fsum(weights))


def assert_close(found: Array, wanted: Array) -> None:
    """To 1e-9 absolutely, and relatively wherever the probability is above 1e-200."""
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE)
    seen = wanted > SMALLEST
    np.testing.assert_allclose(found[seen], wanted[seen], rtol=TOLERANCE, atol=0)
    assert (found <= 1.0).all()


def exact_policies(n_actions: int, eta: float, actions: Integers, gains: Array) -> Array:
    """π_1 … π_{n+1} by products of fifty digits."""
    with mpmath.workdps(50):
        factors = [mpmath.exp(mpmath.mpf(eta) * mpmath.mpf(float(gain))) for gain in gains]
        return multiplicative_weights(n_actions, actions, factors)


def assert_exact(n_actions: int, eta: float, actions: Any, gains: Any) -> None:
    """Trace, policies and the last policy, against products of fifty digits."""
    played, gained = np.array(actions, dtype=np.int64), np.array(gains, dtype=np.float64)
    wanted = exact_policies(n_actions, eta, played, gained)
    first, second = Carried.new(eta, n_actions), Carried.new(eta, n_actions)
    assert_close(first.replay(played, gained), wanted[np.arange(len(played)), played])
    assert_close(second.policies(played, gained), wanted[:-1])
    assert_close(first.policy(), wanted[-1])
    assert_close(second.policy(), wanted[-1])


# Right


def assert_long_log(learner: ExponentialWeights, log: us.Log, stretches: int) -> None:
    """At the beginning of every stretch all of π_t, then a thousand rounds of trace, are right."""
    exact, state = ExactScores(learner.spec.n_actions), learner.init()
    gains, _ = learner.gains(state.memory, 0, log)
    size = len(log) // stretches
    for start in range(0, len(log), size):
        part, own = log[start : start + size], gains[start : start + size]
        wanted = exact.policy(learner.rate(0))
        assert_close(learner.policy(state), wanted)
        state, trace = learner.replay(state, part)
        assert_close(trace.probability[:1], wanted[part.actions[:1]])
        near = slice(0, 1000)
        relative = (exact.high - exact.high.max()) + exact.low
        table = formulas.exponential_weights(
            learner.rate(0), relative, part.actions[near], own[near]
        )
        each = np.arange(len(table) - 1)
        assert_close(trace.probability[near], table[each, part.actions[near]])
        exact.add(part.actions, own)
    assert_close(learner.policy(state), exact.policy(learner.rate(0)))
    found = state.scores + state.residues
    np.testing.assert_allclose(found, exact.high, rtol=2**-52, atol=0)


def random_log(n_actions: int, rounds: int) -> us.Log:
    rng = np.random.default_rng(n_actions)
    return us.Log(rng.integers(n_actions, size=rounds), rng.random(rounds))


@pytest.mark.large
@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize(
    ("n_actions", "stretches"),
    [(2, 23), (1500, 5), *(pytest.param(K, 23, marks=pytest.mark.full) for K in (10, 100, 1500))],
)
def test_a_million_rounds(n_actions: int, stretches: int, name: str) -> None:
    """Gains of every estimator; K = 1500 is refreshed every K rounds, not every 1024."""
    pi_b = us.behaviors.interpolated(n_actions=n_actions, alpha=0.9)
    learner = RECIPES[name](pi_b, 0.02 / math.sqrt(n_actions))
    assert_long_log(learner, random_log(n_actions, MILLION), stretches)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("n_actions", [2, 100, 1500])
def test_thousands_of_rounds(n_actions: int, name: str) -> None:
    """The same at a size for every day."""
    pi_b = us.behaviors.interpolated(n_actions=n_actions, alpha=0.9)
    learner = RECIPES[name](pi_b, 1.0 / math.sqrt(n_actions))
    assert_long_log(learner, random_log(n_actions, 5000), stretches=3)


@quick
@forall(data=st.data(), n_actions=st.integers(2, 4), eta=st.floats(0.01, 5.0))
def test_gains_of_any_sign_and_size(data: st.DataObject, n_actions: int, eta: float) -> None:
    """Weights that span thousands of decades, fall and rise: the policies are still those of w."""
    gain = st.one_of(st.floats(-2000.0, 2000.0), st.floats(-1.0, 1.0), st.just(0.0))
    event = st.tuples(st.integers(0, n_actions - 1), gain)
    events = data.draw(st.lists(event, min_size=1, max_size=40))
    assert_exact(n_actions, eta, [a for a, _ in events], [g for _, g in events])


def test_an_action_comes_back_from_nothing() -> None:
    """w(1) = e^-1000 is 0 beside the leader; a gain of 1000.5 takes it past the leader."""
    carried = Carried.new(1.0, 3)
    assert carried.replay(np.array([0]), np.array([1000.0])).tolist() == [1 / 3]
    assert carried.policy().tolist() == [1.0, 0.0, 0.0]
    trace = carried.replay(np.array([1, 1]), np.array([1000.5, 2000.0]))
    assert trace[0] == 0.0
    assert trace[1] == pytest.approx(1 / (1 + math.exp(-0.5)), rel=1e-12)
    assert carried.policy().tolist() == [0.0, 1.0, 0.0]
    carried.replay(np.array([2, 0]), np.array([3000.5, 2000.0]))
    last = np.exp([-0.5, 0.0, 0.0])
    np.testing.assert_allclose(carried.policy(), last / last.sum(), rtol=1e-12)
    assert_exact(3, 1.0, [0, 1, 1, 2, 0], [1000.0, 1000.5, 2000.0, 3000.5, 2000.0])


@pytest.mark.parametrize("leader", [False, True])
@pytest.mark.parametrize("jump", [599.0, 600.0, 601.0, 709.0, 710.0, 5000.0, 1e5, 1e9])
def test_a_jump_of_any_size(jump: float, leader: bool) -> None:
    """e^710 is infinite: the reference moves first, whether the leader jumps or another."""
    other = 1 if leader else 0
    gains = [3.0, jump, 0.25, jump - 2.0, 0.5, jump]
    assert_exact(3, 1.0, [0, 1 - other, 1, other, 2, 2], gains)
    assert_exact(3, 7.0, [0, 1 - other, 1, other, 2, 2], [gain / 7.0 for gain in gains])


def test_many_jumps_just_below_the_largest() -> None:
    """Every action at e^599 of the reference: their sum is finite, and π is uniform."""
    n = 1000
    carried = Carried.new(1.0, n)
    carried.replay(np.arange(n), np.full(n, 599.0))
    np.testing.assert_allclose(carried.policy(), np.full(n, 1 / n), rtol=1e-12)


@dataclass(frozen=True, eq=False)
class Losses(KnownBehavior):
    """An estimator of a user's own: −(1 − R) / q, so that scores only fall."""

    order_dependence: ClassVar[None] = None

    def gain(self, R: Array, q: Array, t: Integers) -> Array:  # noqa: ARG002 - the same in all t
        return -(1.0 - R) / q


@pytest.mark.parametrize("eta", [0.05, 3.0])
def test_an_estimator_of_negative_gains(eta: float) -> None:
    """Its policies are those of the reference, by every method, also after a merge."""
    pi_b = np.array([0.6, 0.3, 0.1])
    learner, rng = ExponentialWeights(eta, Losses(pi_b)), np.random.default_rng(2)
    n = 1500
    log = us.Log(rng.choice(3, n, p=pi_b), rng.random(n))
    gains, _ = learner.gains(learner.init().memory, 0, log)
    wanted = formulas.exponential_weights(eta, np.zeros(3), log.actions, gains)
    after, policies = learner.policies(learner.init(), log)
    state, trace = learner.replay(learner.init(), log)
    assert gains.max() < 0
    assert_close(policies, wanted[:-1])
    assert_close(trace.probability, wanted[np.arange(n), log.actions])
    for end in (after, state, learner.merge(*halves(learner, log))):
        assert_close(learner.policy(end), wanted[-1])
    rewards = rng.random((1, 3))
    _, earned = learner.expected_reward(learner.init(), log, rewards, np.zeros(1, dtype=np.int64))
    assert earned == pytest.approx(float((wanted[:-1] * rewards).sum()), rel=1e-9)


def halves(learner: ExponentialWeights, log: us.Log) -> tuple[Scores, Scores]:
    half = len(log) // 2
    first, second = (learner.replay(learner.init(), part)[0] for part in (log[:half], log[half:]))
    return first, second


def sums_to_the_last_digit(rounds: int, eta: float) -> float:
    """Constant gains, whose rounding errors all point one way; how far plain sums would be off."""
    actions = np.resize(np.array([0, 0, 0, 1]), rounds)
    gains = np.resize(np.array([0.1, 0.1, 0.1, 0.3]), rounds)
    carried, exact = Carried.new(eta, 2), ExactScores(2)
    carried.replay(actions, gains)
    exact.add(actions, gains)
    for a in range(2):
        whole = math.fsum(gains[actions == a])
        assert abs(carried.scores[a] + carried.residues[a] - whole) <= math.ulp(whole)
    assert_close(carried.policy(), exact.policy(eta))
    plain = np.array([np.add.accumulate(gains[actions == a])[-1] for a in range(2)])
    return float(abs(formulas.softmax(eta * plain) - exact.policy(eta)).max())


def test_constant_gains() -> None:
    """Scores are compensated: plain sums would be off by more than 1e-9."""
    assert sums_to_the_last_digit(40_000, eta=20.0) > 1e-9


@pytest.mark.large
def test_a_million_constant_gains() -> None:
    """The same after 10⁶ rounds, where plain sums would be off by more than 1e-6."""
    assert sums_to_the_last_digit(MILLION, eta=20.0) > 1e-6


def test_merged_scores_are_compensated() -> None:
    """A thousand states merged one after the other: the sum without rounding, to the last digit."""
    learner, log = us.exp3([0.3, 0.7], eta=0.05), random_log(2, 5000)
    merged = learner.init()
    for part in log.stretches(5):
        merged = learner.merge(merged, learner.replay(learner.init(), part)[0])
    gains, _ = learner.gains(merged.memory, 0, log)
    for a in range(2):
        whole = math.fsum(gains[log.actions == a])
        assert abs(merged.scores[a] + merged.residues[a] - whole) <= math.ulp(whole)


@pytest.mark.parametrize(("n_actions", "every"), [(3, 1024), (1024, 1024), (1025, 1025)])
def test_weights_are_made_anew_every_k_rounds_and_not_more_often(
    n_actions: int, every: int
) -> None:
    """The K weights of a refresh are paid for by max(1024, K) rounds: O(1) a round."""
    carried = Carried.new(0.01, n_actions)
    carried.replay(np.zeros(every - 1, dtype=np.int64), np.full(every - 1, 0.5))
    assert carried.reference == 0.0
    carried.replay(np.zeros(1, dtype=np.int64), np.full(1, 0.5))
    assert carried.reference == 0.5 * every


# The same bits


def as_bits(state: Scores) -> list[Any]:
    return [np.asarray(getattr(state, name)).tobytes() for name in FIELDS]


def played_in_parts(
    learner: ExponentialWeights, log: us.Log, cuts: list[int]
) -> tuple[list[Any], bytes]:
    """The bits of the state and of the trace, if the log is cut there."""
    state, traces = learner.init(), []
    for start, stop in zip([0, *cuts], [*cuts, len(log)], strict=True):
        state, trace = learner.replay(state, log[start:stop])
        traces.append(trace.probability)
    return as_bits(state), np.concatenate(traces).tobytes()


def wild(n_actions: int) -> tuple[ExponentialWeights, us.Log]:
    """A learner whose reference moves between refreshes too, and two refreshes of rounds."""
    rng = np.random.default_rng(n_actions)
    n = 2 * max(1024, n_actions) + 60
    log = us.Log(rng.integers(n_actions, size=n), rng.random(n), rng.uniform(0.001, 1.0, n))
    return us.exp3(us.Logged(n_actions), eta=0.7), log


CASES = {n_actions: wild(n_actions) for n_actions in (3, 1100)}


@pytest.mark.parametrize("n_actions", CASES)
@quick
@forall(data=st.data())
def test_any_batching_gives_the_same_bits(n_actions: int, data: st.DataObject) -> None:
    """All fields of the state and the whole trace, cut anywhere, also next to a refresh."""
    learner, log = CASES[n_actions]
    near = [i * max(1024, n_actions) + j for i in (0, 1, 2) for j in (-1, 0, 1)]
    places = st.one_of(st.sampled_from(near[1:]), st.integers(0, len(log)))
    cuts = sorted(data.draw(st.lists(places, max_size=6)))
    assert played_in_parts(learner, log, cuts) == played_in_parts(learner, log, [])


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("n_actions", [3, 1100])
def test_one_event_at_a_time_across_refreshes(n_actions: int, name: str) -> None:
    """`update` gives the bits of `replay` at rounds 1023, 1024, 1025 and at K, 2K for K > 1024."""
    every = max(1024, n_actions)
    learner = RECIPES[name](np.full(n_actions, 1 / n_actions), 0.3)
    log = random_log(n_actions, 2 * every + 5)
    state, _ = learner.replay(learner.init(), log)
    one, at = learner.init(), 0
    for stop in (every - 5, 2 * every - 5):
        one, _ = learner.replay(one, log[at:stop])
        for event in log[stop : stop + 10].events():
            one = learner.update(one, event)
        at = stop + 10
        assert as_bits(one) == as_bits(learner.replay(learner.init(), log[:at])[0])
    assert as_bits(one) == as_bits(state)


def test_long_logs_are_replayed_in_stretches_with_the_same_bits() -> None:
    """`replay` cuts at 8192 events itself."""
    learner, log = us.exp3([0.2, 0.8], eta=0.05), random_log(2, 20_000)
    whole = played_in_parts(learner, log, [])
    assert played_in_parts(learner, log, [1, 8191, 8192, 8193, 16_000]) == whole
    assert np.frombuffer(whole[1]).shape == (20_000,)


@pytest.mark.parametrize("n_actions", CASES)
def test_policies_and_replay_agree_bit_for_bit(n_actions: int) -> None:
    """The trace is the played column of `policies`, and both leave the same state."""
    learner, log = CASES[n_actions]
    state, trace = learner.replay(learner.init(), log)
    after, table = learner.policies(learner.init(), log)
    assert as_bits(state) == as_bits(after)
    np.testing.assert_array_equal(table[np.arange(len(log)), log.actions], trace.probability)


@pytest.mark.parametrize("rounds", BOUNDARIES)
def test_policy_gives_the_bits_of_policies(rounds: int) -> None:
    """π_t of a state alone is π_t along a log, also where `replay` would refresh W first."""
    learner, log = us.exp3(np.full(10, 0.1), eta=0.01), random_log(10, 2060)
    _, table = learner.policies(learner.init(), log)
    state, _ = learner.replay(learner.init(), log[:rounds])
    np.testing.assert_array_equal(learner.policy(state), table[rounds])


def test_no_probability_is_above_one() -> None:
    """W is carried, and may fall a last digit short of the one weight that is nearly all of it."""
    uncapped = []
    for seed in range(200):
        gains = np.random.default_rng(seed).uniform(0.7, 3.7, 100)
        gains[0] = 40.0  # nothing is left of the other action
        actions, carried = np.zeros(100, dtype=np.int64), Carried.new(1.0, 2)
        assert carried.replay(actions, gains).max() <= 1.0
        assert carried.policy().max() <= 1.0
        assert Carried.new(1.0, 2).policies(actions, gains).max() <= 1.0
        x = (carried.scores[0] - carried.reference) + carried.residues[0]
        uncapped.append(math.exp(x) / carried.total)
    assert max(uncapped) > 1.0


# What a referee counts


def assert_earned(carried: Carried, log: tuple[Integers, Array], rewards: Array, **at: Any) -> None:
    """Σ_t ⟨π_t, r_t⟩ by `expected_reward`, in calls cut at `cuts`, is the sum over `policies`."""
    actions, gains = log
    starts, cuts = np.array(at["starts"]), at["cuts"]
    row = np.searchsorted(starts, np.arange(len(actions)), side="right") - 1
    twin = Carried.new(carried.eta, len(carried.scores))
    wanted = math.fsum((twin.policies(actions, gains) * rewards[row]).ravel())
    earned = 0.0
    for start, stop in zip([0, *cuts], [*cuts, len(actions)], strict=True):
        if start < stop:
            held = np.unique(row[start:stop])
            begin = np.maximum(starts[held] - start, 0)
            part = slice(start, stop)
            earned += carried.expected_reward(actions[part], gains[part], rewards[held], begin)
    assert earned == pytest.approx(wanted, rel=TOLERANCE)
    np.testing.assert_array_equal(carried.scores, twin.scores)
    np.testing.assert_array_equal(carried.residues, twin.residues)
    assert (carried.reference, carried.total) == (twin.reference, twin.total)


PLACES = st.one_of(st.sampled_from([1, 1023, 1024, 1025, 2048]), st.integers(1, 2099))


@pytest.mark.parametrize("kind", ["small", "jumps", "falls"])
@quick
@forall(data=st.data())
def test_earning_is_the_sum_over_policies(kind: str, data: st.DataObject) -> None:
    """Rows of rewards may begin anywhere, also where W is refreshed, and calls may be cut there."""
    rng, n = np.random.default_rng(7), 2100
    gains = 0.02 * rng.random(n)
    if kind != "small":
        gains[::97] += 400.0 if kind == "jumps" else -0.3
    log = (rng.integers(4, size=n), gains)
    starts = [0, *sorted(data.draw(st.sets(PLACES, max_size=8)))]
    cuts = sorted(data.draw(st.sets(PLACES, max_size=5)))
    rewards = rng.random((len(starts), 4)) * (rng.random((len(starts), 4)) < 0.7)
    assert_earned(Carried.new(2.0, 4), log, rewards, starts=starts, cuts=cuts)


def test_earning_with_a_row_a_round_and_more_actions_than_rounds_between_refreshes() -> None:
    """K = 1100, one reward vector per round, calls cut at K."""
    rng, n, n_actions = np.random.default_rng(8), 1110, 1100
    log = (rng.integers(n_actions, size=n), 50.0 * rng.random(n))
    rewards = rng.random((n, n_actions))
    carried = Carried.new(0.5, n_actions)
    assert_earned(carried, log, rewards, starts=np.arange(n), cuts=[1024, 1100, 1101])
