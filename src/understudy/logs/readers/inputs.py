"""The sources of a log, and the reader of their rows: one interface for all formats.

Tables (CSV, Parquet, NDJSON, Arrow) are read here, through Polars, a batch of rows at a time.
Values of text formats stay text: validation makes numbers of them, so that a value that is no
number costs one row and not the file.
"""

from __future__ import annotations

import csv
import functools
import operator
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import unquote

import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from understudy.errors import first_line
from understudy.logs.outputs import ProgressCallback
from understudy.logs.readers import vowpal
from understudy.logs.readers.files import BATCH, FileSource, invalid_file, unreadable
from understudy.logs.readers.leaves import (
    Keys,
    has_leaf,
    is_named,
    json_leaves,
    leaf,
    leaf_name,
    struct_leaves,
)
from understudy.logs.readers.sorting import TimeParser, in_order, numbers, time_parser, write_sorted
from understudy.logs.readers.text_tables import (
    BrokenFile,
    csv_header,
    json_keys,
    lazy_frame,
    scan_csv,
    scan_ndjson,
    wrong_line,
)
from understudy.logs.readers.units import UnitRows
from understudy.logs.schema import (
    ACTION,
    CONTEXT,
    PROPENSITY,
    REWARD,
    ROW,
    ROW_HASH,
    SEGMENT,
    TARGET,
    TIME,
    VALUE_HASH,
    VECTOR,
    Columns,
)

Hashed = Literal["some", "every"]  # columns that the hash of a row is made of
PEEKED = 2_000  # rows that show which column has the most different values
PREFETCHED = 4  # batches that wait: enough to smooth out slow ones, a few MB of memory
Item = TypeVar("Item")
CODES = (pl.Categorical, pl.Enum)  # which differ from file to file
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # Hive's name for null
READ_ERRORS = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    pa.ArrowException,
    OSError,
    EOFError,
    BrokenFile,
    csv.Error,
    zlib.error,
)


@dataclass(frozen=True, eq=False)
class FrameSource:
    """A log that is a frame in memory."""

    frame: pl.DataFrame
    name: str = "frame"

    def fingerprint(self) -> str:
        """A hash of its rows in any order."""
        return f"{int(self.frame.hash_rows().sum() or 0):016x}"


LogSource = FileSource | FrameSource


