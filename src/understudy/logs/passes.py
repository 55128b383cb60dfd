"""Going over a log: good rows are handed on, bad ones are kept, all are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from understudy.errors import InvalidLog
from understudy.logs.ahead import ahead
from understudy.logs.checking import QUARANTINE, Checked
from understudy.logs.outputs import Quarantine, by_reason
from understudy.logs.policies import FileRead
from understudy.logs.prepare import Prepared
from understudy.logs.reading import Origin
from understudy.logs.sources import Source
from understudy.logs.watching import Watch

__all__ = ["Intake", "good_rows", "intake_of"]


@dataclass(frozen=True, eq=False)
class Intake:
    """What came in: the files, and how many rows of which were refused for which reason.

    `examples` are some of them, as in quarantine.parquet; `remarks` say what did not come in.
    """

    files: tuple[FileRead, ...]
    quarantined: Mapping[tuple[str, str], int]
    examples: pl.DataFrame
    remarks: tuple[str, ...] = ()

    @property
    def refused(self) -> Counter[str]:
        """How many rows were refused for which reason, of all files."""
        return by_reason(self.quarantined)

    @staticmethod
    def in_no_order(engine: str, refused: Mapping[str, int], origins: Sequence[Origin]) -> Intake:
        """From sums, which do not tell files and rows apart."""
        where = f"all files, as {engine} read them"
        counts = {(where, reason): count for reason, count in refused.items()}
        return Intake((), counts, pl.DataFrame(schema=QUARANTINE), _remarks(origins))


def good_rows(
    log: Prepared, quarantine: Quarantine, phase: str, watch: Watch, *, strict: bool
) -> Iterator[Checked]:
    """Batches of rows, in their order; those that are bad go into quarantine, or are an error."""
    for checked in ahead(log.checked()):
        if strict and len(checked.quarantined):
            raise _fatal(checked.quarantined)
        quarantine.add(checked.quarantined)
        quarantine.rows.update(checked.files)
        watch(phase, len(checked), log.rows)
        if sum(checked.files.values()):
            yield checked


def intake_of(
    origins: Sequence[Origin], fingerprints: Sequence[str], quarantine: Quarantine
) -> Intake:
    """What came in, once a log was gone over."""
    refused = quarantine.by_file()
    files = tuple(
        FileRead(origin.name, fingerprint, quarantine.rows[origin.name], refused[origin.name])
        for origin, fingerprint in zip(origins, fingerprints, strict=True)
    )
    return Intake(files, quarantine.counts, quarantine.examples, _remarks(origins))


def _remarks(origins: Sequence[Origin]) -> tuple[str, ...]:
    return tuple(
        origin.remark for origin in origins if isinstance(origin, Source) and origin.remark
    )


def _fatal(quarantined: pl.DataFrame) -> InvalidLog:
    file, row, reason = quarantined.select("file", "row", "reason").row(0)
    return InvalidLog(
        "log",
        file,
        f"row {row}: {reason}",
        "correct it, or leave out --strict to put such rows into quarantine.parquet",
    )
