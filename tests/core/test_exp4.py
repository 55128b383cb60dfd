"""`understudy.learners.exp4` and the grid of rates under it: sums of gains say the same."""

from __future__ import annotations

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import understudy as us
from tests.support import formulas
from tests.support.kernel_arrays import use_small_chunks
from tests.support.refusals import assert_refused
from tests.support.saved_values import saved_text, snapshot_text
from tests.support.strategies import Array, Integers, quick, seeds
from understudy import Log, theory
from understudy.errors import InvalidEvent, NotSaveable
from understudy.learners import CoverageAdaptive, Exp4, Learner, Mapped, Model, Outside
from understudy.learners.exp4 import HISTORY

K, P = 3, 4
PI = np.array([0.5, 0.3, 0.2])
LOGGED = us.Logged(n_actions=K)
RATES, LEVELS = theory.prod_grid_tuning()
few = settings(quick, max_examples=8)  # the sums of a round are found by bisection
ROUNDING = 1e-9  # of a softmax of sums of some thousand logarithms


class Leaning:
    """A model of the user's, row by row."""

    def probabilities(self, x: Array) -> Array:
        return np.asarray(formulas.softmax(np.array([x[1], 0.5 * x[2], 0.0])))


class Classifier:
    """A model as of scikit-learn, whose data had the actions 2 and 0 only."""

    classes_ = np.array([2, 0])

    def predict_proba(self, contexts: Array) -> Array:
        second = 1.0 / (1.0 + np.exp(-contexts[:, 1]))
        return np.column_stack([1.0 - second, second]).astype(np.float32)


def contextual(behavior: Any) -> dict[str, Any]:
    """Learners of every kind that takes contexts, and some that do not."""
    rng = np.random.default_rng(1)
    fourier = us.learners.random_fourier(dimension=P, features=6, gamma=0.3, rng=rng)
    blocks = np.tile(np.diag([0.4, 0.2, 0.2, 0.2]), (K, 1, 1))
    compact = us.lin_prod_compact(blocks, n_actions=K, kappa=3.0)
    cell = us.learners.Cell(P, starts=np.array([2]), sizes=np.array([2]))
    table = us.per_context(us.prod_grid(behavior), n_contexts=cell.n_contexts)
    return {
        "grid": us.prod_grid(behavior),
        "ix": us.exp3_ix(behavior),
        "ridge": us.ridge(n_actions=K, dimension=P, temperature=[0.05, 0.5]),
        "fourier": Mapped(us.ridge(n_actions=K, dimension=7, beta=0.3), fourier),
        "table": Mapped(table, cell),
        "lin_prod": Mapped(compact, us.learners.Leverage(blocks, 3.0)),
    }


MODELS = {"model": Model(Leaning(), K, P), "classifier": Model(Classifier(), K, P)}
OUTSIDE = {"production": "production", "mine": Outside("mine"), "other": Outside("other")}
MIXTURES: dict[str, Exp4] = {
    "logged": us.exp4(LOGGED, {**OUTSIDE, **contextual(LOGGED)}),
    "known": us.exp4(PI, {"production": "production", **contextual(PI)}),
    "known, a column": us.exp4(PI, {**OUTSIDE, "ix": us.exp3_ix(PI)}),
    "logged, centered": us.exp4(
        LOGGED, {**OUTSIDE, "ix": us.exp3_ix(LOGGED)}, least_propensity=0.05
    ),
    "models": us.exp4(LOGGED, {**OUTSIDE, **MODELS, "grid": us.prod_grid(LOGGED)}),
    "a prior": us.exp4(PI, {"ix": us.exp3_ix(PI), "exp3": us.exp3(PI, eta=0.5)}, prior=[0.9, 0.1]),
    "a mixture in it": us.exp4(
        LOGGED, {"production": "production", "inner": us.exp4(LOGGED, contextual(LOGGED))}
    ),
}


