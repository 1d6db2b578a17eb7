"""`spanlm reproduce`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from spanlm.errors import Interrupted, RunError
from spanlm.evaluation.dynamic.evaluate import DivergedError
from spanlm.reproduction import run as run_module
from spanlm.reproduction.papers.daniluk2017 import DANILUK
from spanlm.reproduction.plan import PAPERS
from tests.cli.conftest import Cli
from tests.cli.test_process import shell

SMOKE = ("reproduce", "daniluk2017", "--scale", "smoke", "--device", "cpu")
SALTON = ("reproduce", "salton2017", "--scale", "smoke", "--device", "cpu")
LI = ("reproduce", "li2020", "--scale", "smoke", "--device", "cpu")


def test_a_table_is_run_shown_and_written(cli: Cli, tiny_corpus: Path) -> None:
    out = cli(*SMOKE, "--table", "2b", "--corpus", tiny_corpus, "--rows", "2-gram", "3-gram").done
    assert "\x1b" not in out
    assert "2 runs on tiny at scale smoke" in out
    assert re.search(r"\[1/2\] 2-gram RNN, seed 1\n", out)
    folder = Path("results/daniluk2017/tiny-smoke")
    assert {path.name for path in folder.iterdir()} == {
        "2-gram-seed-1.json",
        "3-gram-seed-1.json",
        "figure-2b.md",
        "figure-2b.svg",
    }
    record = json.loads((folder / "2-gram-seed-1.json").read_text())
    page = (folder / "figure-2b.md").read_text()
    for number in (f"{record['test']['perplexity']:,.1f}", "77.1", "not asked for: 4-gram RNN, 5-gram RNN"):
        assert number in page
    shown = f"valid ppl {record['valid']['perplexity']:,.2f}, test ppl {record['test']['perplexity']:,.2f}"
    assert shown in out
    assert (folder / "figure-2b.svg").read_text().rstrip().endswith("</svg>")


def test_rows_that_were_run_before_stay_in_the_table(cli: Cli, tiny_corpus: Path) -> None:
    command = (*SMOKE, "--table", "2b", "--corpus", tiny_corpus, "--rows")
    cli(*command, "3-gram")
    out = cli(*command, "2-gram").done
    page = Path("results/daniluk2017/tiny-smoke/figure-2b.md").read_text()
    for text in (page, out):
        assert re.search(r"^\W*2-gram RNN\b", text, re.MULTILINE) and re.search(r"^\W*3-gram RNN\b", text, re.MULTILINE)
    assert "not asked for: 4-gram RNN, 5-gram RNN" in page
    assert "--rows 2-gram 3-gram --device cpu`" in page
    assert "1 run on tiny" in out


def test_a_failed_row_is_named_and_the_table_made_of_the_others(cli: Cli, tiny_corpus: Path) -> None:
    blocked = Path("runs/daniluk2017/tiny-smoke/2-gram/seed-1")
    blocked.parent.mkdir(parents=True)
    blocked.write_text("in the way")
    result = cli(*SMOKE, "--table", "2b", "--corpus", tiny_corpus, "--rows", "2-gram", "3-gram")
    result.refused("1 of 2 runs failed", "2-gram (seed 1)", status=1, out=None)
    page = Path("results/daniluk2017/tiny-smoke/figure-2b.md").read_text()
    assert "2-gram RNN: **failed**" in page and "| 3-gram RNN |" in page


def test_a_stop_says_how_to_go_on(cli: Cli, tiny_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*arguments: object, **options: object) -> None:
        raise Interrupted("stopped by Ctrl-C", 2)

    monkeypatch.setattr(run_module, "train", stop)
    result = cli(*SMOKE, "--table", "2b", "--corpus", tiny_corpus)
    result.refused("stopped by Ctrl-C. The same command goes on", status=130, out=None)


def test_a_dry_run_tells_sizes_and_time_and_writes_nothing(cli: Cli, tiny_corpus: Path) -> None:
    result = cli(*SMOKE, "--table", "2c", "--corpus", tiny_corpus, "--dry-run")
    out = result.out
    rows = next(table.rows for table in DANILUK.tables if table.name == "2c")
    kinds = {PAPERS["daniluk2017"].rows[row].trained.config.model.memory.kind for row in rows}
    for row in rows:
        assert re.search(
            rf"^{re.escape(row)} +1 +[\d,]+ +[\d,]+ +[\d,]+ +1 +[\d,]+ +\d:\d\d:\d\d$", out, re.MULTILINE
        ), row
    measured = [line.removeprefix("measuring: ") for line in result.err.splitlines()]
    assert result.status == 0 and len(measured) >= len(kinds) and set(measured) <= set(rows)
    assert "in all about 0:" in out and "it reads on" not in out
    assert not Path("runs").exists() and not Path("results").exists()


def test_a_dry_run_measures_a_kind_once_for_all_its_rows_and_seeds(cli: Cli, tiny_corpus: Path) -> None:
    command = (*SMOKE, "--table", "2b", "--corpus", tiny_corpus, "--rows", "2-gram", "3-gram", "--seeds", "3", "1")
    result = cli(*command, "--dry-run")
    assert result.err == "measuring: 2-gram\n"
    times = re.findall(r"^2-gram +(\d) .* 1 +([\d,]+) +\d:\d\d:\d\d$", result.out, re.MULTILINE)
    assert [seed for seed, _ in times] == ["3", "1"] and len({speed for _, speed in times}) == 1


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), RunError("not finite")], ids=["memory", "astray"])
def test_a_dry_run_goes_on_after_what_cannot_be_measured(
    cli: Cli, tiny_corpus: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*arguments: object, **options: object) -> float:
        raise error

    monkeypatch.setattr("spanlm.reproduction.run.adapted_tally", fail)
    command = (*LI, "--table", "1", "--corpus", tiny_corpus, "--rows", "awd-snb-ptb-dynamic", "awd-ptb", "--dry-run")
    result = cli(*command)
    assert result.status == 0, result
    assert re.search(rf"^awd-snb-ptb-dynamic +1 +fails: {error}$", result.out, re.MULTILINE)
    assert "where none of a search's finalists helps: it reads on" in result.out
    assert re.search(r"^awd-ptb .* \d:\d\d:\d\d$", result.out, re.MULTILINE)


def test_a_dry_run_knows_what_is_finished(cli: Cli, tiny_corpus: Path) -> None:
    command = (*SMOKE, "--table", "2b", "--corpus", tiny_corpus, "--rows", "2-gram", "3-gram")
    cli(*command[:-1])
    out = cli(*command, "--dry-run").out
    assert re.search(r"^2-gram .* finished$", out, re.MULTILINE)
    assert not re.search(r"^3-gram .* finished$", out, re.MULTILINE)


def test_rows_that_need_trained_models_are_run_shown_and_written(cli: Cli, tiny_corpus: Path) -> None:
    command = (*SALTON, "--table", "1", "--corpus", tiny_corpus, "--rows", "medium-x2", "lstm-ptb")
    out = cli(*command).done
    assert "table 1: 3 runs and 1 measurement on tiny at scale smoke" in out
    assert "[3/4] 2 medium regularized LSTMs, seeds 1 to 2\n" in out
    folder = Path("results/salton2017/tiny-smoke")
    assert {path.name for path in folder.iterdir()} == {
        *("medium-seed-1.json", "medium-seed-2.json", "medium-x2.json", "lstm-ptb-seed-1.json"),
        *("table-1.md", "table-1.svg"),
    }
    page = (folder / "table-1.md").read_text()
    for text in (page, out):
        for shown in ("2 medium regularized LSTMs", "Medium regularized LSTM", "Same recipe and size", "77.0"):
            assert shown in text
    assert cli(*command).done.count("finished before") == 4
    assert (folder / "table-1.md").read_text() == page


def test_a_dry_run_tells_what_is_only_evaluated_and_what_is_left_out(cli: Cli, tiny_corpus: Path) -> None:
    out = cli(*SALTON, "--table", "2", "--corpus", tiny_corpus, "--rows", "grave-lstm-wt2-cache-100", "--dry-run").out
    assert re.search(r"^grave-lstm-wt2 +1 +26 ", out, re.MULTILINE)
    assert re.search(r"^grave-lstm-wt2-cache-100 +1 +evaluated only \d:\d\d:\d\d$", out, re.MULTILINE)
    assert not Path("runs").exists() and not Path("results").exists()


def test_rows_that_adapt_are_run_shown_and_written(cli: Cli, tiny_corpus: Path) -> None:
    command = (*LI, "--table", "1", "--corpus", tiny_corpus, "--rows", "awd-ptb", "awd-snb-ptb-dynamic")
    out = cli(*command).done
    assert "table 1: 2 runs and 1 measurement on tiny at scale smoke" in out
    assert "[3/3] AWD-LSTM + SNB, seed 1\n" in out
    folder = Path("results/li2020/tiny-smoke")
    assert {path.name for path in folder.iterdir()} == {
        *("awd-ptb-seed-1.json", "awd-snb-ptb-seed-1.json", "awd-snb-ptb-dynamic-seed-1.json"),
        *("table-1.md", "table-1.svg", "table-1-by-epoch.svg"),
    }
    plain, buffered = (json.loads((folder / f"{row}-ptb-seed-1.json").read_text()) for row in ("awd", "awd-snb"))
    metrics = Path("runs/li2020/tiny-smoke/awd-snb-ptb/seed-1/metrics.jsonl").read_text().splitlines()
    epochs = [row["parts"]["valid"] for row in map(json.loads, metrics) if row["event"] == "valid"]
    for name in ("utilisation", "oracle_utilisation"):
        assert buffered[f"{name}_by_epoch"] == [epoch[name] for epoch in epochs] and f"{name}_by_epoch" not in plain
    assert buffered["epochs"] == len(epochs) == 3, "two, and one of finetuning"
    page = (folder / "table-1.md").read_text()
    for text in (page, out):
        for shown in ("Without dynamic evaluation", "With dynamic evaluation", "54.92", "47.54", "oracle", "(awd-ptb)"):
            assert shown in text
    assert cli(*command).done.count("finished before") == 3
    assert (folder / "table-1.md").read_text() == page


def test_a_dry_run_tells_how_long_dynamic_evaluation_takes(cli: Cli, tiny_corpus: Path) -> None:
    command = (*LI, "--table", "3", "--corpus", tiny_corpus, "--rows", "unannealed-test-ptb-dynamic", "--dry-run")
    out = cli(*command).out
    assert re.search(r"^mos-ps-at-snb-ptb +1 +16 +[\d,]+ +[\d,]+ +3 +[\d,]+ +\d:\d\d:\d\d$", out, re.MULTILINE)
    assert re.search(r"^unannealed-test-ptb-dynamic +1 +evaluated only \d:\d\d:\d\d$", out, re.MULTILINE)
    assert not Path("runs").exists() and not Path("results").exists()


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("reproduce",), ["PAPER"]),
        (("reproduce", "daniluk2018"), ["daniluk2018", "Did you mean 'daniluk2017'"]),
        ((*SMOKE, "--table", "2e"), ["--table=2e"]),
        ((*SMOKE, "--seeds", "1", "1"), ["--seeds", "different"]),
        ((*SMOKE, "--jobs", "0"), ["--jobs=0: must be at least 1"]),
        ((*SMOKE, "--table", "2b", "--rows", "lstm"), ["--rows=lstm"]),
        ((*SMOKE, "--corpus", "no-such"), ["no-such"]),
        ((*SMOKE, "--tabel", "2b"), ["unknown option --tabel", "--table"]),
        ((*SALTON, "--table", "2b"), ["--table=2b", "Did you mean '2'"]),
        ((*SALTON, "--table", "2", "--rows", "medium"), ["--rows=medium", "not in the table"]),
        ((*SALTON, "--table", "1", "--rows", "medium-x10"), ["--rows=medium-x10", "at most 3", "--seeds"]),
        (("reproduce", "salton2017"), ["--table", "1 (ptb)", "2 (wikitext-2)"]),
        ((*LI, "--table", "4"), ["--table=4", "Choose from: 1, 2, 3, 3-wt2"]),
        ((*LI, "--table", "3", "--rows", "awd-ptb"), ["--rows=awd-ptb", "not in the table"]),
    ],
)
def test_bad_requests_are_one_line(cli: Cli, arguments: tuple[Any, ...], parts: list[str]) -> None:
    cli(*arguments).refused(*parts)


@pytest.mark.slow
def test_side_by_side_every_line_says_whose_it_is_and_the_page_is_in_the_papers_order(
    cli: Cli, tiny_corpus: Path
) -> None:
    command = (*SMOKE, "--table", "2b", "--rows", "2-gram", "3-gram", "--corpus", tiny_corpus, "--seeds", 1, 2)
    found = shell(*command, "--jobs", 2)
    assert (found.returncode, found.stderr) == (0, "")
    progress, _, table = found.stdout.partition("\nFigure 2b")
    for name in (f"{row}, seed {seed}" for row in ("2-gram", "3-gram") for seed in (1, 2)):
        lines = [line for line in progress.splitlines() if line.startswith(f"{name}  ")]
        shown = "".join(lines)
        assert all(word in shown for word in ("θ_M", "epoch", "folder", "valid ppl")) and "(after " in lines[-1]
    assert table.index("2-gram RNN") < table.index("3-gram RNN")
    page = Path("results/daniluk2017/tiny-smoke/figure-2b.md")
    before = page.read_text()
    # what is done is only shown
    assert cli(*command).done.count("finished before") == 4 and page.read_text() == before


@pytest.mark.slow
def test_side_by_side_in_a_terminal_without_greek(tiny_corpus: Path) -> None:
    command = (*SMOKE, "--table", "2b", "--rows", "2-gram", "3-gram", "--corpus", tiny_corpus, "--jobs", 2)
    found = shell(*command, encoding="latin-1", PYTHONIOENCODING="latin-1")
    assert (found.returncode, found.stderr) == (0, "") and "\\u03b8_M" in found.stdout


@pytest.mark.slow
def test_the_smoke_scale_runs_every_table_of_the_embedded_corpus(cli: Cli) -> None:
    out = cli(*SMOKE).done
    assert "failed" not in out
    folder = Path("results/daniluk2017/demo-smoke")
    for table in ("2a", "2b", "2c", "3"):
        page = (folder / f"figure-{table}.md").read_text()
        assert "Missing:" not in page
        assert (folder / f"figure-{table}.svg").exists()
    for record in folder.glob("*.json"):
        assert json.loads(record.read_text())["test"]["perplexity"] < 1e5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "table"),
    [(SALTON, "1"), (SALTON, "2"), (LI, "1"), (LI, "3")],
    ids=["salton-1", "salton-2", "li-1", "li-3"],
)
def test_the_smoke_scale_runs_the_tables_of_many_papers(cli: Cli, command: tuple[str, ...], table: str) -> None:
    out = cli(*command, "--table", table).done
    assert "failed" not in out
    folder = Path(f"results/{command[1]}/demo-smoke")
    page = (folder / f"table-{table}.md").read_text()
    assert "not run yet" not in page and "**failed**" not in page
    for record in folder.glob("*.json"):
        assert json.loads(record.read_text())["test"]["perplexity"] < 1e5


def test_a_row_that_went_astray_is_said_again_and_not_tried_again(
    cli: Cli, tiny_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def astray(*_: object) -> None:
        raise DivergedError("dynamic.rate: at every point of the grid the weights went astray. Take lower rates.")

    monkeypatch.setattr("spanlm.reproduction.record.adapted", astray)
    command = (*LI, "--table", "1", "--corpus", tiny_corpus, "--rows", "awd-snb-ptb-dynamic")
    first = cli(*command)
    said = "dynamic.rate: at every point of the grid the weights went astray. Take lower rates."
    record = "results/li2020/tiny-smoke/awd-snb-ptb-dynamic-seed-1.json"
    kept = f"{said} {record} says what was tried; without that file the row is tried again.\n"
    assert first.status == 1 and f"\nfailed: {kept}" in first.out
    monkeypatch.setattr("spanlm.reproduction.record.adapted", lambda *_: pytest.fail("it was tried again"))
    again = cli(*command)
    assert again.status == 1 and f"\nfailed before: {kept}" in again.out
    assert f"**failed**: {said}" in Path("results/li2020/tiny-smoke/table-1.md").read_text()
    assert re.search(r"^awd-snb-ptb-dynamic +1 +went astray$", cli(*command, "--dry-run").out, re.MULTILINE)
    side_by_side = cli(*command, "--jobs", "2")
    assert side_by_side.status == 1 and "failed before: " in side_by_side.out
