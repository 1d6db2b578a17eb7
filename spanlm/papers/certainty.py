"""How sure the differences between rows of a table are, and their order, from the bits of the test text's blocks.

Blocks are drawn with replacement, the same for all rows, and seeds as `spanlm.scoring.resampling` says. In each draw
the rows have an order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlm.scoring.resampling import Array, drawn_means, drawn_p, drawn_shifts, interval_of, moved_means

NONE = "–"
SEED = 1
Records = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, eq=False)
class Certainty:
    """Rows on one text."""

    names: tuple[str, ...]  # of n rows
    seeds: tuple[int, ...]  # of each row, how many
    sums: Array  # (blocks, n) bits, the means over a row's seeds
    counts: Array  # (blocks, 1) tokens
    means: Array  # (n,) bits a token
    shifts: Array  # (DRAWS, n) of a row's mean by its seeds
    draws: Array  # (DRAWS, n) of a row's mean, by blocks and seeds
    blocks: str  # what they are, for people

    def against(self, row: int, control: int) -> tuple[float, tuple[float, float], float]:
        """Return the difference of a row from another in bits a token, its 95 % interval, and p as `compare` has it."""
        apart, mean = self.sums[:, [row]] - self.sums[:, [control]], float(self.means[row] - self.means[control])
        draws = drawn_means(apart, self.counts, np.random.default_rng(SEED))
        draws += self.shifts[:, [row]] - self.shifts[:, [control]]
        (interval,) = interval_of(draws)
        return mean, interval, drawn_p(draws[:, 0], mean)

    def place(self, row: int) -> tuple[int, int, int]:
        """Return the place of a row, 1 for the fewest bits, and between which it is in 95 % of the draws."""
        low, high = _middle((self.draws < self.draws[:, [row]]).sum(1) + 1)
        return int((self.means < self.means[row]).sum()) + 1, low, high

    def sentences(self, published: Sequence[float | None]) -> str:
        """Say what was drawn and, where pairs of rows have published numbers, how sure their order is."""
        seeds = "" if min(self.seeds) > 1 else "; rows with one seed: without their own spread"
        text = f"In brackets 95 %, over {self.blocks} and over seeds{seeds}."
        if agreement := self.agreement(published):
            count, (low, high), pairs, share = agreement
            text += f" {count} of {pairs} pairs of rows stand in the paper's order"
            text += f"; in 95 % of the draws {low} to {high} do, and in {share:.0%} of them all."
        return text

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
        count = int((self.means[first] < self.means[second]).sum())
        drawn = (self.draws[:, first] < self.draws[:, second]).sum(1)
        return count, _middle(drawn), len(pairs), float((drawn == len(pairs)).mean())


def _middle(counts: NDArray[np.int64]) -> tuple[int, int]:
    low, high = np.quantile(counts, [0.025, 0.975], method="closest_observation")
    return int(low), int(high)


def certainty(rows: Mapping[str, Records]) -> Certainty | None:
    """Return how sure the rows' differences are; None: fewer than two have blocks of one text in all their records."""
    blocks = {name: [record.get("blocks") or {} for record in records] for name, records in rows.items()}
    texts = {name: [tuple(of_seed.get("tokens", ())) for of_seed in of_row] for name, of_row in blocks.items()}
    common = Counter(text for of_row in texts.values() for text in of_row if text).most_common(1)
    names = tuple(name for name, of_row in texts.items() if common and set(of_row) == {common[0][0]})
    if len(names) < 2:
        return None
    bits = [np.array([of_seed["bits"] for of_seed in blocks[name]], np.float64) for name in names]  # (seeds, blocks)
    sums, counts = np.stack([of_row.mean(0) for of_row in bits], 1), np.array(common[0][0], np.float64)[:, None]
    draws = moved_means(sums, counts, np.random.default_rng(SEED))
    # each row has a generator of its own, so that its interval stays when others get seeds
    drawn = (
        drawn_shifts(of_row.sum(1)[:, None] / counts.sum(), np.random.default_rng([SEED, *name.encode()]))
        for name, of_row in zip(names, bits, strict=True)
    )
    shifts = np.concatenate([*drawn], 1)
    means, seeds, description = sums.sum(0) / counts.sum(), tuple(map(len, bits)), blocks[names[0]][0]["are"]
    return Certainty(names, seeds, sums, counts, means, shifts, draws + shifts, description)
