"""The question that a user asks of a log: the baseline, guardrails, segments, and lost rows."""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from understudy.certificates.guardrails import Guardrail
from understudy.constraints import Array
from understudy.errors import InvalidArgument, Verbatim, shorten
from understudy.logs.rules import metric_values
from understudy.logs.schema import METRIC, SEGMENT, Label, label_key, label_text
from understudy.logs.validate import ValidatedBatch
from understudy.types import Integers

PRODUCTION = "production"
ACTION_PREFIX, POLICY_PREFIX = "action:", "policy:"
GUARDRAIL_REMEDY = (
    "write NAME:LOW:HIGH:higher|lower:MARGIN, such as latency_ms:0:2000:lower:20, or name a TOML "
    "file with a table for each guardrail"
)
SEGMENT_REMEDY = "write COLUMN=VALUE,VALUE, such as country=it,es"
AGAINST_REMEDY = (
    "pass 'production', 'action:LABEL', or 'policy:FILE' (policy.json, or probabilities by action)"
)
FIELDS = ("low", "high", "better", "margin")  # of a guardrail, beside its name
MOST_SEGMENTS = 1_000  # each spends a part of δ, and has a certificate of its own


class QuarantinedRows(StrEnum):
    """What certificates assume of quarantined rows."""

    WORST_CASE = "worst-case"
    MISSING_AT_RANDOM = "missing-at-random"


@dataclass(frozen=True)
class Segments:
    """The values of a column whose rows are segments; they are known before the action.

    >>> rows = pl.DataFrame({"segment.country": ["es", "fr", None, "it"]})
    >>> Segments("country", ("it", "es")).codes(rows).tolist()
    [1, -1, -1, 0]
    """

    column: str
    values: tuple[str, ...]

    def codes(self, frame: pl.DataFrame) -> Integers:
        """The index of the value of each row, −1 of another value."""
        name = SEGMENT + self.column
        texts = frame.select(label_text(pl.col(name), frame[name].dtype)).to_series()
        found = texts.cast(pl.Enum(self.values), strict=False).to_physical().cast(pl.Int64)
        return np.asarray(found.fill_null(-1).to_numpy())


@dataclass(frozen=True)
class Question:
    """The question about a policy: against which baseline, with which guardrails and segments.

    `against` is None for production, an `Always`, a policy as users pass it, or, of a learned
    policy, a `NamedBaseline`.
    """

    against: Any = None
    guardrails: tuple[Guardrail, ...] = ()
    segments: Segments | None = None
    quarantined: QuarantinedRows = QuarantinedRows.WORST_CASE

    @staticmethod
    def of(
        against: Any = None,
        guardrail: Any = None,
        segment: Any = None,
        quarantined: str | None = None,
    ) -> Question:
        """Check the parts of a question.

        >>> asked = Question.of("action:none", ["latency_ms:0:2000:lower:20"], "country=it,es")
        >>> asked.against, asked.guardrails[0].margin, asked.segments
        (Always(label='none'), 20.0, Segments(column='country', values=('it', 'es')))
        """
        kinds = tuple(one.value for one in QuarantinedRows)
        if quarantined is not None and quarantined not in kinds:
            reason, remedy = "there is no such", f"pass one of {', '.join(kinds)}"
            raise InvalidArgument("quarantined", quarantined, reason, remedy)
        return Question(
            _against(against),
            parse_guardrails(guardrail),
            parse_segments(segment),
            QuarantinedRows(quarantined or QuarantinedRows.WORST_CASE),
        )

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        """The columns that it reads, by their kind."""
        metrics = tuple(one.name for one in self.guardrails)
        return {
            "metrics": metrics,
            "segments": () if self.segments is None else (self.segments.column,),
        }

    def refuse(self, reason: str, remedy: str, *parts: str) -> None:
        """Raise `InvalidArgument` if any of these parts is asked for; by default, of all parts."""
        for name, value in self.texts.items():
            if value is not None and name in (parts or self.texts):
                raise InvalidArgument(name, Verbatim(value), reason, remedy)

    @property
    def texts(self) -> dict[str, str | None]:
        """Its parts as users write them; None where nothing is asked beside the default."""
        segments, quarantined = self.segments, self.quarantined
        return {
            "against": _baseline_text(self.against),
            "guardrail": ", ".join(map(guardrail_text, self.guardrails)) or None,
            "segment": None
            if segments is None
            else f"{segments.column}={','.join(segments.values)}",
            "quarantined": None if quarantined is QuarantinedRows.WORST_CASE else quarantined.value,
        }

    def columns_of(self, batch: ValidatedBatch) -> tuple[Array | None, Integers | None]:
        """The metrics in [0, 1], nan where one cannot be used, and the segments of all rows."""
        if not (self.guardrails or self.segments):
            return None, None
        rows, metrics = batch.beside(), None
        if self.guardrails:
            each = [one.unit(metric_values(rows, METRIC + one.name)) for one in self.guardrails]
            metrics = np.stack(each, axis=1)
        return metrics, None if self.segments is None else self.segments.codes(rows)


