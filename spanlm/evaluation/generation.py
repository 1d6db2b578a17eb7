"""Sampling from a language model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from spanlm.data.vocabulary import EOS, Vocabulary
from spanlm.errors import InputError, require
from spanlm.evaluation.scoring import evaluating
from spanlm.models.interfaces import NextWordModel

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
    opened: bool = True,
) -> Iterator[str]:
    """Continue a prompt word by word.

    p'(w) ∝ p(w)^{1 / temperature} over the words that remain: the `top_k` most probable, then the fewest whose
    probabilities reach `top_p`. <eos> is the end of a line or sentence, not that of the text.

    Args:
        model: left in the mode it was in.
        vocabulary: the model's.
        prompt: words to continue, with <eos> where a line or sentence in them ends; unknown ones are read as <unk>.
        length: how many words.
        temperature: 1 samples from the model; towards 0 the most probable word wins, and 0 always takes it.
        top_k: how many words remain; None: all.
        top_p: which share of the probability remains, in (0, 1]; None: all.
        seed: of the samples; the global generator is not touched.
        unk: let <unk> be drawn, too.
        line_by_line: each line begins with an empty state, as for models that were trained so; of the prompt only its
            last line is read.
        opened: <eos> opens the prompt, and each line that follows. If not, as for models that were trained on lines of
            which the first word is only read, there is nothing to draw a first word from: the prompt must give it, and
            the text ends with its line.

    Raises:
        InputError: an option outside its range, or lines that are not opened and no first word.
    """
    require(length >= 1, "length", length, "at least 1")
    usable = temperature == 0 or LEAST_TEMPERATURE <= temperature < math.inf
    require(usable, "temperature", temperature, f"0, or from {LEAST_TEMPERATURE} on")
    require(top_k is None or top_k >= 1, "top_k", top_k, "at least 1")
    require(top_p is None or 0 < top_p <= 1, "top_p", top_p, "in (0, 1]")
    require(0 <= seed < 2**63, "seed", seed, "in [0, 2^63)")
    draw = partial(
        sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        barred=[] if unk else [vocabulary.unk_id],
        generator=torch.Generator().manual_seed(seed),
    )
    ids = _to_read(vocabulary, prompt, line_by_line, opened)
    return _words(model, vocabulary, ids, length, draw, line_by_line, opened)


def _to_read(vocabulary: Vocabulary, prompt: list[str], line_by_line: bool, opened: bool) -> list[int]:
    """Return the ids that are read before the first word is drawn."""
    if line_by_line or not opened:
        prompt = prompt[len(prompt) - [*reversed(prompt), EOS].index(EOS) :]
    if not (opened or prompt):
        raise InputError(
            "prompt='': the model was trained on sentences of which the first word is only read, and cannot begin "
            "one (training.batching.predict_first=false); give the first word, or more"
        )
    return [vocabulary.eos_id] * opened + vocabulary.encode(prompt)


def _words(
    model: NextWordModel,
    vocabulary: Vocabulary,
    tokens: list[int],
    length: int,
    draw: Callable[[Tensor], int],
    line_by_line: bool,
    opened: bool,
) -> Iterator[str]:
    """Draw words; unless lines are opened, no further than to the end of one."""
    device, state = model.device, model.init_state(1)
    for _ in range(length):
        with evaluating(model):
            log_p, state = model.log_probs(torch.tensor(tokens, device=device).unsqueeze(1), state)
        word = draw(log_p[-1, 0].cpu())
        yield vocabulary.word(word)
        tokens = [word]
        if word == vocabulary.eos_id:
            if not opened:
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
