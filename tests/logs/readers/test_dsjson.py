"""Vowpal Wabbit's dsjson: read as Python's own JSON reads it, and as Vowpal Wabbit does."""

from __future__ import annotations

import gzip
import importlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.logs.text_logs import Columns, is_refused, number, rows_of
from tests.support.refusals import assert_refused
from tests.support.strategies import quick
from understudy.logs.readers import files
from understudy.logs.readers.vowpal import read_dsjson

pytestmark = pytest.mark.plain

Event = dict[str, Any]

EVENT: Event = {
    "_label_cost": -1,
    "_label_probability": 0.75,
    "_label_Action": 2,
    "_labelIndex": 1,
    "Timestamp": "2021-07-29T10:00:00.999Z",
    "Version": "1",
    "EventId": "e",
    "a": [2, 1, 3],
    "c": {
        "user": {"age": 30.5, "city": "Zürich", "new": True, "more": {"deep": 7}},
        "hour": 12,
        "tags": [1, 2],
        "a/b~c": "odd",
        "_multi": [{"i": {"x": 1}}, {"i": {"y": 1}}, {"i": {"z": 1}}],
    },
    "p": [0.75, 0.125, 0.125],
}


def text(*events: Event | str) -> str:
    return "\n".join(event if isinstance(event, str) else json.dumps(event) for event in events)


def changed(**changes: Any) -> Event:
    """The event with other values; one that is None is left out."""
    return {key: value for key, value in {**EVENT, **changes}.items() if value is not None}


def test_an_event_is_a_row() -> None:
    names = ("user.age", "user.city", "user.new", "user.more.deep", "hour", "a/b~c")
    columns = Columns(time="Timestamp", eligible="a", context=names)
    [row] = rows_of(read_dsjson, text(EVENT), columns)
    assert list(row.values()) == [
        *(1, "2", "1", "0.75", "2021-07-29T10:00:00.999Z", ["2", "1", "3"]),
        *("30.5", "Zürich", "true", "7", "12", "odd"),
    ]


@pytest.mark.parametrize("name", ["user", "tags", "absent", "user.absent", "hour.x", "user.more"])
def test_what_is_no_single_value_of_the_context_is_null(name: str) -> None:
    [row] = rows_of(read_dsjson, text(EVENT), Columns(context=(name,)))
    assert row[f"context.{name}"] is None


def test_without_propensities_none_are_read() -> None:
    [row] = rows_of(read_dsjson, text(EVENT), Columns(propensity=None))
    assert row == {"row": 1, "action": "2", "reward": "1"}


NOTHING: Event = {"_label_cost": None, "_label_probability": None, "_label_Action": None}


@pytest.mark.parametrize(
    ("event", "action"),
    [
        (changed(), "2"),
        (changed(_label_Action=None), "2"),
        (changed(_labelIndex=None), "2"),
        (changed(_label_Action=None, _labelIndex=0), "1"),
        (changed(_labelIndex=0), None),
        (changed(_label_Action=3), None),
        (changed(_label_Action=0, _labelIndex=None), None),
        (changed(_label_Action=None, _labelIndex=-1), None),
        (changed(_label_Action="two"), None),
        (changed(_label_Action={"x": 1}), None),
        (changed(_labelIndex="one"), None),
        (changed(_label_Action=1.5, _labelIndex=None), None),
        (changed(_skipLearn=True), None),
        (changed(_skipLearn=False), "2"),
        (changed(**NOTHING, _labelIndex=None), None),
        (changed(_label_Action=None, _labelIndex=None), None),
        ({"_outcomes": [{"_label_cost": 2, "_a": 1, "_p": 0.25}]}, None),
        ({}, None),
    ],
)
def test_the_action_is_what_the_label_says_if_it_is_clear(event: Event, action: str | None) -> None:
    before, row, after = rows_of(read_dsjson, text(EVENT, event, EVENT))
    assert row["action"] == action
    assert row["row"] == 2
    assert before["action"] == after["action"] == "2"
    assert is_refused(row) == (action is None)


