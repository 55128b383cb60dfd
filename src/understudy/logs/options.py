"""What a caller asks for, and what follows from it: given now, kept from before, or the default."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from understudy.certificates.evidence import CONFIDENCE
from understudy.constraints import HORIZON, integer, number
from understudy.errors import InvalidArgument, Shown, shorten
from understudy.logs.action_files import checked_probabilities, read_actions, read_probabilities
from understudy.logs.default_learner import LEARNERS
from understudy.logs.policy import Settings
from understudy.logs.schema import (
    ESTIMATED,
    GIVEN,
    LOGGED,
    PRESETS,
    Actions,
    Columns,
    Kind,
    Label,
    Scale,
    a_few,
)

__all__ = ["CONFIDENT", "MOST_WARMUP", "LogOptions", "Options", "agree"]

WORDS: dict[str, Kind] = {LOGGED: LOGGED, ESTIMATED: ESTIMATED}
CONFIDENT = 0.95
WARMUP = 0.1
MOST_WARMUP = 100_000  # rows: more would not make the features better, and memory stays constant
PREPARING = "pass the share of the rows to prepare with, such as 0.1, or how many, such as 1000"
SHARE = number(0.0, 0.9, PREPARING, above=True)
ROWS = integer(1, PREPARING, MOST_WARMUP)
Probabilities = Mapping[Label, float]


class LogOptions(TypedDict, total=False):
    """How a log is read: what `us.logs.learn`, `coverage` and `certify` have in common."""

    action: str | None
    reward: str | None
    propensity: str | None
    time: str | None
    eligible: str | None
    preset: str | None
    format: str | None
    reward_range: Sequence[float] | None
    actions: Iterable[Label] | str | os.PathLike[str] | None
    behavior: str | os.PathLike[str] | Probabilities | None
    confidence: float | None


@dataclass(frozen=True)
class Options:
    """What was asked for; None stands for what was asked before, or else for the default."""

    columns: Mapping[str, Any]
    reward_range: tuple[float, float] | None = None
    actions: Actions | None = None
    behavior: Kind | None = None
    probabilities: Probabilities | None = None
    learner: str | None = None
    horizon: int | None = None
    confidence: float | None = None
    warmup: float = WARMUP

    @staticmethod
    def of(
        *,
        action: str | None = None,
        reward: str | None = None,
        propensity: str | None = None,
        time: str | None = None,
        eligible: str | None = None,
        target: str | None = None,
        context: str | Sequence[str] | None = None,
        preset: str | None = None,
        format: str | None = None,  # noqa: A002, ARG004 - the option's name; for those who open files
        reward_range: Sequence[float] | None = None,
        actions: Iterable[Label] | str | os.PathLike[str] | None = None,
        behavior: str | os.PathLike[str] | Probabilities | None = None,
        learner: str | None = None,
        horizon: int | None = None,
        confidence: float | None = None,
        warmup: float | None = None,
    ) -> Options:
        """The options as people pass them, checked one by one.

        >>> Options.of(preset="obd", learner="exp3-ix").columns["reward"]
        'click'
        """
        kind, probabilities = _behavior(behavior)
        if warmup is not None and not context:
            raise InvalidArgument(
                "warmup",
                warmup,
                "it prepares the features of contexts, and there are none",
                "name their columns with --context, or leave it out",
            )
        _one_of("learner", learner, LEARNERS)
        roles = {
            "action": action,
            "reward": reward,
            "propensity": propensity,
            "time": time,
            "eligible": eligible,
            "target": target,
            "context": (context,) if isinstance(context, str) else tuple(context or ()) or None,
        }
        named = {role: name for role, name in roles.items() if name is not None}
        scale = None if reward_range is None else Scale.of(reward_range)
        return Options(
            _preset(preset) | named,
            None if scale is None else (scale.low, scale.high),
            _actions(actions),
            kind,
            probabilities,
            learner,
            HORIZON.optional()("horizon", horizon),
            CONFIDENCE.optional()("confidence", confidence),
            _warmup(WARMUP if warmup is None else warmup),
        )

    @property
    def scale(self) -> Scale:
        """The units of rewards: those asked for, or [0, 1]."""
        return Scale.of(self.reward_range)

    def warmup_of(self, rows: int) -> int:
        """How many of so many rows prepare the features of contexts.

        >>> Options.of(context="age", warmup=0.5).warmup_of(10)
        5
        """
        wanted = int(self.warmup * rows) if self.warmup < 1 else int(self.warmup)
        return min(max(1, wanted), MOST_WARMUP)

    def declared(self) -> frozenset[str]:
        """The actions that are known without looking at the log: a list, or a given behavior."""
        if self.actions is not None:
            return frozenset(self.actions.texts)
        return frozenset(str(label) for label in self.probabilities or ())

    def after(self, kept: Settings | None) -> Options:
        """With what is not asked for taken from an earlier run: how its rows were read."""
        if kept is None:
            return self
        roles = ("action", "reward", "propensity", "context")
        columns = {role: getattr(kept.columns, role) for role in roles}
        known = {role: name for role, name in columns.items() if name is not None}
        return dataclasses.replace(
            self,
            columns=known | dict(self.columns),
            reward_range=self.reward_range or kept.reward_range,
        )

    def columns_of(self, kept: Settings) -> Columns:
        """Which columns are read when learning goes on.

        Another file may have other names for its columns; its contexts must be the same.
        """
        agree("context", self.columns.get("context"), kept.columns.context)
        return dataclasses.replace(kept.columns, **self.columns)


def agree(option: str, asked: object, kept: object) -> None:
    """Refuse an option that contradicts what the first run fixed.

    >>> agree("learner", "prod", "exp3")
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: learner = 'prod': the policy was learned with 'exp3'; ...
    """
    if asked is not None and asked != kept:
        now, before = asked, kept
        if isinstance(asked, Actions) and isinstance(kept, Actions):
            now, before = _unlike(asked, kept), _unlike(kept, asked)
        raise InvalidArgument(
            option,
            now,
            f"the policy was learned with {shorten(before)}",
            "leave it out to go on as before, or start anew without --resume",
        )


def _unlike(actions: Actions, others: Actions) -> Shown:
    """How many actions there are, and a few of them: first those that the others are not."""
    theirs = set(others.texts)
    labels = sorted(actions.texts, key=lambda text: text in theirs)
    return Shown(f"{len(labels):,} actions ({a_few(labels)})")


def _warmup(asked: float) -> float:
    """A share of the rows, or how many of them."""
    whole = isinstance(asked, int | float) and asked >= 1 and asked == int(asked)
    return float(ROWS("warmup", int(asked)) if whole else SHARE("warmup", asked))


def _preset(name: str | None) -> dict[str, Any]:
    if name is None:
        return {}
    _one_of("preset", name, tuple(PRESETS))
    columns = PRESETS[name]
    return {role: getattr(columns, role) for role in ("action", "reward", "propensity")}


def _actions(found: Iterable[Label] | str | os.PathLike[str] | None) -> Actions | None:
    if found is None:
        return None
    if isinstance(found, str | os.PathLike):
        return read_actions(Path(found))
    return Actions.of(found)


def _behavior(
    found: str | os.PathLike[str] | Probabilities | None,
) -> tuple[Kind | None, Probabilities | None]:
    if found is None:
        return None, None
    if isinstance(found, Mapping):
        return GIVEN, checked_probabilities("behavior", dict(found), "behavior")
    if isinstance(found, str) and found in WORDS:
        return WORDS[found], None
    return GIVEN, read_probabilities("behavior", Path(found))


def _one_of(argument: str, value: str | None, names: tuple[str, ...]) -> None:
    if value is not None and value not in names:
        raise InvalidArgument(
            argument, value, "there is no such", f"pass one of {', '.join(names)}"
        )
