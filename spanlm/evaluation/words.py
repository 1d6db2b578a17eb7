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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, groupby
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from spanlm.data.config import Lines, Tokenizer
from spanlm.data.text import Text, pieces
from spanlm.data.tokenizer import SentenceEnds, tokenize, written_spans
from spanlm.data.vocabulary import EOS, Vocabulary
from spanlm.errors import InputError, require, require_numbers
from spanlm.evaluation.attention import Place, attention_of
from spanlm.evaluation.cache import CacheConfig, mixed, next_lookup
from spanlm.evaluation.protocol import SENTENCES, Context
from spanlm.evaluation.scoring import evaluating, readout_values
from spanlm.models.interfaces import LMState, NextWordModel
from spanlm.models.ops.neural_cache import Lookup, cache_log_prob
from spanlm.models.ops.precision import Precision

STEPS = 128
"""Steps read at a time."""

WAITING = 1 << 15
"""Words read before they are scored, at most: lines of similar length stand side by side, and padding costs time."""

WORDS = 2048
"""Words of a line scored at a time; a longer line is cut, and its state carried over."""

_Values = tuple[Any, ...]
"""Surprisal, entropy and rank; where it was asked for also the entropy of the attention, its largest weight and lag."""


BASES = {"2": 2.0, "e": math.e, "10": 10.0}
"""Of logarithms, as they are written: bits, nats and bans."""


@dataclass(frozen=True, kw_only=True)
class ScoreOptions:
    """How words are scored.

    Attributes:
        state: a word's context: the text so far (carry), its line, the lines since a blank one (document)
        base: of the logarithm: 2 gives bits, e nats, 10 bans
        oov: words outside the vocabulary: score as <unk> and flag, or refuse (error)
        eos: give line ends rows, too
        looks: give columns on where the model looked, too
        precision: of matrix products

    Raises:
        InputError: a value outside its range.
    """

    state: Context = "line"
    base: float = 2.0
    oov: Literal["flag", "error"] = "flag"
    eos: bool = False
    looks: bool = False
    precision: Precision = "fp32"

    def __post_init__(self) -> None:
        require_numbers(self)
        require(self.state in get_args(Context), "state", self.state, "carry, line or document")
        require(self.oov in ("flag", "error"), "oov", self.oov, "flag or error")
        require(1 < self.base < math.inf, "base", self.base, "above 1 and finite")


