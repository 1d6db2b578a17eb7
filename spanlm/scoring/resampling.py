r"""Bootstrap intervals for the difference of two models, over blocks of a text and over seeds.

A text is cut into blocks: its documents if there are enough. With S_b the sum of the differences d_t in
block b, n_b its tokens and r_b = (S_b − θ n_b) / (1 − n_b / Σ n) its pull on the mean:

    mean         θ = Σ_b S_b / Σ_b n_b
    draws        θ* of B blocks drawn with replacement (paired, as both models read each block), spread in two ways:
    moved        θ + (θ* − θ) t √(B / (B − 1)) / z
    studentised  θ − (θ* − θ) s / s*,   s = √(Σ_b r_b²) / Σ_b n_b,   s* the same of the draw
    interval     the middle 95 % of the draws; on each side of θ the farther of moved and studentised
    p            twice the share of these draws beyond 0, so that an interval without 0 has p < 0.05

Tokens near each other share a topic, so intervals over single tokens would be too narrow. Long blocks keep more of
that, but the standard deviation of B blocks is known only to 1 / √(2B), 7 % with 100: a text with fewer than
`FEWEST_DOCUMENTS` documents is cut into about `BLOCKS` blocks.

Draws from B blocks lie too near the mean: their variance divides by B, not B − 1, and their middle 95 % is that of a
normal distribution (z), not of Student's (t, B − 1 degrees of freedom). The moved draws correct this (Hesterberg, 2015,
"What teachers should know about the bootstrap", section 5.3). With skewed blocks, a mean that is too low comes with a
spread that is too small. Studentised draws correct this (Efron and Tibshirani, 1993, "An introduction to the
bootstrap", section 12.5), but fail if few blocks hold most of the text. In simulated texts of 20 to 100 blocks without
a difference, 94 to 97 % of the intervals contain 0 for blocks that are normal, exponential, log-normal with σ = 1, or
of log-normal lengths with σ = 2; 90 to 92 % if lengths and differences are both log-normal; and 82 to 88 % for
log-normal blocks with σ = 2, whose mean depends on rare blocks that most texts lack. `lopsided` detects 94 to 97 % of
the last case and half of the case before.

Seeds are a second sample, crossed with the text. A family's mean is moved by t s / √m, where s is the standard
deviation of its m means and t is drawn from Student's distribution with m − 1 degrees of freedom, as few seeds say
little about their variance. The text's draws are added (Owen, 2007, "The pigeonhole bootstrap": intervals are too wide
rather than too narrow). The tails of t decide the interval, so t is stratified: the distribution is cut into as many
equal parts as there are draws, and the middles of the parts are shuffled (Latin hypercube sampling).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from spanlm.errors import InputError
from spanlm.scoring.tally import Z

FEWEST_DOCUMENTS = 30
BLOCKS = 100
LEAST = 20
"""Minimum tokens per block, except in short documents."""
FEWEST_BLOCKS = 10
"""Minimum number of blocks with a token of a class: fewer say nothing about other texts."""
LOPSIDED = 0.3
"""Skewness of blocks over √B from which intervals are too short; it is 1 if one block causes all the spread."""
DRAWS = 2_000
_HELD = 1 << 22
"""Draws times blocks held at a time, 32 MB."""

Array = NDArray[np.float64]
Counts = NDArray[np.int64]
Interval = tuple[float, float]


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks of a text of N tokens: `of` (N,) has each token's block; `description` is for people."""

    of: Counts
    description: str

    @property
    def count(self) -> int:
        return int(self.of[-1]) + 1

    def sums(self, labels: Counts, classes: int, values: Array | None = None) -> Array:
        """Sum values, or count tokens, by block and class, (blocks, classes); label −1 means no class."""
        inside = labels >= 0
        cells = self.of[inside] * classes + labels[inside]
        weights = None if values is None else values[inside]
        sums = np.bincount(cells, weights, self.count * classes)
        return sums.reshape(self.count, classes).astype(np.float64)


