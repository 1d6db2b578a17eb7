"""What a search has read so far, kept as soon as it is known.

Finding η and λ reads a text some twenty times, at full size for hours. What stops it may cost the reading it was in,
and no more: each one that is over is a file of its own in the run's folder, and the same search, begun again, takes it
from there. This is no cache: the files are there until the search is over, and what is asked for later is read.

A file answers only for the same reading: the same weights, which of them learn, model, statistics, settings, precision
and tokens in the same segments, read by the same code, on a machine of the same description with as many threads. It
carries a digest of itself, and one that does not fit it is read anew.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from spanlm.data.batching import Batcher
from spanlm.evaluation.astray import AstrayError
from spanlm.evaluation.scoring import Tally
from spanlm.store.files import UNFINISHED, own, regular, replace_file
from spanlm.store.plain import json_object


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
    """The readings of a search, those of an earlier process that was stopped among them.

    Args:
        folder: where they are kept, made if need be; None: in memory alone.
        identity: of what a reading depends on beside its key, such as the code and the machine.
        made: who reads; stands in the files for people.
        unkept: why there is no folder.

    Attributes:
        folder: see above.
        unkept: likewise.
        before: how many of those that were asked for had been read by an earlier process.
        seconds_before: that they had taken; not what else that process did, nor the reading that it was stopped in.
        kept: how many of those that were asked for are in the folder.
        refused: why the last one that is not could not be written; None: all are there.
    """

    def __init__(
        self, folder: Path | None = None, identity: str = "", made: Mapping[str, Any] | None = None, unkept: str = ""
    ) -> None:
        self.folder, self.unkept, self._identity, self._made = folder, unkept, identity, made or {}
        self._now: dict[str, Reading] = {}
        self.before, self.seconds_before, self.kept = 0, 0.0, 0
        self.refused: OSError | None = None

    def reading(self, key: str, said: Mapping[str, Any], read: Callable[[], Tally]) -> Reading:
        """Return what a reading gave, or read now, and keep it.

        Args:
            key: digest of all else that it depends on.
            said: what it is, for people who look into the file.
            read: reads.
        """
        key = digest_of(self._identity, key)
        if key not in self._now:
            self._now[key] = self._found(key) or self._read(key, said, read)
        return self._now[key]

    def remove(self) -> None:
        """Forget what was asked for: the search is over. Other searches' readings stay."""
        if self.folder is None:
            return
        with suppress(OSError):
            for key in self._now:
                path = self._path(self.folder, key)
                path.unlink(missing_ok=True)
                for left in self.folder.glob(f"{path.name}.*{UNFINISHED}"):  # of a process that was killed
                    left.unlink()
            self.folder.rmdir()  # fails where others' are
        self.kept = 0

    @contextmanager
    def until_over(self) -> Iterator[None]:
        """Forget what was asked for when the block ends, or went astray at every setting that the search tried.

        Not when it is stopped, nor when a text goes astray at the setting that the search had chosen on another: what
        the search found is then all there is.
        """
        try:
            yield
        except AstrayError as error:
            if error.details:
                self.remove()
            raise
        self.remove()

    def _found(self, key: str) -> Reading | None:
        """Return what an earlier process read."""
        found = None if self.folder is None else _whole(self._path(self.folder, key), key)
        if found is not None:
            self.before, self.kept = self.before + 1, self.kept + 1
            self.seconds_before += found.seconds
        return found

    def _read(self, key: str, said: Mapping[str, Any], read: Callable[[], Tally]) -> Reading:
        began = time.perf_counter()
        total = read()
        found = Reading(total, time.perf_counter() - began)
        if self.folder is not None:
            line = {**said, **self._made, "key": key, "seconds": found.seconds, "sums": _written(asdict(total))}
            content = json.dumps({**line, "sha256": digest_of(line)}, indent=1)  # ASCII: a command may be no UTF-8
            try:
                own(self.folder).mkdir(exist_ok=True)
                replace_file(self._path(self.folder, key), content.encode())
                self.kept += 1
            except OSError as error:  # a search that is stopped begins anew, and that is all
                self.refused = error
        return found

    @staticmethod
    def _path(folder: Path, key: str) -> Path:
        return folder / f"{key[:32]}.json"


def model_digest(model: nn.Module) -> str:
    """Identify all weights as they are, and which of them learn."""
    digest = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        digest.update(digest_of(name, str(weight.dtype), tuple(weight.shape)).encode())
        digest.update(weight.cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    learning = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    return digest_of(digest.hexdigest(), sorted(learning))


def segments_digest(batcher: Batcher) -> str:
    """Identify what a batcher gives: every token, where it is predicted, and where the state begins anew."""
    digest = hashlib.sha256()
    for segment in batcher.segments():
        for part in (segment.inputs, segment.targets, segment.mask, segment.reset):
            digest.update(str(tuple(part.shape)).encode())
            digest.update(part.contiguous().numpy().data)
    return digest.hexdigest()


def digest_of(*parts: object) -> str:
    """Identify plain values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def _whole(path: Path, key: str) -> Reading | None:
    """Return the reading of a file; None where there is none, or not as it was written."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        values = json_object(regular(path, 2**20).read_bytes())
        whole = values.pop("sha256") == digest_of(values) and values["key"] == key
        found = Reading(_tally(values["sums"]), float(values["seconds"]))
        if whole and found.total.tokens >= 1 and 0 < found.seconds < math.inf:
            return found
    return None


def _written(sums: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers as text that holds every bit of them, and those that JSON does not have, too."""
    return {name: _written(x) if isinstance(x, dict) else x if x is None else repr(x) for name, x in sums.items()}


def _tally(sums: Mapping[str, Any]) -> Tally:
    """Raise an error where it is none."""
    return Tally(
        tokens=int(sums["tokens"]),
        nll=float(sums["nll"]),
        unk_tokens=int(sums["unk_tokens"]),
        unk_nll=float(sums["unk_nll"]),
        first_tokens=int(sums["first_tokens"]),
        first_nll=float(sums["first_nll"]),
        metrics={name: float(value) for name, value in sums["metrics"].items()},
    )
