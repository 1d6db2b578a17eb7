"""Memories, heads, whole models against the loops of `tests/reference.py`: outputs, states, gradients, in float64."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from spanlm.models.encoders import LSTMConfig
from spanlm.models.heads import SoftmaxConfig
from spanlm.models.memories import (
    AttentiveConfig,
    KeyValueConfig,
    NGramConfig,
    PointerSentinelConfig,
    RecurrentMemoryConfig,
)
from spanlm.models.memories.attentive import EMPTY, AttentiveMemory
from spanlm.models.memories.key_value import KeyValueMemory
from spanlm.models.memories.ngram import NGramMemory
from spanlm.models.memories.pointer_sentinel import PointerSentinelMemory
from spanlm.models.memories.recency import Recency
from spanlm.models.memories.recurrent_memory import LinearComposition, RecurrentMemory
from tests import reference
from tests.cases import rest_slow
from tests.models import small, template
from tests.models.small import VOCABULARY, assert_same, build, read, values, words
from tests.models.twins import (
    assert_model_is,
    assert_twin,
    encoded,
    filled_slots,
    gradients,
    past_counts,
    past_outputs,
    predicted,
    slots,
)

PART = 3
SHAPES = [(7, 2, 3), (5, 3, 9), (1, 3, 4), (1, 1, 1), (6, 1, 1), (4, 2, 4), (2, 1, 5)]
every_shape = pytest.mark.parametrize(("steps", "batch", "window"), rest_slow(SHAPES, always=4), ids=str)


def projections(memory: KeyValueMemory) -> reference.Projections:
    return reference.Projections(
        w_y=memory.memory_key.weight,
        w_h=memory.query.weight,
        w=memory.score,
        w_r=memory.read.weight,
        w_x=memory.predict.weight,
        slope=slope(memory),
    )


def slope(memory: KeyValueMemory | AttentiveMemory) -> Tensor | float:
    if memory.slope.raw is None:
        return 0.5 if memory.slope.recency == "linear" else 0.0
    return (1 + memory.slope.raw.exp()).log().sum()


RECENCIES: tuple[Recency, ...] = ("none", "linear", "learned")


def key_value_parts(roles: int) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """Where an output holds its key and its value."""
    start = 0 if roles == 1 else PART
    return (lambda x: x[..., :PART]), (lambda x: x[..., start : start + PART])


@pytest.mark.parametrize("carried", ["fresh", "partial", "full"])
@pytest.mark.parametrize("roles", [1, 2, 3])
@every_shape
def test_key_value(steps: int, batch: int, window: int, roles: int, carried: str) -> None:
    recency = RECENCIES[(steps + roles) % 3]
    memory = build(KeyValueConfig(roles=roles, window=window, recency=recency), roles * PART, VOCABULARY)
    h = values(steps, batch, roles * PART, seed=7).requires_grad_()
    past = past_outputs(carried, window, batch, roles * PART)
    leaves = [h, *memory.parameters(), *[x for p in past for x in p]]
    key, value = key_value_parts(roles)
    poison = torch.full((PART,), torch.nan, dtype=torch.float64)
    state = {name: slots(past, window, part, poison) for name, part in (("keys", key), ("values", value))}
    state["filled"] = filled_slots(past, window)

    readout, after = read(memory, h, state)
    features, weights, remembered = reference.look_back(h, past, window, projections(memory), roles)

    assert readout.features.shape == (steps, batch, PART)
    assert_same([readout.features, readout.attention.weights], [features, weights])
    filled = filled_slots(remembered, window)
    assert torch.equal(after["filled"], filled)
    expected = [slots(remembered, window, part, torch.zeros_like(poison)) for part in (key, value)]
    actual = [torch.where(filled[..., None], after[name], 0) for name in ("keys", "values")]
    assert_same(actual, expected)
    assert_same(
        gradients([readout.features, readout.attention.weights, *actual], leaves),
        gradients([features, weights, *expected], leaves),
    )


@pytest.mark.parametrize("carried", ["fresh", "partial", "full"])
@pytest.mark.parametrize(("steps", "batch", "order"), [(1, 1, 2), (1, 3, 4), (7, 2, 3), (2, 3, 5), (5, 1, 2)])
def test_ngram(steps: int, batch: int, order: int, carried: str) -> None:
    size = order * PART
    memory: NGramMemory = build(NGramConfig(order=order), size, VOCABULARY)
    h = values(steps, batch, size, seed=7).requires_grad_()
    past = past_outputs(carried, order - 1, batch, size)
    leaves = [h, *memory.parameters(), *[x for p in past for x in p]]
    zeros = torch.zeros(size, dtype=torch.float64)

    readout, after = read(memory, h, {"outputs": slots(past, order - 1, lambda x: x, zeros)})
    features, remembered = reference.ngram(h, past, order, memory.combine.weight)

    expected = [features, slots(remembered, order - 1, lambda x: x, zeros)]
    actual = [readout.features, after["outputs"]]
    assert readout.attention is None
    assert_twin(actual, expected, leaves)


@every_shape
def test_the_template(steps: int, batch: int, window: int) -> None:
    memory = build(template.MeanConfig(window=window), PART, VOCABULARY)
    h = values(steps, batch, PART, seed=7).requires_grad_()
    readout, _ = read(memory, h, memory.init_state(batch))
    features = template.twin(h, window, memory.combine.weight)
    assert_twin([readout.features], [reference.grid(features)], [h, *memory.parameters()])


def word_memory(memory: RecurrentMemory) -> reference.WordMemory:
    """The paper's matrices, lag 0 first."""
    linear = isinstance(memory.composition, LinearComposition)
    lags = [None if x is None else list(x.flip(0)) for x in (memory.key_lags, memory.value_lags)]
    composition = memory.composition
    if linear:
        gated = None
    else:
        w_z, w_r, w = composition.of_read.weight.chunk(3)
        b_z, b_r, b = composition.of_read.bias.chunk(3)
        u_z, u_r = composition.of_hidden.weight.chunk(2)
        gated = [w_z, u_z, b_z, w_r, u_r, b_r, w, composition.of_reset.weight, b]
    u = composition.of_hidden.weight if linear else None
    return reference.WordMemory(memory.keys.weight, memory.values.weight, *lags, gated, u)


