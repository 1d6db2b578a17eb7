"""The package's code, as this process has it.

Loaded before all else of the package, and without torch, which takes seconds: what changes on the disk after that is
seen to have changed.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

PACKAGE = Path(__file__).parent


def code_digest(package: Path = PACKAGE) -> str | None:
    """Identify the code on the disk, whether it is a checkout, changed, or installed.

    None: it is in no folder (but in an archive, say), so nothing can be told.
    """
    digest, files = hashlib.sha256(), sorted(package.rglob("*.py"))
    for path in files:
        digest.update(path.relative_to(package).as_posix().encode() + b"\0")
        with suppress(OSError):  # gone since it was listed, or no file to read: its name counts
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest() if files else None


LOADED = code_digest()
"""That of this process."""


def changed_since_loaded() -> bool:
    """Say whether the disk has other code than this process, or may have: None is like nothing."""
    return LOADED is None or code_digest() != LOADED
