"""How sure the differences between rows of a table are, and their order, from the bits of the test text's blocks.

Blocks are drawn with replacement, the same for all rows, and seeds as `spanlm.analysis.resampling` says. In each draw
the rows have an order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from spanlm.analysis.resampling import Array, drawn_means, drawn_p, drawn_shifts, interval_of

SEED = 1
Records = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Certainty:
    """Rows on one text.

    Attributes:
        names: of n rows.
        means: (n,) bits a token.
        draws: (DRAWS, n) of the same.
        blocks: what is drawn, for people.
        seeds: the fewest of a row.
    """

    names: tuple[str, ...]
    means: Array
    draws: Array
    blocks: str
    seeds: int

    def against(self, row: int, baseline: int) -> tuple[float, tuple[float, float], float]:
        """Return the difference of a row from another in bits a token, its 95 % interval, and p."""
        draws, mean = self.draws[:, row] - self.draws[:, baseline], float(self.means[row] - self.means[baseline])
        (interval,) = interval_of(draws[:, None])
        return mean, interval, drawn_p(draws, mean)

    def rank(self, row: int) -> tuple[int, int, int]:
        """Return the place of a row, 1 for the fewest bits, and between which it is in 95 % of the draws."""
        low, high = np.quantile(
            (self.draws < self.draws[:, [row]]).sum(1) + 1, [0.025, 0.975], method="closest_observation"
        )
        return int((self.means < self.means[row]).sum()) + 1, int(low), int(high)

    def agreement(self, published: Sequence[float | None]) -> tuple[int, tuple[int, int], int, float] | None:
        """Compare with published numbers of the rows, None of one that has none.

        Returns:
            How many of the pairs that these order are ordered alike, in how many they are in 95 % of the draws, how
            many pairs there are, and the share of the draws in which all are; None: there is no pair.
        """
        pairs = [
            (i, j) if theirs < others else (j, i)
            for (i, theirs), (j, others) in combinations(enumerate(published), 2)
            if theirs is not None and others is not None and theirs != others
        ]
        if not pairs:
            return None
        first, second = map(list, zip(*pairs, strict=True))
        alike = (self.draws[:, first] < self.draws[:, second]).sum(1)
        low, high = np.quantile(alike, [0.025, 0.975], method="closest_observation")
        now = int((self.means[first] < self.means[second]).sum())
        return now, (int(low), int(high)), len(pairs), float((alike == len(pairs)).mean())


def certainty(rows: Mapping[str, Records]) -> Certainty | None:
    """Return how sure the rows' differences are; None: fewer than two have blocks of one text in all their records."""
    whole = {name: [one.get("blocks") or {} for one in records] for name, records in rows.items()}
    blocked = {name: found for name, found in whole.items() if found and all("bits" in one for one in found)}
    tokens: list[int] = next((found[0]["tokens"] for found in blocked.values()), [])
    alike = {name: found for name, found in blocked.items() if all(one["tokens"] == tokens for one in found)}
    if len(alike) < 2:
        return None
    generator = np.random.default_rng(SEED)
    bits = [np.array([one["bits"] for one in found], np.float64) for found in alike.values()]  # (seeds, blocks) of each
    sums, counts = np.stack([of_row.mean(0) for of_row in bits], 1), np.array(tokens, np.float64)
    draws = drawn_means(sums, np.repeat(counts[:, None], len(bits), 1), generator)
    draws += np.concatenate([drawn_shifts(of_row.sum(1)[:, None] / counts.sum(), generator) for of_row in bits], 1)
    seeds = min(map(len, bits))
    blocks = next(iter(alike.values()))[0]["are"]
    return Certainty(tuple(alike), sums.sum(0) / counts.sum(), draws, blocks, seeds)
