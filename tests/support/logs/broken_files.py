"""Files that are no logs, each with the words that must say so."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from tests.support.logs.log_files import make_rows

__all__ = ["BROKEN", "HEADER", "TEXT", "WRONG_TYPES", "as_bytes"]

ROWS = make_rows(40)
HEADER = "action,reward,propensity\n"
TEXT = ROWS.write_csv()
LINES = ROWS.write_ndjson()
PACKED = gzip.compress(TEXT.encode(), mtime=0)
EVENT = {"_label_cost": -1.0, "_label_probability": 0.5, "_label_Action": 1}


def as_bytes(rows: pl.DataFrame, form: str) -> bytes:
    """A table as a file of that format."""
    file = io.BytesIO()
    writers: dict[str, Callable[[Any], object]] = {
        "parquet": rows.write_parquet,
        "arrow": rows.write_ipc,
        "stream": rows.write_ipc_stream,
        "ndjson": rows.write_ndjson,
        "csv": rows.write_csv,
    }
    writers[form](file)
    return file.getvalue()


PARQUET, ARROW = as_bytes(ROWS, "parquet"), as_bytes(ROWS, "arrow")
LARGE = as_bytes(make_rows(2_000), "parquet")


def with_line(text: str, number: int, line: str) -> str:
    """A text in which one line is another, counted from 1."""
    lines = text.split("\n")
    lines[number - 1] = line
    return "\n".join(lines)


def damaged(content: bytes, start: int, length: int = 40) -> bytes:
    """Some bytes inverted."""
    end = start + length
    return content[:start] + bytes(b ^ 255 for b in content[start:end]) + content[end:]


def without_pages(content: bytes) -> bytes:
    """The beginning and the end of a Parquet file, which says where all else would be."""
    return content[:4] + content[len(content) - 8 - int.from_bytes(content[-8:-4], "little") :]


def wrong_offsets() -> bytes:
    """An Arrow file whose texts would be far outside of it."""
    table = pa.table({"action": ["north"] * 3, "reward": [1.0] * 3, "propensity": [0.5] * 3})
    file = io.BytesIO()
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    right, wrong = (np.array(x, dtype=np.int32) for x in ([0, 5, 10, 15], [0, 10**8, 5, 2 * 10**9]))
    assert right.tobytes() in file.getvalue()
    return file.getvalue().replace(right.tobytes(), wrong.tobytes())


CUT = "truncated, corrupt, or not what its name says"
OBJECT = '{"action": "north", "reward": 1, "propensity": 0.5}'
WIDE = ",".join(f"c{i}" for i in range(100_000))

BROKEN: dict[str, tuple[str, str | bytes, str]] = {
    # nothing in it
    "empty": ("log.csv", "", "the file is empty"),
    "header only": ("log.csv", HEADER, "there are none"),
    "header without an end": ("log.csv", HEADER.strip(), "there are none"),
    "a blank line": ("log.csv", "\n", "it has no columns"),
    "blank lines": ("log.csv", "\r\n\r\n\r\n", "it has no columns"),
    "a byte order mark": ("log.csv", "\ufeff", "it has no columns"),
    "a blank line of JSON": ("log.ndjson", "\n", "it has no columns"),
    "a blank line of dsjson": ("log.dsjson", "\n", "there are none"),
    "blank lines of vw": ("log.vw", "\n\n", "there are none"),
    "Parquet without rows": ("log.parquet", as_bytes(ROWS.head(0), "parquet"), "there are none"),
    "Arrow without rows": ("log.arrow", as_bytes(ROWS.head(0), "arrow"), "there are none"),
    "gzip of nothing": ("log.csv.gz", gzip.compress(b""), "it has no columns"),
    "gzip of no JSON": ("log.ndjson.gz", gzip.compress(b""), "it has no columns"),
    # no text, or none that can be read
    "UTF-16": ("log.csv", TEXT.encode("utf-16"), "UTF-16"),
    "UTF-16 without its mark": ("log.ndjson", LINES.encode("utf-16-le"), "UTF-16"),
    "Latin-1": ("log.csv", TEXT.replace("north", "nörd").encode("latin-1"), "not UTF-8"),
    "Latin-1 in the header": ("log.csv", TEXT.replace("rew", "réw").encode("latin-1"), "not UTF-8"),
    "two encodings": ("log.csv", TEXT.encode() + "café,1,0.5\n".encode("latin-1"), "not UTF-8"),
    "Latin-1 in JSON": ("log.ndjson", LINES.encode() + b'{"action": "caf\xe9"}\n', "not UTF-8"),
    "null bytes": ("log.csv", b"\0" * 1_000, "not UTF-8"),
    "Latin-1 in vw": ("log.vw", b"1:1:0.5 | caf\xe9\n", "not UTF-8"),
    # tables whose lines do not fit
    "a quote that never ends": ("log.csv", with_line(TEXT, 20, '"north,1,0.5'), "line 20"),
    "a quote inside": ("log.csv", with_line(TEXT, 20, 'nor"th,1,0.5'), "line 20"),
    "text after a quote": ("log.csv", with_line(TEXT, 20, '"nor"th,1,0.5'), "line 20"),
    "too many fields": ("log.csv", with_line(TEXT, 20, "north,1,0.5,7"), "line 20 has 4 fields"),
    "two columns of one name": ("log.csv", "action,reward,reward\na,1,1\n", "two columns 'reward'"),
    "a column is missing": ("log.csv", TEXT.replace("rew", "a"), "no column 'reward'"),
    "another case": ("log.csv", TEXT.replace("reward", "Reward"), "pass --reward 'Reward'"),
    "spaces in the header": ("log.csv", TEXT.replace(",", ", "), "pass --reward ' reward'"),
    "semicolons": ("log.csv", TEXT.replace(",", ";"), "separated by semicolons"),
    "tabs in a .csv": ("log.csv", TEXT.replace(",", "\t"), "separated by tabs"),
    "commas in a .tsv": ("log.tsv", TEXT, "separated by commas"),
    "lines of an old Mac": ("log.csv", TEXT.replace("\n", "\r"), "carriage returns"),
    "a name of 10⁶ characters": ("log.csv", f"action,{'x' * 10**6}\na,1\n", "field limit"),
    "10⁵ columns, none of ours": ("log.csv", f"{WIDE}\n{WIDE}\n", "99980 more"),
    # JSON
    "a broken object": ("log.ndjson", with_line(LINES, 20, '{"action": "north",'), "line 20"),
    "half a file of JSON": ("log.ndjson", LINES[: len(LINES) // 2], "is not JSON"),
    "a list in a line": ("log.ndjson", with_line(LINES, 20, '["north", 1, 0.5]'), "line 20"),
    "a number in a line": ("log.ndjson", with_line(LINES, 20, "17"), "line 20"),
    "null in a line": ("log.ndjson", with_line(LINES, 20, "null"), "line 20"),
    "two objects in a line": ("log.ndjson", with_line(LINES, 20, OBJECT + OBJECT), "line 20"),
    "NaN in JSON": ("log.ndjson", with_line(LINES, 20, '{"reward": NaN}'), "NaN is no number"),
    "1e999 in JSON": ("log.ndjson", with_line(LINES, 20, OBJECT.replace("1,", "1e999,")), CUT),
    "a deep value": ("log.ndjson", '{"action": ' + "[" * 9_999 + "]" * 9_999 + "}", "is not JSON"),
    "one list of objects": ("log.ndjson", json.dumps(ROWS.to_dicts()), "line 1 is no JSON object"),
    "a mark before JSON": ("log.ndjson", "\ufeff" + LINES, "byte order mark"),
    "a key twice": ("log.ndjson", LINES + '{"reward": 1, "reward": 0}\n', "two columns 'reward'"),
    "actions that are objects": ("log.ndjson", '{"action": {"id": 1}}\n' * 9, "lists or objects"),
    # binary files
    "Parquet, four bytes": ("log.parquet", PARQUET[:4], CUT),
    "Parquet, half": ("log.parquet", PARQUET[: len(PARQUET) // 2], CUT),
    "Parquet without its footer": ("log.parquet", PARQUET[:-8], CUT),
    "Parquet but for a byte": ("log.parquet", PARQUET[:-1], CUT),
    "Parquet with a wrong footer": ("log.parquet", damaged(PARQUET, len(PARQUET) - 300), CUT),
    "Parquet with a wrong page": ("log.parquet", damaged(PARQUET, 30), CUT),
    "Parquet without pages": ("log.parquet", without_pages(LARGE), "a part of it is missing"),
    "Parquet that begins otherwise": ("log.parquet", b"XXXX" + PARQUET[4:], "not begin as parquet"),
    "Parquet that ends otherwise": ("log.parquet", PARQUET[:-4] + b"XXXX", CUT),
    "a table for Parquet": ("log.parquet", TEXT, "not begin as parquet"),
    "Parquet for a table": ("log.csv", PARQUET, "pass --format parquet"),
    "Parquet for vw": ("log.vw", PARQUET, "pass --format parquet"),
    "Arrow for JSON": ("log.ndjson", ARROW, "pass --format arrow"),
    "an Arrow stream": ("log.arrow", as_bytes(ROWS, "stream"), "it is an Arrow stream"),
    "Arrow, five bytes": ("log.arrow", ARROW[:5], "not begin as arrow"),
    "Arrow, half": ("log.arrow", ARROW[: len(ARROW) // 2], CUT),
    "Arrow with a wrong batch": ("log.arrow", damaged(ARROW, 300), CUT),
    "Arrow with wrong offsets": ("log.arrow", wrong_offsets(), CUT),
    "Arrow with a wrong footer": ("log.arrow", damaged(ARROW, len(ARROW) - 200), CUT),
    # gzip
    "gzip that is none": ("log.csv.gz", TEXT, "it is not gzip"),
    "gzip without the name": ("log.csv", PACKED, "rename it to end in .gz"),
    "gzip, two bytes": ("log.csv.gz", PACKED[:2], CUT),
    "gzip, half": ("log.csv.gz", PACKED[: len(PACKED) // 2], CUT),
    "gzip without its sum": ("log.csv.gz", PACKED[:-8], CUT),
    "gzip with a wrong sum": ("log.csv.gz", PACKED[:-8] + b"\0" * 8, CUT),
    "gzip with a wrong block": ("log.csv.gz", damaged(PACKED, 60, 4), CUT),
    "gzip of JSON, half": ("log.ndjson.gz", gzip.compress(LINES.encode())[:-40], CUT),
    "gzip of Parquet": ("log.parquet.gz", gzip.compress(PARQUET), "compresses its own columns"),
    "a small bomb": ("log.csv.gz", gzip.compress(HEADER.encode() + b"a" * (1 << 24)), "is missing"),
    # other formats under these names
    "a table for vw": ("log.vw", TEXT, "action is missing: 41"),
    "a table for dsjson": ("log.dsjson", TEXT, "action is missing: 41"),
    "events left out": ("log.dsjson", json.dumps({**EVENT, "pdrop": 0.5}), "were dropped"),
    # rows of which none is good
    "rewards beyond their range": ("log.csv", HEADER + "a,7,0.5\nb,9,0.5\n", "--reward-range"),
    "percentages": ("log.csv", HEADER + "a,1,50\nb,0,50\n", "divide percentages by 100"),
    "percent signs": ("log.csv", HEADER + "a,1,50%\nb,0,50%\n", "write each propensity with a"),
    "decimal commas": ("log.csv", HEADER + 'a,"0,5",1\nb,"0,5",1\n', "write each reward with a"),
    "one action": (
        "log.csv",
        HEADER + "a,1,0.5\n" * 9,
        "the action 'a' alone: production was deterministic",
    ),
    "one action that is good": ("log.csv", HEADER + "a,1,0.5\nb,x,0.5\n", "reward is not a number"),
}

n = len(ROWS)
WRONG_TYPES: dict[str, tuple[str, list[Any]]] = {
    "rewards that are lists": ("reward", [[1.0]] * n),
    "rewards that are structures": ("reward", [{"value": 1.0}] * n),
    "rewards that are dates": ("reward", [date(2026, 1, 1)] * n),
    "rewards that are bytes": ("reward", [b"1"] * n),
    "rewards that are durations": ("reward", [timedelta(1)] * n),
    "propensities that are lists": ("propensity", [[0.5]] * n),
    "propensities that are bytes": ("propensity", [b"0.5"] * n),
    "actions that are lists": ("action", [["a"]] * n),
    "actions that are structures": ("action", [{"id": 1}] * n),
    "actions that are bytes": ("action", [b"a"] * n),
    "actions that are durations": ("action", [timedelta(i % 2) for i in range(n)]),
}
