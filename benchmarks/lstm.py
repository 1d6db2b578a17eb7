"""LSTMs: beside a textbook's, and with a key-value memory, an attentive memory and a neural cache beside without."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from unittest.mock import patch

import torch
from torch import Tensor, nn

from benchmarks.race import Aim, Contender
from benchmarks.setting import (
    VOCABULARY,
    Plain,
    Size,
    States,
    Step,
    of_preset,
    own_trainer,
    plain_step,
    raced,
    random_segments,
    training_flops,
    ways,
)
from spanlm.data.batching import Segment
from spanlm.models.encoders import LSTMConfig, stacks
from spanlm.models.heads import SoftmaxConfig
from spanlm.models.interfaces import Memory, Readout, Tensors
from spanlm.models.language_model import LanguageModel, ModelConfig
from spanlm.models.memories import AnyMemoryConfig, AttentiveConfig, NoMemoryConfig
from spanlm.options import Precision
from spanlm.scoring.cache import NeuralCache
from spanlm.scoring.options import CacheConfig
from spanlm.scoring.protocol import Protocol
from spanlm.scoring.stream import log_p, read
from spanlm.scoring.tally import tallies, tally
from spanlm.training.trainer import Trainer

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
DROPPED_650 = replace(
    LSTM_650,
    name="LSTM 2×650 tied, dropout 0.5",
    model=replace(
        LSTM_650.model,
        input_dropout=0.5,
        output_dropout=0.5,
        encoder=LSTMConfig(hidden_size=650, layers=2, dropout=0.5),
    ),
)
ONE_STREAM_650 = replace(LSTM_650, name="LSTM 2×650 tied, one stream", batch_size=1, length=256)
SENTENCES_650 = replace(LSTM_650, name="LSTM 2×650 tied, sentences of 35 words", batch_size=32)
WORDS_300 = replace(
    ONE_STREAM_650,
    name="LSTM 300 tied, word by word",
    model=replace(LSTM_650.model, embedding_size=300, encoder=LSTMConfig()),
    length=100,
)
WORDS_650 = replace(ONE_STREAM_650, name="LSTM 2×650 tied, word by word", length=20)
KVP_834 = of_preset("daniluk2017/kvp-w5", "Key-Value-Predict 834, window 5", batch_size=64, length=20)
CACHE = CacheConfig(window=2_000, theta=0.3, lambda_=0.1)


class Textbook(Plain):
    """embedding, nn.LSTM, linear, cross-entropy, as every tutorial writes them, with dropout between all of them."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        model = size.model
        assert isinstance(model.encoder, LSTMConfig)
        self.embedding = nn.Embedding(size.vocabulary_size, model.embedding_size)
        encoder = model.encoder
        self.lstm = nn.LSTM(model.embedding_size, encoder.hidden_size, encoder.layers, dropout=encoder.dropout)
        self.below, self.above = nn.Dropout(model.input_dropout), nn.Dropout(model.output_dropout)
        self.decoder = nn.Linear(model.encoder.hidden_size, size.vocabulary_size)
        if model.head.tied:
            self.decoder.weight = self.embedding.weight

    def forward(self, inputs: Tensor, states: States) -> tuple[Tensor, States]:
        """Return logits (T, B, V) and the state after."""
        output, state = self.lstm(self.below(self.embedding(inputs)), states[0])
        return self.decoder(self.above(output)), [state]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean of −log p(target)."""
        return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    def zeros(self, batch_size: int) -> States:
        """States at the start of streams."""
        zero = self.embedding.weight.new_zeros(self.lstm.num_layers, batch_size, self.lstm.hidden_size)
        return [(zero, zero)]


def textbook_group(size: Size, device: torch.device) -> Iterator[Contender]:
    """The textbook's training step against the library's, then the library's evaluation."""
    flops, targets = training_flops(size), {"fp32": 1.0, "bf16": 1.8}
    for precision in raced(device):
        step = plain_step(Textbook(size), size, precision, device)
        yield Contender(f"textbook, training {precision}", precision, step, flops)
    for precision in raced(device):
        for ending, graph in ways(device).items():
            trainer = own_trainer(size, precision, device, graph=graph)
            yield beside_port("textbook", precision, trainer, flops, targets[precision], ending)
        yield _evaluation(trainer, precision, flops)


def beside_port(
    port: str, precision: Precision, trainer: Trainer, flops: float, target: float, ending: str = ""
) -> Contender:
    """Compare training with a port's in fp32, and in bf16 also with the same in bf16: bf16 alone gains much."""
    aims = [Aim(f"{port}, training fp32", target)]
    if precision == "bf16":
        aims.append(Aim(f"{port}, training bf16"))
    return Contender(f"spanlm, training {precision}{ending}", precision, trainer.step, flops, aims)


