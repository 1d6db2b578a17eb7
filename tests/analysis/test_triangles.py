"""Triangles to look at: every word and number in its place, legible, whatever the words are."""

from __future__ import annotations

import io
from xml.etree import ElementTree

import numpy as np
import pytest

from spanlm.analysis.drawing import Drawing, Rect, Text
from spanlm.analysis.palette import UNKNOWN_INK, blue
from spanlm.analysis.sentence_map import SentenceMap, common_scale
from spanlm.analysis.svg import render_svg
from spanlm.analysis.triangle_figure import triangle_figure
from spanlm.analysis.triangle_text import SHADES, triangle_lines

from .conftest import HOSTILE
from .drawings import assert_on_paper, assert_texts_apart, texts
from .maps import make_sentence

SVG = "{http://www.w3.org/2000/svg}"
SENTENCE = ["the", "law", "which", "he", "wrote", "in", "N", "was", "long"]
KINDS = {
    "all words": make_sentence(SENTENCE),
    "a window": make_sentence(SENTENCE, window=3),
    "a window with the current word": make_sentence(SENTENCE, window=3, nearest_lag=0),
    "a pointer": make_sentence(SENTENCE, nearest_lag=0, gate=0.6),
    "one word": make_sentence(["yes"]),
    "25 words": make_sentence([f"word{n}" for n in range(25)]),
    "30 words in a window": make_sentence([f"word{n}" for n in range(30)], window=4, nearest_lag=0),
    "60 words": make_sentence([f"word{n}" for n in range(60)]),
    "hostile": make_sentence(list(HOSTILE), name="<b>&", memory='"<script>"'),
}
every_kind = pytest.mark.parametrize("one", KINDS.values(), ids=KINDS)


def cells(drawing: Drawing) -> list[Rect]:
    return [shape for shape in drawing.shapes if isinstance(shape, Rect) and shape.tip]


def shows(text: Text, word: str) -> bool:
    """Whether a label is of a word, which may be cut."""
    return text.text == word or (text.text.endswith("…") and word.startswith(text.text[:-1]))


def placed(drawing: Drawing, text: str, anchor: str) -> list[Text]:
    return [s for s in drawing.shapes if isinstance(s, Text) and s.text == text and s.anchor == anchor]


@every_kind
def test_there_is_a_cell_for_each_weight_and_no_other(one: SentenceMap) -> None:
    tips = [cell.tip for cell in cells(triangle_figure([[one]]))]
    assert tips == [
        f"{target} ← {one.record.words[s]}: {100 * float(one.matrix[t, s]):.2f} %"
        for t, target in enumerate(one.record.targets)
        for s in range(len(one.record))
        if not np.isnan(one.matrix[t, s])
    ]
    assert len(tips) == one.slots.sum()


@every_kind
def test_every_row_has_its_word_to_the_left_and_every_column_its_word_at_its_head(one: SentenceMap) -> None:
    drawing = triangle_figure([[one]])
    found = iter(cells(drawing))
    rows = [[next(found) for _ in range(slots)] for slots in one.slots.tolist()]
    columns = dict(zip(range(len(one.record)), sorted({cell.x for row in rows for cell in row}), strict=False))
    heads = [shape for shape in drawing.shapes if isinstance(shape, Text) and shape.anchor == "start"]
    labels = [shape for shape in drawing.shapes if isinstance(shape, Text) and shape.anchor == "end"]
    for row, target in zip(rows, one.record.targets, strict=True):
        if row:
            (label,) = (label for label in labels if row[0].y < label.y < row[0].y + row[0].height)
            assert label.x < row[0].x and shows(label, target)
    for row, weights in zip(rows, one.matrix, strict=True):
        assert [cell.x for cell in row] == [columns[column] for column in np.flatnonzero(~np.isnan(weights))]
    for column, x in columns.items():
        first = min((cell for row in rows for cell in row if cell.x == x), key=lambda cell: cell.y)
        (head,) = (h for h in heads if x <= h.x < x + first.width and first.y - first.height < h.y <= first.y)
        assert shows(head, one.record.words[column])


def test_far_from_the_heads_the_columns_of_the_last_row_are_named_again_below_it() -> None:
    def feet(name: str) -> list[str]:
        return [s.text for s in triangle_figure([[KINDS[name]]]).shapes if isinstance(s, Text) and s.upwards]

    assert feet("60 words") == KINDS["60 words"].record.words[:-1]
    assert feet("30 words in a window") == KINDS["30 words in a window"].record.words[-4:]
    assert feet("all words") == []


@every_kind
def test_everything_stays_on_the_paper_and_no_text_is_on_another(one: SentenceMap) -> None:
    drawing = triangle_figure([[one, one], [one]])
    assert_on_paper(drawing)
    if len(one.record) <= 13:
        assert_texts_apart(drawing)


def test_numbers_are_in_cells_that_have_room_for_them() -> None:
    assert f"{100 * float(KINDS['all words'].matrix[5, 2]):.1f}" in texts(triangle_figure([[KINDS["all words"]]]))
    assert f"{100 * float(KINDS['25 words'].matrix[5, 2]):.0f}" in texts(triangle_figure([[KINDS["25 words"]]]))
    assert not any(text.strip("0123456789.") == "" for text in texts(triangle_figure([[KINDS["60 words"]]])))
    assert "100" in texts(triangle_figure([[KINDS["one word"]]]))


