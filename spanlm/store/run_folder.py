"""The folder of a run.

config.yaml  vocabulary.json  model.safetensors (the best by validation)  metrics.jsonl  checkpoints/  revisions/

tokenizer.json takes the place of vocabulary.json in a run of pieces (data.tokenizer=bpe or unigram).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shlex
import shutil
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor, nn

from spanlm.errors import IN_USE, InputError, RunError, named
from spanlm.store.checkpoints import load_last_position, read_tensors, to_bytes
from spanlm.store.files import REVISIONS, hold, new_folder, own, regular, remove_unfinished, replace_file, written
from spanlm.store.plain import finite, json_object, several
from spanlm.store.provenance import PROVENANCE

CONFIG, VOCABULARY, PIECES, MODEL = "config.yaml", "vocabulary.json", "tokenizer.json", "model.safetensors"
METRICS, CHECKPOINTS = "metrics.jsonl", "checkpoints"
SEED = "seed-"
"""Prefix of the folders of a family's runs."""

_LOG = logging.getLogger(__name__)
_MAKE_ROOM = f"Make room and go on with {named('resume=True')}."


def vocabulary_file(folder: Path, of_pieces: bool = False) -> Path:
    """Return the file with a run's vocabulary, which may be missing; `of_pieces`: its configuration says which."""
    return pieces if (pieces := folder / PIECES).exists() or of_pieces else folder / VOCABULARY


def seed_folders(folder: Path, begun: str = CONFIG) -> list[Path]:
    """Return the runs of a family that have the file `begun`, sorted by seed."""
    seeds = {path.parent: path.parent.name.removeprefix(SEED) for path in folder.glob(f"{SEED}*/{begun}")}
    return sorted((path for path, seed in seeds.items() if seed.isdecimal()), key=lambda path: int(seeds[path]))


def refuse_family(folder: Path) -> None:
    """Refuse to put a single run into the folder of a family of seeds."""
    if not (folder / CONFIG).exists() and (members := seed_folders(folder)):
        raise InputError(
            f"{folder}: holds a family of {len(members)} seeds, whose place a single run would take. "
            "`spanlm train --seeds … --resume auto` goes on with it; or choose another folder."
        )


@contextmanager
def locked(folder: Path, *, forget: bool = False) -> Iterator[None]:
    """Lock the run's folder, created if missing; the lock ends with the process, however the process ends.

    With `forget`, a new folder and its new parents are removed if the run is refused while the folder is still empty.

    Raises:
        InputError: another live process trains in this folder, or it cannot be created or written.
    """
    try:
        str(folder.absolute()).encode()
    except UnicodeEncodeError:
        problem = f"{folder}: its whole path must be UTF-8, or weights cannot be read there. Choose another folder."
        raise InputError(problem) from None
    above = list(takewhile(lambda path: not path.exists(), folder.parents))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (".lock", CONFIG, VOCABULARY, PIECES, MODEL, METRICS, CHECKPOINTS, REVISIONS):
            own(folder / name)
        lock = hold(folder / ".lock")
    except BlockingIOError:
        raise InputError(f"{folder}: {IN_USE}. Wait for it, or choose another folder.") from None
    except OSError as error:
        raise InputError(f"{folder}: cannot be used: {error.strerror}. Choose another folder.") from None
    with lock:
        try:
            yield
        except InputError:
            if forget and [path.name for path in folder.iterdir()] == [".lock"]:
                (folder / ".lock").unlink()
                folder.rmdir()
                with suppress(OSError):  # another run may be in a parent by now
                    for path in above:
                        path.rmdir()
            raise


def save_model(folder: Path, model: nn.Module, vocabulary: str, config: str = "") -> str:
    """Write the weights with the vocabulary's hash, the run's `config_digest` and their SHA-256; return the SHA-256.

    Raises:
        RunError: a weight is not finite, or the disk refused; the old file is intact.
    """
    weights = dict(model.named_parameters())
    if wrong := _not_finite(weights):
        raise RunError(f"{folder / MODEL}: not written: {wrong}. Start again with a lower training.optimizer.lr.")
    digest = weights_digest(weights)
    # one key: the format does not fix the order of several, and equal runs should give equal files
    marks = {"format": 1, "vocabulary": vocabulary, "weights": digest, "config": config}
    way = f"The file before is intact. Make room or give permission, and go on with {named('resume=True')}."
    with written(folder / MODEL, way):
        replace_file(folder / MODEL, to_bytes(weights, {"spanlm": json.dumps(marks)}))
    return digest


