"""A tracked training is the same training, and the tracker has the numbers of metrics.jsonl."""

import json
import sys
from pathlib import Path

import pytest

import spanlm
from spanlm.cli.main import main
from spanlm.errors import InputError
from tests.goldens.small import make_text, rows, shrunk, trained, weights_sha256

STAND_IN = """
import json
from pathlib import Path
FILE = Path(__file__).parent / "log.jsonl"
def write(values):
    with FILE.open("a") as file:
        file.write(json.dumps(values) + "\\n")
def init(**values): write({"init": values["name"]})
def log(values, step): write({"step": step, **values})
def finish(): write({"finish": True})
"""


def train_tracked(config: spanlm.RunConfig, folder: Path, tracker: str) -> None:
    file = folder.with_suffix(".yaml")
    file.write_text(config.to_yaml())
    assert main(["train", "--config", str(file), "--out", str(folder), "--threads", "1", "--track", tracker]) == 0


@pytest.mark.slow
def test_an_interface_like_wandbs_gets_numbers_and_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules/trackio.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    config = shrunk("daniluk2017/kvp-w5", str(make_text(tmp_path / "text")))
    train_tracked(config, tmp_path / "tracked", "trackio")
    sys.modules.pop("trackio", None)
    trained(config, tmp_path / "plain")
    assert weights_sha256(tmp_path / "tracked") == weights_sha256(tmp_path / "plain")
    log = [json.loads(line) for line in (tmp_path / "modules/log.jsonl").read_text().splitlines()]
    assert log[0] == {"init": "tracked"}
    assert log[-1] == {"finish": True}
    expected = [(row["step"], row["perplexity"]) for row in rows(tmp_path / "plain") if row["event"] == "valid"]
    assert [(row["step"], row["valid/perplexity"]) for row in log if "valid/perplexity" in row] == expected
    shown = [row for row in log if "generated" in row]
    assert len(shown) >= 1
    assert all(row["generated"] for row in shown)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the library's own warnings
def test_tensorboard_reads_what_is_in_the_folder(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the extra track")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = shrunk("daniluk2017/kvp-w5", str(make_text(tmp_path / "text")))
    train_tracked(config, tmp_path / "run", "tensorboard")
    found = EventAccumulator(str(tmp_path / "run/tensorboard"))
    found.Reload()
    expected = [row["loss"] for row in rows(tmp_path / "run") if row["event"] == "valid"]
    assert [event.value for event in found.Scalars("valid/loss")] == pytest.approx(expected)


def test_a_tracker_that_is_missing_is_named_before_the_training(tmp_path: Path) -> None:
    from spanlm.interop.tracking import Tracked
    from spanlm.training.progress import Watcher

    with pytest.raises(InputError, match="pip install wandb"):
        Tracked(Watcher(), "wandb")
