from __future__ import annotations

import io
import math
import re
import sys
from dataclasses import replace
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from spanlm.analysis.by_lag import LagProfile
from spanlm.analysis.drawing import Drawing, Line, Mark, Rect, Text, clip, text_width, wrap
from spanlm.analysis.heatmap import ROW_LIMIT, heatmap
from spanlm.analysis.lag_figure import lag_figure
from spanlm.analysis.palette import blue, ink_on
from spanlm.analysis.png import render_png
from spanlm.analysis.published_lags import PUBLISHED
from spanlm.analysis.record import AttentionRecord
from spanlm.analysis.svg import render_svg, xml_text
from spanlm.errors import InputError

from .conftest import make_record, mean_by_lag
from .drawings import assert_on_paper, marks, texts

SVG = "{http://www.w3.org/2000/svg}"
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


def _cells(drawing: Drawing) -> list[Rect]:
    return [shape for shape in drawing.shapes if isinstance(shape, Rect) and shape.tip]


def test_the_heat_map_has_a_cell_for_each_occupied_slot_and_no_other(record: AttentionRecord) -> None:
    drawing = heatmap(record)
    assert len(_cells(drawing)) == record.occupied.sum() == 18
    weight = 100 * float(record.weights[4, 2])
    assert f"sat, −1: {weight:.1f} %" in [cell.tip for cell in _cells(drawing)]


def test_the_heat_map_names_words_lags_and_scale(record: AttentionRecord) -> None:
    written = texts(heatmap(record))
    for word in [*record.words, *record.targets, "−3", "−2", "−1", "0 %", record.title]:
        assert word in written


def test_the_heat_map_of_the_current_word_has_a_column_for_it(current: AttentionRecord) -> None:
    drawing = heatmap(current)
    assert len(_cells(drawing)) == current.occupied.sum() == 21
    assert _cells(drawing)[0].tip == "<eos>, 0: 100.0 %"
    assert {"−2", "−1", "0", "words back (0: the current word)"} <= set(texts(drawing))
    assert "−3" not in texts(drawing)
    rows = {text.text: text.y for text in drawing.shapes if isinstance(text, Text) and text.anchor == "end"}
    cell = next(cell for cell in _cells(drawing) if cell.tip.startswith("cat, 0:"))
    assert cell.y < rows["cat"] < cell.y + cell.height, "the current word stands in its own row"


def test_every_cell_of_the_heat_map_lies_under_its_lag_and_beside_its_word(
    record: AttentionRecord, current: AttentionRecord
) -> None:
    words = [f"w{number}" for number in range(len(record) + 1)]
    for known in (record, current):
        drawing = heatmap(replace(known, words=words[:-1], targets=words[1:]))
        headings = {text.text: text.x for text in drawing.shapes if isinstance(text, Text) and text.anchor == "middle"}
        rows = {text.text: text.y for text in drawing.shapes if isinstance(text, Text) and text.anchor == "end"}
        for cell in _cells(drawing):
            source, heading, steps, percent = re.findall(r"w(\d+), (−?(\d)): (.*) %", cell.tip)[0]
            lag, read = int(steps), int(source) + int(steps)
            assert cell.x < headings[heading] < cell.x + cell.width
            assert cell.y < rows[f"w{read}"] < cell.y + cell.height
            assert percent == f"{100 * known.weights[read, known.lags.index(lag)]:.1f}"


def test_beside_every_row_of_the_heat_map_stands_what_came_and_its_bits(record: AttentionRecord) -> None:
    words = [f"w{number}" for number in range(len(record) + 1)]
    written = [s for s in heatmap(replace(record, words=words[:-1], targets=words[1:])).shapes if isinstance(s, Text)]
    for t, surprisal in enumerate(record.surprisal.tolist()):
        (label,) = (text for text in written if text.text == words[t] and text.anchor == "end")
        row = sorted((text for text in written if text.y == label.y), key=lambda text: text.x)
        assert [text.text for text in row] == [words[t], words[t + 1], f"{surprisal / math.log(2):.1f}"]


