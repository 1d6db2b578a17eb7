"""The figure of each table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spanlm.reproduction.daniluk2017 import CLOZE_CLASSES, DANILUK2017, TITLES
from spanlm.reproduction.estimate import estimate
from spanlm.reproduction.figures import figure, use_by_epoch
from spanlm.reproduction.li2020 import LI
from spanlm.reproduction.plan import Plan, make_plan
from spanlm.reproduction.request import Request
from spanlm.reproduction.run import Outcome
from spanlm.reproduction.tasks import Job
from spanlm.reproduction.write import write_tables
from tests.analysis.shown import lines, marks, texts
from tests.reproduction.test_grids import attention, cloze, record
from tests.reproduction.test_ladder_grids import record as ladder_record

TABLES = {table.name: table for table in DANILUK2017}


@pytest.fixture
def plan(tiny_corpus: Path, tmp_path: Path) -> Plan:
    return make_plan(
        Request(paper="daniluk2017", corpus=str(tiny_corpus), scale="smoke", runs=tmp_path / "r", out=tmp_path / "o")
    )


def ended(plan: Plan, **more: Any) -> list[Outcome]:
    """Every job finished with a perplexity of its own."""
    return [Outcome(job, record(job.row, 80.0 + number, corpus="tiny", **more)) for number, job in enumerate(plan.jobs)]


def words(drawing: object) -> set[str]:
    return set(texts(drawing))


@pytest.mark.parametrize("name", ["2a", "2b", "2c"])
def test_every_row_has_a_measured_and_a_published_mark(plan: Plan, name: str) -> None:
    drawing = figure(plan, TABLES[name], ended(plan))
    assert drawing is not None
    assert marks(drawing) >= 2 * len(TABLES[name].rows)


def test_the_dots_name_every_model(plan: Plan) -> None:
    drawing = figure(plan, TABLES["2c"], ended(plan))
    assert drawing is not None
    assert {TITLES[row] for row in TABLES["2c"].rows} <= words(drawing)


def test_attention_of_all_models_is_in_one_figure(plan: Plan) -> None:
    outcomes = [
        Outcome(job, record(job.row, 80.0, corpus="tiny", attention=attention(range(15, 0, -1)))) for job in plan.jobs
    ]
    drawing = figure(plan, TABLES["3"], outcomes)
    assert drawing is not None
    assert {"RM(+tM-g)", "Attention", "Key-Value", "Key-Value-Predict"} <= words(drawing)


def test_accuracies_have_a_panel_for_every_word_class(plan: Plan) -> None:
    outcomes = [outcome for outcome in ended(plan, cloze=cloze(0.6)) if outcome.job.row in TABLES["2d"].rows]
    drawing = figure(plan, TABLES["2d"], outcomes)
    assert drawing is not None
    for title in CLOZE_CLASSES.values():
        assert any(title in text for text in words(drawing))


def test_a_word_class_of_which_nothing_could_be_scored_has_no_panel(plan: Plan) -> None:
    measured = cloze(0.6)
    measured["classes"]["NE"] = {"sentence": {"accuracy": None}, "candidate": {"accuracy": None}}
    outcomes = [outcome for outcome in ended(plan, cloze=measured) if outcome.job.row in TABLES["2d"].rows]
    drawing = figure(plan, TABLES["2d"], outcomes)
    assert drawing is not None
    assert not any(CLOZE_CLASSES["NE"] in text for text in words(drawing))


@pytest.mark.parametrize("name", sorted(TABLES))
def test_there_is_no_figure_of_nothing(plan: Plan, name: str) -> None:
    assert figure(plan, TABLES[name], [Outcome(job, None, "failed") for job in plan.jobs]) is None


def test_pages_are_written_as_soon_as_there_is_anything_to_say(plan: Plan) -> None:
    failed = [Outcome(plan.jobs[0], None, "no room")]
    assert {path.suffix for path in write_tables(plan, failed)} == {".md"}
    attended = [Outcome(o.job, {**(o.record or {}), "attention": attention(range(15, 0, -1))}) for o in ended(plan)]
    written = write_tables(plan, attended)
    assert sorted(path.name for path in written) == sorted(
        f"figure-{table.name}.{suffix}" for table in plan.tables for suffix in ("md", "svg")
    )


@pytest.fixture
def ladder(tiny_corpus: Path, tmp_path: Path) -> Plan:
    return make_plan(
        Request(
            paper="li2020", table="1", corpus=str(tiny_corpus), scale="smoke", runs=tmp_path / "r", out=tmp_path / "o"
        )
    )


def buffered(plan: Plan) -> list[Outcome]:
    """Every row finished; those with a buffer tell of its use."""
    use = {"utilisation_by_epoch": [0.5, 0.0, 0.1], "oracle_utilisation_by_epoch": [0.4, 0.1, 0.07]}
    return [
        Outcome(task, ladder_record(task.row, 90.0) | (use if "-snb-" in task.row and isinstance(task, Job) else {}))
        for task in plan.tasks
    ]


def test_use_by_epoch_has_two_lines_for_each_row_with_a_buffer(ladder: Plan) -> None:
    drawing = use_by_epoch(ladder, ladder.tables[0], buffered(ladder))
    assert drawing is not None and drawing.get_label() == "Li et al. 2020, Figure 4: use of the span buffer by epoch"
    titles = {LI.rows[task.row].title for task in ladder.tasks if "-snb-" in task.row}
    assert len(titles) == 4 and titles <= words(drawing)
    uses = [list(line.get_ydata()) for line in lines(drawing) if line.get_marker() != "None"]
    assert len(uses) == 2 * 4
    assert uses[:2] == [pytest.approx([40, 10, 7]), pytest.approx([50, 0, 10])]


def test_without_a_buffer_there_is_no_use_to_draw(ladder: Plan) -> None:
    plain = [outcome for outcome in buffered(ladder) if "-snb-" not in outcome.job.row]
    assert use_by_epoch(ladder, ladder.tables[0], plain) is None
    assert sorted(path.name for path in write_tables(ladder, plain)) == ["table-1.md", "table-1.svg"]


def test_use_by_epoch_stands_in_the_page(ladder: Plan) -> None:
    written = write_tables(ladder, buffered(ladder))
    assert sorted(path.name for path in written) == ["table-1-by-epoch.svg", "table-1.md", "table-1.svg"]
    page = (ladder.out / "table-1.md").read_text(encoding="utf-8")
    assert "](table-1.svg)" in page and "![Figure 4: use of the span buffer by epoch](table-1-by-epoch.svg)" in page


def test_an_estimate_counts_all_epochs_and_writes_nothing(plan: Plan, tmp_path: Path) -> None:
    found = estimate(plan.jobs[0], plan.corpus)
    assert found.epochs == 1
    assert found.tokens_per_second > 0 and found.seconds > 0
    assert not list(tmp_path.iterdir())
