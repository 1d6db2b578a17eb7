r"""How sure a difference of two models is: a text's blocks drawn anew, their signs flipped, and seeds drawn anew.

A text is cut into blocks, its documents where there are enough of them. With S_b the sum of the differences d_t in
block b and n_b its tokens:

    mean        Σ_b S_b / Σ_b n_b
    interval    the middle 95 % of that over blocks drawn with replacement (paired, as both models read each block),
                each draw t √(B / (B − 1)) / z times as far from the mean
    p           how many of the flips S_b → ±S_b give |Σ_b ± S_b| as large as |Σ_b S_b|

Tokens near each other share a topic, so their differences are alike, and intervals over single tokens would be too
narrow; over whole blocks they are not. Long blocks keep more of that, but few blocks say little of how much they
differ: the standard deviation of B blocks is known to 1 / √(2B), 7 % with 100. So a text with fewer than
`FEWEST_DOCUMENTS` documents is cut into about `BLOCKS` blocks.

Draws from B blocks lie too near the mean: their variance has B where an estimate has B − 1, and the middle 95 % is that
of a normal distribution (z) where the variance is known, not of Student's (t, B − 1 degrees of freedom). So they are
moved away from it (Hesterberg, 2015, "What teachers should know about the bootstrap", section 5.3). That is 2 % with
100 blocks and 22 % with 10, of which plain intervals hold the mean of normal differences in 91 % of the texts.

Seeds are a second sample beside the text, crossed with it. To draw m of m seeds anew would show only (m − 1) / m of
their variance, and nothing of how little a few seeds say of it. So a family's mean is moved by t s / √m, where s is the
standard deviation of its m means and t is drawn from Student's distribution with m − 1 degrees of freedom; the text's
draws are added (Owen, 2007, "The pigeonhole bootstrap": what seeds and text share is counted twice, so that intervals
are a little too wide rather than too narrow). With few seeds the far values of t make the interval, so that t is not
drawn freely: each of as many equal parts of the distribution as there are draws gives its middle, in an order that is
drawn (Latin hypercube sampling). The p of families is the interval's: twice the share of draws beyond 0, so that an
interval without 0 has p < 0.05.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from spanlm.errors import InputError
from spanlm.evaluation.scoring import Z

FEWEST_DOCUMENTS = 30
BLOCKS = 100
LEAST = 20
"""Tokens of a block, at least, but for short documents."""
FEWEST_BLOCKS = 10
"""Blocks that hold a token of a class, at least: fewer say nothing of others."""
DRAWS, FLIPS = 2_000, 10_000
_HELD = 1 << 22
"""Draws times blocks held at a time: 32 MB."""

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
Interval = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks of a text of N tokens: `of` (N,) says which each token is in; `description` for people."""

    of: Counts
    description: str

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self.of[-1]) + 1

    def sums(self, labels: Counts, classes: int, values: Array | None = None) -> Array:
        """Sum values, or count tokens, by block and class: (blocks, classes); a label of −1 is in no class."""
        inside = labels >= 0
        cells = self.of[inside] * classes + labels[inside]
        weights = None if values is None else values[inside]
        found = np.bincount(cells, weights, self.count * classes)
        return found.reshape(self.count, classes).astype(np.float64)


def blocks_of(tokens: int, documents: Counts) -> Blocks:
    """Cut a text into its documents, given by their first tokens, or into about `BLOCKS` parts of them.

    Raises:
        InputError: the text is too short for two blocks.
    """
    ends = np.append(documents[1:], tokens)
    if len(documents) >= FEWEST_DOCUMENTS:
        return Blocks(_numbered(documents, tokens), f"the {len(documents):,} documents")
    length = max(LEAST, round(tokens / BLOCKS))
    starts = np.concatenate([_parts(*both, length) for both in zip(documents.tolist(), ends.tolist(), strict=True)])
    if len(starts) < 2:
        raise InputError(f"a text of {tokens} tokens: is too short for two blocks of {LEAST}. Take a longer one.")
    why = "one document" if len(documents) == 1 else f"{len(documents)} documents are too few to draw from"
    return Blocks(_numbered(starts, tokens), f"{len(starts)} blocks of about {length:,} tokens ({why})")


def _parts(start: int, end: int, length: int) -> Counts:
    count = max(1, round((end - start) / length))
    return start + np.arange(count) * (end - start) // count


