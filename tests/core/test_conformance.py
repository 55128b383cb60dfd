"""The laws of `understudy.conformance`: every recipe obeys them, and a learner that breaks one is
caught.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import understudy as us
from tests.support.example_learners import example_learners
from understudy import Feedback, Log
from understudy.conformance import LAWS
from understudy.errors import BrokenLaw
from understudy.learners import RECIPES, ExponentialWeights, Learner, Scores

EVENTS = 300
DISJOINT_V = np.array([[[0.3, 0.1], [0.1, 0.3]], [[0.2, 0.0], [0.0, 0.4]], np.eye(2) * 0.3])

FOURIER = us.learners.Mapped(
    us.ridge(n_actions=3, dimension=6, temperature=[0.05, 0.2]),
    us.learners.random_fourier(dimension=2, features=5, gamma=0.5, rng=np.random.default_rng(1)),
)

VARIANTS: dict[str, Learner[Any]] = {
    "logged exp3": us.exp3(us.Logged(n_actions=5), horizon=10),
    "logged exp3_ix": us.exp3_ix(us.Logged(n_actions=5), horizon=10),
    "logged prod": us.prod(us.Logged(n_actions=5), eta=0.3),
    "unseen action": us.exp3_ix([0.5, 0.0, 0.5], horizon=20),
    "tabulated gamma": us.exp3_ix([0.5, 0.5], eta=0.2, gamma=np.linspace(1, 0, EVENTS + 1)),
    "function gamma": us.exp3_ix([0.5, 0.5], eta=0.2, gamma=lambda t: 1 / t),
    "many actions": us.exp3_ix(us.behaviors.interpolated(n_actions=1001, alpha=0.3), horizon=100),
    "tuned": us.exp3_ix([0.9, 0.1], horizon=100, coverage=10.0),
    "no horizon, exp3": us.exp3([0.5, 0.3, 0.2]),
    "no horizon, exp3_ix": us.exp3_ix(us.Logged(n_actions=5)),
    "no horizon, tuned": us.exp3_ix([0.9, 0.1], coverage=10.0),
    "no horizon, unknown": us.exp3_ix_unknown(4),
    "no horizon, prod": us.prod([0.5, 0.3, 0.2]),
    "adaptive, many groups": us.coverage_adaptive(0.5 ** np.array([1, 2, 3, 4, 5, 5]), horizon=99),
    "adaptive, logarithmic": us.coverage_adaptive([0.9, 0.1], horizon=9, gain="logarithmic"),
    "adaptive, unseen action": us.coverage_adaptive([0.5, 0.0, 0.5], horizon=20),
    "adaptive, own rates": us.coverage_adaptive([0.5, 0.5], rates=[0.3, 0.1], prior=[0.2, 0.8]),
    "adaptive, grid": us.coverage_adaptive(us.Logged(n_actions=5), horizon=100),
    "adaptive, no horizon": us.coverage_adaptive([0.9, 0.09, 0.01]),
    "adaptive, grid, no horizon": us.coverage_adaptive(us.Logged(n_actions=3)),
    "disjoint": us.lin_prod(DISJOINT_V, n_actions=3, horizon=100, feature_bound=2.0),
    "disjoint, compact": us.lin_prod_compact(
        DISJOINT_V, n_actions=3, horizon=100, feature_bound=2.0
    ),
    "no horizon, compact": us.lin_prod_compact(DISJOINT_V, n_actions=3, kappa=20.0),
    "disjoint, unknown": us.lin_prod_unknown(
        n_actions=3, dimension=2, feature_bound=2.0, horizon=100, disjoint=True
    ),
    "exp3 with a prior": us.exp3([0.5, 0.3, 0.2], eta=0.3, prior=[0.1, 0.1, 0.8]),
    "exp3_ix as production": us.exp3_ix([0.5, 0.0, 0.5], horizon=50, prior="behavior"),
    "no horizon, as production": us.exp3_ix([0.5, 0.3, 0.2], prior="behavior"),
    "unknown with a prior": us.exp3_ix_unknown(3, horizon=50, prior=[0.1, 0.1, 0.8]),
    "prod grid, logged": us.prod_grid(us.Logged(n_actions=4)),
    "prod grid as production": us.prod_grid([0.5, 0.3, 0.2], prior="behavior"),
    "prod grid with production": us.prod_grid([0.5, 0.3, 0.2], production=0.3, prior="behavior"),
    "prod grid, logged production": us.prod_grid(us.Logged(n_actions=4), production=0.1),
    "ridge, pessimistic": us.ridge(n_actions=3, dimension=2, beta=0.5, temperature=0.2),
    "ridge, variants": us.ridge(n_actions=3, dimension=2, beta=[0, 1], temperature=[0.1, 1.0]),
    "ridge, not centered": us.ridge(n_actions=3, dimension=1, ridge=0.1, centered=False),
    "ridge on Fourier features": FOURIER,
    "tables": us.per_context(us.prod_grid(us.Logged(n_actions=3)), n_contexts=3),
    "tables, mergeable": us.per_context(us.prod([0.5, 0.3, 0.2], eta=0.2), n_contexts=3),
    "exp4, logged": us.exp4(
        us.Logged(n_actions=3),
        {
            "production": "production",
            "mine": us.learners.Outside("mine"),
            "grid": us.prod_grid(us.Logged(n_actions=3)),
            "fourier": FOURIER,
            "lin_prod": us.lin_prod_compact(DISJOINT_V, n_actions=3, kappa=20.0),
        },
    ),
    "exp4, prior": us.exp4(
        [0.5, 0.3, 0.2],
        {"a": us.exp3([0.5, 0.3, 0.2]), "b": us.exp3_ix_unknown(3)},
        prior=[0.9, 0.1],
    ),
    "exp4 of exp4": us.exp4(
        us.Logged(n_actions=3),
        {
            "inner": us.exp4(us.Logged(3), {"a": us.exp3(us.Logged(3)), "b": FOURIER}),
            "ridge": us.ridge(n_actions=3, dimension=2),
        },
    ),
    "one feature": us.lin_prod([[0.5]], n_actions=2, horizon=100, kappa=3.0),
}


def test_every_recipe_is_found() -> None:
    assert {name for name, _ in example_learners()} == set(RECIPES)
    assert set(RECIPES) <= set(us.__all__)


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_obey_the_laws(name: str) -> None:
    assert us.check_learner(dict(example_learners())[name], rounds=EVENTS) == list(LAWS)


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_obey_the_laws(name: str) -> None:
    assert us.check_learner(VARIANTS[name], rounds=EVENTS) == list(LAWS)


class Wrapped:
    """A learner with one method replaced: how the laws are tested themselves."""

    def __init__(self, **replaced: Callable[..., Any]) -> None:
        self.inner: ExponentialWeights = us.exp3_ix([0.5, 0.25, 0.25], horizon=100)
        self.replaced = replaced

    def __getattr__(self, name: str) -> Any:
        return self.replaced.get(name) or getattr(self.inner, name)


INNER = us.exp3_ix([0.5, 0.25, 0.25], horizon=100)


def unnormalised(state: Scores, log: Log) -> tuple[Scores, Any]:
    after, policies = INNER.policies(state, log)
    return after, policies * 1.001


def in_place(state: Scores, feedback: Feedback) -> Scores:
    after = INNER.update(state, feedback)
    state.scores.flags.writeable = True
    state.scores[feedback.action] += feedback.reward
    return after


def forgetful(state: Scores, feedback: Feedback) -> Scores:
    return replace(INNER.update(state, feedback), rounds=1)


def doubled(first: Scores, second: Scores) -> Scores:
    merged = INNER.merge(first, second)
    return replace(merged, scores=2 * merged.scores)


def deaf(state: Scores, feedback: Feedback) -> Scores:
    try:
        return INNER.update(state, feedback)
    except us.errors.InvalidArgument:
        return state


def batch_dependent(state: Scores, log: Log) -> tuple[Scores, Any]:
    after, trace = INNER.replay(state, log)
    return replace(after, scores=after.scores + 1e-12 * (len(log) == 7)), trace


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (Wrapped(policies=unnormalised), "policies are probabilities"),
        (Wrapped(update=in_place), "update is pure"),
        (Wrapped(update=forgetful), "replay is update, bit for bit"),
        (Wrapped(replay=batch_dependent), "batching does not matter"),
        (Wrapped(merge=doubled), "merging is adding, or is refused"),
        (Wrapped(update=deaf), "bad events are refused and change nothing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_learner_is_caught(broken: Any, law: str) -> None:
    with pytest.raises(BrokenLaw, match=law):
        us.check_learner(broken)
