"""The cache's lookups: against the equation with every (step, slot) at once, whatever the blocks."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlm.models.ops.neural_cache import LEAST_BLOCK, Lookup, cache_log_prob, cache_places
from tests.models.small import values
from tests.reference import cache_distribution

V = 4
THETAS = (0.0, 0.5, 2.0)
SIZES: dict[str, Any] = {
    "carried": st.integers(0, 9),
    "steps": st.integers(1, 12) | st.integers(LEAST_BLOCK, 2 * LEAST_BLOCK + 1),
    "window": st.integers(1, 25),
}


def lookup(carried: int, steps: int, batch: int, window: int, holes: bool = True) -> Lookup:
    """Random slots with random words; with `holes` some of them are empty, and NaN."""
    keys = values(carried + steps, batch, 3, seed=1)
    draw = torch.Generator().manual_seed(2)
    words = torch.randint(V, (carried + steps, batch), generator=draw)
    filled = torch.rand(carried + steps, batch, generator=draw) < (0.6 if holes else 2)
    return Lookup(keys[carried:], keys.masked_fill(~filled.unsqueeze(-1), torch.nan), words, filled, window)


@settings(max_examples=20)
@given(**SIZES, batch=st.integers(1, 3))
def test_it_is_the_equation(carried: int, steps: int, batch: int, window: int) -> None:
    of = lookup(carried, steps, batch, window)
    log_p, empty = cache_log_prob(of, THETAS)
    targets = of.words[carried:].unsqueeze(-1)
    for found, theta in zip(log_p, THETAS, strict=True):
        p, nothing = cache_distribution(of.query, of.keys, of.words, of.filled, of.window, theta, V)
        torch.testing.assert_close(found.exp(), p.gather(-1, targets).squeeze(-1), rtol=1e-12, atol=1e-15)
        assert torch.equal(empty, nothing)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_sums_are_at_least_float32(dtype: torch.dtype) -> None:
    of = lookup(5, 8, 2, 6)
    rough = Lookup(of.query.to(dtype), of.keys.to(dtype), of.words, of.filled, of.window)
    exact = Lookup(rough.query.double(), rough.keys.double(), of.words, of.filled, of.window)
    expected, _ = cache_log_prob(exact, THETAS)
    for autocast in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            found, _ = cache_log_prob(rough, THETAS)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)


@settings(max_examples=20)
@given(**SIZES, most=st.integers(1, 30), theta=st.sampled_from(THETAS))
def test_places_are_those_of_the_word_with_their_shares(
    carried: int, steps: int, window: int, most: int, theta: float
) -> None:
    of = lookup(carried, steps, 2, window)
    chance, places, shares = cache_places(of, theta, most)
    assert places.shape == shares.shape == (steps, 2, min(most, carried + steps))
    for step in range(steps):
        for stream in range(2):
            own = carried + step
            seen = [i for i in range(max(0, own - window), own) if of.filled[i, stream]]
            alike = {i: float((theta * (of.query[step, stream] @ of.keys[i, stream])).exp()) for i in seen}
            came, total = of.words[own, stream], sum(alike.values())
            same = {i: x / total for i, x in alike.items() if of.words[i, stream] == came}
            assert float(chance[step, stream]) == pytest.approx(sum(same.values()) if seen else torch.nan, nan_ok=True)
            looked = zip(places[step, stream].tolist(), shares[step, stream].tolist(), strict=True)
            found = [(i, share) for i, share in looked if share]
            assert [share for _, share in found] == pytest.approx(sorted(same.values(), reverse=True)[:most])
            assert {i: same[i] for i, _ in found} == pytest.approx(dict(found))
