"""Logs with metrics and segments, and a question about them."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

__all__ = ["QUESTION", "with_metrics"]

QUESTION: dict[str, Any] = {
    "against": "action:north",
    "guardrail": ["latency:0:1000:lower:50", "visits:0:1:higher:0.2"],
    "segment": "country=it,es",
}


def with_metrics(rows: pl.DataFrame, seed: int = 0) -> pl.DataFrame:
    """The rows with a column of each guardrail, some of them missing, and of segments.

    The latency is higher in the east; some rows lack their reward, after the tenth.
    """
    rng, n = np.random.default_rng([seed, 5]), len(rows)
    latency = rng.uniform(100.0, 200.0, n) + 100.0 * (rows["action"] == "east").to_numpy()
    number = pl.int_range(n)
    return rows.with_columns(
        latency=pl.Series(latency),
        visits=pl.Series((rng.random(n) < 0.5).astype(float)),
        country=pl.Series(rng.choice(["it", "es", "fr"], n)),
    ).with_columns(
        reward=pl.when(number % 50 == 40).then(None).otherwise("reward"),
        latency=pl.when(number % 30 == 7).then(None).otherwise("latency"),
    )
