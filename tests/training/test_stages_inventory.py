"""What a checkpoint holds of averages and stages: nothing can be missing without a word, and all of it matters."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from spanlm.errors import Interrupted, RunError, SpanlmError
from spanlm.store.checkpoints import load_last_checkpoint
from spanlm.training.progress import Position
from spanlm.training.run import train
from tests.training.small import RUNS, checkpoints, differing, make_corpus, outcome
from tests.training.test_signals import Signals
from tests.training.test_stages import LAGGED, STAGES
from tests.training.test_stages_resumed import STEPS
from tests.training.test_state_inventory import change, signed


def at_step(config: Any, folder: Path, step: int) -> Path:
    """A run that was stopped after a step."""
    with pytest.raises(Interrupted):
        train(config, make_corpus(), folder, Signals(signal.SIGTERM, step))
    return folder


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Path, Path]]:
    """A run with lagged rates: its configuration, the whole of it, and one that stopped after some averages."""
    torch.set_num_threads(1)
    config = RUNS[LAGGED]()
    whole = tmp_path_factory.mktemp("whole")
    train(config, make_corpus(), whole)
    yield config, whole, at_step(config, tmp_path_factory.mktemp("stopped"), 20)


@pytest.fixture
def stopped(averaged: tuple[Any, Path, Path], room: Path) -> Path:
    return Path(shutil.copytree(averaged[2], room / "run"))


def test_averages_are_in_the_checkpoint_by_the_names_of_the_weights(
    averaged: tuple[Any, Path, Path], stopped: Path
) -> None:
    tensors = load_last_checkpoint(stopped / "checkpoints")[0]
    assert tensors is not None
    assert set(tensors.optimizer) == {f"{name}/average" for name in tensors.weights}
    assert tensors.position["step"] - tensors.position["averaging_since"] == 20 - 13
    change(stopped, "optimizer", "embedding.weight/average")
    with pytest.raises(SpanlmError, match=r"embedding\.weight/average is missing"):
        train(averaged[0], make_corpus(), stopped, resume=True)


@pytest.mark.parametrize("name", ["embedding.weight", "head.bias"])
def test_every_average_matters(averaged: tuple[Any, Path, Path], stopped: Path, name: str) -> None:
    change(stopped, "optimizer", f"{name}/average", lambda x: x + 0.3)
    train(averaged[0], make_corpus(), stopped, resume=True)
    assert {"model", "rows"} <= set(differing(outcome(stopped), outcome(averaged[1])))


@pytest.mark.parametrize(
    ("field", "value"), [("averaging_since", 12), ("late_rate", 1.0), ("losses", []), ("best_weights", "0")]
)
def test_every_field_about_averages_matters(
    averaged: tuple[Any, Path, Path], stopped: Path, field: str, value: Any
) -> None:
    checkpoint = checkpoints(stopped)[-1]
    position = json.loads((checkpoint / "position.json").read_text())
    assert position[field] != value
    signed(checkpoint, "position.json", json.dumps({**position, field: value}).encode())
    try:
        train(averaged[0], make_corpus(), stopped, resume=True)
    except RunError as error:
        assert field == "averaging_since" and "average" in str(error)
    assert "position" in differing(outcome(stopped), outcome(averaged[1])) or field == "best_weights"


@pytest.mark.parametrize(("field", "value"), [("stage", 1), ("stage_began", 1), ("parts", {"gate": 1.0})])
def test_every_field_about_stages_matters(room: Path, field: str, value: Any) -> None:
    stopped = at_step(RUNS[STAGES](), room / "run", 3 * STEPS + 5)
    expected = Path(shutil.copytree(stopped, room / "whole"))
    train(RUNS[STAGES](), make_corpus(), expected, resume=True)
    checkpoint = checkpoints(stopped)[-1]
    position = json.loads((checkpoint / "position.json").read_text())
    assert position["stage"] == 2 and position[field] != value
    signed(checkpoint, "position.json", json.dumps({**position, field: value}).encode())
    train(RUNS[STAGES](), make_corpus(), stopped, resume=True)
    assert differing(outcome(stopped), outcome(expected))


ADDED = (
    "metrics_checksums",
    "config",
    "stage",
    "stage_began",
    "losses",
    "averaging_since",
    "late_rate",
    "best_weights",
    "parts",
)


def test_positions_of_older_versions_are_read_and_of_later_ones_refused() -> None:
    plain = Position(rate=0.1, step=3, epoch_nll=2.0)
    position = plain.to_json()
    old = {name: value for name, value in position.items() if name not in ADDED}
    assert Position.from_json(old) == Position.from_json(position) == plain
    for values in (old, position):
        with pytest.raises(RunError, match=r"position\.json: field \w+: was written by another version"):
            Position.from_json({**values, "mood": 1})
