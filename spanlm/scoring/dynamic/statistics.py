r"""Root mean squares of a model's gradients, by which dynamic evaluation divides.

Krause, Kahembwe, Murray & Renals, "Dynamic Evaluation of Neural Sequence Models" (ICML 2018), § 5, and their code:

    MS_i = sqrt(1/n Σ_s g_si²),    ḡ = 1/K Σ_{tensors k} mean_{i ∈ k} MS_i

g_s is the gradient of the mean cross-entropy of segment s of the training part, with the trained weights and without
dropout. A segment has 100 streams of 5 steps; the state is carried. The loss is the likelihood alone, without penalty
or reward, and with a span buffer at the gate's evaluation temperature. ḡ is a mean over the K tensors, whatever their
sizes; a tied matrix is one tensor. A segment with fewer than 500 tokens counts by its share of 500, in g and in n (the
published code drops the last segment: n = 1859 on Penn Treebank, here 1859.2).

The run's folder keeps the statistics with the SHA-256 of the weights and of the training text, and the gate's
temperature. If any of these differ, the statistics are gathered anew.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from spanlm.data.batching import Segment
from spanlm.data.config import Split
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError, RunError, SpanlmError
from spanlm.models.interfaces import Head, LMState, Memory, MixingHead, NextWordModel, Readout, Scores
from spanlm.models.ops.precision import autocast, products
from spanlm.options import Precision
from spanlm.scoring.options import LENGTH, DynamicLoss
from spanlm.scoring.protocol import STANDARD, Protocol
from spanlm.scoring.stream import Report, Scored, evaluating, next_state, quiet, reading_of, scored_of
from spanlm.store.checkpoints import read_tensors, to_bytes
from spanlm.store.files import replace_file
from spanlm.store.run_folder import model_digest

DYNAMIC = "dynamic.safetensors"
"""File name of the statistics in a run's folder."""

STREAMS = 100
"""Streams side by side, as published."""

PART: Split = "train"

ADVANCE = 64
"""Segments cut at a time. Cutting between two passes of a model, whose weights fill the processor's caches, takes
twenty times as long (measured: 0.44 ms a segment against 0.02; the passes of a small model: 6)."""

_KEPT = ("text", "segments", "read", "tokens", "whole", "gate_temperature")
"""Fields in the file, beside the tensors."""


@dataclass(frozen=True)
class SegmentGradients:
    """The tokens of a segment, and the gradient of its loss for each of `learning_weights`; share: tokens / M."""

    scored: Scored
    gradients: tuple[Tensor, ...]
    share: float


def learning_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weights that may change, also those that `training.learns` held; tied weights once."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def _short_segments(segments: Iterable[Segment], length: int) -> Iterator[Segment]:
    """Cut segments into parts of at most `length` steps, `ADVANCE` at a time; only the first part resets the state."""
    cut = (
        replace(
            segment,
            inputs=segment.inputs[start : start + length],
            targets=segment.targets[start : start + length],
            mask=segment.mask[start : start + length],
            place=segment.place[start : start + length],
            reset=segment.reset if start == 0 else torch.zeros_like(segment.reset),
        )
        for segment in segments
        for start in range(0, len(segment.inputs), length)
    )
    while block := list(islice(cut, ADVANCE)):
        yield from block


def segment_gradients(
    model: NextWordModel,
    segments: Iterable[Segment],
    length: int,
    precision: Precision = "fp32",
    loss: DynamicLoss = "likelihood",
) -> Iterator[SegmentGradients]:
    """Read a text with the model in evaluation mode and yield the gradient of each short segment's loss.

        g = ∇ 1/M Σ −log p(target),    M = B · T

    M is the number of tokens of a full segment, so a segment with fewer tokens counts less. Evaluation mode has no
    dropout, weight drop, margins, extra loss or penalties. With `loss` training it is a span buffer's training loss (Li
    et al., 2020, Eq. 11), and nothing else: the likelihood at the gate's training temperature, and the reward.

    The state is carried from segment to segment, gradients are not. The caller may change the weights between two
    segments; they get no `.grad`. Segments of more than `length` steps are cut.
    """
    weights = list(learning_weights(model).values())
    state: LMState | None = None
    for segment in _short_segments(segments, length):
        full = len(segment.reset) * length
        state = next_state(model, state, segment)
        with evaluating(model), products(model.device, precision), torch.enable_grad():
            with autocast(model.device, precision):
                reading, state = reading_of(model, segment, state)
                scores, learnt = _scores(model.head, reading.readout, reading.segment.targets, loss)
            # differentiate log p with the loss's own gradient; the loss itself is not needed
            shares = reading.segment.mask.to(scores.log_prob.dtype).mul_(-1 / full)
            gradients = torch.autograd.grad(learnt, weights, shares, materialize_grads=True)
        state = state.detach()
        scored = scored_of(reading, segment, {"log_p": reading.flat(scores.log_prob.detach())}, scores.metrics)
        yield SegmentGradients(scored, gradients, len(scored) / full)


