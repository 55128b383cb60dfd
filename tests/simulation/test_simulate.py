"""Simulation: the regret is the paper's, and depends on nothing that it should not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest

import understudy as us
from tests.support.refusals import assert_refused
from tests.support.strategies import Array
from understudy import Log, Round
from understudy.contexts import ContinuousContexts, FiniteContexts
from understudy.errors import InvalidArgument
from understudy.learners import Learner
from understudy.simulation.adversaries import Oblivious

ROUNDS = 270  # more than are dealt at a time
RUNS = 2
PI = np.array([0.4, 0.3, 0.2, 0.1])
REWARDS: tuple[Literal["mean", "realised"], ...] = ("mean", "realised")

PHI = np.random.default_rng(1).uniform(0.1, 0.5, (3, 4, 2))
BY_CONTEXT = np.array([[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]])
FINITE = FiniteContexts(table=PHI, probabilities=[0.5, 0.3, 0.2])
CONTINUOUS = ContinuousContexts(
    sample=lambda rng, n: rng.random(n),
    feature_map=lambda x: np.stack([np.stack([x**a, 1 - x**a], axis=1) for a in range(4)], axis=1),
    n_actions=4,
    dimension=2,
)


def tilted(contexts: Any) -> Array:
    """A policy that is a function of contexts, of numbers in [0, 1] as of the numbers 0, 1, 2."""
    weights = np.exp(np.multiply.outer(np.asarray(contexts), np.arange(4.0)))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def game(**changed: Any) -> us.Game:
    adversary = us.adversaries.switching(n_actions=4, rounds=ROUNDS)
    return us.Game(**{"adversary": adversary, "behavior": PI, "rounds": ROUNDS, **changed})


TABLE = np.random.default_rng(0).random((ROUNDS, 4))
THETA = us.adversaries.drifting([0.9, 0.1], [0.1, 0.9], rounds=ROUNDS)
OBLIVIOUS: dict[str, us.Game] = {
    "switching": game(),
    "table": game(adversary=us.adversaries.table(TABLE)),
    "drifting": game(adversary=us.adversaries.drifting([0, 0.2, 0.4, 1], [1] * 4, rounds=ROUNDS)),
    "finite": game(adversary=THETA, contexts=FINITE, behavior=BY_CONTEXT),
    "finite, one behavior": game(adversary=THETA, contexts=FINITE),
    "continuous": game(adversary=THETA, contexts=CONTINUOUS, behavior=tilted),
}
ADAPTIVE: dict[str, us.Game] = {
    "hiding": game(adversary=us.adversaries.hiding(n_actions=4), rounds=50),
    "retaliating": game(adversary=us.adversaries.retaliating(n_actions=4), rounds=50),
}
GAMES = {**OBLIVIOUS, **ADAPTIVE}


def covariance(world: us.Game) -> Array:
    if isinstance(world.contexts, FiniteContexts):
        return world.contexts.covariance(world.behavior)
    assert isinstance(world.contexts, ContinuousContexts)
    return world.contexts.covariance(world.behavior, samples=5000, seed=0)


def cast(world: us.Game) -> dict[str, Learner[Any]]:
    """Learners that read different columns of the log, among them a linear one where it can."""
    learners: dict[str, Learner[Any]] = {
        "known": us.exp3_ix(PI, horizon=ROUNDS),
        "logged": us.prod(us.Logged(n_actions=4), horizon=ROUNDS),
        "unknown": us.exp3_ix_unknown(4, eta=0.3, gamma=0.05),
        "unknown, kl": us.exp3_ix_unknown(4, eta=0.3, width="kl"),
    }
    if world.contexts is not None:
        learners["linear"] = us.lin_prod(
            covariance(world), n_actions=4, horizon=ROUNDS, kappa=200.0
        )
        learners["compact"] = us.lin_prod_compact(covariance(world), n_actions=4, kappa=200.0)
        learners["estimated"] = us.lin_prod_unknown(
            n_actions=4, dimension=world.contexts.dimension, feature_bound=9.0, horizon=ROUNDS
        )
    return learners


def comparators(world: us.Game) -> list[Any]:
    """Every kind of comparator that the game allows."""
    kinds: list[Any] = [0, 3, [0.1, 0.2, 0.3, 0.4], "best", np.array([0.5, 0.5, 0.0, 0.0])]
    if world.contexts is not None:
        kinds.append(tilted)
    if isinstance(world.contexts, FiniteContexts):
        kinds.append(BY_CONTEXT[::-1])
    return kinds


LEARNERS = cast(game())


def simulate(world: us.Game, **changed: Any) -> us.Simulation:
    """The game with this file's learners and comparators, or with others."""
    options = {"runs": RUNS, "seed": 5, "comparators": comparators(world), **changed}
    learners = options.pop("learners", None)
    return us.simulate(world, cast(world) if learners is None else learners, **options)


