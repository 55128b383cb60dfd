"""What a benchmark is: contenders that take turns, medians, ratios with what they must reach."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["Benchmark", "Contender", "Counted", "Ratio", "Result", "Timing", "machine", "measure"]

PACKAGES = (
    *("understudy", "numpy", "numba", "joblib", "polars", "starlette", "uvicorn"),
    *("river", "vowpalwabbit"),
)


@dataclass(frozen=True)
class Contender:
    """Something to be timed: `work` pieces of it are done by one call of `run`."""

    name: str
    run: Callable[[], object]
    work: float
    unit: str
    repeats: int = 5


@dataclass(frozen=True)
class Counted:
    """What a run may return that has a clock of its own: so much work in so many seconds."""

    seconds: float
    work: float


@dataclass(frozen=True)
class Timing:
    """How long a contender took: seconds per call, and the rate that its unit names."""

    name: str
    seconds: float
    fastest: float
    slowest: float
    repeats: int
    value: float
    unit: str


@dataclass(frozen=True)
class Ratio:
    """Two timings compared, and the bound that the ratio must keep, if one was promised."""

    what: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def kept(self) -> bool:
        above = self.at_least is None or self.value >= self.at_least
        return above and (self.at_most is None or self.value <= self.at_most)


@dataclass(frozen=True)
class Result:
    """All that came out of a benchmark, and of which machine."""

    name: str
    title: str
    quick: bool
    date: str
    machine: Mapping[str, str]
    timings: Sequence[Timing]
    ratios: Sequence[Ratio]
    skipped: Sequence[str]


@dataclass(frozen=True)
class Benchmark:
    """`contenders(quick)` are timed in turns; `ratios` compares their timings by name.

    `skipped()` says in words which peers are missing, and what to type. `beside(quick)` finds what
    is no matter of time, such as memory.
    """

    name: str
    title: str
    contenders: Callable[[bool], Iterator[Contender]]
    ratios: Callable[[Mapping[str, Timing]], list[Ratio]]
    skipped: Callable[[], list[str]] = list
    beside: Callable[[bool], list[Ratio]] = lambda _: []


# What a timing's unit says about its value: work per second, or time per piece of work.
RATES: dict[str, Callable[[float, float], float]] = {
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
    report: Callable[[str, int, int], object] | None = None,
) -> Result:
    """Time all contenders, turn by turn so that a busy moment meets them all.

    `report` is told who runs next, how many turns are done, and how many there are. Tiny sizes
    show that everything runs; their ratios are held to nothing.

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
        if report is not None:
            report(contender.name, done, len(turns))
        start = time.perf_counter()
        done_itself = contender.run()
        took = time.perf_counter() - start
        if isinstance(done_itself, Counted):
            took = done_itself.seconds * contender.work / done_itself.work
        seconds[contender.name].append(took)
    timings = {one.name: _timing(one, seconds[one.name]) for one in contenders}
    return Result(
        name=benchmark.name,
        title=f"{benchmark.title} [tiny sizes]" if quick else benchmark.title,
        quick=quick,
        date=datetime.now(UTC).date().isoformat(),
        machine=machine(),
        timings=list(timings.values()),
        ratios=[
            replace(ratio, at_least=None, at_most=None) if quick else ratio
            for ratio in (*benchmark.ratios(timings), *benchmark.beside(quick))
        ],
        skipped=benchmark.skipped(),
    )


def _timing(contender: Contender, seconds: Sequence[float]) -> Timing:
    median = statistics.median(seconds)
    return Timing(
        name=contender.name,
        seconds=median,
        fastest=min(seconds),
        slowest=max(seconds),
        repeats=len(seconds),
        value=RATES[contender.unit](median, contender.work),
        unit=contender.unit,
    )


def machine() -> dict[str, str]:
    """What the numbers were measured on.

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
