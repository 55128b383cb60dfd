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
from understudy.logs.schema import Columns, PropensitySource, RewardScale
from understudy.logs.settings import CONTEXTUAL, UNKNOWN, Assumption, Settings, guarantee
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
    """A learner, its name, and the horizon that it was made for."""

    name: str
    learner: Learner[Any]
    horizon: int | None

    def settings(
        self, columns: Columns, scale: RewardScale, source: PropensitySource, *unmet: Assumption
    ) -> Settings:
        """What later runs keep; `unmet` are assumptions beside those of the learner's theorem."""
        theorem, *assumptions = guarantee(self.name, self.horizon)
        return Settings(
            columns=columns,
            reward_range=(scale.low, scale.high),
            behavior=source,
            learner=self.name,
            horizon=self.horizon,
            theorem=theorem,
            unmet=(*assumptions, *unmet),
        )


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
    """A learner without contexts, by name."""
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
    return Choice(name, learner, horizon)


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
    return Choice(CONTEXTUAL, contextual.learner, horizon), contextual
