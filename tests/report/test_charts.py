"""Charts: scales, smoothing, thinning and labels."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitkit.report.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    TOP,
    WIDTH,
    Line,
    chart,
    downsample,
    format_number,
    moving_average,
    ticks,
)

values = st.floats(-1e6, 1e6).filter(lambda v: v == 0 or abs(v) > 1e-6)


@given(st.lists(values, min_size=1, max_size=50), st.booleans())
def test_every_point_lies_within_the_frame(ys: list[float], from_zero: bool) -> None:
    drawing = chart("loss", [Line("a", list(enumerate(ys)), smooth=True)], from_zero=from_zero)
    for path in re.findall(r" d='M([^']+)'", drawing):
        points = np.array([[float(v) for v in p.split(",")] for p in path.split("L")])
        assert (points[:, 0] >= LEFT - 0.1).all()
        assert (points[:, 0] <= WIDTH + 0.1).all()
        assert (points[:, 1] >= TOP - 0.1).all()
        assert (points[:, 1] <= HEIGHT - BOTTOM + 0.1).all()


@given(values, st.floats(1e-6, 1e6), st.booleans())
def test_ticks_are_few_even_and_inside(low: float, width: float, integer: bool) -> None:
    high = low + width
    if high - low < 1e-6 * abs(low):
        return
    found = ticks(low, high, integer=integer)
    assert len(found) <= 12
    assert all(low - 1e-6 * width <= t <= high + 1e-6 * width for t in found)
    if integer:
        assert all(t == round(t) for t in found)
    else:
        assert len(found) >= 2
        np.testing.assert_allclose(np.diff(found), found[1] - found[0], rtol=1e-3)


def test_numbers_are_short() -> None:
    assert [format_number(v) for v in (0, 0.5, 2.0, 12000.0, 5e-5, 2e7)] == ["0", "0.5", "2", "12,000", "5e-5", "2e7"]


def test_the_moving_average_is_centred_and_keeps_a_straight_line_except_at_its_ends() -> None:
    line = [(float(i), 2.0 * i) for i in range(100)]
    found = moving_average(line, 0.1)
    np.testing.assert_allclose([y for _, y in found[5:-5]], [y for _, y in line[5:-5]])
    assert found[0][1] == pytest.approx(np.mean([2 * i for i in range(6)]))
    assert moving_average(line, 0.0) == line


def test_downsampling_keeps_the_mean_and_the_last_point() -> None:
    rng = np.random.default_rng(0)
    line = [(float(i), float(y)) for i, y in enumerate(rng.normal(size=10_000))]
    found = downsample(line, 500)
    assert len(found) == 500
    assert found[-1] == line[-1]
    assert np.mean([y for _, y in found]) == pytest.approx(np.mean([y for _, y in line]), abs=0.01)
    assert [x for x, _ in found] == sorted(x for x, _ in found)


def test_names_do_not_overlap_and_stay_inside() -> None:
    lines = [Line(f"run {i}", [(0.0, 1.0), (1.0, 0.001 * i)], i) for i in range(9)]
    places = sorted(float(y) for y in re.findall(r"<text class='name s\d' x='\d+' y='([\d.]+)'", chart("loss", lines)))
    assert len(places) == 9
    assert min(np.diff(places)) >= 12.9
    assert places[0] > TOP
    assert places[-1] <= HEIGHT - BOTTOM + 5


def test_an_empty_chart_says_so() -> None:
    assert "No values logged" in chart("loss", [Line("training", [])])
