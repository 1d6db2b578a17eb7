"""`spanlm train --seeds N`: a numbered family of runs, which can be stopped anywhere and gone on with."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from spanlm.config import RunConfig
from spanlm.training.trainer import Trainer
from tests.cli.conftest import Cli

SMALL = (
    "--model.embedding_size=6",
    "--model.encoder.hidden_size=12",
    "--training.batching.batch_size=16",
    "--training.batching.length=7",
    "--training.epochs=2",
)


@pytest.fixture
def command(tiny_corpus: Path) -> list[object]:
    return ["train", "demo", *SMALL, "--corpus", tiny_corpus]


def weights(folder: str) -> dict[str, torch.Tensor]:
    return load_file(Path(folder) / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def epochs(out: str) -> int:
    return sum(line.startswith("epoch ") for line in out.splitlines())


def test_a_family_is_runs_that_differ_in_their_seed(cli: Cli, command: list[object]) -> None:
    out = cli(*command, "--training.seed=4", "--seeds", "2", "--out", "fam").done
    assert sorted(path.name for path in Path("fam").iterdir()) == ["seed-4", "seed-5"]
    assert re.findall(r"^run (\d) of 2: fam/(.*)$", out, re.M) == [("1", "seed-4"), ("2", "seed-5")]
    assert out.splitlines()[-1] == "2 runs are trained. All as one: spanlm evaluate fam/seed-*"
    configs = [RunConfig.load(Path(f"fam/seed-{seed}/config.yaml")).to_tree() for seed in (4, 5)]
    assert [config["training"].pop("seed") for config in configs] == [4, 5]
    assert configs[0] == configs[1]
    cli(*command, "--training.seed=5", "--out", "alone").done  # noqa: B018 (checks)
    assert same(weights("fam/seed-5"), weights("alone"))
    assert not same(weights("fam/seed-4"), weights("alone"))
    found = json.loads(cli("evaluate", *sorted(Path("fam").glob("seed-*")), "--json").done)
    assert [member["run"] for member in found["members"]] == ["fam/seed-4", "fam/seed-5"]


def interrupt_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Ctrl-C after so many steps of all runs together."""
    plain, done = Trainer.step, [0]

    def step(self: Trainer, segment: object) -> None:
        plain(self, segment)  # type: ignore[arg-type]
        done[0] += 1
        if done[0] == steps:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Trainer, "step", step)


def test_ctrl_c_stops_the_family_and_it_goes_on(
    cli: Cli, command: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    cli(*command, "--seeds", "3", "--out", "whole").done  # noqa: B018 (checks)
    per_run = max(int(path.name.removeprefix("step-")) for path in Path("whole/seed-1/checkpoints").iterdir())
    with monkeypatch.context() as patch:
        interrupt_after(patch, per_run + 5)
        stopped = cli(*command, "--seeds", "3", "--out", "my fam")
    again = "spanlm train --out 'my fam' --resume auto --seeds 3"
    stopped.refused("stopped by Ctrl-C after step 5", "my fam/seed-2", again, status=130, out=None)
    assert not Path("my fam/seed-3").exists(), "the next one is not begun"
    finished = Path("my fam/seed-1/model.safetensors").stat().st_mtime_ns
    result = cli(*shlex.split(again)[1:])
    assert re.search(
        r"^run 1 of 3, my fam/seed-1: finished before; best epoch \d of 2: valid ppl [\d.]+$", result.done, re.M
    )
    assert "going on from step 5 (epoch 1)" in result.done
    assert epochs(result.done) == 4
    assert result.done.splitlines()[-1] == "3 runs are trained. All as one: spanlm evaluate 'my fam/seed-'*"
    assert Path("my fam/seed-1/model.safetensors").stat().st_mtime_ns == finished
    assert all(same(weights(f"my fam/seed-{seed}"), weights(f"whole/seed-{seed}")) for seed in (1, 2, 3))
    third = cli(*shlex.split(again)[1:]).done
    assert epochs(third) == 0 and third.count("finished before") == 3


def test_a_family_can_grow(cli: Cli, command: list[object]) -> None:
    cli(*command, "--training.seed=10", "--seeds", "1", "--out", "fam").done  # noqa: B018 (checks)
    out = cli("train", "--out", "fam", "--seeds", "2", "--resume", "auto").done
    assert "fam/seed-10: finished before" in out and "run 2 of 2: fam/seed-11" in out
    assert epochs(out) == 2
    longer = cli("train", "--out", "fam", "--seeds", "2", "--resume", "auto", "--training.epochs=3").done
    assert epochs(longer) == 2 and "finished before" not in longer


def test_what_is_refused_is_refused_before_the_first_run(cli: Cli, command: list[object], tiny_run: Path) -> None:
    cli(*command, "--training.seed=2", "--seeds", "1", "--out", "fam").done  # noqa: B018 (checks)
    before = sorted(Path("fam").iterdir())
    cli(*command, "--seeds", "3", "--out", "fam").refused("--out=fam: already holds runs (seed-2)", "--resume auto")
    more = ["--seeds", "3", "--out", "fam", "--resume", "auto"]
    cli(*command, *more, "--training.optimizer.lr=0.5").refused("fam/seed-2: the run began with", "not 0.5")
    assert sorted(Path("fam").iterdir()) == before
    cli("train", "--out", "fam", "--resume", "auto").refused(
        "--out=fam: holds no run to go on with. It holds a family of runs: add --seeds"
    )
    cli(*command, "--seeds", "2", "--out", tiny_run, "--resume", "auto").refused("is one run, not a family of seeds")
    cli(*command, "--seeds", "0").refused("--seeds=0: must be at least 1")
    cli(*command, "--seeds", "many").refused("--seeds", "'many'")
    cli(*command, "--seeds", "2", "--tour").refused("--tour and --seeds do not go together")
    cli(*command, "--seeds", "2", "--training.seed=9223372036854775807").refused("training.seed=9223372036854775808")
