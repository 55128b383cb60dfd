"""One learner for every comparator: its theorem on every path, its bound, its root, its groups."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.support.enumeration import (
    Adversary,
    Event,
    Expected,
    History,
    Node,
    adversaries,
    assert_at_most,
    comparators,
    oblivious,
    reachable,
    summed,
)
from tests.support.formulas import last_change, weighted_entropy
from tests.support.strategies import Array, Game, Integers, behaviors, games, logs, quick, seeds
from tests.theory.test_theorems import LARGE_GAMES
from understudy import theory
from understudy.errors import InvalidArgument, NotMergeable
from understudy.learners import CoverageAdaptive, LeveledScores

GAINS = ("implicit", "logarithmic")


def gain(name: str, R: Any, q: Any, eta: Any) -> Any:
    """Both gains, once more."""
    return R / (q + eta / 2) if name == "implicit" else np.log1p(eta * R / q) / eta


def expert_gains(learner: CoverageAdaptive, log: us.Log, q: Array) -> Array:
    """Σ_t g_t of every expert, each frozen with its round's rate; (levels, K) on a grid."""
    grid = isinstance(learner.behavior, us.Logged)
    rates = (
        np.tile(learner.rates, (len(log), 1)) if grid else learner.rates[log.actions, np.newaxis]
    )
    if learner.decaying:
        rates = rates / np.sqrt(last_change(np.arange(1, len(log) + 1)))[:, np.newaxis]
    gains = gain(learner.gain, log.rewards[:, np.newaxis], q[:, np.newaxis], rates)
    totals = np.zeros((learner.spec.n_actions, rates.shape[1]))
    np.add.at(totals, log.actions, gains)
    return totals.T if grid else totals[:, 0]


def last_rates(learner: CoverageAdaptive, rounds: int) -> Array:
    since = float(last_change(np.asarray(max(1, rounds))))
    return learner.rates / math.sqrt(since) if learner.decaying else learner.rates


def price(rates: Array, prior: Array) -> Array:
    """D_a, once more: the divergence of the weighted entropy from the prior to each corner."""
    own = [(math.log(1 / w) - 1 + w) / eta for eta, w in zip(rates, prior, strict=True)]
    rest = [
        sum(w / eta for eta, w in zip(rates, prior, strict=True)) - prior[a] / rates[a]
        for a in range(len(prior))
    ]
    return np.asarray(np.add(own, rest))


def experts(learner: CoverageAdaptive, rounds: int) -> tuple[Array, Array]:
    """Rate and prior of every expert, in the order of its scores."""
    rates = last_rates(learner, rounds)
    if not isinstance(learner.behavior, us.Logged):
        return rates, learner.prior
    K = learner.behavior.n_actions
    return np.repeat(rates, K), np.repeat(learner.prior / K, K)


def assert_pathwise(learner: CoverageAdaptive, log: us.Log, q: Array) -> None:
    """Σ_t [g_t(e) − ⟨π_t, r̂_t⟩] ≤ D_e for every expert that has a prior, on this log."""
    _, trace = learner.replay(learner.init(), log)
    estimated = float(trace.probability @ (log.rewards / q))
    rates, prior = experts(learner, len(log))
    gains = expert_gains(learner, log, q).ravel()
    seen = prior > 0
    bounds = price(rates[seen], prior[seen])
    size = max(1.0, estimated, float(bounds.max()))
    assert (gains[seen] - estimated <= bounds + 1e-9 * size).all()


def wild_learner(rng: np.random.Generator) -> tuple[CoverageAdaptive, Array]:
    """Any rates, any prior, either gain, either form, horizon or none; and π_B."""
    K, name = int(rng.integers(2, 7)), GAINS[rng.integers(2)]
    weights = 10.0 ** rng.uniform(-4, 0, K)
    q = weights / weights.sum()
    kind = rng.integers(4)
    behavior: Any = us.Logged(K) if rng.random() < 0.4 else q
    horizon = int(rng.integers(1, 200)) if kind < 2 else None
    if kind in (1, 3):
        size = int(rng.integers(2, 6)) if isinstance(behavior, us.Logged) else K
        rates, prior = 10.0 ** rng.uniform(-2, 1, size), rng.dirichlet(np.full(size, 0.5)) + 1e-6
        own: Any = {"rates": rates, "prior": prior / prior.sum()}
    else:
        own = {"multiplier": float(10.0 ** rng.uniform(-1, 1))}
    return us.coverage_adaptive(behavior, horizon=horizon, gain=name, **own), q


