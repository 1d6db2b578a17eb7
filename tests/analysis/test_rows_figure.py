"""A dot for every model: where it stands, and that nothing runs off the paper."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlm.analysis.drawing import Drawing, Line, Mark, Text, text_width
from spanlm.analysis.palette import STYLES
from spanlm.analysis.rows_figure import RowsPanel, Value, rows_figure

MEASURED, PUBLISHED = STYLES[:2]
numbers = st.floats(0.001, 1e5)


def draw(values: list[float], published: list[float | None] | None = None, spread: float = 0.0) -> Drawing:
    measured = tuple(Value(value, value - spread, value + spread) for value in values)
    panel = RowsPanel("test ppl", measured, tuple(published or [None] * len(values)))
    return rows_figure("A figure", [f"model {n}" for n in range(len(values))], [panel], "One seed.")


def marks(drawing: Drawing, colour: str) -> list[Mark]:
    return [shape for shape in drawing.shapes if isinstance(shape, Mark) and shape.colour == colour]


@given(values=st.lists(numbers, min_size=1, max_size=9))
@settings(max_examples=60, deadline=None)
def test_dots_stand_from_left_to_right_as_their_values_and_evenly_from_top_to_bottom(values: list[float]) -> None:
    found = marks(draw(values), MEASURED.colour)
    assert len(found) == len(values)
    by_value = sorted(zip(values, (mark.x for mark in found), strict=True))
    assert all(x <= y + 1e-9 for (_, x), (_, y) in pairwise(by_value))
    steps = {round(b.y - a.y, 6) for a, b in pairwise(found)}
    assert len(steps) <= 1


@given(values=st.lists(numbers, min_size=3, max_size=3, unique=True))
@settings(max_examples=40, deadline=None)
def test_distances_are_proportional(values: list[float]) -> None:
    a, b, c = (mark.x for mark in marks(draw(values), MEASURED.colour))
    x, y, z = values
    assert (b - a) * (z - x) == pytest.approx((c - a) * (y - x), abs=1e-3 * max(map(abs, values)))


@given(values=st.lists(numbers, min_size=1, max_size=5), spread=st.floats(0, 50))
@settings(max_examples=60, deadline=None)
def test_everything_stays_on_the_paper(values: list[float], spread: float) -> None:
    drawing = draw(values, [values[0] * 1.5] * len(values), spread)
    for shape in drawing.shapes:
        if isinstance(shape, Line):
            assert all(0 <= x <= drawing.width and 0 <= y <= drawing.height for x, y in shape.points)
        if isinstance(shape, Mark):
            assert shape.radius <= shape.x <= drawing.width - shape.radius
        if isinstance(shape, Text) and shape.anchor == "start" and shape.text[0].isdigit():
            assert shape.x + text_width(shape.text, shape.size) <= drawing.width


def test_seeds_that_differ_have_a_whisker_from_the_least_to_the_greatest() -> None:
    drawing = draw([80.0, 90.0], spread=2.0)
    whiskers = [s for s in drawing.shapes if isinstance(s, Line) and s.stroke == MEASURED.colour]
    for whisker, mark in zip(whiskers, marks(drawing, MEASURED.colour), strict=True):
        (left, _), (right, _) = whisker.points
        assert left < mark.x < right
        assert mark.x - left == pytest.approx(right - mark.x)
    assert not [s for s in draw([80.0]).shapes if isinstance(s, Line) and s.stroke == MEASURED.colour]


def test_published_numbers_have_another_mark() -> None:
    drawing = draw([80.0, 90.0], [85.0, None])
    assert [mark.shape for mark in marks(drawing, PUBLISHED.colour)] == [PUBLISHED.mark]
    assert PUBLISHED.mark != MEASURED.mark


def test_a_published_number_alone_is_written_out() -> None:
    panel = RowsPanel("the paper", (None, None), (85.2, 75.8))
    drawing = rows_figure("A figure", ["LSTM", "KVP"], [panel], "")
    assert {"85.2", "75.8"} <= {shape.text for shape in drawing.shapes if isinstance(shape, Text)}
