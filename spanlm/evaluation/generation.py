"""Sampling from a language model."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import require
from spanlm.evaluation.scoring import evaluating
from spanlm.models.next_word_model import NextWordModel

LEAST_TEMPERATURE = 0.001
"""Below it the division overflows; 0 means the same and says so."""


def generate(
    model: NextWordModel,
    vocabulary: Vocabulary,
    prompt: list[str],
    *,
    length: int = 50,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int = 1,
    unk: bool = False,
    line_by_line: bool = False,
) -> Iterator[str]:
    """Continue a prompt word by word.

    p'(w) ∝ p(w)^{1 / temperature} over the words that remain: the `top_k` most probable, then the fewest whose
    probabilities reach `top_p`. <eos> is a line end, not the end of the text.

    Args:
        model: left in the mode it was in.
        vocabulary: the model's.
        prompt: words to continue; unknown ones are read as <unk>. Opened by <eos>.
        length: how many words.
        temperature: 1 samples from the model; towards 0 the most probable word wins, and 0 always takes it.
        top_k: how many words remain; None: all.
        top_p: which share of the probability remains, in (0, 1]; None: all.
        seed: of the samples; the global generator is not touched.
        unk: let <unk> be drawn, too.
        line_by_line: each line begins with an empty state, as for models that were trained so.

    Raises:
        InputError: an option outside its range.
    """
    require(length >= 1, "--length", length, "at least 1")
    usable = temperature == 0 or LEAST_TEMPERATURE <= temperature < math.inf
    require(usable, "--temperature", temperature, f"0, or from {LEAST_TEMPERATURE} on")
    require(top_k is None or top_k >= 1, "--top-k", top_k, "at least 1")
    require(top_p is None or 0 < top_p <= 1, "--top-p", top_p, "in (0, 1]")
    require(0 <= seed < 2**63, "--seed", seed, "in [0, 2^63)")
    return _words(
        model,
        vocabulary,
        prompt,
        length,
        temperature,
        top_k,
        top_p,
        seed,
        [] if unk else [vocabulary.unk_id],
        line_by_line,
    )


def _words(
    model: NextWordModel,
    vocabulary: Vocabulary,
    prompt: list[str],
    length: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int,
    barred: list[int],
    line_by_line: bool,
) -> Iterator[str]:
    device = model.device
    generator = torch.Generator().manual_seed(seed)
    tokens, state = [vocabulary.eos_id, *vocabulary.encode(prompt)], model.init_state(1)
    for _ in range(length):
        with evaluating(model):
            log_p, state = model.log_probs(torch.tensor(tokens, device=device).unsqueeze(1), state)
        word = sample(log_p[-1, 0].cpu(), temperature, top_k, top_p, barred, generator)
        yield vocabulary.word(word)
        tokens = [word]
        if line_by_line and word == vocabulary.eos_id:
            state = model.init_state(1)


def sample(
    log_p: Tensor,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    barred: list[int],
    generator: torch.Generator,
) -> int:
    """Draw a word from log_p (V,), which is changed as `generate` says."""
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
