"""Reports on baselines, guardrails, segments and lost rows: page, terminal, JSON."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console

import understudy as us
from tests.support.markup import tree
from understudy.report import as_dict, show

ROWS = 8_000
ASKED: dict[str, Any] = {
    "against": "action:none",
    "least_propensity": 0.3,
    "segment": "country=it,es",
}


def make_rows(*, slower: float) -> pl.DataFrame:
    """Rows of three actions; the first earns more, is `slower`, and a few rows lack something."""
    rng = np.random.default_rng(0)
    a, number = rng.integers(3, size=ROWS), pl.int_range(pl.len())
    latency = np.clip(rng.normal(40.0, 5.0, ROWS) + slower * (a == 0), 0.0, 100.0)
    rows = pl.DataFrame(
        {
            "action": np.array(["first", "second", "none"])[a],
            "reward": (rng.random(ROWS) < np.array([0.6, 0.5, 0.3])[a]) * 1.0,
            "propensity": 1 / 3,
            "latency": latency,
            "country": np.array(["it", "es"])[rng.integers(2, size=ROWS)],
        }
    )
    return rows.with_columns(
        reward=pl.when(number % 400 != 3).then("reward"),
        latency=pl.when(number % 1_000 != 7).then("latency"),
    )


def printed(result: Any) -> str:
    show(result.report, Console(file=(out := io.StringIO()), width=150))
    return " ".join(out.getvalue().split())


@pytest.mark.parametrize(
    ("slower", "state", "said"),
    [
        (0.0, "✓ holds", "The guardrail holds."),
        (20.0, "✕ broken", "The guardrail latency is broken: it changes by at least +1"),
        (8.0, "… not certain yet", "The guardrail latency is not certain yet: it changes by at m"),
    ],
)
def test_goal_and_guardrails_stand_side_by_side(slower: float, state: str, said: str) -> None:
    rows, asked = make_rows(slower=slower), ASKED | {"guardrail": "latency:0:100:lower:8"}
    found = us.logs.certify(rows, {"first": 1.0}, **asked)
    page, text = tree(found.page()), printed(found)
    assert said in found.report.verdict
    for shown in (page.text, text):
        assert said in " ".join(shown.split())
        assert "Goal and guardrails, as changes against always none" in shown
        assert state in shown
        assert "latency is missing or out of its range in 8 rows" in " ".join(shown.split())
    (row,) = as_dict(found.report)["guardrails"]
    assert (row["margin"], row["unusable_rows"]) == (8.0, 8)
    assert row["low"] <= row["estimate"] <= row["high"]
    assert "Estimated gain over always none: +0." in found.report.verdict
    justified = found.report.certificate
    assert justified is not None
    assert (justified.promoted_at is not None) == (slower == 0.0)


def test_segments_stand_by_their_effect() -> None:
    found = us.logs.certify(make_rows(slower=0.0), {"first": 1.0}, **ASKED)
    rows = as_dict(found.report)["segments"]
    assert [row["estimate"] for row in rows] == sorted((r["estimate"] for r in rows), reverse=True)
    for shown in (tree(found.page()).text, printed(found)):
        assert "Gain over always none by country" in shown
        assert shown.index(rows[0]["name"]) < shown.rindex(rows[1]["name"])
        assert "No segment is certainly worse." in " ".join(shown.split())


def test_a_segment_without_rows_is_named() -> None:
    asked = ASKED | {"segment": "country=it,IT"}
    found = us.logs.certify(make_rows(slower=0.0), {"first": 1.0}, **asked)
    assert "No row has IT in the column country: check how these" in " ".join(found.warnings)


def test_both_numbers_about_lost_rows_are_shown() -> None:
    """The headline says what it assumes; the facts have the other number."""
    worst, left_out = (
        us.logs.certify(make_rows(slower=0.0), {"first": 1.0}, quarantined=one, **ASKED).report
        for one in ("worst-case", "missing-at-random")
    )
    assert "missing at random" not in worst.verdict
    assert "Assumes that 20 quarantined rows are missing at random." in left_out.verdict
    facts = [dict(report.facts)["Quarantined rows"] for report in (worst, left_out)]
    assert facts[0].startswith("20 rows count with the worst that they may have been.")
    assert facts[1].startswith("20 rows are left out, as missing at random.")
    assert worst.gain is not None
    assert left_out.gain is not None
    assert (worst.other_gain, left_out.other_gain) == (left_out.gain.low, worst.gain.low)
