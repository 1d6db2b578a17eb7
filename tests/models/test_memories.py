"""What every registered memory promises, and of the state that it carries (see `spanlm.models.interfaces`)."""

from dataclasses import replace
from math import expm1, log
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from spanlm.errors import InputError
from spanlm.models.interfaces import LMState, Memory, Readout, Tensors
from spanlm.models.memories import AttentiveConfig, KeyValueConfig, RecurrentMemoryConfig
from spanlm.models.memories.pointer_sentinel import Pointer
from tests.models import small
from tests.models.small import (
    HIDDEN,
    KINDS,
    VOCABULARY,
    after_prefix,
    answer,
    attended,
    attends,
    bitwise,
    build,
    every_memory,
    looked_at,
    only,
    reach,
    read,
    values,
    words_at,
)


@every_memory
def test_how_far_back_it_reads_words(config: Any) -> None:
    """Another word at step s changes the steps s … s + reach, bit by bit, if words are read, and else none."""
    memory, h = build(config, HIDDEN, VOCABULARY), values(9, 2, HIDDEN)
    state, same = after_prefix(memory, 2), words_at(h)
    expected = answer(memory(h, same, state)[0])
    for s in range(9):
        other = same.clone()
        other[s] = (other[s] + 1) % VOCABULARY
        changed = (answer(memory(h, other, state)[0]) != expected).any(-1).all(-1)
        reached = range(s, s + reach(config) + 1) if KINDS[config.kind].words else ()
        assert changed.tolist() == [t in reached for t in range(9)]
        assert (answer(memory(h, other, state)[0]) != expected).any(-1).any(-1).equal(changed)


@every_memory
def test_its_configuration_says_whether_it_predicts_too(config: Any) -> None:
    memory = build(config, HIDDEN, VOCABULARY)
    readout = read(memory, values(3, 1, HIDDEN), memory.init_state(1))[0]
    assert config.mixes == (readout.mixture is not None)
    assert config.mixes or not config.mixing


@every_memory
def test_how_far_back_it_looks(config: Any) -> None:
    """∂ answer_t / ∂ h_s is not zero where step t looks at s, and zero elsewhere."""
    memory = build(config, HIDDEN, VOCABULARY)
    h = values(9, 1, HIDDEN).requires_grad_()
    for t, row in enumerate(answer(read(memory, h, memory.init_state(1))[0])):
        (gradient,) = torch.autograd.grad(row.sum(), h, retain_graph=True)
        touched = gradient.abs().sum((1, 2)) > 0
        assert touched.tolist() == [t - s in looked_at(config, t) for s in range(9)]


@only(attends)
def test_attention_rows_sum_to_one_or_are_empty(config: Any) -> None:
    memory = build(config, HIDDEN, VOCABULARY)
    readout = read(memory, values(8, 2, HIDDEN), memory.init_state(2))[0]
    attention, nearest_lag = readout.attention.weights, readout.attention.nearest_lag
    steps_without = next(t for t in range(8) if attended(config, t, nearest_lag))
    if KINDS[config.kind].spans is None:
        assert steps_without == nearest_lag
        assert attention.shape == (8, 2, config.slots or 8 - nearest_lag)
    assert not attention[:steps_without].any()
    total = attention.sum(-1) + (readout.mixture.log_gate.exp() if isinstance(readout.mixture, Pointer) else 0)
    torch.testing.assert_close(total[steps_without:], torch.ones(8 - steps_without, 2).double())


@only(attends)
def test_columns_are_lags_the_nearest_last(config: Any) -> None:
    """At step t of a new stream exactly what lies up to t steps back can be attended; the farthest comes first."""
    memory = build(config, HIDDEN, VOCABULARY)
    attention = read(memory, values(8, 1, HIDDEN), memory.init_state(1))[0].attention
    every, nearest, stride = attention.by_lag(), attention.nearest_lag, attention.stride
    lags = [every.shape[-1] - 1 - column + nearest for column in range(every.shape[-1])]
    farthest = 7 if config.slots is None else max(attended(config, 100, nearest))
    assert farthest <= lags[0] < farthest + stride
    slots = attention.slots(torch.arange(8).unsqueeze(1), attention.weights.shape[-1])
    for t in range(8):
        found = {lag for lag, weight in zip(lags, every[t, 0], strict=True) if weight > 0}
        assert found == attended(config, t, nearest)
        assert slots[t].item() == len(found)


