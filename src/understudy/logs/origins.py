"""What people pass as a log: paths, frames of any library, a dictionary of Open Bandit Pipeline."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl

from understudy.errors import InvalidLog
from understudy.logs.bandit_feedback import from_bandit_feedback
from understudy.logs.policies import Policy
from understudy.logs.reading import Origin, Table
from understudy.logs.sources import Source, find

__all__ = ["fingerprints_of", "inside", "origins_of", "refuse_learned"]

REMEDY = "pass a path, several, a frame (Polars, pandas, PyArrow, …), or a bandit_feedback dict"


def origins_of(log: Any, format: str | None = None) -> list[Origin]:  # noqa: A002 - the option's name
    """The files or the frame that are meant.

    >>> [table.name for table in origins_of(pl.DataFrame({"action": [1]}))]
    ['frame']
    """
    if isinstance(log, str | os.PathLike):
        return list(find([log], format))
    if isinstance(log, Mapping):
        _refuse_columns(log)
        return [Table(from_bandit_feedback(log), "bandit_feedback")]
    if isinstance(log, Sequence) and all(isinstance(path, str | os.PathLike) for path in log):
        return list(find(log, format))
    return [Table(as_polars(log))]


def _refuse_columns(log: Mapping[Any, Any]) -> None:
    """Raise `InvalidLog` for a dictionary of columns, which `bandit_feedback` is not."""
    if "n_rounds" not in log:
        raise InvalidLog(
            "log",
            [str(key) for key in log],
            "a dictionary is taken for Open Bandit Pipeline's bandit_feedback, with its 'n_rounds'",
            "pass columns as a frame, such as pl.DataFrame(log)",
        )


def as_polars(frame: Any) -> pl.DataFrame:
    """A frame of any library that narwhals knows, in memory."""
    try:
        native = nw.from_native(frame)
    except TypeError:
        raise InvalidLog("log", frame, "it is not a log", REMEDY) from None
    if isinstance(native, nw.LazyFrame):
        native = native.collect("polars")
    found: pl.DataFrame = native.to_polars()
    return found


def fingerprints_of(origins: Sequence[Origin]) -> list[str]:
    """What tells the rows of each file or frame from those of others.

    Two files of the same bytes are refused: their rows would count twice.

    >>> len(fingerprints_of([Table(pl.DataFrame({"action": [1]}))]))
    1
    """
    found = [origin.fingerprint() for origin in origins]
    _refuse_twice(origins, found)
    return found


def refuse_learned(origins: Sequence[Origin], fingerprints: Sequence[str], policy: Policy) -> None:
    """Raise `InvalidLog` if the policy was learned from one of these files already."""
    known = {file.sha256: file.name for file in policy.files}
    names = {file.name for file in policy.files}
    for origin, fingerprint in zip(origins, fingerprints, strict=True):
        if fingerprint in known:
            raise InvalidLog(
                "log",
                origin.name,
                f"the policy was learned from this file already, as {known[fingerprint]}",
                "pass a log of other rows: what was learned from cannot be learned from again, "
                "nor judge what was learned",
            )
        if isinstance(origin, Source) and origin.name in names:
            raise InvalidLog(
                "log",
                origin.name,
                "the policy was learned from a file of this name that has changed since",
                "put new rows into a file of their own, or rename it if all of its rows are new",
            )


def _refuse_twice(origins: Sequence[Origin], fingerprints: Sequence[str]) -> None:
    """Raise `InvalidLog` if two files hold the same bytes: rows would count twice."""
    seen: dict[str, str] = {}
    for origin, fingerprint in zip(origins, fingerprints, strict=True):
        if fingerprint in seen:
            raise InvalidLog(
                "log",
                origin.name,
                f"it is a copy of {seen[fingerprint]}, whose rows would count twice",
                "leave one of them out",
            )
        seen[fingerprint] = origin.name


def inside(out: Path, origins: Iterable[Origin]) -> bool:
    """Whether results would be written among the files of the log.

    >>> inside(Path("logs"), [Source(Path("logs/a.csv"), "csv")])
    True
    """
    where = out.resolve()
    return any(
        isinstance(origin, Source) and where == origin.path.resolve().parent for origin in origins
    )
