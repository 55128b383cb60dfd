"""What the service asks of a store. One thread writes; whoever only reads opens a reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from understudy.live.store.records import (
    Changes,
    Decision,
    Scope,
    Snapshot,
    StudyRecord,
    TokenRecord,
)

__all__ = ["Reader", "Store", "TokenBook"]


class Reader(Protocol):
    """Looks, and changes nothing. Used by one thread at a time.

    Whatever goes wrong outside is `StoreUnavailable`, with a reason that people understand.
    """

    def studies(self) -> list[StudyRecord]:
        """All studies, the oldest first."""

    def decisions(self, study: int, after: int, limit: int) -> list[Decision]:
        """The next decisions after a `seq`, in order, at most so many."""

    def last_seq(self, study: int) -> int:
        """The `seq` of the newest decision; 0 if there is none."""

    def snapshot(self, study: int) -> Snapshot | None:
        """The newest one, if there is any."""

    def refused(self, study: int) -> dict[str, int]:
        """How many events were refused, by reason."""

    def late(self, study: int) -> int:
        """How many rewards came after their wait was over."""

    def clock(self) -> int:
        """The latest time that was written."""

    def tokens(self) -> list[TokenRecord]:
        """All tokens that may be used."""

    def close(self) -> None:
        """Let go of it."""


class TokenBook(Reader, Protocol):
    """Changes tokens, also while a server is the writer: each method is a transaction."""

    def add_token(self, name: str, digest: bytes, scope: Scope, at: int) -> None:
        """A token; one of the same name is replaced."""

    def remove_token(self, name: str) -> bool:
        """Whether there was one."""


class Store(TokenBook, Protocol):
    """The one writer. What a method has written is on disk when it returns, or it raised."""

    def open(self) -> bool:
        """Connect and become the writer; True if another writer was here since the last time.

        May be called again after `StoreUnavailable`. `StoreInUse` if another server is the writer.
        """

    def find(self, study: int, ids: Sequence[str]) -> dict[str, Decision]:
        """The decisions with these ids, as far as there are any."""

    def write(self, changes: Sequence[Changes], clock: int) -> None:
        """All of it in one transaction, or nothing."""

    def add_study(self, name: str, spec: str, base: str | None, at: int) -> StudyRecord:
        """A new study."""

    def archive(self, study: int, at: int) -> None:
        """Take no more events."""

    def keep_snapshot(self, study: int, snapshot: Snapshot) -> None:
        """In place of the one before."""