def counted(records: list[Round], rewards: str) -> Array:
    return np.array([one.means if rewards == "mean" else one.rewards for one in records])


def policies(comparator: Any, records: list[Round]) -> Array:
    """The comparator's policy in each round, written out."""
    if callable(comparator):
        return np.asarray(comparator(np.array([record.context for record in records])))
    table = np.eye(4)[comparator] if isinstance(comparator, int) else np.asarray(comparator)
    if table.ndim == 1:
        return np.array([table for _ in records])
    return np.array([table[int(record.context)] for record in records])


def earned_by(comparator: Any, records: list[Round], rewards: str) -> float:
    """The comparator's reward, from the definition."""
    if isinstance(comparator, str):
        return max(earned_by(a, records, rewards) for a in range(4))
    return float(np.sum(policies(comparator, records) * counted(records, rewards)))


@pytest.mark.parametrize("name", GAMES)
def test_the_regret_is_the_definition_applied_to_the_referees_record(name: str) -> None:
    """Σ_t ⟨π* − π_t, r_t⟩ for every run, learner and comparator; stretches or referee alike."""
    world, learners = GAMES[name], cast(GAMES[name])
    results = {rewards: simulate(world, rewards=rewards) for rewards in REWARDS}
    for player, learner in learners.items():
        for run in range(RUNS):
            records = list(us.play(world, learner, seed=5, run=run))
            for rewards, result in results.items():
                compiled = name in OBLIVIOUS or player != "linear"
                assert result.path[player] == ("compiled" if compiled else "referee")
                assert_by_hand(
                    result, player, run, records, rewards=rewards, kinds=comparators(world)
                )


def assert_by_hand(
    result: us.Simulation, player: str, run: int, records: list[Round], *, rewards: str, kinds: Any
) -> None:
    """One run of the result, against the sums over the referee's record of the same run."""
    paid = counted(records, rewards)
    own = float(np.sum(np.array([record.policy for record in records]) * paid))
    stage = float(np.sum(np.array([record.behavior for record in records]) * paid))
    others = np.array([earned_by(comparator, records, rewards) for comparator in kinds])
    np.testing.assert_allclose(result.reward[player][run], own, rtol=0, atol=1e-9)
    np.testing.assert_allclose(result.behavior_reward[player][run], stage, rtol=0, atol=1e-9)
    np.testing.assert_allclose(result.regret[player][run], others - own, rtol=0, atol=1e-9)


class Spy:
    """A learner that notes the logs it is shown; all else is another learner's.

    It has no `expected_reward`, and so is shown stretches.
    """

    def __init__(self, learner: Learner[Any]) -> None:
        self.learner = learner
        self.logs: list[Log] = []

    def __getattr__(self, name: str) -> Any:
        if name in ("expected_reward", "meet"):
            raise AttributeError(name)
        return getattr(self.learner, name)

    def policies(self, state: Any, log: Log) -> tuple[Any, Array]:
        self.logs.append(log)
        return self.learner.policies(state, log)

    def column(self, name: str) -> list[Any]:
        joined: list[Any] = np.concatenate([getattr(log, name) for log in self.logs]).tolist()
        return joined


@pytest.mark.parametrize("rewards", REWARDS)
@pytest.mark.parametrize("name", OBLIVIOUS)
def test_stretches_show_the_log_that_the_referee_shows(
    name: str, rewards: Literal["mean", "realised"]
) -> None:
    """Bit for bit, and however the rewards are counted: off-policy feedback ignores the learner."""
    world = OBLIVIOUS[name]
    spy = Spy(us.prod(us.Logged(n_actions=4), horizon=ROUNDS))
    simulate(world, learners={"spy": spy}, runs=1, rewards=rewards)
    records = list(us.play(world, us.exp3(PI, eta=0.5), seed=5, run=0))
    assert len(spy.logs) > 1
    played = [record.behavior_action for record in records]
    assert spy.column("actions") == played
    assert spy.column("rewards") == [
        float(r.rewards[b]) for r, b in zip(records, played, strict=True)
    ]
    propensities = [float(r.behavior[b]) for r, b in zip(records, played, strict=True)]
    assert spy.column("propensities") == propensities
    assert all(log.features is None for log in spy.logs)


