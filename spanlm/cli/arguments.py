"""Options that several verbs share."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from spanlm.cli.main import VerbParser
from spanlm.data.config import SPLITS, Split
from spanlm.data.corpora import WHOLE, Corpus
from spanlm.errors import InputError, require
from spanlm.store.files import replacing, run_name

if TYPE_CHECKING:
    from spanlm.runs.trained_model import LoadedModel

PROCESSORS = os.cpu_count() or 1


def verb_parser(verb: str, description: str, *, more: str = "", threads: bool = True) -> VerbParser:
    """Make a verb's parser; without `threads` it computes nothing."""
    parser = VerbParser(verb, description, more=more)
    if threads:
        add_threads(parser)
    return parser


class _Threads(argparse.Action):
    """Sets the number of threads of this process as soon as it is read."""

    def __call__(self, parser: object, namespace: object, value: Any, option: object = None) -> None:
        import torch

        require(0 < value <= PROCESSORS, "--threads", value, f"1 to {PROCESSORS}, the processors of this machine")
        torch.set_num_threads(value)


def add_threads(parser: VerbParser) -> None:
    """Add the number of threads."""
    parser.add_argument(
        "--threads",
        type=int,
        metavar="N",
        action=_Threads,
        help="threads of the processor to compute with (default: all cores; 1 is best for small models beside other "
        "work)",
    )


def add_device(parser: VerbParser) -> None:
    """Add the device."""
    parser.add_argument("--device", default="auto", help="auto (a GPU if there is one), cpu, cuda")


def add_as_text(parser: VerbParser) -> None:
    """Add what insists that a file is text."""
    parser.add_argument(
        "--as-text", action="store_true", rare=True, help="read as text what is known to be another format"
    )


def add_corpus(parser: VerbParser) -> None:
    """Add what names a corpus and a part of it."""
    parser.add_argument(
        "--corpus",
        metavar="NAME|PATH",
        help="a registered corpus, a folder, or a whole text file (default: as in training)",
    )
    parser.add_argument(
        "--split", choices=SPLITS, help="which part of a corpus (default: test); a text file alone is taken whole"
    )
    parser.add_argument("--data-dir", metavar="DIR", help="where registered corpora are (default: $SPANLM_DATA)")
    parser.add_argument(
        "--download", action="store_true", rare=True, help="fetch a registered corpus that is not there"
    )
    add_as_text(parser)


def corpus_of(model: LoadedModel, options: argparse.Namespace) -> tuple[Corpus, str]:
    """Load the corpus that `add_corpus` names, and say which part of it is meant.

    Raises:
        InputError: there is no such corpus or part, or a part is named of a file that is taken whole.
    """
    split: Split = options.split or "test"
    how = {"data_dir": options.data_dir, "download": options.download, "as_text": options.as_text}
    corpus = model.corpus(options.corpus, split, **how)
    if WHOLE not in corpus.splits:
        return corpus, split
    if options.split is not None:
        raise InputError(
            f"--split={options.split}: {options.corpus} is one file, which is taken whole. Leave --split out, or name "
            "a folder with train.txt, valid.txt and test.txt."
        )
    return corpus, WHOLE


def refuse_overwriting(path: Path | None, read: Iterable[Path]) -> None:
    """Refuse to write over a file that is read.

    Raises:
        InputError: it would be.
    """
    for source in read:
        if path is not None and path.exists() and source.exists() and path.samefile(source):
            raise InputError(f"--out={path}: is the file that is read, which would be lost. Choose another.")


@contextmanager
def output(path: Path | None) -> Iterator[TextIO]:
    """Open `path` for writing as it will be when complete, or standard output for None."""
    if path is None:
        yield sys.stdout
        return
    if path.is_dir():
        raise InputError(f"--out={path}: is a folder. Name a file in it.")
    if not path.parent.is_dir():
        raise InputError(f"--out={path}: there is no folder {path.parent}. Make it first.")
    with replacing(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        yield text
        text.flush()
        text.detach()  # the bytes below it are for `replacing` to sync and close


def run_names(folders: Sequence[Path]) -> list[str]:
    """Name runs by the end of their paths that tells them apart: kv/seed-1 and kvp/seed-1 are kv and kvp.

    Raises:
        InputError: one run twice.
    """
    paths = [folder.resolve() for folder in folders]
    twice = [folder for folder, path in zip(folders, paths, strict=True) if paths.count(path) > 1]
    if twice:
        raise InputError(f"{twice[0]}: is named twice; name each run once")
    if len(folders) == 1:
        return [run_name(folders[0])]
    while len({path.name for path in paths}) == 1:
        paths = [path.parent for path in paths]
    longest = max(len(path.parts) for path in paths)
    return next(
        names
        for names in (["/".join(path.parts[-count:]) for path in paths] for count in range(1, longest + 1))
        if len(set(names)) == len(names)
    )
