"""Encoders of contexts, and the warm-ups that make them."""

from __future__ import annotations

from understudy.logs.encoder import Encoder, NumberColumn

__all__ = ["Encoder", "example_encoder"]


def example_encoder() -> Encoder:
    """One number, which is never missing."""
    return Encoder((NumberColumn("age", 40.0, 10.0, missing=False),))
