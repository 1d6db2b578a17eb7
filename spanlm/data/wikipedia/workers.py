"""A function over many items in several processes: results in order, few items under way, nobody left behind."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from spanlm.errors import RunError
from spanlm.store.processes import SPAWN, end_with_parent, starting

Item = TypeVar("Item")
Result = TypeVar("Result")

# items under way for each process: one at work, one waiting
_AHEAD = 2


def in_order(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    jobs: int,
    known: Callable[[Item], Result | None] = lambda item: None,
) -> Generator[tuple[Item, Result], None, None]:
    """Give out each item with its result, in the order of the items.

    Args:
        function: Can be pickled, as can its argument and its result.
        items: Taken one by one, a few ahead of what was given out.
        jobs: How many processes; 1 stays in this one.
        known: Results that need no work any more; None for the others.

    Raises:
        RunError: A process was ended from outside.
    """
    if jobs == 1:
        for item in items:
            found = known(item)
            yield item, function(item) if found is None else found
        return
    pool = ProcessPoolExecutor(jobs, mp_context=SPAWN, initializer=end_with_parent)
    under_way: deque[tuple[Item, Result | Future[Result]]] = deque()
    try:
        for item in items:
            found = known(item)
            under_way.append((item, _submit(pool, function, item) if found is None else found))
            if len(under_way) > _AHEAD * jobs:
                yield _finished(*under_way.popleft())
        while under_way:
            yield _finished(*under_way.popleft())
    except BrokenProcessPool as error:
        raise RunError(
            "a process was ended from outside, perhaps for lack of memory; start again, with fewer --jobs: "
            "what is done is kept"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _submit(pool: ProcessPoolExecutor, function: Callable[[Item], Result], item: Item) -> Future[Result]:
    """Hand an item over; what starts a process, too."""
    with starting():
        return pool.submit(function, item)


def _finished(item: Item, result: Result | Future[Result]) -> tuple[Item, Result]:
    return item, result.result() if isinstance(result, Future) else result
