"""The span buffer against its loop: reads, weights, mixture, loss with reward, states, gradients, in float64."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from spanlm.models.encoders import LSTMConfig, RNNConfig
from spanlm.models.heads import MixtureOfSoftmaxesConfig, SoftmaxConfig
from spanlm.models.memories.span_buffer import GateConfig, RewardConfig, SpanBufferConfig, SpanBufferMemory
from tests import reference
from tests import reference_span_buffer as twin
from tests.cases import rest_slow
from tests.models import small
from tests.models.small import VOCABULARY, assert_same, build, values, words
from tests.models.twins import assert_twin, encoded, filled_slots, predicted, slots
from tests.reference_mixture import Mixture, adversarial_mixture, mixture_of_softmaxes

SIZE = 3
CONFIGS = [
    SpanBufferConfig(buffer_size=4, span_length=2),
    SpanBufferConfig(buffer_size=6, span_length=2),
    SpanBufferConfig(buffer_size=4, words=True),
    SpanBufferConfig(buffer_size=6, span_length=3, newest="current"),
    SpanBufferConfig(buffer_size=1, words=True, newest="current"),
    SpanBufferConfig(buffer_size=6, span_length=3, reads="merge"),
]
every_config = pytest.mark.parametrize("config", CONFIGS, ids=small.identify)
every_reading = pytest.mark.parametrize("config", [CONFIGS[0], CONFIGS[-1]], ids=small.identify)


def parameters(memory: SpanBufferMemory) -> twin.Spans:
    config = memory.config
    return twin.Spans(
        buffer_size=config.buffer_size,
        length=1 if config.words else config.span_length,
        current=config.newest == "current",
        w_s=memory.span_key.weight,
        w_h=memory.query.weight,
        v=memory.score,
    )


def seen(memory: SpanBufferMemory, h: Tensor, reads: Tensor) -> Tensor:
    return twin.seen(h, reads, memory.config.reads, None if memory.read is None else memory.read.weight)


def gate(config: SpanBufferConfig, training: bool = True) -> twin.Gate:
    of, reward = config.gate, config.reward
    temperature = of.training_temperature if training else of.evaluation_temperature
    return twin.Gate(temperature, reward.weight, kappa=5.0, a=10.0, b=1.0, beta=3.0)


def state_of(memory: SpanBufferMemory, past: reference.Past, empty: float) -> dict[str, Tensor]:
    """What of each stream's past a state holds; `empty` where it holds nothing."""
    room = memory.carried
    recent = [outputs[len(outputs) - min(room, len(outputs)) :] for outputs in past]
    nothing = torch.full((SIZE,), empty, dtype=torch.float64)
    return {"states": slots(recent, room, lambda x: x, nothing), "filled": filled_slots(recent, room)}


def pasts(kind: str, batch: int) -> reference.Past:
    """Nothing; much, from stream to stream one more; or next to nothing."""
    first, more = {"fresh": (0, 0), "young": (0, 1), "old": (9, 1)}[kind]
    return [[values(SIZE, seed=100 * b + n).requires_grad_() for n in range(first + more * b)] for b in range(batch)]


@every_config
@pytest.mark.parametrize("kind", ["fresh", "young", "old"])
@pytest.mark.parametrize(("steps", "batch"), [(1, 4), (2, 4), (7, 2), (12, 3)], ids=str)
def test_span_buffer(config: SpanBufferConfig, steps: int, batch: int, kind: str) -> None:
    memory = build(config, SIZE, VOCABULARY)
    h, past = values(steps, batch, SIZE, seed=7).requires_grad_(), pasts(kind, batch)
    leaves = [h, *memory.parameters(), *[x for outputs in past for x in outputs]]

    readout, after = memory(h, words(steps, batch), state_of(memory, past, torch.nan))
    reads, weights, filled, outputs = twin.span_buffer(h, past, parameters(memory))

    expected_state = state_of(memory, outputs, 0)
    assert after.keys() == expected_state.keys()
    assert torch.equal(after["filled"], expected_state["filled"])
    assert torch.equal(readout.mixture.filled, filled)
    assert readout.features is h
    assert readout.attention.stride == (1 if config.words else config.span_length)
    assert readout.attention.nearest_lag == (config.newest == "before")
    gate_logits = twin.policy(h, memory.gate.weight)
    carried = torch.where(after["filled"][..., None], after["states"], 0)
    actual = [readout.mixture.features, readout.attention.by_lag(), readout.mixture.gate, carried]
    expected = [seen(memory, h, reads), weights, gate_logits, expected_state["states"]]
    assert_twin(actual, expected, leaves)


@pytest.mark.parametrize("config", CONFIGS[::2], ids=small.identify)
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_whole_language_model(tied: bool, config: SpanBufferConfig) -> None:
    """Two segments of training, the state between them carried and not detached: the loss and every gradient."""
    memory = taught(config)
    encoder = LSTMConfig(hidden_size=6, layers=2)
    model = small.language_model(small.model_config(encoder, memory, SoftmaxConfig(tied=tied)))
    tokens, targets = words(8, 2), words(8, 2, seed=1)
    h = encoded(model, tokens)
    reads, _, filled, _ = twin.span_buffer(h, [[], []], parameters(model.memory))
    p, q = (predicted(model, x).exp() for x in (h, seen(model.memory, h, reads)))
    logits = twin.policy(h, model.memory.gate.weight)
    compare(model, tokens, targets, twin.losses(p, q, logits, filled, targets, gate(memory)))
    compare_evaluated(model, tokens, targets, twin.mixed(p, q, logits, filled, memory.gate.evaluation_temperature))


