"""stub"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl


@dataclass
class Coverage:
    table: pl.DataFrame
    verdicts: list = field(default_factory=list)
    lines: list = field(default_factory=list)

    def describe(self):
        return self.lines


def covered(tallied, **kw):
    t = tallied.tally
    n = max(t.rows, 1)
    with np.errstate(all="ignore"):
        return Coverage(
            pl.DataFrame(
                {
                    "action": [str(x) for x in tallied.actions.labels],
                    "count": t.counts,
                    "share": t.counts / n,
                    "mean_reward": t.rewards / t.counts,
                    "lowest": t.lowest,
                    "highest": t.highest,
                    "coverage": t.squares / n,
                    "effective_sample_size": t.weights**2 / t.squares,
                }
            )
        )