@dataclass(frozen=True)
class LogReader:
    """A reader of the rows of all sources, as they come or, after `in_time_order`, by time.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "log.csv")
    ...     _ = path.write_text("action,reward,propensity\\na,1,0.5\\n", encoding="utf-8")
    ...     reader = LogReader([FileSource(path, "csv")], Columns())
    ...     [frame.rows() for _, frame in reader.batches()]
    [[(1, 'a', '1', '0.5')]]

    `parse_times` reads the column of times. `sorted_file` holds all rows by time, with times
    that are parsed, if those of the sources are in another order. If rows are `compared`, batches
    can have the hashes of rows, and if they are `examined`, those of single values. `units` holds
    the rows of all units, one of each, if rows have units.
    """

    sources: Sequence[LogSource]
    columns: Columns
    parse_times: TimeParser | None = None
    sorted_file: Path | None = None
    compared: bool = False
    examined: bool = False
    units: UnitRows | None = None

    def batches(
        self, *, hashed: Hashed | None = None, values: bool = False
    ) -> Iterator[tuple[str, pl.DataFrame]]:
        """Batches of rows in order, each with the name of its source.

        The name is empty if rows of several sources are mixed; a column `file` then names them.
        Times are numbers once `in_time_order` was called, null where they cannot be parsed. If
        `hashed` says of which columns, there is the hash of each row; that of every column comes
        alone. With `values` there is the hash of the value in each column that may be sticky, 0
        where it is missing.
        """
        if self.units is not None:
            for name, frame in self.units.batches():
                yield name, frame if values else frame.drop(pl.selectors.starts_with(VALUE_HASH))
            return
        if self.sorted_file is not None:
            with pq.ParquetFile(self.sorted_file) as file:
                shown = [
                    name
                    for name in file.schema_arrow.names
                    if (hashed or name != ROW_HASH) and (values or not name.startswith(VALUE_HASH))
                ]
                for batch in file.iter_batches(BATCH, columns=shown):
                    yield "", pl.DataFrame(batch)
            return
        for source in self.sources:
            for frame in _batches(source, self.columns, hashed, values=values):
                if self.parse_times is None:
                    yield source.name, frame
                else:
                    yield source.name, frame.with_columns(self.parse_times(frame[TIME]).alias(TIME))

    def hashes(self) -> Iterator[pl.Series]:
        """The hashes of every column of all rows, in the order of the sources."""
        for _, frame in replace(self, parse_times=None, sorted_file=None).batches(hashed="every"):
            yield frame[ROW_HASH]

    def in_time_order(self, folder: Path, watch: ProgressCallback) -> LogReader:
        """The reader of the same rows by time; rows out of order are sorted in a folder."""
        if self.columns.time is None:
            return self
        parse: TimeParser | None = None
        previous: Any = None
        for _, frame in self.batches():
            watch("checking the order", len(frame), None)
            parse = parse or time_parser(frame[TIME])
            if parse is None:
                continue
            times = parse(frame[TIME])
            if not in_order(previous, times):
                path = folder / "sorted.parquet"
                hashed: Hashed | None = "some" if self.compared else None
                rows = self.batches(hashed=hashed, values=self.examined)
                write_sorted(rows, parse, path, watch)
                return replace(self, sorted_file=path)
            previous = times.max() if times.null_count() < len(times) else previous
        return replace(self, parse_times=parse or numbers)

    def by_unit(self, **how: Any) -> LogReader:
        """The reader of one row for each unit; `UnitRows.collect` says how."""
        rows = self.batches(values=self.examined)
        return replace(self, units=UnitRows.collect(rows, **how))


def prefetch(items: Iterator[Item]) -> Iterator[Item]:
    """The same items in the same order, made in advance by another thread.

    So one thread reads and validates batches while another learns from them. An error of the other
    thread is raised here.
    """

    def next_one() -> list[Item]:
        return list(islice(items, 1))  # none at the end

    with ThreadPoolExecutor(1, thread_name_prefix="understudy-reader") as pool:
        waiting = deque(pool.submit(next_one) for _ in range(PREFETCHED))
        while item := waiting.popleft().result():
            waiting.append(pool.submit(next_one))
            yield item[0]


def sources_name(sources: Sequence[LogSource]) -> str:
    """The name of all sources together, for an error."""
    more = f" and {len(sources) - 1} more" if len(sources) > 1 else ""
    return sources[0].name + more


def has_propensities(source: LogSource, columns: Columns) -> bool:
    """Whether a source has the column of propensities; Vowpal Wabbit's formats always do."""
    if isinstance(source, FrameSource):
        return columns.propensity in source.frame.columns
    if source.format in {"vw", "dsjson"}:
        return True
    with _one_error(source):
        return columns.propensity in _open(source, columns)[1]


def with_vectors_of(sources: Sequence[LogSource], columns: Columns) -> Columns:
    """The columns to read, with propensity vectors if every source is dsjson that has them.

    Logs of other formats have them in a column, which must be named.
    """
    if columns.propensity is None or columns.propensity_vector is not None:
        return columns
    for source in sources:
        if not (isinstance(source, FileSource) and source.format == "dsjson"):
            return columns
        if not vowpal.has_vectors(source.path):
            return columns
    return replace(columns, propensity_vector=vowpal.VECTOR_KEYS[1])


def count_rows(sources: Sequence[LogSource], columns: Columns) -> dict[str, int]:
    """The number of rows by source; most formats store it, so that no row is read."""
    return {
        source.name: source.frame.height
        if isinstance(source, FrameSource)
        else int(_scan(source, columns).select(pl.len()).collect().item())
        for source in sources
    }


