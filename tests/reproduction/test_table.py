"""Tables, figures and pages made of records."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from spanlm.reproduction.papers import Table
from spanlm.reproduction.plan import PAPERS, Plan, Request, Task, make_plan
from spanlm.reproduction.run import Outcome
from spanlm.reproduction.table import (
    Grid,
    concordance,
    figure,
    grids,
    markdown_page,
    order_notes,
    summarise,
    write_tables,
)
from tests.analysis.shown import texts
from tests.reproduction.records import START, attention, cells, cloze, ended, record

WHOLE = "mos-ps-at-snb-ptb"
TABLES = [(paper.name, table.name) for paper in PAPERS.values() for table in paper.tables]


def table_of(paper: str, name: str) -> Table:
    return next(table for table in PAPERS[paper].tables if table.name == name)


def shown(paper: str, name: str, *outcomes: list[Outcome]) -> list[Grid]:
    table = table_of(paper, name)
    return grids(table, summarise([one for each in outcomes for one in each], table, PAPERS[paper]), PAPERS[paper])


def titled(found: list[Grid], start: str) -> Grid:
    (grid,) = (grid for grid in found if grid.caption.startswith(start))
    return grid


def test_measured_and_published_stand_side_by_side_in_the_papers_order() -> None:
    failed = [Outcome(ended("rnn", 90.0)[0].job, None, "no memory")]
    rows = (ended("kvp-w5", 80.0), ended("lstm", 90.0, 91.0, 95.0), failed)
    (grid,) = shown("daniluk2017", "2c", *rows)
    lstm = cells(grid)["LSTM"]
    assert (lstm["test ppl"], lstm["seeds"], lstm["paper: test"]) == ("92.0 (90.0–95.0)", "3", "85.2")
    assert lstm["best epoch"] == "6 of 8; 6 of 8; 6 of 8" and (lstm["θ_M"], lstm["minutes"]) == ("1.23M", "10.0")
    assert list(cells(grid)) == ["LSTM", "Key-Value-Predict, window 5"], "rows without a finished run are left out"


def test_accuracies_have_their_interval_and_the_papers_beside() -> None:
    rows = (ended("lstm", 90.0, cloze=cloze(0.5)), ended("kvp-w5", 80.0, cloze=cloze(None)))
    whole, candidate, published = shown("daniluk2017", "2d", *rows)
    assert cells(whole)["LSTM"]["sentence: verbs"] == cells(candidate)["LSTM"]["candidate: verbs"]
    assert cells(whole)["LSTM"]["sentence: verbs"] == "0.500 [0.480, 0.520]" and "CBT-like" in whole.caption
    assert tuple(cells(published)["LSTM"].values()) == ("0.523", "0.604", "0.819", "0.786")
    (several, *_) = shown("daniluk2017", "2d", ended("lstm", 90.0, 91.0, cloze=cloze(0.5)))
    assert cells(several)["LSTM"]["sentence: verbs"] == "0.500 (0.500–0.500)"


def test_attention_stands_by_lag_with_the_current_word_at_zero() -> None:
    rows = [ended("rm-w15", 90.0, attention=attention(range(14, -1, -1)))]
    rows.append(ended("kvp-w15", 90.0, attention=attention(range(15, 0, -1))))
    (grid,) = shown("daniluk2017", "3", *rows)
    assert grid.header == ("lag", "RM(+tM-g)", "paper", "Key-Value-Predict", "paper")
    oldest, one_back, newest = grid.rows[0], grid.rows[14], grid.rows[15]
    assert "15" in oldest[0] and oldest[1:] == ("", "", "6.7", "4.0")
    assert "0" in newest[0] and newest[1] == "6.7" and newest[3:] == ("", "")
    assert (one_back[2], one_back[4]) == ("15.2", "17.8"), "the paper's, one word back"


def test_rows_that_do_not_compare_are_in_grids_of_their_own() -> None:
    rows = [ended("medium", 83.0), ended("single-ptb", 80.0), ended("pointer-ptb", 71.0)]
    running, sentences = shown("salton2017", "1", *rows)
    assert list(cells(running)) == ["Medium regularized LSTM", "Medium pointer sentinel-LSTM"]
    assert "their count: test" not in running.header, "a column of dashes is left out"
    row = cells(sentences)["Attentive LM, single score"]
    assert (row["test ppl"], row["their count: test"], row["per predicted word: test"]) == ("80.0", "64.0", "72.0")
    assert (row["paper: valid"], row["paper: test"], row["paper: parameters"]) == ("71.7", "70.1", "14.5M")


def test_each_row_says_what_it_adds_to_its_control_at_the_seeds_that_both_have() -> None:
    rows = [ended("medium", 84.0, 80.0), ended("large", 78.0, 77.0, 60.0), ended("medium-x2", 79.5)]
    running, *_ = shown("salton2017", "1", *rows)
    assert {name: row["over"] for name, row in cells(running).items()} == {
        "Medium regularized LSTM": "–",
        "Large regularized LSTM": "−4.5 (medium)",
        "2 medium regularized LSTMs": "−12.5 (its members)",
    }
    for alone in (rows[1:2], [rows[0][:1], rows[1][1:]]):
        assert "over" not in shown("salton2017", "1", *alone)[0].header


def test_caches_and_ensembles_have_their_details_and_ours_no_published_number() -> None:
    rows = (ended("grave-lstm-ptb-cache-500", 72.0), ended("medium-x3", 77.0), ended("lstm-ptb-cache-500", 60.0))
    *main, caches, ensembles = shown("salton2017", "1", *rows)
    cache = cells(caches)["Neural cache model (size = 500)"]
    assert (cache["words"], cache["θ"], cache["λ"]) == ("500", "0.3", "0.12")
    assert (cache["test: without"], cache["test ppl"]) == ("112.0", "72.0") and len(caches.rows) == 2
    assert "Neural cache model (size = 500): cache.theta=0.3 is large." in caches.caption
    ensemble = cells(ensembles)["3 medium regularized LSTMs †"]
    assert (ensemble["members: test"], ensemble["oracle bound: test"]) == ("92.0 (90.0–94.0)", "70.0")
    assert cells(main[0])["3 medium regularized LSTMs †"]["paper: test"] == "–" and "paper: test" not in main[1].header


def test_each_rung_says_what_it_adds_to_the_one_below_beside_what_the_paper_has() -> None:
    rows = [ended("awd-ptb", 100.0, 104.0), ended("awd-snb-ptb", 99.5), ended("mos-ptb", 95.25)]
    found = shown("li2020", "1", *rows, ended("awd-snb-ptb-dynamic", 90.0))
    plain, adapting, *_ = found
    assert (plain.caption[:7], adapting.caption[:4]) == ("Without", "With")
    assert {name: (row["over"], row["paper: over"], row["PoU"]) for name, row in cells(plain).items()} == {
        "AWD-LSTM": ("–", "–", "–"),
        "AWD-LSTM + SNB": ("−0.50 (awd-ptb)", "−2.38", "10.0"),
        "AWD-LSTM + MoS": ("−4.75 (awd-ptb)", "−2.86", "–"),
    }
    assert cells(plain)["AWD-LSTM"]["test ppl"] == "102.00 (100.00–104.00)"
    alone = cells(adapting)["AWD-LSTM + SNB"]
    assert (alone.get("over"), alone["paper: over"]) == (None, "−3.56"), "its control was not run"
    parts = titled(found, "Each part").rows[0]
    assert parts == ("AWD-LSTM + SNB", "107.50", "127.50", "100.50", "104.50", "102.50", "122.50", "95.50", "99.50")


def test_table_3_takes_the_whole_model_apart_where_it_stands() -> None:
    rows = [ended(WHOLE, 90.0), ended(f"{WHOLE}-dynamic", 80.0), ended("words-ptb", 91.0)]
    plain, adapting, *_ = shown("li2020", "3", *rows, ended("unannealed-test-ptb-dynamic", 80.5))
    columns, by = ("test ppl", "over", "paper: test", "paper: over"), f"({WHOLE}-dynamic)"
    assert {name: tuple(row[column] for column in columns) for name, row in cells(adapting).items()} == {
        "AWD-LSTM + MoS + PS + AT + SNB": ("80.00", "–", "43.87", "–"),
        "using only sequential RNN": ("83.00", f"+3.00 {by}", "46.85", "+2.98"),
        "using only sequential neural buffer": ("103.00", f"+23.00 {by}", "52.54", "+8.67"),
        "oracle policy": ("76.00", f"−4.00 {by}", "38.72", "−5.15"),
        "w/o annealing in test": ("80.50", f"+0.50 {by}", "44.12", "+0.25"),
    }
    assert cells(plain)["using only sequential RNN"]["paper: test"] == "–"
    assert cells(plain)["w/o RNNs-minus feature"]["over"] == f"+1.00 ({WHOLE})"


def test_use_over_the_epochs_shows_at_most_twelve_of_them() -> None:
    long = [n / 100 for n in range(50)]
    rows = [ended("awd-snb-ptb", 90.0), ended("mos-snb-ptb", 90.0, utilisation_by_epoch=long)]
    grid = titled(shown("li2020", "1", *rows), "PoU on valid after each epoch")
    assert len(grid.header) == 1 + 12 and (grid.header[1], grid.header[-1]) == ("1", "50")
    assert (cells(grid)["AWD-LSTM + SNB"]["1"], cells(grid)["AWD-LSTM + SNB"]["50"]) == ("50.0", "–")
    assert cells(grid)["AWD-LSTM + MoS + SNB"]["50"] == "49.0"


@pytest.mark.parametrize("seed", range(5))
def test_concordance_is_counted_over_all_pairs(seed: int) -> None:
    draw = random.Random(seed)
    rows = [(draw.randrange(6), draw.randrange(6)) for _ in range(8)]
    signs = [((a > b) - (a < b)) * ((x > y) - (x < y)) for (a, x), (b, y) in itertools.combinations(rows, 2) if x != y]
    assert concordance(rows) == (signs.count(1), len(signs))


def test_the_order_is_that_of_each_section_alone() -> None:
    def order(paper: str, name: str, *outcomes: list[Outcome]) -> list[str]:
        table = table_of(paper, name)
        lines = summarise([one for each in outcomes for one in each], table, PAPERS[paper])
        return order_notes(table, lines, PAPERS[paper])

    (note,) = order("daniluk2017", "2c", ended("lstm", 80.0), ended("kvp-w5", 85.0), ended("rnn", 99.0))
    assert "2 of 3 pairs of rows" in note and order("daniluk2017", "2c", ended("lstm", 80.0)) == []
    rows = [ended("medium", 83.0), ended("large", 78.0), ended("single-ptb", 50.0), ended("combined-ptb", 49.0)]
    running, sentences = order("salton2017", "1", *rows)
    assert running.startswith("Running text") and "1 of 1 pairs" in running
    assert sentences.startswith("Sentences") and "0 of 1 pairs" in sentences


@pytest.fixture
def made(tiny_corpus: Path, tmp_path: Path) -> Any:
    def make(paper: str, table: str | None, **more: Any) -> Plan:
        place: dict[str, Any] = {"runs": tmp_path / "r", "out": tmp_path / "o", "scale": "smoke"}
        return make_plan(Request(paper=paper, table=table, corpus=str(tiny_corpus), **place, **more))

    return make


def measured(task: Task, number: int = 0) -> Outcome:
    found: dict[str, Any] = {"cloze": cloze(0.6), "attention": attention(range(15, 0, -1))}
    return Outcome(task, record(task.row, 80.0 + number, getattr(task, "seed", 1), **found))


def page_of(plan: Plan, outcomes: list[Outcome]) -> str:
    return markdown_page(plan, plan.tables[0], summarise(outcomes, plan.tables[0], plan.paper))


# one of every kind: curves, rows, lags, sections
@pytest.mark.slow
@pytest.mark.parametrize(("paper", "name"), [TABLES[0], TABLES[2], TABLES[4], ("salton2017", "1"), ("li2020", "3")])
def test_every_row_of_a_table_is_drawn_and_written(made: Any, paper: str, name: str) -> None:
    plan = made(paper, name)
    (table,) = plan.tables
    assert figure(plan, table, []) is None
    outcomes = [measured(task, number) for number, task in enumerate(plan.tasks)]
    written = {path.name for path in write_tables(plan, outcomes)}
    assert written == {f"{table.file}{end}" for end in (".md", ".svg", *["-by-epoch.svg"] * (paper == "li2020"))}
    words = (plan.out / f"{table.file}.svg").read_text(encoding="utf-8")
    page = (plan.out / f"{table.file}.md").read_text(encoding="utf-8")
    for row in (plan.paper.rows[name] for name in table.rows if name not in plan.left_out):
        assert (row.curve[0] if row.curve and name != "2c" else row.title) in words, row.name
        assert row.title in page or table.measure == "attention"
    assert page.startswith(f"# {plan.paper.title}, {table.title}\n") and f"]({table.file}.svg)" in page


def test_accuracies_have_a_panel_for_every_word_class_of_which_something_could_be_scored(made: Any) -> None:
    plan, table = made("daniluk2017", "2c", rows=("lstm",)), table_of("daniluk2017", "2d")
    drawn = [record("lstm", 80.0, cloze=cloze(accuracy)) for accuracy in (0.6, 0.6)]
    drawn[1]["cloze"]["classes"]["NE"] = {"sentence": {"accuracy": None}}
    for found, named in zip(drawn, (True, False), strict=True):
        drawing = figure(plan, table, summarise([Outcome(plan.tasks[0], found)], table, plan.paper))
        assert drawing is not None
        assert any("named entities" in text for text in texts(drawing)) == named
        assert any("verbs" in text for text in texts(drawing))


def test_what_does_not_compare_has_panels_of_its_own(made: Any) -> None:
    plan = made("li2020", "1")
    (table,) = plan.tables
    drawing = figure(plan, table, summarise(list(map(measured, plan.tasks)), table, plan.paper))
    assert drawing is not None
    panels = [text for text in texts(drawing, bold=True) if text.startswith("test ppl")]
    plain = ["test ppl, tiny, smoke", "test ppl, published: ptb"]
    assert panels == [*plain, "test ppl, dynamic, tiny, smoke", "test ppl, dynamic, published: ptb"]


def test_a_page_says_what_ran_what_failed_and_what_is_missing(made: Any) -> None:
    plan = made("daniluk2017", "2b")
    page = page_of(plan, [measured(plan.jobs[0]), Outcome(plan.jobs[1], None, "the loss is not finite")])
    for part in (
        "Corpus: **tiny** (train",
        "* 3-gram RNN: **failed**: the loss is not finite",
        "* 4-gram RNN: not run yet",
        "commit aaaaaaaaaa.",
        "`spanlm reproduce daniluk2017 --scale smoke --table 2b --corpus tiny`",
        "A Processor, 1 thread(s), cpu",
        "units 16; max epochs 1",
    ):
        assert part in page, part
    assert "![" not in page
    for start, said in (({"changed": True}, "aaaaaaaaaa (changed)"), ({"commit": None}, "no commit known")):
        assert said in page_of(plan, [Outcome(plan.jobs[0], record("2-gram", 90.0, starts=[START | start]))])
    some = made("daniluk2017", "2b", rows=("2-gram",), seeds=(1, 3))
    page = page_of(some, [measured(task) for task in some.jobs])
    assert "* 3-gram RNN: not asked for" in page and "--seeds 1 3 --rows 2-gram`" in page


def test_a_page_tells_rows_of_one_name_apart_and_what_is_left_out(made: Any) -> None:
    page = page_of(plan := made("li2020", "1"), [measured(plan.tasks[0])])
    assert "* AWD-LSTM (`awd-ptb-dynamic`): not run yet" in page and "`awd-ptb`): not" not in page
    page = page_of(plan := made("salton2017", "1"), list(map(measured, plan.tasks)))
    assert "one stream; or: state reset at each line. The best epoch" in page
    assert "* 38 large regularized LSTMs: left out: an ensemble of 38: at scale smoke at most 3" in page
