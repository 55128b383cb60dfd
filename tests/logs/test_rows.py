"""Files as rows, and rows as what can be learned from: every format alike, nothing lost."""

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

import understudy as us
from tests.support import formulas
from tests.support.logs.log_files import write
from tests.support.strategies import quick
from understudy import Certified
from understudy.errors import InvalidArgument, InvalidLog
from understudy.logs import reject_reasons, validate
from understudy.logs.aggregation import aggregates
from understudy.logs.aggregation.aggregates import log_statistics, rows_of
from understudy.logs.readers.files import BATCH, find_files, format_of
from understudy.logs.readers.inputs import LogReader, prefetch
from understudy.logs.reject_reasons import RejectReason, remedy_for
from understudy.logs.runs.study import Study
from understudy.logs.schema import QUARANTINE, Actions, Columns, RewardScale
from understudy.logs.statistics import ActionStatistics, CountsOverTime
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
    return [
        check(file, frame, rules)
        for file, frame in LogReader(find_files(paths), Columns()).batches()
    ]


@pytest.mark.parametrize("name", NAMES)
def test_every_format_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    (found,) = rows(write(tmp_path / name, ROWS))
    assert found.actions.tolist() == [0, 1, 0, 2]
    assert found.rewards.tolist() == ROWS["reward"].to_list()
    assert found.propensities.tolist() == ROWS["propensity"].to_list()
    assert found.frame["row"].to_list() == [1, 2, 3, 4]
    assert found.quarantined.schema == pl.Schema(QUARANTINE)
    assert not len(found.quarantined)


@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_text_may_be_packed(form: str, tmp_path: Path) -> None:
    packed = tmp_path / f"log.{form}.gz"
    packed.write_bytes(gzip.compress(write(tmp_path / f"log.{form}", ROWS).read_bytes()))
    (found,) = rows(packed)
    assert found.actions.tolist() == [0, 1, 0, 2]


def test_rows_are_numbered_through_the_batches_of_a_file(tmp_path: Path) -> None:
    many = pl.DataFrame({"action": ["a"], "reward": [1.0], "propensity": [0.5]})
    path = write(tmp_path / "log.parquet", many.select(pl.all().repeat_by(BATCH + 10).explode()))
    reader = LogReader(find_files([path]), Columns())
    numbers = [frame["row"] for _, frame in reader.batches()]
    assert len(numbers) > 1
    assert pl.concat(numbers).to_list() == list(range(1, BATCH + 11))


