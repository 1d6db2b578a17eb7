"""Everything that a run needs to go on is in its checkpoint, and nothing of it can be missing without a word."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from spanlm.errors import SpanlmError
from spanlm.store.checkpoints import to_bytes
from spanlm.training.progress import Position
from spanlm.training.run import train
from spanlm.training.trainer import Trainer
from tests.training.small import Heard, checkpoints, differing, make_config, make_corpus, outcome

CONFIG = make_config(epochs=1)
STOP_AT = 10
"""A step in the middle of the first epoch, with a full memory, after which the run dies."""


class Died(Exception):
    """Stands for the end of the process."""


class DiesAt(Heard):
    def step(self, event: Any) -> None:
        super().step(event)
        if len(self.steps) == STOP_AT:
            raise Died


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A whole run, and one that died in its first epoch with one checkpoint, of step 7."""
    torch.set_num_threads(1)
    whole, dead = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("dead")
    train(CONFIG, make_corpus(), whole)
    with pytest.raises(Died):
        train(CONFIG, make_corpus(), dead, DiesAt())
    assert [path.name for path in checkpoints(dead)] == ["step-000000007"]
    yield whole, dead


@pytest.fixture
def dead(runs: tuple[Path, Path], room: Path) -> Path:
    """A copy of the dead run, to be changed."""
    return Path(shutil.copytree(runs[1], room / "run"))


def names(part: str) -> list[str]:
    """The tensors of a checkpoint in mid-epoch."""
    model = Trainer(CONFIG, make_corpus(), Path(), Heard()).model
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    return {
        "weights": [name for name, _ in model.named_parameters()],
        "optimizer": [f"{name}/{entry}" for name in trained for entry in ("exp_avg", "exp_avg_sq", "step")],
        "carried": [*model.init_state(1).flat(), "generator.cpu"],
    }[part]


def signed(checkpoint: Path, name: str, content: bytes) -> None:
    """Change a file and the manifest with it, as damage does not but another program might."""
    (checkpoint / name).write_bytes(content)
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest[name] = hashlib.sha256(content).hexdigest()
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))


def change(folder: Path, part: str, name: str, function: Any = None) -> None:
    """Delete a tensor of the last checkpoint, or apply a function to it."""
    checkpoint = checkpoints(folder)[-1]
    tensors = safetensors.torch.load((checkpoint / f"{part}.safetensors").read_bytes())
    value = tensors.pop(name)
    if function is not None:
        tensors[name] = function(value)
    signed(checkpoint, f"{part}.safetensors", to_bytes(tensors))


@pytest.mark.parametrize("part", ["weights", "optimizer", "carried"])
def test_the_inventory_is_complete(dead: Path, part: str) -> None:
    content = (checkpoints(dead)[-1] / f"{part}.safetensors").read_bytes()
    assert sorted(safetensors.torch.load(content)) == sorted(names(part))


def test_every_field_of_the_position_is_there(dead: Path) -> None:
    position = json.loads((checkpoints(dead)[-1] / "position.json").read_text())
    assert set(position) == set(Position.__dataclass_fields__)
    assert position["step"] == position["segment"] == 7 and position["epoch"] == 0


def test_the_dead_run_goes_on_exactly(runs: tuple[Path, Path], dead: Path) -> None:
    train(CONFIG, make_corpus(), dead, resume=True)
    assert not differing(outcome(dead), outcome(runs[0]))


@pytest.mark.slow
@pytest.mark.parametrize("part", ["weights", "optimizer", "carried"])
def test_what_is_missing_is_refused_by_name(runs: tuple[Path, Path], room: Path, part: str) -> None:
    """One tensor at a time; of the optimiser also all of a parameter, and all there is."""
    lacking, wrong = [[name] for name in names(part)], []
    if part == "optimizer":
        entries = names(part)
        lacking = [entries, *(entries[start : start + 3] for start in range(0, len(entries), 3)), *lacking[:3]]
    for number, gone in enumerate(lacking):
        folder = Path(shutil.copytree(runs[1], room / str(number)))
        for name in gone:
            change(folder, part, name)
        try:
            train(CONFIG, make_corpus(), folder, resume=True)
            wrong.append(f"{gone}: went on without")
        except Exception as error:
            if not (isinstance(error, SpanlmError) and any(name in str(error) for name in gone)):
                wrong.append(f"{gone}: {error!r}")
    assert not wrong


