"""Steps that are replayed from fixed memory: the seam of CUDA graphs on the processor, and graphs on a GPU."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from spanlm.config import RunConfig
from spanlm.data.batching import Segment
from spanlm.data.corpora import Corpus
from spanlm.models.interfaces import LMState
from spanlm.training import graph
from spanlm.training.dispatch import dispatched
from spanlm.training.graph import Computed, Graphs, RecordedSteps
from spanlm.training.run import train
from spanlm.training.trainer import Trainer
from tests.cases import rest_slow
from tests.models.small import ON_GPU
from tests.training.small import RUNS, STAGES, Heard, make_config, make_corpus, with_training

CPU = torch.device("cpu")
RECORDABLE = [name for name, config in RUNS.items() if config().training.optimizer.kind != "adagrad"]


class Rehearsed(RecordedSteps):
    """As graphs do: all results of a shape come in the same memory, which the next replay overwrites."""

    def record(self, segment: Segment, state: LMState) -> Callable[[], Computed]:
        kept: list[Computed] = []

        def replay() -> Computed:
            computed = self.compute(segment, state, self.rate)
            if not kept:
                kept.append(computed)
            pairs = zip(*([x.numbers, *x.state.flat().values()] for x in (kept[0], computed)), strict=True)
            for place, value in pairs:
                place.copy_(value)
            return kept[0]

        return replay


def recurring(name: str) -> RunConfig:
    """An epoch of every kind of run, at a rate that float32 has, too; no stage, which would begin anew."""
    config = RUNS[name]()
    optimizer = replace(config.training.optimizer, lr=0.25)
    finetune = make_config().training.finetune
    return with_training(config, optimizer=optimizer, finetune=finetune, schedule=make_config().training.schedule)


@pytest.mark.parametrize("name", rest_slow(RUNS, always=2))
def test_a_replayed_step_is_the_step(corpus: Corpus, room: Path, name: str) -> None:
    config, heard, replayed = recurring(name), Heard(), Heard()
    train(config, corpus, room / "plain", heard)
    trainer = Trainer(config, corpus, room, replayed)
    trainer.graphs = steps = Rehearsed(trainer.compute, CPU)
    trainer.run()
    assert steps.recorded and len(steps.recorded) <= graph.MOST
    losses = [[event.position.epoch_nll for event in x.steps] for x in (heard, replayed)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-6)
    assert replayed.epochs[-1].valid_loss == pytest.approx(heard.epochs[-1].valid_loss, rel=1e-6)


def test_lengths_beyond_the_most_run_without(corpus: Corpus, room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "MOST", 2)
    trainer = Trainer(recurring("key-value, streams of drawn lengths, partly shuffled, sgd"), corpus, room, Heard())
    trainer.graphs = steps = Rehearsed(trainer.compute, CPU)
    trainer.run()
    assert len(steps.recorded) == 2


class StaysOnDevice(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses what cannot be recorded: reads of values, and tensors that come from the processor."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        devices = {x.device.type for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        devices |= {torch.device(kwargs["device"]).type} if kwargs.get("device") else set()
        reads = torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default
        assert len(devices) < 2 and (func not in reads or devices == {"cpu"}), func
        return None if "_fused" in str(func) else func(*args, **kwargs)


@pytest.mark.parametrize("name", rest_slow(RECORDABLE, always=4))
def test_a_step_reads_no_value_and_nothing_from_the_processor(corpus: Corpus, room: Path, name: str) -> None:
    trainer = Trainer(with_training(RUNS[name](), precision="fp32"), corpus, room, Heard())
    segment = next(trainer.batcher.segments())
    dispatched(trainer, segment)  # moves the model to the device without values, and makes the optimiser's state
    meta = torch.device("meta")
    segment, state = segment.to(meta), trainer.initial.map(lambda x: x.to(meta))
    rate = torch.zeros((), device=meta)
    with StaysOnDevice():
        trainer.compute(segment, state, rate)


@pytest.mark.parametrize("mark", [pytest.param("cuda", marks=ON_GPU)])
@pytest.mark.parametrize("name", RECORDABLE)
def test_graphs_train_as_without(room: Path, name: str, mark: str) -> None:
    base, heard = recurring(name) if name != STAGES else RUNS[name](), [Heard(), Heard()]
    for graphs, watcher in zip(("off", "auto"), heard, strict=True):
        train(with_training(base, device=mark, graph=graphs), make_corpus(), room / graphs, watcher)
    losses = [[event.position.epoch_nll for event in x.steps] for x in heard]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.parametrize("mark", [pytest.param("cuda", marks=ON_GPU)])
def test_a_resumed_run_with_graphs_goes_on(room: Path, mark: str) -> None:
    config = with_training(make_config(kind="streams", shuffle=False), device=mark, graph="auto")
    whole, parts = Heard(), Heard()
    train(config, make_corpus(), room / "whole", whole)
    train(with_training(config, epochs=1), make_corpus(), room / "parts")
    train(config, make_corpus(), room / "parts", parts, resume=True)
    assert isinstance(Trainer(config, make_corpus(), room / "idle", Heard()).graphs, Graphs)
    assert parts.epochs[-1].valid_loss == pytest.approx(whole.epochs[-1].valid_loss, rel=1e-5)
