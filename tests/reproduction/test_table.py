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
    RowSummary,
    Spread,
    concordance,
    figure,
    grids,
    markdown_grid,
    markdown_page,
    order_notes,
    summarise,
    use_by_epoch,
    write_tables,
)
from tests.analysis.shown import texts
from tests.reproduction.records import START, attention, cells, cloze, record, summary

WHOLE = "mos-ps-at-snb-ptb"
TABLES = [(paper.name, table.name) for paper in PAPERS.values() for table in paper.tables]


def table_of(paper: str, name: str) -> Table:
    return next(table for table in PAPERS[paper].tables if table.name == name)


def shown(paper: str, table: str, *rows: RowSummary) -> list[Grid]:
    return grids(table_of(paper, table), rows, PAPERS[paper])


def order(paper: str, table: str, *rows: RowSummary) -> list[str]:
    return order_notes(table_of(paper, table), rows, PAPERS[paper])


def titled(found: list[Grid], start: str) -> Grid:
    (grid,) = (grid for grid in found if grid.caption.startswith(start))
    return grid


def test_measured_and_published_stand_side_by_side() -> None:
    (grid,) = shown("daniluk2017", "2c", RowSummary("rnn", (), ("no memory",)), summary("lstm", 90.0, 91.0, 95.0))
    lstm = cells(grid)["LSTM"]
    assert (lstm["test ppl"], lstm["seeds"], lstm["paper: test"]) == ("92.0 (90.0–95.0)", "3", "85.2")
    assert lstm["best epoch"] == "6 of 8; 6 of 8; 6 of 8" and (lstm["θ_M"], lstm["minutes"]) == ("1.23M", "10.0")
    assert list(cells(grid)) == ["LSTM"], "rows without a finished run are left out"
    lines = markdown_grid(grid).splitlines()
    assert len({line.count("|") for line in lines}) == 1 and len(lines) == 3


def test_accuracies_have_their_interval_and_the_papers_beside() -> None:
    rows = (summary("lstm", 90.0, cloze=cloze(0.5)), summary("kvp-w5", 80.0, cloze=cloze(None)))
    whole, candidate, published = shown("daniluk2017", "2d", *rows)
    assert cells(whole)["LSTM"]["sentence: verbs"] == cells(candidate)["LSTM"]["candidate: verbs"]
    assert cells(whole)["LSTM"]["sentence: verbs"] == "0.500 [0.480, 0.520]" and "CBT-like" in whole.caption
    assert tuple(cells(published)["LSTM"].values()) == ("0.523", "0.604", "0.819", "0.786")
    (several, *_) = shown("daniluk2017", "2d", summary("lstm", 90.0, 91.0, cloze=cloze(0.5)))
    assert cells(several)["LSTM"]["sentence: verbs"] == "0.500 (0.500–0.500)"


def test_attention_stands_by_lag_with_the_current_word_at_zero() -> None:
    rows = [summary("rm-w15", 90.0, attention=attention(range(14, -1, -1)))]
    rows.append(summary("kvp-w15", 90.0, attention=attention(range(15, 0, -1))))
    (grid,) = shown("daniluk2017", "3", *rows)
    assert grid.header == ("lag", "RM(+tM-g)", "paper", "Key-Value-Predict", "paper")
    oldest, one_back, newest = grid.rows[0], grid.rows[14], grid.rows[15]
    assert "15" in oldest[0] and oldest[1:] == ("", "", "6.7", "4.0")
    assert "0" in newest[0] and newest[1] == "6.7" and newest[3:] == ("", "")
    assert (one_back[2], one_back[4]) == ("15.2", "17.8"), "the paper's, one word back"
    assert dict((row[0], row[1:]) for row in grid.rows)["positions"] == ("9", "", "9", "")


def test_rows_that_do_not_compare_are_in_grids_of_their_own() -> None:
    rows = [summary("medium", 83.0), summary("single-ptb", 80.0), summary("pointer-ptb", 71.0)]
    running, sentences = shown("salton2017", "1", *rows)
    assert list(cells(running)) == ["Medium regularized LSTM", "Medium pointer sentinel-LSTM"]
    assert "Not to be compared with the rows of running text" in sentences.caption
    assert "their count: test" not in running.header
    row = cells(sentences)["Attentive LM, single score"]
    assert (row["test ppl"], row["their count: test"], row["per predicted word: test"]) == ("80.0", "64.0", "72.0")
    assert (row["paper: valid"], row["paper: test"], row["paper: parameters"]) == ("71.7", "70.1", "14.5M")


