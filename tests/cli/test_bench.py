"""`spanlm bench PRESET|FILE`: how fast a configuration trains, and what takes the time."""

from dataclasses import replace
from pathlib import Path

import pytest

from spanlm.config import RunConfig
from tests.cli.conftest import Cli
from tests.conftest import needs_bf16
from tests.training.small import make_config, with_training

TEXT = "the old man saw the sea .\nthe sea was calm .\n" * 30


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A file like that of `--print_config`, of a text beside it."""
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text(TEXT if split == "train" else TEXT[: len(TEXT) // 3])
    asked = make_config(kind="streams", shuffle=False)
    path = tmp_path / "mine.yaml"
    path.write_text(replace(asked, data=replace(asked.data, corpus=str(tmp_path))).to_yaml())
    return path


@needs_bf16
@pytest.mark.slow
def test_tables(cli: Cli, config: Path) -> None:
    said = " ".join(cli("bench", config, "--device", "cpu", "--rounds", 1, "--operations", 2).out.split())
    for part in ("V 10, ", "ms a step", "its validation", "a step in bf16", "Python, waiting"):
        assert part in said


@pytest.mark.slow
def test_one_that_diverges_is_named_after_those_that_are_timed(cli: Cli, config: Path) -> None:
    asked, first = RunConfig.load(config), config.with_name("first.yaml")
    first.write_text(asked.to_yaml())
    wild = with_training(asked, optimizer=replace(asked.training.optimizer, lr=1e30))
    config.write_text(wild.to_yaml())
    result = cli("bench", first, config, "--device", "cpu", "--rounds", 9)
    assert f"{first} on" in result.out and "tokens/s" in result.out
    *_, last = result.err.splitlines()
    assert result.status == 1 and last.startswith(f"spanlm: {config}, fp32: cannot be timed")
    assert "training.optimizer.lr" in last and "checkpoint" not in last
