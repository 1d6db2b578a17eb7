"""Every table and figure of the papers can be run again, and what the figures of attention show."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from spanlm.analysis.snapshots import Snapshot, snapshot_figure
from spanlm.papers.page import Page, write_pages
from spanlm.papers.plan import Plan
from spanlm.papers.published.daniluk2017 import PAPER as DANILUK
from spanlm.papers.registry import NGRAM_PRESETS, PAPERS
from spanlm.papers.run import Outcome, Run, finished_before
from spanlm.papers.table import FilledTable
from spanlm.scoring.attention import Look
from tests.analysis.shown import assert_texts_apart, lines, texts
from tests.papers.records import cells, cloze, ended, plan, record

# in the order of the papers; their other figures are drawings of the models (Figure 1, and 2 of Li et al.), and their
# Table 5 has the settings of the presets
PRINTED = {
    "daniluk2017": ("Figure 2a", "Figure 2b", "Figure 2c", "Figure 2d", "Figure 3a", "Figure 3b"),
    "salton2017": ("Table 1", "Table 2", "Figure 2", "Figure 3"),
    "li2020": ("Table 1", "Table 2", "Table 3", "Table 4", "Figure 3", "Figure 4", "Figure 5"),
}


@pytest.mark.parametrize("paper", PRINTED)
def test_every_table_and_figure_of_a_paper_is_planned(tiny_corpus: Path, paper: str) -> None:
    made = plan(tiny_corpus, paper=paper, table=None)
    planned = {table.title.partition(":")[0]: table for table in made.tables}
    of_cbt = [table for table in made.paper.tables if table.corpus == "cbt"]  # which tests do not have
    assert set(PRINTED[paper]) <= {*planned, *(table.title.partition(":")[0] for table in of_cbt)}
    assert {task.row.name for task in made.tasks} == {row for table in made.tables for row in table.rows} - {
        *made.left_out
    }
    assert all(bool(table.rows) != (table.equation is not None) for table in made.tables)
    jobs = {(job.row.name, job.seed): job.measures for job in made.jobs}
    assert len(jobs) == len(made.jobs), "a row of several tables is run once"
    for (row, _), measures in jobs.items():
        assert set(measures) == {"perplexity", *(table.measure for table in made.tables if row in table.rows)}


def done(made: Plan, name: str) -> tuple[dict[str, Any], str]:
    """Run a plan of a row or two; return the first record, and the words of a figure."""
    outcomes = list(Run(made).outcomes())
    assert [outcome.error for outcome in outcomes] == [""] * len(made.tasks)
    assert name in {path.name for path in write_pages(made, outcomes)}
    assert f"]({name})" in (made.out / f"{name[:-4]}.md").read_text(encoding="utf-8")
    svg = (made.out / name).read_text(encoding="utf-8")
    assert outcomes[0].record is not None
    return outcomes[0].record, " ".join(ElementTree.fromstring(svg).itertext())


@pytest.mark.slow
def test_an_article_is_drawn_word_by_word_with_weights_that_sum_to_one(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, "kvp-w15", table="3a")
    found, shown = done(made, "figure-3a.svg")
    look = found["article"]
    sums = np.array(look["weights"]).sum(1)
    np.testing.assert_allclose(sums[1:], 1, atol=1e-4)
    assert sums[0] == 0 and len(look["weights"][0]) == 15, "nothing is remembered at the first word"
    assert look["words"][1:] == look["targets"][:-1]
    for word in (*look["words"], "Figure 3a", "words back", "−15", "word just read", "tiny test, document 1 of"):
        assert word in shown, word


@pytest.mark.slow
def test_sentences_are_drawn_by_both_scores(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, paper="salton2017", table="figure-3")
    found, shown = done(made, "figure-3.svg")
    (table,) = made.tables
    assert list(found["sentences"]) == [*made.paper.texts("sentences")] and len(table.texts) == 2
    for look in found["sentences"].values():
        np.testing.assert_allclose(np.array(look["weights"]).sum(1)[1:], 1, atol=1e-4)
    assert shown.index("combined score") < shown.index("single score") and "next word" in shown
    for word in (word for text in table.texts for word in text.lower().split()):
        assert word in shown.lower(), word


@pytest.mark.slow
def test_a_span_buffer_is_shown_at_one_word_with_what_each_part_expects(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, paper="li2020", table="figure-5")
    found, shown = done(made, "figure-5.svg")
    seen = Snapshot.from_json(found["buffer"])
    assert sum(look.weight for look in seen.looks) == pytest.approx(1, abs=1e-4)
    assert all(look.last - look.first + 1 == seen.span == 8 for look in seen.looks)
    assert " ".join(seen.words[seen.looks[0].first : seen.looks[0].last + 1]) in shown and "equal shares" in shown
    (grid,) = FilledTable(made.paper, next(x for x in made.paper.tables if x.name == "4"), [found]).grids()
    assert [row[0] for row in grid.rows] == ["SNB only", "Sequential RNN only", "Sequential RNN + SNB"]
    assert all(len(seen.expected[part]) == 4 for part in ("buffer", "encoder", "mixture"))
    assert grid.rows[0][3] == "payment, assist, money, sponsor" and f"“{seen.target}”" in grid.caption


def test_a_snapshot_names_the_strongest_spans_in_the_order_of_the_text() -> None:
    words = [f"w{n}" for n in range(80)]
    looks = [Look(4 * n, 4 * n + 3, (n + 1) / 210) for n in range(20)]
    snapshot = Snapshot("a text, token 81", words, "next", 4, looks, {}, {}, 0.5)
    assert Snapshot.from_json(snapshot.to_json()) == snapshot
    figure = snapshot_figure("a title", snapshot)
    shown = texts(figure)
    strongest = [text for text in shown if " %   " in text]
    assert len(strongest) == 16 and strongest[0].endswith("w16 w17 w18 w19") and strongest[-1].startswith("9.5 %")
    assert "all 20 spans" in shown and "−60" in shown and any("Next word: “next”" in text for text in shown)
    assert_texts_apart(figure)


def test_the_reward_is_drawn_from_its_equation_without_a_run(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, paper="li2020", table="figure-3")
    assert not made.tasks
    (drawn,) = Page(made, made.tables[0], []).figures().values()
    reward, ratio = (line for line in lines(drawn) if len(line.get_xdata()) > 2)
    curve = dict(zip(np.round(reward.get_xdata(), 6).tolist(), reward.get_ydata().tolist(), strict=True))
    assert (curve[0], curve[1], curve[2]) == pytest.approx((-3, 0, 9))
    assert curve[1.2] == pytest.approx(1.2**5 - 1) and curve[0.5] == pytest.approx(3 * (0.5**5 - 1))
    assert ratio.get_ydata().tolist() == ratio.get_xdata().tolist()
    assert {path.name for path in write_pages(made, [])} == {"figure-3.md", "figure-3.svg"}
    page = (made.out / "figure-3.md").read_text()
    assert "κ = 5" in page and "Corpus" not in page and "not run" not in page


@pytest.mark.parametrize("name", [None, "transformer-w5"])
def test_windows_of_no_paper_are_drawn_from_one_row_and_from_none(tiny_corpus: Path, name: str | None) -> None:
    made = plan(tiny_corpus, paper="neighbours", table="2")
    rows = [Outcome(task, record(name, 80.0)) for task in made.tasks if task.row.name == name]
    drawn = Page(made, made.tables[0], rows).figures()
    assert [*drawn] == (["figure-2.svg"] if name else [])
    assert all("measured on tiny" in " ".join(texts(figure)) for figure in drawn.values())


def test_a_table_whose_only_row_collapsed_has_a_page_and_no_figure(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, paper="neighbours", table="1")
    run = record("span-buffer", 9_000.0)
    (task,) = (task for task in made.tasks if task.row.name == "span-buffer")
    page = Page(made, made.tables[0], [Outcome(task, run)])
    assert page.figures() == {} and "| Span buffer of 100, q sees h_t, too |" in page.markdown()


@pytest.fixture
def questions(tmp_path: Path) -> tuple[Path]:
    path = tmp_path / "tiny_CN_test.txt"
    path.write_text("".join(f"{n} the cat\n" for n in range(1, 21)) + "21 the XXXXX sat\tcat\t\tcat|dog\n\n")
    return (path,)


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figure 2d on any text, since tests have no Children's Book Test."""
    (table,) = (table for table in DANILUK.tables if table.name == "2d")
    monkeypatch.setitem(PAPERS, DANILUK.name, replace(DANILUK, tables=(replace(table, corpus=None),)))


