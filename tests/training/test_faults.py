"""What goes wrong while training ends in one line, with the last good state on the disk."""

import errno
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from spanlm.data.corpora import Corpus
from spanlm.errors import InputError, RunError
from spanlm.store.run_folder import MetricsLog
from spanlm.training.run import train
from spanlm.training.trainer import Trainer
from tests.cases import rest_slow
from tests.training.processes import Processes
from tests.training.small import Heard, checkpoints, differing, goes_on_exactly, make_config, make_corpus, outcome
from tests.training.test_signals import OPTIONS, until


@pytest.mark.parametrize("poison", ["loss", "gradient"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_step_that_is_not_finite_is_never_applied(corpus: Corpus, room: Path, poison: str, value: float) -> None:
    trainer = Trainer(make_config(log_every=1000), corpus, room, Heard())
    segments = trainer.batcher.segments()
    for _ in range(3):
        trainer.step(next(segments))
    if poison == "loss":
        trainer.model.embedding.weight.data[:] = value
    else:
        trainer.model.head.weight.register_hook(lambda gradient: gradient * value)
    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    with pytest.raises(RunError, match=rf"step 4 \(epoch 1, segment 4\): the {poison} is not finite") as error:
        trainer.step(next(segments))
    assert error.value.exit_status == 1 and "\n" not in str(error.value)
    pairs = zip(before, trainer.model.parameters(), strict=True)
    assert all(torch.equal(old.nan_to_num(), new.nan_to_num()) for old, new in pairs)
    assert trainer.position.step == 3


@pytest.mark.parametrize("validates", rest_slow([False, True]))
def test_a_run_stops_where_it_is_not_finite_with_the_best_model_and_can_go_on(
    corpus: Corpus, room: Path, validates: bool
) -> None:
    heard = Heard()
    train(make_config(epochs=2), corpus, room / "whole", heard)
    train(make_config(epochs=1), corpus, room / "run")
    best, last = (room / "run" / "model.safetensors").read_bytes(), heard.steps[-1].position.step

    def poison() -> None:
        trainer.model.head.bias.data[3] = float("nan")

    said = "epoch 2: the validation loss is nan" if validates else "step 31 "
    with pytest.raises(RunError, match=said):
        trainer = Trainer(make_config(), corpus, room / "run", Heard(last if validates else 30, poison))
        trainer.restore()
        trainer.run()
    assert (room / "run" / "model.safetensors").read_bytes() == best
    goes_on_exactly(make_config(), room / "run")


def test_a_folder_that_was_moved_is_not_made_again(corpus: Corpus, room: Path) -> None:
    watcher = Heard(10, lambda: (room / "run").rename(room / "moved"))
    with pytest.raises(RunError, match="is gone, and with it the run"):
        train(make_config(epochs=2), corpus, room / "run", watcher)
    assert [path.name for path in room.iterdir()] == ["moved"]
    (room / "moved").rename(room / "run")
    goes_on_exactly(make_config(), room / "run")


@pytest.mark.slow
def test_a_full_disk_keeps_what_was_saved(processes: Processes, text_folder: Path, room: Path) -> None:
    begin = ["train", "demo", "--corpus", str(text_folder), *OPTIONS, "--training.log_every", "50", "--out"]
    folder, said = room / "run", room / "said"
    assert processes.run("command", arguments=[*begin, str(room / "whole")]) == 0
    assert processes.run("command", arguments=[*begin, str(folder), "--training.epochs", "2"]) == 0
    saved = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    last = checkpoints(folder)[-1]
    sizes = {path.name: path.stat().st_size for path in last.iterdir()}
    limit = (sizes["weights.safetensors"] + sizes["optimizer.safetensors"]) // 2
    again = [*begin, str(folder), "--resume", "auto", "--training.checkpoint_every", "1000"]
    assert processes.run("command", said, arguments=again, largest_file=limit) == 1
    words = said.read_text().splitlines()[-1]
    assert "step-" in words and f"{last.name} is intact" in words and "--resume auto" in words
    assert os.strerror(errno.EFBIG) in words and "Traceback" not in said.read_text()
    for path, content in saved.items():
        if path.name not in ("config.yaml", "metrics.jsonl", "model.safetensors", "provenance.jsonl"):
            assert path.read_bytes() == content
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {p.name for p in checkpoints(folder)}
    assert processes.run("command", arguments=again) == 0
    assert not differing(outcome(folder), outcome(room / "whole"))


def test_metrics_are_json_whatever_the_numbers(room: Path) -> None:
    log = MetricsLog(room / "metrics.jsonl")
    log.write({"loss": 701.0, "perplexity": math.inf, "parts": {"valid": {"gate": math.nan}}})
    log.close()
    expected = '{"loss": 701.0, "perplexity": null, "parts": {"valid": {"gate": null}}}\n'
    assert (room / "metrics.jsonl").read_text() == expected


@pytest.mark.slow
def test_two_trainers_never_share_a_folder(processes: Processes, corpus: Corpus, room: Path) -> None:
    folder = room / "run"
    pid = processes.start("hold", folder=str(folder))
    until(lambda: (folder / "held").exists())
    for resume in (False, True):
        with pytest.raises(InputError, match="another process is training in this folder") as error:
            train(make_config(), corpus, folder, resume=resume)
        assert str(folder) in str(error.value)
    assert {path.name for path in folder.iterdir()} == {".lock", "held"}
    os.kill(pid, signal.SIGKILL)
    assert processes.wait(pid) == -signal.SIGKILL
    assert train(make_config(epochs=1), corpus, folder).epoch == 1


class Refusing:
    """A disk that refuses some calls of `os.NAME` for files of a name, and then works again."""

    def __init__(self, patch: pytest.MonkeyPatch, name: str, file: str, times: int, number: int) -> None:
        self.call, self.file, self.left, self.number = getattr(os, name), file, times, number
        patch.setattr(os, name, self)

    def __call__(self, first: Any, *others: Any, **options: Any) -> Any:
        path = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else str(others[0] if others else first)
        if self.left and self.file in path:
            self.left -= 1
            raise OSError(self.number, os.strerror(self.number), path)
        return self.call(first, *others, **options)


ENDS = [
    ("replace", "checkpoints/step-", errno.ENOSPC, "is intact"),
    ("replace", "model.safetensors", errno.EIO, "model"),
    ("fsync", "metrics.jsonl", errno.EDQUOT, "metrics"),
    ("fsync", "manifest.json", errno.EIO, "is intact"),
    ("replace", "provenance.jsonl", errno.ENOSPC, "provenance"),
    ("replace", "config.yaml", errno.EACCES, "cannot be written"),
]


@pytest.mark.parametrize(("call", "file", "number", "said"), rest_slow(ENDS, always=2))
def test_what_the_disk_refuses_ends_the_run_and_it_goes_on(
    room: Path, monkeypatch: pytest.MonkeyPatch, call: str, file: str, number: int, said: str
) -> None:
    train(make_config(epochs=1), make_corpus(), room)
    best = (room / "model.safetensors").read_bytes()
    with monkeypatch.context() as patch, pytest.raises(RunError, match=said):
        Refusing(patch, call, file, 1, number)
        train(make_config(), make_corpus(), room, resume=True)
    assert (room / "model.safetensors").read_bytes() == best
    goes_on_exactly(make_config(), room)


@pytest.mark.slow
def test_an_old_checkpoint_that_cannot_be_removed_stays(
    corpus: Corpus, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        Refusing(patch, "rmdir", "step-", 1000, errno.EPERM)
        train(make_config(), corpus, room)
    goes_on_exactly(make_config(epochs=3), room)
