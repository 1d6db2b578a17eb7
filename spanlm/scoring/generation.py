"""Sampling from a language model.

What is read here is what was drawn before, a word of each text at a time, so it is no stream of `scoring.stream.read`,
whose text is there before it is read.
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
"""Samples that are drawn at a time."""


class Drawn(NamedTuple):
    """A word, and what it was drawn from: log p of every word (V,), as the model has it, before the temperature."""

    word: str
    log_p: Tensor


def draw(
    model: NextWordModel,
    vocabulary: Vocabulary,
    prompt: list[str],
    options: GenerationOptions,
    *,
    line_by_line: bool = False,
    predict_first: bool = True,
) -> Iterator[Drawn]:
    """Continue a prompt word by word; <eos> is the end of a line or sentence, not that of the text.

    A prompt has <eos> where a line or sentence in it ends; unknown words are read as <unk>. If the model was trained
    `line_by_line`, each line begins with an empty state, and only the prompt's last line is read. Without
    `predict_first` no <eos> opens a line: the model cannot draw its first word, so the prompt must give one, and the
    text ends with its line.

    Raises:
        InputError: no first word, without `predict_first`.
    """
    texts = _Texts(model, vocabulary, prompt, line_by_line, predict_first)
    return (drawn for (drawn,) in texts.drawn(options, 1) if drawn is not None)


def draw_samples(
    model: NextWordModel,
    vocabulary: Vocabulary,
    prompt: list[str],
    options: GenerationOptions,
    count: int,
    *,
    line_by_line: bool = False,
    predict_first: bool = True,
) -> Iterator[list[str]]:
    """Continue a prompt `count` times, some side by side: sample n has the words that seed + n draws alone.

    But for rounding, which differs with the number of texts that are read at a time. See `draw`.

    Raises:
        InputError: several samples at temperature 0, which are all the same; or as `draw`.
    """
    count = whole_number("samples", count)
    same = "1 with temperature=0, where all are the same"
    require(count == 1 or options.temperature > 0, "samples", count, same)
    texts = _Texts(model, vocabulary, prompt, line_by_line, predict_first)

    def side_by_side(first: int) -> list[list[str]]:
        size, seeds = min(SIDE_BY_SIDE, count - first), replace(options, seed=(options.seed + first) % 2**63)
        columns = zip(*texts.drawn(seeds, size), strict=True)
        return [[drawn.word for drawn in column if drawn is not None] for column in columns]

    return chain.from_iterable(map(side_by_side, range(0, count, SIDE_BY_SIDE)))


class _Texts:
    """Texts that continue one prompt, side by side."""

    def __init__(
        self, model: NextWordModel, vocabulary: Vocabulary, prompt: list[str], line_by_line: bool, predict_first: bool
    ) -> None:
        if line_by_line or not predict_first:
            prompt = prompt[len(prompt) - [*reversed(prompt), EOS].index(EOS) :]
        if not (predict_first or prompt):
            raise InputError(
                "prompt",
                "''",
                (
                    "the model does not predict the first word of a sentence (training.batching.predict_first=false); "
                    "give that word, or more"
                ),
            )
        self._read = [vocabulary.eos_id] * predict_first + vocabulary.encode(prompt)
        self._model, self._vocabulary = model, vocabulary
        self._line_by_line, self._predict_first = line_by_line, predict_first

    def drawn(self, options: GenerationOptions, count: int) -> Iterator[list[Drawn | None]]:
        """Give at each step a word of each of `count` texts, None of one that has ended."""
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
        """Read words (T, B): log p of those that may follow the last ones, (B, V), and the state after these."""
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
    """Draw a word from log_p (V,), changed as `GenerationOptions` says and without the words `barred`.

    With u uniform in [0, 1) it is the first word, by id, at which the running sum of the probabilities reaches (1 − u)
    times their total. As 1 − u > 0, a word without a probability is never drawn.

    Raises:
        InputError: no word has a probability, as those of weights that are not numbers.
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
            dropped |= values.cumsum(0) - values >= top_p * values.sum()  # the word that crosses the border stays
        probabilities[words[dropped]] = 0
    summed = probabilities.cumsum(0)
    share = 1 - torch.rand((), generator=generator, dtype=summed.dtype)
    return int(torch.searchsorted(summed, share * summed[-1]))
