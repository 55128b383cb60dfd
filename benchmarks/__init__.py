"""Benchmarks of a checkout: Understudy beside its peers, its speed and its policies."""

from __future__ import annotations

from benchmarks.certify_speed import CERTIFY
from benchmarks.default_learners import DEFAULTS
from benchmarks.figure1_speed import FIGURE_1
from benchmarks.latency import LATENCY
from benchmarks.learn_speed import LEARN
from benchmarks.lin_prod_speed import COMPACT, LIN_PROD
from benchmarks.measurement import Benchmark, BenchmarkResult, machine, measure
from benchmarks.mixture_speed import MIXTURE
from benchmarks.policies import POLICIES, POLICY_GROWTH
from benchmarks.replay import REPLAY
from benchmarks.reports import (
    as_dict,
    as_markdown,
    check_page,
    read,
    show,
    write,
    write_docs,
)
from benchmarks.rounds import ADAPTIVE, ROUNDS
from benchmarks.service_load import LIVE

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "BenchmarkResult",
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
    b.name: b
    for b in (
        *(FIGURE_1, ROUNDS, ADAPTIVE, REPLAY, LEARN, CERTIFY, LIVE, LIN_PROD, COMPACT, LATENCY),
        *(MIXTURE, DEFAULTS, POLICIES, POLICY_GROWTH),
    )
}