def past_words(kind: str, capacity: int, batch: int) -> list[list[int]]:
    return [words(count, seed=b).tolist() for b, count in enumerate(past_counts(kind, capacity, batch))]


def word_state(past: list[list[int]], length: int, empty: int) -> dict[str, Tensor]:
    """What was read stands at the end, `empty` before it."""
    read = [[torch.tensor(word) for word in stream] for stream in past]
    return {"words": slots(read, length, lambda word: word, torch.tensor(empty)), "filled": filled_slots(read, length)}


@pytest.mark.parametrize("carried", ["fresh", "partial", "full"])
@pytest.mark.parametrize(("temporal", "composition"), [(True, "gated"), (False, "gated"), (True, "linear")])
@every_shape
def test_recurrent_memory(steps: int, batch: int, window: int, temporal: bool, composition: Any, carried: str) -> None:
    config = RecurrentMemoryConfig(window=window, temporal=temporal, composition=composition)
    memory = build(config, PART, VOCABULARY)
    h = values(steps, batch, PART, seed=7).requires_grad_()
    tokens, past = words(steps, batch, seed=8), past_words(carried, window - 1, batch)
    leaves = [h, *memory.parameters()]

    readout, after = memory(h, tokens, word_state(past, window - 1, empty=-1))
    features, weights, remembered = reference.recurrent_memory(h, tokens, past, window, word_memory(memory))

    actual, expected = [readout.features, readout.attention.weights], [features, weights]
    assert readout.attention.nearest_lag == 0
    assert_twin(actual, expected, leaves)
    state = word_state(remembered, window - 1, empty=0)
    assert torch.equal(after["filled"], state["filled"])
    assert torch.equal(after["words"], state["words"])


def sentinel(memory: PointerSentinelMemory) -> reference.Sentinel:
    return reference.Sentinel(memory.query.weight, memory.query.bias, memory.sentinel)


def past_states(kind: str, capacity: int, batch: int) -> reference.PastWords:
    """States and the words read there; few words, so that some stand in the window more than once."""
    outputs = past_outputs(kind, capacity, batch, PART)
    return [
        list(zip(stream, words(len(stream), seed=b, size=4).tolist(), strict=True)) for b, stream in enumerate(outputs)
    ]


