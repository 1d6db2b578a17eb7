"""The library's kernels with gradients in evaluation, which dynamic evaluation asks for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from spanlm.models.encoders import AWDLSTMConfig, LSTMConfig, RNNConfig, VariationalLSTMConfig
from spanlm.models.encoders.stacks import FusedLSTM, FusedRNN
from spanlm.models.ops.precision import dropout
from tests.models.small import EMBEDDING, assert_same, bitwise, build, values

ENCODERS = [
    LSTMConfig(hidden_size=6, layers=2, dropout=0.5),
    RNNConfig(hidden_size=6, layers=2, dropout=0.5),
    VariationalLSTMConfig(hidden_size=6, layers=2, input_dropout=0.5, recurrent_dropout=0.5),
    AWDLSTMConfig(hidden_size=6, layers=2, last_size=4),
]
every_encoder = pytest.mark.parametrize("config", ENCODERS, ids=lambda config: config.kind)
STACKS = pytest.mark.parametrize(("kind", "plain"), [(FusedLSTM, nn.LSTM), (FusedRNN, nn.RNN)], ids=["lstm", "rnn"])


def carried(stack: Any, layers: int = 2) -> Any:
    h, c = (values(layers, 3, 4, seed=n).to(stack.weight_hh_l0.dtype) for n in (1, 2))
    return (h, c) if isinstance(stack, nn.LSTM) else h


def flat(result: Any) -> list[Tensor]:
    output, state = result
    return [output, *state] if isinstance(state, tuple) else [output, state]


@STACKS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("training", [True, False])
def test_it_is_the_librarys_module(kind: Any, plain: Any, dtype: torch.dtype, training: bool) -> None:
    rate = 0.0 if training else 0.4
    torch.manual_seed(0)
    theirs = plain(5, 4, 2, dropout=rate).to(dtype).train(training)
    ours = kind(5, 4, 2, dropout=rate).to(dtype).train(training)
    ours.load_state_dict(theirs.state_dict())
    results = []
    for stack in (ours, theirs):
        found = flat(stack(values(6, 3, 5).to(dtype), carried(stack)))
        gradients = torch.autograd.grad(found[0].square().sum(), list(stack.parameters()))
        results.append([*(x.detach() for x in found), *gradients])
    assert_same(*results, rtol=1e-5, atol=1e-6)


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


@every_encoder
def test_evaluation_with_gradients_is_evaluation(config: Any) -> None:
    encoder = build(config, EMBEDDING)
    x, state = values(6, 3, EMBEDDING), encoder.init_state(3)
    before = torch.get_rng_state()
    found = encoder(x, state)
    with torch.no_grad():
        expected = encoder(x, state)
    assert torch.equal(torch.get_rng_state(), before)
    assert_same([found[0], *found[1].values()], [expected[0], *expected[1].values()])
