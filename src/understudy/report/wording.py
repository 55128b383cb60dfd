"""Renamed to `understudy.formatting`; other areas still import it."""

from __future__ import annotations

from understudy.formatting import count, counted, named, number, percent, plain, quoted, size

__all__ = ["count", "counted", "named", "number", "percent", "plain", "quoted", "size"]
