"""A report says what its data says, and does nothing else: on a page, in a cell, in a terminal."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import subprocess
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

import understudy as us
from tests.support.logs.sticky import fresh_log, sticky_log
from tests.support.markup import Element, tree
from tests.support.paths import PACKAGE
from tests.support.programs import find
from tests.support.reports import (
    SAMPLES,
    FileRead,
    action_rows,
    certificate,
    count,
    named,
    number,
    percent,
    plain,
    sample,
    size,
    value,
)
from tests.support.strategies import quick
from understudy.report import (
    ActionRow,
    CandidateRow,
    GainBounds,
    QuarantineCount,
    Report,
    show,
)
from understudy.report.charts import draw_certificate, draw_interval
from understudy.report.render import fragment, render_page
from understudy.report.tables import bounds, confidence_note, estimates, quarantine_line
from understudy.report.words import FRESH_DRAWS, FRESH_DRAWS_OF_RUNS, MARKS

pytestmark = pytest.mark.plain

TEMPLATES = PACKAGE / "report" / "templates"
CSS = (TEMPLATES / "report.css").read_text(encoding="utf-8")
CURVES = ("rounds", "lower", "upper", "production", "gain")
REFERENCES = {"src", "href", "xlink:href", "srcset", "action", "data", "poster", "background"}


def cells(table: Element) -> list[list[Element]]:
    rows = table.every("tbody")[0].every("tr")
    return [[part for part in row.parts if isinstance(part, Element)] for row in rows]


def captioned(root: Element, caption: str) -> Element:
    found = [t for t in root.every("table") if t.every("caption")[0].text == caption]
    assert len(found) == 1
    return found[0]


def close(text: str, number: float, scale: float = 1.0) -> bool:
    return text in {"–", "never"} or value(text) == pytest.approx(scale * number, rel=5.01e-4)


@pytest.fixture(params=SAMPLES)
def report(request: pytest.FixtureRequest) -> Report:
    return sample(str(request.param))


def everything(report: Report) -> list[str]:
    """All that is said of the certificate."""
    curve, kind = report.certificate, report.verdict_kind
    assert curve is not None
    said = bounds(curve, kind) | estimates(curve, kind)
    assert len(said) == 7 + (kind != "worse")  # nothing twice
    return list(said.values())


def many_actions(n_actions: int = 1000) -> Report:
    labels: list[object] = [
        f"{i} " + "action with a rather long name " * 9 for i in range(n_actions)
    ]
    return replace(sample("promoted"), actions=action_rows(labels, 10**7))


# ── the page ──────────────────────────────────────────────────────────────────────────────────────


def test_the_page_is_well_formed_and_can_be_read_aloud(report: Report) -> None:
    root = tree(render_page(report))
    assert [len(root.every(tag)) for tag in ("header", "main", "footer", "h1")] == [1, 1, 1, 1]
    assert root.every("html")[0].attributes["lang"] == "en"
    ids = [element.attributes["id"] for element in root.every("*") if "id" in element.attributes]
    assert len(ids) == len(set(ids))
    for section in root.every("section"):
        assert section.attributes["aria-labelledby"] in ids
    for table in root.every("table"):
        assert table.every("caption")[0].text
        assert {th.attributes["scope"] for th in table.every("th")} == {"col", "row"}
        assert {len(row) for row in cells(table)} == {len(table.every("thead")[0].every("th"))}
    for svg in root.every("svg"):
        named_ = svg.attributes.get("role") == "img" and svg.attributes["aria-label"]
        inner = "width" in svg.attributes  # a part of another picture that is cut off at its edge
        assert named_ or inner or svg.attributes.get("aria-hidden") == "true"
    levels = [int(e.tag[1]) for e in root.every("*") if re.fullmatch(r"h[1-6]", e.tag)]
    assert max(levels, default=1) <= 3


def test_every_word_and_number_of_the_data_is_on_the_page(report: Report) -> None:
    root = tree(render_page(report))
    said = " ".join(root.every("body")[0].text.split())
    words = [
        report.title,
        report.subtitle,
        report.verdict,
        report.mark.word,
        report.step,
        report.code,
    ]
    words += [*report.assumptions, *report.coverage, *report.warnings]
    words += [word for fact in report.facts for word in fact]
    words += [c.words for c in report.candidates] + [f.sha256 for f in report.files]
    words += [report.generated_by, report.generated_at]
    words += [*everything(report)]
    assert [word for word in words if plain(word) not in said] == []


def test_the_certificate_on_the_page_is_that_of_the_data(report: Report) -> None:
    curve = report.certificate
    assert curve is not None
    shown = {
        pair.every("dt")[0].text: pair.every("dd")[0].text
        for dl in tree(render_page(report)).every("dl")
        for pair in dl.every("div")
    }
    rounds, lower, upper, production, gain = curve.table[-1].tolist()
    assert close(shown["the understudy would have earned at least"], lower)
    assert close(shown["would have earned at most"], upper)
    assert close(shown["production earned"], production)
    assert close(shown["inverse propensity score (IPS)"], curve.estimate)
    assert close(shown["self-normalised IPS"], curve.self_normalised)
    worth, total = shown["effective sample size"].removesuffix(" rounds").split(" of ")
    assert close(worth, curve.effective_sample_size)
    assert value(total) == rounds
    promotion = shown.get("promotion justified after round", "nothing")
    said = shown["gain over production, at least"], promotion
    if report.verdict_kind == "worse":
        assert close(said[0], gain)
        assert said[1] == "nothing"
    elif curve.gain is None:
        assert said == ("not certified", "not certified")
    else:
        assert close(said[0], gain)
        assert said[1] == ("not yet" if curve.promoted_at is None else f"{curve.promoted_at:,}")


def test_every_action_stands_in_the_table_with_its_numbers(report: Report) -> None:
    table = captioned(tree(render_page(report)), "What the log says about each action")
    rows = cells(table)
    assert len(rows) == len(report.actions)
    ordered = sorted(report.actions, key=lambda row: -max(row.policy or 0.0, row.share))
    for row, (name, *numbers) in zip(ordered, rows, strict=True):
        assert name.text == named(row.label, 80)
        times, share, policy, reward, propensity, coverage, size = (n.text for n in numbers)
        assert times == (f"{row.count:,}" if row.count else "never")
        for text, part in ((share, row.share), (policy, row.policy)):
            assert part is not None
            assert (text == "< 0.001 %" and 0 < part < 1e-5) or close(text, part, 100.0)
        assert (reward == "–") == (row.mean_reward is None)
        assert row.mean_reward is None or close(reward, row.mean_reward)
        assert row.coverage is None or close(coverage, row.coverage)
        assert row.effective_sample_size is None or close(size, row.effective_sample_size)
        if row.lowest is not None and row.highest is not None:
            low, high = propensity.split(" … ")
            assert close(low, row.lowest)
            assert close(high, row.highest)
        exact = [row.count, row.share, row.policy, row.mean_reward, row.lowest, row.coverage]
        sorted_by = [n.attributes.get("data-value") for n in numbers]
        for attribute, number_ in zip(sorted_by, exact, strict=False):
            assert (attribute is None) == (number_ is None)
            assert attribute is None or float(attribute) == number_


def test_a_policy_that_is_worse_shows_the_bound_that_says_so_first() -> None:
    root = tree(render_page(sample("contextual")))
    tiles, beside_them, *_ = ([pair.text for pair in dl.every("dt")] for dl in root.every("dl"))
    assert tiles == [
        "the understudy would have earned at least",
        "would have earned at most",
        "production earned",
        "gain over production, at least",
    ]
    assert "would have earned at most" not in beside_them
    tiles, beside_them, *_ = (
        [pair.text for pair in dl.every("dt")]
        for dl in tree(render_page(sample("waiting"))).every("dl")
    )
    assert tiles[-1] == "promotion justified after round"
    assert "would have earned at most" in beside_them


def test_production_that_is_a_bound_is_shown_as_one() -> None:
    whole = sample("waiting")
    assert whole.certificate is not None
    curve = replace(whole.certificate, at_most=True)
    for shown in (render_page, fragment, lambda one: "\n".join(printed(one))):
        assert "production earned at most" not in shown(whole)
        assert "production earned at most" in shown(replace(whole, certificate=curve))
    last: dict[str, Any] = {name: np.asarray(getattr(curve, name))[-1:] for name in CURVES}
    one = replace(curve, **last)
    described = draw_interval(one).partition("production earned ")[2]
    assert described.startswith(f"at most {number(one.table[-1, 3])}")
    assert f"production earned at most {number(one.table[-1, 3])}" in draw_certificate(curve)


def test_counts_beside_each_other_do_not_contradict_each_other() -> None:
    """An effective sample size is never above the rows that it is of."""
    rows = [ActionRow("a", 10_295, 0.5, effective_sample_size=10_295.0)]
    candidates = [CandidateRow("uniform", "29,191 plays", 3.0, 29_191.2, 0.1)]
    report = replace(sample("waiting"), actions=rows, candidates=candidates)
    for shown in (render_page(report), "\n".join(printed(report, 120))):
        assert "10,295" in shown
        assert "29,191" in shown
        assert not re.search(r"10,300|29,190", shown)


def test_labels_that_differ_in_spaces_differ_where_they_are_shown() -> None:
    labels = [" a b", "a b", "a b ", "\ta b", "a"]

    report = replace(sample("waiting"), actions=action_rows([*labels], 1_000))
    rows = cells(captioned(tree(render_page(report)), "What the log says about each action"))
    assert {row[0].text for row in rows} == {"' a b'", "a b", "'a b '", "a"}
    said = "\n".join(printed(report))
    assert "' a b'" in said
    assert "'a b '" in said


def test_counts_of_quarantine_and_files_add_up() -> None:
    report = sample("dirty")
    root = tree(render_page(report))
    assert "74,040 of 100,006 rows (74.04 %) are quarantined." in root.text
    reasons = Counter[str]()
    for group in report.quarantine:
        reasons[group.reason] += group.count
    shown = cells(captioned(root, "Why rows are quarantined"))
    assert [(row[0].text, int(value(row[1].text))) for row in shown] == reasons.most_common()
    by_file = cells(captioned(root, "Quarantined rows, by file"))
    assert sum(value(row[2].text) for row in by_file) == report.quarantined == reasons.total()
    files = cells(captioned(root, "Files that were read"))
    assert [(value(r[1].text), value(r[2].text)) for r in files] == [
        (file.rows, file.quarantined) for file in report.files
    ]
    examples = cells(captioned(root, "Some of these rows"))
    assert [value(row[1].text) for row in examples] == [row.row for row in report.examples]


def test_what_is_left_out_is_said() -> None:
    report = many_actions()
    files = [FileRead(f"{i}.csv", "0" * 64, 10, 0) for i in range(250)]
    groups = [QuarantineCount(f"{i}.csv", "reward is missing", 1) for i in range(101)]
    page = tree(render_page(replace(report, files=files, quarantine=groups))).text
    for words in (
        "… and 800 more actions: with --json.",
        "… and 150 more files.",
        "… and 1 more line.",
    ):
        assert words in page
    rest = sorted(report.actions, key=lambda row: -max(row.policy or 0.0, row.share))[20:]
    policy, share = sum(row.policy or 0 for row in rest), sum(row.share for row in rest)
    note = re.search(r"980 more actions have (\S+ %) of the policy and (\S+ %) of prod", page)
    assert note is not None
    assert close(note[1], policy, 100.0)
    assert close(note[2], share, 100.0)


def test_a_page_of_a_thousand_actions_is_small() -> None:
    assert len(render_page(many_actions()).encode()) < 600_000


def test_contexts_are_said_where_the_policy_depends_on_them() -> None:
    words = "its shares are means over the last 10,000 rows"
    for name in SAMPLES:
        assert (words in render_page(sample(name))) == (name == "contextual")


def test_a_report_without_policy_or_certificate_has_no_empty_parts() -> None:
    """As for coverage alone, and at the least for nothing but a verdict."""
    rows = action_rows(["a", "b"], 100, policy=False)
    bare = Report(
        title="A log",
        verdict="It can tell.",
        verdict_kind="coverage",
        generated_by="understudy",
        generated_at="today",
    )
    page = tree(render_page(replace(bare, actions=rows)))
    assert [h.text for h in page.every("h2")] == [
        "It can tell.",
        "What this log can say",
        "Quarantine",
        "How this was made",
    ]
    headings = [th.text for th in page.every("thead")[0].every("th")]
    assert "policy" not in headings
    assert "No row is quarantined." in page.text
    assert len(tree(render_page(bare)).every("table")) == 0


def number_line(bounds: GainBounds) -> tuple[Element, str]:
    """The picture of a gain, and the sentence for those who do not see it."""
    (svg, narrow) = (
        one
        for one in tree(render_page(replace(sample("waiting"), gain=bounds))).every("svg")
        if one.attributes.get("aria-label", "").startswith("Gain per row")
    )
    assert svg.attributes["aria-label"] == narrow.attributes["aria-label"]
    return svg, svg.attributes["aria-label"]


def test_the_gain_is_a_number_line_with_the_estimate_between_its_bounds_and_zero() -> None:
    svg, label = number_line(GainBounds(0.005, -0.026, 0.042))
    assert label == ("Gain per row: at least −0.026, estimated +0.005, at most +0.043")
    (bar,) = svg.every("rect")
    start, size = (float(bar.attributes[name]) for name in ("x", "width"))
    (zero,) = (e for e in svg.every("line") if e.attributes["class"] == "zero")
    place = {-0.026: start, 0.042: start + size, 0.0: float(zero.attributes["x1"])}
    place[0.005] = float(svg.every("circle")[0].attributes["cx"])
    slope = (place[0.042] - place[-0.026]) / 0.068
    for gain, x in place.items():
        assert x - start == pytest.approx((gain + 0.026) * slope, abs=0.2)
    middles = [float(e.attributes["x"]) for e in svg.every("text")]
    assert 0.0 <= min(middles) <= max(middles) <= 720.0


@pytest.mark.parametrize("bounds", [GainBounds(0.1), GainBounds(0.1, None, None)])
def test_without_bounds_there_is_no_number_line(bounds: GainBounds) -> None:
    page = render_page(replace(sample("waiting"), gain=bounds))
    assert "Gain per row" not in page
    assert "Gain over production per row" not in page


def test_a_gain_of_late_is_drawn_without_the_estimate_over_all_rows() -> None:
    svg, label = number_line(GainBounds(0.005, -0.026, 0.041, since=512, low_since=0.02))
    assert label == "Gain per row: at least +0.02 since row 512"
    assert svg.every("circle") == []


@given(
    bounds=st.builds(
        GainBounds,
        st.one_of(st.none(), st.floats(-1e3, 1e3)),
        st.floats(-1e3, 1e3),
        st.one_of(st.none(), st.floats(-1e3, 1e3)),
        st.none(),
        st.none(),
    )
)
@quick
def test_every_gain_can_be_drawn_in_the_terminal_too(bounds: GainBounds) -> None:
    report = replace(sample("waiting"), gain=bounds)
    line = next(line for line in printed(report, 100) if line.startswith("at least"))
    assert line.count("0") >= 1
    assert ("●" in line) == (bounds.estimate is not None)


def test_a_certificate_without_history_is_a_range() -> None:
    curve = certificate(1_000, mean=0.4, production=0.3, spread=0.3)
    last = replace(
        curve,
        rounds=[1_000],
        lower=[0.35],
        upper=[0.45],
        production=[0.3],
        gain=[0.01],
        promoted_at=None,
    )
    labels = [
        [
            svg.attributes["aria-label"]
            for svg in tree(render_page(one)).every("svg")
            if svg.attributes.get("role") == "img"
        ]
        for one in (
            replace(sample("promoted"), certificate=c, actions=(), gain=None) for c in (curve, last)
        )
    ]
    assert (
        labels[0] == ["The certificate over time"] * 2 + ["The gain over production, at least"] * 2
    )
    assert labels[1] == ["The certified range"] * 2


# ── what it must not do ───────────────────────────────────────────────────────────────────────────


def assert_harmless(root: Element, scripts: int) -> None:
    """No element, attribute or style that asks for anything, or runs what came from the data."""
    assert len(root.every("script")) == scripts
    for element in root.every("*"):
        assert element.tag not in {"img", "link", "iframe", "object", "embed", "base", "b", "image"}
        assert not REFERENCES & set(element.attributes)
        assert not any(name.startswith("on") for name in element.attributes)
        for attribute in element.attributes.values():
            assert "url(" not in attribute
    for style in root.every("style"):
        assert not re.search(r"@import|url\(|https?:|expression", style.text)


def test_a_page_asks_for_nothing_and_runs_only_its_own_script(report: Report) -> None:
    page = render_page(report)
    root = tree(page)
    assert_harmless(root, scripts=1)
    script = root.every("script")[0].text
    assert script == (TEMPLATES / "sort.js").read_text(encoding="utf-8").rstrip("\n")
    policy = next(m for m in root.every("meta") if "http-equiv" in m.attributes)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy.attributes["content"] == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    )
    if report.title != sample("dirty").title:
        assert not re.search(r"https?://|src=|@import|url\(", page)


def test_hostile_text_is_shown_and_does_nothing() -> None:
    report = sample("dirty")
    for made in (render_page(report), fragment(report)):
        made.encode()
        assert not re.search(
            "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]", made
        )
    root = tree(render_page(report))
    names = [row[0].text for row in cells(captioned(root, "What the log says about each action"))]
    assert {"<script>alert(1)</script>", "{{ 7 * 7 }}", "&amp; ampersand", "(empty)"} <= set(names)
    assert r"\x1b[31mred\x1b[0m" in names
    assert r"right to left \u202e txet" in names
    assert max(map(len, names)) == 80
    assert root.every("title")[0].text == report.title


@given(st.text(max_size=40))
@quick
def test_no_text_gets_out_of_its_place(words: str) -> None:
    """Wherever it stands: the page has the elements that it has for any other word."""
    report = sample("dirty")
    everywhere = replace(
        report,
        certificate=None,
        title=words,
        verdict=words,
        facts=[(words, words)],
        warnings=[words],
        actions=[replace(row, label=words) for row in report.actions[:2]],
        quarantine=[QuarantineCount(words, words, 3)],
        files=[FileRead(words, words, 3, 3)],
        generated_at=words,
    )
    assert_harmless(tree(render_page(everywhere)), scripts=1)
    assert_harmless(tree(fragment(everywhere)), scripts=0)
    assert tree(render_page(everywhere)).every("h1")[0].text == plain(words)


def test_the_same_data_gives_the_same_page(report: Report) -> None:
    assert render_page(report) == render_page(report)


# ── colors ────────────────────────────────────────────────────────────────────────────────────────


def schemes() -> tuple[dict[str, str], dict[str, str]]:
    light, dark = re.findall(r":root \{([^}]*--quiet[^}]*)\}", CSS)
    both = [dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6});", block)) for block in (light, dark)]
    return both[0], both[1]


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


def test_light_and_dark_define_the_same_colors_and_all_that_are_used() -> None:
    light, dark = schemes()
    assert light.keys() == dark.keys()
    used = set(re.findall(r"var\(--([a-z]+)\)", CSS))
    assert used - {"mark"} == light.keys()


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_and_lines_stand_out(dark: bool) -> None:
    colors = schemes()[dark]
    texts = ("ink", "quiet", "target", "played", "good", "wait", "open", "bad")
    for text in texts:
        for behind in ("page", "card", "soft"):
            assert contrast(colors[text], colors[behind]) >= 4.5, (text, behind)
    assert (
        abs(luminance(colors["target"]) - luminance(colors["played"])) >= 0
    )  # told apart by dashes


def test_nothing_is_told_apart_by_color_alone() -> None:
    """Production is dashed among lines and hollow among bars; verdicts have signs and words."""
    assert re.search(r"\.production \{[^}]*stroke-dasharray", CSS)
    assert not re.search(r"\.bound[^{]*\{[^}]*stroke-dasharray", CSS)
    assert re.search(r"rect\.share \{[^}]*fill-opacity: 0\.12[^}]*stroke: ", CSS)
    assert len({mark.sign for mark in MARKS.values()}) == len(MARKS)
    assert len({mark.word for mark in MARKS.values()}) == len(MARKS)


def test_contrast_is_that_of_the_guidelines() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


# ── in a notebook ─────────────────────────────────────────────────────────────────────────────────


def test_a_fragment_touches_nothing_around_it(report: Report) -> None:
    root = tree(fragment(report))
    assert_harmless(root, scripts=0)
    (outer,) = [part for part in root.parts if isinstance(part, Element)]
    assert outer.attributes["class"] == "understudy-report"
    assert not any("id" in element.attributes for element in root.every("*"))
    for rule in re.findall(r"([^{}]+)\{", outer.every("style")[0].text):
        for selector in rule.split(","):
            assert selector.strip().startswith(".understudy-report")


def test_a_fragment_says_the_verdict_the_certificate_and_the_first_actions(report: Report) -> None:
    root = tree(fragment(report))
    said = " ".join(root.text.split())
    words = [report.verdict, *everything(report), *report.warnings]
    assert [word for word in words if plain(word) not in said] == []
    rows = cells(captioned(root, "What the log says about each action"))
    assert len(rows) == min(8, len(report.actions))
    assert len(fragment(report)) < 20_000


# ── in the terminal ───────────────────────────────────────────────────────────────────────────────


def printed(report: Report, width: int = 80) -> list[str]:
    out = io.StringIO()
    show(report, Console(file=out, width=width, force_terminal=False))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_the_terminal_shows_everything_within_its_width(report: Report, width: int) -> None:
    lines = printed(report, width)
    assert max(cell_len(line) for line in lines) <= width
    said = re.sub(r"\s+", " ", " ".join(lines))
    assert all(line.isprintable() for line in lines)
    mark = report.mark
    words = [
        f"{mark.sign} {mark.word}. {report.verdict}",
        report.step,
        report.code,
        *report.coverage,
        *report.warnings,
    ]
    words += [*report.assumptions, *everything(report)]
    words += [f"{value}" for _, value in report.facts] + [c.words for c in report.candidates]
    flat = said.replace(" ", "")
    assert [word for word in words if plain(word).replace(" ", "") not in flat] == []


def test_the_verdict_comes_first() -> None:
    lines = printed(sample("promoted"))
    assert lines[2].startswith("✓ Promote. With 95 % confidence")


def test_numbers_are_never_cut_in_the_terminal(report: Report) -> None:
    lines = [line.split() for line in printed(report)]
    ordered = sorted(report.actions, key=lambda row: -max(row.policy or 0.0, row.share))
    for row in ordered[:15]:
        numbers = [
            count(row.count) if row.count else "never",
            percent(row.share),
            percent(row.policy),
        ]
        numbers += [number(row.mean_reward), number(row.coverage)]
        numbers += [size(row.effective_sample_size)]
        wanted = " ".join(numbers).split()
        assert any(line[-len(wanted) :] == wanted for line in lines)
    for file in report.files:
        assert any(line[-2:] == [count(file.rows), count(file.quarantined)] for line in lines)


def test_numbers_that_are_too_many_for_a_line_are_folded_not_cut() -> None:
    report = sample("waiting")
    huge = [replace(r, count=r.count * 10**15, coverage=1e14 + r.share) for r in report.actions]
    lines = printed(replace(report, actions=huge))
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if "…" in line] == [lines[2]]  # the sign of the verdict


def test_the_terminal_says_how_many_are_left_out() -> None:
    assert "… and 85 more actions: in report.html, or with --json" in printed(sample("promoted"))
    assert "… and 2 more lines" in printed(sample("dirty"))
    assert any("banner-" in line for line in printed(sample("promoted")))


def test_the_terminal_obeys_no_command_of_the_data() -> None:
    out = io.StringIO()
    report = replace(sample("dirty"), title="\x1b]0;title\x07[red]x[/red] :smile:")
    show(report, Console(file=out, width=80, force_terminal=True, color_system="truecolor"))
    text = out.getvalue()
    assert "[red]x[/red] :smile:" in text
    assert "\x07" not in text
    commands = set(re.findall(r"\x1b(?!\[[\d;]*m)", text))
    assert commands == set()


# ── in a browser ──────────────────────────────────────────────────────────────────────────────────

TELL_WIDTHS = "parent.postMessage(`${document.documentElement.scrollWidth} of ${innerWidth}`, '*')"
PHONE = """<!doctype html><title>nothing</title>
<script>onmessage = (event) => { document.title = event.data; };</script>
<iframe src="report.html" style="width: 390px; height: 800px; border: 0"></iframe>
"""
CLICK = """
const table = [...document.querySelectorAll("table")].find((one) =>
  one.caption.textContent.includes("each action"));
