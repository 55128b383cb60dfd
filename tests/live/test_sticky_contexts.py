"""Contexts in which the action is sticky, in live studies: `understudy.live.decision_contexts`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import understudy as us
from tests.support.live.single_study import Event, SingleStudy
from tests.support.logs.sticky import fresh_log, sticky_log
from understudy.live.decision_contexts import MOST_EXAMINED, context_frame

CONTEXT = {"user": "number", "page": "number"}
STUDY: dict[str, Any] = {"context": CONTEXT, "warmup": 50, "learner": "ridge"}


def events_of(rows: Any) -> Iterator[Event]:
    for n, row in enumerate(rows.iter_rows(named=True)):
        yield Event(
            id=str(n),
            action=row["action"],
            reward=row["reward"],
            propensity=row["propensity"],
            context={name: float(row[name]) for name in CONTEXT},
        )


def obstacle(single: SingleStudy) -> str | None:
    result = single.study.state.result
    return None if result is None else result.obstacle


def test_a_sticky_context_decides_nothing_and_is_remembered(tmp_path: Path) -> None:
    single = SingleStudy(tmp_path, **STUDY)
    events = list(events_of(sticky_log(1, users=40, rows=600)))
    for start in range(0, 300, 7):
        single.send(*events[start : min(start + 7, 300)])
    assert obstacle(single) == "sticky columns"
    (column,) = json.loads(single.policy())["provenance"]["sticky"]["columns"]
    assert column["name"] == "user"
    before = single.policy()
    for snapshot in (False, True):
        single.restart(snapshot=snapshot)
        assert single.policy() == before
    single.send(*events[300:])
    assert obstacle(single) == "sticky columns"
    single.audit()


@pytest.mark.parametrize("snapshot", [False, True])
def test_the_search_goes_on_after_a_restart(tmp_path: Path, *, snapshot: bool) -> None:
    """It does not matter when the service was restarted, nor how events came in groups."""
    events = list(events_of(sticky_log(2, users=300, rows=600, share=0.9)))
    found = []
    for name, restarts in (("one", ()), ("two", (60, 90, 200))):
        (tmp_path / name).mkdir()
        single = SingleStudy(tmp_path / name, **STUDY)
        for n, event in enumerate(events):
            single.send(event)
            if n in restarts:
                single.restart(snapshot=snapshot)
        found.append(json.loads(single.policy())["provenance"]["sticky"])
    assert found[0] == found[1]


def test_fresh_draws_and_declared_studies_are_not_sticky(tmp_path: Path) -> None:
    sticky = sticky_log(1, users=40, rows=600)
    for name, rows, more in (
        ("fresh", fresh_log(1, 600), {}),
        ("declared", sticky, {"no_unit": True}),
        ("estimated", sticky.drop("propensity"), {"behavior": "estimated"}),
        ("of 0.5", sticky, {"rules": 1, "learner": "lin-prod-compact"}),
    ):
        (tmp_path / name).mkdir()
        single = SingleStudy(tmp_path / name, **STUDY | more)
        known = rows if "propensity" in rows.columns else rows.with_columns(propensity=None)
        single.send(*events_of(known))
        assert obstacle(single) != "sticky columns"
        assert single.study.state.sticky is None


def test_the_search_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.live.decision_contexts.MOST_EXAMINED", 200)
    assert MOST_EXAMINED == 50_000
    single = SingleStudy(tmp_path, **STUDY)
    single.send(*events_of(fresh_log(1, 199)))
    assert single.study.state.search is not None
    later = [
        event.model_copy(update={"id": f"later {event.id}"})
        for event in events_of(sticky_log(1, users=40, rows=600))
    ]
    single.send(later[0])
    assert single.study.state.search is None
    single.send(*later[1:])
    assert obstacle(single) != "sticky columns"
    single.restart(snapshot=True)
    assert single.study.state.search is None


def test_contexts_are_parsed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    contexts = [json.dumps({"x": n, "color": "é" * n}).encode() for n in range(21)]
    kinds = {"x": "number", "color": "text"}
    whole = context_frame(kinds, contexts)
    assert whole.columns == ["context.x", "context.color"]
    monkeypatch.setattr("understudy.live.decision_contexts.ROWS_PER_FRAME", 8)
    assert context_frame(kinds, contexts).equals(whole)
    assert len(context_frame(kinds, [])) == 0


def test_two_declarations_are_refused(tmp_path: Path) -> None:
    with pytest.raises(us.errors.InvalidArgument, match="leave one of them out"):
        SingleStudy(tmp_path, unit_rows=3, no_unit=True)
