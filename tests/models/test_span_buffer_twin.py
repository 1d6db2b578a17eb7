"""The span buffer against its loop: reads, weights, mixture, loss with reward, states, gradients, in float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from spanlm.models.encoders import LSTMConfig, RNNConfig
from spanlm.models.heads import SoftmaxConfig
from spanlm.models.interfaces import Init
from spanlm.models.memories import SpanBufferConfig, SpanBufferMemory
from tests import reference
from tests import reference_span_buffer as twin
from tests.models import small
from tests.models.small import VOCABULARY, assert_same, build, values, words
from tests.models.twins import gradients, lstm_layers, slots

SIZE = 3
CONFIGS = [
    SpanBufferConfig(buffer_size=4, span_length=2),
    SpanBufferConfig(buffer_size=6, span_length=3, attention_size=2),
    SpanBufferConfig(buffer_size=3, span_length=3, span_offset="length"),
    SpanBufferConfig(buffer_size=6, span_length=2, span_offset="length", score="literal"),
    SpanBufferConfig(buffer_size=3, span_length=1, span_offset="length"),
    SpanBufferConfig(buffer_size=4, words=True),
    SpanBufferConfig(buffer_size=6, span_length=3, grid="fixed"),
    SpanBufferConfig(buffer_size=4, span_length=2, grid="fixed", span_offset="length", score="literal"),
    SpanBufferConfig(buffer_size=6, span_length=3, newest="current"),
    SpanBufferConfig(buffer_size=6, span_length=2, newest="current", span_offset="length", score="literal"),
    SpanBufferConfig(buffer_size=6, span_length=3, newest="current", grid="fixed"),
    SpanBufferConfig(buffer_size=1, words=True, newest="current"),
    SpanBufferConfig(buffer_size=6, span_length=2, biases=True),
    SpanBufferConfig(buffer_size=4, span_length=2, score="literal", biases=True),
    SpanBufferConfig(buffer_size=6, span_length=3, before_stream="zero"),
    SpanBufferConfig(buffer_size=4, span_length=2, before_stream="zero", grid="fixed", span_offset="length"),
    SpanBufferConfig(buffer_size=8, span_length=4, before_stream="zero", newest="current"),
]
every_config = pytest.mark.parametrize("config", CONFIGS, ids=small.identify)


def parameters(memory: SpanBufferMemory) -> twin.Spans:
    config = memory.config
    length = 1 if config.words else config.span_length
    return twin.Spans(
        buffer_size=config.buffer_size,
        length=length,
        offset=0 if config.words else length - (config.span_offset == "literal"),
        fixed=config.grid == "fixed",
        current=config.newest == "current",
        zero=config.before_stream == "zero",
        w_s=memory.span_key.weight,
        w_h=None if memory.query is None else memory.query.weight,
        v=memory.score,
        b=None if memory.query is None else memory.query.bias,
    )


def gate(config: SpanBufferConfig, training: bool = True) -> twin.Gate:
    return twin.Gate(
        temperature=config.training_temperature if training else config.evaluation_temperature,
        eta=config.reward,
        kappa=config.reward_power,
        a=config.reward_most,
        b=config.reward_base,
        beta=config.reward_slope,
        complement=config.negative_reward == "complement",
        tempered=config.reward_gate == "tempered",
        constant=config.reward_constant,
    )


def state_of(memory: SpanBufferMemory, past: reference.Past, empty: float) -> dict[str, Tensor]:
    """What of each stream's past a state holds; `empty` where it holds nothing."""
    room = memory.carried
    recent = [outputs[len(outputs) - min(room, len(outputs)) :] for outputs in past]
    yes, nothing = torch.ones((), dtype=torch.bool), torch.full((SIZE,), empty, dtype=torch.float64)
    state = {"states": slots(recent, room, lambda x: x, nothing), "filled": slots(recent, room, lambda _: yes, ~yes)}
    if memory.fixed:
        state["phase"] = torch.tensor([[len(outputs) % memory.config.span_length for outputs in past]])
    return state


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
    assert all(torch.equal(after[name], expected_state[name]) for name in {"phase"} & after.keys())
    assert torch.equal(readout.buffer.filled, filled)
    assert readout.features is h
    assert readout.span == (1 if config.words else config.span_length)
    assert readout.nearest_lag == (config.newest == "before")
    gate_logits = twin.policy(h, memory.gate.weight, memory.gate.bias)
    carried = torch.where(after["filled"][..., None], after["states"], 0)
    actual = [readout.buffer.features, readout.attention, readout.buffer.gate, carried]
    expected = [reads, weights, gate_logits, expected_state["states"]]
    assert_same(actual, expected)
    assert_same(gradients(actual, leaves), gradients(expected, leaves))


READINGS: list[dict[str, Any]] = [
    {},
    {"negative_reward": "complement"},
    {"reward_gate": "tempered"},
    {"reward_gate": "tempered", "negative_reward": "complement"},
    {"reward_constant": False},
    {"reward_constant": False, "reward_gate": "tempered"},
]