table.querySelectorAll("thead button")[1].click();
"""


def browse(page: Path, folder: Path, *arguments: str) -> str:
    quiet = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --hide-scrollbars "
        "--disable-background-networking --disable-component-update --disable-sync"
    )
    done = subprocess.run(
        [
            str(find("chromium")),
            *quiet.split(),
            f"--user-data-dir={folder}",
            *arguments,
            page.as_uri(),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout


def with_script(page: str, script: str) -> str:
    """The page with one more script, which its own policy would not let run."""
    unlocked = re.sub(r"<meta http-equiv[^>]*>", "", page)
    return unlocked.replace("</body>", f"<script>{script}</script></body>")


@pytest.mark.needs("chromium")
@pytest.mark.parametrize("name", ["promoted", "dirty"])
def test_a_browser_shows_it_and_nothing_is_wider_than_a_phone(tmp_path: Path, name: str) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "report.png"
    page.write_text(render_page(sample(name)), encoding="utf-8")
    shown = browse(page, tmp_path / "user", f"--screenshot={picture}", "--dump-dom")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "<button>" in shown  # the page's own script runs
    page.write_text(with_script(render_page(sample(name)), TELL_WIDTHS), encoding="utf-8")
    phone = tmp_path / "phone.html"  # a window cannot be so narrow, a frame can
    phone.write_text(PHONE, encoding="utf-8")
    told = browse(phone, tmp_path / "user", "--dump-dom", "--virtual-time-budget=5000")
    assert "<title>390 of 390</title>" in told


TELL_VERDICTS = """
const box = document.querySelector(".sentences-inside"), edge = box.getBoundingClientRect().right;
const out = [...box.querySelectorAll("tbody tr > *")].filter(
  (cell) => cell.getBoundingClientRect().right > edge || cell.scrollWidth > cell.clientWidth + 1);
