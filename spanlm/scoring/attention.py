"""Record a model's attention and its expected next words while it reads one text.

A slot stands for one word or for a span: a span of L words that ends at word i holds the words i − L + 1 … i, fewer at
the beginning of a context (Li et al., 2020, Figure 5, Table 4).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spanlm.data.subwords import Subwords
from spanlm.data.tokenizer import Tokenizer, written_words
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError, require, whole_number
from spanlm.models.ensemble import EnsembleReadout
from spanlm.models.interfaces import Attention, Head, MixingHead, NextWordModel, Parts, Readout
from spanlm.scoring.fold import fold
from spanlm.scoring.options import EXPECTED, EXPECTED_OF_PART
from spanlm.scoring.protocol import STANDARD
from spanlm.scoring.stream import STEPS, Question, Reading, Scored, evaluating, log_sum, read, side_by_side, word_values
from spanlm.store.plain import finite

MOST_WEIGHTS = 20_000_000
"""Limit for one record: a memory of the whole text has as many weights as the square of its words."""

Expected = list[tuple[str, float]]
"""The most probable next words with their probabilities, best first."""

Place = tuple[int, int, int]
"""The numbers of a token's item, of the token in the item, and of its written word in the item, all from 1."""


class Look(NamedTuple):
    """An attended slot: the positions of its first and last word, and its weight."""

    first: int
    last: int
    weight: float


