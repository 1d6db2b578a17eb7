"""Atomic files, which appear whole or not at all, even if the process is killed.

Content is written and synced under a temporary name, then renamed; the folder's entry is synced, too.
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

from spanlm.errors import InputError, RunError
from spanlm.store.machine import memory

REVISIONS = "revisions"
"""Folder in a run's folder, with a folder for each kept revision of its weights."""
UNFINISHED = ".unfinished"
_REPEATED = 50
"""Letters of a file's name in its temporary name: file systems refuse names of more than 255 bytes."""


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new file that replaces `path` when the block ends without an error.

    Readers see the old or the new content, and simultaneous writers do not mix. The target of a link is replaced, not
    the link. A pipe or a device is written to, not replaced.

    Raises:
        OSError: the disk refused; names the file. The old file is intact, the new one is removed.
    """
    special = path.exists() and not path.is_file()
    try:
        with path.open("wb") if special else _replacing_file(Path(os.path.realpath(path))) as file:
            yield file
    except OSError as error:
        error.filename = error.filename or str(path)  # errors of a write have no file name
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
    """Write `content` to `path` in a run's folder like `replacing`, but refuse links, pipes and devices."""
    with _replacing_file(own(path)) as file:
        file.write(content)


@contextmanager
def written(path: Path, way_out: str, problem: str = "could not be written") -> Iterator[None]:
    """Write what belongs to `path` within the block; RunError, with the way out: the disk refused."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{path}: {problem}: {error.strerror}. {way_out}") from error


def is_pipe(path: Path) -> bool:
    """Whether a path is a pipe or a device, which is read only once, and written to instead of replaced."""
    return path.exists() and not (path.is_file() or path.is_dir())


def own(path: Path) -> Path:
    """Check a path to write to in a run's folder, which may be a stranger's; OSError: a link, a pipe or a device."""
    if path.is_symlink() or (path.exists() and not path.is_file() and not path.is_dir()):
        raise OSError(errno.ELOOP, f"{path.name} is a link, a pipe or a device; nothing is written there", str(path))
    return path


def regular(path: Path, limit: int | None = None) -> Path:
    """Check a path to read in a run's folder; OSError: no regular file, or larger than `limit` (default: memory)."""
    status = path.stat()
    limit = memory() if limit is None else limit
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "is no regular file", str(path))
    if status.st_size > limit:
        raise OSError(errno.EFBIG, f"has {status.st_size:,} bytes; must have at most {limit:,}", str(path))
    return path


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def expanded(path: str | Path) -> Path:
    """Expand ~ and ~USER in a path; as in a shell, the ~ of an unknown user stays."""
    return Path(os.path.expanduser(path))  # `Path.expanduser` raises for such a user


def make_folder(folder: Path, field: str) -> None:
    """Create a folder and its parents if missing; InputError about `field` if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(field, folder, f"cannot be made: {error.strerror}", "Choose another folder.") from None


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, renamed to `folder` when the block ends without an error, and removed otherwise.

    Raises:
        OSError: the disk refused, or `folder` exists and is not empty.
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
    """Lock a file, created if missing, until it is closed or the process ends; BlockingIOError: already locked."""
    file = path.open("a")  # not "w", which would change the file even if the lock is refused
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise
    return file


def remove_unfinished(folder: Path) -> None:
    """Remove temporary files of killed writers; only call this where no other writer can be active."""
    for left in folder.glob(f"*{UNFINISHED}"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()


_ARPA = re.compile(r"\.(arpa|lm)(\.gz|\.bz2)?$", re.I)


def is_arpa(path: Path) -> bool:
    """Whether a file's name is that of an ARPA file: FILE.arpa or FILE.lm, compressed or not."""
    return _ARPA.search(path.name) is not None


HF = "hf:"
"""Prefix of a Hugging Face model's name; its local folder follows."""


def is_hf(run: str | Path) -> bool:
    return str(run).startswith(HF)


def is_kenlm(path: Path) -> bool:
    """Whether a file's name is that of a KenLM binary: FILE.binary, FILE.bin or FILE.klm."""
    return path.suffix.lower() in (".binary", ".bin", ".klm")


def run_name(folder: Path) -> str:
    """Name a run by its folder, with the family's folder for a member (`lstm/seed-1`); or name an n-gram file.

    A revision (`RUN/revisions/1M`) is `run/1M`.
    """
    # one line of valid characters: a file's name may be any bytes
    path = Path(str(folder.resolve()).encode(errors="backslashreplace").decode().replace("\n", r"\n"))
    if is_arpa(path):
        return _ARPA.sub("", path.name)
    if is_kenlm(path):
        return path.stem
    if path.parent.name == REVISIONS:
        return f"{run_name(path.parents[1])}/{path.name}"
    return f"{path.parent.name}/{path.name}" if re.fullmatch(r"seed-\d+", path.name) else path.name
