"""The folder of a run, which explains itself.

config.yaml  vocabulary.json  model.safetensors (the best by validation)  metrics.jsonl  checkpoints/
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError, RunError
from spanlm.files import hold, replace_file
from spanlm.plain_json import finite, json_object
from spanlm.training.checkpoints import to_bytes

CONFIG, VOCABULARY, MODEL, METRICS, CHECKPOINTS = (
    "config.yaml",
    "vocabulary.json",
    "model.safetensors",
    "metrics.jsonl",
    "checkpoints",
)


class FolderInUse(InputError):
    """Another live process trains in a run's folder."""


@contextmanager
def locked(folder: Path, *, forget: bool = False) -> Iterator[None]:
    """Hold the run's folder; the lock goes with the process, however it ends.

    Args:
        folder: made if need be.
        forget: it is new; take it away where the run is refused before anything else is in it.

    Raises:
        InputError: another live process trains in this folder (FolderInUse), or it cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = hold(folder / ".lock")
    except BlockingIOError:
        raise FolderInUse(
            f"{folder}: another process is training in this folder. Wait for it, or choose another --out."
        ) from None
    except OSError as error:
        raise InputError(f"--out={folder}: cannot be used: {error.strerror}. Choose another folder.") from None
    with lock:
        try:
            yield
        except InputError:
            if forget and [path.name for path in folder.iterdir()] == [".lock"]:
                (folder / ".lock").unlink()
                folder.rmdir()
            raise


def save_model(folder: Path, model: nn.Module, vocabulary: Vocabulary) -> str:
    """Write the weights, marked with the vocabulary they belong to and with their own SHA-256; return that.

    Raises:
        RunError: the disk refused; the file before is intact.
    """
    weights = dict(model.named_parameters())
    digest = weights_digest(weights)
    # one key: the format writes several in no fixed order, and equal runs should give equal files
    metadata = {"spanlm": json.dumps({"format": 1, "vocabulary": vocabulary.hash, "weights": digest})}
    try:
        replace_file(folder / MODEL, to_bytes(weights, metadata))
    except OSError as error:
        raise RunError(
            f"{folder / MODEL}: could not be written: {error.strerror}; the file before is intact."
        ) from None
    return digest


def load_weights(folder: Path, model: nn.Module, vocabulary: Vocabulary) -> str:
    """Read `model.safetensors` into the model; return the SHA-256 of the weights.

    Raises:
        InputError: no such file, a damaged one, one of another vocabulary, or one of another model.
    """
    tensors, digest = read_weights(folder, vocabulary)
    copy_weights(tensors, model, str(folder / MODEL))
    return digest


def read_weights(folder: Path, vocabulary: Vocabulary) -> tuple[dict[str, Tensor], str]:
    """Read `model.safetensors`; return the weights by name and their SHA-256.

    Raises:
        InputError: no such file, a damaged one, or one of another vocabulary.
    """
    path = folder / MODEL
    try:
        with safe_open(path, framework="pt") as file:
            marks = json_object((file.metadata() or {}).get("spanlm", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file. Is {folder} the folder of a run that finished an epoch?") from None
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(f"{path}: damaged: {error}. Train again, or copy it again.") from None
    if marks.get("vocabulary") != vocabulary.hash:
        raise InputError(
            f"{path}: was trained with another vocabulary than {folder / VOCABULARY} "
            f"(SHA-256 {str(marks.get('vocabulary'))[:12]}…, not {vocabulary.hash[:12]}…). Put its own back."
        )
    digest = weights_digest(tensors)
    if marks.get("weights") != digest:
        raise InputError(f"{path}: damaged: its weights do not have their SHA-256. Train again, or copy it again.")
    return tensors, digest


def weights_digest(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 of named weights: the one that `model.safetensors` carries."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(name.encode())
        digest.update(to_bytes({name: weights[name].cpu()}))
    return digest.hexdigest()


def copy_weights(tensors: dict[str, Any], model: nn.Module, source: str) -> None:
    """Copy named tensors into the model's parameters, in place; names and shapes must be the model's."""
    parameters = dict(model.named_parameters())
    wrong = [
        name
        for name in parameters.keys() | tensors.keys()
        if name not in tensors or name not in parameters or tensors[name].shape != parameters[name].shape
    ]
    if wrong:
        raise InputError(f"{source}: does not fit the model of {CONFIG}: {sorted(wrong)[0]} differs.")
    for name, parameter in parameters.items():
        parameter.data.copy_(tensors[name])


class MetricsLog:
    """metrics.jsonl, which a resumed run cuts back to where its checkpoint stands.

    Raises:
        RunError: the disk refused, or the file is shorter than the checkpoint says.
    """

    def __init__(self, path: Path, size: int = 0) -> None:
        self._path = path
        found = path.stat().st_size if path.exists() else 0
        if found < size:
            raise RunError(f"{path}: has {found} of the {size} bytes that the checkpoint names; it was cut.")
        with self._named_errors():
            self._file = path.open("r+b" if path.exists() else "w+b")
            self._file.truncate(size)
            self._file.seek(size)

    def write(self, row: dict[str, Any]) -> None:
        """Append a row; a number that is not finite, as a perplexity beyond e^700, becomes null."""
        with self._named_errors():
            self._file.write(json.dumps(finite(row), allow_nan=False).encode() + b"\n")
            self._file.flush()

    def sync(self) -> int:
        """Wait until the disk has it all; return its size in bytes."""
        with self._named_errors():
            os.fsync(self._file.fileno())
            return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        with self._named_errors():
            self._file.close()

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunError(
                f"{self._path}: could not be written: {error.strerror}. Make room and go on with --resume auto."
            ) from None
