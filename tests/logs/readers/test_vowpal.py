"""Vowpal Wabbit's text: read as a plain-Python reading of its rules, and as Vowpal Wabbit does."""

from __future__ import annotations

import gzip
import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.logs.text_logs import Columns, Row, is_refused, number, rows_of
from tests.support.refusals import assert_refused
from tests.support.strategies import quick
from understudy.logs.readers import files, vowpal

pytestmark = pytest.mark.plain

ALL = Columns(eligible="listed")
WORDS = "1 22 x shared 1:0.5:0.4 2:-1:0.25 3:+2:1 1:2 1::0.5 :1:0.5 shared:1:0.5 1:2:3:4 4:abc:0.5 "
WORDS += "5:1:x 'tag ' 6:nan:0.5 7:1e-3:1e-3 --5 1:--5:1"
SPACES = st.sampled_from(["", " ", "  "])
FEATURES = st.sampled_from(["|", "| a b:2", "|ns a:1 |other b", "", "|x"])


@st.composite
def single_lines(draw: st.DrawFn) -> str:
    """Lines with labels of any number of words, tags, tabs and odd spaces."""
    words = draw(st.lists(st.sampled_from(WORDS.split()), max_size=3))
    label = draw(SPACES) + " ".join(words) + draw(SPACES)
    return draw(st.sampled_from(["", "", "", "skipped\t"])) + label + draw(FEATURES)


def label_words(line: str) -> list[str]:
    """The words of the label: tags, and what stands before a tab, are none of them."""
    label = line.partition("|")[0]
    label = label.partition("\t")[2] if "\t" in label else label
    words = [word for word in label.split(" ") if word]
    is_tagged = bool(words) and (not label.endswith(" ") or words[-1].startswith("'"))
    return words[:-1] if is_tagged else words


def expected(line: str) -> tuple[Any, ...]:
    """Action, reward, propensity and the listed actions of a line."""
    parts = [word.split(":") for word in label_words(line)]
    costly = [part for part in parts if len(part) > 1]
    wrong = any(len(part) > 3 or part[0] == "" for part in parts)
    wrong |= any(part[0] == "shared" for part in costly)
    if wrong or len(costly) != 1:
        return None, None, None, None
    action, cost, probability = (*costly[0], "")[:3]
    value = number(cost)
    reward = cost or None if value is None else -value
    return action, reward, probability or None, [p[0] for p in parts] if len(parts) > 1 else None


def found(row: Row) -> tuple[Any, ...]:
    reward = number(row["reward"])
    shown = row["reward"] if reward is None else reward
    return row["action"], shown, row["propensity"], row["eligible"]


def same(first: object, second: object) -> bool:
    is_nan = [isinstance(value, float) and math.isnan(value) for value in (first, second)]
    return all(is_nan) or first == second


