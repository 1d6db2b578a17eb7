"""How often each word of a text occurs, kept small: one string and one array for all words."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from spanlm.errors import InputError

HEADER_BYTES = 64
_COUNT = np.dtype("<i8")


@dataclass(frozen=True, slots=True, eq=False)
class WordCounts:
    """The words of a text in order of first appearance.

    Attributes:
        words: The words as UTF-8, one a line.
        counts: How often each occurs, int64 (types,).
    """

    words: bytes
    counts: NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of different words."""
        return len(self.counts)

    def __post_init__(self) -> None:
        if self.words.count(b"\n") != max(0, len(self.counts) - 1):
            raise InputError("word counts: a word holds a line end; count the words of a text")

    @classmethod
    def of(cls, counts: Mapping[str, int] | Mapping[bytes, int]) -> WordCounts:
        """Pack a mapping.

        Raises:
            InputError: A word holds a line end.
        """
        words = (word if isinstance(word, bytes) else word.encode() for word in counts)
        return cls(b"\n".join(words), np.fromiter(counts.values(), _COUNT, len(counts)))

    def choose(self, min_count: int, max_size: int | None, always: Collection[str]) -> list[str]:
        """Return the words of a vocabulary in order of first appearance.

        Args:
            min_count: Rarer words are left out.
            max_size: Largest number of words, all of `always` included; of words that occur equally often
                those seen first stay.
            always: Words that stay however rare they are. Those that do not occur come last.
        """
        places = {word: self._find(word.encode()) for word in always}
        found = [place for place in places.values() if place is not None]
        kept = self.counts >= min_count
        kept[found] = False
        if max_size is not None:
            candidates = np.flatnonzero(kept)
            by_count = np.argsort(-self.counts[candidates], kind="stable")
            kept[candidates[by_count[max_size - len(always) :]]] = False
        kept[found] = True
        return self._words_at(kept) + [word for word, place in places.items() if place is None]

    def write(self, file: BinaryIO) -> None:
        """Write a JSON object padded with spaces, the counts as a plain array, and the words."""
        header = json.dumps({"types": len(self), "bytes": len(self.words)})
        file.write(header.ljust(HEADER_BYTES).encode())
        file.write(self.counts.astype(_COUNT, copy=False).tobytes())
        file.write(self.words)

    @classmethod
    def read(cls, path: Path) -> WordCounts:
        """Return what `write` wrote."""
        with path.open("rb") as file:
            header = json.loads(file.read(HEADER_BYTES))
            counts = np.frombuffer(file.read(header["types"] * _COUNT.itemsize), _COUNT)
            return cls(file.read(header["bytes"]), counts)

    def _find(self, word: bytes) -> int | None:
        at = (b"\n%b\n" % self.words).find(b"\n%b\n" % word)
        return None if at < 0 else self.words.count(b"\n", 0, at)

    def _words_at(self, kept: NDArray[np.bool_]) -> list[str]:
        if kept.all() and len(kept):
            return self.words.decode().split("\n")
        ends = np.append(np.flatnonzero(np.frombuffer(self.words, np.uint8) == ord("\n")), len(self.words))
        begins = np.append(0, ends[:-1] + 1)
        places = zip(begins[kept].tolist(), ends[kept].tolist(), strict=True)
        return [self.words[begin:end].decode() for begin, end in places]
