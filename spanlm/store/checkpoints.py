"""Checkpoints: the whole state of a training run at one step, verified by SHA-256 when read.

    checkpoints/step-000001500/
        weights.safetensors     the model's parameters
        optimizer.safetensors   the optimiser's state, named by parameter
        carried.safetensors     the streams' state, and the state of the random number generators
        position.json           the run's position in the data, the schedule and the metrics
        manifest.json           SHA-256 of each of these

A checkpoint is written under a temporary name, synced, then renamed, so none is half written. An older checkpoint of
the same step is first renamed to `step-000001500.before`, which is read if the new one is missing, and deleted
afterwards. The last two checkpoints are kept.
A checkpoint that does not match its manifest is refused, and the one before it is read.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import safetensors.torch
from torch import Tensor

from spanlm.errors import InputError, RunError, named
from spanlm.store import SCHEMA, require_schema
from spanlm.store.files import new_folder, own, regular, remove_unfinished
from spanlm.store.plain import json_object

Read = TypeVar("Read")
KEPT = 2
_ASIDE = ".before"
_NAME = re.compile(rf"step-(\d{{9,}})({re.escape(_ASIDE)})?")
TENSOR_FILES = ("weights", "optimizer", "carried")
_FOR_NOW = (errno.EACCES, errno.EPERM, errno.ESTALE, errno.EMFILE, errno.ENFILE)
"""Errors that may pass: another user, process or time may be able to read the file."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything that a run needs for an exact resume."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    carried: dict[str, Tensor]
    position: dict[str, Any]


def save_checkpoint(folder: Path, step: int, checkpoint: Checkpoint) -> None:
    """Write a checkpoint and delete all but the last two.

    Raises:
        RunError: the disk refused; older checkpoints are intact.
    """
    final = folder / f"step-{step:09d}"
    aside = final.with_name(final.name + _ASIDE)
    try:
        own(folder).mkdir(exist_ok=True)  # without parents: a run's folder that was moved is not created again
        remove_unfinished(folder)
        # at an epoch's end, or after a damaged copy, a step is saved twice: the first may be the only checkpoint, so it
        # stays until the second has its name
        if final.exists():
            if aside.exists():  # left from a save that was killed after renaming its checkpoint
                shutil.rmtree(aside)
            os.replace(final, aside)
        with new_folder(final) as unfinished:
            _write_contents(unfinished, checkpoint)
    except OSError as error:
        if not folder.parent.exists():
            raise RunError(f"{folder.parent}: is gone, and with it the run. Put it back, and go on there.") from error
        older = _steps(folder)
        intact = f"{older[-1].name} is intact" if older else "there is no earlier one"
        raise RunError(
            f"{final}: the checkpoint could not be written: {error.strerror}; {intact}. "
            f"Make room and go on with {named('resume=True')}."
        ) from error
    _drop_others(folder, final)


def holds_checkpoints(folder: Path) -> bool:
    return bool(_steps(folder))


def load_last_checkpoint(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Read the newest checkpoint that matches its manifest; return also the reasons why newer ones were refused.

    Raises:
        RunError: all checkpoints are damaged.
    """
    return _newest(folder, _read)


def load_last_position(folder: Path) -> dict[str, Any] | None:
    """Read the position, not the tensors, of the newest checkpoint whose position matches its manifest.

    Raises:
        RunError: the positions of all checkpoints are damaged.
    """
    return _newest(folder, lambda path: _position(path, _verified(path)))[0]


def _newest(folder: Path, read: Callable[[Path], Read]) -> tuple[Read | None, list[str]]:
    refused, large = list[str](), False
    for path in reversed(_steps(folder)):
        try:
            return read(path), refused
        except InputError:  # a later version wrote it
            raise
        except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
            number = getattr(error, "errno", None)
            if number in _FOR_NOW:
                why = f"{os.strerror(number)}. Nothing is lost: give the rights to read it, or try again later."
                raise RunError(f"{path}: cannot be read now: {why}") from error
            refused.append(f"{path}: damaged checkpoint refused: {error}")
            large |= number == errno.EFBIG
    if refused:
        way = "Give it more memory, or start again" if large else "Start again"
        raise RunError(f"{refused[0]}; no checkpoint before it is whole. {way} with another folder.")
    return None, refused


def _drop_others(folder: Path, newest: Path) -> None:
    """Delete all but `newest` and the one before it; later ones are damaged, or the run would have resumed there."""
    checkpoints = _steps(folder)
    steps = [path for path in checkpoints if path.suffix != _ASIDE]
    place = steps.index(newest)
    for path in set(checkpoints).difference(steps[max(0, place - KEPT + 1) : place + 1]):
        shutil.rmtree(path, ignore_errors=True)


def _steps(folder: Path) -> list[Path]:
    """Return the checkpoints, newest last; other files are ignored."""
    names = {path: _NAME.fullmatch(path.name) for path in folder.glob("step-*") if path.is_dir()}
    order = {path: (int(name[1]), name[2] is None) for path, name in names.items() if name}
    return sorted(order, key=order.__getitem__)


def _write_contents(folder: Path, checkpoint: Checkpoint) -> None:
    manifest = {}

    def put(name: str, content: bytes) -> None:
        (folder / name).write_bytes(content)
        manifest[name] = hashlib.sha256(content).hexdigest()

    for name in TENSOR_FILES:
        put(f"{name}.safetensors", to_bytes(getattr(checkpoint, name)))
    put("position.json", json.dumps({"schema": SCHEMA, **checkpoint.position}, indent=1).encode())
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))


def _verified(path: Path) -> Callable[[str], bytes]:
    try:
        manifest = json_object(regular(path / "manifest.json", 2**20).read_bytes())
    except ValueError:
        raise ValueError("manifest.json is not what was written") from None

    def get(name: str) -> bytes:
        content = regular(path / name).read_bytes()
        if hashlib.sha256(content).hexdigest() != manifest[name]:
            raise ValueError(f"{name} does not have the SHA-256 of the manifest")
        return content

    return get


def _read(path: Path) -> Checkpoint:
    get = _verified(path)
    tensors = {name: safetensors.torch.load(get(f"{name}.safetensors")) for name in TENSOR_FILES}
    return Checkpoint(**tensors, position=_position(path, get))


def _position(path: Path, get: Callable[[str], bytes]) -> dict[str, Any]:
    """Read position.json; InputError: another version of spanlm wrote it."""
    position = json_object(get("position.json"))
    require_schema(position.pop("schema", SCHEMA), path / "position.json")
    # the first runs of schema 1 have a running CRC-32 for each row; the last one covers all rows
    if isinstance(checksums := position.pop("metrics_checksums", None), list):
        position["metrics_checksum"] = [0, *checksums][-1]
    return position


def to_bytes(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> bytes:
    content: bytes = safetensors.torch.save({k: x.detach().contiguous() for k, x in tensors.items()}, metadata)
    return content


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a safetensors file of spanlm: tensors by name, and the metadata under its key `spanlm`.

    Raises:
        FileNotFoundError: no such file.
        OSError, ValueError, SafetensorError: the file is damaged.
    """
    with safetensors.safe_open(regular(path), framework="pt") as file:
        marks = json_object((file.metadata() or {}).get("spanlm", "{}"))
        return {name: file.get_tensor(name) for name in file.keys()}, marks  # noqa: SIM118 (not a dict)
