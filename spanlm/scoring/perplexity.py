"""Perplexity, with a description of its protocol."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from spanlm.data.batching import Segment
from spanlm.data.corpora import Corpus, Written
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import require
from spanlm.models.interfaces import NextWordModel
from spanlm.scoring.cache import NeuralCache
from spanlm.scoring.options import CacheConfig
from spanlm.scoring.protocol import LENGTH, STANDARD, Protocol, lines_counted
from spanlm.scoring.spelling import Spelling
from spanlm.scoring.stream import Scored, log_p, read
from spanlm.scoring.tally import Tally, perplexity, tallies


@dataclass(frozen=True)
class SaltonCount:
    """The perplexity as computed by the code of Salton et al. (2017); no other paper's number is comparable.

    The first word of each sentence is counted but never predicted: exp(NLL / all tokens). This is too low: with one
    first word in 22 tokens, as in Penn Treebank, 71.7 corresponds to 88.0 per predicted token.

    `nll` is the NLL of the predicted tokens, nats; `perplexity`, the paper's number, is exp(nll / counted).
    """

    protocol: str
    predicted: int
    counted: int
    nll: float
    perplexity: float
    perplexity_per_predicted: float


SHARES = ("reward", "gate", "utilisation", "oracle_utilisation")
"""Means over the tokens for which the buffer was not empty."""


@dataclass(frozen=True)
class Parts:
    """The perplexity of each prediction, p and q, of a span buffer model (Li et al., 2020, Table 3 and Figure 4).

    The oracle takes, at each token, the more probable prediction. This is a bound, not a model's perplexity: the choice
    is made after the token is seen. No gate can do better.

    Every number counts each token once, as the model's own perplexity does. While the buffer is empty there is no q,
    and p replaces it. All numbers come from the pass that measures the model; with dynamic evaluation they are taken
    before each update.

    Attributes:
        encoder: perplexity of p ("using only sequential RNN").
        buffer: perplexity of q, or of p while the buffer is empty ("using only sequential neural buffer").
        oracle: the bound, exp of the mean of −log max(p, q) ("oracle policy").
        untempered: perplexity with T = 1 ("w/o annealing in test"); NaN in training.
        equal: perplexity of (p + q) / 2, which is T → ∞; a gate of T = 100 is near it; NaN in training.
        remembering: number of tokens with a buffer that is not empty; the numbers below are over these tokens, None if
            there are none.
        utilisation: PoU, the share with λ >= 0.5 (Eq. 15); a temperature does not change it.
        oracle_utilisation: oracle PoU, the share with q > p.
        gate: mean λ, without temperature.
        reward: mean r (Eq. 12-13).
    """

    encoder: float
    buffer: float
    oracle: float
    untempered: float
    equal: float
    encoder_nll: float
    buffer_nll: float
    oracle_nll: float
    untempered_nll: float
    equal_nll: float
    remembering: int
    utilisation: float | None
    oracle_utilisation: float | None
    gate: float | None
    reward: float | None


@dataclass(frozen=True)
class Share:
    """The NLL of some targets, per target, word, character or byte.

    Attributes:
        count: number of targets, words, characters or bytes.
        nll: summed negative log-likelihood of the targets, nats.
        nats: nll / count.
        bits: the same in bits; bpc for characters.
        log10: summed log10 probability, -nll / ln 10.
        perplexity: exp(nll / count).
    """

    count: int
    nll: float
    nats: float
    bits: float
    log10: float
    perplexity: float

    @classmethod
    def of(cls, nll: float, count: int) -> Share:
        nats = nll / count
        return cls(count, nll, nats, nats / math.log(2), -nll / math.log(10), perplexity(nats))


@dataclass(frozen=True)
class Evaluation:
    """The perplexity of a model on one split of a corpus.

    Attributes:
        protocol: description of how tokens were counted and when the state was reset.
        tokens: predicted tokens: all of the split, each exactly once, <eos> included.
        nll: summed negative log-likelihood, nats.
        perplexity: exp(nll / tokens).
        oov_tokens: words outside the vocabulary, read and predicted as <unk>.
        unk_tokens: targets that are <unk>: words outside the vocabulary, and <unk> in the text itself.
        perplexity_without_unk: perplexity over the targets that are not <unk>; None if all are.
        shares: the NLL by convention, each over its own targets: `all`, `without_unk`, `without_eos` and
            `without_unk_and_eos`; and the NLL of all targets per written `words`, `characters` and `bytes`, see
            `spanlm.data.corpora.Written`. Conventions without targets or written text are left out.
        tokens_per_word: tokens / written words, t: perplexity per word is perplexity^t; None without written text.
        salton2017: the count of Salton et al. if each sentence is its own context; None otherwise, and with `spelling`.
        without_cache: with a cache, the evaluation without it; else None.
        without_dynamic: with dynamic evaluation, the evaluation with the trained weights; else None.
        without_neighbours: with nearest neighbours, the evaluation without them; else None.
        parts: the perplexities of a mixture's two predictions; None for other models, and with a cache.
        spelling: the spelling of unknown words; its NLL is part of every number but those without <unk>, which then are
            of an open vocabulary. None: they are predicted as <unk>.
        notes: warnings about the text, for example that it has changed since training.
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
    shares: dict[str, Share]
    tokens_per_word: float | None = None
    salton2017: SaltonCount | None = None
    without_cache: Evaluation | None = None
    without_dynamic: Evaluation | None = None
    without_neighbours: Evaluation | None = None
    parts: Parts | None = None
    spelling: Spelling | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self, dict_factory=without_notes)


