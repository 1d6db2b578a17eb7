"""A checkpoint is whole or refused, and its writing can stop anywhere."""

import itertools
import json
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from spanlm.errors import RunError
from spanlm.store.checkpoints import Checkpoint, load_last_checkpoint, load_last_position, save_checkpoint
from spanlm.store.files import replace_file
from spanlm.training.run import train
from tests.training.small import checkpoints, goes_on_exactly, make_config, make_corpus

CONTENTS = ("weights.safetensors", "optimizer.safetensors", "carried.safetensors", "position.json")
FILES = (*CONTENTS, "manifest.json")


def make_checkpoint(step: int) -> Checkpoint:
    draw = torch.Generator().manual_seed(step)
    return Checkpoint(
        weights={"embedding.weight": torch.randn(4, 3, generator=draw), "head.bias": torch.randn(4, generator=draw)},
        optimizer={"head.bias/exp_avg": torch.randn(4, generator=draw), "head.bias/step": torch.tensor(float(step))},
        carried={"encoder.h": torch.randn(1, 2, 3, generator=draw), "generator.cpu": torch.get_rng_state()},
        position={"step": step, "rate": 0.1, "best_loss": None},
    )


def same(first: Checkpoint, second: Checkpoint) -> bool:
    parts = ((getattr(first, name), getattr(second, name)) for name in ("weights", "optimizer", "carried"))
    tensors = all(a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a) for a, b in parts)
    return tensors and first.position == second.position


@pytest.fixture
def two(room: Path) -> Path:
    """A folder with the checkpoints of steps 1 and 2."""
    for step in (1, 2):
        save_checkpoint(room / "checkpoints", step, make_checkpoint(step))
    return room / "checkpoints"


