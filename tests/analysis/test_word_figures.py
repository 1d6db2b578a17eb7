"""Figures of words: each weight in its place, legible whatever the words are."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PolyCollection

from spanlm.analysis.sentences import SentenceMap, scale_top
from spanlm.analysis.word_figures import (
    MOST_STEPS,
    ROW_LIMIT,
    UNKNOWN_INK,
    heatmap,
    span_figure,
    span_percent,
    triangle_figure,
)
from spanlm.errors import InputError
from spanlm.evaluation.attention import PARTS, AttentionRecord

from .conftest import HOSTILE, make_record, make_sentence, make_spans
from .shown import texts

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


def test_unknown_words_are_marked() -> None:
    record = make_record(["<eos>", "the", "zyx", "sat", "."], 3)
    plain, marked = heatmap(record), heatmap(replace(record, unknown=frozenset({"zyx"})))
    coloured = [text.get_text() for text in marked.axes[0].texts if text.get_color() == UNKNOWN_INK]
    assert coloured == ["zyx", "zyx"]  # once as it was read, once as it came
    explained = [any("read as <unk>" in text for text in texts(figure)) for figure in (plain, marked)]
    assert explained == [False, True]


def test_a_long_text_is_refused() -> None:
    with pytest.raises(InputError, match="a figure of 401 words: must be at most 400"):
        heatmap(make_record(["w"] * (ROW_LIMIT + 2), 3))


@pytest.mark.parametrize("one", SENTENCES.values(), ids=SENTENCES)
def test_every_weight_of_a_sentence_is_in_the_row_and_the_column_of_its_words(one: SentenceMap) -> None:
    figure = triangle_figure([[one]])
    found = places(figure)
    for word in {*one.record.words, *one.record.targets}:
        assert any(shows(text, word) for text in found)
    ((corners, weights),) = cells(figure)
    there = ~np.isnan(one.matrix)
    shares = one.matrix * np.maximum(one.slots, 1)[:, None]  # equal weights are 1 in every row, however long
    np.testing.assert_allclose(weights, shares[there], rtol=1e-6)
    rows, columns = np.nonzero(there)
    width, height = ((21.5, 15), (13.5, 12), (9, 9))[(len(one.record) > 24) + (len(one.record) > 40)]
    np.testing.assert_allclose(corners - corners[0], np.c_[width * (columns - columns[0]), height * (rows - rows[0])])


def test_a_panel_says_which_model_how_flat_and_which_words_are_unknown() -> None:
    one = SENTENCES["the current word"]
    assert one.flatness is not None
    said = {one.name, one.memory, f"flatness {one.flatness.overall.flatness:.3f}, 60.0 % on no word"}
    assert said <= set(texts(triangle_figure([[one]])))
    unknown = make_sentence(["a", "zebra", "of" * 40, "<unk>"], unknown=("zebra", "of" * 40, "<unk>"))
    written = texts(triangle_figure([[unknown]]))
    assert written.count("zebra <unk>") == 2 and written.count("<unk>") == 2
    assert sum(text.endswith("… <unk>") for text in written) == 2, "a long word is cut, its mark is not"


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


@pytest.mark.slow
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
