"""Heat maps: each weight in its place, legible whatever the words are."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spanlm.analysis.flatness import mean_flatness
from spanlm.analysis.heat_maps import ROW_LIMIT, by_word, sentence_figure, text_figure
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
    **{f"text: {name}": lambda one=one: text_figure(one) for name, one in TEXTS.items()},
    **{f"sentence: {name}": lambda one=one: sentence_figure([[one]]) for name, one in SENTENCES.items()},
    "sentences": lambda: sentence_figure([list(SENTENCES.values())[:3], [SENTENCES["one word"]]]),
}


def table(figure: Any) -> np.ndarray:
    """The shares of the first map, NaN where a cell is empty."""
    return np.ma.filled(figure.axes[0].collections[0].get_array(), np.nan)


def equal_shares(weights: np.ndarray) -> np.ndarray:
    """Equal weights are 1 in every row, however long."""
    return weights * (~np.isnan(weights)).sum(axis=1, keepdims=True)


def named(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


@pytest.mark.parametrize("record", TEXTS.values(), ids=TEXTS)
def test_a_cell_of_a_text_stands_in_the_row_of_its_position_and_the_column_of_its_lag(record: AttentionRecord) -> None:
    figure = text_figure(record)
    weights = np.where(record.occupied, record.weights, np.float32(np.nan))
    np.testing.assert_allclose(table(figure), equal_shares(weights), rtol=1e-6)
    axes = figure.axes[0]
    assert named(axes.xaxis) == [f"−{lag}" if lag else "0" for lag in record.lags]
    (beside,) = (named(child.yaxis) for child in axes.child_axes)
    for row, word, came, target, bits in zip(
        named(axes.yaxis), record.words, beside, record.targets, record.bits, strict=True
    ):
        number, text = came.split(maxsplit=1)
        assert number == f"{bits:.1f}"
        for shown, known in ((row, word), (text, target)):
            assert shown == known.replace("\x07", "\ufffd") or known.startswith(shown.removesuffix("…"))


def test_a_long_text_is_refused() -> None:
    with pytest.raises(InputError, match="a figure of 401 words: must be at most 400"):
        text_figure(make_record(["w"] * (ROW_LIMIT + 2), 3))


@pytest.mark.parametrize("record", SENTENCES.values(), ids=SENTENCES)
def test_every_weight_of_a_sentence_is_in_the_row_and_the_column_of_its_words(record: AttentionRecord) -> None:
    figure = sentence_figure([[record]])
    np.testing.assert_allclose(table(figure), equal_shares(by_word(record)), rtol=1e-6)
    if record is not SENTENCES["hostile"]:
        assert named(figure.axes[0].xaxis) == record.words and named(figure.axes[0].yaxis) == record.targets


def test_a_panel_says_which_model_how_flat_and_which_words_are_unknown() -> None:
    record = SENTENCES["the current word"]
    flatness = mean_flatness([record])
    assert flatness is not None
    said = " ".join(texts(sentence_figure([[record]]))).replace("\n", " ")
    assert record.title in said and f"{record.about}, flatness {flatness.overall.flatness:.3f}, 60.0 % on no" in said
    unknown = make_sentence(["a", "zebra", "of" * 40, "<unk>"], unknown=("zebra", "of" * 40))
    written = texts(sentence_figure([[unknown]]))
    assert written.count("zebra <unk>") == 2 and written.count("<unk>") == 2
    assert sum(text.endswith("… <unk>") for text in written) == 2, "a long word is cut, its mark is not"
    assert "vocabulary" in " ".join(written) and "vocabulary" not in said
