"""`understudy.logs.validate`: rows that can be learned from; every format alike, nothing lost."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.logs.log_files import batches_of, write
from tests.support.logs.rules import Actions, RewardScale, refuse_the_reward, rows_on_engines
from tests.support.logs.sums import sums_of
from tests.support.strategies import quick
from understudy.errors import InvalidArgument, InvalidLog
from understudy.logs.validate import RowRules, check

ROWS = pl.DataFrame(
    {
        "action": ["a", "b", "a", "c"],
        "reward": [1.0, 0.0, 0.25, 1.0],
        "propensity": [0.5, 0.25, 0.5, 0.25],
    }
)
NAMES = ("log.csv", "log.parquet", "log.ndjson", "log.arrow")


def rows(*paths: Path, rules: RowRules | None = None) -> list[Any]:
    rules = RowRules(Actions(("a", "b", "c"))) if rules is None else rules
    return [check(file, frame, rules) for file, frame in batches_of(*paths)]


@pytest.mark.parametrize("name", NAMES)
def test_every_format_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    (found,) = rows(write(tmp_path / name, ROWS))
    assert found.actions.tolist() == [0, 1, 0, 2]
    assert found.rewards.tolist() == ROWS["reward"].to_list()
    assert found.propensities.tolist() == ROWS["propensity"].to_list()
    assert found.frame["row"].to_list() == [1, 2, 3, 4]
    texts = dict.fromkeys(("file", "reason", "action", "reward", "propensity"), pl.String)
    assert dict(found.quarantined.schema) == {**texts, "row": pl.Int64}
    assert not len(found.quarantined)


@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_text_may_be_packed(form: str, tmp_path: Path) -> None:
    packed = tmp_path / f"log.{form}.gz"
    packed.write_bytes(gzip.compress(write(tmp_path / f"log.{form}", ROWS).read_bytes()))
    (found,) = rows(packed)
    assert found.actions.tolist() == [0, 1, 0, 2]


BAD = [
    ({"action": None}, "action is missing"),
    ({"action": "z"}, "action is unknown"),
    ({"reward": None}, "reward is missing"),
    ({"reward": math.nan}, "reward is not finite"),
    ({"reward": math.inf}, "reward is not finite"),
    ({"reward": 1.5}, "reward is out of range"),
    ({"reward": -0.1}, "reward is out of range"),
    ({"propensity": None}, "propensity is missing"),
    ({"propensity": math.nan}, "propensity is not finite"),
    ({"propensity": -math.inf}, "propensity is not finite"),
    ({"propensity": 0.0}, "propensity is out of range"),
    ({"propensity": 1.0000001}, "propensity is out of range"),
    ({"propensity": 1e-120}, "propensity is out of range"),
]


@pytest.mark.parametrize(("values", "reason"), BAD)
@pytest.mark.parametrize("name", NAMES)
def test_a_bad_row_is_quarantined_with_its_reason(
    name: str, values: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    bad = ROWS.head(1).with_columns(
        **{key: pl.lit(value, dtype=ROWS.schema[key]) for key, value in values.items()}
    )
    if name == "log.ndjson" and any(
        isinstance(v, float) and not math.isfinite(v) for v in values.values()
    ):
        pytest.skip("JSON has no such number")
    path = write(tmp_path / name, pl.concat([ROWS, bad, ROWS]))
    (found,) = rows(path)
    assert len(found) == 8
    (kept,) = found.quarantined.rows(named=True)
    assert (kept["file"], kept["row"], kept["reason"]) == (str(path), 5, reason)
    assert len(found.log()) == 8


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("high", "reward is not a number"),
        ("1,5", "reward is not a number"),
        ("", "reward is missing"),
        ("  ", "reward is missing"),
        ("nan", "reward is not finite"),
        ("inf", "reward is not finite"),
        ("1e999", "reward is not finite"),
        ("x" * 10**6, "reward is not a number"),
    ],
)
def test_text_that_is_no_reward_is_one_quarantined_row(
    text: str, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f'action,reward,propensity\na,1,0.5\na,"{text}",0.5\nb,0,0.5\n')
    (found,) = rows(path)
    assert found.quarantined["reason"].to_list() == [reason]
    assert found.quarantined["row"].to_list() == [2]
    assert found.actions.tolist() == [0, 1]


@given(st.lists(st.text("0123456789.eE+-_ xnaif\u0661\u00a0") | st.none(), max_size=8))
@quick
def test_text_is_read_as_the_rule_says_however_it_is_cast(texts: list[str | None]) -> None:
    """Batches cast whole columns first; other engines look at every text. Both read the same."""
    frame = pl.DataFrame({"action": "a", "reward": pl.Series(texts, dtype=pl.String)})
    rejected, values = rows_on_engines(frame, reward_range=(-100, 100))
    numbered = frame.with_row_index("row", offset=1)
    rules = RowRules(Actions(("a", "b")), RewardScale(-100.0, 100.0), propensities=False)
    found = check("f", numbered, rules)
    assert found.quarantined["reason"].to_list() == rejected
    assert found.rewards.tolist() == values


def test_a_rule_that_is_added_once_holds_in_batches_and_on_engines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Say, that a reward of exactly 0.25 is not finite."""
    refuse_the_reward(0.25, monkeypatch)
    batch = check("f", ROWS.with_row_index("row", offset=1), RowRules(Actions(("a", "b", "c"))))
    assert batch.quarantined.select("row", "reason").rows() == [(3, "reward is not finite")]
    assert sums_of(ROWS).reject_counts == {"reward is not finite": 1}


