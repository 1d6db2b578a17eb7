r"""Perplexity with weights that adapt to the text.

Krause, Kahembwe, Murray & Renals, "Dynamic Evaluation of Neural Sequence Models" (ICML 2018), § 5, "RMS with a global
prior". A copy of the weights learns from the text, and decays towards the trained weights. After each segment of 5
tokens, which is scored before the update, all weights become

    θ ← θ + λ R ⊙ (θ_g − θ) − η g / (MS + ε),    R = min(MS / ḡ, 1/λ)

with θ_g the trained weights, g the gradient of the segment's mean cross-entropy, and MS and ḡ as in
`spanlm.scoring.dynamic.statistics`. A segment with fewer tokens makes a proportionally shorter step: λ R · len/5, and g
likewise. (In the published code only the text's last segment is shorter, and no word comes after it.) The weights are
the plain parameters, under weight drop the raw matrix.

η, λ and ε come in two conventions. This project uses that of the authors' current code ("mean"). Their first release,
and its copies in the mixture of softmaxes and successors ("sum"), took sums, not means, over the n segments in MS and
over the K tensors in ḡ:

    η_mean = η_sum / √n,    ε_mean = ε_sum / √n,    λ_mean = λ_sum / K

State and memory stay as written by earlier weights. Documents and lines reset the state but not the weights, which
learn in the order of the text. The perplexity always uses the likelihood, at a span buffer's evaluation temperature,
whatever loss the weights learn from.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from spanlm.data.batching import Segment
from spanlm.data.corpora import Corpus
from spanlm.errors import ABSENT, InputError, RunError, require
from spanlm.models.interfaces import NextWordModel
from spanlm.options import Precision
from spanlm.scoring.dynamic.statistics import (
    DynamicStatistics,
    SegmentGradients,
    gate_temperature,
    learning_weights,
    segment_gradients,
)
from spanlm.scoring.options import LENGTH, DynamicConfig, DynamicLoss
from spanlm.scoring.perplexity import Evaluation, evaluate, measure
from spanlm.scoring.protocol import STANDARD, Protocol
from spanlm.scoring.stream import Report, Scored, quiet
from spanlm.scoring.tally import Tally
from spanlm.store.run_folder import model_digest

DIVERGED = 1.0
"""Adapting weights have diverged if a token costs this many nats more than equal probabilities would."""

TOGETHER = 64
"""Segments per block: checking a block waits for a GPU, however small the block."""

BLOCK = 2**17
"""Weights that a CPU updates at a time, so that they stay in its cache between the two passes over them."""


class DivergedError(RunError):
    """Weights diverged while adapting to a text; `details` has the settings that a search tried."""

    def __init__(self, limit: str, details: dict[str, Any] | None = None, rate: object = ABSENT) -> None:
        """Keep the settings that were tried, as a search takes long."""
        super().__init__("dynamic.rate", rate, limit)
        self.details: dict[str, Any] = details or {}


def diverged(loss: float, static: float, vocabulary_size: int) -> bool:
    """Return whether the mean NLL `loss` exceeds both `static` and ln V by `DIVERGED` nats, or is not finite.

    `static` is the mean NLL of the trained weights, ln V that of equal probabilities.
    """
    return not loss <= max(static, math.log(vocabulary_size)) + DIVERGED


def evaluate_dynamic(
    model: NextWordModel,
    corpus: Corpus,
    split: str,
    statistics: DynamicStatistics,
    config: DynamicConfig,
    protocol: Protocol = STANDARD,
    *,
    report: Report = quiet,
) -> Evaluation:
    """Measure perplexity with adapting weights and with the trained weights, in two passes.

    Every token is predicted exactly once, as in `spanlm.scoring.perplexity.evaluate`. The model is not changed: a copy
    learns, from one stream.

    Raises:
        InputError: there is no such split, there are several streams, the statistics are of other weights or another
            gate temperature, or the loss is that of training and the model has no span buffer.
        DivergedError: see `diverged`.
    """
    size = "dynamic evaluation reads one stream, whose weights adapt"
    require(protocol.batch_size in (None, 1), "batch_size", protocol.batch_size, f"1: {size}")
    require_fit(statistics, model, [config])
    static = evaluate(model, corpus, split, replace(protocol, batch_size=None))

    spelled = 0.0 if protocol.spelling is None else protocol.spelling.nll

    def reader(segments: Iterable[Segment]) -> Iterator[Scored]:
        total = Tally()
        for block in read_adapting(model, segments, statistics, config, precision=protocol.precision):
            total = total.plus(block, corpus.vocabulary)
            report("dynamic evaluation", total.tokens, len(corpus.splits[split]))
            yield block
        if diverged(total.loss, (static.nll - spelled) / static.tokens, len(corpus.vocabulary)):
            raise DivergedError(
                f"the weights diverged: after {total.tokens:,} tokens the mean NLL is {total.loss:,.1f} nats. Take a "
                f"lower rate, or a larger decay (now {config.decay:g}) or epsilon (now {config.epsilon:g}).",
                rate=f"{config.rate:g}",
            )

    done = {"log_p": config.description + ", on over the lines" * (protocol.context == "line")}
    one_stream = replace(protocol, batch_size=1)
    (adapted,) = measure(reader, corpus, split, one_stream, done, in_order=True, length=LENGTH)
    return replace(adapted, without_dynamic=static)


def read_adapting(
    model: NextWordModel,
    segments: Iterable[Segment],
    statistics: DynamicStatistics,
    config: DynamicConfig,
    *,
    precision: Precision = "fp32",
    most: int | None = None,
) -> Iterator[Scored]:
    """Yield the tokens of one stream with their log p, computed before the weights learn from them.

    The model is not changed: a copy learns. Reading stops after the segment that reaches `most` tokens, or where log p
    is not finite, as the weights have diverged.
    """
    waiting, tokens = list[Scored](), 0
    follower, update = adapting(model, statistics, config)
    for segment in segment_gradients(follower, segments, LENGTH, precision, config.loss):
        waiting.append(segment.scored)
        tokens += len(segment.scored)
        enough = most is not None and tokens >= most
        if enough or len(waiting) == TOGETHER:
            block, waiting = Scored.joined(waiting), []
            yield block
            if enough or not bool(block.answers["log_p"].isfinite().all()):
                return
        update(segment)
    if waiting:
        yield Scored.joined(waiting)


def adapting(
    model: NextWordModel, statistics: DynamicStatistics, config: DynamicConfig
) -> tuple[NextWordModel, Callable[[SegmentGradients], None]]:
    """Return a copy of a model, and a function that updates the copy's weights after a segment."""
    follower = copy.deepcopy(model)
    for part in follower.modules():
        if isinstance(part, torch.nn.RNNBase):
            part.flatten_parameters()  # else cuDNN gathers copied weights at every call, with a warning
    # views of the parameters' memory, without a graph
    trained, weights = ([w.detach().view(-1) for w in learning_weights(m).values()] for m in (model, follower))
    marks, mean = statistics.root_mean_squares, statistics.mean
    sizes = [marks[name].to(model.device).view(-1) for name in learning_weights(model)]
    rates = [config.rate / (size + config.epsilon) for size in sizes]
    decays = [(size * (config.decay / mean)).clamp_(max=1) for size in sizes]
    block = BLOCK if model.device.type == "cpu" else sys.maxsize
    parts = list(zip(*(_split(x, block) for x in (weights, trained, decays, rates)), strict=True))

    def update(segment: SegmentGradients) -> None:
        share, gradients = segment.share, _split((g.reshape(-1) for g in segment.gradients), block)
        for (weight, first, decay, rate), g in zip(parts, gradients, strict=True):
            # g was computed before both, so this is one step
            weight.lerp_(first, decay if share == 1 else decay * share)
            weight.addcmul_(g, rate, value=-1)

    return follower, update


def _split(tensors: Iterable[Tensor], size: int) -> list[Tensor]:
    return [part for x in tensors for part in torch.split(x, size)]


def require_fit(statistics: DynamicStatistics, model: NextWordModel, configs: Iterable[DynamicConfig]) -> None:
    """Raise InputError if the statistics are of other weights or another gate temperature, or `require_loss` does."""
    if statistics.weights != model_digest(model):
        raise InputError("statistics", limit="of another model's weights", way_out="Use model.dynamic_statistics().")
    gate = gate_temperature(model)
    require(statistics.gate_temperature == gate, "statistics.gate_temperature", statistics.gate_temperature, f"{gate}")
    for config in configs:
        require_loss(config.loss, model)


def require_loss(loss: DynamicLoss, model: NextWordModel) -> None:
    """Raise InputError if the loss is that of training and the model, such as an ensemble, has no gate."""
    only = "likelihood without a span buffer: only its gate has a temperature and a reward in training"
    require(loss == "likelihood" or gate_temperature(model) is not None, "dynamic.loss", loss, only)
