"""Broken text gives rows that a check refuses, or one clear line; never anything else."""

from __future__ import annotations

import contextlib
import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.logs.text_logs import Columns, Reader, is_refused, rows_of
from tests.support.strategies import quick
from understudy.errors import InvalidLog
from understudy.logs.readers import vowpal

pytestmark = pytest.mark.plain

READERS = {"vw": vowpal.read_text, "dsjson": vowpal.read_dsjson}
PACKED = gzip.compress(b"1:1:0.5 | a\n" * 9)
EVENT = json.dumps({"_label_cost": 1, "_label_probability": 0.5, "_label_Action": 1})

UNREADABLE = {
    "bytes that are no UTF-8": b"1:1:0.5 | caf\xe9\n",
    "UTF-16": "1:1:0.5 | a\n".encode("utf-16"),
    "an image": b"\x89PNG\r\n\x1a\n\x00\x00\xff",
}
UNREADABLE_GZIP = {
    "not gzip": b"1:1:0.5 | a\n",
    "cut off": PACKED[:-4],
    "cut off early": PACKED[:15],
    "damaged": PACKED[:20] + b"\x00\x00\x00\x00" + PACKED[24:],
    "damaged in another way": PACKED[:10] + b"\xff" * 20,
    "a wrong sum": PACKED[:-8] + b"\x00" * 8,
}
BROKEN = {
    "no label": "| a b",
    "no bar": "1:1:0.5",
    "a bar that touches": "1:1:0.5| a",
    "two costs": "1:1:0.5 2:1:0.5 | a",
    "cost NaN": "1:nan:0.5 | a",
    "cost infinite": "1:inf:0.5 | a",
    "cost a word": "1:much:0.5 | a",
    "cost empty": "1::0.5 | a",
    "cost too large": "1:1e999:0.5 | a",
    "probability 0": "1:1:0 | a",
    "probability 2": "1:1:2 | a",
    "probability negative": "1:1:-0.5 | a",
    "probability NaN": "1:1:nan | a",
    "probability missing": "1:1 | a",
    "four parts": "1:1:0.5:1 | a",
    "no action": ":1:0.5 | a",
    "only colons": "::: | a",
    "only bars": "||||",
    "a null byte": "\x001:1:0.5",
    "a number": "17",
    "comma separated": "action,reward,propensity",
    "a very long word": "x" * 1_000_000,
    "an object": "{}",
    "an open object": '{"_label_cost": 1',
    "a list": f"[{EVENT}]",
    "two objects": EVENT + EVENT,
    "Python": "{'_label_cost': 1}",
    "null": "null",
    "text": '"text"',
    "deep": '{"c":' * 5_000 + "1" + "}" * 5_000,
    "too deep to end": "[" * 100_000,
    "half a character": '{"EventId": "\\ud800"}',
    "a cost that is a list": '{"_label_cost": [1], "_label_probability": 0.5, "_label_Action": 1}',
    "an action that is a list": '{"_label_Action": [1], "_label_cost": 1, "_label_probability": 1}',
    "a huge number": '{"_label_Action": 1' + "0" * 5_000 + "}",
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_line_is_a_row_that_is_refused(broken: str, reader: Reader) -> None:
    good = EVENT if reader is vowpal.read_dsjson else "1:1:0.5 | a"
    read = rows_of(reader, "\n".join([good, good, broken, good]), Columns(context=("a",)))
    assert [row["row"] for row in read] == [1, 2, 3, 4]
    assert [is_refused(row) for row in read] == [False, False, True, False]


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize(
    ("content", "name"),
    [
        *(pytest.param(content, "log", id=key) for key, content in UNREADABLE.items()),
        *(pytest.param(content, "log.gz", id=key) for key, content in UNREADABLE_GZIP.items()),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(
    content: bytes, name: str, reader: Reader
) -> None:
    with pytest.raises(InvalidLog) as caught:
        rows_of(reader, content, name=name)
    assert name in str(caught.value.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("content", ["", "\n", "\r\n\r\n", "\ufeff"])
def test_an_empty_file_has_no_rows(content: str, reader: Reader) -> None:
    assert rows_of(reader, content) == []


TOKENS = [
    "1:1:0.5",
    "shared",
    "0:1:0.5",
    "|",
    "a:1",
    " ",
    " ",
    "\n",
    "\n",
    "\n\n",
    "\t",
    "'",
    ":",
    "\r",
]
TOKENS += [
    "{",
    "}",
    '"',
    ",",
    '"_label_cost":',
    '"_label_Action":',
    "1",
    "[",
    "]",
    '"c":',
    EVENT,
    "é",
]
fuzz = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=40).map(str.encode),
    st.lists(st.sampled_from(TOKENS), max_size=25).map(lambda tokens: "".join(tokens).encode()),
)


@quick
@given(fuzz, st.sampled_from(["vw", "dsjson"]), st.sampled_from(["log", "log.gz"]))
def test_no_bytes_lead_to_another_error(content: bytes, reader: str, name: str) -> None:
    columns = Columns(eligible="e", context=("a", "b.c"))
    data = gzip.compress(content) if name.endswith("gz") and len(content) % 2 else content
    with contextlib.suppress(InvalidLog):
        read = rows_of(READERS[reader], data, columns, name)
        assert len(read) <= content.count(b"\n") + 1
