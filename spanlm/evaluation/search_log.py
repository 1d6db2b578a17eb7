"""What a search has read so far, kept as soon as it is known.

Finding η and λ reads a text some twenty times, at full size for hours. What stops it may cost the reading it was in,
and no more: each one that is over is a line of a file, and the same search, begun again, takes it from there. That file
is no cache: it is there until the search is over, and what is asked for later is read.

A line answers only for what cannot but give the same numbers: the same weights and model, statistics, settings,
precision and tokens in the same segments, read by the same code on the same machine with as many threads.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spanlm.data.batching import Batcher
from spanlm.evaluation.part_tally import PartTally
from spanlm.evaluation.scoring import Tally
from spanlm.plain_json import json_object


@dataclass(frozen=True)
class Reading:
    """A text, or its first tokens, read once with weights that follow it.

    Attributes:
        total: the sums.
        seconds: that it took, whenever that was.
    """

    total: Tally
    seconds: float


class SearchLog:
    """The readings of one search, those of an earlier process that was stopped among them.

    Args:
        path: where they are kept, one file for each model, code and machine; None: in memory alone.

    Attributes:
        before: how many of those that were asked for were in the file.
        seconds_before: that they had taken.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._kept = path, _read(path)
        self._now: dict[str, Reading] = {}
        self.before, self.seconds_before = 0, 0.0

    def reading(self, key: str, said: dict[str, Any], read: Callable[[], Tally]) -> Reading:
        """Return what a reading gave, or read now, and keep it.

        Args:
            key: digest of all else that it depends on.
            said: what it is, for people who look into the file.
            read: reads.
        """
        found = self._now.get(key)
        if found is not None:
            return found
        kept = self._kept.get(key)
        if kept is not None:
            self.before, self.seconds_before = self.before + 1, self.seconds_before + kept.seconds
            self._now[key] = kept
            return kept
        began = time.perf_counter()
        total = read()
        self._now[key] = Reading(total, time.perf_counter() - began)
        self._append(key, said)
        return self._now[key]

    def _append(self, key: str, said: dict[str, Any]) -> None:
        """Write a line; where that cannot be, a search that is stopped begins anew, and that is all."""
        if self._path is None:
            return
        found = self._now[key]
        line = {"key": key, **said, "seconds": round(found.seconds, 3), "sums": _written(asdict(found.total))}
        with suppress(OSError), self._path.open("ab") as file:
            # begun anew, since a process that was killed may have left half a line
            file.write(b"\n" + json.dumps(line, ensure_ascii=False).encode())

    def remove(self) -> None:
        """Forget the file: the search is over."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink(missing_ok=True)


def segments_digest(batcher: Batcher, most: int | None) -> str:
    """Identify what a batcher gives: every token, where it is predicted, and where the state begins anew.

    Args:
        batcher: of the text.
        most: end with the segment in which so many tokens are predicted; None: all of it.
    """
    digest, tokens = hashlib.sha256(), 0
    for segment in batcher.segments():
        for part in (segment.inputs, segment.targets, segment.mask, segment.reset):
            digest.update(str(tuple(part.shape)).encode())
            digest.update(part.contiguous().numpy().data)
        tokens += int(segment.mask.sum())
        if most is not None and tokens >= most:
            break
    return digest.hexdigest()


def digest_of(*parts: object) -> str:
    """Identify plain values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _read(path: Path | None) -> dict[str, Reading]:
    """Return the readings of a file by their keys; lines that are none are left out."""
    found: dict[str, Reading] = {}
    try:
        lines = [] if path is None else path.read_bytes().split(b"\n")
    except OSError:
        return found
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            values = json_object(line)
            found[str(values["key"])] = Reading(_tally(values["sums"]), float(values["seconds"]))
    return found


def _written(sums: dict[str, Any]) -> dict[str, Any]:
    """Numbers as text that holds every bit of them, and those that JSON does not have, too."""
    return {name: _written(x) if isinstance(x, dict) else x if x is None else repr(x) for name, x in sums.items()}


def _tally(sums: dict[str, Any]) -> Tally:
    """Raise KeyError, TypeError or ValueError where it is none."""
    parts = sums["parts"]
    return Tally(
        tokens=int(sums["tokens"]),
        nll=float(sums["nll"]),
        unk_tokens=int(sums["unk_tokens"]),
        unk_nll=float(sums["unk_nll"]),
        first_tokens=int(sums["first_tokens"]),
        first_nll=float(sums["first_nll"]),
        parts=None if parts is None else PartTally(**{name: float(value) for name, value in parts.items()}),
    )