def test_the_scale_is_not_set_by_the_opening_words() -> None:
    weights = np.full((30, 10), 0.1)
    weights[1] = [0] * 9 + [1]  # the first look has only one word to go to
    words = [f"w{i}" for i in range(31)]
    record = AttentionRecord(words[:-1], words[1:], weights, np.ones(30), [[]] * 30, "flat")
    assert "≥ 10 %" in texts(heatmap(record))


def test_small_weights_have_a_scale_of_their_own(record: AttentionRecord) -> None:
    drawing = heatmap(replace(record, weights=record.weights * np.float32(0.012 / record.settled.max())))
    assert {"0 %", "0.75 %", "≥ 1.5 %"} <= set(texts(drawing))
    assert blue(0.8) in [cell.fill for cell in _cells(drawing)]


def test_what_stands_in_a_cell_can_be_read() -> None:
    weights = np.diag(np.linspace(0.13, 1, 30)).astype(np.float32)[:, ::-1]
    words = [f"w{i}" for i in range(31)]
    drawing = heatmap(AttentionRecord(words[:-1], words[1:], weights, np.ones(30), [[]] * 30, "t", 0))
    named = [
        (cell.fill, text.fill)
        for cell, text in pairwise(drawing.shapes)
        if isinstance(cell, Rect) and cell.tip and isinstance(text, Text) and text.anchor == "middle"
    ]
    assert len(named) == 30 and all(ink == ink_on(fill) for fill, ink in named)


@pytest.mark.parametrize(("count", "window"), [(1, 1), (10, 1), (24, 15), (60, 5)])
def test_everything_stays_on_the_paper(count: int, window: int) -> None:
    record = make_record(["<eos>", *(f"word{i}" * (i % 7 + 1) for i in range(count))], window, "title " * 30)
    assert_on_paper(heatmap(record))


@pytest.mark.parametrize("window", [1, 5, 15, 60])
@pytest.mark.parametrize("model", ["attention", "RM(+tM-g)"])
def test_the_lag_figure_stays_on_the_paper(window: int, model: str) -> None:
    nearest_lag = PUBLISHED[model].nearest_lag
    profile = mean_by_lag(np.random.default_rng(0).dirichlet(np.ones(window), size=50), nearest_lag)
    assert_on_paper(lag_figure(profile, model))


def test_clipped_text_fits_and_says_that_it_was_cut() -> None:
    assert clip("short", 10, 100) == "short"
    assert clip("incomprehensible", 10, 50).endswith("…")
    assert text_width(clip("incomprehensible", 10, 50), 10) <= 50


def test_a_text_too_long_for_a_figure_is_refused_with_the_way_out() -> None:
    record = make_record(["w"] * (ROW_LIMIT + 2), 1)
    with pytest.raises(InputError, match=rf"{ROW_LIMIT + 1} words.*\.html"):
        heatmap(record)


def test_wrapped_text_fits_and_is_whole() -> None:
    text = "some words and one averyveryveryverylongword 日本語日本語日本語 at the end"
    lines = wrap(text, 10, 80)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(text_width(line, 10) <= 80 for line in lines)
    assert wrap("", 10, 80) == [""]


def test_the_published_line_is_drawn_only_where_it_was_published() -> None:
    def lines(drawing: Drawing) -> list[Line]:
        return [shape for shape in drawing.shapes if isinstance(shape, Line) and len(shape.points) == 15]

    fifteen = LagProfile(PUBLISHED["attention"].percent, 10, 0)
    assert len(lines(lag_figure(fifteen, "attention"))) == 1
    assert lines(lag_figure(fifteen)) == []
    assert len(texts(lag_figure(LagProfile((50.0, 50.0), 10, 0), "attention"))) > 0


