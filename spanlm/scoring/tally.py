"""Sums over scored tokens, and numbers made of them: perplexities, shares of right answers, notes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist

import torch

from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import Note, named
from spanlm.scoring.stream import Scored


@dataclass(frozen=True)
class Tally:
    """Counts and NLL, in nats, of predicted tokens.

    Further counts and NLLs are over targets that are <unk>, over <eos>, and over the first targets after a reset: the
    first words if each line is its own stream. `metrics` are the sums of the head's metrics by name.
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
        """Add a block, with log p from one of its columns; sums are float64."""
        nll, ids, first = -scored.answers[column].double().cpu(), scored.ids, scored.opens
        unk, eos = ids == vocabulary.unk_id, ids == vocabulary.eos_id
        more = dict[str, float]()
        if scored.metrics:  # one transfer, as each would wait for a GPU
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

    def spelled(self, nll: float) -> Tally:
        """Add the NLL of the spellings of unknown words, also to that of each of a mixture's predictions."""
        metrics = {**self.metrics, "other_nll": self.metrics.get("other_nll", 0.0) + nll}
        return replace(self, nll=self.nll + nll, unk_nll=self.unk_nll + nll, metrics=metrics)


def tally(scored: Iterable[Scored], vocabulary: Vocabulary) -> Tally:
    (total,) = tallies(scored, vocabulary, ("log_p",))
    return total


def tallies(scored: Iterable[Scored], vocabulary: Vocabulary, columns: Sequence[str]) -> list[Tally]:
    """Read a stream once and sum each of several columns."""
    totals = [Tally()] * len(columns)
    for block in scored:
        totals = [total.plus(block, vocabulary, column) for total, column in zip(totals, columns, strict=True)]
    return totals


def perplexity(nll_per_token: float) -> float:
    """Return exp(nll_per_token), infinite from e^700 on."""
    return math.exp(nll_per_token) if nll_per_token < 700 else math.inf


Z = NormalDist().inv_cdf(0.975)
"""Normal quantile of a 95 % interval."""


def wilson(right: int, count: int) -> tuple[float, float]:
    r"""Return Wilson's 95 % interval (1927) for a share of right answers.

        (p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n)

    with p the share, n the answers and z = 1.96.
    """
    p, scale = right / count, 1 + Z * Z / count
    centre, half = p + Z * Z / (2 * count), Z * math.sqrt(p * (1 - p) / count + Z * Z / (4 * count * count))
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def shown(value: float, digits: int = 2) -> str:
    """Format a perplexity: `85.20`, `1,204.00`, and from a million on `1.2e+07`."""
    return f"{value:,.{digits}f}" if value < 1e6 else f"{value:.3g}"


def edge_note(name: str, value: float, values: Sequence[float]) -> Note:
    """Note that the best value is the smallest or largest of a grid, so a better one may lie beyond; empty if not."""
    if len(set(values)) == 1 or value not in (min(values), max(values)) or value == 0:
        return Note("")
    end = "smallest" if value == min(values) else "largest"
    return Note(f"{named(name)}={value:g} is the {end} that was tried: the best may lie beyond.")
