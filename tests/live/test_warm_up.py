"""The warm-up of contexts (`understudy.live.state`): when it ends, and when a study stops."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import understudy as us
from tests.support.live.changing_study import shown
from tests.support.live.single_study import Event, SingleStudy, learned_parts
from understudy.live import state

COLUMNS = {"size": "number", "color": "text"}
WIDE = [f"x{number}" for number in range(30)]
Contexts = Callable[[int], dict[str, Any]]


def dated(number: int) -> dict[str, Any]:
    return {"size": float(number), "color": f"2024-05-{number % 28 + 1:02d}"}


def numbered(number: int) -> dict[str, Any]:
    return {"size": float(number), "color": None}


def constant(_: int) -> dict[str, Any]:
    return {"size": None, "color": None}


def send(single: SingleStudy, contexts: Contexts, *numbers: int) -> None:
    """Send decisions in one group."""
    outcomes = single.send(
        *(
            Event(
                id=str(number),
                action="ab"[number % 2],
                propensity=0.5,
                context=contexts(number),
                reward=number % 3 / 2,
            )
            for number in numbers
        )
    )
    assert {outcome.status for outcome in outcomes} == {"accepted"}


@pytest.mark.parametrize(
    ("spec", "contexts", "reason"),
    [
        ({"context": COLUMNS}, dated, "context color = '2024-05-01': a date does not come again"),
        (
            {"context": dict.fromkeys(WIDE[:3], "text"), "actions": [*"ab", *range(9_998)]},
            lambda number: dict.fromkeys(WIDE[:3], f"label {number}"),
            "contexts = '31 features, 10000 actions': the state of the learner would have 9,",
        ),
    ],
    ids=["dates", "too many features"],
)
def test_a_warm_up_that_cannot_succeed_stops_with_its_reason(
    tmp_path: Path, spec: dict[str, Any], contexts: Contexts, reason: str
) -> None:
    single = SingleStudy(tmp_path, warmup=10, **spec)
    send(single, contexts, *range(9))
    assert (single.study.fault, single.study.state.warmup_left) == (None, 1)
    send(single, contexts, 9, 10)
    for _ in range(2):  # after a restart it stops at the same decision, for the same reason
        assert str(single.study.fault).startswith(reason)
        assert (single.study.next_seq, single.study.state.learned) == (12, 0)
        assert single.study.state.warmup_rows == ()
        single.restart()


@pytest.mark.parametrize(
    ("limit", "warmup", "decisions"),
    [
        (("MOST_WARMUP_ROWS", 50), 10, 40),  # the next warm-up would have 80 decisions
        (("MOST_WARMUP_BYTES", 600), 60, 21),
    ],
    ids=["prolonged", "full"],
)
def test_a_warm_up_of_equal_contexts_stops(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: tuple[str, int],
    warmup: int,
    decisions: int,
) -> None:
    monkeypatch.setattr(state, *limit)
    single = SingleStudy(tmp_path, context=COLUMNS, warmup=warmup)
    send(single, constant, *range(decisions - 1))
    assert single.study.fault is None
    assert single.study.state.warmup_left > 0
    send(single, constant, *range(decisions - 1, 40))
    reason = f"context = '{decisions} decisions': all contexts are alike"
    assert reason in str(single.study.fault)


def test_a_stopped_study_is_shown_as_stopped(tmp_path: Path) -> None:
    single = SingleStudy(tmp_path, context=COLUMNS, warmup=10)
    views, get = shown(single)
    send(single, dated, *range(9))
    before = views.version("study")
    assert views.summary("study")["kind"] == "warming up"
    assert b'understudy_stopped{study="study"} 0.0' in get("/metrics").body
    send(single, dated, 9)
    fault = single.study.fault
    assert views.version("study") != before
    for view in (views.summary("study"), views.view("study")):
        assert (view["kind"], view["word"], view["style"]) == ("stopped", "Stopped", "bad")
        assert view["why"] == f"{fault}."
    described = get("/v1/studies/study").json
    assert (described["fault"], described["warmup_left"]) == (fault, 0)
    assert b'understudy_stopped{study="study"} 1.0' in get("/metrics").body
    refused = get("/v1/studies/study/snapshot")
    assert (refused.status, refused.json["error"]) == (409, "stopped")
    assert refused.json["message"] == fault


@pytest.mark.parametrize("group", [1, 7, 100])
def test_a_warm_up_ends_when_its_contexts_fill_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int
) -> None:
    def long(number: int) -> dict[str, Any]:
        return {"size": float(number % 7), "color": "é" * (100 * (number % 3))}

    monkeypatch.setattr(state, "MOST_WARMUP_BYTES", 6_000)  # about 230 bytes a decision
    single = SingleStudy(tmp_path, context=COLUMNS, warmup=60)
    for start in range(0, 100, group):
        send(single, long, *range(start, min(100, start + group)))
    warmup = single.study.state.warmup
    assert (warmup, single.study.state.learned) == (27, 73)
    out = tmp_path / "log.ndjson"
    assert single.export(out) == 100
    found = us.logs.learn(out, actions=["a", "b"], context=list(COLUMNS), warmup=warmup)
    assert learned_parts(found.policy.to_json()) == learned_parts(single.policy())
    assert [result.faults for result in single.audit()] == [()]


def mixed(number: int) -> dict[str, Any]:
    """Dates, and then other texts."""
    return dated(number) if number < 10 else {"size": float(number), "color": "red"}


def equal_first(number: int) -> dict[str, Any]:
    return constant(number) if number < 15 else mixed(number)


@pytest.mark.parametrize(
    ("bounds", "contexts", "warmup"),
    [
        ({"MOST_WARMUP_BYTES": 200}, lambda number: mixed(number + 10), 10),
        ({"MOST_WARMUP_ROWS": 15}, equal_first, 20),
        ({}, mixed, 20),
    ],
    ids=["more bytes", "more rows", "an error that only time mends"],
)
def test_a_store_of_an_older_version_passes_its_audit(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bounds: dict[str, int],
    contexts: Contexts,
    warmup: int,
) -> None:
    """0.5.0 ended no warm-up at a number of bytes, and doubled its size after any error."""
    single = SingleStudy(tmp_path, context=COLUMNS, warmup=10)
    single.study.state = replace(single.study.state, least_warmup=warmup)
    send(single, contexts, *range(40))
    assert (single.study.state.warmup, single.study.state.learned) == (warmup, 40 - warmup)
    single.restart(snapshot=True)
    before = single.policy()
    for bound, value in bounds.items():
        monkeypatch.setattr(state, bound, value)
    single.restart()
    assert [result.faults for result in single.audit()] == [()]
    assert single.policy() == before
    for wrong in (warmup - 1, warmup + 1, 40, 0, None, float("inf")):
        changed = json.loads(before)
        changed["provenance"]["warmup"] = wrong
        single.save_snapshot_text(40, json.dumps(changed))
        assert [len(result.faults) for result in single.audit()] == [1]  # it cannot choose its own


def test_states_of_a_warm_up_are_values(tmp_path: Path) -> None:
    """Two states that follow the same one do not see each other's decisions."""
    single = SingleStudy(tmp_path, context=COLUMNS, warmup=10)
    send(single, dated, *range(6))
    decisions = single.store.decisions(single.study.record.key, 0, 10)
    first = state.StudyState.begin(single.study.spec).after(decisions[:3])
    one, other = first.after(decisions[3:]), first.after(decisions[4:])
    assert [s.warmup_left for s in (first, one, other)] == [7, 4, 5]
    contexts = [[context for _, context, _ in s.warmup_rows] for s in (one, other)]
    stored = [(decision.context or "").encode() for decision in decisions]
    assert contexts == [stored, [*stored[:3], *stored[4:]]]


