r"""How large the gradient of each weight usually is, which dynamic evaluation must know of a model.

Krause, Kahembwe, Murray & Renals, "Dynamic Evaluation of Neural Sequence Models" (ICML 2018), § 5, and their code:

    MS_i = sqrt(1/n Σ_s g_si²),    ḡ = 1/K Σ_{tensors k} mean_{i ∈ k} MS_i

g_s is the gradient of the mean cross-entropy of segment s of the training part, with the trained weights and without
dropout: 100 streams of 5 steps, state carried, the likelihood alone (no penalty, no reward), of a span buffer that at
the gate's temperature of evaluation. ḡ is a mean over the K tensors, whatever their sizes; a tied matrix is one of
them. A segment with fewer than its 500 tokens counts by its share of them, in g and in n (the published code leaves the
last one out: n = 1859 on Penn Treebank, here 1859.2).

They are kept in the run's folder, marked with the SHA-256 of the weights and of the training text, and with the gate's
temperature; those of another temperature than the run's have a file of their own (`statistics_name`).
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
from typing import Any, Literal

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from spanlm.data.batching import Segment
from spanlm.data.config import Split
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError, RunError, SpanlmError, require
from spanlm.evaluation.protocol import STANDARD, Precision, Protocol, autocast
from spanlm.evaluation.scoring import Report, Scored, evaluating, quiet, to_device
from spanlm.models.interfaces import LMState, Memory, NextWordModel, Readout
from spanlm.store.files import regular, replace_file
from spanlm.store.plain import json_object
from spanlm.store.run_folder import weights_digest

DYNAMIC = "dynamic.safetensors"
"""Their name in the folder of a run."""

STREAMS, LENGTH = 100, 5
"""Published."""

PART: Split = "train"

ADVANCE = 64
"""Segments that are cut at a time: between two passes of a model, which fill the processor's caches with weights, the
same work takes twenty times as long (measured: 0.44 ms a segment against 0.02; the passes of a small model: 6)."""

DynamicLoss = Literal["likelihood", "training"]

_KEPT = ("text", "segments", "read", "tokens", "whole", "length", "gate_temperature")
"""Fields that the file has beside the tensors."""


@dataclass(frozen=True)
class SegmentGradients:
    """A segment and the gradient of its loss.

    Attributes:
        scored: the log-probabilities of the segment, without a graph.
        gradients: g of every weight that learns, in the order of `learning_weights`.
        tokens: how many were predicted.
        share: tokens / M; 1 for a full segment.
    """

    scored: Scored
    gradients: tuple[Tensor, ...]
    tokens: int
    share: float


def learning_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the weights that training changes; tied ones once."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def short_segments(segments: Iterable[Segment], length: int) -> Iterator[Segment]:
    """Cut segments in time into such of at most `length` steps; only the first part of one begins anew."""
    for segment in segments:
        for start in range(0, len(segment.inputs), length):
            steps = slice(start, start + length)
            yield replace(
                segment,
                inputs=segment.inputs[steps],
                targets=segment.targets[steps],
                mask=segment.mask[steps],
                reset=segment.reset if start == 0 else torch.zeros_like(segment.reset),
            )


def segment_gradients(
    model: NextWordModel,
    segments: Iterable[Segment],
    length: int,
    precision: Precision = "fp32",
    loss: DynamicLoss = "likelihood",
) -> Iterator[SegmentGradients]:
    """Read a text with the model in evaluation mode and give the gradient of each short segment's loss.

        g = ∇ 1/M Σ −log p(target),    M = B · T

    M is the tokens of a full segment: a segment with fewer counts for less, by its share. Evaluation mode has no
    dropout, weight drop, margins, extra loss or penalties. `loss` training is that of a span buffer's training (Li et
    al., 2020, Eq. 11): the likelihood at the gate's temperature of training, and the reward; nothing else is added.

    State is carried from segment to segment, gradients are not. Between two segments the weights may be changed.

    Args:
        model: left in the mode it was in; its weights get no `.grad`.
        segments: all of one batch size, in any length.
        length: T, steps of a full segment; longer ones are cut.
        precision: of the products.
        loss: whose gradient it is; training: of a model with a span buffer.
    """
    weights, device = list(learning_weights(model).values()), model.device
    state: LMState | None = None
    for segment in _in_advance(short_segments(segments, length)):
        streams, tokens = len(segment.reset), int(segment.mask.sum())
        if state is None or bool(segment.reset.any()):
            initial = model.init_state(streams)
            state = initial if state is None else state.reset(segment.reset, initial)
        segment = to_device(segment, device)
        with evaluating(model), torch.enable_grad():
            with autocast(device, precision):
                readout, state = model(segment.inputs, state)
                scores = model.head.score(readout, segment.targets)
                learnt = scores.log_prob if loss == "likelihood" else _training_score(model, readout, segment.targets)
            # the gradient of the loss by each log p; the loss itself is not needed
            shares = segment.mask.to(scores.log_prob.dtype).mul_(-1 / (streams * length))
            gradients = torch.autograd.grad(learnt, weights, shares, materialize_grads=True)
        state = state.detach()
        scored = Scored(segment, scores.log_prob.detach(), Readout(readout.features.detach()), scores.metrics)
        yield SegmentGradients(scored, gradients, tokens, tokens / (streams * length))


def _in_advance(segments: Iterable[Segment]) -> Iterator[Segment]:
    """Yield the same segments, `ADVANCE` of them made at a time."""
    coming = iter(segments)
    while block := list(islice(coming, ADVANCE)):
        yield from block


def _training_score(model: NextWordModel, readout: Readout, targets: Tensor) -> Tensor:
    """What training maximises, (T, B): log p̃ at its temperature, less the reward's term."""
    assert readout.mixture is not None  # `require_loss` refuses other models
    scores = model.head.score(replace(readout, mixture=readout.mixture.as_trained()), targets)
    return scores.log_prob - scores.extra_loss