def _batches(
    source: LogSource, columns: Columns, hashed: Hashed | None, *, values: bool
) -> Iterator[pl.DataFrame]:
    """The rows of a source, with the hash of each if they are `hashed`, and of their `values`."""
    if isinstance(source, FrameSource):
        leaves = _struct_leaves(source.frame.schema, columns, values=values)
        frame = source.frame.with_columns(**leaves)
        columns.require(frame.columns, source.name)
        rows = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).alias(ROW)
        selected = _selection(frame.lazy(), columns, hashed, values=values)
        return frame.select(rows, *selected).iter_slices(BATCH)
    if source.format not in {"vw", "dsjson"}:
        return _read_table(source, columns, hashed, values=values)
    if source.format == "vw":
        frames = vowpal.read_text(source.path, columns)
    else:
        examined = vowpal.examined_leaves(source.path, columns) if values else ()
        frames = vowpal.read_dsjson(source.path, columns, examined)
    if hashed is None and not values:
        return frames
    left_out = (ROW, VECTOR)  # a vector is two lists, and to hash them takes long
    return (
        frame.with_columns(_hashes(frame.drop(*left_out, strict=False), hashed, values=values))
        for frame in frames
    )


def _hashes(frame: pl.DataFrame, hashed: Hashed | None, *, values: bool) -> list[pl.Expr]:
    """The hashes of a frame that has the columns in use, and perhaps the values to examine."""
    own = {name: kind for name, kind in frame.schema.items() if not name.startswith(VALUE_HASH)}
    found = [] if hashed is None else [_hash(own)]
    if values:
        prefix = VALUE_HASH if len(own) < len(frame.schema) else CONTEXT
        examined = {name: kind for name, kind in frame.schema.items() if name.startswith(prefix)}
        found += _value_hashes(examined, prefix)
    return found


def _selection(
    frame: pl.LazyFrame, columns: Columns, hashed: Hashed | None, *, values: bool = False
) -> list[pl.Expr]:
    """The columns in use, and a hash of some columns; or the hash of every column alone.

    Some columns are those in use, and the one with the most different values. If that differs in
    most rows, it and the actions are enough, and cost less.
    """
    selected = list(columns.selection())
    if hashed is None and not values:
        return selected
    schema = {name: kind for name, kind in frame.collect_schema().items() if kind != pl.Object}
    if values:
        # A column that is not read follows from the action all the same by these names.
        known = {ACTION, REWARD, PROPENSITY, TARGET}
        before = (CONTEXT, SEGMENT, TIME)  # known before the action: each may be a unit
        known |= {name for role, name in columns.roles() if not role.startswith(before)}
        examined = {n: k for n, k in schema.items() if n not in known and k != pl.Struct}
        selected += _value_hashes(examined)  # a struct is no unit; its leaves are columns here
    if hashed is None:
        return selected
    if hashed == "every":
        return [_hash(schema)]
    used = [name for name in columns.names() if name in schema]
    others = [name for name in schema if name not in used]
    flat = [name for name in (*used, *others) if not schema[name].is_nested()]
    if others and flat:
        peeked = frame.select(flat).head(PEEKED).collect()
        different = {name: peeked[name].n_unique() for name in flat}
        most = max(flat, key=different.__getitem__)  # the first of equals is in use, and is read
        used = [*([columns.action] if 2 * different[most] > len(peeked) else used), most]
    return [*selected, _hash({name: schema[name] for name in used})]


def _hash(schema: Mapping[str, pl.DataType]) -> pl.Expr:
    """The hash of some columns: a sum, as a hash of structures takes six times as long."""
    parts = [
        (pl.col(name).cast(pl.String) if dtype in CODES else pl.col(name)).hash(seed)
        for seed, (name, dtype) in enumerate(sorted(schema.items(), key=itemgetter(0)))
    ]
    return functools.reduce(operator.add, parts).alias(ROW_HASH)


