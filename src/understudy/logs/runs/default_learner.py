"""The learners of logs by name, and the default for each kind of log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from understudy import learners
from understudy.behaviors import Behavior
from understudy.errors import InvalidArgument
from understudy.logs.encoder import Encoder
from understudy.logs.features import ContextFeatures, fit_context_features
from understudy.logs.settings import CONTEXTUAL, UNKNOWN, Assumption, Theorem, guarantee
from understudy.protocols import Learner
from understudy.types import Integers

KNOWN: dict[str, Callable[..., Learner[Any]]] = {
    "exp3": learners.exp3,
    "exp3-ix": learners.exp3_ix,
    "prod": learners.prod,
    "coverage-adaptive": learners.coverage_adaptive,
}


@dataclass(frozen=True, eq=False)
class Choice:
    """A learner by name, the theorem that applies to it, and which assumptions are not met."""

    name: str
    learner: Learner[Any]
    theorem: Theorem
    unmet: tuple[Assumption, ...]


def name_of_default(behavior: Behavior | None, *, contexts: bool) -> str:
    """The learner for a log of which this is known.

    >>> from understudy import Logged
    >>> name_of_default(Logged(n_actions=3), contexts=False), name_of_default(None, contexts=False)
    ('coverage-adaptive', 'exp3-ix-unknown')
    """
    if contexts:
        return CONTEXTUAL
    return UNKNOWN if behavior is None else "coverage-adaptive"


def choose(name: str, behavior: Behavior | None, n_actions: int, horizon: int | None) -> Choice:
    """A learner without contexts, by name.

    >>> from understudy import Logged
    >>> choose("exp3-ix", Logged(n_actions=3), 3, horizon=None).theorem.value
    'theorem 1'
    """
    if name == CONTEXTUAL:
        raise InvalidArgument(
            "learner",
            name,
            "it learns from contexts, and none are named",
            "name columns with --context",
        )
    if name == UNKNOWN:
        learner: Learner[Any] = learners.exp3_ix_unknown(n_actions, horizon=horizon, width="kl")
    elif behavior is not None:
        learner = KNOWN[name](behavior, horizon=horizon)
    else:
        raise InvalidArgument(
            "learner",
            name,
            "it needs the propensities of the behavior policy, and they are to be estimated",
            f"pass --learner {UNKNOWN}, or the propensities",
        )
    theorem, *unmet = guarantee(name, horizon)
    return Choice(name, learner, theorem, tuple(unmet))


def choose_contextual(
    frame: pl.DataFrame,
    played: Integers,
    context: Sequence[str],
    n_actions: int,
    horizon: int | None,
) -> tuple[Choice, ContextFeatures]:
    """The learner of contexts that the rows of a warm-up prepare, and their features."""
    encoder = Encoder.fit(frame, context)
    contextual = fit_context_features(encoder, frame, played, n_actions, horizon=horizon)
    theorem, *unmet = guarantee(CONTEXTUAL, horizon)
    return Choice(CONTEXTUAL, contextual.learner, theorem, tuple(unmet)), contextual
