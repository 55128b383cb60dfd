"""Which rows of a log can be learned from, and why not the others. Nothing is lost in silence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from understudy.constraints import SMALLEST_PROBABILITY, Array
from understudy.errors import InvalidLog
from understudy.logs.schema import (
    ACTION,
    CONTEXT,
    ELIGIBLE,
    FILE,
    PROPENSITY,
    REWARD,
    ROW,
    TARGET,
    TIME,
    Actions,
    Scale,
    as_text,
)
from understudy.types import Integers, Log

__all__ = ["QUARANTINE", "Rejected", "RowRules", "ValidatedBatch", "check"]

QUARANTINE = {
    FILE: pl.String,
    ROW: pl.Int64,
    "reason": pl.String,
    ACTION: pl.String,
    REWARD: pl.String,
    PROPENSITY: pl.String,
}
LONGEST = 200  # characters of a value that is quarantined
TRUTH = {"true": 1.0, "false": 0.0}
TEXTS = (pl.String, pl.Categorical, pl.Enum)
NO_LABELS = (pl.Binary, pl.Object, pl.Duration)
# Labels of a list that is text
QUOTED, BETWEEN, WORDS = r'"[^"]*"', r"[^,|;\[\]]+", r"[^\s\[\]]+"

UNIT = Scale()

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RowRules:
    """What a row must be.

    `actions` is None while they are still being collected, and `closed` says whether no others were
    to be expected: else rows of other actions are those that were refused for something else.
    `propensities` says whether the log's own are read. `support` marks the actions that a given
    behavior can play at all.
    """

    actions: Actions | None = None
    scale: Scale = UNIT
    propensities: bool = True
    support: Mask | None = None
    closed: bool = True


@dataclass(frozen=True, eq=False)
class Rejected:
    """Rows that were set aside, and where they stood: `good` marks all rows of the batch.

    `rewards` are those of the rows set aside, 1 where there is none to be used; `actions` their
    indices, −1 where they have none.
    """

    good: Mask
    actions: Integers
    rewards: Array

    def after(self, rows: int) -> Rejected:
        """What comes after so many good rows."""
        start = int(np.flatnonzero(self.good)[rows - 1]) + 1 if rows else 0
        skipped = int((~self.good[:start]).sum())
        return Rejected(self.good[start:], self.actions[skipped:], self.rewards[skipped:])


@dataclass(frozen=True, eq=False)
class ValidatedBatch:
    """The rows of a batch that can be learned from, and those that cannot.

    `files` says how many rows came from where. `frame` holds the good rows as they came; `actions`
    their indices, if labels are known already. `aside` is None if all rows are good.
    """

    files: Mapping[str, int]
    frame: pl.DataFrame
    actions: Integers
    rewards: Array
    propensities: Array | None
    quarantined: pl.DataFrame
    aside: Rejected | None = None

    def __len__(self) -> int:
        return len(self.rewards)

    def after(self, rows: int) -> ValidatedBatch:
        """Without the first good rows."""
        q = None if self.propensities is None else self.propensities[rows:]
        frame, actions, rewards = self.frame[rows:], self.actions[rows:], self.rewards[rows:]
        aside = None if self.aside is None else self.aside.after(rows)
        return ValidatedBatch(self.files, frame, actions, rewards, q, self.quarantined, aside)

    def log(self, features: Array | None = None) -> Log:
        return Log._of(self.actions, self.rewards, self.propensities, features)  # checked already

    def targets(self) -> Array:
        """The probability of every action under a policy of the user's own."""
        return numbers("", self.frame[TARGET])

    def contexts(self) -> pl.DataFrame:
        return self.frame.select(name for name in self.frame.columns if name.startswith(CONTEXT))


