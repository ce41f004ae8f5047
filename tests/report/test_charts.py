"""Charts: round ticks, lines where they belong, a table with the same numbers, nothing that is not escaped."""

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from text2grad.report.arms import Point
from text2grad.report.charts import Chart, Series, smooth, tick_labels, ticks

NUMBERS = st.floats(-1e9, 1e9, allow_nan=False)


def line(*values: float, label: str = "a", style: int = 0) -> Series:
    return Series(label, [Point(update, value, value, value) for update, value in enumerate(values)], style)


@given(NUMBERS, NUMBERS, st.integers(3, 7))
def test_ticks_reach_over_the_numbers_in_equal_steps(one: float, other: float, wanted: int) -> None:
    low, high = min(one, other), max(one, other)
    found = ticks(low, high, wanted)
    room = 1e-6 * max(abs(low), abs(high), 1)
    assert found[0] <= low + room and found[-1] >= high - room
    assert 2 <= len(found) <= 2 * wanted + 2
    assert len(set(found)) == len(found)


@given(st.lists(NUMBERS, min_size=1, max_size=60))
def test_any_numbers_give_a_picture_with_every_point_on_the_paper(values: list[float]) -> None:
    svg = ET.fromstring(str(Chart("t", "n", [line(*values)]).svg(440, 240)))
    assert svg.attrib["viewBox"] == "0 0 440 240"
    for path in svg.iter("path"):
        if "line" in path.attrib["class"].split():
            places = re.findall(r"(-?[\d.]+) (-?[\d.]+)", path.attrib["d"])
            assert len(places) == len(values)
            assert all(-1 <= float(x) <= 441 and -1 <= float(y) <= 241 for x, y in places)


def test_a_higher_number_is_higher_on_the_paper() -> None:
    svg = ET.fromstring(str(Chart("t", "n", [line(0.0, 1.0)]).svg(440, 240)))
    (path,) = [path.attrib["d"] for path in svg.iter("path") if path.attrib["class"].startswith("line")]
    (x0, y0), (x1, y1) = (map(float, place.split()) for place in path[1:].split("L"))
    assert x0 < x1 and y0 > y1


def test_spread_is_a_band_and_one_run_has_none() -> None:
    seeds = Series("a", [Point(0, 1.0, 0.5, 1.5), Point(1, 2.0, 2.0, 2.5)], 0)
    assert 'class="band c0"' in Chart("t", "n", [seeds]).svg(440, 240)
    assert "band" not in Chart("t", "n", [line(1.0, 2.0)]).svg(440, 240)


def test_lines_differ_in_more_than_colour() -> None:
    svg = Chart("t", "n", [line(1.0, 2.0), line(2.0, 1.0, label="b", style=1)]).svg(440, 240)
    assert "line c0 d0" in svg and "line c1 d1" in svg
    marks = re.findall(r'class="mark c(\d)" [^>]* d="([^"]+)"', svg)
    assert len(set(marks)) == 2 and len({shape for _, shape in marks}) == 2


def test_charts_beside_each_other_have_the_same_axes() -> None:
    small, large = line(0.0, 0.1), line(0.0, 10.0)
    alone = Chart("t", "n", [small]).svg(440, 240)
    beside = Chart("t", "n", [small], [small, large]).svg(440, 240)
    assert ">10<" in beside and ">10<" not in alone


def test_a_long_series_is_smoothed_but_its_table_is_not() -> None:
    chart = Chart("t", "n", [line(*([0.0, 1.0] * 200))])
    assert chart.smoothed and "faint c0" in chart.svg(440, 240)
    header, rows, remark = chart.table()
    assert header == ["update", "a"]
    assert rows[0] == ["0", "0"] and rows[-1] == ["399", "1.00"]
    assert len(rows) <= 42 and remark == f"{len(rows)} of 400 updates are listed."


def test_smoothing_is_a_running_mean_that_is_shorter_at_the_ends() -> None:
    # 80 points: two to either side.
    made = [point.mean for point in smooth(line(*map(float, range(80))).points)]
    assert made[0] == pytest.approx((0 + 1 + 2) / 3) and made[79] == pytest.approx((77 + 78 + 79) / 3)
    assert made[1] == pytest.approx((0 + 1 + 2 + 3) / 4) and made[40] == pytest.approx(40)


def test_the_table_says_the_spread_and_what_is_not_there() -> None:
    one = Series("a", [Point(0, 1.0, 0.5, 1.5)], 0)
    assert Chart("t", "n", [one, line(1.0, 2.0, label="b")]).table()[1] == [
        ["0", "1.00 (0.500 to 1.50)", "1.00"],
        ["1", "–", "2.00"],
    ]


def test_names_are_escaped() -> None:
    nasty = '<script>"&'
    svg = Chart(nasty, nasty, [line(1.0, 2.0, label=nasty)]).svg(960, 380)
    assert "<script" not in svg
    ET.fromstring(str(svg))


@given(NUMBERS, st.floats(1e-9, 1e9), st.integers(3, 7))
def test_tick_labels_are_distinct(low: float, size: float, wanted: int) -> None:
    labels = tick_labels(ticks(low, low + size, wanted))
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize(("low", "high"), [(0.50001, 0.50004), (1000.0001, 1000.0003), (1e-9, 3e-9), (-4e20, 9e20)])
def test_labels_of_close_tiny_and_huge_ticks_stay_on_the_paper(low: float, high: float) -> None:
    svg = str(Chart("t", "n", [line(low, high)]).svg(440, 240))
    labels = re.findall(r'<text class="tick end" x="(\d+)" y="[\d.]+">([^<]+)<', svg)
    assert len(labels) == len({text for _, text in labels}) > 1
    assert all(6 * len(text) <= int(x) for x, text in labels)