@pytest.mark.parametrize(
    ("part", "name", "function"),
    [
        *(("weights", name, lambda x: x + 0.5) for name in names("weights") if "bias_hh" not in name),
        *(("optimizer", name, lambda x: x * 3 + 0.01) for name in names("optimizer")[:9]),
        *(("carried", f"{name}", lambda x: ~x if x.dtype == torch.bool else x - 0.3) for name in names("carried")[:-1]),
        ("carried", "generator.cpu", lambda x: torch.Generator().manual_seed(99).get_state()),
    ],
)
def test_every_tensor_matters(runs: tuple[Path, Path], dead: Path, part: str, name: str, function: Any) -> None:
    """The test above would say nothing of a tensor that is saved but not put back."""
    change(dead, part, name, function)
    train(CONFIG, make_corpus(), dead, resume=True)
    assert {"weights", "rows"} & set(differing(outcome(dead), outcome(runs[0])))


@pytest.mark.parametrize("field", sorted(Position.__dataclass_fields__))
def test_a_field_of_the_position_that_is_missing_is_refused_by_name(dead: Path, field: str) -> None:
    checkpoint = checkpoints(dead)[-1]
    position = json.loads((checkpoint / "position.json").read_text())
    del position[field]
    signed(checkpoint, "position.json", json.dumps(position).encode())
    with pytest.raises(SpanlmError, match=rf"position\.json: field {field}"):
        train(CONFIG, make_corpus(), dead, resume=True)


OTHER_VALUES = {
    "rate": 0.5,
    "epoch": 1,
    "segment": 6,
    "step": 8,
    "epoch_nll": 1.0,
    "epoch_tokens": 1,
    "logged_nll": 1.0,
    "logged_tokens": 1,
    "best_loss": 0.1,
    "metrics_size": 0,
}


@pytest.mark.parametrize("field", OTHER_VALUES)
def test_every_field_of_the_position_matters(runs: tuple[Path, Path], dead: Path, field: str) -> None:
    checkpoint = checkpoints(dead)[-1]
    position = json.loads((checkpoint / "position.json").read_text())
    assert position[field] != OTHER_VALUES[field]
    signed(checkpoint, "position.json", json.dumps({**position, field: OTHER_VALUES[field]}).encode())
    train(CONFIG, make_corpus(), dead, resume=True)
    assert differing(_found(dead), _found(runs[0]))


def _found(folder: Path) -> dict[str, Any]:
    try:
        return outcome(folder)
    except FileNotFoundError:  # a best loss that was never reached: no model
        return {}


@pytest.mark.parametrize("left", ["a line", "nothing", "no file"])
def test_a_shorter_metrics_file_is_lost_history_and_no_more(
    runs: tuple[Path, Path], dead: Path, left: str, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = dead / "metrics.jsonl"
    first = metrics.read_bytes().splitlines(keepends=True)[0]
    metrics.write_bytes(first + b'{"event": "tr' if left == "a line" else b"")
    if left == "no file":
        metrics.unlink()
    with caplog.at_level("INFO", "spanlm"):
        train(CONFIG, make_corpus(), dead, resume=True)
    assert differing(outcome(dead), outcome(runs[0])) == ["rows"]
    assert f"line {2 if left == 'a line' else 1} on" in caplog.text
    assert metrics.read_bytes().startswith(first) == (left == "a line")


def test_tensors_of_other_shapes_are_refused(dead: Path) -> None:
    change(dead, "weights", "embedding.weight", lambda x: x[:, :2])
    with pytest.raises(SpanlmError, match=r"embedding\.weight"):
        train(CONFIG, make_corpus(), dead, resume=True)
