"""From a request to the list of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spanlm.errors import InputError
from spanlm.reproduction.daniluk2017 import DANILUK2017, PUBLISHED_CLOZE, TITLES
from spanlm.reproduction.plan import Plan, make_plan
from spanlm.reproduction.request import Request


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPANLM_DATA", raising=False)


def plan(corpus: object, **changes: Any) -> Plan:
    return make_plan(Request(paper="daniluk2017", corpus=str(corpus), scale="smoke", **changes))


def test_every_row_has_its_name_and_its_published_number() -> None:
    for table in DANILUK2017:
        assert set(table.rows) <= set(TITLES)
        if table.measure == "cloze":
            assert set(table.rows) == set(PUBLISHED_CLOZE)


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
