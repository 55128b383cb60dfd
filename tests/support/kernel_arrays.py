"""Arrays as kernels take them: contiguous and read-only, in chunks."""

from __future__ import annotations

import pytest

from understudy.types import kernel_view

__all__ = ["kernel_view", "use_small_chunks"]


def use_small_chunks(patch: pytest.MonkeyPatch) -> None:
    """Cut what is computed in chunks into many: each has a table of 64 numbers."""
    patch.setattr("understudy.types.BLOCK", 64)
