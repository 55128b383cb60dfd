"""Stores of the live service: an SQLite file, or a PostgreSQL database.

One process writes to a store (`open_store`); any number read it, or change its tokens, meanwhile.
"""

from __future__ import annotations

from contextlib import closing

from understudy.errors import InvalidArgument
from understudy.live.store.database import STORES, Access, Database
from understudy.live.store.records import TokenRecord
from understudy.live.store.sql import Reader, Store, TokenStore
from understudy.live.store.sqlite import Sqlite

__all__ = ["hide_credentials", "open_reader", "open_store", "open_tokens", "stored_tokens"]


def open_store(where: str) -> Store:
    """Return the store at a path or URL; its `open` makes it the writer.

    >>> open_store("mysql://localhost/studies")
    Traceback (most recent call last):
    understudy.errors.InvalidArgument: store = 'mysql://…': there is no store of this kind; ...
    """
    return Store(_database(where, "write"))


def open_reader(where: str) -> Reader:
    """Return a reader of the store at a path or URL, which must exist."""
    return Reader(_database(where, "read"))


def open_tokens(where: str, *, create: bool = True) -> TokenStore:
    """Return the tokens of the store at a path or URL, which may be created if it is missing."""
    return TokenStore(_database(where, "create" if create else "change"))


def stored_tokens(where: str) -> list[TokenRecord]:
    """Return the tokens of a store, none if there is no store yet; create nothing."""
    database = _database(where, "create")
    with closing(TokenStore(database)) as store:
        return [] if database.is_new() else store.tokens()


def hide_credentials(where: str) -> str:
    """Return a path as it is, and a URL, which may hold a password, as its scheme alone.

    >>> hide_credentials("postgresql://ada:secret@db/studies"), hide_credentials("understudy.db")
    ('postgresql://…', 'understudy.db')
    """
    scheme, is_url, _ = where.partition("://")
    return f"{scheme}://…" if is_url else where


def _database(where: str, access: Access) -> Database:
    scheme, is_url, _ = where.partition("://")
    if not is_url:
        return Sqlite(where, access)
    if scheme not in {"postgresql", "postgres"}:
        shown = hide_credentials(where)
        raise InvalidArgument("store", shown, "there is no store of this kind", STORES)
    from understudy.live.store.postgresql import Postgres  # noqa: PLC0415 - an extra

    return Postgres(where, access)
