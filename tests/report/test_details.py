"""Contexts and experts in a report: their numbers, their order, their pictures, their warnings."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

import understudy as us
from tests.support.markup import tree
from tests.support.reports import HOSTILE, expert_rows, render_page, sample, value
from understudy.report import Report, as_dict, tables
from understudy.report.expert_charts import MOST_EXPERTS, PLOT, draw_experts

pytestmark = pytest.mark.plain

ROWS = 1_500
CITIES = ("Rome", "Oslo", "Bonn")


def log() -> pl.DataFrame:
    """Two actions: the second is better in Rome and worse in Oslo, and rare in Bonn."""
    rng = np.random.default_rng(3)
    city = rng.choice(3, ROWS, p=[0.5, 0.45, 0.05])
    q = np.array([0.5, 0.5, 0.02])[city]
    action = (rng.random(ROWS) < q).astype(int)
    mean = np.where(action == 1, np.array([0.9, 0.1, 1.0])[city], np.array([0.1, 0.9, 0.9])[city])
    return pl.DataFrame(
        {
            "action": np.array(["a", "b"])[action],
            "reward": 10.0 * (rng.random(ROWS) < mean),
            "propensity": np.where(action == 1, q, 1 - q),
            "city": np.array(CITIES)[city],
        }
    )


@pytest.fixture(scope="module")
def learned() -> us.logs.LearnResult:
    production, linear = "production", "lin-prod-compact"
    return us.logs.learn(
        log(),
        context="city",
        warmup=200,
        reward_range=(0, 10),
        actions=["a", "b"],
        learner={"production": production, "linear": linear},
    )


def test_contexts_have_the_numbers_of_the_log_in_its_units(learned: us.logs.LearnResult) -> None:
    rows = log()[200:]
    assert {row.name for row in learned.report.contexts} == {f"city = {city}" for city in CITIES}
    for row in learned.report.contexts:
        own = rows.filter(pl.col("city") == row.name.removeprefix("city = "))
        plays = {label: int((own["action"] == label).sum()) for label in ("a", "b")}
        assert row.rows == len(own)
        assert row.share == len(own) / len(rows)
        assert row.production == {label: n / len(own) for label, n in plays.items()}
        assert row.policy is not None
        assert sum(row.policy.values()) == pytest.approx(1.0)
    groups = learned.policy.study.groups
    assert groups is not None
    found = {one.rows: one.difference(0.95) for one in groups.sums if one.rows}
    for row in learned.report.contexts:
        unit = found[row.rows]
        assert unit is not None
        assert (row.estimate, row.lower, row.upper) == tuple(10.0 * x for x in unit)


def test_contexts_are_sorted_by_their_effect(learned: us.logs.LearnResult) -> None:
    estimates = [row.estimate or 0.0 for row in learned.report.contexts]
    assert estimates == sorted(estimates, reverse=True)
    (table,) = tables.tabulate_contexts(learned.report, 100)
    assert [row[0].text for row in table.rows] == [row.name for row in learned.report.contexts]
    largest = tables.tabulate_largest_differences(learned.report, 1, "below")
    (shown,) = largest.rows
    assert (
        shown[0].text == max(learned.report.contexts, key=lambda row: abs(row.estimate or 0)).name
    )
    assert largest.rest == "… and 2 more contexts: below"


def test_written_bounds_hold_too(learned: us.logs.LearnResult) -> None:
    (table,) = tables.tabulate_contexts(learned.report, 100)
    headings = [column.heading for column in table.columns]
    for row, cells in zip(learned.report.contexts, table.rows, strict=True):
        texts = dict(zip(headings, (cell.text for cell in cells), strict=True))
        assert value(texts["at least"].replace("+", "")) <= (row.lower or 0.0)
        assert value(texts["at most"].replace("+", "")) >= (row.upper or 0.0)


def test_experts_have_the_rewards_of_their_estimates(learned: us.logs.LearnResult) -> None:
    state, n = learned.policy.study.state, ROWS - 200
    rows = {row.name: row for row in learned.report.experts}
    assert list(rows) == sorted(rows, key=lambda name: -rows[name].weight)
    mean = log()[200:]["reward"].mean()
    assert rows["production"].reward == pytest.approx(mean)
    assert rows["production"].gain == pytest.approx(0.0, abs=1e-9)
    learner = learned.policy.study.learner
    assert isinstance(learner, us.learners.Exp4)
    for m, name in enumerate(learner.labels):
        row = rows[name]
        assert row.reward == pytest.approx(10.0 * state.earned[m] / n)
        assert row.gain == pytest.approx(row.reward - rows["production"].reward)
        paid, gained = 10.0 * state.moments[:2, m] ** 0.5 / n  # of rewards of 0 and 10
        assert row.reward_error == pytest.approx(np.sqrt(paid**2 - row.reward**2 / n))
        assert row.gain_error == pytest.approx(np.sqrt(gained**2 - row.gain**2 / n), abs=1e-9)
        assert row.history[0] == (1, 0.5)
        assert row.history[-1] == (n + 1, row.weight)
        assert [weight for _, weight in row.history[:-1]] == state.history[:, m].tolist()
    weights = [
        sum(at[1] for at in point)
        for point in zip(*(r.history for r in rows.values()), strict=True)
    ]
    assert weights == pytest.approx([1.0] * len(weights))


def test_json_has_all_of_it(learned: us.logs.LearnResult) -> None:
    found = as_dict(learned.report)
    first, row = found["contexts"][0], learned.report.contexts[0]
    assert {name: first[name] for name in ("rows", "estimate", "lower", "upper")} == {
        name: getattr(row, name) for name in ("rows", "estimate", "lower", "upper")
    }
    assert first["policy"] == row.policy
    assert found["context_confidence"] == 0.95
    assert [one["name"] for one in found["experts"]] == [r.name for r in learned.report.experts]
    assert found["experts"][0]["history"][0] == [1, 0.5]


@pytest.mark.parametrize("city", ["Bonn", "Rome"])
def test_contexts_are_named_where_the_policy_is_certain_and_the_data_are_few(
    learned: us.logs.LearnResult, city: str
) -> None:
    """As if the policy always played b in a city: it is rare in Bonn alone."""
    study = learned.policy.study
    assert study.groups is not None
    (group,) = (i for i, key in enumerate(study.groups.keys) if key.labels == (city,))
    groups = study.groups.with_policies(np.array([[group]]), np.array([[0.0, 1.0]]), 0.0)
    policy = replace(learned.policy, study=replace(study, groups=groups))
    found = [one for one in replace(learned, policy=policy).warnings if "certain" in one]
    plays = int(groups.sums[group].plays[1])
    expected = (
        "The policy is certain and the data are few: it plays one action almost always, which the "
        f"log shows fewer than 30 times there, in 1 context: city = {city} (action b, {plays} "
        f"play{'' if plays == 1 else 's'})."
    )
    assert found == ([expected] if city == "Bonn" else [])


@pytest.mark.parametrize("rows", [200, 5_000])
def test_the_note_counts_the_rows_that_shares_are_means_over(rows: int) -> None:
    log_of = pl.concat([log()] * 4)[:rows].with_columns(pl.col("reward") / 10)
    report = us.logs.learn(log_of, actions=["a", "b"], context="city", warmup=100).report
    assert report.averaged_over == min(4_096, rows - 100)


def test_why_a_default_was_chosen_is_said_and_only_then() -> None:
    rows = log().drop("city")
    for learner, said in ((None, True), ("exp3-ix", False)):
        facts = dict(us.logs.learn(rows, actions=["a", "b"], learner=learner).report.facts)
        assert ("Why this learner" in facts) == said
        share = facts.get("Plays in which it does as production does")
        assert (share is not None) == said
    mine = log().with_columns(mine=0.5)
    asked: list[dict[str, Any]] = [
        {"learner": {"safe": "production", "own": "ridge"}},
        {"learner": "ridge", "expert": "mine"},
    ]
    for options in asked:
        found = us.logs.learn(mine, actions=["a", "b"], context="city", **options)
        assert "Why this learner" not in dict(found.report.facts)


# ─── pictures ─────────────────────────────────────────────────────────────────────────────────────


def test_the_weights_are_drawn_where_a_plain_computation_puts_them() -> None:
    experts = expert_rows(["one", "two"], 5_000, 1)
    root = ET.fromstring(draw_experts(experts, 720.0))
    lines = [path for path in root.iter("path") if path.get("class") == "bound least"]
    bases = [float(line.get("y1", "")) for line in root.iter("line") if line.get("class") == "zero"]
    for row, path, base in zip(experts, lines, bases, strict=True):
        points = [tuple(map(float, one.split())) for one in path.get("d", "")[1:].split("L")]
        assert len(points) == len(row.history)
        (x0, _), *_, (x1, _) = points
        last = row.history[-1][0]
        for (x, y), (at, weight) in zip(points, row.history, strict=True):
            assert y == pytest.approx(base - PLOT * weight, abs=0.051)
            assert x == pytest.approx(x0 + (x1 - x0) * np.log(at) / np.log(last), abs=0.11)


@pytest.mark.parametrize("width", [720.0, 330.0])
def test_any_names_and_many_experts_have_a_picture(width: float) -> None:
    names = [*HOSTILE, *map(str, range(20))]
    experts = expert_rows(names, 40, 2)
    svg = draw_experts(experts, width)
    root = ET.fromstring(svg)
    assert root.get("aria-label")
    assert sum(path.get("class") == "band" for path in root.iter("path")) == MOST_EXPERTS
    assert not [box for box in root.iter("rect") if float(box.get("width", "0")) < 0]


def sections_of(report: Report) -> list[str]:
    return [heading.text for heading in tree(render_page(report)).every("h2")]


def test_sections_are_there_only_if_there_is_something_in_them() -> None:
    whole = sample("contextual")
    assert {"Policy by context", "Experts"} <= set(sections_of(whole))
    assert "Policy by context" not in sections_of(replace(whole, contexts=()))
    assert "Experts" not in sections_of(replace(whole, experts=()))


def test_a_page_has_a_table_for_each_column_and_says_what_intervals_are() -> None:
    page = tree(render_page(sample("contextual")))
    captions = [caption.text for caption in page.every("caption")]
    assert {"Contexts by language", "Contexts by hour", "The experts of the mixture"} <= {*captions}
    assert "Each interval holds with 95 % confidence by itself: of 12 intervals" in page.text
    assert "3 more columns are not shown." in page.text


def test_differences_that_are_not_known_have_no_columns() -> None:
    report = sample("contextual")
    unknown: list[Any] = [
        replace(row, estimate=None, lower=None, upper=None) for row in report.contexts
    ]
    bare = replace(report, contexts=unknown, context_confidence=None)
    table, _ = tables.tabulate_contexts(bare, 100)
    assert [column.heading for column in table.columns] == [
        "context",
        "rows",
        "policy plays",
        "production plays",
    ]
    assert "Differences are not known" in tables.contexts_note(bare)
