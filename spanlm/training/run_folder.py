"""The folder of a run, which explains itself.

config.yaml  vocabulary.json  model.safetensors (the best by validation)  metrics.jsonl  checkpoints/
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import nn

from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError, RunError
from spanlm.files import replace_file
from spanlm.training.checkpoints import to_bytes

CONFIG, VOCABULARY, MODEL, METRICS, CHECKPOINTS = (
    "config.yaml",
    "vocabulary.json",
    "model.safetensors",
    "metrics.jsonl",
    "checkpoints",
)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the run's folder; the lock goes with the process, however it ends.

    Raises:
        InputError: another live process trains in this folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"{folder}: another process is training in this folder. Wait for it, or choose another --out."
            ) from None
        yield


def save_model(folder: Path, model: nn.Module, vocabulary: Vocabulary) -> None:
    """Write the weights, marked with the vocabulary they belong to.

    Raises:
        RunError: the disk refused; the file before is intact.
    """
    metadata = {"format": "spanlm-1", "vocabulary": vocabulary.hash}
    try:
        replace_file(folder / MODEL, to_bytes(dict(model.named_parameters()), metadata))
    except OSError as error:
        raise RunError(
            f"{folder / MODEL}: could not be written: {error.strerror}; the file before is intact."
        ) from None


def load_weights(folder: Path, model: nn.Module, vocabulary: Vocabulary) -> None:
    """Read `model.safetensors` into the model.

    Raises:
        InputError: no such file, a damaged one, one of another vocabulary, or one of another model.
    """
    path = folder / MODEL
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file. Is {folder} the folder of a run that finished an epoch?") from None
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: damaged: {error}. Train again, or copy it again.") from None
    if metadata.get("vocabulary") != vocabulary.hash:
        raise InputError(
            f"{path}: was trained with another vocabulary than {folder / VOCABULARY} "
            f"(SHA-256 {str(metadata.get('vocabulary'))[:12]}…, not {vocabulary.hash[:12]}…). Put its own back."
        )
    copy_weights(tensors, model, str(path))


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
    """metrics.jsonl, which a resumed run cuts back to where its checkpoint stands."""

    def __init__(self, path: Path, size: int = 0) -> None:
        """Open for appending after the first `size` bytes; drop the rest."""
        self._file = path.open("r+b" if path.exists() else "w+b")
        if path.stat().st_size < size:
            raise RunError(f"{path}: has fewer than the {size} bytes that the checkpoint names; it was cut.")
        self._file.truncate(size)
        self._file.seek(size)

    def write(self, row: dict[str, Any]) -> None:
        """Append a row."""
        self._file.write(json.dumps(row).encode() + b"\n")
        self._file.flush()

    def sync(self) -> int:
        """Wait until the disk has it all; return its size in bytes."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
