"""Sums that are formed for many segments at once: those of one after the other."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pytest
import torch

from spanlm.data.batching import Segment
from spanlm.evaluation.dynamic import evaluate as lesson_sums
from spanlm.evaluation.dynamic.evaluate import GradientSums
from spanlm.evaluation.scoring import Scored, Tally
from spanlm.models.interfaces import Readout

UNK = 3


def scored(seed: int, steps: int, *, parts: bool = False) -> Scored:
    """A segment of one stream, with padding, <unk> and sometimes a beginning."""
    draw = torch.Generator().manual_seed(seed)

    def numbers() -> torch.Tensor:
        return -torch.rand(steps, 1, generator=draw)

    def words() -> torch.Tensor:
        return torch.randint(5, (steps, 1), generator=draw)

    mask = torch.rand(steps, 1, generator=draw) < 0.8
    segment = Segment(words(), words(), mask, torch.tensor([seed % 3 == 0]))
    filled = torch.rand(steps, 1, generator=draw) < 0.6
    found = {"steps": filled.double(), "buffer_nll": numbers()} if parts else {}
    return Scored(segment, numbers(), Readout(numbers().unsqueeze(-1)), found)


def one_by_one(segments: list[Scored]) -> Tally:
    total = Tally()
    for segment in segments:
        total = total.plus(segment, UNK)
    return total


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("together", [1, 4, 100])
def test_they_are_those_of_one_after_the_other(monkeypatch: pytest.MonkeyPatch, together: int, parts: bool) -> None:
    """Whatever their lengths; more can be added after the sums were asked for."""
    monkeypatch.setattr(lesson_sums, "TOGETHER", together)
    segments = [scored(n, 1 + n % 4, parts=parts) for n in range(11)]
    sums = GradientSums(UNK)
    for count, segment in enumerate(segments, 1):
        assert sums.add(segment)
        if count in (3, 11):
            found, expected = asdict(sums.total), asdict(one_by_one(segments[:count]))
            found_parts, expected_parts = found.pop("metrics"), expected.pop("metrics")
            assert found == pytest.approx(expected, rel=1e-12)
            assert bool(found_parts) == parts
            assert found_parts == pytest.approx(expected_parts, rel=1e-12)
    assert found["unk_tokens"] > 0 and found["first_tokens"] > 0


@pytest.mark.parametrize("together", [1, 4, 100])
def test_they_end_with_the_first_segment_that_is_not_finite(monkeypatch: pytest.MonkeyPatch, together: int) -> None:
    """Also where a longer one before it is summed after it."""
    monkeypatch.setattr(lesson_sums, "TOGETHER", together)
    segments = [scored(n, 5 if n == 1 else 2) for n in range(9)]
    segments[3] = replace(segments[3], log_p=torch.full((2, 1), math.nan))
    segments[3] = replace(segments[3], segment=replace(segments[3].segment, mask=torch.ones(2, 1, dtype=torch.bool)))
    sums = GradientSums(UNK)
    said = [sums.add(segment) for segment in segments]
    assert said.index(False) == max(4, together) - 1 if together < 9 else all(said)
    assert sums.total.tokens == one_by_one(segments[:4]).tokens
    assert math.isnan(sums.total.nll)
