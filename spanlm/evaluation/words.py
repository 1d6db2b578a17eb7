"""Word by word: surprisal, entropy and rank, for a text of any length.

A text is lines. Each line is opened by <eos> (the line end before it, or the start) and closed by one, so a word's
surprisal is −log p(word | <eos>, what came before). `state` says what comes before: the whole text (`carry`), the
line alone (`line`), or the lines since the last blank one (`document`). Where lines are cut into sentences, each of
these stands for a line, and blank lines have no end (`in_lines`).

A model that was trained on lines of which the first word is only read (Salton et al., 2017) knows no <eos> that opens
one, so for what comes first in a line there is no distribution: no number is made up for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal, get_args

import torch
from torch import Tensor

from spanlm.data.config import Lines, Tokenizer
from spanlm.data.text import Text, pieces
from spanlm.data.tokenizer import SentenceEnds, tokenize
from spanlm.data.vocabulary import EOS, Vocabulary
from spanlm.errors import InputError, require
from spanlm.evaluation.protocol import Context
from spanlm.evaluation.scoring import evaluating
from spanlm.models.interfaces import LMState, NextWordModel

STEPS = 128
"""Steps computed at a time: (STEPS, streams, V) probabilities are held."""

LINES = 16
"""Lines computed side by side when each stands alone."""

WORDS = 2048
"""Words of a line scored at a time; a longer line is cut, and its state carried over."""

_Values = tuple[float, float, int | None]
_UNPREDICTED: _Values = (math.nan, math.nan, None)


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """How words are scored.

    Attributes:
        state: a word's context: the text so far (carry), its line, the lines since a blank one (document)
        base: of the logarithm: 2 gives bits, e nats, 10 bans
        oov: words outside the vocabulary: score as <unk> and flag, or refuse (error)
        eos: give line ends rows, too

    Raises:
        InputError: a value outside its range.
    """

    state: Context = "line"
    base: float = 2.0
    oov: Literal["flag", "error"] = "flag"
    eos: bool = False

    def __post_init__(self) -> None:
        require(self.state in get_args(Context), "state", self.state, "carry, line or document")
        require(self.oov in ("flag", "error"), "oov", self.oov, "flag or error")
        require(0 < self.base < math.inf and self.base != 1, "base", self.base, "positive and not 1")


@dataclass(frozen=True)
class Piece:
    """Consecutive words of one line: whole lines or sentences as a rule, a part where one is very long.

    Attributes:
        sentence: the number of the line, from 1.
        start: the number of the first word in its line, from 1.
        words: as written.
        opens: the line or sentence begins here.
        closes: the line or sentence ends here.
    """

    sentence: int
    start: int
    words: list[str]
    opens: bool
    closes: bool

    @property
    def blank(self) -> bool:
        """Whether it is a line without words; that of a text in sentences does not close, and has nothing to score."""
        return self.opens and not self.words


@dataclass(frozen=True)
class WordScore:
    """One word of a text.

    Attributes:
        sentence: which line, from 1.
        index: which word of the line, from 1; of an <eos>, the number after the word before it.
        word: as written; with the tokenizer `words` in lower case, and cut where that cuts.
        surprisal: −log p(word), in the unit of `ScoreOptions.base`; NaN where nothing was predicted.
        entropy: of the distribution the word was drawn from, same unit; NaN where there is none.
        rank: 1 if no word was more probable; None where nothing was predicted.
        oov: not in the vocabulary: surprisal and rank are those of <unk>.
    """

    sentence: int
    index: int
    word: str
    surprisal: float
    entropy: float
    rank: int | None
    oov: bool


def score_words(
    model: NextWordModel,
    vocabulary: Vocabulary,
    pieces: Iterable[Piece],
    options: ScoreOptions,
    *,
    opened: bool = True,
) -> Iterator[WordScore]:
    """Score a text as it streams by.

    Args:
        model: left in the mode it was in.
        vocabulary: the model's.
        pieces: the text, see `spanlm.data.text`.
        options: how words are scored.
        opened: lines are opened by <eos>; if not, what comes first in each is read and not predicted.

    Raises:
        InputError: an out-of-vocabulary word with oov="error", or lines that are not opened with another state than
            line.
    """
    state = options.state
    require(opened or state == "line", "state", state, "line where lines are not opened by <eos>")
    scorer = _WordScorer(model, vocabulary, options, opened)
    return _each_line(scorer, pieces) if state == "line" else _one_stream(scorer, pieces, state == "document")


def _each_line(scorer: _WordScorer, pieces: Iterable[Piece]) -> Iterator[WordScore]:
    """Whole lines side by side; a line in parts alone, its state carried from part to part."""
    batch: list[Piece] = []
    for piece in pieces:
        if piece.blank and not piece.closes:
            continue
        whole = piece.opens and piece.closes
        if not whole or len(batch) == LINES:
            yield from scorer.run([[one] for one in batch])
            batch = []
        if whole:
            batch.append(piece)
        else:
            yield from scorer.run([[piece]], fresh=piece.opens, carry=not piece.closes)
    yield from scorer.run([[one] for one in batch])


def _one_stream(scorer: _WordScorer, pieces: Iterable[Piece], reset_at_blank: bool) -> Iterator[WordScore]:
    """Line after line; pieces are joined until there are enough to compute together."""
    batch: list[Piece] = []
    held, blank, begun = 0, False, False
    for piece in pieces:
        # as in corpora, blank lines before the first word belong to the first document
        resets = reset_at_blank and blank and begun and bool(piece.words)
        if batch and (held >= STEPS or resets):
            yield from scorer.run([batch], fresh=False, carry=True)
            batch, held = [], 0
        if resets:
            scorer.forget()
        if piece.words or piece.closes:
            batch.append(piece)
        held += len(piece.words) + piece.closes
        begun = begun or bool(piece.words)
        blank = piece.blank
    yield from scorer.run([batch], fresh=False, carry=True)


class _WordScorer:
    """Runs pieces through the model; carries the state of one stream where asked."""

    def __init__(self, model: NextWordModel, vocabulary: Vocabulary, options: ScoreOptions, opened: bool) -> None:
        self.model, self.vocabulary, self.options = model, vocabulary, options
        self.opening = [vocabulary.eos_id] * opened
        self.forget()

    def forget(self) -> None:
        """Let the next words have nothing before them."""
        self.carried: tuple[list[int], LMState] | None = None

    def run(self, streams: list[list[Piece]], fresh: bool = True, carry: bool = False) -> Iterator[WordScore]:
        """Score streams side by side, each from the carried state of one or, if `fresh`, from an empty one."""
        if not any(streams):
            return
        if fresh:
            self.forget()
        values = self._values([[target for piece in stream for target in self._targets(piece)] for stream in streams])
        if not carry:
            self.forget()
        for stream, column in zip(streams, map(iter, values), strict=True):
            for piece in stream:
                yield from self._rows(piece, list(islice(column, len(piece.words) + piece.closes)))

    def _targets(self, piece: Piece) -> list[int]:
        if self.options.oov == "error":
            for offset, word in enumerate(piece.words):
                if word not in self.vocabulary:
                    raise InputError(
                        f"line {piece.sentence}, word {piece.start + offset}: {word!r} is not in the vocabulary. "
                        "Use oov=flag (--oov flag) to score it as <unk>."
                    )
        return self.vocabulary.encode(piece.words) + [self.vocabulary.eos_id] * piece.closes

    def _values(self, targets: list[list[int]]) -> list[list[_Values]]:
        """(surprisal in nats, entropy in nats, rank) of every target of every column."""
        before, state = self.carried or (self.opening, self.model.init_state(len(targets)))
        read = [before + ids for ids in targets]
        longest, eos = max(map(len, read)), self.vocabulary.eos_id
        padded = torch.tensor([ids + [eos] * (longest - len(ids)) for ids in read], dtype=torch.long).T
        padded = padded.to(self.model.device)
        found: list[list[_Values]] = [[] if before else [_UNPREDICTED] for _ in targets]
        with evaluating(self.model):
            for start in range(0, longest - 1, STEPS):
                log_p, state = self.model.log_probs(padded[:-1][start : start + STEPS], state)
                values = _word_values(log_p, padded[1:][start : start + STEPS])
                for column, own in zip(found, zip(*(x.T.tolist() for x in values), strict=True), strict=True):
                    column += zip(*own, strict=True)
        self.carried = (read[0][-1:], state)
        return [column[: len(ids)] for column, ids in zip(found, targets, strict=True)]

    def _rows(self, piece: Piece, values: list[_Values]) -> Iterator[WordScore]:
        words, unit = piece.words + [EOS] * (piece.closes and self.options.eos), math.log(self.options.base)
        for index, (word, (surprisal, entropy, rank)) in enumerate(zip(words, values, strict=False), piece.start):
            oov = word not in self.vocabulary
            yield WordScore(piece.sentence, index, word, surprisal / unit, entropy / unit, rank, oov)


def _word_values(log_p: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Surprisal, entropy (nats) and rank of the targets under log_p (T, B, V)."""
    own = log_p.gather(-1, targets.unsqueeze(-1))
    rank = (log_p > own).sum(-1) + 1
    probability = log_p.exp()
    # p log p is 0 where p is: a word of probability 0 would give 0 · -inf
    # 0 − x, not −x: what is certain has surprisal and entropy 0, not -0.0
    entropy = 0.0 - torch.where(probability > 0, probability * log_p, 0.0).sum(-1, dtype=torch.float64)
    return 0.0 - own.squeeze(-1).double(), entropy, rank


