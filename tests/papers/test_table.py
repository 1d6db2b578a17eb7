"""Tables, figures and pages made of records."""

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spanlm.papers.page import Page, write_overview
from spanlm.papers.plan import Plan, Task
from spanlm.papers.registry import PAPERS
from spanlm.papers.request import Request
from spanlm.papers.run import Outcome
from spanlm.papers.table import FilledTable, Grid, overview, spread, unigram_perplexity
from tests.analysis.shown import texts
from tests.cases import rest_slow
from tests.papers.records import START, attention, cells, cloze, ended, record

WHOLE = "mos-ps-at-snb-ptb"


def filled(paper: str, name: str, *records: list[dict[str, Any]]) -> FilledTable:
    (table,) = (table for table in PAPERS[paper].tables if table.name == name)
    return FilledTable(PAPERS[paper], table, [record for row in records for record in row])


def shown(paper: str, name: str, *records: list[dict[str, Any]]) -> list[Grid]:
    return filled(paper, name, *records).grids()


def titled(found: list[Grid], start: str) -> Grid:
    (grid,) = (grid for grid in found if grid.caption.startswith(start))
    return grid


def test_measured_and_published_stand_side_by_side_in_the_papers_order() -> None:
    rows = (ended("kvp-w5", 80.0), ended("lstm", 90.0, 91.0, 95.0))
    (grid,) = shown("daniluk2017", "2c", *rows)
    lstm = cells(grid)["LSTM"]
    assert (lstm["test ppl"], lstm["seeds"], lstm["paper: test"]) == ("92.0 (90.0–95.0)", "3", "85.2")
    assert lstm["best epoch"] == "6 of 8; 6 of 8; 6 of 8" and (lstm["θ_M"], lstm["minutes"]) == ("1.23M", "10.0")
    assert list(cells(grid)) == ["LSTM", "Key-Value-Predict, window 5"], "rows without a finished run are left out"


def test_a_row_says_when_it_was_as_good_as_its_control() -> None:
    """Seconds of training, 600 for all epochs of a record, until valid was at most the control's best."""
    lstm = ended("lstm", 90.0, valid_losses=[6.0, 5.0, 4.8, 4.9])
    rows = {"delta": [5.0, 4.8, 4.7, 4.6], "mogrifier": [6.0, 5.0, 4.9, 4.81]}
    ran = [ended(name, 80.0, valid_losses=losses) for name, losses in rows.items()]
    (grid,) = shown("neighbours", "1", lstm, *ran, ended("min-gru", 80.0))
    until = {name: row["minutes to LSTM's"] for name, row in cells(grid).items()}
    assert until == {"LSTM": "7.5", "Gated DeltaNet": "5.0", "Mogrifier LSTM": "–", "minGRU": "–"}
    (alone,) = shown("neighbours", "1", *ran)
    assert "minutes to LSTM's" not in alone.header


def test_where_records_have_blocks_differences_come_with_how_sure_they_are() -> None:
    blocks = [{"are": "100 blocks", "tokens": [9] * 100, "bits": [9 * bits] * 100} for bits in (7.0, 6.9)]
    rows = (ended("rnn", 128.0, blocks=blocks[0]), ended("lstm", 119.4, blocks=blocks[1]))
    _, sure = shown("daniluk2017", "2c", *rows)
    difference = {"control": "LSTM", "difference": "+0.100 (+0.100 to +0.100)", "p": "<0.001"}
    assert cells(sure)["RNN"] == {"bits": "7.00", **difference, "place": "2"}
    assert cells(sure)["LSTM"] == {"bits": "6.90", **dict.fromkeys(difference, "–"), "place": "1"}
    (text,) = filled("daniluk2017", "2c", *rows).order()
    assert "over 100 blocks and over seeds; rows with one seed: without their own spread" in text
    assert text.endswith(
        "1 of 1 pairs of rows stand in the paper's order; in 95 % of the draws 1 to 1 do, and in 100% of them all."
    )
    more = (*rows, ended("kvp-w5", 80.0))  # a record of before
    assert list(cells(titled(shown("daniluk2017", "2c", *more), "How sure"))) == ["RNN", "LSTM"]
    text, order = filled("daniluk2017", "2c", *more).order()
    assert text.endswith("Without blocks of this text in their records: Key-Value-Predict, window 5.")
    assert order == "By test perplexity 3 of 3 pairs of rows stand in the paper's order."
    asked = [
        ended(name, 90.0, blocks=one, cloze=cloze(0.5)) for name, one in zip(("4-gram", "lstm"), blocks, strict=True)
    ]
    assert cells(titled(shown("daniluk2017", "2d", *asked), "How sure"))["4-gram RNN"] == cells(sure)["RNN"]
    (text,) = filled("daniluk2017", "2d", *asked).order()
    assert "paper's order" not in text, "the paper has no perplexities there"


