"""`understudy.logs.schema`: labels of actions, as text and as numbers."""

from __future__ import annotations

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import quick
from understudy.errors import InvalidArgument
from understudy.logs.schema import Actions


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
