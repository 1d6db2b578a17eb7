"""The words that `spanlm attend` is to read: a text, a file, or a stretch of a corpus."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

from spanlm.analysis.attend import Excerpt, excerpt
from spanlm.cli.arguments import corpus_of
from spanlm.cli.terminal import note
from spanlm.data.text import Text
from spanlm.data.vocabulary import EOS
from spanlm.errors import InputError
from spanlm.evaluation.words import Piece, words_of
from spanlm.runs.texts import text_to_attend
from spanlm.runs.trained_model import TrainedModel

MOST_WORDS = 20_000
"""Of one text: a page of more is no longer pleasant, and its weights no longer small."""
WORDS = 60
"""Of a stretch of a corpus, unless --words says another number."""


def targets_of(model: TrainedModel, options: argparse.Namespace) -> Excerpt:
    """Return the words to read and where contexts begin: at lines, or of a corpus as in training, unless --state is."""
    if options.state is not None:
        model.texts.refuse_context(options.state)
    if options.text is None and options.file is None:
        corpus, split = corpus_of(model, options)
        length = options.words or WORDS
        found = excerpt(corpus, split, document=options.document, start=options.start, length=length)
        lines = [0, *(at for at, word in enumerate(found.words[:-1], 1) if word == EOS)]
        starts = {"carry": [0], "document": found.starts, "line": lines}
        state = options.state or ("line" if model.texts.line_by_line else "carry")
        return replace(found, source=f": {found.source}", starts=starts[state])
    pieces = _read(model, options) if options.text is None else model.texts.pieces(options.text.split("\n"))
    words, starts_of_lines = text_to_attend(pieces, options.state or "line")
    for line in model.texts.unk_notes() if any(word not in model.vocabulary for word in words) else []:
        note(f"note: {line}")
    return Excerpt(words, "", 1, starts_of_lines)


def _read(model: TrainedModel, options: argparse.Namespace) -> Iterator[Piece]:
    held = 0
    for piece in model.texts.pieces(Text(options.file, as_text=options.as_text)):
        held += len(piece.words) + piece.closes
        if held > MOST_WORDS:
            raise InputError(
                f"--file={options.file}: more than {MOST_WORDS:,} words and line ends; attend to a part of it"
            )
        yield piece


def sentence_of(model: TrainedModel, text: str) -> list[str]:
    """Return the words of one sentence.

    Raises:
        InputError: the model was trained on text cut into sentences, and this is cut into several.
    """
    words = words_of(model.texts.pieces([text]))[:-1]
    if EOS in words:
        raise InputError(
            f"--sentence={text!r}: is {1 + words.count(EOS)} sentences to a model trained on text cut into sentences "
            "(data.lines=sentences); give each with its own --sentence"
        )
    return words
