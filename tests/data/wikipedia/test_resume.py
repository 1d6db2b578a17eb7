"""Builds that are stopped, killed, or have no room; and who may write where."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spanlm.data.wikipedia import sources, workplace
from spanlm.data.wikipedia.gathering import Progress
from spanlm.errors import InputError, RunError
from tests.data.wikipedia.small import build, json_lines, made_articles
from tests.data.wikipedia.test_building import contents

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "CHUNK_BYTES", 5000)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "wiki.jsonl"
    path.write_bytes(json_lines(made_articles(60)))
    return path


class Stop(Exception):
    pass


def stopping(phase: str, calls: int) -> object:
    left = [calls]

    def report(progress: Progress) -> None:
        left[0] -= progress.phase == phase
        if left[0] == 0:
            raise Stop

    return report


def pieces(folder: Path) -> list[Path]:
    return sorted((folder / ".out.unfinished" / "pieces").iterdir())


@pytest.mark.parametrize(
    ("phase", "calls", "jobs"), [("cutting", 1, 1), ("cutting", 4, 2), ("counting", 9, 1), ("writing", 50, 1)]
)
def test_a_build_that_was_stopped_goes_on(source: Path, tmp_path: Path, phase: str, calls: int, jobs: int) -> None:
    build(source, tmp_path / "whole", vocabulary=50)
    with pytest.raises(Stop):
        build(source, tmp_path / "out", vocabulary=50, jobs=jobs, report=stopping(phase, calls))
    assert not (tmp_path / "out").exists()
    made = len(pieces(tmp_path))
    summary = build(source, tmp_path / "out", vocabulary=50)
    assert summary.reused == made >= calls if phase == "cutting" else summary.reused == made
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_only_what_fits_is_used_again(source: Path, tmp_path: Path) -> None:
    def stopped() -> None:
        with pytest.raises(Stop):
            build(source, tmp_path / "out", report=stopping("counting", 1))

    stopped()
    assert build(source, tmp_path / "out", lowercase=True).reused == 0
    (tmp_path / "out").rename(tmp_path / "small")
    stopped()
    before = len(pieces(tmp_path))
    content = source.read_bytes()
    at = content.rindex(b".")
    source.write_bytes(content[: at - 1] + b"x" + content[at:])  # one letter, near the end of the last article
    assert build(source, tmp_path / "out").reused == before - 1
    build(source, tmp_path / "anew")
    assert contents(tmp_path / "out") == contents(tmp_path / "anew")


def test_a_damaged_piece_is_made_again(source: Path, tmp_path: Path) -> None:
    with pytest.raises(Stop):
        build(source, tmp_path / "out", report=stopping("counting", 1))
    first, second, *others = pieces(tmp_path)
    first.write_bytes(first.read_bytes()[:-9])
    second.write_bytes(b"{}")
    assert build(source, tmp_path / "out").reused == len(others)
    build(source, tmp_path / "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


SCRIPT = """
import json, multiprocessing, os, signal, sys
from pathlib import Path
from spanlm.data.wikipedia import sources
from tests.data.wikipedia.small import build
sources.CHUNK_BYTES = 5000

def report(progress):
    if progress.articles > 20:
        print(json.dumps([process.pid for process in multiprocessing.active_children()]), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

build(Path(sys.argv[1]), Path(sys.argv[2]), jobs=2, report=report)
"""


def test_killed_without_a_word(source: Path, tmp_path: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(source), str(tmp_path / "out")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    workers = json.loads(killed.stdout)
    assert len(workers) == 2
    deadline = time.monotonic() + 30
    while any(map(alive, workers)):
        assert time.monotonic() < deadline, "workers outlive their parent"
        time.sleep(0.02)
    assert not (tmp_path / "out").exists()
    assert build(source, tmp_path / "out").reused > 0
    build(source, tmp_path / "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_worker_that_is_ended_from_outside(source: Path, tmp_path: Path) -> None:
    import multiprocessing

    def report(progress: Progress) -> None:
        for process in multiprocessing.active_children():
            os.kill(process.pid or 0, signal.SIGKILL)

    with pytest.raises(RunError, match="a process was ended from outside"):
        build(source, tmp_path / "out", jobs=2, report=report)
    assert build(source, tmp_path / "out").reused > 0


def test_no_room(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, left = workplace.replace_file, [3]

    def full(path: Path, content: bytes) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, content)

    monkeypatch.setattr(workplace, "replace_file", full)
    with pytest.raises(RunError, match=r"No space left on device; make room and give the same command again"):
        build(source, tmp_path / "out")
    monkeypatch.undo()
    monkeypatch.setattr(sources, "CHUNK_BYTES", 5000)
    assert build(source, tmp_path / "out").reused == 3


def test_only_one_at_a_time(source: Path, tmp_path: Path) -> None:
    with workplace.workplace(tmp_path / "out"), pytest.raises(RunError, match="another process is making it"):
        build(source, tmp_path / "out")
    build(source, tmp_path / "out")


def test_a_folder_that_holds_something_is_left_alone(source: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "novel.txt").write_text("my only copy")
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    build(source, tmp_path / "empty")
    before = contents(tmp_path / "empty")
    for name, message in (
        ("mine", r"holds other files already \(novel.txt"),
        ("empty", "holds a corpus already"),
        ("file", "is a file"),
        ("file/out", "cannot be made"),
    ):
        with pytest.raises(InputError, match=message):
            build(source, tmp_path / name)
    assert contents(tmp_path / "empty") == before
    assert (tmp_path / "mine" / "novel.txt").read_text() == "my only copy"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "mine", "wiki.jsonl"]
