r"""Dynamic evaluation: a copy of the weights goes on learning from the text, and is drawn back to the trained ones.

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
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from spanlm.data.batching import Batcher
from spanlm.data.config import BatchingKind
from spanlm.data.corpora import Corpus
from spanlm.errors import require
from spanlm.evaluation.astray import astray, went_astray
from spanlm.evaluation.dynamic_config import DynamicConfig
from spanlm.evaluation.dynamic_statistics import DynamicStatistics, gate_temperature
from spanlm.evaluation.lesson_sums import LessonSums
from spanlm.evaluation.lessons import Lesson, Report, learning_weights, lessons, quiet
from spanlm.evaluation.perplexity import Evaluation, counted_with, evaluate, evaluations
from spanlm.evaluation.scoring import Precision, Tally
from spanlm.evaluation.search_log import Reading, SearchLog, digest_of, model_digest, segments_digest
from spanlm.models.interfaces import NextWordModel

BLOCK = 2**17
"""Weights that a CPU changes at a time: between the two passes over them they stay in its cache."""


def adapting(
    model: NextWordModel, statistics: DynamicStatistics, config: DynamicConfig
) -> tuple[NextWordModel, Callable[[Lesson], None]]:
    """Return a copy of a model, and what makes the copy learn from a lesson; the model itself is never written."""
    follower = copy.deepcopy(model)
    # views of the parameters' memory, without a graph
    trained, weights = ([w.detach().view(-1) for w in learning_weights(m).values()] for m in (model, follower))
    sizes, mean = [statistics.root_mean_squares[name].view(-1) for name in learning_weights(model)], statistics.mean
    rates = [config.rate / (size + config.epsilon) for size in sizes]
    decays = [(size * (config.decay / mean)).clamp_(max=1) for size in sizes]
    block = BLOCK if model.device.type == "cpu" else sys.maxsize
    parts = list(zip(*(_split(x, block) for x in (weights, trained, decays, rates)), strict=True))

    def learn(lesson: Lesson) -> None:
        share, gradients = lesson.share, _split((g.reshape(-1) for g in lesson.gradients), block)
        for (weight, first, decay, rate), g in zip(parts, gradients, strict=True):
            # g was worked out before both, so this is one step
            weight.lerp_(first, decay if share == 1 else decay * share)
            weight.addcmul_(g, rate, value=-1)

    return follower, learn


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
        model: is not changed; a copy of it learns.
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
    follower, learn = adapting(model, statistics, config)
    for lesson in lessons(follower, batcher.segments(), config.length, precision, config.loss):
        finite, tokens = sums.add(lesson.scored), tokens + lesson.tokens
        report(tokens)
        if not finite or (most is not None and tokens >= most):
            break
        learn(lesson)
    return sums.total


def logged_reading(
    log: SearchLog,
    model: NextWordModel,
    batcher: Batcher,
    statistics: DynamicStatistics,
    config: DynamicConfig,
    unk_id: int,
    *,
    precision: Precision = "fp32",
    most: int | None = None,
    report: Callable[[int], None] = lambda tokens: None,
) -> Reading:
    """Return what `adapted_tally` gives, from the log of a search if the same was read before."""
    setting = config.to_json() | {"tuned_on": None}
    learnt = model_digest(model), statistics.digest, statistics.gate_temperature

    def read() -> Tally:
        how: dict[str, Any] = {"precision": precision, "most": most, "report": report}
        return adapted_tally(model, batcher, statistics, config, unk_id, **how)

    said = {name: setting[name] for name in ("rate", "decay")} | {"tokens": most or batcher.targets}
    key = digest_of(segments_digest(batcher), most, learnt, setting, precision, unk_id)
    found = log.reading(key, said, read)
    assert most is not None or not math.isfinite(found.total.loss) or found.total.tokens == batcher.targets
    return found


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
    log: SearchLog | None = None,
) -> Evaluation:
    """Measure perplexity with weights that follow the text, and without, each in a pass of its own.

    Every token is predicted exactly once, as in `spanlm.evaluation.perplexity.evaluate`, whose arguments these are.

    Args:
        model: is not changed; a copy of it learns.
        corpus: encoded with the model's vocabulary.
        split: which part.
        statistics: of this model, of segments of `config.length`.
        config: how weights follow.
        kind: when state is reset.
        batch_size: 1 or None: weights follow one text.
        precision: of the products.
        predict_first: sentences are known opened; if not, they are read once more for the count of Salton et al.
        report: told of progress.
        log: of the search that found `config`; what it has read is not read again.

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
    log, seconds = log or SearchLog(), list[float]()

    def sums(batcher: Batcher) -> list[Tally]:
        def through(tokens: int) -> None:
            report("dynamic evaluation", tokens, batcher.targets)

        unk_id, reads = corpus.vocabulary.unk_id, dict[str, Any](precision=precision, report=through)
        found = logged_reading(log, model, batcher, statistics, config, unk_id, **reads)
        if went_astray(found.total, static.nll_per_token, len(corpus.vocabulary)):
            raise astray(config, found.total)
        seconds.append(found.seconds)
        return [found.total]

    (adapted,) = evaluations(sums, corpus, split, batch_size=1, in_order=True, length=config.length, **how)
    adapted = replace(adapted, tokens_per_second=adapted.tokens / seconds[0])
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
