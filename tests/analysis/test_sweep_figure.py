from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlm.analysis.drawing import Drawing, Line, Text
from spanlm.analysis.palette import STYLES, lighter
from spanlm.analysis.sweep_figure import Panel, Point, Series, sweep_figure
from spanlm.errors import InputError

from .drawings import assert_on_paper, assert_texts_apart, marks, texts

# Daniluk et al. (2017), Figure 2a
PAPER = {"Attention": (82.2, 82.2, 82.0, 82.8), "Key-Value": (78.7, 79.0, 78.2, 78.9)}
WINDOWS = (1, 5, 10, 15)


def curve(name: str, values: tuple[float, ...], spread: float = 0.0, published: bool = False) -> Series:
    points = (Point(x, y, y - spread, y + spread) for x, y in zip(WINDOWS, values, strict=True))
    return Series(name, tuple(points), published)


def two_panels(factor: float = 2.0, spread: float = 1.0) -> Drawing:
    here = tuple(curve(name, tuple(factor * y for y in row), spread) for name, row in PAPER.items())
    there = tuple(curve(name, row, published=True) for name, row in PAPER.items())
    panels = (Panel("measured on a text", here), Panel("paper, Wikipedia", there))
    return sweep_figure("Figure 2a", "window", "test perplexity", panels, "Three seeds.")


def curves(drawing: Drawing) -> list[Line]:
    return [shape for shape in drawing.shapes if isinstance(shape, Line) and len(shape.points) == len(WINDOWS)]


def test_every_curve_is_drawn_and_named_once() -> None:
    drawing = two_panels()
    assert [(line.stroke, bool(line.dash)) for line in curves(drawing)] == [
        (STYLES[0].colour, False),
        (STYLES[1].colour, False),
        (lighter(STYLES[0].colour), True),
        (lighter(STYLES[1].colour), True),
    ]
    written = texts(drawing)
    for text in ("Figure 2a", "Attention", "Key-Value", "measured on a text", "paper, Wikipedia"):
        assert written.count(text) == 1, text
    assert written.count("window") == written.count("test perplexity") == 2
    for window in WINDOWS:
        assert written.count(str(window)) == 2


def test_a_model_has_one_mark_everywhere() -> None:
    shapes = {}
    for mark in marks(two_panels()):
        if mark.tip:
            shapes.setdefault(mark.tip.split(",")[0], set()).add(mark.shape)
    assert shapes == {name: {style.mark} for name, style in zip(PAPER, STYLES, strict=False)}


def test_marks_stand_on_their_lines_and_say_their_numbers() -> None:
    drawing = two_panels(spread=0)
    told = [mark for mark in marks(drawing) if mark.tip]
    assert [(mark.x, mark.y) for mark in told] == [point for line in curves(drawing) for point in line.points]
    assert told[0].tip == "Attention, window 1: 164.4"


def test_points_are_joined_from_left_to_right_in_whatever_order_they_come() -> None:
    one = curve("a", (4, 3, 2, 1))
    shuffled = Series("a", (one.points[2], one.points[0], one.points[3], one.points[1]))
    drawn = [curves(sweep_figure("t", "N", "y", (Panel("p", (series,)),))) for series in (one, shuffled)]
    assert drawn[0] == drawn[1] and len(drawn[0]) == 1


def test_panels_share_the_horizontal_axis_and_the_ratio_of_the_vertical() -> None:
    """The same values in another unit are the same picture beside it."""
    drawing = two_panels(factor=1.9, spread=0)
    for here, there in zip(curves(drawing)[:2], curves(drawing)[2:], strict=True):
        shift = there.points[0][0] - here.points[0][0]
        assert shift > 0
        for (x, y), (other_x, other_y) in zip(here.points, there.points, strict=True):
            assert (other_x - x, other_y) == pytest.approx((shift, y))


def test_a_change_of_one_percent_is_as_high_in_every_panel() -> None:
    wide, narrow = curve("a", (100, 110, 121, 144)), curve("a", (50, 52, 55, 50), published=True)
    drawing = sweep_figure("t", "window", "y", (Panel("wide", (wide,)), Panel("narrow", (narrow,))))
    percents = []
    for line, one in zip(curves(drawing), (wide, narrow), strict=True):
        values = [point.value for point in one.points]
        middle = math.sqrt(min(values) * max(values))
        (_, y), (_, other_y) = line.points[0], line.points[2]
        percents.append((y - other_y) / (values[2] - values[0]) * middle / 100)
    assert percents[0] == pytest.approx(percents[1])


def test_less_perplexity_stands_lower_and_ticks_tell_the_truth() -> None:
    drawing = two_panels(spread=0)
    line = curves(drawing)[0]
    left = [
        (float(shape.text), shape.y - 4)
        for shape in drawing.shapes
        if isinstance(shape, Text) and shape.anchor == "end" and shape.x < line.points[0][0]
    ]
    (low, low_y), (high, high_y) = left[0], left[-1]
    assert high > low and high_y < low_y
    for (_, y), value in zip(line.points, PAPER["Attention"], strict=True):
        assert low + (y - low_y) / (high_y - low_y) * (high - low) == pytest.approx(2 * value)


