"""Moved to `report.html`; other areas still import it."""

from __future__ import annotations

from understudy.report.html import environment, sections

__all__ = ["environment", "sections"]
