"""Arrays as kernels take them: contiguous and read-only."""

from __future__ import annotations

from understudy.types import kernel_view

__all__ = ["kernel_view"]