PLAIN_QUESTION = Question()


@dataclass(frozen=True)
class Always:
    """The baseline that always plays one action."""

    label: Label


@dataclass(frozen=True)
class NamedBaseline:
    """The baseline that a policy was learned against: its name, and its probabilities by label.

    `files` are the fingerprints of those that the baseline was itself learned from.
    """

    name: str
    by_label: Mapping[Label, float]
    files: tuple[str, ...] = ()


def _baseline_text(against: Any) -> str | None:
    if isinstance(against, Always):
        return f"{ACTION_PREFIX}{against.label}"
    named = isinstance(against, NamedBaseline)
    return None if against is None else against.name if named else shorten(against)


def _against(value: Any) -> Any:
    """An `Always`, or a policy as `target_of` takes it; None for production."""
    if value is None or (isinstance(value, str) and value == PRODUCTION):
        return None
    if isinstance(value, str) and value.startswith(ACTION_PREFIX):
        if not (label := value.removeprefix(ACTION_PREFIX)):
            raise InvalidArgument("against", value, "it names no action", AGAINST_REMEDY)
        return Always(label)
    if isinstance(value, str) and value.startswith(POLICY_PREFIX):
        return value.removeprefix(POLICY_PREFIX)
    if isinstance(value, str):
        raise InvalidArgument("against", value, "it is no baseline", AGAINST_REMEDY)
    return value


# ----------------------------------------------------------------------------------- guardrails


def guardrail_text(one: Guardrail) -> str:
    """A guardrail as a user writes it.

    >>> guardrail_text(Guardrail("latency_ms", 0.0, 2000.0, "lower", 20.0))
    'latency_ms:0:2000:lower:20'
    """
    return f"{one.name}:{one.low:g}:{one.high:g}:{one.better}:{one.margin:g}"


def parse_guardrails(value: Any) -> tuple[Guardrail, ...]:
    """The guardrails of texts, of TOML files, of a mapping, or as they are.

    >>> parse_guardrails({"latency_ms": (0, 2000, "lower", 20)})[0].margin
    20.0
    """
    if value is None:
        return ()
    if isinstance(value, Mapping):
        found = [_guardrail_of(name, given) for name, given in value.items()]
    else:
        single = isinstance(value, str | os.PathLike | Guardrail)
        each = [value] if single or not isinstance(value, Sequence) else list(value)
        found = [one for given in each for one in _guardrails_of(given)]
    names = [one.name for one in found]
    for name in names:
        if names.count(name) > 1:
            reason = "it is declared twice"
            raise InvalidArgument("guardrail", name, reason, "name each metric once")
    return tuple(found)


def _guardrails_of(value: Any) -> list[Guardrail]:
    if isinstance(value, Guardrail):
        return [value]
    if isinstance(value, os.PathLike) or (isinstance(value, str) and value.endswith(".toml")):
        return _guardrails_of_file(Path(value))
    if not isinstance(value, str):
        raise InvalidArgument("guardrail", value, "it is no guardrail", GUARDRAIL_REMEDY)
    name, *fields = value.rsplit(":", len(FIELDS))
    if len(fields) != len(FIELDS):
        reason = f"it has {len(fields)} fields after the name, and needs {len(FIELDS)}"
        raise InvalidArgument("guardrail", value, reason, GUARDRAIL_REMEDY)
    return [_guardrail_of(name, fields)]