def some_log(learner: Learner[Any], rounds: int, seed: int) -> Log:
    """Rounds of a production that drifts, with its probabilities of all actions to be found."""
    spec, rng = learner.spec, np.random.default_rng(seed)
    rewards = rng.random(rounds) * (rng.random(rounds) < 0.7)
    features = rng.normal(size=(rounds, P)) if spec.features else None
    return Log(
        rng.choice(K, size=rounds, p=PI),
        rewards,
        rng.uniform(0.05, 1.0, rounds) if spec.propensities else None,
        features,
        rng.random((rounds, len(spec.columns))) if spec.columns else None,
    )


def played_by(mixture: Exp4, log: Log) -> Array:
    """π_m(b) of every expert and round, each learner by itself: (n, M)."""
    columns: list[Array] = []
    for expert in mixture.experts:
        if isinstance(expert, Outside):
            known = mixture.behavior if expert.name == "production" else None
            own = known[log.actions] if isinstance(known, np.ndarray) else None
            column = mixture.spec.outside_column(expert.name, log) if own is None else own
            columns.append(column[:, np.newaxis])
        else:
            shown = expert.spec.visible(log)
            _, found = expert.advance_variants(expert.init(), shown, whole=True)
            columns.append(found[np.arange(len(log)), :, log.actions])
    return np.concatenate(columns, axis=1)


def propensities(learner: Exp4 | CoverageAdaptive, log: Log) -> Array:
    if log.propensities is not None:
        return log.propensities
    assert isinstance(learner.behavior, np.ndarray)
    return np.asarray(learner.behavior[log.actions])


def policies_through(probability: Array, actions: Integers, rng: np.random.Generator) -> Array:
    """Any policies that have these probabilities of these actions, (n, K)."""
    others = rng.random((len(actions), K))
    others[np.arange(len(actions)), actions] = 0.0
    others *= ((1.0 - probability) / others.sum(axis=1))[:, np.newaxis]
    others[np.arange(len(actions)), actions] = probability
    return others


# The weights


@few
@given(seed=seeds, M=st.integers(2, 4), prior=st.booleans(), largest=st.sampled_from([1.5, 9.0]))
def test_all_experts_learn_from_estimated_rewards(
    seed: int, M: int, prior: bool, largest: float
) -> None:
    """Estimates above and below 0, rounds without any, and the sums of gains on every level."""
    rng, n = np.random.default_rng(seed), 25
    shares = rng.dirichlet(np.full(M, 2.0)) if prior else np.full(M, 1 / M)
    own = shares if prior else None
    learner = CoverageAdaptive(us.Logged(M), RATES, LEVELS, "logarithmic", action_prior=own)
    ratios, rewards, centers = rng.uniform(0.0, largest, (n, M)), rng.random(n), rng.random(n)
    rewards[5:15], centers[10:20] = 0.0, 0.0
    events = ratios, rewards, centers, rng.uniform(0.0, largest, n)  # some w above the largest
    state, found = learner.learn_from_all(learner.init(), events)
    estimates = formulas.centered_estimates(RATES, *events)
    wanted = formulas.grid_weights(RATES, LEVELS, shares, estimates)
    np.testing.assert_allclose(found, wanted[:-1], rtol=ROUNDING)
    np.testing.assert_allclose(learner.policy(state), wanted[-1], rtol=ROUNDING)
    assert state.rounds == n


def test_one_expert_a_round_is_a_replay() -> None:
    """Ratios of 1/q for one action and 0 for others, and no center: the same sums as `replay`."""
    learner, n = us.prod_grid(LOGGED), 2_500
    log = some_log(learner, n, 3)
    ratios = np.zeros((n, K))
    ratios[np.arange(n), log.actions] = 1.0 / propensities(learner, log)
    state, policies = learner.policies(learner.init(), log)
    events = ratios, log.rewards, np.zeros(n), np.zeros(n)
    after, found = learner.learn_from_all(learner.init(), events)
    np.testing.assert_allclose(found, policies, rtol=ROUNDING)
    np.testing.assert_allclose(after.scores, state.scores, rtol=1e-12)
    assert after.rounds == state.rounds == n