@pytest.mark.parametrize("pdrop", [0.5, 1, "x", -0.1])
def test_events_that_stand_for_others_are_refused(pdrop: object) -> None:
    assert_refused(
        lambda: rows_of(read_dsjson, text(EVENT, changed(pdrop=pdrop))), "log", "line 2 has pdrop"
    )


@pytest.mark.parametrize("pdrop", [0, 0.0])
def test_events_of_a_log_without_omissions_are_read(pdrop: float) -> None:
    assert not is_refused(rows_of(read_dsjson, text(changed(pdrop=pdrop)))[0])


@pytest.mark.needs("vowpalwabbit")
@pytest.mark.parametrize(
    "changes", [{}, {"_labelIndex": 0, "_label_Action": 1}, {"_label_cost": 0.5}]
)
def test_labels_are_those_of_vowpal_wabbit_itself(changes: Event) -> None:
    package = importlib.import_module("vowpalwabbit")
    event = json.dumps(changed(**changes, c={"_multi": EVENT["c"]["_multi"]}))
    workspace = package.Workspace("--cb_adf --dsjson --chain_hash --quiet")
    examples = workspace.parse(event)
    labels = [
        (place, example.get_cbandits_cost(0), example.get_cbandits_probability(0))
        for place, example in enumerate(examples)
        if place and example.get_cbandits_num_costs()
    ]
    workspace.finish_example(examples)
    [(place, cost, probability)] = labels
    [row] = rows_of(read_dsjson, event)
    assert row["action"] == str(place)
    assert np.float32(row["reward"]) == np.float32(-cost)
    assert np.float32(row["propensity"]) == np.float32(probability)


values = st.sampled_from([None, True, False, 3, -2, 0, 0.125, -1e-3, 1e25, "", "x", "é", "-1", '"'])
events = st.fixed_dictionaries(
    {},
    optional={
        "_label_cost": values,
        "_label_probability": values,
        "_label_Action": st.integers(0, 3),
        "_labelIndex": st.integers(0, 2),
        "_skipLearn": st.booleans(),
        "c": st.dictionaries(st.sampled_from(["x", "y"]), values),
    },
)


def scalar(value: object) -> str | float | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str | float | int) else None


def action_of(event: Event) -> str | None:
    places = [
        event.get("_label_Action"),
        event["_labelIndex"] + 1 if "_labelIndex" in event else None,
    ]
    known = {place for place in places if place is not None}
    if len(known) != 1 or event.get("_skipLearn") or min(known) < 1:
        return None
    return str(known.pop())


def as_read(text: str | None) -> str | float | None:
    return text if number(text) is None else number(text)


@quick
@given(st.lists(st.tuples(events, st.integers(0, 9)), min_size=1, max_size=8))
def test_lines_are_read_as_json_reads_them(written: list[tuple[Event, int]]) -> None:
    """Some are cut off, and so no JSON."""
    cut = [json.dumps(event)[: -1 if end == 0 else None] for event, end in written]
    columns = Columns(context=("x", "y"))
    for row, (event, end) in zip(rows_of(read_dsjson, text(*cut), columns), written, strict=True):
        known = event if end else {}
        reward = scalar(known.get("_label_cost"))
        numeric = isinstance(reward, float | int) or number(reward) is not None
        assert row["action"] == action_of(known)
        assert as_read(row["reward"]) == (
            -float(reward) if numeric and reward is not None else reward
        )
        for name in ("x", "y"):
            value = scalar(known.get("c", {}).get(name))
            assert as_read(row[f"context.{name}"]) == as_read(None if value is None else str(value))


def test_rows_are_the_same_however_the_file_is_cut() -> None:
    written = text(*(changed(_label_cost=i / 8) for i in range(20)), "", "{", "  ", EVENT)
    whole = rows_of(read_dsjson, written)
    assert [row["row"] for row in whole] == [*range(1, 21), 22, 24]
    assert rows_of(read_dsjson, gzip.compress(written.encode()), name="log.json.gz") == whole
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "READ_SIZE", 100)
        patch.setattr(files, "BATCH", 3)
        assert rows_of(read_dsjson, written) == whole


def test_names_for_what_the_format_names_are_refused() -> None:
    assert_refused(
        lambda: rows_of(read_dsjson, text(EVENT), Columns(action="a")), "log", "--action"
    )
