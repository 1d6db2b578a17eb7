"""Files that appear whole or not at all, and the folder where what can be made again is kept."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from spanlm.errors import RunError

CACHE_VARIABLE = "SPANLM_CACHE"
STALE_SECONDS = 24 * 3600
_UNFINISHED = ".unfinished"


def cache_folder() -> Path:
    """Return $SPANLM_CACHE, else `~/.cache/spanlm`. The folder need not exist."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "spanlm"


def cache_key(*parts: object) -> str:
    """Return a file name for what these parts determine; any other part gives another name."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:40]


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that takes the place of `path` when the block ends without an error.

    The content goes to a file of another name in the same folder, is forced to the disk, and is then renamed,
    so a reader sees the old content or the new one, and writers at the same time do not mix.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}{_UNFINISHED}")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    os.replace(temporary, path)


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
    for left in folder.glob(f"*{_UNFINISHED}"):
        try:
            if left.stat().st_mtime < time.time() - STALE_SECONDS:
                left.unlink()
        except FileNotFoundError:
            continue  # another process was faster
