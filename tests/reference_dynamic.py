"""Dynamic evaluation once more, as in the public code: a plain loop over segments and tensors, float64."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from spanlm.models.interfaces import LMState
from spanlm.models.language_model import LanguageModel

Ids = Sequence[int]
Stream = Sequence[Ids]
"""Texts one after the other, each of which begins with an empty state; the first id of each is only read."""


def segments(stream: Stream, length: int) -> list[tuple[bool, list[int], list[int]]]:
    """Whether the state is empty, what is read and what is predicted; none goes beyond its text."""
    found = []
    for ids in stream:
        for start in range(0, len(ids) - 1, length):
            part = ids[start : start + length + 1]
            found.append((start == 0, list(part[:-1]), list(part[1:])))
    return found


def cross_entropy(
    model: LanguageModel, inputs: Sequence[Ids], targets: Sequence[Ids], state: LMState
) -> tuple[list[Tensor], LMState]:
    """−log p of every target of streams side by side, from the whole distribution; and the state after them."""
    log_p, state = model.log_probs(torch.tensor(inputs).T, state)
    found = [-log_p[t, b, id] for b, ids in enumerate(targets) for t, id in enumerate(ids)]
    return found, state.detach()


def learning(model: LanguageModel) -> list[Tensor]:
    return [p for p in model.parameters() if p.requires_grad]


def gradients_of(model: LanguageModel, nll: Sequence[Tensor]) -> list[Tensor]:
    """Of the mean; zeros where a weight had no say."""
    weights = learning(model)
    found = torch.autograd.grad(torch.stack(list(nll)).mean(), weights, allow_unused=True)
    return [torch.zeros_like(w) if g is None else g for w, g in zip(weights, found, strict=True)]


def mean_squares(model: LanguageModel, columns: Sequence[Ids], length: int) -> tuple[list[Tensor], float]:
    """Σ_s g_s² and n of streams of equal length, each with one id to read before its first target.

    A segment with fewer than all tokens has that share of the mean cross-entropy, and of n.
    """
    state, sums, n = model.init_state(len(columns)), [torch.zeros_like(w) for w in learning(model)], 0.0
    for start in range(0, len(columns[0]) - 1, length):
        parts = [column[start : start + length + 1] for column in columns]
        nll, state = cross_entropy(model, [p[:-1] for p in parts], [p[1:] for p in parts], state)
        share = len(nll) / (length * len(columns))
        for g, total in zip(gradients_of(model, nll), sums, strict=True):
            total += (g * share) ** 2
        n += share
    return sums, n


def adapted(
    model: LanguageModel,
    stream: Stream,
    sums: Sequence[Tensor],
    n: float,
    *,
    rate: float,
    decay: float,
    epsilon: float,
    length: int = 5,
    learnt: Callable[[LanguageModel, Ids, Ids, LMState], Sequence[Tensor]] | None = None,
) -> list[float]:
    """−log p of every target of a stream, each before the weights learn from it; they are left as they became.

    `learnt` gives what they learn from at every target, if that is something else.
    """
    weights = learning(model)
    ms = [(total / n).sqrt() for total in sums]
    mean = sum(float(x.mean()) for x in ms) / len(ms)
    ratio = [(x / mean).clamp(max=1 / decay) if decay else x / mean for x in ms]
    first, state, rows = [w.detach().clone() for w in weights], model.init_state(1), []
    for opens, inputs, targets in segments(stream, length):
        state = model.init_state(1) if opens else state
        losses = learnt(model, inputs, targets, state) if learnt else None
        nll, state = cross_entropy(model, [inputs], [targets], state)
        share = len(nll) / length
        gradients = gradients_of(model, losses or nll)
        rows += [x.item() for x in nll]
        with torch.no_grad():
            for w, w0, g, x, r in zip(weights, first, gradients, ms, ratio, strict=True):
                w += share * (decay * r * (w0 - w) - rate * g / (x + epsilon))
    return rows


def columns_of(ids: Ids, opening: int, streams: int) -> list[list[int]]:
    """Streams of equal length with the id before each; `streams` must divide the text."""
    size, whole = len(ids) // streams, [opening, *ids]
    assert size * streams == len(ids)
    return [whole[a : b + 1] for a, b in pairwise(range(0, len(ids) + 1, size))]