def test_learners_are_shown_only_the_columns_they_read() -> None:
    world = OBLIVIOUS["finite"]
    spies = {name: Spy(learner) for name, learner in cast(world).items()}
    simulate(world, learners=spies, runs=1)
    shown = {
        name: (spy.logs[0].propensities is not None, spy.logs[0].features is not None)
        for name, spy in spies.items()
    }
    neither = (False, False)
    assert shown == {
        "known": neither,
        "logged": (True, False),
        "unknown": neither,
        "unknown, kl": neither,
        "linear": (False, True),
        "compact": (False, True),
        "estimated": (False, True),
    }


@dataclass(frozen=True)
class Disguised:
    """An oblivious adversary that does not say so, and is therefore played by the referee."""

    inner: Oblivious

    @property
    def size(self) -> int:
        return self.inner.size

    @property
    def bernoulli(self) -> bool:
        return self.inner.bernoulli

    def init(self) -> None:
        return None

    def choose(self, memory: None, t: int) -> Array:
        return self.inner.choose(memory, t)

    def observe(self, memory: None, played: Round) -> None:  # noqa: ARG002 - it looks away
        return memory


@pytest.mark.parametrize("rewards", REWARDS)
@pytest.mark.parametrize("name", OBLIVIOUS)
def test_both_paths_give_the_same_regret(name: str, rewards: Literal["mean", "realised"]) -> None:
    world = OBLIVIOUS[name]
    assert isinstance(world.adversary, Oblivious)
    disguised = us.Game(Disguised(world.adversary), world.behavior, ROUNDS, world.contexts)
    fast, slow = (simulate(g, rewards=rewards, runs=1) for g in (world, disguised))
    assert set(fast.path.values()) == {"compiled"}
    assert set(slow.path.values()) == {"referee"}
    for player in fast.regret:
        np.testing.assert_allclose(fast.regret[player], slow.regret[player], rtol=0, atol=1e-9)


def same(first: us.Simulation, second: us.Simulation) -> bool:
    """Whether the numbers of the learners that both have agree bit for bit in the first runs."""
    return all(
        np.array_equal(getattr(first, what)[name][:RUNS], getattr(second, what)[name][:RUNS])
        for what in ("regret", "reward", "behavior_reward")
        for name in first.regret.keys() & second.regret.keys()
    )


@pytest.mark.parametrize("name", ["finite", "hiding"])
def test_the_result_does_not_depend_on_the_number_of_processes(name: str) -> None:
    results = [simulate(GAMES[name], comparators=[0, "best"], jobs=jobs) for jobs in (1, 2)]
    assert same(*results)


@pytest.mark.parametrize("rewards", REWARDS)
@pytest.mark.parametrize("name", ["switching", "finite", "retaliating"])
def test_the_result_does_not_depend_on_who_else_takes_part(
    name: str, rewards: Literal["mean", "realised"]
) -> None:
    world = GAMES[name]
    everybody = simulate(world, rewards=rewards)
    for player, learner in cast(world).items():
        alone = simulate(world, learners={player: learner}, rewards=rewards)
        assert same(everybody, alone)
        assert list(alone.regret) == [player]


@pytest.mark.parametrize("rewards", REWARDS)
@pytest.mark.parametrize("name", ["switching", "continuous", "hiding"])
def test_more_runs_begin_with_the_same_runs(
    name: str, rewards: Literal["mean", "realised"]
) -> None:
    """Run i is a pure function of (seed, i); runs and seeds differ from one another."""
    options: Any = {"learners": {"known": us.exp3_ix(PI, horizon=ROUNDS)}, "rewards": rewards}
    fewer, more = (simulate(GAMES[name], runs=runs, **options) for runs in (2, 4))
    assert same(fewer, more)
    assert len(set(more.reward["known"].tolist())) == 4
    assert not same(fewer, simulate(GAMES[name], seed=6, **options))


def test_comparators_do_not_change_the_game() -> None:
    world = OBLIVIOUS["finite"]
    none, all_kinds = simulate(world, comparators=()), simulate(world)
    np.testing.assert_array_equal(none.reward["linear"], all_kinds.reward["linear"])
    assert none.regret["linear"].shape == (RUNS, 0)


