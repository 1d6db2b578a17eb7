"""Writing that survives a kill at any moment: temporary name, fsync, rename, fsync of the folder."""

from __future__ import annotations

import os
from pathlib import Path


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the folder's names."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Put `content` at `path`: a reader, or the next run after a crash, sees the old file or the new one.

    Raises:
        OSError: the disk refused; the old file is intact and no temporary file is left.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        write_synced(temporary, content)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
