"""Benchmarks: timings of contenders that take turns, tables of values, and ratios with bounds."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

__all__ = [
    "Benchmark",
    "BenchmarkResult",
    "Contender",
    "Evaluation",
    "Ratio",
    "Report",
    "Table",
    "TimedWork",
    "Timing",
    "machine",
    "measure",
]

PACKAGES = (
    *("understudy", "numpy", "numba", "joblib", "polars", "starlette", "uvicorn"),
    *("river", "vowpalwabbit"),
)

# Called with the next piece of work, the number of pieces done, and of all pieces.
Report = Callable[[str, int, int], object]


@dataclass(frozen=True)
class Contender:
    """A function to time. One call of `run` does `work` pieces of work."""

    name: str
    run: Callable[[], object]
    work: float
    unit: str
    repeats: int = 5


@dataclass(frozen=True)
class TimedWork:
    """The result of a run that times itself: the seconds that some work took."""

    seconds: float
    work: float


@dataclass(frozen=True)
class Timing:
    """The time of a contender: median, fastest and slowest call, and `value` in its unit."""

    name: str
    seconds: float
    fastest: float
    slowest: float
    repeats: int
    value: float
    unit: str


@dataclass(frozen=True)
class Ratio:
    """A ratio of two timings, or another value, and the bound that it must keep, if any."""

    what: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def kept(self) -> bool:
        above = self.at_least is None or self.value >= self.at_least
        return above and (self.at_most is None or self.value <= self.at_most)


@dataclass(frozen=True)
class Table:
    """A table of values that are no times: its title, its columns, and its cells as text."""

    title: str
    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Evaluation:
    """The result of a benchmark without a clock: tables, and values with their bounds."""

    tables: Sequence[Table] = ()
    ratios: Sequence[Ratio] = ()


@dataclass(frozen=True)
class BenchmarkResult:
    """The timings, tables and ratios of a benchmark, and the machine."""

    name: str
    title: str
    quick: bool
    date: str
    machine: Mapping[str, str]
    timings: Sequence[Timing]
    ratios: Sequence[Ratio]
    skipped: Sequence[str]
    tables: Sequence[Table] = field(default_factory=list)


@dataclass(frozen=True)
class Benchmark:
    """Contenders to time in turns, and the ratios of their timings, by name.

    `skipped()` names the peers that are not installed, and the command that installs them.
    `measures(quick)` are values beside the timings, such as memory. `evaluate(quick, report)`
    makes tables of values that are no times.
    """

    name: str
    title: str
    contenders: Callable[[bool], Iterator[Contender]] = lambda _: iter(())
    ratios: Callable[[Mapping[str, Timing]], list[Ratio]] = lambda _: []
    skipped: Callable[[], list[str]] = list
    measures: Callable[[bool], list[Ratio]] = lambda _: []
    evaluate: Callable[[bool, Report], Evaluation] = lambda *_: Evaluation()


# The value of a timing in each unit: work per second, or time per piece of work.
UNITS: dict[str, Callable[[float, float], float]] = {
    "s": lambda seconds, work: seconds / work,
    "ms": lambda seconds, work: 1e3 * seconds / work,
    "ns/round": lambda seconds, work: 1e9 * seconds / work,
    "M events/s": lambda seconds, work: 1e-6 * work / seconds,
    "events/s": lambda seconds, work: work / seconds,
    "requests/s": lambda seconds, work: work / seconds,
}


def measure(
    benchmark: Benchmark,
    *,
    quick: bool = False,
    report: Report = lambda *_: None,
) -> BenchmarkResult:
    """Time all contenders in turns, so that a busy moment of the machine affects all of them.

    `report` is called with the name of the next contender, the number of turns done, and of all
    turns; an evaluation reports its own pieces. With `quick`, sizes are tiny and ratios have no
    bounds: it only shows that all runs.

    >>> nothing = Contender("nothing", lambda: None, work=1.0, unit="s", repeats=3)
    >>> found = measure(Benchmark("none", "Nothing", lambda quick: iter([nothing]), lambda t: []))
    >>> found.timings[0].repeats
    3
    """
    contenders = list(benchmark.contenders(quick))
    seconds: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    turns = [
        contender
        for turn in range(max((contender.repeats for contender in contenders), default=0))
        for contender in contenders
        if turn < contender.repeats
    ]
    for done, contender in enumerate(turns):
        report(contender.name, done, len(turns))
        start = time.perf_counter()
        returned = contender.run()
        took = time.perf_counter() - start
        if isinstance(returned, TimedWork):
            took = returned.seconds * contender.work / returned.work
        seconds[contender.name].append(took)
    timings = {one.name: _timing(one, seconds[one.name]) for one in contenders}
    evaluation = benchmark.evaluate(quick, report)
    return BenchmarkResult(
        name=benchmark.name,
        title=f"{benchmark.title} [tiny sizes]" if quick else benchmark.title,
        quick=quick,
        date=datetime.now(UTC).date().isoformat(),
        machine=machine(),
        timings=list(timings.values()),
        ratios=[
            replace(ratio, at_least=None, at_most=None) if quick else ratio
            for ratio in (
                *benchmark.ratios(timings),
                *benchmark.measures(quick),
                *evaluation.ratios,
            )
        ],
        skipped=benchmark.skipped(),
        tables=list(evaluation.tables),
    )


def _timing(contender: Contender, seconds: Sequence[float]) -> Timing:
    median = statistics.median(seconds)
    return Timing(
        name=contender.name,
        seconds=median,
        fastest=min(seconds),
        slowest=max(seconds),
        repeats=len(seconds),
        value=UNITS[contender.unit](median, contender.work),
        unit=contender.unit,
    )


def machine() -> dict[str, str]:
    """The processor, the memory, and the versions of the packages that count.

    >>> list(machine())[:3]
    ['processor', 'cores', 'memory']
    """
    versions = {name: _version(name) for name in PACKAGES}
    return {
        "processor": _processor(),
        "cores": str(
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        ),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version for name, version in versions.items() if version},
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    try:
        found = re.search(
            r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text(errors="replace")
        )
    except OSError:
        found = None
    return found[1] if found else platform.processor() or "unknown"


def _memory() -> str:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return "unknown"
    return f"{size / 2**30:.0f} GiB"