def check(file: str, frame: pl.DataFrame, rules: RowRules) -> ValidatedBatch:
    """Split a batch of rows into those that obey the rules and those that do not, with reasons.

    >>> frame = pl.DataFrame({"row": [1, 2], "action": ["a", "b"], "reward": ["0.5", "1e9"]})
    >>> checked = check("log.csv", frame, RowRules(Actions(("a", "b")), propensities=False))
    >>> checked.rewards.tolist(), checked.quarantined["reason"].to_list()
    ([0.5], ['reward is out of range'])
    """
    rewards = numbers(file, frame[REWARD])
    q = numbers(file, frame[PROPENSITY]) if rules.propensities else None
    good = (rewards >= rules.scale.low) & (rewards <= rules.scale.high)  # nan is neither
    if q is not None:
        good &= (q >= SMALLEST_PROBABILITY) & (q <= 1.0)
    actions = _indices(file, frame[ACTION], rules.actions)
    good &= actions >= 0
    if rules.support is not None:
        good &= rules.support[np.maximum(actions, 0)]
    eligible = _eligible(file, frame)
    if eligible is not None:
        good &= eligible
    if TIME in frame.columns:
        good &= frame[TIME].is_not_null().to_numpy()
    if TARGET in frame.columns:
        pi = numbers(file, frame[TARGET])
        good &= (pi >= 0.0) & (pi <= 1.0)
    if good.all():
        nothing = pl.DataFrame(schema=QUARANTINE)
        return ValidatedBatch(
            _files(file, frame), frame, actions, rules.scale.unit(rewards), q, nothing
        )
    why = _reasons(frame, ~good, (actions, rewards, q, eligible), rules)
    usable = (rewards >= rules.scale.low) & (rewards <= rules.scale.high)
    unit = rules.scale.unit(np.where(usable, rewards, rules.scale.high))
    return ValidatedBatch(
        _files(file, frame),
        frame.filter(good),
        actions[good],
        unit[good],
        None if q is None else q[good],
        _quarantined(file, frame.filter(~good), why),
        Rejected(good, actions[~good], unit[~good]),
    )


def _files(file: str, frame: pl.DataFrame) -> dict[str, int]:
    """How many rows are of which file: all of one, or as their column says."""
    if FILE not in frame.columns:
        return {file: len(frame)}
    return dict(frame.group_by(FILE).len().rows())


def numbers(file: str, column: pl.Series) -> Array:
    """A column as doubles: nan where it is missing, or text that is no number.

    >>> numbers("log.csv", pl.Series("reward", ["1", " 0.5", "one", None])).tolist()
    [1.0, 0.5, nan, nan]
    """
    if isinstance(column.dtype, TEXTS):
        return _as_array(_numbers_of_text(_trimmed(column)))
    if not (column.dtype.is_numeric() or isinstance(column.dtype, pl.Boolean | pl.Null)):
        raise InvalidLog(
            "log",
            file,
            f"its column for the {column.name} holds {column.dtype}, not numbers",
            f"name another column for the {column.name}",
        )
    return _as_array(column.cast(pl.Float64, strict=False))


def _as_array(values: pl.Series) -> Array:
    return np.asarray(values.fill_null(np.nan).to_numpy(), dtype=np.float64)


def _numbers_of_text(text: pl.Series) -> pl.Series:
    """What reads as a number; true and false are 1 and 0, as they are where they have a type."""
    found = text.cast(pl.Float64, strict=False)
    if found.null_count() == text.null_count():
        return found
    truths = text.str.to_lowercase().replace_strict(TRUTH, default=None, return_dtype=pl.Float64)
    return found.zip_with(found.is_not_null(), truths)


def _trimmed(column: pl.Series) -> pl.Series:
    return column.cast(pl.String).str.strip_chars()


def _indices(file: str, column: pl.Series, actions: Actions | None) -> Integers:
    """The index of each action; before they are known, 0 where there is a label at all."""
    if column.dtype.is_nested() or isinstance(column.dtype, NO_LABELS):
        raise InvalidLog(
            "log",
            file,
            f"its column for the action holds {column.dtype}, not labels",
            "name another column with --action",
        )
    if actions is not None:
        return actions.indices(column)
    return -_are_missing(column).astype(np.int64)


def _are_missing(column: pl.Series) -> Mask:
    """Where there is no label."""
    if column.dtype.is_integer():
        return column.is_null().to_numpy()
    texts = column.to_frame("label").select(as_text(pl.col("label"), column.dtype))
    return texts.to_series().is_null().to_numpy()


