"""Fetching a published corpus: only when asked, checked against its SHA-256, whole or not at all."""

from __future__ import annotations

from pathlib import Path

from spanlm.data.cache import CACHE_VARIABLE, cache_folder
from spanlm.data.registry import PublishedFile
from spanlm.errors import RunError


def downloaded_folder(name: str) -> Path:
    """Return the folder of the cache where the files of the corpus `name` go."""
    return cache_folder() / "corpora" / name


def download(file: PublishedFile, path: Path) -> None:
    """Fetch a published file to `path`.

    Raises:
        RunError: It cannot be fetched, is not the published file, or cannot be written.
    """
    import pooch

    # pooch writes its progress to the terminal; here only the program does
    pooch.get_logger().setLevel("ERROR")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"cannot write {path.parent} ({error.strerror}); set {CACHE_VARIABLE} to a folder that can be written"
        ) from error
    try:
        # pooch downloads to another name in the same folder, checks the hash and then renames
        pooch.retrieve(file.url, known_hash=f"sha256:{file.sha256}", fname=path.name, path=path.parent)
    except (OSError, ValueError) as error:
        cause = " ".join(str(error).split())
        raise RunError(
            f"cannot download {file.url}: {cause}; try again, or put the file into a folder and name it with --data.dir"
        ) from error