@pytest.mark.parametrize("model", PUBLISHED)
def test_the_published_line_meets_bars_of_the_same_height(model: str) -> None:
    row = PUBLISHED[model]
    drawing = lag_figure(LagProfile(row.percent, 10, 0, row.nearest_lag), model)
    tops = [rect.y for rect in _cells(drawing)]
    middles = [rect.x + rect.width / 2 for rect in _cells(drawing)]
    (line,) = (s for s in drawing.shapes if isinstance(s, Line) and len(s.points) == 15)
    assert [y for _, y in line.points] == pytest.approx(tops)
    assert [x for x, _ in line.points] == pytest.approx(middles)


def test_the_number_that_could_not_be_read_is_hollow_and_noted() -> None:
    row = PUBLISHED["RM(+tM-g)"]
    drawing = lag_figure(LagProfile(row.percent, 10, 0, 0), "RM(+tM-g)")
    (hollow,) = (mark for mark in marks(drawing) if mark.hollow)
    assert hollow.tip == "paper, lag 0 (current word): ≈39.9 %"
    note = " ".join(texts(drawing))
    assert "Hollow mark (lag 0): illegible" in note and "position −1 of RM(+tM-g) is the current word" in note
    other = lag_figure(LagProfile(PUBLISHED["attention"].percent, 10, 0), "attention")
    assert not any(mark.hollow for mark in marks(other)) and "illegible" not in " ".join(texts(other))


def test_the_lag_figure_says_what_lies_on_no_word() -> None:
    def caption(*percent: float) -> str:
        return " ".join(texts(lag_figure(LagProfile(percent, 10, 2, 0))))

    assert "62.5 % lies on no word. Mean over 10 positions" in caption(10.0, 27.5)
    assert "no word" not in caption(40.0, 60.0)


def test_the_lag_figure_says_what_lies_on_older_words() -> None:
    drawing = lag_figure(LagProfile((20.0, 25.0, 30.0), 10, 2, older=25.0))
    caption = " ".join(texts(drawing))
    assert "25.0 % lies on older words than these 3. Mean over 10 positions with at least 3 words" in caption
    assert "no word" not in caption


def test_the_lag_axis_ends_at_the_nearest_lag() -> None:
    flat = (20.0,) * 5
    assert {"−5", "−1"} <= set(texts(lag_figure(LagProfile(flat, 10, 0)))) and "0" not in texts(
        lag_figure(LagProfile(flat, 10, 0))
    )
    assert {"−4", "0"} <= set(texts(lag_figure(LagProfile(flat, 10, 0, 0)))) and "−5" not in texts(
        lag_figure(LagProfile(flat, 10, 0, 0))
    )


def test_svg_is_well_formed_whatever_the_words_are(hostile: AttentionRecord) -> None:
    root = ElementTree.fromstring(render_svg(heatmap(hostile)))
    allowed = {SVG + name for name in ("svg", "title", "desc", "rect", "text")}
    assert {element.tag for element in root.iter()} <= allowed
    assert root.findtext(f"{SVG}title") == hostile.title
    tips = [tip.text or "" for tip in root.iterfind(f"{SVG}rect/{SVG}title")]
    assert any(tip.startswith("<img src=x onerror=alert(1)>, −1") for tip in tips)