def test_folders_and_globs_are_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "day=2").mkdir()
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / ".hidden.csv").write_text("x")
    (tmp_path / "notes.md").write_text("x")
    names = ["b.csv", "a.parquet", "day=2/c.ndjson"]
    for name in names:
        write(tmp_path / name, ROWS)
    found = [str(source.path.relative_to(tmp_path)) for source in find_files([tmp_path])]
    assert found == ["a.parquet", "b.csv", "day=2/c.ndjson"]
    assert [s.path.name for s in find_files([str(tmp_path / "*.csv"), tmp_path / "a.parquet"])] == [
        "b.csv",
        "a.parquet",
    ]
    with pytest.raises(InvalidLog, match="named twice"):
        find_files([tmp_path, tmp_path / "b.csv"])
    with pytest.raises(InvalidLog, match="no file matches"):
        find_files([str(tmp_path / "*.arrow")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidLog, match="holds no log"):
        find_files([tmp_path / "empty"])
    with pytest.raises(InvalidLog, match="does not say what format"):
        format_of(Path("log.txt"))


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
    lazily = rows_of(frame, Columns(propensity=None), reward_range=(-100, 100))
    rejected = lazily.rejected().collect().to_native()["reason"].to_list()
    values = lazily.clean().collect().to_native()["reward"].drop_nulls().to_list()
    numbered = frame.with_row_index("row", offset=1)
    rules = RowRules(Actions(("a", "b")), RewardScale(-100.0, 100.0), propensities=False)
    found = check("f", numbered, rules)
    assert found.quarantined["reason"].to_list() == rejected
    assert found.rewards.tolist() == values


def test_a_rule_that_is_added_once_holds_in_batches_and_on_engines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Say, that a reward of exactly 0.25 is an error of the logger, and not finite."""
    today = reject_reasons.number_rule

    def stricter(column: reject_reasons.BoundedColumn) -> reject_reasons.Rule:
        rule, wrong = today(column), column.library.col(column.parsed) == 0.25
        if column.role != "reward":
            return rule
        fault = (RejectReason.REWARD_NOT_FINITE, wrong)
        return reject_reasons.Rule(rule.holds & ~wrong, (fault, *rule.faults))

    monkeypatch.setattr(validate, "number_rule", stricter)
    monkeypatch.setattr(aggregates, "number_rule", stricter)
    batch = check("f", ROWS.with_row_index("row", offset=1), RowRules(Actions(("a", "b", "c"))))
    assert batch.quarantined.select("row", "reason").rows() == [(3, "reward is not finite")]
    assert log_statistics(ROWS, Columns()).reject_counts == {"reward is not finite": 1}


def test_every_reason_has_a_remedy() -> None:
    for reason in RejectReason:
        assert remedy_for({reason.value: 1}) == reason.remedy
    assert remedy_for({"a reason of a later version": 1}) == "correct these rows"


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


@given(st.lists(st.sampled_from(["a", "b", "3", "-7", "007", "10", "é", "x y"]), min_size=1))
@quick
def test_labels_are_compared_as_text(labels: list[str]) -> None:
    actions = Actions(("a", "3", "-7", "10", "é"))
    wanted = [actions.texts.index(x) if x in actions.texts else -1 for x in labels]
    assert actions.indices(pl.Series(labels)).tolist() == wanted
    assert actions.indices(pl.Series(labels, dtype=pl.Categorical)).tolist() == wanted


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 12) | st.none(), min_size=1))
@quick
def test_whole_numbers_are_the_labels_that_they_read_as(numbers: list[int | None]) -> None:
    actions = Actions(("3", "-2", "10", "a"))
    wanted = [actions.texts.index(str(x)) if str(x) in actions.texts else -1 for x in numbers]
    assert actions.indices(pl.Series(numbers, dtype=pl.Int64)).tolist() == wanted


def test_whole_floats_are_whole_numbers_and_labels_have_an_order() -> None:
    assert Actions(("1", "2.5")).indices(pl.Series([1.0, 2.5, math.nan, 3.0])).tolist() == [
        0,
        1,
        -1,
        -1,
    ]
    assert Actions.from_labels([10, "9", 9]).labels == (9, 10)
    assert Actions.from_labels(["10", "9", "x"]).labels == ("10", "9", "x")
    huge = Actions((str(2**70), "0"))
    assert huge.indices(pl.Series([0, 5])).tolist() == [1, -1]
    for wrong in ((), ("a",), ("a", "a")):
        with pytest.raises(InvalidArgument, match="actions"):
            Actions(wrong)


@given(st.integers(0, 40), st.integers(0, 2**32 - 1))
@quick
def test_a_tally_is_the_sum_over_each_action_however_the_log_is_cut(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    actions, R, q = rng.integers(3, size=n), rng.random(n), rng.uniform(0.01, 1.0, n)
    log = us.Log(actions, R, q)
    whole = ActionStatistics.empty(4).after(log)
    counts, *sums = formulas.tally(actions, R, q, 4)
    assert whole.counts.tolist() == counts.tolist()
    seen = counts > 0
    found = (whole.rewards, whole.weighted, whole.weights, whole.squares)
    for ours, theirs in zip(found, sums[:4], strict=True):
        assert np.allclose(ours, theirs, rtol=1e-12, atol=0)
    assert np.array_equal(whole.lowest[seen], sums[4][seen])
    assert np.array_equal(whole.highest[seen], sums[5][seen])
    cut = ActionStatistics.empty(4)
    for part in log.stretches(7):
        cut = cut.after(part)
    for name in ("counts", "rewards", "weighted", "weights", "squares", "lowest", "highest"):
        assert np.array_equal(getattr(cut, name), getattr(whole, name), equal_nan=True)


def test_a_study_is_a_fold_and_its_curve_is_that_of_certify() -> None:
    rng = np.random.default_rng(0)
    n, K = 700, 4
    q = np.full(n, 0.25)
    log = us.Log(rng.integers(K, size=n), rng.integers(2, size=n).astype(float), q)
    learner = us.exp3_ix(us.Logged(n_actions=K))
    begin = Study.begin(learner, us.Logged(n_actions=K), 0.95)
    study = begin
    for part in log.stretches(37):
        study = study.after(part)
    state, trace = learner.replay(learner.init(), log)
    certified = us.certify(log, trace, behavior=us.Logged(n_actions=K))
    assert study.certificate is not None
    found = Certified.of(study.certificate, study.curve)
    assert np.array_equal(learner.policy(study.state), learner.policy(state))
    for name in ("rounds", "lower_curve", "upper_curve", "production_curve", "gain_curve"):
        assert np.array_equal(getattr(found, name), getattr(certified, name)), name
    assert study.sums.rows == study.rounds == n


def test_reading_ahead_keeps_order_and_errors() -> None:
    def some() -> Any:
        yield from range(10)
        raise ValueError("broken")

    items = prefetch(some())
    assert [next(items) for _ in range(10)] == list(range(10))
    with pytest.raises(ValueError, match="broken"):
        next(items)
    first = next(prefetch(iter(range(10**9))))
    assert first == 0


@given(st.lists(st.integers(0, 2), max_size=400), st.integers(1, 90))
@quick
def test_stretches_are_counts_of_equal_parts_however_the_rows_come(
    actions: list[int], size: int
) -> None:
    rows = np.array(actions, dtype=np.int64)
    found = CountsOverTime.empty(3)
    for start in range(0, len(rows), size):
        found = found.after(rows[start : start + size])
    assert len(found.counts) <= 20
    parts = [rows[i : i + found.width] for i in range(0, len(rows), found.width)]
    wanted = [np.bincount(part, minlength=3).tolist() for part in parts]
    assert found.counts.tolist() == wanted
    once = CountsOverTime.empty(3).after(rows)
    assert (once.width, once.counts.tolist()) == (found.width, found.counts.tolist())
