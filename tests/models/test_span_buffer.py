"""The span buffer in a model: its dropout, its two predictions and their gate, every head."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from spanlm.models.encoders import LSTMConfig
from spanlm.models.heads import MixtureOfSoftmaxesConfig, SoftmaxConfig
from spanlm.models.heads.softmax import SoftmaxHead
from spanlm.models.interfaces import Init, Readout
from spanlm.models.memories.span_buffer import SpanBufferConfig
from spanlm.models.memories.span_buffer.memory import Reads
from spanlm.models.memories.span_buffer.mixture import LEAST_TEMPERATURE, GateConfig, RewardConfig, SpanMixture, rewards
from tests.models.contract import after_prefix
from tests.models.small import (
    HIDDEN,
    VOCABULARY,
    assert_same,
    bitwise,
    build,
    language_model,
    model_config,
    read,
    values,
    words,
)
from tests.models.test_span_buffer_twin import seen

SMALL = SpanBufferConfig(buffer_size=6, span_length=3, dropout=0.0)


def trained(config: SpanBufferConfig, h: Tensor, steps_before: int = 8) -> Any:
    """What a memory in training says to h after some steps."""
    memory = build(config, HIDDEN, VOCABULARY)
    state = after_prefix(memory, steps_before, batch=h.shape[1])
    torch.manual_seed(1)
    return read(memory.train(), h, state), memory


@pytest.mark.parametrize("reads", get_args(Reads))
def test_one_mask_for_what_asks_gates_predicts_and_is_read(reads: Reads) -> None:
    h, config = values(7, 3, HIDDEN), replace(SMALL, reads=reads)
    (readout, _), memory = trained(replace(config, dropout=0.375), h)
    kept = readout.features != 0
    assert torch.equal(kept, kept[:1].expand_as(kept))
    assert 0.3 < kept[0].double().mean() < 0.9
    assert not torch.equal(kept[0, 0], kept[0, 1])
    mask = kept[:1].double() / 0.625
    assert_same(readout.features, h * mask)
    assert_same(readout.mixture.gate, (h * mask) @ memory.gate.weight.T)
    # the same mask on a memory without dropout: on the query, and on what is read
    plain = build(SMALL, HIDDEN, VOCABULARY)
    plain.load_state_dict({name: x for name, x in memory.state_dict().items() if name in plain.state_dict()})
    state = after_prefix(plain, 8, batch=3)
    for b in range(3):
        with torch.no_grad():
            plain.query.weight.copy_(memory.query.weight * mask[0, b])
        one, _ = read(plain, h[:, b : b + 1], {name: x[:, b : b + 1] for name, x in state.items()})
        dropped = seen(memory, readout.features[:, b : b + 1], one.mixture.features * mask[:, b : b + 1])
        assert_same(readout.mixture.features[:, b : b + 1], dropped)
        assert_same(readout.attention.weights[:, b : b + 1], one.attention.weights)


def test_a_model_drops_nothing_twice_and_hands_on_the_whole_output() -> None:
    config = model_config(LSTMConfig(hidden_size=HIDDEN), replace(SMALL, dropout=0.375), SoftmaxConfig())
    model, tokens = language_model(config).train(), words(9, 8)
    torch.manual_seed(1)
    readout, state = model(tokens, model.init_state(8))
    kept = readout.features != 0
    assert_same(readout.features[kept], readout.hidden[kept] / 0.625)
    assert torch.equal(state.memory["states"], readout.hidden[-6:])
    assert readout.hidden.all()


def test_autocast_does_not_touch_the_gate() -> None:
    """A small temperature of evaluation would make much of what bfloat16 rounds."""
    memory = build(SMALL, HIDDEN, VOCABULARY).float()
    h = values(7, 3, HIDDEN, dtype=torch.float32)
    expected, _ = read(memory, h, memory.init_state(3))
    with torch.autocast("cpu", torch.bfloat16):
        readout, _ = read(memory, h, memory.init_state(3))
    assert torch.equal(readout.mixture.gate, expected.mixture.gate)
    assert not torch.equal(readout.attention.weights, expected.attention.weights)


GATE, REWARD = GateConfig(training_temperature=100.0, evaluation_temperature=0.1), RewardConfig(weight=0.5)
STEPS, BATCH, SIZE = 4, 3, 6
log_probabilities = st.floats(-1e4, 0.0)


def numbers(*x: float) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def mixture(gate: Tensor | None = None, filled: Tensor | None = None, **how: Any) -> SpanMixture:
    gate = values(STEPS, BATCH, 2, seed=2) if gate is None else gate
    filled = torch.ones(STEPS, BATCH, dtype=torch.bool) if filled is None else filled
    return replace(SpanMixture(values(STEPS, BATCH, SIZE, seed=1), gate, filled, GATE, REWARD), **how)


def reading(of: SpanMixture) -> Readout:
    return Readout(values(STEPS, BATCH, SIZE), mixture=of)


def head() -> SoftmaxHead:
    torch.manual_seed(0)
    return SoftmaxConfig().build(SIZE, nn.Embedding(VOCABULARY, 9), Init(0.7, 0.7)).double()


def some_filled() -> Tensor:
    return torch.arange(STEPS)[:, None] >= torch.arange(BATCH)


@given(p=log_probabilities, q=log_probabilities, more=st.floats(0, 100))
def test_rewards_are_bounded_and_grow_with_q(p: float, q: float, more: float) -> None:
    """Above −β b and up to a − b, however far apart the two are; in float32, too."""
    for dtype in (torch.float64, torch.float32):
        one, two = rewards(torch.tensor(p, dtype=dtype), torch.tensor([q, q + more], dtype=dtype)).tolist()
        assert -3 <= one <= two <= 9 + 1e-5
        assert (one > 0) == (q > p) or abs(q - p) < 1e-2


def test_a_closed_gate_is_pushed_no_further_and_can_open() -> None:
    """λ = e^-30: a negative reward says nothing more, and the loss does not fall without end; a positive one does."""
    gate = torch.tensor([-30.0, 0.0]).double().expand(1, 2, 2).clone().requires_grad_()
    loss = mixture(gate, torch.ones(1, 2, dtype=torch.bool)).reward_loss(numbers(-3.0, 9.0)[None])
    (gradient,) = torch.autograd.grad(loss.sum(), gate)
    assert loss[0, 0].item() == pytest.approx(-0.5 * 3 * 20, abs=1e-9)
    assert gradient[0, 0].abs().max() < 1e-9
    assert gradient[0, 1, 0] < -0.5


@pytest.mark.parametrize("config", [SoftmaxConfig(adversarial=0.3), MixtureOfSoftmaxesConfig(adversarial=0.3)])
def test_the_reward_teaches_the_gate_alone(config: Any) -> None:
    torch.manual_seed(1)
    model = config.build(SIZE, nn.Embedding(VOCABULARY, SIZE), Init(0.7, 0.7)).double().train()
    gate = values(STEPS, BATCH, 2, seed=2).requires_grad_()
    extra = model.score(reading(mixture(gate, training=True)), words(STEPS, BATCH)).extra_loss.sum()
    found = torch.autograd.grad(extra, [gate, *model.parameters()], allow_unused=True)
    assert found[0] is not None and found[0].any() and all(gradient is None for gradient in found[1:])


def test_evaluation_adds_no_reward_and_a_reward_without_weight_is_none() -> None:
    targets = words(STEPS, BATCH)
    evaluated, trained = (head().score(reading(mixture(training=t)), targets) for t in (False, True))
    assert evaluated.extra_loss == 0.0
    assert torch.equal(trained.extra_loss, trained.metrics["reward_loss"])
    assert bitwise(trained.metrics["encoder_nll"], evaluated.metrics["encoder_nll"])
    assert not torch.equal(trained.log_prob, evaluated.log_prob)
    unpaid = mixture(training=True, reward=RewardConfig(weight=0.0))
    assert not head().score(reading(unpaid), targets).extra_loss.any()


def test_what_is_alike_in_both_parts_has_no_reward_whatever_is_dropped() -> None:
    """Masks of its own for each part would make a ratio of noise, which the reward is not symmetric in."""
    torch.manual_seed(0)
    config = MixtureOfSoftmaxesConfig(experts=3, latent_dropout=0.5)
    model = config.build(SIZE, torch.nn.Embedding(VOCABULARY, SIZE), Init(0.7, 0.7)).double().train()
    features = values(STEPS, BATCH, SIZE)
    readout = Readout(features, mixture=mixture(features=features))
    metrics = model.score(readout, words(STEPS, BATCH)).metrics
    assert_same(metrics["encoder_nll"], metrics["buffer_nll"])
    torch.testing.assert_close(metrics["reward"], torch.zeros(STEPS, BATCH).double(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("temperature", [LEAST_TEMPERATURE, 0.01, 1.0, 100.0])
def test_narrow_gates_give_float32_and_hard_ones_no_nan(temperature: float) -> None:
    gate = (1e3 * values(STEPS, BATCH, 2, seed=2)).bfloat16().requires_grad_()
    features, temperatures = values(STEPS, BATCH, SIZE).float(), GateConfig(training_temperature=temperature)
    one = SpanMixture(features, gate, some_filled(), temperatures, REWARD, training=True)
    readout = Readout(values(STEPS, BATCH, SIZE, seed=9).float(), mixture=one)
    scores = head().float().score(readout, words(STEPS, BATCH))
    assert {x.dtype for x in (scores.log_prob, scores.extra_loss, *scores.metrics.values())} == {torch.float32}
    (gradient,) = torch.autograd.grad((scores.extra_loss - scores.log_prob).sum(), gate)
    assert scores.log_prob.isfinite().all() and scores.extra_loss.isfinite().all() and gradient.isfinite().all()