def test_bars_go_from_least_to_greatest_and_only_where_there_are_several_seeds() -> None:
    def bars(drawing: Drawing) -> list[Line]:
        lines = [shape for shape in drawing.shapes if isinstance(shape, Line) and len(shape.points) == 2]
        return [line for line in lines if line.points[0][0] == line.points[1][0]]

    drawing = two_panels(spread=1.5)
    assert len(bars(drawing)) == 2 * len(WINDOWS)
    told = {(mark.x, mark.y) for mark in marks(drawing) if mark.tip}
    for bar in bars(drawing):
        (x, bottom), (_, top) = bar.points
        assert any(mark_x == x and top < mark_y < bottom for mark_x, mark_y in told)
    assert "Bars go from the least to the greatest" in " ".join(texts(drawing))
    assert bars(two_panels(spread=0)) == []
    assert "Bars" not in " ".join(texts(two_panels(spread=0)))


def test_bars_of_different_models_do_not_hide_each_other() -> None:
    places = [mark.x for mark in marks(two_panels()) if ", window 5:" in mark.tip]
    assert len(set(places[:2])) == 2 and places[2] == places[3]


def test_the_caption_says_what_the_reader_must_know() -> None:
    caption = " ".join(texts(two_panels()))
    for part in ("Three seeds.", "Dashed: published.", "Each panel has a scale of its own"):
        assert part in caption
    alone = sweep_figure("t", "N", "y", (Panel("p", (curve("a", (4, 3, 2, 1)),)),))
    assert "Dashed" not in " ".join(texts(alone)) and "scale of its own" not in " ".join(texts(alone))


def test_measured_and_published_can_share_a_panel() -> None:
    series = (
        curve("a", (4, 3, 2, 1)),
        curve("a", (4, 3, 3, 1), published=True),
        curve("b", (2, 2, 2, 2), published=True),
    )
    drawing = sweep_figure("t", "N", "y", (Panel("p", series),))
    assert [bool(line.dash) for line in curves(drawing)] == [False, True, True]
    legend = [
        shape for shape in drawing.shapes if isinstance(shape, Line) and len(shape.points) == 2 and shape.width == 2
    ]
    assert [bool(line.dash) for line in legend] == [False, True], "b was not measured: its name stands by a dashed line"


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.lists(
            st.lists(st.tuples(st.integers(1, 60), st.floats(0.01, 1e6)), min_size=1, max_size=6),
            min_size=1,
            max_size=7,
        ),
        min_size=1,
        max_size=3,
    ),
    st.text(max_size=80),
)
def test_everything_stays_on_the_paper(sizes: list[list[list[tuple[int, float]]]], title: str) -> None:
    panels = tuple(
        Panel(title, tuple(Series(f"s{i}", tuple(Point(x, y) for x, y in row)) for i, row in enumerate(panel)))
        for panel in sizes
    )
    assert_on_paper(sweep_figure(title, "window", "perplexity", panels, title))


def test_texts_do_not_overlap() -> None:
    assert_texts_apart(two_panels())


def test_one_point_alone_can_be_drawn() -> None:
    drawing = sweep_figure("t", "N", "y", (Panel("p", (Series("a", (Point(3, 80.0),)),)),))
    assert_on_paper(drawing)
    assert [mark.tip for mark in marks(drawing)] == ["", "a, N 3: 80"]


@pytest.mark.parametrize(
    "numbers",
    [
        (1, 0.0),
        (1, -1.0),
        (1, math.inf),
        (1, math.nan),
        (math.nan, 1.0),
        (1, 2.0, 3.0),
        (1, 2.0, 1.0, 1.5),
        (1, 2.0, 0.0),
    ],
)
def test_what_cannot_be_drawn_is_refused(numbers: tuple[float, ...]) -> None:
    with pytest.raises(InputError, match="0 < low <= value <= high"):
        Point(*numbers)


def test_a_mean_of_equal_numbers_may_be_off_by_a_rounding() -> None:
    assert Point(1, math.nextafter(3.3, 4), 3.3, 3.3).span == (3.3, 3.3)


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(InputError, match=r"series a=\(\): must be at least one point"):
        Series("a", ())
    with pytest.raises(InputError, match="panel p"):
        Panel("p", ())
    with pytest.raises(InputError, match="curves of a figure=0"):
        sweep_figure("t", "N", "y", ())
    eight = tuple(Series(str(i), (Point(1, 1.0),)) for i in range(8))
    with pytest.raises(InputError, match="curves of a figure=8: must be from 1 to 7"):
        sweep_figure("t", "N", "y", (Panel("p", eight),))
