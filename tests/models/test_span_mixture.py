"""Two predictions and their gate: what is mixed when, and what the reward teaches whom."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from spanlm.models.heads import MixtureOfSoftmaxesConfig, SoftmaxConfig
from spanlm.models.heads.softmax import SoftmaxHead
from spanlm.models.interfaces import Init, Readout
from spanlm.models.memories.span_buffer.mixture import LEAST_TEMPERATURE, GateConfig, RewardConfig, SpanMixture, rewards
from tests.models.small import VOCABULARY, assert_same, bitwise, values, words

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


def test_the_reward_by_hand() -> None:
    """Ratios ½, 0.9, 1, 1.1, 1.5, 2 and 1000: (q / p)^5 is 1/32, 0.59, 1, 1.61, 7.59, 32, very much."""
    ratios = numbers(0.5, 0.9, 1.0, 1.1, 1.5, 2.0, 1000.0)
    expected = [3 * (0.5**5 - 1), 3 * (0.9**5 - 1), 0.0, 1.1**5 - 1, 1.5**5 - 1, 9.0, 9.0]
    found = rewards(torch.full_like(ratios, -4.0), ratios.log() - 4, REWARD)
    torch.testing.assert_close(found, numbers(*expected))
    other = RewardConfig(power=2.0, most=5.0, base=0.5, slope=7.0)
    found = rewards(numbers(0.0, 0.0, 0.0), numbers(0.6, 2.0, 10.0).log(), other)
    torch.testing.assert_close(found, numbers(7 * (0.36 - 0.5), 3.5, 4.5))


@given(p=log_probabilities, q=log_probabilities, more=st.floats(0, 100))
def test_rewards_are_bounded_and_grow_with_q(p: float, q: float, more: float) -> None:
    """Above −β b and up to a − b, however far apart the two are; in float32, too."""
    for dtype in (torch.float64, torch.float32):
        one, two = rewards(torch.tensor(p, dtype=dtype), torch.tensor([q, q + more], dtype=dtype), REWARD).tolist()
        assert -3 <= one <= two <= 9 + 1e-5
        assert (one > 0) == (q > p) or abs(q - p) < 1e-2


def test_a_positive_reward_raises_the_share_and_a_negative_one_lowers_it() -> None:
    gate = values(STEPS, BATCH, 2, seed=2).requires_grad_()
    reward = rewards(values(STEPS, BATCH, seed=3), values(STEPS, BATCH, seed=4), REWARD)
    (gradient,) = torch.autograd.grad(mixture(gate).reward_loss(reward).sum(), gate)
    assert reward.sign().unique().tolist() == [-1, 1]
    assert torch.equal(-gradient[..., 0].sign(), reward.sign())
    assert torch.equal(gradient[..., 1].sign(), reward.sign())


def test_the_term_by_hand() -> None:
    gate, reward = numbers(0.2, 0.8).log() + 3, numbers(0.6, -2.9)[None]
    expected = [[-0.5 * 0.6 * math.log(0.2), 0.5 * 2.9 * math.log(0.2)]]
    found = mixture(gate.expand(1, 2, 2), torch.ones(1, 2, dtype=torch.bool)).reward_loss(reward)
    torch.testing.assert_close(found, torch.tensor(expected).double())


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


def test_mixtures_are_distributions_and_temperatures_their_own() -> None:
    """Near ½ in training, near 0 or 1 in evaluation; of all words as of the target."""
    p, q = (values(STEPS, BATCH, VOCABULARY, seed=n).log_softmax(-1) for n in (5, 6))
    model, targets = head(), words(STEPS, BATCH)
    for training in (False, True):
        one = mixture(training=training)
        mixed = one.mixed(p, q).exp()
        torch.testing.assert_close(mixed.sum(-1), torch.ones(STEPS, BATCH).double())
        share = (mixed - p.exp()) / (q.exp() - p.exp())
        logits = (one.gate[..., 0] - one.gate[..., 1]) / (100 if training else 0.1)
        assert logits.abs().min() > 0.1 / (1 + 99 * training)
        assert_same(share, logits.sigmoid()[..., None].expand_as(share), rtol=1e-6, atol=1e-9)
        every = model.log_probs(reading(one))
        assert_same(model.log_prob(reading(one), targets), every.gather(-1, targets[..., None]).squeeze(-1))
    assert bitwise(mixture().as_trained().log_shares(), mixture(training=True).log_shares())


def test_where_nothing_is_read_the_encoder_predicts_alone() -> None:
    gate = values(STEPS, BATCH, 2, seed=2).requires_grad_()
    model, targets = head(), words(STEPS, BATCH)
    for training in (False, True):
        readout, filled = reading(mixture(gate, some_filled(), training=training)), some_filled()
        scores = model.score(readout, targets)
        assert torch.equal(scores.log_prob == model.log_prob(Readout(readout.features), targets), ~filled)
        assert torch.equal(scores.metrics["reward"] == 0, ~filled)
        assert torch.equal(scores.metrics["other_steps"] == 1, ~filled)
        every, plain = model.log_probs(readout), model.log_probs(Readout(readout.features))
        assert torch.equal((every == plain).all(-1), ~filled)
        (gradient,) = torch.autograd.grad((scores.extra_loss - scores.log_prob).sum(), gate)
        assert torch.equal(gradient.any(-1), filled)


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