@pytest.mark.parametrize("count", [1, 2, 22, 23, 24, 39, 40, 120])
def test_a_sentence_of_any_length_has_every_word(count: int) -> None:
    drawing = triangle_figure([[make_sentence([f"w{n}" for n in range(count)])]])
    found = texts(drawing)
    assert all(found.count(f"w{n}") >= 2 for n in range(count))
    assert_on_paper(drawing)


def test_panels_of_a_sentence_stand_side_by_side_and_share_their_colours() -> None:
    flat, peaked = (make_sentence(SENTENCE, name=name) for name in ("flat", "peaked"))
    for one, largest in ((flat, 0.2), (peaked, 0.92)):
        for t in range(1, 10):
            one.record.weights[t, 9 - t :] = [(1 - largest) / max(t - 1, 1)] * (t - 1) + [largest]
    drawing = triangle_figure([[flat, peaked]])
    heads = {name: placed(drawing, name, "start")[0] for name in ("flat", "peaked")}
    assert heads["flat"].y == heads["peaked"].y and heads["flat"].x < heads["peaked"].x
    top, above = common_scale([flat, peaked])
    assert (top, above) == (1.0, False) and common_scale([flat]) == (0.2, True)
    last = [cell for cell in cells(drawing) if cell.tip.startswith("<eos>")]
    assert [cell.fill for cell in last] == [
        blue(float(weight) / top) for one in (flat, peaked) for weight in one.record.weights[-1]
    ]


def test_panels_that_do_not_fit_beside_each_other_stand_below() -> None:
    long = [make_sentence([f"word{n}" for n in range(100)], name=f"model {n}") for n in range(3)]
    heads = [placed(triangle_figure([long]), one.name, "start")[0] for one in long]
    assert len({head.x for head in heads}) < 3 and heads[-1].y > heads[0].y


def test_a_panel_says_which_model_and_memory_and_how_flat() -> None:
    one = KINDS["a pointer"]
    written = texts(triangle_figure([[one]]))
    assert one.flatness is not None
    assert {one.name, one.memory, f"flatness {one.flatness.overall.flatness:.3f}, 60.0 % on no word"} <= set(written)
    assert not any("no word" in text for text in texts(triangle_figure([[KINDS["all words"]]])))


def test_unknown_words_stand_beside_what_they_were_read_as() -> None:
    drawing = triangle_figure(
        [[make_sentence(["a", "zebra", "of" * 40, "<unk>"], unknown=("zebra", "of" * 40, "<unk>"))]]
    )
    marked = [shape.text for shape in drawing.shapes if isinstance(shape, Text) and shape.fill == UNKNOWN_INK]
    assert marked.count("zebra <unk>") == 2 and marked.count("<unk>") == 2 and len(marked) == 6
    assert sum(text.endswith("… <unk>") for text in marked) == 2, "a long word is cut, its mark is not"
    assert "lacks" in drawing.description and "lacks" not in triangle_figure([[KINDS["all words"]]]).description


def test_svg_is_well_formed_and_has_every_word_whatever_it_is() -> None:
    root = ElementTree.fromstring(render_svg(triangle_figure([[KINDS["hostile"]]])))
    assert {element.tag for element in root.iter()} <= {SVG + name for name in ("svg", "title", "desc", "rect", "text")}
    written = [element.text or "" for element in root.iter(f"{SVG}text")]
    for word in HOSTILE:
        shown = word.replace("\x07", "\ufffd")
        assert any(text == shown or (text.endswith("…") and shown.startswith(text[:-1])) for text in written)


@pytest.mark.parametrize("name", ["all words", "a window", "a window with the current word"])
def test_text_has_the_numbers_of_each_row_and_the_head_above_each_column(name: str) -> None:
    one = KINDS[name]
    *lines, key = triangle_lines(one, 1.0)
    assert "percent" in key
    lag, width = one.record.nearest_lag, max(map(len, one.record.targets)) + 1
    lines = lines[1:] if lag == 0 else lines
    for t, line in enumerate(lines):
        assert line[:width].strip() == one.record.targets[t]
        for s in range(max(t + 1 - lag, 0)):
            weight, cell = float(one.matrix[t, s]), line[width + 3 * s : width + 3 * s + 3].strip()
            assert cell == ("" if np.isnan(weight) else "100" if weight > 0.9995 else f"{100 * weight:.0f}")
        head = t + 1 - lag
        if head < len(one.record):
            assert line[width + 3 * head :].strip() == one.record.words[head]


def test_long_sentences_in_text_are_shaded_and_fit_a_line() -> None:
    lines = list(triangle_lines(KINDS["60 words"], 0.1))
    assert "10 % or more" in lines[-1]
    assert max(map(len, lines[:-1])) <= 96
    body = lines[-2].split()[1]
    assert len(body) == 60 and set(body) <= set(SHADES)
    assert body == "".join(SHADES[min(round(float(w) * 40), 4)] for w in KINDS["60 words"].matrix[-1, :60])


def test_png_can_be_read() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    from spanlm.analysis.png import render_png

    drawing = triangle_figure([[KINDS["all words"]]])
    height, width = imread(io.BytesIO(render_png(drawing))).shape[:2]
    assert (width, height) == pytest.approx((2 * drawing.width, 2 * drawing.height), abs=2)
