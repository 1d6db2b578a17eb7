"""Where the texts of a corpus are: beside a name, in a folder, or in one file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from spanlm.data.config import DEMO, SPLITS, DataConfig, Split
from spanlm.data.download import download, downloaded_folder
from spanlm.data.registry import CORPORA, PublishedCorpus
from spanlm.data.text import Text, chunks, pieces
from spanlm.errors import InputError, nearest
from spanlm.store.files import expanded

DATA_VARIABLE = "SPANLM_DATA"
_SUFFIXES = (".txt", ".txt.gz")
# of 100 lines of a single file
_TRAIN_SHARE, _VALID_SHARE = 90, 5


@dataclass(frozen=True, slots=True)
class Source:
    """The texts of a corpus.

    Attributes:
        name: The corpus, as the user may read it.
        texts: The text of each split.
        notes: What was decided for the user.
        published: What the files must be, for a published corpus.
    """

    name: str
    texts: dict[Split, Text]
    notes: list[str] = field(default_factory=list)
    published: PublishedCorpus | None = None


def find_source(config: DataConfig, splits: Sequence[Split], as_text: bool = False) -> Source:
    """Find the texts of a corpus other than the demo.

    Args:
        config: Names the corpus.
        splits: The splits that are needed.
        as_text: As in `Text`, of a user's own files.

    Raises:
        InputError: There is no such corpus, or a file of it is missing; the message says where it was looked
            for and what to do.
        RunError: A download failed.
    """
    published = CORPORA.get(config.corpus)
    if published is not None:
        return _published_source(config, published, splits)
    path = text_path(config)
    if os.path.isdir(path):
        return Source(path.resolve().name, {split: Text(_in_folder(path, split), as_text=as_text) for split in splits})
    if os.path.isfile(path):
        texts, note = split_by_lines(path, as_text)
        return Source(path.name, {split: texts[split] for split in splits}, [note])
    moved = " If it was moved, name its folder: --data.dir (--data-dir)."
    is_path = "/" in config.corpus or "." in config.corpus
    hint = moved if is_path else nearest(config.corpus, [DEMO, *CORPORA])
    raise InputError(f"data.corpus={config.corpus}: no such corpus, folder or file.{hint}")


def text_path(config: DataConfig) -> Path:
    """Return where a user's own text is: where data.corpus says, or in data.dir if it is there alone."""
    path = expanded(config.corpus)
    moved = expanded(config.dir or "") / os.path.basename(os.path.abspath(path))
    # os.path takes every string; Path raises for one that is too long to be a name
    return moved if config.dir and not os.path.exists(path) and os.path.exists(moved) else path


def findable(config: DataConfig) -> DataConfig:
    """Return a configuration that names the same text from every folder."""
    path, folder = text_path(config), config.dir and os.path.abspath(expanded(config.dir))
    own = config.corpus not in (DEMO, *CORPORA) and os.path.exists(path)
    return replace(config, corpus=os.path.abspath(path), dir=folder) if own else config