def test_a_decision_costs_the_same_late_in_a_warm_up(tmp_path: Path) -> None:
    """The state takes one more row, and copies none."""
    single = SingleStudy(tmp_path, context=COLUMNS, warmup=100)
    send(single, constant, 0)
    rows = single.study.state.warmup_rows
    send(single, constant, *range(1, 50))
    assert single.study.state.warmup_rows is rows
    assert len(rows) == 50


def plays(single: SingleStudy, actions: str) -> None:
    """Send decisions with these actions, whose contexts are dates: they can have no features."""
    for number, action in enumerate(actions, start=single.study.next_seq):
        event = Event(id=str(number), action=action, context=dated(number), reward=1.0)
        single.send(event)


@pytest.mark.parametrize(
    ("behavior", "given", "found"),
    [
        ("estimated", None, [2 / 3, 1 / 3]),
        ("estimated", {"a": 0.1, "b": 0.9}, [0.1, 0.9]),
        ({"a": 0.75, "b": 0.25}, None, [0.75, 0.25]),
        ({"a": 0.75, "b": 0.25}, {"a": 0.1, "b": 0.9}, [0.75, 0.25]),
    ],
    ids=["frequencies", "of the request", "known", "known and of the request"],
)
def test_the_policy_of_a_warm_up_is_that_of_production(
    tmp_path: Path, behavior: Any, given: dict[str, float] | None, found: list[float]
) -> None:
    """Also in a study that stopped at its end, in whatever groups its decisions came."""
    single = SingleStudy(tmp_path, context=COLUMNS, warmup=6, behavior=behavior)

    def policy() -> list[float]:
        return list(map(float, single.study.state.probabilities(dated(1), given)))

    first = [0.5, 0.5] if behavior == "estimated" and given is None else found
    assert policy() == first
    plays(single, "aba")
    assert policy() == pytest.approx(found, rel=1e-15)
    single.restart()
    assert policy() == pytest.approx(found, rel=1e-15)
    plays(single, "aba")
    for _ in range(2):
        assert single.study.fault is not None
        assert policy() == pytest.approx(found, rel=1e-15)
        single.restart()