def wild_log(rng: np.random.Generator, learner: CoverageAdaptive, q: Array) -> tuple[us.Log, Array]:
    """Actions and rewards by no rule: long runs, comebacks, rewards 0, 1 and between."""
    n, K = int(rng.integers(1, 60)), len(q)
    actions = np.repeat(rng.integers(K, size=n), rng.integers(1, 6, size=n))[:n]
    rewards = rng.choice([0.0, 1.0, 1.0, 0.5, rng.random()], size=n)
    if not isinstance(learner.behavior, us.Logged):
        return us.Log(actions, rewards), q[actions]
    drifting = 10.0 ** rng.uniform(-4, 0, n)
    return us.Log(actions, rewards, drifting), drifting


@pytest.mark.large
@pytest.mark.parametrize("sequences", [1_000, pytest.param(10_000, marks=pytest.mark.full)])
def test_the_theorem_on_thousands_of_sequences(sequences: int) -> None:
    """No condition on rates, prior, rewards or propensities: it holds on every path."""
    rng = np.random.default_rng(0)
    for _ in range(sequences):
        learner, q = wild_learner(rng)
        log, played = wild_log(rng, learner, q)
        assert_pathwise(learner, log, played)


@pytest.mark.parametrize("name", GAINS)
@quick
@given(
    data=st.data(), behavior=behaviors(zeros=False, decades=5.0), multiplier=st.floats(0.01, 100)
)
def test_the_theorem_on_any_log(
    name: str, data: st.DataObject, behavior: Array, multiplier: float
) -> None:
    for horizon in (40, None):
        learner = us.coverage_adaptive(behavior, horizon=horizon, multiplier=multiplier, gain=name)
        log = data.draw(logs(learner))
        assert_pathwise(learner, log, behavior[log.actions])


@pytest.mark.parametrize("name", GAINS)
@quick
@given(data=st.data(), n_actions=st.integers(2, 5))
def test_the_theorem_on_any_log_of_the_grid(name: str, data: st.DataObject, n_actions: int) -> None:
    for horizon in (40, None):
        learner = us.coverage_adaptive(us.Logged(n_actions), horizon=horizon, gain=name)
        log = data.draw(logs(learner))
        assert log.propensities is not None
        assert_pathwise(learner, log, log.propensities)


@pytest.mark.parametrize("worst", [np.argmin, np.argmax])
@pytest.mark.parametrize("seed", range(10))
def test_the_theorem_against_an_adversary_that_watches(
    seed: int, worst: Callable[..., int]
) -> None:
    """The next event is always about the action that the learner trusts least, or most."""
    rng = np.random.default_rng(seed)
    learner, q = wild_learner(rng)
    state, events = learner.init(), []
    played: list[float] = []
    for _ in range(40):
        b = int(worst(learner.policy(state)))
        logged = isinstance(learner.behavior, us.Logged)
        propensity = float(10.0 ** rng.uniform(-3, 0)) if logged else None
        events.append(us.Feedback(b, float(rng.random() < 0.8), propensity))
        played.append(float(q[b]) if propensity is None else propensity)
        state = learner.update(state, events[-1])
    log = us.Log(
        [event.action for event in events],
        [event.reward for event in events],
        played if isinstance(learner.behavior, us.Logged) else None,
    )
    assert_pathwise(learner, log, np.array(played))


