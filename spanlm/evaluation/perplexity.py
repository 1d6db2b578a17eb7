"""Perplexity with its protocol spelled out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import tee
from typing import Any

from spanlm.data.batching import Batcher, make_batcher
from spanlm.data.config import BatchingKind, Lines
from spanlm.data.corpora import Corpus
from spanlm.data.sentence_rules import SentenceOrder, SentenceRules
from spanlm.errors import InputError
from spanlm.evaluation.cache import CacheConfig, require_text, with_cache
from spanlm.evaluation.first_words import (
    FirstWordsUnscored,
    first_words_unscored,
    lines_counted,
    unopened_sentences,
)
from spanlm.evaluation.parts import Parts, parts_of
from spanlm.evaluation.scoring import Precision, Tally, perplexity, scored_segments, tally
from spanlm.models.interfaces import NextWordModel

LENGTH = 256
"""Steps evaluated at a time; any number gives the same result, up to rounding."""

SENTENCES = 64
"""Sentences evaluated side by side unless another number is asked for; any gives the same result, up to rounding."""


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
        salton2017: the count of Salton et al., where each sentence begins anew; else None.
        without_cache: where a cache was mixed in, the same without it; else None.
        without_dynamic: where the weights followed the text, the same with the trained ones throughout; else None.
        parts: what each part of a mixture of two predictions is worth by itself; None where there is one, and of a
            mixture with a cache.
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
    salton2017: FirstWordsUnscored | None = None
    without_cache: Evaluation | None = None
    without_dynamic: Evaluation | None = None
    parts: Parts | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def evaluation_batcher(
    corpus: Corpus,
    split: str,
    kind: BatchingKind,
    batch_size: int | None = None,
    rules: SentenceRules | None = None,
    length: int | None = None,
) -> Batcher:
    """Make the batcher of a split.

    Args:
        corpus: encoded with the model's vocabulary.
        split: which part.
        kind: how it is cut.
        batch_size: streams side by side; None: as many as change nothing, 1 or, of sentences, `SENTENCES`.
        rules: of sentences; None: whole, from short to long.
        length: steps at a time, of all but sentences; None: `LENGTH`.

    Raises:
        InputError: the corpus has no such split.
    """
    if split not in corpus.splits:
        raise InputError(f"split={split}: {corpus.name} has {', '.join(corpus.splits)}")
    tokens = corpus.splits[split]
    if batch_size is None:
        batch_size = SENTENCES if kind == "sentences" else 1
    return make_batcher(
        kind,
        tokens,
        corpus.vocabulary.eos_id,
        batch_size=batch_size,
        length=length or LENGTH,
        sentences=rules or SentenceRules(order="by-length"),
    )


def evaluate(
    model: NextWordModel,
    corpus: Corpus,
    split: str = "test",
    *,
    kind: BatchingKind = "streams",
    batch_size: int | None = None,
    precision: Precision = "fp32",
    predict_first: bool = True,
    cache: CacheConfig | None = None,
) -> Evaluation:
    """Measure perplexity: exp(total NLL / predicted tokens), every token of the split predicted exactly once.

    Where each sentence begins anew, the count of Salton et al. (2017) is given, too, under its own name.

    Args:
        model: any language model.
        corpus: encoded with the model's vocabulary.
        split: which part.
        kind: when state is reset: never, at documents, at sentences.
        batch_size: streams side by side. With kind streams each starts in the middle of the text with an empty
            state, so 1 is the standard protocol; documents and sentences are the same whatever it is. None: 1, or
            of sentences `SENTENCES`.
        precision: of the products.
        predict_first: the model was trained on sentences opened by <eos>; if not, for the count of Salton et al. the
            sentences are read once more as it knows them, from their first word on.
        cache: mix a neural cache in; what the model is without it comes with the result, from the same pass.

    Raises:
        InputError: no such split, a size below 1, or a cache whose window is longer than the text.
    """

    def sums(batcher: Batcher) -> list[Tally]:
        return _totals(model, corpus, split, batcher, precision, cache, across=kind == "sentences")

    results = evaluations(
        sums,
        corpus,
        split,
        kind=kind,
        batch_size=batch_size,
        predict_first=predict_first,
        in_order=cache is not None,
    )
    if cache is None:
        return results[0]
    plain, cached = results
    return replace(counted_with(cached, cache.description, " over the lines before"), without_cache=plain)


def evaluations(
    sums: Callable[[Batcher], list[Tally]],
    corpus: Corpus,
    split: str,
    *,
    kind: BatchingKind,
    batch_size: int | None,
    predict_first: bool,
    in_order: bool = False,
    length: int | None = None,
) -> list[Evaluation]:
    """Say what each of several sums over one reading of a split means.

    Args:
        sums: reads all that a batcher gives; asked a second time where `predict_first` says so.
        corpus: that is read.
        split: which part.
        kind: as of `evaluate`, and so are the others.
        batch_size: streams side by side.
        predict_first: whether sentences are known opened.
        in_order: read sentences in the order of the text, as a cache over them needs.
        length: steps at a time, of all but sentences; None: as many as are quick.
    """
    order: SentenceOrder = "drawn" if in_order else "by-length"
    batcher = evaluation_batcher(corpus, split, kind, batch_size, SentenceRules(order=order), length)
    began = time.perf_counter()
    totals = sums(batcher)
    seconds = time.perf_counter() - began
    said = protocol(kind, batch_size or 1, len(corpus.splits[split].documents), corpus.lines, predict_first)
    results = [_summary(total, corpus, split, said, seconds) for total in totals]
    if kind != "sentences":
        return results
    counts = [first_words_unscored(total, corpus.lines) for total in totals]
    if not predict_first:
        rules = SentenceRules(opened=False, order=order)
        again = sums(evaluation_batcher(corpus, split, kind, batch_size, rules, length))
        counts = [unopened_sentences(total, totals[0].tokens, corpus.lines) for total in again]
    return [replace(result, salton2017=count) for result, count in zip(results, counts, strict=True)]


def _totals(
    model: NextWordModel,
    corpus: Corpus,
    split: str,
    batcher: Batcher,
    precision: Precision,
    cache: CacheConfig | None,
    across: bool,
) -> list[Tally]:
    """Sum over a text; with a cache, without it and with it in one pass."""
    unk_id = corpus.vocabulary.unk_id
    if cache is None:
        return [tally(model, batcher.segments(), unk_id, precision)]
    require_text(cache.window, corpus, split)
    plain = cached = Tally()
    # two readers in step: what one has read waits for the other, a segment at a time
    found, again = tee(scored_segments(model, batcher.segments(), precision))
    for alone, mixed in zip(found, with_cache(again, cache, across), strict=True):
        plain, cached = plain.plus(alone, unk_id), cached.plus(mixed, unk_id)
    return [plain, cached]


def counted_with(result: Evaluation, said: str, over_lines: str) -> Evaluation:
    """Say in a result's protocol, and in that of Salton et al., what was done beside reading.

    Args:
        result: that is counted so.
        said: what was done.
        over_lines: what to add where each sentence begins anew: the state does, and this goes on.
    """
    count = result.salton2017
    if count is not None:
        said += over_lines
        count = replace(count, protocol=f"{count.protocol}; {said}")
    return replace(result, protocol=f"{result.protocol}; {said}", salton2017=count)


def protocol(kind: BatchingKind, batch_size: int, documents: int, lines: Lines, predict_first: bool = True) -> str:
    """Say in words how a perplexity was counted."""
    every, cut = "every token predicted once, <eos> counted", lines_counted(lines)
    if kind == "streams":
        streams = "one stream" if batch_size == 1 else f"{batch_size} streams, each starting with an empty state"
        return f"{every}; {streams}, opened by <eos>, state carried throughout{cut}"
    if kind == "documents":
        return f"{every}; state reset at each of {documents:,} documents, each opened by <eos>{cut}"
    untrained = "" if predict_first else ", which is new to the model, as it is to predict first words"
    return f"{every}; state reset at each line, each opened by <eos>{untrained}{cut}"


def _summary(total: Tally, corpus: Corpus, split: str, protocol: str, seconds: float) -> Evaluation:
    """Say what the sums over a split mean, counted as `protocol` says in `seconds` of work."""
    known = total.tokens - total.unk_tokens
    return Evaluation(
        corpus=corpus.name,
        split=split,
        protocol=protocol,
        tokens=total.tokens,
        nll=total.nll,
        nll_per_token=total.loss,
        bits_per_token=total.loss / math.log(2),
        perplexity=perplexity(total.loss),
        oov_tokens=corpus.oov[split],
        unk_tokens=total.unk_tokens,
        oov_share=corpus.oov[split] / total.tokens,
        unk_share=total.unk_tokens / total.tokens,
        perplexity_without_unk=perplexity((total.nll - total.unk_nll) / known) if known else None,
        tokens_per_second=total.tokens / seconds,
        parts=parts_of(total.metrics, total.tokens),
    )