@dataclass(frozen=True, eq=False)
class DynamicStatistics:
    """How large the gradient of each weight usually is.

    Attributes:
        root_mean_squares: MS of every weight that learns, by its name; zero where no gradient was.
        text: corpus and part they were gathered on.
        segments: n, in full segments.
        read: how many segments were read, full or not.
        tokens: that were predicted.
        whole: all of the text was read, not its first segments alone.
        length: steps of a full segment.
        gate_temperature: of the likelihood, for a model with a span buffer; None: there is no gate.
        origin: for people: gathered now, or read from a file.
    """

    root_mean_squares: dict[str, Tensor]
    text: str
    segments: float
    read: int
    tokens: int
    whole: bool
    length: int = LENGTH
    gate_temperature: float | None = None
    origin: str = ""

    @property
    def tensors(self) -> int:
        """K."""
        return len(self.root_mean_squares)

    @property
    def mean(self) -> float:
        """ḡ."""
        return sum(float(x.double().mean()) for x in self.root_mean_squares.values()) / self.tensors

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the tensors."""
        return _digest(_on_cpu(self.root_mean_squares))

    @property
    def description(self) -> str:
        """Text, tokens, n and the gate's temperature, in a few words."""
        part = "" if self.whole else f"the first {self.read:,} segments of "
        gate = "" if self.gate_temperature is None else f", gate's T {self.gate_temperature:g}"
        return f"{part}{self.text}, {self.tokens:,} tokens (n = {self.segments:,.1f}){gate}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values: all but the tensors."""
        return {name: getattr(self, name) for name in (*_KEPT, "tensors", "origin")}


