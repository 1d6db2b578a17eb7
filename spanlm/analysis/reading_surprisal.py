"""Surprisal of the words of a table of reading times, with all of the context or the last words of it alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from spanlm.analysis.reading_table import ReadingTable
from spanlm.data.tokenizer import written_spans
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


def surprisals(model: Model, table: ReadingTable, context: ReadingContext) -> Surprisal:
    """Score each word once; a cell of several words has the sum of theirs.

    Raises:
        InputError: see `Model.score_items`.
    """
    bits, unknown = list[float](), list[bool]()
    context = _narrowest(table, context)
    for lines in _items(table, context):
        texts = [" ".join(line) for line in lines]
        for line, text, scores in zip(lines, texts, model.score_items(texts, state=context), strict=True):
            at = 0
            for size in _sizes(model, line, text):
                words = scores[at : at + size]
                bits.append(math.fsum(word.surprisal for word in words) if words else math.nan)
                unknown.append(any(word.oov for word in words))
                at += size
    return Surprisal(np.array(bits), np.array(unknown))


def _narrowest(table: ReadingTable, context: ReadingContext) -> ReadingContext:
    """Return line for items of one line each, which are then read side by side."""
    return "line" if len(table.lines) == len(table.items) else context


def _items(table: ReadingTable, context: ReadingContext) -> Iterator[list[list[str]]]:
    """Yield the lines of each context as cells; all at once where no context crosses them."""
    lines = ([table.words[n] for n in line] for line in table.lines)
    for _, group in groupby(lines, key=lambda line: 0 if context == "line" else line[0].item):
        yield [[word.text for word in line] for line in group]


def _sizes(model: Model, line: Sequence[str], text: str) -> Iterator[int]:
    """Yield how many written words each cell has; marks that a model does not read are none."""
    read, start = model.texts.unmarked_text(text), 0
    for cell in line:
        yield len(written_spans(read[start : start + len(cell)]))
        start += len(cell) + 1


def truncated_surprisals(model: Model, table: ReadingTable, context: ReadingContext, window: int) -> Surprisal:
    """Score each word after the last `window` tokens of its context alone, read from an empty state.

    Line ends are tokens, too, and <eos> opens a context, as `spanlm.analysis.context` has it.

    Raises:
        InputError: the model does not read the words of a vocabulary.
    """
    network = model.predictor("windows")
    if model.texts.tokenizer.exact:
        why = f"{model.folder} reads {model.texts.data.effective_tokenizer}, and a window is cut between words"
        raise InputError("windows", window, why, "Leave it out")
    eos, encode = model.vocabulary.eos_id, model.vocabulary.encode
    opening = [eos] * model.texts.predict_first
    context = _narrowest(table, context)
    runs, counts, unknown = list[list[int]](), list[int](), list[bool]()
    for lines in _items(table, context):
        ids = list(opening)
        for line in lines:
            ids = list(opening) if context == "line" else ids
            for tokens, ends in _tokens(model, line):
                cell = encode(tokens)
                unknown.append(any(token not in model.vocabulary for token in tokens))
                before = ids[-window:]
                # without <eos> before it, a first word is only read
                counts.append(len(cell) if before else 0)
                runs.append(before + cell if before and cell else [])
                ids += cell + [eos] * ends
    values = _read_runs(network, [run for run in runs if run])
    bits = [
        math.nan if not run else -float(next(values)[-count:].sum()) for run, count in zip(runs, counts, strict=True)
    ]
    return Surprisal(np.array(bits), np.array(unknown))


def _tokens(model: Model, line: Sequence[str]) -> Iterator[tuple[list[str], int]]:
    """Yield the tokens of each cell, and how many <eos> follow it."""
    text = " ".join(line)
    read = [token for piece in model.texts.pieces([text]) for token in [*piece.words, *[EOS] * piece.closes]]
    sizes, at = [len(word) for word in model.texts.cut(model.texts.unmarked_text(text))], 0
    words = iter(sizes)
    for count in _sizes(model, line, text):
        tokens = list[str]()
        for _ in range(sum(next(words) for _ in range(count))):
            tokens.append(read[at])
            at += 1
        ends = 0
        while at < len(read) and read[at] == EOS:
            ends, at = ends + 1, at + 1
        yield tokens, ends


def _read_runs(network: NextWordModel, runs: Sequence[list[int]]) -> Iterator[Array]:
    """Yield log2 p of all tokens of each run but its first, in their order; those of like length are read together."""
    order = sorted(range(len(runs)), key=lambda n: len(runs[n]))
    starts = np.concatenate([[0], np.cumsum([len(run) - 1 for run in runs])]).astype(np.int64)
    values = np.empty(int(starts[-1]))
    for begin in range(0, len(order), _RUNS):
        part = order[begin : begin + _RUNS]
        segments = side_by_side([runs[n] for n in part], [int(starts[n]) for n in part], steps=_STEPS, fresh=True)
        for scored in read(network, segments, STANDARD, log_p):
            values[scored.place.numpy()] = scored.numpy().astype(np.float64) / math.log(2)
    return (values[start:stop] for start, stop in pairwise(starts))