def _eligible(file: str, frame: pl.DataFrame) -> Mask | None:
    """Whether each action is among those that were eligible; a missing list allows all."""
    if ELIGIBLE not in frame.columns:
        return None
    kind, among = frame[ELIGIBLE].dtype, pl.col(ELIGIBLE)
    inner: Any = getattr(kind, "inner", kind)
    if inner.is_nested() or isinstance(inner, NO_LABELS):
        raise InvalidLog(
            "log",
            file,
            f"its column for the eligible actions holds {kind}, not lists of labels",
            "name another column with --eligible",
        )
    if isinstance(kind, pl.List | pl.Array):
        lists = among.arr.to_list() if isinstance(kind, pl.Array) else among
        listed = lists.list.eval(as_text(pl.element(), inner))
    else:
        listed = _listed(as_text(among, kind))
    label = as_text(pl.col(ACTION), frame[ACTION].dtype)
    inside = frame.select(listed.list.contains(label).fill_null(value=True))
    return inside.to_series().to_numpy()


def _listed(text: pl.Expr) -> pl.Expr:
    """The labels that a text lists: in quotes if it has any, else between signs, else words."""
    quoted = text.str.extract_all(QUOTED).list.eval(pl.element().str.strip_chars('"'))
    between = text.str.extract_all(BETWEEN).list.eval(pl.element().str.strip_chars(" '"))
    return (
        pl.when(text.str.contains(QUOTED))
        .then(quoted)
        .when(text.str.contains("[,|;]"))
        .then(between)
        .otherwise(text.str.extract_all(WORDS))
    )


def _reasons(
    frame: pl.DataFrame,
    bad: Mask,
    found: tuple[Integers, Array, Array | None, Mask | None],
    rules: RowRules,
) -> list[str]:
    """The first reason of each bad row."""
    actions, rewards, q, eligible = found
    low, high = rules.scale.low, rules.scale.high
    cases: list[tuple[Mask, str]] = [(_are_missing(frame[ACTION]), "action is missing")]
    unknown = (actions < 0, "action is unknown")
    if rules.closed:
        cases.append(unknown)
    cases += _faults(frame[REWARD], rewards, low, high)
    if q is not None:
        cases += _faults(frame[PROPENSITY], q, SMALLEST_PROBABILITY, 1.0)
    if rules.support is not None:
        never = ~rules.support[np.maximum(actions, 0)]
        cases.append((never, "action has probability 0 in the behavior"))
    if eligible is not None:
        cases.append((~eligible, "action is not eligible"))
    if TIME in frame.columns:
        cases.append((frame[TIME].is_null().to_numpy(), "time is missing or not a time"))
    if TARGET in frame.columns:
        cases += _faults(frame[TARGET], numbers("", frame[TARGET]), 0.0, 1.0)
    masks, words = zip(*cases, unknown, strict=True)
    which = np.select([mask[bad] for mask in masks], list(range(len(masks))), default=-1)
    return [words[i] for i in which.tolist()]


def _faults(column: pl.Series, values: Array, low: float, high: float) -> list[tuple[Mask, str]]:
    """What can be wrong with a number, in the order in which it is looked for."""
    name = column.name
    missing = column.is_null().to_numpy()
    if isinstance(column.dtype, TEXTS):
        text = _trimmed(column)
        missing |= (text == "").fill_null(value=False).to_numpy()
        spelled = text.str.to_lowercase().is_in(["nan", "+nan", "-nan"])
        not_a_number = np.isnan(values) & ~missing & ~spelled.fill_null(value=False).to_numpy()
    else:
        not_a_number = np.zeros(len(values), dtype=bool)
    return [
        (missing, f"{name} is missing"),
        (not_a_number, f"{name} is not a number"),
        (~np.isfinite(values), f"{name} is not finite"),
        (~((values >= low) & (values <= high)), f"{name} is out of range"),
    ]


def _quarantined(file: str, frame: pl.DataFrame, why: list[str]) -> pl.DataFrame:
    kept = {
        name: _shown(frame[name]) if name in frame.columns else pl.lit(None, dtype=pl.String)
        for name in (ACTION, REWARD, PROPENSITY)
    }
    return frame.select(
        pl.col(FILE) if FILE in frame.columns else pl.lit(file).alias(FILE),
        pl.col(ROW).cast(pl.Int64),
        pl.Series("reason", why, dtype=pl.String),
        **kept,
    )


def _shown(column: pl.Series) -> pl.Series:
    return column.cast(pl.String, strict=False).str.slice(0, LONGEST)
