"""What a model looks at while it reads one text, word by word."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spanlm.data.vocabulary import EOS, Vocabulary
from spanlm.errors import InputError, require
from spanlm.evaluation.scoring import evaluating
from spanlm.models.ensemble import EnsembleReadout
from spanlm.models.interfaces import Attention, NextWordModel, Readout

EXPECTED = 5
"""How many of the most probable next words are kept."""
STEPS = 128
MOST_WEIGHTS = 20_000_000
"""Of one record: of a memory that holds the whole text they are as many as the square of its words."""

Expected = list[tuple[str, float]]
"""The most probable next words with their probabilities, best first."""


@dataclass(frozen=True, eq=False)
class AttentionRecord:
    """The attention of a model over one text of N words with a window of L (Daniluk et al. 2017, Fig. 3a).

    Position t is the moment after `words[t]` was read and before `targets[t]` was known. Column j of
    `weights` is lag i = L - 1 - j + `nearest_lag`: the weight given to `words[t - i]` while predicting `targets[t]`.

    Attributes:
        words: N words that were read; the first is the `<eos>` that opens the text, if one does.
        targets: N words that came next.
        weights: (N, L) float32; a row sums to 1 but for what lies on no word, or is 0 while the memory is empty.
        surprisal: (N,) float64, -ln p(target) in nats; NaN where nothing was predicted.
        expected: For each position the most probable next words with their probabilities, best first.
        title: What produced the record, for captions.
        nearest_lag: The lag of the last column: 1 where the memory ends at the word before the one just read, 0
            where it holds that word, too.

    Raises:
        InputError: If the shapes do not fit together, a number is infinite, or a weight is NaN or negative.
    """

    words: list[str]
    targets: list[str]
    weights: NDArray[np.float32]
    surprisal: NDArray[np.float64]
    expected: list[Expected]
    title: str
    nearest_lag: int = 1

    def __post_init__(self) -> None:
        """Check every shape against the number of words, so that no writer has to."""
        object.__setattr__(self, "weights", np.asarray(self.weights, dtype=np.float32))
        object.__setattr__(self, "surprisal", np.asarray(self.surprisal, dtype=np.float64))
        count = len(self.words)
        require(count > 0, "record.words", "[]", "at least one word")
        shape = self.weights.shape
        fits = len(shape) == 2 and shape[0] == count and shape[1] > 0
        limit = f"({count}, L) for {count} words, with a window L of at least 1"
        require(fits, "record.weights.shape", shape, limit)
        require(self.nearest_lag >= 0, "record.nearest_lag", self.nearest_lag, "at least 0")
        for field, found in (("targets", len(self.targets)), ("expected", len(self.expected))):
            require(found == count, f"len(record.{field})", found, f"{count}, one for each word")
        require(self.surprisal.shape == (count,), "record.surprisal.shape", self.surprisal.shape, f"({count},)")
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


def attention_of(readout: Readout) -> Attention:
    """Return what a readout attended to.

    Raises:
        InputError: a model that attends to nothing, or several as one.
    """
    if isinstance(readout, EnsembleReadout):
        raise InputError("several models as one have no attention of their own: look into them one by one")
    if readout.attention is None:
        raise InputError(
            "this model attends to nothing: it has no attention to show. "
            "Train one with model.memory.kind=key_value (attention, key-value, key-value-predict), recurrent_memory, "
            "attentive, pointer_sentinel or span_buffer."
        )
    return readout.attention


def shifted(
    text: list[str], opened: bool, expected: int, starts: Sequence[int]
) -> tuple[list[str], list[str], list[int]]:
    """Return the words that are read, the first of them <eos> if the text is opened, and those that come next.

    The last are the positions at which nothing is predicted: before a context that is not opened.

    Raises:
        InputError: nothing would come next, or `expected`, of which only this is known, is below 1.
    """
    require(expected >= 1, "expected", expected, "at least 1")
    read = [EOS, *text] if opened else text
    require(len(read) > 1, "targets", text, f"at least {1 if opened else 2} words")
    return read[:-1], read[1:], [] if opened else [start - 1 for start in starts[1:]]


def read_parts(
    model: NextWordModel, vocabulary: Vocabulary, words: list[str], targets: list[str], starts: Sequence[int]
) -> Iterator[tuple[Readout, Tensor]]:
    """Read words some steps at a time, each of their contexts from an empty state: only these have probabilities held.

    Yields readouts of N steps and their targets (N, 1); to be used inside `evaluating`.

    Raises:
        InputError: more weights than `MOST_WEIGHTS`.
    """
    inputs, following = vocabulary.encode(words), vocabulary.encode(targets)
    for begin, end in pairwise([*starts, len(inputs)]):
        state = model.init_state(1)
        for start in range(begin, end, STEPS):
            one = slice(start, min(start + STEPS, end))
            read, came = (torch.tensor(ids[one], device=model.device).unsqueeze(1) for ids in (inputs, following))
            readout, state = model(read, state)
            yield readout, came
            attention = attention_of(readout)
            held = attention.weights.shape[-1] * attention.stride
            if len(inputs) * held > MOST_WEIGHTS:
                raise InputError(
                    f"a text of {len(inputs):,} words, each with {held:,} weights or more, has too many weights: "
                    f"must be at most {MOST_WEIGHTS:,}. Attend to a part of it."
                )


def spelled(vocabulary: Vocabulary, top: torch.return_types.topk) -> list[Expected]:
    """Spell the most probable words of some steps; `top` is of log-probabilities (N, n)."""
    rows = zip(top.indices.tolist(), top.values.exp().tolist(), strict=True)
    return [[(vocabulary.word(word), chance) for word, chance in zip(*row, strict=True)] for row in rows]


def attend_words(
    model: NextWordModel,
    vocabulary: Vocabulary,
    targets: list[str],
    *,
    expected: int = EXPECTED,
    title: str = "",
    opened: bool = True,
    starts: Sequence[int] = (0,),
) -> AttentionRecord:
    """Read words, line ends among them, opened by <eos> and an empty state: as a document of a corpus is read.

    Where one of several contexts is not opened, nothing is predicted at its first word: no weights, no expected words,
    and a surprisal of NaN.

    Args:
        model: with attention.
        vocabulary: the model's; other words are read as <unk> and shown as written.
        targets: the words, at least one, or two if they are not opened.
        expected: how many of the most probable next words to keep.
        title: for captions.
        opened: <eos> opens the words; if not, the first is read and not predicted.
        starts: the index in `targets` of the first word of each context, which knows nothing of those before.

    Raises:
        InputError: `expected` below 1, too few words, a model that attends to nothing, or more weights than
            `MOST_WEIGHTS`.
    """
    words, targets, unpredicted = shifted(targets, opened, expected, starts)
    with evaluating(model):
        parts = [
            _part(model, readout, came, expected=expected)
            for readout, came in read_parts(model, vocabulary, words, targets, starts)
        ]
    weights = _joined([part.weights.float().numpy() for part in parts])
    surprisal = np.concatenate([part.surprisal.double().numpy() for part in parts])
    expecting = [row for part in parts for row in spelled(vocabulary, part.top)]
    weights[unpredicted], surprisal[unpredicted] = 0, np.nan
    for position in unpredicted:
        expecting[position] = []
    return AttentionRecord(
        words=words,
        targets=targets,
        weights=weights,
        surprisal=surprisal,
        expected=expecting,
        title=title,
        nearest_lag=parts[0].nearest_lag,
    )


def _joined(parts: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Lay rows (N, L) of attention end to end; a window that grew from part to part was empty where it was shorter."""
    widest = max(part.shape[1] for part in parts)
    return np.concatenate([np.pad(part, ((0, 0), (widest - part.shape[1], 0))) for part in parts])


class _Part(NamedTuple):
    """Some positions: weights (N, L), surprisal (N,) in nats, log-probabilities of the most probable next words."""

    weights: Tensor
    surprisal: Tensor
    top: torch.return_types.topk
    nearest_lag: int


def _part(model: NextWordModel, readout: Readout, targets: Tensor, *, expected: int) -> _Part:
    log_p = model.head.log_probs(readout)[:, 0]
    top = log_p.topk(min(expected, log_p.shape[1]), dim=1)
    attention = attention_of(readout)
    return _Part(
        attention.by_lag()[:, 0].cpu(),
        -log_p.gather(1, targets).squeeze(1).cpu(),
        type(top)((top.values.cpu(), top.indices.cpu())),
        attention.nearest_lag,
    )


def check_attends(model: NextWordModel) -> None:
    """Read one word to see whether there is attention at all, before any work is done.

    Raises:
        InputError: A model that attends to nothing.
    """
    with evaluating(model):
        word = torch.zeros(1, 1, dtype=torch.long, device=model.device)
        attention_of(model(word, model.init_state(1))[0])