@pytest.mark.parametrize("rewards", REWARDS)
@pytest.mark.parametrize("name", GAMES)
def test_the_regret_of_a_mixture_is_the_mixture_of_regrets(
    name: str, rewards: Literal["mean", "realised"]
) -> None:
    """Regret is linear in the comparator; "best" is the largest of the actions'; π_B's is known."""
    mixed = np.array([0.1, 0.2, 0.3, 0.4])
    result = simulate(GAMES[name], comparators=[0, 1, 2, 3, mixed, "best"], rewards=rewards)
    for player, regret in result.regret.items():
        np.testing.assert_allclose(regret[:, 4], regret[:, :4] @ mixed, rtol=0, atol=1e-9)
        np.testing.assert_array_equal(regret[:, 5], regret[:, :4].max(axis=1))
        assert regret.shape == (RUNS, 6)
        assert (result.reward[player] > 0).all()


@pytest.mark.parametrize("name", ["switching", "finite", "continuous", "finite, one behavior"])
def test_the_behaviors_own_reward_is_that_of_the_comparator_that_plays_it(name: str) -> None:
    world = OBLIVIOUS[name]
    result = simulate(world, comparators=[world.behavior])
    for player, regret in result.regret.items():
        expected = result.behavior_reward[player] - result.reward[player]
        np.testing.assert_allclose(regret[:, 0], expected, rtol=0, atol=1e-9)


def test_mean_and_realised_regret_have_one_expectation() -> None:
    """Paired over 400 games with the same logs: the mean difference is within four standard errors.

    The two differ in every run, so that it is not zero for the wrong reason; and the realised
    one is the noisier.
    """
    rounds = 40
    adversary = us.adversaries.switching(n_actions=4, rounds=rounds)
    world = us.Game(adversary=adversary, behavior=PI, rounds=rounds)
    learners = {"known": us.exp3_ix(PI, horizon=rounds)}
    mean, realised = (
        us.simulate(world, learners, runs=400, seed=1, comparators=[0, 3], rewards=rewards)
        for rewards in REWARDS
    )
    difference = realised.regret["known"] - mean.regret["known"]
    error = difference.std(axis=0, ddof=1) / np.sqrt(len(difference))
    assert (error > 0).all()
    assert (np.abs(difference.mean(axis=0)) < 4 * error).all()
    assert (realised.regret["known"].std(axis=0) > mean.regret["known"].std(axis=0)).all()


def test_deterministic_rewards_are_counted_alike_both_ways() -> None:
    mean, realised = (simulate(OBLIVIOUS["table"], rewards=rewards) for rewards in REWARDS)
    assert same(mean, realised)


def test_a_fixed_policy_earns_what_its_means_say() -> None:
    """A rate so small that the policy stays uniform: the regret is known without any simulation."""
    world = game()
    uniform = us.exp3(PI, eta=1e-12)
    result = us.simulate(world, {"uniform": uniform}, comparators=[0, 3, "best"])
    first, second = np.array([0.5, 0.5, 0.5, 0.8]), np.array([1.0, 0.5, 0.5, 0.5])
    totals = ROUNDS / 2 * (first + second)
    expected = np.array([totals[0], totals[3], totals.max()]) - totals.mean()
    np.testing.assert_allclose(result.regret["uniform"][0], expected, atol=1e-6)
    np.testing.assert_allclose(result.behavior_reward["uniform"], PI @ totals, atol=1e-9)


def test_many_actions_are_dealt_in_shorter_stretches_without_a_difference() -> None:
    """K = 2000 deals 32 rounds at a time; the log still is the referee's."""
    pi_b = us.behaviors.interpolated(n_actions=2000, alpha=0.5)
    adversary = us.adversaries.switching(n_actions=2000, rounds=70)
    world = us.Game(adversary=adversary, behavior=pi_b, rounds=70)
    spy = Spy(us.exp3_ix(pi_b, horizon=70))
    result = us.simulate(world, {"spy": spy}, comparators=[0], seed=5)
    assert [len(log) for log in spy.logs] == [32, 32, 6]
    records = list(us.play(world, us.exp3_ix(pi_b, horizon=70), seed=5))
    assert spy.column("actions") == [record.behavior_action for record in records]
    regret = sum(record.means[0] - record.policy @ record.means for record in records)
    np.testing.assert_allclose(result.regret["spy"], [[regret]], rtol=0, atol=1e-9)


