"""Two predictions and their gate: what is mixed when, and what the reward teaches whom."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from spanlm.models.span_mixture import LEAST_TEMPERATURE, GateRule, log_mixture, part_scores, reward_loss, rewards
from torch import Tensor, nn

from spanlm.models.heads import MixtureOfSoftmaxesConfig, SoftmaxConfig, SoftmaxHead
from spanlm.models.interfaces import Init, Readout
from tests.models.small import VOCABULARY, assert_same, bitwise, values, words

RULE = GateRule(
    training_temperature=100.0,
    evaluation_temperature=0.1,
    reward=0.5,
    reward_power=5.0,
    reward_most=10.0,
    reward_base=1.0,
    reward_slope=3.0,
)
STEPS, BATCH, SIZE = 4, 3, 6
log_probabilities = st.floats(-1e4, 0.0)


def numbers(*x: float) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def buffered(gate: Tensor | None = None, filled: Tensor | None = None, rule: GateRule = RULE) -> Buffered:
    gate = values(STEPS, BATCH, 2, seed=2) if gate is None else gate
    filled = torch.ones(STEPS, BATCH, dtype=torch.bool) if filled is None else filled
    return Buffered(values(STEPS, BATCH, SIZE, seed=1), gate, filled, rule)


def head(training: bool = False) -> SoftmaxHead:
    torch.manual_seed(0)
    return SoftmaxConfig().build(SIZE, nn.Embedding(VOCABULARY, 9), Init(0.7, 0.7)).double().train(training)


def some_filled() -> Tensor:
    return torch.arange(STEPS)[:, None] >= torch.arange(BATCH)


def test_no_ratio_no_reward() -> None:
    assert rewards(numbers(-3.0), numbers(-3.0), RULE).tolist() == [0.0]


def test_the_reward_by_hand() -> None:
    """Ratios ½, 0.9, 1.1, 1.5, 2 and 1000: (q / p)^5 is 1/32, 0.59, 1.61, 7.59, 32, very much."""
    ratios = numbers(0.5, 0.9, 1.1, 1.5, 2.0, 1000.0)
    expected = [3 * (0.5**5 - 1), 3 * (0.9**5 - 1), 1.1**5 - 1, 1.5**5 - 1, 9.0, 9.0]
    found = rewards(torch.full_like(ratios, -4.0), ratios.log() - 4, RULE)
    torch.testing.assert_close(found, numbers(*expected))


@given(p=log_probabilities, q=log_probabilities, more=st.floats(0, 100))
def test_rewards_are_bounded_and_grow_with_q(p: float, q: float, more: float) -> None:
    """Above −β b and up to a − b, however far apart the two are; in float32, too."""
    for dtype in (torch.float64, torch.float32):
        one, two = rewards(torch.tensor(p, dtype=dtype), torch.tensor([q, q + more], dtype=dtype), RULE).tolist()
        assert -3 <= one <= two <= 9 + 1e-5
        assert (one > 0) == (q > p) or abs(q - p) < 1e-2


def test_power_base_slope_and_most_are_used() -> None:
    rule = replace(RULE, reward_power=2.0, reward_most=5.0, reward_base=0.5, reward_slope=7.0)
    found = rewards(numbers(0.0, 0.0, 0.0), numbers(0.6, 2.0, 10.0).log(), rule)
    torch.testing.assert_close(found, numbers(7 * (0.36 - 0.5), 3.5, 4.5))


@pytest.mark.parametrize("negative", ["literal", "complement"])
def test_a_positive_reward_raises_the_share_and_a_negative_one_lowers_it(negative: str) -> None:
    rule = replace(RULE, negative_reward=negative)
    gate = values(STEPS, BATCH, 2, seed=2).requires_grad_()
    p, q = values(STEPS, BATCH, seed=3), values(STEPS, BATCH, seed=4)
    parts = part_scores(p, q, buffered(gate, rule=rule))
    loss = reward_loss(parts, buffered(gate, rule=rule))
    (gradient,) = torch.autograd.grad(loss.sum(), gate)
    assert parts.reward.sign().unique().tolist() == [-1, 1]
    assert torch.equal(-gradient[..., 0].sign(), parts.reward.sign())
    assert torch.equal(gradient[..., 1].sign(), parts.reward.sign())


@pytest.mark.parametrize("negative", ["literal", "complement"])
def test_the_term_by_hand(negative: str) -> None:
    rule = replace(RULE, negative_reward=negative)
    share = 0.2
    logits = numbers(share, 1 - share).log() + 3
    gate = buffered(logits.expand(1, 2, 2), torch.ones(1, 2, dtype=torch.bool), rule)
    p, q = numbers(0.1, 0.1).log()[None], numbers(0.11, 0.05).log()[None]
    up, down = 1.1**5 - 1, 3 * (0.5**5 - 1)
    lowered = math.log(share) if negative == "literal" else -math.log(1 - share)
    expected = [[-0.5 * up * math.log(share), -0.5 * down * lowered]]
    torch.testing.assert_close(reward_loss(part_scores(p, q, gate), gate), torch.tensor(expected).double())


def test_the_reward_teaches_the_gate_alone() -> None:
    leaves = [values(STEPS, BATCH, *more, seed=n).requires_grad_() for n, more in enumerate([(2,), (), ()])]
    gate, p, q = leaves
    parts = part_scores(p, q, buffered(gate))
    assert not parts.reward.requires_grad
    gradients = torch.autograd.grad(reward_loss(parts, buffered(gate)).sum(), leaves, materialize_grads=True)
    assert [bool(x.any()) for x in gradients] == [True, False, False]


def test_with_a_temperature_the_reward_pushes_the_gate_so_much_less() -> None:
    """Near λ = ½ the gradient is 1/T of what it is without; what is told of the gate knows no temperature."""
    found = {}
    for how in ("plain", "tempered"):
        gate = (1e-3 * values(STEPS, BATCH, 2, seed=2)).requires_grad_()
        parts = buffered(gate, rule=replace(RULE, reward_gate=how))
        scores = part_scores(values(STEPS, BATCH, seed=3), values(STEPS, BATCH, seed=4), parts)
        (found[how],) = torch.autograd.grad(reward_loss(scores, parts).sum(), gate)
        assert_same(scores.log_share, gate.log_softmax(-1)[..., 0])
    torch.testing.assert_close(100 * found["tempered"], found["plain"], rtol=2e-3, atol=0)


def test_a_reward_that_is_no_constant_teaches_what_it_compares() -> None:
    """λ < 1, so the loss grows with r: q learns to be less probable, p more, but where r is as large as it can be."""
    p, q = (values(STEPS, BATCH, seed=n).requires_grad_() for n in (3, 4))
    parts = buffered(rule=replace(RULE, reward_constant=False))
    scores = part_scores(p, q, parts)
    of_p, of_q = torch.autograd.grad(reward_loss(scores, parts).sum(), [p, q])
    counts = (RULE.reward_power * (q - p)).exp() < RULE.reward_most
    assert counts.any() and not counts.all()
    assert torch.equal(of_q != 0, counts)
    assert_same(of_p, -of_q)
    assert (of_q[counts] > 0).all()


def test_a_closed_gate_is_pushed_no_further_and_can_open() -> None:
    """λ = e^-30: a negative reward says nothing more, and the loss does not fall without end; a positive one does."""
    gate = torch.tensor([-30.0, 0.0]).double().expand(1, 2, 2).clone().requires_grad_()
    both = torch.ones(1, 2, dtype=torch.bool)
    p, q = numbers(-1.0, -1.0)[None], numbers(-9.0, -0.5)[None]
    for negative, bound in (("literal", -0.5 * 3 * 20), ("complement", 0.0)):
        parts = buffered(gate, both, replace(RULE, negative_reward=negative))
        loss = reward_loss(part_scores(p, q, parts), parts)
        (gradient,) = torch.autograd.grad(loss.sum(), gate)
        assert loss[0, 0].item() == pytest.approx(bound, abs=1e-9)
        assert gradient[0, 0].abs().max() < 1e-9
        assert gradient[0, 1, 0] < -0.5


def test_mixtures_are_distributions_and_temperatures_their_own() -> None:
    """Near ½ in training, near 0 or 1 in evaluation."""
    p, q = (values(STEPS, BATCH, VOCABULARY, seed=n).log_softmax(-1) for n in (5, 6))
    parts = buffered()
    assert (parts.gate[..., 0] - parts.gate[..., 1]).abs().min() > 0.1
    for training in (False, True):
        mixed = log_mixture(p, q, parts, training).exp()
        torch.testing.assert_close(mixed.sum(-1), torch.ones(STEPS, BATCH).double())
        share = (mixed - p.exp()) / (q.exp() - p.exp())
        assert_same(share, share[..., :1].expand_as(share), rtol=1e-6)
        logits = (parts.gate[..., 0] - parts.gate[..., 1]) / (100 if training else 0.1)
        assert_same(share[..., 0], logits.sigmoid(), rtol=1e-6, atol=1e-9)


def test_where_nothing_is_read_the_encoder_predicts_alone() -> None:
    parts = buffered(values(STEPS, BATCH, 2, seed=2).requires_grad_(), some_filled())
    readout, targets = Readout(values(STEPS, BATCH, SIZE), buffer=parts), words(STEPS, BATCH)
    for training in (False, True):
        model = head(training)
        scores = model.score(readout, targets)
        alone = model.log_prob(Readout(readout.features), targets)
        same = scores.log_prob == alone
        assert torch.equal(same, ~parts.filled)
        assert torch.equal((scores.parts.reward == 0), ~parts.filled)
        assert torch.equal(scores.parts.filled, parts.filled)
        every, plain = model.log_probs(readout), model.log_probs(Readout(readout.features))
        assert torch.equal((every == plain).all(-1), ~parts.filled)
        (gradient,) = torch.autograd.grad((scores.extra_loss - scores.log_prob).sum(), parts.gate)
        assert torch.equal(gradient.any(-1), parts.filled)


def test_both_parts_are_asked_in_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same weights; in training only with the reward."""
    asked: list[torch.Size] = []
    plain = SoftmaxHead.own_log_prob

    def watched(self: SoftmaxHead, readout: Readout, targets: Tensor) -> Tensor:
        asked.append(readout.features.shape)
        return plain(self, readout, targets)

    monkeypatch.setattr(SoftmaxHead, "own_log_prob", watched)
    readout, targets = Readout(values(STEPS, BATCH, SIZE), buffer=buffered()), words(STEPS, BATCH)
    model = head()
    scores = model.score(readout, targets)
    assert asked == [(2 * STEPS, BATCH, SIZE)]
    assert scores.extra_loss == 0.0
    assert_same(scores.parts.encoder, model.log_prob(Readout(readout.features), targets))
    assert_same(scores.parts.buffer, model.log_prob(Readout(readout.buffer.features), targets))
    trained = model.train().score(readout, targets)
    assert bitwise(trained.parts.encoder, scores.parts.encoder)
    assert trained.extra_loss.shape == (STEPS, BATCH)
    assert not torch.equal(trained.log_prob, scores.log_prob)
    assert head().score(Readout(readout.features), targets).parts is None