@pytest.mark.parametrize(("name", "recipe"), [("implicit", us.exp3_ix), ("logarithmic", us.prod)])
@quick
@given(data=st.data(), behavior=behaviors(zeros=False), eta=st.floats(0.01, 2.0))
def test_equal_rates_give_exp3_ix_back(
    name: str, recipe: Any, data: st.DataObject, behavior: Array, eta: float
) -> None:
    """η_a = η and a uniform prior: the policies of Exp3-IX, or of Prod, to 1e-12."""
    K = len(behavior)
    learner = us.coverage_adaptive(
        behavior, rates=np.full(K, eta), prior=np.full(K, 1 / K), gain=name
    )
    known = recipe(behavior, eta=eta)
    log = data.draw(logs(known))
    state, found = learner.policies(learner.init(), log)
    after, wanted = known.policies(known.init(), log)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(learner.policy(state), known.policy(after), rtol=1e-12, atol=1e-12)


@quick
@given(seed=seeds)
def test_policies_are_those_of_the_reference(seed: int) -> None:
    """Λ by bisection, weight by weight, against groups, carried sums and Newton's method."""
    rng = np.random.default_rng(seed)
    learner, q = wild_learner(rng)
    log, played = wild_log(rng, learner, q)
    _, found = learner.policies(learner.init(), log)
    for t in range(len(log)):
        rates, prior = experts(learner, t + 1)
        scores = expert_gains(learner, log[:t], played[:t])
        wanted = weighted_entropy(rates, prior, scores.ravel())
        np.testing.assert_allclose(
            found[t], wanted.reshape(-1, learner.spec.n_actions).sum(axis=0), rtol=1e-9, atol=1e-12
        )


@quick
@given(behavior=behaviors(zeros=False, decades=4.0), seed=seeds)
def test_the_level_never_falls(behavior: Array, seed: int) -> None:
    """Gains are not negative and the rates stay, so Λ_t does not decrease."""
    rng = np.random.default_rng(seed)
    learner = us.coverage_adaptive(behavior, horizon=50)
    state, levels = learner.init(), [0.0]
    for _ in range(40):
        b = int(rng.integers(len(behavior)))
        state = learner.update(state, us.Feedback(b, float(rng.random())))
        levels.append(state.level)
    assert (np.diff(levels) >= -1e-12 * np.abs(levels[1:])).all()


# The root


@pytest.mark.parametrize("name", GAINS)
@pytest.mark.parametrize("smallest", [1e-12, 1e-6, 1e-3])
def test_extreme_propensities_and_scores(smallest: float, name: str) -> None:
    """q from 1e-12 to 1, scores of 10⁶ and more: probabilities, and those of the reference."""
    q = np.geomspace(smallest, 1.0, 13)
    q /= q.sum()
    learner = us.coverage_adaptive(q, horizon=10**6, gain=name)
    rng = np.random.default_rng(1)
    state = learner.init()
    for spread in (1.0, 1e3, 1e6):
        log = us.Log(rng.integers(13, size=400), rng.random(400) ** (1 / spread))
        state, trace = learner.replay(state, log)
        assert np.isfinite(trace.probability).all()
        policy = learner.policy(state)
        assert policy.sum() == pytest.approx(1.0, abs=1e-12)
        wanted = weighted_entropy(learner.rates, learner.prior, state.scores[0])
        np.testing.assert_allclose(policy, wanted, rtol=1e-7, atol=1e-10)
    if smallest <= 1e-6:
        assert state.scores.max() > 1e6


def test_a_group_that_had_vanished_comes_back() -> None:
    """Its weight is below the smallest double for thousands of rounds, and then the largest."""
    learner = us.coverage_adaptive([0.01, 0.99], rates=[5.0, 1.0], prior=[0.5, 0.5])
    first = us.Log(np.ones(3000, dtype=np.int64), np.ones(3000))
    state, trace = learner.replay(learner.init(), first)
    assert learner.policy(state)[0] == 0.0
    assert trace.probability[-1] == 1.0
    second = us.Log(np.zeros(9000, dtype=np.int64), np.ones(9000))
    state, trace = learner.replay(state, second)
    assert trace.probability[0] == 0.0
    assert learner.policy(state)[0] > 0.999


# The bound