def test_each_row_says_what_it_adds_to_its_control_at_the_seeds_that_both_have() -> None:
    rows = [summary("medium", 84.0, 80.0), summary("large", 78.0, 77.0, 60.0), summary("medium-x2", 79.5)]
    running, *_ = shown("salton2017", "1", *rows, summary("single-ptb", 86.0), summary("lstm-ptb", 85.0))
    assert {name: row["over"] for name, row in cells(running).items()} == {
        "Medium regularized LSTM": "–",
        "Large regularized LSTM": "−4.5 (medium)",
        "2 medium regularized LSTMs": "−12.5 (its members)",
    }
    for alone in ([summary("large", 78.5)], [rows[0], RowSummary("large", (record("large", 60.0, seed=3),))]):
        assert "over" not in shown("salton2017", "1", *alone)[0].header, "a column of dashes is left out"


def test_caches_and_ensembles_have_their_details_and_ours_no_published_number() -> None:
    rows = (summary("grave-lstm-ptb-cache-500", 72.0), summary("medium-x3", 77.0), summary("lstm-ptb-cache-500", 60.0))
    *main, caches, ensembles = shown("salton2017", "1", *rows)
    cache = cells(caches)["Neural cache model (size = 500)"]
    assert (cache["words"], cache["θ"], cache["λ"]) == ("500", "0.3", "0.12")
    assert (cache["test: without"], cache["test ppl"]) == ("112.0", "72.0") and len(caches.rows) == 2
    assert "Neural cache model (size = 500): cache.theta=0.3 is large." in caches.caption
    ensemble = cells(ensembles)["3 medium regularized LSTMs †"]
    assert (ensemble["members: test"], ensemble["oracle bound: test"]) == ("92.0 (90.0–94.0)", "70.0")
    assert cells(main[0])["3 medium regularized LSTMs †"]["paper: test"] == "–" and "paper: test" not in main[1].header


def test_each_rung_says_what_it_adds_to_the_one_below_beside_what_the_paper_has() -> None:
    rows = [summary("awd-ptb", 100.0, 104.0), summary("awd-snb-ptb", 99.5), summary("mos-ptb", 95.25)]
    plain, adapting, *_ = shown("li2020", "1", *rows, summary("awd-snb-ptb-dynamic", 90.0))
    assert (plain.caption[:7], adapting.caption[:4]) == ("Without", "With")
    assert {name: (row["over"], row["paper: over"], row["PoU"]) for name, row in cells(plain).items()} == {
        "AWD-LSTM": ("–", "–", "–"),
        "AWD-LSTM + SNB": ("−0.50 (awd-ptb)", "−2.38", "10.0"),
        "AWD-LSTM + MoS": ("−4.75 (awd-ptb)", "−2.86", "–"),
    }
    assert cells(plain)["AWD-LSTM"]["test ppl"] == "102.00 (100.00–104.00)"
    alone = cells(adapting)["AWD-LSTM + SNB"]
    assert (alone.get("over"), alone["paper: over"]) == (None, "−3.56"), "its control was not run"


def test_the_parts_of_a_buffered_row_stand_side_by_side() -> None:
    found = shown("li2020", "1", summary("mos-ptb", 95.0), summary("mos-snb-ptb", 94.0))
    (line,) = titled(found, "Each part").rows
    assert line == ("AWD-LSTM + MoS + SNB", "102.00", "122.00", "95.00", "99.00", "97.00", "117.00", "90.00", "94.00")


def test_table_3_takes_the_whole_model_apart_where_it_stands() -> None:
    rows = [summary(WHOLE, 90.0), summary(f"{WHOLE}-dynamic", 80.0), summary("words-ptb", 91.0)]
    plain, adapting, *_ = shown("li2020", "3", *rows, summary("unannealed-test-ptb-dynamic", 80.5))
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
    assert "a bound, no model" in adapting.caption


def test_use_over_the_epochs_shows_at_most_twelve_of_them() -> None:
    long = [n / 100 for n in range(50)]
    rows = [summary("awd-snb-ptb", 90.0), summary("mos-snb-ptb", 90.0, utilisation_by_epoch=long)]
    grid = titled(shown("li2020", "1", *rows), "PoU on valid after each epoch")
    assert len(grid.header) == 1 + 12 and (grid.header[1], grid.header[-1]) == ("1", "50")
    assert (cells(grid)["AWD-LSTM + SNB"]["1"], cells(grid)["AWD-LSTM + SNB"]["50"]) == ("50.0", "–")
    assert cells(grid)["AWD-LSTM + MoS + SNB"]["50"] == "49.0"


