"""A fixed policy on a log, by `understudy.logs.runs`: from sums what it is in order, rows dirty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.support.logs.log_files import LABELS, make_rows
from understudy.errors import InvalidArgument, InvalidLog
from understudy.logs import CertifyResult, certify, learn
from understudy.logs.runs import setup

pytestmark = pytest.mark.plain

BEHAVIOR: dict[int | str, float] = dict(zip(LABELS, (0.4, 0.1, 0.3, 0.2), strict=True))
ROWS = make_rows(600)
EXACT = 1e-9  # relative


def spoiled(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of labels that are not named, and probabilities of a target that are none."""
    number = pl.int_range(pl.len())
    bad = pl.when(number % 11 == 3).then(float("nan")).when(number % 13 == 4).then(1.5)
    return rows.with_columns(
        action=pl.when(number % 7 == 5).then(pl.lit("elsewhere")).otherwise("action"),
        target=bad.otherwise(0.25),
    )


ASKED: dict[str, dict[str, Any]] = {
    "uniform": {"policy": "uniform", "actions": [*LABELS, "elsewhere"]},
    "uniform, of a given behavior": {"policy": "uniform", "behavior": BEHAVIOR},
    "actions of its own, of a given behavior": {
        "policy": {"north": 0.5, "up": 0.5},
        "behavior": BEHAVIOR,
    },
    "a longer list of actions, of a given behavior": {
        "policy": {"north": 0.5, "up": 0.5},
        "behavior": BEHAVIOR,
        "actions": [*LABELS, "down"],
    },
    "a column": {"target_probability": "target"},
    "a column, of a given behavior": {"target_probability": "target", "behavior": BEHAVIOR},
}


def numbers(judged: CertifyResult) -> list[float]:
    found = judged.certified
    gain = found.gain or 0.0
    return [found.certificate.rounds, found.lower, found.upper, gain, found.estimate]


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_sums_say_what_rows_in_order_say(
    asked: dict[str, Any], engine: str, tmp_path: Path
) -> None:
    log = tmp_path / "log.parquet"
    spoiled(ROWS).write_parquet(log)
    ordered, summed = certify(log, **asked), certify(log, engine=engine, **asked)
    (n, *bounds, estimate), (rounds, *in_order, exact) = numbers(summed), numbers(ordered)
    assert (n, estimate) == pytest.approx((rounds, exact), rel=EXACT)
    # Sums have constant centers, and spend all of δ on round 1; rows in order have windows.
    np.testing.assert_allclose(bounds, in_order, atol=0.02 * n)
    assert summed.intake.refused == ordered.intake.refused
    assert summed.table.columns == ordered.table.columns
    assert summed.table["action"].to_list() == ordered.table["action"].to_list()
    assert summed.table["count"].to_list() == ordered.table["count"].to_list()


def test_a_given_behavior_says_what_could_be_played() -> None:
    """So that a uniform policy is not thinned out by labels that no behavior names."""
    judged = certify(spoiled(ROWS), "uniform", behavior=BEHAVIOR)
    assert judged.policy == dict.fromkeys(sorted(LABELS), 0.25)
    assert judged.intake.refused == {"action is unknown": len(ROWS) // 7}


@pytest.mark.parametrize("engine", [None, "polars"])
def test_a_log_of_other_actions_than_the_behavior_is_refused(engine: str | None) -> None:
    with pytest.raises(InvalidLog, match=r"none of its rows .*action is unknown: 600"):
        certify(ROWS, "uniform", behavior={"up": 0.5, "down": 0.5}, engine=engine)


def test_a_policy_of_other_labels_than_the_log_is_told() -> None:
    shouted: dict[int | str, float] = dict.fromkeys([label.upper() for label in LABELS], 0.25)
    (warning,) = certify(ROWS, shouted).report.warnings
    assert "no action in common" in warning
    assert "EAST, NORTH, SOUTH and 1 more; the log shows east, north, south and 1 more" in warning
    assert not certify(ROWS, {"north": 0.0, "up": 1.0}).report.warnings
    assert not certify(ROWS, "uniform").report.warnings


def test_a_report_is_not_put_over_that_of_a_policy(tmp_path: Path) -> None:
    learn(ROWS, out=tmp_path / "learned")
    before = {path.name: path.read_bytes() for path in (tmp_path / "learned").iterdir()}
    with pytest.raises(InvalidArgument, match="it holds a policy and the report about it"):
        certify("nowhere.csv", "uniform", out=tmp_path / "learned")
    assert {path.name: path.read_bytes() for path in (tmp_path / "learned").iterdir()} == before


def test_a_policy_that_comes_meanwhile_keeps_its_report(tmp_path: Path) -> None:
    def another_run(_phase: str, _rows: int, _expected: int | None) -> None:
        learn(ROWS, out=tmp_path / "out", overwrite=True)

    with pytest.raises(InvalidArgument, match="it holds a policy and the report about it"):
        certify(ROWS, "uniform", out=tmp_path / "out", watch=another_run)
    assert "What was learned" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_a_log_whose_actions_are_declared_is_validated_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And twice if it shows another action, with the result of a scan that comes first."""
    validated: list[str] = []

    def check(*arguments: Any) -> Any:
        validated.append("a batch")
        return real(*arguments)

    real = vars(setup)["check"]
    monkeypatch.setattr(setup, "check", check)
    certify(ROWS, "uniform", actions=list(LABELS))
    learn(ROWS, actions=list(LABELS))
    assert len(validated) == 2
    validated.clear()
    strange = spoiled(ROWS).drop("target")
    asked: dict[int | str, float] = {"south": 0.5, "west": 0.5}
    certified, scanned = certify(strange, asked, actions=list(LABELS)), certify(strange, asked)
    assert len(validated) == 1 + 2 + 2
    assert numbers(certified) == numbers(scanned)
    assert certified.table["action"].to_list() == sorted([*LABELS, "elsewhere"])