def lines_as_pieces(lines: Iterable[str], tokenizer: Tokenizer) -> Iterator[Piece]:
    """Tokenise lines that are in memory."""
    tokens = (word for line in lines for word in [*tokenize(line, tokenizer), EOS])
    return _cut(tokens)


def text_as_pieces(text: Text, tokenizer: Tokenizer) -> Iterator[Piece]:
    """Read and tokenise a file of any length, even one that is a single line.

    Raises:
        InputError: the file breaks a rule of `spanlm.data.text`.
    """
    found = _cut(token for piece in pieces(text) for token in _tokens(piece.decode(), tokenizer))
    first = next(found, None)
    if first is None:
        raise InputError(f"{text.path}: the text is empty; give one with at least one line")
    yield first
    yield from found


def in_lines(pieces: Iterable[Piece], lines: Lines, vocabulary: Vocabulary) -> Iterator[Piece]:
    """Cut pieces of lines as the lines of a model's own text were cut: as they are, or into sentences.

    A sentence has the number of its line, and its words count on from those before it, so that each is found in the
    text. A blank line is no sentence: it is a piece that does not close.

    Args:
        pieces: of the lines of a text.
        lines: the model's `data.lines`.
        vocabulary: the model's.
    """
    if lines == "as-written":
        yield from pieces
        return
    words: list[str] = []
    ends, start, opens = SentenceEnds(vocabulary), 1, True
    for piece in pieces:
        for word in piece.words:
            ended = ends.before(word)
            if ended or len(words) == WORDS:
                yield Piece(piece.sentence, start, words, opens=opens, closes=ended)
                words, start, opens = [], start + len(words), ended
            words.append(word)
        if piece.closes:
            yield Piece(piece.sentence, start, words, opens=opens, closes=bool(words))
            words, ends, start, opens = [], SentenceEnds(vocabulary), 1, True


def words_of(pieces: Iterable[Piece]) -> list[str]:
    """Join pieces again: their words, with <eos> where a line or a sentence ends."""
    return [word for piece in pieces for word in [*piece.words, *[EOS] * piece.closes]]


def _tokens(piece: str, tokenizer: Tokenizer) -> Iterator[str]:
    """Tokenise a piece that starts and ends at the edges of words, with <eos> at each line end."""
    first, *others = piece.split("\n")
    yield from tokenize(first, tokenizer)
    for line in others:
        yield EOS
        yield from tokenize(line, tokenizer)


def _cut(tokens: Iterable[str]) -> Iterator[Piece]:
    """Cut words with <eos> after each line into pieces of at most WORDS words, each of one line."""
    words: list[str] = []
    line, start = 1, 1
    for token in tokens:
        if token == EOS:
            yield Piece(line, start, words, opens=start == 1, closes=True)
            words, line, start = [], line + 1, 1
        else:
            if len(words) == WORDS:
                yield Piece(line, start, words, opens=start == 1, closes=False)
                words, start = [], start + WORDS
            words.append(token)
