"""Which of many cases `pytest` runs by itself: the others wait for `pytest -m slow`."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest


def rest_slow(cases: Iterable[Any], always: int = 1, kind: Callable[[Any], Hashable] = lambda case: None) -> list[Any]:
    """Parameters: of each kind of case the first `always` run in every `pytest`, the others are slow."""
    seen = Counter[Hashable]()
    parameters = []
    for case in cases:
        seen[kind(case)] += 1
        whole = case if isinstance(case, type(pytest.param())) else pytest.param(*_values(case))
        marks = [pytest.mark.slow] if seen[kind(case)] > always else []
        parameters.append(pytest.param(*whole.values, marks=[*whole.marks, *marks], id=whole.id))
    return parameters


def _values(case: Any) -> tuple[Any, ...]:
    return case if isinstance(case, tuple) else (case,)
