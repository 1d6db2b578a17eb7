"""Perplexity with weights that adapt to the text.

The recurrent state and the memory are carried on as the weights of their time wrote them. Documents and lines reset
the state, not the weights, which learn over them in the order of the text. The perplexity is that of the likelihood at
a span buffer's evaluation temperature, whatever loss the weights learn from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import torch

from spanlm.data.batching import Batcher, Segment
from spanlm.data.corpora import Corpus
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import RunError, require
from spanlm.evaluation.dynamic.statistics import LENGTH, DynamicStatistics, segment_gradients
from spanlm.evaluation.dynamic.update import DynamicConfig, adapting, require_fit, require_own
from spanlm.evaluation.perplexity import Evaluation, count_split, counted_with, evaluate
from spanlm.evaluation.protocol import STANDARD, Protocol
from spanlm.evaluation.scoring import Report, Scored, Tally, quiet
from spanlm.models.interfaces import NextWordModel
from spanlm.models.ops.precision import Precision

DIVERGED = 1.0
"""Weights that follow a text have diverged from so many nats a token above equal probabilities on."""

TOGETHER = 64
"""Segments whose NLL is summed at a time: the sum of one costs as much as that of many, and waits for a GPU."""


class DivergedError(RunError):
    """The weights diverged while they adapted to a text; `details`: the settings that were tried, if several."""

    def __init__(self, message: str, details: dict[str, Any] | None = None) -> None:
        """Keep the settings that were tried: the search took long."""
        super().__init__(message)
        self.details = details or {}


def diverged(total: Tally, static: float, vocabulary_size: int) -> bool:
    """Return whether a token takes `DIVERGED` nats more than with the trained weights, `static`, and than ln V.

    ln V is the NLL of equal probabilities. Sums that are not finite have diverged, too.
    """
    return not total.loss <= max(static, math.log(vocabulary_size)) + DIVERGED


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

    Every token is predicted exactly once, as in `spanlm.evaluation.perplexity.evaluate`.

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

    def read(batcher: Batcher) -> list[Tally]:
        total = adapted_tally(
            model, batcher, statistics, config, corpus.vocabulary, precision=protocol.precision, report=report
        )
        if diverged(total, static.nll_per_token, len(corpus.vocabulary)):
            raise DivergedError(
                f"dynamic.rate={config.rate:g}: the weights diverged: after {total.tokens:,} tokens the mean NLL is "
                f"{total.loss:,.1f} nats. Take a lower rate, or a larger decay (now {config.decay:g}) or epsilon (now "
                f"{config.epsilon:g})."
            )
        return [total]

    (adapted,) = count_split(read, corpus, split, replace(protocol, batch_size=1), in_order=True, length=LENGTH)
    return replace(counted_with(adapted, config.description, ", on over the lines"), without_dynamic=static)


def adapted_tally(
    model: NextWordModel,
    batcher: Batcher,
    statistics: DynamicStatistics,
    config: DynamicConfig,
    vocabulary: Vocabulary,
    *,
    precision: Precision = "fp32",
    most: int | None = None,
    what: str = "dynamic evaluation",
    report: Report = quiet,
) -> Tally:
    """Sum the NLL of every token of one stream, each before the weights learn from it.

    The model is not changed: a copy of it learns. The text is read up to the segment that reaches `most` tokens, and no
    further than where a sum is not finite: there the weights have diverged. `what` names the work in reports.
    """
    total, waiting, tokens = Tally(), list[Scored](), 0
    follower, update = adapting(model, statistics, config)
    for segment in segment_gradients(follower, batcher.segments(), LENGTH, precision, config.loss):
        waiting.append(segment.scored)
        tokens += segment.tokens
        report(what, tokens, most or batcher.targets)
        enough = most is not None and tokens >= most
        if enough or len(waiting) == TOGETHER:
            total, waiting = with_segments(total, waiting, vocabulary), []
        if enough or not math.isfinite(total.nll):
            break
        update(segment)
    return with_segments(total, waiting, vocabulary)


def with_segments(total: Tally, segments: Sequence[Scored], vocabulary: Vocabulary) -> Tally:
    """Add short segments of one stream to its sums: those of equal length at once, side by side."""

    def steps(scored: Scored) -> int:
        return len(scored.log_p)

    for _, alike in groupby(sorted(segments, key=steps), key=steps):
        total = total.plus(_side_by_side(list(alike)), vocabulary)
    return total


def _side_by_side(scored: Sequence[Scored]) -> Scored:
    """Put segments of equal length side by side, as streams of one segment."""
    inputs, targets, masks, resets, log_p = zip(
        *((x.segment.inputs, x.segment.targets, x.segment.mask, x.segment.reset, x.log_p) for x in scored), strict=True
    )
    return Scored(
        Segment(torch.cat(inputs, 1), torch.cat(targets, 1), torch.cat(masks, 1), torch.cat(resets)),
        torch.cat(log_p, 1),
        scored[0].readout,
        {name: torch.cat([one.metrics[name] for one in scored], 1) for name in scored[0].metrics},
    )
