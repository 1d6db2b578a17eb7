"""How flat the attention over spans is and how far back it lies: a loop over every word of a split says the same."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import spanlm
from spanlm.analysis.attend import attention_by_lag, attention_flatness
from spanlm.analysis.lags import MOST_ROWS, LagProfile, MeasuredLags, check_alike, lag_columns, lag_groups
from spanlm.data.token_files import TokenFile
from spanlm.errors import InputError
from spanlm.evaluation.protocol import Protocol
from spanlm.models.language_model import LanguageModel
from tests.reference_span_buffer import Spans, span_buffer, span_ends

KINDS: dict[str, dict[str, Any]] = {
    "sliding": {"buffer_size": 9, "span_length": 3},
    "as trained": {},
    "words": {"words": True},
    "current": {"buffer_size": 9, "span_length": 3, "newest": "current"},
    "words and the current one": {"words": True, "newest": "current"},
}
SLIDING = LagProfile((20.0, 30.0, 50.0), 90, 8, span=4)
FIXED = replace(SLIDING, fixed=True)


def rebuilt(run: Path, **changes: Any) -> LanguageModel:
    """The model of a run with another buffer, whose weights are of the same shapes, and attention that is not flat."""
    trained = spanlm.load(run)
    config = trained.config.model
    model = LanguageModel(replace(config, memory=replace(config.memory, **changes)), len(trained.vocabulary))
    model.load_state_dict(trained.model.state_dict())
    with torch.no_grad():
        model.memory.score.mul_(3)  # type: ignore[operator,union-attr]
    return model.eval()


def looked_at(model: LanguageModel, tokens: TokenFile, eos: int) -> list[list[float]]:
    """For each position the weights of the spans there are, the newest first."""
    memory: Any = model.memory
    config = memory.config
    weights = memory.span_key.weight, memory.query.weight, memory.score
    length, current = 1 if config.words else config.span_length, config.newest == "current"
    p = Spans(config.buffer_size, length, current, *weights)
    found, starts = [], [*tokens.documents.tolist(), len(tokens)]
    for start, end in pairwise(starts):
        read = [eos, *tokens.ids[start : end - 1].tolist()]
        with torch.no_grad():
            h = model(torch.tensor([read]).T, model.init_state(1))[0].features  # nothing is dropped: what is asked with
            _, rows, _, _ = span_buffer(h, [[]], p)
        for now in range(end - start):
            lags = [now + current - last for _, last in span_ends(now + current, p)]
            found.append([rows[now, 0, config.buffer_size - lag].item() for lag in lags])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_both_are_a_plain_loop(span_run: Path, kind: str) -> None:
    trained, model = spanlm.load(span_run), rebuilt(span_run, **KINDS[kind])
    corpus = trained.corpus()
    every = looked_at(model, corpus.splits["valid"], trained.vocabulary.eos_id)
    flatness = attention_flatness(model, Protocol(context="document", batch_size=3).batcher(corpus, "valid"))
    rows = [row for row in every if len(row) >= 2]
    entropy = [-sum(w * math.log(w) for w in row) / math.log(len(row)) for row in rows]
    largest, nearest, equal = ([f(row) for row in rows] for f in (max, lambda row: row[0], lambda row: 1 / len(row)))
    assert (flatness.overall.rows, flatness.left_out) == (len(rows), len(every) - len(rows))
    assert flatness.overall[2:6] == pytest.approx(np.mean([entropy, largest, nearest, equal], axis=1), abs=1e-5)
    assert flatness.overall.flatness < 0.97 and abs(flatness.overall.nearest - flatness.overall.equal) > 1e-4

    memory: Any = model.memory
    length = 1 if memory.config.words else memory.config.span_length
    assert flatness.span == length
    profile = attention_by_lag(model, Protocol(context="document", batch_size=3).batcher(corpus, "valid"))
    full = [row for row in every if len(row) == memory.config.count]
    assert (profile.positions, profile.left_out) == (len(full), len(every) - len(full))
    assert profile.percent[::-1] == pytest.approx(100 * np.mean(full, axis=0), abs=1e-4)
    assert list(profile.lags)[::-1] == [("current" not in kind) + length * n for n in range(memory.config.count)]
    assert (profile.span, profile.fixed) == (length, "fixed" in kind)


def test_lags_are_named_as_the_grid_has_them() -> None:
    assert [SLIDING.label(lag) for lag in SLIDING.lags] == ["−9", "−5", "−1"]
    assert [FIXED.label(lag) for lag in FIXED.lags] == ["−12 … −9", "−8 … −5", "−4 … −1"]
    assert (SLIDING.label(9, 1), FIXED.label(9, 1)) == ("−9 … −1", "−12 … −1")
    assert LagProfile((20.0, 80.0), 1, 0, nearest_lag=0).label(1, 0) == "−1 … 0 (current word)"


@pytest.mark.parametrize("count", [1, 2, MOST_ROWS, MOST_ROWS + 1, 64, 65, 256])
def test_many_lags_are_summed_in_groups_that_double(count: int) -> None:
    lags = range(1 + 8 * (count - 1), 0, -8)
    groups = lag_groups(lags)
    assert [lag for group in groups for lag in group] == list(lags)
    sizes = [len(group) for group in reversed(groups)]
    if count <= MOST_ROWS:
        assert sizes == [1] * count
    else:
        assert sizes[:-1] == [1, *(2**power for power in range(len(sizes) - 2))] and sizes[-1] <= sum(sizes[:-1])


def test_a_table_of_groups_has_their_sums() -> None:
    long = replace(SLIDING, percent=tuple(100 * np.arange(1, 65) / np.arange(1, 65).sum()))
    short = replace(long, percent=(10.0, 20.0, 30.0, 40.0))
    header, *rows = lag_columns([MeasuredLags("short", "a", short), MeasuredLags("long", "a", long)])
    assert header == ["lag", "short", "long"]
    # 64 + 63 of 2080; the spans of −13 and −9 are the 3rd and 4th newest
    assert [row[0] for row in rows[-5:]] == ["−13 … −9", "−5", "−1", "last 5 spans", "positions"]
    assert rows[-5][1:] == ["30.0", f"{100 * (62 + 61) / 2080:.1f}"] and rows[0][:2] == ["−253 … −129", ""]
    assert sum(float(row[2]) for row in rows[:-2]) == pytest.approx(100, abs=0.3)


@pytest.mark.parametrize(
    "other", [LagProfile((100.0,), 9, 0), FIXED, replace(SLIDING, span=3), replace(SLIDING, nearest_lag=0)], ids=str
)
def test_lags_of_other_things_do_not_stand_side_by_side(other: LagProfile) -> None:
    measured = [MeasuredLags("one", "a text", SLIDING), MeasuredLags("two", "a text", other)]
    for show in (lag_comparison_figure, lambda both: list(lag_columns(both))):
        with pytest.raises(InputError, match=r"one looks at spans of 4 words on a sliding grid and two at "):
            show(measured)
    check_alike({"one": (1, False, 1), "two": (1, False, 0)})
