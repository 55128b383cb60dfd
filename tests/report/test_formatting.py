"""`understudy.formatting`: numbers, shares and names as text that is one line and short."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.reports import HOSTILE, value
from tests.support.strategies import quick
from understudy.formatting import named, number, percent, plain, quoted

pytestmark = pytest.mark.plain


@given(st.floats(allow_nan=False, allow_infinity=False))
@quick
def test_numbers_are_right_to_four_digits(x: float) -> None:
    if abs(x) < 1e308 and (x == 0 or abs(x) > 1e-300):
        assert value(number(x)) == pytest.approx(x, rel=5.01e-4, abs=0.0)
    assert len(re.sub(r"·10.*|\D", "", number(x)).strip("0")) <= 4


@given(st.floats(0.0, 1.0))
@quick
def test_a_share_is_all_or_nothing_only_if_it_is(share: float) -> None:
    text = percent(share)
    assert (text == "0 %") == (share == 0.0)
    assert (text == "100 %") == (share == 1.0)
    if text[0] in "<>":
        assert share < 1e-5 or 1.0 > share > 0.9999
    else:
        assert value(text) == pytest.approx(100 * share, rel=5.01e-4)


@given(st.text(), st.integers(5, 60))
@quick
def test_plain_text_is_visible_short_and_stays_so(words: str, longest: int) -> None:
    line = plain(words, longest)
    assert line.isprintable()
    assert len(line) <= longest
    assert plain(line, longest) == " ".join(line.split())
    if words.isprintable() and len(words) <= longest and words == " ".join(words.split()):
        assert line == words


def test_a_long_name_keeps_both_of_its_ends() -> None:
    line = plain("/data/" + "x" * 10_000 + "/part-7.csv", 40)
    assert line.startswith("/data/xxx")
    assert line.endswith("x/part-7.csv")
    assert len(line) == 40


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_names_are_never_empty(hostile: str) -> None:
    assert named(hostile, 80)


def test_labels_that_begin_or_end_with_a_space_are_quoted() -> None:
    labels = [" a b", "a b", "a b ", "\ta b", "a"]
    assert [quoted(label) == label for label in labels] == [False, True, False, False, True]
