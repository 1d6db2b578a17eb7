"""Builds that are stopped, killed, or have no room; who may write where; and the pool of processes."""

import json
import math
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from spanlm.data.wikipedia import WikipediaConfig, cut_sources
from spanlm.data.wikipedia.shards import Progress, _workers
from spanlm.errors import InputError, RunError
from tests.data.wikipedia.small import ROOT, build, contents, json_lines, made_articles, reused

ARTICLES = made_articles(60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "wiki").mkdir()
    for number in range(3):
        content = json_lines(ARTICLES[20 * number : 20 * number + 20])
        (tmp_path / "wiki" / f"{number}.jsonl").write_bytes(content)
    return tmp_path / "wiki"


class Stop(Exception):
    pass


def stopping(phase: str, articles: int) -> Callable[[Progress], None]:
    def report(progress: Progress) -> None:
        if progress.phase == phase and progress.articles >= articles:
            raise Stop

    return report


def shards(out: Path) -> list[Path]:
    return sorted((out.parent / f".{out.name}.unfinished").glob("*.jsonl"))


@pytest.mark.parametrize(
    ("phase", "articles", "made", "jobs"),
    [("cutting", 1, 0, 1), ("cutting", 41, 2, 2), ("counting", 9, 3, 1), ("writing", 50, 3, 1)],
)
def test_a_build_that_was_stopped_goes_on(
    folder: Path, tmp_path: Path, phase: str, articles: int, made: int, jobs: int
) -> None:
    build(folder, tmp_path / "whole")
    with pytest.raises(Stop):
        build(folder, tmp_path / "out", jobs=jobs, report=stopping(phase, articles))
    assert not (tmp_path / "out").exists() and len(shards(tmp_path / "out")) == made
    assert reused(folder, tmp_path / "out") == made
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert not list(tmp_path.glob(".*"))


def test_only_what_fits_is_used_again(folder: Path, tmp_path: Path) -> None:
    for name, lowercase, made in (("out", True, 0), ("other", False, 2)):
        with pytest.raises(Stop):
            build(folder, tmp_path / name, report=stopping("counting", 1))
        if not lowercase:
            content = (folder / "1.jsonl").read_bytes()
            at = content.rindex(b".")
            (folder / "1.jsonl").write_bytes(content[: at - 1] + b"x" + content[at:])  # a letter of the last article
        assert reused(folder, tmp_path / name, lowercase=lowercase) == made
    build(folder, tmp_path / "anew")
    assert contents(tmp_path / "other") == contents(tmp_path / "anew")


@pytest.fixture
def overlapping(folder: Path) -> Path:
    """The third source repeats articles of the first."""
    (folder / "2.jsonl").write_bytes(json_lines([*ARTICLES[5:15], *ARTICLES[40:60]]))
    return folder


