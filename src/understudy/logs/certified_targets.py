"""Renamed to `target_policies`; other areas still import this name."""

from understudy.logs.target_policies import Target, Uniform

__all__ = ["Target", "Uniform"]
