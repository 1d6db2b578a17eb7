"""Whole files or none: what is written appears under its name only when it is complete."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from spanlm.errors import InputError, RunError
from spanlm.store.files import replacing
from spanlm.store.plain import cells_line
from spanlm.store.provenance import made


def listed(suffixes: Sequence[str]) -> str:
    """Say several suffixes: `.html, .svg or .csv`."""
    *others, last = suffixes
    return f"{', '.join(others)} or {last}" if others else last


def checked_suffix(path: Path, legal: tuple[str, ...]) -> str:
    """Return the suffix of `path` in lower case, after checking that a file of that kind can be put there.

    Raises:
        InputError: If the suffix is not in `legal`, the folder does not exist, or `path` is itself a folder.
    """
    suffix = path.suffix.lower()
    if suffix not in legal:
        raise InputError(f"{path}: cannot write {suffix or 'a file without a suffix'}; end it in {listed(legal)}")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist; create it first")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file in it")
    return suffix


def csv_bytes(rows: Iterable[tuple[object, ...]], *, gaps: bool = False) -> bytes:
    """Return rows as CSV: words quoted, numbers not; with gaps, only words that must be, so that "" is nothing."""
    if gaps:
        return "".join(cells_line(row, ",") for row in rows).encode("utf-8", "replace")
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "replace")


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """Return an object as JSON, with what made it: `format`, `made` (time, command, version, commit), and `content`."""
    whole = {"format": 1, "made": made(), **content}
    return (json.dumps(whole, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def write_whole(path: Path, content: bytes) -> None:
    """Write `content` under another name, then rename it: a reader sees the old file or the new one.

    Raises:
        InputError: If the folder may not be written to.
        RunError: If writing fails, as on a full disk; nothing is left behind.
    """
    try:
        with replacing(path) as file:
            file.write(content)
    except PermissionError as error:
        raise InputError(f"{path}: not allowed to write there; choose another folder") from error
    except OSError as error:
        raise RunError(f"{path}: could not be written: {error.strerror or error}") from error