def pointer_state(past: reference.PastWords, length: int, key: float, word: int) -> dict[str, Tensor]:
    """What is remembered stands at the end; `key` and `word` in the slots before it."""
    states = [[state for state, _ in stream] for stream in past]
    keys = slots(states, length, lambda x: x, torch.full((PART,), key, dtype=torch.float64))
    return {"keys": keys, **word_state([[read for _, read in stream] for stream in past], length, word)}


@pytest.mark.parametrize("carried", ["fresh", "partial", "full"])
@every_shape
def test_pointer_sentinel(steps: int, batch: int, window: int, carried: str) -> None:
    memory = build(PointerSentinelConfig(window=window), PART, VOCABULARY)
    head = build(SoftmaxConfig(), PART, torch.nn.Embedding(VOCABULARY, 9))
    h = values(steps, batch, PART, seed=7).requires_grad_()
    tokens, targets = words(steps, batch, seed=8, size=4), words(steps, batch, seed=9)
    past = past_states(carried, window - 1, batch)
    leaves = [h, *memory.parameters(), *head.parameters(), *[x for stream in past for x, _ in stream]]

    readout, after = memory(h, tokens, pointer_state(past, window - 1, torch.nan, -1))
    weights, gates, copies, remembered = reference.pointer_sentinel(h, tokens, past, window, sentinel(memory))
    every = reference.mixture(reference.linear_softmax(h, head.weight, head.bias), gates, copies)

    assert readout.attention.nearest_lag == 0
    assert readout.features is h
    state = pointer_state(remembered, window - 1, 0, 0)
    filled = after["filled"]
    assert torch.equal(filled, state["filled"])
    assert torch.equal(torch.where(filled, after["words"], 0), state["words"])
    actual = [readout.attention.weights, readout.mixture.log_gate.exp(), head.log_probs(readout)]
    actual += [head.log_prob(readout, targets), torch.where(filled[..., None], after["keys"], 0)]
    expected = [weights, gates, every, every.gather(-1, targets[..., None]).squeeze(-1), state["keys"]]
    assert_twin(actual, expected, leaves)


LONGEST = 4
"""What an attentive memory without a window has read before, at most."""
ATTENTIVE_SHAPES = [(1, 3, None), (7, 2, None), *SHAPES[:4]]


def matrices(memory: AttentiveMemory) -> reference.Attentive:
    return reference.Attentive(
        w_s=memory.memory_key.weight if hasattr(memory, "memory_key") else None,
        w_q=memory.query.weight if hasattr(memory, "query") else None,
        v_s=memory.score if hasattr(memory, "score") else None,
        w_c=None if memory.merge is None else memory.merge.weight,
        b_c=None if memory.merge is None else memory.merge.bias,
        slope=slope(memory),
    )


def attentive_state(memory: AttentiveMemory, past: reference.Past, length: int, empty: float) -> dict[str, Tensor]:
    """What is remembered stands at the end of `length` slots; `empty` in those before it."""
    if not length:
        return memory.init_state(len(past))
    p = matrices(memory)
    nothing = torch.full((PART,), empty, dtype=torch.float64)

    def column(part: Callable[[Tensor], Tensor], blank: Tensor = nothing) -> Tensor:
        return slots(past, length, part, blank)

    state = {"filled": filled_slots(past, length)}
    if memory.window is not None:
        return {**state, "values": column(lambda o: o)}
    if p.w_q is not None and p.w_s is not None:
        return {**state, "values": column(lambda o: o), "keys": column(p.w_s.mv)}
    state["scores"] = column(lambda o: reference.score(o, o, p), nothing[0])
    totals, means = [], []
    for outputs in past:
        each = [reference.score(o, o, p).exp() for o in outputs]
        weighted = [e / sum(each) * o for e, o in zip(each, outputs, strict=True)]
        totals.append(torch.as_tensor(sum(each)).log() if outputs else torch.tensor(EMPTY))
        means.append(sum(weighted) if outputs else torch.zeros(PART))
    return {**state, "log_total": torch.stack(totals).double()[None], "mean": torch.stack(means).double()[None]}


