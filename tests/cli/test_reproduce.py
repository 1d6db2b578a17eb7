"""`spanlm reproduce`."""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from spanlm.papers.published.daniluk2017 import PAPER as DANILUK
from tests.cli.conftest import Cli
from tests.cli.test_process import shell
from tests.conftest import tiny_lines

SMOKE, SALTON, LI = (
    ("reproduce", paper, "--scale", "smoke", "--device", "cpu") for paper in ("daniluk2017", "salton2017", "li2020")
)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A text with room for the streams of every recipe, and for a cache of 2,000 words."""
    folder = tmp_path / "text"
    folder.mkdir()
    for seed, (split, lines) in enumerate({"train": 300, "valid": 400, "test": 400}.items()):
        (folder / f"{split}.txt").write_text("\n".join(tiny_lines(lines, seed)) + "\n", encoding="utf-8")
    return folder


def test_rows_are_run_shown_and_written_and_stay_in_the_table(cli: Cli, tiny_corpus: Path) -> None:
    command = (*SMOKE, "--table", "2b", "--corpus", tiny_corpus, "--rows")
    dry = cli(*command, "2-gram", "--dry-run")
    assert (dry.status, dry.err.count("measuring")) == (0, 1) and not list(Path().iterdir())
    cli(*command, "3-gram")
    out = cli(*command, "2-gram").done
    assert "\x1b" not in out and "1 run on tiny at scale smoke" in out and "[1/1] 2-gram RNN, seed 1\n" in out
    folder = Path("results/daniluk2017/tiny-smoke")
    records = {"2-gram-seed-1.json", "3-gram-seed-1.json"}
    assert {path.name for path in folder.iterdir()} == {*records, "figure-2b.md", "figure-2b.svg"}
    record = json.loads((folder / "2-gram-seed-1.json").read_text())
    page = (folder / "figure-2b.md").read_text()
    for text in (page, out):
        for shown in ("2-gram RNN", "3-gram RNN", f"{record['test']['perplexity']:,.1f}", "77.1"):
            assert shown in text
    assert "* 4-gram RNN: not asked for" in page and "--rows 2-gram 3-gram --device cpu`" in page
    assert f"valid ppl {record['valid']['perplexity']:,.2f}, test ppl {record['test']['perplexity']:,.2f}" in out
    assert "finished before" in cli(*command, "2-gram").done and (folder / "figure-2b.md").read_text() == page
    assert re.search(r"^2-gram .* finished$", cli(*command, "2-gram", "--dry-run").out, re.MULTILINE)


def test_a_failed_row_is_named_and_the_table_made_of_the_others(cli: Cli, tiny_corpus: Path) -> None:
    blocked = Path("runs/daniluk2017/tiny-smoke/2-gram/seed-1")
    blocked.parent.mkdir(parents=True)
    blocked.write_text("in the way")
    result = cli(*SMOKE, "--table", "2b", "--corpus", tiny_corpus, "--rows", "2-gram", "3-gram")
    result.refused("1 of 2 runs failed", "2-gram (seed 1)", status=1, out=None)
    page = Path("results/daniluk2017/tiny-smoke/figure-2b.md").read_text()
    assert "2-gram RNN: **failed**" in page and "| 3-gram RNN |" in page


def test_a_dry_run_tells_sizes_and_time(cli: Cli, tiny_corpus: Path) -> None:
    result = cli(*SMOKE, "--table", "2c", "--corpus", tiny_corpus, "--seeds", "3", "1", "--dry-run")
    for row in DANILUK.tables[2].rows:
        sizes = rf"^{re.escape(row)} +(\d) +[\d,]+ +[\d.]+[KM] +[\d.]+[KM] +1 +([\d,]+) +\d:\d\d:\d\d$"
        found = re.findall(sizes, result.out, re.MULTILINE)
        assert [seed for seed, _ in found] == ["3", "1"] and len({speed for _, speed in found}) == 1, row
    assert all(len(line) <= 80 for line in result.out.splitlines()[1:-1])
    assert result.status == 0 and "in all about 0:" in result.out and "where no finalist" not in result.out
    command = (*LI, "--table", "3", "--corpus", tiny_corpus, "--rows", "unannealed-test-ptb-dynamic", "--dry-run")
    out = cli(*command).out
    assert re.search(r"^mos-ps-at-snb-ptb +1 +16 +[\d.]+[KM] +[\d.]+[KM] +3 +[\d,]+ +\d:\d\d:\d\d$", out, re.MULTILINE)
    assert re.search(r"^unannealed-test-ptb-dynamic +1 +\d:\d\d:\d\d$", out, re.MULTILINE)
    assert "where no finalist" in out


@pytest.mark.slow
def test_rows_that_adapt_are_run_shown_and_written(cli: Cli, tiny_corpus: Path) -> None:
    command = (*LI, "--table", "1", "--corpus", tiny_corpus, "--rows", "awd-ptb", "awd-snb-ptb-dynamic")
    out = cli(*command).done
    assert "table 1: 2 runs and 1 measurement on tiny at scale smoke" in out
    folder = Path("results/li2020/tiny-smoke")
    written = {f"{row}-seed-1.json" for row in ("awd-ptb", "awd-snb-ptb", "awd-snb-ptb-dynamic")}
    assert {p.name for p in folder.iterdir()} == {*written, "table-1.md", "table-1.svg", "table-1-by-epoch.svg"}
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


@pytest.mark.slow
def test_side_by_side_trainings_are_those_of_one_after_another_and_every_line_says_whose_it_is(
    cli: Cli, text: Path
) -> None:
    command = (*SALTON, "--table", "1", "--corpus", text, "--rows", "medium-x2", "lstm-ptb-cache-500")
    found = shell(*command, "--jobs", 2, "--out", "2", "--runs", "many")
    assert (found.returncode, found.stderr) == (0, "")
    lines = found.stdout.splitlines()
    for name in ("medium", "lstm-ptb"):
        for word in ("model", "epoch", "valid ppl"):
            assert any(line.startswith(f"{name}  {word}") for line in lines), (name, word)
    out = cli(*command).done
    assert "table 1: 3 runs and 2 measurements on text at scale smoke" in out
    assert "2 medium regularized LSTMs, seeds 1 to 2\n" in out and "77.0" in out
    assert cli(*command).done.count("finished before") == 5
    folders = Path("2/salton2017/text-smoke"), Path("results/salton2017/text-smoke")
    names = {path.name for path in folders[1].glob("*.json")}
    assert names == {path.name for path in folders[0].glob("*.json")} and len(names) == 5
    for name in names:
        one, other = (json.loads((folder / name).read_text())["test"]["nll"] for folder in folders)
        assert one == pytest.approx(other, rel=1e-6)
    start = json.loads((folders[0] / "medium-seed-1.json").read_text())["starts"][0]
    assert start["command"].startswith("spanlm train --config=many/") and "--resume=auto" in start["command"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "row", "tables"),
    [
        (SMOKE, "2-gram", ("figure-2a", "figure-2b", "figure-2c", "figure-3a", "figure-3")),
        (SALTON, "medium", ("table-1", "table-2", "figure-2", "figure-3")),
    ],
    ids=["daniluk", "salton"],
)
def test_the_smoke_scale_runs_every_table(
    cli: Cli, text: Path, command: tuple[str, ...], row: str, tables: tuple[str, ...]
) -> None:
    """By default on the embedded corpus, where it takes minutes."""
    assert "on demo at scale smoke" in cli(*command, "--rows", row, "--dry-run").out
    assert "failed" not in cli(*command, "--corpus", text).done
    assert_complete(Path(f"results/{command[1]}/text-smoke"), tables)


@pytest.mark.slow
@pytest.mark.parametrize("table", ["1", "3"])
def test_the_smoke_scale_runs_every_row_that_adapts(cli: Cli, tiny_corpus: Path, table: str) -> None:
    """On a text of a few lines: each row learns from all of valid and test, word by word, and so does its tuning."""
    assert "failed" not in cli(*LI, "--table", table, "--corpus", tiny_corpus).done
    assert_complete(Path("results/li2020/tiny-smoke"), [f"table-{table}"])


def assert_complete(folder: Path, tables: Sequence[str]) -> None:
    for table in tables:
        page = (folder / f"{table}.md").read_text()
        assert "not run yet" not in page and (folder / f"{table}.svg").exists()
    for record in folder.glob("*.json"):
        assert json.loads(record.read_text())["test"]["perplexity"] < 1e5


@pytest.mark.slow
def test_a_row_is_evaluated_with_the_nearest_states_of_its_training_text(cli: Cli, tiny_corpus: Path) -> None:
    asked = ("reproduce", "neighbours", "--scale", "smoke", "--table", "1", "--corpus", tiny_corpus, "--device", "cpu")
    assert "LSTM with 64 nearest neighbours" in cli(*asked, "--rows", "lstm", "lstm-nearest").done
    record = json.loads((Path("results/neighbours/tiny-smoke") / "lstm-nearest-seed-1.json").read_text())
    plain, chosen = record["valid"]["without_neighbours"], record["details"]["neighbours"]
    assert chosen["k"] == 64 and chosen["tuned_on"] and record["valid"]["perplexity"] <= plain["perplexity"]


@pytest.mark.slow
def test_a_row_says_how_far_it_is_above_the_law_of_its_text(cli: Cli) -> None:
    text = "synthetic:recall,tokens=4000"
    asked = ("reproduce", "yardstick", "--table", "recall", "--corpus", text, "--rows", "lstm", "lstm-cache")
    out = cli(*asked, "--device", "cpu").done
    folder = Path("results/yardstick/recall-tokens-4000-small")
    record = json.loads((folder / "lstm-seed-1.json").read_text())
    told = json.loads(cli("evaluate", "runs/yardstick/recall-tokens-4000-small/lstm/seed-1", "--json").done)
    assert record["excess"] == told["excess"] and record["law"]["test"] == pytest.approx(told["excess"][0]["optimum"])
    excess = math.log2(told["perplexity"]) - record["law"]["test"]
    page = (folder / "table-recall.md").read_text()
    for shown in (out, page):
        assert f"{excess:.3f}" in shown and "LSTM with a cache" in shown and "lag 8–15" in shown
    cli(*asked[:3], "copy", *asked[4:6]).refused("needs --corpus synthetic:copy")