@pytest.mark.usefixtures("anywhere")
def test_an_ngram_row_is_counted_once_whatever_the_seeds(tiny_corpus: Path, questions: tuple[Path]) -> None:
    asked: dict[str, Any] = {"table": "2d", "seeds": (1, 2), "questions": questions}
    made = plan(tiny_corpus, "kn-5", "kn-5-cache", **asked)
    assert [task.record.name for task in made.tasks] == ["kn-5.json", "kn-5-cache.json"]
    outcomes = list(Run(made).outcomes())
    plain, cached = (outcome.record for outcome in outcomes)
    assert plain is not None and cached is not None, outcomes
    assert plain["test"]["tokens"] == len(made.corpus.splits["test"]) and "seed" not in plain
    assert 0 < cached["details"]["cache"]["lambda"] < 1 and cached["valid"]["nll"] < plain["valid"]["nll"]
    assert plain["cloze"]["classes"]["CN"]["sentence"]["questions"] == 1
    again = list(Run(plan(tiny_corpus, "kn-5", "kn-5-cache", **asked)).outcomes())
    assert all(outcome.done_before for outcome in again)
    made.tasks[0].record.unlink()
    (first, _) = Run(made).outcomes()
    assert first.record is not None and first.record["test"]["nll"] == plain["test"]["nll"], "not counted again"


