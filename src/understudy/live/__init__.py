"""An understudy beside production: a durable service that learns while production acts."""

from __future__ import annotations

__all__: list[str] = []
