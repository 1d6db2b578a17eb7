"""What all verbs print with: tables as wide as their cells where there is no terminal, as wide as it where there is."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path

import pytest
from rich.table import Table

import spanlm.cli
from spanlm.cli.terminal import console, out_json
from spanlm.presets import PRESETS
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


def test_a_preset_is_one_line(cli: Cli) -> None:
    lines = cli("presets").done.splitlines()
    assert [line.split()[0] for line in lines[1 : len(PRESETS) + 1]] == list(PRESETS)
    assert lines[len(PRESETS) + 1] == ""


def test_json_has_null_for_what_is_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    out_json({"a": [math.nan, (math.inf, 1.5)], "b": "NaN"})
    assert json.loads(capsys.readouterr().out) == {"a": [None, [None, 1.5]], "b": "NaN"}
