"""Where the texts of a corpus are: the demo, registered corpora, folders, single files, known laws; downloads."""

from __future__ import annotations

import os
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np

from spanlm.data import synthetic
from spanlm.data.config import (
    BUILT,
    CACHE_VARIABLE,
    CORPORA,
    DATA_VARIABLE,
    DEMO,
    SPLITS,
    DataConfig,
    PublishedCorpus,
    PublishedFile,
    Split,
    is_exact,
)
from spanlm.data.demo import DEMO_NOTE, demo_bytes, demo_version
from spanlm.data.synthetic import PREFIX, find_synthetic
from spanlm.data.text import Text, fingerprint, line_ends, lines_of, pieces
from spanlm.data.token_files import DIGEST_BYTES, cache_folder, cached, caching, is_whole
from spanlm.errors import InputError, RunError, named, nearest
from spanlm.store.files import expanded, replacing

_SUFFIXES = (".txt", ".txt.gz", ".txt.bz2")
# names as published: ptb.train.txt, wiki.train.tokens, train.txt.gz; hidden files are no texts
_PARTS: dict[Split, str] = {"train": "train", "valid": "valid(?:ation)?|val|dev", "test": "test"}
_NAMED = {
    split: re.compile(rf"(?!\.)(?:.*[._-])?(?:{part})(?:\.(?:txt|text|tokens))?(?:\.(?:gz|bz2))?", re.I)
    for split, part in _PARTS.items()
}
# names that several files of one split may have: childes.train, bnc_spoken.train
_SEVERAL = {split: re.compile(rf"(?!\.).+\.(?:{part})(?:\.(?:gz|bz2))?", re.I) for split, part in _PARTS.items()}
# version of the rules of `_spelled`; raise it when they change
_SPELLING = "characters 1"
# of 100 lines of a single file
_TRAIN_SHARE, _VALID_SHARE = 90, 5


@dataclass(frozen=True, slots=True)
class Source:
    """The texts of a corpus, notes for the user, and the published files that the texts must equal."""

    name: str
    texts: dict[Split, Text]
    notes: list[str] = field(default_factory=list)
    published: Mapping[Split, PublishedFile] = field(default_factory=dict)


def find_source(config: DataConfig, splits: Sequence[Split], as_text: bool = False) -> Source:
    """Find the texts of some splits of a corpus; raises what `load_corpus` raises."""
    published = CORPORA.get(config.corpus)
    if published is not None:
        if published.spelled:
            return _spelled_source(config, published, splits)
        find = _cut_source if published.sizes else _published_source
        return find(config, published, splits)
    if config.corpus == DEMO:
        return Source(DEMO, _generated(demo_version(), demo_bytes, splits), [DEMO_NOTE])
    if config.corpus.startswith(PREFIX):
        law = find_synthetic(config.corpus)
        version = f"{synthetic.VERSION} {law!r}"
        return Source(law.name, _generated(version, law.text, splits))
    path = text_path(config)
    if os.path.isdir(path):
        paths = {split: _in_folder(path, split) for split in splits}
        return Source(path.resolve().name, _texts_of(paths, as_text), _other_names(paths))
    if os.path.isfile(path):
        texts, note = split_by_lines(path, as_text)
        return Source(path.name, {split: texts[split] for split in splits}, [note])
    if os.path.exists(path):
        limit = "is no regular file, and a text is read several times: write it to a file first"
        raise InputError("data.corpus", config.corpus, limit)
    moved = f" If it was moved, name the folder that holds it now: {named('data.dir')}, or {DATA_VARIABLE}."
    is_path = "/" in config.corpus or "." in config.corpus
    hint = moved if is_path else nearest(config.corpus, [DEMO, *CORPORA, *synthetic.NAMES])
    raise InputError("data.corpus", config.corpus, f"no such corpus, folder or file.{hint}")


def text_path(config: DataConfig) -> Path:
    """Return the path of a user's own text: data.corpus, or if that does not exist, its copy in data.dir.

    data.dir itself may be the copy. Without data.dir, $SPANLM_DATA takes its place.
    """
    path, local = expanded(config.corpus), config.dir or os.environ.get(DATA_VARIABLE)
    # os.path accepts every string; Path raises for one that is too long for a name
    if not local or os.path.exists(path):
        return path
    folder, name = expanded(local), os.path.basename(os.path.abspath(path))
    moved = [at for at in (folder / name, folder) if os.path.exists(at) and at.name == name]
    return moved[0] if moved else path


