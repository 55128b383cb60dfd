"""Contexts to features, by `understudy.logs.encoder`: bounded, frozen, the same bits in batches."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from tests.support.refusals import assert_refused
from tests.support.saved_values import saved_fields
from tests.support.strategies import quick
from understudy.errors import InvalidArgument, InvalidLog, InvalidSnapshot
from understudy.logs.encoder import (
    BOUND,
    MOST_CATEGORIES,
    CategoryColumn,
    Encoder,
    NumberColumn,
    Unexpected,
    UnexpectedValues,
)

NAMES = ("size", "city", "member")
FLOATS = st.one_of(
    st.none(),
    st.floats(-100, 100),
    st.sampled_from([math.nan, math.inf, -math.inf, 1e300, -1e300, 5e-324, 0.0]),
)
TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "b", "c", "1", " 2.5 ", "nan", "-1e400"]))
TRUTHS = st.one_of(st.none(), st.booleans())


@st.composite
def frames(draw: st.DrawFn, *, least: int = 1) -> pl.DataFrame:
    """Rows with numbers, texts and truths, any of them missing or absurd."""
    n = draw(st.integers(least, 12))
    return contexts(
        size=pl.Series(draw(st.lists(FLOATS, min_size=n, max_size=n)), dtype=pl.Float64),
        city=pl.Series(draw(st.lists(TEXTS, min_size=n, max_size=n)), dtype=pl.String),
        member=pl.Series(draw(st.lists(TRUTHS, min_size=n, max_size=n)), dtype=pl.Boolean),
    )


def contexts(**columns: Any) -> pl.DataFrame:
    return pl.DataFrame({f"context.{name}": values for name, values in columns.items()})


def fit(**columns: Any) -> Encoder:
    return Encoder.fit(contexts(**columns), list(columns))


# What the features are


def plain_number(value: object) -> float | None:
    """A value as Python reads it, None where it is no finite number."""
    words = {"true": 1.0, "false": 0.0}
    try:
        text = str(value).strip()
        found = words[text.lower()] if text.lower() in words else float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) and "_" not in text else None


def is_word(value: object) -> bool:
    """Whether a value is text that Python reads as no number, and not as a missing one."""
    if not isinstance(value, str) or value.strip().lower() in {"", "nan", "true", "false"}:
        return False
    try:
        float(value)
    except ValueError:
        return True
    return False


def plain_features(encoder: Encoder, row: dict[str, Any]) -> list[float]:
    """The features of one row, a value at a time."""
    found = [1.0]
    for column in encoder.columns:
        value = row[f"context.{column.name}"]
        if isinstance(column, NumberColumn):
            x = plain_number(value)
            standard = 0.0 if x is None else (x - column.mean) / column.scale if column.scale else 0
            found += [max(-BOUND, min(BOUND, standard))] if column.scale else []
            found += [float(x is None)] if column.missing else []
        else:
            missing = value is None or value == ""
            found += [float(value == label) for label in column.categories]
            new = not missing and value not in column.categories
            found += [float(new)] if column.other else []
            found += [float(missing)] if column.missing else []
    return found


@quick
@forall(warmup=frames(), later=frames())
def test_features_are_those_of_each_row_and_bounded(
    warmup: pl.DataFrame, later: pl.DataFrame
) -> None:
    encoder = Encoder.fit(warmup, NAMES)
    assert set(encoder.names) == set(NAMES)
    for frame in (warmup, later):
        found = encoder.encode(frame)
        assert found.shape == (len(frame), len(encoder.features))
        assert found.dtype == np.float64
        assert found.flags.c_contiguous
        assert (np.abs(found) <= BOUND).all()  # and so no nan
        wanted = [plain_features(encoder, row) for row in frame.iter_rows(named=True)]
        np.testing.assert_allclose(found, np.array(wanted), rtol=1e-15)


@quick
@forall(
    values=st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=2, max_size=30),
    shift=st.floats(-10, 10),
    factor=st.floats(0.1, 10.0),
)
def test_numbers_are_standardised(values: list[float | None], shift: float, factor: float) -> None:
    """Mean 0 and deviation 1 over those that are there; so units do not matter."""
    there = [x for x in values if x is not None]
    column = pl.Series(values, dtype=pl.Float64)
    spread = float(np.std(there)) if there else 0.0
    encoder = fit(x=column)
    if spread <= 1e-3:
        return
    mean, deviation = math.fsum(there) / len(there), float(np.std(there))
    (number,) = encoder.columns
    assert isinstance(number, NumberColumn)
    assert number.mean == pytest.approx(mean, rel=1e-9, abs=1e-9 * max(map(abs, there)))
    assert number.scale == pytest.approx(deviation, rel=1e-9)
    assert number.missing == (None in values)
    other = fit(x=column * factor + shift).encode(contexts(x=column * factor + shift))
    np.testing.assert_allclose(encoder.encode(contexts(x=column)), other, atol=1e-6)


def test_far_out_counts_as_the_bound() -> None:
    encoder = fit(x=[-1.0, 1.0])
    found = encoder.encode(contexts(x=[4.9, 5.1, 1e300, -1e300, math.inf, math.nan, None]))
    assert found[:, 1].tolist() == [4.9, 5.0, 5.0, -5.0, 0.0, 0.0, 0.0]


def test_numbers_near_the_largest_double_have_a_scale() -> None:
    """Squares of these overflow; and so does their difference."""
    encoder = fit(x=[1.7e308, -1.7e308, 0.0, 1e-300])
    (number,) = encoder.columns
    assert isinstance(number, NumberColumn)
    assert number.scale == pytest.approx(1.7e308 / math.sqrt(2), rel=1e-12)
    found = Encoder((NumberColumn("x", -1.7e308, 1.0, missing=False),)).encode(
        contexts(x=[1.7e308])
    )
    assert found.tolist() == [[1.0, BOUND]]


def test_numbers_too_small_to_have_a_scale_are_constant() -> None:
    assert fit(x=[5e-324, 0.0, 0.0, 0.0, 0.0, 0.0]).constants == ("x",)


def test_labels_of_the_warm_up_are_one_hot() -> None:
    warmup = contexts(city=["Rome", "Oslo", "Rome", "Bonn"])
    encoder = Encoder.fit(warmup, ["city"])
    assert encoder.features == ("1", "city = Rome", "city = Bonn", "city = Oslo")
    found = encoder.encode(warmup)
    assert found[:, 1:].sum(axis=1).tolist() == [1.0] * 4
    assert found[:, 1:].argmax(axis=1).tolist() == [0, 2, 0, 1]


def test_the_most_frequent_labels_have_a_feature_and_the_rest_share_one() -> None:
    """Of equally frequent ones the first by name; new labels join those that share."""
    labels = [f"c{i:03}" for i in range(MOST_CATEGORIES + 10)]
    rows = [*labels, *reversed(labels[30:]), *labels[30:]]
    (category,) = fit(city=rows).columns
    assert isinstance(category, CategoryColumn)
    assert category.categories == (*labels[30:], *labels[:20])
    assert category.other
    found = fit(city=rows).encode(contexts(city=["new", labels[25], labels[0], labels[30]]))
    places = found[:, 1:].argmax(axis=1).tolist()
    assert places == [MOST_CATEGORIES, MOST_CATEGORIES, 30, 0]
    assert found[:, 1:].sum(axis=1).tolist() == [1.0] * 4
    later = contexts(city=["new", labels[25], labels[0], "other", None])
    assert fit(city=rows).unexpected_values(later) == {
        ("city", Unexpected.NEW): 2,
        ("city", Unexpected.MISSING): 1,
    }
    assert not fit(city=rows).encode(contexts(city=[None]))[:, 1:].any()  # missing is no label


def test_new_labels_have_no_feature_if_the_warm_up_had_few() -> None:
    encoder = fit(city=["Rome", "Oslo"])
    assert encoder.encode(contexts(city=["Bonn", None, ""])).tolist() == [[1.0, 0.0, 0.0]] * 3


def test_missing_is_a_feature_only_if_the_warm_up_had_it() -> None:
    assert fit(x=[1.0, 2.0], y=["a", "b"]).features == ("1", "x", "y = a", "y = b")
    encoder = fit(x=[1.0, None, 3.0], y=["a", "", "b"])
    assert encoder.features == ("1", "x", "x is missing", "y = a", "y = b", "y is missing")
    found = encoder.encode(contexts(x=[None, 2.0], y=["a", None]))
    assert found.tolist() == [[1, 0, 1, 1, 0, 0], [1, 0, 0, 0, 0, 1]]


def test_what_is_always_the_same_is_left_out_and_named() -> None:
    empty = pl.Series([None, None], dtype=pl.Null)
    encoder = fit(a=["x", "x"], b=[0.1, 0.1], c=empty, d=["", None], e=[math.inf, math.nan])
    assert encoder.constants == ("a", "b", "c", "d", "e")
    assert encoder.features == ("1",)
    assert encoder.encode(contexts(a=["y"])).tolist() == [[1.0]]


def test_a_number_that_is_always_the_same_or_missing_says_which() -> None:
    encoder = fit(x=[3.0, None, 3.0])
    assert encoder.features == ("1", "x is missing")
    assert encoder.encode(contexts(x=[3.0, None, 99.0]))[:, 1].tolist() == [0.0, 1.0, 0.0]


# Whatever the file


SPELLINGS: list[tuple[str, list[Any], list[Any]]] = [
    ("floats", [0.1, 1e-7, None, 2.5], ["0.1", "1e-07", None, " 2.5"]),
    ("whole", [1, -7, None, 10**15], ["1", "-7", "", "1000000000000000"]),
    ("truths", [True, False, None, True], ["true", "False", "n/a", "TRUE"]),
    ("gaps", [1.0, None, None, 2.0], ["1", "null", "None", "2"]),
    ("infinite", [1.0, math.inf, math.nan, 2.0], ["1", "inf", "NaN", "2"]),
]


@pytest.mark.parametrize(("typed", "text"), [pair[1:] for pair in SPELLINGS])
def test_text_that_is_all_numbers_is_numbers(typed: list[Any], text: list[Any]) -> None:
    """A CSV file gives the features of a Parquet file, and either encoder reads both."""
    first, second = fit(x=typed), fit(x=text)
    assert first == second
    wanted = first.encode(contexts(x=typed)).tobytes()
    assert first.encode(contexts(x=text)).tobytes() == wanted
    assert not first.unexpected_values(contexts(x=typed)) - Counter(
        {("x", Unexpected.NOT_A_NUMBER): 1}
    )  # inf
    assert first.unexpected_values(contexts(x=typed)) == first.unexpected_values(contexts(x=text))


TYPES: list[Any] = [
    *(pl.Int8, pl.Int64, pl.UInt64, pl.Int128, pl.Float32, pl.Float64, pl.Decimal(10, 2)),
]


@pytest.mark.parametrize("dtype", TYPES)
def test_numbers_of_any_type(dtype: Any) -> None:
    frame = contexts(x=pl.Series([1, 2, 3, None]).cast(dtype))
    wanted = fit(x=[1.0, 2.0, 3.0, None])
    assert Encoder.fit(frame, ["x"]) == wanted
    np.testing.assert_array_equal(wanted.encode(frame)[:, 2], [0.0, 0.0, 0.0, 1.0])


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical, pl.Enum(["b", "a"])])
def test_labels_of_any_type(dtype: Any) -> None:
    frame = contexts(x=pl.Series(["a", "b", "a", None]).cast(dtype))
    assert Encoder.fit(frame, ["x"]) == fit(x=["a", "b", "a", None])


def test_whole_numbers_match_labels_as_text() -> None:
    encoder = fit(x=["3", "a"])
    for three in (3, 3.0, "3"):
        assert encoder.encode(contexts(x=[three])).tolist() == [[1.0, 1.0, 0.0]]


REFUSED: list[Any] = [
    [date(2026, 1, 1)],
    [datetime(2026, 1, 1, 12)],
    [time(12)],
    [timedelta(days=1)],
    [[1, 2]],
    [{"a": 1}],
    [b"bytes"],
    pl.Series([[1, 2]], dtype=pl.Array(pl.Int64, 2)),
    pl.Series([object()], dtype=pl.Object),
]


@pytest.mark.parametrize("values", REFUSED)
def test_what_is_no_context_is_refused(values: Any) -> None:
    """In the warm-up, and in a later file of other types."""
    with pytest.raises(InvalidLog, match="context x = ") as caught:
        fit(x=values)
    assert "\n" not in str(caught.value)
    with pytest.raises(InvalidLog, match="make columns of "):
        fit(x=[1.0, 2.0]).encode(contexts(x=values))


@pytest.mark.parametrize(
    "texts",
    [
        ["2024-01-05", "2024-01-06"],
        ["2024-01-05 10:30:00.25", "2024-01-06T10:30Z", "2024-01-06 10:30:00+02:00"],
        ["2024-01-05", "", "n/a", None],
        ["2024-01-05", "0000-00-00"],
        pl.Series(["2024-01-05", "2024-01-06"], dtype=pl.Categorical),
    ],
)
def test_dates_as_text_are_refused_as_dates_are(texts: Any) -> None:
    with pytest.raises(InvalidLog) as of_text:
        fit(when=texts)
    with pytest.raises(InvalidLog) as of_type:
        fit(when=[date(2024, 1, 5)])
    for part in ("argument", "reason", "remedy"):
        assert getattr(of_text.value, part) == getattr(of_type.value, part)
    assert str(of_text.value).startswith("context when = '2024-01-05")


@pytest.mark.parametrize("texts", [["2024-01-05", "Oslo"], ["2024-01", "05.01.2024"], ["10:30"]])
def test_labels_that_are_no_dates_are_labels(texts: list[str]) -> None:
    assert fit(when=[*texts, "another"]).encode(contexts(when=texts))[:, 1:].any()


def test_a_frame_without_the_column_is_refused() -> None:
    with pytest.raises(InvalidLog, match="there is no column 'x'"):
        fit(x=[1.0, 2.0]).encode(contexts(y=[1.0]))
    with pytest.raises(InvalidLog, match="warm-up = 'no rows'"):
        fit(x=[])


# The same bits


@quick
@forall(warmup=frames(), later=frames(least=2), cuts=st.sets(st.integers(1, 11), max_size=4))
def test_any_batching_gives_the_same_bits(
    warmup: pl.DataFrame, later: pl.DataFrame, cuts: set[int]
) -> None:
    """Cut anywhere, down to single rows, as frames and as contexts asked about alone."""
    encoder = Encoder.fit(warmup, NAMES)
    whole = encoder.encode(later)
    edges = [0, *sorted(cut for cut in cuts if cut < len(later)), len(later)]
    parts = [encoder.encode(later[a:b]) for a, b in pairwise(edges)]
    assert np.concatenate(parts).tobytes() == whole.tobytes()
    assert encoder.encode(later[:0]).shape == (0, whole.shape[1])
    for i, row in enumerate(later.iter_rows(named=True)):
        one = {name: row[f"context.{name}"] for name in NAMES}
        text = any(isinstance(c, NumberColumn) and is_word(one[c.name]) for c in encoder.columns)
        if text:
            assert_refused(partial(encoder.encode_one, one), "context", "it is not a number")
            continue
        assert encoder.encode_one(one).tobytes() == whole[i].tobytes()
        needed = {column.name: one[column.name] for column in encoder.columns}
        assert encoder.encode_one(needed).tobytes() == whole[i].tobytes()


@quick
@forall(warmup=frames(), later=frames())
def test_data_round_trip(warmup: pl.DataFrame, later: pl.DataFrame) -> None:
    encoder = Encoder.fit(warmup, NAMES)
    again = Encoder.from_data(json.loads(json.dumps(saved_fields(encoder), allow_nan=False)))
    assert again == encoder
    assert again.encode(later).tobytes() == encoder.encode(later).tobytes()


# One context


def test_values_of_one_context_that_no_column_holds() -> None:
    encoder = fit(x=[-1.0, 1.0], y=["3", "a"])
    big, small = 10**30, -(10**30)
    values: list[tuple[Any, float]] = [(big, 5.0), (small, -5.0), (10**400, 0.0), (True, 1.0)]
    values += [(np.float64(0.5), 0.5), (np.int64(1), 1.0), ("0.5", 0.5), ("n/a", 0.0)]
    values += [(None, 0.0), (math.nan, 0.0), (np.float32("nan"), 0.0)]
    for value, wanted in values:
        assert encoder.encode_one({"x": value, "y": None})[1] == wanted
    assert encoder.encode_one({"x": None, "y": np.str_("a")}).tolist() == [1, 0, 0, 1]
    assert encoder.encode_one({"x": None, "y": 3}).tolist() == [1, 0, 1, 0]
    assert encoder.encode_one({"x": None, "y": math.nan}).tolist() == [1, 0, 0, 0]
    assert fit(y=[str(2**62 + 1), "a"]).encode_one({"y": 2**62 + 1})[1] == 1.0


def test_contexts_that_are_refused() -> None:
    encoder = Encoder((NumberColumn("x", 0.0, 1.0, missing=False),), ("site",))
    assert encoder.encode_one({"x": None, "site": "any"}).tolist() == [1.0, 0.0]
    all_of_it = "pass {'x': …}, with None for what is missing"
    for incomplete in ({}, {"site": "any"}):
        assert_refused(partial(encoder.encode_one, incomplete), "context", "it has no value of x")
        assert_refused(partial(encoder.encode_one, incomplete), "context", all_of_it)
    frame = pl.DataFrame({"x": [1.0]})
    none: list[Any] = [None, 3, "x", [("x", 1.0)], frame, frame["x"]]
    for wrong in none:
        assert_refused(partial(encoder.encode_one, wrong), "context", all_of_it)
    assert_refused(lambda: encoder.encode_one({"x": 1.0, "z": 1.0}), "context", "no column of con")
    assert_refused(lambda: encoder.encode_one({"x": "abc"}), "context['x']", "it is not a number")
    for value in ([1.0], {"a": 1}, object(), b"1", date(2026, 1, 1), 1j, np.arange(2)):
        assert_refused(partial(encoder.encode_one, {"x": value}), "x", "a number")


# Nothing in silence


@quick
@forall(warmup=frames(), later=frames())
def test_unexpected_values_are_counted(warmup: pl.DataFrame, later: pl.DataFrame) -> None:
    """Against a count in plain Python; and counts of parts add up."""
    encoder = Encoder.fit(warmup, NAMES)
    wanted: UnexpectedValues = Counter()
    for column in encoder.columns:
        for value in later[f"context.{column.name}"].to_list():
            empty = value is None or (isinstance(value, float) and math.isnan(value))
            if isinstance(column, NumberColumn):
                empty = empty or str(value).strip().lower() in {"", "nan"}
                odd = not empty and plain_number(value) is None
                wanted[column.name, Unexpected.NOT_A_NUMBER] += odd
            else:
                empty = empty or value == ""
                new = not empty and value not in set(warmup[f"context.{column.name}"])
                wanted[column.name, Unexpected.NEW] += new
            wanted[column.name, Unexpected.MISSING] += empty and not column.missing
    assert encoder.unexpected_values(later) == +wanted
    assert encoder.unexpected_values(later[:3]) + encoder.unexpected_values(later[3:]) == +wanted


def test_text_in_a_column_of_numbers_counts_as_missing_and_is_told() -> None:
    encoder = fit(x=[1.0, 2.0, None])
    later = contexts(x=["old", "1.5", "", "ill"])
    assert encoder.encode(later)[:, 2].tolist() == [1.0, 0.0, 1.0, 1.0]
    assert encoder.unexpected_values(later) == {("x", Unexpected.NOT_A_NUMBER): 2}


# Damaged files


WHOLE = saved_fields(fit(x=[1.0, None, 3.0], y=["a", "b", "b"], z=["s"] * 3))
WRONG: dict[str, tuple[Any, ...]] = {
    "kind": (None, "ordinal", []),
    "name": (None, 3, ["x"]),
    "mean": (None, "1", math.nan, True, [1.0]),
    "scale": (None, "1", math.inf, -1.0),
    "missing": (None, 1, "true"),
    "categories": (None, "ab", ["a", "a"], [1]),
    "rare": (None, "ab", ["a", "a"], [1]),
}


def damaged() -> Iterator[Any]:
    """Every part of an encoder's data left out, of a wrong kind, or there twice."""
    yield from (None, [], "text", 3, {}, {**WHOLE, "more": 1})
    for name, wrong in (("columns", "ab"), ("columns", {}), ("constants", [1]), ("constants", "z")):
        yield {**WHOLE, name: wrong}
    yield {**WHOLE, "constants": ["x"]}
    yield {**WHOLE, "columns": [None]}
    for column in WHOLE["columns"]:
        yield {**WHOLE, "columns": [column, column]}
        for name in column:
            yield {**WHOLE, "columns": [{k: v for k, v in column.items() if k != name}]}
            for wrong in WRONG[name]:
                yield {**WHOLE, "columns": [{**column, name: wrong}]}


@pytest.mark.parametrize("data", list(damaged()))
def test_damaged_data_is_refused(data: Any) -> None:
    assert Encoder.from_data(WHOLE).names == ("x", "y", "z")
    with pytest.raises(InvalidSnapshot) as caught:
        Encoder.from_data(data)
    assert "\n" not in str(caught.value)


def test_columns_are_named_once() -> None:
    one = NumberColumn("x", 0.0, 1.0, missing=False)
    with pytest.raises(InvalidArgument, match="twice"):
        Encoder((one, one))
