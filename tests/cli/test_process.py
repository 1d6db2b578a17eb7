"""A handful of commands as a user's shell runs them."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import spanlm
from spanlm.store.files import run_name
from spanlm.store.provenance import PACKAGE, commit_of
from tests.cases import rest_slow
from tests.cli.conftest import Cli


def shell(*arguments: object, encoding: str = "utf-8", **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spanlm", *map(str, arguments)]
    everything = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, encoding=encoding, timeout=600, check=False, env=everything)


@pytest.mark.slow
def test_a_real_process_ends_with_the_status(tiny_run: Path) -> None:
    good = shell("generate", tiny_run, "--prompt", "the", "--length", "3")
    assert (good.returncode, good.stderr, good.stdout[:4]) == (0, "", "the ")
    bad = shell("generate", tiny_run, "--top-p", "7")
    assert (bad.returncode, bad.stdout, bad.stderr) == (2, "", "spanlm: --top-p=7.0: must be in (0, 1]\n")


def test_a_terminal_without_greek(tiny_run: Path) -> None:
    assert shell("presets", encoding="latin-1", PYTHONIOENCODING="latin-1").returncode == 0


@pytest.mark.parametrize(
    ("command", "status", "printed"),
    [
        ("presets | true", 128 + signal.SIGPIPE, b""),
        ("presets >&-", 0, b""),
        pytest.param('score "$1" long.txt | head -c 8', 128 + signal.SIGPIPE, b"sentence", marks=pytest.mark.slow),
    ],
)
def test_output_that_nobody_reads_is_no_error(
    tiny_run: Path, tmp_path: Path, command: str, status: int, printed: bytes
) -> None:
    (tmp_path / "long.txt").write_text("the cat sat on mat .\n" * 3000)
    # as in a user's shell, where output to a pipe is buffered
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    script = ["bash", "-c", f'"{sys.executable}" -m spanlm {command}; exit ${{PIPESTATUS[0]}}', "bash", str(tiny_run)]
    found = subprocess.run(script, capture_output=True, timeout=240, check=False, env=environment)
    assert (found.returncode, found.stdout, found.stderr) == (status, printed, b"")


DELAYS = rest_slow([0.2, 0.02, 0.1, 0.8, 3.0])


@pytest.mark.parametrize("delay", DELAYS)
def test_ctrl_c_while_modules_load_is_one_line(tiny_run: Path, tmp_path: Path, delay: float) -> None:
    """So long after the command line was imported: every module that is loaded is a line on stderr."""
    command = [sys.executable, "-X", "importtime", "-m", "spanlm", "score", str(tiny_run), "-"]
    with (tmp_path / "err").open("wb") as err:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err)
    while b" spanlm.cli\n" not in (tmp_path / "err").read_bytes():
        assert process.poll() is None
        time.sleep(0.005)
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=240) == 130  # or else it waits for what is never typed
    out, _ = process.communicate()
    printed = [x for x in (tmp_path / "err").read_text().splitlines() if not x.startswith("import time:")]
    assert (out, printed) == (b"", ["spanlm: stopped"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_one_line(cli: Cli, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat sat\n")
    cli("score", tiny_run, "text.txt", "--out", "/dev/full").refused("/dev/full: No space left on device", status=1)


def test_version(cli: Cli) -> None:
    commit, changed = commit_of(PACKAGE)
    of_a_checkout = f" (commit {str(commit)[:10]}{', changed' * bool(changed)})" if commit else ""
    for word in ("--version", "-V", "version"):
        assert cli(word).done == f"spanlm {spanlm.__version__}{of_a_checkout}\n"


@pytest.mark.slow
def test_threads_are_those_asked_for(tiny_run: Path) -> None:
    found = shell("evaluate", tiny_run, "--threads", 1)
    assert (found.returncode, found.stderr) == (0, "")
    assert "on cpu, 1 thread\n" in found.stdout


@pytest.mark.parametrize("name", [os.fsdecode(b"bad\xff"), "two\nlines"])
def test_a_name_may_be_any_bytes(cli: Cli, tiny_run: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.txt").write_text("the cat sat\n")
    assert cli("score", tiny_run, f"{name}.txt", "--out", f"{name}.csv").status == 0
    assert len((tmp_path / f"{name}.csv").read_text().splitlines()) == 4
    assert cli("evaluate", tiny_run, "--corpus", f"{name}.txt").done.splitlines()[1].startswith("text")
    (tmp_path / name).mkdir()
    shutil.copy(tiny_run / "metrics.jsonl", tmp_path / name)
    assert cli("plot", name, "--out", f"{name}.svg").status == 0
    assert len(run_name(Path(name)).splitlines()) == 1 and run_name(Path(name)).encode()


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["evaluate", "score", "export"])
def test_two_interrupts_at_any_moment_are_one_line(tiny_run: Path, tmp_path: Path, verb: str) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on the mat\n" * 2000)
    rest = {"score": ["text.txt", "--out", "s.tsv"], "export": ["--to", "hf", "--out", "hf"]}.get(verb, [])
    draw = random.Random(verb)
    for number in range(8):
        command = [sys.executable, "-m", "spanlm", verb, tiny_run, *rest]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        begun = 0.5  # by then Python has started, and imported this much
        for pause in (begun + 0.4 * number * draw.random(), draw.choice([0, 0.001, 0.1])):
            time.sleep(pause)
            process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=240)
        assert "Traceback" not in said and process.returncode in (0, 130, -signal.SIGINT), said


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a limit of addresses")
def test_little_memory_is_one_line(tiny_run: Path) -> None:
    program = [sys.executable, "-m", "spanlm", "generate", str(tiny_run)]
    limited = ["bash", "-c", 'ulimit -v 300000; "$@"', "bash", *program]
    found = subprocess.run(limited, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (1, "") and found.stderr.startswith("spanlm: out of memory: ")
    assert found.stderr.count("\n") == 1
