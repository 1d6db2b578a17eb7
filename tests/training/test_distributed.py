"""Several processes train as one does: the same masks, sums and steps, on every encoder, memory, head and batching."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from spanlm.cli.main import main
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError
from spanlm.store.provenance import starts
from spanlm.training.distributed import Ranks
from spanlm.training.step import backward
from spanlm.training.trainer import Trainer
from tests.cases import rest_slow
from tests.training.processes import Processes
from tests.training.small import (
    RUNS,
    STAGES,
    Heard,
    checkpoints,
    differing,
    make_config,
    outcome,
    rows,
    with_batching,
    with_training,
)

KVP, LSTM = "key-value-predict, shuffled documents, adam", "no memory, streams, sgd, step, two layers"
SENTENCES = "n-gram, shuffled sentences, sgd, plateau"
GROUPS = {"group_size": 2}
CLOSE: Any = {"rtol": 1e-12, "atol": 1e-12}


# --- in one process: what ranks add up is what one has ---


@pytest.mark.parametrize("count", rest_slow([2, 4]))
@pytest.mark.parametrize("name", RUNS)
def test_shares_of_the_streams_add_up_to_the_batch(name: str, count: int, corpus: Corpus, room: Path) -> None:
    """With dropout: gradients, loss, state and the generator after three segments, of every recipe there is."""
    config = with_training(with_batching(RUNS[name](), batch_size=4), precision="fp32")
    if count == 4 and config.training.batching.group_size is not None:
        config = with_batching(config, group_size=None)
    trainer = Trainer(config, corpus, room, Heard())
    trainer.model.double().train()
    whole = read_three(trainer, Ranks())
    parts = [read_three(trainer, Ranks(rank, count)) for rank in range(count)]
    for name, gradient in whole[0].items():
        torch.testing.assert_close(sum(part[0][name] for part in parts), gradient, **CLOSE, msg=name)
    for part in parts:
        assert torch.equal(part[3], whole[3])
        for name, state in whole[2].items():
            torch.testing.assert_close(part[2][name], state.index_select(1, part[4]), **CLOSE, msg=name)
    assert float(sum(part[1] for part in parts)) == pytest.approx(float(whole[1]), rel=1e-12)


def read_three(trainer: Trainer, ranks: Ranks) -> tuple[dict[str, Tensor], Tensor, dict[str, Tensor], Tensor, Tensor]:
    """Gradients, NLL, state, generator, and the streams that were read, of a rank's share of three segments."""
    model, streams = trainer.model, ranks.streams(trainer.config.training.batching)
    torch.manual_seed(3)
    model.zero_grad()
    state = initial = model.init_state(len(streams))
    nll = torch.zeros((), dtype=torch.float64)
    for _, segment in zip(range(3), trainer.batcher.segments(1), strict=False):
        before = state.reset(segment.reset[streams], initial)
        passed = backward(model, segment, before, trainer.config.training, ranks)
        state, nll = passed.state, nll + passed.nll
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return gradients, nll, state.flat(), torch.get_rng_state(), streams


@pytest.mark.parametrize("count", [2, 3, 5])
def test_every_token_of_an_evaluation_is_read_by_one_rank(count: int, corpus: Corpus, room: Path) -> None:
    """Also where there are more ranks than streams."""
    trainer = Trainer(make_config(kind="streams", shuffle=False), corpus, room, Heard())
    whole = list(trainer.valid.segments())
    parts = [list(Ranks(rank, count).share(whole)) for rank in range(count)]
    for n, segment in enumerate(whole):
        for field in ("targets", "place"):
            read = torch.cat([getattr(part[n], field)[part[n].mask] for part in parts])
            assert torch.equal(read.sort().values, getattr(segment, field)[segment.mask].sort().values)
        assert all(part[n].mask.shape[1] >= 1 for part in parts)


# --- refusals ---


def test_what_ranks_cannot_share_is_refused() -> None:
    with pytest.raises(InputError, match=r"training.batching.batch_size=3: must be a multiple of the 2 processes"):
        Ranks(0, 2).refuse_unfit(make_config(batch_size=3))
    with pytest.raises(InputError, match=r"training.batching.group_size=2: must be a multiple of the 4 processes"):
        Ranks(0, 4).refuse_unfit(with_batching(make_config(batch_size=4), **GROUPS))
    Ranks().refuse_unfit(make_config(batch_size=3))


def test_two_ranks_on_one_gpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(InputError, match=r"training.device=cuda:0: 2 processes here"):
        Ranks(0, 2).refuse_shared_gpu(torch.device("cuda", 0))
    Ranks(0, 2).refuse_shared_gpu(torch.device("cpu"))


