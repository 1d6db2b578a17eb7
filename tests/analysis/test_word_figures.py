"""Figures of words: each weight in its place, legible whatever the words are."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from spanlm.analysis.sentences import SentenceMap
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
from spanlm.scoring.attention import PARTS, AttentionRecord

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


def tables(figure: Any) -> list[np.ndarray]:
    """The weights of all maps, NaN where a cell is empty; scales of colours are left out."""
    found = [np.ma.filled(each.get_array(), np.nan) for axes in figure.axes for each in axes.collections[:1]]
    return [table for table in found if table.shape != (1, 24)]


def places(axes: Any) -> list[tuple[float, float, str]]:
    """Where each of the words stands: column (or 0 and 1: left and right of the map), row, text."""
    return [(*getattr(text, "xy", text.get_position()), text.get_text()) for text in axes.texts]


@pytest.mark.parametrize("record", TEXTS.values(), ids=TEXTS)
def test_a_cell_stands_in_the_row_of_its_position_and_the_column_of_its_lag(record: AttentionRecord) -> None:
    figure = heatmap(record)
    np.testing.assert_array_equal(tables(figure)[0], np.where(record.occupied, record.weights, np.nan))
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == [f"−{lag}" if lag else "0" for lag in record.lags]
    rows = [[text for _, row, text in places(axes) if row == t + 0.5][-3:] for t in range(len(record))]
    for row, word, target, bits in zip(rows, record.words, record.targets, record.bits, strict=True):
        for text, known in zip(row, (word, target), strict=False):
            assert text == known.replace("\x07", "\ufffd") or known.startswith(text.removesuffix("…"))
        assert row[2] == f"{bits:.1f}"


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
    shares = one.matrix * np.maximum(one.slots, 1)[:, None]  # equal weights are 1 in every row, however long
    np.testing.assert_allclose(tables(figure)[0], shares, rtol=1e-6)
    if one is not SENTENCES["hostile"]:
        found = set(places(next(axes for axes in figure.axes if axes.collections)))
        lag = one.record.nearest_lag
        assert {(column, column + lag - 0.5, word) for column, word in enumerate(one.record.words)} <= found
        assert {(0, row + 0.5, word) for row, word in enumerate(one.record.targets)} <= found


def test_a_panel_says_which_model_how_flat_and_which_words_are_unknown() -> None:
    one = SENTENCES["the current word"]
    assert one.flatness is not None
    said = {one.name, f"{one.memory}\nflatness {one.flatness.overall.flatness:.3f}, 60.0 % on no word"}
    assert said <= set(texts(triangle_figure([[one]])))
    unknown = make_sentence(["a", "zebra", "of" * 40, "<unk>"], unknown=("zebra", "of" * 40, "<unk>"))
    written = texts(triangle_figure([[unknown]]))
    assert written.count("zebra <unk>") == 2 and written.count("<unk>") == 2
    assert sum(text.endswith("… <unk>") for text in written) == 2, "a long word is cut, its mark is not"


@pytest.mark.parametrize("name", ["sliding", "words"])
def test_every_span_of_the_last_step_has_a_row_in_the_order_of_the_text(name: str) -> None:
    record = BUFFERS[name]
    figure, last = span_figure(record), len(record) - 1
    spans, steps = (table for table in tables(figure) if table.ndim == 2)
    looks = sorted(record.looks(last), key=lambda look: look.last)
    assert spans[:, 0].tolist() == [look.weight for look in looks]
    written = texts(figure)
    for look in looks:
        assert {record.words_of(look), f"{100 * look.weight:.1f} %", f"−{last - look.first}"} <= set(written)
    rows = [[look.weight for look in sorted(record.looks(t), key=lambda look: look.last)] for t in range(len(record))]
    assert [row[~np.isnan(row)].tolist() for row in steps] == rows[-MOST_STEPS:]


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


def test_the_parts_stand_with_what_they_expected_and_gave_to_the_word_that_came() -> None:
    record = BUFFERS["sliding"]
    figure, last = span_figure(record), len(record) - 1
    axes = next(axes for axes in figure.axes if any(text.get_text() == "buffer alone" for text in axes.texts))
    for label, part in (("buffer alone", "buffer"), ("encoder alone", "encoder"), ("both", "mixture")):
        (line,) = (row for _, row, text in places(axes) if text == label)
        written = [text for _, row, text in places(axes) if row == line]
        expected = [text for word, p in getattr(record, part)[last] for text in (word, span_percent(p))]
        chance = span_percent(float(record.chance[last, PARTS.index(part)]))
        assert sorted(written) == sorted([label, *expected, chance])
    preferred = "buffer" if record.gate[last] >= 0.5 else "encoder"
    assert f"λ {record.gate[last]:.3f}: the {preferred} is preferred" in texts(figure)


def test_where_no_span_has_passed_the_encoder_stands_alone() -> None:
    written = texts(span_figure(BUFFERS["no span yet"]))
    assert "The buffer is empty: no span has passed yet" in written
    assert "encoder alone" in written and not {"buffer alone", "both", "gate"} & set(written)