def test_the_settings_of_dynamic_evaluation_are_shown() -> None:
    grid = titled(shown("li2020", "1", summary("awd-ptb-dynamic", 80.0)), "Dynamic evaluation")
    assert grid.rows == (("AWD-LSTM", "0.0001", "0.002", "2e-05", "3", "2", "100,000", "2.0"),)
    assert "AWD-LSTM: η is small." in grid.caption


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


def test_the_order_is_said_beside_the_papers_of_each_section_alone() -> None:
    (note,) = order("daniluk2017", "2c", summary("lstm", 80.0), summary("kvp-w5", 85.0), summary("rnn", 99.0))
    assert "LSTM < Key-Value-Predict, window 5 < RNN. The paper's: Key-Value-Predict, window 5 < LSTM < RNN." in note
    assert "2 of 3 pairs of rows" in note and order("daniluk2017", "2c", summary("lstm", 80.0)) == []
    (note,) = order("daniluk2017", "2b", summary("3-gram", 80.0), summary("4-gram", 85.0))
    assert "3-gram RNN < 4-gram RNN. The paper's: 3-gram RNN = 4-gram RNN. 0 of 0 pairs" in note
    (note,) = order("daniluk2017", "2a", summary("kv-w1", 80.0), summary("kv-w5", 90.0), summary("kvp-w1", 84.0))
    assert "measured: Key-Value-Predict < Key-Value. The paper's: Key-Value-Predict < Key-Value." in note
    rows = [summary("medium", 83.0), summary("large", 78.0), summary("single-ptb", 50.0), summary("combined-ptb", 49.0)]
    running, sentences = order("salton2017", "1", *rows)
    assert running.startswith("Running text") and "1 of 1 pairs" in running and "Attentive" not in running
    assert sentences.startswith("Sentences") and "0 of 1 pairs" in sentences


def test_a_spread_of_one_number_is_that_number() -> None:
    assert (Spread.of([1.25]).show(2), Spread.of([1.0, 3.0]).show(0)) == ("1.25", "2 (1–3)")


@pytest.fixture
def made(tiny_corpus: Path, tmp_path: Path) -> Any:
    def make(paper: str, table: str | None, **more: Any) -> Plan:
        place: dict[str, Any] = {"runs": tmp_path / "r", "out": tmp_path / "o", "scale": "smoke"}
        return make_plan(Request(paper=paper, table=table, corpus=str(tiny_corpus), **place, **more))

    return make


def measured(task: Task, number: int = 0) -> Outcome:
    found: dict[str, Any] = {"cloze": cloze(0.6), "attention": attention(range(15, 0, -1))}
    return Outcome(task, record(task.row, 80.0 + number, getattr(task, "seed", 1), **found))


@pytest.mark.parametrize(("paper", "name"), [one for one in TABLES if one != ("daniluk2017", "2d")])
def test_every_row_of_every_table_is_drawn_and_written(made: Any, paper: str, name: str) -> None:
    plan = made(paper, name)
    (table,) = plan.tables
    assert figure(plan, table, [Outcome(task, None, "failed") for task in plan.tasks]) is None
    outcomes = [measured(task, number) for number, task in enumerate(plan.tasks)]
    written = {path.name for path in write_tables(plan, outcomes)}
    assert written == {f"{table.file}{end}" for end in (".md", ".svg", *["-by-epoch.svg"] * (paper == "li2020"))}
    drawing = figure(plan, table, outcomes)
    assert drawing is not None
    words = " ".join(texts(drawing))
    for row in (plan.paper.rows[name] for name in table.rows if name not in plan.left_out):
        assert (row.curve[0] if row.curve and name != "2c" else row.title) in words or name == "2b", row.name
    page = (plan.out / f"{table.file}.md").read_text(encoding="utf-8")
    assert page.startswith(f"# {plan.paper.title}, {table.title}\n") and f"]({table.file}.svg)" in page
    assert all(plan.paper.rows[task.row].title in page for task in plan.tasks) or table.measure == "attention"


