"""The words that `spanlm attend` is to read: a text, a file, or a stretch of a corpus."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from spanlm.analysis.excerpt import excerpt
from spanlm.cli.arguments import corpus_of
from spanlm.context import refuse_several_lines, text_to_attend
from spanlm.data.text import Text
from spanlm.data.vocabulary import EOS
from spanlm.errors import InputError
from spanlm.evaluation.text_pieces import words_of
from spanlm.evaluation.words import Piece
from spanlm.trained import TrainedModel

MOST_WORDS = 20_000
"""Of one text: a page of more is no longer pleasant, and its weights no longer small."""
WORDS = 60
"""Of a stretch of a corpus, unless --words says another number."""


def targets_of(model: TrainedModel, options: argparse.Namespace) -> tuple[list[str], str, int]:
    """Return the words to read, line ends among them, where they stand, and the number of the first of them there."""
    if options.text is None and options.file is None:
        corpus, split = corpus_of(model, options)
        length = options.words or WORDS
        found = excerpt(corpus, split, document=options.document, start=options.start, length=length)
        refuse_several_lines(model.config, found.words)
        return found.words, f": {found.source}", found.first
    pieces = _read(model, options.file) if options.text is None else model.pieces(options.text.split("\n"))
    return text_to_attend(model.config, pieces), "", 1


def _read(model: TrainedModel, file: Path) -> Iterator[Piece]:
    held = 0
    for piece in model.pieces(Text(file)):
        held += len(piece.words) + piece.closes
        if held > MOST_WORDS:
            raise InputError(f"--file={file}: more than {MOST_WORDS:,} words and line ends; attend to a part of it")
        yield piece


def sentence_of(model: TrainedModel, text: str) -> list[str]:
    """Return the words of one sentence.

    Raises:
        InputError: the model was trained on text cut into sentences, and this is cut into several.
    """
    words = words_of(model.pieces([text]))[:-1]
    if EOS in words:
        raise InputError(
            f"--sentence={text!r}: is {1 + words.count(EOS)} sentences to a model trained on text cut into sentences "
            "(data.lines=sentences); give each with its own --sentence"
        )
    return words