def _evaluation(trainer: Trainer, precision: Precision, flops: float) -> Contender:
    def step(segment: Segment) -> None:
        segments = [replace(segment, reset=torch.ones_like(segment.reset))]
        tally(read(trainer.model, segments, Protocol(precision=precision)), trainer.corpus.vocabulary)

    aims = [Aim(f"spanlm, training {precision}", 2.5)]
    return Contender(f"spanlm, evaluation {precision}", precision, step, flops / 3, aims)


def words_group(size: Size, device: torch.device) -> Iterator[Contender]:
    """A text read word by word without gradients, as when it is drawn: by the library's LSTM cell, by its kernel."""
    flops, model = training_flops(size) / 3, LanguageModel(size.model, size.vocabulary_size).to(device).eval()

    def by(cell: bool) -> Step:
        @torch.no_grad()
        def step(segment: Segment) -> None:
            state = model.init_state(size.batch_size)
            with nullcontext() if cell else patch.object(stacks, "one_step_of_few", lambda x: False):
                for words in torch.split(segment.inputs.to(device), 1):
                    readout, state = model(words, state)
                    model.head.log_probs(readout)

        return step

    yield Contender("by the kernel, fp32", "fp32", by(cell=False), flops)
    yield Contender("by the cell, fp32", "fp32", by(cell=True), flops, [Aim("by the kernel, fp32", 1.0)])


class SplitOnly(Memory):
    """Looks back at nothing, and gives the head the part of h that a memory which splits h would."""

    def __init__(self, readout_size: int) -> None:
        super().__init__()
        self.readout_size = readout_size

    def init_state(self, batch_size: int) -> Tensors:
        """Nothing."""
        return {}

    def forward(self, h: Tensor, tokens: Tensor, state: Tensors) -> tuple[Readout, Tensors]:
        """Pass on the last part of h."""
        return Readout(h[..., -self.readout_size :]), {}


def memory_group(size: Size, device: torch.device) -> Iterator[Contender]:
    """The model with its memory against the same encoder and softmax without."""
    flops = training_flops(size)
    for precision in raced(device):
        reference = f"same encoder and softmax, no memory, training {precision}"
        plain = own_trainer(size, precision, device)
        plain.model.memory = SplitOnly(plain.model.memory.readout_size)
        plain.initial = plain.state = plain.model.init_state(size.batch_size)
        yield Contender(reference, precision, plain.step, training_flops(size, without="memory"))
        for ending, graph in ways(device).items():
            trainer = own_trainer(size, precision, device, graph=graph)
            name = f"spanlm, training {precision}{ending}"
            yield Contender(name, precision, trainer.step, flops, [Aim(reference, 0.85)])
        yield _evaluation(trainer, precision, flops)


def attentive_group(size: Size, device: torch.device) -> Iterator[Contender]:
    """The attentive memory, single and combined, against the same model without it; every stream is a sentence."""
    memories: list[tuple[str, AnyMemoryConfig, float | None]] = [
        ("no memory", NoMemoryConfig(), None),
        ("attentive, single", AttentiveConfig(score="single"), 0.91),
        ("attentive, combined", AttentiveConfig(score="combined"), 0.80),
    ]
    for precision in raced(device):
        for name, memory, target in memories:
            chosen = replace(size, model=replace(size.model, memory=memory))
            step = _on_sentences(own_trainer(chosen, precision, device, kind="sentences"))
            aims = [] if target is None else [Aim(f"no memory, training {precision}", target)]
            yield Contender(f"{name}, training {precision}", precision, step, training_flops(chosen), aims)


def _on_sentences(trainer: Trainer) -> Step:
    return lambda segment: trainer.step(replace(segment, reset=torch.ones_like(segment.reset)))


def cache_group(size: Size, device: torch.device) -> Iterator[Contender]:
    """The evaluation with a neural cache that is full against the one without."""
    flops, lookup = training_flops(size) / 3, 2.0 * size.model.encoder.output_size * CACHE.window
    for precision in raced(device):
        model = own_trainer(size, precision, device).model
        reference, target = f"spanlm, evaluation {precision}", 1 / 1.3 if precision == "fp32" else None
        yield Contender(reference, precision, stream_step(model, precision), flops)
        cached = stream_step(model, precision, CACHE)
        for segment in random_segments(size, -(-CACHE.window // size.length)):
            cached(segment)
        name = f"with a cache of {CACHE.window:,} words, {precision}"
        yield Contender(name, precision, cached, flops + lookup, [Aim(reference, target)])


def stream_step(model: LanguageModel, precision: Precision, cache: CacheConfig | None = None) -> Step:
    """Return the evaluation of a stream's next segment: without a cache or, in the same pass, with one, too."""
    coming = deque[Segment]()
    questions = [log_p] if cache is None else [log_p, NeuralCache(cache, across=False)]
    scored = read(model, iter(coming.popleft, None), Protocol(precision=precision), *questions)

    def step(segment: Segment) -> None:
        coming.append(replace(segment, reset=torch.zeros_like(segment.reset)))
        tallies([next(scored)], VOCABULARY, ["log_p", "cached"][: len(questions)])

    return step