def blocks_of(tokens: int, documents: Counts) -> Blocks:
    """Cut a text into its `documents`, given by their first tokens, or into about `BLOCKS` parts of documents.

    Raises:
        InputError: the text is too short for two blocks.
    """
    ends = np.append(documents[1:], tokens)
    starts, description = documents, f"the {len(documents):,} documents"
    if len(documents) < FEWEST_DOCUMENTS:
        length, cuts = max(LEAST, round(tokens / BLOCKS)), []
        for start, end in zip(documents.tolist(), ends.tolist(), strict=True):
            count = max(1, round((end - start) / length))
            cuts.append(start + np.arange(count) * (end - start) // count)
        starts = np.concatenate(cuts)
        if len(starts) < 2:
            raise InputError(f"a text of {tokens} tokens: is too short for two blocks of {LEAST}. Take a longer one.")
        why = "one document" if len(documents) == 1 else f"{len(documents)} documents are too few to draw from"
        description = f"{len(starts)} blocks of about {length:,} tokens ({why})"
    return Blocks(np.searchsorted(starts, np.arange(tokens), side="right") - 1, description)


def drawn_means(sums: Array, counts: Array, generator: np.random.Generator) -> Array:
    """Draw blocks with replacement; return means (DRAWS, K) of sums and counts (blocks, K), NaN or ±∞ without counts.

    B of a column is the number of its blocks with a count. Corrections keep each draw's rank in its column, but stretch
    each column by itself: draw a difference, not two columns (`moved_means` are compared draw by draw).
    """
    rest, lengths = _pulls(sums, counts)
    mean = sums.sum(0) / counts.sum(0)
    columns = np.concatenate([counts, sums - mean * counts, rest**2, rest * lengths, lengths**2], axis=1)
    tokens, off, squares, cross, square_lengths = np.split(_drawn(columns, generator), 5, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        off = off / tokens
        # around the draw's own mean and per its own tokens; bounded, as a draw of nearly equal blocks has no spread
        spread = (squares - 2 * off * cross + off**2 * square_lengths) * (counts.sum(0) / tokens) ** 2
        wider = np.sqrt((rest**2).sum(0) / np.maximum(spread, (rest**2).sum(0) / 10_000))
        moved, studentised = off * away_from_mean((counts > 0).sum(0)), -off * np.nan_to_num(wider, nan=1.0)
    order = np.argsort(moved, axis=0)
    moved, studentised = np.take_along_axis(moved, order, 0), np.sort(studentised, axis=0)
    farther = np.where(moved < 0, np.minimum(moved, studentised), np.maximum(moved, studentised))
    np.put_along_axis(off, order, mean + farther, 0)
    return np.asarray(off)


def moved_means(sums: Array, counts: Array, generator: np.random.Generator) -> Array:
    """Draw means (DRAWS, K) as `drawn_means`, but only moved, of sums (blocks, K) over the same counts (blocks, 1).

    All columns are moved by one factor, so that in each draw they can be compared.
    """
    mean = sums.sum(0) / counts.sum()
    tokens, off = np.split(_drawn(np.concatenate([counts, sums - mean * counts], axis=1), generator), [1], axis=1)
    return np.asarray(mean + off / tokens * away_from_mean((counts > 0).sum(0)))


def _drawn(columns: Array, generator: np.random.Generator) -> Array:
    """Return the sums of columns (blocks, K) in each draw of as many blocks, (DRAWS, K)."""
    blocks, totals = len(columns), []
    most = max(1, _HELD // blocks)
    for size in (min(most, DRAWS - done) for done in range(0, DRAWS, most)):
        drawn = generator.integers(blocks, size=(size, blocks)) + blocks * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * blocks).reshape(size, blocks).astype(np.float64)
        totals.append(times @ columns)
    return np.concatenate(totals)


def _pulls(sums: Array, counts: Array) -> tuple[Array, Array]:
    """Return r_b and n_b, both over 1 − n_b / Σ n, as a large block pulls the mean towards itself."""
    total = counts.sum(0)
    others = np.maximum(1 - counts / total, 1e-9)
    return (sums - sums.sum(0) / total * counts) / others, counts / others


def lopsided(sums: Array, counts: Array) -> NDArray[np.bool_]:
    """Find columns (K,) where few blocks cause most of the spread, so that unseen blocks may shift the mean far."""
    rest, counted = _pulls(sums, counts)[0], counts > 0
    rest = np.where(counted, rest - rest.sum(0) / counted.sum(0), 0.0)
    return np.asarray(abs((rest**3).sum(0)) > LOPSIDED * (rest**2).sum(0) ** 1.5)


def away_from_mean(blocks: Counts) -> Array:
    """Return the factor that moves draws of so many blocks away from their mean; 1 for a single block."""
    freedom = np.maximum(blocks - 1, 1)
    # expansion of Student's t; its error is at most 0.005 from 10 blocks on
    t = Z + (Z**3 + Z) / (4 * freedom) + (5 * Z**5 + 16 * Z**3 + 3 * Z) / (96 * freedom**2)
    return np.where(blocks > 1, t / Z * np.sqrt(blocks / freedom), 1.0)


def signed(bits: float) -> str:
    """Format a difference: `+0.125`, `−0.125`, `0.000`."""
    return "0.000" if abs(bits) < 0.0005 else f"{bits:+.3f}".replace("-", "−")


def of_chance(p: float) -> str:
    """Format a p-value: `0.125`, `<0.001`; `–` if it is NaN."""
    return "<0.001" if p < 0.001 else f"{p:.3f}".replace("nan", "–")


def drawn_shifts(means: Array, generator: np.random.Generator) -> Array:
    """Draw the distance of a family's mean (m means, K) from the mean over all seeds, (DRAWS, K); 0 if m = 1."""
    seeds = len(means)
    if seeds < 2:
        return np.zeros((DRAWS, means.shape[1]))
    spread = means.std(axis=0, ddof=1) / np.sqrt(seeds)
    return np.asarray(generator.permutation(_students_t(seeds - 1))[:, None] * spread)


def drawn_apart(means: Array, others: Array, generator: np.random.Generator, *, paired: bool) -> Array:
    """Draw the distance of the difference of two families (m and n means, K) from that over all seeds, (DRAWS, K).

    `paired`: both are of the same runs, read in two ways, so that the seeds' differences alone are drawn.
    """
    if paired:
        return drawn_shifts(means - others, generator)
    return drawn_shifts(means, generator) + drawn_shifts(others, generator)


@cache
def _students_t(freedom: int) -> Array:
    """Return the middles of `DRAWS` equal parts of Student's t, which is √ν tan θ with the density of cos^{ν−1} θ."""
    edges = np.linspace(-np.pi / 2, np.pi / 2, 200_001)
    density = np.cos((edges[1:] + edges[:-1]) / 2) ** (freedom - 1)
    share = np.concatenate([[0.0], np.cumsum(density)]) / density.sum()
    middles = np.interp((np.arange(DRAWS) + 0.5) / DRAWS, share, edges)
    return np.asarray(np.sqrt(freedom) * np.tan(middles))


def interval_of(draws: Array) -> list[Interval]:
    """Return the middle 95 % of each column of draws (DRAWS, K); both ends are draws."""
    low = np.nanquantile(draws, 0.025, axis=0, method="lower")
    high = np.nanquantile(draws, 0.975, axis=0, method="higher")
    return list(zip(low.tolist(), high.tolist(), strict=True))


def drawn_p(draws: Array, mean: float) -> float:
    """Return the p-value of a mean from its draws (DRAWS,): twice the share on the smaller side of 0; 1 for mean 0.

    It is below 0.05 exactly if `interval_of` the draws does not contain 0.
    """
    if mean == 0:
        return 1.0
    beyond = 1 + min(int((draws <= 0).sum()), int((draws >= 0).sum()))
    return min(1.0, 2 * beyond / (1 + len(draws)))
