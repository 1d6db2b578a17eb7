"""What every registered memory promises (see `spanlm.models.interfaces`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spanlm.models.interfaces import Init, LMState, Memory, Readout, Tensors
from spanlm.models.memories import KeyValueConfig
from tests.models import small
from tests.models.small import HIDDEN, VOCABULARY, assert_same, bitwise, build, join, read, values, words_at

UNBOUNDED = 100  # more than any test has steps
REACH = {
    "none": lambda c: 0,
    "key_value": lambda c: c.window,
    "ngram": lambda c: c.order - 1,
    "attentive": lambda config: config.window or UNBOUNDED,
    "recurrent_memory": lambda c: c.window - 1,
    "pointer_sentinel": lambda c: c.window - 1,
}
"""How many steps back a memory of this kind can look."""

READS_WORDS = {"recurrent_memory", "pointer_sentinel"}
"""Kinds that look back at words."""

READS_ONLY_WORDS = {"recurrent_memory"}
"""Kinds that look back at nothing else; the others look back at what the encoder wrote."""

RUNNING_SUMS = {"log_total", "mean"}
"""Tensors of a state that have no slots, so that none of them is empty."""

every_memory = pytest.mark.parametrize("config", small.memories())


def only(which: Callable[[Memory], bool]) -> Any:
    """Parametrise over the memories that are `which`."""
    chosen = [p for p in small.memories() if which(build(p.values[0], HIDDEN, VOCABULARY))]
    assert chosen
    return pytest.mark.parametrize("config", chosen)


def unbounded(config: Any) -> bool:
    """Everything since the reset is remembered: the state grows."""
    return bool(REACH[config.kind](config) == UNBOUNDED)


def only_shown(config: Any) -> set[str]:
    """Tensors of the state that the attention follows from, but not the answer: that has its running sums."""
    return (
        {"scores", "filled"} if config.kind == "attentive" and config.score == "single" and unbounded(config) else set()
    )


def attends(memory: Memory) -> bool:
    return read(memory, values(1, 1, HIDDEN), memory.init_state(1))[0].attention is not None


def marks_empty_slots(memory: Memory) -> bool:
    return "filled" in memory.init_state(1)


def answer(readout: Readout) -> Tensor:
    """What the memory does to the prediction: the features; of a pointer, numbers that all change where it does."""
    if readout.pointer is None:
        return readout.features
    pointed = torch.cat([small.copied(readout.pointer), readout.pointer.log_gate.unsqueeze(-1)], -1)
    return pointed @ values(VOCABULARY + 1, 4, seed=3)


def after_prefix(memory: Memory, steps: int, batch: int = 2) -> Tensors:
    """State of streams that have read `steps` steps, without a graph."""
    state = memory.init_state(batch)
    if steps:
        _, state = read(memory, values(steps, batch, HIDDEN, seed=50), state)
    return {name: x.detach() for name, x in state.items()}


def poisoned_where_empty(state: Tensors) -> Tensors:
    """NaN in empty slots, and the word -1, which is none."""

    def poison(name: str, x: Tensor) -> Tensor:
        if x.dtype == torch.bool or name in RUNNING_SUMS:
            return x
        empty = ~state["filled"].view(*state["filled"].shape, *[1] * (x.dim() - 2))
        return x.masked_fill(empty, torch.nan if x.is_floating_point() else -1)

    return {name: poison(name, x) for name, x in state.items()}


def with_a_new_stream(memory: Memory, state: Tensors) -> Tensors:
    """The second of two streams is put back to its start."""
    reset = LMState({}, state).reset(torch.tensor([False, True]), LMState({}, memory.init_state(2)))
    return reset.memory


@every_memory
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=5), prefix=st.integers(0, 6))
@settings(max_examples=15, deadline=None)
def test_any_cut_is_the_same_stream(config: Any, lengths: list[int], prefix: int) -> None:
    memory = build(config, HIDDEN, VOCABULARY)
    h, state = values(sum(lengths), 2, HIDDEN), after_prefix(memory, prefix)
    whole, end = read(memory, h, state)
    pieces = []
    for segment in h.split(lengths):
        readout, state = read(memory, segment, state)
        pieces.append(readout)
    assert_same(join(pieces), whole)
    assert_same(state, end)


@every_memory
@pytest.mark.parametrize("steps", [1, 4, 9])
def test_state_keeps_its_shape_and_type(config: Any, steps: int) -> None:
    """Where everything is remembered, what has no slot at the start has one for each step."""
    memory = build(config, HIDDEN, VOCABULARY)
    start = state = memory.init_state(3)
    growing = {name for name, x in start.items() if len(x) == 0 and unbounded(config)}
    assert bool(growing) == unbounded(config)
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


@every_memory
@given(changed=st.integers(0, 7))
@settings(max_examples=8, deadline=None)
def test_later_steps_change_nothing_before_them(config: Any, changed: int) -> None:
    memory, h = build(config, HIDDEN, VOCABULARY), values(8, 2, HIDDEN)
    other = torch.cat([h[:changed], values(8 - changed, 2, HIDDEN, seed=1)])
    state = after_prefix(memory, 2)
    one, two = read(memory, h, state)[0], read(memory, other, state)[0]
    assert bitwise([x[:changed] for x in small.tensors(one)], [x[:changed] for x in small.tensors(two)])
    assert not torch.equal(one.features[changed:], two.features[changed:])


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
        reached = range(s, s + REACH[config.kind](config) + 1) if config.kind in READS_WORDS else ()
        assert changed.tolist() == [t in reached for t in range(9)]
        assert (answer(memory(h, other, state)[0]) != expected).any(-1).any(-1).equal(changed)


@every_memory
def test_streams_do_not_touch_each_other(config: Any) -> None:
    memory, h = build(config, HIDDEN, VOCABULARY), values(6, 3, HIDDEN)
    state = after_prefix(memory, 3, batch=3)
    whole, end = read(memory, h, state)
    for b in range(3):
        alone, end_alone = read(memory, h[:, b : b + 1], {name: x[:, b : b + 1] for name, x in state.items()})
        assert_same(alone, [x[:, b : b + 1] for x in small.tensors(whole)])
        assert_same(end_alone, [x[:, b : b + 1] for x in small.tensors(end)])
    other = h.clone()
    other[:, 1] = torch.nan
    poisoned = read(memory, other, state)[0]
    for one, two in zip(small.tensors(whole), small.tensors(poisoned), strict=True):
        assert torch.equal(one[:, ::2], two[:, ::2])


@every_memory
def test_how_far_back_it_looks(config: Any) -> None:
    """∂ answer_t / ∂ h_s is zero outside t - reach <= s <= t and not zero within."""
    memory, reach = build(config, HIDDEN, VOCABULARY), REACH[config.kind](config)
    if config.kind in READS_ONLY_WORDS:
        reach = 0
    h = values(9, 1, HIDDEN).requires_grad_()
    for t, row in enumerate(answer(read(memory, h, memory.init_state(1))[0])):
        (gradient,) = torch.autograd.grad(row.sum(), h, retain_graph=True)
        touched = gradient.abs().sum((1, 2)) > 0
        assert touched.tolist() == [t - reach <= s <= t for s in range(9)]


@only(attends)
def test_attention_rows_sum_to_one_or_are_empty(config: Any) -> None:
    memory = build(config, HIDDEN, VOCABULARY)
    readout = read(memory, values(8, 2, HIDDEN), memory.init_state(2))[0]
    attention, steps_without = readout.attention, readout.nearest_lag
    assert attention.shape == (8, 2, config.window or 7)
    assert not attention[:steps_without].any()
    total = attention.sum(-1) + (0 if readout.pointer is None else readout.pointer.log_gate.exp())
    if getattr(config, "zero_slot", False):  # how much lies there: `test_attentive_twin.py`
        assert ((total > 0) & (total < 1))[steps_without:].all()
    else:
        torch.testing.assert_close(total[steps_without:], torch.ones(8 - steps_without, 2).double())


@only(attends)
def test_columns_are_lags_the_nearest_last(config: Any) -> None:
    """At step t of a new stream exactly the lags up to t can be attended; the first column is the farthest."""
    memory = build(config, HIDDEN, VOCABULARY)
    readout = read(memory, values(8, 1, HIDDEN), memory.init_state(1))[0]
    width = readout.attention.shape[-1]
    lags = width - 1 - torch.arange(width) + readout.nearest_lag
    assert lags[0] == min(REACH[config.kind](config), 7 if unbounded(config) else UNBOUNDED)
    for t in range(8):
        assert torch.equal(readout.attention[t, 0] > 0, lags <= t)


@only(lambda memory: not attends(memory))
def test_nothing_attended_means_no_weights(config: Any) -> None:
    memory = build(config, HIDDEN, VOCABULARY)
    assert read(memory, values(8, 1, HIDDEN), memory.init_state(1))[0].attention is None


@every_memory
def test_memory_is_read(config: Any) -> None:
    """Other things remembered, or nothing, give another output; where nothing is carried they cannot."""
    memory, h = build(config, HIDDEN, VOCABULARY), values(1, 2, HIDDEN)
    state = after_prefix(memory, 8)
    expected = answer(read(memory, h, state)[0])
    zeroed = {name: x if x.dtype == torch.bool else torch.zeros_like(x) for name, x in state.items()}
    for other in (zeroed, memory.init_state(2), after_prefix(memory, 3)):
        changed = ~torch.isclose(answer(read(memory, h, other)[0]), expected)
        assert changed.all() == (REACH[config.kind](config) > 0)


@pytest.mark.parametrize("config", [p for p in small.memories() if REACH[p.values[0].kind](p.values[0]) > 1])
def test_every_tensor_of_the_state_is_read(config: Any) -> None:
    """(With one slot the keys cannot matter, and what a running mean weighs only once there is something beside it.)"""
    memory, h = build(config, HIDDEN, VOCABULARY), values(2, 2, HIDDEN)
    state = after_prefix(memory, 8)
    for name in state:
        other = {**state, name: torch.zeros_like(state[name])}
        one, two = read(memory, h, state)[0], read(memory, h, other)[0]
        if name in only_shown(config):
            assert bitwise(answer(two), answer(one))
            one, two = Readout(one.attention[..., :-1]), Readout(two.attention[..., :-1])  # the last: of this segment
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


@every_memory
def test_gradients_end_where_the_state_is_detached(config: Any) -> None:
    memory = build(config, HIDDEN, VOCABULARY)

    def gradient(detach: bool) -> Tensor:
        first = values(4, 2, HIDDEN).requires_grad_()
        _, state = read(memory, first, memory.init_state(2))
        if detach:
            state = {name: x.detach() for name, x in state.items()}
        readout, _ = read(memory, values(3, 2, HIDDEN, seed=1).requires_grad_(), state)
        (result,) = torch.autograd.grad(answer(readout).sum(), first, materialize_grads=True)
        return result

    assert not gradient(detach=True).any()
    carries_outputs = REACH[config.kind](config) > 0 and config.kind not in READS_ONLY_WORDS
    assert gradient(detach=False).any() == carries_outputs


@pytest.mark.parametrize("roles", [1, 2, 3])
def test_carried_keys_still_train_their_projection(roles: int) -> None:
    """Outputs are carried, not projections: W^Y learns even if all keys came before the segment."""
    memory = build(KeyValueConfig(roles=roles, window=4), HIDDEN, VOCABULARY)
    features = read(memory, values(1, 2, HIDDEN), after_prefix(memory, 6))[0].features
    (gradient,) = torch.autograd.grad(features.sum(), memory.memory_key.weight)
    assert gradient.abs().max() > 1e-4


@every_memory
def test_readout_size(config: Any) -> None:
    memory = build(config, HIDDEN, VOCABULARY)
    assert memory.readout_size == HIDDEN // config.parts
    assert read(memory, values(2, 3, HIDDEN), memory.init_state(3))[0].features.shape == (2, 3, memory.readout_size)


@every_memory
def test_double_precision_changes_only_rounding(config: Any) -> None:
    wide = build(config, HIDDEN, VOCABULARY)
    torch.manual_seed(0)
    narrow = config.build(HIDDEN, VOCABULARY, Init(0.7, 0.7))
    h = values(6, 2, HIDDEN)
    same = words_at(h)
    one, two = wide(h, same, wide.init_state(2)), narrow(h.float(), same, narrow.init_state(2))
    for a, b in zip(small.tensors(one[0]), small.tensors(two[0]), strict=True):
        assert b.dtype == torch.float32
        torch.testing.assert_close(b.double(), a, rtol=1e-5, atol=1e-6)