@quick
@given(st.lists(single_lines(), min_size=1, max_size=12))
def test_a_line_says_what_the_rules_say(written: list[str]) -> None:
    """Among all labels: also the plain ones, which are read by a rule of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vowpal, "_has_several_lines_an_event", lambda *_: False)
        read = rows_of(vowpal.read_text, "\n".join(written), ALL)
    kept = [(i, line) for i, line in enumerate(written, 1) if line]
    assert [row["row"] for row in read] == [i for i, _ in kept]
    for (_, line), row in zip(kept, read, strict=True):
        for mine, theirs in zip(found(row), expected(line), strict=True):
            assert same(mine, theirs), line


# What Vowpal Wabbit lets through with a warning, or with another meaning: here it is refused.
REFUSED = ["1::0.5", ":1:0.5", "1:abc:0.5", "1:0.5x:0.5", "1:nan:0.5", "1:2:2", "1:2:-1", "1:2:0"]
REFUSED += ["1:inf:0.5", "1:0x10:0.5", "1:2:0.4:", "1:2:3:4", "1:1:0.5 2:1:0.5", "1:2"]


@pytest.mark.parametrize("label", REFUSED)
def test_what_vowpal_wabbit_repairs_is_refused(label: str) -> None:
    clear = "1:1:0.5 | a\n1:1:0.5 | a\n"
    *_, row = rows_of(vowpal.read_text, f"{clear}{label} | a")
    assert is_refused(row)


def test_a_part_that_is_empty_is_missing() -> None:
    clear = "1:1:0.5 | a\n1:1:0.5 | a\n"
    *_, cost, probability = rows_of(vowpal.read_text, f"{clear}1::0.5 | a\n1:1: | a")
    assert (cost["action"], cost["reward"], cost["propensity"]) == ("1", None, "0.5")
    assert (probability["reward"], probability["propensity"]) == ("-1", None)


LABELS = ["1:2:0.4 ", "1:2:0.4", "1:2:0.4 'tag", "1:2:0.4 'tag ", "1:2:0.4 tag", "1 2:0.5:0.4 3 "]
LABELS += [
    "1:+0.5:0.4 ",
    "2:1e-1:.5 ",
    "skipped\t1:2:0.4 ",
    "1:2:0.4\t",
    "3:-0.5:1 ",
    "  4:2:0.4   ",
]
LABELS += ["1:2:0.4 ' ", "", " ", "1 2 3 ", "1:1.:0.5 ", "'1:2:0.4 ", "2:1:0.5 'a b "]


@pytest.mark.needs("vowpalwabbit")
@pytest.mark.parametrize("label", LABELS)
def test_labels_are_those_of_vowpal_wabbit_itself(label: str) -> None:
    package = importlib.import_module("vowpalwabbit")
    line = f"{label}| a b:2"
    clear = "1:1:0.5 | a\n1:1:0.5 | a\n"
    *_, row = rows_of(vowpal.read_text, f"{clear}{line}\n")
    workspace = package.Workspace("--cb 4 --quiet")
    example = workspace.example(line)
    costs = [
        (
            str(example.get_cbandits_class(i)),
            example.get_cbandits_cost(i),
            example.get_cbandits_probability(i),
        )
        for i in range(example.get_cbandits_num_costs())
        if example.get_cbandits_probability(i) > 0
    ]
    workspace.finish_example(example)
    if row["action"] is None:
        assert costs == []
    else:
        [(action, cost, probability)] = costs
        assert row["action"] == action
        assert np.float32(row["reward"]) == np.float32(-cost)
        assert np.float32(row["propensity"]) == np.float32(probability)


MULTILINE = """\
shared | user:3 new
| name=a
0:0.5:0.8 | name=b
| name=c

shared |other x
0:-1:0.25 | name=a
| name=b