@pytest.mark.parametrize("reading", READINGS, ids=lambda fields: "-".join(fields) or "default")
@pytest.mark.parametrize("config", CONFIGS[::3], ids=small.identify)
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_whole_language_model(tied: bool, config: SpanBufferConfig, reading: dict[str, Any]) -> None:
    """Two segments of training, the state between them carried and not detached: the loss and every gradient."""
    memory = replace(config, dropout=0.0, training_temperature=3.0, reward=0.7, **reading)
    encoder = LSTMConfig(hidden_size=6, layers=2)
    model = small.language_model(small.model_config(encoder, memory, SoftmaxConfig(tied=tied)))
    tokens, targets = words(8, 2), words(8, 2, seed=1)
    leaves = [p for p in model.parameters() if p.requires_grad]

    zeros = torch.zeros(2, 2, 6, dtype=torch.float64)
    h = reference.lstm(model.embedding.weight[tokens], zeros, zeros, lstm_layers(model.encoder.lstm))[0]
    reads, _, filled, _ = twin.span_buffer(h, [[], []], parameters(model.memory))
    output = model.embedding.weight if tied else model.head.weight
    p, q = (reference.linear_softmax(x, output, model.head.bias).exp() for x in (h, reads))
    logits = twin.policy(h, model.memory.gate.weight, model.memory.gate.bias)
    expected = twin.losses(p, q, logits, filled, targets, gate(memory))

    actual, state = [], model.init_state(2)
    model.train()
    for inputs, outputs in zip(tokens.split([5, 3]), targets.split([5, 3]), strict=True):
        readout, state = model(inputs, state)
        scores = model.head.score(readout, outputs)
        actual.append(scores.extra_loss - scores.log_prob)
    assert_same(torch.cat(actual), expected)
    assert_same(gradients([torch.cat(actual)], leaves), gradients([expected], leaves))

    every = twin.mixed(p, q, logits, filled, memory.evaluation_temperature)
    model.eval()
    one, _ = model.log_prob(tokens, targets, model.init_state(2))
    assert_same(one.exp(), every.gather(-1, targets[..., None]).squeeze(-1), rtol=1e-9)
    assert_same(model.log_probs(tokens, model.init_state(2))[0].exp(), every, rtol=1e-9)


def test_biases_are_of_the_tanh_and_of_the_gate_and_no_others_are() -> None:
    def named(**how: Any) -> set[str]:
        memory = build(SpanBufferConfig(buffer_size=4, span_length=2, **how), SIZE, VOCABULARY)
        return {name for name, _ in memory.named_parameters() if name.endswith("bias")}

    assert named() == set()
    assert named(biases=True) == {"query.bias", "gate.bias"}
    assert named(biases=True, score="literal") == {"gate.bias"}


@pytest.mark.parametrize("limit", [0.0, 0.001, 3.0])
def test_the_gate_starts_in_a_range_of_its_own(limit: float) -> None:
    """And everything else as if it did not."""
    usual, other = (
        SpanBufferMemory(SpanBufferConfig(gate_range=chosen, biases=True), 64, Init(0.1, 0.05))
        for chosen in (None, limit)
        if torch.manual_seed(1)
    )
    assert other.gate.weight.abs().max() <= limit <= 1.1 * other.gate.weight.abs().max()
    rest = [
        (a, b) for (name, a), b in zip(usual.named_parameters(), other.parameters(), strict=True) if "gate" not in name
    ]
    assert len(rest) == 4 and all(torch.equal(a, b) for a, b in rest)
    assert 0.09 < usual.gate.weight.abs().max() <= 0.1 and other.gate.bias.abs().max() <= 0.05


def test_parts_are_what_each_says_alone() -> None:
    config = CONFIGS[0]
    model = small.language_model(small.model_config(RNNConfig(hidden_size=6), config, SoftmaxConfig()))
    tokens, targets = words(8, 2), words(8, 2, seed=1)
    readout, _ = model(tokens, model.init_state(2))
    parts = model.head.score(readout, targets).parts
    for found, features in ((parts.encoder, readout.features), (parts.buffer, readout.buffer.features)):
        every = reference.linear_softmax(features, model.head.weight, model.head.bias)
        assert_same(found, every.gather(-1, targets[..., None]).squeeze(-1))
    g = gate(config, training=False)
    for t, b in ((t, b) for t in range(8) for b in range(2)):
        p, q = parts.encoder[t, b].exp().item(), parts.buffer[t, b].exp().item()
        assert parts.reward[t, b].item() == pytest.approx(twin.reward(p, q, g) if parts.filled[t, b] else 0.0)
        one, other = readout.buffer.gate[t, b].exp()
        assert parts.log_share[t, b].exp().item() == pytest.approx((one / (one + other)).item())
    assert torch.equal(parts.filled[:, 0], torch.arange(8) >= 2)
