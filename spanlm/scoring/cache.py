"""The neural cache: mix a trained model, in evaluation, with the words that followed similar states.

Grave, Joulin & Usunier, "Improving Neural Language Models with a Continuous Cache" (2017), §3, the linear
interpolation:

    p(w) = (1 − λ) p_vocab(w) + λ p_cache(w),    p_cache(w) ∝ Σ_{t-C <= i < t} 1[x_{i+1} = w] exp(θ h_t · h_i)

h is the head's input. An ensemble concatenates its members' h, so their products add up. A pair (h_i, x_{i+1}) enters
the cache after x_{i+1} is read, so no step sees the word that it predicts. With fewer than C pairs the sum is over
those; with none, p = p_vocab. (The public code of Merity et al., 2018, ignores the cache until it is full, and at the
first word of each segment.) The cache is emptied when a stream or document begins. If each line is its own context,
`evaluate` keeps the cache from line to line, in the order of the text; `score_words` empties it at each line, as its
items need not follow each other.

The paper's other mixture, one softmax over both, needs the normaliser of p_vocab, which heads do not return.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise, product
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spanlm.data.batching import Batcher
from spanlm.data.corpora import Corpus
from spanlm.errors import Note, named
from spanlm.models.interfaces import NextWordModel
from spanlm.models.ops.neural_cache import Lookup, cache_log_prob, cache_places
from spanlm.options import full_name
from spanlm.scoring.options import LAMBDAS, THETAS, CacheConfig, require_grid
from spanlm.scoring.protocol import STANDARD, Protocol
from spanlm.scoring.stream import Question, Reading, log_p, read
from spanlm.scoring.tally import edge_note, perplexity


def mixed(log_p: Tensor, log_cache: Tensor, lambda_: float | Tensor) -> Tensor:
    """Log((1 − λ) p + λ p_cache) in float64, (N,), and log p where p_cache is NaN; (M, N) for λ (M, 1)."""
    share = torch.as_tensor(lambda_, dtype=torch.float64, device=log_p.device)
    both = torch.logaddexp(log_p.double() + torch.log1p(-share), log_cache.double() + share.log())
    return torch.where(log_cache.isnan(), log_p.double(), both)


class _Caches:
    """Question for log p_cache with several windows and θ: answers `other`, (N, windows · θ), NaN while empty.

    A stream's reset empties the caches. If `across`, the streams are lines in the order of the text, and the caches
    carry over from line to line.
    """

    def __init__(self, windows: Sequence[int], thetas: Sequence[float], *, across: bool) -> None:
        self._windows, self._thetas, self._across = windows, thetas, across
        self._lookup: Lookup | None = None

    def __call__(self, reading: Reading) -> Mapping[str, Tensor]:
        lookup, columns = self._look_up(reading), []
        for window in self._windows:
            log_cache, empty = cache_log_prob(replace(lookup, window=window), self._thetas)
            columns.append(log_cache.masked_fill(empty, torch.nan))
        log_caches = torch.cat(columns).movedim(0, -1)
        return {"other": log_caches.squeeze(1) if self._across else reading.flat(log_caches)}

    def _look_up(self, reading: Reading) -> Lookup:
        """Return the pairs that the steps of a segment can look at, and keep the segment's pairs for later ones."""
        h, words, filled = reading.readout.features, reading.segment.targets, reading.segment.mask
        before, most = self._lookup, max(self._windows)
        if self._across:
            h, words = reading.flat(h).unsqueeze(1), reading.flat(words).unsqueeze(1)
            filled = torch.ones_like(words, dtype=torch.bool)
        elif before is not None:
            before = None if reading.fresh else replace(before, filled=before.filled & ~reading.segment.reset)
        keys, followed, held = h, words, filled
        if before is not None:
            latest = (x[-most:] for x in (before.keys, before.words, before.filled))
            keys, followed, held = map(torch.cat, zip(latest, (h, words, filled), strict=True))
        self._lookup = Lookup(h, keys, followed, held, most)
        return self._lookup


class NeuralCache:
    """Question for log p with a cache mixed in: answers `cached`, (N,) float64.

    It holds the state of one text. See `_Caches` for `across`.
    """

    def __init__(self, config: CacheConfig, *, across: bool) -> None:
        self._share, self._cache = config.lambda_, _Caches([config.window], [config.theta], across=across)

    def __call__(self, reading: Reading) -> Mapping[str, Tensor]:
        log_cache = self._cache(reading)["other"].squeeze(1)
        return {"cached": mixed(log_p(reading)["log_p"], log_cache, self._share)}


PLACES = 20
"""Earlier occurrences kept per word, at most."""


@dataclass(frozen=True)
class CachedWords:
    """A text of N words as predicted by a model with a cache.

    Attributes:
        surprisal: (N,) float64, −ln p(word) in nats; NaN where nothing was predicted.
        chance: (N,) float64, p_cache(word), 0 for words not in the cache; NaN where nothing was predicted or the cache
            was empty.
        places: earlier steps i that were followed by the word, with their shares of p_cache: the `PLACES` largest.
    """

    surprisal: NDArray[np.float64]
    chance: NDArray[np.float64]
    places: list[list[tuple[int, float]]]