def without_notes(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the items as a dictionary, without notes."""
    return {name: value for name, value in items if name != "notes"}


def evaluate(
    model: NextWordModel,
    corpus: Corpus,
    split: str = "test",
    protocol: Protocol = STANDARD,
    *,
    cache: CacheConfig | None = None,
) -> Evaluation:
    """Measure perplexity: exp(total NLL / predicted tokens), every token of the split predicted exactly once.

    If each sentence is its own context, the result includes the count of Salton et al. (2017). With a neural cache, it
    includes the numbers without the cache, from the same pass.

    Raises:
        InputError: there is no such split, or a size is below 1.
    """
    require(cache is None or isinstance(cache, CacheConfig), "cache", cache, "a CacheConfig, as tune_cache([500]).best")
    if cache is None:
        (plain,) = measure(partial(read, model, protocol=protocol), corpus, split, protocol, {"log_p": ""})
        return plain

    def with_cache(segments: Iterable[Segment]) -> Iterator[Scored]:
        return read(model, segments, protocol, log_p, NeuralCache(cache, across=protocol.context == "line"))

    # the cache carries over from line to line, so lines must come in the order of the text
    done = cache.description + " over the lines before" * (protocol.context == "line")
    plain, cached = measure(with_cache, corpus, split, protocol, {"log_p": "", "cached": done}, in_order=True)
    return replace(cached, without_cache=plain)


def measure(
    reader: Callable[[Iterable[Segment]], Iterator[Scored]],
    corpus: Corpus,
    split: str,
    protocol: Protocol,
    columns: Mapping[str, str],
    *,
    in_order: bool = False,
    length: int = LENGTH,
) -> list[Evaluation]:
    """Read a split with <eos> before each line, and evaluate each of several columns of log p that `reader` answers.

    `columns` maps each column to what was done beside reading, which is appended to the protocol. For Salton's count
    lines are read again without <eos> where training read them so.
    """
    settings: dict[str, Any] = {"in_order": in_order, "length": length}
    first = replace(protocol, predict_first=True).batcher(corpus, split, **settings)
    unopened = protocol.context == "line" and not protocol.predict_first
    began = time.perf_counter()
    totals = tallies(reader(first.segments()), corpus.vocabulary, [*columns])
    seconds = time.perf_counter() - began
    sums: Sequence[tuple[float, int]] = [(t.nll - t.first_nll, t.tokens - t.first_tokens) for t in totals]
    if unopened:
        segments = protocol.batcher(corpus, split, **settings).segments()
        sums = [(t.nll, t.tokens) for t in tallies(reader(segments), corpus.vocabulary, [*columns])]
    salton = (
        "Salton et al. (2017): the first word of each sentence is not predicted, but counted; state reset at each "
        f"line, {'not opened' if unopened else 'opened by <eos>'}{lines_counted(corpus.lines)}"
    )
    written, results = corpus.written(split), []
    for total, (nll, predicted), done in zip(totals, sums, columns.values(), strict=True):
        also = f"; {done}" if done else ""
        result = evaluation_of(total, seconds, corpus, split, protocol, written)
        count = None
        if protocol.context == "line" and protocol.spelling is None:
            per_predicted = perplexity(nll / predicted) if predicted else math.nan
            ppl = perplexity(nll / total.tokens)
            count = SaltonCount(salton + also, predicted, total.tokens, nll, ppl, per_predicted)
        results.append(replace(result, protocol=result.protocol + also, salton2017=count))
    return results


def evaluation_of(
    total: Tally, seconds: float, corpus: Corpus, split: str, protocol: Protocol, written: Written | None
) -> Evaluation:
    """Make an evaluation of the sums over a split; `written` has the counts of its original text."""
    spelling = protocol.spelling
    if spelling is not None:
        total = total.spelled(spelling.nll)
    known = total.tokens - total.unk_tokens
    written = written or Written(0, 0, 0)
    shared = {
        "all": (total.nll, total.tokens),
        "without_unk": (total.nll - total.unk_nll, known),
        "without_eos": (total.nll - total.eos_nll, total.tokens - total.eos_tokens),
        "without_unk_and_eos": (total.nll - total.unk_nll - total.eos_nll, known - total.eos_tokens),
        **{name: (total.nll, count) for name, count in written._asdict().items()},
    }
    return Evaluation(
        corpus=corpus.name,
        split=split,
        protocol="; ".join([protocol.description(corpus, split), *([spelling.description] if spelling else [])]),
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
        shares={name: Share.of(nll, count) for name, (nll, count) in shared.items() if count},
        tokens_per_word=total.tokens / written.words if written.words else None,
        parts=parts_of(total.metrics, total.tokens),
        spelling=spelling,
        notes=(*corpus.notes, *(spelling.notes if spelling else ())),
    )


def padded_perplexity(result: Evaluation, vocabulary: Vocabulary, size: int) -> float:
    """Return the perplexity over `size` words, to compare models with different vocabularies; use one size for all.

    With K the number of words in the vocabulary except `<unk>` (`<eos>` counts), the size − K missing words share
    p(<unk>) equally. Each `<unk>` target therefore costs log(size − K) nats more.

    Raises:
        InputError: the size leaves no word for `<unk>`.
    """
    missing = require_pad(vocabulary, size)
    return perplexity((result.nll + result.unk_tokens * math.log(missing)) / result.tokens)


def require_pad(vocabulary: Vocabulary, size: int) -> int:
    """Return how many of `size` words the vocabulary lacks; InputError: none. See `padded_perplexity`."""
    known = len(vocabulary) - 1
    require(size > known, "vocab_pad", size, f"more than the {known:,} words that the model knows")
    return size - known


def parts_of(sums: Mapping[str, float], tokens: int) -> Parts | None:
    """Turn the sums of a text's metrics into `Parts`; None if the model makes a single prediction."""
    if "buffer_nll" not in sums:
        return None
    names, steps = ("encoder", "buffer", "oracle", "untempered", "equal"), sums["steps"]
    means = {name: (sums.get(f"{name}_nll", math.nan) + sums.get("other_nll", 0.0)) / tokens for name in names}
    shares: dict[str, Any] = {name: sums[name] / steps if steps else None for name in SHARES}
    return Parts(
        **{name: perplexity(nll) for name, nll in means.items()},
        **{f"{name}_nll": nll for name, nll in means.items()},
        remembering=int(steps),
        **shares,
    )


def log_of(sums: Mapping[str, float], tokens: int) -> dict[str, float]:
    """Return means for a training log from the sums over a text; empty if the buffer was always empty.

    encoder_nll and buffer_nll are nats per token of each prediction, over all tokens, see `Parts`. The others are means
    over the `steps` with a buffer that is not empty: reward r; gate λ; utilisation, PoU, the share with λ >= 0.5 (Li et
    al., 2020, Eq. 15); oracle_utilisation, the share with q > p; in training reward_loss, −η r log λ.
    """
    parts, steps = parts_of(sums, tokens), sums.get("steps", 0.0)
    if parts is None or not steps:
        return {}
    named = ("encoder_nll", "buffer_nll", *SHARES)
    means = {"steps": float(parts.remembering), **{name: getattr(parts, name) for name in named}}
    return means | ({"reward_loss": sums["reward_loss"] / steps} if "reward_loss" in sums else {})


def log_of_training(sums: Mapping[str, float]) -> dict[str, float]:
    """Return `log_of` over all words of an epoch's training."""
    return log_of(sums, round(sums.get("steps", 0.0) + sums.get("other_steps", 0.0)))
