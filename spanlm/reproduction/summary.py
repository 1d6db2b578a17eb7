"""What the seeds of a row have in common."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from spanlm.evaluation.scoring import shown
from spanlm.reproduction.run import Outcome


@dataclass(frozen=True)
class Spread:
    """A number over several seeds."""

    mean: float
    low: float
    high: float
    count: int

    @staticmethod
    def of(values: Iterable[float]) -> Spread:
        """Summarise one or more numbers."""
        found = list(values)
        return Spread(statistics.fmean(found), min(found), max(found), len(found))

    def show(self, digits: int = 1) -> str:
        """`81.2`, or over several seeds `81.2 (80.9–81.6)`."""
        mean, low, high = (shown(value, digits) for value in (self.mean, self.low, self.high))
        return mean if self.count == 1 else f"{mean} ({low}–{high})"


@dataclass(frozen=True)
class RowSummary:
    """All finished runs of a row, and why others failed."""

    row: str
    records: tuple[dict[str, Any], ...]
    errors: tuple[str, ...] = ()

    def perplexity(self, split: str) -> Spread:
        """Perplexity of a part over the seeds."""
        return Spread.of(record[split]["perplexity"] for record in self.records)

    def of(self, *path: str) -> Spread:
        """Summarise the number at `path` of every record."""
        values = []
        for record in self.records:
            value: Any = record
            for name in path:
                value = value[name]
            values.append(float(value))
        return Spread.of(values)

    @property
    def seeds(self) -> list[tuple[int, ...]]:
        """Of what was trained for each record: one seed, or those of an ensemble's members."""
        return [
            (record["seed"],) if "seed" in record else tuple(member["seed"] for member in record["members"])
            for record in self.records
        ]

    def over(self, other: RowSummary) -> Spread | None:
        """How much the perplexity of test is above another row's at the seeds that both have; None without one."""
        mine, theirs = (
            {seeds: record["test"]["perplexity"] for seeds, record in zip(row.seeds, row.records, strict=True)}
            for row in (self, other)
        )
        shared = mine.keys() & theirs.keys()
        return Spread.of(mine[seeds] - theirs[seeds] for seeds in shared) if shared else None


def summarise(outcomes: Sequence[Outcome], rows: Iterable[str]) -> list[RowSummary]:
    """Group outcomes by row, in the order of `rows`; rows that were not run are left out."""
    groups = []
    for row in rows:
        mine = [outcome for outcome in outcomes if outcome.job.row == row]
        if mine:
            records = tuple(outcome.record for outcome in mine if outcome.record is not None)
            groups.append(RowSummary(row, records, tuple(o.error for o in mine if o.record is None)))
    return groups


def concordance(measured: Sequence[float], published: Sequence[float]) -> tuple[int, int]:
    """Count the pairs that both put in the same order, and the pairs that the paper puts in an order at all."""
    agree = pairs = 0
    for (a, x), (b, y) in combinations(zip(measured, published, strict=True), 2):
        if x != y:
            pairs += 1
            agree += (a - b) * (x - y) > 0
    return agree, pairs
