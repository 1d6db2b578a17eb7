"""The cache folder, where what can be made again is kept; a file of it ends in the SHA-256 of all before."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from spanlm.errors import RunError
from spanlm.store.files import UNFINISHED, expanded, replacing

CACHE_VARIABLE = "SPANLM_CACHE"
STALE_SECONDS = 24 * 3600
DIGEST_BYTES = 32
FileState = tuple[Path, int, int, int]
_WHOLE: set[FileState] = set()


def cache_folder() -> Path:
    """Return $SPANLM_CACHE, else `~/.cache/spanlm`. The folder need not exist."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return expanded(chosen) if chosen else Path.home() / ".cache" / "spanlm"


def cache_key(*parts: object) -> str:
    """Return a file name for what these parts determine; any other part gives another name."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:40]


@contextmanager
def caching(path: Path) -> Iterator[BinaryIO]:
    """Like `replacing`, for a file of the cache folder, which is made if need be.

    Raises:
        RunError: The folder cannot be written; the message names the variable that chooses another.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(path.parent)
        with replacing(path) as file:
            yield file
            file.seek(0)
            file.write(hashlib.file_digest(file, "sha256").digest())  # type: ignore[arg-type]  # it can be read
    except OSError as error:
        raise RunError(
            f"cannot write the cache {path.parent} ({error.strerror or error}); "
            f"set {CACHE_VARIABLE} to a folder that can be written and has room"
        ) from error


def whole_file(path: Path) -> FileState | None:
    """Identify a file of the cache, which a process reads through once; None if it is missing, or damaged (noted)."""
    try:
        state = path.stat()
        found = (path, state.st_ino, state.st_mtime_ns, state.st_size)
        if found not in _WHOLE:
            content = np.memmap(path, np.uint8, "r")
            if hashlib.sha256(content[:-DIGEST_BYTES].data).digest() != content[-DIGEST_BYTES:].tobytes():
                raise ValueError("it does not have its SHA-256")
            _WHOLE.add(found)
        return found
    except (OSError, ValueError) as error:
        if not isinstance(error, FileNotFoundError):
            logging.getLogger(__name__).info("note: %s: damaged (%s); made again from the text", path, error)
        return None


def _remove_stale(folder: Path) -> None:
    # a build that was killed leaves its file behind; one that is a day old has no builder any more
    for left in folder.glob(f"*{UNFINISHED}"):
        try:
            if left.stat().st_mtime < time.time() - STALE_SECONDS:
                left.unlink()
        except FileNotFoundError:
            continue  # another process was faster
