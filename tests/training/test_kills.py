"""A run that is killed at any moment and resumed ends as one that nobody disturbed: the same bits, the same metrics."""

import json
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.training.processes import Processes
from tests.training.small import RUNS, checkpoints, differing, outcome

FIRST, *OTHERS = RUNS
Undisturbed = Callable[..., tuple[dict[str, Any], list[str]]]

FILES = {"config.yaml", "vocabulary.json", "model.safetensors", "metrics.jsonl", "provenance.jsonl", "checkpoints"}
FILES |= {".lock", "README.md"}


@pytest.fixture
def undisturbed(processes: Processes, room: Path) -> Undisturbed:
    """Runs to the end; returns the outcome, and a label for each moment at which the run could have been killed."""

    def run(name: str, **fields: Any) -> tuple[dict[str, Any], list[str]]:
        whole, survey = room / "whole", room / "moments"
        arguments = {"folder": str(whole), "survey": str(survey), "fields": fields}
        assert processes.run("train_run", name=name, **arguments) == 0
        if name == next(iter(RUNS)):  # to be watched changes nothing
            assert processes.run("train_run", name=name, folder=str(room / "unwatched"), fields=fields) == 0
            assert not differing(outcome(room / "unwatched"), outcome(whole))
        return outcome(whole), json.loads(survey.read_text())

    return run


def kinds_of_moments(moments: list[str], draw: random.Random) -> list[int]:
    """One moment of each kind, that is of each label, at a random place of the run; in random order."""
    places: dict[str, list[int]] = {}
    for number, label in enumerate(moments):
        places.setdefault(label, []).append(number)
    chosen = [draw.choice(numbers) for numbers in places.values()]
    draw.shuffle(chosen)
    return chosen


def killed_and_resumed(processes: Processes, folder: Path, name: str, kills: list[int], **fields: Any) -> int:
    """Run with a kill at each of these moments of successive processes, then to the end; return how many died."""
    died = 0
    for moment in kills:
        status = processes.run("train_run", name=name, folder=str(folder), kill_at=moment, fields=fields)
        assert status in (0, -signal.SIGKILL)
        died += status != 0
    assert processes.run("train_run", name=name, folder=str(folder), fields=fields) == 0
    return died


def of_files(moments: list[str], *files: str) -> list[str]:
    return [label if label.startswith(files) else "" for label in moments]


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_kills_of_every_kind(processes: Processes, undisturbed: Undisturbed, room: Path, name: str) -> None:
    expected, moments = undisturbed(name)
    # other kinds in each of the runs
    draw = random.Random(list(RUNS).index(name))
    chosen = kinds_of_moments(moments, draw)[:3]
    died = 0
    for number, moment in enumerate(chosen):
        # in the first half of what is left, so that the process that goes on gets there
        folder, again = room / f"killed-{number}", draw.randrange(1 + (len(moments) - moment) // 2)
        died += killed_and_resumed(processes, folder, name, [moment, again])
        assert not differing(outcome(folder), expected), (moments[moment], moments[again])
    assert died > len(chosen)  # some were killed twice


@pytest.mark.slow
def test_kills_at_writes_and_renames(processes: Processes, undisturbed: Undisturbed, room: Path) -> None:
    expected, moments = undisturbed(FIRST)
    writing = kinds_of_moments(
        of_files(moments, "checkpoints.py", "files.py", "run_folder.py", "run.py", "vocabulary.py", "shutil.py"),
        random.Random(2),
    )[:20]
    for number, moment in enumerate(writing):
        folder = room / f"killed-{number}"
        assert killed_and_resumed(processes, folder, FIRST, [moment]) == 1
        assert not differing(outcome(folder), expected), moments[moment]
        assert {path.name for path in folder.iterdir()} == FILES, moments[moment]
        assert len(list((folder / "checkpoints").iterdir())) == len(checkpoints(folder)), moments[moment]
