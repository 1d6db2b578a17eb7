from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlm.data.wikipedia.splitting import PROPORTIONS, TEST, TRAIN, VALID, draw, split_articles
from spanlm.errors import InputError


@settings(max_examples=50)
@given(st.lists(st.integers(1, 5000), min_size=3, max_size=80), st.integers(0, 9))
def test_held_out_splits_have_their_share_and_part_of_an_article_more(sizes: list[int], seed: int) -> None:
    lots = [draw(seed, str(number)) for number in range(len(sizes))]
    splits = split_articles(lots, sizes)
    order = sorted(range(len(sizes)), key=lots.__getitem__)
    # a plain loop: in the order of the lots, one after the other until the share is reached
    expected, queue = {}, list(order)
    for split, left in ((VALID, 2), (TEST, 1)):
        share = (1.2 / 24.9) * sum(sizes)
        taken = 0
        while len(queue) > left and taken < share:
            expected[queue[0]] = split
            taken += sizes[queue.pop(0)]
    assert [expected.get(number, TRAIN) for number in range(len(sizes))] == splits.tolist()
    assert {TRAIN, VALID, TEST} == set(splits.tolist())


def test_the_papers_proportions() -> None:
    sizes = [random.Random(1).randint(500, 9000) for _ in range(7500)]
    splits = split_articles([draw(1, str(number)) for number in range(7500)], sizes)
    shares = [sum(size for size, split in zip(sizes, splits, strict=True) if split == part) for part in range(3)]
    assert [share / sum(sizes) for share in shares] == pytest.approx(
        [share / 24.9 for share in PROPORTIONS.values()], abs=1e-3
    )


def test_a_lot_depends_on_seed_and_id_alone() -> None:
    assert draw(1, "7") == draw(1, "7") < 2**64
    assert len({draw(seed, id) for seed in (1, 2, 11) for id in ("1", "11", "2")}) == 9


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_to_split(count: int) -> None:
    with pytest.raises(InputError, match=rf"{count} article\(s\) cannot be split"):
        split_articles([1, 2][:count], [5, 5][:count])
