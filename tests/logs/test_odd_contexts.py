"""Contexts that no one would wish for: the results are finite, and a sentence says the reason."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tests.support.logs.log_files import LABELS, make_rows
from understudy.errors import InvalidArgument, InvalidLog
from understudy.logs import Policy, certify, learn

pytestmark = pytest.mark.plain

Integers = NDArray[np.int64]

N = 300
ROWS = make_rows(N)
LATER = make_rows(100, seed=1)
EQUAL = dict.fromkeys(LABELS, 0.25)
Make = Callable[[Integers], list[Any]]


def normal(row: Integers) -> Any:
    """The same number for the same row."""
    return np.sin(row * 1.7)


ODD: dict[str, tuple[Make, ...]] = {
    "a label per row": (lambda row: [f"u{i}" for i in row],),
    "near the largest double": (lambda row: [(-1.0) ** i * 1e308 for i in row],),
    "one value near the largest double": (
        lambda row: [1e308 if i == 3 else float(i) for i in row],
    ),
    "infinite numbers": (lambda row: [float(i) if i % 7 else np.inf * (-1) ** i for i in row],),
    "infinity as text": (lambda row: [str(i) if i % 7 else "-inf" for i in row],),
    "integers beyond 64 bits, as text": (lambda row: [str((int(i) + 1) * 10**40) for i in row],),
    "tiny numbers": (lambda row: [i * 5e-324 for i in row],),
    "equal columns": (normal, normal),
    "columns that add up": (normal, np.cos, lambda row: normal(row) + np.cos(row)),
    "mostly missing": (lambda row: [None if i % 50 else float(i) for i in row],),
    "numbers, then words": (lambda row: [str(i) if i < 200 else "north" for i in row],),
}
LEARNERS = ("exp4:features=16", "ridge:beta=0.5", "lin-prod-compact")


def with_contexts(rows: pl.DataFrame, makers: tuple[Make, ...]) -> tuple[pl.DataFrame, list[str]]:
    names = [f"c{i}" for i in range(len(makers))]
    columns = [
        pl.Series(name, list(make(np.arange(len(rows)))), strict=False)
        for name, make in zip(names, makers, strict=True)
    ]
    return rows.with_columns(columns), names


def assert_finite(policy: Policy, rows: pl.DataFrame, names: list[str]) -> None:
    """Probabilities of every row, and the certificate on them, are numbers; so is policy.json."""
    given = {"production": EQUAL} if policy.study.learner.spec.outside else {}
    for row in rows.select(names)[:5].to_dicts():
        found = policy.probabilities(row, **given)  # type: ignore[arg-type] # chances by label
        assert sum(found.values()) == pytest.approx(1.0)
        assert min(found.values()) >= 0.0
    assert np.isfinite(policy.average).all()
    assert policy.study.certificate is not None
    assert np.isfinite(policy.study.certificate.lower)
    assert "NaN" not in policy.to_json()
    assert "Infinity" not in policy.to_json()


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("name", ODD)
def test_odd_contexts_give_finite_policies(name: str, learner: str) -> None:
    rows, names = with_contexts(ROWS, ODD[name])
    learned = learn(rows, context=names, learner=learner, actions=LABELS)
    assert_finite(learned.policy, rows, names)
    later, _ = with_contexts(LATER, ODD[name])
    assert np.isfinite(certify(later, learned).certified.certificate.lower)


@pytest.mark.parametrize("learner", LEARNERS)
def test_one_value_in_all_contexts_has_a_remedy(learner: str) -> None:
    rows = ROWS.with_columns(day=pl.lit("Monday"), hour=pl.lit(3))
    ask = partial(learn, rows, learner=learner, actions=LABELS)
    with pytest.raises(InvalidLog, match="no context changes in the 30 rows of the warm-up"):
        ask(context=["day", "hour"])
    varied = rows.with_columns(x=pl.int_range(N) % 5)
    found = learn(varied, learner=learner, actions=LABELS, context=["day", "x"])
    assert "left out: day" in " ".join(found.report.warnings)
    assert_finite(found.policy, varied, ["day", "x"])


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("warmup", [1, 2, 3])
def test_a_tiny_warm_up_is_enough_or_says_so(warmup: int, learner: str) -> None:
    rows = ROWS.with_columns(x=pl.int_range(N) % 7, y=pl.int_range(N) % 3)
    ask = partial(learn, rows, context=["x", "y"], learner=learner, warmup=warmup, actions=LABELS)
    if warmup == 1:
        with pytest.raises(InvalidLog, match="no context changes in the 1 row of the warm-up"):
            ask()
        return
    learned = ask()
    assert learned.policy.warmup == warmup
    assert_finite(learned.policy, rows, ["x", "y"])


@pytest.mark.parametrize("learner", LEARNERS)
def test_all_rows_of_one_action_teach_and_certify(learner: str) -> None:
    """The other actions are declared; the log says nothing about them."""
    one = ROWS.with_columns(action=pl.lit("east"), propensity=pl.lit(0.5), x=pl.int_range(N) % 7)
    learned = learn(one, context="x", learner=learner, actions=LABELS)
    assert_finite(learned.policy, one, ["x"])
    with pytest.raises(InvalidArgument, match=r"show the action .east. alone"):
        learn(one, context="x", learner=learner)


@pytest.mark.parametrize("learner", [*LEARNERS, "prod-grid"])
def test_one_row_is_a_log_or_too_few(learner: str) -> None:
    one = ROWS[:1].with_columns(x=1.0)
    if learner != "prod-grid":
        with pytest.raises(InvalidLog, match="no context changes in the 1 row of the warm-up"):
            learn(one, context="x", learner=learner, actions=LABELS)
        return
    policy = learn(one, learner=learner, actions=LABELS).policy
    assert policy.rows == 1
    assert policy.average.sum() == pytest.approx(1.0)


def test_a_log_of_the_warm_up_alone_has_nothing_left_to_learn_from() -> None:
    rows = ROWS.with_columns(x=pl.int_range(N) % 7)
    with pytest.raises(InvalidLog, match=r"no valid rows come after the warm-up.*a shorter one$"):
        learn(rows, context="x", warmup=N, actions=LABELS)
    rows = rows.with_columns(reward=pl.when(pl.int_range(N) != 3).then("reward"))
    with pytest.raises(InvalidLog, match=r"a shorter one, or .* \(reward is missing: 1\)$"):
        learn(rows, context="x", warmup=N, actions=LABELS)


def test_tables_say_which_columns_they_do_not_use() -> None:
    rows = ROWS.with_columns(x=pl.int_range(N) % 7, c=pl.format("l{}", pl.int_range(N) % 3))
    for learner, said in (("tables", True), ("ridge", False)):
        warnings = learn(rows, context=["x", "c"], learner=learner, warmup=0.2, actions=LABELS)
        assert any("does not use x" in one for one in warnings.warnings) == said


def test_tables_of_too_many_combinations_say_how_many() -> None:
    rows = ROWS.with_columns(
        pl.Series(f"c{i}", [f"{(row * (i + 3)) % 40}" for row in range(N)]) + "x" for i in range(4)
    )
    names = [f"c{i}" for i in range(4)]
    ask = partial(learn, rows, context=names, warmup=0.5, actions=LABELS)
    with pytest.raises(InvalidArgument, match="combinations of labels; name columns of labels"):
        ask(learner="tables")
    assert "tables" not in ask(learner="exp4:features=16").policy.shares
