"""What all verbs print with: tables as wide as their cells where there is no terminal, as wide as it where there is."""

from __future__ import annotations

import ast
import json
import math
import os
import pty
import re
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path

import pytest
from rich.table import Table

import spanlm.cli
from spanlm.cli.main import main
from spanlm.cli.report import TrainingReport
from spanlm.cli.terminal import console, note, out, out_json
from spanlm.training.journal import StepEvent
from tests.cli.conftest import Cli

LONG = "an attentive language model " * 20
CELLS = [["row", LONG.strip(), "ppl"], [LONG.strip(), "said " * 30, "70.10"], ["x", "", "8.00"]]


def wide_table(title: str | None = None) -> Table:
    header, *rows = CELLS
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in header:
        table.add_column(name)
    for row in rows:
        table.add_row(*row)
    return table


@pytest.mark.parametrize("columns", ["20", "80", None])
def test_where_there_is_no_terminal_a_row_is_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str | None
) -> None:
    """Whatever the environment says of a width: cells stand side by side, two blanks apart at least."""
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
        monkeypatch.setenv("FORCE_COLOR", "1")  # a pipe is no terminal for that
    console().print(wide_table())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(CELLS)
    widths = [max(len(row[n].strip()) for row in CELLS) for n in range(3)]
    starts = [0, widths[0] + 2, widths[0] + widths[1] + 4]
    for line, row in zip(lines, CELLS, strict=True):
        assert len(line) <= sum(widths) + 5, "no wider than its cells need"
        ends = [*starts[1:], len(line)]
        assert [line[a:b].strip() for a, b in zip(starts, ends, strict=True)] == [cell.strip() for cell in row]


def test_a_title_is_one_line_even_above_a_narrow_table(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(title=LONG, title_justify="left", box=None)
    table.add_row("1", "2")
    console().print(table)
    assert capsys.readouterr().out.splitlines()[0].strip() == LONG.strip()


def test_a_terminal_breaks_cells_rather_than_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")  # which is 80 wide
    console().print(wide_table())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > len(CELLS) and max(map(len, lines)) <= 80


def test_every_table_of_the_command_line_is_printed_on_this_console() -> None:
    for file in Path(spanlm.cli.__file__).parent.glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rich")
            for alias in node.names
        }
        assert file.name == "terminal.py" or not imported & {"Console", "print", "get_console"}, file.name


def test_json_has_null_for_what_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    out_json({"a": [math.nan, (math.inf, 1.5)], "b": "NaN"})
    assert json.loads(capsys.readouterr().out) == {"a": [None, [None, 1.5]], "b": "NaN"}


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202e"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\x9b31m\r\u202e"


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], str]:
    """Returns what comes to a terminal that is standard output."""
    monkeypatch.setenv("TERM", "xterm")

    def on_terminal(act: Callable[[], object]) -> str:
        reader, slave = pty.openpty()
        with open(slave, "w", encoding="utf-8") as stream, redirect_stdout(stream):
            act()
        found = b""
        with suppress(OSError):  # the end
            while part := os.read(reader, 1 << 16):
                found += part
        os.close(reader)
        return found.decode().replace("\r\n", "\n")

    return on_terminal


OnTerminal = Callable[[Callable[[], object]], str]


def test_a_terminal_obeys_no_word(tiny_run: Path, on_terminal: OnTerminal) -> None:
    command = ["generate", str(tiny_run), "--prompt", f"{HOSTILE} the", "--length", "1"]
    assert on_terminal(lambda: main(command)).startswith(f"{SHOWN} the ")


def test_a_terminal_obeys_no_word_of_a_table_of_data(tiny_run: Path, tmp_path: Path, on_terminal: OnTerminal) -> None:
    (tmp_path / "text.txt").write_text("the \x1b[2Jcat\u202e sat\n", encoding="utf-8")
    text = on_terminal(lambda: main(["score", str(tiny_run), "text.txt"]))
    assert "\x1b" not in text and "\t\\x1b[2Jcat\\u202e\t" in text


def test_a_terminal_obeys_no_cell_and_no_line_but_rich(on_terminal: OnTerminal) -> None:
    def act() -> None:
        table = Table(box=None, show_header=False)
        table.add_row(HOSTILE, style="bold")
        console().print(table, width=100)
        out(HOSTILE)

    text = on_terminal(act)
    assert text.endswith(f"\n{SHOWN}\n") and text.count(r"\x1b]0;owned") == 2
    assert set(re.findall(r"\x1b.[^m]*m?", text)) == {"\x1b[1m", "\x1b[0m"} and not {*HOSTILE[-2:], "\x07"} & {*text}


def test_data_in_a_pipe_are_as_they_are_and_what_is_said_is_shown(
    tiny_run: Path, cli: Cli, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli("generate", tiny_run, "--prompt", f"{HOSTILE} the").done.startswith(f"{HOSTILE} the ")
    cli("evaluate", f"no{HOSTILE.replace(chr(13), '')}run").refused(f"no{SHOWN.replace(chr(92) + 'r', '')}run")
    out(HOSTILE)
    note(HOSTILE)
    assert capsys.readouterr() == (f"{SHOWN}\n", f"{SHOWN}\n")


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_time_left_is_never_cut(monkeypatch: pytest.MonkeyPatch, on_terminal: OnTerminal, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))

    def act() -> None:
        with TrainingReport() as report:
            report.step(StepEvent(12, 40, 12_345, 67_890, 14.5, 0.00125, 20, 400_000, 12_345.6))

    frames = re.split(r"[\r\n]+", re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", on_terminal(act)))
    shown = [frame.rstrip() for frame in frames if "epoch" in frame]
    assert shown and max(map(len, shown)) <= columns and "…" not in "".join(shown)
    assert all("epoch 12/40  eta 0:02:26, all at most 1:25:35" in frame for frame in shown)
    assert columns < 120 or all("12,346 tok/s  lr 0.00125" in frame for frame in shown)
