r"""Dynamic evaluation: the weights go on learning from the text that is read, and are drawn back to what they were.

Krause, Kahembwe, Murray & Renals, "Dynamic Evaluation of Neural Sequence Models" (ICML 2018), § 5, "RMS with a global
prior". After each segment of 5 tokens, whose −log p before this is what counts, all weights at once become

    θ ← θ + λ R ⊙ (θ_g − θ) − η g / (MS + ε),    R = min(MS / ḡ, 1/λ)

with θ_g the trained weights, g the gradient of the segment's mean cross-entropy, and MS and ḡ as in
`spanlm.evaluation.dynamic_statistics`. A segment with fewer tokens makes a step that is shorter by its share of them:
λ R · len/5, and so is g. (In the published code only the text's last segment is shorter, and no word comes after it.)
The recurrent state is carried on, what a memory remembers with it, as the weights of its time wrote it.

Documents and lines reset the state, not the weights: these learn on over them, in the order of the text. The weights
are the plain parameters: under weight drop the raw matrix. Of a span buffer the likelihood at the temperature of
evaluation is what is learnt from, or, with `loss` training, what its training made small (`spanlm.evaluation.lessons`);
what counts is the likelihood at the temperature of evaluation either way.

Two conventions of η, λ and ε are in use. This project's ("mean") is that of the authors' current code. Their first
release, and the copies of it that came with the mixture of softmaxes and its successors ("sum"), took no mean, neither
over the n segments in MS nor over the K tensors in ḡ:

    η_mean = η_sum / √n,    ε_mean = ε_sum / √n,    λ_mean = λ_sum / K
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, get_args

import torch
from torch import Tensor

from spanlm.data.batching import Batcher
from spanlm.data.config import BatchingKind
from spanlm.data.corpora import Corpus
from spanlm.errors import RunError, require
from spanlm.evaluation.dynamic_statistics import LENGTH, DynamicStatistics, gate_temperature
from spanlm.evaluation.lesson_sums import LessonSums
from spanlm.evaluation.lessons import Lesson, LessonLoss, Report, learning_weights, lessons, quiet
from spanlm.evaluation.perplexity import Evaluation, counted_with, evaluate, evaluations
from spanlm.evaluation.scoring import Precision, Tally
from spanlm.models.next_word_model import NextWordModel

BLOCK = 2**17
"""Weights that a CPU changes at a time: between the two passes over them they stay in its cache."""

ASTRAY = 1.0
"""Nats a token above equal probabilities, from which on weights that follow a text are said to have gone astray."""


class AstrayError(RunError):
    """Weights that followed a text were ruined by it.

    Attributes:
        details: what was tried, in plain values; empty where it was one setting.
    """

    def __init__(self, message: str, details: dict[str, Any] | None = None) -> None:
        """Keep what was tried: it took long, and is all there is to be known."""
        super().__init__(message)
        self.details = details or {}


@dataclass(frozen=True, kw_only=True)
class DynamicConfig:
    """How weights follow a text. The defaults are the published ones, for an AWD-LSTM on Penn Treebank.

    Attributes:
        rate: η.
        decay: λ.
        epsilon: ε.
        length: tokens of a full segment; with another one, η and λ are published in proportion to it.
        loss: what the weights learn from: likelihood, or, with a span buffer, training (temperature of training and
            reward). The statistics are of the likelihood in evaluation either way.
        tuned_on: the text on which η and λ were chosen, if they were.

    Raises:
        InputError: a rate that is negative or not finite, a decay outside [0, 1], an epsilon that is not positive, a
            length below 1, or another loss.
    """

    rate: float = 5e-5
    decay: float = 0.002
    epsilon: float = 2e-5
    length: int = LENGTH
    loss: LessonLoss = "likelihood"
    tuned_on: str | None = None

    def __post_init__(self) -> None:
        require(0 <= self.rate < math.inf, "dynamic.rate", self.rate, "finite and at least 0")
        require(0 <= self.decay <= 1, "dynamic.decay", self.decay, "in [0, 1]")
        require(0 < self.epsilon < math.inf, "dynamic.epsilon", self.epsilon, "positive and finite")
        require(self.length >= 1, "dynamic.length", self.length, "at least 1")
        require(self.loss in get_args(LessonLoss), "dynamic.loss", self.loss, "likelihood or training")

    @staticmethod
    def from_sum_convention(
        *, rate: float, decay: float, epsilon: float, segments: float, tensors: int, length: int = LENGTH
    ) -> DynamicConfig:
        """Convert η, λ and ε of the first release, given n and K of the statistics.

        Raises:
            InputError: a value that is outside its range.
        """
        root = math.sqrt(segments)
        return DynamicConfig(rate=rate / root, decay=decay / tensors, epsilon=epsilon / root, length=length)

    def sum_convention(self, segments: float, tensors: int) -> tuple[float, float, float]:
        """Return η, λ and ε as the first release would have them, given n and K of the statistics."""
        root = math.sqrt(segments)
        return self.rate * root, self.decay * tensors, self.epsilon * root

    @property
    def description(self) -> str:
        """What it is, in a few words, for people."""
        chosen = "" if self.tuned_on is None else f" (tuned on {self.tuned_on})"
        learnt = ", learning from the loss of training" if self.loss == "training" else ""
        return (
            f"dynamic evaluation, weights adapted after every {self.length} tokens, η {self.rate:.3g}, "
            f"λ {self.decay:.3g}, ε {self.epsilon:.3g}{learnt}{chosen}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


@contextmanager
def adapting(
    model: NextWordModel, statistics: DynamicStatistics, config: DynamicConfig
) -> Iterator[Callable[[Lesson], None]]:
    """Give what makes a model learn from a lesson; afterwards its weights are what they were, whatever happened."""
    # they share the parameters' memory, and no graph
    weights = {name: weight.detach().view(-1) for name, weight in learning_weights(model).items()}
    trained = [weight.clone() for weight in weights.values()]
    sizes, mean = [statistics.root_mean_squares[name].view(-1) for name in weights], statistics.mean
    rates = [config.rate / (size + config.epsilon) for size in sizes]
    decays = [(size * (config.decay / mean)).clamp_(max=1) for size in sizes]
    block = BLOCK if model.device.type == "cpu" else sys.maxsize
    parts = list(zip(*(_split(x, block) for x in (weights.values(), trained, decays, rates)), strict=True))

    def learn(lesson: Lesson) -> None:
        share, gradients = lesson.share, _split((g.reshape(-1) for g in lesson.gradients), block)
        for (weight, first, decay, rate), g in zip(parts, gradients, strict=True):
            # g was worked out before both, so this is one step
            weight.lerp_(first, decay if share == 1 else decay * share)
            weight.addcmul_(g, rate, value=-1)

    try:
        yield learn
    finally:
        for weight, first, *_ in parts:
            weight.copy_(first)


def _split(tensors: Iterable[Tensor], size: int) -> list[Tensor]:
    return [part for x in tensors for part in torch.split(x, size)]


def adapted_tally(
    model: NextWordModel,
    batcher: Batcher,
    statistics: DynamicStatistics,
    config: DynamicConfig,
    unk_id: int,
    *,
    precision: Precision = "fp32",
    most: int | None = None,
    report: Callable[[int], None] = lambda tokens: None,
) -> Tally:
    """Sum the NLL of every token of one stream, each before the weights learn from it.

    Args:
        model: its weights are afterwards what they were.
        batcher: of one stream.
        statistics: of this model.
        config: how weights follow.
        unk_id: of <unk>.
        precision: of the products.
        most: end with the segment in which so many tokens are reached; None: read all.
        report: told after each segment how many tokens are through.

    Returns:
        The sums; where one is not finite, the weights went astray, those up to the first segment that shows it.
    """
    sums, tokens = LessonSums(unk_id), 0
    with adapting(model, statistics, config) as learn:
        for lesson in lessons(model, batcher.segments(), config.length, precision, config.loss):
            finite, tokens = sums.add(lesson.scored), tokens + lesson.tokens
            report(tokens)
            if not finite or (most is not None and tokens >= most):
                break
            learn(lesson)
    return sums.total


def evaluate_dynamic(
    model: NextWordModel,
    corpus: Corpus,
    split: str,
    statistics: DynamicStatistics,
    config: DynamicConfig,
    *,
    kind: BatchingKind = "streams",
    batch_size: int | None = None,
    precision: Precision = "fp32",
    predict_first: bool = True,
    report: Report = quiet,
) -> Evaluation:
    """Measure perplexity with weights that follow the text, and without, each in a pass of its own.

    Every token is predicted exactly once, as in `spanlm.evaluation.perplexity.evaluate`, whose arguments these are.

    Args:
        model: its weights are afterwards what they were.
        corpus: encoded with the model's vocabulary.
        split: which part.
        statistics: of this model, of segments of `config.length`.
        config: how weights follow.
        kind: when state is reset.
        batch_size: 1 or None: weights follow one text.
        precision: of the products.
        predict_first: sentences are known opened; if not, they are read once more for the count of Salton et al.
        report: told of progress.

    Raises:
        InputError: no such split, several streams, statistics of segments of another length or of another temperature
            of the gate, or the loss of training for a model without a span buffer.
        AstrayError: the weights went astray; see `went_astray`.
    """
    size = "dynamic evaluation reads one stream, whose weights adapt"
    require(batch_size in (None, 1), "batch_size", batch_size, f"1: {size}")
    require_statistics(config, statistics, model)
    require_loss(config, model)
    how: dict[str, Any] = {"kind": kind, "predict_first": predict_first}
    static = evaluate(model, corpus, split, precision=precision, **how)

    def sums(batcher: Batcher) -> list[Tally]:
        def through(tokens: int) -> None:
            report("dynamic evaluation", tokens, batcher.targets)

        unk_id = corpus.vocabulary.unk_id
        total = adapted_tally(model, batcher, statistics, config, unk_id, precision=precision, report=through)
        if went_astray(total, static.nll_per_token, len(corpus.vocabulary)):
            raise _astray(config, total)
        return [total]

    (adapted,) = evaluations(sums, corpus, split, batch_size=1, in_order=True, length=config.length, **how)
    return replace(counted_with(adapted, config.description, ", on over the lines"), without_dynamic=static)


def require_statistics(config: DynamicConfig, statistics: DynamicStatistics, model: NextWordModel) -> None:
    """Refuse statistics of segments of another length, whose gradients are of other means, or of another likelihood.

    Raises:
        InputError: they are.
    """
    require(config.length == statistics.length, "dynamic.length", config.length, f"that of {statistics.description}")
    gate = gate_temperature(model)
    require(statistics.gate_temperature == gate, "statistics.gate_temperature", statistics.gate_temperature, f"{gate}")


def require_loss(config: DynamicConfig, model: NextWordModel) -> None:
    """Refuse the loss of training where there is none of its own.

    Raises:
        InputError: the model has no span buffer, or is an ensemble.
    """
    only = "likelihood without a span buffer: there is no gate that training has a temperature and a reward for"
    require(config.loss == "likelihood" or gate_temperature(model) is not None, "dynamic.loss", config.loss, only)


def went_astray(total: Tally, resting: float, vocabulary_size: int) -> bool:
    """Whether weights that followed a text were ruined by it, and predict worse than nothing at all would.

    Args:
        total: the sums over the text, or over its beginning.
        resting: nats a token with the trained weights.
        vocabulary_size: V; equal probabilities have ln V nats.

    Returns:
        Whether a token takes `ASTRAY` nats more than either, or no finite number of them.
    """
    return not total.loss <= max(resting, math.log(vocabulary_size)) + ASTRAY


def _astray(config: DynamicConfig, total: Tally) -> AstrayError:
    return AstrayError(
        f"dynamic.rate={config.rate:g}: the weights went astray: after {total.tokens:,} tokens the mean NLL is "
        f"{total.loss:,.1f} nats. Take a lower rate, or a larger decay (now {config.decay:g}) or epsilon (now "
        f"{config.epsilon:g})."
    )
