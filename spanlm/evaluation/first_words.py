"""The count of Salton et al. (2017), in which the first word of each sentence is not predicted, but counted."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spanlm.data.config import Lines
from spanlm.evaluation.scoring import Tally, perplexity


@dataclass(frozen=True)
class FirstWordsUnscored:
    """The perplexity of the code of Salton et al. (2017), which no other paper's is comparable with.

    The first word of each sentence is never predicted, but counted: exp(NLL / all tokens). That is less than what a
    predicted token costs; with one first word in 22 tokens, as in Penn Treebank, 71.7 stands for 88.0.

    Attributes:
        protocol: the same in words.
        predicted: tokens that are predicted.
        counted: all tokens of the split.
        nll: of the predicted ones, nats.
        perplexity: exp(nll / counted), the paper's number.
        perplexity_per_predicted: exp(nll / predicted).
    """

    protocol: str
    predicted: int
    counted: int
    nll: float
    perplexity: float
    perplexity_per_predicted: float


def first_words_unscored(total: Tally, lines: Lines = "as-written") -> FirstWordsUnscored:
    """Count as the code of Salton et al. (2017) does, out of the sums over sentences opened by <eos>."""
    predicted = total.tokens - total.first_tokens
    return _unscored(total.nll - total.first_nll, predicted, total.tokens, f"opened by <eos>{lines_counted(lines)}")


def unopened_sentences(total: Tally, counted: int, lines: Lines = "as-written") -> FirstWordsUnscored:
    """The same out of the sums over sentences that were not opened; `counted` tokens are in the split."""
    return _unscored(total.nll, total.tokens, counted, f"not opened{lines_counted(lines)}")


def unopened_notes(predict_first: bool) -> list[str]:
    """Say on what something was tuned for a model that was trained on sentences that are not opened; else nothing."""
    if predict_first:
        return []
    return ["sentences were read as the model knows them, not opened: first words are not predicted."]


def lines_counted(lines: Lines) -> str:
    """Say what ends a protocol where the lines are not those of the text, which then has other tokens; else nothing."""
    if lines == "as-written":
        return ""
    return "; lines cut into sentences, an <eos> after each, blank lines left out: not comparable with a count by lines"


def _unscored(nll: float, predicted: int, counted: int, opened: str) -> FirstWordsUnscored:
    return FirstWordsUnscored(
        protocol="Salton et al. (2017): the first word of each sentence is not predicted, but counted; state reset at "
        f"each line, {opened}",
        predicted=predicted,
        counted=counted,
        nll=nll,
        perplexity=perplexity(nll / counted),
        perplexity_per_predicted=perplexity(nll / predicted) if predicted else math.nan,
    )