def gather_statistics(
    model: NextWordModel,
    corpus: Corpus,
    protocol: Protocol = STANDARD,
    *,
    length: int = LENGTH,
    segments: int | None = None,
    report: Report = quiet,
) -> DynamicStatistics:
    """Gather the statistics of a model, in its own precision and in 100 streams.

    Args:
        model: with its trained weights; left in the mode it was in.
        corpus: that it was trained on.
        protocol: when state is reset and whether <eos> opens lines, as in training.
        length: steps of a segment.
        segments: read the first of the text alone, so many (each of 100 streams); None: all.
        report: told of progress.

    Raises:
        InputError: the corpus has no training part, or fewer than 1 segment is asked for.
        RunError: all gradients are zero, or some are not finite.
    """
    require(segments is None or segments >= 1, "dynamic.statistics", segments, "at least 1 segment")
    if PART not in corpus.splits:
        raise InputError(
            f"dynamic evaluation without statistics: they are gathered on the text of the training, and {corpus.name} "
            f"has no {PART} part. Name the folder that has it, or put this model's statistics into the run's folder."
        )
    streams = replace(protocol, batch_size=STREAMS)
    batcher = streams.batcher(corpus, PART, in_order=True, length=length, whole=False)
    weights = learning_weights(model)
    sums = [torch.zeros_like(weight) for weight in weights.values()]
    expected = batcher.targets if segments is None else min(batcher.targets, segments * STREAMS * length)
    read, tokens, full = 0, 0, 0.0
    for segment in segment_gradients(model, batcher.segments(), length):
        torch._foreach_addcmul_(sums, segment.gradients, segment.gradients)
        read, tokens, full = read + 1, tokens + segment.tokens, full + segment.share
        report("gradient statistics", tokens, expected)
        if read == segments:
            break
    found = DynamicStatistics(
        root_mean_squares={name: total.div_(full).sqrt_() for name, total in zip(weights, sums, strict=True)},
        text=f"{corpus.name} {PART}",
        segments=full,
        read=read,
        tokens=tokens,
        whole=tokens == batcher.targets,
        length=length,
        gate_temperature=gate_temperature(model),
    )
    if not 0 < found.mean < math.inf:
        raise RunError(f"gradient statistics: their mean on {found.text} is {found.mean}, which says nothing.")
    return found


def gate_temperature(model: NextWordModel) -> float | None:
    """Return the temperature at which a model's gate is evaluated; None: it has none."""
    memory = getattr(model, "memory", None)
    return memory.gate_temperature if isinstance(memory, Memory) else None


def statistics_name(gate: float | None = None) -> str:
    """Name the file in a run's folder: one for the run as it is, and one for each other temperature of its gate."""
    return DYNAMIC if gate is None else f"dynamic-gate-{float(gate)!r}.safetensors"


def text_digest(corpus: Corpus, split: str = PART) -> str:
    """Identify a text: its words, every id and where documents begin."""
    tokens = corpus.splits[split]
    digest = hashlib.sha256(corpus.vocabulary.hash.encode())
    digest.update(np.ascontiguousarray(tokens.ids).data)
    digest.update(tokens.documents.tobytes())
    return digest.hexdigest()


def find_statistics(
    path: Path,
    model: NextWordModel,
    corpus: Corpus,
    protocol: Protocol,
    *,
    length: int = LENGTH,
    segments: int | None = None,
    report: Report = quiet,
) -> DynamicStatistics:
    """Return the statistics of a file if they are of these weights and this text; otherwise gather and save them.

    Where the file cannot be written they are only returned. `origin` says which of these it was; the other arguments
    are as of `gather_statistics`.
    """
    text = text_digest(corpus)
    try:
        return read_statistics(path, model, text, length, segments)
    except FileNotFoundError:
        origin = "gathered now"
    except InputError as stale:
        origin = f"gathered anew ({stale})"
    found = gather_statistics(model, corpus, protocol, length=length, segments=segments, report=report)
    try:
        save_statistics(path, found, model, text)
    except OSError as error:
        return replace(found, origin=f"{origin}; kept in memory alone: {path} could not be written: {error.strerror}")
    return replace(found, origin=f"{origin}, saved in {path}")