def _numbered(starts: Counts, tokens: int) -> Counts:
    return np.searchsorted(starts, np.arange(tokens), side="right") - 1


def drawn_means(sums: Array, counts: Array, generator: np.random.Generator) -> Array:
    """Draw blocks with replacement: means (DRAWS, K) of sums and counts (blocks, K); NaN or ±∞ if no count was drawn.

    B of a column are its blocks that have a count.
    """
    blocks, found = len(sums), []
    for size in _sizes(DRAWS, blocks):
        drawn = generator.integers(blocks, size=(size, blocks)) + blocks * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * blocks).reshape(size, blocks).astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            found.append((times @ sums) / (times @ counts))
    mean = sums.sum(0) / counts.sum(0)
    return np.asarray(mean + (np.concatenate(found) - mean) * _away((counts > 0).sum(0)))


def _away(blocks: Counts) -> Array:
    """Return how much farther from their mean draws of so many blocks are put; 1 of one block, which never differs."""
    freedom = np.maximum(blocks - 1, 1)
    # from 10 blocks on to 0.005
    t = Z + (Z**3 + Z) / (4 * freedom) + (5 * Z**5 + 16 * Z**3 + 3 * Z) / (96 * freedom**2)
    return np.where(blocks > 1, t / Z * np.sqrt(blocks / freedom), 1.0)


def signed(bits: float) -> str:
    """Write a difference for people: `+0.125`, `−0.125`, `0.000`."""
    return "0.000" if abs(bits) < 0.0005 else f"{bits:+.3f}".replace("-", "−")


def of_chance(p: float) -> str:
    """Write a p for people: `0.125`, `<0.001`."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _sizes(total: int, blocks: int) -> Iterator[int]:
    most = max(1, _HELD // blocks)
    yield from (min(most, total - done) for done in range(0, total, most))


def drawn_shifts(means: Array, generator: np.random.Generator) -> Array:
    """Draw how far the mean of a family is from that of all seeds, (DRAWS, K), from its means (m, K); 0 of one seed."""
    seeds = len(means)
    if seeds < 2:
        return np.zeros((DRAWS, means.shape[1]))
    spread = means.std(axis=0, ddof=1) / np.sqrt(seeds)
    return np.asarray(generator.permutation(_students_t(seeds - 1))[:, None] * spread)


@cache
def _students_t(freedom: int) -> Array:
    """Return the middles of `DRAWS` equal parts of Student's t, which is √ν tan θ with the density of cos^{ν−1} θ."""
    edges = np.linspace(-np.pi / 2, np.pi / 2, 200_001)
    density = np.cos((edges[1:] + edges[:-1]) / 2) ** (freedom - 1)
    share = np.concatenate([[0.0], np.cumsum(density)]) / density.sum()
    middles = np.interp((np.arange(DRAWS) + 0.5) / DRAWS, share, edges)
    return np.asarray(np.sqrt(freedom) * np.tan(middles))


def interval_of(draws: Array) -> list[Interval]:
    """Return the middle 95 % of each column of draws (DRAWS, K), between two of them."""
    low = np.nanquantile(draws, 0.025, axis=0, method="lower")
    high = np.nanquantile(draws, 0.975, axis=0, method="higher")
    return list(zip(low.tolist(), high.tolist(), strict=True))


def sign_flip(sums: Array, generator: np.random.Generator) -> float:
    """Return p of the sums of blocks (B,) under flips of their signs: exact where there are at most `FLIPS` of them."""
    least = abs(float(sums.sum())) * (1 - 1e-9)
    if 2 ** len(sums) <= FLIPS:
        every = np.array(list(product((1.0, -1.0), repeat=len(sums))))
        return float((np.abs(every @ sums) >= least).mean())
    as_large = 1  # as it is
    for size in _sizes(FLIPS, len(sums)):
        signs = generator.integers(2, size=(size, len(sums))) * 2.0 - 1.0
        as_large += int((np.abs(signs @ sums) >= least).sum())
    return as_large / (FLIPS + 1)


def drawn_p(draws: Array, mean: float) -> float:
    """Return p of a mean from draws of it (DRAWS,): twice the share on the side of 0 that has fewer; 1 of 0 itself.

    It is below 0.05 exactly where the `interval_of` the draws is without 0.
    """
    if mean == 0:
        return 1.0
    beyond = 1 + min(int((draws <= 0).sum()), int((draws >= 0).sum()))
    return min(1.0, 2 * beyond / (1 + len(draws)))
