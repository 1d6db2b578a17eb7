"""What is remembered of a text that was read: by content, of one model, of bounded size."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import spanlm
from spanlm.evaluation.attention import attend_spans, attend_words
from spanlm.evaluation.recall import Prefix, Recalled, anew
from spanlm.runs.trained_model import TrainedModel


@dataclass(frozen=True)
class Read:
    """What was computed, of a size."""

    value: int
    nbytes: int = 10


def test_a_value_is_computed_once_for_each_model_and_text() -> None:
    recalled, computed = Recalled(1000), list[int]()

    def compute() -> Read:
        computed.append(1)
        return Read(len(computed))

    one, other = recalled.of("1"), recalled.of("2")
    assert [one(b"a", compute), one(b"a", compute), other(b"a", compute), one(b"b", compute), other(b"a", compute)] == [
        Read(1), Read(1), Read(2), Read(3), Read(2)
    ]  # fmt: skip
    assert anew(b"a", compute) == Read(4) and anew(b"a", compute) == Read(5)


def test_what_was_used_longest_ago_is_forgotten_first() -> None:
    recall, computed = Recalled(30).of("1"), list[bytes]()

    def ask(key: bytes, size: int = 10) -> None:
        recall(key, lambda: (computed.append(key), Read(0, size))[1])

    for key in (b"a", b"b", b"c", b"a", b"d"):  # the last one takes the place of b
        ask(key)
    for key in (b"a", b"c", b"d", b"b"):
        ask(key)
    assert computed == [b"a", b"b", b"c", b"d", b"b"]
    ask(b"large", 31)
    ask(b"large", 31)  # what is too large for it takes no other's place
    for key in (b"c", b"d", b"b"):
        ask(key)
    assert computed[5:] == [b"large", b"large"]


def test_threads_share_it() -> None:
    recall = Recalled(500).of("1")
    keys = [bytes([number % 70]) for number in range(3000)]
    with ThreadPoolExecutor(16) as pool:
        assert [read.value for read in pool.map(lambda key: recall(key, lambda: Read(key[0])), keys)] == [
            key[0] for key in keys
        ]


def test_a_prefix_is_named_by_its_words_and_by_where_reading_stopped() -> None:
    def names(*parts: list[int], how: int = 1) -> list[bytes]:
        prefix = Prefix(how)
        return [prefix.longer(part) for part in parts]

    assert names([1, 2], [3]) == names([1, 2], [3])
    found = [*names([1, 2], [3]), *names([1], [2, 3]), *names([1, 2, 3]), *names([1, 2], how=2), *names([2, 1])]
    assert len(set(found)) == len(found)


def test_what_is_remembered_holds_the_bytes_that_are_counted(tiny_run: Path, lstm_run: Path, span_run: Path) -> None:
    held: list[Any] = []

    def recall(key: bytes, compute: Callable[[], Any]) -> Any:
        held.append(compute())
        return held[-1]

    words = ["the", "cat", "."] * 15
    for run in (tiny_run, lstm_run, span_run):
        model = spanlm.load(run, "cpu")
        assert isinstance(model, TrainedModel)
        next(model.draw(" ".join(words), length=1, recall=recall))
        if model.has_spans:
            attend_spans(model.model, model.vocabulary, words, recall=recall)
        else:
            attend_words(model.model, model.vocabulary, words, recall=recall, looks=run == tiny_run)
    assert len(held) >= 3 * 6
    for each in held:
        numbers = [*each.numbers.values(), each.weights] if hasattr(each, "numbers") else [each.log_p]
        spelled = sum(len(row) for rows in getattr(each, "expected", []) for row in rows)
        assert sum(map(_stored, [*each.state.flat().values(), *numbers])) + 100 * spelled == each.nbytes


def _stored(x: Any) -> int:
    """Bytes that are kept as long as an array or a tensor is."""
    while isinstance(x, np.ndarray) and x.base is not None:
        x = x.base
    return x.nbytes if isinstance(x, np.ndarray) else x.untyped_storage().nbytes()