@pytest.mark.usefixtures("anywhere")
def test_answers_to_other_questions_are_not_of_this_table(tiny_corpus: Path, questions: tuple[Path]) -> None:
    list(Run(plan(tiny_corpus, "kn-5", table="2d", questions=questions)).outcomes())
    others = (questions[0].rename(questions[0].with_name("other_NE_test.txt")),)
    other = plan(tiny_corpus, "kn-5-cache", table="2d", questions=others)
    (before,) = finished_before(other)
    assert before.record is not None and before.record["row"] == "kn-5" and "cloze" not in before.record
    assert write_pages(other, [before]), "a page without a figure, since no class has been asked"
    (again,) = Run(plan(tiny_corpus, "kn-5", table="2d", questions=others)).outcomes()
    assert again.record is not None and again.record["cloze"]["files"] == ["other_NE_test.txt"]
    assert not again.done_before


@pytest.mark.usefixtures("anywhere")
def test_figure_2d_has_what_the_paper_quotes_and_the_text_of_its_numbers(
    tiny_corpus: Path, questions: tuple[Path]
) -> None:
    made = plan(tiny_corpus, table="2d", questions=questions)
    rows = [*ended("lstm", 90.0, cloze=cloze(0.5)), record("kn-5", 70.0, cloze=cloze(0.4))]
    *_, published = FilledTable(made.paper, made.tables[0], rows).grids()
    found = cells(published)
    assert found["LSTM"]["quoted from"] == "–" and found["Kneser-Ney LM"]["quoted from"] == "Hill et al. 2016"
    assert tuple(found["EpiReader, ensemble"].values()) == ("0.718", "0.706", "–", "–", "Trischler et al. 2016")
    assert found["Humans (context + query)"]["paper: prepositions"] == "0.708"
    assert len(found) == 2 + 10, "those that were run, and all that are only quoted"
    page = "\n".join(Page(made, made.tables[0], []).protocol())
    assert "the Children's Book Test" in page and "Wikipedia" not in page
    assert not {task.row.title for task in made.tasks} & {quoted.title for quoted in made.tables[0].quoted}
    assert {name for name in NGRAM_PRESETS if "daniluk" in name} <= {task.row.preset.name for task in made.tasks}


def test_figure_2c_has_both_counts_of_parameters_beside_the_papers() -> None:
    (table,) = (table for table in DANILUK.tables if table.name == "2c")
    rows = [one for name in ("lstm", "rm-w15") for one in ended(name, 90.0)]
    (grid,) = FilledTable(DANILUK, table, rows).grids()
    columns = ("θ_M", "paper: θ_M", "θ_W+M", "paper: θ_W+M")
    assert [cells(grid)["RM(+tM-g), window 15"][name] for name in columns] == ["1.23M", "70.6M", "2.35M", "93.7M"]
    assert cells(grid)["LSTM"]["paper: θ_W+M"] == "47M"
