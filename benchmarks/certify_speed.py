"""The certificate of a fixed policy, from arrays and from a file, on one core.

With everything on: both bounds on the reward and on the gain, centers, and windows. From a file,
rows are also validated and compared, and all columns are examined for sticky ones.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import understudy as us
from benchmarks.measurement import Benchmark, Contender, Ratio, Timing

__all__ = ["CERTIFY"]

ARRAYS = "us.certify, everything on"
FIRST = "us.certify, rules 1 of release 0.5"
FILE = "us.logs.certify of Parquet, 3 columns"
WIDE = "us.logs.certify of Parquet, 6 columns"
UNITS = "us.logs.certify of Parquet, 6 columns, by unit (a tenth of the rows)"
UNIT = "M events/s"
K = 10
LEAST = 4  # M events/s
THREADS = Path("/proc/self/task")


def contenders(quick: bool) -> Iterator[Contender]:
    import polars as pl  # noqa: PLC0415 - an extra

    rows = 20_000 if quick else 4_000_000
    rng = np.random.default_rng(0)
    actions, rewards = rng.integers(0, K, rows), rng.binomial(1, 0.1, rows).astype(np.float64)
    policy, pi_b = np.full(K, 0.05), np.full(K, 1.0 / K)
    policy[0] = 0.55
    log = us.Log(actions, rewards)
    for name, rules in ((ARRAYS, 2), (FIRST, 1)):
        run = partial(us.certify, log, us.FixedPolicy(policy), behavior=pi_b, rules=rules)
        yield Contender(name, on_one_core(run), rows, UNIT)
    folder = Path(tempfile.mkdtemp(prefix="understudy-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # the turns come after this call
    frame = pl.DataFrame(
        {
            "action": actions,
            "reward": rewards,
            "propensity": 1.0 / K,
            "user": rng.integers(0, max(1, rows // 10), rows),
            "page": rng.integers(0, 1_000, rows),
            "x": rng.normal(size=rows),
        }
    )
    frame.write_parquet(folder / "wide.parquet")
    frame.select("action", "reward", "propensity").write_parquet(folder / "narrow.parquet")
    sticky = frame.with_columns(action=pl.col("user") % K)  # each user keeps its action
    sticky.write_parquet(folder / "sticky.parquet")
    known: dict[str, Any] = {"actions": range(K), "least_propensity": 1.0 / K}
    asked: dict[int | str, float] = dict(enumerate(policy.tolist()))
    for name, file in ((FILE, "narrow.parquet"), (WIDE, "wide.parquet"), (UNITS, "sticky.parquet")):
        options = known | ({"unit": "user"} if name == UNITS else {})
        judge = partial(us.logs.certify, folder / file, asked, **options)
        yield Contender(name, on_one_core(judge), rows, UNIT)


def on_one_core(run: Callable[[], object]) -> Callable[[], object]:
    """The same function, while all threads of this process share one core, on Linux."""

    def limited() -> object:
        if not THREADS.exists():
            return run()
        all_cores = os.sched_getaffinity(0)
        try:
            bind({min(all_cores)})
            return run()
        finally:
            bind(all_cores)

    return limited


def bind(cores: set[int]) -> None:
    """Let all threads that there are, and those that they start, use these cores alone."""
    for thread in THREADS.iterdir():
        with suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread.name), cores)


def ratios(timings: Mapping[str, Timing]) -> list[Ratio]:
    return [
        *(
            Ratio(f"{name}, {UNIT}", timings[name].value, at_least=LEAST)
            for name in (ARRAYS, FILE, WIDE)
        ),
        Ratio(f"{WIDE}: seconds / {FILE}", timings[WIDE].seconds / timings[FILE].seconds),
        Ratio(f"{ARRAYS}: seconds / {FIRST}", timings[ARRAYS].seconds / timings[FIRST].seconds),
    ]


CERTIFY = Benchmark(
    "certify", "The certificate of a fixed policy on one core, K = 10", contenders, ratios
)
