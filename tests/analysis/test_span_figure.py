"""The figure of a span buffer: each weight on the words it belongs to, legible whatever the words are."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from spanlm.analysis.colour_scale import scale_top
from spanlm.analysis.drawing import Drawing, Rect, Text
from spanlm.analysis.palette import CAME_INK, blue
from spanlm.analysis.span_figure import _caption, span_figure
from spanlm.analysis.span_marks import percent
from spanlm.analysis.span_steps import MOST_STEPS
from spanlm.analysis.spans import PARTS, SpanRecord
from spanlm.analysis.svg import render_svg

from .conftest import HOSTILE
from .drawings import assert_on_paper, assert_texts_apart, texts
from .span_records import make_spans

TEXT = ["<eos>", *(f"w{n}" for n in range(40))]
LONG = ["<eos>", *(f"word{n}" for n in range(2000))]
KINDS = {
    "sliding": make_spans(TEXT),
    "fixed": make_spans(TEXT, fixed=True),
    "zero": make_spans(TEXT, zero=True),
    "words": make_spans(TEXT, span=1, spans=12),
    "one span": make_spans(TEXT[:6], span=4),
    "just one word": make_spans(TEXT[:2]),
    "no span yet": make_spans(TEXT[:4], span=8),
    "as in the paper": make_spans(LONG, span=8, spans=200),
    "hostile": make_spans(["<eos>", *HOSTILE, *HOSTILE], title='<b onload="x">&</title>'),
}
every_kind = pytest.mark.parametrize("record", KINDS.values(), ids=KINDS)


def tiles(drawing: Drawing) -> list[Rect]:
    return [shape for shape in drawing.shapes if isinstance(shape, Rect) and re.search(r": \d+\.\d\d %$", shape.tip)]


def texts_in(drawing: Drawing, tile: Rect) -> list[str]:
    """What is written on a tile."""
    return [
        shape.text
        for shape in drawing.shapes
        if isinstance(shape, Text)
        and tile.y < shape.y < tile.y + tile.height
        and tile.x <= shape.x <= tile.x + tile.width
    ]


@pytest.mark.parametrize("name", ["sliding", "fixed", "words", "one span"])
def test_every_span_of_the_last_step_has_a_tile_with_its_words_and_weight_in_the_order_of_the_text(name: str) -> None:
    record = KINDS[name]
    drawing, last = span_figure(record), len(record) - 1
    looks = sorted(record.looks(last), key=lambda look: look.last)
    found = tiles(drawing)
    assert [tile.tip for tile in found] == [f"{record.words_of(look)}: {100 * look.weight:.2f} %" for look in looks]
    assert found == sorted(found, key=lambda tile: (tile.y, tile.x)), "oldest first, as one reads"
    top = scale_top(max(look.weight for look in looks))
    for tile, look in zip(found, looks, strict=True):
        assert tile.fill == blue(look.weight / top)
        assert texts_in(drawing, tile) == [record.words_of(look), f"{100 * look.weight:.1f} %"]


def test_the_newest_row_is_full_and_the_oldest_begins_late() -> None:
    rows: dict[float, list[Rect]] = {}
    for tile in tiles(span_figure(make_spans(TEXT, span=1, spans=17))):
        rows.setdefault(tile.y, []).append(tile)
    first, *others = rows.values()
    assert len(first) < len(others[0]) and len({len(row) for row in others}) == 1
    assert {row[-1].x for row in rows.values()} == {first[-1].x}


def test_of_a_large_buffer_the_heaviest_rows_and_the_newest_are_shown_and_the_others_counted() -> None:
    record = KINDS["as in the paper"]
    drawing, last = span_figure(record), len(record) - 1
    looks = record.looks(last)
    shown = {tile.tip.rsplit(":")[0] for tile in tiles(drawing)}
    said = [re.match(r"⋯ (\d+) spans, (\S+) % together$", text) for text in texts(drawing)]
    counted = [match for match in said if match]
    assert len(shown) + sum(int(match[1]) for match in counted) == len(looks) == 200
    assert {record.words_of(look) for look in looks[:15]} <= shown
    assert record.words_of(max(looks, key=lambda look: look.last)) in shown
    missing = sum(look.weight for look in looks if record.words_of(look) not in shown)
    assert sum(float(match[2]) for match in counted) == pytest.approx(100 * missing, abs=0.06 * len(counted))


def test_rows_say_how_far_back_they_begin() -> None:
    record = KINDS["sliding"]
    drawing, last = span_figure(record), len(record) - 1
    first = min(look.first for look in record.looks(last))
    assert f"−{last - first}" in texts(drawing)


@pytest.mark.parametrize("name", ["sliding", "as in the paper"])
def test_the_parts_stand_with_what_they_expected_and_gave_to_the_word_that_came(name: str) -> None:
    record = KINDS[name]
    drawing, last = span_figure(record), len(record) - 1
    rows = {shape.text: shape.y for shape in drawing.shapes if isinstance(shape, Text)}
    for label, part in (("buffer alone", "buffer"), ("encoder alone", "encoder"), ("both", "mixture")):
        line = [s for s in drawing.shapes if isinstance(s, Text) and s.y == _first(drawing, label).y]
        written = [shape.text for shape in sorted(line, key=lambda shape: shape.x)]
        assert written[0] == label
        chance = float(record.chance[last, PARTS.index(part)])
        expected = [text for word, p in getattr(record, part)[last] for text in (word, percent(p))]
        assert written[1:] == [*expected, percent(chance)]
        hits = {shape.text for shape in line if shape.fill == CAME_INK and shape.bold}
        assert hits == {word for word, _ in getattr(record, part)[last]} & {record.targets[last]}
    assert f"λ {record.gate[last]:.3f}: the {'buffer' if record.gate[last] >= 0.5 else 'encoder'} is preferred" in rows


def _first(drawing: Drawing, text: str) -> Text:
    return next(shape for shape in drawing.shapes if isinstance(shape, Text) and shape.text == text)


@pytest.mark.parametrize("name", ["sliding", "fixed", "words", "as in the paper"])
def test_every_step_has_a_row_and_a_gate_and_a_cell_for_each_span(name: str) -> None:
    record = KINDS[name]
    drawing = span_figure(record)
    steps = range(max(len(record) - MOST_STEPS, 0), len(record))
    gates = [s for s in drawing.shapes if isinstance(s, Rect) and s.tip.startswith("λ ")][1:]
    assert [gate.tip for gate in gates] == [f"λ {record.gate[t]:.3f}" for t in steps if record.filled[t]]
    for t, gate in zip((t for t in steps if record.filled[t]), gates, strict=True):
        row = [s for s in drawing.shapes if isinstance(s, Rect) and s.height == 16 and abs(s.y - gate.y) < 8]
        row.sort(key=lambda cell: cell.x)
        looks = sorted(record.looks(t), key=lambda look: look.last)
        together = -(-len(looks) // len(row))
        assert together == 1 or len(looks) > 90
        heaviest = max(range(len(looks)), key=lambda n: looks[n].weight)
        # the columns are counted from the newest
        column = len(row) - 1 - (len(looks) - 1 - heaviest) // together
        darkest = min((cell.fill for cell in row), key=_lightness)
        assert row[column].fill == darkest
        beside = [s for s in drawing.shapes if isinstance(s, Text) and gate.y + 4 < s.y < gate.y + 12]
        read, came, *_ = sorted(beside, key=lambda text: text.x)
        assert (read.text, came.text) == (record.words[t], record.targets[t])


def _lightness(colour: str) -> int:
    return sum(int(colour[n : n + 2], 16) for n in (1, 3, 5))


@every_kind
def test_everything_stays_on_the_paper_and_no_text_is_on_another(record: SpanRecord) -> None:
    drawing = span_figure(record)
    assert_on_paper(drawing)
    assert_texts_apart(drawing)


@pytest.mark.parametrize("name", ["just one word", "no span yet"])
def test_where_nothing_has_passed_the_encoder_stands_alone(name: str) -> None:
    found = texts(span_figure(KINDS[name]))
    assert "The buffer is empty: no span has passed yet" in found
    assert "encoder alone" in found and not {"buffer alone", "both", "gate"} & set(found)


def test_a_step_without_a_span_has_no_gate() -> None:
    record = make_spans(TEXT[:10], span=4)
    gates = [s for s in span_figure(record).shapes if isinstance(s, Rect) and s.tip.startswith("λ ")]
    assert len(gates) == 1 + record.filled.sum() < 1 + len(record)


def test_svg_is_well_formed_whatever_the_words_are() -> None:
    root = ElementTree.fromstring(render_svg(span_figure(KINDS["hostile"])))
    written = " ".join(element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text"))
    assert "<!--" in written and "bell\ufffd" in written and "日本語" in written


def test_a_figure_of_the_papers_size_stays_small() -> None:
    assert len(render_svg(span_figure(KINDS["as in the paper"]))) < 400_000


def test_png_can_be_read() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    from spanlm.analysis.png import render_png

    drawing = span_figure(KINDS["one span"])
    height, width = imread(io.BytesIO(render_png(drawing))).shape[:2]
    assert (width, height) == pytest.approx((2 * drawing.width, 2 * drawing.height), abs=2)


@pytest.mark.parametrize(
    ("largest", "top"),
    [(0.004, 0.004), (0.0041, 0.005), (0.1, 0.1), (0.11, 0.15), (0.61, 0.8), (0.97, 1.0), (1.0, 1.0)],
)
def test_a_scale_ends_at_a_round_number_not_below_the_largest(largest: float, top: float) -> None:
    assert scale_top(largest) == pytest.approx(top)
    assert scale_top(float(np.float32(largest))) == pytest.approx(top)


def test_many_equal_weights_are_not_pale() -> None:
    record = KINDS["as in the paper"]
    flat = replace(record, weights=np.where(record.weights > 0, np.float32(0.005), np.float32(0)))
    assert {tile.fill for tile in tiles(span_figure(flat))} == {blue(1.0)}


def test_the_caption_says_whether_the_word_just_read_is_in_a_span() -> None:
    record = make_spans(TEXT)
    assert "the word just read is in none" in _caption(record)
    assert "the word just read" not in _caption(replace(record, nearest_lag=0))
