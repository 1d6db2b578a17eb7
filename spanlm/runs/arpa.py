"""An n-gram model in an ARPA file, beside runs: what scores short texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from spanlm.data.tokenizer import written_words
from spanlm.evaluation.ngram.scorer import sentence_scorer
from spanlm.evaluation.prefix_tree import Prefixes, TextScore


class ArpaFile:
    """An ARPA file that scores texts as `LoadedModel.score_texts` does; words are those between white space.

    Raises:
        InputError: the file breaks a rule of `spanlm.evaluation.ngram.arpa`.
    """

    def __init__(self, path: Path) -> None:
        """Read the file."""
        self.path, self._scorer = path, sentence_scorer(path)

    def score_texts(self, texts: Sequence[str]) -> tuple[list[TextScore], Prefixes]:
        """Give log p of many short texts, each from <s> to </s>; nothing is read once for several."""
        found = []
        for scores in self._scorer.score([written_words(text) for text in texts]):
            *words, end = (math.log(10) * value for value in scores.log10.tolist())
            found.append(TextScore(words, end, int(scores.oov.sum())))
        tokens = sum(len(score.words) + 1 for score in found)
        return found, Prefixes(tokens, tokens)
