"""The attentive memory against its loop: contexts, attention, states, gradients, in float64; and a whole model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
import torch
from torch import Tensor

from spanlm.models.memories import AttentiveConfig
from spanlm.models.memories.attentive import EMPTY, AttentiveMemory
from tests import reference
from tests.models.small import VOCABULARY, assert_same, build, read, values
from tests.models.twins import gradients, past_outputs, slots

SIZE, LONGEST = 3, 4
"""LONGEST: what a memory without a window has read before, at most."""

# steps, batch, window
SHAPES = [(1, 1, None), (1, 3, None), (7, 2, None), (5, 3, None), (1, 1, 1), (1, 3, 4), (7, 2, 3), (5, 3, 9), (6, 1, 1)]


def matrices(memory: AttentiveMemory) -> reference.Attentive:
    return reference.Attentive(
        w_s=memory.memory_key.weight if hasattr(memory, "memory_key") else None,
        w_q=memory.query.weight if hasattr(memory, "query") else None,
        v_s=memory.score if hasattr(memory, "score") else None,
        w_c=memory.merge.weight,
        b_c=memory.merge.bias,
    )


def state_of(memory: AttentiveMemory, past: reference.Past, length: int, empty: float) -> dict[str, Tensor]:
    """What is remembered stands at the end of `length` slots; `empty` in those before it."""
    if not length:
        return memory.init_state(len(past))
    p, yes = matrices(memory), torch.ones((), dtype=torch.bool)
    nothing = torch.full((SIZE,), empty, dtype=torch.float64)

    def column(part: Callable[[Tensor], Tensor], blank: Tensor = nothing) -> Tensor:
        return slots(past, length, part, blank)

    state = {"filled": column(lambda _: yes, ~yes)}
    if memory.window is not None:
        return {**state, "values": column(lambda o: o)}
    if p.w_q is not None and p.w_s is not None:
        return {**state, "values": column(lambda o: o), "keys": column(p.w_s.mv)}
    state["scores"] = column(lambda o: reference.score(o, o, p), nothing[0])
    totals, means = [], []
    for outputs in past:
        each = [reference.score(o, o, p).exp() for o in outputs]
        total = sum(each) + (1 if memory.zero_slot else 0)
        weighted = [e / total * o for e, o in zip(each, outputs, strict=True)]
        totals.append(torch.as_tensor(total).log() if outputs else torch.tensor(0.0 if memory.zero_slot else EMPTY))
        means.append(sum(weighted) if outputs else torch.zeros(SIZE))
    return {**state, "log_total": torch.stack(totals).double()[None], "mean": torch.stack(means).double()[None]}


def cleared(state: dict[str, Tensor]) -> list[Tensor]:
    """Every tensor of a state but `filled`, zero where nothing is."""
    filled = state["filled"]
    return [
        torch.where(filled.view(*filled.shape, *[1] * (x.dim() - 2)), x, 0) if len(x) == len(filled) else x
        for name, x in sorted(state.items())
        if name != "filled"
    ]


@pytest.mark.parametrize("carried", ["fresh", "partial", "full"])
@pytest.mark.parametrize(("merge", "zero_slot"), [("tanh", False), ("linear", True)])
@pytest.mark.parametrize("score", ["single", "combined", "mean"])
@pytest.mark.parametrize(("steps", "batch", "window"), SHAPES, ids=str)
def test_attentive(
    steps: int,
    batch: int,
    window: int | None,
    score: Literal["single", "combined", "mean"],
    merge: Literal["tanh", "linear"],
    zero_slot: bool,
    carried: str,
) -> None:
    # the bias takes part in nothing else: any of the cases may be the one without
    config = AttentiveConfig(score=score, window=window, merge=merge, merge_bias=steps != 5, zero_slot=zero_slot)
    memory = build(config, SIZE, VOCABULARY)
    h = values(steps, batch, SIZE, seed=7).requires_grad_()
    past = past_outputs(carried, window or LONGEST, batch, SIZE)
    carried_slots = window or max(map(len, past))
    leaves = [h, *memory.parameters(), *[x for stream in past for x in stream]]

    readout, after = read(memory, h, state_of(memory, past, carried_slots, torch.nan))
    columns = window or max(1, carried_slots + steps - 1)
    features, weights, remembered = reference.attentive(
        h, past, window, columns, merge == "tanh", zero_slot, matrices(memory)
    )

    state = state_of(memory, remembered, window or carried_slots + steps, 0)
    assert readout.attention.nearest_lag == 1
    assert readout.attention.weights.shape == weights.shape
    assert after.keys() == state.keys()
    assert torch.equal(after["filled"], state["filled"])
    actual = [readout.features, readout.attention.weights, *cleared(after)]
    expected = [features, weights, *cleared(state)]
    assert_same(actual, expected)
    assert_same(gradients(actual, leaves), gradients(expected, leaves))


@pytest.mark.parametrize("merge", ["tanh", "linear"])
def test_the_merge_alone(merge: Literal["tanh", "linear"]) -> None:
    memory = build(AttentiveConfig(score="none", merge=merge), SIZE, VOCABULARY)
    h = values(4, 2, SIZE, seed=7).requires_grad_()
    readout, after = read(memory, h, memory.init_state(2))
    merged = h @ memory.merge.weight.T + memory.merge.bias
    expected = merged.tanh() if merge == "tanh" else merged
    leaves = [h, *memory.parameters()]
    assert (readout.attention, after) == (None, {})
    assert_same([readout.features], [expected])
    assert_same(gradients([readout.features], leaves), gradients([expected], leaves))
