"""A text whose beginning was read before need not be read again.

What a model makes of the next few words is a function of the words up to them, bit for bit: reading always stops at the
same places. So an answer from memory is the answer; only the time it takes may tell.
"""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

STEPS = 16
"""Words read at a time where the beginning of a text may be known: what follows an edit is read again from there."""


class HasBytes(Protocol):
    """What says how much memory it holds."""

    @property
    def nbytes(self) -> int:
        """Bytes."""


Value = TypeVar("Value", bound=HasBytes)


class Recall(Protocol):
    """Gives what `compute` gives, of which `key` says all that it depends on but the model."""

    def __call__(self, key: bytes, compute: Callable[[], Value]) -> Value:
        """Compute it, or remember it."""


def anew(key: bytes, compute: Callable[[], Value]) -> Value:
    """Remember nothing."""
    return compute()


class Prefix:
    """Names the beginnings of a text of ids; `how` is what else a reading depends on."""

    def __init__(self, *how: object) -> None:
        self._digest = blake2b(repr(how).encode())

    def longer(self, ids: Iterable[int]) -> bytes:
        """Name the text with more ids at its end."""
        self._digest.update(array("q", [*ids, -1]).tobytes())  # -1: where reading stopped
        return self._digest.digest()


class Recalled:
    """A memory of at most `limit` bytes, shared by threads; what was used longest ago is forgotten first."""

    def __init__(self, limit: int) -> None:
        self._limit, self._held, self._lock = limit, 0, threading.Lock()
        self._values = OrderedDict[tuple[str, bytes], Any]()

    def of(self, model: str) -> Recall:
        """Remember what one of several models reads."""

        def recall(key: bytes, compute: Callable[[], Value]) -> Value:
            return self._get((model, key), compute)

        return recall

    def _get(self, key: tuple[str, bytes], compute: Callable[[], Value]) -> Value:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                known: Value = self._values[key]
                return known
        value = compute()
        with self._lock:
            if key not in self._values and value.nbytes <= self._limit:
                self._values[key] = value
                self._held += value.nbytes
                while self._held > self._limit:
                    self._held -= self._values.popitem(last=False)[1].nbytes
        return value
