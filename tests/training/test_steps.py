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
from spanlm.models.heads import SoftmaxConfig
from spanlm.models.interfaces import Readout
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import KeyValueConfig, NGramConfig, NoMemoryConfig, PointerSentinelConfig
from spanlm.scoring.perplexity import evaluate
from spanlm.scoring.protocol import KINDS, Protocol
from spanlm.store.run_folder import load_weights
from spanlm.training.config import OptimizerConfig
from spanlm.training.run import train
from spanlm.training.trainer import Trainer
from tests.cases import rest_slow
from tests.training.small import RUNS, Heard, make_config, rows, with_training

PLAIN = OptimizerConfig(kind="sgd", lr=0.5, clip=None)


class Spied:
    """A trainer that keeps the gradients that its optimiser is given, and the weights before and after."""

    def __init__(self, config: RunConfig, corpus: Corpus, folder: Path) -> None:
        self.trainer = Trainer(with_training(config, log_every=1000), corpus, folder, Heard())
        self.gradients: list[dict[str, Tensor]] = []
        self.weights = [self._now()]
        self._step, self.trainer.optimizer.step = self.trainer.optimizer.step, self._spied

    def _now(self) -> dict[str, Tensor]:
        return {name: parameter.detach().clone() for name, parameter in self.trainer.model.named_parameters()}

    def _spied(self) -> None:
        named = self.trainer.model.named_parameters()
        self.gradients.append({name: p.grad.clone() for name, p in named if p.grad is not None})
        self._step()
        self.weights.append(self._now())

    def steps(self, count: int) -> Spied:
        segments = self.trainer.batcher.segments(seed=1_000_003)
        for _ in range(count):
            self.trainer.step(next(segments))
        return self


def norm_of(gradients: dict[str, Tensor]) -> float:
    return math.sqrt(sum(float(gradient.double().pow(2).sum()) for gradient in gradients.values()))


def test_time_sum_divides_by_the_streams_that_read_nothing_too(corpus: Corpus, room: Path) -> None:
    """As the code of Salton et al. (2017): the last batch of an epoch has fewer sentences, and its loss is less."""
    config = make_config(optimizer=PLAIN, dropout=0.0, kind="sentences", batch_size=7)
    mean, time_sum = (Spied(with_training(config, loss=loss), corpus, room) for loss in ("mean", "time-sum"))
    *_, last = mean.trainer.batcher.segments()
    assert not last.mask.any(0).all()
    for spied in (mean, time_sum):
        spied.trainer.step(last)
    share = int(last.mask.sum()) / 7
    for name, gradient in mean.gradients[0].items():
        torch.testing.assert_close(time_sum.gradients[0][name], gradient * share, rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("clip", [0.05, 0.2, 1e6])
def test_clipping_is_by_the_global_norm(corpus: Corpus, room: Path, clip: float) -> None:
    config = make_config(optimizer=PLAIN, loss="time-sum")
    free = Spied(config, corpus, room).steps(1).gradients[0]
    limited = make_config(optimizer=replace(PLAIN, clip=clip), loss="time-sum")
    clipped = Spied(limited, corpus, room).steps(1).gradients[0]
    norm = norm_of(free)
    assert (norm > clip) == (clip < 1)
    for name, gradient in free.items():
        torch.testing.assert_close(clipped[name], gradient * min(1.0, clip / norm), rtol=1e-4, atol=1e-9)
    assert norm_of(clipped) == pytest.approx(min(clip, norm), rel=1e-4)


@pytest.mark.parametrize("loss", ["mean", "time-sum"])
def test_the_penalty_is_added_to_the_loss_and_not_to_what_is_logged(corpus: Corpus, room: Path, loss: str) -> None:
    """Press & Wolf (2017): λ‖P‖², whose gradient is 2λP; its bias and all other weights are left alone."""
    config = make_config(optimizer=PLAIN, dropout=0.0, loss=loss)
    found = []
    for penalty in (0.0, 0.3):
        head = SoftmaxConfig(projection=True, projection_penalty=penalty)
        penalised = replace(config, model=replace(config.model, head=head))
        found.append(Spied(penalised, corpus, room).steps(1))
    free, spied = found
    assert spied.trainer.position.epoch_nll == free.trainer.position.epoch_nll
    for name, gradient in free.gradients[0].items():
        added = 2 * 0.3 * free.weights[0][name] if name == "head.projection.weight" else 0.0
        torch.testing.assert_close(spied.gradients[0][name], gradient + added, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", RUNS)
def test_what_is_frozen_stays(corpus: Corpus, room: Path, name: str) -> None:
    config = RUNS[name]()
    spied = Spied(with_training(config, optimizer=replace(config.training.optimizer, weight_decay=0.1)), corpus, room)
    spied.steps(5)
    frozen = {n for n, parameter in spied.trainer.model.named_parameters() if not parameter.requires_grad}
    assert all("bias_hh" in n for n in frozen)
    assert bool(frozen) == (config.model.encoder.kind not in ("hornn", "awd_lstm"))
    for n, weight in spied.weights[-1].items():
        assert torch.equal(weight, spied.weights[0][n]) == (n in frozen)
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


@pytest.mark.parametrize("name", rest_slow(RUNS, always=5))
def test_validation_is_what_evaluate_gives(corpus: Corpus, room: Path, name: str) -> None:
    """With dropout in training; the file holds the weights of the best epoch."""
    config = RUNS[name]()
    position = train(config, corpus, room)
    model = LanguageModel(config.model, len(corpus.vocabulary))
    load_weights(room, model, corpus.vocabulary.hash)
    batching: Any = config.training.batching
    protocol = Protocol(
        context=next(context for context, kind in KINDS.items() if kind == batching.kind),
        batch_size=batching.eval_batch_size,
        precision=config.training.precision,
        predict_first=batching.predict_first,
    )
    found = evaluate(model.eval(), corpus, "valid", protocol)
    unopened: Any = found.salton2017
    loss = found.nll_per_token if batching.predict_first else unopened.nll / unopened.predicted
    assert loss == pytest.approx(position.best_loss, rel=1e-6)
    assert found.tokens == len(corpus.splits["valid"])
