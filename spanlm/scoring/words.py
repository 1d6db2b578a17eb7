"""Word by word: surprisal, entropy and rank, for a text of any length.

A text is lines. An <eos> opens each line (the previous line end, or the start) and another closes it, so a word's
surprisal is −log p(word | <eos>, its context). `state` sets the context: the whole text so far (`carry`), the line
(`line`), or the lines since the last blank one (`document`). If lines are cut into sentences, a sentence replaces a
line, and blank lines have no end (`in_lines`).

A model that only read the first words of lines in training (Salton et al., 2017) has no <eos> that opens a line, so it
has no distribution for a first word, and the word gets no numbers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, groupby, pairwise, repeat
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from spanlm.data.batching import Segment
from spanlm.data.pieces import Piece
from spanlm.data.tokenizer import written_spans
from spanlm.data.vocabulary import EOS, Vocabulary
from spanlm.errors import InputError, named, require
from spanlm.models.interfaces import NextWordModel
from spanlm.options import with_meanings
from spanlm.scoring.attention import Place, attention_of
from spanlm.scoring.cache import NeuralCache
from spanlm.scoring.fold import fold
from spanlm.scoring.options import CacheConfig, Context, ScoreOptions
from spanlm.scoring.protocol import SENTENCES, Protocol
from spanlm.scoring.stream import Question, Reading, Scored, distribution, in_text_order, read, side_by_side

STEPS = 128
"""Steps read at a time."""

WAITING = 1 << 15
"""Words buffered before scoring, at most: lines of similar length are then read side by side with little padding."""


@with_meanings
@dataclass(frozen=True)
class Looked:
    """The attention when a word was predicted: weights a_i on earlier words."""

    entropy: Annotated[
        float,
        "of the attention, −Σ p_i log p_i with p_i = a_i / Σ_j a_j, in the unit of the surprisal; as the weight, "
        "NaN where there was nothing to look at",
    ]
    word: Annotated[str, "with the largest weight, of equal ones the nearest; of a span of words the last of it"]
    weight: Annotated[float, "the largest weight a_i"]
    lag: Annotated[
        int | None,
        "how many words before the last one read that word stands (0: it is the last one read), as in `attend`",
    ]


@with_meanings
@dataclass(frozen=True)
class WordScore:
    """One word of a text."""

    sentence: Annotated[int, "which line, from 1"]
    index: Annotated[int, "which word of the line, from 1"]
    word: Annotated[str, "as written, or as the tokenizer has it"]
    surprisal: Annotated[
        float,
        "−log p(word), in the unit of `ScoreOptions.base`, of an unknown word with its spelling's if that is counted; "
        "NaN where nothing was predicted",
    ]
    entropy: Annotated[float, "of the distribution the word was drawn from, same unit; NaN where there is none"]
    rank: Annotated[int | None, "1 if no word was more probable; None where nothing was predicted"]
    oov: Annotated[bool, "not in the vocabulary: surprisal and rank are those of <unk>"]
    look: Annotated[Looked | None, "where the model looked, if `ScoreOptions.looks` asks for it"] = None
    end: Annotated[
        float, "of a token below the word log e(c), see `spanlm.scoring.fold`, same unit; else of no use"
    ] = 0.0


@with_meanings
@dataclass(frozen=True)
class WrittenScore:
    """One written word, between white space; a model may cut it into several tokens."""

    sentence: Annotated[int, "the item of a table, or the line of a text, from 1"]
    index: Annotated[int, "the word of it, from 1"]
    word: Annotated[str, "as written"]
    start: Annotated[int, "where it begins in the text of its item, in characters from 0: text[start:end] is the word"]
    end: Annotated[int, "where it ends there"]
    tokens: Annotated[str, "what the model reads of it, with a space between two"]
    surprisal: Annotated[
        float, "−log p(word | context), the sum over its tokens, and its end; NaN where a token was not predicted"
    ]
    entropy: Annotated[float, "H of the distribution that its first token was drawn from"]
    entropy_reduction: Annotated[
        float,
        "max(0, H − H'), H' the entropy of what comes after its last token, a line end included",
    ]
    rank: Annotated[int | None, "of its first token: 1 if none was more probable"]
    oov: Annotated[bool, "one of its tokens is not in the vocabulary and is read as <unk>"]
    look: Annotated[
        Looked | None,
        "where the model looked before its first token, if `ScoreOptions.looks` asks for it",
    ] = None


def as_row(score: WordScore | WrittenScore) -> dict[str, Any]:
    """Return the columns that `spanlm score` writes for a score; attention gets columns of its own."""
    row = dict(vars(score))
    if isinstance(score, WordScore):  # of a written word `end` is a place in the text
        del row["end"]
    look = row.pop("look")
    return row if look is None else row | {f"attention_{name}": value for name, value in vars(look).items()}


def item_rows(number: int, scores: Sequence[WordScore | WrittenScore], unknown: int) -> list[dict[str, Any]]:
    """Return an item's rows, each with the number of unknown words before it; `unknown` came before the item."""
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
    spell: Callable[[str], float] | None = None,
    word_ends: Sequence[int] | None = None,
) -> Iterator[WordScore]:
    """Score a text of any length as a stream.

    With `word_ends`, see `spanlm.data.tokenizer.Tokenizer`, scores have the `end` of tokens.

    Without `predict_first` no <eos> opens a line, and first words are read but not predicted; callers refuse any other
    state than `line`. A `cache` is emptied at each reset of the context; it gives a probability to the next word only,
    so there is no entropy and no rank. `spell` gives the NLL of an unknown word's spelling, nats, which its surprisal
    then includes.

    Raises:
        InputError: a word is outside the vocabulary with oov="error", or with `options.looks` the model does not
            attend.
    """
    require(cache is None or isinstance(cache, CacheConfig), "cache", cache, "a CacheConfig, as tune_cache([500]).best")
    if options.oov == "error":
        pieces = _refusing_unknown(pieces, vocabulary)
    text = _Text(pieces, vocabulary, options.state, predict_first)
    ends = None if word_ends is None else torch.tensor(word_ends, device=model.device)
    questions: list[Question] = [partial(distribution, ends=ends)]
    looks = _Looks() if options.looks else None
    if looks is not None:
        questions.append(looks)
    if cache is not None:
        questions.append(NeuralCache(cache, across=False))
    scored = read(model, text.segments(), Protocol(precision=options.precision), *questions)
    return _rows(text, in_text_order(scored), vocabulary, options, looks, spell)


