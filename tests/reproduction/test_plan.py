"""From a request to the list of what is done."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spanlm.config import RunConfig
from spanlm.errors import InputError
from spanlm.presets import PRESETS
from spanlm.reproduction.papers import Averaged, Cached
from spanlm.reproduction.plan import Job, Measurement, Plan, Request, chosen_text, find_questions, make_plan

RESULTS = Path(__file__).parents[2] / "results"
QUESTION = "".join(f"{n} a b .\n" for n in range(1, 21)) + "21 a XXXXX .\tb\t\ta|b\n\n"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPANLM_DATA", raising=False)


def plan(corpus: object, **changes: Any) -> Plan:
    return make_plan(Request(**{"paper": "daniluk2017", "corpus": str(corpus), "scale": "smoke", **changes}))


def salton(corpus: object, **changes: Any) -> Plan:
    return plan(corpus, **{"paper": "salton2017", "table": "1", **changes})


def labels(made: Plan) -> list[str]:
    return [f"{task.row}, {task.seeds}" for task in made.tasks]


def test_a_row_of_several_tables_is_run_once_and_measured_for_all(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus)
    assert [table.name for table in made.tables] == ["2a", "2b", "2c", "3"]
    rows = [job.row for job in made.jobs]
    assert len(rows) == len(set(rows))
    assert set(rows) == {row for table in made.tables for row in table.rows}
    measures = {job.row: job.measures for job in made.jobs}
    assert measures["kvp-w15"] == ("perplexity", "attention")
    assert measures["kvp-w5"] == ("perplexity",)


def test_every_seed_has_a_run_of_its_own(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, table="2b", seeds=(3, 5))
    assert [(job.row, job.seed) for job in made.jobs[:4]] == [
        ("2-gram", 3),
        ("2-gram", 5),
        ("3-gram", 3),
        ("3-gram", 5),
    ]
    assert all(job.config.training.seed == job.seed for job in made.jobs)
    assert len({job.folder for job in made.jobs}) == len({job.record for job in made.jobs}) == 8


def test_only_the_rows_asked_for(tiny_corpus: Path) -> None:
    assert [job.row for job in plan(tiny_corpus, table="2c", rows=("4-gram", "lstm")).jobs] == ["lstm", "4-gram"]


def test_runs_and_results_are_kept_apart_by_corpus_and_scale(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, table="2b", runs=Path("here"), out=Path("there"))
    assert made.jobs[0].folder == Path("here/daniluk2017/tiny-smoke/2-gram/seed-1")
    assert made.jobs[0].record == Path("there/daniluk2017/tiny-smoke/2-gram-seed-1.json")


def test_precision_and_device_reach_every_run(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, table="2b", precision="bf16", device="cpu")
    assert {(job.config.training.precision, job.config.training.device) for job in made.jobs} == {("bf16", "cpu")}


def test_a_corpus_built_from_wikipedia_has_its_articles_as_documents(tiny_corpus: Path, tmp_path: Path) -> None:
    built = tmp_path / "wikipedia"
    built.mkdir()
    for split in ("train", "valid", "test"):
        (built / f"{split}.txt").write_bytes((tiny_corpus / f"{split}.txt").read_bytes())
    (built / "corpus.json").write_text(json.dumps({}))
    for made in (plan("wikipedia", table="2b"), plan(built, table="2b"), plan("wikipedia", table="2b", data_dir=".")):
        assert made.jobs[0].config.data.documents == "blank-line"
        assert len(made.corpus.splits["train"].documents) > 1


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"table": "2e"}, ["--table=2e", "Did you mean"]),
        ({"scale": "smal"}, ["--scale=smal", "small"]),
        ({"paper": "daniluk"}, ["daniluk2017"]),
        ({"table": "2b", "rows": ("lstm",)}, ["--rows=lstm", "not in the table"]),
        ({"table": "2d"}, ["--table=2d", "--corpus cbt"]),
    ],
)
def test_what_does_not_exist_is_refused_with_the_nearest(
    tiny_corpus: Path, changes: dict[str, Any], parts: list[str]
) -> None:
    with pytest.raises(InputError) as refused:
        make_plan(Request(**{"paper": "daniluk2017", "corpus": str(tiny_corpus), "scale": "smoke", **changes}))
    assert all(part in str(refused.value) for part in parts), refused.value


def test_without_the_papers_corpus_the_way_to_build_one_is_said() -> None:
    with pytest.raises(InputError, match="spanlm data wikipedia"):
        plan("wikipedia")


def test_the_childrens_book_test_is_what_its_table_runs_on_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="cbt"):
        make_plan(Request(paper="daniluk2017", table="2d", scale="smoke"))


def test_rows_share_their_trainings(tiny_corpus: Path) -> None:
    made = salton(tiny_corpus, rows=("medium", "medium-x2", "medium-x3", "lstm-ptb-cache-500", "lstm-ptb"))
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
    made = salton(tiny_corpus, rows=("grave-lstm-ptb-cache-500",), seeds=(4, 7))
    assert labels(made) == [
        "grave-lstm-ptb, seed 4",
        "grave-lstm-ptb-cache-500, seed 4",
        "grave-lstm-ptb, seed 7",
        "grave-lstm-ptb-cache-500, seed 7",
    ]
    assert made.tasks[1].record.name == "grave-lstm-ptb-cache-500-seed-4.json"
    assert isinstance(made.tasks[1], Measurement) and made.tasks[1].how == Cached(500)


def test_large_ensembles_are_left_out_at_a_small_scale_unless_as_many_seeds_are_asked_for(tiny_corpus: Path) -> None:
    made = salton(tiny_corpus)
    assert set(made.left_out) == {"medium-x5", "medium-x10", "large-x10", "large-x38"}
    assert not set(made.left_out) & {task.row for task in made.tasks}
    more = salton(tiny_corpus, seeds=(1, 2, 3, 4, 5))
    assert "medium-x5" not in more.left_out and "medium-x10" in more.left_out
    with pytest.raises(InputError, match=r"--rows=large-x38: an ensemble of 38: at scale smoke at most 3"):
        salton(tiny_corpus, rows=("large-x38",))


def test_at_the_papers_scale_all_ensembles_are_trained(tiny_corpus: Path) -> None:
    made = salton(tiny_corpus, scale="paper", rows=("medium-x10", "large-x38"))
    assert [job.row for job in made.jobs].count("medium") == 10
    assert [job.row for job in made.jobs].count("large") == 38


def test_rows_that_read_sentences_have_a_text_of_their_own(tiny_corpus: Path) -> None:
    made = salton(tiny_corpus, table="2", rows=("single-wt2", "grave-lstm-wt2"))
    ways = {job.row: job.config.data.lines for job in made.jobs}
    assert ways == {"single-wt2": "sentences", "grave-lstm-wt2": "as-written"}
    sizes = {job.row: len(made.text_of(job).splits["test"]) for job in made.jobs}
    assert sizes["single-wt2"] < sizes["grave-lstm-wt2"], "blank lines are left out"
    assert made.text_of(made.jobs[0]).vocabulary.hash == made.text_of(made.jobs[1]).vocabulary.hash


def test_both_tables_run_on_any_text(tiny_corpus: Path) -> None:
    made = salton(tiny_corpus, table=None)
    assert [table.name for table in made.tables] == ["1", "2"]
    assert {task.row for task in made.tasks} | set(made.left_out) == set(made.paper.rows)


def test_tables_without_a_row_that_is_asked_for_are_left_out(tiny_corpus: Path) -> None:
    assert [table.name for table in salton(tiny_corpus, table=None, rows=("single-wt2",)).tables] == ["2"]


def test_each_rung_is_trained_once_and_measured_twice(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, paper="li2020", table="1")
    assert [task.row for task in made.tasks] == list(made.tables[0].rows)
    assert len(made.jobs) == 8 and len(made.tasks) == 16
    for job, measurement in zip(made.tasks[::2], made.tasks[1::2], strict=True):
        assert isinstance(job, Job) and isinstance(measurement, Measurement)
        assert measurement.jobs == (job,) and measurement.search == made.scale.dynamic
        assert measurement.record.name == f"{job.row}-dynamic-seed-1.json"


@pytest.mark.parametrize(
    ("paper", "table", "corpus"),
    [
        ("salton2017", "1", "ptb"),
        ("salton2017", "2", "wikitext-2"),
        ("li2020", "3", "ptb"),
        ("li2020", "2", "wikitext-2"),
    ],
)
def test_a_table_runs_on_its_own_corpus_unless_told(paper: str, table: str, corpus: str) -> None:
    with pytest.raises(InputError, match=corpus):  # which is not there
        make_plan(Request(paper=paper, table=table, scale="small"))


@pytest.mark.parametrize(
    ("paper", "table", "corpus", "home", "other"),
    [
        ("salton2017", "2", "ptb", "wikitext-2", "1"),
        ("li2020", "1", "wikitext-2", "ptb", "2"),
        ("li2020", "3", "wikitext-2", "ptb", "3-wt2"),
        ("li2020", "3-wt2", "ptb", "wikitext-2", "3"),
    ],
)
@pytest.mark.parametrize("scale", ["smoke", "small", "paper"])
def test_a_table_is_refused_on_the_corpus_of_its_twin(
    paper: str, table: str, corpus: str, home: str, other: str, scale: str
) -> None:
    said = (
        f"--corpus={corpus}: table {table} has the settings of {home}; those of {corpus} are table {other}. Use "
        f"--table {other}, or --corpus {home}."
    )
    with pytest.raises(InputError) as error:
        make_plan(Request(paper=paper, table=table, corpus=corpus, scale=scale))
    assert str(error.value) == said


@pytest.mark.parametrize("paper", ["salton2017", "li2020"])
def test_without_a_table_or_a_corpus_it_must_be_said_which(paper: str) -> None:
    with pytest.raises(InputError, match=r"--table: must be given at scale small: 1 \(ptb\), 2 \(wikitext-2\)"):
        make_plan(Request(paper=paper, scale="small"))


@pytest.mark.parametrize(
    ("paper", "documents"), [("daniluk2017", "heading"), ("salton2017", "none"), ("li2020", "none")]
)
def test_the_documents_of_a_paper(paper: str, documents: str) -> None:
    for corpus, expected in (("wikitext-2", documents), ("ptb", "none"), ("cbt", "book-title"), ("mine", "none")):
        assert chosen_text(corpus, Request(paper=paper)).effective_documents == expected
        for name, preset in PRESETS.items():
            if name.startswith(f"{paper}/"):
                assert replace(preset.config.data, corpus=corpus).effective_documents == expected, name


@pytest.mark.parametrize(
    "path", sorted(RESULTS.glob("*2017/**/*-seed-1.json")), ids=lambda path: "/".join(path.parts[-3:])
)
def test_only_records_of_this_protocol_are_those_of_finished_runs(path: Path) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    if "config" not in record or record["corpus"] not in ("ptb", "cbt", "wikitext-2"):
        pytest.skip("of no plain row")
    recorded = RunConfig.from_tree(record["config"]).data
    asked = replace(
        chosen_text(record["corpus"], Request(paper=path.relative_to(RESULTS).parts[0])),
        **{name: getattr(recorded, name) for name in ("max_size", "lines")},
    )
    carried_over = record["corpus"] == "wikitext-2" and "daniluk2017" in path.parts
    assert (recorded.compared == asked.compared) != carried_over


def test_files_that_cannot_be_asked_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere_NE_test\.txt"):
        find_questions(None, (tmp_path / "nowhere_NE_test.txt",))


def test_a_name_must_tell_the_word_class(tmp_path: Path) -> None:
    unnamed, named = tmp_path / "mine.txt", tmp_path / "mine_CN_test.txt"
    unnamed.write_text(QUESTION)
    named.write_text(QUESTION)
    with pytest.raises(InputError, match=r"mine\.txt.*NE, CN, V, P"):
        find_questions(None, (named, unnamed))
    assert find_questions(None, (named,)) == (named,)