def test_where_a_section_counts_as_its_paper_did_blocks_do_not_say_how_sure_it_is() -> None:
    """Salton et al. do not predict first words; blocks do."""
    blocks = {"are": "100 blocks", "tokens": [9] * 100, "bits": [63.0] * 100}
    found = filled("salton2017", "1", *(ended(name, 90.0, blocks=blocks) for name in ("single-ptb", "combined-ptb")))
    assert not [one for one in found.grids() if one.caption.startswith("How sure")]
    assert len(found.order()) == 1 and "pairs of rows" in found.order()[0]


def test_accuracies_have_their_interval_and_the_papers_beside() -> None:
    rows = (ended("lstm", 90.0, cloze=cloze(0.5)), ended("kvp-w5", 80.0, cloze=cloze(None)))
    whole, candidate, published = shown("daniluk2017", "2d", *rows)
    assert cells(whole)["LSTM"]["sentence: verbs"] == cells(candidate)["LSTM"]["candidate: verbs"]
    assert cells(whole)["LSTM"]["sentence: verbs"] == "0.500 [0.480, 0.520]" and "CBT-like" in whole.caption
    assert tuple(cells(published)["LSTM"].values()) == ("0.523", "0.604", "0.819", "0.786", "–")
    both = [record("lstm", 90.0, n, cloze=cloze(n / 4)) for n in (2, 1)]
    assert cells(shown("daniluk2017", "2d", both)[0])["LSTM"]["sentence: verbs"] == "0.375 (0.250–0.500)"


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


def test_a_part_or_a_model_no_better_than_word_frequencies_is_shown_as_collapsed_and_compared_with_nothing() -> None:
    """(A buffer is 23 worse than the whole on valid, which is 5 worse than test.)"""
    rows = [
        ended(WHOLE, 90.0),
        ended("unannealed-ptb", 478.0),
        ended("words-ptb", 471.0),
        ended("unrewarded-ptb", 460.0),
    ]
    assert "collapsed" not in shown("li2020", "3", *rows)[0].header
    table = FilledTable(PAPERS["li2020"], filled("li2020", "3").table, chain(*rows), frequencies=500.0)
    plain = cells(table.grids()[0])
    assert {
        name: tuple(row[column] for column in ("test ppl", "over", "collapsed")) for name, row in plain.items()
    } == {
        "AWD-LSTM + MoS + PS + AT + SNB": ("90.00", "–", "–"),
        "using only sequential RNN": ("93.00", f"+3.00 ({WHOLE})", "–"),
        "using only sequential neural buffer": ("113.00", f"+23.00 ({WHOLE})", "–"),
        "oracle policy": ("86.00", f"−4.00 ({WHOLE})", "–"),
        "w/o annealing in training": ("collapsed", "–", "model, buffer"),
        "w/o reward": ("460.00", f"+370.00 ({WHOLE})", "–"),
        "w/o RNNs-minus feature": ("collapsed", "–", "model"),
    }
    assert {name for name, line in table.lines.items() if line.value("test.perplexity") is None} == {
        "unannealed-ptb",
        "words-ptb",
    }
    assert not {line.row.name for group in table.groups for line in group.trained if line.collapsed}


def test_parts_that_divide_the_words_between_them_are_no_collapse() -> None:
    """Each alone is worse than frequencies, and the mixture is far better: no part hides behind the other."""
    parts = {"encoder": 900.0, "buffer": 800.0}
    run = record("unannealed-ptb", 90.0)
    for split in ("valid", "test"):
        run[split]["parts"] |= parts
    table = FilledTable(PAPERS["li2020"], filled("li2020", "3").table, [run], frequencies=500.0)
    assert table.lines["unannealed-ptb"].value("test.perplexity") == spread([90.0])
    run["valid"]["parts"]["encoder"] = 95.0
    table = FilledTable(PAPERS["li2020"], filled("li2020", "3").table, [run], frequencies=500.0)
    assert table.lines["unannealed-ptb"].collapsed == ["buffer"]