@every_reading
@pytest.mark.parametrize("epsilon", rest_slow([0.2, 0.0]))
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_a_model_under_a_mixture_of_softmaxes(tied: bool, epsilon: float, config: SpanBufferConfig) -> None:
    """The same, rewards and margins included: both parts are predictions of the same experts."""
    fields: dict[str, Any] = {"experts": 3, "latent_dropout": 0.0, "tied": tied}
    softmaxes = MixtureOfSoftmaxesConfig(**fields, adversarial=epsilon)
    memory = taught(config)
    model = small.language_model(small.model_config(RNNConfig(hidden_size=6), memory, softmaxes)).train()
    head, tokens, targets = model.head, words(8, 2), words(8, 2, seed=1)
    h = model(tokens, model.init_state(2))[0].hidden
    reads, _, filled, _ = twin.span_buffer(h, [[], []], parameters(model.memory))
    reads = seen(model.memory, h, reads)
    experts = Mixture(head.latent.weight, head.latent.bias, head.prior.weight, head.weight, head.bias)
    p, q = (mixture_of_softmaxes(x, experts) for x in (h, reads))
    logits = twin.policy(h, model.memory.gate.weight)
    of_targets = [x.gather(-1, targets[..., None]) for x in (p, q)]
    if epsilon:
        of_targets = [adversarial_mixture(x, targets, experts, epsilon)[..., None] for x in (h, reads)]
    one, other = (x.exp() for x in of_targets)
    compare(model, tokens, targets, twin.losses(one, other, logits, filled, torch.zeros_like(targets), gate(memory)))
    every = twin.mixed(p.exp(), q.exp(), logits, filled, memory.gate.evaluation_temperature)
    compare_evaluated(model, tokens, targets, every)


def taught(config: SpanBufferConfig) -> SpanBufferConfig:
    return replace(config, dropout=0.0, gate=GateConfig(training_temperature=3.0), reward=RewardConfig(weight=0.7))


def compare(model: Any, tokens: Tensor, targets: Tensor, expected: Tensor) -> None:
    leaves = [p for p in model.parameters() if p.requires_grad]
    actual, state = [], model.train().init_state(2)
    for inputs, outputs in zip(tokens.split([5, 3]), targets.split([5, 3]), strict=True):
        readout, state = model(inputs, state)
        scores = model.head.score(readout, outputs)
        actual.append(scores.extra_loss - scores.log_prob)
    assert_twin([torch.cat(actual)], [expected], leaves)


def compare_evaluated(model: Any, tokens: Tensor, targets: Tensor, every: Tensor) -> None:
    model.eval()
    one, _ = model.log_prob(tokens, targets, model.init_state(2))
    assert_same(one.exp(), every.gather(-1, targets[..., None]).squeeze(-1), rtol=1e-9)
    assert_same(model.log_probs(tokens, model.init_state(2))[0].exp(), every, rtol=1e-9)


def test_metrics_are_what_each_part_says_alone() -> None:
    config = CONFIGS[0]
    model = small.language_model(small.model_config(RNNConfig(hidden_size=6), config, SoftmaxConfig()))
    tokens, targets = words(8, 2), words(8, 2, seed=1)
    readout, _ = model(tokens, model.init_state(2))
    metrics = model.head.score(readout, targets).metrics
    p, q = (
        reference.linear_softmax(x, model.head.weight, model.head.bias).gather(-1, targets[..., None]).squeeze(-1)
        for x in (readout.features, readout.mixture.features)
    )
    g, shares = gate(config, training=False), readout.mixture.gate.softmax(-1)[..., 0]
    for t, b in ((t, b) for t in range(8) for b in range(2)):
        log_p, log_q, share = p[t, b].item(), q[t, b].item(), shares[t, b].item()
        held = {
            "steps": 1.0,
            "encoder_nll": -log_p,
            "buffer_nll": -log_q,
            "reward": twin.reward(p[t, b].exp().item(), q[t, b].exp().item(), g),
            "gate": share,
            "utilisation": float(share >= 0.5),
            "oracle_utilisation": float(log_q > log_p),
            "oracle_nll": -max(log_p, log_q),
            "untempered_nll": -math.log(share * math.exp(log_q) + (1 - share) * math.exp(log_p)),
            "equal_nll": -math.log((math.exp(log_q) + math.exp(log_p)) / 2),
        }
        others = {"other_nll": -log_p, "other_steps": 1.0}
        nothing = t < 2
        expected = dict.fromkeys(held if nothing else others, 0.0) | (others if nothing else held)
        assert {name: x[t, b].item() for name, x in metrics.items()} == pytest.approx(expected)
