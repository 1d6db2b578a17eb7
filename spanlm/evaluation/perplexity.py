"""Perplexity with its protocol spelled out."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from typing import Any

from spanlm.data.batching import Batcher, make_batcher
from spanlm.data.config import BatchingKind
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError
from spanlm.evaluation.scoring import Precision, Tally, tally
from spanlm.models.interfaces import NextWordModel

LENGTH = 256
"""Steps evaluated at a time; any number gives the same result, up to rounding."""


@dataclass(frozen=True)
class Evaluation:
    """What a model makes of one split of a corpus.

    Attributes:
        corpus: its name.
        split: train, valid or test.
        protocol: how tokens were counted and when state was reset.
        tokens: predicted tokens: all of the split, each exactly once, <eos> included.
        nll: summed negative log-likelihood, nats.
        nll_per_token: nats a token.
        bits_per_token: the same in bits.
        perplexity: exp(nll / tokens).
        oov_tokens: words of the text that the vocabulary does not have, read and predicted as <unk>.
        unk_tokens: all targets that are <unk>: those, and the <unk> written in the text itself.
        oov_share: oov_tokens / tokens.
        unk_share: unk_tokens / tokens.
        perplexity_without_unk: over the targets that are not <unk>; None if there are none.
        tokens_per_second: of this evaluation.
    """

    corpus: str
    split: str
    protocol: str
    tokens: int
    nll: float
    nll_per_token: float
    bits_per_token: float
    perplexity: float
    oov_tokens: int
    unk_tokens: int
    oov_share: float
    unk_share: float
    perplexity_without_unk: float | None
    tokens_per_second: float

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def evaluation_batcher(corpus: Corpus, split: str, kind: BatchingKind, batch_size: int) -> Batcher:
    """Make the batcher of a split.

    Raises:
        InputError: the corpus has no such split.
    """
    if split not in corpus.splits:
        raise InputError(f"--split={split}: {corpus.name} has {', '.join(corpus.splits)}")
    tokens = corpus.splits[split]
    return make_batcher(kind, tokens, corpus.vocabulary.eos_id, batch_size=batch_size, length=LENGTH)


def evaluate(
    model: NextWordModel,
    corpus: Corpus,
    split: str = "test",
    *,
    kind: BatchingKind = "streams",
    batch_size: int = 1,
    precision: Precision = "fp32",
) -> Evaluation:
    """Measure perplexity: exp(total NLL / predicted tokens), every token of the split predicted exactly once.

    Args:
        model: any language model.
        corpus: encoded with the model's vocabulary.
        split: which part.
        kind: when state is reset: never, at documents, at sentences.
        batch_size: streams side by side. With kind streams each starts in the middle of the text with an empty
            state, so 1 is the standard protocol; documents and sentences are the same whatever it is.
        precision: of the products.
    """
    batcher = evaluation_batcher(corpus, split, kind, batch_size)
    began = time.perf_counter()
    total = tally(model, batcher.segments(), corpus.vocabulary.unk_id, precision)
    seconds = time.perf_counter() - began
    return _summary(total, corpus, split, protocol(kind, batch_size, len(corpus.splits[split].documents)), seconds)


def protocol(kind: BatchingKind, batch_size: int, documents: int) -> str:
    """Say in words how a perplexity was counted."""
    every = "every token predicted once, <eos> counted"
    if kind == "streams":
        streams = "one stream" if batch_size == 1 else f"{batch_size} streams, each starting with an empty state"
        return f"{every}; {streams}, opened by <eos>, state carried throughout"
    if kind == "documents":
        return f"{every}; state reset at each of {documents:,} documents, each opened by <eos>"
    return f"{every}; state reset at each line, each opened by <eos>"


def _summary(total: Tally, corpus: Corpus, split: str, protocol: str, seconds: float) -> Evaluation:
    known = total.tokens - total.unk_tokens
    per_token = total.nll / total.tokens
    return Evaluation(
        corpus=corpus.name,
        split=split,
        protocol=protocol,
        tokens=total.tokens,
        nll=total.nll,
        nll_per_token=per_token,
        bits_per_token=per_token / math.log(2),
        perplexity=perplexity(per_token),
        oov_tokens=corpus.oov[split],
        unk_tokens=total.unk_tokens,
        oov_share=corpus.oov[split] / total.tokens,
        unk_share=total.unk_tokens / total.tokens,
        perplexity_without_unk=perplexity((total.nll - total.unk_nll) / known) if known else None,
        tokens_per_second=total.tokens / seconds,
    )


def perplexity(nll_per_token: float) -> float:
    """exp, without overflow: beyond e^700 it is infinite."""
    return math.exp(nll_per_token) if nll_per_token < 700 else math.inf