def test_progress_is_reported_as_runs_are_done() -> None:
    """Runs that take long one by one; short ones, of a few milliseconds together, at once."""
    for world, wanted in ((OBLIVIOUS["finite"], [1, 1, 1, 1]), (game(), [4])):
        done: list[int] = []
        simulate(world, runs=4, progress=done.append)
        assert done == wanted


def test_the_bar_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    simulate(game(), progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"{RUNS}/{RUNS}" in shown.err


def test_the_seed_counts_from_zero() -> None:
    assert simulate(game(), seed=0).regret["known"].shape == (RUNS, 5)


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_in_a_run_arrives_as_it_was_raised(jobs: int) -> None:
    """Here θ is too long for some contexts, which shows only when they are drawn."""
    world = game(adversary=us.adversaries.stationary([0.5, 1.5]), contexts=CONTINUOUS)
    with pytest.raises(InvalidArgument) as caught:
        simulate(world, learners=LEARNERS, comparators=[0], jobs=jobs)
    assert caught.value.argument == "adversary"
    assert "rewards lie in [0, 1]" in str(caught.value)


LINEAR = us.lin_prod(np.eye(3), n_actions=4, horizon=9, kappa=9.0)
REFUSED: dict[str, tuple[Callable[[], object], str, str]] = {
    "no learners": (lambda: simulate(game(), learners={}), "learners", "at least one"),
    "learners without names": (
        lambda: simulate(game(), learners=list(LEARNERS.values())),
        "learners",
        'pass {"name": learner}',
    ),
    "a name without a learner": (lambda: simulate(game(), learners={"x": 3}), "learner", "3"),
    "no game": (lambda: us.simulate("game", LEARNERS), "game", "us.Game"),  # type: ignore[call-overload] # the point
    "a learner of other actions": (
        lambda: simulate(game(), learners={"x": us.exp3([0.5, 0.5], eta=0.1)}),
        "learner",
        "for 4 actions",
    ),
    "a linear learner without contexts": (
        lambda: simulate(game(), learners={"x": LINEAR}),
        "learner",
        "none",
    ),
    "a linear learner of other features": (
        lambda: simulate(OBLIVIOUS["finite"], learners={"x": LINEAR}),
        "learner",
        "(4, 2)",
    ),
    "an unknown comparator": (
        lambda: simulate(game(), comparators=["worst"]),
        "comparators",
        "'best'",
    ),
    "an action out of range": (lambda: simulate(game(), comparators=[4]), "comparator", "0 to 3"),
    "a policy of other actions": (
        lambda: simulate(game(), comparators=[[0.5, 0.5]]),
        "comparator",
        "4 actions",
    ),
    "a policy that does not sum to one": (
        lambda: simulate(game(), comparators=[[0.5] * 4]),
        "comparator",
        "sum to 2",
    ),
    "a table without contexts": (
        lambda: simulate(game(), comparators=[BY_CONTEXT]),
        "comparators",
        "no contexts",
    ),
    "a function without contexts": (
        lambda: simulate(game(), comparators=[tilted]),
        "comparators",
        "no contexts",
    ),
    "a table of too few contexts": (
        lambda: simulate(OBLIVIOUS["finite"], comparators=[BY_CONTEXT[:2]]),
        "comparators",
        "(X, K)",
    ),
    "a table that does not sum to one": (
        lambda: simulate(OBLIVIOUS["finite"], comparators=[BY_CONTEXT * 2]),
        "comparators",
        "sum to 1",
    ),
    "a ragged table": (
        lambda: simulate(OBLIVIOUS["finite"], comparators=[[[1.0], [0.5, 0.5]]]),
        "comparator",
        "pass",
    ),
    "one comparator instead of several": (
        lambda: simulate(game(), comparators=0),
        "comparators",
        "pass",
    ),
    "no runs": (lambda: simulate(game(), runs=0), "runs", "at least 1"),
    "a negative seed": (lambda: simulate(game(), seed=-1), "seed", "at least 0"),
    "rewards spelled otherwise": (
        lambda: simulate(game(), rewards="realized"),
        "rewards",
        "'realised'",
    ),
    "no processes": (lambda: simulate(game(), jobs=0), "jobs", "-1 for one per core"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_before_anything_is_played(name: str) -> None:
    assert_refused(*REFUSED[name])
