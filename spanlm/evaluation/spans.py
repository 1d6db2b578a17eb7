"""What a span buffer looked at in a text, and what each part expected (Li et al., 2020, Figure 5, Table 4).

A span of L steps that ends at word i stands for the words i − L + 1 … i, or those of them that there are; an output in
place of a span for word i.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError
from spanlm.evaluation.attention import Expected, read_parts, shifted, spelled
from spanlm.evaluation.scoring import evaluating
from spanlm.models.interfaces import MixingHead, NextWordModel, Readout
from spanlm.models.memories.span_buffer import SpanMixture
from spanlm.store.plain import finite

PARTS = ("encoder", "buffer", "mixture")
"""What expects words: each part of the model alone, and both together."""

EXPECTED_OF_PART = 4
"""How many words are kept of what each part expected."""


class Look(NamedTuple):
    """A span that was looked at: the positions of its first and last word, and its weight."""

    first: int
    last: int
    weight: float


@dataclass(frozen=True, eq=False)
class SpanRecord:
    """A text of N words as a model with a span buffer read it.

    Position t is the moment after `words[t]` was read and before `targets[t]` was known.

    Attributes:
        words: that were read; the first is the `<eos>` that opens the text, if one does.
        targets: that came next.
        weights: (N, B) float32; a span's weight is in the column of its last word, column j is lag
            B − 1 − j + `nearest_lag`.
        span: L, how many words a span stands for.
        nearest_lag: 1 where the newest span ends at the word before, 0 where it may end at the word itself.
        filled: (N,) bool, where there was a span to look at.
        gate: (N,) λ, without temperature: how much the buffer is preferred; means nothing where it is not filled.
        used: (N,) λ̂, the buffer's share of the mixture: the same with the temperature of evaluation.
        encoder: at each position, what the encoder alone expected.
        buffer: the same of the buffer alone; empty where there was no span.
        mixture: the same of the model.
        chance: (N, 3) what each of `PARTS` gave the word that came; NaN of the buffer where it is not filled.
        title: what produced the record.
        first_token: number of `words[0]` in the text they are from; of a text of its own, its first word is 1.
        starts: positions of the first words of its contexts; no span reaches beyond its own.
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
        """Spell a span."""
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
        return {"title": self.title, "span": self.span, "positions": positions}


def attend_spans(
    model: NextWordModel,
    vocabulary: Vocabulary,
    targets: list[str],
    *,
    expected: int = EXPECTED_OF_PART,
    title: str = "",
    opened: bool = True,
    first_token: int = 1,
    starts: Sequence[int] = (0,),
) -> SpanRecord:
    """Read words, line ends among them, opened by <eos> and an empty state.

    Args, beside those of `spanlm.evaluation.attention.attend_words`:
        model: with a span buffer.
        expected: how many of the most probable next words to keep of each part.
        first_token: number of the first of the words in the text they are from.

    Raises:
        InputError: too few words, `expected` below 1, a model without a span buffer, or more weights than
            `MOST_WEIGHTS`.
    """
    words, targets, unpredicted = shifted(targets, opened, expected, starts)
    with evaluating(model):
        parts = [
            _part(model, readout, came, expected=expected)
            for readout, came in read_parts(model, vocabulary, words, targets, starts)
        ]
    filled = torch.cat([part.filled for part in parts]).numpy()
    weights = torch.cat([part.weights for part in parts]).numpy()
    encoder, buffer, mixture = (
        [row for part in parts for row in spelled(vocabulary, part.top[n])] for n in range(len(PARTS))
    )
    chance = torch.cat([part.chance for part in parts]).numpy()
    filled[unpredicted], weights[unpredicted], chance[unpredicted] = False, 0, np.nan
    for position in unpredicted:
        encoder[position] = mixture[position] = []
    chance[~filled, PARTS.index("buffer")] = np.nan
    return SpanRecord(
        words=words,
        targets=targets,
        weights=weights,
        span=parts[0].span,
        nearest_lag=parts[0].nearest_lag,
        filled=filled,
        gate=torch.cat([part.gate for part in parts]).numpy(),
        used=torch.cat([part.used for part in parts]).numpy(),
        encoder=encoder,
        buffer=[row if there else [] for row, there in zip(buffer, filled, strict=True)],
        mixture=mixture,
        chance=chance,
        title=title,
        first_token=first_token - opened,  # <eos> stands before it
        starts=starts,
    )


class _Part(NamedTuple):
    """Some positions; `top` and the columns of `chance` are of `PARTS`."""

    weights: Tensor
    filled: Tensor
    gate: Tensor
    used: Tensor
    top: list[torch.return_types.topk]
    chance: Tensor
    span: int
    nearest_lag: int


def _part(model: NextWordModel, readout: Readout, targets: Tensor, *, expected: int) -> _Part:
    mixture, attention, head = readout.mixture, readout.attention, model.head
    if not isinstance(mixture, SpanMixture) or attention is None or not isinstance(head, MixingHead):
        raise InputError("this model looks at no spans: train one with model.memory.kind=span_buffer")
    every = mixture.each(head, readout.features)
    top = [x[:, 0].double().cpu().topk(min(expected, x.shape[-1])) for x in every]
    chance = torch.cat([x[:, 0].gather(1, targets).double().exp().cpu() for x in every], 1)
    gate = mixture.gate[:, 0].double().softmax(-1)[:, 0].cpu()
    used = mixture.log_shares()[:, 0, 0].double().exp().cpu()
    where = attention.stride, attention.nearest_lag
    return _Part(attention.by_lag()[:, 0].float().cpu(), mixture.filled[:, 0].cpu(), gate, used, top, chance, *where)
