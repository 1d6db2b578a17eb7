"""Options of scoring, in groups. This module does not import torch, so that help and refusals are instant."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import product
from typing import Any, Literal, get_args

from spanlm.errors import InputError, named, require, require_several
from spanlm.options import NOT_NEGATIVE, POSITIVE, SEED, SHARE, Limit, Precision, at_least, option, options

Context = Literal["carry", "document", "line"]

State = Literal["auto", "carry", "document", "line"]
"""A word's context; auto: as in training."""

BASES = {"2": 2.0, "e": math.e, "10": 10.0}
"""Bases of logarithms by their names on the command line: bits, nats and bans."""

SPELL_UNKNOWN = (
    "words outside the vocabulary cost their spelling, too: p(<unk>) times p of a model of characters, counted over "
    "words that training saw once (all, if <unk> stands in its text)"
)


@options()
class ScoreOptions:
    """Options for scoring words."""

    state: Context = option(
        "a word's context: the text so far (carry), its line, the lines since a blank one (document)", default="line"
    )
    base: float = option(
        "of the logarithm: 2 gives bits, e nats, 10 bans",
        default=2.0,
        limit=Limit(lambda base: 1 < base < math.inf, "above 1 and finite"),
    )
    oov: Literal["flag", "error"] = option(
        "words outside the vocabulary: score as <unk> and flag, or refuse (error)", default="flag"
    )
    spell_unknown: bool = option(SPELL_UNKNOWN, default=False)
    eos: bool = option("give line ends rows, too", default=False)
    looks: bool = option("give columns on where the model looked, too", default=False)
    precision: Precision = option("of matrix products", default="fp32")


ClozeContext = Literal["full", "query"]

CONTEXTS: tuple[ClozeContext, ...] = get_args(ClozeContext)


@options()
class ClozeOptions:
    """Options for cloze questions; any `batch_size` gives the same values, up to rounding."""

    contexts: Sequence[ClozeContext] | None = option(
        "what is read before the query: its context sentences (full, the default); nothing (query, the default of "
        "models trained on single sentences, which can use no other)",
        default=None,
    )
    batch_size: int = option("questions side by side", default=64, limit=at_least(1))
    precision: Precision = option("of matrix products", default="fp32")


LEAST_TEMPERATURE = 0.001
"""Division by a lower temperature overflows; 0 takes the most probable word without dividing."""


@options()
class GenerationOptions:
    """The sampling distribution.

    p'(w) ∝ p(w)^{1 / temperature} over the `top_k` most probable words, and then over the fewest of these that hold the
    share `top_p` of their probability.
    """

    length: int = option("how many words", default=50, limit=at_least(1))
    temperature: float = option(
        "1: the model's own probabilities; 0: always the most probable word",
        default=1.0,
        limit=Limit(lambda t: t == 0 or LEAST_TEMPERATURE <= t < math.inf, f"0, or from {LEAST_TEMPERATURE} on"),
    )
    top_k: int | None = option("draw from the k most probable words", default=None, limit=at_least(1))
    top_p: float | None = option(
        "draw from the fewest words that hold this share of the probability (of the k words', with top_k)",
        default=None,
        limit=Limit(lambda share: 0 < share <= 1, "in (0, 1]"),
    )
    seed: int = option("the same seed gives the same words", default=1, limit=SEED)
    unk: bool = option("let <unk> be drawn, too", default=False)


@options("cache")
class CacheConfig:
    """A neural cache and its share.

    Example:
        >>> words = spanlm.CacheConfig(window=500, theta=0.3, lambda_=0.1)
        >>> result = spanlm.load("runs/demo").evaluate(split="valid", cache=words)
        >>> gain = result.without_cache.perplexity - result.perplexity
    """

    window: int = option(
        "C, how many pairs of each stream are kept",
        limit=Limit(lambda window: 1 <= window < 2**31, "at least 1, and less than 2^31"),
    )
    theta: float = option("θ, how much the similarity of states counts; 0: all pairs count alike", limit=NOT_NEGATIVE)
    lambda_: float = option("λ, the cache's share of the probability", limit=SHARE)
    tuned_on: str | None = option("the text on which θ and λ were chosen, if they were", default=None)

    @property
    def description(self) -> str:
        chosen = "" if self.tuned_on is None else f" (tuned on {self.tuned_on})"
        return f"neural cache of the last {self.window:,} words, θ {self.theta:g}, λ {self.lambda_:g}{chosen}"

    def to_json(self) -> dict[str, Any]:
        return {"window": self.window, "theta": self.theta, "lambda": self.lambda_, "tuned_on": self.tuned_on}