@dataclass(frozen=True, eq=False)
class PartsRecord:
    """Predictions of each part of a mixture at N positions, see `spanlm.models.interfaces.Parts`.

    Attributes:
        expected: by part, the mixture last: the most probable words; empty where the part predicted nothing.
        chance: by part: (N,) p of the next word; NaN where the part predicted nothing.
        there: (N,) bool, whether the second distribution, beside the head's, existed.
        preference: (N,) the gate's value for it, without temperature; meaningless where it did not exist.
        share: (N,) its share of the mixture.
    """

    expected: Mapping[str, list[Expected]]
    chance: Mapping[str, NDArray[np.float64]]
    there: NDArray[np.bool_]
    preference: NDArray[np.float64]
    share: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AttentionRecord:
    """The attention of a model over one text of N words, at L lags (Daniluk et al. 2017, Fig. 3a).

    Position t is the moment after `words[t]` was read and before `targets[t]` was known. Column j of `weights` is lag
    i = L - 1 - j + `nearest_lag`: the weight given to the slot that ends with `words[t - i]` while predicting
    `targets[t]`.

    Attributes:
        words: words read; the first is the `<eos>` that opens the text, if any.
        weights: (N, L) float32; a row sums to 1, less the weight on slots without a word, or to 0 while the memory is
            empty.
        surprisal: (N,) float64, -ln p(target) in nats; NaN where nothing was predicted.
        entropy: (N,) float64, of the predicted distribution, in nats; NaN where nothing was predicted.
        rank: (N,) of the target, 1 if no word was more probable; 0 where nothing was predicted.
        expected: the most probable words before each target.
        nearest_lag: lag of the last column: 0 if the memory holds the word just read, 1 if it ends before that word.
        span: number of words per slot.
        first_token: number of `words[0]` in the source text, whose first word is 1.
        starts: positions where contexts begin; no slot reaches beyond its own context.
        unknown: words outside the vocabulary: read as <unk>, shown as written.
        places: for items of a table, the places of the targets, see `spanlm.scoring.words.places_of`; of written words,
            those of their first tokens.
        parts: predictions of the parts, for a mixture that names them.
        about: the model in one line.
        features: (N, D), the head's input, if requested.
        ends: (N,) log e(c), see `spanlm.scoring.fold`, of tokens below the word.
        of_written_words: whether rows and columns are written words, see `by_written_word`.

    Raises:
        InputError: a number is infinite, or a weight is NaN or negative.
    """

    words: list[str]
    targets: list[str]
    weights: NDArray[np.float32]
    surprisal: NDArray[np.float64]
    entropy: NDArray[np.float64]
    rank: NDArray[np.int64]
    expected: list[Expected]
    title: str
    nearest_lag: int = 1
    span: int = 1
    first_token: int = 0
    starts: Sequence[int] = (0,)
    unknown: frozenset[str] = frozenset()
    places: Sequence[Place] = ()
    parts: PartsRecord | None = None
    about: str = ""
    features: NDArray[np.floating[Any]] | None = None
    ends: NDArray[np.float64] | None = None
    of_written_words: bool = False

    def __post_init__(self) -> None:
        """Refuse numbers of a diverged model here, so that no writer has to."""
        object.__setattr__(self, "weights", np.asarray(self.weights, dtype=np.float32))
        object.__setattr__(self, "surprisal", np.asarray(self.surprisal, dtype=np.float64))
        if not (np.isfinite(self.weights).all() and (self.weights >= 0).all()):
            raise InputError("record.weights", limit="every weight must be a finite number that is not negative")
        if np.isinf(self.surprisal).any():
            raise InputError("record.surprisal", limit="every surprisal must be a finite number of nats, or NaN")

    def __len__(self) -> int:
        return len(self.words)

    def is_unknown(self, word: str) -> bool:
        """Whether a word was read as <unk>, also if the text itself has <unk>."""
        return word == UNK or word in self.unknown

    def to_json(self) -> dict[str, Any]:
        """Return what maps of a record without parts show; `from_json` gives it back, without expected words."""
        return {
            "title": self.title,
            "words": self.words,
            "targets": self.targets,
            "unknown": sorted(self.unknown),
            "nearest_lag": self.nearest_lag,
            "surprisal_nats": finite(self.surprisal.tolist()),
            "weights": [[float(f"{weight:.6g}") for weight in row] for row in self.weights.tolist()],
        }

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> Self:
        count = len(tree["words"])
        return cls(
            words=tree["words"],
            targets=tree["targets"],
            weights=np.array(tree["weights"], dtype=np.float32),
            surprisal=np.array(tree["surprisal_nats"], dtype=np.float64),  # None is NaN
            entropy=np.full(count, np.nan),
            rank=np.zeros(count, dtype=np.int64),
            expected=[[] for _ in range(count)],
            title=tree["title"],
            nearest_lag=tree["nearest_lag"],
            unknown=frozenset(tree["unknown"]),
        )

    @property
    def window(self) -> int:
        """L, the number of lags."""
        return int(self.weights.shape[1])

    @property
    def lags(self) -> range:
        """The lag of each column of `weights`, down to the nearest."""
        return range(self.window - 1 + self.nearest_lag, self.nearest_lag - 1, -1)

    @cached_property
    def bits(self) -> NDArray[np.float64]:
        """(N,) surprisal in bits, -log2 p(target)."""
        return np.asarray(self.surprisal / np.log(2.0), dtype=np.float64)

    @cached_property
    def occupied(self) -> NDArray[np.bool_]:
        """(N, L) bool, which slots held a word.

        A memory fills from the nearest lag on, so slots older than the oldest weight are empty.
        """
        seen = np.logical_or.accumulate(self.weights > 0, axis=1)
        exists = np.arange(len(self))[:, None] >= np.asarray(self.lags)[None, :]
        return np.asarray(seen & exists, dtype=np.bool_)

    @property
    def settled(self) -> NDArray[np.float32]:
        """(M, L) rows that set the colour scale: early rows would distort it, as few words share all the weight.

        These are rows with a full window, or, if the window grows with the text, at least half as many words as the
        longest row.
        """
        slots = self.occupied.sum(axis=1)
        full = slots == self.window
        rows = full if full.sum() > 1 else 2 * slots >= max(int(slots.max()), 1)
        return np.asarray(self.weights[rows], dtype=np.float32)

    def first(self, position: int) -> int:
        """Return the position where the context of a position begins."""
        return self.starts[bisect_right(self.starts, position) - 1]

    def looks(self, position: int) -> list[Look]:
        """Return the slots with weight at a position, the largest weight first."""
        row, first = self.weights[position], self.first(position)
        ends = ((position - self.lags[column], row[column]) for column in np.flatnonzero(row).tolist())
        looks = [Look(max(first, end - self.span + 1), end, float(weight)) for end, weight in ends]
        return sorted(looks, key=lambda look: (-look.weight, -look.last))

    def words_of(self, look: Look) -> str:
        return " ".join(self.words[look.first : look.last + 1])


