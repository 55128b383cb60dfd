"""One self-contained page about what was learned from a log."""

from __future__ import annotations