def expected_of(
    learner: CoverageAdaptive,
    behaviors: Array,
    rewards_at: Callable[[History, Array], Array],
    rates: Array | None = None,
) -> Expected:
    """Exact expectations where round t has a behavior of its own, a row of a table (n, K).

    The gains are those of these rates, in round 1 if they fall: the learner's own, or a level's.
    """
    own = learner.rates if rates is None else rates
    logged = isinstance(learner.behavior, us.Logged)

    def look(history: History, state: LeveledScores) -> tuple[Array, Array, list[Event]]:
        policy, q = learner.policy(state), behaviors[len(history)]
        rewards = rewards_at(history, policy)
        events: list[Event] = [
            (float(q[a]), a, us.Feedback(a, float(rewards[a]), float(q[a]) if logged else None))
            for a in np.flatnonzero(q).tolist()
        ]
        return policy, rewards, events

    def gains_at(node: Node) -> Array:
        t = len(node.history)
        eta = own / math.sqrt(last_change(np.asarray(t + 1))) if learner.decaying else own
        q = behaviors[t]
        gains = np.zeros(len(q))
        shown = q > 0
        eta = np.broadcast_to(eta, q.shape)[shown]
        gains[shown] = q[shown] * gain(learner.gain, node.rewards[shown], q[shown], eta)
        return gains

    return summed(reachable(learner, len(behaviors), look), gains_at)


@pytest.mark.parametrize("name", GAINS)
@quick
@given(game=games(), adversary=adversaries, multiplier=st.sampled_from([1.0, 0.2, 5.0]))
def test_expected_regret_against_every_comparator(
    name: str, game: Game, adversary: Adversary, multiplier: float
) -> None:
    """E Reg(π*) ≤ Σ_a π*(a)(D_a + (η_a/2) Σ_t E r_t(a)/(q(a) + η_a/2)), horizon or none."""
    n, q = game.rounds, game.behavior
    table = np.broadcast_to(q, (n, len(q)))
    for horizon in (n, None):
        learner = us.coverage_adaptive(q, horizon=horizon, multiplier=multiplier, gain=name)
        exact = expected_of(
            learner, table, lambda history, policy: adversary(game, history, policy)
        )
        for comparator in comparators(len(q)):
            own: Any = {} if horizon is None else {"total_rewards": exact.rewards}
            bound = theory.coverage_adaptive_bound(
                comparator, q, horizon=n, multiplier=multiplier, anytime=horizon is None, **own
            )
            assert (bound == math.inf) == bool((comparator[q == 0] > 0).any())
            prices = theory.coverage_adaptive_price(last_rates(learner, n), learner.prior)
            played = comparator > 0
            sharpest = comparator[played] @ prices[played] + exact.bias(comparator)
            assert_at_most(exact.regret(comparator), sharpest)
            assert_at_most(sharpest, bound)


@pytest.mark.parametrize("size", LARGE_GAMES)
def test_expected_regret_in_larger_games(size: str) -> None:
    game = LARGE_GAMES[size]
    q, n = game.behavior, game.rounds
    learner = us.coverage_adaptive(q, horizon=n)
    table = np.broadcast_to(q, (n, len(q)))
    exact = expected_of(learner, table, lambda history, policy: oblivious(game, history, policy))
    for a in np.flatnonzero(q):
        always = np.eye(len(q))[a]
        bound = theory.coverage_adaptive_bound(int(a), q, horizon=n, total_rewards=exact.rewards)
        assert_at_most(exact.regret(always), bound)
        uniform = theory.coverage_adaptive_uniform_bound(
            q, horizon=n, coverage=us.coverage(int(a), q)
        )
        assert_at_most(theory.coverage_adaptive_bound(int(a), q, horizon=n), uniform)