def save_revision(folder: Path, name: str, model: nn.Module, vocabulary: str, config: str) -> None:
    """Keep the model in `revisions/NAME`, a folder that loads as the run does, in the place of one from a lost attempt.

    Raises:
        RunError: as `save_model`.
    """
    revision = folder / REVISIONS / name
    with written(revision, _MAKE_ROOM):
        own(revision.parent).mkdir(exist_ok=True)
        remove_unfinished(revision.parent)
        if own(revision).exists():
            shutil.rmtree(revision)
        with new_folder(revision) as new:
            for path in (folder / CONFIG, vocabulary_file(folder), folder / PROVENANCE):
                shutil.copyfile(path, new / path.name)
            save_model(new, model, vocabulary, config)


class LostWeights(InputError):
    """`model.safetensors` is missing or damaged."""


def load_weights(folder: Path, model: nn.Module, vocabulary: str) -> str:
    """Load `model.safetensors` into the model; return the SHA-256. InputError: as `read_weights` and `copy_weights`."""
    weights = read_weights(folder, vocabulary)
    copy_weights(weights.tensors, model, str(folder / MODEL))
    return weights.digest


@dataclass(frozen=True)
class Weights:
    """The content of `model.safetensors`; `config` is the run's `config_digest`."""

    tensors: dict[str, Tensor]
    digest: str
    config: str


def read_weights(folder: Path, vocabulary: str) -> Weights:
    """Read `model.safetensors`; `vocabulary` is the hash that it must have been trained with.

    Raises:
        LostWeights: the file is missing or damaged.
        InputError: the file may not be read, or has another vocabulary.
    """
    path = folder / MODEL
    try:
        tensors, marks = read_tensors(path)
    except FileNotFoundError:
        if path.exists():  # safetensors reports missing permissions as a missing file
            raise InputError(f"{path}: may not be read. Change its permissions, or copy the run.") from None
        raise LostWeights(f"{path}: no such file. Is {folder} the folder of a run that finished an epoch?") from None
    except (OSError, ValueError, SafetensorError) as error:
        raise LostWeights(f"{path}: damaged: {error}. {_again(folder)}") from None
    if marks.get("vocabulary") != vocabulary:
        raise InputError(
            f"{path}: was trained with another vocabulary than {vocabulary_file(folder)} "
            f"(SHA-256 {str(marks.get('vocabulary'))[:12]}…, not {vocabulary[:12]}…). Put its own back."
        )
    digest = weights_digest(tensors)
    if marks.get("weights") != digest:
        raise LostWeights(f"{path}: damaged: its weights do not have their SHA-256. {_again(folder)}")
    return Weights(tensors, digest, str(marks.get("config", "")))


def _again(folder: Path) -> str:
    command = f"spanlm train --out {shlex.quote(str(folder))} --resume auto"
    return f"Copy it again, or try `{command}`, which makes it again where the last checkpoint has its weights."


def weights_digest(weights: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of named weights, as `model.safetensors` carries it."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(to_bytes({name: weights[name].cpu()}))
    return digest.hexdigest()


def model_digest(model: nn.Module) -> str:
    return weights_digest(dict(model.named_parameters()))


def require_fit(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], source: str) -> None:
    """Raise InputError, which names the first difference, unless names, shapes and types are as expected.

    Copying alone would cast other types and broadcast smaller shapes.
    """
    fitting, kinds = ({k: f"{x.dtype} {tuple(x.shape)}" for k, x in named.items()} for named in (expected, tensors))
    for name in sorted(fitting.keys() | kinds.keys()):
        kind, fits = kinds.get(name, "missing"), fitting.get(name, "left out")
        if kind != fits:
            problem = f"{name} is {kind}, and should be {fits}".replace("torch.", "")
            raise InputError(f"{source}: does not fit the run of {CONFIG}: {problem}. Put the run's own file back.")