def test_word_frequencies_have_the_perplexity_of_their_counts() -> None:
    train, valid = np.array([0, 0, 0, 1]), np.array([0, 1, 1])
    assert unigram_perplexity(train, valid) == pytest.approx((3 / 4 * 1 / 4 * 1 / 4) ** (-1 / 3))
    assert unigram_perplexity(train, np.array([2])) == pytest.approx(5)  # the one of a word never seen is added


def test_use_over_the_epochs_shows_at_most_twelve_of_them() -> None:
    long = [n / 100 for n in range(50)]
    rows = [ended("awd-snb-ptb", 90.0), ended("mos-snb-ptb", 90.0, utilisation_by_epoch=long)]
    grid = titled(shown("li2020", "1", *rows), "PoU on valid after each epoch")
    assert len(grid.header) == 1 + 12 and (grid.header[1], grid.header[-1]) == ("1", "50")
    assert (cells(grid)["AWD-LSTM + SNB"]["1"], cells(grid)["AWD-LSTM + SNB"]["50"]) == ("50.0", "–")
    assert cells(grid)["AWD-LSTM + MoS + SNB"]["50"] == "49.0"


def test_the_order_is_that_of_each_section_alone() -> None:
    def order(paper: str, name: str, *records: list[dict[str, Any]]) -> list[str]:
        return filled(paper, name, *records).order()

    (note,) = order("daniluk2017", "2c", ended("lstm", 80.0), ended("kvp-w5", 85.0), ended("rnn", 99.0))
    assert "2 of 3 pairs of rows" in note and order("daniluk2017", "2c", ended("lstm", 80.0)) == []
    rows = [ended("medium", 83.0), ended("large", 78.0), ended("single-ptb", 50.0), ended("combined-ptb", 49.0)]
    running, sentences = order("salton2017", "1", *rows)
    assert running.startswith("Running text") and "1 of 1 pairs" in running
    assert sentences.startswith("Sentences") and "0 of 1 pairs" in sentences


def test_the_first_record_is_that_of_the_lowest_seed_whatever_ran_first() -> None:
    later, first = ended("lstm", 90.0, 80.0)[::-1]
    (grid,) = shown("daniluk2017", "2c", [{**later, "best_epoch": 3}, first])
    assert cells(grid)["LSTM"]["best epoch"] == "6 of 8; 3 of 8"


@pytest.fixture
def made(tiny_corpus: Path, tmp_path: Path) -> Any:
    def make(paper: str, table: str | None, **more: Any) -> Plan:
        place: dict[str, Any] = {"runs": tmp_path / "r", "out": tmp_path / "o", "scale": "smoke"}
        return Plan(Request(paper=paper, table=table, corpus=str(tiny_corpus), **place, **more))

    return make


def measured(task: Task, number: int = 0) -> Outcome:
    found: dict[str, Any] = {"cloze": cloze(0.6), "attention": attention(range(15, 0, -1))}
    return Outcome(task, record(task.row.name, 80.0 + number, getattr(task, "seed", 1), **found))


@pytest.mark.parametrize(
    ("paper", "name", "words"),
    [
        ("daniluk2017", "2b", ("N-gram RNN", "the paper, Wikipedia", "measured on tiny, scale smoke")),
        ("daniluk2017", "3", ("RM(+tM-g)", "Key-Value-Predict")),
        ("li2020", "3", ("w/o reward", "published: ptb", "Figure 4: use of the span buffer by epoch")),
    ],
)
def test_figures_name_their_rows_and_the_papers_text(made: Any, paper: str, name: str, words: tuple[str, ...]) -> None:
    plan = made(paper, name)
    assert not Page(plan, plan.tables[0], []).figures()
    drawn = Page(plan, plan.tables[0], list(map(measured, plan.tasks))).figures()
    found = " ".join(text for figure in drawn.values() for text in texts(figure))
    assert all(word in found for word in words), found


