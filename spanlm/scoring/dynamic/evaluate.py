"""Perplexity with weights that adapt to the text.

The recurrent state and the memory are carried on as the weights of their time wrote them. Documents and lines reset
the state, not the weights, which learn over them in the order of the text. The perplexity is that of the likelihood at
a span buffer's evaluation temperature, whatever loss the weights learn from.
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
"""Weights that follow a text have diverged from so many nats a token above equal probabilities on."""

TOGETHER = 64
"""Segments that are given at a time: to look at one costs as much as to look at many, and waits for a GPU."""


class DivergedError(RunError):
    """The weights diverged while they adapted to a text; `details`: the settings that were tried, if several."""

    def __init__(self, limit: str, details: dict[str, Any] | None = None, rate: object = ABSENT) -> None:
        """Keep the settings that were tried: the search took long."""
        super().__init__("dynamic.rate", rate, limit)
        self.details = details or {}


def diverged(loss: float, static: float, vocabulary_size: int) -> bool:
    """Return whether a token takes `DIVERGED` nats more than with the trained weights, `static`, and than ln V.

    ln V is the NLL of equal probabilities. What is not finite has diverged, too.
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
    """Measure perplexity with weights that follow the text, and without, each in a pass of its own.

    Every token is predicted exactly once, as in `spanlm.scoring.perplexity.evaluate`.

    The model is not changed: a copy of it learns, from one stream.

    Raises:
        InputError: no such split, several streams, statistics of other weights or of another
            temperature of the gate, or the loss of training for a model without a span buffer.
        DivergedError: see `diverged`.
    """
    size = "dynamic evaluation reads one stream, whose weights adapt"
    require(protocol.batch_size in (None, 1), "batch_size", protocol.batch_size, f"1: {size}")
    require_own(statistics, model)
    require_fit(config, statistics, model)
    static = evaluate(model, corpus, split, replace(protocol, batch_size=None))

    def reader(segments: Iterable[Segment]) -> Iterator[Scored]:
        total = Tally()
        for block in read_adapting(model, segments, statistics, config, precision=protocol.precision):
            total = total.plus(block, corpus.vocabulary)
            report("dynamic evaluation", total.tokens, len(corpus.splits[split]))
            yield block
        if diverged(total.loss, static.nll_per_token, len(corpus.vocabulary)):
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
    """Give the tokens of one stream with their log p, each before the weights learn from it.

    The model is not changed: a copy of it learns. The text is read up to the segment that reaches `most` tokens, and no
    further than where log p is not finite: there the weights have diverged.
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