# `us.prod_grid` with production as one more expert


@pytest.mark.parametrize("behavior", [PI, LOGGED], ids=["known", "logged"])
@pytest.mark.parametrize("prior", [None, [0.1, 0.1, 0.8]], ids=["alike", "prior"])
@few
@given(seed=seeds, share=st.sampled_from([0.01, 0.3, 0.9]))
def test_production_is_one_more_expert(
    behavior: Any, prior: list[float] | None, seed: int, share: float
) -> None:
    """K + 1 experts, of which the last earns R in every round and plays as production does."""
    learner = us.prod_grid(behavior, prior=prior, production=share)
    log, rng = some_log(learner, 25, seed), np.random.default_rng(seed)
    q, n = propensities(learner, log), len(log)
    shown = policies_through(q, log.actions, rng) if behavior is LOGGED else np.tile(PI, (n, 1))
    estimates = np.zeros((n, K + 1))
    estimates[np.arange(n), log.actions] = log.rewards / q
    estimates[:, K] = log.rewards
    w1 = np.full(K, 1 / K) if prior is None else np.array(prior)
    shares = np.append((1 - share) * w1, share)
    weights = formulas.grid_weights(RATES, LEVELS, shares, estimates)
    wanted = weights[:-1, :K] + weights[:-1, K:] * shown
    shows = behavior is LOGGED
    state, policies = learner.policies(learner.init(), log, production=shown if shows else None)
    np.testing.assert_allclose(policies, wanted, rtol=ROUNDING)
    replayed, trace = learner.replay(learner.init(), log)
    np.testing.assert_allclose(trace.probability, wanted[np.arange(n), log.actions], rtol=ROUNDING)
    assert saved_text(replayed) == saved_text(state)
    at_end = learner.policy(state, production=shown[0] if shows else None)
    last = weights[-1, :K] + weights[-1, K] * shown[0]
    np.testing.assert_allclose(at_end, last, rtol=ROUNDING)
    if not shows:
        rewards = rng.random((n, K))
        _, earned = learner.expected_reward(learner.init(), log, rewards, np.arange(n))
        assert earned == pytest.approx(float((wanted * rewards).sum()), rel=ROUNDING)


def test_production_is_asked_for_only_where_it_has_a_share() -> None:
    learner = us.prod_grid(LOGGED, production=0.2)
    state = learner.init()
    assert_refused(lambda: learner.policy(state), "production", "with probability 0.2")
    given_ = learner.policy(state, production=[0.0, 0.0, 1.0])
    np.testing.assert_allclose(given_, [0.8 / 3, 0.8 / 3, 0.8 / 3 + 0.2], rtol=1e-12)
    for wrong in ([0.5, 0.5], [0.5, 0.6, 0.1], [1.5, -0.5, 0.0], [np.nan, 0.5, 0.5]):
        assert_refused(partial(learner.policy, state, production=wrong), "prod", "")
    known = us.prod_grid(PI, production=0.2)
    assert_refused(lambda: known.policy(known.init(), production=PI), "production", "leave it out")
    log = Log(np.zeros(3_000, int), np.ones(3_000), np.full(3_000, 0.1))
    state, _ = learner.replay(state, log)  # rewards that production earns a tenth of
    as_first, as_last = (learner.policy(state, production=np.eye(K)[a]) for a in (0, 2))
    share = as_last[2] - as_first[2]
    assert 0.0 < share < 1e-3
    wanted = as_first - share * np.eye(K)[0]
    np.testing.assert_allclose(learner.policy(state), wanted / (1.0 - share), rtol=1e-12)


# Mixtures


