"""What is timed: a size, random text, and this library's own training step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from spanlm.config import RunConfig
from spanlm.data.batching import Segment, make_batcher
from spanlm.data.config import BatchingKind
from spanlm.data.corpora import Corpus
from spanlm.data.token_files import TokenFile
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.models.encoders import AWDLSTMConfig, LSTMConfig
from spanlm.models.heads import MixtureOfSoftmaxesConfig
from spanlm.models.language_model import LanguageModel, ModelConfig
from spanlm.models.memories import SpanBufferConfig
from spanlm.models.ops.precision import autocast, products
from spanlm.options import Precision
from spanlm.papers.registry import find_preset
from spanlm.training.bench import idle_trainer, precisions
from spanlm.training.config import BatchingConfig, OptimizerConfig, TrainingConfig
from spanlm.training.trainer import Trainer

CLIP, RATE = 5.0, 1e-3
SEGMENTS = 4

Step = Callable[[Segment], object]
States = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Size:
    """A model and a batch: V words, B streams, T steps."""

    name: str
    model: ModelConfig
    vocabulary_size: int
    batch_size: int
    length: int

    @property
    def tokens(self) -> int:
        """Tokens of one step."""
        return self.batch_size * self.length

    @property
    def title(self) -> str:
        """Name of the group in reports."""
        return f"{self.name}, V {self.vocabulary_size:,}, batch {self.batch_size} × {self.length}"


def of_preset(preset: str, name: str, batch_size: int, length: int) -> Size:
    """Return the model of a preset with the vocabulary of Penn Treebank."""
    return Size(name, find_preset(preset).config.model, 10_000, batch_size, length)


def shrunk(size: Size) -> Size:
    """Return the same model with a few units, 50 words, and a batch of at most four streams: to try a benchmark."""
    model = replace(size.model, embedding_size=6)
    if isinstance(model.encoder, AWDLSTMConfig):
        model = replace(model, encoder=replace(model.encoder, hidden_size=9, last_size=6))
    if isinstance(model.encoder, LSTMConfig):
        model = replace(model, encoder=replace(model.encoder, hidden_size=6))
    if isinstance(model.memory, SpanBufferConfig):
        model = replace(model, memory=replace(model.memory, buffer_size=12, span_length=3))
    if isinstance(model.head, MixtureOfSoftmaxesConfig):
        model = replace(model, head=replace(model.head, experts=3))
    length = 12 if size.batch_size == 1 else 6
    return replace(size, model=model, vocabulary_size=50, batch_size=min(size.batch_size, 4), length=length)


def raced(device: torch.device) -> list[Precision]:
    """Return the precisions in which steps are compared; a textbook's tf32 is a setting of the whole process."""
    return [precision for precision in precisions(device) if precision != "tf32"]


def ways(device: torch.device) -> dict[str, Literal["auto", "off"]]:
    """Return how steps are started: on a GPU also as recorded graphs; the key ends a contender's name."""
    return {"": "off", ", graph": "auto"} if device.type == "cuda" else {"": "off"}


VOCABULARY = Vocabulary((EOS, UNK))
"""For sums that tell these two apart."""


def random_corpus(size: Size) -> Corpus:
    """Make a text of a few segments, Zipf-distributed as words are: speed must not depend on a download."""
    vocabulary = Vocabulary.from_counts(
        dict.fromkeys([EOS, UNK, *(f"w{i}" for i in range(size.vocabulary_size - 2))], 1)
    )
    weights = 1 / np.arange(1, size.vocabulary_size + 1)
    generator = np.random.default_rng(1)
    ids = generator.choice(size.vocabulary_size, size.tokens * SEGMENTS, p=weights / weights.sum())
    ids[-1] = vocabulary.eos_id
    splits = dict.fromkeys(("train", "valid", "test"), TokenFile(ids.astype(np.int32), np.zeros(1, dtype=np.int64)))
    nothing = dict.fromkeys(splits, 0)
    return Corpus(name="random", vocabulary=vocabulary, splits=splits, notes=[], oov=nothing, tokenizer="whitespace")


def random_segments(size: Size, count: int) -> list[Segment]:
    """Return segments of the random text, over and over."""
    corpus = random_corpus(size)
    tokens, eos_id = corpus.splits["train"], corpus.vocabulary.eos_id
    batcher = make_batcher("streams", tokens, eos_id, batch_size=size.batch_size, length=size.length)
    return list(islice(cycle(batcher.segments()), count))


def own_trainer(
    size: Size,
    precision: Precision,
    device: torch.device,
    *,
    kind: BatchingKind = "streams",
    activation_penalty: float = 0.0,
    temporal_penalty: float = 0.0,
    graph: Literal["auto", "off"] = "off",
) -> Trainer:
    """Make the trainer whose step is timed: SGD and clipping, as in the steps beside it."""
    training = TrainingConfig(
        optimizer=OptimizerConfig(kind="sgd", lr=RATE, clip=CLIP),
        batching=BatchingConfig(kind=kind, batch_size=size.batch_size, length=size.length),
        activation_penalty=activation_penalty,
        temporal_penalty=temporal_penalty,
        precision=precision,
        device=str(device),
        graph=graph,
        log_every=2**31,
    )
    return idle_trainer(RunConfig(model=size.model, training=training), random_corpus(size))


class Plain(nn.Module, ABC):
    """A model as a tutorial writes it."""

    @abstractmethod
    def forward(self, inputs: Tensor, states: States) -> tuple[Any, States]:
        """Return what the loss needs, from inputs (T, B) and (h, c) of each LSTM, and the states after."""

    @abstractmethod
    def loss(self, outputs: Any, targets: Tensor) -> Tensor:
        """Return the loss of the outputs for targets (T, B)."""

    @abstractmethod
    def zeros(self, batch_size: int) -> States:
        """Return the states at the start of streams."""


def plain_step(model: Plain, size: Size, precision: Precision, device: torch.device) -> Step:
    """Return a tutorial's training step: forward, loss, backward, clip, SGD, the loss as a number."""
    states = model.to(device).zeros(size.batch_size)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def step(segment: Segment) -> None:
        nonlocal states
        inputs, targets = segment.inputs.to(device), segment.targets.to(device)
        optimizer.zero_grad()
        with products(device, precision):  # float32 is float32 for both
            with autocast(device, precision):
                outputs, after = model(inputs, states)
                loss = model.loss(outputs, targets)
            loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        states = [(h.detach(), c.detach()) for h, c in after]
        loss.item()

    return step


def training_flops(size: Size, *, without: str | None = None) -> float:
    """Return the floating-point operations of the matrix products of one trained token, two a multiply-add.

    Every weight matrix takes part in three products, one forward and two backward; the embedding in none unless tied.

    Args:
        size: of the model.
        without: the part whose weights are left out, such as memory.
    """
    with torch.device("meta"):
        model = LanguageModel(size.model, size.vocabulary_size)
    named = {name: weight for name, weight in model.named_parameters() if weight.dim() == 2}
    kept = [w for name, w in named.items() if name.partition(".")[0] not in ("embedding", without)]
    tied = model.embedding.weight.numel() if size.model.head.tied else 0
    return 6.0 * (tied + sum(weight.numel() for weight in kept))