WITHOUT_SLOTS = {"log_total", "mean"}
"""Tensors of a state that have no slots, so that none of them is empty."""


def marks_empty_slots(memory: Memory) -> bool:
    return "filled" in memory.init_state(1)


def poisoned_where_empty(state: Tensors) -> Tensors:
    """NaN in empty slots, and the word -1, which is none."""

    def poison(name: str, x: Tensor) -> Tensor:
        if x.dtype == torch.bool or name in WITHOUT_SLOTS:
            return x
        empty = ~state["filled"].view(*state["filled"].shape, *[1] * (x.dim() - 2))
        return x.masked_fill(empty, torch.nan if x.is_floating_point() else -1)

    return {name: poison(name, x) for name, x in state.items()}


def with_a_new_stream(memory: Memory, state: Tensors) -> Tensors:
    """The second of two streams is put back to its start."""
    reset = LMState({}, state).reset(torch.tensor([False, True]), LMState({}, memory.init_state(2)))
    return reset.memory


@every_memory
@pytest.mark.parametrize("steps", [1, 9])
def test_state_keeps_its_shape_and_type(config: Any, steps: int) -> None:
    """Where everything is remembered, what has no slot at the start has one for each step."""
    memory = build(config, HIDDEN, VOCABULARY)
    start = state = memory.init_state(3)
    growing = {name for name, x in start.items() if len(x) == 0 and config.slots is None}
    assert bool(growing) == (config.slots is None)
    for total in (steps, steps + 2):
        _, state = read(memory, values(total - len(state[min(growing)]) if growing else steps, 3, HIDDEN), state)
        assert {name: (x.shape, x.dtype) for name, x in state.items()} == {
            name: ((total if name in growing else len(x), *x.shape[1:]), x.dtype) for name, x in start.items()
        }
    assert all(x.shape[1] == 3 for x in state.values())


@every_memory
def test_state_is_a_value(config: Any) -> None:
    """The state that goes in is left as it was, and a call leaves nothing behind on the module."""
    memory, h = build(config, HIDDEN, VOCABULARY), values(7, 2, HIDDEN)
    state = after_prefix(memory, 2)
    copy = {name: x.clone() for name, x in state.items()}
    first = read(memory, h, state)
    assert bitwise(state, copy)
    read(memory, values(3, 2, HIDDEN, seed=9), memory.init_state(2))
    second = read(memory, h, state)
    assert bitwise(first[0], second[0])
    assert bitwise(first[1], second[1])


@pytest.mark.parametrize("config", [p for p in small.memories() if reach(p.values[0]) > 1])
def test_every_tensor_of_the_state_is_read(config: Any) -> None:
    """(With one slot the keys cannot matter, and what a running mean weighs only once there is something beside it.)"""
    memory, h = build(config, HIDDEN, VOCABULARY), values(2, 2, HIDDEN)
    state = after_prefix(memory, 8)
    for name in state:
        other = {**state, name: torch.zeros_like(state[name])}
        one, two = read(memory, h, state)[0], read(memory, h, other)[0]
        if name in KINDS[config.kind].shown(config):
            assert bitwise(answer(two), answer(one))
            if (name, config.score) == ("scores", "mean"):
                continue  # they are zeros
            one, two = (Readout(x.attention.weights[..., :-1]) for x in (one, two))  # the last: of this segment
        assert (~torch.isclose(answer(two)[1], answer(one)[1], rtol=0, atol=1e-9)).all(), name