def cached_words(
    features: NDArray[np.floating[Any]],
    words: Sequence[int],
    surprisal: NDArray[np.float64],
    config: CacheConfig,
    starts: Sequence[int] = (0,),
) -> CachedWords:
    """Mix a cache into the recorded surprisals of one text, and find the earlier words that it used.

    Args:
        features: (N, D), h of each step.
        words: the N words that followed these steps.
        surprisal: surprisals of the words without the cache, nats; NaN where nothing was predicted, and the cache skips
            such a pair.
        config: the cache and its share.
        starts: the steps before which the cache is emptied.
    """
    result = CachedWords(surprisal.copy(), np.full(len(words), np.nan), [[] for _ in words])
    for begin, end in pairwise([*starts, len(words)]):
        steps = begin + np.flatnonzero(~np.isnan(surprisal[begin:end]))
        h, targets = torch.from_numpy(features[steps]).unsqueeze(1), torch.tensor(words)[steps].unsqueeze(1)
        lookup = Lookup(h, h, targets, torch.ones_like(targets, dtype=torch.bool), config.window)
        chance, *columns = cache_places(lookup, config.theta, PLACES)
        log_p = -torch.from_numpy(surprisal[steps]).unsqueeze(1)
        log_p = mixed(log_p, chance.double().log(), config.lambda_)
        result.surprisal[steps] = 0.0 - log_p.squeeze(1).numpy()
        result.chance[steps] = chance.squeeze(1).numpy()
        looked_at = zip(*(x.squeeze(1).tolist() for x in columns), strict=True)
        for step, (places, shares) in zip(steps.tolist(), looked_at, strict=True):
            both = zip(places, shares, strict=True)
            result.places[step] = [(int(steps[place]), share) for place, share in both if share > 0]
    return result


@dataclass(frozen=True)
class Tried:
    """A grid point: C, θ, λ and the perplexity with that cache."""

    window: int
    theta: float
    lambda_: float
    perplexity: float


Config = TypeVar("Config")
Point = TypeVar("Point")


@dataclass(frozen=True)
class GridTuning(Generic[Config, Point]):
    """The result of a grid search on a `text` (corpus and split); `plain` is the perplexity of the model alone.

    The `grid` has every point, λ innermost. A note warns if the best point is on the edge, as a better one may lie
    beyond.
    """

    text: str
    tokens: int
    plain: float
    best: Config
    perplexity: float
    grid: list[Point]
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        return asdict(self, dict_factory=lambda items: {name.removesuffix("_"): value for name, value in items})


CacheTuning = GridTuning[CacheConfig, Tried]


def tune_cache(
    model: NextWordModel,
    corpus: Corpus,
    split: str,
    windows: Sequence[int],
    thetas: Sequence[float] = THETAS,
    lambdas: Sequence[float] = LAMBDAS,
    protocol: Protocol = STANDARD,
    over_lines: bool = True,
) -> CacheTuning:
    """Try every window with every θ and λ.

    One pass of the model serves the whole grid: p_cache is computed once for each window and θ, and combined with every
    λ. The text, never the one to report, is read in one stream, its lines as in training. If each line is its own
    context, the cache is kept `over_lines`, as in `evaluate`, or emptied at each, as in `score_words`.

    Raises:
        InputError: the grid is empty, a value is outside its range, or there is no such split.
    """
    require_grid(windows, thetas, lambdas)
    # a cache over lines needs them in the order of the text
    batcher = replace(protocol, batch_size=None).batcher(corpus, split, in_order=True)
    grid = _Caches(windows, thetas, across=protocol.context == "line" and over_lines)
    axes = {"window": windows, "theta": thetas, "lambda_": lambdas}
    return tune_grid(model, corpus, split, batcher, protocol, grid, axes, CacheConfig, Tried)


def tune_grid(
    model: NextWordModel,
    corpus: Corpus,
    split: str,
    batcher: Batcher,
    protocol: Protocol,
    question: Question,
    axes: Mapping[str, Sequence[float]],
    config: Callable[..., Config],
    point: Callable[..., Point],
) -> GridTuning[Config, Point]:
    """Mix the model with each distribution of a grid at each λ, in one pass, and take the best.

    The question answers `other`, log p of each token under each distribution, (N, points without λ). The `axes` have
    the values of each field, λ last; a point has these fields and its perplexity.
    """
    shares = torch.tensor(axes["lambda_"], dtype=torch.float64, device=model.device).unsqueeze(1)
    plain, sums = shares.new_zeros(()), shares.new_zeros(math.prod(map(len, axes.values())) // len(shares), len(shares))
    for block in read(model, batcher.segments(), protocol, log_p, question):
        log_model = block.answers["log_p"]
        plain -= log_model.double().sum()
        for number, log_other in enumerate(block.answers["other"].unbind(1)):
            sums[number] -= mixed(log_model, log_other, shares).sum(1)
    points, text = [*product(*axes.values())], f"{corpus.name} {split}"
    losses = [perplexity(nll / batcher.targets) for nll in sums.flatten().tolist()]
    lowest = min(losses)
    best = dict(zip(axes, points[losses.index(lowest)], strict=True))
    chosen = config(**best, tuned_on=text)
    tried = [point(*values, loss) for values, loss in zip(points, losses, strict=True)]
    names = {name: full_name(type(chosen), name) for name in axes}
    notes: list[str] = [edge_note(names[name], value, axes[name]) for name, value in best.items()]
    if best["lambda_"] == 0:
        share = names["lambda_"]
        notes = [Note(f"{named(share)}=0: no {share.partition('.')[0]} of the grid helps.")]
    notes = [*filter(None, notes), *protocol.tuning_notes]
    loss = perplexity(plain.item() / batcher.targets)
    return GridTuning(text, batcher.targets, loss, chosen, lowest, tried, notes)