@pytest.mark.parametrize("name", MIXTURES)
def test_a_mixture_is_the_experts_and_the_grid(name: str) -> None:
    """Each expert by itself, its estimated rewards, the weights of all levels, and the mixture."""
    mixture = MIXTURES[name]
    log = some_log(mixture, 50, 1)
    M = len(mixture.labels)
    played = played_by(mixture, log)
    ratios = played / propensities(mixture, log)[:, np.newaxis]
    shares = mixture.weights.action_prior
    shares = np.full(M, 1 / M) if shares is None else shares
    earlier = np.append(0.0, np.cumsum(log.rewards)[:-1])
    means, excess = (0.5 + earlier) / np.arange(1.0, len(log) + 1), np.zeros(len(log))
    if mixture.least_propensity:
        lows = np.minimum.accumulate(np.append(1.0, propensities(mixture, log)))[:-1]
        excess = 1.0 / np.minimum(mixture.least_propensity, lows) - 1.0
    else:
        means[:] = 0.0
    estimates = formulas.centered_estimates(RATES, ratios, log.rewards, means, excess)
    weights = formulas.grid_weights(RATES, LEVELS, shares, estimates)
    state, trace = mixture.replay(mixture.init(), log)
    wanted = np.minimum(1.0, (weights[:-1] * played).sum(axis=1))
    np.testing.assert_allclose(trace.probability, wanted, rtol=ROUNDING)
    np.testing.assert_allclose(list(mixture.shares(state).values()), weights[-1], rtol=ROUNDING)
    np.testing.assert_allclose(state.earned, log.rewards @ ratios, rtol=1e-12)
    assert state.rewards == pytest.approx(log.rewards.sum(), rel=1e-12)
    assert state.least == propensities(mixture, log).min()
    np.testing.assert_allclose(
        state.history, weights[HISTORY[: len(state.history)] - 1], rtol=ROUNDING
    )
    assert len(state.history) == (len(log) >= HISTORY).sum()
    for expert, own in zip(mixture.experts, state.experts, strict=True):
        if not isinstance(expert, Outside):
            alone, _ = expert.replay(expert.init(), expert.spec.visible(log))
            if isinstance(expert, Model):
                assert own == alone == len(log)
            else:
                assert saved_text(own) == saved_text(alone)


@pytest.mark.parametrize("name", ["logged", "known", "models"])
def test_the_policy_is_the_mixture_where_outside_policies_are_given(name: str) -> None:
    """One context or many; the probability of logged actions needs the columns alone."""
    mixture, rng = MIXTURES[name], np.random.default_rng(4)
    log = some_log(mixture, 60, 4)
    state, _ = mixture.replay(mixture.init(), log)
    later = some_log(mixture, 20, 5)
    assert later.features is not None
    each = np.arange(20)
    shown = {
        column: policies_through(mixture.spec.outside_column(column, later), later.actions, rng)
        for column in mixture.spec.outside
    }
    production = shown.pop("production", None)
    policies = mixture.policies_at(state, later.features, production=production, experts=shown)
    one = [
        mixture.policy(
            state,
            later.features[t],
            production=None if production is None else production[t],
            experts={column: rows[t] for column, rows in shown.items()},
        )
        for t in each
    ]
    np.testing.assert_array_equal(policies, one)
    np.testing.assert_allclose(policies.sum(axis=1), 1.0, rtol=1e-12)
    played = mixture.trace_at(state, later).probability
    np.testing.assert_allclose(played, policies[each, later.actions], rtol=1e-12)
    shares, wanted = iter(mixture.shares(state).values()), np.zeros((20, K))
    for expert, own in zip(mixture.experts, state.experts, strict=True):
        if not isinstance(expert, Outside):
            alone = expert.advance_variants(own, expert.spec.visible(later[:0]), whole=True)[0]
            some = (
                expert.variants_at(alone, later.features)
                if expert.spec.features
                else np.tile(expert.policy(alone), (20, 1, 1))
            )
        elif expert.name == "production":
            some = (np.tile(PI, (20, 1)) if production is None else production)[:, np.newaxis]
        else:
            some = shown[expert.name][:, np.newaxis]
        wanted += sum(next(shares) * some[:, v] for v in range(some.shape[1]))
    np.testing.assert_allclose(policies, wanted, rtol=1e-12)