def statistics_without_text(
    path: Path, model: NextWordModel, length: int, segments: int | None, missing: SpanlmError
) -> DynamicStatistics:
    """Return the statistics of a file where the training text is not there to be compared, as `missing` says.

    Raises:
        InputError: there are none, or they are not of these weights.
    """
    try:
        found = read_statistics(path, model, None, length, segments)
    except (FileNotFoundError, InputError) as error:
        why = f"there is no {path}" if isinstance(error, FileNotFoundError) else str(error)
        raise InputError(
            f"dynamic evaluation without statistics: {why}, and the text of the training, on which they are gathered, "
            f"is not to be had: {missing} Put the text back where it was, or this model's {path.name} into "
            f"{path.parent}."
        ) from None
    return replace(found, origin=f"{found.origin}; the training text is not there to be compared")


def save_statistics(path: Path, statistics: DynamicStatistics, model: NextWordModel, text: str) -> None:
    """Write statistics, marked with the SHA-256 of the model's weights and of its training text, and with their own.

    Raises:
        OSError: the disk refused; the file before is intact.
    """
    tensors = _on_cpu(statistics.root_mean_squares)
    weights = weights_digest(dict(model.named_parameters()))
    marks = {"format": 1, "weights": weights, "training_text": text, "statistics": statistics.digest}
    kept = {name: getattr(statistics, name) for name in _KEPT}
    # one key: the format writes several in no fixed order, and equal statistics should give equal files
    replace_file(path, save(tensors, {"spanlm": json.dumps({**marks, **kept})}))


def read_statistics(
    path: Path, model: NextWordModel, text: str | None, length: int, segments: int | None
) -> DynamicStatistics:
    """Read statistics that belong to a model and its text.

    Args:
        path: of the file.
        model: gives the weights, the names, the shapes and the device.
        text: SHA-256 of its training text; None: not known here.
        length: steps of a segment.
        segments: how many are enough; None: all of the text must have been read.

    Raises:
        FileNotFoundError: there is none.
        InputError: it is damaged, or of something else; says what.
    """
    own = gate_temperature(model) if path.name == DYNAMIC else None
    try:
        with safe_open(regular(path), framework="pt") as file:
            marks = json_object((file.metadata() or {}).get("spanlm", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        found = DynamicStatistics(
            {name: x.to(model.device) for name, x in tensors.items()},
            # before there was this mark all files had one name, and were of the run's own temperature
            **{name: {"gate_temperature": own, **marks}[name] for name in _KEPT},
            origin=f"read from {path}",
        )
        of_weights, of_text, damaged = marks["weights"], marks["training_text"], marks["statistics"] != _digest(tensors)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise InputError(f"{path}: damaged: {error!r}") from None
    shapes = {name: weight.shape for name, weight in learning_weights(model).items()}
    enough = found.whole or (segments is not None and found.read >= segments)
    gate, used = found.gate_temperature, gate_temperature(model)
    for wrong, why in (
        (damaged, "damaged: it does not have its SHA-256"),
        (of_weights != weights_digest(dict(model.named_parameters())), "is of other weights"),
        (text not in (None, of_text), "is of another training text"),
        (gate != used, f"is of temperature {gate} of a gate, not {used}"),
        (found.length != length, f"is of segments of {found.length} steps, not {length}"),
        ({name: x.shape for name, x in tensors.items()} != shapes, "does not fit the model"),
        (not enough, f"is of fewer segments (the first {found.read:,})"),
    ):
        if wrong:
            raise InputError(f"{path}: {why}")
    return found


def _on_cpu(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: x.detach().cpu().contiguous() for name, x in tensors.items()}


def _digest(tensors: dict[str, Tensor]) -> str:
    return hashlib.sha256(save(dict(sorted(tensors.items())))).hexdigest()