parent.postMessage(`${out.length} of ${box.querySelectorAll("td").length} cut`, '*');
"""


@pytest.mark.needs("chromium")
@pytest.mark.parametrize("name", ["promoted", "undecided", "dirty"])
def test_no_verdict_is_cut_on_a_phone(tmp_path: Path, name: str) -> None:
    report = sample(name)
    page, phone = tmp_path / "report.html", tmp_path / "phone.html"
    page.write_text(with_script(render_page(report), TELL_VERDICTS), encoding="utf-8")
    phone.write_text(PHONE, encoding="utf-8")
    told = browse(phone, tmp_path / "user", "--dump-dom", "--virtual-time-budget=5000")
    assert f"<title>0 of {4 * len(report.candidates)} cut</title>" in told


@pytest.mark.needs("chromium")
def test_a_click_on_a_heading_sorts_the_table(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(with_script(render_page(sample("undecided")), CLICK), encoding="utf-8")
    root = tree(browse(page, tmp_path / "user", "--dump-dom").partition("\n")[2])
    rows = cells(captioned(root, "What the log says about each action"))
    counts = [0 if row[1].text == "never" else value(row[1].text) for row in rows]
    assert all(a >= b for a, b in pairwise(counts))


def test_a_certificate_of_older_rules_says_so() -> None:
    curve = sample("promoted").certificate
    assert curve is not None
    assert "by the rules of release 0.5" in confidence_note(replace(curve, rules=1))
    assert "release 0.5" not in confidence_note(replace(curve, rules=2))


def test_the_share_of_quarantined_units_is_of_units_and_not_of_rows() -> None:
    log = sticky_log(3, users=40, rows=400)
    first = pl.col("user") == log["user"][0]
    other = pl.when(pl.int_range(len(log)) == 0).then(pl.lit("none yet")).otherwise("action")
    changed = log.with_columns(pl.col("action").cast(pl.String)).with_columns(
        pl.when(first).then(other).otherwise("action").alias("action")
    )
    report = us.logs.learn(changed, unit="user").report
    assert report.units is not None
    units = report.units.units
    assert quarantine_line(report) == f"1 of {units} units is quarantined ({percent(1 / units)})."
    assert ("Units learned from", f"{units - 1}") in report.facts
    missing = changed.with_columns(pl.when(~first).then("user").alias("user"))
    line = quarantine_line(us.logs.learn(missing, unit="user").report)
    rows = int(log.select(first).to_series().sum())
    assert line.startswith(f"{rows} of {units - 1 + rows} units, and rows without one, are quaran")


def test_a_certificate_that_found_no_sticky_column_says_what_it_assumes() -> None:
    """No search sees everything: the user may be in no column of the log."""
    fresh, log = fresh_log(3, 1_000), sticky_log(3, users=100, rows=1_000)
    options: list[dict[str, Any]] = [{}, {"engine": "polars"}, {"no_unit": True}]
    for option in options:
        none = us.logs.certify(fresh, {"a": 0.1, "b": 0.9}, **option)
        assert FRESH_DRAWS in none.report.assumptions
    found = us.logs.certify(log, {"a": 0.1, "b": 0.9})
    assert found.coverage.obstacle == "sticky columns"  # it says more than an assumption
    assert FRESH_DRAWS not in found.report.assumptions
    units = us.logs.certify(log, {"a": 0.1, "b": 0.9}, unit="user")
    assert FRESH_DRAWS not in units.report.assumptions


def test_sentences_count_units_as_units() -> None:
    log = sticky_log(3, users=400, rows=4_000, gain=0.3)
    judged = us.logs.certify(log, {"a": 0.4, "b": 0.6}, unit="user", behavior={"a": 0.5, "b": 0.5})
    learned = us.logs.learn(log, unit="user", actions=["a", "b"], least_propensity=0.5)
    covered = us.logs.coverage(log, unit="user")
    for report in (judged.report, learned.report, covered.report):
        own = [report.verdict, *(row.words for row in report.candidates)]
        assert not [text for text in own if re.search(r"\brows?\b", text)], own
    assert "per unit" in judged.report.verdict
    assert covered.report.verdict.startswith("400 units of 2 actions")


def test_a_bound_that_no_certificate_could_use_is_named() -> None:
    log = sticky_log(3, users=400, rows=400).drop("user")
    for found in (
        us.logs.learn(log, least_propensity=0.5),
        us.logs.coverage(log, least_propensity=0.5),
    ):
        (warning,) = [text for text in found.warnings if "had no effect" in text]
        assert warning.startswith("The declared least propensity had no effect")
        assert "pass --actions FILE" in warning
    options: Any = {"least_propensity": 0.5, "actions": ["a", "b"]}
    for other in (
        us.logs.learn(log, **options),
        us.logs.coverage(log, **options),
        us.logs.certify(log, {"a": 0.4, "b": 0.6}, least_propensity=0.5),
        us.logs.coverage(log),
    ):
        assert not [text for text in other.warnings if "had no effect" in text]


def test_a_policy_of_several_runs_says_what_no_run_could_find() -> None:
    """A user with one row in each run is in no column twice."""
    log = sticky_log(3, users=40, rows=400).unique("user", keep="first", maintain_order=True)
    learned = us.logs.learn(log, actions=["a", "b"])
    more = us.logs.learn(log.with_columns(page=pl.col("page") + 1), resume=learned)
    said = FRESH_DRAWS_OF_RUNS
    assert said not in learned.report.assumptions
    assert said in more.report.assumptions
    declared = us.logs.learn(log.with_columns(page=0), resume=learned, no_unit=True)
    assert said not in declared.report.assumptions
