"""What all verbs print with: as wide as its cells where there is no terminal, as wide as that where there is one."""

import math
import os
import pty
import re
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlm.cli import render
from spanlm.cli.main import main
from spanlm.cli.render import Progress, grid, note, out, paragraph, table
from spanlm.cli.training_report import TrainingReport
from spanlm.models.memories import NoMemoryConfig
from spanlm.training.config import FinetuneConfig, OptimizerConfig
from spanlm.training.position import Position
from spanlm.training.progress import EpochEvent, StepEvent
from tests.cli.conftest import Cli
from tests.training.small import make_config, make_corpus

LONG = "an attentive language model " * 20
HEADER, *ROWS = [["row", LONG.strip(), "ppl"], [LONG.strip(), "said " * 30, "70.10"], ["x", "", "8.00"]]
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202e"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202e"
OnTerminal = Callable[[Callable[[], object]], str]


def on_a_terminal(act: Callable[[], object]) -> str:
    reader, slave = pty.openpty()
    with open(slave, "w", encoding="utf-8") as stream, redirect_stdout(stream):
        act()
    found = b""
    with suppress(OSError):  # the end
        while part := os.read(reader, 1 << 16):
            found += part
    os.close(reader)
    return found.decode().replace("\r\n", "\n")


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> OnTerminal:
    monkeypatch.setenv("TERM", "xterm")
    return on_a_terminal


def print_all() -> None:
    grid(HEADER, ROWS, LONG)
    table([("name", LONG), ("", "x")])
    paragraph(LONG)


@pytest.mark.parametrize("columns", ["20", None])
def test_where_there_is_no_terminal_a_row_is_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str | None
) -> None:
    """Whatever the environment says of a width."""
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
        monkeypatch.setenv("FORCE_COLOR", "1")  # a pipe is no terminal for that
    print_all()
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == LONG and len(lines) == 3 + 2 + 1
    for line, row in zip(lines[:3], (HEADER, *ROWS), strict=True):
        assert re.split(r" {2,}", line.strip()) == [cell.strip() for cell in row if cell]


words = st.lists(st.text("abc−%", min_size=1, max_size=14), max_size=12).map(" ".join)


