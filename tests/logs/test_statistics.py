"""`understudy.logs.statistics`: sums and counts are the same however the log is cut."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from tests.support import formulas
from tests.support.strategies import quick
from understudy.logs.statistics import ActionStatistics, CountsOverTime


@given(st.integers(0, 40), st.integers(0, 2**32 - 1))
@quick
def test_a_tally_is_the_sum_over_each_action_however_the_log_is_cut(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    actions, R, q = rng.integers(3, size=n), rng.random(n), rng.uniform(0.01, 1.0, n)
    log = us.Log(actions, R, q)
    whole = ActionStatistics.empty(4).after(log)
    counts, *sums = formulas.tally(actions, R, q, 4)
    assert whole.counts.tolist() == counts.tolist()
    seen = counts > 0
    found = (whole.rewards, whole.weighted, whole.weights, whole.squares)
    for ours, theirs in zip(found, sums[:4], strict=True):
        assert np.allclose(ours, theirs, rtol=1e-12, atol=0)
    assert np.array_equal(whole.lowest[seen], sums[4][seen])
    assert np.array_equal(whole.highest[seen], sums[5][seen])
    cut = ActionStatistics.empty(4)
    for part in log.stretches(7):
        cut = cut.after(part)
    for name in ("counts", "rewards", "weighted", "weights", "squares", "lowest", "highest"):
        assert np.array_equal(getattr(cut, name), getattr(whole, name), equal_nan=True)


@given(st.lists(st.integers(0, 2), max_size=400), st.integers(1, 90))
@quick
def test_stretches_are_counts_of_equal_parts_however_the_rows_come(
    actions: list[int], size: int
) -> None:
    rows = np.array(actions, dtype=np.int64)
    found = CountsOverTime.empty(3)
    for start in range(0, len(rows), size):
        found = found.after(rows[start : start + size])
    assert len(found.counts) <= 20
    parts = [rows[i : i + found.width] for i in range(0, len(rows), found.width)]
    wanted = [np.bincount(part, minlength=3).tolist() for part in parts]
    assert found.counts.tolist() == wanted
    once = CountsOverTime.empty(3).after(rows)
    assert (once.width, once.counts.tolist()) == (found.width, found.counts.tolist())