def copy_weights(tensors: dict[str, Any], model: nn.Module, source: str) -> None:
    """Copy named tensors into the model's parameters in place; names, shapes and types must fit, values be finite."""
    parameters = dict(model.named_parameters())
    require_fit(tensors, parameters, source)
    if no_numbers := _not_finite(tensors):
        raise InputError(f"{source}: {no_numbers}. Train again, or copy it again.")
    for name, parameter in parameters.items():
        parameter.data.copy_(tensors[name])


def _not_finite(weights: Mapping[str, Tensor]) -> str:
    for name, weight in sorted(weights.items()):
        if wrong := int((~(weight.detach().abs() <= 1e15)).sum()):  # products of larger ones overflow; NaN is not <=
            return f"weight {name}: {wrong:,} of {weight.numel():,} values are not finite, or beyond 1e15"
    return ""


class MetricsLog:
    """Appends to metrics.jsonl; a resumed run first truncates the file to the size in its checkpoint.

    If older rows have changed since, the file is renamed and a new one begins; a note says so.

    Attributes:
        size: bytes so far.
        checksum: their CRC-32.

    Raises:
        RunError: the disk refused.
    """

    def __init__(self, path: Path, size: int = 0, checksum: int = 0) -> None:
        self.size: int = size
        self.checksum: int = checksum
        self._written = partial(written, path, _MAKE_ROOM)
        with self._written():
            existed = path.exists()
            content = path.read_bytes()[:size] if existed else b""
            if (len(content), zlib.crc32(content)) != (size, checksum):
                self.size = self.checksum = 0
                aside = own(path.with_name(f"{path.name}.changed"))
                if existed:
                    os.replace(path, aside)
                _LOG.info("note: %s: was %s, and begins anew", path, f"changed ({aside.name})" if existed else "lost")
            self._file = path.open("r+b" if path.exists() else "w+b")
            self._file.truncate(self.size)
            self._file.seek(self.size)

    def write(self, row: dict[str, Any]) -> None:
        """Append a row; numbers that are not finite, such as a perplexity beyond e^700, become null."""
        line = json.dumps(finite(row), allow_nan=False).encode() + b"\n"
        with self._written():
            self._file.write(line)
            self._file.flush()
        self.size += len(line)
        self.checksum = zlib.crc32(line, self.checksum)

    def sync(self) -> None:
        with self._written():
            os.fsync(self._file.fileno())

    def close(self) -> None:
        with self._written():
            self._file.close()


def epoch_rows(folder: Path) -> list[dict[str, Any]]:
    """Read the validations so far of a run, which may still train. Damaged rows are left out with a note.

    Raises:
        InputError: `folder` is not a run.
    """
    path, position = folder / METRICS, dict[str, Any]()
    with suppress(RunError):  # without an intact checkpoint the rows cannot be verified
        position = load_last_position(folder / CHECKPOINTS) or {}
    try:  # after the position: the file of a run that still trains only grows
        content = regular(path, 2**30).read_bytes()
    except OSError as error:
        if not folder.exists():
            raise InputError(f"{folder}: there is no such folder. Check the path") from None
        raise InputError(f"{folder}: has no {METRICS} ({error.strerror}); name the folder of a run") from None
    if zlib.crc32(content[: position.get("metrics_size", 0)]) != position.get("metrics_checksum", 0):
        _LOG.info("note: %s: was changed after it was written, so that its numbers may be others", path)
    rows, lost = list[dict[str, Any]](), 0
    for line in content.splitlines(keepends=True):
        try:
            rows.append(json_object(line))
        except ValueError:
            lost += line.endswith(b"\n")  # a line without an end is being written
    if lost:
        _LOG.info("note: %s: left out %s, damaged", path, several(lost, "row"))
    return [row for row in rows if row.get("event") == "valid"]
