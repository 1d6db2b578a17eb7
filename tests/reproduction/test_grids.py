"""Tables and pages made of records."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from spanlm.reproduction.daniluk2017 import CLOZE_CLASSES, DANILUK2017, TITLES
from spanlm.reproduction.grids import grids, order_note
from spanlm.reproduction.page import markdown_grid, markdown_page
from spanlm.reproduction.plan import Plan, make_plan
from spanlm.reproduction.request import Request
from spanlm.reproduction.run import Outcome
from spanlm.reproduction.summary import RowSummary, Spread, concordance, summarise

TABLES = {table.name: table for table in DANILUK2017}
PAPER = "daniluk2017"


def record(row: str, test: float, **more: Any) -> dict[str, Any]:
    return {
        "row": row,
        "seed": 1,
        "units": 100,
        "readout": 50,
        "model_parameters": 1_234_567,
        "epochs": 8,
        "best_epoch": 6,
        "train_perplexity_at_best": 55.5,
        "tokens_per_second": 10_000.0,
        "training_seconds": 600.0,
        "valid": {"perplexity": test + 5},
        "test": {"perplexity": test, "protocol": "every token predicted once"},
        "starts": [
            {
                "commit": "a" * 40,
                "changed": False,
                "processor": "A Processor",
                "threads": 1,
                "device": "cpu",
                "torch": "2",
                "command": "spanlm reproduce daniluk2017",
            }
        ],
        **more,
    }


def summary(row: str, *tests: float, **more: Any) -> RowSummary:
    """Of seeds 1, 2, … a perplexity each."""
    return RowSummary(row, tuple(record(row, test, seed=seed, **more) for seed, test in enumerate(tests, 1)))


def cells(rows: Sequence[tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {row[0]: row[1:] for row in rows}


def test_measured_and_published_stand_side_by_side() -> None:
    (grid,) = grids(TABLES["2c"], [summary("lstm", 90.0), summary("kvp-w5", 80.0)], PAPER)
    found = {name: dict(zip(grid.header[1:], row, strict=True)) for name, row in cells(grid.rows).items()}
    assert (found["LSTM"]["test ppl"], found["LSTM"]["paper: test"], found["LSTM"]["paper: valid"]) == (
        "90.0",
        "85.2",
        "83.2",
    )
    assert found["Key-Value-Predict, window 5"]["paper: test"] == "75.8"
    assert found["LSTM"]["best epoch"] == "6 of 8"
    assert found["LSTM"]["θ_M"] == "1.23M"


def test_several_seeds_show_mean_least_and_greatest() -> None:
    (grid,) = grids(TABLES["2c"], [summary("lstm", 90.0, 91.0, 95.0)], PAPER)
    assert "92.0 (90.0–95.0)" in grid.rows[0]
    assert dict(zip(grid.header, grid.rows[0], strict=True))["seeds"] == "3"


def test_a_window_that_was_not_run_is_a_dash() -> None:
    measured, valid, published = grids(TABLES["2a"], [summary("kv-w1", 79.0), summary("kv-w10", 78.0)], PAPER)
    assert cells(measured.rows) == {"Key-Value": ("79.0", "–", "78.0", "–")}
    assert cells(valid.rows) == {"Key-Value": ("84.0", "–", "83.0", "–")}
    assert cells(published.rows) == {"Key-Value": ("78.7", "79.0", "78.2", "78.9")}


def test_rows_without_a_finished_run_are_left_out() -> None:
    failed = RowSummary("rnn", (), ("no memory",))
    (grid,) = grids(TABLES["2c"], [failed, summary("lstm", 90.0)], PAPER)
    assert [row[0] for row in grid.rows] == ["LSTM"]
    assert grids(TABLES["2c"], [failed], PAPER) == []


def cloze(accuracy: float) -> dict[str, Any]:
    score = {"accuracy": accuracy, "interval": [accuracy - 0.02, accuracy + 0.02]}
    return {"cbt_like": True, "classes": {name: {"sentence": score, "candidate": score} for name in CLOZE_CLASSES}}


def test_accuracies_have_their_interval_and_the_papers_beside() -> None:
    whole, candidate, published = grids(TABLES["2d"], [summary("lstm", 90.0, cloze=cloze(0.5))], PAPER)
    assert cells(whole.rows)["LSTM"][:4] == ("0.500 [0.480, 0.520]",) * 4
    assert cells(candidate.rows) == cells(whole.rows)
    assert cells(published.rows)["LSTM"] == ("0.523", "0.604", "0.819", "0.786")


def attention(lags: Sequence[int]) -> dict[str, Any]:
    percent = [100 / len(lags)] * len(lags)
    return {"split": "test", "nearest_lag": lags[-1], "percent": percent, "positions": 9, "left_out": 1}


def test_attention_stands_by_lag_with_the_current_word_at_zero() -> None:
    rows = [
        summary("rm-w15", 90.0, attention=attention(range(14, -1, -1)), corpus="tiny"),
        summary("kvp-w15", 90.0, attention=attention(range(15, 0, -1)), corpus="tiny"),
    ]
    (grid,) = grids(TABLES["3"], rows, PAPER)
    assert grid.header == ("lag", "RM(+tM-g)", "paper", "Key-Value-Predict", "paper")
    found = {row[0]: row[1:] for row in grid.rows}
    oldest, newest = grid.rows[0], grid.rows[15]
    assert "15" in oldest[0] and oldest[1:] == ("", "", "6.7", "4.0")
    assert "0" in newest[0] and newest[1] == "6.7" and newest[3:] == ("", "")
    one_back = grid.rows[14]
    assert one_back[2] == "15.2", "the paper's RM one word before the current one"
    assert one_back[4] == "17.8", "the paper's Key-Value-Predict one step back"
    assert found["positions"] == ("9", "", "9", "")


@pytest.mark.parametrize("seed", range(5))
def test_concordance_is_counted_over_all_pairs(seed: int) -> None:
    draw = random.Random(seed)
    measured, published = ([draw.randrange(6) for _ in range(8)] for _ in range(2))
    pairs = [
        ((a > b) - (a < b)) * ((x > y) - (x < y))
        for (a, x), (b, y) in itertools.combinations(zip(measured, published, strict=True), 2)
        if x != y
    ]
    assert concordance(measured, published) == (pairs.count(1), len(pairs))


def test_the_order_is_said_beside_the_papers() -> None:
    note = order_note([summary("lstm", 80.0), summary("kvp-w5", 85.0), summary("rnn", 99.0)], PAPER)
    assert "LSTM < Key-Value-Predict, window 5 < RNN. The paper's: Key-Value-Predict, window 5 < LSTM < RNN." in note
    assert "2 of 3 pairs of rows" in note
    assert order_note([summary("lstm", 80.0)], PAPER) == ""


def test_equal_numbers_stand_as_equals_and_are_no_pair() -> None:
    note = order_note([summary("3-gram", 80.0), summary("4-gram", 85.0)], PAPER)
    assert "3-gram RNN < 4-gram RNN. The paper's: 3-gram RNN = 4-gram RNN. 0 of 0 pairs" in note


def test_a_family_at_several_windows_stands_by_its_mean() -> None:
    rows = [summary("kv-w1", 80.0), summary("kv-w5", 90.0), summary("kvp-w1", 84.0)]
    assert "measured: Key-Value-Predict < Key-Value. The paper's: Key-Value-Predict < Key-Value." in order_note(
        rows, PAPER
    )


def test_a_spread_of_one_number_is_that_number() -> None:
    assert Spread.of([1.25]).show(2) == "1.25"
    assert Spread.of([1.0, 3.0]).show(0) == "2 (1–3)"


def test_markdown_has_as_many_cells_in_every_line() -> None:
    (grid,) = grids(TABLES["2c"], [summary("lstm", 90.0), summary("kvp-w5", 80.0)], PAPER)
    lines = markdown_grid(grid).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert len(lines) == 4


@pytest.fixture
def plan(tiny_corpus: Path) -> Plan:
    return make_plan(Request(paper=PAPER, corpus=str(tiny_corpus), scale="smoke", table="2b"))


def test_a_page_says_what_ran_what_failed_and_what_is_missing(plan: Plan) -> None:
    ended = [
        Outcome(plan.jobs[0], record("2-gram", 90.0)),
        Outcome(plan.jobs[1], None, "the loss is not finite"),
    ]
    page = markdown_page(plan, TABLES["2b"], ended, "figure-2b.svg")
    assert page.startswith("# Daniluk et al. 2017, Figure 2b")
    assert "Corpus: **tiny** (train" in page
    assert f"* {TITLES['3-gram']}: **failed**: the loss is not finite" in page
    assert f"* {TITLES['4-gram']}: not run yet" in page
    assert "![Figure 2b: N-gram RNN by order](figure-2b.svg)" in page
    assert "commit aaaaaaaaaa." in page
    assert "`spanlm reproduce daniluk2017 --table 2b --corpus tiny --scale smoke`" in page
    assert "A Processor, 1 thread(s), cpu" in page
    assert "compare orders and differences, not values" in page


def test_rows_that_were_not_asked_for_are_named(tiny_corpus: Path) -> None:
    plan = make_plan(Request(paper=PAPER, corpus=str(tiny_corpus), scale="smoke", table="2b", rows=("2-gram",)))
    page = markdown_page(plan, TABLES["2b"], [Outcome(plan.jobs[0], record("2-gram", 90.0))], None)
    assert "not asked for: 3-gram RNN, 4-gram RNN, 5-gram RNN" in page
    assert "![" not in page


def test_code_that_was_changed_is_said_to_be(plan: Plan) -> None:
    start = {**record("2-gram", 90.0)["starts"][0], "changed": True}
    page = markdown_page(plan, TABLES["2b"], [Outcome(plan.jobs[0], record("2-gram", 90.0, starts=[start]))], None)
    assert "aaaaaaaaaa (changed)" in page


def test_a_run_without_a_commit_is_not_given_one(plan: Plan) -> None:
    start = {**record("2-gram", 90.0)["starts"][0], "commit": None, "changed": None}
    page = markdown_page(plan, TABLES["2b"], [Outcome(plan.jobs[0], record("2-gram", 90.0, starts=[start]))], None)
    assert "no commit known" in page


def test_rows_stand_in_the_tables_order(plan: Plan) -> None:
    ended = [Outcome(job, record(job.row, 90.0)) for job in reversed(plan.jobs)]
    assert [row.row for row in summarise(ended, TABLES["2b"].rows)] == list(TABLES["2b"].rows)
