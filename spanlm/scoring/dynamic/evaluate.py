"""Perplexity with weights that adapt to the text.

State and memory stay as written by earlier weights. Documents and lines reset the state but not the weights, which
learn in the order of the text. The perplexity always uses the likelihood, at a span buffer's evaluation temperature,
whatever loss the weights learn from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from spanlm.data.batching import Segment
from spanlm.data.corpora import Corpus
from spanlm.errors import ABSENT, RunError, require
from spanlm.models.interfaces import NextWordModel
from spanlm.options import Precision
from spanlm.scoring.dynamic.statistics import DynamicStatistics, segment_gradients
from spanlm.scoring.dynamic.update import adapting, require_fit, require_own
from spanlm.scoring.options import LENGTH, DynamicConfig
from spanlm.scoring.perplexity import Evaluation, evaluate, measure
from spanlm.scoring.protocol import STANDARD, Protocol
from spanlm.scoring.stream import Report, Scored, quiet
from spanlm.scoring.tally import Tally

DIVERGED = 1.0
"""Adapting weights have diverged if a token costs this many nats more than equal probabilities would."""

TOGETHER = 64
"""Segments per block: checking a block waits for a GPU, however small the block."""


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
    require_own(statistics, model)
    require_fit(config, statistics, model)
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
