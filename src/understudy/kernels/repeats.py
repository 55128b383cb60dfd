"""Bets that the rows of one value repeat its action, as rows of a sticky assignment do.

A table has a slot for some values, chosen by their hash: the tag of the first value that came
there, and the action of its last row. Other values of the slot are not followed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from understudy.kernels.compiler import compiled

Array = Any

MOST_WEALTH = 1e200  # of a bet: far above any threshold; less wealth than it has is valid
NO_VALUE = 0  # the hash of a missing value
SHIFT, ONE = np.uint64(32), np.uint64(1)  # a tag is the other half of a hash, and never 0


@compiled
def bet_on_repeats(
    bets: Array,
    hashes: Array,
    actions: Array,
    propensities: Array,
    tags: Array,
    last: Array,
    wealth: Array,
    counts: Array,
    starts: int,
    enough: float,
) -> bool:
    """Bet on rows whose value has come before; stop after one with a mean wealth of `enough`.

    A bet λ multiplies its wealth by 1 + λ (X − 1), with X = 1/q where the action is that of the
    value's last row, and 0 where it is another, or is unknown (−1). `counts` are such rows whose
    action is known, those with X > 0, and all of them. Bets start again and again, after so many
    rows each time: start j has 1/(j (j + 1)) of the wealth 1, because the wealth of earlier ones is
    gone if actions were drawn afresh for long.
    """
    mask = np.uint64(tags.size - 1)
    for t in range(hashes.size):
        if hashes[t] == NO_VALUE:
            continue
        slot, tag = np.int64(hashes[t] & mask), np.uint32((hashes[t] >> SHIFT) | ONE)
        known = actions[t] >= 0
        if tags[slot] == tag:
            same = known and last[slot] == actions[t]
            if counts[2] % starts == 0:
                start = counts[2] // starts + 1.0
                for i in range(bets.size):
                    wealth[i] += 1.0 / (start * (start + 1.0))
            counts[0] += known
            counts[1] += same
            counts[2] += 1
            excess = (1.0 / propensities[t] if same else 0.0) - 1.0
            mean = 0.0
            for i in range(bets.size):
                wealth[i] = min(MOST_WEALTH, wealth[i] * (1.0 + bets[i] * excess))
                mean += wealth[i] / bets.size
            if mean >= enough:
                return True
        if known and tags[slot] == 0:
            tags[slot] = tag
        if known and tags[slot] == tag:
            last[slot] = actions[t]
    return False
