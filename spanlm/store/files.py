"""Atomic files: they appear whole or not at all, also after a kill at any moment.

Content is written and synced under a temporary name, which is then renamed; the folder's entry is synced, too.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from spanlm.errors import InputError
from spanlm.store.machine import memory

UNFINISHED = ".unfinished"
_REPEATED = 50
"""Letters of a file's name that its temporary name repeats: file systems refuse names of more than 255 bytes."""


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that takes the place of `path` when the block ends without an error.

    A reader sees the old content or the new one, and writers at the same time do not mix. What a link names is
    replaced, not the link. A pipe or a device is written to, not renamed over.

    Raises:
        OSError: the disk refused, and names the file; the old one is intact and nothing is left of the new one.
    """
    special = path.exists() and not path.is_file()
    try:
        with path.open("wb") if special else _replacing_file(Path(os.path.realpath(path))) as file:
            yield file
    except OSError as error:
        error.filename = error.filename or str(path)  # a write knows of none
        raise


@contextmanager
def _replacing_file(path: Path) -> Iterator[BinaryIO]:
    temporary = path.with_name(f"{path.name[:_REPEATED]}.{secrets.token_hex(8)}{UNFINISHED}")
    try:
        with temporary.open("x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def replace_file(path: Path, content: bytes) -> None:
    """Put `content` at `path` in a run's folder: as `replacing` does, but through no link and into no pipe."""
    with _replacing_file(own(path)) as file:
        file.write(content)


def own(path: Path) -> Path:
    """Return a path to write to in a run's folder, which may come from anybody; OSError: a link, a pipe, a device."""
    if path.is_symlink() or (path.exists() and not path.is_file() and not path.is_dir()):
        raise OSError(errno.ELOOP, f"{path.name} is a link, a pipe or a device; nothing is written there", str(path))
    return path


def regular(path: Path, limit: int | None = None) -> Path:
    """Return a path to read in a run's folder; OSError: no file, or of more bytes than `limit` or else the memory."""
    status = path.stat()
    limit = memory() if limit is None else limit
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "is no regular file", str(path))
    if status.st_size > limit:
        raise OSError(errno.EFBIG, f"has {status.st_size:,} bytes; must have at most {limit:,}", str(path))
    return path


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the folder's names."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def expanded(path: str | Path) -> Path:
    """Expand ~ and ~USER in a path; as in a shell, the ~ of an unknown user stays as it is."""
    return Path(os.path.expanduser(path))  # `Path.expanduser` raises for such a user


def make_folder(folder: Path, option: str) -> None:
    """Make a folder and its parents if need be; raise InputError, which names the option, where that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(option, folder, f"cannot be made: {error.strerror}", "Choose another folder.") from None


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Give a folder to fill, which takes the name `folder` when the block ends without an error; else nothing is left.

    Raises:
        OSError: the disk refused, or `folder` is there already and holds something.
    """
    folder = Path(os.path.realpath(folder))
    unfinished = folder.with_name(f".{folder.name[:_REPEATED]}.{secrets.token_hex(8)}{UNFINISHED}")
    try:
        unfinished.mkdir(parents=True)
        yield unfinished
        for path, _, names in os.walk(unfinished):
            for name in names:
                with Path(path, name).open("rb") as file:
                    os.fsync(file.fileno())
            sync_folder(Path(path))
        os.replace(unfinished, folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def hold(path: Path) -> TextIO:
    """Lock a file, made if need be, until it is closed or the process ends; BlockingIOError: another one holds it."""
    file = path.open("a")  # not "w": who is refused leaves the file as it was, its time too
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise
    return file


def remove_unfinished(folder: Path) -> None:
    """Remove what writers that were killed left behind; only where no other writer can be at work."""
    for left in folder.glob(f"*{UNFINISHED}"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()


_ARPA = re.compile(r"\.(arpa|lm)(\.gz|\.bz2)?$", re.I)


def is_arpa(path: Path) -> bool:
    """Whether a path is that of an ARPA file by its name: FILE.arpa or FILE.lm, compressed or not."""
    return _ARPA.search(path.name) is not None


HF = "hf:"
"""What the name of a model of Hugging Face begins with; its local folder follows."""


def is_hf(run: str | Path) -> bool:
    return str(run).startswith(HF)


def is_kenlm(path: Path) -> bool:
    """Whether a path is that of a file in KenLM's binary format by its name, FILE.binary, FILE.bin or FILE.klm."""
    return path.suffix.lower() in (".binary", ".bin", ".klm")


def run_name(folder: Path) -> str:
    """Name a run by its folder, a member of a family (`lstm/seed-1`) by that of the family, too; or an n-gram file."""
    # of one line, and of characters: a name may be any bytes
    path = Path(str(folder.resolve()).encode(errors="backslashreplace").decode().replace("\n", r"\n"))
    if is_arpa(path):
        return _ARPA.sub("", path.name)
    if is_kenlm(path):
        return path.stem
    return f"{path.parent.name}/{path.name}" if re.fullmatch(r"seed-\d+", path.name) else path.name
