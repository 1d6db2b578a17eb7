"""By what a span buffer predicts under a mixture of softmaxes, and which probabilities its reward compares."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from spanlm.models.span_mixture import GateRule
from torch import Tensor, nn

from spanlm.models.counting import count_configured
from spanlm.models.encoders import RNNConfig
from spanlm.models.heads import MixtureOfSoftmaxesConfig, SoftmaxConfig
from spanlm.models.interfaces import Readout
from spanlm.models.memories import SpanBufferConfig
from spanlm.presets import PRESETS
from tests import reference
from tests import reference_span_buffer as twin
from tests.models import small
from tests.models.small import VOCABULARY, assert_same, bitwise, build, values, words
from tests.models.test_span_buffer_twin import gate, parameters
from tests.models.twins import gradients
from tests.reference_mixture import Mixture, Moved, adversarial_log_prob, adversarial_mixture, mixture_of_softmaxes

SIZE, STEPS, BATCH = 6, 5, 3
MEMORY = SpanBufferConfig(buffer_size=4, span_length=2, dropout=0.0, training_temperature=3.0, reward=0.7)
PROJECTED: dict[str, Any] = {"experts": 3, "latent_dropout": 0.0, "buffer": "projection"}
HEADS: dict[str, Any] = {
    "softmax": SoftmaxConfig,
    "mixture": lambda **f: MixtureOfSoftmaxesConfig(experts=3, **f),
    "projection": lambda **f: MixtureOfSoftmaxesConfig(experts=3, buffer="projection", **f),
}
every_head = pytest.mark.parametrize("make", HEADS.values(), ids=HEADS)


def experts(head: Any) -> Mixture:
    return Mixture(head.latent.weight, head.latent.bias, head.prior.weight, head.weight, head.bias)


def projected(head: Any, features: Tensor) -> Tensor:
    """P ξ, one vector at a time."""
    return reference.grid([[head.projection.weight.mv(x) for x in row] for row in features])


def buffer_log_probs(head: Any, buffer: str, reads: Tensor) -> Tensor:
    """log q of every word: the encoder's own mixture of ξ, or a softmax of P ξ."""
    if buffer == "mixture":
        return mixture_of_softmaxes(reads, experts(head))
    return reference.linear_softmax(projected(head, reads), head.weight, head.bias)


def moved_buffer(head: Any, buffer: str, reads: Tensor, targets: Tensor, moved: Moved) -> Tensor:
    """log q of the targets, each as far away as the adversary moves it."""
    if buffer == "mixture":
        return adversarial_mixture(reads, targets, experts(head), moved)
    flat = list(projected(head, reads).flatten(0, 1)), targets.flatten().tolist()
    return torch.stack(adversarial_log_prob(*flat, head.weight, head.bias, moved)).view_as(targets)


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("buffer", ["mixture", "projection"])
def test_a_model_under_a_mixture_is_its_loop(buffer: Any, tied: bool, epsilon: float) -> None:
    """A whole model in two segments: the loss, rewards and margins included, every gradient, and all words' p̃."""
    fields = {**PROJECTED, "buffer": buffer, "tied": tied, "adversarial": epsilon, "adversarial_gate": "none"}
    config = MixtureOfSoftmaxesConfig(**fields)
    model = small.language_model(small.model_config(RNNConfig(hidden_size=SIZE), MEMORY, config)).train()
    head, memory = model.head, model.memory
    if buffer == "projection":
        assert head.projection.weight.shape == (head.weight.shape[1], SIZE) and head.weight.shape[1] != SIZE
    tokens, targets = words(8, 2), words(8, 2, seed=1)
    leaves = [parameter for parameter in model.parameters() if parameter.requires_grad]

    actual, state, outputs = [], model.init_state(2), []
    for inputs, following in zip(tokens.split([5, 3]), targets.split([5, 3]), strict=True):
        readout, state = model(inputs, state)
        scores = head.score(readout, following)
        actual.append(scores.extra_loss - scores.log_prob)
        outputs.append(readout.features)
    h = torch.cat(outputs)
    reads, _, filled, _ = twin.span_buffer(h, [[], []], parameters(memory))
    p = mixture_of_softmaxes(h, experts(head))
    q = buffer_log_probs(head, buffer, reads)
    logits = twin.policy(h, memory.gate.weight)
    log_p, log_q = (x.gather(-1, targets[..., None]) for x in (p, q))
    if epsilon:
        log_p = adversarial_mixture(h, targets, experts(head), Moved(epsilon, gated=False))[..., None]
        log_q = moved_buffer(head, buffer, reads, targets, Moved(epsilon, gated=False))[..., None]
    expected = twin.losses(log_p.exp(), log_q.exp(), logits, filled, torch.zeros_like(targets), gate(MEMORY))
    assert_same(torch.cat(actual), expected)
    assert_same(gradients([torch.cat(actual)], leaves), gradients([expected], leaves))

    every = twin.mixed(p.exp(), q.exp(), logits, filled, MEMORY.evaluation_temperature)
    model.eval()
    one, _ = model.log_prob(tokens, targets, model.init_state(2))
    assert_same(one.exp(), every.gather(-1, targets[..., None]).squeeze(-1), rtol=1e-9)
    assert_same(model.log_probs(tokens, model.init_state(2))[0].exp(), every, rtol=1e-9)
    readout, _ = model(tokens, model.init_state(2))
    assert_same(head.buffer_log_probs(readout.buffer), q)