def refused(folder: Path, damaged: Path) -> str:
    """The one before is taken, and what is said names the damaged one; returns that."""
    loaded, notes = load_last_checkpoint(folder)
    assert loaded is not None and same(loaded, make_checkpoint(1))
    assert len(notes) == 1 and notes[0].startswith(str(damaged)) and "\n" not in notes[0]
    return notes[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_missing_truncated_or_flipped_anywhere_is_refused(two: Path, name: str) -> None:
    path, draw = two / "step-000000002" / name, random.Random(name)
    content = path.read_bytes()
    every = range(0, len(content), 3 if name == "manifest.json" else 1)
    places = every if name == "manifest.json" else draw.sample(every, min(80, len(every)))
    flipped = [content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :] for place in places]
    lengths = sorted({len(content) * part // 40 for part in range(40)} | {len(content) - 1})
    for damaged in (*(content[:length] for length in lengths), *flipped):
        path.write_bytes(damaged)
        note = refused(two, path.parent)
        assert name in note or name == "manifest.json"
    path.unlink()
    assert name in refused(two, path.parent)
    path.write_bytes(content)
    assert load_last_checkpoint(two)[1] == []


@pytest.mark.parametrize("content", [b"{", b"5", b"[5]", b"null", b"\xff", b"[" * 10_000], ids=lambda text: text[:5])
def test_a_damaged_manifest_is_refused_by_name(two: Path, content: bytes) -> None:
    (two / "step-000000002" / "manifest.json").write_bytes(content)
    assert "manifest.json" in refused(two, two / "step-000000002")


def test_all_damaged_is_an_error_that_names_the_newest(two: Path) -> None:
    for step in (1, 2):
        (two / f"step-{step:09d}" / "weights.safetensors").write_bytes(b"")
    with pytest.raises(RunError, match=r"step-000000002: .*weights\.safetensors.*no checkpoint before it is whole"):
        load_last_checkpoint(two)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the rights to be another user")
def test_what_cannot_be_read_now_is_not_called_damaged(two: Path) -> None:
    two.parent.chmod(0o755)  # of this test alone, in a folder that all may read
    (two / "step-000000002" / "weights.safetensors").chmod(0o600)
    os.seteuid(65534)
    try:
        with pytest.raises(RunError, match=r"step-000000002: cannot be read now: Permission denied\. Nothing is lost"):
            load_last_checkpoint(two)
    finally:
        os.seteuid(0)


def test_where_none_fits_into_memory_more_of_it_is_a_way_out(two: Path) -> None:
    os.truncate(two / "step-000000002" / "weights.safetensors", 2**42)
    assert load_last_checkpoint(two)[0] is not None, "the one before"
    os.truncate(two / "step-000000001" / "weights.safetensors", 2**42)
    with pytest.raises(RunError, match=r"step-000000002: .* bytes; must have at most .* Give it more memory, or start"):
        load_last_checkpoint(two)


def test_a_position_is_read_without_the_tensors_and_held_against_the_manifest(two: Path) -> None:
    newest = two / "step-000000002"
    (newest / "weights.safetensors").unlink()
    assert load_last_position(two) == make_checkpoint(2).position
    (newest / "position.json").write_bytes((newest / "position.json").read_bytes() + b" ")
    assert load_last_position(two) == make_checkpoint(1).position


def test_the_last_two_are_kept(two: Path) -> None:
    for step in (3, 10, 100):
        save_checkpoint(two, step, make_checkpoint(step))
    assert [path.name for path in checkpoints(two.parent)] == ["step-000000010", "step-000000100"]


def test_a_good_one_is_kept_beside_those_that_are_damaged(two: Path) -> None:
    """Going back past a damaged checkpoint and stopping early must not leave one good copy alone."""
    (two / "step-000000002" / "position.json").write_bytes(b"")
    for step in (2, 20):  # the same step again replaces the damaged copy
        save_checkpoint(two, step, make_checkpoint(step))
    (two / "step-000000020" / "weights.safetensors").write_bytes(b"")
    for step in (3, 4):
        save_checkpoint(two, step, make_checkpoint(step))
    (two / "step-000000004" / "weights.safetensors").write_bytes(b"")
    loaded, _ = load_last_checkpoint(two)
    assert loaded is not None and same(loaded, make_checkpoint(3))


def test_leftovers_of_a_killed_save_are_removed_and_what_is_no_checkpoint_is_left_alone(two: Path) -> None:
    shutil.copytree(two / "step-000000001", two / ".step-000000009.0.unfinished")
    (two / "step-foo").write_bytes(b"")
    (two / "step-000000002.copy").mkdir()
    (two / "step-000000009").write_bytes(b"")
    loaded, notes = load_last_checkpoint(two)
    assert loaded is not None and same(loaded, make_checkpoint(2)) and not notes
    save_checkpoint(two, 3, make_checkpoint(3))
    others = ["step-000000002.copy", "step-000000009", "step-foo"]
    assert sorted(path.name for path in two.iterdir()) == sorted(["step-000000002", "step-000000003", *others])


class Killed(BaseException):
    """Ends a save as a kill would: nothing of ours catches it."""


def killed_at(monkeypatch: pytest.MonkeyPatch, folder: Path, count: int, checkpoint: Checkpoint) -> bool:
    """Save step 2 and be killed before the rename or removal of that number; say whether it came to that."""
    calls = itertools.count()

    def dying(call: Callable[..., object]) -> Callable[..., object]:
        def until(*arguments: object, **named: object) -> object:
            if next(calls) == count:
                raise Killed
            return call(*arguments, **named)

        return until

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", dying(os.replace))
        patch.setattr(shutil, "rmtree", dying(shutil.rmtree))
        try:
            save_checkpoint(folder, 2, checkpoint)
        except Killed:
            return True
    return False


@pytest.mark.parametrize("alone", [False, True], ids=["one before", "the only one"])
def test_the_same_step_again_is_there_at_every_moment(two: Path, monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:
    again = replace(make_checkpoint(2), position={"step": 2, "rate": 0.05, "best_loss": 3.0})
    if alone:
        shutil.rmtree(two / "step-000000001")
    for count in itertools.count():
        save_checkpoint(two, 2, make_checkpoint(2))
        killed = killed_at(monkeypatch, two, count, again)
        loaded, notes = load_last_checkpoint(two)
        assert loaded is not None and not notes
        assert same(loaded, again) or (killed and same(loaded, make_checkpoint(2)))
        if not killed:
            break
    assert count >= 2
    left = ["step-000000002"] if alone else ["step-000000001", "step-000000002"]
    assert sorted(path.name for path in two.iterdir()) == left


class Disk:
    """Watches fsync and rename: what has a name that a reader looks for must be on the disk first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: dict[int, int] = {}
        self.unsynced_names: set[int] = set()
        self.renamed: list[str] = []
        self.fsync, self.replace = os.fsync, os.replace
        monkeypatch.setattr(os, "fsync", self.on_fsync)
        monkeypatch.setattr(os, "replace", self.on_replace)

    def on_fsync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        self.synced[status.st_ino] = status.st_size
        self.unsynced_names.discard(status.st_ino)
        self.fsync(descriptor)

    def on_replace(self, source: Path, target: Path) -> None:
        source, target = Path(source), Path(target)
        for path in [source, *source.rglob("*")]:
            status = path.stat()
            assert status.st_ino in self.synced, f"{path.name} is renamed before the disk has it"
            assert path.is_dir() or self.synced[status.st_ino] == status.st_size
        self.replace(source, target)
        self.unsynced_names.add(target.parent.stat().st_ino)
        self.renamed.append(target.name)


def test_a_checkpoint_is_on_the_disk_before_it_has_its_name(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    save_checkpoint(room, 1, make_checkpoint(1))
    assert disk.renamed == ["step-000000001"]
    replace_file(room / "config.yaml", b"new")
    assert disk.renamed[1:] == ["config.yaml"] and not disk.unsynced_names


def test_the_metrics_are_on_the_disk_before_the_checkpoint_that_counts_them(
    room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    sizes = []

    def replace(source: Path, target: Path) -> None:
        if Path(target).name.startswith("step-"):
            counted = json.loads((Path(source) / "position.json").read_text())["metrics_size"]
            metrics = (room / "run" / "metrics.jsonl").stat()
            assert disk.synced[metrics.st_ino] == metrics.st_size == counted
            sizes.append(counted)
        disk.on_replace(source, target)

    monkeypatch.setattr(os, "replace", replace)
    train(make_config(epochs=1), make_corpus(), room / "run")
    assert len(sizes) >= 3 and sizes == sorted(sizes)


@pytest.mark.parametrize("damaged", ["weights.safetensors", "manifest.json"])
def test_a_run_goes_on_past_a_damaged_checkpoint_to_the_same_end(room: Path, damaged: str) -> None:
    train(make_config(epochs=1), make_corpus(), room)
    last = checkpoints(room)[-1]
    (last / damaged).write_bytes((last / damaged).read_bytes()[:-1])
    assert str(last) in load_last_checkpoint(room / "checkpoints")[1][0]
    goes_on_exactly(make_config(), room)
