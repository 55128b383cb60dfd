"""Where the rows of a run come from: fingerprints of files and frames, and how many rows each gave.

A policy is not judged by the rows that it was learned from: fingerprints and sums tell them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from understudy.errors import InvalidLog
from understudy.logs.encoder import Unexpected
from understudy.logs.outputs import Quarantine, by_reason
from understudy.logs.policy import FileRead, Policy
from understudy.logs.readers.files import FileSource, UnreadFiles
from understudy.logs.readers.inputs import LogSource
from understudy.logs.schema import QUARANTINE, PropensitySource
from understudy.logs.statistics import LogStatistics
from understudy.types import Integers


def fingerprints_of(sources: Sequence[LogSource]) -> list[str]:
    """What tells the rows of each file or frame from those of others.

    Two files of the same bytes are refused: their rows would count twice.
    """
    seen: dict[str, str] = {}
    for source in sources:
        fingerprint = source.fingerprint()
        if fingerprint in seen:
            raise InvalidLog(
                "log",
                source.name,
                f"it is a copy of {seen[fingerprint]}, whose rows would count twice",
                "leave one of them out",
            )
        seen[fingerprint] = source.name
    return list(seen)


def refuse_learned(
    sources: Sequence[LogSource], fingerprints: Sequence[str], policy: Policy
) -> None:
    """Raise `InvalidLog` if the policy was learned from one of these files already."""
    known = {file.sha256: file.name for file in policy.files}
    names = {file.name for file in policy.files}
    for source, fingerprint in zip(sources, fingerprints, strict=True):
        if fingerprint in known:
            raise InvalidLog(
                "log",
                source.name,
                f"the policy was learned from this file already, as {known[fingerprint]}",
                "pass a log of other rows: what was learned from cannot be learned from again, "
                "nor judge what was learned",
            )
        if isinstance(source, FileSource) and source.name in names:
            raise InvalidLog(
                "log",
                source.name,
                "the policy was learned from a file of this name that has changed since",
                "put new rows into a file of their own, or rename it if all of its rows are new",
            )


def refuse_same_rows(tallied: LogStatistics, stretches: Integers | None, policy: Policy) -> None:
    """Raise `InvalidLog` if these are the rows that the policy was learned from, however they came.

    They have the same sums of each action; few rows may by chance, if their order is not known.
    """
    if policy.knows_rows(tallied, stretches):
        raise InvalidLog(
            "log",
            f"{tallied.tally.rows:,} rows",
            "the policy was learned from these rows",
            "pass a log of other rows: what was learned from cannot judge what was learned",
        )


@dataclass(frozen=True, eq=False)
class Provenance:
    """What came in: the files, and how many rows of which were refused for which reason.

    `examples` are some of them, as in quarantine.parquet; `unread` names files of
    folders that did not come in.
    """

    files: tuple[FileRead, ...]
    quarantined: Mapping[tuple[str, str], int]
    examples: pl.DataFrame
    unread: tuple[UnreadFiles, ...] = ()

    @property
    def refused(self) -> Counter[str]:
        """How many rows were refused for which reason, of all files."""
        return by_reason(self.quarantined)

    @staticmethod
    def in_no_order(
        engine: str, refused: Mapping[str, int], sources: Sequence[LogSource]
    ) -> Provenance:
        """From sums, which do not tell files and rows apart."""
        where = f"all files, as {engine} read them"
        counts = {(where, reason): count for reason, count in refused.items()}
        return Provenance((), counts, pl.DataFrame(schema=QUARANTINE), _unread(sources))


@dataclass(frozen=True, eq=False)
class RunOutcome:
    """What a run over a log saw: `stretches` only in order, `oddities` of contexts."""

    tallied: LogStatistics
    kind: PropensitySource
    intake: Provenance
    stretches: Integers | None = None
    oddities: Mapping[tuple[str, Unexpected], int] = field(default_factory=dict)


def intake_of(
    sources: Sequence[LogSource], fingerprints: Sequence[str], quarantine: Quarantine
) -> Provenance:
    """What came in, once a log was gone over."""
    refused = quarantine.by_file()
    files = tuple(
        FileRead(source.name, fingerprint, quarantine.rows[source.name], refused[source.name])
        for source, fingerprint in zip(sources, fingerprints, strict=True)
    )
    return Provenance(files, quarantine.counts, quarantine.examples, _unread(sources))


def _unread(sources: Sequence[LogSource]) -> tuple[UnreadFiles, ...]:
    return tuple(
        source.unread for source in sources if isinstance(source, FileSource) and source.unread
    )
