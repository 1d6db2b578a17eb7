"""From tokens below the word to written words.

If white space is part of the token *after* it, as in GPT-2 and Llama, the product of p(token) leaves out the end of the
word, and counts it with the next word. The correction (Pimentel & Meister, 2024, "How to Compute the Probability of a
Word", arXiv 2406.14561; Oh & Schuler, 2024, "Leading Whitespaces of Language Models' Subword Vocabulary Pose a Confound
for Calculating Word Probabilities") moves the end to its own word:

    p(w | c) = Π p(token) · e(c, w) / e(c),   e(c) = Σ p(s | c) over the tokens s that begin with white space

where the line end counts as such an s. The first word of a line has no space before it, so its denominator is 1; the
numerator of a line end is 1. The sum over a line stays the same; only with the correction is p a distribution over
words.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from itertools import pairwise

CORRECTED = "a word's end counted with the word"
"""The name of the count in outputs."""


def fold(
    surprisals: Sequence[float], ends: Sequence[float], bounds: Sequence[int], closing: Container[int]
) -> list[float]:
    """Return −log p of each unit: a written word, or a line end.

    Args:
        surprisals: −log p of each token.
        ends: log e(c) where c is what precedes the token; 0 for no correction.
        bounds: where each unit begins among the tokens, and where the last one ends.
        closing: indices of the units that are line ends.
    """
    sums, charged = list[float](), 0.0
    for unit, (start, stop) in enumerate(pairwise(bounds)):
        end = 0.0 if unit in closing or stop >= len(ends) else ends[stop]
        sums.append(math.fsum([*surprisals[start:stop], charged, -end]))
        charged = end
    return sums
