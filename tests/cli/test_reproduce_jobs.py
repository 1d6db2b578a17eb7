"""`spanlm reproduce --jobs N`: what is shown of several rows at a time."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from spanlm.cli.labelled import LabelledLines
from tests.cli.conftest import Cli
from tests.cli.test_process import shell

TABLE = (
    "reproduce",
    "daniluk2017",
    "--scale",
    "smoke",
    "--device",
    "cpu",
    "--table",
    "2b",
    "--rows",
    "2-gram",
    "3-gram",
)


@pytest.mark.slow
def test_every_line_says_whose_it_is_and_the_page_is_in_the_papers_order(cli: Cli, tiny_corpus: Path) -> None:
    found = shell(*TABLE, "--corpus", tiny_corpus, "--seeds", 1, 2, "--jobs", 2)
    assert (found.returncode, found.stderr) == (0, "")
    progress, _, table = found.stdout.partition("\nFigure 2b")
    for row in ("2-gram", "3-gram"):
        for seed in (1, 2):
            lines = [line for line in progress.splitlines() if line.startswith(f"{row}, seed {seed}  ")]
            shown = "".join(lines)
            assert all(word in shown for word in ("θ_M", "epoch", "folder", "valid ppl")) and "(after " in lines[-1]
    assert table.index("2-gram RNN") < table.index("3-gram RNN")
    folder = Path("results/daniluk2017/tiny-smoke")
    page = (folder / "figure-2b.md").read_text()
    # what is done is only shown
    assert cli(*TABLE, "--corpus", tiny_corpus, "--seeds", 1, 2).done.count("finished before") == 4
    assert (folder / "figure-2b.md").read_text() == page


def test_less_than_one_is_refused(cli: Cli, tiny_corpus: Path) -> None:
    cli(*TABLE, "--corpus", tiny_corpus, "--jobs", 0).refused("--jobs=0: must be at least 1")


def test_lines_are_handed_on_whole() -> None:
    stream = io.StringIO()
    lines = LabelledLines(stream, "row")
    assert not lines.isatty() and lines.writable()
    assert print("one", "two", file=lines) is None and stream.getvalue() == "row  one two\n"
    assert lines.write("half") == 4 and stream.getvalue() == "row  one two\n"
    lines.write(" a line\n\nnext")
    assert stream.getvalue() == "row  one two\nrow  half a line\n\n"
    lines.end()
    lines.end()
    assert stream.getvalue().endswith("\n\nrow  next\n")


@pytest.mark.slow
def test_a_terminal_without_greek(tiny_corpus: Path) -> None:
    rows = ("--corpus", tiny_corpus, "--jobs", 2)
    found = shell(*TABLE, *rows, encoding="latin-1", PYTHONIOENCODING="latin-1")
    assert (found.returncode, found.stderr) == (0, "") and "\\u03b8_M" in found.stdout
