"""What the service says no to, whatever it is asked by."""

from __future__ import annotations

from understudy.errors import UnderstudyError

__all__ = ["Declined"]


class Declined(UnderstudyError):
    """What was asked for cannot be done as things are: a status, a short name, a sentence."""

    def __init__(self, status: int, error: str, message: str) -> None:
        self.status = status
        self.error = error
        super().__init__(message)
