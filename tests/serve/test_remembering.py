"""What is remembered of a text that was read: by content, of one model, of bounded size."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

import spanlm
from spanlm.models.interfaces import LMState, NextWordModel, Readout
from spanlm.scoring.stream import evaluating
from spanlm.serve.remembering import Memo, Remembering
from tests.models.small import language_model, models


class Counting(NextWordModel):
    def __init__(self, model: NextWordModel) -> None:
        super().__init__()
        self.model, self.head, self.vocabulary_size, self.words = model.eval(), model.head, model.vocabulary_size, 0

    def init_state(self, batch_size: int) -> LMState:
        return self.model.init_state(batch_size)

    def forward(self, tokens: Tensor, state: LMState) -> tuple[Readout, LMState]:
        self.words += tokens.numel()
        read: tuple[Readout, LMState] = self.model(tokens, state)
        return read


def read(model: NextWordModel, *parts: list[int], streams: int = 1) -> Tensor:
    """Log p of every next word, of parts that are read one after the other."""
    state, found = model.init_state(streams), []
    with evaluating(model):
        for part in parts:
            log_p, state = model.log_probs(torch.tensor([part] * streams).T, state)
            found.append(log_p)
    return torch.cat(found)


@pytest.mark.parametrize("config", models())
def test_what_is_remembered_is_what_would_be_computed(config: object) -> None:
    inner = Counting(language_model(config))  # type: ignore[arg-type]
    model, alone = Remembering(inner, Memo(10**8), "1"), inner.model
    first = read(model, [1, 2, 3], [4, 0])
    assert torch.equal(first, read(alone, [1, 2, 3], [4, 0])) and inner.words == 5
    assert torch.equal(read(model, [1, 2, 3], [4, 0]), first) and inner.words == 5, "all of it is known"
    assert torch.equal(read(model, [1, 2, 3], [2, 2]), read(alone, [1, 2, 3], [2, 2])) and inner.words == 7
    read(model, [1, 2], [3])
    assert inner.words == 10, "reading that stopped elsewhere may differ in its last digits"
    read(model, [1, 2, 3], streams=2)
    assert inner.words == 16, "of several streams nothing is remembered"


def test_models_share_a_memo_and_what_was_used_longest_ago_is_forgotten_first() -> None:
    inner = Counting(language_model(models()[0].values[0]))  # type: ignore[arg-type]
    memo = Memo(10**8)
    one, other = (Remembering(inner, memo, name) for name in ("1", "2"))
    read(one, [1, 2])
    read(other, [1, 2])
    assert inner.words == 4
    (size,) = {value[2] for value in memo._values.values()}
    model = Remembering(inner, Memo(2 * size), "1")
    inner.words = 0
    for text in ([1, 2], [3, 4], [1, 2], [0, 1], [1, 2]):  # [0, 1] takes the place of [3, 4]
        read(model, text)
    assert inner.words == 6
    read(model, [3, 4])
    assert inner.words == 8


def test_threads_share_it() -> None:
    model = language_model(models()[0].values[0]).eval()  # type: ignore[arg-type]
    remembering = Remembering(model, Memo(20_000), "1")
    texts = [[number % 5, number % 3] for number in range(300)]
    with ThreadPoolExecutor(8) as pool:
        for text, found in zip(texts, pool.map(lambda text: read(remembering, text), texts), strict=True):
            assert torch.equal(found, read(model, text))


def test_what_is_remembered_holds_the_bytes_that_are_counted(tiny_run: Path, lstm_run: Path, span_run: Path) -> None:
    for run in (tiny_run, lstm_run, span_run):
        memo, loaded = Memo(10**8), spanlm.load(run, "cpu").model
        read(Remembering(loaded, memo, "1"), list(range(16)), list(range(16)))
        for readout, state, size in memo._values.values():
            kept = [*state.flat().values(), readout.features]
            assert all(x.untyped_storage().nbytes() == x.nbytes for x in kept) and sum(x.nbytes for x in kept) <= size
