"""Caches what models read, so that the known beginning of a text is not read again.

If texts are cut into the same blocks, the readout of a block depends bit for bit on the words so far. So a cached
readout equals a computed one; only the time may differ.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from hashlib import blake2b

from torch import Tensor

from spanlm.models.interfaces import Head, LMState, NextWordModel, Readout


class Memo:
    """Cached readouts and states of at most `limit` bytes, shared by threads; drops the least recently used."""

    def __init__(self, limit: int) -> None:
        self._limit, self._held, self._lock = limit, 0, threading.Lock()
        self._values = OrderedDict[tuple[str, bytes], tuple[Readout, LMState, int]]()

    def get(self, key: tuple[str, bytes]) -> tuple[Readout, LMState] | None:
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][:2]

    def add(self, key: tuple[str, bytes], readout: Readout, state: LMState, size: int) -> None:
        """Cache a readout and a state of `size` bytes; more than the limit are not kept."""
        with self._lock:
            if key not in self._values and size <= self._limit:
                self._values[key] = readout, state, size
                self._held += size
                while self._held > self._limit:
                    self._held -= self._values.popitem(last=False)[1][2]


@dataclass(frozen=True)
class _Known(LMState):
    """A state with the digest of the text before it."""

    digest: bytes = b""


class Remembering(NextWordModel):
    """A model that caches its reading of single texts in a memo, under its `name`."""

    def __init__(self, model: NextWordModel, memo: Memo, name: str) -> None:
        super().__init__()
        self.model: NextWordModel = model
        self.head: Head = model.head
        self.vocabulary_size: int = model.vocabulary_size
        self._memo, self._name = memo, name
        self.eval()

    def init_state(self, batch_size: int) -> LMState:
        state = self.model.init_state(batch_size)
        return _Known(state.encoder, state.memory) if batch_size == 1 else state

    def forward(self, tokens: Tensor, state: LMState) -> tuple[Readout, LMState]:
        """Read tokens (T, B), from the cache if possible."""
        if not isinstance(state, _Known) or len(tokens) == 1:  # generation reads single words, which are not read again
            read: tuple[Readout, LMState] = self.model(tokens, state)
            return read
        digest = blake2b(state.digest + tokens.cpu().numpy().tobytes()).digest()
        known = self._memo.get((self._name, digest))
        if known is None:
            readout, after = self.model(tokens, LMState(state.encoder, state.memory))
            readout, size = _copied(readout)
            after = after.map(Tensor.clone)
            known = readout, _Known(after.encoder, after.memory, digest)
            self._memo.add((self._name, digest), *known, size + after.nbytes)
        return known


def _copied(readout: Readout) -> tuple[Readout, int]:
    """Copy what heads and pages read, since a view would keep its whole storage alive; return its bytes, too."""
    sizes, attention = list[int](), readout.attention

    def copy(tensor: Tensor) -> Tensor:
        sizes.append(tensor.nbytes)
        return tensor.clone()

    if attention is not None:
        attention = replace(attention, given=copy(attention.weights))
    return replace(readout.map(copy), attention=attention), sum(sizes)