def _refusing_unknown(pieces: Iterable[Piece], vocabulary: Vocabulary) -> Iterator[Piece]:
    for piece in pieces:
        for offset, word in enumerate(piece.words):
            if word not in vocabulary:
                raise InputError(
                    f"line {piece.sentence}, word {piece.start + offset}: {word!r} is not in the vocabulary. "
                    f"Use {named('oov=flag')} to score it as <unk>."
                )
        yield piece


class _Token(NamedTuple):
    """A word or line end of a text; `opens` its context, `ends` its line, is `predicted` or only read."""

    sentence: int
    number: int
    word: str
    opens: bool
    ends: bool
    predicted: bool


@dataclass
class _Run:
    """Ids of consecutive words, and the place in the text of the first predicted word."""

    read: list[int]
    place: int


class _Text:
    """A streamed text: its `segments`, and a queue of the `tokens` of all segments so far, in text order."""

    def __init__(self, pieces: Iterable[Piece], vocabulary: Vocabulary, state: Context, predict_first: bool) -> None:
        self.tokens = deque[_Token]()
        self._pieces, self._vocabulary, self._state = pieces, vocabulary, state
        self.opening = [vocabulary.eos_id] * predict_first
        self._placed = 0

    def segments(self) -> Iterator[Segment]:
        """Cut the text into segments; if each line is its own context, similar lengths are read side by side."""
        return self._lines() if self._state == "line" else self._stream()

    def _lines(self) -> Iterator[Segment]:
        """Yield whole lines side by side; the parts of a long line come alone, one after the other."""
        waiting, held, room, read, fresh = list[_Run](), 0, min(8 * STEPS, WAITING), list[int](), False
        for piece in self._pieces:
            if piece.blank and not piece.closes:
                continue
            whole = piece.opens and piece.closes
            if waiting and (not whole or held >= room):
                yield from self._side_by_side(waiting)
                # start small, so that first rows come soon; grow, so that later batches need less padding
                waiting, held, room = [], 0, min(2 * room, WAITING)
            run = self._queue(piece, list(self.opening) if piece.opens else read[-1:], opens=piece.opens)
            if whole:
                waiting.append(run)
                held += len(piece.words) + 1
            else:
                fresh = fresh or piece.opens
                yield from self._segments([run], fresh)
                # a single first word without <eos> makes no segment
                read, fresh = run.read, fresh and len(run.read) == 1
        yield from self._side_by_side(waiting)

    def _side_by_side(self, lines: list[_Run]) -> Iterator[Segment]:
        lines = sorted(lines, key=lambda run: len(run.read))
        for start in range(0, len(lines), SENTENCES):
            yield from self._segments(lines[start : start + SENTENCES], True)

    def _stream(self) -> Iterator[Segment]:
        """Yield line after line; pieces are joined until there are enough words for one computation."""
        run, fresh, blank, begun = _Run(list(self.opening), 0), True, False, False
        for piece in self._pieces:
            # as in corpora, blank lines before the first word are part of the first document
            resets = self._state == "document" and blank and begun and not piece.blank
            if len(run.read) > STEPS or resets:
                yield from self._segments([run], fresh)
                run, fresh = _Run(list(self.opening) if resets else run.read[-1:], self._placed), resets
            if piece.words or piece.closes:
                self._queue(piece, run.read, opens=fresh and len(run.read) == len(self.opening))
            begun = begun or not piece.blank
            blank = piece.blank
        yield from self._segments([run], fresh)

    def _queue(self, piece: Piece, read: list[int], *, opens: bool) -> _Run:
        run, first = _Run(read, self._placed), len(self.tokens)
        line, start, predicted = piece.sentence, piece.start, bool(read)
        self.tokens += [_Token(line, n, word, False, False, True) for n, word in enumerate(piece.words, start)]
        if piece.closes:
            self.tokens.append(_Token(line, start + len(piece.words), EOS, False, True, True))
        self.tokens[first] = self.tokens[first]._replace(opens=opens, predicted=predicted)
        self._placed += len(self.tokens) - first - (not predicted)
        read += self._vocabulary.encode(piece.words) + [self._vocabulary.eos_id] * piece.closes
        return run

    def _segments(self, runs: Sequence[_Run], fresh: bool) -> Iterator[Segment]:
        return side_by_side([run.read for run in runs], [run.place for run in runs], steps=STEPS, fresh=fresh)


