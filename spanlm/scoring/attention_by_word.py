"""Attention of a model of tokens below the word, by written word.

Row and column are words and line ends. A row is where the model looked before the first token of its word; the weights
of an earlier word's tokens are summed. Surprisal is that of the whole word, see `spanlm.scoring.fold`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np

from spanlm.data.tokenizer import Tokenizer, written_words
from spanlm.data.vocabulary import EOS
from spanlm.errors import InputError
from spanlm.scoring.attention import AttentionRecord
from spanlm.scoring.fold import fold


def by_written_word(record: AttentionRecord, tokenizer: Tokenizer) -> AttentionRecord:
    """Return the record by written word, without parts and features.

    Raises:
        InputError: the tokens are words, or the slots are spans.
    """
    if not tokenizer.exact:
        raise InputError("rows", "words", "is for data.tokenizer=characters, bytes, bpe or unigram; these are words")
    if record.span > 1:
        raise InputError("rows", "words", f"the model looks at spans of {record.span} tokens, which are no words")
    whole, opened = [record.words[0], *record.targets], record.first_token == 0 and record.words[0] == EOS
    texts, sizes = zip(*[(EOS, 1)] * opened, *_units(whole[opened:], tokenizer), strict=True)
    bounds = [*accumulate(sizes, initial=0)]
    owner = np.repeat(np.arange(len(texts)), sizes)
    firsts = bounds[1:-1]
    weights = np.zeros((len(firsts), len(texts)), np.float32)
    lags = np.asarray(record.lags)
    for row, first in enumerate(firsts):  # predicted at the position before
        sources = first - 1 - lags
        held = sources >= 0
        # column L − 1 − lag, of L words
        np.add.at(weights[row], len(texts) - 1 - (row - owner[sources[held]]), record.weights[first - 1][held])
    used = np.flatnonzero(weights.any(axis=0))
    places = [first - 1 for first in firsts]
    ends = record.ends if record.ends is not None else np.zeros(len(record))
    closing = {number for number, text in enumerate(texts) if text == EOS}
    sums = fold([np.nan, *record.surprisal.tolist()], [np.nan, *ends.tolist()], bounds, closing)
    starts = sorted({max(0, int(owner[start + 1]) - 1) for start in record.starts})
    return replace(
        record,
        words=[*texts[:-1]],
        targets=[*texts[1:]],
        weights=weights[:, (used[0] if len(used) else len(texts) - 1) :],
        surprisal=np.array(sums[1:]),
        entropy=record.entropy[places],
        rank=record.rank[places],
        expected=[record.expected[place] for place in places],
        nearest_lag=0,
        starts=starts,
        places=(),
        parts=None,
        ends=None,
        features=None,
    )


def _units(tokens: Sequence[str], tokenizer: Tokenizer) -> list[tuple[str, int]]:
    """Return the written words and line ends that tokens make, with their numbers of tokens."""
    ends = [at for at, token in enumerate(tokens) if token == EOS]
    units = list[tuple[str, int]]()
    for start, end in pairwise([-1, *ends, *([len(tokens)] if len(tokens) - 1 not in ends else [])]):
        line = tokenizer.text(tokens[start + 1 : end])
        *words, rest = map(len, tokenizer.by_word(line))
        units += zip(written_words(line), words, strict=True)
        units += [(EOS, rest + 1)] * (end < len(tokens)) or [("", rest)] * (rest > 0)
    return units
