"""Vowpal Wabbit's dsjson: one JSON object a line, as decision services log it.

The reward is −`_label_cost`, the propensity `_label_probability`. The action is `_label_Action`,
its place from 1 in the list `_multi` of actions, or else `_labelIndex` + 1. A row has no action, so
that validation refuses it, if the two disagree, if `_skipLearn` is true, if the line is no JSON, or
if there is no label: events of several slots, with labels in `_outcomes`, are not supported.

`pdrop` is the share of events that were dropped before they were logged. Nothing here reweights
events, so a file with a `pdrop` other than 0 is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from understudy.errors import first_line
from understudy.logs.readers.files import invalid_file
from understudy.logs.readers.text import (
    LINE,
    read_lines,
    refuse_column_names,
    reward_of_cost,
    select_roles,
)
from understudy.logs.schema import (
    ACTION,
    CONTEXT,
    ELIGIBLE,
    PROPENSITY,
    REWARD,
    ROW,
    TIME,
    Columns,
)

if TYPE_CHECKING:
    import duckdb

ACTION_KEYS = ("_label_Action", "_labelIndex")
KEYS = (*ACTION_KEYS, "_label_cost", "_label_probability", "_skipLearn", "pdrop")
NESTED = ("OBJECT", "ARRAY")


def read(path: Path, columns: Columns) -> Iterator[pl.DataFrame]:
    """Frames of rows, one for each line that is not blank.

    `columns.time` names a key of the object, such as `Timestamp`, and `columns.eligible` one that
    holds a list of actions, such as `a`. `columns.context` names values of the context `c`, with
    `object.name` for a nested one. A value that is absent, a list or an object is null.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "log.dsjson")
    ...     label = '"_label_cost": -1, "_label_probability": 0.8, "_label_Action": 2'
    ...     _ = path.write_text('{%s, "c": {"user": {"age": 30}}}\\n' % label)
    ...     [frame.rows() for frame in read(path, Columns(context=("user.age",)))]
    [[(1, '2', '1', '0.8', '30')]]
    """
    import duckdb  # noqa: PLC0415 - most logs are read without it

    refuse_column_names(columns, path)
    try:
        with duckdb.connect() as connection:
            for lines in read_lines(path):
                written = lines.filter(pl.col(LINE).str.strip_chars() != "")
                if len(written):
                    values = _values(connection, written, columns)
                    _refuse_dropped_events(values, path)
                    yield _rows(values, columns)
    except duckdb.Error as error:
        reason = f"DuckDB cannot read its JSON ({first_line(error)})"
        raise invalid_file(path, reason, "check that it is dsjson") from None


def _values(
    connection: duckdb.DuckDBPyConnection, lines: pl.DataFrame, columns: Columns
) -> pl.DataFrame:
    """The values of each line that are read, as text."""
    contexts = {CONTEXT + name: _pointer("c", *name.split(".")) for name in columns.context}
    places = {key: _pointer(key) for key in KEYS} | contexts
    if columns.time is not None:
        places[TIME] = _pointer(columns.time)
    wanted = {"found": f"json_extract_string({LINE}, $places)"}
    given: dict[str, object] = {"places": list(places.values())}
    if contexts:
        wanted["types"] = f"json_type({LINE}, $contexts)"
        given["contexts"] = list(contexts.values())
    if columns.eligible is not None:
        wanted[ELIGIBLE] = f"CAST(json_extract({LINE}, $eligible) AS VARCHAR[])"
        given["eligible"] = _pointer(columns.eligible)
    # TRY gives null for a line that is no JSON, and DuckDB keeps the order of the lines.
    tried = ", ".join(f"TRY({value}) AS {name}" for name, value in wanted.items())
    connection.register("lines", lines)
    query = f"SELECT {ROW}, {tried} FROM lines"
    frame = pl.DataFrame(connection.sql(query, params=given).to_arrow_table())
    found = [_item("found", place).alias(name) for place, name in enumerate(places)]
    single = [
        pl.when(~_item("types", place).is_in(NESTED)).then(pl.col(name)).alias(name)
        for place, name in enumerate(contexts)
    ]
    return frame.with_columns(found).with_columns(single)


def _item(name: str, place: int) -> pl.Expr:
    return pl.col(name).list.get(place, null_on_oob=True)


def _pointer(*keys: str) -> str:
    """The JSON pointer (RFC 6901) of nested keys."""
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)


def _refuse_dropped_events(values: pl.DataFrame, path: Path) -> None:
    dropping = pl.col("pdrop").cast(pl.Float64, strict=False).fill_null(1.0) != 0.0
    found = values.filter(pl.col("pdrop").is_not_null() & dropping)
    if len(found):
        raise invalid_file(
            path,
            f"line {found[ROW][0]} has pdrop {found['pdrop'][0]}: events were dropped before they "
            "were logged, and a log without them is biased",
            "log all events, or keep only those with pdrop 0",
        )


def _rows(values: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    """The values as rows."""
    action, index = (pl.col(key).cast(pl.Int64, strict=False) for key in ACTION_KEYS)
    label = pl.coalesce(action, index + 1)
    unread = [
        pl.col(key).is_not_null() & place.is_null()
        for key, place in zip(ACTION_KEYS, (action, index), strict=True)
    ]
    refused = pl.any_horizontal(
        *unread, action != index + 1, label < 1, pl.col("_skipLearn") == "true"
    )
    roles = {
        ACTION: pl.when(~refused.fill_null(value=False)).then(label).cast(pl.String),
        REWARD: reward_of_cost(pl.col("_label_cost")),
        PROPENSITY: pl.col("_label_probability"),
        TIME: pl.col(TIME),
        ELIGIBLE: pl.col(ELIGIBLE),
    }
    contexts = [CONTEXT + name for name in columns.context]
    return values.select(*select_roles(columns, roles), *contexts)