class _Looks:
    """Question about attention: answers `look`, its entropy (nats), its largest weight and that weight's lag.

    `reach` is an upper bound of the lag.
    """

    reach = 0

    def __call__(self, reading: Reading) -> Mapping[str, Tensor]:
        attention = attention_of(reading.readout)
        weights = reading.flat(attention.by_lag())
        # a growing memory has one slot more at the next step
        self.reach = max(self.reach, 1 + weights.shape[-1] + attention.nearest_lag)
        # nearest lag first, as `max` takes the first of equal weights; an extra column serves an empty memory
        weights = torch.nn.functional.pad(weights.double().flip(-1), (0, 1))
        share = weights / weights.sum(-1, keepdim=True)
        largest, column = weights.max(-1)
        entropy = 0.0 - torch.xlogy(share, share).sum(-1)
        return {"look": torch.stack([entropy, largest, (column + attention.nearest_lag).double()], 1)}


def _rows(
    text: _Text,
    blocks: Iterable[Scored],
    vocabulary: Vocabulary,
    options: ScoreOptions,
    looks: _Looks | None,
    spell: Callable[[str], float] | None,
) -> Iterator[WordScore]:
    """Yield the rows of a text's tokens as soon as they are scored."""
    read = list[str]()
    for token, surprisal, entropy, rank, end, look in _valued(text, blocks, math.log(options.base)):
        looked = None
        if looks is not None:
            if token.opens:
                read[:] = [EOS] * len(text.opening)
            spread, weight, lag = look
            at = int(lag) if weight > 0 else None
            looked = Looked(spread, "", math.nan, None) if at is None else Looked(spread, read[-1 - at], weight, at)
            read.append(token.word)
            if len(read) > 2 * looks.reach + STEPS:
                del read[: -looks.reach]
        if options.eos or not token.ends:
            oov = token.word not in vocabulary
            if oov and spell is not None:
                surprisal += spell(token.word) / math.log(options.base)
            numbers = token.sentence, token.number, token.word, surprisal, entropy, rank, oov, looked
            yield WordScore(*numbers, end)