def test_eligible_sets_may_be_lists_or_text() -> None:
    frame = pl.DataFrame(
        {
            "row": [1, 2, 3, 4],
            "action": [1, 2, 3, 1],
            "reward": [1.0] * 4,
            "eligible": [["1", "2"], ["1"], None, []],
        }
    )
    rules = RowRules(Actions(("1", "2", "3")), propensities=False)
    for kind in (frame, frame.with_columns(eligible=pl.Series(['["1", "2"]', "1|3", None, "2 3"]))):
        found = check("f", kind, rules)
        assert found.actions.tolist() == [0, 2]
        assert found.quarantined["row"].to_list() == [2, 4]
        assert set(found.quarantined["reason"]) == {"action is not eligible"}
    whole = frame.with_columns(eligible=pl.Series([[1, 2], [1], None, []], dtype=pl.List(pl.Int8)))
    assert check("f", whole, rules).actions.tolist() == [0, 2]


def test_rewards_are_rescaled_and_a_given_behavior_has_its_support() -> None:
    frame = pl.DataFrame({"row": [1, 2, 3], "action": ["a", "b", "a"], "reward": [-1, 0, 3]})
    rules = RowRules(Actions(("a", "b")), RewardScale(-1.0, 3.0), False, np.array([True, False]))
    found = check("f", frame, rules)
    assert found.rewards.tolist() == [0.0, 1.0]
    assert found.quarantined["reason"].to_list() == ["action has probability 0 in the behavior"]
    for wrong in ((1.0, 1.0), (2.0, 1.0), (0.0, math.inf), (math.nan, 1.0), (-1e308, 1e308)):
        with pytest.raises(InvalidArgument, match="reward_range"):
            RewardScale(*wrong)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("reward", pl.Series([[1.0]] * 4)),
        ("propensity", pl.Series(["2026-01-01"] * 4).str.to_date()),
        ("action", pl.Series([{"x": 1}] * 4)),
        ("action", pl.Series([b"\xff"] * 4)),
    ],
)
def test_a_column_of_the_wrong_type_is_named(
    column: str, values: pl.Series, tmp_path: Path
) -> None:
    with pytest.raises(InvalidLog, match=f"column for the {column} holds"):
        rows(write(tmp_path / "log.parquet", ROWS.with_columns(values.alias(column))))