def test_accuracies_have_a_panel_for_every_word_class_of_which_something_could_be_scored(made: Any) -> None:
    plan = made("daniluk2017", "2c", rows=("lstm",))
    drawn = [record("lstm", 80.0, cloze=cloze(accuracy)) for accuracy in (0.6, 0.6)]
    drawn[1]["cloze"]["classes"]["NE"] = {"sentence": {"accuracy": None}}
    for found, named in zip(drawn, (True, False), strict=True):
        drawing = figure(plan, table_of("daniluk2017", "2d"), [Outcome(plan.tasks[0], found)])
        assert drawing is not None
        assert any("named entities" in text for text in texts(drawing)) == named
        assert any("verbs" in text for text in texts(drawing))


def test_what_does_not_compare_has_panels_of_its_own(made: Any) -> None:
    plan = made("li2020", "1")
    drawing = figure(plan, plan.tables[0], list(map(measured, plan.tasks)))
    assert drawing is not None
    panels = [text for text in texts(drawing, bold=True) if text.startswith("test ppl")]
    plain = ["test ppl, tiny, smoke", "test ppl, published: ptb"]
    assert panels == [*plain, "test ppl, dynamic, tiny, smoke", "test ppl, dynamic, published: ptb"]
    half = figure(plan, plan.tables[0], [measured(task) for task in plan.jobs])
    assert half is not None and not any("dynamic" in text for text in texts(half))
    assert use_by_epoch(plan, plan.tables[0], [measured(plan.jobs[0])]) is None, "a row without a buffer"


def test_a_page_says_what_ran_what_failed_and_what_is_missing(made: Any) -> None:
    plan = made("daniluk2017", "2b")
    ended = [measured(plan.jobs[0]), Outcome(plan.jobs[1], None, "the loss is not finite")]
    page = markdown_page(plan, plan.tables[0], ended, None)
    for part in (
        "Corpus: **tiny** (train",
        "* 3-gram RNN: **failed**: the loss is not finite",
        "* 4-gram RNN: not run yet",
        "commit aaaaaaaaaa.",
        "`spanlm reproduce daniluk2017 --table 2b --corpus tiny --scale smoke`",
        "A Processor, 1 thread(s), cpu",
        "compare orders and differences, not values",
    ):
        assert part in page, part
    assert "![" not in page
    for start, said in (({"changed": True}, "aaaaaaaaaa (changed)"), ({"commit": None}, "no commit known")):
        changed = Outcome(plan.jobs[0], record("2-gram", 90.0, starts=[START | start]))
        assert said in markdown_page(plan, plan.tables[0], [changed], None)
    some = made("daniluk2017", "2b", rows=("2-gram",))
    assert "not asked for: 3-gram RNN, 4-gram RNN" in markdown_page(some, some.tables[0], ended[:1], None)
    backwards = summarise(list(map(measured, reversed(plan.jobs))), plan.tables[0].rows)
    assert [row.row for row in backwards] == list(plan.tables[0].rows)


def test_a_page_says_each_remark_once_and_what_is_left_out(made: Any) -> None:
    plan = made("li2020", "1")
    page = markdown_page(plan, plan.tables[0], list(map(measured, plan.tasks)), None)
    rows = "AWD-LSTM + MoS + SNB; AWD-LSTM + MoS + PS + SNB; AWD-LSTM + MoS + PS + AT + SNB"
    assert page.count("η is not printed") == 2 and f"* {rows}: η is not printed" in page
    assert "Training time of 8 runs:" in page and "Missing:" not in page
    page = markdown_page(plan, plan.tables[0], [measured(plan.tasks[0])], None)
    assert "* AWD-LSTM (`awd-ptb-dynamic`): not run yet" in page and "`awd-ptb`): not" not in page
    plan = made("salton2017", "1")
    page = markdown_page(plan, plan.tables[0], list(map(measured, plan.tasks)), None)
    assert "one stream; or: state reset at each line. The best epoch" in page
    assert "* 38 large regularized LSTMs: left out: an ensemble of 38: at scale smoke at most 3" in page


def test_rows_with_fewer_seeds_than_others_have_a_command_of_their_own(made: Any) -> None:
    plan = made("li2020", "1", rows=("awd-ptb", "mos-ptb"), seeds=(1, 2))
    ended, usual = (
        list(map(measured, plan.tasks)),
        "spanlm reproduce li2020 --table 1 --corpus tiny --scale smoke --rows",
    )
    page = markdown_page(plan, plan.tables[0], ended, None)
    assert f"* Made again by `{usual} awd-ptb mos-ptb --seeds 1 2`." in page
    page = markdown_page(plan, plan.tables[0], ended[:-1], None)
    assert f"* Made again by `{usual} awd-ptb --seeds 1 2` and `{usual} mos-ptb`." in page