def split_by_lines(path: Path, as_text: bool = False) -> tuple[dict[Split, Text], str]:
    """Split one text into the first 90, the next 5 and the last 5 of every 100 lines.

    Returns:
        The splits, each of at least one line, and a note that says what was done.

    Raises:
        InputError: The file cannot be read, is empty, or has fewer than three lines.
    """
    whole = Text(path, as_text=as_text)
    lines, size = _count_lines(whole)
    if lines < len(SPLITS):
        for _ in pieces(whole):
            pass  # of what is not UTF-8 the lines mean nothing
        what = "the file is empty" if size == 0 else f"{lines} line(s) cannot be split into train, valid and test"
        raise InputError(f"{path}: {what}; give a folder with train.txt, valid.txt and test.txt")
    test = max(1, lines * (100 - _TRAIN_SHARE - _VALID_SHARE) // 100)
    valid = max(1, lines * _VALID_SHARE // 100)
    train = lines - valid - test
    first, second = _line_offsets(whole, train, train + valid)
    note = (
        f"one file, split by lines: train 1-{train}, valid {train + 1}-{train + valid}, "
        f"test {train + valid + 1}-{lines}"
    )
    return {
        "train": replace(whole, stop=first),
        "valid": replace(whole, start=first, stop=second),
        "test": replace(whole, start=second),
    }, note


def _published_source(config: DataConfig, published: PublishedCorpus, splits: Sequence[Split]) -> Source:
    """Find a published corpus: a local copy, what was downloaded before, or a download."""
    name, target = config.corpus, downloaded_folder(config.corpus)
    local = config.dir or os.environ.get(DATA_VARIABLE)
    copy = expanded(local) / name if local else None
    folders = [folder for folder in (copy, target) if folder is not None]
    for folder in folders:
        for version in filter(None, (published, published.rebuilt)):
            found = {split: path for split in splits if (path := _find(folder, _stem(version, split))) is not None}
            if len(found) == len(splits):
                notes = _notes(version, found, rebuilt=version is not published)
                return Source(name, {split: Text(found[split]) for split in splits}, notes, version)
        missing = [split for split in splits if not any(_find(folder, stem) for stem in _stems(published, split))]
        if folder == copy and len(missing) < len(splits):
            raise InputError(f"{folder}: {_files(published, missing)} missing; a corpus needs {', '.join(splits)}")
    if not config.download or not all(published.files[split].url for split in splits):
        raise _nowhere(name, published, splits, folders)
    for split in splits:
        download(published.files[split], target / f"{split}.txt")
    texts = {split: Text(target / f"{split}.txt") for split in splits}
    return Source(name, texts, [f"{published.title}: downloaded to {target}"], published)


def _stem(published: PublishedCorpus, split: Split) -> str:
    return published.files[split].stem or split


def _stems(published: PublishedCorpus, split: Split) -> list[str]:
    """Return the names a split may have, the published file's first."""
    versions = filter(None, (published, published.rebuilt))
    return list(dict.fromkeys(_stem(version, split) for version in versions))


def _files(published: PublishedCorpus, splits: Sequence[Split]) -> str:
    return ", ".join(" or ".join(f"{stem}.txt" for stem in _stems(published, split)) for split in splits)


def _notes(version: PublishedCorpus, found: dict[Split, Path], rebuilt: bool) -> list[str]:
    """Say which of the files are not those that were published, or may be others."""
    if rebuilt:
        return [version.title]
    unknown = [path for split, path in found.items() if version.files[split].sha256 is None]
    return [f"{path}: taken as it is; the SHA-256 of the published file is not known here" for path in unknown]


def _nowhere(name: str, published: PublishedCorpus, splits: Sequence[Split], folders: Sequence[Path]) -> InputError:
    """Return the error for a published corpus that is not on this machine, with the ways to get it."""
    where = " or in ".join(str(folder) for folder in folders)
    folder = f"set --data.dir (--data-dir) or {DATA_VARIABLE} to the folder that holds {name}/"
    files = _files(published, splits)
    if all(published.files[split].url for split in splits):
        fetch = "fetch it once with `spanlm train --data.download true` (or evaluate or attend with --download)"
        way = f"{fetch}, or {folder}train.txt"
    else:
        way = f"it cannot be downloaded by this program: {folder} with these files (.txt or .txt.gz)"
    return InputError(f"data.corpus={name}: no {files} in {where}; {way}")


def _find(folder: Path, stem: str) -> Path | None:
    candidates = (folder / f"{stem}{suffix}" for suffix in _SUFFIXES)
    return next((path for path in candidates if path.exists()), None)


def _in_folder(folder: Path, split: Split) -> Path:
    path = _find(folder, split)
    if path is None:
        raise InputError(
            f"{folder}: no {split}.txt or {split}.txt.gz in it; a corpus folder needs train, valid and test"
        )
    return path


def _count_lines(text: Text) -> tuple[int, int]:
    """Return the lines of a text, an unfinished last one included, and its bytes."""
    lines, size, last = 0, 0, b"\n"
    for chunk in chunks(text):
        lines, size, last = lines + chunk.count(b"\n"), size + len(chunk), chunk[-1:]
    return lines + (last != b"\n"), size


def _line_offsets(text: Text, *ends: int) -> list[int]:
    """Return the byte offset after each of these numbers of lines, given in increasing order."""
    offsets: list[int] = []
    lines, offset = 0, 0
    for chunk in chunks(text):
        inside = np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n"))
        offsets += [offset + 1 + int(inside[end - lines - 1]) for end in ends if lines < end <= lines + len(inside)]
        lines, offset = lines + len(inside), offset + len(chunk)
    return offsets
