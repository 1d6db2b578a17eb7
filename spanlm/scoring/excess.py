"""Bits that a model needs beyond the optimum on a text with a known law (`spanlm.data.synthetic`), by lag."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlm.data.corpora import Corpus
from spanlm.data.synthetic import Known, find_synthetic
from spanlm.errors import InputError
from spanlm.models.interfaces import NextWordModel
from spanlm.scoring.options import Context
from spanlm.scoring.protocol import Protocol
from spanlm.scoring.stream import read


@dataclass(frozen=True)
class Excess:
    """The cost, in bits per target, of targets whose best prediction needs a word at certain lags.

    Attributes:
        lags: the least and the greatest lag; 0 and 0: no single word is needed.
        tokens: number of targets.
        optimum: mean −log2 p under the law; a model is below it only by chance.
        bits: mean −log2 p under the model.
    """

    lags: tuple[int, int]
    tokens: int
    optimum: float
    bits: float

    @property
    def excess(self) -> float:
        return self.bits - self.optimum

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "lags": list(self.lags), "excess": self.excess}


def excess_by_lag(model: NextWordModel, corpus: Corpus, split: str, protocol: Protocol) -> list[Excess]:
    """Compare a model's log p with the law's, for all targets and then by lag in powers of 2.

    The text is read in its own order as one stream. The law conditions only on earlier words of the same line.

    Raises:
        InputError: the text's source has no known law, or words of the text are outside the vocabulary.
    """
    known = _known(corpus, split)
    if corpus.oov.get(split):
        raise InputError(f"{corpus.name} {split}: has words outside the vocabulary, whose probability no law knows")
    if corpus.exact:
        raise InputError(f"{corpus.name} {split}: is read as {corpus.tokenizer}, and its law is one of words")
    context: Context = "line" if protocol.context == "line" else "carry"
    one_stream = Protocol(context=context, batch_size=1, precision=protocol.precision)
    scored = read(model, one_stream.batcher(corpus, split, in_order=True).segments(), one_stream)
    log_p = np.concatenate([block.numpy().astype(np.float64) for block in scored])
    optimum, lags = (np.array(column) for column in zip(*known, strict=True))
    values = -log_p / math.log(2), -optimum / math.log(2)
    whole = _summed((int(lags.min()), int(lags.max())), np.full(len(lags), True), *values)
    steps = [(0, 0), *((2**power, 2 ** (power + 1) - 1) for power in range(int(lags.max()).bit_length()))]
    parts = [_summed((low, high), (lags >= low) & (lags <= high), *values) for low, high in steps]
    return [whole, *(part for part in parts if part.tokens)]


def law_bits(corpus: Corpus, split: str) -> float:
    """Return the mean −log2 p of a split's words and line ends under the law of its source."""
    return -fmean(target.log_p for target in _known(corpus, split)) / math.log(2)


def _known(corpus: Corpus, split: str) -> list[Known]:
    law = find_synthetic(corpus.name)
    return [target for line in corpus.written_lines(split) for target in law.law(line.split())]


def _summed(
    lags: tuple[int, int], chosen: NDArray[np.bool_], bits: NDArray[np.float64], optimum: NDArray[np.float64]
) -> Excess:
    count = int(chosen.sum())
    return Excess(lags, count, float(optimum[chosen].sum()) / max(count, 1), float(bits[chosen].sum()) / max(count, 1))