def test_accuracies_have_a_panel_for_every_word_class_of_which_something_could_be_scored(made: Any) -> None:
    plan = made("daniluk2017", "2c")
    (questions,) = (table for table in plan.paper.tables if table.measure == "cloze")
    (task,) = (task for task in plan.tasks if task.row.name == "lstm")
    for accuracy in (0.6, None):
        found = cloze(0.6)
        found["classes"]["NE"] = {"sentence": {"accuracy": accuracy}}
        outcome = Outcome(task, record("lstm", 80.0, cloze=found))
        (drawing,) = Page(plan, questions, [outcome]).figures().values()
        assert any("named entities" in text for text in texts(drawing)) == (accuracy is not None)
        assert any("verbs" in text for text in texts(drawing))


@pytest.mark.parametrize(
    ("paper", "labels", "other"),
    rest_slow(
        [
            ("li2020", ("test ppl", "test ppl, dynamic"), "perplexity"),
            ("salton2017", ("test ppl, running text", "test ppl, sentences, their count"), "salton2017"),
        ]
    ),
)
def test_what_does_not_compare_has_panels_of_its_own_with_the_papers_count(
    made: Any, paper: str, labels: tuple[str, str], other: str
) -> None:
    plan = made(paper, "1")
    (drawing, *_) = Page(plan, plan.tables[0], list(map(measured, plan.tasks))).figures().values()
    panels = [text for text in texts(drawing, bold=True) if text.startswith("test ppl")]
    whole = [f"{label}, {what}" for label in labels for what in ("tiny, smoke", "published: ptb")]
    assert len(panels) == len(whole)  # long ones are cut where the next panel begins
    assert all(name.startswith(panel.rstrip("…")) for name, panel in zip(whole, panels, strict=True))
    assert ("64.0" in texts(drawing)) == (other == "salton2017"), "0.8 of 80 is what their count makes of it"


def test_a_page_says_what_ran_what_failed_and_what_is_missing(made: Any) -> None:
    def text(plan: Plan, *outcomes: Outcome) -> str:
        return Page(plan, plan.tables[0], outcomes).markdown()

    plan = made("daniluk2017", "2b")
    found = text(plan, measured(plan.jobs[0]), Outcome(plan.jobs[1], None, "the loss is not finite"))
    for part in (
        "Corpus: tiny (train",
        "* 3-gram RNN: **failed**: the loss is not finite",
        "* 4-gram RNN: not run yet",
        "commit aaaaaaaaaa.",
        "`spanlm reproduce daniluk2017 --scale smoke --table 2b --corpus tiny`",
        "A Processor, 1 thread(s), cpu",
        "units 16; max epochs 1",
    ):
        assert part in found, part
    assert "![" not in found
    for start, said in (({"changed": True}, "aaaaaaaaaa (changed)"), ({"commit": None}, "no commit known")):
        assert said in text(plan, Outcome(plan.jobs[0], record("2-gram", 90.0, starts=[START | start])))
    some = made("daniluk2017", "2b", rows=("2-gram",), seeds=(1, 3))
    found = text(some, *map(measured, some.jobs))
    assert "* 3-gram RNN: not asked for" in found and "--seeds 1 3 --rows 2-gram`" in found
    plan = made("li2020", "1")
    found = text(plan, measured(plan.tasks[0]))
    assert "* AWD-LSTM (`awd-ptb-dynamic`): not run yet" in found and "`awd-ptb`): not" not in found
    plan = made("salton2017", "1")
    found = text(plan, *map(measured, plan.tasks))
    assert "one stream; or: state reset at each line. The best epoch" in found
    assert "* 38 large regularized LSTMs: left out: an ensemble of 38: at scale smoke at most 3" in found


def test_an_overview_has_a_column_a_table_and_a_row_a_model(tmp_path: Path) -> None:
    law = {"law": {"valid": 1.0, "test": 2.0}}
    rows = [ended("lstm", 8.0, 16.0, **law), ended("4-gram", 2**2.5, **law)]
    tables = [filled("yardstick", "copy", *rows), filled("yardstick", "recall", rows[1]), filled("yardstick", "topics")]
    grid = overview(tables)
    assert grid.header == ("model", "copy", "recall", "topics")
    assert grid.rows == (("LSTM, no memory", "1.500 (1.000–2.000)", "–", "–"), ("4-gram", "0.500", "0.500", "–"))
    written, figure = write_overview(Request(paper="yardstick", out=tmp_path), tables)
    text = written.read_text()
    assert "| 4-gram | 0.500 | 0.500 | – |" in text and "spanlm reproduce yardstick" in text and figure.name in text
    assert "recall" in figure.read_text(encoding="utf-8")
