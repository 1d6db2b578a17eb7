"""Figures of words: each weight in its place, legible whatever the words are."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.collections import PolyCollection

from spanlm.analysis.figures import FIGURES, figure_bytes
from spanlm.analysis.sentences import SentenceMap, common_scale, scale_top
from spanlm.analysis.word_figures import (
    MOST_STEPS,
    ROW_LIMIT,
    heatmap,
    span_figure,
    span_percent,
    triangle_figure,
)
from spanlm.errors import InputError
from spanlm.evaluation.attention import PARTS, AttentionRecord, SpanRecord

from .conftest import HOSTILE, make_record
from .maps import make_sentence
from .shown import assert_texts_apart, texts
from .span_records import make_spans

WORDS = ["<eos>", *(f"w{n}" for n in range(40))]
SENTENCE = ["the", "law", "which", "he", "wrote", "in", "N", "was", "long"]
TEXTS = {
    "a window": make_record(["<eos>", "the", "cat", "sat", "<eos>", "the", "dog"], 3),
    "the current word": make_record(["<eos>", "the", "cat", "sat", "<eos>", "the", "dog"], 3, nearest_lag=0),
    "hostile": make_record(["<eos>", *HOSTILE], 4, title='<b onload="x">&</title><script>'),
    "one word": make_record(["<eos>", "yes"], 15, title="a very long title " * 12),
}
SENTENCES = {
    "all words": make_sentence(SENTENCE),
    "a window": make_sentence(SENTENCE, window=3),
    "the current word": make_sentence(SENTENCE, window=3, nearest_lag=0, gate=0.6),
    "one word": make_sentence(["yes"]),
    "30 words in a window": make_sentence([f"word{n}" for n in range(30)], window=4, nearest_lag=0),
    "60 words": make_sentence([f"word{n}" for n in range(60)]),
    "hostile": make_sentence(list(HOSTILE), name="<b>&", memory='"<script>"'),
}
BUFFERS = {
    "sliding": make_spans(WORDS),
    "words": make_spans(WORDS, span=1, spans=12),
    "one span": make_spans(WORDS[:6], span=4),
    "no span yet": make_spans(WORDS[:4], span=8),
    "as in the paper": make_spans(["<eos>", *(f"word{n}" for n in range(2000))], span=8, spans=200),
    "hostile": make_spans(["<eos>", *HOSTILE, *HOSTILE], title='<b onload="x">&</title>'),
}
KINDS: dict[str, Callable[[], Any]] = {
    **{f"text: {name}": lambda one=one: heatmap(one) for name, one in TEXTS.items()},
    **{f"sentence: {name}": lambda one=one: triangle_figure([[one]]) for name, one in SENTENCES.items()},
    "sentences": lambda: triangle_figure([list(SENTENCES.values())[:3], [SENTENCES["one word"]]]),
    **{f"buffer: {name}": lambda one=one: span_figure(one) for name, one in BUFFERS.items()},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def cells(figure: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of each map: left and upper edges (n, 2), and weights (n,); scales of colours are left out."""
    scale = (np.arange(24) + 0.5) / 24
    found = [each for each in figure.findobj(PolyCollection) if not np.array_equal(each.get_array(), scale)]
    return [(np.array([path.vertices[0] for path in each.get_paths()]), each.get_array()) for each in found]


def shows(text: str, word: str) -> bool:
    """Whether a label is of a word, which may be cut."""
    word = word.replace("\x07", "\ufffd")
    return text == word or (text.endswith("…") and word.startswith(text[:-1]))


def places(figure: Any) -> dict[str, list[tuple[float, float]]]:
    """Where each of the words stands."""
    found: dict[str, list[tuple[float, float]]] = {}
    for text in figure.axes[0].texts:
        found.setdefault(text.get_text(), []).append(text.get_position())
    return found


@pytest.mark.slow
@every_kind
def test_no_words_stand_on_others(kind: str) -> None:
    if "60 words" not in kind:  # the heads of narrow columns are as close as lines of text
        assert_texts_apart(KINDS[kind]())


@pytest.mark.slow
@every_kind
def test_svg_is_well_formed_and_has_its_words_as_text(kind: str) -> None:
    figure = KINDS[kind]()
    root = ElementTree.fromstring(figure_bytes(figure, ".svg"))
    written = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    # some spaces do not come back from XML
    assert {" ".join(text.split()) for text in texts(figure)} <= {" ".join((text or "").split()) for text in written}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", FIGURES)
@pytest.mark.parametrize("kind", ["text: hostile", "sentence: a window", "buffer: one span"])
def test_a_figure_made_again_has_the_same_bytes(kind: str, suffix: str) -> None:
    assert figure_bytes(KINDS[kind](), suffix) == figure_bytes(KINDS[kind](), suffix)