def test_what_is_alike_in_both_parts_has_no_reward_whatever_is_dropped() -> None:
    """Masks of its own for each part would make a ratio of noise, which the reward is not symmetric in."""
    torch.manual_seed(0)
    mixture = MixtureOfSoftmaxesConfig(experts=3, latent_dropout=0.5)
    model = mixture.build(SIZE, torch.nn.Embedding(VOCABULARY, SIZE), Init(0.7, 0.7)).double().train()
    features = values(STEPS, BATCH, SIZE)
    readout = Readout(features, buffer=replace(buffered(), features=features))
    parts = model.score(readout, words(STEPS, BATCH)).parts
    assert_same(parts.encoder, parts.buffer)
    torch.testing.assert_close(parts.reward, torch.zeros_like(parts.reward), atol=1e-9, rtol=0)


def test_the_share_that_is_rewarded_knows_no_temperature() -> None:
    readout, targets = Readout(values(STEPS, BATCH, SIZE), buffer=buffered()), words(STEPS, BATCH)
    expected = readout.buffer.gate.log_softmax(-1)[..., 0]
    for training in (False, True):
        assert_same(head(training).score(readout, targets).parts.log_share, expected)


def test_no_weight_of_the_reward_no_term() -> None:
    gate = buffered(rule=replace(RULE, reward=0.0))
    scores = head(training=True).score(Readout(values(STEPS, BATCH, SIZE), buffer=gate), words(STEPS, BATCH))
    assert not scores.extra_loss.any()