| no shared line
0:2:0.5 | second
"""


def test_events_of_several_lines_have_one_row_each() -> None:
    columns = Columns(eligible="any", context=("user", "new"))
    first, second, third = rows_of(vowpal.read_text, MULTILINE, columns)
    assert list(first.values()) == [3, "2", "-0.5", "0.8", ["1", "2", "3"], "3", "1"]
    assert list(second.values()) == [7, "1", "1", "0.25", ["1", "2"], "0", "0"]
    assert list(third.values()) == [11, "2", "-2", "0.5", ["1", "2"], "0", "0"]


@pytest.mark.parametrize(
    ("event", "row"),
    [
        ("shared | x\n| a\n| b", 1),  # no label
        ("shared | x\n0:1:0.5 | a\n0:1:0.5 | b", 2),  # two
        ("shared | x\n| a\nshared | y\n0:1:0.5 | b", 4),  # a second shared line
        ("shared | x\n| a\n1 2:1:0.5 | b", 3),  # two words in a label
        ("shared:1:0.5 | x\n| a", 1),  # a cost of what is shared
        ("shared | x", 1),  # no actions
        ("0:1:0.5:1 | x\n| a", 1),  # too many parts
        ("0:1 | x\n| a", 1),  # no probability
    ],
)
def test_an_event_of_several_lines_that_is_not_clear_is_refused(event: str, row: int) -> None:
    read = rows_of(vowpal.read_text, f"{MULTILINE}\n\n\n{event}\n\n{MULTILINE}")
    assert [is_refused(found) for found in read] == [False] * 3 + [True] + [False] * 3
    assert read[3]["row"] == row + len(MULTILINE.splitlines()) + 3


@quick
@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.integers(0, 4), st.booleans()), min_size=1, max_size=9
    ),
    st.integers(1, 7),
)
def test_events_are_the_same_however_lines_are_cut(
    events: list[tuple[int, int, bool]], size: int
) -> None:
    """The place of the label is the action, whatever the batches in which lines arrive."""
    text = [
        [*["shared | s"] * shared]
        + [f"{'0:1:0.5 ' if place == label % n else ''}| a" for place in range(n)]
        for n, label, shared in [(1, 0, True), *events]
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BATCH", size)
        patch.setattr(vowpal, "_has_several_lines_an_event", lambda *_: True)
        read = rows_of(vowpal.read_text, "\n\n".join("\n".join(event) for event in text), ALL)
    assert [row["action"] for row in read] == [
        str(label % n + 1) for n, label, _ in [(1, 0, True), *events]
    ]
    assert [len(row["eligible"] or "1") for row in read] == [
        n for n, _, _ in [(1, 0, True), *events]
    ]


def test_a_file_whose_form_is_not_clear_is_refused() -> None:
    unclear = "1:1:0.5 | a\n| b\n\n| a\n2:1:0.5 | b\n"
    assert_refused(lambda: rows_of(vowpal.read_text, unclear), "log", "of several lines")
    single = rows_of(vowpal.read_text, "0:1:0.5 | a\n\n0:1:0.5 | a\n1:1:0.5 | b\n| c")
    assert [row["action"] for row in single] == ["0", "0", "1", None]


FEATURES_LINE = "1:1:0.5 |user:2 age:30 city:paris new |item age:7 price:1e-2 |other: z |last q:"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("age", 60.0),  # times the 2 of its namespace
        ("user^age", 60.0),
        ("item^age", 7.0),
        ("item^new", 0.0),
        ("user^new", 2.0),
        ("new", 2.0),
        ("user^city", "paris"),
        ("price", 0.01),
        ("ag", 0.0),
        ("ge", 0.0),
        ("user", 0.0),
        ("z", 1.0),
        ("q", None),
        ("nowhere^age", 0.0),
        ("a.e", 0.0),
    ],
)
def test_features_have_their_values(name: str, value: object) -> None:
    [row] = rows_of(vowpal.read_text, FEATURES_LINE, Columns(context=(name,)))
    text = row[f"context.{name}"]
    assert (text if number(text) is None else number(text)) == value


def test_without_propensities_none_are_read() -> None:
    [row] = rows_of(vowpal.read_text, "1:1 | a", Columns(propensity=None))
    assert row == {"row": 1, "action": "1", "reward": "-1"}


@pytest.mark.parametrize("text", ["1:1:0.5 | b a\n2:0:0.25 | b\n", MULTILINE])
def test_gzip_ends_and_marks_of_lines_do_not_matter(text: str) -> None:
    def read(content: bytes, name: str = "log") -> list[Row]:
        return rows_of(vowpal.read_text, content, Columns(context=("a", "new")), name)

    plain = read(text.encode())
    assert {row["context.new"] for row in plain} | {row["context.a"] for row in plain} == {"0", "1"}
    assert read(gzip.compress(text.encode()), "log.vw.gz") == plain
    assert read(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()) == plain
    assert read(text.rstrip().encode()) == plain


def test_rows_are_the_same_however_the_file_is_cut() -> None:
    text = "".join(f"{i % 7}:{i}:0.5 | a{i}\n{'2 3:1:0.5 | b' * (i % 3 == 0)}\n" for i in range(50))
    whole = rows_of(vowpal.read_text, text, ALL)
    for piece in (1, 7, 64):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "READ_SIZE", piece)
            patch.setattr(files, "BATCH", piece)
            patch.setattr(vowpal, "_has_several_lines_an_event", lambda *_: False)
            assert rows_of(vowpal.read_text, text, ALL) == whole


def test_lines_and_events_without_end_are_refused() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "READ_SIZE", 10)
        patch.setattr(files, "LONGEST_LINE", 100)
        assert_refused(lambda: rows_of(vowpal.read_text, "x" * 200), "log", "longer than 100 bytes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vowpal, "MOST_LINES", 5)
        assert_refused(lambda: rows_of(vowpal.read_text, "shared |\n" * 9), "log", "blank")
        assert len(rows_of(vowpal.read_text, MULTILINE)) == 3


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (Columns(time="t"), "no times"),
        (Columns(action="arm"), "'arm'"),
        (Columns(reward="click"), "--reward"),
        (Columns(propensity="q"), "--propensity"),
    ],
)
def test_what_the_format_does_not_have_is_refused(columns: Columns, words: str) -> None:
    assert_refused(lambda: rows_of(vowpal.read_text, "1:1:0.5 |", columns), "log", words)


def test_a_file_that_is_not_there_is_refused() -> None:
    missing = Path("nowhere", "log.vw")
    assert_refused(lambda: list(vowpal.read_text(missing, Columns())), "log", "cannot be read")


def test_gzip_is_known_by_its_ending_in_any_case(tmp_path: Path) -> None:
    path = tmp_path / "LOG.VW.GZ"
    path.write_bytes(gzip.compress(b"2:0.5:0.4 | a\n"))
    assert [frame.rows() for frame in vowpal.read_text(path, Columns())] == [
        [(1, "2", "-0.5", "0.4")]
    ]