_Valued = tuple[_Token, float, float, int | None, float, Sequence[float]]
"""A token, its surprisal, entropy and rank, log e(c), and the attention's entropy, weight and lag, if requested."""


def _valued(text: _Text, blocks: Iterable[Scored], unit: float) -> Iterator[_Valued]:
    """Yield each token with its numbers, nats divided by `unit`; tokens that are not predicted have NaN or None."""
    nothing: Any = math.nan, math.nan, None, math.nan, (math.nan, 0.0, 0.0)
    for block in blocks:
        columns = {name: x.double().cpu() for name, x in block.answers.items()}
        surprisal, entropy = columns["surprisal"] / unit, columns["entropy"] / unit
        rank: list[int | None] = block.answers["rank"].tolist()
        if "cached" in columns:
            surprisal, entropy, rank = -columns["cached"] / unit, torch.full_like(entropy, math.nan), [None] * len(rank)
        ends: Iterable[float] = repeat(0.0)
        if "end" in columns and "cached" not in columns:  # that of a cache is not summed over tokens: no correction
            ends = (columns["end"] / unit).tolist()
        looks: Iterable[Sequence[float]] = repeat(())
        if "look" in columns:
            looks = (columns["look"] / torch.tensor([unit, 1.0, 1.0], dtype=torch.float64)).tolist()
        for numbers in zip(surprisal.tolist(), entropy.tolist(), rank, ends, looks, strict=False):
            while not (token := text.tokens.popleft()).predicted:
                yield token, *nothing
            yield token, *numbers
    yield from ((token, *nothing) for token in text.tokens)


def by_line(scores: Iterable[WordScore], lines: int) -> list[list[WordScore]]:
    """Group scores by line, for `lines` lines; a blank line has none."""
    rows = {line: list(group) for line, group in groupby(scores, key=lambda score: score.sentence)}
    return [rows.get(line, []) for line in range(1, lines + 1)]


def folded_scores(
    text: str, scores: Sequence[WordScore], sizes: Sequence[int], *, eos: bool = False
) -> list[WrittenScore]:
    """Fold the scores of a line's tokens, with the <eos> at its end, into scores of its written words.

    Args:
        text: the line.
        scores: scores of all tokens in order, of which the last is the <eos>.
        sizes: number of tokens of each written word; the others belong to the line end.
        eos: return a row for the line end, too.
    """
    bounds = [*accumulate(sizes, initial=0), len(scores)]
    sums = fold([score.surprisal for score in scores], [score.end for score in scores], bounds, [len(sizes)])
    spans = [*written_spans(text), (len(text), len(text))]
    rows = []
    units = zip(spans, sums, pairwise(bounds), strict=True)
    for index, (span, surprisal, (first, stop)) in enumerate(units, 1):
        after = scores[stop].entropy if stop < len(scores) else math.nan
        rows.append(_written(index, text[slice(*span)] or EOS, span, scores[first:stop], surprisal, after))
    return rows if eos else rows[:-1]


def _written(
    index: int, word: str, span: tuple[int, int], tokens: Sequence[WordScore], surprisal: float, after: float
) -> WrittenScore:
    """Return the score of a written word from those of its tokens; `after` is the entropy behind them."""
    first, reduction = tokens[0], tokens[0].entropy - after
    return WrittenScore(
        sentence=first.sentence,
        index=index,
        word=word,
        start=span[0],
        end=span[1],
        tokens=" ".join(score.word for score in tokens),
        surprisal=surprisal,
        entropy=first.entropy,
        entropy_reduction=0.0 if reduction < 0 else reduction,  # NaN stays NaN
        rank=first.rank,
        oov=any(score.oov for score in tokens),
        look=first.look,
    )