THETAS = (0.0, 0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.2, 1.6, 2.4, 4.0)
"""Published values are 0.3 to 1. Larger features need a smaller θ."""

LAMBDAS = tuple(number / 50 for number in range(31))
"""0 to 0.6. Published values are 0.1 to 0.13 for large models; weak models need more. 0 is no cache."""


def require_grid(windows: Sequence[int], thetas: Sequence[float], lambdas: Sequence[float]) -> None:
    for name, values in (("window", windows), ("theta", thetas), ("lambda", lambdas)):
        require_several(f"cache.{name}", values)
    for window, theta, lambda_ in product(windows, thetas, lambdas):
        CacheConfig(window=window, theta=theta, lambda_=lambda_)


@options("cache")
class CacheGrid:
    """θ and λ of the neural caches to try."""

    thetas: Sequence[float] = option(
        "θ, how much the similarity of states counts; several: a grid to tune (default when tuned: 0 to 4)",
        default=THETAS,
    )
    lambdas: Sequence[float] = option(
        "λ, the cache's share, 0 to 1; several: a grid to tune (default when tuned: 0 to 0.6)", default=LAMBDAS
    )


@options("cache")
class CacheOptions(CacheGrid):
    """A user's cache settings: one cache, or a grid to search.

    Raises:
        InputError: a value is outside its range; or, without `tune`, θ or λ is not a single value.
    """

    window: int = option(
        "mix in a neural cache of the last C words, with "
        f"{named('cache.tune')}, or {named('cache.theta')} and {named('cache.lambda')}"
    )
    tune: bool = option("first find the θ and λ that fit the valid part best", default=False)

    def __post_init__(self) -> None:
        for name, values in (("cache.theta", self.thetas), ("cache.lambda", self.lambdas)):
            if len(values) != 1 and not self.tune:
                limit = f"needs one value of {named(name)}, or {named('cache.tune')}, which finds what fits best"
                raise InputError("cache.window", self.window, limit)
        require_grid((self.window,), self.thetas, self.lambdas)


TEMPERATURES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)


@options("neighbours")
class NeighboursConfig:
    """Nearest neighbours in the training text, and their share.

    Example:
        >>> near = spanlm.NeighboursConfig(k=16, temperature=1.0, lambda_=0.2)
        >>> result = spanlm.load("runs/demo").evaluate(split="valid", neighbours=near)
        >>> gain = result.without_neighbours.perplexity - result.perplexity
    """

    k: int = option("K, how many of the most similar states count", limit=at_least(1))
    temperature: float = option("T, by which squared distances are divided", limit=POSITIVE)
    lambda_: float = option("λ, the neighbours' share of the probability", limit=SHARE)
    tuned_on: str | None = option("the text on which T and λ were chosen, if they were", default=None)

    @property
    def description(self) -> str:
        chosen = "" if self.tuned_on is None else f" (tuned on {self.tuned_on})"
        return f"{self.k:,} nearest neighbours, T {self.temperature:g}, λ {self.lambda_:g}{chosen}"

    def to_json(self) -> dict[str, Any]:
        return {"k": self.k, "temperature": self.temperature, "lambda": self.lambda_, "tuned_on": self.tuned_on}


