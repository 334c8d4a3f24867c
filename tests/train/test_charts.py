"""Charts: sizes, round numbers, where a value lands, values that are not finite."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pellucid.train.charts import (
    Plot,
    bars,
    compact,
    heat_map,
    label_plot,
    line_chart,
    nice_span,
    numbered,
    span,
    ticks,
    tint,
    training_curves,
)


@given(st.floats(-1e6, 1e6), st.floats(1e-4, 1e6))
def test_ticks_are_few_even_and_inside(low, width):
    high = low + width
    if not high > low:
        return
    found = ticks(low, high)
    assert 2 <= len(found) <= 7
    assert all(low - width * 1e-6 <= value <= high + width * 1e-6 for value in found)
    assert np.allclose(np.diff(found), found[1] - found[0])


@pytest.mark.parametrize(("low", "high"), [(0.007117, 0.007123), (12_100, 12_180), (-1e-7, 3e-7), (0, 1), (999.9999, 1000)])
def test_no_two_ticks_read_alike(low, high):
    found = numbered(ticks(low, high))
    assert len(found) >= 2
    assert len({words for _, words in found}) == len(found)
    assert all(float(words.replace("k", "e3")) == pytest.approx(value, abs=(high - low) / 100) for value, words in found)
    assert [words for _, words in numbered(ticks(0, 1))] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]


def test_ticks_of_whole_numbers_are_whole():
    assert ticks(1, 3, whole=True) == [1, 2, 3]
    assert ticks(1, 60, whole=True) == [20, 40, 60]


@given(st.lists(st.floats(-1e5, 1e5), min_size=1, max_size=9))
@example([5e-324])
@example([-1e-12, 1e-12])
def test_ranges_hold_their_values(values):
    for low, high in (span(np.array(values)), nice_span(np.array(values))):
        assert low < high
        slack = 1e-6 * (max(values) - min(values)) + 1e-9
        assert low <= min(values) + slack
        assert high >= max(values) - slack


@pytest.mark.parametrize("value", [1e-5, 0.3, 4000.0, -2.0])
def test_one_value_stands_on_an_axis_of_its_own_size(value):
    low, high = nice_span(np.array([value, value]))
    assert 0 in (low, high)
    assert abs(value) < high - low < 4.1 * abs(value)


def test_curves_that_do_not_exist_are_not_drawn():
    row = {"epoch": 1.0, "train/box": 2.0, "e2e/box/ap": 0.1, "lr": 0.01}
    shown, left_out = (training_curves([{**row, "images_per_s": rate}]) for rate in (5.0, math.nan))
    assert left_out.height < shown.height  # three charts to a row


def test_a_value_lands_where_the_axes_say():
    plot = Plot((480, 320), "title", (0.0, 10.0), (0.0, 1.0))
    left, top, right, bottom = plot.area
    assert plot.at(0, 0) == (left, bottom)
    assert plot.at(10, 1) == (right, top)
    assert plot.at(5, 0.5) == ((left + right) / 2, (top + bottom) / 2)


def test_a_line_is_drawn_where_its_values_are():
    picture = np.asarray(line_chart({"a": ([0, 1, 2], [0.5, 0.5, 0.5])}, "flat", y_range=(0, 1)))
    blue = (picture[..., 2].astype(int) - picture[..., 0] > 80).nonzero()
    assert len(blue[0]) > 300
    left, top, right, bottom = Plot((480, 320), "").area
    assert np.abs(blue[0] - (top + bottom) / 2).max() <= 2
    assert (blue[1].min(), blue[1].max()) == pytest.approx((left, right), abs=2)


def test_values_that_are_not_finite_are_left_out():
    gaps = line_chart({"a": ([1, 2, 3], [math.nan, 1.0, math.inf]), "b": ([], [])}, "gaps", "epoch")
    empty = line_chart({}, "nothing")
    assert gaps.size == empty.size == (480, 320)
    assert np.asarray(gaps).std() > 1


def test_a_heat_map_is_darker_where_there_is_more():
    names = ["a", "background"]
    picture = np.asarray(heat_map(np.array([[90, 10], [0, 5]]), names, names, "counts", "truth", "predicted"), float)
    light, dark = picture[66, 130:190].mean(), picture[66, 190:230].mean()
    assert {tint(0.0), tint(1.0)} == {(246, 248, 251), (14, 58, 138)}
    assert not math.isclose(light, dark, rel_tol=0.1)
    many = [f"class {i}" for i in range(81)]
    assert min(heat_map(np.eye(81), many, many, "many").size) > 800


def test_bars_count_what_they_do_not_show():
    assert bars([f"c{i}" for i in range(99)], range(99), "classes").height < 700
    assert (compact(12_345), compact(1_500_000), compact(312), compact(0.25)) == ("12k", "1.5M", "312", "0.25")


def test_sheets_of_a_run_and_of_no_objects_at_all():
    rows = [{"epoch": 1.0, "train/box": 2.0, "e2e/box/ap": math.nan, "lr": 0.01, "images_per_s": 5.0}]
    assert training_curves(rows).width == 3 * 480
    assert label_plot(["a"], [0], np.zeros((0, 2)), np.zeros((0, 2))).width > 1000
