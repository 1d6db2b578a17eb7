"""What a model looks at while it reads one text, word by word: at words, or, with a span buffer, at spans of them.

A span of L steps that ends at word i stands for the words i − L + 1 … i, or those of them that there are; an output in
place of a span for word i (Li et al., 2020, Figure 5, Table 4).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spanlm.data.batching import Segment
from spanlm.data.vocabulary import EOS, Vocabulary
from spanlm.errors import InputError, require, whole_number
from spanlm.models.ensemble import EnsembleReadout
from spanlm.models.interfaces import Attention, MixingHead, NextWordModel, Readout
from spanlm.scoring.protocol import STANDARD
from spanlm.scoring.stream import STEPS, Question, Reading, Scored, evaluating, read, word_values
from spanlm.store.plain import finite

EXPECTED = 5
"""How many of the most probable next words are kept."""

PARTS = ("encoder", "buffer", "mixture")
"""What expects words in a model with a span buffer: each part alone, and both together."""

EXPECTED_OF_PART = 4
"""How many words are kept of what each part expected."""

MOST_WEIGHTS = 20_000_000
"""Of one record: of a memory that holds the whole text they are as many as the square of its words."""

Expected = list[tuple[str, float]]
"""The most probable next words with their probabilities, best first."""


class Predicted(NamedTuple):
    """What was predicted at each of N positions, of all words.

    Attributes:
        surprisal: (N,) float64, −ln p(target) in nats; NaN where nothing was predicted.
        entropy: (N,) float64, of the distribution, in nats; NaN likewise.
        rank: (N,) of the target, 1 if none was more probable; 0 where nothing was predicted.
    """

    surprisal: NDArray[np.float64]
    entropy: NDArray[np.float64]
    rank: NDArray[np.int64]


Place = tuple[int, int, int]
"""Where a token of an item is: in which item, its number there as a token, and that of its written word, all from 1."""


@dataclass(frozen=True, eq=False)
class AttentionRecord:
    """The attention of a model over one text of N words with a window of L (Daniluk et al. 2017, Fig. 3a).

    Position t is the moment after `words[t]` was read and before `targets[t]` was known. Column j of
    `weights` is lag i = L - 1 - j + `nearest_lag`: the weight given to `words[t - i]` while predicting `targets[t]`.

    Attributes:
        words: that were read; the first is the `<eos>` that opens the text, if one does.
        weights: (N, L) float32; a row sums to 1 but for what lies on no word, or is 0 while the memory is empty.
        surprisal: (N,) float64, -ln p(target) in nats; NaN where nothing was predicted.
        nearest_lag: of the last column: 1 where the memory ends at the word before the one just read, 0 where it holds
            that word, too.
        unknown: words that the vocabulary lacks: read as <unk>, shown as written.
        places: of items of a table, those of the targets, see `spanlm.scoring.words.places_of`.
        predicted: entropy and rank beside the surprisal.
        about: what the model is, in a line.
        features: (N, D), what the head read, if it was asked for.

    Raises:
        InputError: a number is infinite, or a weight is NaN or negative.
    """

    words: list[str]
    targets: list[str]
    weights: NDArray[np.float32]
    surprisal: NDArray[np.float64]
    expected: list[Expected]
    title: str
    nearest_lag: int = 1
    unknown: frozenset[str] = frozenset()
    places: Sequence[Place] = ()
    predicted: Predicted | None = None
    about: str = ""
    features: NDArray[np.floating[Any]] | None = None

    def __post_init__(self) -> None:
        """Refuse what a model with weights that are too large gives, so that no writer has to."""
        object.__setattr__(self, "weights", np.asarray(self.weights, dtype=np.float32))
        object.__setattr__(self, "surprisal", np.asarray(self.surprisal, dtype=np.float64))
        if not (np.isfinite(self.weights).all() and (self.weights >= 0).all()):
            raise InputError("record.weights: every weight must be a finite number that is not negative")
        if np.isinf(self.surprisal).any():
            raise InputError("record.surprisal: every surprisal must be a finite number of nats, or NaN")

    def __len__(self) -> int:
        return len(self.words)

    @property
    def window(self) -> int:
        """L, how many words the model could look at."""
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
        """(N, L) which slots held a word.

        A memory fills from its nearest lag on, so all that is older than the oldest weight is empty.
        """
        seen = np.logical_or.accumulate(self.weights > 0, axis=1)
        exists = np.arange(len(self))[:, None] >= np.asarray(self.lags)[None, :]
        return np.asarray(seen & exists, dtype=np.bool_)

    @property
    def settled(self) -> NDArray[np.float32]:
        """(M, L) the rows that scales of colours are for: few words share all the weight, so each has much.

        Full windows or, of a window that grows with the text, rows with at least half as many words as the longest.
        """
        slots = self.occupied.sum(axis=1)
        full = slots == self.window
        rows = full if full.sum() > 1 else 2 * slots >= max(int(slots.max()), 1)
        return np.asarray(self.weights[rows], dtype=np.float32)


class Look(NamedTuple):
    """A span that was looked at: the positions of its first and last word, and its weight."""

    first: int
    last: int
    weight: float


@dataclass(frozen=True, eq=False)
class SpanRecord:
    """A text of N words as a model with a span buffer read it.

    Position t is that of `AttentionRecord`.

    Attributes:
        weights: (N, B) float32; a span's weight is in the column of its last word, column j is lag
            B − 1 − j + `nearest_lag`.
        span: L, how many words a span stands for.
        nearest_lag: 1 where the newest span ends at the word before, 0 where it may end at the word itself.
        filled: (N,) bool, where there was a span to look at.
        gate: (N,) λ, without temperature: how much the buffer is preferred; means nothing where it is not filled.
        used: (N,) λ̂, the buffer's share of the mixture: the same with the temperature of evaluation.
        buffer: what the buffer alone expected; empty where there was no span.
        chance: (N, 3) what each of `PARTS` gave the word that came; NaN of the buffer where it is not filled.
        first_token: number of `words[0]` in the text they are from; of a text of its own, its first word is 1.
        starts: positions of the first words of its contexts; no span reaches beyond its own.
        unknown: words that the vocabulary lacks: read as <unk>, shown as written.
        predicted: surprisal, entropy and rank under the mixture.
        about: what the model is, in a line.
        features: (N, D), what the head read, if it was asked for.
    """

    words: list[str]
    targets: list[str]
    weights: NDArray[np.float32]
    span: int
    nearest_lag: int
    filled: NDArray[np.bool_]
    gate: NDArray[np.float64]
    used: NDArray[np.float64]
    encoder: list[Expected]
    buffer: list[Expected]
    mixture: list[Expected]
    chance: NDArray[np.float64]
    title: str
    first_token: int = 0
    starts: Sequence[int] = (0,)
    unknown: frozenset[str] = frozenset()
    predicted: Predicted | None = None
    about: str = ""
    features: NDArray[np.floating[Any]] | None = None

    def __len__(self) -> int:
        return len(self.words)

    def first(self, position: int) -> int:
        """Return where the context of a position begins."""
        return self.starts[bisect_right(self.starts, position) - 1]

    def looks(self, position: int) -> list[Look]:
        """Return the spans looked at from a position, the largest weight first."""
        row = self.weights[position]
        first = position + 1 - len(row) - self.nearest_lag
        ends = ((first + column, row[column]) for column in np.flatnonzero(row).tolist())
        found = [Look(max(self.first(position), end - self.span + 1), end, float(weight)) for end, weight in ends]
        return sorted(found, key=lambda look: (-look.weight, -look.last))

    def words_of(self, look: Look) -> str:
        return " ".join(self.words[look.first : look.last + 1])

    def to_json(self) -> dict[str, object]:
        """Return plain values; `spans` are first and last position and weight, the largest weight first."""
        positions = [
            {
                "word": self.words[t],
                "target": self.targets[t],
                "gate": float(self.gate[t]) if self.filled[t] else None,
                "spans": [list(look) for look in self.looks(t)],
                "encoder": self.encoder[t],
                "buffer": self.buffer[t],
                "mixture": self.mixture[t],
                "target_probability": dict(zip(PARTS, finite(self.chance[t].tolist()), strict=True)),
            }
            for t in range(len(self.words))
        ]
        unknown = sorted(self.unknown)
        return {"title": self.title, "span": self.span, "unknown": unknown, "positions": positions}


def attention_of(readout: Readout) -> Attention:
    """Return what a readout attended to; InputError: nothing, or several models as one."""
    if isinstance(readout, EnsembleReadout):
        raise InputError("several models as one have no attention of their own: look into them one by one")
    if readout.attention is None:
        raise InputError(
            "this model attends to nothing: it has no attention to show. "
            "Train one whose memory attends, as that of model.memory.kind=key_value."
        )
    return readout.attention


def check_attends(model: NextWordModel) -> None:
    """Read one word to see, before any work is done, whether there is attention at all; InputError: there is none."""
    with evaluating(model):
        word = torch.zeros(1, 1, dtype=torch.long, device=model.device)
        attention_of(model(word, model.init_state(1))[0])


def attend_words(
    model: NextWordModel,
    vocabulary: Vocabulary,
    targets: list[str],
    *,
    expected: int = EXPECTED,
    title: str = "",
    predict_first: bool = True,
    starts: Sequence[int] = (0,),
    places: Sequence[Place] = (),
    looks: bool = True,
    features: bool = False,
    about: str = "",
) -> AttentionRecord:
    """Read words, line ends among them, opened by <eos> and an empty state: as a document of a corpus is read.

    Where one of several contexts is not opened, nothing is predicted at its first word: no weights, no expected words,
    and a surprisal of NaN.

    Unknown words are read as <unk> and shown as written. `starts` are the indices in `targets` of the first words of
    contexts; the state is reset there. If <eos> does not open the words, the first is read and not predicted. So many
    of the most probable next words are kept as `expected`. Without `looks` there are no weights, L = 0, and any model
    can be asked. With `features` what the head read is kept, too.

    Raises:
        InputError: `expected` below 1, too few words, a model that attends to nothing, or more weights than
            `MOST_WEIGHTS`.
    """
    found = _Found(model, vocabulary, targets, predict_first, starts, expected, looks, features, ("",))
    return AttentionRecord(
        words=found.words,
        targets=found.targets,
        weights=found.weights,
        surprisal=found.predicted.surprisal,
        expected=found.expected(""),
        title=title,
        nearest_lag=found.looks.nearest_lag,
        unknown=found.unknown,
        predicted=found.predicted,
        places=places if predict_first else places[1:],
        about=about,
        features=found.numbers.get("features"),
    )


def attend_spans(
    model: NextWordModel,
    vocabulary: Vocabulary,
    targets: list[str],
    *,
    expected: int = EXPECTED_OF_PART,
    title: str = "",
    predict_first: bool = True,
    first_token: int = 1,
    starts: Sequence[int] = (0,),
    features: bool = False,
    about: str = "",
) -> SpanRecord:
    """Read words with a model with a span buffer, as `attend_words` does.

    As many words are kept as `expected` of each part. `first_token` is the number of the first of the words in their
    text.

    Raises:
        InputError: too few words, `expected` below 1, a model without a span buffer, or more weights than
            `MOST_WEIGHTS`.
    """
    found = _Found(model, vocabulary, targets, predict_first, starts, expected, True, features, PARTS)
    chance, filled = np.stack([found.numbers[f"{part}chance"] for part in PARTS], 1), found.numbers["filled"]
    chance[found.unpredicted], filled[found.unpredicted] = np.nan, False
    chance[~filled, PARTS.index("buffer")] = np.nan
    encoder, buffer, mixture = map(found.expected, PARTS)
    return SpanRecord(
        words=found.words,
        targets=found.targets,
        weights=found.weights,
        span=found.looks.stride,
        nearest_lag=found.looks.nearest_lag,
        filled=filled,
        gate=found.numbers["gate"],
        used=found.numbers["used"],
        encoder=encoder,
        buffer=[row if there else [] for row, there in zip(buffer, filled, strict=True)],
        mixture=mixture,
        chance=chance,
        title=title,
        first_token=first_token - predict_first,  # <eos> stands before it
        starts=starts,
        unknown=found.unknown,
        predicted=found.predicted,
        about=about,
        features=found.numbers.get("features"),
    )


class _Looks:
    """Asks for the attention of words, of which there are so many: answers `weights` (N, L) by lag, if `wanted`."""

    nearest_lag = stride = 1

    def __init__(self, words: int, wanted: bool) -> None:
        self._words, self._wanted = words, wanted

    def __call__(self, reading: Reading) -> Mapping[str, Tensor]:
        if not self._wanted:
            return {"weights": reading.readout.features.new_zeros(len(reading.rows), 0)}
        attention = attention_of(reading.readout)
        self.nearest_lag, self.stride = attention.nearest_lag, attention.stride
        weights = reading.flat(attention.by_lag())
        if self._words * weights.shape[1] > MOST_WEIGHTS:
            raise InputError(
                f"a text of {self._words:,} words, each with {weights.shape[1]:,} weights or more, has too many "
                f"weights: must be at most {MOST_WEIGHTS:,}. Attend to a part of it."
            )
        return {"weights": weights.float()}


def _expects(reading: Reading, parts: Sequence[str], count: int) -> Mapping[str, Tensor]:
    """Answer surprisal, entropy and rank, and, after the name of each part, its most probable words and what it gave.

    The last of the parts is the model as a whole, which is "" where it has but one.
    """
    targets, numbers = reading.flat(reading.segment.targets), dict[str, Tensor]()
    log_probs = [reading.flat(reading.model.head.log_probs(reading.readout))] if parts == ("",) else []
    if not log_probs:
        mixture, head = reading.readout.mixture, reading.model.head
        mixed = mixture.parts(head, reading.readout.features) if mixture and isinstance(head, MixingHead) else None
        if mixed is None:
            raise InputError("this model looks at no spans: train one with model.memory.kind=span_buffer")
        log_probs = [reading.flat(x).double() for x in mixed.log_probs.values()]
        columns = {"filled": mixed.there, "gate": mixed.preference.double(), "used": mixed.share.double()}
        numbers = {name: reading.flat(x) for name, x in columns.items()}
    for part, log_p in zip(parts, log_probs, strict=True):
        top = log_p.topk(min(count, log_p.shape[1]), dim=1)
        numbers |= {f"{part}words": top.indices, f"{part}chances": top.values.exp()}
        numbers[f"{part}chance"] = log_p.gather(1, targets.unsqueeze(1)).squeeze(1).exp()
    return numbers | dict(zip(Predicted._fields, word_values(log_probs[-1], targets), strict=True))


def _features(reading: Reading) -> Mapping[str, Tensor]:
    return {"features": reading.flat(reading.readout.features)}


class _Found:
    """A text as a model reads it, a few steps at a time: only of these all probabilities are held.

    Where a context is not opened, no word is predicted before it begins: these steps, `unpredicted`, have no weights
    and expect nothing.
    """

    def __init__(
        self,
        model: NextWordModel,
        vocabulary: Vocabulary,
        text: list[str],
        predict_first: bool,
        starts: Sequence[int],
        expected: int,
        looks: bool,
        features: bool,
        parts: tuple[str, ...],
    ) -> None:
        expected = whole_number("expected", expected)
        whole = [EOS, *text] if predict_first else text
        require(len(whole) > 1, "targets", text, f"at least {1 if predict_first else 2} words")
        self.words, self.targets = whole[:-1], whole[1:]
        self.unknown = frozenset(word for word in text if word not in vocabulary)
        self.unpredicted = [] if predict_first else [start - 1 for start in starts[1:]]
        self._vocabulary, self.looks = vocabulary, _Looks(len(self.words), looks)
        questions: list[Question] = [
            self.looks,
            partial(_expects, parts=parts, count=expected),
            *[_features] * features,
        ]
        segments = one_text(vocabulary.encode(whole), starts, STEPS)
        scored = Scored.joined([*read(model, segments, STANDARD, *questions)])
        self.numbers: dict[str, NDArray[Any]] = {name: scored.numpy(name) for name in scored.answers}
        self.weights: NDArray[np.float32] = self.numbers["weights"]
        for name, nothing in (("weights", 0), ("surprisal", np.nan), ("entropy", np.nan), ("rank", 0)):
            self.numbers[name][self.unpredicted] = nothing

    @property
    def predicted(self) -> Predicted:
        return Predicted(*(self.numbers[name] for name in Predicted._fields))

    def expected(self, part: str) -> list[Expected]:
        words, chances = (self.numbers[f"{part}{name}"].tolist() for name in ("words", "chances"))
        rows = [
            [*zip(map(self._vocabulary.word, row), chance, strict=True)]
            for row, chance in zip(words, chances, strict=True)
        ]
        for position in self.unpredicted:
            rows[position] = []
        return rows


def one_text(ids: Sequence[int], starts: Sequence[int], steps: int) -> Iterator[Segment]:
    """Cut one text into segments of at most so many steps; contexts begin at the steps `starts`."""
    whole = torch.tensor(ids).unsqueeze(1)
    for begin, end in pairwise([*starts, len(ids) - 1]):
        for first in range(begin, end, steps):
            last = min(first + steps, end)
            targets, place = whole[first + 1 : last + 1], torch.arange(first, last).unsqueeze(1)
            reset = torch.tensor([first == begin])
            yield Segment(whole[first:last], targets, torch.ones_like(targets, dtype=torch.bool), reset, place)