@pytest.mark.parametrize("name", GAINS)
@quick
@given(
    seed=seeds,
    n_actions=st.integers(2, 3),
    rounds=st.integers(1, 4),
    multiplier=st.sampled_from([1.0, 5.0, 30.0]),
)
def test_expected_regret_of_the_grid(
    name: str, *, seed: int, n_actions: int, rounds: int, multiplier: float
) -> None:
    """A behavior that drifts, known one event at a time: D + the bias, for every level.

    That is at most the theorem's min over levels plus 1.5/η_0, which is itself above n here.
    """
    rng = np.random.default_rng(seed)
    drifting = rng.dirichlet(np.full(n_actions, 0.5), size=rounds) + 0.01
    drifting /= drifting.sum(axis=1, keepdims=True)
    rewards = rng.random((rounds, n_actions))
    learner = us.coverage_adaptive(
        us.Logged(n_actions), horizon=rounds, gain=name, multiplier=multiplier
    )
    prices = price(*experts(learner, rounds)).reshape(-1, n_actions)
    levels = [
        expected_of(learner, drifting, lambda history, _: rewards[len(history)], eta)
        for eta in learner.rates
    ]
    for a, always in enumerate(np.eye(n_actions)):
        sharp = [own[a] + exact.bias(always) for own, exact in zip(prices, levels, strict=True)]
        assert_at_most(levels[0].regret(always), min(sharp))
        bound = theory.coverage_grid_bound(
            n_actions,
            horizon=rounds,
            inverse_propensities=float((1 / drifting[:, a]).sum()),
            multiplier=multiplier,
        )
        assert_at_most(min(sharp), bound)


@quick
@given(behavior=behaviors(max_actions=12, decades=12.0), horizon=st.integers(1, 10**6))
def test_the_bound_for_all_comparators_is_above_each_one(behavior: Array, horizon: int) -> None:
    """(√(2 max L) + 2)√(C n): the dyadic groups cost 1.5 % and the other actions at most 1.69."""
    for a in np.flatnonzero(behavior).tolist():
        full = theory.coverage_adaptive_bound(a, behavior, horizon=horizon)
        ratio = us.coverage(a, behavior)
        uniform = theory.coverage_adaptive_uniform_bound(behavior, horizon=horizon, coverage=ratio)
        assert_at_most(full, uniform)


def test_the_exact_price() -> None:
    """D_a against a second way of writing it, and Exp3-IX's log K/η where all rates are equal."""
    rates, prior = np.array([0.1, 0.4, 2.0]), np.array([0.2, 0.5, 0.3])
    np.testing.assert_allclose(theory.coverage_adaptive_price(rates, prior), price(rates, prior))
    same = theory.coverage_adaptive_price(np.full(7, 0.3), np.full(7, 1 / 7))
    np.testing.assert_allclose(same, math.log(7) / 0.3)


def test_groups_are_dyadic_also_at_exact_powers() -> None:
    """q_max/q = 2^j lies in group j, at every j: differences of logarithms would misplace some."""
    powers = 2.0 ** -np.arange(1, 40, dtype=np.float64)
    q = np.append(powers, powers[-1])
    rates, prior = theory.coverage_adaptive_tuning(q, horizon=100)
    assert len(set(zip(rates.tolist(), prior.tolist(), strict=True))) == 39
    j = np.arange(39)
    u = 2.0 ** (-j / 2) / ((j + 1) * (j + 2))
    u[-1] /= 2
    np.testing.assert_allclose(prior[:39], u / (u.sum() + u[-1]), rtol=1e-12)


def test_groups_are_dyadic_also_where_logarithms_are_rounded() -> None:
    """0.3 · 2^−j: log₂ 0.3 − log₂(0.3 · 2^−j) is below j for some j, the ratio is exact."""
    powers = 0.3 * 2.0 ** -np.arange(30, dtype=np.float64)
    q = np.append(powers, [(1 - powers.sum()) / 2] * 2)  # two more, in group 0
    assert (np.log2(0.3) - np.log2(powers) < np.arange(30)).any()
    rates, prior = theory.coverage_adaptive_tuning(q, horizon=100)
    assert len(set(zip(rates.tolist(), prior.tolist(), strict=True))) == 30
    assert rates[0] == rates[-1]


