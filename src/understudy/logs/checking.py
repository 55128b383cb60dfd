"""Renamed to `validate`; other areas still import this name."""

from understudy.logs.validate import QUARANTINE, RowRules, ValidatedBatch, check

__all__ = ["QUARANTINE", "RowRules", "ValidatedBatch", "check"]
