"""Sums over scored tokens, and what is said of them: perplexities, shares of right answers, notes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

import torch

from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import Note, named
from spanlm.scoring.stream import Scored


@dataclass(frozen=True)
class Tally:
    """Sums over predicted tokens: how many, and their NLL in nats.

    Beside them the same of targets that are <unk>, of those that are <eos>, and of those that come first after a reset:
    where each line is a stream of its own, of first words. `metrics` are the sums of the head's metrics by name.
    """

    tokens: int = 0
    nll: float = 0.0
    unk_tokens: int = 0
    unk_nll: float = 0.0
    eos_tokens: int = 0
    eos_nll: float = 0.0
    first_tokens: int = 0
    first_nll: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def loss(self) -> float:
        return self.nll / self.tokens

    def plus(self, scored: Scored, vocabulary: Vocabulary, column: str = "log_p") -> Tally:
        """Add a block by one of its columns of log p; sums are float64."""
        nll, ids, first = -scored.answers[column].double().cpu(), scored.ids, scored.opens
        unk, eos = ids == vocabulary.unk_id, ids == vocabulary.eos_id
        more = dict[str, float]()
        if scored.metrics:  # at once: each would wait for a GPU
            sums = torch.stack([*scored.metrics.values()]).sum(1, dtype=torch.float64).tolist()
            more = dict(zip(scored.metrics, sums, strict=True))
        return Tally(
            self.tokens + len(ids),
            self.nll + float(nll.sum()),
            self.unk_tokens + int(unk.sum()),
            self.unk_nll + float(nll[unk].sum()),
            self.eos_tokens + int(eos.sum()),
            self.eos_nll + float(nll[eos].sum()),
            self.first_tokens + int(first.sum()),
            self.first_nll + float(nll[first].sum()),
            {name: self.metrics.get(name, 0.0) + x for name, x in more.items()} if column == "log_p" else {},
        )


def tally(scored: Iterable[Scored], vocabulary: Vocabulary) -> Tally:
    (total,) = tallies(scored, vocabulary, ("log_p",))
    return total


def tallies(scored: Iterable[Scored], vocabulary: Vocabulary, columns: Sequence[str]) -> list[Tally]:
    """Sum a stream once by each of several columns."""
    totals = [Tally()] * len(columns)
    for block in scored:
        totals = [total.plus(block, vocabulary, column) for total, column in zip(totals, columns, strict=True)]
    return totals


def perplexity(nll_per_token: float) -> float:
    """exp, without overflow: beyond e^700 it is infinite."""
    return math.exp(nll_per_token) if nll_per_token < 700 else math.inf


Z = NormalDist().inv_cdf(0.975)
"""The normal quantile of a 95 % interval."""


def wilson(right: int, count: int) -> tuple[float, float]:
    r"""Return the 95 % interval of Wilson (1927) of a share of right answers.

        (p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n)

    with p the share, n the answers and z = 1.96.
    """
    p, scale = right / count, 1 + Z * Z / count
    centre, half = p + Z * Z / (2 * count), Z * math.sqrt(p * (1 - p) / count + Z * Z / (4 * count * count))
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def shown(value: float, digits: int = 2) -> str:
    """Write a perplexity for people: `85.20`, `1,204.00`, and from a million on `1.2e+07`."""
    return f"{value:,.{digits}f}" if value < 1e6 else f"{value:.3g}"


def edge_note(name: str, value: float, values: Sequence[float]) -> Note:
    """Note that the best value of a grid is its smallest or largest, so that a better one may lie beyond it."""
    if len(set(values)) == 1 or value not in (min(values), max(values)) or value == 0:
        return Note("")
    end = "smallest" if value == min(values) else "largest"
    return Note(f"{named(name)}={value:g} is the {end} that was tried: the best may lie beyond.")
