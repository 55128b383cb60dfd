"""Production logs: read, checked, covered, learned from, certified."""

from __future__ import annotations
