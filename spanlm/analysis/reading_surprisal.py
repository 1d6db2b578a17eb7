"""Surprisal of the words of a table of reading times, with all of the context or the last words of it alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, pairwise, takewhile
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from spanlm.analysis.reading_table import ReadingTable
from spanlm.data.vocabulary import EOS
from spanlm.errors import InputError
from spanlm.models.interfaces import NextWordModel
from spanlm.runs.model import Model
from spanlm.scoring.protocol import STANDARD
from spanlm.scoring.resampling import Array
from spanlm.scoring.stream import log_p, read, side_by_side

ReadingContext = Literal["document", "line"]

_RUNS, _STEPS = 512, 128
"""Truncated contexts read side by side, and steps at a time."""


@dataclass(frozen=True, eq=False)
class Surprisal:
    """Surprisal of M words in bits, NaN where nothing was predicted, and which of them are outside the vocabulary."""

    bits: Array  # (M,)
    unknown: NDArray[np.bool_]  # (M,)


def context_of(model: Model) -> ReadingContext:
    """Return a word's context as in training: its line, of a model that reads lines alone, or else its item."""
    return "line" if model.texts.line_by_line or not model.texts.predict_first else "document"


def surprisals(model: Model, table: ReadingTable, context: ReadingContext, window: int | None = None) -> Surprisal:
    """Score each word once, after all of its context or the last `window` tokens; a cell of words has their sum.

    A window is read from an empty state. Line ends are tokens, too, and <eos> opens a context, as in
    `spanlm.analysis.context`.

    Raises:
        InputError: see `Model.score_items`; or a window for a model that does not read the words of a vocabulary.
    """
    # contexts of one line each are read side by side; to a model of sentences `line` would be each sentence
    alone = len(table.lines) == len({word.context for word in table.words})
    context = "line" if alone and model.texts.data.lines == "as-written" else context
    if window is not None:
        return _truncated(model, table, context, window)
    bits, unknown = list[float](), list[bool]()
    for lines in _contexts(table, context):
        for line, scores in zip(lines, model.score_items(map(" ".join, lines), state=context), strict=True):
            left = iter(scores)
            for words in (list(islice(left, size)) for size in model.texts.words_in(line)):
                bits.append(math.fsum(word.surprisal for word in words) if words else math.nan)
                unknown.append(any(word.oov for word in words))
    return Surprisal(np.array(bits), np.array(unknown))


def _contexts(table: ReadingTable, context: ReadingContext) -> Iterator[list[list[str]]]:
    """Yield the lines of each context, as cells; all lines at once where no context crosses them."""
    lines = ([table.words[n] for n in line] for line in table.lines)
    for _, group in groupby(lines, key=lambda line: 0 if context == "line" else line[0].context):
        yield [[word.text for word in line] for line in group]


def _truncated(model: Model, table: ReadingTable, context: ReadingContext, window: int) -> Surprisal:
    network, eos = model.predictor("windows"), model.vocabulary.eos_id
    if model.texts.tokenizer.exact:
        why = f"{model.folder} reads {model.texts.data.effective_tokenizer}, and a window is cut between words"
        raise InputError("windows", window, why, "Leave it out")
    opening = [eos] * model.texts.predict_first
    runs, counts, unknown = list[list[int]](), list[int](), list[bool]()
    for lines in _contexts(table, context):
        ids = list(opening)
        for line in lines:
            for tokens, ends in _tokens(model, line):
                unknown.append(any(token not in model.vocabulary for token in tokens))
                # a first word that no <eos> opens is only read
                counts.append(len(tokens) if ids else 0)
                cell = model.vocabulary.encode(tokens)
                runs.append([*ids[-window:], *cell])
                ids += cell + [eos] * ends
                if ends and context == "line":  # or a sentence, if the model reads sentences
                    ids = list(opening)
    values = _read_runs(network, runs)
    bits = [-float(log_p[-count:].sum()) if count else math.nan for log_p, count in zip(values, counts, strict=True)]
    return Surprisal(np.array(bits), np.array(unknown))


def _tokens(model: Model, line: Sequence[str]) -> Iterator[tuple[list[str], int]]:
    """Yield the tokens of each cell, and how many <eos> follow it."""
    text = " ".join(line)
    read = [token for piece in model.texts.pieces([text]) for token in [*piece.words, *[EOS] * piece.closes]]
    words, at = iter(model.texts.cut(model.texts.unmarked_text(text))), 0
    for size in model.texts.words_in(line):
        start, at = at, at + sum(map(len, islice(words, size)))
        tokens, ends = read[start:at], len(list(takewhile(EOS.__eq__, read[at:])))
        yield tokens, ends
        at += ends


def _read_runs(network: NextWordModel, runs: Sequence[list[int]]) -> Iterator[Array]:
    """Yield log2 p of all tokens of each run but its first, in their order; those of like length are read together."""
    order = sorted((n for n, run in enumerate(runs) if len(run) > 1), key=lambda n: len(runs[n]))
    starts = np.cumsum([0, *(max(len(run) - 1, 0) for run in runs)])
    values = np.empty(int(starts[-1]))
    for begin in range(0, len(order), _RUNS):
        part = order[begin : begin + _RUNS]
        segments = side_by_side([runs[n] for n in part], starts[part].tolist(), steps=_STEPS, fresh=True)
        for scored in read(network, segments, STANDARD, log_p):
            values[scored.place.numpy()] = scored.numpy().astype(np.float64) / math.log(2)
    return (values[start:stop] for start, stop in pairwise(starts))
