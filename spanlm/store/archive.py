"""A folder as bytes, and back: how a run comes home from a machine that shares no disk with this one."""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from spanlm.errors import RunError
from spanlm.store.files import new_folder

_NAME = re.compile(r"\w[\w.=,+-]*(/\w[\w.=,+-]*){0,7}", re.ASCII)


def packed(folder: Path) -> bytes:
    """Return the files of a folder and its folders as a zip archive, but for hidden ones and links."""
    content = BytesIO()
    # weights hardly get smaller; a file without a date, as some disks have, is none of 1980
    with ZipFile(content, "w", ZIP_STORED, strict_timestamps=False) as archive:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if path.is_file() and not path.is_symlink() and not any(part.startswith(".") for part in name.parts):
                archive.write(path, name.as_posix())
    return content.getvalue()


def unpack(content: bytes, folder: Path) -> None:
    """Make a folder of an archive of `packed`; it appears when it is whole.

    Raises:
        RunError: it is no such archive: a name leads elsewhere or comes twice, or it holds more than its own bytes; or
            the folder is there already, or cannot be written. Nothing is left then.
    """
    try:
        with ZipFile(BytesIO(content)) as archive, new_folder(folder) as unfinished:
            _check(archive.infolist(), len(content), folder)
            archive.extractall(unfinished)
    except (BadZipFile, EOFError, RuntimeError, ValueError) as error:  # an encrypted entry, a name that is no UTF-8
        raise RunError(f"{folder}: what came back is no archive of a run: {error}") from None
    except OSError as error:
        raise RunError(f"{folder}: the run that came back cannot be written: {error.strerror}") from error


def _check(entries: list[ZipInfo], size: int, folder: Path) -> None:
    names = [entry.filename for entry in entries]
    wrong = [name for name in names if not _NAME.fullmatch(name) or names.count(name) > 1]
    wrong += [entry.filename for entry in entries if entry.compress_type != ZIP_STORED]
    if wrong or sum(entry.file_size for entry in entries) > size:
        what = f"{wrong[0]!r} is no name of a run's file" if wrong else "it holds more than its own bytes"
        raise RunError(f"{folder}: what came back is not used: {what}")
