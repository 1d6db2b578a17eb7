"""The hidden folder beside a corpus, in which it is made: pieces that outlive a kill, and all that is not whole."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spanlm.data.wikipedia.pieces import Piece
from spanlm.errors import InputError, RunError
from spanlm.store.files import UNFINISHED, expanded, hold, replace_file, sync_folder

SUMMARY = "corpus.json"
_LOCK = ".lock"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Workplace:
    """The folder, held by this process.

    Args:
        out: The corpus to be.
        folder: Where it is made.

    Attributes:
        corpus: The folder that becomes the corpus.
    """

    def __init__(self, out: Path, folder: Path) -> None:
        self._out = out
        self._folder = folder
        self._pieces = folder / "pieces"
        self._pieces.mkdir(exist_ok=True)
        self.corpus = folder / "corpus"
        shutil.rmtree(self.corpus, ignore_errors=True)

    @property
    def has_pieces(self) -> bool:
        """Whether there is something that another start could use."""
        return self._pieces.is_dir() and any(self._pieces.iterdir())

    @property
    def kept(self) -> str:
        """Where what is done is kept, for the reader of an error."""
        return f"what is done is kept in {self._folder}"

    def find(self, key: str) -> Piece | None:
        """Return the piece of this key, if it was made."""
        try:
            return Piece.decode((self._pieces / key).read_bytes())
        except FileNotFoundError:
            return None

    def put(self, key: str, piece: Piece) -> None:
        """Keep a piece, whole or not at all."""
        if self.find(key) is None:
            replace_file(self._pieces / key, piece.encode())

    def get(self, key: str) -> Piece:
        """Return a piece that was kept.

        Raises:
            RunError: It is not there any more.
        """
        piece = self.find(key)
        if piece is None:
            raise RunError(f"{self._pieces / key}: was changed by another process; start again")
        return piece

    def finish(self) -> None:
        """Put the corpus, which is whole now, in its place."""
        sync_folder(self.corpus)
        os.rename(self.corpus, self._out)
        sync_folder(self._out.parent)
        self.discard()

    def discard(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self._folder)


@contextmanager
def workplace(out: Path) -> Iterator[Workplace]:
    """Hold the workplace of the corpus `out`; it stays behind, with its pieces, if the block ends with an error.

    Raises:
        InputError: `out` holds something, or cannot be made.
        RunError: Another process is at work there, or the disk is full.
    """
    out = Path(os.path.abspath(expanded(out)))
    _check_free(out)
    folder = out.parent / f".{out.name}{UNFINISHED}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = hold(folder / _LOCK)
    except BlockingIOError:
        raise RunError(f"--out={out}: another process is making it; wait for it, or choose another folder") from None
    except OSError as error:
        raise InputError(f"--out={out}: cannot be made ({error.strerror}); choose another folder") from error
    with lock:
        place = Workplace(out, folder)
        try:
            yield place
        except InputError as error:
            raise InputError(f"{error}; {place.kept}") if place.has_pieces else error from None
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise RunError(
                f"--out={out}: {error.strerror}; make room and give the same command again: {place.kept}"
            ) from error
        finally:
            if not place.has_pieces:
                shutil.rmtree(folder, ignore_errors=True)


def _check_free(out: Path) -> None:
    if out.is_dir() and (entries := sorted(entry.name for entry in out.iterdir())):
        what = "a corpus already" if SUMMARY in entries else f"other files already ({', '.join(entries[:3])}, …)"
        raise InputError(f"--out={out}: holds {what}; choose another folder, or delete it first")
    if (out.exists() or out.is_symlink()) and not out.is_dir():
        raise InputError(f"--out={out}: is a file; choose another name for the folder")
