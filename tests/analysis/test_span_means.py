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
from spanlm.data.token_files import TokenFile
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
    assert profile.span == length