@only(marks_empty_slots)
@pytest.mark.parametrize("prefix", [0, 1, 2])
@pytest.mark.parametrize("one_is_new", [False, True])
def test_nothing_leaks_from_empty_slots(config: Any, prefix: int, one_is_new: bool) -> None:
    memory = build(config, HIDDEN, VOCABULARY)
    h = values(3, 2, HIDDEN).requires_grad_()
    clean = after_prefix(memory, prefix)
    clean = with_a_new_stream(memory, clean) if one_is_new else clean

    def results(state: Tensors) -> list[Tensor]:
        readout, after = read(memory, h, state)
        outputs = [*small.tensors(readout), *(x for x in after.values() if x.is_floating_point())]
        loss = sum(x.square().sum() for x in outputs)
        return [*small.tensors(readout), *torch.autograd.grad(loss, [h, *memory.parameters()])]

    expected, actual = results(clean), results(poisoned_where_empty(clean))
    assert all(x.isfinite().all() for x in expected)
    assert bitwise(actual, expected)


@pytest.mark.parametrize("composition", ["gated", "linear"])
def test_recurrent_memory_rounds_nothing_but_products(composition: str) -> None:
    """Under autocast the factors and the result of each product are bfloat16; gates, tanh and sums are float32."""
    memory = build(RecurrentMemoryConfig(composition=composition), HIDDEN, VOCABULARY).float()  # type: ignore[arg-type]
    read, h = values(3, 2, HIDDEN).float(), values(3, 2, HIDDEN, seed=1).float()
    with torch.autocast("cpu", torch.bfloat16):
        found = memory.composition(read, h)

    def product(layer: nn.Linear, x: Tensor) -> Tensor:
        bias = 0.0 if layer.bias is None else layer.bias.bfloat16().double()
        return (x.bfloat16().double() @ layer.weight.bfloat16().double().T + bias).bfloat16().float()

    parts = memory.composition
    if composition == "linear":
        expected = product(parts.of_hidden, h) + read
    else:
        of_update, of_reset, of_candidate = product(parts.of_read, read).chunk(3, -1)
        hidden_update, hidden_reset = product(parts.of_hidden, h).chunk(2, -1)
        update, reset = (of_update + hidden_update).sigmoid(), (of_reset + hidden_reset).sigmoid()
        candidate = (of_candidate + product(parts.of_reset, reset * h)).tanh()
        expected = (1 - update) * h + update * candidate
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("config", [KeyValueConfig(roles=2, window=9), AttentiveConfig(window=9)])
def test_recency_halves_a_weight_in_its_half_life(config: Any) -> None:
    """Beside equal scores; it starts as the fixed slope does, and does not change the other weights."""
    recencies = ("none", "linear", "learned")
    plain, linear, learned = (build(replace(config, recency=recency), HIDDEN, VOCABULARY) for recency in recencies)
    weights = dict(learned.named_parameters())
    raw = weights.pop("slope.raw")
    assert plain.half_life is None and learned.half_life == pytest.approx(linear.half_life) == pytest.approx(2 * log(2))
    for name, weight in plain.named_parameters():
        assert torch.equal(weight, weights.pop(name))
    assert not weights
    with torch.no_grad():
        learned.score.zero_()
        raw.fill_(log(expm1(log(2) / 3)))  # a half-life of 3 steps
    assert learned.half_life == pytest.approx(3)
    h, empty = values(12, 2, HIDDEN), learned.init_state(2)
    last = read(learned, h, empty)[0].attention.weights[-1]
    torch.testing.assert_close(last[:, :6] * 2, last[:, 3:])
    learned.equalise()
    assert learned.half_life is None
    last = read(learned, h, empty)[0].attention.weights[-1]
    torch.testing.assert_close(last, torch.full_like(last, 1 / 9))


def test_recency_of_other_scores_is_refused() -> None:
    with pytest.raises(InputError, match=r"model.memory.recency=linear: must be none where model.memory.score is mean"):
        AttentiveConfig(score="mean", recency="linear")
