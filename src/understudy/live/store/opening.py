"""From what a person types to a store: a file, or a database server."""

from __future__ import annotations

import re
from pathlib import Path

from understudy.errors import InvalidArgument
from understudy.live.store.sqlite import SqliteReader, SqliteStore, SqliteTokens
from understudy.live.store.stores import Reader, Store, TokenBook

__all__ = ["open_reader", "open_store", "open_tokens"]

SCHEME = re.compile(r"([a-z][a-z0-9+.-]+)://", re.IGNORECASE)
REMEDY = "pass the path of a file, or postgresql://user@host/database"


def open_store(where: str) -> Store:
    """The store that a path or a URL names; `open` it to become its writer.

    >>> open_store("mysql://localhost/studies")
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: store = 'mysql://…': there is no store of this kind; ...
    """
    if _is_postgresql(where):
        from understudy.live.store.postgresql import PostgresStore  # noqa: PLC0415 - an extra

        return PostgresStore(where)
    return SqliteStore(_file(where))


def open_reader(where: str) -> Reader:
    """Look into the store that a path or a URL names.

    >>> open_reader("missing.db")
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: store = 'missing.db': there is no such file; ...
    """
    if _is_postgresql(where):
        from understudy.live.store.postgresql import PostgresReader  # noqa: PLC0415 - an extra

        return PostgresReader(where)
    path = _file(where)
    if not path.exists():
        raise InvalidArgument("store", where, "there is no such file", REMEDY)
    return SqliteReader(path)


def open_tokens(where: str) -> TokenBook:
    """The tokens of the store that a path or a URL names; a store that is not there yet is made.

    >>> open_tokens("missing/folder/understudy.db")
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: store = 'missing/folder/understudy.db': there is no folder...
    """
    if _is_postgresql(where):
        from understudy.live.store.postgresql import PostgresTokens  # noqa: PLC0415 - an extra

        return PostgresTokens(where)
    return SqliteTokens(_file(where))


def _is_postgresql(where: str) -> bool:
    scheme = SCHEME.match(where)
    if scheme is None:
        return False
    if scheme[1] not in {"postgresql", "postgres"}:
        kind = f"{scheme[1]}://…"  # the rest may hold a password
        raise InvalidArgument("store", kind, "there is no store of this kind", REMEDY)
    return True


def _file(where: str) -> Path:
    path = Path(where)
    if not where or path.is_dir():
        what = "this is a folder" if where else "no file is named"
        raise InvalidArgument("store", where, what, REMEDY)
    if not path.parent.is_dir():
        raise InvalidArgument(
            "store", where, f"there is no folder {str(path.parent)!r}", "make it first"
        )
    return path
