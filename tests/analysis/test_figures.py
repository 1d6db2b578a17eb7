from __future__ import annotations

import io
import re
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from spanlm.analysis import PUBLISHED, AttentionRecord, LagProfile, mean_by_lag
from spanlm.analysis.drawing import Drawing, Line, Rect, Text, blue, clip, text_width
from spanlm.analysis.heatmap import ROW_LIMIT, heatmap
from spanlm.analysis.lag_figure import lag_figure
from spanlm.analysis.png import render_png
from spanlm.analysis.svg import render_svg, xml_text
from spanlm.errors import InputError

from .conftest import make_record

SVG = "{http://www.w3.org/2000/svg}"
PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


def _texts(drawing: Drawing) -> list[str]:
    return [shape.text for shape in drawing.shapes if isinstance(shape, Text)]


def _cells(drawing: Drawing) -> list[Rect]:
    return [shape for shape in drawing.shapes if isinstance(shape, Rect) and shape.tip]


def test_the_heat_map_has_a_cell_for_each_occupied_slot_and_no_other(record: AttentionRecord) -> None:
    drawing = heatmap(record)
    assert len(_cells(drawing)) == record.occupied.sum() == 18
    weight = 100 * float(record.weights[4, 2])
    assert f"sat, −1: {weight:.1f} %" in [cell.tip for cell in _cells(drawing)]


def test_the_heat_map_names_words_lags_and_scale(record: AttentionRecord) -> None:
    texts = _texts(heatmap(record))
    for word in [*record.words, *record.targets, "−3", "−2", "−1", "0 %", record.title]:
        assert word in texts


def test_darker_means_more() -> None:
    def lightness(colour: str) -> int:
        return sum(int(colour[i : i + 2], 16) for i in (1, 3, 5))

    shades = [lightness(blue(share)) for share in np.linspace(0, 1, 50)]
    assert shades == sorted(shades, reverse=True)
    assert blue(-1) == blue(0) and blue(2) == blue(1)


def test_the_scale_is_not_set_by_the_opening_words() -> None:
    weights = np.full((30, 10), 0.1)
    weights[1] = [0] * 9 + [1]  # the first look has only one word to go to
    words = [f"w{i}" for i in range(31)]
    record = AttentionRecord(words[:-1], words[1:], weights, np.ones(30), [[]] * 30, "flat")
    assert "≥ 10 %" in _texts(heatmap(record))


@pytest.mark.parametrize(("count", "window"), [(1, 1), (10, 1), (24, 15), (60, 5)])
def test_everything_stays_on_the_paper(count: int, window: int) -> None:
    record = make_record(["<eos>", *(f"word{i}" * (i % 7 + 1) for i in range(count))], window, "title " * 30)
    _assert_on_paper(heatmap(record))


@pytest.mark.parametrize("window", [1, 5, 15, 60])
def test_the_lag_figure_stays_on_the_paper(window: int) -> None:
    profile = mean_by_lag(np.random.default_rng(0).dirichlet(np.ones(window), size=50))
    _assert_on_paper(lag_figure(profile, "attention"))


def _assert_on_paper(drawing: Drawing) -> None:
    for shape in drawing.shapes:
        for x, y in _corners(shape):
            assert -0.01 <= x <= drawing.width and 0 <= y <= drawing.height, shape


def _corners(shape: Rect | Text | Line) -> list[tuple[float, float]]:
    match shape:
        case Rect():
            return [(shape.x, shape.y), (shape.x + shape.width, shape.y + shape.height)]
        case Line():
            return list(shape.points)
        case Text():
            width = text_width(shape.text, shape.size)
            left = shape.x - {"start": 0.0, "middle": width / 2, "end": width}[shape.anchor]
            return [(left, shape.y - shape.size), (left + width, shape.y)]


def test_clipped_text_fits_and_says_that_it_was_cut() -> None:
    assert clip("short", 10, 100) == "short"
    assert clip("incomprehensible", 10, 50).endswith("…")
    assert text_width(clip("incomprehensible", 10, 50), 10) <= 50


def test_a_text_too_long_for_a_figure_is_refused_with_the_way_out() -> None:
    record = make_record(["w"] * (ROW_LIMIT + 2), 1)
    with pytest.raises(InputError, match=rf"{ROW_LIMIT + 1} words.*\.html"):
        heatmap(record)


def test_the_published_line_is_drawn_only_where_it_was_published() -> None:
    def dots(drawing: Drawing) -> list[Line]:
        return [shape for shape in drawing.shapes if isinstance(shape, Line) and len(shape.points) == 15]

    fifteen = LagProfile(PUBLISHED["attention"], 10, 0)
    assert len(dots(lag_figure(fifteen, "attention"))) == 1
    assert dots(lag_figure(fifteen)) == []
    assert len(_texts(lag_figure(LagProfile((50.0, 50.0), 10, 0), "attention"))) > 0


def test_the_published_line_meets_bars_of_the_same_height() -> None:
    drawing = lag_figure(LagProfile(PUBLISHED["key-value"], 10, 0), "key-value")
    tops = [rect.y for rect in _cells(drawing)]
    (line,) = (s for s in drawing.shapes if isinstance(s, Line) and len(s.points) == 15)
    assert [y for _, y in line.points] == pytest.approx(tops)


def test_svg_is_well_formed_whatever_the_words_are(hostile: AttentionRecord) -> None:
    root = ElementTree.fromstring(render_svg(heatmap(hostile)))
    allowed = {SVG + name for name in ("svg", "title", "desc", "rect", "text", "polyline", "circle")}
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


def test_without_matplotlib_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch, record: AttentionRecord) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r'pip install "spanlm\[plot\]"'):
        render_png(heatmap(record))
