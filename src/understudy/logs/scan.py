"""Renamed to `reject_reasons`; other areas still import this name."""

from understudy.logs.reject_reasons import counted, remedy_for

__all__ = ["counted", "remedy_for"]
