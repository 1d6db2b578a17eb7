"""The page of a table whose rows are counted in two ways, from records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spanlm.reproduction.figures import figure
from spanlm.reproduction.grid import Grid
from spanlm.reproduction.grids import grids, order_notes
from spanlm.reproduction.page import markdown_page
from spanlm.reproduction.plan import Plan, make_plan
from spanlm.reproduction.request import Request
from spanlm.reproduction.run import Outcome
from spanlm.reproduction.salton2017 import SALTON, SALTON2017
from spanlm.reproduction.summary import RowSummary
from spanlm.reproduction.tables import Averaged, Cached, Plain
from spanlm.reproduction.tasks import Job
from tests.analysis.shown import texts
from tests.reproduction.test_grids import record as plain_record

TABLE = SALTON2017[0]
PAPER = SALTON.name


def measured(ppl: float, protocol: str, **more: Any) -> dict[str, Any]:
    return {"perplexity": ppl, "protocol": protocol, "salton2017": None, **more}


def record(name: str, test: float, seed: int = 1, **more: Any) -> dict[str, Any]:
    """What a finished row of the table leaves; valid is 5 higher."""
    row = SALTON.rows[name]
    said = "state reset at each line" if row.by_sentence else "one stream"
    theirs = {"perplexity": test * 0.8, "perplexity_per_predicted": test * 0.9}
    splits: dict[str, Any] = {}
    for split, ppl in (("valid", test + 5), ("test", test)):
        splits[split] = measured(ppl, said, **({"salton2017": theirs} if row.by_sentence else {}))
    found = {**plain_record(name, test, seed=seed), "all_parameters": 2_345_678, **splits, **more}
    if isinstance(row.how, Cached):
        for split in ("valid", "test"):
            found[split] = {**splits[split], "without_cache": measured(test + 40, said)}
        found["details"] = {"cache": {"theta": 0.3, "lambda": 0.12}, "notes": ["cache.theta=0.3 is large."]}
    if isinstance(row.how, Averaged):
        found["details"] = {split: {"members": [90.0, 94.0], "oracle_bound": 70.0} for split in ("valid", "test")}
    if not isinstance(row.how, Plain):
        count = row.how.members if isinstance(row.how, Averaged) else 1
        found["members"] = [{"row": row.name, "seed": found["seed"] + n} for n in range(count)]
        del found["seed"], found["training_seconds"]
    return found


def summary(name: str, *tests: float) -> RowSummary:
    """Of seeds 1, 2, … a perplexity each."""
    return RowSummary(name, tuple(record(name, test, seed) for seed, test in enumerate(tests, 1)))


def cells(grid: Grid) -> dict[str, dict[str, str]]:
    return {row[0]: dict(zip(grid.header[1:], row[1:], strict=True)) for row in grid.rows}


def test_rows_that_do_not_compare_are_in_grids_of_their_own() -> None:
    rows = [summary("medium", 83.0), summary("single-ptb", 86.0), summary("pointer-ptb", 71.0)]
    running, sentences = grids(TABLE, rows, PAPER)
    assert list(cells(running)) == ["Medium regularized LSTM", "Medium pointer sentinel-LSTM"]
    assert list(cells(sentences)) == ["Attentive LM, single score"]
    assert "Not to be compared with the rows of running text" in sentences.caption
    assert "their count: test" not in running.header


def test_each_row_says_what_it_adds_to_the_plain_lstm_counted_alike() -> None:
    rows = [
        summary("medium", 84.0, 80.0),
        summary("large", 78.5),
        summary("medium-x2", 79.5),
        summary("single-ptb", 86.0),
        summary("lstm-ptb", 85.0),
        summary("pointer-ptb", 82.0),
    ]
    running, sentences, _ = grids(TABLE, rows, PAPER)
    added = {name: row["over the plain LSTM"] for name, row in {**cells(running), **cells(sentences)}.items()}
    assert added == {
        "Medium regularized LSTM": "–",
        "Large regularized LSTM": "−5.5 (medium)",
        "2 medium regularized LSTMs": "−12.5 (its members)",
        "Medium pointer sentinel-LSTM": "−2.0 (medium)",
        "Attentive LM, single score": "+1.0 (lstm-ptb)",
        "Same recipe and size, no attention †": "–",
    }


def test_only_seeds_that_both_have_are_compared() -> None:
    """Seeds differ by more than rows do."""
    rows = [summary("medium", 84.0, 80.0), summary("large", 78.0, 77.0, 60.0)]
    (grid,) = grids(TABLE, rows, PAPER)
    assert cells(grid)["Large regularized LSTM"]["over the plain LSTM"] == "−4.5 (medium)"
    other = RowSummary("large", (record("large", 60.0, seed=3),))
    (grid,) = grids(TABLE, [rows[0], other], PAPER)
    assert cells(grid)["Large regularized LSTM"]["over the plain LSTM"] == "–"


def test_without_the_control_there_is_nothing_to_add_to() -> None:
    (grid,) = grids(TABLE, [summary("large", 78.5)], PAPER)
    assert cells(grid)["Large regularized LSTM"]["over the plain LSTM"] == "–"


def test_sentences_have_both_counts_beside_the_published() -> None:
    (grid,) = grids(TABLE, [summary("single-ptb", 80.0)], PAPER)
    row = cells(grid)["Attentive LM, single score"]
    assert (row["valid ppl"], row["test ppl"]) == ("85.0", "80.0")
    assert (row["their count: test"], row["paper: valid"], row["paper: test"]) == ("64.0", "71.7", "70.1")
    assert row["per predicted word: test"] == "72.0"
    assert row["parameters"] == "2.35M" and row["paper: parameters"] == "14.5M"


def test_a_cache_shows_what_it_was_put_on_and_an_ensemble_its_members() -> None:
    rows = [summary("grave-lstm-ptb-cache-500", 72.0), summary("medium-x3", 77.0), summary("lstm-ptb-cache-500", 60.0)]
    *_, caches, ensembles = grids(TABLE, rows, PAPER)
    cache = cells(caches)["Neural cache model (size = 500)"]
    assert (cache["words"], cache["θ"], cache["λ"]) == ("500", "0.3", "0.12")
    assert (cache["test: without"], cache["test: with"]) == ("112.0", "72.0")
    assert len(caches.rows) == 2 and "Neural cache model (size = 500): cache.theta=0.3 is large." in caches.caption
    ensemble = cells(ensembles)["3 medium regularized LSTMs †"]
    assert ensemble["members: test"] == "92.0 (90.0–94.0)"
    assert (ensemble["test ppl"], ensemble["oracle bound: test"]) == ("77.0", "70.0")


def test_a_row_of_ours_has_no_published_number() -> None:
    running, sentences, *_ = grids(TABLE, [summary("medium-x3", 77.0), summary("single-ptb-cache-500", 60.0)], PAPER)
    for row in (*cells(running).values(), *cells(sentences).values()):
        assert (row["paper: valid"], row["paper: test"]) == ("–", "–")
    assert cells(sentences)["Attentive LM, single score, with a cache (size = 500) †"]["their count: test"] == "48.0"


def test_the_order_is_said_of_each_group_alone() -> None:
    rows = [summary("medium", 83.0), summary("large", 78.0), summary("single-ptb", 50.0), summary("combined-ptb", 49.0)]
    running, sentences = order_notes(TABLE, rows, PAPER)
    assert running.startswith("Running text") and "1 of 1 pairs" in running and "Attentive" not in running
    assert sentences.startswith("Sentences") and "0 of 1 pairs" in sentences


@pytest.fixture
def plan(tiny_corpus: Path, tmp_path: Path) -> Plan:
    return make_plan(
        Request(paper=PAPER, table="1", corpus=str(tiny_corpus), scale="smoke", runs=tmp_path / "r", out=tmp_path / "o")
    )


def test_a_page_holds_every_row_and_says_what_is_left_out(plan: Plan) -> None:
    ended = [
        Outcome(task, record(task.row, 80.0 + number, **({"seed": task.seed} if isinstance(task, Job) else {})))
        for number, task in enumerate(plan.tasks)
    ]
    ended[-1] = Outcome(plan.tasks[-1], None, "needs single-ptb, seed 1, which failed")
    page = markdown_page(plan, TABLE, ended, "table-1.svg")
    assert page.startswith("# Salton et al. 2017, Table 1")
    assert "The paper's numbers are those of Penn Treebank with 10,000 words: compare orders and differences" in page
    assert "one stream; or: state reset at each line. The best epoch" in page
    assert "Attentive LM, single score, with a cache (size = 500): **failed**: needs single-ptb" in page
    assert "* 38 large regularized LSTMs: left out: an ensemble of 38: at scale smoke at most 3" in page
    assert "71.7/70.1 are 88.0/85.9" in page and "not run yet" not in page and "not asked for" not in page
    assert "`spanlm reproduce salton2017 --table 1 --corpus tiny --scale smoke`" in page
    trained = sum(isinstance(task, Job) for task in plan.tasks)
    assert f"Training time of {trained} runs:" in page
    assert "Seeds: 1, 2, 3; means, with the least and the greatest." in page


def test_the_figure_has_a_line_for_every_row_grouped(plan: Plan) -> None:
    drawing = figure(plan, TABLE, [Outcome(task, record(task.row, 80.0)) for task in plan.tasks])
    assert drawing is not None
    words = texts(drawing)
    names = [text for text in words if any(text.startswith(SALTON.rows[task.row].title) for task in plan.tasks)]
    by_sentence = [text.endswith("(by sentence)") for text in names]
    assert len(names) == len({task.row for task in plan.tasks}) and by_sentence == sorted(by_sentence)
    assert "test ppl, published: ptb" in words


def test_a_figure_of_rows_that_nobody_published_has_one_panel(plan: Plan) -> None:
    (task,) = (task for task in plan.tasks if task.row == "lstm-ptb")
    drawing = figure(plan, TABLE, [Outcome(task, record("lstm-ptb", 80.0))])
    assert drawing is not None
    assert not any("published: " in text for text in texts(drawing, bold=True))
