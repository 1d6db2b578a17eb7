"""The gradient of a segment: with penalties of activations, and a group of streams at a time."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from spanlm.data.corpora import Corpus
from spanlm.models.heads import MixtureOfSoftmaxesConfig
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import KeyValueConfig, NoMemoryConfig, SpanBufferConfig
from spanlm.models.memories.span_buffer import GateConfig, RewardConfig
from spanlm.training.step import activation, backward, neighbours, temporal_activation
from spanlm.training.trainer import Trainer
from tests.cases import rest_slow
from tests.training.small import SGD, Heard, make_config, with_batching, with_model, with_training


def gradients_of(
    model: LanguageModel, trainer: Trainer, group_size: int | None, segment_number: int, **fields: float
) -> tuple[dict[str, Tensor], float, dict[str, Tensor]]:
    """Gradients of one segment in float64, its NLL, and the state after it, of steps that came before as one batch."""
    training = with_batching(with_training(trainer.config, **fields), group_size=group_size).training
    state = model.init_state(training.batching.batch_size)
    initial = state
    for number, segment in enumerate(trainer.batcher.segments()):
        state = state.reset(segment.reset, initial)
        if number == segment_number:
            break
        state = model(segment.inputs, state)[1].detach()
    model.zero_grad()
    passed = backward(model, segment, state, training)
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return gradients, float(passed.nll), passed.state.flat()


@pytest.mark.parametrize("loss", ["mean", "time-sum"])
@pytest.mark.parametrize("kind", rest_slow(["streams", "documents", "sentences"], always=2))
@pytest.mark.parametrize("group_size", [1, 2, 4])
def test_groups_of_streams_add_up_to_the_batch(
    corpus: Corpus, room: Path, kind: str, group_size: int, loss: str
) -> None:
    """Gradients, loss and state, with padding, resets, penalties of activations and of weights; without dropout."""
    config = make_config(KeyValueConfig(window=3), kind=kind, shuffle=False, dropout=0.0, batch_size=4, loss=loss)
    head = replace(config.model.head, projection=True, projection_penalty=0.3)
    trainer = Trainer(with_model(config, head=head), corpus, room, Heard())
    assert_groups_add_up(trainer, group_size, activation_penalty=2.0, temporal_penalty=3.0)
    assert not segments_full(trainer) or kind == "streams"


@pytest.mark.parametrize("group_size", [1, 2, 4])
def test_so_they_do_with_a_span_buffer_under_a_mixture(corpus: Corpus, room: Path, group_size: int) -> None:
    """Its state, the rewards and the margins, too."""
    gate, reward = GateConfig(training_temperature=2.0), RewardConfig(weight=0.5)
    memory = SpanBufferConfig(buffer_size=6, span_length=2, dropout=0.0, gate=gate, reward=reward)
    head = MixtureOfSoftmaxesConfig(experts=3, latent_dropout=0.0, adversarial=0.1)
    config = make_config(memory, kind="streams", shuffle=False, dropout=0.0, batch_size=4, optimizer=SGD)
    penalties = {"activation_penalty": 2.0, "temporal_penalty": 3.0}
    config = with_training(with_model(config, head=head), **penalties)
    trainer = Trainer(config, corpus, room, Heard())
    assert trainer.segments > 2
    assert_groups_add_up(trainer, group_size, **penalties)


def assert_groups_add_up(trainer: Trainer, group_size: int, **penalties: float) -> None:
    model = trainer.model.double().train()
    for number in (1, trainer.segments - 1):
        one, nll, state = gradients_of(model, trainer, None, number, **penalties)
        several, nll_too, state_too = gradients_of(model, trainer, group_size, number, **penalties)
        assert one.keys() == several.keys() and state.keys() == state_too.keys()
        assert nll_too == pytest.approx(nll, rel=1e-12)
        for name in one:
            torch.testing.assert_close(several[name], one[name], rtol=1e-10, atol=1e-13, msg=name)
        for name in state:
            torch.testing.assert_close(state_too[name], state[name], rtol=1e-12, atol=1e-14, msg=name)


def segments_full(trainer: Trainer) -> bool:
    return all(bool(segment.mask.all()) for segment in trainer.batcher.segments())


def test_each_group_draws_its_own_masks(corpus: Corpus, room: Path) -> None:
    """A group of one stream has a word-dropout mask of its own, which one forward pass shares between streams."""
    config = make_config(NoMemoryConfig(), kind="streams", shuffle=False, dropout=0.0, batch_size=2)
    config = with_model(config, embedding_dropout=0.5, shared_words=True)
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
