"""The rows of Salton et al., and from a request to what is done for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spanlm.errors import InputError
from spanlm.reproduction.papers import PAPERS
from spanlm.reproduction.plan import Plan, make_plan
from spanlm.reproduction.request import Request
from spanlm.reproduction.salton2017 import SALTON, SALTON2017, per_predicted
from spanlm.reproduction.tables import Averaged, Cached, Plain
from spanlm.reproduction.tasks import Job, Measurement

TABLES = {table.name: table for table in SALTON2017}

# the paper's two tables as printed: parameters in millions, valid, test
PRINTED = {
    "1": [
        (20, 86.2, 82.7),
        (66, 82.2, 78.4),
        (51, 75.8, 73.2),
        (None, None, 72.1),
        (21, 72.4, 70.9),
        (14.5, 72.6, 70.7),
        (14.5, 71.7, 70.1),
        (40, 80.6, 77.0),
        (100, 76.7, 73.3),
        (200, 75.2, 72.0),
        (122, 76.9, 73.6),
        (660, 72.8, 69.5),
        (2508, 71.9, 68.7),
    ],
    "2": [
        (20, 108.7, 100.9),
        (None, None, 99.3),
        (20, 101.7, 96.3),
        (None, None, 81.6),
        (21, 84.8, 80.8),
        (50, 74.3, 70.8),
        (50, 73.7, 69.7),
        (None, None, 68.9),
    ],
}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPANLM_DATA", raising=False)


def plan(corpus: object, **changes: Any) -> Plan:
    return make_plan(
        Request(**{"paper": "salton2017", "corpus": str(corpus), "scale": "smoke", "table": "1", **changes})
    )


def labels(made: Plan) -> list[str]:
    return [f"{task.row}, {task.seeds}" for task in made.tasks]


@pytest.mark.parametrize("table", TABLES)
def test_the_papers_rows_stand_in_its_order_with_its_numbers(table: str) -> None:
    rows = [SALTON.rows[name] for name in TABLES[table].rows]
    found = [row.reported for row in rows if row.in_paper]
    assert [(r.all_parameters, r.valid_ppl, r.test_ppl) for r in found] == PRINTED[table]


@pytest.mark.parametrize("paper", PAPERS.values(), ids=lambda paper: paper.name)
def test_every_preset_has_one_plain_row_and_it_is_in_the_tables_that_need_it(paper: Any) -> None:
    for table in paper.tables:
        for name in table.rows:
            row = paper.rows[name]
            plain = [r.name for r in paper.rows.values() if r.preset == row.preset and r.how == Plain()]
            assert plain == [paper.plain(row).name]
            assert plain[0] in table.rows


def test_a_control_is_a_plain_lstm_of_the_same_table_counted_alike() -> None:
    for table in SALTON2017:
        for row in (SALTON.rows[name] for name in table.rows):
            if row.control:
                control = SALTON.rows[row.control]
                assert control.name in table.rows
                # a cache on an attentive model is compared with one of the same size on the model without attention
                assert control.how in (Plain(), row.how) and (control.how == Plain() or "single" in row.name)
                assert control.trained.config.model.memory.kind == "none"
                assert (control.by_sentence, control.lines) == (row.by_sentence, row.lines)


@pytest.mark.parametrize("corpus", ["ptb", "wt2"])
def test_the_control_of_the_attention_differs_from_it_in_nothing_else(corpus: str) -> None:
    control = SALTON.rows[f"lstm-{corpus}"].trained.config
    for score in ("single", "combined", "mean", "merge"):
        config = SALTON.rows[f"{score}-{corpus}"].trained.config
        assert (config.data, config.training) == (control.data, control.training)
        assert config.model.encoder == control.model.encoder
        assert config.model.memory.kind == "attentive"
    plain, single = (SALTON.rows[f"{name}-stream-{corpus}"].trained.config for name in ("lstm", "single"))
    assert replace(single, model=replace(single.model, memory=plain.model.memory)) == plain
    sentences = replace(plain.training, batching=control.training.batching)
    assert (plain.model, sentences) == (control.model, control.training)
    assert plain.data.lines == "as-written" and plain.training.batching.kind == "streams"


@pytest.mark.parametrize(("valid", "test", "means"), [(71.7, 70.1, ("88.0", "85.9")), (72.6, 70.7, ("89.1", "86.7"))])
def test_the_published_numbers_per_predicted_token(valid: float, test: float, means: tuple[str, str]) -> None:
    found = tuple(f"{per_predicted(value, split):.1f}" for value, split in ((valid, "valid"), (test, "test")))
    assert found == means
    assert f"{valid}/{test} are {means[0]}/{means[1]}" in TABLES["1"].remark


def test_rows_share_their_trainings(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, rows=("medium", "medium-x2", "medium-x3", "lstm-ptb-cache-500", "lstm-ptb"))
    assert labels(made) == [
        "medium, seed 1",
        "medium, seed 2",
        "medium-x2, seeds 1 to 2",
        "medium, seed 3",
        "medium-x3, seeds 1 to 3",
        "lstm-ptb, seed 1",
        "lstm-ptb-cache-500, seed 1",
    ]
    assert len({task.record for task in made.tasks}) == len(made.tasks)
    assert all(task.config.training.seed == task.seed for task in made.tasks if isinstance(task, Job))
    (pair,) = (task for task in made.tasks if task.row == "medium-x2")
    assert isinstance(pair, Measurement) and pair.how == Averaged(2)
    assert pair.jobs == made.jobs[:2]


def test_a_cache_is_measured_for_every_seed(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, rows=("grave-lstm-ptb-cache-500",), seeds=(4, 7))
    assert labels(made) == [
        "grave-lstm-ptb, seed 4",
        "grave-lstm-ptb-cache-500, seed 4",
        "grave-lstm-ptb, seed 7",
        "grave-lstm-ptb-cache-500, seed 7",
    ]
    assert made.tasks[1].record.name == "grave-lstm-ptb-cache-500-seed-4.json"
    assert isinstance(made.tasks[1], Measurement) and made.tasks[1].how == Cached(500)


def test_large_ensembles_are_left_out_at_a_small_scale_unless_as_many_seeds_are_asked_for(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus)
    assert set(made.left_out) == {"medium-x5", "medium-x10", "large-x10", "large-x38"}
    assert not set(made.left_out) & {task.row for task in made.tasks}
    more = plan(tiny_corpus, seeds=(1, 2, 3, 4, 5))
    assert "medium-x5" not in more.left_out and "medium-x10" in more.left_out
    with pytest.raises(InputError, match=r"--rows=large-x38: an ensemble of 38: at scale smoke at most 3"):
        plan(tiny_corpus, rows=("large-x38",))


def test_at_the_papers_scale_all_ensembles_are_trained(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, scale="paper", rows=("medium-x10", "large-x38"))
    assert [job.row for job in made.jobs].count("medium") == 10
    assert [job.row for job in made.jobs].count("large") == 38


def test_rows_that_read_sentences_have_a_text_of_their_own(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, table="2", rows=("single-wt2", "grave-lstm-wt2"))
    ways = {job.row: job.config.data.lines for job in made.jobs}
    assert ways == {"single-wt2": "sentences", "grave-lstm-wt2": "as-written"}
    sizes = {job.row: len(made.text_of(job).splits["test"]) for job in made.jobs}
    assert sizes["single-wt2"] < sizes["grave-lstm-wt2"], "blank lines are left out"
    assert made.text_of(made.jobs[0]).vocabulary.hash == made.text_of(made.jobs[1]).vocabulary.hash


@pytest.mark.parametrize(("table", "corpus"), [("1", "ptb"), ("2", "wikitext-2")])
def test_a_table_runs_on_its_own_corpus_unless_told(table: str, corpus: str) -> None:
    with pytest.raises(InputError, match=corpus):  # which is not there
        make_plan(Request(paper="salton2017", table=table, scale="small"))


@pytest.mark.parametrize(("table", "corpus", "other"), [("1", "wikitext-2", "2"), ("2", "ptb", "1")])
def test_a_table_is_refused_on_the_corpus_of_the_other(table: str, corpus: str, other: str) -> None:
    with pytest.raises(InputError, match=rf"^--corpus={corpus}: table {table} has .* Use --table {other}, or"):
        make_plan(Request(paper="salton2017", table=table, corpus=corpus, scale="small"))


def test_without_a_table_or_a_corpus_it_must_be_said_which() -> None:
    with pytest.raises(InputError, match=r"--table: must be given at scale small: 1 \(ptb\), 2 \(wikitext-2\)"):
        make_plan(Request(paper="salton2017", scale="small"))
    with pytest.raises(InputError, match=r"--table=3: unknown\. Choose from: 1, 2"):
        make_plan(Request(paper="salton2017", scale="small", table="3"))


def test_both_tables_run_on_any_text(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, table=None)
    assert [table.name for table in made.tables] == ["1", "2"]
    assert {task.row for task in made.tasks} | set(made.left_out) == set(SALTON.rows)


def test_tables_without_a_row_that_is_asked_for_are_left_out(tiny_corpus: Path) -> None:
    assert [table.name for table in plan(tiny_corpus, table=None, rows=("single-wt2",)).tables] == ["2"]
