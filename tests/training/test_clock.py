from __future__ import annotations

from types import SimpleNamespace

import pytest

from spanlm.training import journal as module
from spanlm.training.journal import Clock


def test_the_rate_is_tokens_a_second_of_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=iter([10.0, 12.0, 14.0, 50.0, 58.0]).__next__))
    clock = Clock()
    assert clock.rate == 0
    clock.add(600)
    assert (clock.seconds, clock.rate) == (2, 300)
    clock.add(1000)
    assert (clock.seconds, clock.rate) == (4, 400)
    clock.start()
    assert (clock.seconds, clock.rate) == (0, 0), "what came before the epoch does not count"
    clock.add(16)
    assert (clock.seconds, clock.rate) == (8, 2)
