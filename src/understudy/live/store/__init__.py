"""Stores of the live service: an SQLite file, or a PostgreSQL database.

One process writes to a store (`open_store`); any number read it, or change its tokens, meanwhile.
"""

from __future__ import annotations

from pathlib import Path

from understudy.errors import InvalidArgument
from understudy.live.store.sql import Access, Database, Reader, Store, TokenStore
from understudy.live.store.sqlite import Sqlite

__all__ = ["hide_credentials", "open_reader", "open_store", "open_tokens"]

REMEDY = "pass the path of a file, or postgresql://user@host/database"


def open_store(where: str) -> Store:
    """Return the store at a path or URL; its `open` makes it the writer.

    >>> open_store("mysql://localhost/studies")
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: store = 'mysql://…': there is no store of this kind; ...
    """
    return Store(_database(where, "write"))


def open_reader(where: str) -> Reader:
    """Return a reader of the store at a path or URL, which must exist.

    >>> open_reader("missing.db")
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: store = 'missing.db': there is no such file; ...
    """
    database = _database(where, "read")
    if isinstance(database, Sqlite) and not database.path.exists():
        raise InvalidArgument("store", where, "there is no such file", REMEDY)
    return Reader(database)


def open_tokens(where: str) -> TokenStore:
    """Return the tokens of the store at a path or URL, which is created if it does not exist.

    >>> open_tokens("missing/folder/understudy.db")
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: store = 'missing/folder/understudy.db': there is no folder...
    """
    return TokenStore(_database(where, "tokens"))


def hide_credentials(where: str) -> str:
    """Return a path as it is, and of a URL, which may hold a password, the scheme alone.

    >>> hide_credentials("postgresql://ada:secret@db/studies"), hide_credentials("understudy.db")
    ('postgresql://…', 'understudy.db')
    """
    scheme, separator, _ = where.partition("://")
    return f"{scheme}://…" if separator else where


def _database(where: str, access: Access) -> Database:
    scheme, is_url, _ = where.partition("://")
    if not is_url:
        return Sqlite(_file(where).resolve(), access)
    if scheme not in {"postgresql", "postgres"}:
        shown = hide_credentials(where)
        raise InvalidArgument("store", shown, "there is no store of this kind", REMEDY)
    from understudy.live.store.postgresql import Postgres  # noqa: PLC0415 - an extra

    return Postgres(where, access)


def _file(where: str) -> Path:
    path = Path(where)
    if not where or path.is_dir():
        what = "this is a folder" if where else "no file is named"
        raise InvalidArgument("store", where, what, REMEDY)
    if not path.parent.is_dir():
        what = f"there is no folder {str(path.parent)!r}"
        raise InvalidArgument("store", where, what, "make it first")
    return path