@pytest.mark.parametrize("world", ["2", "two"])
def test_a_world_size_without_torchrun_is_refused(
    world: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", world)
    assert main(["train", "demo"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"spanlm: WORLD_SIZE={world}: must be 1 without RANK") and error.count("\n") == 1


# --- real processes ---


def together(processes: Processes, said: Path, task: str, **arguments: Any) -> list[int]:
    """Run a task in two processes that meet as those of torchrun do; return how each ended."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", **meeting}
    pids = [processes.start(task, said, {**world, "RANK": n, "LOCAL_RANK": n}, **arguments) for n in "01"]
    return [processes.wait(pid) for pid in pids]


def torchrun(*arguments: str, restarts: int = 0) -> subprocess.CompletedProcess[str]:
    options = ["--standalone", "--nproc-per-node", "2", "--max-restarts", str(restarts), "-m", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHELASTIC_LOG_LEVEL": "ERROR"}
    command = [sys.executable, "-m", "torch.distributed.run", *options]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def planned(room: Path, *trainings: dict[str, Any]) -> str:
    plan = room / "plan.json"
    plan.write_text(json.dumps([{"batching": {}, "training": {}, "kill": [], **one} for one in trainings]))
    return str(plan)


def assert_same_training(one: Path, two: Path) -> None:
    """Compare losses to 1e-12, weights, optimisers and states to 1e-11, and the rest of the position exactly."""
    last, other = checkpoints(one)[-1], checkpoints(two)[-1]
    assert last.name == other.name
    for name in ("weights", "optimizer", "carried"):
        expected, found = load_file(last / f"{name}.safetensors"), load_file(other / f"{name}.safetensors")
        assert expected.keys() == found.keys()
        for key in expected:
            torch.testing.assert_close(found[key], expected[key], rtol=1e-12, atol=1e-11, msg=f"{name} {key}")
    for row, again in zip(rows(one), rows(two), strict=True):
        assert row.keys() == again.keys()
        for field in row.keys() - {"parts"}:
            near = pytest.approx(row[field], rel=1e-12) if isinstance(row[field], float) else row[field]
            assert again[field] == near, field


@pytest.fixture(scope="module")
def pairs(processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """Every recipe trained by one process and by two, in one start of each."""
    folder = tmp_path_factory.mktemp("ranks")
    names = [*((name, {}) for name in RUNS), (STAGES, GROUPS)]
    each = {f"{name}{', groups' * bool(batching)}": (name, batching) for name, batching in names}
    places = {label: (folder / f"one-{n}", folder / f"two-{n}") for n, label in enumerate(each)}
    plans = [
        [
            {"name": name, "batching": batching, "folders": [str(places[label][which])]}
            for label, (name, batching) in each.items()
        ]
        for which in range(2)
    ]
    said = folder / "said"
    assert processes.run("rank", said, plan=planned(folder, *plans[0])) == 0, said.read_text()
    assert together(processes, said, "rank", plan=planned(folder, *plans[1])) == [0, 0], said.read_text()
    return places


@pytest.mark.slow
@pytest.mark.parametrize("label", [*RUNS, f"{STAGES}, groups"])
def test_two_ranks_train_as_one(pairs: dict[str, tuple[Path, Path]], label: str) -> None:
    assert_same_training(*pairs[label])


@pytest.mark.slow
def test_a_killed_rank_is_started_again_and_ends_as_if_nothing_had_been(
    pairs: dict[str, tuple[Path, Path]], room: Path
) -> None:
    """Rank 0 of one training, then rank 1 of another; amid an epoch, two steps after a checkpoint; bit for bit."""
    runs = [room / f"run-{rank}" for rank in range(2)]
    killed = [{"name": KVP, "folders": [str(run)], "kill": [9, n, signal.SIGKILL]} for n, run in enumerate(runs)]
    ended = torchrun("tests.training.tasks", planned(room, *killed), restarts=2)
    assert ended.returncode == 0, ended.stderr
    for run in runs:
        assert run.with_suffix(".killed").exists()
        assert not differing(outcome(run), outcome(pairs[KVP][1]))


@pytest.mark.slow
@pytest.mark.parametrize("name", [LSTM, STAGES, SENTENCES], ids=["lstm", "groups, span buffer", "sentences"])
def test_a_signal_to_one_rank_stops_both_at_one_step_and_one_goes_on(
    processes: Processes, pairs: dict[str, tuple[Path, Path]], name: str, room: Path
) -> None:
    run, said, batching = room / "run", room / "said", GROUPS if name == STAGES else {}
    training = {"checkpoint_every": 1000}
    one = {"name": name, "folders": [str(run)], "batching": batching, "training": training}
    ended = together(processes, said, "rank", plan=planned(room, {**one, "kill": [5, 1, signal.SIGTERM]}))
    assert ended == [128 + signal.SIGTERM] * 2
    stopped = int(checkpoints(run)[-1].name.removeprefix("step-"))
    assert said.read_text().count(f"stopped by SIGTERM after step {stopped}") == 1 and 5 <= stopped <= 7
    assert processes.run("rank", said, plan=planned(room, one)) == 0
    assert_same_training(pairs[f"{name}{', groups' * bool(batching)}"][0], run)


@pytest.mark.slow
def test_a_rank_that_stands_elsewhere_is_refused(
    processes: Processes, pairs: dict[str, tuple[Path, Path]], room: Path
) -> None:
    """Each rank has a copy of the run, one of an older checkpoint."""
    copies = [room / "first", room / "second"]
    for copy in copies:
        shutil.copytree(pairs[KVP][1], copy)
    shutil.rmtree(checkpoints(copies[1])[-1])
    more = {"name": KVP, "folders": [str(copy) for copy in copies], "training": {"epochs": 3}}
    assert together(processes, room / "said", "rank", plan=planned(room, more)) == [1, 1]
    said = (room / "said").read_text()
    assert "spanlm: rank 1: stands at step" in said and "and rank 0 at step" in said


@pytest.mark.slow
def test_the_command_line_prints_once(processes: Processes, text_folder: Path, room: Path) -> None:
    command = ["train", str(text_folder), "--epochs", "1", "--batch-size", "4", "--hidden-size", "6"]
    done = torchrun("spanlm", *command, "--out", str(room / "run"), "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("2 processes, 2 streams each") == done.stdout.count("epoch   1") == 1
    more = ["--out", str(room / "run"), "--resume", "auto", "--epochs", "2"]
    assert main([*command[:2], *command[4:], *more]) == 0
    assert [start["ranks"] for start in starts(room / "run")] == [2, 1]
    several = [*command, "--out", str(room / "run"), "--seeds", "2"]
    assert together(processes, room / "said", "command", arguments=several) == [2, 2]
    assert (room / "said").read_text().count("spanlm: --seeds=2: must be left out under torchrun") == 1
