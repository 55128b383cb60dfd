"""Vowpal Wabbit's logs of contextual bandits: its text, in both of its forms, and dsjson.

Text, one line an event (`--cb`): `2:0.5:0.4 | a b:3` says action:cost:probability and features;
`1 2:0.5:0.4 3 | a b:3` also names the other actions that were available.

Text, several lines an event (`--cb_adf`): a line `shared | a b:3` that is optional, then one line
per action, of which one carries `0:cost:probability`, then a blank line. The label of an action is
its place among these lines, from 1; as in Vowpal Wabbit, the action in `0:cost:probability` is
ignored.

Labels are read as Vowpal Wabbit reads them: a word that touches the bar or starts with a quote is a
tag (so `2:0.5:0.4| a` has no label), text before a tab is skipped, and there are neither weights
nor comments. Where Vowpal Wabbit warns, or reads 0 for text that is no number, the row here has no
action, or keeps the text, and validation refuses it.

dsjson, one JSON object a line, as decision services log it: the reward is −`_label_cost`, the
propensity `_label_probability`. The propensities of all actions are `p`, in the order of the
actions `a`. The action is `_label_Action`, its place from 1 in the list
`_multi` of actions, or else `_labelIndex` + 1. A row has no action, so that validation refuses it,
if the two disagree, if `_skipLearn` is true, if the line is no JSON, or if there is no label:
events of several slots, with labels in `_outcomes`, are not supported. `pdrop` is the share of
events that were dropped before they were logged. Nothing here reweights events, so a file with a
`pdrop` other than 0 is refused.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from understudy.errors import first_line
from understudy.logs.readers.files import (
    LINE,
    LONGEST_LINE,
    invalid_file,
    open_bytes,
    read_lines,
)
from understudy.logs.readers.leaves import Keys, json_leaves, leaf_name
from understudy.logs.readers.propensity_vectors import pair
from understudy.logs.schema import (
    ACTION,
    CONTEXT,
    ELIGIBLE,
    ID,
    METRIC,
    NO_VECTORS,
    PROPENSITY,
    REWARD,
    ROW,
    SEGMENT,
    TIME,
    UNIT,
    VALUE_HASH,
    VECTOR,
    Columns,
)

if TYPE_CHECKING:
    import duckdb

# Text
COST, PROBABILITY, LISTED, SHARED = "cost", "probability", "listed", "shared"
WORDS, COSTS, WRONG, EVENT = "words", "costs", "wrong", "event"
MOST_LINES = 1 << 20  # of an event: more is a file without blank lines

# A line whose label is one word, which is common and read fast; the groups are columns.
PLAIN = r"^ *(?<action>[^ :|\t']+):(?<cost>[^ :|\t]+):(?<probability>[^ :|\t]+) +\|"
BEFORE_TAB = r"^[^\t]*\t"
LAST_TAG = r"(?:(?:^| )'[^ ]* *|[^ ]+)$"
# dsjson
ACTION_KEYS = ("_label_Action", "_labelIndex")
KEYS = (*ACTION_KEYS, "_label_cost", "_label_probability", "_skipLearn", "pdrop")
NESTED = ("OBJECT", "ARRAY")
VECTOR_KEYS = ("a", "p")  # the actions, the chosen one first, and their propensities
LINES_PEEKED = 100  # that show whether events have propensities of all actions


def read_text(path: Path, columns: Columns) -> Iterator[pl.DataFrame]:
    """Read frames of rows; the reward is −cost, and the number of a row is the line of its label.

    `columns.context` names features: `name` in any namespace, or `namespace^name`. A feature
    without a value is 1, an absent one 0. An event of several lines has the features of its shared
    line. There is a column `eligible` if `columns.eligible` is not None.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "log.vw")
    ...     _ = path.write_text("2:0.5:0.4 | age:30 new\\n1 3:-1:0.2 | age:20\\n")
    ...     [frame.rows() for frame in read_text(path, Columns(context=("age", "new")))]
    [[(1, '2', '-0.5', '0.4', '30', '1'), (2, '3', '1', '0.2', '20', '0')]]
    """
    if columns.propensity_vector is not None:
        reason = "Vowpal Wabbit's text has the propensity of one action only"
        raise invalid_file(path, reason, f"pass --propensity-vector {NO_VECTORS}")
    _refuse_column_names(columns, path)
    if columns.time is not None:
        reason = f"Vowpal Wabbit's text has no times, so no column {columns.time!r}"
        raise invalid_file(path, reason, "leave out --time: its events are in order")
    if columns.id is not None:
        reason = f"Vowpal Wabbit's text has no ids, so no column {columns.id!r}"
        raise invalid_file(path, reason, "leave out --id")
    if columns.unit is not None:
        reason = f"Vowpal Wabbit's text has no units, so no column {columns.unit!r}"
        remedy = "write its events as a table, such as CSV or Parquet, with a column of units"
        raise invalid_file(path, reason, remedy)
    if columns.metrics:
        reason = f"Vowpal Wabbit's text has one reward, so no column {columns.metrics[0]!r}"
        remedy = "write its events as a table, such as CSV or Parquet, with a column of the metric"
        raise invalid_file(path, reason, remedy)
    frames = read_lines(path)
    first = next(frames, None)
    if first is None:
        return
    lines = chain([first], frames)
    several = _has_several_lines_an_event(first, path)
    labels = map(_events, _whole_events(lines, path)) if several else map(_labels, lines)
    for events in labels:
        if len(events):
            yield _text_rows(events, columns)


def _labels(lines: pl.DataFrame) -> pl.DataFrame:
    """The label of each line that is not blank."""
    lines = lines.filter(pl.col(LINE) != "")
    groups = lines.with_columns(pl.col(LINE).str.extract_groups(PLAIN).struct.unnest())
    plain = groups.filter(pl.col(ACTION).is_not_null()).with_columns(
        pl.lit(None, pl.List(pl.String)).alias(LISTED),
        pl.lit(1, pl.UInt32).alias(WORDS),
        pl.lit(1, pl.UInt32).alias(COSTS),
        (pl.col(ACTION) == SHARED).alias(SHARED),
        (pl.col(ACTION) == SHARED).alias(WRONG),
    )
    if len(plain) == len(lines):
        return plain
    others = _other_labels(groups.filter(pl.col(ACTION).is_null()).select(ROW, LINE))
    return pl.concat([plain, others.select(plain.columns)]).sort(ROW)


def _other_labels(lines: pl.DataFrame) -> pl.DataFrame:
    """Labels of any number of words, also of none."""
    label = pl.col(LINE).str.extract(r"^([^|]*)")
    words = label.str.replace(BEFORE_TAB, "").str.replace(LAST_TAG, "").str.split(" ")
    parts = ["word", COST, PROBABILITY, "more"]
    split = (
        lines.select(ROW, words.alias("word"))
        .explode("word")
        .filter(pl.col("word") != "")
        .with_columns(pl.col("word").str.splitn(":", 4).struct.rename_fields(parts).struct.unnest())
    )
    word, costly = pl.col("word"), pl.col(COST).is_not_null()
    is_shared = word == SHARED
    labels = split.group_by(ROW).agg(
        word.alias(LISTED),
        pl.len().alias(WORDS),
        costly.sum().alias(COSTS),
        is_shared.any().alias(SHARED),
        ((word == "") | pl.col("more").is_not_null() | (is_shared & costly)).any().alias(WRONG),
        word.filter(costly).first().alias(ACTION),
        *(pl.col(name).filter(costly).first().replace("", None) for name in (COST, PROBABILITY)),
    )
    none = [pl.col(WORDS, COSTS).fill_null(0), pl.col(SHARED, WRONG).fill_null(value=False)]
    return lines.join(labels, on=ROW, how="left").with_columns(none)


def _has_several_lines_an_event(first: pl.DataFrame, path: Path) -> bool:
    """Whether the first lines of a file show events of several lines; `InvalidLog` if unclear."""
    labels = _with_events(first)
    if labels[SHARED].any():
        return True
    events = labels.group_by(EVENT).agg(pl.col(COSTS).sum(), pl.len().alias("lines"))
    if (events[COSTS] > 1).any():
        return False
    if ((labels[ACTION] == "0") & (labels[COSTS] > 0)).any():
        return True
    unclear = events.filter((pl.col(COSTS) == 1) & (pl.col("lines") > 1))
    if len(unclear) and len(events) > 1:
        raise invalid_file(
            path,
            f"it has {len(unclear)} groups of lines with one label each: these can be "
            "events of several lines, or lines of which some have no label",
            "start each event of several lines with a line 'shared |', or remove blank lines",
        )
    return False


def _with_events(lines: pl.DataFrame) -> pl.DataFrame:
    """The labels of lines, each with the number of its event."""
    numbered = lines.with_columns((pl.col(LINE) == "").cum_sum().alias(EVENT))
    return _labels(lines).join(numbered.select(ROW, EVENT), on=ROW, maintain_order="left")


def _whole_events(frames: Iterable[pl.DataFrame], path: Path) -> Iterator[pl.DataFrame]:
    """The same lines in frames that end with an event."""
    rest = pl.DataFrame()
    for frame in frames:
        lines = pl.concat([rest, frame]) if len(rest) else frame
        blank = (lines[LINE] == "").arg_true()
        end = int(blank[-1]) + 1 if len(blank) else 0
        if end:
            yield lines[:end]
        rest = lines[end:]
        if len(rest) > MOST_LINES:
            raise invalid_file(
                path,
                f"after line {rest[ROW][0]} come more than {MOST_LINES} lines without a blank one",
                "put a blank line after each event",
            )
    if len(rest):
        yield rest


def _events(lines: pl.DataFrame) -> pl.DataFrame:
    """One label per event of several lines."""
    header = pl.col(SHARED) & (pl.col(ROW) == pl.col(ROW).first().over(EVENT))
    lines = (
        _with_events(lines)
        .with_columns(header.alias("header"))
        .with_columns((~pl.col("header")).cum_sum().over(EVENT).alias("place"))
    )
    costly = pl.col(COSTS) > 0
    astray = (pl.col(WORDS) > 1) | (pl.col(SHARED) & ~pl.col("header"))
    return (
        lines.group_by(EVENT, maintain_order=True)
        .agg(
            pl.coalesce(pl.col(ROW).filter(costly).first(), pl.col(ROW).first()),
            pl.col(LINE).filter("header").first().fill_null(""),
            pl.col(COSTS).sum(),
            (pl.col(WRONG) | astray).any(),
            pl.col("place").filter(costly).first().cast(pl.String).alias(ACTION),
            pl.col(COST, PROBABILITY).filter(costly).first(),
            pl.col("place").max().alias(WORDS),
        )
        .with_columns(
            pl.int_ranges(1, pl.col(WORDS).cast(pl.Int64) + 1)
            .cast(pl.List(pl.String))
            .alias(LISTED)
        )
    )


def _text_rows(events: pl.DataFrame, columns: Columns) -> pl.DataFrame:
    """Events as rows; an event has no action unless exactly one word of its label has a cost."""
    clear = ~pl.col(WRONG) & (pl.col(COSTS) == 1)
    action, cost, probability = (
        pl.when(clear).then(pl.col(name)) for name in (ACTION, COST, PROBABILITY)
    )
    values = {
        ACTION: action,
        REWARD: _reward_of_cost(cost),
        PROPENSITY: probability,
        ELIGIBLE: pl.when(clear & (pl.col(WORDS) > 1)).then(pl.col(LISTED)),
    }
    features = {CONTEXT + name: _feature(name) for name in columns.context}
    features |= {SEGMENT + name: _feature(name) for name in columns.segments}
    return _select(events, columns, values | features)


def _feature(name: str) -> pl.Expr:
    """The value of a feature, times the weight of its namespace; 0 if the feature is absent."""
    namespace, choice, own = name.rpartition("^")
    where = pl.escape_regex(namespace) if choice else r"[^ \t|:]*"
    value = r"(?::(?<{}>[^ \t|]*))?"
    pattern = (
        rf"\|{where}{value.format('scale')}[ \t](?:[^|]*?[ \t])?"
        rf"(?<name>{pl.escape_regex(own)}){value.format('value')}(?:[ \t|]|$)"
    )
    groups = pl.col(LINE).str.extract_groups(pattern).struct
    text = groups.field("value").fill_null("1").replace("", None)
    scale, number = (part.cast(pl.Float64, strict=False) for part in (groups.field("scale"), text))
    present = pl.coalesce((scale * number).cast(pl.String), text)
    return pl.when(groups.field("name").is_null()).then(pl.lit("0")).otherwise(present)


def examined_leaves(path: Path, columns: Columns) -> list[str]:
    """The names of values that may be sticky: those of the context `c`, and single ones beside it.

    A key that begins with a line below, such as `_label_cost`, follows from the action.
    """

    def examined(keys: Keys) -> bool:
        return keys[0] == "c" or (len(keys) == 1 and not keys[0].startswith("_"))

    found = map(leaf_name, json_leaves(path, examined))
    used = [f"c.{name}" for name in columns.context] + ([columns.time] if columns.time else [])
    return [
        name for name in dict.fromkeys([*found, *used]) if name not in {columns.unit, columns.id}
    ]


def read_dsjson(
    path: Path, columns: Columns, examined: Sequence[str] = ()
) -> Iterator[pl.DataFrame]:
    """Read frames with one row for each line that is not blank.

    The values that are `examined` come as text, under names that begin as those of their hashes.

    `columns.time` and `columns.id` name keys of the object, such as `Timestamp` and `EventId`, and
    `columns.eligible` one that holds a list of actions, such as `a`. `columns.unit` also names a
    nested value, such as `c.user.name`. `columns.context` names values of the context `c`, with
    `object.name` for a nested one. A value that is absent, a list or an object is null.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "log.dsjson")
    ...     label = '"_label_cost": -1, "_label_probability": 0.8, "_label_Action": 2'
    ...     _ = path.write_text('{%s, "c": {"user": {"age": 30}}}\\n' % label)
    ...     [frame.rows() for frame in read_dsjson(path, Columns(context=("user.age",)))]
    [[(1, '2', '1', '0.8', '30')]]
    """
    import duckdb  # noqa: PLC0415 - most logs are read without it

    _refuse_column_names(columns, path)
    try:
        with duckdb.connect() as connection:
            for lines in read_lines(path):
                written = lines.filter(pl.col(LINE).str.strip_chars() != "")
                if len(written):
                    values = _values(connection, written, columns, examined)
                    _refuse_dropped_events(values, path)
                    yield _dsjson_rows(values, columns, examined)
    except duckdb.Error as error:
        reason = f"DuckDB cannot read its JSON ({first_line(error)})"
        raise invalid_file(path, reason, "check that it is dsjson") from None


def has_vectors(path: Path) -> bool:
    """Whether the first event with a label has a propensity in `p` for each action of `a`.

    Some services log that of the chosen action alone.
    """
    with suppress(OSError, EOFError, zlib.error), open_bytes(path) as file:
        for line in islice(iter(lambda: file.readline(LONGEST_LINE), b""), LINES_PEEKED):
            with suppress(ValueError, RecursionError):
                event = json.loads(line)
                if isinstance(event, dict) and "_label_cost" in event:
                    a, p = (event.get(key) for key in VECTOR_KEYS)
                    return isinstance(a, list) and isinstance(p, list) and len(a) == len(p)
    return False


def _values(
    connection: duckdb.DuckDBPyConnection,
    lines: pl.DataFrame,
    columns: Columns,
    examined: Sequence[str],
) -> pl.DataFrame:
    """The values of each line that are read, as text."""
    single = {CONTEXT + name: _pointer("c", *name.split(".")) for name in columns.context}
    beside = {METRIC: columns.metrics, SEGMENT: columns.segments}
    single |= {
        kind + name: _pointer(*name.split(".")) for kind, names in beside.items() for name in names
    }
    if columns.unit is not None:
        single[UNIT] = _pointer(*columns.unit.split("."))
    single |= {VALUE_HASH + name: _pointer(*name.split(".")) for name in examined}
    places = {key: _pointer(key) for key in KEYS} | single
    if columns.time is not None:
        places[TIME] = _pointer(columns.time)
    if columns.id is not None:
        places[ID] = _pointer(columns.id)
    if columns.propensity_vector is not None:
        places |= {VECTOR + key: _pointer(key) for key in VECTOR_KEYS}
    wanted = {"texts": f"json_extract_string({LINE}, $places)"}
    given: dict[str, object] = {"places": list(places.values())}
    if single:
        wanted["types"] = f"json_type({LINE}, $single)"
        given["single"] = list(single.values())
    if columns.eligible is not None:
        wanted[ELIGIBLE] = f"CAST(json_extract({LINE}, $eligible) AS VARCHAR[])"
        given["eligible"] = _pointer(columns.eligible)
    # TRY gives null for a line that is no JSON, and DuckDB keeps the order of the lines.
    tried = ", ".join(f"TRY({value}) AS {name}" for name, value in wanted.items())
    connection.register("lines", lines)
    query = f"SELECT {ROW}, {tried} FROM lines"
    frame = pl.DataFrame(connection.sql(query, params=given).to_arrow_table())
    texts = [_item("texts", place).alias(name) for place, name in enumerate(places)]
    not_nested = [
        pl.when(~_item("types", place).is_in(NESTED)).then(pl.col(name)).alias(name)
        for place, name in enumerate(single)
    ]
    return frame.with_columns(texts).with_columns(not_nested)


def _item(name: str, place: int) -> pl.Expr:
    return pl.col(name).list.get(place, null_on_oob=True)


def _pointer(*keys: str) -> str:
    """The JSON pointer (RFC 6901) of nested keys."""
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)


def _refuse_dropped_events(values: pl.DataFrame, path: Path) -> None:
    dropping = pl.col("pdrop").cast(pl.Float64, strict=False).fill_null(1.0) != 0.0
    events = values.filter(pl.col("pdrop").is_not_null() & dropping)
    if len(events):
        line, share = events[ROW][0], events["pdrop"][0]
        raise invalid_file(
            path,
            f"line {line} has pdrop {share}: events were dropped before they were logged, and a "
            "log without them is biased",
            "log all events, or keep only those with pdrop 0",
        )


def _dsjson_rows(values: pl.DataFrame, columns: Columns, examined: Sequence[str]) -> pl.DataFrame:
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
        REWARD: _reward_of_cost(pl.col("_label_cost")),
        PROPENSITY: pl.col("_label_probability"),
        TIME: pl.col(TIME),
        ELIGIBLE: pl.col(ELIGIBLE),
        ID: pl.col(ID),
        VECTOR: pair(*(pl.col(VECTOR + key) for key in VECTOR_KEYS)),
        UNIT: pl.col(UNIT),
    }
    several = (CONTEXT, METRIC, SEGMENT)
    others = {name: pl.col(name) for name in values.columns if name.startswith(several)}
    rows = _select(values, columns, roles | others)
    return rows.with_columns(values[VALUE_HASH + name] for name in examined)


def _reward_of_cost(cost: pl.Expr) -> pl.Expr:
    """The reward −cost, both as text; text that is no number stays, so that the row is refused."""
    positive = pl.lit("-") + cost.str.strip_prefix("+")
    reward = pl.when(cost.str.starts_with("-")).then(cost.str.slice(1)).otherwise(positive)
    return pl.when(cost.cast(pl.Float64, strict=False).is_null()).then(cost).otherwise(reward)


def _refuse_column_names(columns: Columns, path: Path) -> None:
    """Raise `InvalidLog` if columns are named that the format itself defines."""
    for role in (ACTION, REWARD, PROPENSITY):
        name = getattr(columns, role)
        if name not in {role, None}:
            raise invalid_file(
                path,
                f"it has no column {name!r}: its format defines where the action, the cost and the "
                "probability are",
                "leave out --action, --reward, --propensity and --preset",
            )
    if columns.propensity_vector not in {VECTOR_KEYS[1], None}:
        reason = f"it has no column {columns.propensity_vector!r}: its propensities are in p"
        remedy = f"pass --propensity-vector p, or {NO_VECTORS}"
        raise invalid_file(path, reason, remedy)


def _select(frame: pl.DataFrame, columns: Columns, values: Mapping[str, pl.Expr]) -> pl.DataFrame:
    """Select the row number and the values of the roles that the columns name."""
    read = [role for role, _ in columns.roles() if role in values]
    return frame.select(ROW, *(values[role].alias(role) for role in read))