def attention_of(readout: Readout) -> Attention:
    """Return the attention of a readout; InputError: it has none, or is an ensemble's."""
    if isinstance(readout, EnsembleReadout):
        raise InputError("several models as one have no attention of their own: look into them one by one")
    if readout.attention is None:
        raise InputError(
            "this model's memory attends to nothing, so there is no attention to show. "
            "Train one whose memory attends, as that of model.memory.kind=key_value."
        )
    return readout.attention


def check_attends(model: NextWordModel) -> Attention:
    """Return the attention at one word, as a check before long work; InputError: the model does not attend."""
    return attention_of(_first_readout(model))


def has_parts(model: NextWordModel) -> bool:
    """Whether records of a model have `parts`."""
    with evaluating(model):
        return _parts_of(model.head, _first_readout(model)) is not None


def _first_readout(model: NextWordModel) -> Readout:
    with evaluating(model):
        word = torch.zeros(1, 1, dtype=torch.long, device=model.device)
        readout: Readout = model(word, model.init_state(1))[0]
    return readout


def _parts_of(head: Head, readout: Readout) -> Parts | None:
    if readout.mixture is None or not isinstance(head, MixingHead):
        return None
    return readout.mixture.parts(head, readout.features)


def attention_record(
    model: NextWordModel,
    vocabulary: Vocabulary,
    targets: list[str],
    *,
    expected: int | None = None,
    title: str = "",
    predict_first: bool = True,
    first_token: int = 1,
    starts: Sequence[int] = (0,),
    places: Sequence[Place] = (),
    looks: bool = True,
    features: bool = False,
    about: str = "",
    word_ends: Sequence[int] | None = None,
) -> AttentionRecord:
    """Read `targets`, which include line ends, after <eos> and from an empty state, like a document of a corpus.

    Without `predict_first` no <eos> opens the words, and the first is read but not predicted. Unknown words are read as
    <unk> and shown as written. `starts` are the indices in `targets` where contexts begin; the state is reset there. If
    no <eos> opens a context, its first word is not predicted: it has no weights, no expected words, and a surprisal of
    NaN. `first_token` is the number of `targets[0]` in the source text.

    `expected` is how many of the most probable next words are kept; None: `EXPECTED`, or `EXPECTED_OF_PART` per part.
    Without `looks` there are no weights, L = 0, and any model will do. With `features` the head's input is kept,
    and with `word_ends`, see `spanlm.data.tokenizer.Tokenizer`, `ends`.

    Raises:
        InputError: `expected` is below 1, there are too few words, the model does not attend, or there are more weights
            than `MOST_WEIGHTS`.
    """
    whole = [EOS, *targets] if predict_first else targets
    require(len(whole) > 1, "targets", targets, f"at least {1 if predict_first else 2} words")
    count = None if expected is None else whole_number("expected", expected)
    ends = None if word_ends is None else torch.tensor(word_ends, device=model.device)
    question = _Question(len(whole) - 1, count, looks, ends)
    numbers = _numbers(model, vocabulary.encode(whole), starts, [question, *[_features] * features])
    silent = _silenced(numbers, () if predict_first else starts[1:], len(whole) - 1)
    expectations, parts = _expected_by_part(vocabulary, question.parts, numbers, silent)
    return AttentionRecord(
        words=whole[:-1],
        targets=whole[1:],
        weights=numbers["weights"],
        surprisal=numbers["surprisal"],
        entropy=numbers["entropy"],
        rank=numbers["rank"],
        expected=expectations[question.parts[-1]],
        title=title,
        nearest_lag=question.nearest_lag,
        span=question.span,
        first_token=first_token - predict_first,  # <eos> comes before it
        starts=starts,
        unknown=frozenset(word for word in targets if word not in vocabulary),
        places=places if predict_first else places[1:],
        parts=parts,
        about=about,
        features=numbers.get("features"),
        ends=numbers.get("end"),
    )