def test_svg_loads_nothing(hostile: AttentionRecord) -> None:
    svg = render_svg(heatmap(hostile)) + render_svg(lag_figure(mean_by_lag(hostile.weights)))
    assert set(re.findall(r"\w+://[^\"'\s]*", svg)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<script|<image|<style|<use|\b(?:href|src|on\w+)=[\"']", svg)


def test_characters_that_xml_forbids_are_replaced() -> None:
    assert xml_text("a\x00b\x0b\ud800\uffff<'\"&") == "a�b���&lt;&#39;&quot;&amp;"


def test_png_shows_hostile_words_too(hostile: AttentionRecord) -> None:
    drawing = heatmap(hostile)
    png = render_png(drawing)
    assert png.startswith(PNG_MAGIC)
    width, height = int.from_bytes(png[16:20]), int.from_bytes(png[20:24])
    assert (width, height) == pytest.approx((2 * drawing.width, 2 * drawing.height), abs=2)


def test_png_has_the_shapes_where_the_drawing_puts_them() -> None:
    from matplotlib.image import imread

    drawing = Drawing(40, 20, "t", "d", [Rect(10, 2, 20, 10, "#ff0000")])
    pixels = imread(io.BytesIO(render_png(drawing)))
    red = (pixels[..., 0] > 0.9) & (pixels[..., 1] < 0.1)
    rows, columns = np.nonzero(red)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (4, 23, 20, 59)


@pytest.mark.parametrize("anchor", ["start", "middle", "end"])
def test_text_that_is_read_upwards_stands_there_in_png_and_svg(anchor: Any) -> None:
    from matplotlib.image import imread

    text = Text(30, 50, "MMMM", 10, "#ff0000", anchor, upwards=True)
    pixels = imread(io.BytesIO(render_png(Drawing(60, 100, "t", "d", [text]))))
    rows, columns = np.nonzero((pixels[..., 0] > 0.9) & (pixels[..., 1] < 0.3))
    assert columns.min() >= 2 * 20 and columns.max() <= 2 * 31, "letters stand to the left of their baseline"
    low, high = {"start": (0, 50), "middle": (25, 75), "end": (50, 100)}[anchor]
    assert 2 * low <= rows.min() + 2 and rows.max() - 2 <= 2 * high and rows.max() - rows.min() > 2 * 25
    (shape,) = ElementTree.fromstring(render_svg(Drawing(60, 100, "t", "d", [text])))[3:]
    assert (shape.get("transform"), shape.get("text-anchor")) == ("rotate(-90 30 50)", anchor)


MARKS = [
    Mark(20, 15, shape, 6, "#ff0000", hollow)
    for shape in ("circle", "square", "triangle", "diamond", "inverted", "plus", "cross")
    for hollow in (False, True)
]


@pytest.mark.parametrize("mark", MARKS, ids=lambda mark: f"{mark.shape} {mark.hollow}")
def test_png_and_svg_have_a_mark_where_the_drawing_puts_it(mark: Mark) -> None:
    from matplotlib.image import imread

    drawing = Drawing(40, 30, "t", "d", [mark])
    pixels = imread(io.BytesIO(render_png(drawing)))
    red = (pixels[..., 0] > 0.9) & (pixels[..., 1] < 0.1)
    rows, columns = np.nonzero(red)
    x, y = zip(*(mark.outline or ((14, 9), (26, 21))), strict=True)
    found = [columns.min() / 2, (columns.max() + 1) / 2, rows.min() / 2, (rows.max() + 1) / 2]
    assert found == pytest.approx([min(x), max(x), min(y), max(y)], abs=2.1)  # an edge of paper, or of ink
    assert red[30, 40] != mark.hollow, "hollow marks show the paper"
    (shape,) = ElementTree.fromstring(render_svg(drawing))[3:]
    ink, edge = (shape.get("stroke"), shape.get("fill")) if mark.hollow else (shape.get("fill"), shape.get("stroke"))
    assert (ink, edge) == ("#ff0000", "#ffffff")
    if mark.outline:
        points = [tuple(map(float, point.split(","))) for point in (shape.get("points") or "").split()]
        np.testing.assert_allclose(points, mark.outline, atol=0.006)


def test_dashes_are_as_long_in_png_as_in_svg() -> None:
    from matplotlib.image import imread

    drawing = Drawing(60, 10, "t", "d", [Line(((0, 5), (60, 5)), "#ff0000", 2, (10, 5))])
    pixels = imread(io.BytesIO(render_png(drawing)))
    red = (pixels[10, :, 0] > 0.9) & (pixels[10, :, 1] < 0.3)
    assert [bool(red[2 * x]) for x in (2, 8, 12, 17, 23, 27, 32, 38, 42)] == [
        *(True, True, False),
        *(True, True, False),
        *(True, True, False),
    ]
    (line,) = ElementTree.fromstring(render_svg(drawing))[3:]
    assert line.get("stroke-dasharray") == "10 5"


def test_without_matplotlib_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch, record: AttentionRecord) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r'pip install "spanlm\[plot\]"'):
        render_png(heatmap(record))
