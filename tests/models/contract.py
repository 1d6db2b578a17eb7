"""What the tests of the contract that all memories keep have in common (see `spanlm.models.interfaces`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from spanlm.models.interfaces import Memory, Readout, Tensors
from spanlm.models.memories.pointer_sentinel import Pointer
from tests.models import small
from tests.models.small import HIDDEN, VOCABULARY, build, read, values

UNBOUNDED = 100
"""The reach of a memory without a limit: more than any test has steps."""

REACH = {
    "none": lambda c: 0,
    "key_value": lambda c: c.window,
    "ngram": lambda c: c.order - 1,
    "attentive": lambda c: 0 if c.score == "none" else c.window or UNBOUNDED,
    "recurrent_memory": lambda c: c.window - 1,
    "pointer_sentinel": lambda c: c.window - 1,
    "span_buffer": lambda c: max(max(ends) for ends in span_ends(c, 10 * c.buffer_size)),
}
"""How many steps back a memory of this kind can look."""

READS_WORDS = {"recurrent_memory", "pointer_sentinel"}
"""Kinds that look back at words."""

READS_ONLY_WORDS = {"recurrent_memory"}
"""Kinds that look back at nothing else; the others look back at what the encoder wrote."""


def span_ends(config: Any, step: int) -> list[tuple[int, int]]:
    """How many steps before `step` of a new stream each span begins and ends, the newest first."""
    length = 1 if config.words else config.span_length
    newest = config.newest == "before"
    ends = [newest + length * n for n in range(config.buffer_size // length)]
    return [(end + length - 1, end) for end in ends if end + length - 1 <= step]


def looked_at(config: Any, step: int) -> set[int]:
    """The lags at which `step` of a new stream looks at what the encoder wrote; its own is one."""
    if config.kind == "span_buffer":
        return {lag for lag in {0}.union(*span_ends(config, step)) if lag <= step}
    reach = 0 if config.kind in READS_ONLY_WORDS else REACH[config.kind](config)
    return set(range(min(reach, step) + 1))


def attended(config: Any, step: int, nearest_lag: int) -> set[int]:
    """The lags that attention gives weight to at `step` of a new stream; a span's is that of its end."""
    if config.kind == "span_buffer":
        return {end for _, end in span_ends(config, step)}
    return set(range(nearest_lag, min(REACH[config.kind](config), step) + 1))


every_memory = pytest.mark.parametrize("config", small.memories())


def only(which: Callable[[Memory], bool]) -> Any:
    """Parametrise over the memories that are `which`."""
    chosen = [p for p in small.memories() if which(build(p.values[0], HIDDEN, VOCABULARY))]
    assert chosen
    return pytest.mark.parametrize("config", chosen)


def attends(memory: Memory) -> bool:
    return read(memory, values(1, 1, HIDDEN), memory.init_state(1))[0].attention is not None


def answer(readout: Readout) -> Tensor:
    """What the memory does to the prediction: the features; of a mixture, numbers that all change where it does."""
    if readout.mixture is None:
        return readout.features
    parts = small.mixed(readout) if isinstance(readout.mixture, Pointer) else [readout.features, *small.mixed(readout)]
    both = torch.cat([x.reshape(*x.shape[:2], -1) for x in parts], -1)
    return both @ values(both.shape[-1], 4, seed=3)


def after_prefix(memory: Memory, steps: int, batch: int = 2) -> Tensors:
    """State of streams that have read `steps` steps, without a graph."""
    state = memory.init_state(batch)
    if steps:
        _, state = read(memory, values(steps, batch, HIDDEN, seed=50), state)
    return {name: x.detach() for name, x in state.items()}
