"""What happens when something is wrong: a clear error of ours, and nothing is learned.

Every refusal names the argument, the value, the reason and the remedy; whatever state there was
is the same afterwards, bit for bit.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import pytest

import understudy as us
from tests.support.example_learners import example_learners, example_log, one_event
from tests.support.saved_values import saved_form, snapshot_text
from understudy import Log
from understudy.errors import (
    InadmissibleRate,
    InfiniteCoverage,
    InvalidArgument,
    InvalidEvent,
    UnderstudyError,
)
from understudy.learners import Learner

PI = [0.5, 0.3, 0.2]
V = np.diag([0.5, 0.25])
PHI = np.array([[1.0, 0.0], [0.0, 0.5], [0.5, 0.5]])  # leverages 2, 1 and 1.5; norms at most 1
STATIONARY = us.adversaries.stationary([0.1, 0.5, 0.9])


def linear(**changed: Any) -> us.learners.LinProd:
    return us.lin_prod(**{"V": V, "n_actions": 3, "horizon": 100, "kappa": 4.0, **changed})


def compact(**changed: Any) -> us.learners.LinProdCompact:
    return us.lin_prod_compact(**{"V": V, "n_actions": 3, "horizon": 100, "kappa": 4.0, **changed})


def unknown(**changed: Any) -> us.learners.LinProdUnknown:
    sizes = {"n_actions": 3, "dimension": 2, "feature_bound": 1.0, "horizon": 100}
    return us.lin_prod_unknown(**{**sizes, **changed})


def feedback(**changed: Any) -> us.Feedback:
    return us.Feedback(**{"action": 0, "reward": 1.0, **changed})


def log(**changed: Any) -> Log:
    return us.Log(**{"actions": [0, 1, 2], "rewards": [0.0, 1.0, 0.5], **changed})


def game(**changed: Any) -> us.Game:
    return us.Game(**{"adversary": STATIONARY, "behavior": PI, "rounds": 5, **changed})


def assert_clear(error: InvalidArgument, argument: str, *fragments: str) -> None:
    """One line with the argument, the value, the reason and the remedy, and these words."""
    message = str(error)
    assert isinstance(error, UnderstudyError)
    assert argument in error.argument
    assert message.count("\n") == 0
    for part in (error.argument, " = ", error.reason, error.remedy, *fragments):
        assert part
        assert part in message


@dataclass(frozen=True)
class Refusal:
    """A call that must be refused, the argument it is about, and words of the message."""

    call: Callable[[], object]
    argument: str
    words: tuple[str, ...] = field(default=())


KNOWN = us.exp3_ix([0.5, 0.5, 0.0], horizon=50)
ARGUMENTS: dict[str, Refusal] = {
    "probabilities in two dimensions": Refusal(lambda: us.exp3([PI], horizon=9), "pi_b", ("row",)),
    "a number for probabilities": Refusal(lambda: us.exp3(0.5, horizon=9), "pi_b"),
    "a negative probability": Refusal(
        lambda: us.exp3_ix([0.5, 0.7, -0.2], horizon=9), "pi_b", ("action 2", "-0.2")
    ),
    "a sum above one": Refusal(
        lambda: us.exp3_ix([0.5, 0.6], horizon=9), "pi_b", ("sum to 1.1", "w / w.sum()")
    ),
    "a sum below one": Refusal(lambda: us.prod([0.5, 0.4], horizon=9), "pi_b", ("sum to 0.9",)),
    "weights": Refusal(lambda: us.prod([5, 3, 2], horizon=9), "pi_b", ("sum to 10",)),
    "a probability that is NaN": Refusal(
        lambda: us.exp3([math.nan, 1.0], horizon=9), "pi_b", ("entry 0 is not finite",)
    ),
    "one action": Refusal(lambda: us.exp3([1.0], horizon=9), "pi_b", ("1 action",)),
    "one action, unknown": Refusal(lambda: us.exp3_ix_unknown(1, horizon=9), "n_actions"),
    "a state of terabytes": Refusal(
        lambda: us.exp3_ix(us.Logged(10**12)), "n_actions", ("1e+12 numbers", "at most 2147483648")
    ),
    "a state of terabytes, unknown behavior": Refusal(
        lambda: us.exp3_ix_unknown(10**12), "n_actions", ("1e+12 numbers",)
    ),
    "a state of terabytes, grid": Refusal(
        lambda: us.prod_grid(us.Logged(10**12)), "n_actions", ("1.5e+13", "at most 143165576")
    ),
    "a state of terabytes, ridge": Refusal(
        lambda: us.ridge(n_actions=2, dimension=10**6),
        "dimension",
        ("1e+12 numbers", "at most 46340", "random_fourier"),
    ),
    "random features of terabytes": Refusal(
        lambda: us.learners.random_fourier(
            dimension=10**6, features=10**6, gamma=1.0, rng=np.random.default_rng(0)
        ),
        "features",
        ("1e+12 numbers", "at most 2147"),
    ),
    "columns of experts by name": Refusal(
        lambda: us.Log([0], [1.0], [0.5], experts={"mine": [0.5]}),  # type: ignore[arg-type]
        "experts",
        ("a log goes by their order", "learner.spec.columns"),
    ),
    "experts of one event by name": Refusal(
        lambda: feedback(experts={"mine": 0.5}),
        "experts",
        ("a log goes by their order", "learner.spec.columns"),
    ),
    "a frame of experts": Refusal(
        lambda: us.Log([0], [1.0], [0.5], experts=pl.DataFrame({"mine": [0.5]})),
        "experts",
        ("a log goes by their order", "learner.spec.columns"),
    ),
    "a ridge regression for too many actions": Refusal(
        lambda: us.ridge(n_actions=10**12, dimension=1), "n_actions", ("at most 2147483648",)
    ),
    "a state of terabytes, linear": Refusal(
        lambda: unknown(dimension=10**6), "dimension", ("1e+12 numbers", "at most 46340")
    ),
    "a state of terabytes, disjoint": Refusal(
        lambda: unknown(dimension=10**6, disjoint=True), "dimension", ("3e+12", "at most 26754")
    ),
    "one action, linear": Refusal(lambda: linear(n_actions=1), "n_actions"),
    "one action, logged": Refusal(lambda: us.Logged(n_actions=1), "n_actions"),
    "one action, behavior": Refusal(lambda: us.behaviors.uniform(n_actions=1), "n_actions"),
    "one action, game": Refusal(lambda: game(behavior=[1.0]), "behavior"),
    "no rounds": Refusal(lambda: us.exp3_ix(PI, horizon=0), "horizon", ("at least 1",)),
    "no rounds, linear": Refusal(lambda: linear(horizon=0), "horizon"),
    "no rounds, game": Refusal(lambda: game(rounds=0), "rounds"),
    "half a round": Refusal(lambda: us.exp3_ix(PI, horizon=1.5), "horizon"),  # type: ignore[arg-type] # the point
    "an alpha above one": Refusal(
        lambda: us.behaviors.interpolated(n_actions=3, alpha=1.1), "alpha", ("at most 1",)
    ),
    "neither, lin_prod": Refusal(
        lambda: linear(horizon=None), "horizon", ("eta", "lin_prod_compact")
    ),
    "neither, lin_prod_unknown": Refusal(lambda: unknown(horizon=None), "horizon", ("eta",)),
    "rate and coverage, compact": Refusal(
        lambda: compact(eta=0.1, coverage=2.0), "coverage", ("one of the two",)
    ),
    "a rate above the largest, compact": Refusal(
        lambda: compact(eta=0.13), "eta", ("eta <= 0.125", "kappa = 4")
    ),
    "a singular V, compact": Refusal(
        lambda: compact(V=np.diag([1.0, 0.0])), "V", ("singular", "excites")
    ),
    "neither kappa nor feature_bound, compact": Refusal(
        lambda: compact(kappa=None), "kappa", ("exactly one",)
    ),
    "blocks of other actions, compact": Refusal(
        lambda: compact(V=np.stack([V] * 2)), "V", ("(3, p, p)",)
    ),
    "a beta that is too small": Refusal(
        lambda: unknown(eta=0.5, beta=0.99), "beta", ("beta >= 1.0", "eta <= 0.495")
    ),
    "a context of other features, compact": Refusal(
        lambda: compact().policy(compact().init(), PHI.T), "features", ("(3, 2)",)
    ),
    "no context, unknown": Refusal(lambda: unknown().policy(unknown().init()), "features"),
    "a context above feature_bound, unknown": Refusal(
        lambda: unknown().policy(unknown().init(), 1.1 * PHI), "features", ("1.1 for action 0",)
    ),
    "a state of the product, compact": Refusal(
        lambda: compact().update(linear().init(), feedback(features=PHI)),  # type: ignore[arg-type]
        "state",
    ),
    "rate and coverage": Refusal(
        lambda: us.exp3_ix(PI, eta=0.1, coverage=2.0), "coverage", ("one of the two",)
    ),
    "a rate of zero": Refusal(lambda: us.exp3(PI, eta=0), "eta", ("above 0",)),
    "infinite coverage": Refusal(
        lambda: us.exp3_ix(PI, horizon=9, coverage=math.inf), "coverage", ("leave it out",)
    ),
    "coverage below one": Refusal(lambda: us.prod(PI, horizon=9, coverage=0.5), "coverage"),
    "a gamma of zero for unseen actions": Refusal(
        lambda: us.exp3_ix_unknown(3, eta=0.1, gamma=[0.1, 0.0]), "gamma", ("γ > 0",)
    ),
    "a gamma that is shorter than the horizon": Refusal(
        lambda: us.exp3_ix(PI, horizon=9, gamma=[0.1] * 8), "gamma", ("8", "9")
    ),
    "a masked array": Refusal(
        lambda: us.Log(actions=[0, 1], rewards=np.ma.array([1.0, 0.5], mask=[False, True])),
        "rewards",
        ("masked",),
    ),
    "clicks as True and False": Refusal(
        lambda: us.Log(actions=[0], rewards=np.array([True])), "rewards", ("astype(float)",)
    ),
    "actions as floats": Refusal(
        lambda: us.Log(actions=[0.0], rewards=[1.0]), "actions", ("astype(int)",)
    ),
    "a single round of a log": Refusal(
        lambda: us.Log(actions=[0], rewards=[1.0])[0],  # type: ignore[index]
        "log[...]",
        ("events()",),
    ),
    "stretches of no rounds": Refusal(
        lambda: us.Log(actions=[0], rewards=[1.0]).stretches(0), "rounds"
    ),
    "a log for update": Refusal(
        lambda: KNOWN.update(KNOWN.init(), us.Log(actions=[0], rewards=[1.0])),  # type: ignore[arg-type]
        "feedback",
        ("replay",),
    ),
    "feedback for replay": Refusal(
        lambda: KNOWN.replay(KNOWN.init(), us.Feedback(0, 1.0)),  # type: ignore[arg-type]
        "log",
        ("us.Log",),
    ),
    "state and feedback swapped": Refusal(
        lambda: KNOWN.update(us.Feedback(0, 1.0), KNOWN.init()),  # type: ignore[arg-type]
        "state",
    ),
    "an understudy of a recipe": Refusal(lambda: us.Understudy(us.exp3_ix), "learner"),  # type: ignore[arg-type]
    "a check of a recipe": Refusal(lambda: us.check_learner(us.exp3_ix), "learner"),  # type: ignore[arg-type]
    "a check of no rounds": Refusal(lambda: us.check_learner(KNOWN, rounds=0), "rounds"),
    "a seed for a generator": Refusal(lambda: us.Understudy(KNOWN).act(0), "rng"),  # type: ignore[arg-type]
    "bernoulli as text": Refusal(
        lambda: us.adversaries.stationary([0.1], bernoulli="no"),  # type: ignore[arg-type]
        "bernoulli",
    ),
    "low above high": Refusal(
        lambda: us.adversaries.retaliating(n_actions=2, low=0.9, high=0.1), "low"
    ),
    "a name that snapshots know": Refusal(
        lambda: us.saved(type("Constant", (), {})), "cls", ("another name",)
    ),
    "negative gamma": Refusal(lambda: us.exp3_ix(PI, eta=0.1, gamma=-0.1), "gamma"),
    "gamma NaN in an array": Refusal(
        lambda: us.exp3_ix(PI, eta=0.1, gamma=[0.1, math.nan]), "gamma", ("entry 1",)
    ),
    "gamma in two dimensions": Refusal(lambda: us.exp3_ix(PI, eta=0.1, gamma=[[0.1]]), "gamma"),
    "a reward above one": Refusal(lambda: feedback(reward=1.01), "reward", ("rescale", "1.01")),
    "a reward below zero": Refusal(lambda: feedback(reward=-0.01), "reward", ("rescale",)),
    "a reward that is NaN": Refusal(lambda: feedback(reward=math.nan), "reward", ("finite",)),
    "a negative action": Refusal(lambda: feedback(action=-1), "action", ("at least 0",)),
    "a fractional action": Refusal(lambda: feedback(action=1.0), "action", ("whole",)),
    "a propensity of zero": Refusal(lambda: feedback(propensity=0.0), "propensity"),
    "a propensity above one": Refusal(lambda: feedback(propensity=1.5), "propensity"),
    "a propensity that is NaN": Refusal(lambda: feedback(propensity=math.nan), "propensity"),
    "features that are NaN": Refusal(lambda: feedback(features=[math.nan]), "features"),
    "features of a whole log": Refusal(lambda: feedback(features=PHI[None]), "features"),
    "rewards in the log": Refusal(
        lambda: log(rewards=[0.0, 1.0, 1.5]), "rewards", ("entry 2 is 1.5", "rescale")
    ),
    "NaN in the log": Refusal(lambda: log(rewards=[0.0, math.nan, 0.5]), "rewards", ("entry 1",)),
    "too few rewards": Refusal(lambda: log(rewards=[0.0, 1.0]), "rewards", ("2 rows", "3 actions")),
    "too many propensities": Refusal(lambda: log(propensities=[0.5] * 4), "propensities"),
    "too few features": Refusal(lambda: log(features=np.zeros((2, 3, 2))), "features"),
    "actions in two dimensions": Refusal(lambda: log(actions=[[0, 1, 2]]), "actions"),
    "fractional actions": Refusal(lambda: log(actions=[0.0, 1.0, 2.0]), "actions", ("whole",)),
    "a negative action in the log": Refusal(
        lambda: log(actions=[0, -1, 2]), "actions", ("entry 1",)
    ),
    "a propensity of zero in the log": Refusal(
        lambda: log(propensities=[0.5, 0.0, 0.5]), "propensities", ("entry 1 is 0",)
    ),
    "V in one dimension": Refusal(lambda: linear(V=[1.0, 2.0]), "V"),
    "V that is not square": Refusal(lambda: linear(V=np.ones((2, 3))), "V", ("square",)),
    "V that is not symmetric": Refusal(lambda: linear(V=[[1, 0.5], [0, 1]]), "V", ("symmetric",)),
    "V with a negative eigenvalue": Refusal(lambda: linear(V=[[1, 2], [2, 1]]), "V", ("negative",)),
    "V that is singular": Refusal(
        lambda: linear(V=[[1.0, 1.0], [1.0, 1.0]]), "V", ("singular", "excites all features")
    ),
    "V with a singular block": Refusal(
        lambda: linear(V=np.stack([V, V, np.diag([1.0, 0.0])])), "V", ("singular",)
    ),
    "too few blocks": Refusal(lambda: linear(V=np.stack([V, V])), "V", ("(3, p, p)",)),
    "neither kappa nor feature_bound": Refusal(
        lambda: linear(kappa=None), "kappa", ("exactly one of kappa and feature_bound",)
    ),
    "both kappa and feature_bound": Refusal(
        lambda: linear(feature_bound=1.0), "kappa", ("exactly one",)
    ),
    "a feature_bound beyond all rates": Refusal(
        lambda: linear(V=1e-10 * np.eye(2), kappa=None, feature_bound=1e60),
        "feature_bound",
        ("no rate is left",),
    ),
    "a negative feature_bound": Refusal(
        lambda: linear(kappa=None, feature_bound=-1.0), "feature_bound"
    ),
    "a comparator out of range": Refusal(
        lambda: us.coverage(3, PI), "comparator", ("from 0 to 2",)
    ),
    "a comparator of another size": Refusal(lambda: us.coverage([0.5, 0.5], PI), "comparator"),
    "a comparator that does not sum to one": Refusal(
        lambda: us.coverage([0.5, 0.5, 0.5], PI), "comparator", ("sum to 1.5",)
    ),
    "a ragged comparator": Refusal(lambda: us.coverage([[0.5], [0.5, 0.0]], PI), "comparator"),
    "covariances of two sizes": Refusal(
        lambda: us.feature_coverage(np.eye(3), V), "V_comparator", ("(2, 2)",)
    ),
    "a bound that divides by zero": Refusal(
        lambda: us.theory.exp3_order([1.0, 0.0], horizon=9), "pi_b", ("action 1",)
    ),
    "more reward than rounds": Refusal(
        lambda: us.theory.theorem1_bound(0, PI, horizon=9, eta=0.1, total_rewards=[10, 0, 0]),
        "total_rewards",
    ),
    "probabilities that do not add up": Refusal(
        lambda: us.theory.exp3_bound(PI, horizon=9, eta=0.1, total_probabilities=[1, 1, 1]),
        "total_probabilities",
        ("9 in all",),
    ),
    "a horizon that no float can hold": Refusal(lambda: us.exp3(PI, horizon=10**400), "horizon"),
    "an imaginary rate": Refusal(lambda: us.exp3(PI, eta=np.complex128(0.1 + 1j)), "eta"),  # type: ignore[arg-type] # the point
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_are_refused_clearly(name: str) -> None:
    refusal = ARGUMENTS[name]
    with pytest.raises(InvalidArgument) as caught:
        refusal.call()
    assert_clear(caught.value, refusal.argument, *refusal.words)


def test_an_uncovered_comparator_has_infinite_coverage_and_a_warning() -> None:
    """The warning names the action; where both have no mass, 0/0 counts as 0."""
    with pytest.warns(InfiniteCoverage, match="action 2 with probability 0.25") as caught:
        assert us.coverage([0.5, 0.25, 0.25], [0.5, 0.5, 0.0]) == math.inf
    assert caught[0].filename == __file__
    assert us.coverage([0.5, 0.5, 0.0], [0.5, 0.5, 0.0]) == 2.0
    with pytest.warns(InfiniteCoverage, match="direction"):
        assert us.feature_coverage(np.eye(2), np.diag([1.0, 0.0])) == math.inf
    assert us.feature_coverage(np.diag([1.0, 0.0]), np.diag([0.5, 0.0])) == 2.0


def test_the_largest_admissible_rate_is_printed_and_accepted() -> None:
    with pytest.raises(InadmissibleRate) as caught:
        linear(eta=0.5)
    largest = caught.value.largest
    assert largest == 1 / (2 * 4.0)
    assert_clear(caught.value, "eta", "0.5", "kappa = 4", f"eta <= {largest!r}")
    assert linear(eta=largest).eta == largest
    with pytest.raises(InadmissibleRate):
        linear(eta=math.nextafter(largest, 1.0))


def test_the_largest_rate_from_a_feature_bound_is_the_papers() -> None:
    """λ_min(V) ≥ 2ηB²: here λ_min = ¼ and B = 1."""
    with pytest.raises(InadmissibleRate) as caught:
        linear(kappa=None, feature_bound=1.0, eta=0.2)
    assert caught.value.largest == 0.125
    assert linear(kappa=None, feature_bound=1.0, eta=0.125).eta == 0.125


def test_exp3s_bound_refuses_a_rate_above_min_q() -> None:
    with pytest.raises(InadmissibleRate) as caught:
        us.theory.exp3_bound(PI, horizon=9, eta=0.21)
    assert caught.value.largest == 0.2
    assert_clear(caught.value, "eta", "eta <= 0.2", "theorem1_bound")
    assert us.theory.exp3_bound(PI, horizon=9, eta=0.2) > 0


def seasoned(learner: Learner[Any]) -> us.Understudy[Any]:
    """An understudy with some rounds behind it, so that there is something to spoil."""
    understudy = us.Understudy(learner)
    understudy.replay(example_log(learner, rounds=5, seed=0))
    return understudy


LOGGED = us.exp3_ix(us.Logged(n_actions=3), horizon=50)
BOUNDED = linear(kappa=None, feature_bound=1.0)
DISJOINT = us.lin_prod(np.stack([V] * 3), n_actions=3, horizon=50, kappa=8.0)
FIVE_GAMMAS = us.exp3_ix(PI, eta=0.1, gamma=np.linspace(1.0, 0.5, 5))


@dataclass(frozen=True)
class BadEvent:
    """An event that a learner must refuse, why, and words of the message."""

    learner: Learner[Any]
    event: dict[str, Any]
    argument: str
    words: tuple[str, ...] = field(default=())
    kind: type[InvalidArgument] = InvalidEvent


def event(**changed: Any) -> dict[str, Any]:
    return {"action": 0, "reward": 1.0, **changed}


EVENTS: dict[str, BadEvent] = {
    "an action out of range": BadEvent(KNOWN, event(action=3), "action", ("from 0 to 2",)),
    "an action out of range, logged": BadEvent(LOGGED, event(action=3, propensity=0.5), "action"),
    "an action out of range, unknown": BadEvent(
        us.exp3_ix_unknown(3, horizon=9), event(action=3), "action"
    ),
    "an action out of range, linear": BadEvent(linear(), event(action=3, features=PHI), "action"),
    "an action of probability zero": BadEvent(
        KNOWN, event(action=2), "action", ("probability 0", "correct pi_b", "us.Logged")
    ),
    "no propensity": BadEvent(LOGGED, event(), "propensity", ("us.Logged", "None")),
    "a superfluous propensity": BadEvent(
        KNOWN, event(propensity=0.5), "propensity", ("leave it out", "us.Logged(n_actions=K)")
    ),
    "no features": BadEvent(linear(), event(), "features", ("(3, 2)", "None")),
    "superfluous features": BadEvent(KNOWN, event(features=PHI), "features", ("leave them out",)),
    "features transposed": BadEvent(linear(), event(features=PHI.T), "features", ("(2, 3)",)),
    "the context alone": BadEvent(linear(), event(features=PHI[0]), "features", ("(3, 2)",)),
    "features for disjoint blocks": BadEvent(DISJOINT, event(features=PHI), "features", ("(2,)",)),
    "features above kappa": BadEvent(
        linear(), event(features=2 * PHI), "features", ("kappa = 4", "8", "larger kappa")
    ),
    "a context above kappa": BadEvent(
        DISJOINT, event(features=[1.0, 2.0]), "features", ("kappa = 8", "larger kappa")
    ),
    "features above feature_bound": BadEvent(
        BOUNDED,
        event(features=1.1 * PHI),
        "features",
        ("feature_bound = 1", "1.1", "larger feature_bound"),
    ),
    "features transposed, compact": BadEvent(
        compact(), event(features=PHI.T), "features", ("(2, 3)",)
    ),
    "features above kappa, compact": BadEvent(
        compact(), event(features=2 * PHI), "features", ("kappa = 4", "8", "larger kappa")
    ),
    "features above kappa without a horizon": BadEvent(
        compact(horizon=None), event(features=2 * PHI), "features", ("kappa = 4",)
    ),
    "features above feature_bound, unknown": BadEvent(
        unknown(), event(features=1.1 * PHI), "features", ("feature_bound = 1", "1.1")
    ),
    "a context above feature_bound, unknown": BadEvent(
        unknown(disjoint=True), event(features=[1.0, 1.0]), "features", ("feature_bound = 1",)
    ),
    "gamma of a round past the array": BadEvent(
        FIVE_GAMMAS, event(), "gamma", ("round 6 has no entry",), InvalidArgument
    ),
    "a reward above one": BadEvent(KNOWN, event(reward=2.0), "reward", (), InvalidArgument),
    "a reward that is NaN": BadEvent(KNOWN, event(reward=math.nan), "reward", (), InvalidArgument),
    "features that are infinite": BadEvent(
        linear(), event(features=PHI + math.inf), "features", (), InvalidArgument
    ),
}


@pytest.mark.parametrize("name", EVENTS)
def test_a_bad_event_is_refused_and_changes_nothing(name: str) -> None:
    """By the understudy and by its learner, as an event and as a log of one."""
    bad = EVENTS[name]
    understudy = seasoned(bad.learner)
    state = understudy.state
    before = snapshot_text(bad.learner, state)
    for attempt in (
        lambda: understudy.observe(**bad.event),
        lambda: bad.learner.update(state, us.Feedback(**bad.event)),
        lambda: understudy.replay(one_event(us.Feedback(**bad.event))),
        lambda: bad.learner.policies(state, one_event(us.Feedback(**bad.event))),
    ):
        with pytest.raises(bad.kind) as caught:
            attempt()
        assert_clear(caught.value, bad.argument, *bad.words)
    assert understudy.state is state
    assert snapshot_text(understudy.learner, understudy.state) == before
    assert understudy.rounds == 5


def spoiled(learner: Learner[Any], position: int, column: str, value: Any) -> Log:
    """A good log of nine rounds with one row of one column replaced."""
    good = example_log(learner, rounds=9, seed=1)
    columns: dict[str, Any] = {
        name: None if getattr(good, name) is None else getattr(good, name).copy()
        for name in ("actions", "rewards", "propensities", "features")
    }
    columns[column][position] = value
    return us.Log(**columns)


MIDDLES: dict[str, tuple[Learner[Any], str, Any]] = {
    "an action out of range": (KNOWN, "actions", 3),
    "an action of probability zero": (KNOWN, "actions", 2),
    "an action out of range, logged": (LOGGED, "actions", 7),
    "an action out of range, linear": (linear(), "actions", 3),
    "features above kappa": (linear(), "features", 2 * PHI),
    "features above feature_bound": (BOUNDED, "features", 1.1 * PHI),
    "a context above kappa": (DISJOINT, "features", [1.0, 2.0]),
    "features above kappa, compact": (compact(), "features", 2 * PHI),
    "features above feature_bound, unknown": (unknown(), "features", 1.1 * PHI),
}


@pytest.mark.parametrize("position", [0, 4, 8])
@pytest.mark.parametrize("name", MIDDLES)
def test_a_bad_event_in_a_log_means_that_nothing_of_it_is_learned(name: str, position: int) -> None:
    """And the message says which event it was."""
    learner, column, value = MIDDLES[name]
    understudy = seasoned(learner)
    before = snapshot_text(learner, understudy.state)
    with pytest.raises(InvalidEvent, match=f"of event {position} = "):
        understudy.replay(spoiled(learner, position, column, value))
    assert snapshot_text(learner, understudy.state) == before


def failing_gammas() -> Iterator[Any]:
    """γ_t that goes wrong in round 150 only, as a function and as an array that ends."""
    for wrong in (-0.1, math.nan, math.inf, "much", None):
        yield pytest.param(lambda t, wrong=wrong: 0.5 if t < 150 else wrong, id=f"{wrong} at 150")
    yield pytest.param(np.full(149, 0.5), id="array of 149")


@pytest.mark.parametrize("gamma", list(failing_gammas()))
def test_a_gamma_that_fails_late_spoils_the_whole_log(gamma: Any) -> None:
    """With 1000 actions a log of 200 rounds is learned in several stretches: none may stay."""
    pi_b = us.behaviors.uniform(n_actions=1000)
    understudy = us.Understudy(us.exp3_ix(pi_b, eta=0.1, gamma=gamma))
    actions = np.arange(200)
    understudy.replay(us.Log(actions=actions[:10], rewards=np.ones(10)))
    before = saved_form(understudy.state)
    with pytest.raises(InvalidArgument) as caught:
        understudy.replay(us.Log(actions=actions, rewards=np.ones(200)))
    assert_clear(caught.value, "gamma")
    assert saved_form(understudy.state) == before
    understudy.replay(us.Log(actions=actions[:139], rewards=np.ones(139)))
    assert understudy.rounds == 149
    with pytest.raises(InvalidArgument, match="150"):
        understudy.observe(action=0, reward=1.0)


@pytest.mark.parametrize(
    ("learner", "features", "words"),
    [
        (linear(), None, "None"),
        (linear(), PHI.T, "(3, 2)"),
        (linear(), PHI * math.nan, "not finite"),
        (linear(), 2 * PHI, "kappa"),
        (BOUNDED, 1.1 * PHI, "feature_bound"),
        (DISJOINT, PHI, "(2,)"),
        (KNOWN, PHI, "leave them out"),
    ],
)
def test_policies_are_asked_for_with_the_right_features(
    learner: Learner[Any], features: Any, words: str
) -> None:
    """Above κ a factor could be negative, so the guarantee is refused instead of voided."""
    understudy = seasoned(learner)
    for ask in (understudy.policy, lambda f: understudy.act(np.random.default_rng(0), f)):
        with pytest.raises(InvalidArgument) as caught:
            ask(features)
        assert_clear(caught.value, "features", words)


def test_events_at_the_edge_are_accepted() -> None:
    """φᵀV⁻¹φ = κ and ‖φ‖ = B exactly; rewards 0 and 1; propensity 1."""
    edge = us.Understudy(linear(kappa=2.0))
    edge.observe(action=0, reward=1.0, features=PHI)
    us.Understudy(BOUNDED).observe(action=0, reward=0.0, features=PHI)
    us.Understudy(LOGGED).observe(action=2, reward=0.0, propensity=1.0)
    assert edge.rounds == 1


def test_kappa_equal_to_the_dimension_is_accepted() -> None:
    """κ ≥ d always, with equality for an orthogonal design: only what is below is refused."""
    assert linear(kappa=2.0).kappa == 2.0


@pytest.mark.parametrize("name", dict(example_learners()))
def test_the_state_of_another_learner_is_refused(name: str) -> None:
    """Whether by its kind or by its size, and before anything is learned."""
    learner = dict(example_learners())[name]
    others: list[Learner[Any]] = [
        us.exp3(PI, eta=0.1),
        us.exp3_ix_unknown(5, eta=0.1),
        linear(),
        DISJOINT,
    ]
    refused = 0
    for other in others:
        if saved_form(other.init()) == saved_form(learner.init()):
            continue
        with pytest.raises(InvalidArgument) as caught:
            us.Understudy(learner, other.init())
        assert_clear(caught.value, "state", "learner.init()")
        refused += 1
    assert refused >= 3


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda size: us.ridge(n_actions=3, dimension=size), "dimension"),
        (lambda size: unknown(dimension=size, disjoint=True), "dimension"),
        (lambda size: us.exp3_ix(us.Logged(size)), "n_actions"),
        (lambda size: us.prod_grid(us.Logged(size)), "n_actions"),
    ],
)
def test_the_size_that_a_remedy_names_is_the_largest(
    make: Callable[[int], object], argument: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        make(10**12)
    found = re.search(r"at most (\d+)", caught.value.remedy)
    assert found is not None
    most = int(found[1])
    assert make(most)
    with pytest.raises(InvalidArgument) as next_one:
        make(most + 1)
    assert (next_one.value.argument, next_one.value.value) == (argument, most + 1)
