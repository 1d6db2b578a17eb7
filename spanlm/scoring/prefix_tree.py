"""Log-probabilities of many short texts that begin alike: hypotheses of a list, minimal pairs.

The texts are the paths of one tree: what several have in common is read once. All words of a depth are read in one
step, from the states of the words before them, so that a step has as many streams as the tree is wide.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise

import torch
from torch import Tensor

from spanlm.models.interfaces import LMState, NextWordModel
from spanlm.options import Precision
from spanlm.scoring.stream import evaluating

STREAMS = 512
"""Words read side by side, at most."""

STATE_BYTES = 1 << 28
"""Of the states that are held at once: what looks back far has large ones, and then fewer words side by side."""

LOGITS = 1 << 24
"""Probabilities computed at a time: streams times V."""


@dataclass(frozen=True)
class Prefixes:
    """How much reading what texts have in common once has saved.

    Attributes:
        tokens: of all texts, with the <eos> that opens each.
        read: those of them that were read.
    """

    tokens: int = 0
    read: int = 0

    def __add__(self, other: Prefixes) -> Prefixes:
        return Prefixes(self.tokens + other.tokens, self.read + other.read)


def score_texts(
    model: NextWordModel,
    texts: Sequence[Sequence[int]],
    eos_id: int,
    *,
    predict_first: bool = True,
    precision: Precision = "fp32",
    streams: int | None = None,
) -> tuple[list[list[float]], Prefixes]:
    """Return log p(word | <eos>, the words before it in its text), in nats, of every word of every text.

    Args:
        model: left in the mode it was in.
        texts: words as ids; a text should end with <eos> if its end is to count.
        eos_id: opens every text.
        predict_first: if not, nothing opens a text: its first word is read, is not predicted, and has no value.
        precision: of matrix products.
        streams: words read side by side, at most; None: as many as their states and their distributions leave room for.
    """
    found: list[list[float]] = []
    saved = Prefixes()
    opening = [eos_id] if predict_first else []
    streams = streams or _streams(model)
    with evaluating(model, precision):
        # a tree is narrower than it has texts, since these begin alike
        for start in range(0, len(texts), 2 * streams):
            part = [[*opening, *text] for text in texts[start : start + 2 * streams]]
            levels, paths = _tree(part)
            values = _read(model, levels, streams)
            found += [values[path[1:]].tolist() for path in paths]
            saved += Prefixes(sum(map(len, part)), sum(len(level.open) for level in levels))
    return found, saved


def _streams(model: NextWordModel) -> int:
    return max(1, min(STREAMS, STATE_BYTES // max(1, model.init_state(1).nbytes), LOGITS // model.vocabulary_size))


@dataclass(frozen=True)
class _Level:
    """The words of one depth of a tree of texts, each after those before it.

    Attributes:
        words: their ids, (n,).
        parents: which of the open words of the level above each follows, (n,).
        open: the words that something follows, by their place in the level.
    """

    words: Tensor
    parents: Tensor
    open: Tensor


def _tree(texts: Sequence[Sequence[int]]) -> tuple[list[_Level], list[list[int]]]:
    """Return the levels of the tree of texts, and the path of each text: its words, counted through all levels."""
    nodes: list[dict[tuple[int, int], int]] = []
    paths = []
    for text in texts:
        place, path = 0, []
        for depth, word in enumerate(text):
            if depth == len(nodes):
                nodes.append({})
            place = nodes[depth].setdefault((place, word), len(nodes[depth]))
            path.append(place)
        paths.append(path)
    followed = [sorted({parent for parent, _ in level}) for level in nodes[1:]] + [[]]
    levels, above = [], torch.zeros(1, dtype=torch.long)
    for level, places in zip(nodes, followed, strict=True):
        parents, words = torch.tensor(list(level), dtype=torch.long).T
        followers = torch.tensor(places, dtype=torch.long)
        levels.append(_Level(words, torch.searchsorted(above, parents.contiguous()), followers))
        above = levels[-1].open
    firsts = [0, *accumulate(len(level) for level in nodes)]
    return levels, [[firsts[depth] + place for depth, place in enumerate(path)] for path in paths]


def _read(model: NextWordModel, levels: list[_Level], streams: int) -> Tensor:
    """Return log p of every word of the tree, level after level, (nodes,) float64; 0 of the first level."""
    if not levels:
        return torch.zeros(0, dtype=torch.float64)
    state = model.init_state(1)
    values = [torch.zeros(len(levels[0].words), dtype=torch.float64)]
    for level, below in pairwise(levels):
        found = torch.empty(len(below.words), dtype=torch.float64)
        states = []
        for chosen in torch.split(torch.arange(len(level.open)), streams):
            nodes = level.open[chosen]
            before = state.select(level.parents[nodes].to(model.device))
            log_p, after = model.log_probs(level.words[nodes].to(model.device)[None], before)
            own = (below.parents >= chosen[0]) & (below.parents <= chosen[-1])
            rows, words = (below.parents[own] - chosen[0]).to(model.device), below.words[own].to(model.device)
            found[own] = log_p[0, rows, words].double().cpu()
            states.append(after)
        state = LMState.beside(states)
        values.append(found)
    return torch.cat(values)


@dataclass(frozen=True)
class TextScore:
    """Log-probabilities of a text by the words in which it is written.

    Attributes:
        words: log p of each word between white space, nats: the sum over the words that it is cut into; 0 where nothing
            is predicted.
        end: log p of its line end, or of the ends of its sentences where the model knows these.
        oov: how many of its words are outside the vocabulary, or have a part that is.
    """

    words: list[float]
    end: float
    oov: int

    @property
    def log_prob(self) -> float:
        return math.fsum([*self.words, self.end])


def by_written_words(sizes: Sequence[int], values: Iterable[float], known: Iterable[bool], end: float) -> TextScore:
    """Sum values of tokens over the words in which they were written.

    Args:
        sizes: tokens of each word.
        values: of all tokens, in order.
        known: whether the vocabulary has each.
        end: log p of the ends.
    """
    value, in_vocabulary = iter(values), iter(known)
    words = [math.fsum(islice(value, size)) for size in sizes]
    return TextScore(words, end, sum(not all(list(islice(in_vocabulary, size))) for size in sizes))
