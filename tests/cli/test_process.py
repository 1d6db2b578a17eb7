"""A handful of commands as a user's shell runs them."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import spanlm
from spanlm.cli import main as module
from spanlm.errors import Interrupted, RunError
from tests.cli.conftest import Cli


def shell(*arguments: object, encoding: str = "utf-8", **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spanlm", *map(str, arguments)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        encoding=encoding,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.slow
def test_a_real_process_ends_with_the_status(tiny_run: Path) -> None:
    good = shell("generate", tiny_run, "--prompt", "the", "--length", "3")
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.startswith("the ")
    bad = shell("generate", tiny_run, "--top-p", "7")
    assert (bad.returncode, bad.stdout, bad.stderr) == (2, "", "spanlm: --top-p=7.0: must be in (0, 1]\n")


@pytest.mark.slow
def test_a_cache_that_was_damaged_is_made_again_and_told_once(tiny_run: Path, tmp_path: Path) -> None:
    def evaluated() -> tuple[float, str]:
        found = shell("evaluate", tiny_run, "--json", SPANLM_CACHE=str(tmp_path))
        assert found.returncode == 0
        return json.loads(found.stdout)["nll"], found.stderr

    nll, said = evaluated()
    assert said == ""
    (entry,) = (tmp_path / "tokens").iterdir()
    entry.write_bytes(bytes(entry.stat().st_size))
    again, said = evaluated()
    assert again == nll and said.startswith(f"note: {entry}: ") and said.count("\n") == 1
    assert evaluated() == (nll, "")


def test_a_terminal_without_greek(tiny_run: Path) -> None:
    assert shell("presets", encoding="latin-1", PYTHONIOENCODING="latin-1").returncode == 0


def test_a_reader_that_is_gone_is_no_error() -> None:
    # as in a user's shell, where output to a pipe is buffered
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    script = f'"{sys.executable}" -m spanlm presets | true; exit ${{PIPESTATUS[0]}}'
    found = subprocess.run(
        ["bash", "-c", script], capture_output=True, timeout=60, check=False, env=environment, text=True
    )
    assert (found.returncode, found.stderr) == (128 + signal.SIGPIPE, "")


def test_output_that_nobody_wants_is_no_error(tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat\n")
    script = shlex.join([sys.executable, "-m", "spanlm", "score", str(tiny_run), "text.txt"])
    found = subprocess.run(
        ["bash", "-c", f"{script} >&-"], capture_output=True, timeout=60, check=False, text=True, cwd=tmp_path
    )
    assert (found.returncode, found.stderr) == (0, "")


DELAYS = (0.02, 0.2, *(pytest.param(delay, marks=pytest.mark.slow) for delay in (0.05, 0.1, 0.4, 0.8, 1.5, 3.0)))


@pytest.mark.parametrize("delay", DELAYS)
def test_ctrl_c_while_modules_load_is_one_line(tiny_run: Path, tmp_path: Path, delay: float) -> None:
    """So long after the command line was first heard of: every module that is loaded is a line on stderr."""
    command = [sys.executable, "-X", "importtime", "-m", "spanlm", "score", str(tiny_run), "-"]
    with (tmp_path / "err").open("wb") as err:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err)
    while b" spanlm.cli\n" not in (tmp_path / "err").read_bytes():
        assert process.poll() is None
        time.sleep(0.005)
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130  # or else it waits for what is never typed
    out, _ = process.communicate()
    said = [x for x in (tmp_path / "err").read_text().splitlines() if not x.startswith("import time:")]
    assert (out, said) == (b"", ["spanlm: stopped"])


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_closed_stream_is_not_written_into_the_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setattr(sys, name, None)
    status = module.main(["presets"] if name == "stdout" else ["trian"])
    getattr(sys, name).close()
    assert status == (0 if name == "stdout" else 2)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (RunError("the disk\n is full"), 1, "spanlm: the disk is full\n"),
        (Interrupted("stopped by SIGTERM", 15), 143, "spanlm: stopped by SIGTERM\n"),
        (Interrupted("stopped by Ctrl-C", 2), 130, "spanlm: stopped by Ctrl-C\n"),
        (KeyboardInterrupt(), 130, "spanlm: stopped\n"),
        (OSError(28, "No space left on device", "x.tsv"), 1, "spanlm: x.tsv: No space left on device\n"),
        (SystemExit(0), 0, ""),
        (SystemExit(3), 3, ""),
    ],
    ids=repr,
)
def test_every_end_has_its_status(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int, text: str
) -> None:
    import spanlm.cli.presets

    def failing(arguments: list[str]) -> None:
        raise error

    monkeypatch.setattr(spanlm.cli.presets, "run", failing)
    result = cli("presets")
    assert (result.status, result.err) == (status, text)


def test_our_own_mistakes_are_not_hidden(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    import spanlm.cli.presets

    monkeypatch.setattr(spanlm.cli.presets, "run", None)
    with pytest.raises(TypeError):
        cli("presets")


def test_version(cli: Cli) -> None:
    for word in ("--version", "-V", "version"):
        assert cli(word).done == f"spanlm {spanlm.__version__}\n"
    assert "train" in module.VERBS


@pytest.mark.slow
def test_threads_are_those_asked_for(tiny_run: Path, tmp_path: Path) -> None:
    found = shell("evaluate", tiny_run, "--threads", 1)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.rstrip().endswith("on cpu, 1 thread")
    for wrong in (0, -1, 10**9):
        refused = shell("evaluate", tiny_run, "--threads", wrong)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.startswith(f"spanlm: --threads={wrong}: must be 1 to ")


@pytest.mark.parametrize(("given", "spins"), [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7")])
def test_waiting_threads_sleep_unless_the_user_says_otherwise(
    given: dict[str, str], spins: str, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    cli("version")
    assert os.environ["GOMP_SPINCOUNT"] == spins
