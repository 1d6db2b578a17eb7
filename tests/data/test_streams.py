"""What is drawn for streams in training: the lengths of segments, and where each stream begins."""

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spanlm.data.batching import Segment, StreamBatcher, drawn_lengths
from spanlm.data.config import StreamRules
from spanlm.data.token_files import TokenFile

EOS = 0
SHUFFLED = StreamRules(partial_shuffle=True)
BOTH = StreamRules(length_spread=2.0, short_share=0.1, partial_shuffle=True)

RULES = st.builds(
    StreamRules,
    length_spread=st.floats(0, 9),
    short_share=st.floats(0, 1),
    longest_over=st.none() | st.integers(0, 5),
    partial_shuffle=st.booleans(),
)
SIZES, STREAMS, LENGTHS, SEEDS = st.integers(1, 200), st.integers(1, 9), st.integers(5, 12), st.integers(0, 2**70)


def text(size: int) -> TokenFile:
    """Words count up from 1, so that each is one more than the one before it, the first one than `<eos>`."""
    return TokenFile(np.arange(1, size + 1, dtype=np.int32), np.zeros(1, np.int64))


def batcher(size: int, batch_size: int, length: int, rules: StreamRules | None) -> StreamBatcher:
    return StreamBatcher(text(size), EOS, batch_size=batch_size, length=length, rules=rules)


def read(segments: list[Segment]) -> list[tuple[list[int], list[int]]]:
    """All inputs and all targets of each stream, without padding."""
    inputs, targets, mask = (torch.cat([getattr(s, name) for s in segments]) for name in ("inputs", "targets", "mask"))
    return [(inputs[real, b].tolist(), targets[real, b].tolist()) for b, real in enumerate(mask.T)]


def by_a_loop(columns: list[list[int]], lengths: list[int], turns: list[int]) -> list[list[tuple[list[int], ...]]]:
    """As the codes do it: roll each column, then cut rows off; here every row is a target, so one more is before it."""
    rolled = []
    for column, turn in zip(columns, turns, strict=True):
        targets = np.roll(column, -turn).tolist()
        rolled.append(([column[turn] - 1, *targets[:-1]] if column else [], targets))
    parts = [slice(sum(lengths[:number]), sum(lengths[: number + 1])) for number in range(len(lengths))]
    return [[(inputs[part], targets[part]) for inputs, targets in rolled] for part in parts]


@given(size=SIZES, batch_size=STREAMS, length=LENGTHS, rules=RULES, seed=SEEDS)
def test_segments_are_those_of_a_loop_over_turned_columns(
    size: int, batch_size: int, length: int, rules: StreamRules, seed: int
) -> None:
    segments = list(batcher(size, batch_size, length, rules).segments(seed))
    rows, opening = -(-size // batch_size), segments[0].targets[0].tolist()
    columns = [list(range(1, size + 1))[b * rows : (b + 1) * rows] for b in range(batch_size)]
    turns = [opening[b] - column[0] if column else 0 for b, column in enumerate(columns)]
    lengths = [round(segment.rate_share * length) for segment in segments]
    if rules.draws_lengths:  # the rate follows the drawn length even where the text ends before
        assert lengths == drawn_lengths(rules, length, rows, seed).tolist()
    assert [read([segment]) for segment in segments] == by_a_loop(columns, lengths, turns)
    assert rules.partial_shuffle or not any(turns)


@pytest.mark.slow
def test_every_turn_of_every_stream_is_as_likely_and_none_tells_of_another() -> None:
    # three streams of 5, 5 and 3 words
    found = Counter(
        tuple(batcher(13, 3, 9, SHUFFLED).segments(seed).__next__().targets[0].tolist()) for seed in range(6000)
    )
    assert len(found) == 5 * 5 * 3
    assert all(abs(count - 80) < 4 * 80**0.5 for count in found.values())


def test_an_option_changes_nothing_of_what_the_other_draws() -> None:
    def drawn(rules: StreamRules) -> tuple[list[float], list[int]]:
        segments = list(batcher(500, 4, 10, rules).segments(3))
        return [segment.rate_share for segment in segments], segments[0].targets[0].tolist()

    shares, openings = drawn(StreamRules(length_spread=2.0, short_share=0.1))
    assert drawn(BOTH) == (shares, drawn(SHUFFLED)[1]) and openings != drawn(SHUFFLED)[1]


def lengths_by_a_loop(rules: StreamRules, length: int, count: int) -> list[int]:
    """One at a time, as in the codes of Merity et al. and of Yang et al., with another generator."""
    draw, found = random.Random(0), []
    for _ in range(count):
        base = length // 2 if draw.random() < rules.short_share else length
        drawn = max(5, int(draw.gauss(base, rules.length_spread)))
        found.append(drawn if rules.longest_over is None else min(drawn, length + rules.longest_over))
    return found


def test_lengths_are_distributed_as_in_a_loop() -> None:
    rules, length, count = StreamRules(length_spread=5.0, short_share=0.05, longest_over=2), 70, 20_000
    expected = Counter(lengths_by_a_loop(rules, length, count))
    found = Counter(drawn_lengths(rules, length, 2 * length * count, seed=1)[:count].tolist())
    below = 0
    for steps in sorted({*found, *expected}):
        below += found[steps] - expected[steps]
        assert abs(below) / count < 0.0195, "Kolmogorov and Smirnov: 1 in 1000 if both are alike"


@given(rules=RULES, length=LENGTHS, steps=st.integers(1, 60_000), seed=st.integers(0, 9))
def test_lengths_just_cover_the_steps(rules: StreamRules, length: int, steps: int, seed: int) -> None:
    lengths = drawn_lengths(rules, length, steps, seed).tolist()
    assert sum(lengths[:-1]) < steps <= sum(lengths)
    assert min(lengths) >= 5
    assert rules.longest_over is None or max(lengths) <= length + rules.longest_over


@given(rules=RULES, multiple=st.integers(1, 9), seed=st.integers(0, 9))
def test_lengths_are_multiples_near_those_that_are_drawn(rules: StreamRules, multiple: int, seed: int) -> None:
    drawn, rounded = (drawn_lengths(r, 70, 9_000, seed) for r in (rules, replace(rules, length_multiple=multiple)))
    assert not (rounded % multiple).any() and (rounded > 0).all()
    count = min(len(drawn), len(rounded))
    assert rules.longest_over is not None or abs(drawn[:count] - rounded[:count]).max() <= multiple // 2
    assert rules.longest_over is None or rounded.max() <= 70 + rules.longest_over