@dataclass(frozen=True)
class Piece:
    """Consecutive words of one line: whole lines or sentences as a rule, a part where one is very long.

    `sentence` is the number of the line and `start` that of the first word in it, both from 1. The line or sentence
    begins here if it `opens`, and ends here if it `closes`.
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
class Looked:
    """Where the model looked when it predicted a word: at earlier words, with weights a_i.

    Attributes:
        entropy: of the attention, −Σ p_i log p_i with p_i = a_i / Σ_j a_j, in the unit of the surprisal; as the
            weight, NaN where there was nothing to look at
        word: with the largest weight, of equal ones the nearest; of a span of words the last of it
        weight: the largest weight a_i
        lag: how many words before the last one read that word stands (0: it is the last one read), as in `attend`
    """

    entropy: float
    word: str
    weight: float
    lag: int | None


@dataclass(frozen=True)
class WordScore:
    """One word of a text.

    Attributes:
        sentence: which line, from 1.
        index: which word of the line, from 1.
        word: as written, or as the tokenizer has it.
        surprisal: −log p(word), in the unit of `ScoreOptions.base`; NaN where nothing was predicted.
        entropy: of the distribution the word was drawn from, same unit; NaN where there is none.
        rank: 1 if no word was more probable; None where nothing was predicted.
        oov: not in the vocabulary: surprisal and rank are those of <unk>.
        look: where the model looked, if `ScoreOptions.looks` asks for it.
    """

    sentence: int
    index: int
    word: str
    surprisal: float
    entropy: float
    rank: int | None
    oov: bool
    look: Looked | None = None


@dataclass(frozen=True)
class WrittenScore:
    """One word of a text as it is written, between white space; a model may cut it into several tokens.

    Attributes:
        sentence: the item of a table, or the line of a text, from 1
        index: the word of it, from 1
        word: as written
        start: where it begins in the text of its item, in characters from 0: text[start:end] is the word
        end: where it ends there
        tokens: what the model reads of it, with a space between two
        surprisal: −log p(word | context), the sum over its tokens; NaN where a token was not predicted
        entropy: H of the distribution that its first token was drawn from
        entropy_reduction: max(0, H − H'), H' the entropy of what comes after its last token, a line end included
        rank: of its first token: 1 if none was more probable
        oov: one of its tokens is not in the vocabulary and is read as <unk>
        look: where the model looked before its first token, if `ScoreOptions.looks` asks for it.
    """

    sentence: int
    index: int
    word: str
    start: int
    end: int
    tokens: str
    surprisal: float
    entropy: float
    entropy_reduction: float
    rank: int | None
    oov: bool
    look: Looked | None = None


def as_row(score: WordScore | WrittenScore) -> dict[str, Any]:
    """Return a score as `spanlm score` writes it, by column; where the model looked has columns of its own."""
    row = dict(vars(score))
    look = row.pop("look")
    return row if look is None else row | {f"attention_{name}": value for name, value in vars(look).items()}


def item_rows(number: int, scores: Sequence[WordScore | WrittenScore], unknown: int) -> list[dict[str, Any]]:
    """Return the rows of an item, with the number of unknown words before each; `unknown` ones came before the item."""
    before = accumulate((score.oov for score in scores), initial=unknown)
    numbers = ({"sentence": number, "oov_before": count} for count in before)
    return [as_row(score) | more for score, more in zip(scores, numbers, strict=False)]


def score_words(
    model: NextWordModel,
    vocabulary: Vocabulary,
    pieces: Iterable[Piece],
    options: ScoreOptions,
    *,
    predict_first: bool = True,
    cache: CacheConfig | None = None,
) -> Iterator[WordScore]:
    """Score a text as it streams by.

    If lines are not opened by <eos> (`predict_first`), what comes first in each is read and not predicted. A `cache`,
    which is empty again where the context is, gives only the word that came a probability: no entropy, and no rank.

    Raises:
        InputError: an out-of-vocabulary word with oov="error", lines that are not opened with another state than line,
            or a model that attends to nothing where it is asked where it looked.
    """
    state = options.state
    require(cache is None or isinstance(cache, CacheConfig), "cache", cache, "a CacheConfig, as tune_cache([500]).best")
    require(predict_first or state == "line", "state", state, "line where lines are not opened by <eos>")
    if options.oov == "error":
        pieces = _refusing_unknown(pieces, vocabulary)
    scorer = _WordScorer(model, vocabulary, options, predict_first)
    scorer.cache = cache
    found = _each_line(scorer, pieces) if state == "line" else _one_stream(scorer, pieces, state == "document")
    return chain.from_iterable(found)


def refuse_one_string(name: str, several: Iterable[object]) -> None:
    """Refuse a string in place of several: its characters would be taken, each as one of its own."""
    if isinstance(several, str):
        raise InputError(f"{name}={several[:20]!r}: is one string; give a list of them")
    require(isinstance(several, Iterable), name, several, "a list of strings")
    refuse_table(name, several)


def refuse_table(name: str, several: object) -> None:
    """Refuse what gives the names of its columns, or its keys, where its texts are meant."""
    if hasattr(several, "columns") or isinstance(several, Mapping):
        raise InputError(f"{name}: is a table ({type(several).__name__}); give the column that holds the texts")


def require_texts(texts: Iterable[str]) -> Iterator[str]:
    """Give texts as they are; InputError: one is not a string, as a missing value of a table."""
    for number, text in enumerate(texts, 1):
        require(isinstance(text, str), f"text {number}", text, "a string. Leave missing values out")
        yield text


def _refusing_unknown(pieces: Iterable[Piece], vocabulary: Vocabulary) -> Iterator[Piece]:
    for piece in pieces:
        for offset, word in enumerate(piece.words):
            if word not in vocabulary:
                raise InputError(
                    f"line {piece.sentence}, word {piece.start + offset}: {word!r} is not in the vocabulary. "
                    "Use oov=flag to score it as <unk>."
                )
        yield piece


def _each_line(scorer: _WordScorer, pieces: Iterable[Piece]) -> Iterator[list[WordScore]]:
    """Whole lines side by side; a line in parts alone, its state carried from part to part."""
    waiting, held, room = list[Piece](), 0, min(8 * STEPS, WAITING)
    for piece in pieces:
        if piece.blank and not piece.closes:
            continue
        whole = piece.opens and piece.closes
        if not whole or held >= room:
            yield from _side_by_side(scorer, waiting)
            # the first rows come soon, and later lines stand beside lines of about their length
            waiting, held, room = [], 0, min(2 * room, WAITING)
        if whole:
            waiting.append(piece)
            held += len(piece.words) + 1
        else:
            yield from scorer.run([[piece]], fresh=piece.opens, carry=not piece.closes)
    yield from _side_by_side(scorer, waiting)


def _side_by_side(scorer: _WordScorer, lines: Sequence[Piece]) -> Iterator[list[WordScore]]:
    """Lines of similar length together; their rows in the order of the text."""
    order = sorted(range(len(lines)), key=lambda number: len(lines[number].words))
    found: dict[int, list[WordScore]] = {}
    for start in range(0, len(order), SENTENCES):
        those = order[start : start + SENTENCES]
        found |= zip(those, scorer.run([[lines[number]] for number in those]), strict=True)
    yield from (found.pop(number) for number in range(len(lines)))


def _one_stream(scorer: _WordScorer, pieces: Iterable[Piece], reset_at_blank: bool) -> Iterator[list[WordScore]]:
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

    cache: CacheConfig | None = None

    def __init__(
        self, model: NextWordModel, vocabulary: Vocabulary, options: ScoreOptions, predict_first: bool
    ) -> None:
        self.model, self.vocabulary, self.options = model, vocabulary, options
        self.opening = [vocabulary.eos_id] * predict_first
        self.reach = 0
        self.forget()

    def forget(self) -> None:
        """Let the next words have nothing before them."""
        self.carried: tuple[list[int], LMState] | None = None
        self.read = [EOS] * len(self.opening)
        self.lookup: Lookup | None = None

    def run(self, streams: list[list[Piece]], fresh: bool = True, carry: bool = False) -> Iterator[list[WordScore]]:
        """Score streams side by side, each from the carried state of one or, if `fresh`, from an empty one.

        Gives one list of rows a stream.
        """
        if not any(streams):
            return
        if fresh:
            self.forget()
        values = self._values([[target for piece in stream for target in self._targets(piece)] for stream in streams])
        before = self.read
        if not carry:
            self.forget()
        for stream in streams:
            read = list(before)
            yield [row for piece in stream for row in self._rows(piece, values, read)]
            if carry:
                self.read = read[max(0, len(read) - self.reach) :]

    def _targets(self, piece: Piece) -> list[int]:
        return self.vocabulary.encode(piece.words) + [self.vocabulary.eos_id] * piece.closes

    def _values(self, targets: list[list[int]]) -> Iterator[_Values]:
        """Give the values of every target of every column, one column after the other."""
        before, state = self.carried or (self.opening, self.model.init_state(len(targets)))
        read = [before + ids for ids in targets]
        lengths, sizes = (torch.tensor([len(ids) for ids in each]) for each in (read, targets))
        longest, eos = max(map(len, read)), self.vocabulary.eos_id
        padded = torch.tensor([ids + [eos] * (longest - len(ids)) for ids in read], dtype=torch.long).T
        padded = padded.to(self.model.device)
        found = torch.full((6 if self.options.looks else 3, int(sizes.sum())), math.nan, dtype=torch.float64)
        found[4:] = 0  # what is not predicted looks at nothing
        firsts = sizes.cumsum(0) - sizes + (0 if before else 1)
        with evaluating(self.model, self.options.precision):
            for start in range(0, longest - 1, STEPS):
                inputs, came = (ids[start : start + STEPS] for ids in (padded[:-1], padded[1:]))
                column, step = torch.nonzero(torch.arange(len(inputs)) < lengths[:, None] - 1 - start, as_tuple=True)
                rows = (step * len(targets) + column).to(inputs.device)
                readout, state = self.model(inputs, state)
                values = readout_values(self.model, readout, came, rows)
                if self.cache is not None:
                    values = self._mix(self.cache, readout.features, came, rows, values[0])
                if self.options.looks:
                    attention = attention_of(readout)
                    values += _looked_values(attention.by_lag().flatten(0, 1)[rows], attention.nearest_lag)
                    # a memory that grows has a slot more at the next step
                    self.reach = 1 + attention.weights.shape[-1] * attention.stride + attention.nearest_lag
                found[:, firsts[column] + start + step] = torch.stack([each.double() for each in values]).cpu()
        self.carried = (read[0][-1:], state)
        unit = math.log(self.options.base)
        surprisal, entropy, rank, *looks = found.unbind()
        looks[:1] = [each / unit for each in looks[:1]]
        ranks = [int(each) if each > 0 else None for each in rank.tolist()]
        columns: list[list[Any]] = [*((each / unit).tolist() for each in (surprisal, entropy)), ranks]
        columns += [each.tolist() for each in looks]
        return zip(*columns, strict=True)

    def _mix(self, cache: CacheConfig, h: Tensor, came: Tensor, rows: Tensor, surprisal: Tensor) -> tuple[Tensor, ...]:
        """Return the surprisal of `rows` with the cache, and neither entropy nor rank."""
        filled = torch.zeros_like(came, dtype=torch.bool).flatten().index_fill(0, rows, True).view_as(came)
        self.lookup = next_lookup(self.lookup, h, came, filled, cache.window)
        chance, empty = (x.flatten(-2)[..., rows] for x in cache_log_prob(self.lookup, (cache.theta,)))
        nothing = torch.full_like(surprisal, math.nan)
        return 0.0 - mixed(-surprisal, chance[0], empty, cache.lambda_), nothing, torch.zeros_like(nothing)

    def _rows(self, piece: Piece, values: Iterator[_Values], read: list[str]) -> Iterator[WordScore]:
        """Give a piece's rows; `read` are the words before it, to which its own are added where looks are asked for."""
        words = piece.words + [EOS] * piece.closes
        for index, (word, (surprisal, entropy, rank, *looked)) in enumerate(
            zip(words, values, strict=False), piece.start
        ):
            look = None
            if looked:
                spread, weight, lag = looked
                at = int(lag) if weight > 0 else None
                look = Looked(spread, "", math.nan, at) if at is None else Looked(spread, read[-1 - at], weight, at)
                read.append(word)
            if self.options.eos or index < piece.start + len(piece.words):
                oov = word not in self.vocabulary
                yield WordScore(piece.sentence, index, word, surprisal, entropy, rank, oov, look)


def _looked_values(weights: Tensor, nearest_lag: int) -> tuple[Tensor, Tensor, Tensor]:
    """Entropy (nats), largest weight and its lag, the nearest of equal ones, of weights by lag (N, L)."""
    # the nearest lag first, of which `max` takes the first; one more column, where no slot has been filled yet
    weights = torch.nn.functional.pad(weights.double().flip(-1), (0, 1))
    share = weights / weights.sum(-1, keepdim=True)
    largest, column = weights.max(-1)
    return 0.0 - torch.xlogy(share, share).sum(-1), largest, column + nearest_lag


def by_line(scores: Iterable[WordScore], lines: int) -> list[list[WordScore]]:
    """Return the scores of each of so many lines; of a blank one there are none."""
    found = {line: list(own) for line, own in groupby(scores, key=lambda score: score.sentence)}
    return [found.get(line, []) for line in range(1, lines + 1)]


def written_scores(
    text: str, scores: Sequence[WordScore], sizes: Iterable[int], *, eos: bool = False
) -> list[WrittenScore]:
    """Join the scores of a line's tokens to those of the words in which it is written; one without tokens has NaN.

    Args:
        text: the line.
        scores: of all its tokens, and of the <eos> at its end and after each of its sentences; in order.
        sizes: how many tokens each written word is cut into.
        eos: give those <eos> rows, too, each with the number and the place of the word after it.
    """
    found: list[WrittenScore] = []
    position = 0
    looked = None if not scores or scores[0].look is None else Looked(math.nan, "", math.nan, None)
    spans = zip([*written_spans(text), (len(text), len(text))], [*sizes, 0], strict=True)
    for index, ((start, end), size) in enumerate(spans, 1):
        own: list[WordScore] = []
        while position < len(scores) and (len(own) < size or start == end):
            score, position = scores[position], position + 1
            if score.word != EOS:
                own.append(score)
            elif eos:
                numbers = score.surprisal, score.entropy, math.nan, score.rank, score.oov, score.look
                found.append(WrittenScore(score.sentence, index, EOS, start, start, EOS, *numbers))
        if scores and not own and start < end:
            own = [WordScore(scores[0].sentence, index, "", math.nan, math.nan, None, False, looked)]
        if own:
            first, reduction = own[0], own[0].entropy - scores[position].entropy
            found.append(
                WrittenScore(
                    sentence=first.sentence,
                    index=index,
                    word=text[start:end],
                    start=start,
                    end=end,
                    tokens=" ".join(score.word for score in own),
                    surprisal=math.fsum(score.surprisal for score in own),
                    entropy=first.entropy,
                    entropy_reduction=0.0 if reduction < 0 else reduction,  # NaN stays NaN
                    rank=first.rank,
                    oov=any(score.oov for score in own),
                    look=first.look,
                )
            )
    return found


def places_of(
    pieces: Iterable[Piece], items: Sequence[str], cut: Callable[[str], Sequence[Sequence[str]]]
) -> list[Place]:
    """Return the place of every token and `<eos>` of items' pieces; `cut` gives the tokens of each written word."""
    found: list[Place] = []
    words, position = list[int](), 0
    for piece in pieces:
        if piece.opens and (not found or found[-1][0] != piece.sentence):
            text, position = items[piece.sentence - 1], 0
            tokens = cut(text)
            words = [number for number, own in enumerate(tokens, 1) for _ in own]
            words.append(len(tokens) + 1)
        for token in range(piece.start, piece.start + len(piece.words) + piece.closes):
            found.append((piece.sentence, token, words[position]))
            position += 1
        position -= piece.closes  # an <eos> has the number of the word after it
    return found


def lines_as_pieces(lines: Iterable[str], tokenizer: Tokenizer) -> Iterator[Piece]:
    """Tokenise lines that are in memory; InputError: one is not a string."""
    return _cut(word for line in require_texts(lines) for word in [*tokenize(line, tokenizer), EOS])


def text_as_pieces(text: Text, tokenizer: Tokenizer) -> Iterator[Piece]:
    """Read and tokenise a file of any length, even one line; InputError: it breaks a rule of `spanlm.data.text`."""
    found = _cut(token for piece in pieces(text) for token in _tokens(piece.decode(), tokenizer))
    if (first := next(found, None)) is None:
        raise InputError(f"{text.path}: the text is empty; give one with at least one line")
    yield first
    yield from found


def in_lines(pieces: Iterable[Piece], lines: Lines, vocabulary: Vocabulary) -> Iterator[Piece]:
    """Cut pieces of lines as the lines of a model's own text were cut (`data.lines`): as they are, or into sentences.

    A sentence has the number of its line, and its words count on from those before it, so that each is found in the
    text. A blank line is no sentence: it is a piece that does not close.
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


def whole_lines(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Join the pieces of each line or sentence, however long it is."""
    words: list[str] = []
    for piece in pieces:
        words += piece.words
        if piece.closes:
            yield replace(piece, words=words)
            words = []


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
