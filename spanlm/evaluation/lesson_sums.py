"""Sums over short segments, formed for many of them at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

import torch

from spanlm.data.batching import Segment
from spanlm.evaluation.scoring import Scored, Tally
from spanlm.models.interfaces import Readout

TOGETHER = 64
"""Segments at a time: the sums of one cost as much as those of many, and every time a GPU is waited for."""


class LessonSums:
    """What `Tally` sums, over segments of one stream in turn.

    Args:
        unk_id: of <unk>.
    """

    def __init__(self, unk_id: int) -> None:
        self._unk_id = unk_id
        self._total, self._waiting = Tally(), list[Scored]()

    def add(self, scored: Scored) -> bool:
        """Add a segment; False as soon as it is known that a sum is not finite."""
        self._waiting.append(scored)
        if len(self._waiting) == TOGETHER:
            self._sum()
        return math.isfinite(self._total.nll)

    @property
    def total(self) -> Tally:
        """The sums so far; where one is not finite, those up to the first segment that made it so."""
        self._sum()
        return self._total

    def _sum(self) -> None:
        waiting, self._waiting = self._waiting, []
        found = self._total
        for _, alike in groupby(sorted(waiting, key=_steps), key=_steps):
            found = found.plus(beside(list(alike)), self._unk_id)
        self._total = found if math.isfinite(found.nll) else self._first_not_finite(waiting)

    def _first_not_finite(self, waiting: Sequence[Scored]) -> Tally:
        found = self._total
        for scored in waiting:
            if math.isfinite(found.nll):
                found = found.plus(scored, self._unk_id)
        return found


def _steps(scored: Scored) -> int:
    return len(scored.log_p)


def beside(scored: Sequence[Scored]) -> Scored:
    """Put segments of as many steps side by side, as streams of one."""
    segments = [one.segment for one in scored]
    return Scored(
        Segment(
            inputs=torch.cat([segment.inputs for segment in segments], 1),
            targets=torch.cat([segment.targets for segment in segments], 1),
            mask=torch.cat([segment.mask for segment in segments], 1),
            reset=torch.cat([segment.reset for segment in segments]),
        ),
        torch.cat([one.log_p for one in scored], 1),
        Readout(torch.cat([one.readout.features for one in scored], 1)),
        {name: torch.cat([one.metrics[name] for one in scored], 1) for name in scored[0].metrics},
    )
