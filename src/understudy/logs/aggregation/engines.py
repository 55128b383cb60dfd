"""Engines open the files of a log as a native, lazy frame.

Text files are read as text, so that no engine guesses the type of a column. The rules of
`rules` decide on all engines which rows are valid.
"""

from __future__ import annotations

import contextlib
import glob
import importlib
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from understudy.constraints import one_of
from understudy.errors import InvalidArgument, InvalidLog, MissingExtra, UnderstudyError
from understudy.logs.readers.files import FileSource
from understudy.logs.readers.inputs import check_arrow, scan_arrow, sources_name
from understudy.logs.readers.text_tables import csv_header
from understudy.logs.schema import ACTION, Columns

IMPLEMENTATIONS = (
    nw.Implementation.POLARS,
    nw.Implementation.DUCKDB,
    nw.Implementation.DASK,
    nw.Implementation.PYSPARK,
)
CSV, PARQUET, NDJSON, ARROW = "csv", "parquet", "ndjson", "arrow"
EXTRAS = {
    "duckdb": ("duckdb", "logs"),
    "dask": ("dask.dataframe", "dask"),
    "pyspark": ("pyspark", "spark"),
}
LONGEST = 200  # of what an engine says
HOLLOW = "An error occurred while calling"  # says nothing yet: the next line does
HADOOP_MAGIC = re.compile(r"[\\*?\[\]{}]")
LEAVE_OUT = "leave out --engine, which reads it with Polars"
SPARK = {
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


@contextlib.contextmanager
def open_frame(
    engine: str,
    sources: Sequence[FileSource],
    columns: Columns,
) -> Iterator[Any]:
    """The columns of files of one format as one native frame, for as long as the context lasts.

    An error of the engine about the files becomes an `InvalidLog` of one line. A Spark session is
    started for the context if none is active.
    """
    opener = OPENERS[ENGINE("engine", engine)]
    paths, first = [os.fspath(source.path) for source in sources], _one_format(engine, sources)
    if engine in EXTRAS:
        _require(engine, *EXTRAS[engine])
    where = sources_name(sources)
    with _as_invalid_log(engine, where), _without_warnings(engine), contextlib.ExitStack() as stack:
        if first.format == CSV:
            for source in sources:
                csv_header(source, columns)
        if first.format == ARROW and engine != "polars":
            for source in sources:
                check_arrow(source.path)
        frame = opener(stack, paths, first)
        whole = lazy(frame)
        columns.require(list(whole.collect_schema()), where)
        yield whole.select(nw.col(columns.names())).to_native()


def lazy(frame: Any) -> nw.LazyFrame[Any]:
    """A native frame of any engine as a lazy one; a frame in memory goes to Polars."""
    try:
        wrapped = nw.from_native(frame)
    except TypeError:
        wrapped = None
    if isinstance(wrapped, nw.DataFrame):
        return lazy(wrapped.to_polars().lazy())
    if wrapped is None or wrapped.implementation not in IMPLEMENTATIONS:
        reason = "it is no frame of an engine that is known here"
        remedy = "pass one of Polars, DuckDB, Dask, PySpark, pandas or PyArrow"
        raise InvalidArgument("frame", frame, reason, remedy)
    lazily: nw.LazyFrame[Any] = wrapped
    return lazily


def alike(frame: nw.LazyFrame[Any], table: pl.DataFrame) -> nw.LazyFrame[Any]:
    """A small table as a lazy frame of the same engine, so that the two can be joined."""
    native, engine = frame.to_native(), frame.implementation
    made: Any
    if engine.is_polars():
        made = table.lazy()
    elif engine.is_duckdb():
        small = table.to_arrow()  # noqa: F841 - found by its name, in the connection of the frame
        made = native.query("log", "SELECT * FROM small")
    elif engine.is_dask():
        dataframe: Any = importlib.import_module("dask.dataframe")
        pandas = table.to_pandas().astype({ACTION: native.dtypes[ACTION]})
        made = dataframe.from_pandas(pandas, npartitions=1)
    else:
        made = native.sparkSession.createDataFrame(table.to_arrow())
    return lazy(made)


def _one_format(engine: str, sources: Sequence[FileSource]) -> FileSource:
    """One of the files; the others are written like it."""
    readable = (CSV, PARQUET, NDJSON) if engine == "pyspark" else (CSV, PARQUET, NDJSON, ARROW)
    for source in sources:
        if source.format not in readable:
            formats = ", ".join(readable)
            raise InvalidLog("log", source.name, f"{engine} reads {formats} here", LEAVE_OUT)
    if len({(source.format, source.separator) for source in sources}) != 1:
        kinds = sorted({source.path.suffix for source in sources})
        raise InvalidArgument(
            "sources", kinds, "an engine reads files of one format at a time", "pass these alone"
        )
    return sources[0]


def _require(engine: str, module: str, extra: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"the engine {engine} is not installed; type pip install 'understudy[{extra}]'"
        ) from error
    java = os.environ.get("JAVA_HOME")
    if (
        engine == "pyspark"
        and not (java and Path(java, "bin").is_dir())
        and not shutil.which("java")
    ):
        raise MissingExtra(
            "the engine pyspark needs Java 17 or newer, and there is none; install one, such as "
            "openjdk-17-jre-headless, set JAVA_HOME if it is elsewhere, or leave out --engine"
        )


@contextlib.contextmanager
def _as_invalid_log(engine: str, where: str) -> Iterator[None]:
    """Turn the errors of an engine about files into an `InvalidLog` of one line."""
    try:
        yield
    except UnderstudyError:
        raise
    except FileNotFoundError as error:
        raise InvalidLog("log", where, "there is no such file", "name one that exists") from error
    except _errors_of(engine) as error:
        said = [line.strip(" :") for line in str(error).splitlines()]
        causes = [line for line in said if line.startswith("Caused by")]
        words = next(
            (line for line in (*causes[-1:], *said) if line and not line.startswith(HOLLOW)),
            repr(error),
        )
        remedy = "correct the file" if engine == "polars" else f"correct the file, or {LEAVE_OUT}"
        reason = f"{engine} cannot read it: {words[:LONGEST]}"
        raise InvalidLog("log", where, reason, remedy) from error


def _errors_of(engine: str) -> tuple[type[BaseException], ...]:
    """The errors that an engine raises for files that it cannot read."""
    common = (
        OSError,
        UnicodeDecodeError,
        nw.exceptions.NarwhalsError,
        pa.ArrowException,
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
    )
    if engine == "duckdb":
        return (*common, importlib.import_module("duckdb").Error)
    if engine == "pyspark":
        java = importlib.import_module("py4j.protocol").Py4JError
        return (*common, java, importlib.import_module("pyspark.errors").PySparkException)
    return common


@contextlib.contextmanager
def _without_warnings(engine: str) -> Iterator[None]:
    """Silence the warnings of engines about each other's versions."""
    modules = {"dask": "dask", "pyspark": "pyspark"}
    with warnings.catch_warnings():
        if engine in modules:
            for category in (DeprecationWarning, FutureWarning):
                warnings.filterwarnings("ignore", category=category, module=modules[engine])
        yield


def _open_polars(stack: contextlib.ExitStack, paths: list[str], first: FileSource) -> Any:  # noqa: ARG001 - nothing to close
    if first.format == CSV:
        return pl.scan_csv(paths, infer_schema=False, separator=first.separator, glob=False)
    if first.format == NDJSON:
        return pl.scan_ndjson(_as_globs(paths), infer_schema_length=None)
    if first.format == PARQUET:
        return pl.scan_parquet(paths, glob=False)
    return pl.concat([scan_arrow(Path(path)) for path in paths])


def _as_globs(paths: Sequence[str]) -> list[str]:
    """Patterns that match these files alone, for engines that take every name for a pattern."""
    return [glob.escape(path) for path in paths]


def _open_duckdb(stack: contextlib.ExitStack, paths: list[str], first: FileSource) -> Any:
    duckdb: Any = importlib.import_module("duckdb")
    connection = stack.enter_context(duckdb.connect())
    if first.format == CSV:
        quotes = {"quotechar": '"', "escapechar": '"'}
        return connection.read_csv(
            _as_globs(paths), header=True, sep=first.separator, all_varchar=True, **quotes
        )
    if first.format == NDJSON:
        return connection.read_json(_as_globs(paths), format="newline_delimited", sample_size=-1)
    if first.format == PARQUET:
        return connection.read_parquet(_as_globs(paths))
    dataset: Any = importlib.import_module("pyarrow.dataset")  # not above: it imports pandas
    return connection.from_arrow(dataset.dataset(paths, format="ipc"))


def _open_dask(stack: contextlib.ExitStack, paths: list[str], first: FileSource) -> Any:  # noqa: ARG001 - nothing to close
    dataframe: Any = importlib.import_module("dask.dataframe")
    if first.format == PARQUET:
        return dataframe.read_parquet(_as_globs(paths), dtype_backend="pyarrow")
    return dataframe.from_map(_as_pandas, paths, first=first)


def _as_pandas(path: str, first: FileSource) -> Any:
    """One file as one part of a Dask frame: so that a line break in a field does no harm."""
    if first.format == CSV:
        parsing = pyarrow.csv.ParseOptions(delimiter=first.separator, newlines_in_values=True)
        with pyarrow.csv.open_csv(path, parse_options=parsing) as reader:
            names = reader.schema.names
        table = pyarrow.csv.read_csv(
            path,
            parse_options=parsing,
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    elif first.format == NDJSON:
        table = pyarrow.json.read_json(path)
    else:
        oldest = pl.CompatLevel.oldest()  # newer texts pandas cannot cut
        table = scan_arrow(Path(path)).collect().to_arrow(compat_level=oldest)
    return table.to_pandas(types_mapper=importlib.import_module("pandas").ArrowDtype)


def _open_spark(stack: contextlib.ExitStack, paths: list[str], first: FileSource) -> Any:
    session = stack.enter_context(_spark_session())
    paths = [HADOOP_MAGIC.sub(r"\\\g<0>", path) for path in paths]
    if first.format == CSV:
        reader = session.read.option("columnPruning", False)  # or lines would be read in part
        how = {"sep": first.separator, "header": True, "escape": '"', "multiLine": True}
        return reader.csv(paths, mode="FAILFAST", **how)
    if first.format == NDJSON:
        return session.read.json(paths, mode="FAILFAST")
    return session.read.parquet(*paths)


@contextlib.contextmanager
def _spark_session() -> Iterator[Any]:
    """The active session, or a small one of this machine that ends here."""
    sql: Any = importlib.import_module("pyspark.sql")
    if (active := sql.SparkSession.getActiveSession()) is not None:
        yield active
        return
    builder = sql.SparkSession.builder.master("local[*]").appName("understudy")
    with _without_stderr():  # which a new JVM would write to for as long as it runs
        session = builder.config(map=SPARK).getOrCreate()
    try:
        yield session
    finally:
        session.stop()


@contextlib.contextmanager
def _without_stderr() -> Iterator[None]:
    sys.stderr.flush()
    stderr = os.dup(2)
    try:
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)


OPENERS: dict[str, Callable[[contextlib.ExitStack, list[str], FileSource], Any]] = {
    "polars": _open_polars,
    "duckdb": _open_duckdb,
    "dask": _open_dask,
    "pyspark": _open_spark,
}
ENGINES = tuple(OPENERS)
ENGINE = one_of("pass one of these, or leave it out for Polars", *ENGINES)
