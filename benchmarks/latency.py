"""Start-up: imports, first calls, whole commands on little data, and requests to a policy."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import understudy as us
from benchmarks.figure1_speed import EXPERIMENT
from benchmarks.learn_speed import write_log
from benchmarks.measurement import Benchmark, Contender, Ratio, Timing
from understudy.logs import Policy

__all__ = ["LATENCY"]

FIRST_CALL = (
    "import understudy as us; l = us.exp3([.5, .5], eta=.1); l.replay(l.init(), us.Log([0], [1.0]))"
)
PYTHON, IMPORT = "python -c pass", "import understudy"
WARM, COLD = "import and first replay, kernels kept on disk", "import and first replay, compiling"
PAPER, COMPUTE = "understudy paper, start to finish", "the same games, computed"
LEARN, CERTIFY = "understudy learn, 2 000 rows", "understudy certify, 2 000 rows"
ROWS = 2_000  # so few that imports take most of the time
NUMBERS = "a request to the default mixture, 10 actions, 64 columns of numbers"
LABELS = "a request to the default mixture, 2 actions, a column of labels"
REQUESTS = 1_000  # a call of the benchmark
REQUEST_LIMIT = 60  # microseconds
LIMIT = 1.2  # seconds for a command on so few rows: a person waits for it


def contenders(quick: bool) -> Iterator[Contender]:
    repeats = 2 if quick else 9
    sizes = ["--runs", "2", "--rounds", "50", "--actions", "5", "--alphas", "2"] if quick else []
    options = replace(EXPERIMENT.defaults, jobs=-1)
    if quick:
        options = replace(options, runs=2, rounds=50, actions=5, alphas=2)
    call("-c", FIRST_CALL)
    for name, code in ((PYTHON, "pass"), (IMPORT, "import understudy"), (WARM, FIRST_CALL)):
        yield Contender(name, partial(call, "-c", code), 1.0, "s", repeats)
    yield Contender(COLD, first_call_without_cache, 1.0, "s", repeats=1 if quick else 3)
    yield Contender(PAPER, partial(paper, sizes), 1.0, "s", repeats=1 if quick else 5)
    yield from commands_on_logs(quick)
    yield from requests(quick)
    EXPERIMENT.run(replace(options, runs=1))
    yield Contender(COMPUTE, partial(EXPERIMENT.run, options), 1.0, "s", repeats=1 if quick else 5)


def commands_on_logs(quick: bool) -> Iterator[Contender]:
    """`learn` on a small log, and `certify` on a later one, with kernels and bytecode on disk."""
    folder = Path(tempfile.mkdtemp(prefix="understudy-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # the turns come after this call
    later = folder / "later"
    later.mkdir()
    logs, out = (str(write_log(folder, ROWS)), str(write_log(later, ROWS, seed=1))), folder / "out"
    run = partial(call, "-m", "understudy")
    learn = partial(run, "learn", logs[0], "--out", str(out), "--overwrite")
    certify = partial(run, "certify", logs[1], "--policy", str(out / "policy.json"))
    if not quick:
        learn()
        certify()
    yield Contender(LEARN, learn, 1.0, "s", repeats=1 if quick else 9)
    yield Contender(CERTIFY, certify, 1.0, "s", repeats=1 if quick else 9)


def requests(quick: bool) -> Iterator[Contender]:
    """`Policy.probabilities` of one request after another, with production's probabilities."""
    rng, rows = np.random.default_rng(0), 300 if quick else 3_000
    numbers = {f"x{i}": rng.normal(size=rows) for i in range(64)}
    labels = {"subject": rng.choice([f"subject {i}" for i in range(57)], rows)}
    for name, columns, K in ((NUMBERS, numbers, 10), (LABELS, labels, 2)):
        actions, rewards = rng.integers(K, size=rows), rng.integers(2, size=rows)
        log = {**columns, "action": actions, "reward": rewards, "propensity": np.full(rows, 1 / K)}
        learned = us.logs.learn(pl.DataFrame(log), context=[*columns], actions=range(K), warmup=0.2)
        ask = partial(
            ask_often,
            learned.policy,
            {column: values[0].item() for column, values in columns.items()},
            dict.fromkeys(range(K), 1 / K),
        )
        yield Contender(name, ask, REQUESTS, "requests/s", repeats=1 if quick else 15)


def ask_often(policy: Policy, context: Mapping[str, Any], production: Mapping[int, float]) -> None:
    for _ in range(REQUESTS):
        policy.probabilities(context, production=production)


def call(*arguments: str, **variables: str) -> None:
    """Run this Python with the arguments; it may write bytecode, as it does for users."""
    environment = {**os.environ, **variables}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=environment)


def first_call_without_cache() -> None:
    with tempfile.TemporaryDirectory() as empty:
        call("-c", FIRST_CALL, NUMBA_CACHE_DIR=empty)


def paper(sizes: list[str]) -> None:
    with tempfile.TemporaryDirectory() as out:
        call("-m", "understudy", "paper", *sizes, "--out", out)


def ratios(timings: Mapping[str, Timing]) -> list[Ratio]:
    added = timings[PAPER].seconds - timings[COMPUTE].seconds
    return [
        Ratio("import understudy, seconds", timings[IMPORT].seconds, at_most=0.35),
        Ratio("understudy paper minus its games, seconds", added, at_most=3),
        Ratio(f"{LEARN}, seconds", timings[LEARN].seconds, at_most=LIMIT),
        Ratio(f"{CERTIFY}, seconds", timings[CERTIFY].seconds, at_most=LIMIT),
        *(
            Ratio(
                f"{name}, microseconds",
                timings[name].seconds / REQUESTS * 1e6,
                at_most=REQUEST_LIMIT,
            )
            for name in (NUMBERS, LABELS)
        ),
    ]


LATENCY = Benchmark("latency", "Start-up: imports, first calls, whole commands", contenders, ratios)
