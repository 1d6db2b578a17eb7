"""Which θ and λ suit a model's cache: a grid over a text that is not the one to be reported.

One pass of the model over the text serves the whole grid: for each window and θ the probability that the cache gives
each word is worked out once, and all λ are tried on it together. Only sums are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from spanlm.data.config import BatchingKind
from spanlm.data.corpora import Corpus
from spanlm.data.sentence_rules import SentenceRules
from spanlm.errors import require
from spanlm.evaluation.cache import CacheConfig, as_one_stream, lookups, mixed, require_text
from spanlm.evaluation.first_words import unopened_notes
from spanlm.evaluation.grid_edge import edge_note
from spanlm.evaluation.perplexity import evaluation_batcher
from spanlm.evaluation.scoring import Precision, Scored, perplexity, scored_segments
from spanlm.models.interfaces import NextWordModel
from spanlm.models.ops.neural_cache import Lookup, cache_log_prob

THETAS = (0.0, 0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.2, 1.6, 2.4, 4.0)
"""Published: 0.3 to 1. The larger the features, the less."""

LAMBDAS = tuple(number / 50 for number in range(31))
"""0 to 0.6. Published: 0.1 to 0.13 for large models; weak ones want more, and 0 is no cache."""


@dataclass(frozen=True)
class Tried:
    """A point of the grid.

    Attributes:
        window: C.
        theta: θ.
        lambda_: λ.
        perplexity: with that cache.
    """

    window: int
    theta: float
    lambda_: float
    perplexity: float

    def to_json(self) -> dict[str, Any]:
        """Return plain values, under the papers' names."""
        return {"window": self.window, "theta": self.theta, "lambda": self.lambda_, "perplexity": self.perplexity}


@dataclass(frozen=True)
class CacheTuning:
    """What a grid showed.

    Attributes:
        text: corpus and split.
        tokens: how many were predicted.
        plain: perplexity without a cache.
        best: the cache with the lowest perplexity.
        perplexity: that.
        grid: every point, windows outermost, λ innermost.
        notes: where the best lies on the edge of the grid, so that the true one may lie beyond; and what else to know.
    """

    text: str
    tokens: int
    plain: float
    best: CacheConfig
    perplexity: float
    grid: list[Tried]
    notes: list[str]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        grid = [point.to_json() for point in self.grid]
        return {**asdict(self), "best": self.best.to_json(), "grid": grid}


def tune_cache(
    model: NextWordModel,
    corpus: Corpus,
    split: str,
    windows: Sequence[int],
    thetas: Sequence[float] = THETAS,
    lambdas: Sequence[float] = LAMBDAS,
    *,
    kind: BatchingKind = "streams",
    precision: Precision = "fp32",
    predict_first: bool = True,
) -> CacheTuning:
    """Try every window with every θ and λ.

    Args:
        model: any.
        corpus: encoded with the model's vocabulary.
        split: the part to choose on; never the one to report.
        windows: C, pairs kept.
        thetas: θ.
        lambdas: λ.
        kind: when the state is reset, and with it the cache, but not at lines; as in `evaluate`.
        precision: of the model's products.
        predict_first: the model was trained on sentences opened by <eos>; if not, they are read as it knows them.

    Raises:
        InputError: an empty grid, a value outside its range, a window longer than the text, or no such split.
    """
    require_grid(windows, thetas, lambdas)
    # a cache over lines needs them in the order of the text
    batcher = evaluation_batcher(corpus, split, kind, rules=SentenceRules(opened=predict_first, order="drawn"))
    require_text(max(windows), corpus, split)
    scored: Iterable[Scored] = scored_segments(model, batcher.segments(), precision)
    if kind == "sentences":
        scored = map(as_one_stream, scored)
    shares = torch.tensor(lambdas, dtype=torch.float64, device=model.device).view(-1, 1, 1)
    plain = torch.zeros((), dtype=torch.float64, device=model.device)
    sums = plain.new_zeros(len(windows), len(thetas), len(lambdas))
    for item, lookup in lookups(scored, max(windows)):
        mask = item.segment.mask
        plain -= torch.where(mask, item.log_p.double(), 0.0).sum()
        for number, window in enumerate(windows):
            sums[number] += _nll(item.log_p, mask, replace(lookup, window=window), thetas, shares)
    found = _summary(f"{corpus.name} {split}", batcher.targets, plain, sums, (windows, thetas, lambdas))
    return replace(found, notes=[*found.notes, *unopened_notes(predict_first)])


def require_grid(windows: Sequence[int], thetas: Sequence[float], lambdas: Sequence[float]) -> None:
    """Refuse a grid that is empty or holds what no cache can have.

    Raises:
        InputError: that.
    """
    for name, values in (("cache.window", windows), ("cache.theta", thetas), ("cache.lambda", lambdas)):
        require(len(values) > 0, name, "", "at least one value")
    for window in windows:
        CacheConfig(window=window, theta=0.0, lambda_=0.0)
    for theta in thetas:
        CacheConfig(window=1, theta=theta, lambda_=0.0)
    for lambda_ in lambdas:
        CacheConfig(window=1, theta=0.0, lambda_=lambda_)


def _nll(log_p: Tensor, mask: Tensor, lookup: Lookup, thetas: Sequence[float], shares: Tensor) -> Tensor:
    """(K, M): nats of a segment with each θ and λ."""
    log_cache, empty = cache_log_prob(lookup, thetas)
    rows = [torch.where(mask, -mixed(log_p, row, empty, shares), 0.0).sum((1, 2)) for row in log_cache]
    return torch.stack(rows)


def _summary(
    text: str,
    tokens: int,
    plain: Tensor,
    sums: Tensor,
    grid: tuple[Sequence[int], Sequence[float], Sequence[float]],
) -> CacheTuning:
    windows, thetas, lambdas = grid
    tried = [
        Tried(window, theta, lambda_, perplexity(nll / tokens))
        for window, rows in zip(windows, sums.tolist(), strict=True)
        for theta, row in zip(thetas, rows, strict=True)
        for lambda_, nll in zip(lambdas, row, strict=True)
    ]
    best = min(tried, key=lambda point: point.perplexity)
    config = CacheConfig(window=best.window, theta=best.theta, lambda_=best.lambda_, tuned_on=text)
    notes = ["cache.lambda=0: no cache of the grid helps."]
    if best.lambda_ > 0:
        chosen = {"window": (best.window, windows), "theta": (best.theta, thetas), "lambda": (best.lambda_, lambdas)}
        notes = [
            note for name, (value, values) in chosen.items() if (note := edge_note(f"cache.{name}", value, values))
        ]
    return CacheTuning(text, tokens, perplexity(plain.item() / tokens), config, best.perplexity, tried, notes)
