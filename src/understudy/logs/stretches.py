"""How often each action was played early and late, in constant memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from understudy.errors import InvalidSnapshot
from understudy.types import Integers, frozen

__all__ = ["Stretches"]

MOST = 20  # stretches that are told apart


@dataclass(frozen=True, eq=False)
class Stretches:
    """Counts per action (B, K) in stretches of `width` rows each, the last one perhaps shorter.

    When there are too many stretches, neighbors are put together: their number stays bounded, and
    the counts depend on the rows alone, not on how they came.

    >>> Stretches.empty(2).after(np.array([0, 1, 1])).counts.tolist()
    [[1, 0], [0, 1], [0, 1]]
    """

    width: int
    counts: Integers
    rows: int = 0

    @staticmethod
    def empty(n_actions: int) -> Stretches:
        return Stretches(1, frozen(np.zeros((0, n_actions), dtype=np.int64)))

    def as_data(self) -> dict[str, Any]:
        """As what JSON can hold, exactly."""
        return {"width": self.width, "rows": self.rows, "counts": self.counts.tolist()}

    @staticmethod
    def from_data(data: dict[str, Any], n_actions: int) -> Stretches:
        """What `as_data` made data of.

        >>> Stretches.from_data(Stretches.empty(2).as_data(), 2).rows
        0
        """
        counts = np.array(data["counts"], dtype=np.int64).reshape(-1, n_actions)
        width, rows = int(data["width"]), int(data["rows"])
        full = rows // width if width > 0 else -1
        whole = counts.sum() == rows and (counts >= 0).all() and len(counts) == -(-rows // width)
        if not whole or (counts[:full].sum(axis=1) != width).any() or len(counts) > MOST:
            raise InvalidSnapshot(
                "stretches", data["rows"], "they do not add up", "load an unchanged file"
            )
        return Stretches(width, frozen(counts), rows)

    def after(self, actions: Integers) -> Stretches:
        """With more rows."""
        width, rows = self.width, self.rows + len(actions)
        counts = self.counts
        while width * MOST < rows:
            width *= 2
            counts = halved(counts)
        K = counts.shape[1]
        grown = np.zeros((-(-rows // width), K), dtype=np.int64)
        grown[: len(counts)] = counts
        first, last = self.rows // width, (rows - 1) // width
        for i in range(first, last + 1):
            low, high = i * width - self.rows, (i + 1) * width - self.rows
            grown[i] += np.bincount(actions[max(low, 0) : max(high, 0)], minlength=K)
        return Stretches(width, frozen(grown), rows)


def halved(counts: Integers) -> Integers:
    """Each pair of neighbors as one; the last one stays alone if it has none.

    >>> halved(np.array([[1], [2], [4]])).tolist()
    [[3], [4]]
    """
    if len(counts) % 2:
        counts = np.concatenate([counts, np.zeros_like(counts[:1])])
    return np.asarray(counts[0::2] + counts[1::2])
