"""From a request to the list of what is done."""

import json
from pathlib import Path

import pytest

from spanlm.errors import InputError
from spanlm.papers.paper import Averaged
from spanlm.papers.plan import Plan, chosen_text, find_questions
from spanlm.papers.registry import PAPERS
from spanlm.papers.request import Request
from tests.papers.records import plan, salton

QUESTION = "".join(f"{n} a b .\n" for n in range(1, 21)) + "21 a XXXXX .\tb\t\ta|b\n\n"


def labels(made: Plan) -> str:
    return "; ".join(f"{task.row.name}, {task.seeds}" for task in made.tasks)


@pytest.mark.parametrize(
    ("corpus", "table", "chosen"),
    [
        ("synthetic:copy,tokens=9000", None, "copy"),
        ("synthetic:copy,lag=20", None, "copy-lag-20"),
        ("synthetic:copy,lag=20", "copy", "copy"),
    ],
)
def test_a_text_with_options_has_the_table_of_just_these_else_of_its_kind(
    corpus: str, table: str | None, chosen: str
) -> None:
    made = plan(corpus, paper="yardstick", scale="small", rows=("lstm",), table=table)
    assert [one.name for one in made.tables] == [chosen]


def test_a_corpus_built_from_wikipedia_has_its_articles_as_documents(tiny_corpus: Path, tmp_path: Path) -> None:
    built = tmp_path / "wikipedia"
    built.mkdir()
    for split in ("train", "valid", "test"):
        (built / f"{split}.txt").write_bytes((tiny_corpus / f"{split}.txt").read_bytes())
    (built / "corpus.json").write_text(json.dumps({}))
    for made in (plan("wikipedia"), plan(built), plan("wikipedia", data_dir=".")):
        assert made.jobs[0].config.data.documents == "blank-line"
        assert len(made.corpus.splits["train"].documents) > 1


def test_rows_share_their_trainings(tiny_corpus: Path) -> None:
    made = salton(tiny_corpus, rows=("medium", "medium-x2", "medium-x3", "lstm-ptb-cache-500", "lstm-ptb"))
    medium = "medium, seed 1; medium, seed 2; medium-x2, seeds 1 to 2; medium, seed 3; medium-x3, seeds 1 to 3"
    assert labels(made) == f"{medium}; lstm-ptb, seed 1; lstm-ptb-cache-500, seed 1"
    assert len({task.record for task in made.tasks}) == len(made.tasks)
    assert all(task.config.training.seed == task.seed for task in made.tasks if not task.models)
    (pair,) = (task for task in made.tasks if task.row.name == "medium-x2")
    assert pair.row.evaluation == Averaged(2)
    assert pair.models == made.jobs[:2]


def test_large_ensembles_are_left_out_at_a_small_scale_unless_as_many_seeds_are_asked_for(tiny_corpus: Path) -> None:
    made = salton(tiny_corpus)
    assert set(made.left_out) == {"medium-x5", "medium-x10", "large-x10", "large-x38"}
    assert not set(made.left_out) & {task.row.name for task in made.tasks}
    more = salton(tiny_corpus, seeds=(1, 2, 3, 4, 5))
    assert "medium-x5" not in more.left_out and "medium-x10" in more.left_out
    with pytest.raises(InputError, match=r"^rows=large-x38: an ensemble of 38: at scale smoke at most 3"):
        salton(tiny_corpus, rows=("large-x38",))


def test_rows_that_read_sentences_have_a_text_of_their_own(tiny_corpus: Path) -> None:
    made = salton(tiny_corpus, table="2", rows=("single-wt2", "grave-lstm-wt2"))
    ways = {job.row.name: job.config.data.lines for job in made.jobs}
    assert ways == {"single-wt2": "sentences", "grave-lstm-wt2": "as-written"}
    sizes = {job.row.name: len(made.text_of(job).splits["test"]) for job in made.jobs}
    assert sizes["single-wt2"] < sizes["grave-lstm-wt2"], "blank lines are left out"
    assert made.text_of(made.jobs[0]).vocabulary.hash == made.text_of(made.jobs[1]).vocabulary.hash


@pytest.mark.parametrize(
    ("paper", "table", "corpus", "home", "other"),
    [
        ("salton2017", "2", "ptb", "wikitext-2", "1"),
        ("li2020", "1", "wikitext-2", "ptb", "2"),
        ("li2020", "3", "wikitext-2", "ptb", "3-wt2"),
        ("li2020", "3-wt2", "ptb", "wikitext-2", "3"),
    ],
)
def test_a_table_is_refused_on_the_corpus_of_its_twin(
    paper: str, table: str, corpus: str, home: str, other: str
) -> None:
    said = f"^corpus={corpus}: table {table} has the settings of {home}; .* table={other}, or corpus={home}"
    with pytest.raises(InputError, match=said):
        Plan(Request(paper=paper, table=table, corpus=corpus))


@pytest.mark.parametrize(
    ("paper", "documents"), [("daniluk2017", "heading"), ("salton2017", "none"), ("li2020", "none")]
)
def test_the_documents_of_a_paper(paper: str, documents: str) -> None:
    for corpus, expected in (("wikitext-2", documents), ("ptb", "none"), ("cbt", "book-title"), ("mine", "none")):
        for row in PAPERS[paper].rows.values():
            assert chosen_text(row.preset.config.data, corpus, None).effective_documents == expected, row.name


def test_a_name_must_tell_the_word_class(tmp_path: Path) -> None:
    unnamed, named = tmp_path / "mine.txt", tmp_path / "mine_CN_test.txt"
    unnamed.write_text(QUESTION)
    named.write_text(QUESTION)
    with pytest.raises(InputError, match=r"mine\.txt.*NE, CN, V, P"):
        find_questions(None, (named, unnamed))
    assert find_questions(None, (named,)) == (named,)
    named.write_text("hello world\n")
    with pytest.raises(InputError, match=r"mine_CN_test\.txt: has no question; line 1: "):
        find_questions(None, (named,))
    named.write_text(f"hello world\n\n{QUESTION}")
    assert find_questions(None, (named,)) == (named,)
