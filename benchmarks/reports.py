"""Results of benchmarks as JSON, as tables in the terminal, and as a part of a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measurement import BenchmarkResult, Ratio, Table, Timing
from understudy.errors import InvalidArgument
from understudy.snapshots import write_atomically

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["as_dict", "as_markdown", "check_page", "read", "show", "write", "write_docs"]

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
TIMING_COLUMNS = ["", "median", "fastest … slowest", "repeats", ""]
RATIO_COLUMNS = ["ratio", "measured", "wanted", ""]


def as_dict(result: BenchmarkResult) -> dict[str, Any]:
    """A result as data for JSON.

    >>> as_dict(BenchmarkResult("none", "Nothing", True, "2026-01-01", {}, [], [], []))["quick"]
    True
    """
    return asdict(result)


def write(result: BenchmarkResult, folder: Path) -> Path:
    """Write a result into a folder as JSON, whole or not at all.

    >>> import tempfile
    >>> nothing = BenchmarkResult("none", "Nothing", True, "2026-01-01", {}, [], [], [])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     read(write(nothing, Path(folder))) == nothing
    True
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.name}.json"
    text = json.dumps(as_dict(result), indent=1, ensure_ascii=False, allow_nan=False)
    write_atomically(path, f"{text}\n".encode())
    return path


def read(path: Path) -> BenchmarkResult:
    """The result that `write` wrote.

    >>> read(Path("nowhere.json"))
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'nowhere.json'
    """
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    timings = [Timing(**timing) for timing in data.pop("timings")]
    ratios = [Ratio(**ratio) for ratio in data.pop("ratios")]
    tables = [Table(**table) for table in data.pop("tables", [])]  # 0.5.0 wrote none
    return BenchmarkResult(timings=timings, ratios=ratios, tables=tables, **data)


def as_markdown(results: Sequence[BenchmarkResult]) -> str:
    """Results as sections of a page, after a line about the machine.

    >>> result = BenchmarkResult("none", "Nothing", True, "2026-01-01", {"cores": "2"}, [], [], [])
    >>> print(as_markdown([result]))
    Measured on 2026-01-01: cores 2.
    ...
    """
    first, last = min(result.date for result in results), max(result.date for result in results)
    when = first if first == last else f"{first} and {last}"  # a run of some hours
    sections = ["\n".join(_section(result)) for result in results]
    return "\n\n".join([f"Measured on {when}: {_machine(results[0])}.", *sections])


def _machine(result: BenchmarkResult) -> str:
    return ", ".join(f"{what} {value}" for what, value in result.machine.items())


def _section(result: BenchmarkResult) -> Iterator[str]:
    yield f"### {result.title}"
    for table in _tables(result):
        if table.title:
            yield f"\n{table.title}:"
        header = _row(table.columns).replace("|  |", "| |")
        yield f"\n{header}\n|{'|'.join(_alignment(table))}|"
        for row in table.rows:
            yield _row(row)
    for reason in result.skipped:
        yield f"\nNot measured: {reason}."


def _tables(result: BenchmarkResult) -> Iterator[Table]:
    """All tables of a result, in their order on a page; ratios are the last."""
    if result.timings:
        yield Table("", TIMING_COLUMNS, [_timing(timing) for timing in result.timings])
    yield from result.tables
    if result.ratios:
        yield Table("", RATIO_COLUMNS, [_ratio(ratio) for ratio in result.ratios])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _alignment(table: Table) -> list[str]:
    """Numbers to the right; names, and the words after a ratio, to the left."""
    words = {0, len(RATIO_COLUMNS) - 1} if table.columns == RATIO_COLUMNS else {0}
    return ["---" if i in words else "---:" for i in range(len(table.columns))]


def _timing(t: Timing) -> list[str]:
    rate = "" if t.unit == "s" else f"{t.value:.3g} {t.unit}"
    spread = f"{_seconds(t.fastest)} … {_seconds(t.slowest)}"
    return [t.name, _seconds(t.seconds), spread, str(t.repeats), rate]


def _ratio(r: Ratio) -> list[str]:
    if r.at_least is None and r.at_most is None:
        return [r.what, f"{r.value:.3g}", "", ""]
    wanted = f"≤ {r.at_most:g}" if r.at_least is None else f"≥ {r.at_least:g}"
    return [r.what, f"{r.value:.3g}", wanted, "kept" if r.kept else "missed"]


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def show(result: BenchmarkResult, console: Console) -> None:
    """Print a result as tables.

    >>> from rich.console import Console
    >>> result = BenchmarkResult("none", "Nothing", True, "2026-01-01", {}, [], [], ["peer"])
    >>> show(result, Console(width=80))
    Nothing
    not measured: peer
    <BLANKLINE>
    """
    from rich import table as rich_table  # noqa: PLC0415 - imported when there is a table to draw

    console.print(result.title, style="bold", highlight=False, markup=False)
    for table in _tables(result):
        drawn = rich_table.Table(title=table.title or None, title_justify="left")
        for i, column in enumerate(table.columns):
            drawn.add_column(column, justify="right" if i else "left")
        for row in table.rows:
            drawn.add_row(*row)
        console.print(drawn)
    for reason in result.skipped:
        console.print(f"not measured: {reason}", highlight=False, markup=False)
    console.print(_machine(result), style="dim", highlight=False)


def write_docs(results: Sequence[BenchmarkResult], page: Path) -> None:
    """Replace the measured part of a page.

    >>> write_docs([], Path(__file__))
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: docs = ...: it has no measured part; ...
    """
    before, after = check_page(page)
    write_atomically(page, f"{before}{as_markdown(results)}\n{after}".encode())


def check_page(page: Path) -> tuple[str, str]:
    """The text before and after the measured part of a page.

    >>> check_page(Path(__file__))
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: docs = ...: it has no measured part; ...
    """
    text = page.read_text(encoding="utf-8")
    before, found, rest = text.partition(f"{BEGIN}\n")
    _, ended, after = rest.partition(f"{END}\n")
    if not (found and ended):
        raise InvalidArgument(
            "docs", str(page), "it has no measured part", f"add the lines {BEGIN} and {END}"
        )
    return before + found, ended + after