@pytest.mark.slow
def test_of_many_cells_a_map_is_an_image_and_its_words_stay_text() -> None:
    many = heatmap(make_record(["<eos>", *(f"w{n % 9}" for n in range(210))], 11))
    (_, weights), *_ = cells(many)
    svg = figure_bytes(many, ".svg")
    assert len(weights) > 2000 and b"<image" in svg and b">came next</text>" in svg
    assert b"<image" not in figure_bytes(KINDS["text: a window"](), ".svg")


@pytest.mark.parametrize("record", TEXTS.values(), ids=TEXTS)
def test_a_cell_stands_in_the_row_of_its_position_and_the_column_of_its_lag(record: AttentionRecord) -> None:
    figure = heatmap(record)
    ((corners, weights),) = cells(figure) if record.occupied.any() else [(np.zeros((0, 2)), np.zeros(0))]
    rows, columns = np.nonzero(record.occupied)
    np.testing.assert_array_equal(weights, record.weights[rows, columns])
    found = places(figure)
    heads = [found[f"−{lag}" if lag else "0"][0][0] for lag in record.lags]
    if len(weights):
        steps = np.diff(heads).mean() if len(heads) > 1 else 36
        np.testing.assert_allclose(corners[:, 0] + steps / 2, np.array(heads)[columns])
        assert len({round(y - 15 * row, 3) for (_, y), row in zip(corners.tolist(), rows.tolist(), strict=True)}) == 1
    for word in {*record.words, *record.targets}:
        assert any(shows(text, word) for text in found)
    assert all(f"{bits:.1f}" in found for bits in record.bits)


def test_a_large_weight_has_its_word_and_a_long_text_is_refused() -> None:
    record = TEXTS["a window"]
    named = sum(len(found) for found in places(heatmap(record)).values())
    others = places(heatmap(replace(record, weights=0.1 * record.weights)))
    assert named - sum(map(len, others.values())) == (record.weights >= 0.12).sum()
    with pytest.raises(InputError, match="a figure of 401 words: must be at most 400"):
        heatmap(make_record(["w"] * (ROW_LIMIT + 2), 3))


@pytest.mark.parametrize("one", SENTENCES.values(), ids=SENTENCES)
def test_every_weight_of_a_sentence_is_in_the_row_and_the_column_of_its_words(one: SentenceMap) -> None:
    figure = triangle_figure([[one]])
    found, lag = places(figure), one.record.nearest_lag
    for word in {*one.record.words, *one.record.targets}:
        assert any(shows(text, word) for text in found)
    ((corners, weights),) = cells(figure)
    there = ~np.isnan(one.matrix)
    np.testing.assert_array_equal(weights, one.matrix[there])
    rows, columns = np.nonzero(there)
    width, height = ((21.5, 15), (13.5, 12), (9, 9))[(len(one.record) > 24) + (len(one.record) > 40)]
    np.testing.assert_allclose(corners - corners[0], np.c_[width * (columns - columns[0]), height * (rows - rows[0])])
    if len(set(one.record.words)) == len(one.record.words) and len(one.record) < 40:
        # the head of a column stands just above its first cell
        head = one.record.words[columns[-1]]
        first = corners[columns == columns[-1]].min(axis=0)
        assert any(
            0 <= x - first[0] < 3 and 0 < first[1] - y < height
            for text, spots in found.items()
            if shows(text, head)
            for x, y in spots
        ) or (lag == 0 and len(one.record) == 2)


@pytest.mark.slow
def test_numbers_are_in_cells_that_have_room_for_them() -> None:
    def numbers(name: str) -> set[str]:
        return {text for text in texts(triangle_figure([[SENTENCES[name]]])) if re.fullmatch(r"\d+(\.\d)?", text)}

    assert f"{100 * float(SENTENCES['all words'].matrix[5, 2]):.1f}" in numbers("all words")
    assert f"{100 * float(SENTENCES['30 words in a window'].matrix[20, 18]):.0f}" in numbers("30 words in a window")
    assert numbers("60 words") == set() and "100" in numbers("one word")


@pytest.mark.slow
def test_panels_of_a_sentence_share_their_colours_and_stand_side_by_side_or_below() -> None:
    flat, peaked = (make_sentence(SENTENCE, name=name) for name in ("flat", "peaked"))
    for one, largest in ((flat, 0.2), (peaked, 0.92)):
        for t in range(1, 10):
            one.record.weights[t, 9 - t :] = [(1 - largest) / max(t - 1, 1)] * (t - 1) + [largest]
    figure = triangle_figure([[flat, peaked]])
    assert (common_scale([flat, peaked]), common_scale([flat])) == ((1.0, False), (0.2, True))
    assert {each.get_clim() for each in figure.findobj(PolyCollection)} == {(0, 1)}
    ((x, y),), ((other, below),) = places(figure)["flat"], places(figure)["peaked"]
    assert y == below and x < other
    long = [make_sentence([f"word{n}" for n in range(100)], name=f"model {n}") for n in range(3)]
    heads = [places(triangle_figure([long]))[one.name][0] for one in long]
    assert len({x for x, _ in heads}) < 3 and heads[-1][1] > heads[0][1]


