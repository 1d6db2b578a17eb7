"""What is measured: the project's own training step and evaluation, and the textbook's, on the same tokens."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import tee
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from spanlm.config import RunConfig
from spanlm.data.batching import Segment
from spanlm.data.config import BatchingKind
from spanlm.data.corpora import Corpus
from spanlm.data.tokens import TokenFile
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.evaluation.cache import CacheConfig, with_cache
from spanlm.evaluation.protocol import Precision, Protocol
from spanlm.evaluation.scoring import Scored, Tally, score, tally
from spanlm.models.config import ModelConfig
from spanlm.models.encoders import LSTMConfig
from spanlm.models.heads import SoftmaxConfig
from spanlm.models.interfaces import Memory, Readout
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import AnyMemoryConfig, KeyValueConfig, NoMemoryConfig
from spanlm.models.state import Tensors
from spanlm.training.config import BatchingConfig, OptimizerConfig, TrainingConfig
from spanlm.training.events import Watcher
from spanlm.training.trainer import Trainer

CLIP = 5.0
CACHE = CacheConfig(window=2_000, theta=0.3, lambda_=0.1)


@dataclass(frozen=True)
class Size:
    """A model and a batch to measure.

    Attributes:
        name: in the report.
        model: its rooms.
        vocabulary_size: V.
        batch_size: B.
        length: T.
    """

    name: str
    model: ModelConfig
    vocabulary_size: int
    batch_size: int
    length: int

    @property
    def tokens(self) -> int:
        """Tokens of one step."""
        return self.batch_size * self.length


LSTM_650 = Size(
    "LSTM 2×650 tied",
    ModelConfig(
        embedding_size=650,
        init_range=0.05,
        encoder=LSTMConfig(hidden_size=650, layers=2),
        memory=NoMemoryConfig(),
        head=SoftmaxConfig(tied=True),
    ),
    vocabulary_size=10_000,
    batch_size=20,
    length=35,
)
ONE_STREAM_650 = replace(LSTM_650, name="LSTM 2×650 tied, one stream", batch_size=1, length=256)
SENTENCES_650 = replace(LSTM_650, name="LSTM 2×650 tied, sentences of 35 words", batch_size=32)
KVP_834 = Size(
    "Key-Value-Predict 834, window 5",
    ModelConfig(encoder=LSTMConfig(hidden_size=834), memory=KeyValueConfig(roles=3, window=5)),
    vocabulary_size=10_000,
    batch_size=64,
    length=20,
)


def synthetic_corpus(size: Size, steps: int) -> Corpus:
    """Make random tokens, Zipf-distributed as words are: speed must not depend on a download."""
    words = [EOS, UNK, *(f"w{i}" for i in range(size.vocabulary_size - 2))]
    vocabulary = Vocabulary.from_counts(dict.fromkeys(words, 1))
    ranks = np.arange(1, size.vocabulary_size + 1)
    generator = np.random.default_rng(1)
    ids = generator.choice(size.vocabulary_size, size.tokens * steps, p=(1 / ranks) / (1 / ranks).sum())
    ids[-1] = vocabulary.eos_id
    tokens = TokenFile(ids.astype(np.int32), np.zeros(1, dtype=np.int64))
    splits = {"train": tokens, "valid": tokens, "test": tokens}
    return Corpus(
        name="random",
        vocabulary=vocabulary,
        splits=splits,
        notes=[],
        oov=dict.fromkeys(splits, 0),
        tokenizer="whitespace",
    )


def with_memory(size: Size, memory: AnyMemoryConfig) -> Size:
    """Return the same size with another memory."""
    return replace(size, model=replace(size.model, memory=memory))


def project_trainer(
    size: Size, precision: Precision, device: str, corpus: Corpus, kind: BatchingKind = "streams"
) -> Trainer:
    """Make the trainer whose step is measured: SGD, as the textbook's."""
    training = training_of(size, precision, device, kind)
    return idle_trainer(RunConfig(model=size.model, training=training), corpus)


def training_of(size: Size, precision: Precision, device: str, kind: BatchingKind = "streams") -> TrainingConfig:
    """Return how the measured trainers train: what a step takes and nothing besides."""
    return TrainingConfig(
        optimizer=OptimizerConfig(kind="sgd", lr=1e-3, clip=CLIP),
        batching=BatchingConfig(kind=kind, batch_size=size.batch_size, length=size.length),
        precision=precision,
        device=device,
        log_every=2**31,
    )