@settings(max_examples=10)
@given(st.lists(st.lists(words, min_size=3, max_size=3), min_size=2, max_size=4))
def test_no_line_is_wider_than_a_terminal_and_only_names_are_broken(cells: list[list[str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "50")
        lines = on_a_terminal(lambda: grid(cells[0], cells[1:])).splitlines()
        others = on_a_terminal(print_all).splitlines()
    assert max(map(len, [*lines, *others])) <= 50
    printed = set(" ".join(lines).split())
    assert printed == {word for row in cells for cell in row for word in cell.split()}


# what a terminal would obey


def test_a_terminal_obeys_no_word(tiny_run: Path, tmp_path: Path, on_terminal: OnTerminal) -> None:
    command = ["generate", str(tiny_run), "--prompt", f"{HOSTILE} the", "--length", "5"]
    said = on_terminal(lambda: main(command))
    assert said.startswith(f"{SHOWN} the") and said.removeprefix(f"{SHOWN} the").strip()
    (tmp_path / "text.txt").write_text("the \x1b[2Jcat\u202e sat\n", encoding="utf-8")
    text = on_terminal(lambda: main(["score", str(tiny_run), "text.txt"]))
    assert "\x1b" not in text and "\t\\x1b[2Jcat\\u202e\t" in text


def test_a_terminal_obeys_no_cell_and_no_bar(monkeypatch: pytest.MonkeyPatch, on_terminal: OnTerminal) -> None:
    monkeypatch.setenv("COLUMNS", "200")

    def act() -> None:
        grid(["a"], [[HOSTILE]])
        with Progress() as report:
            report(HOSTILE, 1, 2)

    text = on_terminal(act)
    assert text.count(r"\x1b]0;owned") >= 2
    assert not any(obeyed in text for obeyed in ("\x1b]", "\x07", "\x9b", "\u202e"))


def test_data_in_a_pipe_stay_as_they_are_and_messages_are_escaped(
    tiny_run: Path, cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    result = cli("generate", tiny_run, "--prompt", f"{HOSTILE} the")
    assert result.status == 0 and result.out.startswith(f"{HOSTILE} the")
    assert SHOWN.split("\\r")[0] in result.err and "\x1b" not in result.err
    cli("evaluate", f"no{HOSTILE.replace(chr(13), '')}run").refused(f"no{SHOWN.replace(chr(92) + 'r', '')}run")
    out(HOSTILE)
    note(HOSTILE)
    assert capsys.readouterr() == (f"{SHOWN}\n", f"{SHOWN}\n")


# progress


def started(report: TrainingReport, capsys: pytest.CaptureFixture[str] | None = None, **training: Any) -> None:
    """The report of a run of a small configuration, which has printed its sizes."""
    config = make_config(NoMemoryConfig(), kind="streams", shuffle=False, **training)
    report.start(config, make_corpus(), Path("run"), "cpu", 300, None)
    if capsys is not None:
        capsys.readouterr()


FINETUNED: dict[str, Any] = {
    "optimizer": OptimizerConfig(kind="nt_asgd", lr=25.0, switch_after=1),
    "finetune": FinetuneConfig(stages=1, epochs=2),
}


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_time_left_is_never_cut(monkeypatch: pytest.MonkeyPatch, on_terminal: OnTerminal, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))

    def act() -> None:
        with TrainingReport() as report:
            started(report, epochs=40, patience=2)
            at = Position(rate=1.0, epoch=11, segment=12_345, epoch_nll=14.5 * 400_000, epoch_tokens=400_000)
            report.step(StepEvent(at, 67_890, 0.00125, 1.0, 20, 12_345.6))

    frames = re.split(r"[\r\n]+", re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", on_terminal(act)))
    shown = [frame.rstrip() for frame in frames if "epoch" in frame]
    assert shown and max(map(len, shown)) <= columns and "…" not in "".join(shown)
    assert all("epoch 12/40  eta 0:02:26, all at most 1:25:35" in frame for frame in shown)
    assert columns < 120 or all("12,346 tok/s  lr 0.00125" in frame for frame in shown)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "PLAIN_SECONDS", 0.0)


@pytest.mark.usefixtures("always")
def test_the_time_left_is_that_of_segments_as_they_were_on_the_mean(capsys: pytest.CaptureFixture[str]) -> None:
    """A quarter had 60 tokens; the other three have 180, at 2 a second; and so has another epoch, of 240."""
    at = Position(rate=25.0, epoch=3, stage=1, stage_began=3, averaging_since=9, segment=5)
    with TrainingReport() as report:
        started(report, capsys, **FINETUNED)
        report.step(StepEvent(replace(at, epoch_nll=240.0, epoch_tokens=60), 20, 25.0, 1.0, 1, 2.0))
    line = capsys.readouterr().out
    assert line.startswith("epoch 1/2, finetune 1/1, averaged  5/20  loss 4.000")
    assert line.rstrip().endswith("eta 0:01:30, all at most 0:03:30")


def test_an_epoch_is_a_line_and_one_for_each_split_of_a_span_buffer(capsys: pytest.CaptureFixture[str]) -> None:
    parts = {"encoder_nll": math.log(60.0), "buffer_nll": math.log(400.0), "reward": -0.25, "gate": 0.4}
    parts |= {"utilisation": 0.123, "oracle_utilisation": 0.07}
    at = Position(rate=1.0, epoch=7, stage=1, averaging_since=9)
    with TrainingReport() as report:
        started(report, capsys, **FINETUNED)
        report.epoch(EpochEvent(at, 4.0, 4.1, True, 1000.0, 65.0))
        report.epoch(EpochEvent(replace(at, epoch=8), 4.0, 4.1, False, 1000.0, 65.0, parts, parts | {"gate": 0.6}))
    seventh, eighth, *of_parts = capsys.readouterr().out.splitlines()
    assert seventh.startswith("epoch   7  train ppl") and seventh.endswith("best") and not eighth.endswith("best")
    for line, split, share in zip(of_parts, ("train", "valid"), ("0.400", "0.600"), strict=True):
        assert line.split()[0] == split and all(f" {number}" in line for number in ("60.00", "400.00", "12.3%", share))
