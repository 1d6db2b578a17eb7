"""The span buffer in a model: its dropout, what its gradients reach, every encoder and head, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from spanlm.errors import InputError
from spanlm.models.config import ModelConfig
from spanlm.models.counting import count_configured
from spanlm.models.encoders import AWDLSTMConfig, LSTMConfig, RNNConfig
from spanlm.models.heads import MixtureOfSoftmaxesConfig, SoftmaxConfig
from spanlm.models.interfaces import Init
from spanlm.models.memories import NoMemoryConfig, SpanBufferConfig
from tests.models import small
from tests.models.contract import after_prefix
from tests.models.small import (
    EMBEDDING,
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
    assert_same(readout.buffer.gate, (h * mask) @ memory.gate.weight.T)
    # the same mask on a memory without dropout: on the query, and on what is read
    plain = build(SMALL, HIDDEN, VOCABULARY)
    state = after_prefix(plain, 8, batch=3)
    for b in range(3):
        with torch.no_grad():
            plain.query.weight.copy_(memory.query.weight * mask[0, b])
        one, _ = read(plain, h[:, b : b + 1], {name: x[:, b : b + 1] for name, x in state.items()})
        assert_same(readout.buffer.features[:, b : b + 1], one.buffer.features * mask[:, b : b + 1])
        assert_same(readout.attention[:, b : b + 1], one.attention)


@pytest.mark.parametrize("negative", ["literal", "complement"])
def test_the_reward_teaches_the_encoder_or_the_gate_alone(negative: str) -> None:
    """The gate learns the same either way, and so does all from the likelihood."""
    learnt = {}
    head = SoftmaxConfig().build(HIDDEN, nn.Embedding(VOCABULARY, EMBEDDING), Init(0.7, 0.7)).double().train()
    for teaches in ("all", "gate"):
        h = values(7, 3, HIDDEN).requires_grad_()
        config = replace(SMALL, dropout=0.4, reward=0.5, negative_reward=negative, reward_teaches=teaches)
        (readout, _), memory = trained(config, h)
        scores = head.score(readout, draw_words(7, 3))
        leaves = (h, memory.gate.weight)
        learnt[teaches] = [
            torch.autograd.grad(term.sum(), leaves, retain_graph=True, materialize_grads=True)
            for term in (scores.extra_loss, scores.log_prob)
        ]
        assert scores.extra_loss.any()
    (all_h, all_gate), by_likelihood = learnt["all"]
    (no_h, one_gate), also_by_likelihood = learnt["gate"]
    assert all_h.any() and not no_h.any()
    torch.testing.assert_close(one_gate, all_gate)
    torch.testing.assert_close(also_by_likelihood, by_likelihood)


def test_what_is_kept_is_not_dropped() -> None:
    """Nor is anything in evaluation."""
    h, config = values(7, 3, HIDDEN), replace(SMALL, dropout=0.4)
    (_, dropped), memory = trained(config, h)
    (plain, after), _ = trained(SMALL, h)
    assert bitwise(dropped, after)
    evaluated, _ = read(memory.eval(), h, after_prefix(memory, 8, batch=3))
    assert bitwise(evaluated, plain)


def test_what_is_kept_is_dropped_if_asked_for() -> None:
    """With the mask of its segment, and what is read meets no other one; nothing is dropped in evaluation."""
    h, config = values(7, 3, HIDDEN), replace(SMALL, dropout=0.4, kept="dropped")
    (readout, after), memory = trained(config, h)
    (given, kept), _ = trained(SMALL, readout.features)
    assert (readout.features == 0).any()
    assert_same(after, kept)
    assert_same([readout.buffer.features, readout.attention], [given.buffer.features, given.attention])
    (plain, _), _ = trained(SMALL, h)
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


@pytest.mark.parametrize("grid", ["sliding", "fixed"])
@pytest.mark.parametrize("own", [True, False])
def test_spans_of_the_segment_teach_the_encoder_or_not(own: bool, grid: Any) -> None:
    """The query does in any case, and the weights learn from spans in any case."""
    memory = build(replace(SMALL, own_segment_gradients=own, grid=grid), HIDDEN, VOCABULARY)
    h = values(9, 1, HIDDEN).requires_grad_()
    readout, state = read(memory, h, memory.init_state(1))
    gradient, projected = torch.autograd.grad(
        readout.buffer.features[-1].sum(), [h, memory.span_key.weight], retain_graph=True
    )
    reached = gradient.abs().sum((1, 2)) > 0
    assert reached[-1] and reached[:-1].any() == own
    assert projected.any()
    assert state["states"].requires_grad  # the trainer detaches
    (gradient,) = torch.autograd.grad(readout.features[3].sum(), h)
    assert gradient[3].all()


def test_without_the_tanh_the_attention_asks_nothing() -> None:
    """Eq. 7 as printed: any current step looks at the same spans alike; with the tanh it does not."""
    for config, same in ((replace(SMALL, score="literal"), True), (SMALL, False)):
        memory = build(config, HIDDEN, VOCABULARY)
        state = after_prefix(memory, 8)
        one, two = (read(memory, values(1, 2, HIDDEN, seed=n), state)[0] for n in (1, 2))
        assert bitwise(one.attention, two.attention) == same
        assert not bitwise(one.buffer.gate, two.buffer.gate)


def test_words_are_spans_of_one_output() -> None:
    """The outputs themselves: every value that is read is an average of remembered outputs."""
    memory = build(SpanBufferConfig(buffer_size=4, words=True, dropout=0.0), HIDDEN, VOCABULARY)
    h = values(6, 2, HIDDEN)
    readout, _ = read(memory, h, memory.init_state(2))
    for t in range(1, 6):
        first = max(0, t - 4)
        average = torch.einsum("bn,nbh->bh", readout.attention[t, :, first - t :], h[first:t])
        assert_same(readout.buffer.features[t], average)
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
    for found, features in ((scores.parts.encoder, readout.features), (scores.parts.buffer, readout.buffer.features)):
        alone = model.head.log_probs(replace(readout, features=features, buffer=None))
        assert_same(found, alone.gather(-1, targets[..., None]).squeeze(-1))


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
            "model.memory.span_length=1: must be at least 2 with span_offset=literal: h_i − h_i is zero. "
            "Use model.memory.span_offset=length, or model.memory.words=true for the outputs themselves",
        ),
        (lambda: SpanBufferConfig(span_length=0), "model.memory.span_length=0: must be at least 1"),
        (lambda: SpanBufferConfig(buffer_size=0, words=True), "model.memory.buffer_size=0: must be at least 1"),
        (lambda: SpanBufferConfig(attention_size=0), "model.memory.attention_size=0: must be at least 1, or null"),
        (lambda: SpanBufferConfig(dropout=1.0), "model.memory.dropout=1.0: must be in [0, 1)"),
        *(
            (
                lambda name=name, value=value: SpanBufferConfig(**{name: value}),
                f"model.memory.{name}={value}: must be above 0 and finite",
            )
            for name in ("reward_power", "reward_slope")
            for value in (0.0, -1.0, float("inf"), float("nan"))
        ),
        *(
            (
                lambda name=name, value=value: SpanBufferConfig(**{name: value}),
                f"model.memory.{name}={value}: must be from 1e-06 on and finite; 0 would be a gate that only chooses: "
                "0.01 is nearly that",
            )
            for name in ("training_temperature", "evaluation_temperature")
            for value in (0.0, -1.0, 1e-45, 9e-7, float("inf"), float("nan"))
        ),
        (lambda: SpanBufferConfig(reward_most=0.0), "model.memory.reward_most=0.0: must be above 0 and finite"),
        (lambda: SpanBufferConfig(reward=-0.1), "model.memory.reward=-0.1: must be 0 or positive, and finite"),
        (
            lambda: SpanBufferConfig(reward_base=10.0),
            "model.memory.reward_base=10.0: must be in [0, model.memory.reward_most=10.0)",
        ),
        (lambda: SpanBufferConfig(reward_base=-1.0), "model.memory.reward_base=-1.0: must be in [0, "),
        (lambda: SpanBufferConfig(grid="free"), "model.memory.grid=free: must be sliding or fixed"),
        (lambda: SpanBufferConfig(score="dot"), "model.memory.score=dot: must be tanh or literal"),
        (lambda: SpanBufferConfig(span_offset="both"), "model.memory.span_offset=both: must be literal or length"),
        (
            lambda: SpanBufferConfig(negative_reward="none"),
            "model.memory.negative_reward=none: must be literal or complement",
        ),
        (lambda: SpanBufferConfig(rewarded="both"), "model.memory.rewarded=both: must be adversarial or clean"),
        (
            lambda: SpanBufferConfig(reward=0.0, negative_reward="complement"),
            "model.memory.negative_reward=complement: must be literal with model.memory.reward=0: no reward is in",
        ),
        (
            lambda: SpanBufferConfig(reward=0.0, reward_teaches="gate"),
            "model.memory.reward_teaches=gate: must be all with model.memory.reward=0: no reward is in the loss",
        ),
        (
            lambda: SpanBufferConfig(reward=0.0, rewarded="clean"),
            "model.memory.rewarded=clean: must be adversarial with model.memory.reward=0: no reward is in the loss",
        ),
        (
            lambda: SpanBufferConfig(reward=0.0, reward_gate="tempered"),
            "model.memory.reward_gate=tempered: must be plain with model.memory.reward=0: no reward is in the loss",
        ),
        (
            lambda: SpanBufferConfig(reward=0.0, reward_constant=False),
            "model.memory.reward_constant=false: must be true with model.memory.reward=0: no reward is in the loss",
        ),
        (
            lambda: SpanBufferConfig(reward_constant=False, reward_teaches="gate"),
            "model.memory.reward_teaches=gate: must be all with model.memory.reward_constant=false: what r compares",
        ),
        (
            lambda: SpanBufferConfig(reward_constant=False, rewarded="clean"),
            "model.memory.rewarded=clean: must be adversarial with model.memory.reward_constant=false",
        ),
        (
            lambda: SpanBufferConfig(reward_constant=False, negative_reward="complement"),
            "model.memory.negative_reward=complement: must be literal with model.memory.reward_constant=false",
        ),
        (
            lambda: SpanBufferConfig(training_temperature=1.0, reward_gate="tempered"),
            "model.memory.reward_gate=tempered: must be plain with model.memory.training_temperature=1",
        ),
        (
            lambda: SpanBufferConfig(dropout=0.0, kept="dropped"),
            "model.memory.kept=dropped: must be raw with model.memory.dropout=0: nothing is dropped",
        ),
        (
            lambda: SpanBufferConfig(annealed_temperature=1.0),
            "model.memory.annealing_epochs=null: must be at least 1 beside model.memory.annealed_temperature=1",
        ),
        (
            lambda: SpanBufferConfig(annealed_temperature=1.0, annealing_epochs=0),
            "model.memory.annealing_epochs=0: must be at least 1 beside model.memory.annealed_temperature=1",
        ),
        (
            lambda: SpanBufferConfig(annealed_temperature=100.0, annealing_epochs=3),
            "model.memory.annealed_temperature=100.0: must be another than model.memory.training_temperature=100, or",
        ),
        (
            lambda: SpanBufferConfig(annealing_epochs=3),
            "model.memory.annealing_epochs=3: must be null unless model.memory.annealed_temperature is a temperature",
        ),
        (
            lambda: SpanBufferConfig(annealed_temperature=0.0, annealing_epochs=3),
            "model.memory.annealed_temperature=0.0: must be from 1e-06 on and finite",
        ),
        (
            lambda: SpanBufferConfig(words=True, before_stream="zero"),
            "model.memory.before_stream=zero: must be masked with model.memory.words=true: there are no spans",
        ),
        (lambda: SpanBufferConfig(before_stream="kept"), "model.memory.before_stream=kept: must be masked or zero"),
        (lambda: SpanBufferConfig(kept="both"), "model.memory.kept=both: must be raw or dropped"),
        (lambda: SpanBufferConfig(reward_gate="none"), "model.memory.reward_gate=none: must be plain or tempered"),
        (
            lambda: SpanBufferConfig(words=True, grid="fixed"),
            "model.memory.grid=fixed: must be sliding with model.memory.words=true: there are no spans",
        ),
        (
            lambda: SpanBufferConfig(words=True, span_offset="length"),
            "model.memory.span_offset=length: must be literal with model.memory.words=true",
        ),
        (
            lambda: ModelConfig(head=MixtureOfSoftmaxesConfig(buffer="projection")),
            "model.head.buffer=projection: must be mixture without a span buffer: there is nothing to project. Use "
            "model.memory.kind=span_buffer",
        ),
        (
            lambda: ModelConfig(memory=SpanBufferConfig(), output_dropout=0.4),
            "model.output_dropout=0.4: must be 0 with a span buffer, whose own is model.memory.dropout",
        ),
    ],
)
def test_what_is_refused(make: Make, message: str) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        make()


def test_the_ways_out_that_are_named_are_none_that_is_refused() -> None:
    SpanBufferConfig(buffer_size=16)
    SpanBufferConfig(buffer_size=24)
    SpanBufferConfig(span_length=1, span_offset="length")
    SpanBufferConfig(span_length=1, words=True)
    SpanBufferConfig(reward=0.0, reward_power=2.0)  # what is logged of it
    ModelConfig(memory=SpanBufferConfig(), head=MixtureOfSoftmaxesConfig(buffer="projection"))
    ModelConfig(memory=SpanBufferConfig(dropout=0.0), output_dropout=0.0, encoder=RNNConfig())


def test_autocast_does_not_touch_the_gate() -> None:
    """A small temperature of evaluation would make much of what bfloat16 rounds."""
    memory = build(SMALL, HIDDEN, VOCABULARY).float()
    h = values(7, 3, HIDDEN, dtype=torch.float32)
    expected, _ = read(memory, h, memory.init_state(3))
    with torch.autocast("cpu", torch.bfloat16):
        readout, _ = read(memory, h, memory.init_state(3))
    assert torch.equal(readout.buffer.gate, expected.buffer.gate)
    assert not torch.equal(readout.attention, expected.attention)


def test_the_temperature_of_training_falls_by_the_same_factor_after_each_epoch() -> None:
    config = replace(SMALL, training_temperature=100.0, annealed_temperature=0.1, annealing_epochs=3)
    assert [config.temperature_after(n) for n in range(6)] == pytest.approx([100.0, 10.0, 1.0, 0.1, 0.1, 0.1])
    assert [SMALL.temperature_after(n) for n in (0, 3, 100)] == [100.0] * 3
    rising = replace(config, training_temperature=1.0, annealed_temperature=4.0, annealing_epochs=2)
    assert [rising.temperature_after(n) for n in range(4)] == pytest.approx([1.0, 2.0, 4.0, 4.0])
    assert replace(rising, reward_gate="tempered").rule.reward_gate == "tempered"  # with 1 at first it means something
    for first, last in ((49.0, 1.0), (1e308, 1e-6), (1e-6, 1e308)):
        ends = replace(config, training_temperature=first, annealed_temperature=last)
        assert (ends.temperature_after(0), ends.temperature_after(3), ends.temperature_after(9)) == (first, last, last)


def test_an_epochs_temperature_is_that_of_its_likelihood_and_of_nothing_else() -> None:
    """Until it is told an epoch, and in what learns in evaluation, a model has the last one."""
    memory = build(replace(SMALL, annealed_temperature=1.0, annealing_epochs=2), HIDDEN, VOCABULARY)
    h = values(7, 2, HIDDEN)
    for epochs, temperature in ((None, 1.0), (0, 100.0), (1, 10.0), (2, 1.0), (7, 1.0), (0, 100.0)):
        if epochs is not None:
            memory.begin_epoch(epochs)
        buffer = read(memory.train(), h, memory.init_state(2))[0].buffer
        assert_same(buffer.log_shares(training=True), (buffer.gate / temperature).log_softmax(-1))
        assert_same(buffer.log_shares(training=False), (buffer.gate / 0.1).log_softmax(-1))
        assert_same(buffer.rewarded_log_shares(), buffer.gate.log_softmax(-1))


def test_what_is_penalised_besides_is_what_is_read_with_its_mask_and_without() -> None:
    h = values(7, 3, HIDDEN)
    (readout, _), _ = trained(replace(SMALL, dropout=0.4, penalised=True), h)
    masked, whole = readout.penalised
    assert masked is readout.buffer.features and (masked == 0).any() and not (whole == 0).any()
    kept = masked != 0
    assert_same(masked[kept], whole[kept] / 0.6)
    (usual, _), _ = trained(replace(SMALL, dropout=0.4), h)
    assert usual.penalised is None