def _silenced(numbers: Mapping[str, NDArray[Any]], starts: Sequence[int], count: int) -> NDArray[np.bool_]:
    """Empty the answers before the first words of contexts that no <eos> opens; return where of `count` these are."""
    silent = np.zeros(count, dtype=np.bool_)
    silent[[start - 1 for start in starts]] = True
    for name, nothing in (("weights", 0), ("surprisal", np.nan), ("entropy", np.nan), ("rank", 0), ("there", False)):
        if name in numbers:
            numbers[name][silent] = nothing
    return silent


def _numbers(
    model: NextWordModel, ids: Sequence[int], starts: Sequence[int], questions: Sequence[Question]
) -> dict[str, NDArray[Any]]:
    """Read contexts from an empty state, and return the answers for every token but the first, (N, …)."""
    contexts = ((ids[begin : end + 1], begin) for begin, end in pairwise([*starts, len(ids) - 1]))
    segments = (x for run, begin in contexts for x in side_by_side([run], [begin], steps=STEPS, fresh=True))
    scored = Scored.joined([*read(model, segments, STANDARD, *questions)])
    return {name: scored.numpy(name) for name in scored.answers}


def _expected_by_part(
    vocabulary: Vocabulary, names: Sequence[str], numbers: Mapping[str, NDArray[Any]], silent: NDArray[np.bool_]
) -> tuple[dict[str, list[Expected]], PartsRecord | None]:
    """Return what each part expected, nothing where `silent` (N,), and the record of a mixture's parts."""
    expectations, chances = dict[str, list[Expected]](), dict[str, NDArray[np.float64]]()
    for name in names:
        empty = silent | ~numbers["there"] if name in names[1:-1] else silent
        expectations[name] = _spelled(vocabulary, numbers[f"{name} words"], numbers[f"{name} chances"], empty)
        chances[name] = np.where(empty, np.nan, numbers[f"{name} chance"])
    if len(names) == 1:
        return expectations, None
    return expectations, PartsRecord(expectations, chances, numbers["there"], numbers["preference"], numbers["share"])


def _spelled(
    vocabulary: Vocabulary, ids: NDArray[Any], chances: NDArray[Any], silent: NDArray[np.bool_]
) -> list[Expected]:
    """Spell the most probable words of each position, (N, K) by id; empty where `silent`."""
    rows = zip(ids.tolist(), chances.tolist(), silent.tolist(), strict=True)
    return [[] if empty else [*zip(map(vocabulary.word, words), row, strict=True)] for words, row, empty in rows]


class _Question:
    """Question about the attention and the expected words of a model, or of each part of a mixture.

    Answers `weights` (N, L) by lag, L = 0 without `looks`; surprisal, entropy and rank; and for each part, prefixed by
    its name, the most probable words, their probabilities, and the target's. The last part is the whole model; its name
    is "" if the model is no mixture.
    """

    nearest_lag = span = 1
    parts: Sequence[str] = ()

    def __init__(self, words: int, expected: int | None, looks: bool, ends: Tensor | None = None) -> None:
        self._words, self._expected, self._looks, self._ends = words, expected, looks, ends

    def __call__(self, reading: Reading) -> Mapping[str, Tensor]:
        head, readout, targets = reading.model.head, reading.readout, reading.flat(reading.segment.targets)
        numbers = {"weights": self._weights(reading)}
        mixed = _parts_of(head, readout)
        if mixed is None:
            log_probs = {"": reading.flat(head.log_probs(readout))}
        else:
            log_probs = {name: reading.flat(x).double() for name, x in mixed.log_probs.items()}
            columns = {"there": mixed.there, "preference": mixed.preference.double(), "share": mixed.share.double()}
            numbers |= {name: reading.flat(x) for name, x in columns.items()}
        self.parts = [*log_probs]
        count = self._expected or (EXPECTED if mixed is None else EXPECTED_OF_PART)
        for part, log_p in log_probs.items():
            top = log_p.topk(min(count, log_p.shape[1]), dim=1)
            numbers |= {f"{part} words": top.indices, f"{part} chances": top.values.exp()}
            numbers[f"{part} chance"] = log_p.gather(1, targets.unsqueeze(1)).squeeze(1).exp()
        if self._ends is not None:
            numbers["end"] = log_sum(log_probs[self.parts[-1]], self._ends)
        values = word_values(log_probs[self.parts[-1]], targets)
        return numbers | dict(zip(("surprisal", "entropy", "rank"), values, strict=True))

    def _weights(self, reading: Reading) -> Tensor:
        if not self._looks:
            return reading.readout.features.new_zeros(len(reading.rows), 0)
        attention = attention_of(reading.readout)
        self.nearest_lag, self.span = attention.nearest_lag, attention.stride
        weights = reading.flat(attention.by_lag())
        if self._words * weights.shape[1] > MOST_WEIGHTS:
            raise InputError(
                f"a text of {self._words:,} words, each with {weights.shape[1]:,} weights or more, has too many "
                f"weights: must be at most {MOST_WEIGHTS:,}. Attend to a part of it."
            )
        return weights.float()


