r"""What dynamic evaluation must know of a model's training: how large the gradient of each weight usually is.

Krause, Kahembwe, Murray & Renals, "Dynamic Evaluation of Neural Sequence Models" (ICML 2018), § 5, and their code:

    MS_i = sqrt(1/n Σ_s g_si²),    ḡ = 1/K Σ_{tensors k} mean_{i ∈ k} MS_i

g_s is the gradient of the mean cross-entropy of segment s of the training part, with the trained weights and without
dropout: 100 streams of 5 steps, state carried, the likelihood alone (no penalty, no reward), of a span buffer that at
the gate's temperature of evaluation. ḡ is a mean over the K tensors, whatever their sizes; a tied matrix is one of
them. A segment with fewer than its 500 tokens counts by its share of them, in g and in n (the published code leaves the
last one out: n = 1859 on Penn Treebank, here 1859.2).

They are kept in the run's folder, marked with the SHA-256 of the weights and of the text they are of, and with the
gate's temperature; where another one than the run's is asked for, in a file of its own (`statistics_name`).
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from spanlm.data.batching import make_batcher
from spanlm.data.config import BatchingKind, Split
from spanlm.data.corpora import Corpus
from spanlm.data.sentence_rules import SentenceRules
from spanlm.errors import InputError, RunError, require
from spanlm.evaluation.lessons import Report, learning_weights, lessons, quiet
from spanlm.models.interfaces import NextWordModel
from spanlm.models.memories import SpanBufferMemory
from spanlm.store.files import regular, replace_file
from spanlm.store.plain import json_object

DYNAMIC = "dynamic.safetensors"
"""Their name in the folder of a run."""

STREAMS, LENGTH = 100, 5
"""Published."""

PART: Split = "train"

_KEPT = ("text", "segments", "read", "tokens", "whole", "length", "gate_temperature")
"""What the file says of them besides the tensors."""


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
        origin: how they came here, for people.
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
        """What they are of, in a few words, for people."""
        part = "" if self.whole else f"the first {self.read:,} segments of "
        gate = "" if self.gate_temperature is None else f", gate's T {self.gate_temperature:g}"
        return f"{part}{self.text}, {self.tokens:,} tokens (n = {self.segments:,.1f}){gate}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values: all but the tensors."""
        return {name: getattr(self, name) for name in (*_KEPT, "tensors", "origin")}


def gather_statistics(
    model: NextWordModel,
    corpus: Corpus,
    *,
    kind: BatchingKind,
    predict_first: bool = True,
    length: int = LENGTH,
    segments: int | None = None,
    report: Report = quiet,
) -> DynamicStatistics:
    """Gather the statistics of a model, in its own precision.

    Args:
        model: with its trained weights; left in the mode it was in.
        corpus: that it was trained on.
        kind: when state is reset, as in training.
        predict_first: sentences are opened by <eos>, as in training.
        length: steps of a segment.
        segments: read the first of the text alone, so many (each of 100 streams); None: all.
        report: told of progress.

    Raises:
        InputError: the corpus has no training part, or fewer than 1 segment is asked for.
        RunError: all gradients are zero, or some are no numbers.
    """
    require(segments is None or segments >= 1, "dynamic.statistics", segments, "at least 1 segment")
    require_training_part(corpus)
    batcher = make_batcher(
        kind,
        corpus.splits[PART],
        corpus.vocabulary.eos_id,
        batch_size=STREAMS,
        length=length,
        whole=False,
        sentences=SentenceRules(opened=predict_first),
    )
    weights = learning_weights(model)
    sums = [torch.zeros_like(weight) for weight in weights.values()]
    expected = batcher.targets if segments is None else min(batcher.targets, segments * STREAMS * length)
    read, tokens, full = 0, 0, 0.0
    for lesson in lessons(model, batcher.segments(), length):
        torch._foreach_addcmul_(sums, lesson.gradients, lesson.gradients)
        read, tokens, full = read + 1, tokens + lesson.tokens, full + lesson.share
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
    """Return the temperature at which a span buffer's gate is evaluated; None: the model has none."""
    memory = getattr(model, "memory", None)
    return memory.config.gate.evaluation_temperature if isinstance(memory, SpanBufferMemory) else None


def statistics_name(gate: float | None = None) -> str:
    """Name the file in a run's folder: one for the run as it is, and one for each other temperature of its gate."""
    return DYNAMIC if gate is None else f"dynamic-gate-{gate!r}.safetensors"


def require_training_part(corpus: Corpus) -> None:
    """Refuse a corpus on which no statistics can be gathered.

    Raises:
        InputError: it has no training part.
    """
    if PART not in corpus.splits:
        raise InputError(
            f"dynamic evaluation without statistics: they are gathered on the text of the training, and {corpus.name} "
            f"has no {PART} part. Name the folder that has it, or put this model's statistics into the run's folder."
        )


def text_digest(corpus: Corpus) -> str:
    """Identify a training text: its words, every id and where documents begin."""
    tokens = corpus.splits[PART]
    digest = hashlib.sha256(corpus.vocabulary.hash.encode())
    digest.update(np.ascontiguousarray(tokens.ids).data)
    digest.update(tokens.documents.tobytes())
    return digest.hexdigest()


def save_statistics(path: Path, statistics: DynamicStatistics, weights: str, text: str) -> None:
    """Write statistics, marked with the SHA-256 of the weights and of the text they are of, and with their own.

    Raises:
        OSError: the disk refused; the file before is intact.
    """
    tensors = _on_cpu(statistics.root_mean_squares)
    marks = {"format": 1, "weights": weights, "training_text": text, "statistics": statistics.digest}
    kept = {name: getattr(statistics, name) for name in _KEPT}
    # one key: the format writes several in no fixed order, and equal statistics should give equal files
    replace_file(path, save(tensors, {"spanlm": json.dumps({**marks, **kept})}))


def read_statistics(
    path: Path, model: NextWordModel, weights: str, text: str | None, length: int, segments: int | None
) -> DynamicStatistics:
    """Read statistics that belong to a model and its text.

    Args:
        path: of the file.
        model: gives the names, the shapes and the device.
        weights: SHA-256 of the model's weights.
        text: SHA-256 of its training text; None: not known here.
        length: steps of a segment.
        segments: how many are enough; None: all of the text must have been read.

    Raises:
        FileNotFoundError: there is none.
        InputError: it is damaged, or not what is asked for; says why.
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
    for wrong, why in (
        (damaged, "damaged: it does not have its SHA-256"),
        (of_weights != weights, "is of other weights"),
        (text not in (None, of_text), "is of another training text"),
        (found.gate_temperature != gate_temperature(model), _other_gate(found, model)),
        (found.length != length, f"is of segments of {found.length} steps, not {length}"),
        ({name: x.shape for name, x in tensors.items()} != shapes, "does not fit the model"),
        (not enough, f"is of fewer segments (the first {found.read:,})"),
    ):
        if wrong:
            raise InputError(f"{path}: {why}")
    return found


def _other_gate(found: DynamicStatistics, model: NextWordModel) -> str:
    return f"is of temperature {found.gate_temperature} of a gate, not {gate_temperature(model)}"


def _on_cpu(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: x.detach().cpu().contiguous() for name, x in tensors.items()}


def _digest(tensors: dict[str, Tensor]) -> str:
    return hashlib.sha256(save(dict(sorted(tensors.items())))).hexdigest()