@pytest.mark.parametrize(("preset", "size"), [("ptb", 280 * 620), ("wt2", 300 * 650)])
def test_the_projection_is_a_matrix_more(preset: str, size: int) -> None:
    model = PRESETS[f"li2020/mos-snb-{preset}"].config.model
    assert isinstance(model.head, MixtureOfSoftmaxesConfig) and model.head.buffer == "mixture"
    other = replace(model, head=replace(model.head, buffer="projection"))
    assert count_configured(other, 10_000).total - count_configured(model, 10_000).total == size


def test_the_encoders_prediction_is_the_same_mixture() -> None:
    """Whatever the buffer predicts by; and so is the number of weights that the mixture begins with."""
    readout, targets = given(rule()), words(STEPS, BATCH)
    one, other = (head_of(HEADS[name]) for name in ("mixture", "projection"))
    other.load_state_dict(one.state_dict(), strict=False)
    found = [head.eval().score(readout, targets).parts for head in (one, other)]
    assert bitwise(found[0].encoder, found[1].encoder)
    assert not torch.equal(found[0].buffer, found[1].buffer)


def head_of(make: Any, **fields: Any) -> Any:
    torch.manual_seed(1)
    return build(make(**fields), SIZE, nn.Embedding(VOCABULARY, SIZE).double()).train()


def rule(**changes: Any) -> GateRule:
    return replace(MEMORY, **changes).rule


def given(rule: GateRule) -> Readout:
    """h and a ξ as short as differences of states are; the first step of a stream has none."""
    filled = torch.arange(STEPS)[:, None].expand(-1, BATCH) > 0
    buffer = Buffered(0.2 * values(STEPS, BATCH, SIZE, seed=1), values(STEPS, BATCH, 2, seed=2), filled, rule)
    return Readout(values(STEPS, BATCH, SIZE), buffer=buffer)


def scored(head: Any, readout: Readout, targets: Tensor) -> Any:
    torch.manual_seed(5)  # dropout of what experts see
    return head.score(readout, targets)


@every_head
def test_the_reward_compares_what_the_loss_or_what_evaluation_knows(make: Any) -> None:
    """Clean: the p and q of the same head without margins, under the same dropout; the loss keeps its margins."""
    targets, margins = words(STEPS, BATCH), {"adversarial": 0.3, "adversarial_gate": "none"}
    adversarial, clean, plain = (
        scored(head, given(rule(rewarded=rewarded)), targets)
        for head, rewarded in (
            (head_of(make, **margins), "adversarial"),
            (head_of(make, **margins), "clean"),
            (head_of(make), "adversarial"),
        )
    )
    assert bitwise(clean.log_prob, adversarial.log_prob)
    assert bitwise([clean.parts.encoder, clean.parts.buffer], [adversarial.parts.encoder, adversarial.parts.buffer])
    assert_same(clean.parts.reward, plain.parts.reward)
    assert not torch.allclose(clean.parts.reward, adversarial.parts.reward)
    # ξ is short, and so is its margin: with margins the buffer looks better than it is
    assert (adversarial.parts.reward - clean.parts.reward).mean() > 0
    assert not clean.parts.reward.requires_grad
    assert not clean.parts.reward[0].any()
    for scores in (adversarial, clean):
        p, q = (part.exp() for part in (scores.parts.encoder, scores.parts.buffer))
        assert (p < plain.parts.encoder.exp()).all() and (q < plain.parts.buffer.exp()).all()


@every_head
def test_the_term_with_clean_rewards_is_its_loop(make: Any) -> None:
    head = head_of(make, adversarial=0.3, adversarial_gate="none", **({} if make is SoftmaxConfig else NO_DROPOUT))
    plain = head_of(make, **({} if make is SoftmaxConfig else NO_DROPOUT))
    targets, readout = words(STEPS, BATCH), given(rule(rewarded="clean"))
    assert readout.buffer is not None
    how = gate(replace(MEMORY, rewarded="clean"))
    scores, without = head.score(readout, targets), plain.eval().score(readout, targets).parts
    for t, b in ((t, b) for t in range(STEPS) for b in range(BATCH)):
        p, q = without.encoder[t, b].exp().item(), without.buffer[t, b].exp().item()
        r = twin.reward(p, q, how) if t else 0.0
        log_share = readout.buffer.gate[t, b].log_softmax(-1)[0].item()
        assert scores.parts.reward[t, b].item() == pytest.approx(r)
        assert scores.extra_loss[t, b].item() == pytest.approx(-how.eta * r * log_share)


NO_DROPOUT: dict[str, Any] = {"latent_dropout": 0.0}


@every_head
def test_without_margins_and_in_evaluation_it_makes_no_difference(make: Any) -> None:
    targets = words(STEPS, BATCH)
    readouts = given(rule()), given(rule(rewarded="clean"))
    for head in (head_of(make), head_of(make, adversarial=0.3).eval()):
        one, other = (scored(head, readout, targets) for readout in readouts)
        assert bitwise([one.log_prob, one.parts.reward], [other.log_prob, other.parts.reward])


@every_head
@pytest.mark.parametrize("rewarded", ["adversarial", "clean"])
def test_the_reward_teaches_the_gate_alone(make: Any, rewarded: Any) -> None:
    head, readout = head_of(make, adversarial=0.3), given(rule(rewarded=rewarded))
    assert readout.buffer is not None
    logits = readout.buffer.gate.clone().requires_grad_()
    readout = replace(readout, buffer=replace(readout.buffer, gate=logits))
    extra = head.score(readout, words(STEPS, BATCH)).extra_loss.sum()
    found = torch.autograd.grad(extra, [logits, *head.parameters()], allow_unused=True)
    assert found[0] is not None and found[0].any() and all(gradient is None for gradient in found[1:])
