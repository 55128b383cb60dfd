"""The values inside of nested columns, by names such as c.user.id: they may be units, too.

A leaf of a struct, or of a JSON object, is no struct, list or object itself. Left out are names
with a point of their own, which cannot be told from nested ones, and names with a quote or a
backslash: Polars writes the latter as broken JSON.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

import polars as pl

from understudy.logs.readers.files import LONGEST_LINE, open_bytes

Keys = tuple[str, ...]
DEEPEST = 4  # names of a leaf: contexts of decision services have c, a namespace, and its features
# The leaves of all nested columns of a log, the least nested first: ids of users are not deep. Each
# costs 1 to 2 µs for a line of JSON, so that so many keep it at some 50,000 lines a second.
MOST_LEAVES = 16
NO_NAME = frozenset('."\\')  # signs that no name of a leaf has
LINES_PEEKED = 100  # of JSON; enough for the leaves that most lines have


def struct_leaves(schema: Mapping[str, pl.DataType]) -> list[Keys]:
    """The leaves of columns that are structs.

    >>> struct_leaves({"a": pl.Struct({"b": pl.Struct({"c": pl.Int64}), "d": pl.String})})
    [('a', 'd'), ('a', 'b', 'c')]
    """

    def parts(keys: Keys, dtype: pl.DataType) -> list[tuple[Keys, pl.DataType]]:
        if not isinstance(dtype, pl.Struct):
            return [(keys, dtype)]
        inner = [((*keys, field.name), field.dtype) for field in dtype.fields]
        return [leaf for one in inner for leaf in parts(*one)]  # type: ignore[arg-type] # an instance

    found = [leaf for name, dtype in schema.items() for leaf in parts((name,), dtype)]
    return _fewest(keys for keys, dtype in found if not dtype.is_nested() and dtype != pl.Object)


def json_leaves(path: Path, examined: Callable[[Keys], bool] = lambda _: True) -> list[Keys]:
    """The leaves of the objects in the first lines of a file that have different values there.

    One whose value changes later only is the same in many rows, one after the other.
    """
    values: dict[Keys, set[str]] = {}

    def visit(keys: Keys, value: object) -> None:
        if isinstance(value, dict):
            for key, inner in value.items() if len(keys) < DEEPEST else ():
                visit((*keys, key), inner)
        elif value is not None and not isinstance(value, list) and examined(keys):
            values.setdefault(keys, set()).add(str(value))

    with suppress(OSError, EOFError, zlib.error), open_bytes(path) as file:
        for line in islice(iter(lambda: file.readline(LONGEST_LINE), b""), LINES_PEEKED):
            with suppress(ValueError, RecursionError):
                visit((), json.loads(line))
    return _fewest(keys for keys, seen in values.items() if len(seen) > 1)


def is_named(keys: Keys) -> bool:
    """Whether a leaf has a name that stands for it alone."""
    return all(key and not NO_NAME & set(key) for key in keys)


def leaf_name(keys: Keys) -> str:
    """The name of a leaf, as `--unit` takes it."""
    return ".".join(keys)


def leaf(keys: Keys, dtype: pl.DataType) -> pl.Expr:
    """The value of a leaf in a column that is a struct, or else text of JSON; null if absent."""
    column = pl.col(keys[0])
    if not isinstance(dtype, pl.Struct):
        return column.str.json_path_match("$" + "".join(f'["{key}"]' for key in keys[1:]))
    for key in keys[1:]:
        column = column.struct.field(key)
    return column


def has_leaf(keys: Keys, dtype: pl.DataType) -> bool:
    """Whether a struct has this leaf.

    >>> [has_leaf(("a", key), pl.Struct({"b": pl.Int64})) for key in "bc"]
    [True, False]
    """
    for key in keys[1:]:
        fields = dtype.to_schema() if isinstance(dtype, pl.Struct) else {}
        if key not in fields:
            return False
        dtype = fields[key]  # type: ignore[assignment] # an instance
    return not isinstance(dtype, pl.Struct)


def _fewest(found: Iterable[Keys]) -> list[Keys]:
    named = [keys for keys in found if is_named(keys)]
    return sorted((k for k in named if len(k) <= DEEPEST), key=len)[:MOST_LEAVES]
