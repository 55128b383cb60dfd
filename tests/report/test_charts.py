"""The pictures of a report: what is drawn is where the data says it is, whatever the data is."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.reports import HOSTILE, SAMPLES, action_rows, certificate, percent, sample
from tests.support.strategies import quick
from understudy.report import ActionRow, CertificateCurve
from understudy.report.charts import (
    MOST_BARS,
    MOST_STEPS,
    PixelScale,
    decades,
    draw_certificate,
    draw_gain,
    draw_interval,
    draw_policy,
    fit_label,
    has_history,
    label_width,
    linear_scale,
    round_values,
    spread_labels,
)

pytestmark = pytest.mark.plain

Points = list[tuple[float, float]]
LEFT, RIGHT, TOP, BOTTOM = 58.0, 74.0, 10.0, 40.0  # the margins of a plot, in pixels

values = st.one_of(
    st.floats(-1.0, 1.0),
    st.floats(-1e15, 1e15),
    st.sampled_from([0.0, math.nan, math.inf, -math.inf, 1e-300]),
)


def parsed(svg: str) -> ET.Element:
    """Well-formed, named, and without a number that is none."""
    assert not re.search(r"nan|inf|None", svg.split("</desc>")[1])
    assert " id=" not in svg
    root = ET.fromstring(svg)
    assert root.get("role") == "img"
    assert root.get("aria-label")
    assert root.findtext("desc")
    return root


def points(root: ET.Element, class_: str) -> Points:
    found = next(path for path in root.iter("path") if path.get("class") == class_)
    numbers = [float(n) for n in re.findall(r"-?[\d.]+", found.get("d") or "")]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def test_the_curves_are_drawn_where_a_plain_computation_puts_them() -> None:
    curve = certificate(1_000_000, mean=0.36, production=0.25, spread=2.4, start=0.18)
    width, height = 720.0, 320.0
    root = parsed(draw_certificate(curve, width, height))
    settled = curve.table[:, 0] >= curve.table[-1, 0] / 30
    inside = curve.table[settled, 1:4]
    margin = 0.06 * (inside.max() - inside.min())
    low, high = inside.min() - margin, inside.max() + margin
    shown = [row for row in curve.table.tolist() if row[0] >= 1_000]
    first, last = shown[0][0], shown[-1][0]

    def place(rounds: float, value: float) -> tuple[float, float]:
        x = math.log(rounds / first) / math.log(last / first) * (width - LEFT - RIGHT) + LEFT
        y = height - BOTTOM - (value - low) / (high - low) * (height - TOP - BOTTOM)
        return x, y

    for class_, column in (("bound", 2), ("bound least", 1), ("production", 3)):
        drawn = points(root, class_)
        expected = [place(row[0], row[column]) for row in shown]
        for x, y in drawn:
            assert any(abs(x - a) <= 0.051 and abs(y - b) <= 0.051 for a, b in expected)
        assert drawn[0] == pytest.approx(expected[0], abs=0.051)
        assert drawn[-1] == pytest.approx(expected[-1], abs=0.051)
        assert all(before[0] < after[0] for before, after in pairwise(drawn))
        assert 200 < len(drawn) <= width - LEFT - RIGHT + 2
    mark = next(e for e in root.iter("line") if e.get("class") == "mark")
    assert curve.promoted_at is not None
    assert float(mark.get("x1") or 0) == pytest.approx(place(curve.promoted_at, 0)[0], abs=0.051)
    band = points(root, "band")
    assert band == points(root, "bound least") + points(root, "bound")[::-1]


def test_the_gain_is_drawn_over_the_line_that_it_has_to_cross() -> None:
    curve = certificate(100_000, mean=0.4, production=0.3, spread=1.0, start=0.2)
    root = parsed(draw_gain(curve))
    zero = next(e for e in root.iter("line") if e.get("class") == "zero")
    level = float(zero.get("y1") or 0)
    gain = points(root, "bound least")
    assert curve.gain is not None
    assert [y < level for _, y in (gain[0], gain[-1])] == [False, True]
    mark = next(e for e in root.iter("line") if e.get("class") == "mark")
    crossed = min(x for x, y in gain if y < level)
    assert abs(crossed - float(mark.get("x1") or 0)) < 3


def test_a_loss_is_drawn_with_the_line_above_it() -> None:
    root = parsed(draw_gain(certificate(50_000, mean=0.2, production=0.8, spread=0.3)))
    zero = next(e for e in root.iter("line") if e.get("class") == "zero")
    level = float(zero.get("y1") or 0)
    assert TOP < level < 200 - BOTTOM
    assert all(y > level for _, y in points(root, "bound least"))


def test_rounds_without_a_number_are_left_out_and_far_values_stay_short() -> None:
    curve = certificate(3_000, mean=0.4, production=0.3, spread=0.3)
    assert curve.gain is not None
    gain, lower, upper = (np.array(c) for c in (curve.gain, curve.lower, curve.upper))
    gain[[100, -5]], lower[200], upper[3] = np.nan, -np.inf, 1e300
    broken = replace(curve, gain=gain, lower=lower, upper=upper)
    for svg in (draw_certificate(broken), draw_gain(broken)):
        root = parsed(svg)
        assert (
            max(abs(y) for class_ in ("band", "bound least") for _, y in points(root, class_))
            <= 1e4
        )
        assert points(root, "bound least")[-1][0] == 720 - RIGHT


def test_no_mark_without_a_promotion() -> None:
    curve = certificate(8_000, mean=0.05, production=0.05, spread=0.9)
    assert curve.promoted_at is None
    for svg in (draw_certificate(curve), draw_gain(curve)):
        assert 'class="mark"' not in svg


def test_an_early_promotion_is_still_in_the_picture() -> None:
    curve = replace(certificate(1_000_000, mean=0.9, production=0.1, spread=0.1), promoted_at=20)
    root = parsed(draw_certificate(curve))
    mark = next(e for e in root.iter("line") if e.get("class") == "mark")
    assert LEFT < float(mark.get("x1") or 0) < 720 - RIGHT


@given(
    table=st.lists(st.tuples(values, values, values, values), min_size=1, max_size=12),
    start=st.integers(0, 10**9),
    promoted=st.one_of(st.none(), st.integers(1, 10**9)),
    with_gain=st.booleans(),
    width=st.sampled_from([330.0, 720.0]),
)
@quick
def test_any_curve_gives_a_well_formed_picture(
    table: list[tuple[float, ...]],
    start: int,
    promoted: int | None,
    with_gain: bool,
    width: float,
) -> None:
    lower, upper, production, gain = map(list, zip(*table, strict=True))
    curve = CertificateCurve(
        rounds=[start + 7 * i for i in range(len(table))],
        lower=lower,
        upper=upper,
        production=production,
        gain=gain if with_gain else None,
        promoted_at=promoted,
        confidence=0.95,
        estimate=0.1,
        self_normalised=0.1,
        effective_sample_size=1.0,
    )
    parsed(draw_interval(curve, width))
    if has_history(curve):
        parsed(draw_certificate(curve, width))
        if with_gain:
            parsed(draw_gain(curve, width))


@pytest.mark.parametrize("level", [0.0, 0.3, -2.0, 1e12, 1e-12])
def test_constant_curves_have_a_picture(level: float) -> None:
    n = 50
    curve = CertificateCurve(
        rounds=range(1, n + 1),
        lower=[level] * n,
        upper=[level] * n,
        production=[level] * n,
        gain=[0.0] * n,
        promoted_at=None,
        confidence=0.95,
        estimate=level,
        self_normalised=level,
        effective_sample_size=1.0,
    )
    drawn = points(parsed(draw_certificate(curve)), "production")
    assert [y for _, y in drawn] == pytest.approx([(TOP + 320 - BOTTOM) / 2] * len(drawn), abs=0.1)
    parsed(draw_gain(curve))
    parsed(draw_interval(curve))


def test_one_round_is_a_range_on_an_axis() -> None:
    whole = certificate(500, mean=0.4, production=0.3, spread=0.2)
    last = CertificateCurve(
        rounds=[500],
        lower=[0.2],
        upper=[0.6],
        production=[0.3],
        gain=None,
        promoted_at=None,
        confidence=0.9,
        estimate=0.4,
        self_normalised=0.4,
        effective_sample_size=10.0,
    )
    assert has_history(whole)
    assert not has_history(last)
    root = parsed(draw_interval(last))
    box = next(e for e in root.iter("rect") if e.get("class") == "range")
    start, width = float(box.get("x") or 0), float(box.get("width") or 0)
    mark = next(e for e in root.iter("line") if e.get("class") == "production")
    assert (float(mark.get("x1") or 0) - start) / width == pytest.approx(0.25, abs=0.01)


def test_tips_cover_the_picture_without_a_gap_and_say_the_data() -> None:
    curve = certificate(20_000, mean=0.4, production=0.3, spread=0.2)
    root = parsed(draw_certificate(curve))
    tips = [e for e in root.iter("rect") if e.get("class") == "tip"]
    edges = [(float(e.get("x") or 0), float(e.get("width") or 0)) for e in tips]
    assert edges[0][0] == LEFT
    assert sum(edges[-1]) == pytest.approx(720 - RIGHT, abs=0.2)
    for (x, width), (following, _) in pairwise(edges):
        assert x + width == pytest.approx(following, abs=0.11)
    assert (tips[-1].findtext("title") or "").startswith("after 20,000 rounds: between ")


def bars(root: ET.Element, class_: str) -> list[float]:
    found = [e for e in root.iter("rect") if e.get("class") == class_]
    return [float(e.get("width") or 0) for e in found]


@pytest.mark.parametrize("n_actions", [2, 20, 21, 1000])
def test_bars_are_as_long_as_the_shares(n_actions: int) -> None:
    rows = action_rows([f"a{i}" for i in range(n_actions)], 10**6, unseen=n_actions // 3)
    root = parsed(draw_policy(rows))
    weight = {row.label: max(row.policy or 0.0, row.share) for row in rows}
    top = sorted(rows, key=lambda row: -weight[row.label])[:MOST_BARS]
    top.sort(key=lambda row: -(row.policy or 0.0))
    for class_, shares in (
        ("policy", [row.policy or 0.0 for row in top]),
        ("share", [row.share for row in top]),
    ):
        drawn = np.array(bars(root, class_))
        scale = 1 / max(weight.values())
        longest = max(bars(root, "policy") + bars(root, "share"))
        np.testing.assert_allclose(drawn, np.array(shares) * scale * longest, atol=0.11)
    names = [e.text for e in root.iter("text") if e.get("class") == "action"]
    assert names == [row.label for row in top]
    said = [e.text for e in root.iter("text") if e.get("class") == "tick"]
    assert said == [text for row in top for text in (percent(row.policy), percent(row.share))]


def test_labels_that_are_too_long_or_hostile_stay_in_their_column() -> None:
    rows = [ActionRow(label, 1, 1 / len(HOSTILE), policy=0.1) for label in HOSTILE]
    for width in (330.0, 720.0):
        root = parsed(draw_policy(rows, width))
        names = [e.text or "" for e in root.iter("text") if e.get("class") == "action"]
        assert len(names) == len(HOSTILE)
        assert all(name.isprintable() and name for name in names)
        assert max(label_width(name) for name in names) <= max(0.34 * width, 100)
        boxes = [e for e in root.iter("svg") if e.get("height") == "28"]
        assert len(boxes) == len(HOSTILE)  # an inner picture cuts off what leaves it


def test_no_action_and_no_mass_give_a_picture() -> None:
    parsed(draw_policy([]))
    root = parsed(draw_policy([ActionRow("a", 0, 0.0, policy=None)]))
    assert bars(root, "policy") == bars(root, "share") == [0.0]


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_have_pictures(name: str) -> None:
    report = sample(name)
    assert report.certificate is not None
    parsed(draw_certificate(report.certificate, 330.0))
    parsed(draw_policy(report.actions, 330.0))


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e9))
@quick
def test_round_values_are_round_equally_spaced_and_inside(low: float, span: float) -> None:
    high = low + span
    found = round_values(low, high)
    assert len(found) <= MOST_STEPS + 1
    assert all(low - 1e-9 * span <= x <= high + 1e-9 * span for x in found)
    if len(found) > 1:
        step = found[1] - found[0]
        assert np.allclose(np.diff(found), step, rtol=1e-6)
        assert f"{step:.2e}"[:4] in {"1.00", "2.00", "5.00"}
    assert len(found) >= (MOST_STEPS - 1) / 2.6 - 1


@given(st.floats(1.0, 1e9), st.floats(1.01, 1e6))
@quick
def test_decades_are_inside_and_increase(low: float, ratio: float) -> None:
    found = decades(low, low * ratio)
    assert all(low <= x <= low * ratio for x in found)
    assert all(a < b for a, b in pairwise(found))
    assert all(f"{x:.3e}"[0] in "125" for x in found)


@given(st.lists(values, max_size=6), st.booleans())
@quick
def test_linear_scales_show_every_finite_value(numbers: list[float], zero: bool) -> None:
    scale = linear_scale(numbers, 100.0, 10.0, zero=zero)
    finite = [x for x in numbers if math.isfinite(x)] + [0.0] * zero
    places = scale(finite)
    assert scale.low < scale.high
    assert ((places >= 10.0) & (places <= 100.0)).all()


def test_scales_map_ends_to_ends_and_keep_order() -> None:
    for scale in (
        PixelScale(2.0, 50.0, 10.0, 90.0),
        PixelScale(2.0, 50.0, 10.0, 90.0, logarithmic=True),
    ):
        assert scale([2.0, 50.0]).tolist() == [10.0, 90.0]
        assert (np.diff(scale(np.linspace(2, 50, 40))) > 0).all()
    assert PixelScale(2.0, 50.0, 0.0, 1.0, logarithmic=True)(10.0) == pytest.approx(0.5)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=6))
@quick
def test_names_are_spread_in_order_without_covering_each_other(places: list[float]) -> None:
    moved = spread_labels(places, 0.0, 100.0)
    assert min(moved) >= -1e-9
    assert max(moved) <= 100.0
    ordered = [moved[i] for i in sorted(range(len(places)), key=lambda i: places[i])]
    assert all(b - a >= 14.0 - 1e-9 for a, b in pairwise(ordered))
    apart = [places[i] for i in sorted(range(len(places)), key=lambda i: places[i])]
    if all(b - a >= 14.0 for a, b in pairwise(apart)):
        assert moved == places


@given(st.text(max_size=60), st.floats(60, 300))
@quick
def test_cut_labels_fit(label: str, width: float) -> None:
    assert label_width(fit_label(label, width)) <= 2 * width
    if label_width(label) <= width and label.isprintable() and label == " ".join(label.split()):
        assert fit_label(label, width) == (label or "(empty)")
