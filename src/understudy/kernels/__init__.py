"""Compiled kernels: arrays in, arrays out. The only place that imports numba, and only when used.

Kernels do not check their arguments: their callers do. `tests/support/formulas.py` computes the
same in NumPy, a formula a line, and the tests compare the two.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from understudy.kernels import (
        certificates,
        confidence,
        exponential_weights,
        games,
        lin_prod,
        repeats,
        ridge,
        uncentered_bets,
        weighted_entropy,
    )

__all__ = [
    "certificates",
    "confidence",
    "exponential_weights",
    "games",
    "lin_prod",
    "repeats",
    "ridge",
    "uncentered_bets",
    "weighted_entropy",
]


def __getattr__(name: str) -> ModuleType:
    """Import a module of kernels, and numba with it, when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