def _value_hashes(schema: Mapping[str, pl.DataType], prefix: str = "") -> list[pl.Expr]:
    """The hash of the value in each column, by the name that the log has for it; 0 if missing."""
    return [
        pl.when(pl.col(name).is_not_null())
        .then((pl.col(name).cast(pl.String) if dtype in CODES else pl.col(name)).hash())
        .otherwise(0)
        .alias(VALUE_HASH + name.removeprefix(prefix))
        for name, dtype in schema.items()
    ]


# --------------------------------------------------------------------------------------- tables


def _read_table(
    source: FileSource, columns: Columns, hashed: Hashed | None, *, values: bool
) -> Iterator[pl.DataFrame]:
    """The rows of a file in their order, numbered from 1, under the column names of `schema`."""
    first = 1
    with _one_error(source):
        frame = _scan(source, columns, hashed, values=values)
        for batch in frame.collect_batches(chunk_size=BATCH, maintain_order=True):
            rows = pl.int_range(first, first + batch.height, dtype=pl.Int64, eager=True)
            yield batch.insert_column(0, rows.alias(ROW))
            first += batch.height
        if source.format == "parquet" and first - 1 != pq.read_metadata(source.path).num_rows:
            raise BrokenFile("a page is damaged")  # a reader that fails in its thread may just end


def _scan(
    source: FileSource, columns: Columns, hashed: Hashed | None = None, *, values: bool = False
) -> pl.LazyFrame:
    """The columns of a file that are read, as a lazy frame."""
    with _one_error(source):
        frame, names = _open(source, columns, every=hashed is not None or values, leaves=values)
        columns.require(names, source.name)
        return frame.select(*_selection(frame, columns, hashed, values=values))


def scan_arrow(path: Path) -> pl.LazyFrame:
    """The rows of an Arrow file, read and checked by PyArrow.

    Polars would write a page to standard error for each fault of a damaged file.
    """
    return lazy_frame(lambda columns: _arrow_batches(path, columns), _arrow_schema(path))


def check_arrow(path: Path) -> None:
    """Read a whole Arrow file and check it: another engine would crash on a damaged one."""
    deque(_arrow_batches(path, None), maxlen=0)


def _open(
    source: FileSource, columns: Columns, *, every: bool = False, leaves: bool = False
) -> tuple[pl.LazyFrame, list[str]]:
    """A file as a lazy frame, and its columns, to which the names of its folders may add.

    Of NDJSON only the columns in use are read, unless `every` column may be asked for. The unit may
    be a leaf of a nested column; if `leaves` are wanted, they are columns as well.
    """
    names: list[str] | None = None
    nested: dict[str, pl.Expr] = {}
    if source.format == "csv":
        names = csv_header(source, columns)
        frame = scan_csv(source)
    elif source.format == "ndjson":
        names = json_keys(source, columns)
        nested = _json_leaves(source, names, columns, values=leaves)
        used = [n.partition(".")[0] if n in nested else n for n in columns.names()]
        frame = scan_ndjson(source, [*used, *(names if every else ())])
    elif source.format == "arrow":
        frame = scan_arrow(source.path)
    else:
        roots = [name.partition(".")[0] for name in columns.names()]
        _check_pages(source, None if every else roots)
        frame = pl.scan_parquet(source.path, glob=False)
    if source.format in {"arrow", "parquet"}:
        nested = _struct_leaves(frame.collect_schema(), columns, values=leaves)
    names = frame.collect_schema().names() if names is None else names
    added = {name: value for name, value in _partition(source).items() if name not in names}
    return frame.with_columns(**added, **nested), [*names, *added, *nested]


def _struct_leaves(
    schema: Mapping[str, pl.DataType], columns: Columns, *, values: bool
) -> dict[str, pl.Expr]:
    """The leaves of columns that are structs, by name: those to examine, and the unit."""
    structs = {name: kind for name, kind in schema.items() if isinstance(kind, pl.Struct)}
    if not structs:
        return {}
    found = struct_leaves(structs) if values else []
    own = () if columns.unit is None else tuple(columns.unit.split("."))
    if own and own[0] in structs and has_leaf(own, structs[own[0]]):
        found = [*found, own]
    return _named({keys: leaf(keys, structs[keys[0]]) for keys in found}, schema, columns)


