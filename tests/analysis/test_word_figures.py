"""Figures of words: each weight in its place, legible whatever the words are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from spanlm.analysis.sentences import SentenceMap
from spanlm.analysis.word_figures import (
    ROW_LIMIT,
    UNKNOWN_INK,
    heatmap,
    triangle_figure,
)
from spanlm.errors import InputError
from spanlm.scoring.attention import AttentionRecord

from .conftest import HOSTILE, make_record, make_sentence
from .shown import texts

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
KINDS: dict[str, Callable[[], Any]] = {
    **{f"text: {name}": lambda one=one: heatmap(one) for name, one in TEXTS.items()},
    **{f"sentence: {name}": lambda one=one: triangle_figure([[one]]) for name, one in SENTENCES.items()},
    "sentences": lambda: triangle_figure([list(SENTENCES.values())[:3], [SENTENCES["one word"]]]),
}


def tables(figure: Any) -> list[np.ndarray]:
    """The weights of all maps, NaN where a cell is empty; scales of colours are left out."""
    found = [np.ma.filled(each.get_array(), np.nan) for axes in figure.axes for each in axes.collections[:1]]
    return [table for table in found if table.shape != (1, 24)]


def named(axes: Any) -> list[str]:
    """The names of the rows of a map."""
    return [label.get_text() for label in axes.get_yticklabels()]


@pytest.mark.parametrize("record", TEXTS.values(), ids=TEXTS)
def test_a_cell_stands_in_the_row_of_its_position_and_the_column_of_its_lag(record: AttentionRecord) -> None:
    figure = heatmap(record)
    np.testing.assert_array_equal(tables(figure)[0], np.where(record.occupied, record.weights, np.nan))
    axes, beside = figure.axes[0], next(each for each in figure.axes[1:] if named(each)[: len(record)])
    assert [label.get_text() for label in axes.get_xticklabels()] == [f"−{lag}" if lag else "0" for lag in record.lags]
    for row, word, came, target, bits in zip(
        named(axes), record.words, named(beside), record.targets, record.bits, strict=True
    ):
        number, text = came.split(maxsplit=1)
        assert number == f"{bits:.1f}"
        for shown, known in ((row, word), (text, target)):
            assert shown == known.replace("\x07", "\ufffd") or known.startswith(shown.removesuffix("…"))


def test_unknown_words_are_marked() -> None:
    record = make_record(["<eos>", "the", "zyx", "sat", "."], 3)
    plain, marked = heatmap(record), heatmap(replace(record, unknown=frozenset({"zyx"})))
    labels = [label for axes in marked.axes for label in axes.get_yticklabels() if label.get_color() == UNKNOWN_INK]
    assert [label.get_text().split()[-1] for label in labels] == ["zyx", "zyx"]  # once as it was read, once as it came
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
        axes = figure.axes[0]
        heads = [(int(x), y, text.get_text()) for text in axes.texts for x, y in [text.get_position()]]
        lag = one.record.nearest_lag
        assert {(column, column + lag - 0.5, word) for column, word in enumerate(one.record.words)} <= set(heads)
        assert named(axes) == one.record.targets


def test_a_panel_says_which_model_how_flat_and_which_words_are_unknown() -> None:
    one = SENTENCES["the current word"]
    assert one.flatness is not None
    said = {one.name, f"{one.memory}\nflatness {one.flatness.overall.flatness:.3f}, 60.0 % on no word"}
    assert said <= set(texts(triangle_figure([[one]])))
    unknown = make_sentence(["a", "zebra", "of" * 40, "<unk>"], unknown=("zebra", "of" * 40))
    written = texts(triangle_figure([[unknown]]))
    assert written.count("zebra <unk>") == 2 and written.count("<unk>") == 2
    assert sum(text.endswith("… <unk>") for text in written) == 2, "a long word is cut, its mark is not"