@quick
@given(behavior=behaviors(max_actions=12, decades=6.0))
def test_rates_suit_the_coverage_of_their_action(behavior: Array) -> None:
    """√(2 L_a q(a)/n) but for the middle of a dyadic group, which is within √2 of q(a)."""
    n = 1000
    rates, prior = theory.coverage_adaptive_tuning(behavior, horizon=n)
    seen = behavior > 0
    L = 1 - np.log(prior[seen])
    own = rates[seen] ** 2 * n / (2 * L)
    assert prior.sum() == pytest.approx(1.0)
    assert (prior[~seen] == 0).all()
    assert (own <= behavior[seen] * math.sqrt(2) * (1 + 1e-9)).all()
    assert (own >= behavior[seen] / math.sqrt(2) * (1 - 1e-9)).all()
    faster, _ = theory.coverage_adaptive_tuning(behavior, horizon=n, multiplier=3.0)
    np.testing.assert_allclose(faster[seen], 3 * rates[seen])
    unending, _ = theory.coverage_adaptive_tuning(behavior)
    np.testing.assert_allclose(unending[seen] / math.sqrt(n), rates[seen] / math.sqrt(2))


# States and paths


@pytest.mark.parametrize("logged", [False, True])
@quick
@given(data=st.data(), behavior=behaviors(zeros=False))
def test_states_add_up_in_any_order(logged: bool, data: st.DataObject, behavior: Array) -> None:
    learner = us.coverage_adaptive(us.Logged(len(behavior)) if logged else behavior, horizon=50)
    log = data.draw(logs(learner))
    cut = data.draw(st.integers(0, len(log)))
    first, second = (learner.replay(learner.init(), part)[0] for part in (log[:cut], log[cut:]))
    whole, _ = learner.replay(learner.init(), log)
    for merged in (learner.merge(first, second), learner.merge(second, first)):
        assert merged.rounds == len(log)
        np.testing.assert_allclose(merged.scores, whole.scores, rtol=1e-12)
        np.testing.assert_allclose(
            learner.policy(merged), learner.policy(whole), rtol=1e-10, atol=1e-13
        )


def test_states_without_a_horizon_do_not_add_up() -> None:
    for behavior in (np.array([0.5, 0.5]), us.Logged(2)):
        learner = us.coverage_adaptive(behavior)
        with pytest.raises(NotMergeable, match="depends on the round"):
            learner.merge(learner.init(), learner.init())


@pytest.mark.parametrize("rewards", ["mean", "realised"])
@pytest.mark.parametrize("horizon", [300, None])
@pytest.mark.parametrize("logged", [False, True])
def test_simulations_play_what_the_referee_plays(logged: bool, horizon: Any, rewards: Any) -> None:
    q = np.array([0.02, 0.28, 0.7])
    learner = us.coverage_adaptive(us.Logged(3) if logged else q, horizon=horizon)
    game = us.Game(us.adversaries.switching(n_actions=3, rounds=300), q, rounds=300)
    found = us.simulate(game, {"it": learner}, runs=2, seed=5, comparators=[0], rewards=rewards)
    assert found.path == {"it": "compiled"}
    for run in range(2):
        regret = 0.0
        for played in us.play(game, learner, seed=5, run=run):
            counted = played.means if rewards == "mean" else played.rewards
            regret += counted[0] - played.policy @ counted
        assert found.regret["it"][run, 0] == pytest.approx(regret, abs=1e-9)


@pytest.mark.large
@pytest.mark.parametrize("logged", [False, True])
def test_carried_sums_do_not_drift(logged: bool) -> None:
    """After 300 000 rounds the policy is that of the scores alone, and the state says so itself."""
    rng = np.random.default_rng(2)
    q = np.array([0.001, 0.009, 0.09, 0.4, 0.5])
    n = 300_000
    learner = us.coverage_adaptive(us.Logged(5) if logged else q, horizon=n)
    actions: Integers = rng.choice(5, size=n, p=q)
    log = us.Log(actions, rng.random(n), q[actions] if logged else None)
    state, _ = learner.replay(learner.init(), log)
    learner.validate(state)
    rates, prior = experts(learner, n)
    wanted = weighted_entropy(rates, prior, (state.scores + state.residues).ravel())
    np.testing.assert_allclose(
        learner.policy(state), wanted.reshape(-1, 5).sum(axis=0), rtol=1e-8, atol=1e-13
    )