@options("neighbours")
class NeighboursGrid:
    """K, and the T and λ to try."""

    k: int = option(
        "mix in what followed the K most similar states of the training text; by default with the T and λ of a grid "
        "that fit the valid part best"
    )
    temperatures: Sequence[float] = option(
        "T, by which squared distances are divided; one, or several to try (default: 0.1 to 100)", default=TEMPERATURES
    )
    lambdas: Sequence[float] = option(
        "λ, the neighbours' share, 0 to 1; one, or several to try (default: 0 to 0.6)", default=LAMBDAS
    )

    def __post_init__(self) -> None:
        for name, values in (("temperature", self.temperatures), ("lambda", self.lambdas)):
            require_several(f"neighbours.{name}", values)
        _ = self.points  # raises for values out of range

    @property
    def points(self) -> list[NeighboursConfig]:
        pairs = product(self.temperatures, self.lambdas)
        return [NeighboursConfig(k=self.k, temperature=temperature, lambda_=share) for temperature, share in pairs]


LENGTH = 5
"""Tokens between updates of the weights, as published."""

DynamicLoss = Literal["likelihood", "training"]


@options("dynamic")
class DynamicConfig:
    """Settings of the update rule. The defaults are the published ones for an AWD-LSTM on Penn Treebank.

    Example:
        >>> learns = spanlm.DynamicConfig(rate=1e-4)  # for model.evaluate(dynamic=learns)
        >>> learns.decay
        0.002
    """

    rate: float = option("η", default=5e-5, limit=NOT_NEGATIVE)
    decay: float = option("λ", default=0.002, limit=SHARE)
    epsilon: float = option("ε", default=2e-5, limit=POSITIVE)
    loss: DynamicLoss = option(
        "what the weights learn from: likelihood, or, with a span buffer, training (temperature of training and "
        "reward). The statistics are of the likelihood in evaluation either way",
        default="likelihood",
    )
    tuned_on: str | None = option("the text on which η and λ were chosen, if they were", default=None)

    @staticmethod
    def from_sum_convention(
        *, rate: float, decay: float, epsilon: float, segments: float, tensors: int
    ) -> DynamicConfig:
        """Convert η, λ and ε of the authors' first release, given n and K of the statistics."""
        root = math.sqrt(segments)
        return DynamicConfig(rate=rate / root, decay=decay / tensors, epsilon=epsilon / root)

    def sum_convention(self, segments: float, tensors: int) -> tuple[float, float, float]:
        """Return η, λ and ε in the convention of the authors' first release, given n and K of the statistics."""
        root = math.sqrt(segments)
        return self.rate * root, self.decay * tensors, self.epsilon * root

    @property
    def description(self) -> str:
        chosen = "" if self.tuned_on is None else f" (tuned on {self.tuned_on})"
        learnt = ", learning from the loss of training" if self.loss == "training" else ""
        return (
            f"dynamic evaluation, weights adapted after every {LENGTH} tokens, η {self.rate:.3g}, "
            f"λ {self.decay:.3g}, ε {self.epsilon:.3g}{learnt}{chosen}"
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "length": LENGTH}


RATES = (3e-5, 4e-5, 5e-5, 6e-5, 7e-5, 1e-4)
"""η of the published grid."""

DECAYS = (0.001, 0.002, 0.003, 0.005)
"""λ of the published grid."""

EPSILON = DynamicConfig().epsilon


@options("dynamic")
class DynamicGrid:
    """Settings of dynamic evaluation to try: every η with every λ."""

    rates: Sequence[float] | None = option(
        "η, how fast the weights learn; several: a grid to tune (default: 5e-05; to tune, the published grid)",
        default=None,
    )
    decays: Sequence[float] | None = option(
        "λ, how fast the weights return to the trained ones; several: a grid to tune (default: 0.002; to tune, the "
        "published grid)",
        default=None,
    )
    epsilon: float = option("ε, which slows weights with small gradients", default=EPSILON)
    loss: DynamicLoss = option(
        "what the weights learn from: the likelihood, or, with a span buffer, the training loss (with the training "
        "temperature, the last one if annealed, and the reward)",
        default="likelihood",
    )

    @property
    def points(self) -> list[DynamicConfig]:
        """The points to try; InputError: a list is empty or a value out of range."""
        rates, decays = RATES if self.rates is None else self.rates, DECAYS if self.decays is None else self.decays
        for name, values in (("rate", rates), ("decay", decays)):
            require_several(f"dynamic.{name}", values)
        pairs = product(rates, decays)
        return [DynamicConfig(rate=rate, decay=decay, epsilon=self.epsilon, loss=self.loss) for rate, decay in pairs]


