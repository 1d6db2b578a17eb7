"""The span buffer in a model: its dropout, what its gradients reach, every encoder and head, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from spanlm.errors import InputError
from spanlm.models.config import ModelConfig
from spanlm.models.counting import count_configured
from spanlm.models.encoders import AWDLSTMConfig, LSTMConfig, RNNConfig
from spanlm.models.heads import SoftmaxConfig
from spanlm.models.memories import NoMemoryConfig
from spanlm.models.memories.span_buffer import GateConfig, RewardConfig, SpanBufferConfig
from tests.models import small
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
)
from tests.models.small import words as draw_words

SMALL = SpanBufferConfig(buffer_size=6, span_length=3, dropout=0.0)
Make = Callable[[], Any]


def trained(config: SpanBufferConfig, h: Tensor, steps_before: int = 8) -> Any:
    """What a memory in training says to h after some steps."""
    memory = build(config, HIDDEN, VOCABULARY)
    state = after_prefix(memory, steps_before, batch=h.shape[1])
    torch.manual_seed(1)
    return read(memory.train(), h, state), memory


def test_one_mask_for_what_asks_gates_predicts_and_is_read() -> None:
    h = values(7, 3, HIDDEN)
    (readout, _), memory = trained(replace(SMALL, dropout=0.4), h)
    kept = readout.features != 0
    assert torch.equal(kept, kept[:1].expand_as(kept))
    assert 0.3 < kept[0].double().mean() < 0.9
    assert not torch.equal(kept[0, 0], kept[0, 1])
    mask = kept[:1].double() / 0.6
    assert_same(readout.features, h * mask)
    assert_same(readout.mixture.gate, (h * mask) @ memory.gate.weight.T)
    # the same mask on a memory without dropout: on the query, and on what is read
    plain = build(SMALL, HIDDEN, VOCABULARY)
    state = after_prefix(plain, 8, batch=3)
    for b in range(3):
        with torch.no_grad():
            plain.query.weight.copy_(memory.query.weight * mask[0, b])
        one, _ = read(plain, h[:, b : b + 1], {name: x[:, b : b + 1] for name, x in state.items()})
        assert_same(readout.mixture.features[:, b : b + 1], one.mixture.features * mask[:, b : b + 1])
        assert_same(readout.attention.weights[:, b : b + 1], one.attention.weights)


def test_what_is_kept_is_not_dropped() -> None:
    """Nor is anything in evaluation."""
    h, config = values(7, 3, HIDDEN), replace(SMALL, dropout=0.4)
    (_, dropped), memory = trained(config, h)
    (plain, after), _ = trained(SMALL, h)
    assert bitwise(dropped, after)
    evaluated, _ = read(memory.eval(), h, after_prefix(memory, 8, batch=3))
    assert bitwise(evaluated, plain)


def test_a_model_drops_nothing_twice_and_hands_on_the_whole_output() -> None:
    config = model_config(LSTMConfig(hidden_size=HIDDEN), replace(SMALL, dropout=0.4), SoftmaxConfig())
    model, tokens = language_model(config).train(), draw_words(9, 8)
    torch.manual_seed(1)
    readout, state = model(tokens, model.init_state(8))
    kept = readout.features != 0
    assert_same(readout.features[kept], readout.hidden[kept] / 0.6)
    assert torch.equal(state.memory["states"], readout.hidden[-6:])
    assert readout.hidden.all()


def test_spans_of_the_segment_teach_the_encoder() -> None:
    memory = build(SMALL, HIDDEN, VOCABULARY)
    h = values(9, 1, HIDDEN).requires_grad_()
    readout, state = read(memory, h, memory.init_state(1))
    loss = readout.mixture.features[-1].sum()
    gradient, projected = torch.autograd.grad(loss, [h, memory.span_key.weight], retain_graph=True)
    reached = gradient.abs().sum((1, 2)) > 0
    assert reached[-1] and reached[:-1].any() and projected.any()
    assert state["states"].requires_grad  # the trainer detaches
    (gradient,) = torch.autograd.grad(readout.features[3].sum(), h)
    assert gradient[3].all()


def test_without_the_tanh_the_attention_asks_nothing() -> None:
    """Eq. 7 as printed: any current step looks at the same spans alike; with the tanh it does not."""
    for config, same in ((replace(SMALL, score="literal"), True), (SMALL, False)):
        memory = build(config, HIDDEN, VOCABULARY)
        state = after_prefix(memory, 8)
        one, two = (read(memory, values(1, 2, HIDDEN, seed=n), state)[0] for n in (1, 2))
        assert bitwise(one.attention.weights, two.attention.weights) == same
        assert not bitwise(one.mixture.gate, two.mixture.gate)


def test_words_are_spans_of_one_output() -> None:
    """The outputs themselves: every value that is read is an average of remembered outputs."""
    memory = build(SpanBufferConfig(buffer_size=4, words=True, dropout=0.0), HIDDEN, VOCABULARY)
    h = values(6, 2, HIDDEN)
    readout, _ = read(memory, h, memory.init_state(2))
    for t in range(1, 6):
        first = max(0, t - 4)
        average = torch.einsum("bn,nbh->bh", readout.attention.weights[t, :, first - t :], h[first:t])
        assert_same(readout.mixture.features[t], average)
    # how long a span is means nothing here
    other = SpanBufferConfig(buffer_size=4, words=True, dropout=0.0, span_length=9)
    assert bitwise(read(build(other, HIDDEN, VOCABULARY), h, memory.init_state(2))[0], readout)


@pytest.mark.parametrize("encoder", small.encoders())
def test_any_encoder(encoder: Any) -> None:
    """Any cut is the same stream, the buffer is read, and everything learns."""
    model = language_model(model_config(encoder, SMALL, SoftmaxConfig()))
    tokens, targets = draw_words(14, 2), draw_words(14, 2, seed=1)
    whole, _ = model.log_prob(tokens, targets, model.init_state(2))
    pieces, state = [], model.init_state(2)
    for inputs, outputs in zip(tokens.split([5, 1, 8]), targets.split([5, 1, 8]), strict=True):
        one, state = model.log_prob(inputs, outputs, state)
        pieces.append(one)
    assert_same(torch.cat(pieces), whole)
    readout, _ = model.train()(tokens, model.init_state(2))
    scores = model.head.score(readout, targets)
    (scores.extra_loss - scores.log_prob).sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize("head", small.heads())
def test_any_head(head: Any) -> None:
    """Both parts are distributions of the same head, and so is their mixture."""
    model = language_model(model_config(LSTMConfig(hidden_size=HIDDEN), SMALL, head))
    tokens, targets = draw_words(9, 2), draw_words(9, 2, seed=1)
    readout, _ = model(tokens, model.init_state(2))
    every, scores = model.head.log_probs(readout), model.head.score(readout, targets)
    torch.testing.assert_close(every.exp().sum(-1), torch.ones(9, 2).double())
    assert_same(scores.log_prob, every.gather(-1, targets[..., None]).squeeze(-1))
    filled = readout.mixture.filled
    for name, features in (("encoder_nll", readout.features), ("buffer_nll", readout.mixture.features)):
        alone = model.head.log_probs(replace(readout, features=features, mixture=None))
        assert_same(-scores.metrics[name], alone.gather(-1, targets[..., None]).squeeze(-1).where(filled, 0))


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({}, 400 * 400 * 2 + 400 + 2 * 400),
        ({"attention_size": 100}, 400 * 100 * 2 + 100 + 2 * 400),
        ({"score": "literal"}, 400 * 400 + 400 + 2 * 400),
        ({"words": True}, 400 * 400 * 2 + 400 + 2 * 400),
    ],
    ids=str,
)
def test_parameters(changes: dict[str, Any], size: int) -> None:
    """W_h, W_s, v and W_g; no biases."""
    config = ModelConfig(embedding_size=400, encoder=AWDLSTMConfig(), head=SoftmaxConfig(tied=True))
    counts = [
        count_configured(replace(config, memory=memory), 100).total
        for memory in (SpanBufferConfig(**changes), NoMemoryConfig())
    ]
    assert counts[0] - counts[1] == size


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: SpanBufferConfig(buffer_size=4, span_length=8),
            "model.memory.buffer_size=4: must be at least model.memory.span_length=8, to hold a span. Use 8 or more, "
            "or a smaller span_length",
        ),
        (
            lambda: SpanBufferConfig(buffer_size=20, span_length=8),
            "model.memory.buffer_size=20: must be a multiple of model.memory.span_length=8. Use 16 or 24.",
        ),
        (
            lambda: SpanBufferConfig(span_length=1),
            "model.memory.span_length=1: must be at least 2: h_i − h_i is zero. Use model.memory.words=true for the "
            "outputs themselves",
        ),
        (lambda: SpanBufferConfig(buffer_size=0, words=True), "model.memory.buffer_size=0: must be at least 1"),
        (lambda: SpanBufferConfig(attention_size=0), "model.memory.attention_size=0: must be at least 1, or null"),
        (lambda: SpanBufferConfig(dropout=1.0), "model.memory.dropout=1.0: must be in [0, 1)"),
        *(
            (
                lambda name=name, value=value: RewardConfig(**{name: value}),
                f"model.memory.reward.{name}={value}: must be above 0 and finite",
            )
            for name in ("power", "slope")
            for value in (0.0, -1.0, float("inf"), float("nan"))
        ),
        *(
            (
                lambda name=name, value=value: GateConfig(**{name: value}),
                f"model.memory.gate.{name}={value}: must be from 1e-06 on and finite; 0 would be a gate that only "
                "chooses: 0.01 is nearly that",
            )
            for name in ("training_temperature", "evaluation_temperature")
            for value in (0.0, -1.0, 1e-45, 9e-7, float("inf"), float("nan"))
        ),
        (lambda: RewardConfig(most=0.0), "model.memory.reward.most=0.0: must be above 0 and finite"),
        (lambda: RewardConfig(weight=-0.1), "model.memory.reward.weight=-0.1: must be 0 or positive, and finite"),
        (
            lambda: RewardConfig(base=10.0),
            "model.memory.reward.base=10.0: must be in [0, model.memory.reward.most=10.0)",
        ),
        (lambda: RewardConfig(base=-1.0), "model.memory.reward.base=-1.0: must be in [0, "),
        (lambda: SpanBufferConfig(score="dot"), "model.memory.score=dot: must be tanh or literal"),
        (lambda: SpanBufferConfig(newest="next"), "model.memory.newest=next: must be before or current"),
        (
            lambda: ModelConfig(memory=SpanBufferConfig(), output_dropout=0.4),
            "model.output_dropout=0.4: must be 0 with model.memory.kind=span_buffer, whose own is model.memory.dropout",
        ),
    ],
)
def test_what_is_refused(make: Make, message: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        make()


def test_the_ways_out_that_are_named_are_none_that_is_refused() -> None:
    SpanBufferConfig(buffer_size=16)
    SpanBufferConfig(buffer_size=24)
    SpanBufferConfig(span_length=1, words=True)
    ModelConfig(memory=SpanBufferConfig(dropout=0.0), output_dropout=0.0, encoder=RNNConfig())


def test_autocast_does_not_touch_the_gate() -> None:
    """A small temperature of evaluation would make much of what bfloat16 rounds."""
    memory = build(SMALL, HIDDEN, VOCABULARY).float()
    h = values(7, 3, HIDDEN, dtype=torch.float32)
    expected, _ = read(memory, h, memory.init_state(3))
    with torch.autocast("cpu", torch.bfloat16):
        readout, _ = read(memory, h, memory.init_state(3))
    assert torch.equal(readout.mixture.gate, expected.mixture.gate)
    assert not torch.equal(readout.attention.weights, expected.attention.weights)
