"""The pages of a ladder of models, from records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spanlm.reproduction.figures import figure
from spanlm.reproduction.grid import Grid
from spanlm.reproduction.grids import grids, order_notes
from spanlm.reproduction.li2020 import LI, LI2020
from spanlm.reproduction.page import markdown_page
from spanlm.reproduction.plan import Plan, make_plan
from spanlm.reproduction.request import Request
from spanlm.reproduction.run import Outcome
from spanlm.reproduction.summary import RowSummary
from spanlm.reproduction.tables import Dynamic
from tests.analysis.shown import texts
from tests.reproduction.test_grids import record as plain_record

LADDER, ANALYSIS = LI2020[0], LI2020[2]
PAPER = LI.name
WHOLE = "mos-ps-at-snb-ptb"


def record(name: str, test: float, seed: int = 1, **more: Any) -> dict[str, Any]:
    """What a finished row of the table leaves; valid is 5 higher, the buffer 20 worse than the encoder."""
    row = LI.rows[name]
    buffered = row.preset.startswith("li2020/")
    found = {**plain_record(name, test, seed=seed), "all_parameters": 2_345_678}
    for split, ppl in (("valid", test + 5), ("test", test)):
        parts = None
        if buffered:
            parts = {"encoder": ppl + 3, "buffer": ppl + 23, "oracle": ppl - 4}
            parts |= {"utilisation": 0.1, "oracle_utilisation": 0.0725}
        found[split] = {"perplexity": ppl, "protocol": "one stream", "parts": parts}
    if isinstance(row.how, Dynamic):
        found["members"] = [{"row": name.removesuffix("-dynamic"), "seed": found["seed"]}]
        del found["seed"], found["training_seconds"]
        settings = {"rate": 1e-4, "decay": 0.002, "epsilon": 2e-5}
        # one beyond all numbers, and some as older records have them
        points = [{**settings, "first": None, "perplexity": None, "whole": True}]
        points += [{**settings, "first": 90.0, "perplexity": whole} for whole in (81.0, *[None] * 3)]
        points.append({**settings, "first": 90.0, "perplexity": None, "whole": False})
        found |= {"details": {"dynamic": settings, "tried": 6, "grid": points, "notes": []}, "seconds": 120.0}
        found["details"]["statistics"] = {"whole": False, "tokens": 100_000}
    elif buffered:
        found["utilisation_by_epoch"] = [0.5, 0.0, 0.1]
    return found | more


def summary(name: str, *tests: float, **more: Any) -> RowSummary:
    """Of seeds 1, 2, … a perplexity each."""
    return RowSummary(name, tuple(record(name, test, seed, **more) for seed, test in enumerate(tests, 1)))


def cells(grid: Grid) -> dict[str, dict[str, str]]:
    return {row[0]: dict(zip(grid.header[1:], row[1:], strict=True)) for row in grid.rows}


def titled(found: list[Grid], start: str) -> Grid:
    (grid,) = (grid for grid in found if grid.caption.startswith(start))
    return grid


def test_as_trained_and_adapting_rows_are_in_grids_of_their_own() -> None:
    found = grids(LADDER, [summary("awd-ptb", 90.0), summary("awd-ptb-dynamic", 80.0)], PAPER)
    plain, adapting = found[0], found[1]
    assert plain.caption.startswith("Without dynamic evaluation")
    assert adapting.caption.startswith("With dynamic evaluation")
    assert [cells(grid)["AWD-LSTM"]["test ppl"] for grid in (plain, adapting)] == ["90.00", "80.00"]
    assert [cells(grid)["AWD-LSTM"]["paper: test"] for grid in (plain, adapting)] == ["57.30", "51.10"]
    assert [cells(grid)["AWD-LSTM"]["paper: valid"] for grid in (plain, adapting)] == ["60.00", "51.60"]


def test_each_rung_says_what_it_adds_to_the_one_below_beside_what_the_paper_has() -> None:
    rows = [
        summary("awd-ptb", 100.0, 104.0),
        summary("awd-snb-ptb", 99.5),
        summary("mos-ptb", 95.25),
        summary("mos-ps-ptb", 96.0),
        summary("awd-snb-ptb-dynamic", 90.0),
    ]
    plain, adapting, *_ = grids(LADDER, rows, PAPER)
    over = {name: (row["over"], row["paper: over"]) for name, row in cells(plain).items()}
    assert over == {
        "AWD-LSTM": ("–", "–"),
        "AWD-LSTM + SNB": ("−0.50 (awd-ptb)", "−2.38"),
        "AWD-LSTM + MoS": ("−4.75 (awd-ptb)", "−2.86"),
        "AWD-LSTM + MoS + PS": ("+0.75 (mos-ptb)", "−0.52"),
    }
    assert cells(plain)["AWD-LSTM"]["test ppl"] == "102.00 (100.00–104.00)"
    alone = cells(adapting)["AWD-LSTM + SNB"]
    assert (alone["over"], alone["paper: over"]) == ("–", "−3.56"), "its control was not run"


def test_a_buffer_says_how_much_it_is_used_and_other_rows_do_not() -> None:
    plain, *_ = grids(LADDER, [summary("mos-ptb", 95.0), summary("mos-snb-ptb", 94.0)], PAPER)
    use = {name: (row["PoU"], row["oracle PoU"]) for name, row in cells(plain).items()}
    assert use == {"AWD-LSTM + MoS": ("–", "–"), "AWD-LSTM + MoS + SNB": ("10.0", "7.2")}


def test_the_parts_of_a_buffered_row_stand_side_by_side() -> None:
    found = grids(LADDER, [summary("mos-ptb", 95.0), summary("mos-snb-ptb", 94.0)], PAPER)
    (line,) = titled(found, "Without dynamic evaluation: each part").rows
    assert line == ("AWD-LSTM + MoS + SNB", "102.00", "122.00", "95.00", "99.00", "97.00", "117.00", "90.00", "94.00")


def test_a_buffer_that_never_held_anything_has_no_parts() -> None:
    short = record("mos-snb-ptb", 94.0)
    for split in ("valid", "test"):
        short[split]["parts"] |= {"utilisation": None, "oracle_utilisation": None}
    found = grids(LADDER, [RowSummary("mos-snb-ptb", (short,))], PAPER)
    assert cells(found[0])["AWD-LSTM + MoS + SNB"]["PoU"] == "–"
    assert not any("each part" in grid.caption for grid in found)


def test_table_3_takes_the_whole_model_apart_where_it_stands() -> None:
    rows = [
        summary(WHOLE, 90.0),
        summary(f"{WHOLE}-dynamic", 80.0),
        summary("unannealed-test-ptb-dynamic", 80.5),
        summary("words-ptb", 91.0),
        summary("words-ptb-dynamic", 79.0),
    ]
    adapting, plain, *_ = grids(ANALYSIS, rows, PAPER)
    assert adapting.caption.startswith("With dynamic evaluation")
    columns = ("test ppl", "over the whole", "paper: test", "paper: over")
    assert {name: tuple(row[column] for column in columns) for name, row in cells(adapting).items()} == {
        "AWD-LSTM + MoS + PS + AT + SNB": ("80.00", "–", "43.87", "–"),
        "using only sequential RNN": ("83.00", "+3.00", "46.85", "+2.98"),
        "using only sequential neural buffer": ("103.00", "+23.00", "52.54", "+8.67"),
        "oracle policy": ("76.00", "−4.00", "38.72", "−5.15"),
        "w/o annealing in test": ("80.50", "+0.50", "44.12", "+0.25"),
        "w/o RNNs-minus feature": ("79.00", "−1.00", "44.72", "+0.85"),
    }
    found = cells(plain)
    assert found["using only sequential RNN"]["paper: test"] == "–"
    assert (found["w/o RNNs-minus feature"]["over the whole"], found["oracle policy"]["test ppl"]) == ("+1.00", "86.00")
    assert "a bound, no model" in adapting.caption


def test_without_the_whole_model_an_ablation_stands_alone() -> None:
    adapting, *_ = grids(ANALYSIS, [summary("words-ptb-dynamic", 79.0)], PAPER)
    assert list(cells(adapting)) == ["w/o RNNs-minus feature"]
    assert cells(adapting)["w/o RNNs-minus feature"]["over the whole"] == "–"


def test_use_over_the_epochs_shows_at_most_twelve_of_them() -> None:
    long = [n / 100 for n in range(50)]
    rows = [summary("awd-snb-ptb", 90.0), summary("mos-snb-ptb", 90.0, utilisation_by_epoch=long)]
    grid = titled(grids(LADDER, rows, PAPER), "PoU on valid after each epoch")
    assert len(grid.header) == 1 + 12 and (grid.header[1], grid.header[-1]) == ("1", "50")
    found = cells(grid)
    assert (found["AWD-LSTM + SNB"]["1"], found["AWD-LSTM + SNB"]["50"]) == ("50.0", "–")
    assert (found["AWD-LSTM + MoS + SNB"]["1"], found["AWD-LSTM + MoS + SNB"]["50"]) == ("0.0", "49.0")
    short = titled(grids(LADDER, rows[:1], PAPER), "PoU on valid after each epoch")
    assert short.header == ("epoch", "1", "2", "3")
    assert short.rows == (("AWD-LSTM + SNB", "50.0", "0.0", "10.0"),)


def test_the_settings_of_dynamic_evaluation_are_shown() -> None:
    noted = record("awd-ptb-dynamic", 80.0)
    noted["details"]["notes"] = ["dynamic.rate=0.0001 is the largest that was tried."]
    grid = titled(grids(LADDER, [RowSummary("awd-ptb-dynamic", (noted,))], PAPER), "Dynamic evaluation")
    assert grid.rows == (("AWD-LSTM", "0.0001", "0.002", "2e-05", "6", "2", "100,000", "2.0"),)
    assert "AWD-LSTM: dynamic.rate=0.0001 is the largest that was tried." in grid.caption
    noted["details"]["statistics"] = {"whole": True, "tokens": 900_000}
    grid = titled(grids(LADDER, [RowSummary("awd-ptb-dynamic", (noted,))], PAPER), "Dynamic evaluation")
    assert grid.rows[0][-2] == "all of train"


def test_the_order_is_said_of_each_way_of_measuring_alone() -> None:
    rows = [
        summary("awd-ptb", 90.0),
        summary("mos-ptb", 91.0),
        summary("awd-ptb-dynamic", 80.0),
        summary("mos-ptb-dynamic", 79.0),
    ]
    plain, adapting = order_notes(LADDER, rows, PAPER)
    assert plain.startswith("Without dynamic evaluation. Order") and "0 of 1 pairs" in plain
    assert adapting.startswith("With dynamic evaluation. Order") and "1 of 1 pairs" in adapting


@pytest.fixture
def plan(tiny_corpus: Path, tmp_path: Path) -> Plan:
    return make_plan(
        Request(paper=PAPER, table="1", corpus=str(tiny_corpus), scale="smoke", runs=tmp_path / "r", out=tmp_path / "o")
    )


def ended(plan: Plan) -> list[Outcome]:
    return [Outcome(task, record(task.row, 90.0 - number)) for number, task in enumerate(plan.tasks)]


def test_a_page_says_each_remark_once_for_all_rows_that_have_it(plan: Plan) -> None:
    page = markdown_page(plan, LADDER, ended(plan), "table-1.svg")
    assert page.startswith("# Li et al. 2020, Table 1: perplexity on Penn Treebank")
    assert page.count("η is not printed") == 2, "the encoders have two widths"
    rows = "AWD-LSTM + MoS + SNB; AWD-LSTM + MoS + PS + SNB; AWD-LSTM + MoS + PS + AT + SNB"
    assert f"* {rows}: η is not printed" in page
    assert "Training time of 8 runs:" in page and "Missing:" not in page
    assert "`spanlm reproduce li2020 --table 1 --corpus tiny --scale smoke`" in page
    assert "fit no table" in page


def test_what_is_missing_is_told_apart_where_two_rows_have_one_title(plan: Plan) -> None:
    page = markdown_page(plan, LADDER, ended(plan)[:1], None)
    assert "* AWD-LSTM (`awd-ptb`): not run yet" not in page
    assert "* AWD-LSTM (`awd-ptb-dynamic`): not run yet" in page


def test_the_figure_has_a_line_for_every_rung_and_panels_for_both_ways_of_measuring(plan: Plan) -> None:
    drawing = figure(plan, LADDER, ended(plan))
    assert drawing is not None
    words = texts(drawing)
    for task in plan.tasks:
        assert words.count(LI.rows[task.row].title) == 1
    panels = [text for text in texts(drawing, bold=True) if text.startswith("test ppl")]
    assert panels == [
        "test ppl, tiny, smoke",
        "test ppl, published: ptb",
        "test ppl, dynamic, tiny, smoke",
        "test ppl, dynamic, published: ptb",
    ]


def test_a_figure_of_half_a_ladder_leaves_the_other_half_open(plan: Plan) -> None:
    drawing = figure(plan, LADDER, [outcome for outcome in ended(plan) if outcome.job.row == "awd-ptb"])
    assert drawing is not None
    assert not any("dynamic" in text for text in texts(drawing))


def test_rows_with_fewer_seeds_than_others_have_a_command_of_their_own(tiny_corpus: Path, tmp_path: Path) -> None:
    how: dict[str, Any] = {"corpus": str(tiny_corpus), "scale": "smoke", "runs": tmp_path / "r", "out": tmp_path / "o"}
    made = make_plan(Request(paper=PAPER, table="1", rows=("awd-ptb", "mos-ptb"), seeds=(1, 2), **how))
    ended = [Outcome(task, record(task.row, 80.0, n)) for task, n in zip(made.tasks, (1, 2, 1, 2), strict=True)]
    usual = "spanlm reproduce li2020 --table 1 --corpus tiny --scale smoke --rows"
    page = markdown_page(made, LADDER, ended, "table-1.svg")
    assert f"* Made again by `{usual} awd-ptb mos-ptb --seeds 1 2`." in page
    page = markdown_page(made, LADDER, ended[:-1], "table-1.svg")
    assert f"* Made again by `{usual} awd-ptb --seeds 1 2` and `{usual} mos-ptb`." in page
