"""What every registered encoder promises, and the library's kernels with gradients in evaluation."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from spanlm.models.encoders import AWDLSTMConfig, LSTMConfig, RNNConfig, VariationalLSTMConfig
from spanlm.models.encoders.stacks import FusedLSTM, FusedRNN
from spanlm.models.interfaces import Encoder, Tensors
from spanlm.models.ops.dropout import dropout
from tests.models import small
from tests.models.small import EMBEDDING, HIDDEN, assert_same, bitwise, build, values

every_encoder = pytest.mark.parametrize("config", small.encoders())


def after_prefix(encoder: Encoder, batch: int = 2) -> Tensors:
    _, state = encoder(values(3, batch, EMBEDDING, seed=50), encoder.init_state(batch))
    return {name: x.detach() for name, x in state.items()}


@every_encoder
def test_state_is_a_value_and_is_read(config: Any) -> None:
    encoder, x = build(config, EMBEDDING), values(2, 2, EMBEDDING)
    state = after_prefix(encoder)
    copy = {name: s.clone() for name, s in state.items()}
    h, after = encoder(x, state)
    assert bitwise(state, copy)
    assert bitwise(encoder(x, state)[0], h)
    assert {n: s.shape for n, s in after.items()} == {n: s.shape for n, s in state.items()}
    for name in state:
        other = encoder(x, {**state, name: torch.zeros_like(state[name])})[0]
        assert not torch.isclose(other, h).all(), name


@every_encoder
def test_sizes(config: Any) -> None:
    encoder = build(config, EMBEDDING)
    assert encoder.output_size == config.output_size == HIDDEN
    assert encoder(values(2, 3, EMBEDDING), encoder.init_state(3))[0].shape == (2, 3, HIDDEN)
    larger = config.resized(20)
    assert larger.output_size == 20
    assert (larger.kind, larger.resized(HIDDEN)) == (config.kind, config)


every_hornn = pytest.mark.parametrize("config", [p for p in small.encoders() if p.values[0].kind == "hornn"])


@every_hornn
def test_hornn_rounds_nothing_but_its_products(config: Any) -> None:
    """Under autocast the factors and the result of each product are bfloat16; sums, gates, tanh are not."""
    encoder = build(config, EMBEDDING).float()
    x = values(1, 3, EMBEDDING).float()
    state = values(config.order + config.newest_apart, 3, HIDDEN, seed=1).float()
    with torch.autocast("cpu", torch.bfloat16):
        h, _ = encoder(x, {"h": state})
        inputs = encoder.input(x)[0].float()
        gates = encoder.gate(x)[0].float().view(3, config.order, HIDDEN) if config.pooling == "gated" else None
    pooled = torch.zeros(3, HIDDEN) if config.pooling != "max" else torch.full((3, HIDDEN), -torch.inf)
    factors = [config.forgetting_factor**n if config.pooling == "fofe" else 1.0 for n in range(config.order, 0, -1)]
    for n, (output, matrix, factor) in enumerate(zip(state, encoder.recurrent, factors, strict=False)):
        product = (output.bfloat16() @ (factor * matrix).bfloat16()).float()
        if gates is not None:
            product = product[:, :HIDDEN] * (gates[:, n] + product[:, HIDDEN:]).sigmoid()
        pooled = torch.maximum(pooled, product) if config.pooling == "max" else pooled + product
    if config.newest_apart:
        inputs = inputs + (state[-1].bfloat16() @ encoder.feedback.weight.T.bfloat16()).float()
    torch.testing.assert_close(h[0], torch.tanh(inputs + pooled), rtol=1e-5, atol=1e-5)


STACKED = [
    LSTMConfig(hidden_size=6, layers=2, dropout=0.5),
    RNNConfig(hidden_size=6, layers=2, dropout=0.5),
    VariationalLSTMConfig(hidden_size=6, layers=2, input_dropout=0.5, recurrent_dropout=0.5),
    AWDLSTMConfig(hidden_size=6, layers=2, last_size=4),
]
every_stack = pytest.mark.parametrize("config", STACKED, ids=lambda config: config.kind)
STACKS = pytest.mark.parametrize(("kind", "plain"), [(FusedLSTM, nn.LSTM), (FusedRNN, nn.RNN)], ids=["lstm", "rnn"])


def carried(stack: Any, layers: int = 2) -> Any:
    h, c = (values(layers, 3, 4, seed=n).to(stack.weight_hh_l0.dtype) for n in (1, 2))
    return (h, c) if isinstance(stack, nn.LSTM) else h


def flat(result: Any) -> list[Tensor]:
    output, state = result
    return [output, *state] if isinstance(state, tuple) else [output, state]


@STACKS
def test_in_training_units_are_dropped_between_its_layers(kind: Any, plain: Any) -> None:
    both, x = kind(4, 4, 2, dropout=0.4).double(), values(6, 3, 4)
    below, above = (plain(4, 4).double() for _ in range(2))
    for number, one in enumerate((below, above)):
        one.load_state_dict({name: both.get_parameter(name[:-1] + str(number)) for name in one.state_dict()})
    torch.manual_seed(1)
    found = flat(both(x, carried(both)))
    torch.manual_seed(1)
    h, *lower = flat(below(x, layer_of(carried(both), 0)))
    outputs, *upper = flat(above(dropout(h, 0.4, True), layer_of(carried(both), 1)))
    assert_same(found, [outputs, *(torch.cat(ends) for ends in zip(lower, upper, strict=True))])
    assert not bitwise(found[0], flat(both(x, carried(both)))[0])


def layer_of(state: Any, layer: int) -> Any:
    return tuple(x[layer : layer + 1] for x in state) if isinstance(state, tuple) else state[layer : layer + 1]


@every_stack
def test_evaluation_with_gradients_is_evaluation(config: Any) -> None:
    encoder = build(config, EMBEDDING)
    x, state = values(6, 3, EMBEDDING), encoder.init_state(3)
    before = torch.get_rng_state()
    found = encoder(x, state)
    with torch.no_grad():
        expected = encoder(x, state)
    assert torch.equal(torch.get_rng_state(), before)
    assert_same([found[0], *found[1].values()], [expected[0], *expected[1].values()])
