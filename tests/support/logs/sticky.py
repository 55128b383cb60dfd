"""Logs whose actions were drawn once for each user, and logs with fresh draws."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from understudy import kernels
from understudy.constraints import Array

PAIR = np.array(["a", "b"])


def sticky_log(
    seed: int, users: int, rows: int, *, share: float = 0.5, gain: float = 0.0, first_user: int = 0
) -> pl.DataFrame:
    """Rows of users with mean rewards of their own, each with an action that was drawn once.

    `share` is the probability of b, which earns `gain` more than a.
    """
    rng = np.random.default_rng(seed)
    user = rng.integers(0, users, rows)
    actions = (rng.random(users) < share).astype(np.int64)
    means: Array = np.clip(rng.uniform(0.1, 0.9, users) + gain * actions, 0.0, 1.0)
    a = actions[user]
    return pl.DataFrame(
        {
            "user": user + first_user,
            "page": rng.integers(0, 20, rows),
            "action": PAIR[a],
            "reward": (rng.random(rows) < means[user]).astype(float),
            "propensity": np.where(a == 1, share, 1.0 - share),
        }
    )


def fresh_log(seed: int, rows: int, *, users: int = 300) -> pl.DataFrame:
    """Rows with context columns, and an action drawn in each with a propensity by the context."""
    rng = np.random.default_rng(seed)
    user, page, x = rng.integers(0, users, rows), rng.integers(0, 20, rows), rng.normal(size=rows)
    q = np.clip(0.5 + 0.4 * np.sin(user + page), 0.05, 0.95)
    a = (rng.random(rows) < q).astype(np.int64)
    mean = np.clip(0.5 + 0.3 * np.cos(user) + 0.1 * a, 0.0, 1.0)
    return pl.DataFrame(
        {
            "user": user,
            "page": page,
            "x": x.round(1),
            "action": PAIR[a],
            "reward": (rng.random(rows) < mean).astype(float),
            "propensity": np.where(a == 1, q, 1.0 - q),
        }
    )


def upper_bound(frequency: float, rows: int, budget: float) -> float:
    """Chernoff's upper bound on a probability."""
    return float(kernels.confidence.kl_upper(frequency, float(rows), budget))


def examine_rows(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Let engines examine so many rows, in four batches."""
    monkeypatch.setattr("understudy.logs.runs.aggregate_run.EXAMINED", rows)
    monkeypatch.setattr("understudy.logs.readers.inputs.BATCH", rows // 4)
