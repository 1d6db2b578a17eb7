import shutil
from pathlib import Path

import pytest

import spanlm
from spanlm.runs.model import TrainedModel


@pytest.fixture
def trained(tiny_run: Path, tmp_path: Path) -> TrainedModel:
    """A copy of a run, in whose folder can be written."""
    return spanlm.load(shutil.copytree(tiny_run, tmp_path / "run"))
