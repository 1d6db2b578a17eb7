"""How sure a table's differences and their order are."""

from typing import Any

import numpy as np
import pytest

from spanlm.papers.certainty import certainty

BLOCKS = 100
TOKENS = np.random.default_rng(7).integers(50, 150, BLOCKS)


def records(bits: float, seeds: int = 1, *, common: float = 0.3, own: float = 0.0, spread: float = 0.0) -> list[Any]:
    """A row of so many bits a token: what the text adds to a block is common to all rows, or its own."""
    text, generator = np.random.default_rng(1), np.random.default_rng(round(1000 * bits))
    shared = common * text.standard_normal(BLOCKS)
    found = []
    for seed in range(seeds):
        each = bits + shared + own * generator.standard_normal(BLOCKS) + spread * (seed - (seeds - 1) / 2)
        found.append({"blocks": {"are": "blocks", "tokens": TOKENS.tolist(), "bits": (each * TOKENS).tolist()}})
    return found


def test_what_is_common_to_all_rows_widens_no_difference() -> None:
    """Both have read the same blocks."""
    found = certainty({"one": records(7.0), "two": records(7.05), "three": records(7.1)})
    assert found is not None and found.seeds == (1, 1, 1)
    mean, (low, high), p = found.against(2, 0)
    assert mean == pytest.approx(0.1) and low == pytest.approx(0.1) and high == pytest.approx(0.1) and p < 0.001
    assert [found.place(row) for row in range(3)] == [(1, 1, 1), (2, 2, 2), (3, 3, 3)]
    assert found.agreement([80.0, 90.0, 100.0]) == (3, (3, 3), 3, 1.0)
    assert found.agreement([100.0, 90.0, 80.0]) == (0, (0, 0), 3, 0.0)
    assert found.agreement([None, 90.0, 80.0]) == (0, (0, 0), 1, 0.0)
    assert found.agreement([None, 90.0, None]) is None


def test_what_is_a_rows_own_widens_it() -> None:
    """The interval is that of a mean of 100 blocks; rows that are too near have no sure place."""
    found = certainty({"one": records(7.0, own=0.2), "two": records(7.01, own=0.2), "far": records(8.0, own=0.2)})
    assert found is not None
    mean, (low, high), p = found.against(1, 0)
    assert high - low == pytest.approx(2 * 1.96 * 0.2 * 2**0.5 / BLOCKS**0.5, rel=0.3)
    assert low < 0 < high and p > 0.05 and low < mean < high
    assert {found.place(row)[1:] for row in (0, 1)} == {(1, 2)} and found.place(2) == (3, 3, 3)
    agreed = found.agreement([1.0, 2.0, 3.0])
    assert agreed is not None and agreed[1] == (2, 3) and 0.05 < agreed[3] < 0.95


def test_few_seeds_that_differ_leave_doubt() -> None:
    sure = certainty({"one": records(7.0, 3), "two": records(7.05, 3)})
    doubtful = certainty({"one": records(7.0, 3, spread=0.05), "two": records(7.05, 3, spread=0.05)})
    assert sure is not None and doubtful is not None and sure.seeds == (3, 3)
    assert sure.against(1, 0)[1] == pytest.approx((0.05, 0.05))
    low, high = doubtful.against(1, 0)[1]
    assert low < 0 < high


def test_rows_without_blocks_or_of_another_text_are_left_out() -> None:
    other = records(7.2)
    other[0]["blocks"]["tokens"] = [1] * BLOCKS
    rows: dict[str, Any] = {
        "other": other,
        "old": [{}],
        "one": records(7.0),
        "short": [{"blocks": {}}],
        "mixed": [*records(7.0), {}],
        "two": records(7.1),
    }
    found = certainty(rows)
    assert found is not None and found.names == ("one", "two")
    assert certainty({"one": records(7.0), "old": [{}]}) is None
    assert certainty({}) is None