def is_built(config: DataConfig) -> bool:
    """Whether `spanlm data wikipedia` built the corpus, so that a blank line starts each article."""
    return config.corpus not in (DEMO, *CORPORA) and (text_path(config) / BUILT).is_file()


def with_own_documents(config: DataConfig) -> DataConfig:
    """Replace `documents=auto` by blank-line for a corpus that `spanlm data wikipedia` built."""
    built = config.documents == "auto" and is_built(config)
    return replace(config, documents="blank-line") if built else config


def with_own_tokenizer(config: DataConfig, fields: Container[str] = ("data.corpus",)) -> DataConfig:
    """Replace a rule over words by the tokenizer that numbers on a registered corpus are published for.

    Only if the corpus is among the `fields` that are set, and the tokenizer is not.
    """
    published = CORPORA.get(config.corpus)
    named = "data.corpus" in fields and "data.tokenizer" not in fields and not is_exact(config.tokenizer)
    return replace(config, tokenizer=published.tokenizer) if named and published and published.tokenizer else config


def of_its_own_documents(config: DataConfig) -> DataConfig:
    """Replace `documents` by what the corpus itself prescribes, if it does."""
    documents = with_own_documents(replace(config, documents="auto")).effective_documents
    return config if documents == "none" else replace(config, documents=documents)


def findable(config: DataConfig) -> DataConfig:
    """Return a configuration that names the same text from every folder."""
    path, folder = text_path(config), config.dir and os.path.abspath(expanded(config.dir))
    is_file = config.corpus not in (DEMO, *CORPORA) and os.path.exists(path)
    pieces = config.pieces and os.path.abspath(expanded(config.pieces))
    return replace(config, corpus=os.path.abspath(path) if is_file else config.corpus, dir=folder, pieces=pieces)


