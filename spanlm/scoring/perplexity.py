"""Perplexity with its protocol spelled out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from spanlm.data.batching import Segment
from spanlm.data.corpora import Corpus
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import require
from spanlm.models.interfaces import NextWordModel
from spanlm.scoring.cache import NeuralCache
from spanlm.scoring.options import CacheConfig
from spanlm.scoring.protocol import LENGTH, STANDARD, Protocol, lines_counted
from spanlm.scoring.stream import Scored, log_p, read
from spanlm.scoring.tally import Tally, perplexity, tallies


@dataclass(frozen=True)
class SaltonCount:
    """The perplexity of the code of Salton et al. (2017), which no other paper's is comparable with.

    The first word of each sentence is never predicted, but counted: exp(NLL / all tokens). That is less than what a
    predicted token costs; with one first word in 22 tokens, as in Penn Treebank, 71.7 stands for 88.0.

    `nll` is that of the predicted tokens, nats; `perplexity`, the paper's number, is exp(nll / counted).
    """

    protocol: str
    predicted: int
    counted: int
    nll: float
    perplexity: float
    perplexity_per_predicted: float


SHARES = ("reward", "gate", "utilisation", "oracle_utilisation")
"""Means over the tokens that had anything to read."""


@dataclass(frozen=True)
class Parts:
    """The perplexity of each prediction of a span buffer model alone (Li et al., 2020, Table 3 and Figure 4).

    The oracle takes, at each token, the part that gave it more. It is a bound and no model's perplexity: the choice is
    made after the token is seen. No gate can do better.

    Every token counts once in each number, as in the model's own perplexity: where the buffer is empty there is no q,
    and buffer and oracle are p. All numbers are from the pass that measures the model: if its weights follow the text,
    from before each update.

    Attributes:
        encoder: perplexity of p ("using only sequential RNN").
        buffer: perplexity of q, and of p where nothing is remembered ("using only sequential neural buffer").
        oracle: exp of the mean of −log max(p, q): the bound ("oracle policy").
        untempered: perplexity with T = 1 ("w/o annealing in test"); NaN in training.
        equal: perplexity of (p + q) / 2, which is T → ∞; a gate of T = 100 is near it; NaN in training.
        remembering: how many of the tokens had anything to read; the numbers below are of these, None if there are
            none.
        utilisation: PoU, the share with λ >= 0.5 (Eq. 15); a temperature changes nothing about it.
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
    """The NLL of some targets, shared out over `count` of them, or of the words or characters that they stand for.

    Attributes:
        count: over how many the NLL is shared out.
        nll: summed negative log-likelihood of the targets, nats.
        nats: nll / count.
        bits: the same in bits; of characters it is called bpc.
        log10: summed log10 probability, which is -nll / ln 10.
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
        protocol: how tokens were counted and when state was reset.
        tokens: predicted tokens: all of the split, each exactly once, <eos> included.
        nll: summed negative log-likelihood, nats.
        perplexity: exp(nll / tokens).
        oov_tokens: words of the text that the vocabulary does not have, read and predicted as <unk>.
        unk_tokens: all targets that are <unk>: those, and the <unk> written in the text itself.
        perplexity_without_unk: over the targets that are not <unk>; None if all are.
        shares: the NLL by convention, each over its own targets: `all`, `without_unk`, `without_eos` and
            `without_unk_and_eos`; and that of all targets over the `words` and `characters` of the text as it is
            written, see `spanlm.data.corpora.Corpus.written`. What has no targets, or no written text, is left out.
        salton2017: the count of Salton et al., where each sentence begins anew; else None.
        without_cache: where a cache was mixed in, the same without it; else None.
        without_dynamic: where the weights followed the text, the same with the trained ones throughout; else None.
        parts: the perplexities of the two predictions of a mixture; None of a model that makes one, and with a cache.
        notes: what one must know of the text, as that it is no longer the one of the training.
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
    salton2017: SaltonCount | None = None
    without_cache: Evaluation | None = None
    without_dynamic: Evaluation | None = None
    parts: Parts | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self, dict_factory=without_notes)


def without_notes(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return a dictionary of all that is not called notes."""
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

    Where each sentence begins anew, the result has the count of Salton et al. (2017), too, under its own name. With a
    neural cache mixed in, it has the numbers without, from the same pass.

    Raises:
        InputError: no such split, or a size below 1.
    """
    require(cache is None or isinstance(cache, CacheConfig), "cache", cache, "a CacheConfig, as tune_cache([500]).best")
    if cache is None:
        (plain,) = measure(partial(read, model, protocol=protocol), corpus, split, protocol)
        return plain

    def with_cache(segments: Iterable[Segment]) -> Iterator[Scored]:
        return read(model, segments, protocol, log_p, NeuralCache(cache, across=protocol.context == "line"))

    # a cache goes on over lines, so it needs them in the order of the text
    done = cache.description + " over the lines before" * (protocol.context == "line")
    plain, cached = measure(with_cache, corpus, split, protocol, {"log_p": "", "cached": done}, in_order=True)
    return replace(cached, without_cache=plain)


Reader = Callable[[Iterable[Segment]], Iterator[Scored]]
"""Makes a stream of scored tokens of a text's segments."""


