"""The package's code, as this process has it."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

PACKAGE = Path(__file__).parent


def code_digest(package: Path = PACKAGE) -> str:
    """Identify the code on the disk, whether it is a checkout, changed, or installed."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        with suppress(OSError):  # gone since it was listed
            content = path.read_bytes()
            digest.update(path.relative_to(package).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()


LOADED = code_digest()
"""That of this process: worked out before what takes long is loaded, since files may change while it runs."""


def changed_since_loaded() -> bool:
    """Say whether the disk has other code than this process."""
    return code_digest() != LOADED
