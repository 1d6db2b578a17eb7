"""Scoring with KenLM, if it is installed (extra `kenlm`): equal to ours, and reads KenLM's binary files."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from spanlm.data.tokenizer import written_words
from spanlm.errors import InputError, installation
from spanlm.options import Precision
from spanlm.scoring.ngram.model import END, UNKNOWN, require_no_marks
from spanlm.scoring.prefix_tree import Prefixes, TextScore

_LN10 = math.log(10)


def installed() -> bool:
    return find_spec("kenlm") is not None


class Kenlm:
    """An n-gram model held by KenLM, from an ARPA file or KenLM's binary format.

    Raises:
        InputError: KenLM is not installed, or refuses the file.
    """

    def __init__(self, path: Path) -> None:
        if not installed():
            why = f"{installation('kenlm')}; or name the ARPA file that it was built from"
            raise InputError(f"{path}: KenLM's binary format, which only KenLM reads, and it is not installed: {why}")
        kenlm = importlib.import_module("kenlm")
        config = kenlm.Config()
        config.show_progress, config.arpa_complain = False, kenlm.ARPALoadComplain.NONE
        try:
            self._model, self._state = kenlm.Model(str(path), config), kenlm.State
        except (OSError, RuntimeError, UnicodeEncodeError) as error:
            raise InputError(f"{path}: KenLM cannot read it: {error}") from None

    def score_texts(self, texts: Sequence[str], *, precision: Precision = "fp32") -> tuple[list[TextScore], Prefixes]:
        """Return log p of lines, as `Model.score_texts` does; `precision` is ignored, as there are no matrix products.

        Raises:
            InputError: a line holds `<s>` or `</s>` as a word.
        """
        scores = []
        for text in texts:
            require_no_marks(words := written_words(text))
            *tokens, end = self.log_probs([*words, END])
            oov = sum(word != UNKNOWN and word not in self._model for word in words)
            scores.append(TextScore(tokens, end, oov))
        read = sum(len(written_words(text)) + 2 for text in texts)
        return scores, Prefixes(read, read)

    def log_probs(self, line: Iterable[str]) -> list[float]:
        """Return log p of each word of a line after `<s>`; the line should end with `</s>`."""
        before, after, log_p = self._state(), self._state(), list[float]()
        self._model.BeginSentenceWrite(before)
        for word in line:
            log_p.append(self._model.BaseScore(before, word, after) * _LN10)
            before, after = after, before
        return log_p