def measure(
    reader: Reader,
    corpus: Corpus,
    split: str,
    protocol: Protocol,
    columns: Mapping[str, str] = MappingProxyType({"log_p": ""}),
    *,
    in_order: bool = False,
    length: int = LENGTH,
) -> list[Evaluation]:
    """Read a split as `Protocol.readings` says, and count it by each of several columns of log p.

    `columns` say what was done beside reading, which is added to the protocol.
    """
    first, second = protocol.readings(corpus, split, in_order=in_order, length=length)
    began = time.perf_counter()
    totals = tallies(reader(first.segments()), corpus.vocabulary, [*columns])
    seconds = time.perf_counter() - began
    sums: Sequence[tuple[float, int]] = [(t.nll - t.first_nll, t.tokens - t.first_tokens) for t in totals]
    if second is not None:
        sums = [(t.nll, t.tokens) for t in tallies(reader(second.segments()), corpus.vocabulary, [*columns])]
    salton = (
        "Salton et al. (2017): the first word of each sentence is not predicted, but counted; state reset at each "
        f"line, {'opened by <eos>' if second is None else 'not opened'}{lines_counted(corpus.lines)}"
    )
    written, results = corpus.written(split), []
    for total, (nll, predicted), done in zip(totals, sums, columns.values(), strict=True):
        also = f"; {done}" if done else ""
        result = evaluation_of(total, seconds, corpus, split, protocol, written)
        count = None
        if protocol.context == "line":
            per_predicted = perplexity(nll / predicted) if predicted else math.nan
            ppl = perplexity(nll / total.tokens)
            count = SaltonCount(salton + also, predicted, total.tokens, nll, ppl, per_predicted)
        results.append(replace(result, protocol=result.protocol + also, salton2017=count))
    return results


def evaluation_of(
    total: Tally, seconds: float, corpus: Corpus, split: str, protocol: Protocol, written: tuple[int, int] | None
) -> Evaluation:
    """Turn the sums over a split, and the words and characters of its text, into an evaluation."""
    known = total.tokens - total.unk_tokens
    words, characters = written or (0, 0)
    shared = {
        "all": (total.nll, total.tokens),
        "without_unk": (total.nll - total.unk_nll, known),
        "without_eos": (total.nll - total.eos_nll, total.tokens - total.eos_tokens),
        "without_unk_and_eos": (total.nll - total.unk_nll - total.eos_nll, known - total.eos_tokens),
        "words": (total.nll, words),
        "characters": (total.nll, characters),
    }
    return Evaluation(
        corpus=corpus.name,
        split=split,
        protocol=protocol.description(corpus, split),
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
        parts=parts_of(total.metrics, total.tokens),
        notes=tuple(corpus.notes),
    )


def padded_perplexity(result: Evaluation, vocabulary: Vocabulary, size: int) -> float:
    """Return the perplexity over `size` words, for a fair comparison of models with different vocabularies.

    The words that the vocabulary lacks, size − K with K its words but `<unk>` (`<eos>` counts), share p(<unk>) equally.
    Each target that is `<unk>` therefore costs log(size − K) nats more. Give all models the same size.

    Raises:
        InputError: the size leaves no word for `<unk>`.
    """
    missing = require_pad(vocabulary, size)
    return perplexity((result.nll + result.unk_tokens * math.log(missing)) / result.tokens)


def require_pad(vocabulary: Vocabulary, size: int) -> int:
    """Return how many of `size` words a vocabulary lacks; InputError: none, see `padded_perplexity`."""
    known = len(vocabulary) - 1
    require(size > known, "vocab_pad", size, f"more than the {known:,} words that the model knows")
    return size - known


def parts_of(sums: Mapping[str, float], tokens: int) -> Parts | None:
    """Turn the sums of a text's metrics into `Parts`; None for a model that makes one prediction."""
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
    """Return the means for a training log from the sums over a text; empty where the buffer was empty throughout.

    encoder_nll and buffer_nll: nats a token of each part alone, over all tokens, see `Parts`. The others are of the
    `steps` that had anything to read: reward: mean r; gate: mean λ; utilisation: PoU, the share with λ >= 0.5 (Li et
    al., 2020, Eq. 15); oracle_utilisation: with q > p; of training reward_loss: −η r log λ.
    """
    parts, steps = parts_of(sums, tokens), sums.get("steps", 0.0)
    if parts is None or not steps:
        return {}
    named = ("encoder_nll", "buffer_nll", *SHARES)
    means = {"steps": float(parts.remembering), **{name: getattr(parts, name) for name in named}}
    return means | ({"reward_loss": sums["reward_loss"] / steps} if "reward_loss" in sums else {})


def log_of_training(sums: Mapping[str, float]) -> dict[str, float]:
    """Return the same of an epoch's training: `log_of` all its words."""
    return log_of(sums, round(sums.get("steps", 0.0) + sums.get("other_steps", 0.0)))
