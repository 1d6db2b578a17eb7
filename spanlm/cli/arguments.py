"""Options that several verbs share."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from spanlm.cli.main import VerbParser
from spanlm.data.config import SPLITS
from spanlm.errors import InputError
from spanlm.files import replacing


def verb_parser(verb: str, description: str) -> VerbParser:
    """Make a verb's parser; its description keeps its line breaks."""
    return VerbParser(
        prog=f"spanlm {verb}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_run(parser: VerbParser) -> None:
    """Add the run folder and the device."""
    parser.add_argument("run", metavar="RUN", type=Path, help="the folder of a trained run")
    add_device(parser)


def add_device(parser: VerbParser) -> None:
    """Add the device."""
    parser.add_argument("--device", default="auto", help="auto (a GPU if there is one), cpu, cuda")


def add_corpus(parser: VerbParser) -> None:
    """Add what names a corpus and a part of it."""
    parser.add_argument(
        "--corpus",
        metavar="NAME|PATH",
        help="a registered corpus, a folder, or a whole text file (default: as in training)",
    )
    parser.add_argument("--split", default="test", choices=SPLITS, help="which part of a corpus (default: test)")
    parser.add_argument("--data-dir", metavar="DIR", help="where registered corpora are (default: $SPANLM_DATA)")
    parser.add_argument("--download", action="store_true", help="fetch a registered corpus that is not there")


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
