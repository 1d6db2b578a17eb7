"""Sampling from a language model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from spanlm.data.vocabulary import EOS, Vocabulary
from spanlm.errors import InputError, require
from spanlm.evaluation.scoring import evaluating
from spanlm.models.interfaces import NextWordModel

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


def generate(
    model: NextWordModel,
    vocabulary: Vocabulary,
    prompt: list[str],
    options: GenerationOptions,
    *,
    line_by_line: bool = False,
    predict_first: bool = True,
) -> Iterator[str]:
    """Continue a prompt word by word; <eos> is the end of a line or sentence, not that of the text.

    A prompt has <eos> where a line or sentence in it ends; unknown words are read as <unk>. If the model was trained
    `line_by_line`, each line begins with an empty state, and only the prompt's last line is read. Without
    `predict_first` no <eos> opens a line: the model cannot draw its first word, so the prompt must give one, and the
    text ends with its line.

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
    return _words(model, vocabulary, tokens, options, line_by_line, predict_first)


def _words(
    model: NextWordModel,
    vocabulary: Vocabulary,
    tokens: list[int],
    options: GenerationOptions,
    line_by_line: bool,
    predict_first: bool,
) -> Iterator[str]:
    generator = torch.Generator().manual_seed(options.seed)
    barred = [] if options.unk else [vocabulary.unk_id]
    device, state = model.device, model.init_state(1)
    for _ in range(options.length):
        with evaluating(model):
            log_p, state = model.log_probs(torch.tensor(tokens, device=device).unsqueeze(1), state)
        word = sample(log_p[-1, 0].cpu(), options.temperature, options.top_k, options.top_p, barred, generator)
        yield vocabulary.word(word)
        tokens = [word]
        if word == vocabulary.eos_id:
            if not predict_first:
                return
            if line_by_line:
                state = model.init_state(1)


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