def _features(reading: Reading) -> Mapping[str, Tensor]:
    return {"features": reading.flat(reading.readout.features)}


def by_written_word(record: AttentionRecord, tokenizer: Tokenizer) -> AttentionRecord:
    """Return the record of a model of tokens below the word by written word, without parts and features.

    Row and column are words and line ends. A row is where the model looked before the first token of its word; the
    weights of an earlier word's tokens are summed. Surprisal is that of the whole word, see `spanlm.scoring.fold`.

    Raises:
        InputError: the tokens are words, or the slots are spans.
    """
    if not isinstance(tokenizer, Subwords):
        raise InputError("rows", "words", "is for data.tokenizer=characters, bytes, bpe or unigram; these are words")
    if record.span > 1:
        raise InputError("rows", "words", f"the model looks at spans of {record.span} tokens, which are no words")
    whole, opened = [record.words[0], *record.targets], record.first_token == 0 and record.words[0] == EOS
    texts, sizes = zip(*[(EOS, 1)] * opened, *_units(whole[opened:], tokenizer), strict=True)
    bounds = [*accumulate(sizes, initial=0)]
    owner = np.repeat(np.arange(len(texts)), sizes)
    firsts = bounds[1:-1]
    weights = np.zeros((len(firsts), len(texts)), np.float32)
    lags = np.asarray(record.lags)
    for row, first in enumerate(firsts):  # predicted at the position before
        sources = first - 1 - lags
        held = sources >= 0
        # column L − 1 − lag, of L words
        np.add.at(weights[row], len(texts) - 1 - (row - owner[sources[held]]), record.weights[first - 1][held])
    used = np.flatnonzero(weights.any(axis=0))
    places = [first - 1 for first in firsts]
    ends = record.ends if record.ends is not None else np.zeros(len(record))
    closing = {number for number, text in enumerate(texts) if text == EOS}
    sums = fold([np.nan, *record.surprisal.tolist()], [np.nan, *ends.tolist()], bounds, closing)
    starts = sorted({max(0, int(owner[start + 1]) - 1) for start in record.starts})
    return replace(
        record,
        words=[*texts[:-1]],
        targets=[*texts[1:]],
        weights=weights[:, (used[0] if len(used) else len(texts) - 1) :],
        surprisal=np.array(sums[1:]),
        entropy=record.entropy[places],
        rank=record.rank[places],
        expected=[record.expected[place] for place in places],
        nearest_lag=0,
        starts=starts,
        places=[record.places[at] for at in places] if record.places else (),
        parts=None,
        ends=None,
        features=None,
        of_written_words=True,
    )


def _units(tokens: Sequence[str], tokenizer: Subwords) -> list[tuple[str, int]]:
    """Return the written words and line ends that tokens make, with their numbers of tokens."""
    ends = [at for at, token in enumerate(tokens) if token == EOS]
    units = list[tuple[str, int]]()
    for start, end in pairwise([-1, *ends, *([len(tokens)] if len(tokens) - 1 not in ends else [])]):
        read = tokens[start + 1 : end]  # an excerpt may end within a word, and within a character
        *words, rest = map(len, tokenizer.grouped(read))
        line = b"".join(tokenizer.spelled(read)).decode(errors="replace")
        units += zip(written_words(line), words, strict=True)
        units += [(EOS, rest + 1)] * (end < len(tokens)) or [("", rest)] * (rest > 0)
    return units
