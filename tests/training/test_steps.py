"""A step and a whole run against a second implementation; the gradient in groups of streams; penalties."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from spanlm.config import RunConfig
from spanlm.data.batching import Segment, make_batcher
from spanlm.data.corpora import Corpus
from spanlm.models.heads import MixtureOfSoftmaxesConfig, SoftmaxConfig
from spanlm.models.interfaces import Readout
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import KeyValueConfig, NGramConfig, NoMemoryConfig, PointerSentinelConfig, SpanBufferConfig
from spanlm.models.memories.span_buffer import GateConfig, RewardConfig
from spanlm.training.config import OptimizerConfig
from spanlm.training.run import train
from spanlm.training.step import activation, backward, neighbours, temporal_activation
from spanlm.training.trainer import Trainer
from tests.cases import rest_slow
from tests.training.small import RUNS, SGD, Heard, make_config, rows, with_batching, with_training

PLAIN = OptimizerConfig(kind="sgd", lr=0.5, clip=None)


@pytest.mark.parametrize("name", RUNS)
def test_what_is_frozen_stays(corpus: Corpus, room: Path, name: str) -> None:
    config = RUNS[name]()
    optimizer = replace(config.training.optimizer, weight_decay=0.1)
    trainer = Trainer(with_training(config, optimizer=optimizer, log_every=1000), corpus, room, Heard())
    before = {n: parameter.detach().clone() for n, parameter in trainer.model.named_parameters()}
    segments = trainer.batcher.segments()
    for _ in range(5):
        trainer.step(next(segments))
    frozen = {n for n, parameter in trainer.model.named_parameters() if not parameter.requires_grad}
    assert all("bias_hh" in n for n in frozen)
    assert bool(frozen) == (config.model.encoder.kind in ("lstm", "rnn", "variational_lstm", "lstm_blocks"))
    for n, weight in trainer.model.named_parameters():
        assert torch.equal(weight, before[n]) == (n in frozen)
        assert n not in frozen or not weight.any()


def alone(readout: Readout, segment: Segment) -> Tensor:
    """What a pointer sentinel adds to the sum of losses: −log(g + Σ a_i over the slots of the next word)."""
    pointer = readout.mixture
    if pointer is None:
        return torch.zeros(())
    found = (pointer.log_weights.exp() * (pointer.words == segment.targets[..., None])).sum(-1)
    return -(pointer.log_gate.exp() + found).log()[segment.mask].sum()


def trained_by_hand(config: RunConfig, corpus: Corpus) -> tuple[list[float], list[float], LanguageModel]:
    """Losses of every step and of every validation, and the model: plain loops, SGD written out, no dropout."""
    training, batching = config.training, config.training.batching
    torch.manual_seed(training.seed)
    model = LanguageModel(config.model, len(corpus.vocabulary))
    kind: Any = batching.kind

    def losses(split: str, streams: int, order: int, learn: bool) -> list[tuple[float, int]]:
        cut: dict[str, Any] = {"length": batching.length, "shuffle": batching.shuffle, "whole": not learn}
        batcher = make_batcher(kind, corpus.splits[split], 0, batch_size=streams, **cut)
        state, found = model.init_state(streams), []
        for segment in batcher.segments(order):
            state = state.detach().reset(segment.reset, model.init_state(streams))
            readout, state = model(segment.inputs, state)
            log_p = model.head.log_probs(readout).gather(-1, segment.targets[..., None]).squeeze(-1)
            nll = -log_p[segment.mask].sum()
            found.append((nll.item(), int(segment.mask.sum())))
            if learn:
                parameters = [p for p in model.parameters() if p.requires_grad]
                gradients = torch.autograd.grad((nll + alone(readout, segment)) / segment.mask.sum(), parameters)
                with torch.no_grad():
                    for parameter, gradient in zip(parameters, gradients, strict=True):
                        parameter -= training.optimizer.lr * gradient
        return found

    steps, valid = [], []
    for epoch in range(training.epochs):
        found = losses("train", batching.batch_size, training.seed * 1_000_003 + epoch, learn=True)
        steps += [nll / tokens for nll, tokens in found]
        found = losses("valid", batching.eval_batch_size, 0, learn=False)
        valid.append(sum(nll for nll, _ in found) / sum(tokens for _, tokens in found))
    return steps, valid, model


@pytest.mark.parametrize("kind", ["streams", "documents", "sentences"])
@pytest.mark.parametrize(
    "memory", rest_slow([KeyValueConfig(window=9), NoMemoryConfig(), NGramConfig(order=3), PointerSentinelConfig()])
)
def test_a_run_is_what_plain_loops_do(corpus: Corpus, room: Path, kind: str, memory: Any) -> None:
    config = make_config(memory, optimizer=PLAIN, dropout=0.0, kind=kind, shuffle=kind != "streams", log_every=1)
    watcher = Heard()
    train(config, corpus, room, watcher)
    steps, valid, model = trained_by_hand(config, corpus)
    assert [row["loss"] for row in rows(room) if row["event"] == "train"] == pytest.approx(steps, rel=1e-5)
    assert [row["loss"] for row in rows(room) if row["event"] == "valid"] == pytest.approx(valid, rel=1e-5)
    assert len(watcher.steps) == len(steps)
    assert sum(event.tokens for event in watcher.steps) == 2 * len(corpus.splits["train"])
    last = Trainer(config, corpus, room, Heard())
    last.restore()
    for (name, weight), other in zip(last.model.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(weight, other, rtol=1e-3, atol=1e-5, msg=name)


def test_rows_hold_the_mean_since_the_row_before(corpus: Corpus, room: Path) -> None:
    each, some = room / "each", room / "some"
    watcher = Heard()
    train(make_config(log_every=1), corpus, each, watcher)
    train(make_config(log_every=3), corpus, some)
    tokens = {number: event.tokens for number, event in enumerate(watcher.steps, start=1)}
    single = {row["step"]: row for row in rows(each) if row["event"] == "train"}
    for row in (row for row in rows(some) if row["event"] == "train"):
        step = row["step"]
        since = [n for n in range(step - 2, step + 1) if single[n]["epoch"] == row["epoch"]]
        nll = sum(single[n]["loss"] * tokens[n] for n in since)
        assert row["loss"] == pytest.approx(nll / sum(tokens[n] for n in since), rel=1e-9)
        assert row["gradient_norm"] == single[step]["gradient_norm"]
        assert row["perplexity"] == pytest.approx(math.exp(row["loss"]))
    first = next(row for row in rows(each) if row["event"] == "valid")
    total = sum(single[n]["loss"] * tokens[n] for n in single if single[n]["epoch"] == 1)
    whole = len(corpus.splits["train"])
    assert first["train_loss"] == pytest.approx(total / whole, rel=1e-9)
    assert [row["tokens"] / whole for row in rows(each) if row["event"] == "valid"] == [1, 2]


def gradients_of(
    trainer: Trainer, group_size: int | None, segment_number: int
) -> tuple[dict[str, Tensor], float, dict[str, Tensor]]:
    """Gradients of one segment in float64, its NLL, and the state after it, of steps that came before as one batch."""
    training, model = with_batching(trainer.config, group_size=group_size).training, trainer.model
    state = initial = model.init_state(training.batching.batch_size)
    for number, segment in enumerate(trainer.batcher.segments()):
        state = state.reset(segment.reset, initial)
        if number == segment_number:
            break
        state = model(segment.inputs, state)[1].detach()
    model.zero_grad()
    passed = backward(model, segment, state, training)
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return gradients, float(passed.nll), passed.state.flat()


PROJECTED = SoftmaxConfig(projection=True, projection_penalty=0.3)
PAID = {"gate": GateConfig(training_temperature=2.0), "reward": RewardConfig(weight=0.5)}
MIXTURE = MixtureOfSoftmaxesConfig(experts=3, latent_dropout=0.0, adversarial=0.1)
GROUPED: list[Any] = [
    *(
        (KeyValueConfig(window=3), {"kind": kind, "loss": loss, "head": PROJECTED})
        for kind in ("streams", "documents", "sentences")
        for loss in ("mean", "time-sum")
    ),
    (SpanBufferConfig(buffer_size=6, span_length=2, dropout=0.0, **PAID), {"kind": "streams", "head": MIXTURE}),
]


@pytest.mark.parametrize(("memory", "fields"), GROUPED)
@pytest.mark.parametrize("group_size", rest_slow([2, 4, 1], always=2))
def test_groups_of_streams_add_up_to_the_batch(
    corpus: Corpus, room: Path, memory: Any, fields: dict[str, Any], group_size: int
) -> None:
    """Gradients, loss and state, with padding, resets, penalties, rewards and margins; without dropout."""
    penalties = {"activation_penalty": 2.0, "temporal_penalty": 3.0}
    config = make_config(memory, shuffle=False, dropout=0.0, batch_size=4, optimizer=SGD, **penalties, **fields)
    trainer = Trainer(config, corpus, room, Heard())
    assert fields["kind"] == "streams" or not all(s.mask.all() for s in trainer.batcher.segments())
    trainer.model.double().train()
    for number in (1, trainer.segments - 1):
        one, nll, state = gradients_of(trainer, None, number)
        several, nll_too, state_too = gradients_of(trainer, group_size, number)
        assert one.keys() == several.keys() and state.keys() == state_too.keys()
        assert nll_too == pytest.approx(nll, rel=1e-12)
        for name in one:
            torch.testing.assert_close(several[name], one[name], rtol=1e-10, atol=1e-13, msg=name)
        for name in state:
            torch.testing.assert_close(state_too[name], state[name], rtol=1e-12, atol=1e-14, msg=name)


def test_each_group_draws_its_own_masks(corpus: Corpus, room: Path) -> None:
    """A group of one stream has a word-dropout mask of its own, which one forward pass shares between streams."""
    words = {"embedding_dropout": 0.5, "shared_words": True}
    config = make_config(NoMemoryConfig(), kind="streams", shuffle=False, dropout=0.0, batch_size=2, **words)
    trainer = Trainer(config, corpus, room, Heard())
    model, segment = trainer.model.train(), next(trainer.batcher.segments())
    twice = replace(segment, inputs=segment.inputs[:, :1].repeat(1, 2), targets=segment.targets[:, :1].repeat(1, 2))
    found = []
    for size in (None, 1):
        torch.manual_seed(3)
        training = with_batching(config, group_size=size).training
        state = backward(model, twice, trainer.initial, training).state.encoder["h"]
        found.append(torch.equal(state[:, 0], state[:, 1]))
    assert found == [True, False]


T, B, D = 4, 3, 5
WHOLE = torch.ones(T, B, dtype=torch.bool)
RAGGED = torch.tensor([[1, 1, 0], [1, 1, 0], [0, 0, 0], [1, 0, 0]], dtype=torch.bool)
"""Streams of 4, 2 and 0 predicted words, and one with a hole."""


@pytest.mark.parametrize("mask", [WHOLE, RAGGED], ids=["whole", "ragged"])
def test_penalties_are_sums_over_places_of_means(mask: Tensor) -> None:
    """Against loops over single numbers; padding is never read, and of one step there is no change."""
    x = torch.randn(T, B, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    places = [(t, b) for t in range(T) for b in range(B) if mask[t, b]]
    pairs = [(t, b) for t, b in places if t + 1 < T and mask[t + 1, b]]
    squares = math.fsum(float(x[t, b, d]) ** 2 / D for t, b in places for d in range(D))
    changes = math.fsum(float(x[t + 1, b, d] - x[t, b, d]) ** 2 / D for t, b in pairs for d in range(D))
    poisoned = torch.where(mask[..., None], x, float("nan"))
    assert float(activation(poisoned, mask)) == pytest.approx(squares, rel=1e-12)
    assert float(temporal_activation(poisoned, mask)) == pytest.approx(changes, rel=1e-12)
    assert int(neighbours(mask).sum()) == len(pairs)
    assert float(temporal_activation(x[:1], mask[:1])) == 0.0
    for function in (activation, temporal_activation):  # narrow numbers are added up wide
        narrow = x.bfloat16()
        assert function(narrow, mask).dtype == torch.float32
        assert float(function(narrow, mask)) == pytest.approx(float(function(narrow.double(), mask)), rel=1e-6)
