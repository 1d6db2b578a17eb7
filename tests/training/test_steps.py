"""One optimiser step, and a whole run, against a second implementation that shares nothing but the model."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from spanlm.config import RunConfig
from spanlm.data.batching import Segment, make_batcher
from spanlm.data.corpora import Corpus
from spanlm.models.interfaces import Readout
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import KeyValueConfig, NGramConfig, NoMemoryConfig, PointerSentinelConfig
from spanlm.training.config import OptimizerConfig
from spanlm.training.run import train
from spanlm.training.trainer import Trainer
from tests.cases import rest_slow
from tests.training.small import RUNS, Heard, make_config, rows, with_training

PLAIN = OptimizerConfig(kind="sgd", lr=0.5, clip=None)


@pytest.mark.parametrize("name", RUNS)
def test_what_is_frozen_stays(corpus: Corpus, room: Path, name: str) -> None:
    config = RUNS[name]()
    optimizer = replace(config.training.optimizer, weight_decay=0.1)
    trainer = Trainer(with_training(config, optimizer=optimizer, log_every=1000), corpus, room, Heard())
    before = {n: parameter.detach().clone() for n, parameter in trainer.model.named_parameters()}
    segments = trainer.batcher.segments()
    for _ in range(5):
        trainer.step(next(segments))
    frozen = {n for n, parameter in trainer.model.named_parameters() if not parameter.requires_grad}
    assert all("bias_hh" in n for n in frozen)
    assert bool(frozen) == (config.model.encoder.kind not in ("hornn", "awd_lstm"))
    for n, weight in trainer.model.named_parameters():
        assert torch.equal(weight, before[n]) == (n in frozen)
        assert n not in frozen or not weight.any()


def alone(readout: Readout, segment: Segment) -> Tensor:
    """What a pointer sentinel adds to the sum of losses: −log(g + Σ a_i over the slots of the next word)."""
    pointer = readout.mixture
    if pointer is None:
        return torch.zeros(())
    found = (pointer.log_weights.exp() * (pointer.words == segment.targets[..., None])).sum(-1)
    return -(pointer.log_gate.exp() + found).log()[segment.mask].sum()


def trained_by_hand(config: RunConfig, corpus: Corpus) -> tuple[list[float], list[float], LanguageModel]:
    """Losses of every step and of every validation, and the model: plain loops, SGD written out, no dropout."""
    training, batching = config.training, config.training.batching
    torch.manual_seed(training.seed)
    model = LanguageModel(config.model, len(corpus.vocabulary))
    kind: Any = batching.kind

    def losses(split: str, streams: int, order: int, learn: bool) -> list[tuple[float, int]]:
        cut: dict[str, Any] = {"length": batching.length, "shuffle": batching.shuffle, "whole": not learn}
        batcher = make_batcher(kind, corpus.splits[split], 0, batch_size=streams, **cut)
        state, found = model.init_state(streams), []
        for segment in batcher.segments(order):
            state = state.detach().reset(segment.reset, model.init_state(streams))
            readout, state = model(segment.inputs, state)
            log_p = model.head.log_probs(readout).gather(-1, segment.targets[..., None]).squeeze(-1)
            nll = -log_p[segment.mask].sum()
            found.append((nll.item(), int(segment.mask.sum())))
            if learn:
                parameters = [p for p in model.parameters() if p.requires_grad]
                gradients = torch.autograd.grad((nll + alone(readout, segment)) / segment.mask.sum(), parameters)
                with torch.no_grad():
                    for parameter, gradient in zip(parameters, gradients, strict=True):
                        parameter -= training.optimizer.lr * gradient
        return found

    steps, valid = [], []
    for epoch in range(training.epochs):
        found = losses("train", batching.batch_size, training.seed * 1_000_003 + epoch, learn=True)
        steps += [nll / tokens for nll, tokens in found]
        found = losses("valid", batching.eval_batch_size, 0, learn=False)
        valid.append(sum(nll for nll, _ in found) / sum(tokens for _, tokens in found))
    return steps, valid, model


@pytest.mark.parametrize("kind", ["streams", "documents", "sentences"])
@pytest.mark.parametrize(
    "memory", rest_slow([KeyValueConfig(window=9), NoMemoryConfig(), NGramConfig(order=3), PointerSentinelConfig()])
)
def test_a_run_is_what_plain_loops_do(corpus: Corpus, room: Path, kind: str, memory: Any) -> None:
    config = make_config(memory, optimizer=PLAIN, dropout=0.0, kind=kind, shuffle=kind != "streams", log_every=1)
    watcher = Heard()
    train(config, corpus, room, watcher)
    steps, valid, model = trained_by_hand(config, corpus)
    assert [row["loss"] for row in rows(room) if row["event"] == "train"] == pytest.approx(steps, rel=1e-5)
    assert [row["loss"] for row in rows(room) if row["event"] == "valid"] == pytest.approx(valid, rel=1e-5)
    assert len(watcher.steps) == len(steps)
    assert sum(event.tokens for event in watcher.steps) == 2 * len(corpus.splits["train"])
    last = Trainer(config, corpus, room, Heard())
    last.restore()
    for (name, weight), other in zip(last.model.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(weight, other, rtol=1e-3, atol=1e-5, msg=name)


def test_rows_hold_the_mean_since_the_row_before(corpus: Corpus, room: Path) -> None:
    each, some = room / "each", room / "some"
    watcher = Heard()
    train(make_config(log_every=1), corpus, each, watcher)
    train(make_config(log_every=3), corpus, some)
    tokens = {number: event.tokens for number, event in enumerate(watcher.steps, start=1)}
    single = {row["step"]: row for row in rows(each) if row["event"] == "train"}
    for row in (row for row in rows(some) if row["event"] == "train"):
        step = row["step"]
        since = [n for n in range(step - 2, step + 1) if single[n]["epoch"] == row["epoch"]]
        nll = sum(single[n]["loss"] * tokens[n] for n in since)
        assert row["loss"] == pytest.approx(nll / sum(tokens[n] for n in since), rel=1e-9)
        assert row["gradient_norm"] == single[step]["gradient_norm"]
        assert row["perplexity"] == pytest.approx(math.exp(row["loss"]))
    first = next(row for row in rows(each) if row["event"] == "valid")
    total = sum(single[n]["loss"] * tokens[n] for n in single if single[n]["epoch"] == 1)
    whole = len(corpus.splits["train"])
    assert first["train_loss"] == pytest.approx(total / whole, rel=1e-9)
    assert [row["tokens"] / whole for row in rows(each) if row["event"] == "valid"] == [1, 2]