@pytest.mark.parametrize("name", MIXTURES)
def test_replay_update_and_any_batches_give_the_same_bits(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batch by batch, chunk by small chunk, and the last rounds one by one."""
    mixture = MIXTURES[name]
    log = some_log(mixture, 200, 6)
    state, trace = mixture.replay(mixture.init(), log)
    batches, other = [], mixture.init()
    for batch in log.stretches(77):
        other, part = mixture.replay(other, batch)
        batches.append(part.probability)
    with monkeypatch.context() as patched:
        use_small_chunks(patched)
        small = mixture.replay(mixture.init(), log)
    one = mixture.replay(mixture.init(), log[:170])[0]
    for event in log[170:].events():
        one = mixture.update(one, event)
    bits = saved_text(state)
    assert bits == saved_text(other) == saved_text(small[0]) == saved_text(one)
    probability = trace.probability.tobytes()
    assert probability == np.concatenate(batches).tobytes() == small[1].probability.tobytes()


def test_all_policies_are_those_of_the_trace() -> None:
    """`policies`, which asks for production's probabilities where it does not know them."""
    mixture = us.exp4(LOGGED, {"production": "production", **contextual(LOGGED)})
    log = some_log(mixture, 100, 7)
    assert log.propensities is not None
    rng = np.random.default_rng(7)
    shown = policies_through(log.propensities, log.actions, rng)
    state, policies = mixture.policies(mixture.init(), log, production=shown)
    replayed, trace = mixture.replay(mixture.init(), log)
    assert saved_text(state) == saved_text(replayed)
    np.testing.assert_allclose(policies[np.arange(100), log.actions], trace.probability, rtol=1e-12)
    np.testing.assert_allclose(policies.sum(axis=1), 1.0, rtol=1e-12)
    assert_refused(lambda: mixture.policies(mixture.init(), log), "production", "production=")
    column = us.exp4(LOGGED, {"mine": Outside("mine"), "ix": us.exp3_ix(LOGGED)})
    rows = some_log(column, 5, 0)
    assert_refused(lambda: column.policies(column.init(), rows), "experts", "replay")


@pytest.mark.parametrize("name", ["logged", "known", "known, a column", "a mixture in it"])
def test_a_mixture_survives_its_snapshot(name: str, tmp_path: Path) -> None:
    """Bit for bit, and so does all that it learns afterwards."""
    mixture = MIXTURES[name]
    log = some_log(mixture, 90, 8)
    half, _ = mixture.replay(mixture.init(), log[:50])
    us.Understudy(mixture, half).save(tmp_path / "half.json")
    found = us.load(tmp_path / "half.json")
    again, loaded = found.learner, found.state
    assert snapshot_text(again, loaded) == snapshot_text(mixture, half)
    (first, one), (second, two) = mixture.replay(half, log[50:]), again.replay(loaded, log[50:])
    assert saved_text(first) == saved_text(second)
    assert one.probability.tobytes() == two.probability.tobytes()


def test_a_model_cannot_be_saved_and_the_error_says_what_can() -> None:
    mixture = MIXTURES["models"]
    with pytest.raises(NotSaveable, match=r"experts\[3\] is a Model.*us\.learners\.Outside"):
        snapshot_text(mixture, mixture.init())


@pytest.mark.parametrize("name", MIXTURES)
def test_mixtures_obey_the_laws(name: str) -> None:
    us.check_learner(MIXTURES[name], rounds=30)


def test_a_share_that_is_gone_asks_for_nothing() -> None:
    """An outside policy of negligible weight is left out, and the others make up for it."""
    mixture = us.exp4(LOGGED, {"mine": Outside("mine"), "exp3": us.exp3(LOGGED, eta=5.0)})
    n = 3_000
    log = Log(np.zeros(n, int), np.ones(n), np.full(n, 0.3), experts=np.full((n, 1), 1e-3))
    state, _ = mixture.replay(mixture.init(), log)
    policy = mixture.policy(state)
    assert policy.sum() == pytest.approx(1.0, abs=1e-12)
    early, _ = mixture.replay(mixture.init(), log[:2])
    assert_refused(lambda: mixture.policy(early), "experts", "experts={'mine': …}")


# What is refused


GRID, IX = us.prod_grid(LOGGED), us.exp3_ix(LOGGED)
REFUSED: dict[str, tuple[Any, Any, str]] = {
    "no mapping": (LOGGED, [GRID, IX], "they need names"),
    "no expert": (LOGGED, {}, "they need names"),
    "one expert": (LOGGED, {"grid": GRID}, "one expert is no mixture"),
    "a word": (LOGGED, {"grid": GRID, "other": "prod"}, "'other' is of type str"),
    "probabilities": (LOGGED, {"grid": GRID, "other": PI}, "'other' is of type ndarray"),
    "a class": (LOGGED, {"grid": GRID, "other": us.learners.Ridge}, "'other' is of type"),
    "a model as it is": (LOGGED, {"grid": GRID, "m": Leaning()}, "us.learners.Model"),
    "other actions": (LOGGED, {"grid": GRID, "a": us.exp3_ix_unknown(4)}, "'a' has 4 actions"),
    "its own production": (
        LOGGED,
        {"grid": GRID, "p": us.prod_grid(LOGGED, production=0.1)},
        "make production an expert of the mixture instead",
    ),
    "a mixture with production in it": (
        LOGGED,
        {"grid": GRID, "p": us.exp4(LOGGED, {"p": "production", "ix": IX})},
        "'p' follows production itself",
    ),
    "a logged behavior": (PI, {"grid": GRID, "p": "production"}, "make it with the same pi_b"),
    "other features": (
        LOGGED,
        {
            "a": us.ridge(n_actions=K, dimension=2),
            "b": us.ridge(n_actions=K, dimension=3),
        },
        "us.learners.Mapped",
    ),
    "a column twice": (
        LOGGED,
        {"a": Outside("mine"), "b": Outside("mine")},
        "two experts have the column 'mine'",
    ),
    "a label twice": (
        LOGGED,
        {"grid": GRID, "r": us.ridge(n_actions=K, dimension=2, temperature=[0.1, 0.1])},
        "two experts have the name 'r, τ = 0.1'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_mixture_is_refused(name: str) -> None:
    behavior, experts, words = REFUSED[name]
    assert_refused(lambda: us.exp4(behavior, experts), "experts", words)


def test_priors_of_experts_are_checked() -> None:
    experts = {"grid": GRID, "ix": IX}
    for prior in ([0.5, 0.4], [1.0, 0.0], [0.5, 0.3, 0.2], "behavior", [np.nan, 1.0]):
        assert_refused(partial(us.exp4, LOGGED, experts, prior=prior), "prior", "")


def test_names_weights_and_outside_names_are_checked() -> None:
    good = us.exp4(LOGGED, {"grid": GRID, "ix": IX})
    for changes, argument in (
        ({"names": ("grid", "grid")}, "names"),
        ({"names": ("grid",)}, "names"),
        ({"names": (1, 2)}, "names"),
        ({"experts": [GRID, IX]}, "experts"),
        ({"weights": us.prod_grid(us.Logged(n_actions=3))}, "weights"),
        ({"weights": us.prod_grid(us.Logged(n_actions=2), production=0.1)}, "weights"),
        ({"weights": us.coverage_adaptive([0.5, 0.5])}, "weights"),
    ):
        assert_refused(partial(dataclasses.replace, good, **changes), argument, "")
    names: tuple[Any, ...] = ("", 3, None)
    for name in names:
        assert_refused(partial(Outside, name), "name", "text")


@pytest.mark.parametrize("count", [None, 1, 3])
def test_logs_need_a_column_for_each_outside_expert(count: int | None) -> None:
    mixture = MIXTURES["known, a column"]
    experts = None if count is None else np.full((2, count), 0.5)
    with pytest.raises(InvalidEvent, match="each event needs 2: mine, other"):
        mixture.replay(mixture.init(), Log([0, 1], [0.0, 1.0], experts=experts))
    for wrong in (1.5, -0.1, np.nan):
        assert_refused(partial(Log, [0], [1.0], experts=[[wrong]]), "experts", "")


def test_outside_policies_are_checked() -> None:
    mixture = us.exp4(LOGGED, OUTSIDE)
    state, third = mixture.init(), np.full(K, 1 / K)
    known = {"mine": third, "other": third}
    assert mixture.policy(state, production=third, experts=known) == pytest.approx(third)
    for name in known:
        rest = {other: third for other in known if other != name}
        assert_refused(
            partial(mixture.policy, state, production=third, experts=rest), "experts", ""
        )
    for wrong in ([0.5, 0.5], [0.5, 0.6, 0.1], [1.5, -0.5, 0.0], [np.nan, 0.5, 0.5]):
        own: Any = {**known, "mine": wrong}
        assert_refused(partial(mixture.policy, state, production=third, experts=own), "experts", "")
    more = {**known, "theirs": third}
    assert_refused(
        lambda: mixture.policy(state, production=third, experts=more), "experts", "mine, other"
    )


def test_learners_say_alike_which_outside_policies_they_take() -> None:
    """A mixture that knows production, one without columns, and a grid with production in it."""
    grid = us.prod_grid(LOGGED, production=0.2)
    blind: Any = us.exp4(LOGGED, {"grid": GRID, "ix": IX})
    known: Any = us.exp4(PI, {"production": "production", "grid": us.prod_grid(PI)})
    for learner in (blind, known, us.prod_grid(PI, production=0.2)):
        ask = partial(learner.policy, learner.init(), production=PI)
        assert_refused(ask, "production", "follows no production that it does not know; leave it")
    words = "they need names; pass a dictionary"
    assert_refused(lambda: blind.policy(blind.init(), experts=PI), "experts", words)
    ask = partial(blind.policy, blind.init(), experts={"mine": PI})
    assert_refused(ask, "experts", "no such expert column; leave it out")
    mixed = us.exp4(LOGGED, {"production": "production", "grid": GRID})
    shares: dict[str, Any] = {"with probability 0.2": grid, "with probability 0.5": mixed}
    for share, learner in shares.items():
        words = f"{share} this policy does as 'production' does, whose probabilities are not known"
        assert_refused(partial(learner.policy, learner.init()), "production", words)


def test_contexts_of_another_shape_are_refused() -> None:
    mixture = MIXTURES["known"]
    state = mixture.init()
    for x in ([1.0, 2.0], np.ones((2, P)), [np.nan] * P, None):
        assert_refused(partial(mixture.policy, state, x), "features", "")
    blind = us.exp4(LOGGED, {"grid": GRID, "ix": IX})
    assert_refused(lambda: blind.policy(blind.init(), [1.0]), "features", "no expert takes")


def test_a_propensity_below_the_least_one_makes_no_expert_look_good() -> None:
    """Production's last action is bad and rare. The least propensity is wrong from round 1 on.

    A center that is 0 only in rounds of rare actions would be a bias of c for experts that play
    them: more than the difference between uniform, .6, and production, .78.
    """
    q, means, n = np.array([0.9, 0.05, 0.05]), np.array([0.8, 0.5, 0.5]), 20_000
    rng = np.random.default_rng(0)
    actions = us.behaviors.choose(q, rng.random(n))
    rewards = (rng.random(n) < means[actions]).astype(np.float64)
    log = us.Log(actions, rewards, q[actions])
    experts = {"production": "production", "uniform": us.exp3_ix(LOGGED, eta=1e-9)}
    shares = {}
    for least in (None, 0.05, 0.3):
        learner = us.exp4(LOGGED, experts, least_propensity=least)
        state, _ = learner.replay(learner.init(), log)
        shares[least] = learner.shares(state)["production"]
    assert min(shares.values()) > 0.99, shares
