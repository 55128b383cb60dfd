"""What came out of a sweep as something that two sweeps can be compared by, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping

from understudy.simulation.sweep import CellResult, SweepCell

Bits = dict[SweepCell, tuple[object, ...]]


def bits(results: Mapping[SweepCell, CellResult]) -> Bits:
    """Every number of every cell as its bytes, and how it was played."""
    return {cell: bits_of(played) for cell, played in results.items()}


def bits_of(played: CellResult) -> tuple[object, ...]:
    arrays = (played.regret, played.reward, played.behavior_reward)
    return (*((array.shape, array.tobytes()) for array in arrays), played.path)
