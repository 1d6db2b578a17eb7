"""The vectorised rooms against the loops of `tests/reference.py`: outputs, states, gradients, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from spanlm.models.encoders import LSTMConfig
from spanlm.models.heads import SoftmaxConfig
from spanlm.models.interfaces import Readout
from spanlm.models.memories import KeyValueConfig, KeyValueMemory, NGramConfig, NGramMemory, NoMemoryConfig
from tests import reference
from tests.models import small
from tests.models.small import assert_same, build, values, words

PART = 3
SHAPES = [(1, 1, 1), (1, 3, 4), (7, 2, 3), (5, 3, 9), (6, 1, 1), (4, 2, 4), (2, 1, 5)]
LOOPS = {1: reference.attention, 2: reference.key_value, 3: reference.key_value_predict}


def gradients(outputs: Sequence[Tensor], leaves: Sequence[Tensor]) -> list[Tensor]:
    """Of one fixed scalar that weights every output element differently."""
    loss = sum((x * values(*x.shape, seed=n)).sum() for n, x in enumerate(outputs) if x.requires_grad)
    return list(torch.autograd.grad(loss, list(leaves), retain_graph=True, materialize_grads=True))


def past_outputs(kind: str, capacity: int, batch: int, size: int) -> reference.Past:
    """What each stream remembers: nothing, as much as fits, or from 0 up to that, stream by stream."""
    full = {"fresh": 0, "full": capacity}
    counts = [full.get(kind, (1 + 2 * b) % (capacity + 1)) for b in range(batch)]
    return [[values(size, seed=100 * b + n).requires_grad_() for n in range(count)] for b, count in enumerate(counts)]


def slots(past: reference.Past, length: int, part: Callable[[Tensor], Tensor], empty: Tensor) -> Tensor:
    """(length, B, ·): what is remembered stands at the end, `empty` before it."""
    columns = [torch.stack([empty] * (length - len(p)) + [part(x) for x in p]) for p in past]
    return torch.stack(columns, dim=1)


def projections(memory: KeyValueMemory) -> reference.Projections:
    return reference.Projections(
        w_y=memory.memory_key.weight,
        w_h=memory.query.weight,
        w=memory.score,
        w_r=memory.read.weight,
        w_x=memory.predict.weight,
    )


def key_value_parts(roles: int) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """Where an output holds its key and its value."""
    start = 0 if roles == 1 else PART
    return (lambda x: x[..., :PART]), (lambda x: x[..., start : start + PART])


@pytest.mark.parametrize("carried", ["fresh", "partial", "full"])
@pytest.mark.parametrize("roles", [1, 2, 3])
@pytest.mark.parametrize(("steps", "batch", "window"), SHAPES, ids=str)
def test_key_value(steps: int, batch: int, window: int, roles: int, carried: str) -> None:
    memory = build(KeyValueConfig(roles=roles, window=window), roles * PART)
    h = values(steps, batch, roles * PART, seed=7).requires_grad_()
    past = past_outputs(carried, window, batch, roles * PART)
    leaves = [h, *memory.parameters(), *[x for p in past for x in p]]
    key, value = key_value_parts(roles)
    poison = torch.full((PART,), torch.nan, dtype=torch.float64)
    yes = torch.ones((), dtype=torch.bool)
    state = {
        "keys": slots(past, window, key, poison),
        "values": slots(past, window, value, poison),
        "filled": slots(past, window, lambda _: yes, ~yes),
    }

    readout, after = memory(h, state)
    features, weights, remembered = LOOPS[roles](h, past, window, projections(memory))

    assert readout.features.shape == (steps, batch, PART)
    assert_same([readout.features, readout.attention], [features, weights])
    filled = slots(remembered, window, lambda _: yes, ~yes)
    assert torch.equal(after["filled"], filled)
    expected = [slots(remembered, window, part, torch.zeros_like(poison)) for part in (key, value)]
    actual = [torch.where(filled[..., None], after[name], 0) for name in ("keys", "values")]
    assert_same(actual, expected)
    assert_same(
        gradients([readout.features, readout.attention, *actual], leaves),
        gradients([features, weights, *expected], leaves),
    )


@pytest.mark.parametrize("carried", ["fresh", "partial", "full"])
@pytest.mark.parametrize(("steps", "batch", "order"), [(1, 1, 2), (1, 3, 4), (7, 2, 3), (2, 3, 5), (5, 1, 2)])
def test_ngram(steps: int, batch: int, order: int, carried: str) -> None:
    size = order * PART
    memory: NGramMemory = build(NGramConfig(order=order), size)
    h = values(steps, batch, size, seed=7).requires_grad_()
    past = past_outputs(carried, order - 1, batch, size)
    leaves = [h, *memory.parameters(), *[x for p in past for x in p]]
    zeros = torch.zeros(size, dtype=torch.float64)

    readout, after = memory(h, {"outputs": slots(past, order - 1, lambda x: x, zeros)})
    features, remembered = reference.ngram(h, past, order, memory.combine.weight)

    expected = [features, slots(remembered, order - 1, lambda x: x, zeros)]
    actual = [readout.features, after["outputs"]]
    assert readout.attention is None
    assert_same(actual, expected)
    assert_same(gradients(actual, leaves), gradients(expected, leaves))


def lstm_layers(lstm: torch.nn.LSTM) -> list[reference.LSTMLayer]:
    named = dict(lstm.named_parameters())
    return [
        reference.LSTMLayer(named[f"weight_ih_l{n}"], named[f"weight_hh_l{n}"], named[f"bias_ih_l{n}"])
        for n in range(lstm.num_layers)
    ]


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("steps", "batch"), [(1, 1), (1, 3), (6, 1), (5, 2)])
def test_lstm(steps: int, batch: int, layers: int) -> None:
    encoder = build(LSTMConfig(hidden_size=4, layers=layers), 3)
    x = values(steps, batch, 3).requires_grad_()
    h, c = (values(layers, batch, 4, seed=seed).requires_grad_() for seed in (1, 2))
    leaves = [x, h, c, *[p for p in encoder.parameters() if p.requires_grad]]

    outputs, state = encoder(x, {"h": h, "c": c})
    actual = [outputs, state["h"], state["c"]]
    expected = list(reference.lstm(x, h, c, lstm_layers(encoder.lstm)))

    assert_same(actual, expected)
    assert_same(gradients(actual, leaves), gradients(expected, leaves))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("steps", "batch", "size", "vocabulary"), [(1, 1, 1, 1), (3, 2, 4, 7), (1, 5, 3, 2)])
def test_linear_softmax(steps: int, batch: int, size: int, vocabulary: int, bias: bool) -> None:
    head = build(SoftmaxConfig(bias=bias), size, torch.nn.Embedding(vocabulary, 9))
    features = values(steps, batch, size).requires_grad_()
    targets = words(steps, batch, size=vocabulary)
    leaves = [features, *head.parameters()]

    every = reference.linear_softmax(features, head.weight, head.bias)
    target = torch.stack([row[y] for row, y in zip(every.flatten(0, 1), targets.flatten(), strict=True)])
    target = target.view(steps, batch)

    assert_same(head.log_probs(Readout(features)), every)
    assert_same(gradients([head.log_probs(Readout(features))], leaves), gradients([every], leaves))
    assert_same(head.log_prob(Readout(features), targets), target)
    actual = gradients([head.log_prob(Readout(features), targets)], leaves)
    assert_same(actual, gradients([target], leaves))


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize(
    "memory",
    [NoMemoryConfig(), *[KeyValueConfig(roles=roles, window=2) for roles in (1, 2, 3)], NGramConfig(order=3)],
    ids=small.identify,
)
def test_whole_language_model(memory: object, tied: bool) -> None:
    """Embedding, encoder, memory and head put together as the papers say, every gradient included."""
    encoder, head = LSTMConfig(hidden_size=6, layers=2), SoftmaxConfig(tied=tied)
    model = small.language_model(small.model_config(encoder, memory, head))
    tokens, targets = words(5, 2), words(5, 2, seed=1)
    leaves = [p for p in model.parameters() if p.requires_grad]

    x = model.embedding.weight[tokens]
    zeros = torch.zeros(2, 2, 6, dtype=torch.float64)
    h = reference.lstm(x, zeros, zeros, lstm_layers(model.encoder.lstm))[0]
    nothing: reference.Past = [[], []]
    if isinstance(memory, KeyValueConfig):
        h = LOOPS[memory.roles](h, nothing, memory.window, projections(model.memory))[0]
    elif isinstance(memory, NGramConfig):
        h = reference.ngram(h, nothing, memory.order, model.memory.combine.weight)[0]
    output = model.embedding.weight if tied else model.head.weight
    every = reference.linear_softmax(h, output, model.head.bias)
    expected = every.gather(-1, targets[..., None]).squeeze(-1)

    actual, _ = model.log_prob(tokens, targets, model.init_state(2))
    assert_same(actual, expected)
    assert_same(gradients([actual], leaves), gradients([expected], leaves))
    assert_same(model.log_probs(tokens, model.init_state(2))[0], every)
