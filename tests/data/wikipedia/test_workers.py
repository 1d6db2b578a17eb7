from __future__ import annotations

import math
import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import closing

import pytest

from spanlm.data.wikipedia.workers import in_order
from spanlm.errors import RunError


def counted(items: list[int], taken: list[int]) -> Iterator[int]:
    for item in items:
        taken.append(item)
        yield item


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_order_and_items_are_taken_as_they_are_needed(jobs: int) -> None:
    items = [3000 if number % 5 == 0 else number for number in range(40)]
    taken: list[int] = []
    known = {7: -7, 8: -8}.get
    with closing(in_order(math.factorial, counted(items, taken), jobs, known)) as results:
        for number, (item, result) in enumerate(results):
            assert item == items[number]
            assert result == (known(item) or math.factorial(item))
            assert len(taken) - number <= 1 + 2 * jobs


def test_ctrl_c_is_for_the_parent_and_another_end_is_told() -> None:
    with closing(in_order(math.factorial, range(1000), 2)) as results:
        for _ in range(20):
            next(results)
            for process in multiprocessing.active_children():
                os.kill(process.pid or 0, signal.SIGINT)
        assert next(results) == (20, math.factorial(20))
        for process in multiprocessing.active_children():
            os.kill(process.pid or 0, signal.SIGKILL)
        with pytest.raises(RunError, match="a process was ended from outside"):
            list(results)
    assert multiprocessing.active_children() == []


def test_a_mistake_of_the_function_is_not_hidden() -> None:
    with closing(in_order(math.factorial, [1, -1, 2], 2)) as results:
        assert next(results) == (1, 1)
        with pytest.raises(ValueError, match="not defined for negative"):
            next(results)
