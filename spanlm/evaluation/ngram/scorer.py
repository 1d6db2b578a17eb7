"""Scoring the sentences of a text with an ARPA file: by KenLM where it is installed and fits, else by our own reader.

KenLM loads a file several times faster. It takes what the format forbids, so it is given only files in the layout of
`lmplz`: all n-grams below the highest order with a back-off weight. All others are read, and refused, by our reader.
The numbers are the same.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from spanlm.errors import InputError
from spanlm.evaluation.ngram.arpa import fully_weighted, read_arpa
from spanlm.evaluation.ngram.model import END, SentenceScores, require_no_marks


class SentenceScorer(Protocol):
    """What scores sentences: an `ArpaModel`, or KenLM."""

    def score(self, sentences: Iterable[Sequence[str]], end: bool = True) -> Iterator[SentenceScores]:
        """Score sentences, each from `<s>`; see `ArpaModel.score`."""
        ...


def sentence_scorer(path: str | Path, kenlm: bool | None = None) -> SentenceScorer:
    """Load an ARPA file to score sentences.

    Args:
        path: The file.
        kenlm: Use KenLM; None uses it if it can be imported and the file is in the layout of `lmplz`.

    Raises:
        InputError: The file breaks a rule of `spanlm.evaluation.ngram.arpa`.
    """
    path = Path(path)
    if kenlm is not False and (kenlm or fully_weighted(path)):
        try:
            return _Kenlm(importlib.import_module("kenlm"), path)
        except (ImportError, OSError, RuntimeError):  # our reader says what is wrong with a file
            if kenlm:
                raise InputError("kenlm=true: kenlm is missing or cannot read the file; leave it out") from None
    return read_arpa(path)


class _Kenlm:
    def __init__(self, kenlm: Any, path: Path) -> None:
        config = kenlm.Config()
        config.show_progress = False
        self.model, self.state = kenlm.Model(str(path), config), kenlm.State

    def score(self, sentences: Iterable[Sequence[str]], end: bool = True) -> Iterator[SentenceScores]:
        """Score sentences; see `ArpaModel.score`."""
        for sentence in sentences:
            require_no_marks(sentence)
            state, after = self.state(), self.state()
            self.model.BeginSentenceWrite(state)
            scores = []
            for word in (*sentence, END) if end else sentence:
                scores.append(self.model.BaseFullScore(state, word, after))
                state, after = after, state
            yield SentenceScores(
                np.array([score.log_prob for score in scores], np.float32),
                np.array([score.ngram_length for score in scores], np.int8),
                np.array([score.oov for score in scores], np.bool_),
            )