def cleared(state: dict[str, Tensor]) -> list[Tensor]:
    filled = state["filled"]
    return [
        torch.where(filled.view(*filled.shape, *[1] * (x.dim() - 2)), x, 0) if len(x) == len(filled) else x
        for name, x in sorted(state.items())
        if name != "filled"
    ]


@pytest.mark.parametrize("carried", ["fresh", "partial", "full"])
@pytest.mark.parametrize("score", ["single", "single, h_t included", "combined", "mean", "mean, h_t included"])
@pytest.mark.parametrize(("steps", "batch", "window"), ATTENTIVE_SHAPES, ids=str)
def test_attentive(steps: int, batch: int, window: int | None, score: str, carried: str) -> None:
    score, current, _ = score.partition(", ")
    # neither the bias nor the merge takes part in anything else: any of the cases may be the one without
    alone: dict[str, Any] = {"merge": "context", "merge_bias": False} if steps == 7 and score != "mean" else {}
    kinds: dict[str, Any] = {"score": score, "merge_bias": steps != 5, **alone}
    kinds["recency"] = "learned" if score == "combined" and steps == 7 else "none"
    config = AttentiveConfig(window=window, includes_current=bool(current), **kinds)
    memory = build(config, PART, VOCABULARY)
    h = values(steps, batch, PART, seed=7).requires_grad_()
    held = LONGEST if window is None else window - bool(current)
    past = past_outputs(carried, held, batch, PART)
    carried_slots = max(map(len, past)) if window is None else held
    leaves = [h, *memory.parameters(), *[x for stream in past for x in stream]]

    readout, after = read(memory, h, attentive_state(memory, past, carried_slots, torch.nan))
    columns = window or max(1, carried_slots + steps - 1 + bool(current))
    features, weights, remembered = reference.attentive(
        h, past, window, columns, matrices(memory), includes_current=bool(current)
    )

    state = attentive_state(memory, remembered, carried_slots + (0 if window else steps), 0)
    assert readout.attention.nearest_lag == (0 if current else 1)
    assert readout.attention.weights.shape == weights.shape
    assert after.keys() == state.keys()
    assert torch.equal(after["filled"], state["filled"])
    actual = [readout.features, readout.attention.weights, *cleared(after)]
    expected = [features, weights, *cleared(state)]
    assert_twin(actual, expected, leaves)


def test_the_merge_alone() -> None:
    memory = build(AttentiveConfig(score="none"), PART, VOCABULARY)
    h = values(4, 2, PART, seed=7).requires_grad_()
    readout, after = read(memory, h, memory.init_state(2))
    expected = (h @ memory.merge.weight.T + memory.merge.bias).tanh()
    leaves = [h, *memory.parameters()]
    assert (readout.attention, after) == (None, {})
    assert_twin([readout.features], [expected], leaves)


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize(
    "memory",
    [
        KeyValueConfig(roles=3, window=2),
        RecurrentMemoryConfig(window=3),
        PointerSentinelConfig(window=4),
        AttentiveConfig(score="combined", window=None),
    ],
    ids=small.identify,
)
def test_whole_language_model(memory: object, tied: bool) -> None:
    """Embedding, encoder, memory and head put together as the papers say, every gradient included."""
    encoder, head = LSTMConfig(hidden_size=6, layers=2), SoftmaxConfig(tied=tied)
    model = small.language_model(small.model_config(encoder, memory, head))
    tokens, targets = words(6, 2, size=4), words(6, 2, seed=1, size=4)  # so few that some come again
    h, nothing = encoded(model, tokens), list[list[Any]]([[], []])
    if isinstance(memory, KeyValueConfig):
        h = reference.look_back(h, nothing, memory.window, projections(model.memory), memory.roles)[0]
    elif isinstance(memory, RecurrentMemoryConfig):
        h = reference.recurrent_memory(h, tokens, nothing, memory.window, word_memory(model.memory))[0]
    elif isinstance(memory, AttentiveConfig):
        h = reference.attentive(h, nothing, memory.window, 6, matrices(model.memory), includes_current=False)[0]
    every = predicted(model, h)
    if isinstance(memory, PointerSentinelConfig):
        _, gates, copies, _ = reference.pointer_sentinel(h, tokens, nothing, memory.window, sentinel(model.memory))
        every = reference.mixture(every, gates, copies)
    assert_model_is(model, tokens, targets, every)