def _scores(head: Head, readout: Readout, targets: Tensor, loss: DynamicLoss) -> tuple[Scores, Tensor]:
    """Return the scores of targets and the objective to maximise, (T, B): log p, or the training objective."""
    if loss == "likelihood":
        scores = head.score(readout, targets)
        return scores, scores.log_prob
    assert isinstance(head, MixingHead) and readout.mixture is not None  # `require_loss` refuses other models
    scores, trained = readout.mixture.score_twice(head, readout.features, targets)
    return scores, trained.log_prob - trained.extra_loss


@dataclass(frozen=True, eq=False)
class DynamicStatistics:
    """The root mean square of each weight's gradient.

    Attributes:
        root_mean_squares: MS of every learning weight by name; zero where the weight had no gradient.
        segments: n, in full segments.
        read: number of segments read, full or not.
        whole: whether all of the text was read.
        weights: SHA-256 of the model's weights.
        gate_temperature: the gate's temperature in the likelihood; None: there is no gate.
        origin: for people: gathered now, or read from a file.
    """

    root_mean_squares: dict[str, Tensor]
    text: str
    segments: float
    read: int
    tokens: int
    whole: bool
    weights: str
    gate_temperature: float | None = None
    origin: str = ""

    @property
    def tensors(self) -> int:
        return len(self.root_mean_squares)

    @property
    def mean(self) -> float:
        return sum(float(x.double().mean()) for x in self.root_mean_squares.values()) / self.tensors

    @cached_property
    def digest(self) -> str:
        return _digest(self.root_mean_squares)

    @property
    def description(self) -> str:
        """The text, its tokens, n and the gate's temperature."""
        part = "" if self.whole else f"the first {self.read:,} segments of "
        gate = "" if self.gate_temperature is None else f", gate's T {self.gate_temperature:g}"
        return f"{part}{self.text}, {self.tokens:,} tokens (n = {self.segments:,.1f}){gate}"

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*_KEPT, "tensors", "origin")} | {"length": LENGTH}


def gather_statistics(
    model: NextWordModel,
    corpus: Corpus,
    protocol: Protocol = STANDARD,
    *,
    segments: int | None = None,
    streams: int = STREAMS,
    report: Report = quiet,
) -> DynamicStatistics:
    """Gather a model's statistics, in its own precision, on its training corpus, read as in training.

    A segment has `streams` of 5 steps; the first `segments` segments are read, or all. `report` is called after each.

    Raises:
        InputError: the corpus has no training part.
        RunError: all gradients are zero, or some are not finite.
    """
    batcher = replace(protocol, batch_size=streams).batcher(corpus, PART, in_order=True, length=LENGTH, whole=False)
    weights = learning_weights(model)
    sums = [torch.zeros_like(weight) for weight in weights.values()]
    expected = batcher.targets if segments is None else min(batcher.targets, segments * streams * LENGTH)
    read, tokens, full = 0, 0, 0.0
    for segment in segment_gradients(model, batcher.segments(), LENGTH):
        torch._foreach_addcmul_(sums, segment.gradients, segment.gradients)
        read, tokens, full = read + 1, tokens + len(segment.scored), full + segment.share
        report("gradient statistics", tokens, expected)
        if read == segments:
            break
    result = DynamicStatistics(
        root_mean_squares={name: total.div_(full).sqrt_() for name, total in zip(weights, sums, strict=True)},
        text=f"{corpus.name} {PART}",
        segments=full,
        read=read,
        tokens=tokens,
        whole=tokens == batcher.targets,
        gate_temperature=gate_temperature(model),
        weights=model_digest(model),
    )
    if not 0 < result.mean < math.inf:
        raise RunError(f"gradient statistics: their mean on {result.text} is {result.mean}, and must be positive.")
    return result


