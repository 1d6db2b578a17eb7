"""Several lines: each a context of its own, a document or all one; what `attend` says is what `score` says."""

import math
from itertools import accumulate, pairwise

import numpy as np
import pytest

from spanlm.data.pieces import lines_as_pieces
from spanlm.data.tokenizer import Words
from spanlm.models.language_model import ModelConfig
from spanlm.runs.texts import text_to_attend
from spanlm.scoring.attention import AttentionRecord, attention_record
from spanlm.scoring.options import Context, ScoreOptions
from spanlm.scoring.words import score_words
from tests.models.small import language_model, models
from tests.scoring.reference import VOCABULARY

LINES = ["the cat sat on the mat .", "zebra ran", "", "", "dog naïve the cat sat on the dog ran .", "cat", "", "mat ."]
ATTENDING = [
    config
    for config in models()
    if config.values[0].memory.kind not in ("none", "ngram") and getattr(config.values[0].memory, "score", "") != "none"
]
SOME = list({config.values[0].memory.kind: config for config in ATTENDING}.values())
"""A model for each memory."""


def recorded(config: ModelConfig, lines: list[str], state: Context, predict_first: bool) -> AttentionRecord:
    words, starts = text_to_attend(lines_as_pieces(lines, Words("whitespace")), state)
    return attention_record(language_model(config), VOCABULARY, words, starts=starts, predict_first=predict_first)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "state", "predict_first"),
    [
        pytest.param(config.values[0], state, first, id=f"{config.id}-{state}-{first}")
        for configs, ways in (
            (ATTENDING, [("line", True)]),
            (SOME, [("line", False), ("document", True), ("carry", True)]),
        )
        for config in configs
        for state, first in ways
    ],
)
def test_surprisals_are_those_of_the_scores(config: ModelConfig, state: Context, predict_first: bool) -> None:
    record = recorded(config, LINES, state, predict_first)
    options, pieces = ScoreOptions(state=state, base=math.e, eos=True), lines_as_pieces(LINES, Words("whitespace"))
    rows = list(score_words(language_model(config), VOCABULARY, pieces, options, predict_first=predict_first))
    rows = rows[not predict_first :]  # the first word is read
    assert record.targets == [row.word for row in rows]
    np.testing.assert_allclose(record.surprisal, [row.surprisal for row in rows], rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "predict_first"),
    [
        pytest.param(config.values[0], first, id=f"{config.id}-{first}")
        for configs, first in ((ATTENDING, True), (SOME, False))
        for config in configs
    ],
)
def test_no_line_looks_into_another(config: ModelConfig, predict_first: bool) -> None:
    record = recorded(config, LINES, "line", predict_first)
    starts = [0, *accumulate(len(line.split()) + 1 for line in LINES)]
    for line, (start, end) in zip(LINES, pairwise(starts), strict=True):
        here = slice(start, end - (not predict_first))
        if line:
            alone = recorded(config, [line], "line", predict_first)
            assert record.targets[here] == alone.targets
            width = alone.weights.shape[1]
            np.testing.assert_allclose(record.weights[here, -width:], alone.weights, atol=1e-6)
            assert not record.weights[here, :-width].any()
        for position in range(*here.indices(len(record))):
            assert all(start <= look.first <= look.last <= position for look in record.looks(position))
    unpredicted = [] if predict_first else [start - 1 for start in starts[1:-1]]
    assert np.flatnonzero(np.isnan(record.surprisal)).tolist() == unpredicted
    assert not record.weights[unpredicted].any()