def split_by_lines(path: Path, as_text: bool = False) -> tuple[dict[Split, Text], str]:
    """Split one text into its first 90, next 5 and last 5 % of lines, each at least one; return also a note.

    Raises:
        InputError: The file cannot be read, is empty, or has fewer than three lines.
    """
    whole = Text(path, as_text=as_text)
    ends = np.concatenate([np.empty(0, np.int64), *line_ends(whole)])
    lines = len(ends)
    if lines < len(SPLITS):
        for _ in pieces(whole):
            pass  # raises for text that is not UTF-8, where lines mean nothing
        problem = f"{lines} line(s) cannot be split into train, valid and test" if lines else "the file is empty"
        raise InputError(f"{path}: {problem}; give a folder with train.txt, valid.txt and test.txt")
    valid, test = (max(1, lines * share // 100) for share in (_VALID_SHARE, 100 - _TRAIN_SHARE - _VALID_SHARE))
    train = lines - valid - test
    cuts = ends[[train - 1, train + valid - 1]].tolist()
    note = (
        f"one file, split by lines: train 1-{train}, valid {train + 1}-{train + valid}, "
        f"test {train + valid + 1}-{lines}"
    )
    bounds = zip(SPLITS, [0, *cuts], [*cuts, None], strict=True)
    return {split: replace(whole, start=start, stop=stop) for split, start, stop in bounds}, note


def _generated(version: str, written: Callable[[Split], Iterable[bytes]], splits: Sequence[Split]) -> dict[Split, Text]:
    """Write the texts of these splits into the cache folder, unless it holds this version."""
    texts = {}
    for split in splits:
        path = cached("text", version, split)
        if not is_whole(path):
            with caching(path) as file:
                file.writelines(written(split))
        texts[split] = Text(path, stop=path.stat().st_size - DIGEST_BYTES, as_text=True)
    return texts


def _spelled_source(config: DataConfig, published: PublishedCorpus, splits: Sequence[Split]) -> Source:
    """Spell the words of a registered corpus, in the cache folder."""
    words, texts = find_source(replace(config, corpus=published.spelled), splits), dict[Split, Text]()
    for split in splits:
        version = f"{_SPELLING} {verified_fingerprint(words, split)}"
        texts |= _generated(version, lambda part: _spelled(words.texts[part]), [split])
    note = f"{config.corpus}: the characters of {published.spelled}, with _ for a space"
    return Source(config.corpus, texts, [*words.notes, note], dict.fromkeys(splits, PublishedFile(config.corpus)))


def _spelled(text: Text) -> Iterator[bytes]:
    """Write a text as Mikolov et al. (2012) did: characters with spaces between them, `_` for a space between words."""
    return (" ".join("_".join(line.split())).encode() + b"\n" for line in lines_of(pieces(text)))


def _folders(config: DataConfig) -> list[Path]:
    """Return where a registered corpus may be: in the folder of the corpora, and downloaded."""
    local = config.dir or os.environ.get(DATA_VARIABLE)
    return [*([expanded(local) / config.corpus] if local else []), cache_folder() / "corpora" / config.corpus]


def _cut_source(config: DataConfig, published: PublishedCorpus, splits: Sequence[Split]) -> Source:
    """Find a corpus whose splits are parts of one file, which its publisher packed into an archive."""
    name, file, folders = config.corpus, published.files["train"][0], _folders(config)
    target, notes = folders[-1] / file.stem, list[str]()
    places = [place for folder in folders[:-1] for place in (folder, folder.parent)] + folders[-1:]
    candidates = (place / f"{file.stem}{suffix}" for place in places for suffix in ("", ".txt", ".gz", ".zip"))
    path = next((path for path in candidates if path.is_file()), None)
    if path is None:
        if not config.download:
            raise _nowhere(name, published, splits, folders)
        path = target.with_suffix(".zip")
        download(file, path)
        notes.append(f"{published.title}: downloaded to {path.parent}")
    if path.suffix == ".zip":
        path = target if target.is_file() else _unzipped(path, file.stem, target)
    train, valid = published.sizes or (0, 0)
    bounds = zip(SPLITS, (0, train, train + valid), (train, train + valid, None), strict=True)
    texts = {split: Text(path, start, stop, as_text=True) for split, start, stop in bounds if split in splits}
    return Source(name, texts, notes, dict.fromkeys(splits, file))


def _unzipped(path: Path, member: str, target: Path) -> Path:
    """Write a file of an archive to `target` in the cache folder; InputError: the archive is damaged or lacks it."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(member) as packed:
            target.parent.mkdir(parents=True, exist_ok=True)
            with replacing(target) as file:
                shutil.copyfileobj(packed, file)
    except (KeyError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise InputError(f"{path}: no archive with a whole file {member} in it ({error}); fetch it again") from error
    except OSError as error:
        way = f"set {CACHE_VARIABLE} to a folder that can be written and has room"
        raise RunError(f"{path}: cannot be unpacked to {target} ({error.strerror}); {way}") from error
    return target


def _published_source(config: DataConfig, published: PublishedCorpus, splits: Sequence[Split]) -> Source:
    name, folders = config.corpus, _folders(config)
    target = folders[-1]
    for folder in folders:
        paths: dict[Split, list[Path]] = {}
        files: dict[Split, PublishedFile] = {}
        for split in splits:
            for file in reversed(published.files[split]):
                # a text without a SHA-256 is recognised by its exact name only
                if several := _find(folder, file.stem, split if file.sha256 else None):
                    paths[split], files[split] = several, file
        if len(paths) == len(splits):
            as_it_is = "taken as it is; the SHA-256 of the published file is not known here"
            notes = [f"{paths[split][0]}: {as_it_is}" for split, file in files.items() if file.sha256 is None]
            notes += [file.note for file in files.values() if file.note]
            return Source(name, _texts_of(paths), notes + _other_names(paths, files), files)
        if folder != target and paths:
            missing = published.named([split for split in splits if split not in paths])
            raise InputError(f"{folder}: {missing} missing; a corpus needs {', '.join(splits)}")
    if not config.download or not all(published.files[split][0].url for split in splits):
        raise _nowhere(name, published, splits, folders)
    files = {split: published.files[split][0] for split in splits}
    texts = {split: Text(target / f"{split}.txt") for split in splits}
    for split, file in files.items():
        download(file, texts[split].path)
    return Source(name, texts, [f"{published.title}: downloaded to {target}"], files)


def _nowhere(name: str, published: PublishedCorpus, splits: Sequence[Split], folders: Sequence[Path]) -> InputError:
    where = " or in ".join(map(str, folders))
    folder = f"set {named('data.dir')} or {DATA_VARIABLE} to the folder that holds {name}/"
    files = published.named(splits)
    if all(published.files[split][0].url for split in splits):
        fetch = "fetch it once with `spanlm train --data.download true` (or evaluate or attend with --download)"
        way = f"{fetch}, or {folder}{name if published.sizes else 'train.txt'}"
    else:
        way = f"it cannot be downloaded by this program: {folder} with these files (.txt or .txt.gz)"
    return InputError("data.corpus", name, f"no {files} in {where}; {way}")


def _find(folder: Path, stem: str, split: Split | None = None) -> list[Path]:
    """Return the text with this stem, else the only file whose name contains the name of the `split`.

    Or else all files whose names end in it, as in `childes.train`, in order of name.

    Raises:
        InputError: several other names contain it.
    """
    candidates = (folder / f"{stem}{suffix}" for suffix in _SUFFIXES)
    paths = [path for path in candidates if path.exists()][:1]
    if not paths and split is not None:
        paths = sorted(path for path in folder.glob("*") if _NAMED[split].fullmatch(path.name) and path.is_file())
    return paths if split is None else _joined(paths, folder, split)


def _in_folder(folder: Path, split: Split) -> list[Path]:
    """Return the files of a split, in the folder or in a folder of their own in it, as BabyLM has them."""
    if paths := _find(folder, split, split):
        return paths
    paths = sorted(path for path in folder.glob("*/*") if _SEVERAL[split].fullmatch(path.name) and path.is_file())
    homes = dict.fromkeys(path.parent.name for path in paths)
    if len(homes) > 1:
        raise InputError(f"{folder}: {', '.join(homes)}: each has a {split} part; leave one of them in this folder")
    if paths:
        return _joined(paths, folder, split)
    if any(path for pattern in ("*.arrow", "*/*.arrow") for path in folder.glob(pattern)):
        way = "write the text of each split to train.txt, valid.txt and test.txt"
        raise InputError(f"{folder}: a dataset of Hugging Face (.arrow), which is not read; {way}")
    needed = "a corpus folder needs train, valid and test, also named as in ptb.train.txt, dev.txt or childes.test"
    raise InputError(f"{folder}: no {split}.txt or {split}.txt.gz in it; {needed}")


def _joined(paths: list[Path], folder: Path, split: Split) -> list[Path]:
    """Return the files of a split; InputError: there are several, and their names do not say that they are parts."""
    names = [path.name for path in paths]
    stems = {re.sub(r"\.(gz|bz2)$", "", name, flags=re.I) for name in names if _SEVERAL[split].fullmatch(name)}
    if len(names) > 1 and len(stems) < len(names):
        raise InputError(f"{folder}: {', '.join(names)}: name the one that is the {split} part {split}.txt")
    return paths


def _texts_of(paths: Mapping[Split, Sequence[Path]], as_text: bool = False) -> dict[Split, Text]:
    return {split: Text(first, as_text=as_text, more=tuple(more)) for split, (first, *more) in paths.items()}


def _other_names(
    paths: Mapping[Split, Sequence[Path]], files: Mapping[Split, PublishedFile] | None = None
) -> list[str]:
    """Note the names of the files, if one of them is unusual."""
    stems = [files[split].stem if files else split for split in paths]
    usual = {f"{stem}{suffix}" for stem in stems for suffix in _SUFFIXES}
    names = {split: " + ".join(path.name for path in several) for split, several in paths.items()}
    return [] if usual.issuperset(names.values()) else [", ".join(f"{split} is {x}" for split, x in names.items())]


def download(file: PublishedFile, path: Path) -> None:
    """Download a published file; RunError: the download fails, the SHA-256 differs, or the disk refuses."""
    import pooch

    # pooch writes its progress to the terminal, which belongs to the command line
    pooch.get_logger().setLevel("ERROR")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        way = f"set {CACHE_VARIABLE} to a folder that can be written"
        raise RunError(f"cannot write {path.parent} ({error.strerror}); {way}") from error
    try:
        # pooch downloads under a temporary name, checks the hash, then renames
        known_hash = f"sha256:{file.zip_sha256 or file.sha256}"
        pooch.retrieve(file.url, known_hash, fname=path.name, path=path.parent)
    except (OSError, ValueError) as error:
        cause, way = " ".join(str(error).split()), f"put the file into a folder and name it by {named('data.dir')}"
        raise RunError(f"cannot download {file.url}: {cause}; try again, or {way}") from error


def verified_fingerprint(source: Source, split: Split) -> str:
    text, file = source.texts[split], source.published.get(split)
    if is_part := file is not None and bool(text.start or text.stop):
        digest = _fingerprint_of_file(text.path, os.stat(text.path).st_size, os.stat(text.path).st_mtime_ns)
    else:
        digest = fingerprint(text)
    if file is not None and file.sha256 not in (None, digest):
        way = f"; fetch it again, or give its folder as {named('data.corpus')} to use it as it is"
        raise InputError(
            f"{text.path}: not the published {source.name} {'' if is_part else f'{split} '}text (SHA-256 {digest}, "
            f"published {file.sha256}){'; fetch it again' if is_part else way}"
        )
    return fingerprint(text) if is_part else digest


@cache
def _fingerprint_of_file(path: Path, *state: int) -> str:
    """Hash a file that has several splits; `state` keys the cache, so an unchanged one is read once."""
    return fingerprint(Text(path, as_text=True))