def test_a_warm_up_with_logged_propensities_needs_those_of_the_request(tmp_path: Path) -> None:
    """Frequencies of a few decisions are not what production does: they may be one action alone."""
    single = SingleStudy(tmp_path, context=COLUMNS, warmup=10)
    send(single, numbered, *range(5))
    state, given = single.study.state, {"a": 0.1, "b": 0.9}
    with pytest.raises(us.errors.InvalidArgument, match=r"with probability 1 .* pass production="):
        state.probabilities(numbered(1))
    assert state.probabilities(numbered(1), given).tolist() == [0.1, 0.9]


def test_the_policy_of_a_warm_up_of_0_5_is_uniform(tmp_path: Path) -> None:
    known = {"a": 0.75, "b": 0.25}
    single = SingleStudy(tmp_path, context=COLUMNS, warmup=10, behavior=known, rules=1)
    plays(single, "aab")
    state = single.study.state
    assert state.probabilities(dated(1), known).tolist() == [0.5, 0.5]


def test_the_audit_goes_on_after_a_study_whose_policy_json_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    single = SingleStudy(tmp_path, context=COLUMNS, warmup=10)
    send(single, numbered, *range(5))

    def fail(*_: object) -> state.StudyState:
        raise us.errors.InvalidSnapshot("state", "moments", "it is missing", "load another")

    monkeypatch.setattr(state.StudyState, "begin", fail)
    (found,) = single.audit()
    assert (found.passed, found.decisions) == (False, 5)
    assert "it is missing" in found.faults[0]


def test_wrong_probabilities_of_production_are_refused_in_a_warm_up(tmp_path: Path) -> None:
    single = SingleStudy(tmp_path, context=COLUMNS, warmup=10)
    for wrong in ({"a": 0.5, "b": 0.4}, {"a": 0.5, "c": 0.5}, {"a": float("nan"), "b": 1.0}):
        with pytest.raises(us.errors.InvalidArgument, match="production"):
            single.study.state.probabilities(dated(1), wrong)


def test_the_answer_says_how_much_is_left_of_a_warm_up(tmp_path: Path) -> None:
    single = SingleStudy(tmp_path, context=COLUMNS, warmup=10)
    for sent, left in ((8, 2), (10, 0), (12, 0)):
        send(single, numbered, *range(single.study.next_seq - 1, sent))
        context = json.dumps(numbered(1))
        production = json.dumps({"a": 0.5, "b": 0.5})
        ask = shown(single)[1]
        at = "/v1/studies/study"
        found = ask(f"{at}/policy?context={quote(context)}&production={quote(production)}").json
        assert (found["warmup_left"], found["learned"]) == (left, max(0, sent - 10))
        assert ask(at).json["warmup_left"] == left