@pytest.mark.parametrize("temperature", [LEAST_TEMPERATURE, 0.01, 1.0, 100.0])
def test_narrow_gates_give_float32_and_hard_ones_no_nan(temperature: float) -> None:
    rule = replace(RULE, training_temperature=temperature, evaluation_temperature=temperature)
    gate = (1e3 * values(STEPS, BATCH, 2, seed=2)).bfloat16().requires_grad_()
    parts = Buffered(values(STEPS, BATCH, SIZE).float(), gate, some_filled(), rule)
    readout = Readout(values(STEPS, BATCH, SIZE, seed=9).float(), buffer=parts)
    scores = head(training=True).float().score(readout, words(STEPS, BATCH))
    assert scores.log_prob.dtype == scores.extra_loss.dtype == scores.parts.log_share.dtype == torch.float32
    (gradient,) = torch.autograd.grad((scores.extra_loss - scores.log_prob).sum(), gate)
    assert scores.log_prob.isfinite().all() and scores.extra_loss.isfinite().all() and gradient.isfinite().all()


def test_a_reward_that_is_no_constant_has_a_gradient_where_the_power_would_overflow() -> None:
    p, q = (numbers(x)[None].float().requires_grad_() for x in (-40.0, -1.0))
    torch.autograd.backward(rewards(p, q, RULE).sum())
    assert RULE.reward_power * 39 > math.log(torch.finfo(torch.float32).max)
    assert p.grad is not None and q.grad is not None and not p.grad.any() and not q.grad.any()


@pytest.mark.parametrize("training", [False, True])
def test_all_words_have_the_temperature_of_the_target(training: bool) -> None:
    readout, targets = Readout(values(STEPS, BATCH, SIZE), buffer=buffered()), words(STEPS, BATCH)
    model = head(training)
    every = model.log_probs(readout)
    assert_same(model.log_prob(readout, targets), every.gather(-1, targets[..., None]).squeeze(-1))