def test_a_panel_says_which_model_how_flat_and_which_words_are_unknown() -> None:
    one = SENTENCES["the current word"]
    assert one.flatness is not None
    said = {one.name, one.memory, f"flatness {one.flatness.overall.flatness:.3f}, 60.0 % on no word"}
    assert said <= set(texts(triangle_figure([[one]])))
    unknown = make_sentence(["a", "zebra", "of" * 40, "<unk>"], unknown=("zebra", "of" * 40, "<unk>"))
    written = texts(triangle_figure([[unknown]]))
    assert written.count("zebra <unk>") == 2 and written.count("<unk>") == 2
    assert sum(text.endswith("… <unk>") for text in written) == 2, "a long word is cut, its mark is not"
    assert any("lacks" in text for text in written)


@pytest.mark.parametrize("name", ["sliding", "words", "one span"])
def test_every_span_of_the_last_step_has_a_tile_in_the_order_of_the_text(name: str) -> None:
    record = BUFFERS[name]
    figure, last = span_figure(record), len(record) - 1
    *tiles, (corners, weights) = cells(figure)
    looks = sorted(record.looks(last), key=lambda look: look.last)
    assert np.concatenate([row for _, row in tiles]).tolist() == [look.weight for look in looks]
    found = places(figure)
    for look in looks:
        assert record.words_of(look) in found and f"{100 * look.weight:.1f} %" in found
    assert f"−{last - looks[0].first}" in found
    assert {each.get_clim() for each in figure.findobj(PolyCollection)} >= {
        (0, scale_top(max(look.weight for look in looks)))
    }
    steps = range(max(len(record) - MOST_STEPS, 0), len(record))
    spans = [sorted(record.looks(t), key=lambda look: look.last) for t in steps]
    assert weights.tolist() == [look.weight for row in spans for look in row]
    assert len({x for x, _ in corners.tolist()}) == max(map(len, spans))


def test_of_a_large_buffer_the_heaviest_rows_and_the_newest_are_shown_and_the_others_counted() -> None:
    record = BUFFERS["as in the paper"]
    looks, written = record.looks(len(record) - 1), texts(span_figure(record))
    shown = [look for look in looks if record.words_of(look) in written]
    counted = [match for match in (re.match(r"⋯ (\d+) spans, (\S+) % together$", text) for text in written) if match]
    assert len(shown) + sum(int(match[1]) for match in counted) == len(looks) == 200
    assert set(looks[:15]) <= set(shown) and max(looks, key=lambda look: look.last) in shown
    missing = sum(look.weight for look in looks) - sum(look.weight for look in shown)
    assert sum(float(match[2]) for match in counted) == pytest.approx(100 * missing, abs=0.06 * len(counted))
    assert any("a column is the largest of" in text for text in written)


@pytest.mark.parametrize("name", ["sliding", "as in the paper"])
def test_the_parts_stand_with_what_they_expected_and_gave_to_the_word_that_came(name: str) -> None:
    record = BUFFERS[name]
    found, last = places(span_figure(record)), len(record) - 1
    for label, part in (("buffer alone", "buffer"), ("encoder alone", "encoder"), ("both", "mixture")):
        (_, line) = min(found[label])
        written = sorted((x, text) for text, spots in found.items() for x, y in spots if y == line)
        expected = [text for word, p in getattr(record, part)[last] for text in (word, span_percent(p))]
        chance = span_percent(float(record.chance[last, PARTS.index(part)]))
        assert [text for _, text in written] == [label, *expected, chance]
    assert f"λ {record.gate[last]:.3f}: the {'buffer' if record.gate[last] >= 0.5 else 'encoder'} is preferred" in found


def test_where_no_span_has_passed_the_encoder_stands_alone() -> None:
    written = texts(span_figure(BUFFERS["no span yet"]))
    assert "The buffer is empty: no span has passed yet" in written
    assert "encoder alone" in written and not {"buffer alone", "both", "gate"} & set(written)


@pytest.mark.parametrize("record", [BUFFERS["sliding"], replace(BUFFERS["sliding"], nearest_lag=0)], ids=["not", "is"])
def test_the_caption_says_whether_the_word_just_read_is_in_a_span(record: SpanRecord) -> None:
    said = " ".join(texts(span_figure(record)))
    assert ("the word just read is in" in said) == bool(record.nearest_lag)