def idle_trainer(config: RunConfig, corpus: Corpus) -> Trainer:
    """Make a trainer whose folder holds nothing, which writes nothing and tells nobody."""
    with tempfile.TemporaryDirectory() as folder:
        return Trainer(config, corpus, Path(folder), Watcher())


class SplitOnly(Memory):
    """The plain LSTM with the softmax width of a memory that splits: hands on one part, looks back at nothing."""

    def __init__(self, readout_size: int) -> None:
        super().__init__()
        self.readout_size = readout_size

    def init_state(self, batch_size: int) -> Tensors:
        """Nothing."""
        return {}

    def forward(self, h: Tensor, tokens: Tensor, state: Tensors) -> tuple[Readout, Tensors]:
        """Hand on the last part of h."""
        return Readout(h[..., -self.readout_size :]), {}


def without_memory(trainer: Trainer) -> Trainer:
    """Take the memory out of a trainer's model and leave encoder and softmax as they are."""
    trainer.model.memory = SplitOnly(trainer.model.memory.readout_size)
    trainer.initial = trainer.state = trainer.model.init_state(trainer.config.training.batching.batch_size)
    return trainer


class Textbook(nn.Module):
    """embedding, nn.LSTM, linear, as every tutorial writes them."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        model = size.model
        assert isinstance(model.encoder, LSTMConfig)
        self.embedding = nn.Embedding(size.vocabulary_size, model.embedding_size)
        self.lstm = nn.LSTM(model.embedding_size, model.encoder.hidden_size, model.encoder.layers)
        self.decoder = nn.Linear(model.encoder.hidden_size, size.vocabulary_size)
        if model.head.tied:
            self.decoder.weight = self.embedding.weight

    def forward(self, tokens: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Logits (T, B, V) and the state after."""
        output, state = self.lstm(self.embedding(tokens), state)
        return self.decoder(output), state


def textbook_step(size: Size, precision: Precision, device: torch.device) -> Callable[[Segment], None]:
    """Return the tutorial's training step: forward, cross-entropy, backward, clip, SGD, loss as a number."""
    model = Textbook(size).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    state = (torch.zeros(model.lstm.num_layers, size.batch_size, model.lstm.hidden_size, device=device),) * 2

    def step(segment: Segment) -> None:
        nonlocal state
        inputs, targets = segment.inputs.to(device), segment.targets.to(device)
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
            logits, after = model(inputs, state)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        state = (after[0].detach(), after[1].detach())
        loss.item()

    return step


def sentence_step(trainer: Trainer) -> Callable[[Segment], None]:
    """Return a trainer's step on segments in which every stream is a sentence of its own."""
    return lambda segment: trainer.step(replace(segment, reset=torch.ones_like(segment.reset)))


def evaluation_step(model: LanguageModel, precision: Precision) -> Callable[[Segment], None]:
    """Return the project's evaluation of one segment."""

    def step(segment: Segment) -> None:
        segments = [replace(segment, reset=torch.ones_like(segment.reset))]
        tally(score(model, segments, Protocol(precision=precision)), -1)

    return step


def stream_step(model: LanguageModel, precision: Precision, cache: CacheConfig | None) -> Callable[[Segment], None]:
    """Return the evaluation of a stream's next segment: without a cache, or, in the same pass, with one, too."""
    coming: deque[Segment] = deque()
    scored = score(model, iter(coming.popleft, None), Protocol(precision=precision))
    mixed: Iterator[Scored] | None = None
    if cache is not None:
        scored, again = tee(scored)
        mixed = with_cache(again, cache)

    def step(segment: Segment) -> None:
        coming.append(replace(segment, reset=torch.zeros_like(segment.reset)))
        Tally().plus(next(scored), -1)
        if mixed is not None:
            Tally().plus(next(mixed), -1)

    return step


def cache_flops(size: Size, cache: CacheConfig) -> float:
    """Floating-point operations of one token's lookup; two a multiply-add."""
    return 2.0 * size.model.encoder.output_size * cache.window


def training_flops(size: Size, memory: bool = True) -> float:
    """Floating-point operations of the matrix products of one token, forward and backward; two a multiply-add."""
    with torch.device("meta"):
        model = LanguageModel(size.model, size.vocabulary_size)
    if not memory:
        model.memory = SplitOnly(model.memory.readout_size)
    weights = sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2 and "embedding" not in name)
    if size.model.head.tied:
        weights += model.embedding.weight.numel()
    return 6.0 * weights