def joined_scores(
    texts: Sequence[str], scores: Sequence[WordScore], sizes: Iterable[int], *, eos: bool = False
) -> list[WrittenScore]:
    """Combine the scores of a line's tokens, with its <eos>, into scores of texts that make the line without spaces.

    Numbers and places are those of the texts with a space between two. A text that shares a token with the next one has
    NaN, and so has that one.

    Args:
        texts: words, as of Chinese; joined, they are the line.
        scores: scores of all tokens in order, of which the last is the <eos>.
        sizes: number of bytes of each token but the <eos>.
        eos: return a row for the line end, too.
    """
    first_token = {byte: number for number, byte in enumerate(accumulate(sizes, initial=0))}
    looked = None if scores[0].look is None else Looked(math.nan, "", math.nan, None)
    shared = WordScore(scores[0].sentence, 1, "", math.nan, math.nan, None, False, looked)
    rows, place, byte = list[WrittenScore](), 0, 0
    for index, text in enumerate(texts, 1):
        first, byte = first_token.get(byte), byte + len(text.encode())
        stop, span, parts, after = first_token.get(byte), (place, place + len(text)), [shared], math.nan
        if first is not None and stop is not None and first < stop:
            parts, after = [*scores[first:stop]], scores[stop].entropy
        rows.append(_written(index, text, span, parts, math.fsum(score.surprisal for score in parts), after))
        place += len(text) + 1
    end = max(place - 1, 0)
    last = _written(len(texts) + 1, EOS, (end, end), scores[-1:], scores[-1].surprisal, math.nan)
    return [*rows, last] if eos else rows


def written_scores(
    text: str, scores: Sequence[WordScore], sizes: Iterable[int], *, eos: bool = False
) -> list[WrittenScore]:
    """Combine the scores of a line's tokens into scores of its written words; a word without tokens has NaN.

    Args:
        text: the line.
        scores: scores of all tokens in order, with the <eos> at the line's end and after each sentence.
        sizes: number of tokens of each written word.
        eos: return rows for these <eos>, too, with the number and place of the next word.
    """
    rows: list[WrittenScore] = []
    position = 0
    looked = None if not scores or scores[0].look is None else Looked(math.nan, "", math.nan, None)
    spans = zip([*written_spans(text), (len(text), len(text))], [*sizes, 0], strict=True)
    for index, ((start, end), size) in enumerate(spans, 1):
        parts: list[WordScore] = []
        while position < len(scores) and (len(parts) < size or start == end):
            score, position = scores[position], position + 1
            if score.word != EOS:
                parts.append(score)
            elif eos:
                numbers = score.surprisal, score.entropy, math.nan, score.rank, score.oov, score.look
                rows.append(WrittenScore(score.sentence, index, EOS, start, start, EOS, *numbers))
        if scores and not parts and start < end:
            parts = [WordScore(scores[0].sentence, index, "", math.nan, math.nan, None, False, looked)]
        if parts:
            surprisal, after = math.fsum(score.surprisal for score in parts), scores[position].entropy
            rows.append(_written(index, text[start:end], (start, end), parts, surprisal, after))
    return rows


def places_of(
    pieces: Iterable[Piece], items: Sequence[str], cut: Callable[[str], Sequence[Sequence[str]]]
) -> list[Place]:
    """Return the place of every token and `<eos>` of items' pieces; `cut` splits written words into tokens."""
    places: list[Place] = []
    words, position = list[int](), 0
    for piece in pieces:
        if piece.opens and (not places or places[-1][0] != piece.sentence):
            text, position = items[piece.sentence - 1], 0
            tokens = cut(text)
            words = [number for number, word in enumerate(tokens, 1) for _ in word]
            words.append(len(tokens) + 1)
        for token in range(piece.start, piece.start + len(piece.words) + piece.closes):
            # white space at the end has the number of the line end
            places.append((piece.sentence, token, words[min(position, len(words) - 1)]))
            position += 1
        position -= piece.closes  # an <eos> has the number of the next word
    return places
