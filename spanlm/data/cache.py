"""The cache folder, where what can be made again is kept."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from spanlm.errors import RunError
from spanlm.files import UNFINISHED, expanded, replacing

CACHE_VARIABLE = "SPANLM_CACHE"
STALE_SECONDS = 24 * 3600


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
    except OSError as error:
        raise RunError(
            f"cannot write the cache {path.parent} ({error.strerror or error}); "
            f"set {CACHE_VARIABLE} to a folder that can be written and has room"
        ) from error


def _remove_stale(folder: Path) -> None:
    # a build that was killed leaves its file behind; one that is a day old has no builder any more
    for left in folder.glob(f"*{UNFINISHED}"):
        try:
            if left.stat().st_mtime < time.time() - STALE_SECONDS:
                left.unlink()
        except FileNotFoundError:
            continue  # another process was faster