def _guardrails_of_file(path: Path) -> list[Guardrail]:
    """The guardrails of a TOML file, which has a table for each, by the name of its column."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = f"it cannot be read ({error.strerror})"
        raise InvalidArgument("guardrail", str(path), reason, GUARDRAIL_REMEDY) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        reason = f"it is no TOML ({error})"
        raise InvalidArgument("guardrail", str(path), reason, GUARDRAIL_REMEDY) from None
    return [_guardrail_of(name, given) for name, given in tables.items()]


def _guardrail_of(name: Any, given: Any) -> Guardrail:
    """The guardrail of a name and its fields, in their order or by name."""
    if isinstance(given, Guardrail):
        return given
    if isinstance(given, Mapping):
        if set(given) != set(FIELDS):
            reason = f"it has {', '.join(map(str, given)) or 'nothing'}"
            remedy = f"give {name!r} {', '.join(FIELDS)}"
            raise InvalidArgument("guardrail", name, reason, remedy)
        given = [given[field] for field in FIELDS]
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != len(FIELDS):
        reason = f"it needs {', '.join(FIELDS)}"
        raise InvalidArgument("guardrail", name, reason, GUARDRAIL_REMEDY)
    low, high, better, margin = given
    numbers = {"low": low, "high": high, "margin": margin}
    for field, number in numbers.items():
        try:
            numbers[field] = float(number)
        except (TypeError, ValueError):
            numbers[field] = math.nan
        if not math.isfinite(numbers[field]):
            reason = f"its {field} is {number!r}, no number"
            raise InvalidArgument("guardrail", name, reason, GUARDRAIL_REMEDY)
    try:
        return Guardrail(name, numbers["low"], numbers["high"], better, numbers["margin"])
    except InvalidArgument as error:
        reason = f"its {error.argument} is {error.value!r}: {error.reason}"
        raise InvalidArgument("guardrail", name, reason, error.remedy) from None


# ------------------------------------------------------------------------------------- segments


def parse_segments(value: Any) -> Segments | None:
    """The segments of a text, or of a mapping with one column.

    >>> parse_segments({"visits": [1, 2]})
    Segments(column='visits', values=('1', '2'))
    """
    if value is None or isinstance(value, Segments):
        return value
    if isinstance(value, Sequence) and not isinstance(value, str):
        if len(value) != 1:
            reason = f"{len(value)} columns are named"
            remedy = "name one; combine several into one column, such as country and device"
            raise InvalidArgument("segment", list(value), reason, remedy)
        value = value[0]
    column, values = _column_and_values(value)
    keys = [label_key(one).strip() for one in values]
    if not isinstance(column, str) or not column.strip() or not keys or not all(keys):
        raise InvalidArgument("segment", value, "a name or a value is empty", SEGMENT_REMEDY)
    if len(set(keys)) < len(keys) or len(keys) > MOST_SEGMENTS:
        reason = "a value is repeated"
        if len(keys) > MOST_SEGMENTS:
            reason = f"it has {len(keys):,} values, and {MOST_SEGMENTS:,} are the most"
        raise InvalidArgument("segment", value, reason, SEGMENT_REMEDY)
    return Segments(column.strip(), tuple(keys))


def _column_and_values(value: Any) -> tuple[Any, Sequence[Label]]:
    """The column of segments, and its values."""
    if isinstance(value, str) and "=" in value:
        column, _, text = value.partition("=")
        return column, text.split(",")
    if not isinstance(value, Mapping) or len(value) != 1:
        reason = "it names no values"
        if isinstance(value, Mapping) and value:
            reason = f"it names {len(value)} columns, and one is the most"
        raise InvalidArgument("segment", value, reason, SEGMENT_REMEDY)
    ((column, values),) = value.items()
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise InvalidArgument("segment", value, "it has no list of values", SEGMENT_REMEDY)
    return column, values
