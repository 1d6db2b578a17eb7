"""Sampling from a language model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from spanlm.data.vocabulary import EOS, Vocabulary
from spanlm.errors import InputError, require
from spanlm.evaluation.recall import STEPS, Prefix, Recall, anew
from spanlm.evaluation.scoring import evaluating
from spanlm.models.interfaces import LMState, NextWordModel

LEAST_TEMPERATURE = 0.001
"""Below it the division overflows; 0 takes the most probable word without a division."""


@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """The sampling distribution.

    p'(w) ∝ p(w)^{1 / temperature} over the words that remain: the `top_k` most probable, then the fewest whose
    probabilities reach `top_p`.

    Attributes:
        length: how many words
        temperature: 1: the model's own probabilities; 0: always the most probable word
        top_k: draw from the k most probable words
        top_p: draw from the fewest words that hold this share of the probability
        seed: the same seed gives the same words
        unk: let <unk> be drawn, too

    Raises:
        InputError: a value outside its range.
    """

    length: int = 50
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 1
    unk: bool = False

    def __post_init__(self) -> None:
        require(self.length >= 1, "length", self.length, "at least 1")
        usable = self.temperature == 0 or LEAST_TEMPERATURE <= self.temperature < math.inf
        require(usable, "temperature", self.temperature, f"0, or from {LEAST_TEMPERATURE} on")
        require(self.top_k is None or self.top_k >= 1, "top_k", self.top_k, "at least 1")
        require(self.top_p is None or 0 < self.top_p <= 1, "top_p", self.top_p, "in (0, 1]")
        require(0 <= self.seed < 2**63, "seed", self.seed, "in [0, 2^63)")


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
    recall: Recall = anew,
) -> Iterator[Drawn]:
    """Continue a prompt word by word; <eos> is the end of a line or sentence, not that of the text.

    A prompt has <eos> where a line or sentence in it ends; unknown words are read as <unk>. If the model was trained
    `line_by_line`, each line begins with an empty state, and only the prompt's last line is read. Without
    `predict_first` no <eos> opens a line: the model cannot draw its first word, so the prompt must give one, and the
    text ends with its line. What was read of the prompt before may come from `recall`.

    Raises:
        InputError: no first word, without `predict_first`.
    """
    if line_by_line or not predict_first:
        prompt = prompt[len(prompt) - [*reversed(prompt), EOS].index(EOS) :]
    if not (predict_first or prompt):
        raise InputError(
            "prompt='': the model does not predict the first word of a sentence "
            "(training.batching.predict_first=false); give that word, or more"
        )
    tokens = [vocabulary.eos_id] * predict_first + vocabulary.encode(prompt)
    return _drawn(model, vocabulary, tokens, options, line_by_line, predict_first, recall)


def generate(
    model: NextWordModel,
    vocabulary: Vocabulary,
    prompt: list[str],
    options: GenerationOptions,
    *,
    line_by_line: bool = False,
    predict_first: bool = True,
) -> Iterator[str]:
    """Give the words of `draw` alone."""
    drawn = draw(model, vocabulary, prompt, options, line_by_line=line_by_line, predict_first=predict_first)
    return (each.word for each in drawn)


@dataclass(frozen=True)
class _Next:
    """The state after some words, and log p of the next one (V,); no views, so that it holds what it counts."""

    state: LMState
    log_p: Tensor

    @property
    def nbytes(self) -> int:
        return self.log_p.nbytes + sum(x.nbytes for x in self.state.flat().values())


def _drawn(
    model: NextWordModel,
    vocabulary: Vocabulary,
    tokens: list[int],
    options: GenerationOptions,
    line_by_line: bool,
    predict_first: bool,
    recall: Recall,
) -> Iterator[Drawn]:
    generator = torch.Generator().manual_seed(options.seed)
    barred = [] if options.unk else [vocabulary.unk_id]
    after = _after(model, tokens, recall)
    for number in range(options.length):
        word = sample(after.log_p, options.temperature, options.top_k, options.top_p, barred, generator)
        yield Drawn(vocabulary.word(word), after.log_p)
        ended = word == vocabulary.eos_id
        if number == options.length - 1 or (ended and not predict_first):
            return
        after = _next(model, [word], model.init_state(1) if ended and line_by_line else after.state)


def _after(model: NextWordModel, tokens: Sequence[int], recall: Recall) -> _Next:
    """Read a prompt some steps at a time: a long one would hold a distribution for each of its words."""
    state, prefix = model.init_state(1), Prefix("prompt")
    for start in range(0, len(tokens), STEPS):
        ids = tokens[start : start + STEPS]
        after = recall(prefix.longer(ids), partial(_next, model, ids, state))
        state = after.state
    return after


def _next(model: NextWordModel, ids: Sequence[int], state: LMState) -> _Next:
    with evaluating(model):
        readout, state = model(torch.tensor(ids, device=model.device).unsqueeze(1), state)
        log_p = model.head.log_probs(readout.map(lambda x: x[-1:]))[0, 0].cpu()
        return _Next(state.map(torch.clone), log_p.clone())


def sample(
    log_p: Tensor,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    barred: list[int],
    generator: torch.Generator,
) -> int:
    """Draw a word from log_p (V,), changed as `GenerationOptions` says and without the words `barred`."""
    log_p = log_p.double().clone()
    log_p[barred] = -torch.inf
    if temperature == 0:
        return int(log_p.argmax())
    values, words = (log_p / temperature).log_softmax(0).sort(descending=True, stable=True)
    keep = torch.ones_like(words, dtype=torch.bool)
    if top_k is not None:
        keep[top_k:] = False
    if top_p is not None:
        before = values.exp().cumsum(0) - values.exp()
        keep &= before < top_p  # the word that crosses the border stays
    probabilities = torch.where(keep, values.exp(), 0.0)
    return int(words[torch.multinomial(probabilities, 1, generator=generator)])
