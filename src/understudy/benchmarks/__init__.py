"""Benchmarks: ours and others' side by side, in one run, as ratios."""

from __future__ import annotations

from understudy.benchmarks.adaptive import ADAPTIVE
from understudy.benchmarks.compact import COMPACT
from understudy.benchmarks.core import Benchmark, Result, machine, measure
from understudy.benchmarks.figure1 import FIGURE_1
from understudy.benchmarks.latency import LATENCY
from understudy.benchmarks.learn import LEARN
from understudy.benchmarks.lin_prod import LIN_PROD
from understudy.benchmarks.live import LIVE
from understudy.benchmarks.replay import REPLAY
from understudy.benchmarks.reports import (
    as_dict,
    as_markdown,
    check_page,
    read,
    show,
    write,
    write_docs,
)
from understudy.benchmarks.rounds import ROUNDS

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "Result",
    "as_dict",
    "as_markdown",
    "check_page",
    "machine",
    "measure",
    "read",
    "show",
    "write",
    "write_docs",
]

BENCHMARKS = {
    b.name: b for b in (FIGURE_1, ROUNDS, ADAPTIVE, REPLAY, LEARN, LIVE, LIN_PROD, COMPACT, LATENCY)
}