def gate_temperature(model: NextWordModel) -> float | None:
    """Return the temperature at which a model's gate is evaluated; None: the model has no gate."""
    memory = getattr(model, "memory", None)
    return memory.gate_temperature if isinstance(memory, Memory) else None


def find_statistics(
    path: Path,
    model: NextWordModel,
    corpus: Corpus,
    protocol: Protocol,
    *,
    segments: int | None = None,
    report: Report = quiet,
) -> DynamicStatistics:
    """Read statistics from a file if they fit these weights and this text; else gather and save them.

    If the file cannot be written, they are only returned (see `origin`). For other arguments see `gather_statistics`.
    """
    text, origin = corpus.digest(PART), "gathered now"
    try:
        return read_statistics(path, model, text, segments)
    except FileNotFoundError:
        pass
    except InputError as stale:
        origin = f"gathered anew ({stale})"
    new = gather_statistics(model, corpus, protocol, segments=segments, report=report)
    try:
        save_statistics(path, new, text)
    except OSError as error:
        return replace(new, origin=f"{origin}; kept in memory alone: {path} could not be written: {error.strerror}")
    return replace(new, origin=f"{origin}, saved in {path}")


def statistics_without_text(
    path: Path, model: NextWordModel, segments: int | None, missing: SpanlmError
) -> DynamicStatistics:
    """Read statistics from a file if the training text is `missing`; InputError: no file, or it is of other weights."""
    try:
        statistics = read_statistics(path, model, None, segments)
    except (FileNotFoundError, InputError) as error:
        why = f"there is no {path}" if isinstance(error, FileNotFoundError) else str(error)
        raise InputError(
            f"dynamic evaluation needs gradient statistics: {why}, and the training text, to gather them from, is "
            f"missing: {missing} Put the text back where it was, or this model's {path.name} into "
            f"{path.parent}."
        ) from None
    return replace(statistics, origin=f"{statistics.origin}; the training text is not there to be compared")


def save_statistics(path: Path, statistics: DynamicStatistics, text: str) -> None:
    """Write statistics with the SHA-256 of weights, training text and tensors; on OSError the old file stays intact."""
    marks = {
        "format": 1,
        "weights": statistics.weights,
        "training_text": text,
        "statistics": statistics.digest,
        **{name: getattr(statistics, name) for name in _KEPT},
        "length": LENGTH,
    }
    # use one key: the format writes several in no fixed order, and equal statistics should give equal files
    replace_file(path, to_bytes(statistics.root_mean_squares, {"spanlm": json.dumps(marks)}))


def read_statistics(path: Path, model: NextWordModel, text: str | None, segments: int | None) -> DynamicStatistics:
    """Read the statistics of a model and a text, whose SHA-256 is `text` (None: unknown).

    They must cover at least `segments` segments; None: all of the text.

    Raises:
        FileNotFoundError: there is no such file.
        InputError: the file is damaged, or of another model, text, segment length or temperature.
    """
    gate = gate_temperature(model)
    try:
        tensors, marks = read_tensors(path)
        statistics = DynamicStatistics(
            {name: x.to(model.device) for name, x in tensors.items()},
            **{name: marks[name] for name in _KEPT},
            weights=marks["weights"],
            origin=f"read from {path}",
        )
        length, of_text, damaged = marks["length"], marks["training_text"], marks["statistics"] != _digest(tensors)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise InputError(f"{path}: damaged: {error!r}") from None
    kinds = {name: (weight.shape, weight.dtype) for name, weight in learning_weights(model).items()}
    enough = statistics.whole or (segments is not None and statistics.read >= segments)
    for wrong, why in (
        (damaged, "damaged: it does not have its SHA-256"),
        (statistics.weights != model_digest(model), "is of other weights"),
        (text not in (None, of_text), "is of another training text"),
        (statistics.gate_temperature != gate, f"is of temperature {statistics.gate_temperature} of a gate, not {gate}"),
        (length != LENGTH, f"is of segments of {length} steps, not {LENGTH}"),
        ({name: (x.shape, x.dtype) for name, x in tensors.items()} != kinds, "does not fit the model"),
        (not enough, f"is of fewer segments (the first {statistics.read:,})"),
    ):
        if wrong:
            raise InputError(f"{path}: {why}")
    return statistics


def _digest(tensors: dict[str, Tensor]) -> str:
    return hashlib.sha256(to_bytes(dict(sorted(tensors.items())))).hexdigest()