def _json_leaves(
    source: FileSource, names: Sequence[str], columns: Columns, *, values: bool
) -> dict[str, pl.Expr]:
    """The leaves of columns of NDJSON that are objects: those to examine, and the unit."""
    found = [keys for keys in json_leaves(source.path) if len(keys) > 1] if values else []
    own = () if columns.unit is None else tuple(columns.unit.split("."))
    if own and own[0] in names and is_named(own):
        found = [*found, own]
    return _named({keys: leaf(keys, pl.String()) for keys in found}, names, columns)


def _named(
    leaves: Mapping[Keys, pl.Expr], names: Iterable[str], columns: Columns
) -> dict[str, pl.Expr]:
    """The leaves by name, but for those of columns in use, and those that a column is named as."""
    taken, used = set(names), {name for name in columns.names() if name != columns.unit}
    named = {leaf_name(keys): (keys, expression) for keys, expression in leaves.items()}
    return {
        name: expression
        for name, (keys, expression) in named.items()
        if name not in taken and keys[0] not in used
    }


def _partition(source: FileSource) -> dict[str, pl.Expr]:
    """Columns in the names of folders, as Hive writes them: day=2026-01-31."""
    pairs = (folder.partition("=") for folder in source.path.parent.parts)
    values = {unquote(name): unquote(value) for name, sign, value in pairs if sign and name}
    return {
        name: pl.lit(None if value == NO_PARTITION else value, pl.String)
        for name, value in values.items()
    }


def _check_pages(source: FileSource, names: Sequence[str] | None) -> None:
    """Raise `InvalidLog` if pages of Parquet lie outside of the file: Polars does not check."""
    size, metadata = source.path.stat().st_size, pq.read_metadata(source.path)
    read = [
        number
        for number in range(metadata.num_columns)
        if names is None or metadata.schema.column(number).path.partition(".")[0] in names
    ]
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, read):
            first = chunk.dictionary_page_offset or chunk.data_page_offset
            if not 0 <= first <= first + chunk.total_compressed_size <= size:
                raise invalid_file(source.path, "a part of it is missing", "write the file again")


def _arrow_batches(path: Path, columns: list[str] | None) -> Iterator[pl.DataFrame]:
    names = _arrow_schema(path).names()
    fields = None if columns is None else sorted(names.index(name) for name in columns)
    options = pyarrow.ipc.IpcReadOptions(included_fields=fields)
    with pa.OSFile(str(path)) as file, pyarrow.ipc.open_file(file, options=options) as reader:
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            batch.validate(full=True)
            yield pl.DataFrame(batch)


def _arrow_schema(path: Path) -> pl.Schema:
    with pa.OSFile(str(path)) as file, pyarrow.ipc.open_file(file) as reader:
        return pl.DataFrame(reader.schema.empty_table()).schema


@contextmanager
def _one_error(source: FileSource) -> Iterator[None]:
    """Turn every error that a reader raises about a file into an `InvalidLog` that names it."""
    try:
        yield
    except UnicodeError:
        remedy = "save it as UTF-8, or as Parquet"
        raise invalid_file(source.path, "it is not UTF-8 text", remedy) from None
    except READ_ERRORS as error:
        if isinstance(error, OSError) and not source.path.is_file():
            raise unreadable(source.path, error) from None
        reason = f"it is truncated, corrupt, or not what its name says ({_diagnose(source, error)})"
        raise invalid_file(source.path, reason, "write the file again, or leave it out") from None


def _diagnose(source: FileSource, error: BaseException) -> str:
    """The wrong line, or else the message of the reader."""
    with suppress(UnicodeError, *READ_ERRORS):
        if wrong := wrong_line(source):
            return wrong
    return first_line(error)
