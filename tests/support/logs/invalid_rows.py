"""A log with everything that can be wrong in it, and what it says, row by row in Python."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

__all__ = ["LABELS", "ByHand", "by_hand", "dirty_log", "labels_of"]

NAN, INF = math.nan, math.inf
BAD_REWARDS = (None, NAN, INF, -INF, -0.25, 1.5)
BAD_PROPENSITIES = (None, NAN, INF, -INF, 0.0, -0.5, 1.25, 1e-120)
LABELS: dict[str, Callable[[int], Any]] = {
    "integers": lambda a: a,
    "whole floats": float,
    "texts": lambda a: f"item {a}",
    "huge integers": lambda a: 2**60 + a,
}


def dirty_log(
    rows: int = 240, n_actions: int = 5, kind: str = "integers", seed: int = 0
) -> pa.Table:
    """Rewards and propensities in [0, 1], about a third of the rows with something wrong."""
    rng = np.random.default_rng(seed)

    def spoiled(good: Iterable[float], bad: tuple[Any, ...]) -> list[Any]:
        return [bad[rng.integers(len(bad))] if rng.random() < 0.15 else float(x) for x in good]

    actions = [LABELS[kind](int(a)) for a in rng.integers(n_actions, size=rows)]
    return pa.table(
        {
            "action": [None if rng.random() < 0.05 else action for action in actions],
            "reward": spoiled(rng.choice([0.0, 0.25, 1.0], size=rows), BAD_REWARDS),
            "propensity": spoiled(rng.uniform(0.02, 1.0, size=rows), BAD_PROPENSITIES),
            "target": rng.uniform(0.0, 1.0, size=rows),
        }
    )


def labels_of(kind: str, n_actions: int = 5) -> tuple[str, ...]:
    """What these labels are as text."""
    return tuple(str(LABELS[kind](a)).removesuffix(".0") for a in range(n_actions))


@dataclass
class ByHand:
    """The good rows as (text, R, q, target), in their order, and how many others there are."""

    rows: list[tuple[str, float, float, float]] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    # The others: R, nan if unusable; action and q if nothing else is wrong.
    aside: list[tuple[float, tuple[str, float] | None]] = field(default_factory=list)

    def sums(self, labels: Iterable[str], term: Callable[[float, float], float]) -> list[float]:
        """A sum over the rows of each action."""
        return [math.fsum(term(R, q) for a, R, q, _ in self.rows if a == label) for label in labels]


def by_hand(
    table: pa.Table,
    *,
    known: tuple[str, ...] | None = None,
    behavior: dict[str, float] | None = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
    limits: tuple[float, float] = (0.0, 1.0),
) -> ByHand:
    """One row after the other, by the rules as they are written."""
    found, (low, high) = ByHand(), reward_range
    for row in table.to_pylist():
        action, reward, q = row["action"], row["reward"], row["propensity"]
        text = None if action is None else str(action).removesuffix(".0")
        if behavior is not None:
            q = behavior.get(text, 0.0) if text is not None else 0.0
        reasons = [
            ("action is missing", text is None),
            ("action is unknown", known is not None and text not in known),
            *wrongs("reward", reward, low, high),
            ("action has probability 0 in the behavior", behavior is not None and not q),
            *wrongs("propensity", q, 1e-100, 1.0),
            ("propensity is below the least one", behavior is None and (q or 0.0) < limits[0]),
            ("propensity contradicts the least one", behavior is None and (q or 0.0) > limits[1]),
        ]
        found_wrong = [words for words, wrong in reasons if wrong]
        reason = next(iter(found_wrong), None)
        if reason is None:
            assert text is not None
            found.rows.append((text, (reward - low) / (high - low), q, row["target"]))
        else:
            found.refused[reason] += 1
            usable = isinstance(reward, float) and low <= reward <= high
            unknown = any(not words.startswith("reward") for words in found_wrong)
            own = None if unknown or text is None else (text, float(q))
            found.aside.append(((reward - low) / (high - low) if usable else NAN, own))
    return found


def wrongs(role: str, value: Any, low: float, high: float) -> list[tuple[str, bool]]:
    number = value if isinstance(value, float) else NAN
    return [
        (f"{role} is missing", value is None),
        (f"{role} is not finite", not math.isfinite(number)),
        (f"{role} is out of range", not low <= number <= high),
    ]
