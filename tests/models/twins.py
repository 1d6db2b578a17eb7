"""What the comparisons with the loops of `tests/reference.py` share."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from spanlm.models.encoders.blocks import BlockStack
from spanlm.models.language_model import LanguageModel
from tests import reference
from tests.models.small import assert_same, values


def gradients(outputs: Sequence[Tensor], leaves: Sequence[Tensor]) -> list[Tensor]:
    """Of one fixed scalar that weights every output element differently."""
    loss = sum((x * values(*x.shape, seed=n)).sum() for n, x in enumerate(outputs) if x.requires_grad)
    return list(torch.autograd.grad(loss, list(leaves), retain_graph=True, materialize_grads=True))


def assert_twin(actual: Sequence[Tensor], expected: Sequence[Tensor], leaves: Sequence[Tensor]) -> None:
    assert_same(list(actual), list(expected))
    assert_same(gradients(actual, leaves), gradients(expected, leaves))


def past_counts(kind: str, capacity: int, batch: int) -> list[int]:
    """How much each stream remembers: nothing, as much as fits, or from 0 up to that, stream by stream."""
    full = {"fresh": 0, "full": capacity}
    return [full.get(kind, (1 + 2 * b) % (capacity + 1)) for b in range(batch)]


def past_outputs(kind: str, capacity: int, batch: int, size: int) -> reference.Past:
    counts = enumerate(past_counts(kind, capacity, batch))
    return [[values(size, seed=100 * b + n).requires_grad_() for n in range(count)] for b, count in counts]


def slots(past: reference.Past, length: int, part: Callable[[Tensor], Tensor], empty: Tensor) -> Tensor:
    """(length, B, ·): what is remembered stands at the end, `empty` before it."""
    if not length:
        return empty.new_zeros(0, len(past), *empty.shape)
    columns = [torch.stack([empty] * (length - len(p)) + [part(x) for x in p]) for p in past]
    return torch.stack(columns, dim=1)


def filled_slots(past: reference.Past, length: int) -> Tensor:
    yes = torch.ones((), dtype=torch.bool)
    return slots(past, length, lambda _: yes, ~yes)


def layers_of(stack: nn.RNNBase, kind: Any = reference.LSTMLayer) -> list[Any]:
    named = dict(stack.named_parameters())
    names = [[f"{name}_l{n}" for name in ("weight_ih", "weight_hh", "bias_ih")] for n in range(stack.num_layers)]
    return [kind(*map(named.__getitem__, of_layer)) for of_layer in names]


def branches(encoder: BlockStack) -> list[reference.Block]:
    """Of each block; the norms' weights are no longer 1."""
    with torch.no_grad():
        for n, (name, weight) in enumerate(encoder.named_parameters()):
            if "norm" in name:
                weight.copy_(values(*weight.shape, seed=n))
    pairs = zip(encoder.norms, encoder.feedforwards, strict=True)
    return [
        reference.Block(
            norm.weight, ff.norm.weight, ff.mlp.gate_proj.weight, ff.mlp.up_proj.weight, ff.mlp.down_proj.weight
        )
        for norm, ff in pairs
    ]


def projected(encoder: BlockStack, x: Tensor) -> Tensor:
    return x if isinstance(encoder.input, nn.Identity) else x @ encoder.input.weight.T


def encoded(model: LanguageModel, tokens: Tensor) -> Tensor:
    """What the loop makes of the words with a model's embedding and LSTM, from an empty state."""
    lstm = model.encoder.lstm
    zeros = torch.zeros(lstm.num_layers, tokens.shape[1], lstm.hidden_size, dtype=torch.float64)
    return reference.lstm(model.embedding.weight[tokens], zeros, zeros, layers_of(lstm))[0]


def predicted(model: LanguageModel, features: Tensor) -> Tensor:
    return reference.linear_softmax(features, model.head.weight, model.head.bias)


def assert_model_is(model: LanguageModel, tokens: Tensor, targets: Tensor, every: Tensor) -> None:
    """Two segments, the state between them carried and not detached, say the loop's log p (T, B, V): gradients, too."""
    leaves = [p for p in model.parameters() if p.requires_grad]
    expected = every.gather(-1, targets[..., None]).squeeze(-1)
    first, state = model.log_prob(tokens[:3], targets[:3], model.init_state(tokens.shape[1]))
    actual = torch.cat([first, model.log_prob(tokens[3:], targets[3:], state)[0]])
    assert_twin([actual], [expected], leaves)
    assert_same(model.log_probs(tokens, model.init_state(tokens.shape[1]))[0], every)
