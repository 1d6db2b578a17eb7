"""Sampling from a language model.

Each step reads the words drawn in the step before. `scoring.stream.read` cannot serve here: it needs the whole text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor

from spanlm.data.vocabulary import EOS, Vocabulary
from spanlm.errors import InputError, require, whole_number
from spanlm.models.interfaces import LMState, NextWordModel
from spanlm.scoring.options import GenerationOptions
from spanlm.scoring.stream import STEPS, evaluating

SIDE_BY_SIDE = 32
"""Samples drawn side by side."""


class Drawn(NamedTuple):
    """A drawn word, and the model's log p of every word (V,), before the temperature is applied."""

    word: str
    log_p: Tensor


class Continuations:
    """Continuations of one prompt, whose words are drawn one by one; <eos> ends a line or sentence, not the text.

    The prompt has <eos> at the end of each line or sentence; unknown words are read as <unk>. If the model was trained
    `line_by_line`, each line begins with an empty state, and only the prompt's last line is read. Without
    `predict_first` no <eos> opens a line and the model cannot draw a first word: the prompt must have one, and the text
    ends with its line.

    Raises:
        InputError: the prompt has no first word, without `predict_first`.
    """

    def __init__(
        self, model: NextWordModel, vocabulary: Vocabulary, prompt: list[str], line_by_line: bool, predict_first: bool
    ) -> None:
        if line_by_line or not predict_first:
            prompt = prompt[len(prompt) - [*reversed(prompt), EOS].index(EOS) :]
        if not (predict_first or prompt):
            why = "the model does not predict the first word of a sentence (training.batching.predict_first=false)"
            raise InputError("prompt", "''", f"{why}; give that word, or more")
        self._read = [vocabulary.eos_id] * predict_first + vocabulary.encode(prompt)
        self._model, self._vocabulary = model, vocabulary
        self._line_by_line, self._predict_first = line_by_line, predict_first

    def draw(self, options: GenerationOptions) -> Iterator[Drawn]:
        """Yield the words of one text."""
        return (drawn for (drawn,) in self._drawn(options, 1) if drawn is not None)

    def samples(self, options: GenerationOptions, count: int) -> Iterator[list[str]]:
        """Yield `count` texts, several drawn side by side.

        Sample n equals what `draw` gives with seed + n, up to rounding, which depends on the number of texts side by
        side.

        Raises:
            InputError: several samples at temperature 0, which would all be the same.
        """
        count = whole_number("samples", count)
        same = "1 with temperature=0, where all are the same"
        require(count == 1 or options.temperature > 0, "samples", count, same)

        def side_by_side(first: int) -> list[list[str]]:
            size, seeds = min(SIDE_BY_SIDE, count - first), replace(options, seed=(options.seed + first) % 2**63)
            columns = zip(*self._drawn(seeds, size), strict=True)
            return [[drawn.word for drawn in column if drawn is not None] for column in columns]

        return chain.from_iterable(map(side_by_side, range(0, count, SIDE_BY_SIDE)))

    def _drawn(self, options: GenerationOptions, count: int) -> Iterator[list[Drawn | None]]:
        """Yield at each step one word for each of `count` texts, None for a text that has ended."""
        eos, barred = self._vocabulary.eos_id, [] if options.unk else [self._vocabulary.unk_id]
        generators = [torch.Generator().manual_seed((options.seed + n) % 2**63) for n in range(count)]
        goes_on, state = [True] * count, self._model.init_state(1)
        for start in range(0, len(self._read), STEPS):
            log_p, state = self._next([[id] for id in self._read[start : start + STEPS]], state)
        if count > 1:
            state = state.select(torch.zeros(count, dtype=torch.int64, device=self._model.device))
            log_p = log_p.repeat(count, 1)
        for number in range(options.length):
            rows = zip(log_p, generators, strict=True)
            cut = options.temperature, options.top_k, options.top_p, barred
            words = [sample(row, *cut, generator) for row, generator in rows]
            texts = zip(words, log_p, goes_on, strict=True)
            yield [Drawn(self._vocabulary.word(word), row) if on else None for word, row, on in texts]
            ended = [word == eos for word in words]
            if not self._predict_first:
                goes_on = [on and not end for on, end in zip(goes_on, ended, strict=True)]
            if number == options.length - 1 or not any(goes_on):
                return
            if self._line_by_line and any(ended):
                state = state.reset(torch.tensor(ended), self._model.init_state(count))
            log_p, state = self._next([words], state)

    def _next(self, ids: Sequence[Sequence[int]], state: LMState) -> tuple[Tensor, LMState]:
        """Read words (T, B); return log p of the next words, (B, V), and the state."""
        with evaluating(self._model):
            readout, state = self._model(torch.tensor(ids, device=self._model.device), state)
            return self._model.head.log_probs(readout.map(lambda x: x[-1:]))[0].cpu(), state


def sample(
    log_p: Tensor,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    barred: list[int],
    generator: torch.Generator,
) -> int:
    """Draw a word from log_p (V,), transformed as in `GenerationOptions` and without the `barred` words.

    With u uniform in [0, 1), the first word by id is drawn at which the running sum of the probabilities reaches
    (1 − u) times their total. As 1 − u > 0, a word with probability 0 is never drawn.

    Raises:
        InputError: no word has a probability, for example because the weights are NaN.
    """
    log_p = log_p.double().clone()
    log_p[barred] = -torch.inf
    if not log_p.max() > -torch.inf:
        raise InputError("the model gives no word a probability that is a number")
    if temperature == 0:
        return int(log_p.argmax())
    probabilities = (log_p / temperature).softmax(0)
    if top_k is not None or (top_p is not None and top_p < 1):
        values, words = probabilities.sort(descending=True, stable=True)
        dropped = torch.zeros_like(words, dtype=torch.bool)
        if top_k is not None:
            dropped[top_k:] = True
        if top_p is not None:
            values[dropped] = 0
            dropped |= values.cumsum(0) - values >= top_p * values.sum()  # the word that crosses the limit stays
        probabilities[words[dropped]] = 0
    summed = probabilities.cumsum(0)
    share = 1 - torch.rand((), generator=generator, dtype=summed.dtype)
    return int(torch.searchsorted(summed, share * summed[-1]))
