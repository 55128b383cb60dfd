"""`understudy learn` on ten million rows of Parquet, beside Vowpal Wabbit and a bare GROUP BY.

Vowpal Wabbit reads a part of the same rows in its own text format; rates are compared. Memory is
the peak of the whole command, in a process of its own.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import understudy as us
from benchmarks.measurement import Benchmark, Contender, Ratio, Timing
from benchmarks.replay import K, installed, replay_in_vowpal, skipped, write_for_vowpal

__all__ = ["LEARN"]

IX = "understudy learn, exp3-ix, with certificate"
GRID = "understudy learn, coverage-adaptive (grid), with certificate"
SUMS = "understudy learn, exp3-ix, order-free"
UNCHECKED = f"{SUMS}, rows not compared"
GROUP_BY = "Polars, bare GROUP BY"
VOWPAL = f"Vowpal Wabbit, --cb {K}, its own reader"
UNIT = "M events/s"
LABELS = [str(a) for a in range(K)]


def contenders(quick: bool) -> Iterator[Contender]:
    import polars as pl  # noqa: PLC0415 - an extra

    rows = 20_000 if quick else 10_000_000
    folder = Path(tempfile.mkdtemp(prefix="understudy-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # the turns come after this call
    path = write_log(folder, rows)
    run = partial(learn, folder, path)
    run("exp3-ix")  # compiled, or loaded, before the clock runs
    yield Contender(IX, partial(run, "exp3-ix"), rows, UNIT)
    yield Contender(GRID, partial(run, "coverage-adaptive"), rows, UNIT, repeats=3)
    in_sums = partial(run, "exp3-ix", horizon=rows, engine="polars")
    yield Contender(SUMS, in_sums, rows, UNIT)
    yield Contender(UNCHECKED, partial(in_sums, repeated_rows="allow"), rows, UNIT)
    gain = pl.col("reward") / (pl.col("propensity") + 0.01)
    query = pl.scan_parquet(path).group_by("action").agg(pl.len(), gain.sum())
    yield Contender(GROUP_BY, lambda: query.collect(engine="streaming"), rows, UNIT)
    if installed("vowpalwabbit"):
        some = 1_000 if quick else 200_000
        part = pl.read_parquet(path, n_rows=some)
        actions, rewards, q = (part[name].to_numpy() for name in part.columns)
        file = write_for_vowpal(actions, rewards, q)
        yield Contender(VOWPAL, lambda: replay_in_vowpal(file.name), some, UNIT, repeats=3)


def write_log(folder: Path, rows: int, seed: int = 0) -> Path:
    """A log of Bernoulli rewards and logged propensities."""
    import polars as pl  # noqa: PLC0415 - an extra

    rng = np.random.default_rng(seed)
    pi_b = us.behaviors.interpolated(n_actions=K, alpha=0.9)
    actions = us.behaviors.choose(pi_b, rng.random(rows))
    rewards = (rng.random(rows) < 0.3 + 0.3 * actions / K).astype(np.float64)
    frame = pl.DataFrame({"action": actions, "reward": rewards, "propensity": pi_b[actions]})
    path = folder / "log.parquet"
    frame.write_parquet(path)
    return path


def learn(folder: Path, path: Path, learner: str, **rest: Any) -> None:
    """The whole command: read, validate, learn, certify, write."""
    us.logs.learn(path, out=folder / "out", learner=learner, overwrite=True, **rest)


def memory(quick: bool) -> list[Ratio]:
    """Peak memory of the command, for a log and for one three times as long."""
    with tempfile.TemporaryDirectory(prefix="understudy-bench-") as folder:
        once, thrice = Path(folder, "once"), Path(folder, "thrice")
        once.mkdir()
        thrice.mkdir()
        for i in range(3):
            write_log(thrice, 20_000 if quick else 10_000_000, seed=i)
            (thrice / "log.parquet").rename(thrice / f"{i}.parquet")
        shutil.copy(thrice / "0.parquet", once)
        small, large = (peak_of(log, Path(folder, "out")) for log in (once, thrice))
    return [
        Ratio("peak memory of the command for 10 000 000 rows, MB", small, at_most=1000),
        Ratio("peak memory for 30 000 000 rows / for 10 000 000", large / small, at_most=1.1),
    ]


def peak_of(log: Path, out: Path) -> float:
    """Peak memory in MB of a process that learns from a log, as the system counts it."""
    code = (
        "import sys, understudy as us; "
        "us.logs.learn(sys.argv[1], out=sys.argv[2], learner='exp3-ix', overwrite=True); "
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    )
    command = [sys.executable, "-c", code, str(log), str(out)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout) / 1e3


def ratios(timings: Mapping[str, Timing]) -> list[Ratio]:
    found = [
        Ratio(f"{GRID}: seconds / {IX}", timings[GRID].seconds / timings[IX].seconds, at_most=4),
        *(
            Ratio(
                f"{name}: seconds / {GROUP_BY}",
                timings[name].seconds / timings[GROUP_BY].seconds,
                at_most=2,  # set before rows were compared, which takes another pass over the log
            )
            for name in (SUMS, UNCHECKED)
        ),
    ]
    if VOWPAL in timings:
        ratio = timings[IX].value / timings[VOWPAL].value
        found.append(Ratio(f"{IX} / {VOWPAL}", ratio, at_least=100))
    return found


LEARN = Benchmark(
    "learn",
    "From 10 000 000 rows of Parquet to a certified policy, K = 100",
    contenders,
    ratios,
    lambda: [words for words in skipped() if "vowpal" in words],
    memory,
)