@pytest.mark.parametrize(
    ("options", "read"),
    [
        ({}, 3),
        ({"articles": 30}, 2),
        ({"articles": 24, "category": "People|Novels"}, 2),
        ({"articles": 60, "like": "daniluk2017"}, 3),  # has no universities, so it looks for them to the end
    ],
)
def test_who_makes_the_shards_changes_nothing(
    overlapping: Path, tmp_path: Path, options: dict[str, Any], read: int
) -> None:
    summary = build(overlapping, tmp_path / "whole", **options)
    assert options.get("articles") or summary["skipped"] == {"repeated": 10}
    for number in (2, 0, 1):
        source = overlapping / f"{number}.jsonl"
        cut_sources(WikipediaConfig(sources=(source,), out=tmp_path / "out", jobs=1, **options))
    assert reused(overlapping, tmp_path / "out", **options) == read  # which have enough
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the library's own
def test_sources_are_cut_as_tasks_of_ray(overlapping: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    build(overlapping, tmp_path / "whole", lowercase=True)
    assert reused(overlapping, tmp_path / "out", lowercase=True, jobs=2, on="ray") == 3
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    (overlapping / "1.jsonl").write_bytes((overlapping / "1.jsonl").read_bytes()[:-60])
    with pytest.raises(InputError, match=r"1\.jsonl: damaged at byte"):
        build(overlapping, tmp_path / "other", jobs=2, on="ray")


SCRIPT = """
import json, multiprocessing, os, signal, sys
from pathlib import Path
from tests.data.wikipedia.small import build

def report(progress):
    if progress.articles > 40:
        print(json.dumps([process.pid for process in multiprocessing.active_children()]), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

build(Path(sys.argv[1]), Path(sys.argv[2]), jobs=2, report=report)
"""


@pytest.mark.slow
def test_killed_without_a_word(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(folder), str(tmp_path / "out")]
    killed = subprocess.run(command, capture_output=True, cwd=ROOT, timeout=240, check=False)
    assert killed.returncode == -signal.SIGKILL
    workers = json.loads(killed.stdout)
    assert len(workers) == 2
    await_end(workers)
    assert not (tmp_path / "out").exists()
    assert reused(folder, tmp_path / "out") == 2
    build(folder, tmp_path / "whole")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def await_end(workers: list[int]) -> None:
    def alive(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False

    deadline = time.monotonic() + 120
    while any(map(alive, workers)):
        assert time.monotonic() < deadline, "workers outlive their parent"
        time.sleep(0.02)


@pytest.mark.slow
def test_a_worker_that_is_ended_from_outside(folder: Path, tmp_path: Path) -> None:
    def report(progress: Progress) -> None:
        for process in multiprocessing.active_children():
            with suppress(ProcessLookupError):  # it has ended already
                os.kill(process.pid or 0, signal.SIGKILL)

    (folder / "3.jsonl").write_bytes(json_lines(made_articles(2000)[60:]))  # more than is under way
    with pytest.raises(RunError, match="a process was ended from outside"):
        build(folder, tmp_path / "out", jobs=2, report=report)
    made = len(shards(tmp_path / "out"))
    assert reused(folder, tmp_path / "out") == made
    assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_no_room(folder: Path, tmp_path: Path) -> None:
    """The system refuses to make a file longer, as a disk that is full does."""
    (folder / "3.jsonl").write_bytes(json_lines(made_articles(500)[60:]))
    before, answer = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(RunError, match=r"File too large; .* room, and give the same command again"):
            build(folder, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, answer)
    assert reused(folder, tmp_path / "out") == 3


def test_only_one_at_a_time(folder: Path, tmp_path: Path) -> None:
    def report(progress: Progress) -> None:
        with pytest.raises(RunError, match="another process is making it"):
            build(folder, tmp_path / "out")

    build(folder, tmp_path / "out", report=report)


def test_a_folder_that_holds_something_is_left_alone(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "novel.txt").write_text("my only copy")
    (tmp_path / "empty").mkdir()
    build(folder, tmp_path / "empty")
    for name in ("mine", "empty", "mine/novel.txt", "mine/novel.txt/out"):
        with pytest.raises(InputError, match=r"cannot be made|is there already"):
            build(folder, tmp_path / name)
    assert (tmp_path / "mine" / "novel.txt").read_text() == "my only copy"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "mine", "wiki"]


def test_a_mistake_of_the_function_is_not_hidden() -> None:
    with pytest.raises(ValueError, match="not defined for negative"), _workers(2) as in_order:
        list(in_order(math.factorial, [1, -1, 2]))


def own_mask(_: object) -> set[int]:
    return {*signal.pthread_sigmask(signal.SIG_BLOCK, [])}


def test_processes_do_not_hear_ctrl_c_which_is_for_their_parent() -> None:
    with _workers(2) as in_order:
        assert list(in_order(own_mask, range(4))) == [{signal.SIGINT}] * 4
    assert signal.SIGINT not in own_mask(None)
