"""What the page of the service is told about a study: the words, and what a report shows."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.live.simulated_service import viewed
from tests.support.live.single_study import Event
from tests.support.markup import Element, tree
from tests.support.reports import SAMPLES, action_rows, plain, render_page, sample
from tests.support.strategies import quick
from understudy.report import CandidateRow

pytestmark = pytest.mark.plain

MAY = datetime(2026, 5, 3, 9, 30, tzinfo=UTC)
PROMOTED = sample("promoted")
PLAIN = replace(sample("waiting"), certificate=None)
LOADING = {"src", "href", "srcset", "action", "data", "poster", "background", "style"}


def dirty_texts() -> st.SearchStrategy[str]:
    markup = st.sampled_from(["<script>", "</td>", '"', "'", "&lt;", "{{ x }}", "]]>", "<!--"])
    return st.lists(st.one_of(markup, st.text(max_size=5)), max_size=5).map("".join)


def parts(payload: dict[str, Any]) -> list[Element]:
    return [tree(text) for text in payload["fragments"].values()]


def tags(payload: dict[str, Any]) -> list[list[tuple[str, list[str]]]]:
    return [[(e.tag, sorted(e.attributes)) for e in part.every("*")] for part in parts(payload)]


@pytest.mark.parametrize("name", SAMPLES)
def test_a_verdict_is_the_sentence_of_its_report(name: str) -> None:
    report = sample(name)
    said = viewed(report).summary()
    assert said["kind"] == report.verdict_kind
    assert (said["word"], said["why"]) == (report.mark.word, plain(report.said))
    assert said["verdict"] == plain(f"{report.mark.word}: {report.said}")


def test_a_promotion_says_since_when_a_gain_is_certain() -> None:
    said = replace(viewed(PROMOTED), promoted_since=MAY).summary()["verdict"]
    assert said == f"Promote: {PROMOTED.said} A gain was first certain on 3 May 2026."
    worse = replace(viewed(sample("contextual")), promoted_since=MAY).summary()["verdict"]
    assert "first certain" not in worse


def test_before_anything_is_learned_the_page_says_what_is_waited_for() -> None:
    early = viewed(decisions=7, waiting=7)
    assert early.summary()["verdict"] == "Waiting: no reward is known yet."
    one, more = (viewed(warmup_left=left).summary() for left in (1, 1340))
    assert one["verdict"] == "Warming up: 1 more decision prepares the contexts."
    assert more["verdict"] == "Warming up: 1,340 more decisions prepare the contexts."
    stopped = viewed(PROMOTED, fault="all contexts are alike").summary()
    assert stopped["verdict"] == "Stopped: all contexts are alike."
    shown = early.page()["fragments"]
    assert not any(shown[name] for name in ("bounds", "care", "certificate", "policy", "coverage"))


@given(
    st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)),
    st.integers(-12 * 60, 14 * 60),
)
@quick
def test_a_day_is_that_of_universal_time(moment: datetime, minutes: int) -> None:
    there = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    said = replace(viewed(PROMOTED), promoted_since=there).summary()["verdict"]
    day = said.rpartition(" on ")[2].removesuffix(".")
    again = datetime.strptime(f"{day} +0000", "%d %B %Y %z")
    assert there - again < timedelta(days=1)
    assert there >= again


@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_shows_what_the_report_shows(name: str) -> None:
    report = sample(name)
    shown = viewed(report).page()["fragments"]
    page = render_page(report)
    for part in ("bounds", "care", "certificate", "policy", "experts", "coverage"):
        assert shown[part] in page
    assert bool(shown["experts"]) == bool(report.experts)
    assert shown["bounds"]
    assert shown["coverage"]
    assert "3,600 seconds, then 0" in tree(shown["settings"]).text


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_told_is_json_and_survives_it(name: str) -> None:
    counted = viewed(sample(name), refused={"conflict": 2})
    view = replace(counted, promoted_since=MAY, blocked_until=MAY)
    told = view.page()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert view.summary().items() <= told.items()
    assert told["verdict"] == f"{told['word']}: {told['why']}"
    assert told["counters"]["promoted_since"] == "2026-05-03T09:30:00+00:00"


@pytest.mark.parametrize("name", SAMPLES)
def test_fragments_run_nothing_and_load_nothing(name: str) -> None:
    """A content-security policy without inline styles and scripts refuses none of it."""
    for part in parts(viewed(sample(name)).page()):
        for element in part.every("*"):
            assert element.tag not in {"script", "style", "link", "img", "iframe", "use", "image"}
            assert not LOADING & set(element.attributes)
            assert not any(attribute.startswith("on") for attribute in element.attributes)


@given(*[dirty_texts()] * 4)
@quick
def test_no_text_becomes_markup(label: str, candidate: str, reason: str, setting: str) -> None:
    """Whatever labels, reasons and settings hold, the tree is that of harmless ones."""

    def told(label: str, candidate: str, reason: str, setting: str) -> dict[str, Any]:
        report = replace(
            PLAIN,
            actions=action_rows([label, "b"], 100),
            candidates=[CandidateRow(candidate, candidate)],
            warnings=[candidate],
            coverage=[label],
        )
        view = viewed(report, refused={reason: 3})
        spec = view.now.study.model_copy(update={"context": {setting: "text"}})
        return replace(view, now=view.now.model_copy(update={"study": spec})).page()

    assert tags(told(label, candidate, reason, setting)) == tags(told("a", "b", "c", "d"))


def test_all_that_was_rejected_is_listed_once_with_its_reason() -> None:
    view = viewed(refused={"conflict": 2, "unknown decision": 9, "odd": 1, "late": 5}, late=5)
    rows = tree(view.page()["fragments"]["rejected"]).every("tbody")[0].every("tr")
    cells = [[cell.text for cell in row.parts if isinstance(cell, Element)] for row in rows]
    assert [(reason, events) for reason, _, events in cells] == [
        ("unknown decision", "9"),
        ("late", "5"),
        ("conflict", "2"),
        ("odd", "1"),
    ]
    assert [meaning == "–" for _, meaning, _ in cells] == [False, False, False, True]
    assert "was taken" in viewed().page()["fragments"]["rejected"]


def test_every_counter_is_shown() -> None:
    view = viewed(
        decisions=1001,
        learned=1002,
        waiting=1003,
        expired=1004,
        known=1005,
        refused={"late": 1006},
        events_per_second=1007.2,
    )
    text = " ".join(part.text for part in parts(view.page()))
    for number in range(1001, 1008):
        assert f"{number:,}" in text


@pytest.mark.parametrize(
    ("rate", "words"),
    [(0.0, "0"), (0.04, "< 0.1"), (0.1, "0.1"), (2.54, "2.5"), (9.99, "10.0"), (1234.5, "1,234")],
)
def test_rates_are_said_as_people_say_them(rate: float, words: str) -> None:
    said = viewed(events_per_second=rate).summary()["numbers"]
    assert said == f"0 decisions · {words} events a second"


def test_what_holds_others_back_is_said_until_when() -> None:
    views = [viewed(waiting=2), viewed(), viewed(waiting=2, fault="all contexts are alike")]
    held, *others = (replace(view, blocked_until=MAY).page()["fragments"] for view in views)
    assert "until 3 May 2026, 09:30:00 UTC." in held["events"]
    assert not any("waited for" in other["events"] for other in others)


def test_only_a_study_without_decisions_shows_how_to_send_one() -> None:
    view = viewed(actions=["a", "b"])
    example = {"id": "decision-1", "action": "a", "propensity": 0.5, "reward": 1.0}
    assert view.page()["example"] == example
    spec = view.now.study
    assert spec.faults(Event.model_validate(example)) == {}
    assert viewed(decisions=1).page()["example"] is None
    assert viewed(archived_at=MAY.isoformat()).page()["example"] is None


def test_contexts_are_shown_with_their_kinds() -> None:
    view = viewed()
    spec = view.now.study.model_copy(update={"context": {"age": "number", "city": "text"}})
    shown = replace(view, now=view.now.model_copy(update={"study": spec})).page()["fragments"]
    assert "age (number), city (text)" in tree(shown["settings"]).text
    assert "Contexts" not in tree(view.page()["fragments"]["settings"]).text


def test_a_setting_that_the_report_has_too_is_shown_once() -> None:
    shown = tree(viewed(PROMOTED).page()["fragments"]["settings"])
    assert [name.text for name in shown.every("dt")].count("Behavior") == 1