def test_an_action_that_is_never_shown_is_never_played() -> None:
    learner = us.coverage_adaptive([0.5, 0.0, 0.5], horizon=100)
    assert learner.policy(learner.init()).tolist() == [0.5, 0.0, 0.5]
    state, _ = learner.replay(learner.init(), us.Log([0, 2, 2], [1.0, 1.0, 0.0]))
    assert learner.policy(state)[1] == 0.0
    assert theory.coverage_adaptive_bound(1, [0.5, 0.0, 0.5], horizon=100) == math.inf


def test_a_prior_may_leave_an_action_out() -> None:
    """No state learns from its events; the rest goes on."""
    learner = us.coverage_adaptive([0.5, 0.5, 0.0], horizon=9, prior=[1.0, 0.0, 0.0])
    state, trace = learner.replay(learner.init(), us.Log([1, 0], [1.0, 1.0]))
    assert trace.probability.tolist() == [0.0, 1.0]
    assert learner.policy(state).tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"rates": [0.1, 0.1]}, "rates"),
        ({"rates": [0.1, 0.0, 0.1]}, "rates"),
        ({"prior": [0.5, 0.5]}, "rates"),
        ({"prior": [0.5, 0.4, 0.0]}, "prior"),
        ({"multiplier": 0.0}, "multiplier"),
        ({"gain": "ix"}, "gain"),
    ],
)
def test_bad_tunings_are_refused(arguments: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        us.coverage_adaptive([0.5, 0.3, 0.2], horizon=10, **arguments)
    assert caught.value.argument == argument


def test_a_sum_over_rounds_is_at_least_their_number() -> None:
    with pytest.raises(InvalidArgument, match=r"n/q\(a\)"):
        theory.coverage_grid_bound(3, horizon=100, inverse_propensities=5.0)


def test_totals_of_rewards_need_a_horizon() -> None:
    with pytest.raises(InvalidArgument, match="when the rewards came"):
        theory.coverage_adaptive_bound(
            0, [0.5, 0.5], horizon=10, total_rewards=[5.0, 5.0], anytime=True
        )


@pytest.mark.parametrize("arguments", [{"rates": [0.1, 0.3]}, {"prior": [0.2, 0.8]}, {}])
@pytest.mark.parametrize("multiplier", [1.0, 3.0])
def test_the_bound_is_of_the_learner_with_the_same_arguments(
    arguments: dict[str, Any], multiplier: float
) -> None:
    q, n = [0.1, 0.9], 100
    learner = us.coverage_adaptive(q, horizon=n, multiplier=multiplier, **arguments)
    bound = theory.coverage_adaptive_bound(0, q, horizon=n, multiplier=multiplier, **arguments)
    eta = learner.rates[0]
    wanted = price(learner.rates, learner.prior)[0] + eta / 2 * n / (q[0] + eta / 2)
    assert bound == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (
            lambda: theory.coverage_adaptive_bound(0, [0.5, 0.5], horizon=9, rates=[1.0] * 3),
            "rates",
        ),
        (
            lambda: theory.coverage_adaptive_bound(
                0, [0.5, 0.5], horizon=9, rates=[1.0] * 2, anytime=True
            ),
            "rates",
        ),
        (lambda: us.coverage_adaptive(us.Logged(2), rates=[0.1, 0.2], prior=[1.0, 0.0]), "prior"),
        (lambda: us.coverage_adaptive([0.5, 0.5], multiplier=1e300), "multiplier"),
    ],
)
def test_tunings_that_do_not_fit(call: Callable[[], object], argument: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        call()
    assert caught.value.argument == argument


def test_one_level_of_the_grid_is_exp3_ix_on_a_log() -> None:
    rng = np.random.default_rng(0)
    log = us.Log(rng.integers(3, size=50), rng.random(50), rng.uniform(0.1, 1.0, 50))
    learner = us.coverage_adaptive(us.Logged(3), rates=[0.2], prior=[1.0])
    known = us.exp3_ix(us.Logged(3), eta=0.2)
    _, found = learner.policies(learner.init(), log)
    _, wanted = known.policies(known.init(), log)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