@options("dynamic")
class DynamicOptions(DynamicGrid):
    """A user's settings of dynamic evaluation: one point, or a grid to search.

    Raises:
        InputError: a value is outside its range, or there are several values without `tune`.
    """

    statistics: int | None = option(
        "gather the gradient statistics from the first N segments (of 100 streams) of the training text (default: "
        "from all of it)",
        default=None,
        limit=at_least(1, "at least 1 segment"),
    )
    tune: bool = option("first find the η and λ that fit the valid part best", default=False)

    def __post_init__(self) -> None:
        for name, values in (("rate", self.rates), ("decay", self.decays)):
            if values is not None and len(values) > 1 and not self.tune:
                limit = f"{len(values)} values are a grid; choose one, or add {named('dynamic.tune')}"
                raise InputError(f"dynamic.{name}", limit=limit)
        _ = self.points  # raises for values out of range

    @property
    def points(self) -> list[DynamicConfig]:
        """The points to try; a single one without `tune`."""
        if self.tune or None not in (self.rates, self.decays):
            return super().points
        usual = DynamicConfig()
        rates = [usual.rate] if self.rates is None else self.rates
        decays = [usual.decay] if self.decays is None else self.decays
        return replace(self, rates=rates, decays=decays).points


LENGTHS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200)


@options()
class ContextOptions:
    """Options for measuring the use of context."""

    positions: int = option(
        "number of places in the text; each place gives one target at each length", default=2_000, limit=at_least(2)
    )
    lengths: Sequence[int] = option(
        "numbers n of context words that stay unchanged",
        default=LENGTHS,
        limit=Limit(lambda lengths: len(lengths) > 0 and min(lengths) >= 1, "numbers of at least 1"),
    )
    far: int = option(
        "number of words before these to shuffle, drop or replace, at lengths up to this number; 0: none",
        default=100,
        limit=Limit(lambda far: far == 0 or far >= 2, "0, or at least 2"),
    )
    seed: int = option("seed of the places, and of the draws at each place", default=1, limit=SEED)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", tuple(sorted(set(self.lengths))))


EXCLUSIONS = {
    "skipped": "times of 0",
    "edges": "the first and the last word of each line",
    "outliers": "times beyond 3 standard deviations of the subject's mean",
    "unknown": "words outside the vocabulary of any run, and the words that they spill over to",
}
"""Readings to leave out, by name."""


@options()
class ReadingOptions:
    """Columns of a table of reading times, and the models of them."""

    text: str | None = option("column of the word (default: word)", default=None)
    response: str | None = option("column of the reading time, in ms", default=None)
    subject: str | None = option("column of the reader, if rows are of several", default=None)
    item: str | None = option(
        "columns of the text, which folds keep whole (default: item, or --line's)",
        default=None,
    )
    line: str | None = option(
        "columns of the line, which spillover does not cross (default: the item)",
        default=None,
    )
    order: str | None = option(
        "columns of the word's place, if readers skip words (default: the order of the rows)",
        default=None,
    )
    baseline: str = option(
        "predictors beside surprisal, or none: those of `spanlm score`, or columns with numbers",
        default="length,frequency,position",
    )
    spillover: int = option("predictors of so many words before, too; not the position", default=2, limit=at_least(0))
    subjects: Literal["mean", "random"] = option(
        "means over subjects, or each reading, with random intercepts", default="mean"
    )
    exclude: str = option(
        f"readings to leave out: none, or some of {', '.join(EXCLUSIONS)}",
        default="skipped,edges,outliers",
    )
    folds: int = option("number of folds, of whole items", default=10, limit=at_least(2))
    seed: int = option("seed of the folds and intervals", default=1, limit=SEED)

    def __post_init__(self) -> None:
        for name in self.exclusions:
            require(name in EXCLUSIONS, "exclude", name, f"none, or some of {', '.join(EXCLUSIONS)}")

    @property
    def exclusions(self) -> tuple[str, ...]:
        return () if self.exclude == "none" else tuple(self.exclude.split(","))


EXPECTED, EXPECTED_OF_PART = 5, 4
"""How many of the most probable next words are kept: for a model, and for each part of a mixture."""
