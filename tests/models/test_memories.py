"""What every registered memory promises (see `spanlm.models.interfaces`)."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlm.models.interfaces import Init
from spanlm.models.memories.pointer_sentinel import Pointer
from tests.models import small
from tests.models.contract import (
    REACH,
    READS_WORDS,
    after_prefix,
    answer,
    attended,
    attends,
    every_memory,
    looked_at,
    only,
    unbounded,
)
from tests.models.small import HIDDEN, VOCABULARY, assert_same, bitwise, build, join, read, values, words_at


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
    if config.kind != "span_buffer":
        assert steps_without == nearest_lag
        assert attention.shape == (8, 2, config.window or 7)
    assert not attention[:steps_without].any()
    total = attention.sum(-1) + (readout.mixture.log_gate.exp() if isinstance(readout.mixture, Pointer) else 0)
    if getattr(config, "zero_slot", False):  # how much lies there: `test_attentive_twin.py`
        assert ((total > 0) & (total < 1))[steps_without:].all()
    else:
        torch.testing.assert_close(total[steps_without:], torch.ones(8 - steps_without, 2).double())


@only(attends)
def test_columns_are_lags_the_nearest_last(config: Any) -> None:
    """At step t of a new stream exactly what lies up to t steps back can be attended; the farthest comes first."""
    memory = build(config, HIDDEN, VOCABULARY)
    attention = read(memory, values(8, 1, HIDDEN), memory.init_state(1))[0].attention
    every, nearest, stride = attention.by_lag(), attention.nearest_lag, attention.stride
    lags = [every.shape[-1] - 1 - column + nearest for column in range(every.shape[-1])]
    farthest = 7 if unbounded(config) else max(attended(config, 100, nearest))
    assert farthest <= lags[0] < farthest + stride
    slots = attention.slots(torch.arange(8).unsqueeze(1), attention.weights.shape[-1])
    for t in range(8):
        found = {lag for lag, weight in zip(lags, every[t, 0], strict=True) if weight > 0}
        assert found == attended(config, t, nearest)
        assert slots[t].item() == len(found)


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


@every_memory
def test_readout_size(config: Any) -> None:
    memory = build(config, HIDDEN, VOCABULARY)
    assert memory.readout_size == HIDDEN // config.parts
    assert read(memory, values(2, 3, HIDDEN), memory.init_state(3))[0].features.shape == (2, 3, memory.readout_size)


@every_memory
def test_double_precision_changes_only_rounding(config: Any) -> None:
    wide = build(config, HIDDEN, VOCABULARY)
    torch.manual_seed(0)
    narrow = config.build(HIDDEN, VOCABULARY, Init(0.7, 0.7)).eval()
    h = values(6, 2, HIDDEN)
    same = words_at(h)
    one, two = wide(h, same, wide.init_state(2)), narrow(h.float(), same, narrow.init_state(2))
    for a, b in zip(small.tensors(one[0]), small.tensors(two[0]), strict=True):
        assert b.dtype == torch.float32
        torch.testing.assert_close(b.double(), a, rtol=1e-5, atol=1e-6)
