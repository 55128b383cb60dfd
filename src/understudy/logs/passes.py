"""Going over a log: good rows are handed on, bad ones are kept, all are counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from understudy.errors import InvalidLog
from understudy.logs.ahead import ahead
from understudy.logs.checking import Checked
from understudy.logs.outputs import Quarantine
from understudy.logs.policies import FileRead
from understudy.logs.prepare import Prepared
from understudy.logs.reading import Origin
from understudy.logs.survey import Watch

__all__ = ["files_read", "good_rows"]


def good_rows(
    log: Prepared, quarantine: Quarantine, phase: str, watch: Watch, *, strict: bool
) -> Iterator[Checked]:
    """Batches of good rows, in their order; the others go into quarantine, or are an error."""
    for checked in ahead(log.checked()):
        if strict and len(checked.quarantined):
            raise _fatal(checked.quarantined)
        quarantine.add(checked.quarantined)
        quarantine.rows.update(checked.files)
        watch(phase, len(checked), log.rows)
        if len(checked):
            yield checked


def files_read(
    origins: Sequence[Origin], fingerprints: Sequence[str], quarantine: Quarantine
) -> tuple[FileRead, ...]:
    """What was read of each file, once a log was gone over."""
    refused = quarantine.by_file()
    return tuple(
        FileRead(origin.name, fingerprint, quarantine.rows[origin.name], refused[origin.name])
        for origin, fingerprint in zip(origins, fingerprints, strict=True)
    )


def _fatal(quarantined: pl.DataFrame) -> InvalidLog:
    file, row, reason = quarantined.select("file", "row", "reason").row(0)
    return InvalidLog(
        "log",
        file,
        f"row {row}: {reason}",
        "correct it, or leave out --strict to put such rows into quarantine.parquet",
    )
