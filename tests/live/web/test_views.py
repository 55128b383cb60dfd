"""What the page of the service is told about a study: the words, and what a report shows."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.markup import Element, tree
from tests.support.reports import SAMPLES, action_rows, render_page, sample
from tests.support.strategies import quick
from understudy.live.web.views import About, Counters, headline_of, show, summarize
from understudy.report import CandidateRow, Report

pytestmark = pytest.mark.plain

ROUTER = About(
    name="router",
    settings=[("Learner", "exp3_ix")],
    example={"id": "1", "action": "small", "reward": 1},
)
SEEN = Counters(decisions=10, learned=10)
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


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("promoted", "Promote: since 3 May 2026, with 95 % confidence."),
        (
            "contextual",
            "Worse than production: With 95 % confidence the understudy would have earned at most "
            "0.428 a round, where production earned 0.61.",
        ),
        (
            "undecided",
            "Cannot tell: 63 % of what the policy plays are actions that the log never shows.",
        ),
        (
            "waiting",
            "Not enough data yet: The understudy looks better than production, but 8,000 rows do "
            "not show it with 95 % confidence.",
        ),
    ],
)
def test_a_verdict_is_one_sentence_of_its_kind(name: str, sentence: str) -> None:
    report = sample(name)
    said = headline_of(report, replace(SEEN, promoted_since=MAY))
    assert (said.kind, said.sentence) == (report.verdict_kind, sentence)


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("not yet", "Not enough data yet"),
        ("cannot tell", "Cannot tell"),
        ("worse", "Worse than production"),
    ],
)
def test_the_words_of_a_report_follow_the_word_of_its_kind(kind: Any, word: str) -> None:
    """Whatever they are: they are shown, not read."""
    words = "This log cannot tell: The understudy: 50 rows."
    report = replace(sample("promoted"), verdict_kind=kind, verdict=words)
    assert headline_of(report, SEEN).sentence == f"{word}: {words}"


def test_a_promotion_says_how_sure_it_is() -> None:
    assert headline_of(PROMOTED, SEEN).sentence == "Promote: with 95 % confidence."


def test_without_a_certificate_nothing_is_made_up() -> None:
    report = replace(sample("promoted"), certificate=None, verdict="It is better.")
    assert headline_of(report, SEEN).sentence == "Promote: It is better."


@pytest.mark.parametrize("report", [None, sample("promoted")])
def test_before_anything_is_learned_the_page_says_what_is_waited_for(report: Report | None) -> None:
    """Also if there is a report: it is one about nothing."""
    early = Counters(decisions=7, waiting=7)
    assert headline_of(report, early).sentence == "Waiting: no reward is known yet."
    one, more = (headline_of(report, replace(early, warmup_left=left)) for left in (1, 1340))
    assert one.sentence == "Warming up: 1 more decision prepares the contexts."
    assert more.sentence == "Warming up: 1,340 more decisions prepare the contexts."
    assert headline_of(report, replace(early, warmup_left=0)).kind == "waiting"
    shown = show(ROUTER, report, early)["fragments"]
    assert not any(shown[name] for name in ("bounds", "care", "certificate", "policy", "coverage"))


@given(
    st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)),
    st.integers(-12 * 60, 14 * 60),
)
@quick
def test_a_day_is_that_of_universal_time(moment: datetime, minutes: int) -> None:
    there = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    said = headline_of(PROMOTED, replace(SEEN, promoted_since=there)).sentence
    day = said.removeprefix("Promote: since ").partition(",")[0]
    again = datetime.strptime(f"{day} +0000", "%d %B %Y %z")
    assert there - again < timedelta(days=1)
    assert there >= again


@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_shows_what_the_report_shows(name: str) -> None:
    report = sample(name)
    shown = show(ROUTER, report, SEEN)["fragments"]
    page = render_page(report)
    for part in ("bounds", "care", "certificate", "policy", "coverage"):
        assert shown[part] in page
    assert shown["bounds"]
    assert shown["coverage"]
    assert all(value in tree(shown["settings"]).text for _, value in ROUTER.settings)


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_told_is_json_and_survives_it(name: str) -> None:
    counters = replace(SEEN, promoted_since=MAY, blocked_until=MAY, refused={"conflict": 2})
    told = show(ROUTER, sample(name), counters)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert summarize("router", sample(name), counters).items() <= told.items()
    assert told["verdict"] == f"{told['word']}: {told['why']}"
    assert told["counters"]["promoted_since"] == "2026-05-03T09:30:00+00:00"


@pytest.mark.parametrize("name", SAMPLES)
def test_fragments_run_nothing_and_load_nothing(name: str) -> None:
    """A content-security policy without inline styles and scripts refuses none of it."""
    for part in parts(show(ROUTER, sample(name), SEEN)):
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
        about = replace(ROUTER, settings=[(setting, setting)])
        return show(about, report, replace(SEEN, refused={reason: 3}))

    assert tags(told(label, candidate, reason, setting)) == tags(told("a", "b", "c", "d"))


def test_all_that_was_rejected_is_listed_once_with_its_reason() -> None:
    counters = replace(SEEN, late=5, refused={"conflict": 2, "unknown decision": 9, "odd": 1})
    rows = tree(show(ROUTER, None, counters)["fragments"]["rejected"]).every("tbody")[0].every("tr")
    cells = [[cell.text for cell in row.parts if isinstance(cell, Element)] for row in rows]
    assert [(reason, events) for reason, _, events in cells] == [
        ("unknown decision", "9"),
        ("late", "5"),
        ("conflict", "2"),
        ("odd", "1"),
    ]
    assert [meaning == "–" for _, meaning, _ in cells] == [False, False, False, True]
    assert counters.rejected == {"unknown decision": 9, "late": 5, "conflict": 2, "odd": 1}
    counted = replace(counters, refused={"late": 5})
    assert counted.rejected == {"late": 5}
    assert "was taken" in show(ROUTER, None, Counters())["fragments"]["rejected"]


def test_every_counter_is_shown() -> None:
    counters = Counters(
        decisions=1001,
        learned=1002,
        waiting=1003,
        expired=1004,
        known=1005,
        late=1006,
        events_per_second=1007.2,
    )
    text = " ".join(part.text for part in parts(show(ROUTER, None, counters)))
    for number in range(1001, 1008):
        assert f"{number:,}" in text


@pytest.mark.parametrize(
    ("rate", "words"),
    [(0.0, "0"), (0.04, "< 0.1"), (0.1, "0.1"), (2.54, "2.5"), (9.99, "10.0"), (1234.5, "1,234")],
)
def test_rates_are_said_as_people_say_them(rate: float, words: str) -> None:
    said = summarize("router", None, Counters(events_per_second=rate))["numbers"]
    assert said == f"0 decisions · {words} events a second"


def test_what_holds_others_back_is_said_until_when() -> None:
    held = replace(SEEN, waiting=2, blocked_until=MAY)
    assert "until 3 May 2026, 09:30:00 UTC." in show(ROUTER, None, held)["fragments"]["events"]
    free = replace(held, waiting=0)
    assert "waited for" not in show(ROUTER, None, free)["fragments"]["events"]


def test_only_a_study_without_decisions_shows_how_to_send_one() -> None:
    assert show(ROUTER, None, Counters())["example"] == ROUTER.example
    assert show(ROUTER, None, Counters(decisions=1))["example"] is None
