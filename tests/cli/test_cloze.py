from __future__ import annotations

import gzip
import json
import math
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import spanlm
from spanlm.data.cbt import Defect, read_questions
from spanlm.evaluation.cloze import Accuracy, RankedQuestion
from tests.cli.conftest import Cli
from tests.conftest import TINY_WORDS

CONTEXTS = ["full", "query", "none"]


def make_block(seed: int) -> str:
    """A question whose answer is what the tiny language prefers; one of four has an answer that no model knows."""
    draw = random.Random(seed)
    sentences = [" ".join(draw.choices(TINY_WORDS, k=5)) for _ in range(20)]
    at = draw.randrange(len(TINY_WORDS) - 2)
    before, answer, after = TINY_WORDS[at : at + 3]
    if seed % 4 == 3:
        answer = "zebra"
    others = draw.sample([word for word in TINY_WORDS if word != answer], 3)
    query = f"the {before} XXXXX {after} .\t{answer}\t\t" + "|".join(sorted([answer, *others]))
    return "\n".join(f"{n} {line}" for n, line in enumerate([*sentences, query], start=1)) + "\n\n"


def without_gap(block: str) -> str:
    return block.replace("XXXXX", "gap")


def all_unknown(block: str) -> str:
    return re.sub(r"\t.*", "\tzebra\t\tzebra|gnu", block)


BLOCKS = [make_block(seed) for seed in range(12)]
BROKEN = [*BLOCKS[:4], without_gap(BLOCKS[4]), all_unknown(BLOCKS[5]), *BLOCKS[6:]]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Two files of questions: one whole, one with two defects."""
    (tmp_path / "cbtest_NE_test_2500ex.txt").write_text("".join(BLOCKS), encoding="utf-8")
    (tmp_path / "cbtlike_V_test.txt.gz").write_bytes(gzip.compress("".join(BROKEN).encode()))
    return tmp_path


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def ranked(run: Path, path: Path, contexts: list[Any]) -> list[RankedQuestion]:
    found = spanlm.load(run).cloze(path, contexts=contexts)
    return [item for item in found if isinstance(item, RankedQuestion)]


def test_the_table_shows_what_the_model_answers(cli: Cli, tiny_run: Path, files: Path) -> None:
    text = cli("cloze", tiny_run, "cbtest_NE_test_2500ex.txt").done
    expected = ranked(tiny_run, files / "cbtest_NE_test_2500ex.txt", ["full"])
    (row,) = [line for line in text.splitlines() if line.startswith("NE ")]
    cells = re.split(r" {2,}", row.strip())
    assert cells[:4] == ["NE", "cbtest_NE_test_2500ex.txt", "12", "0"]
    for by, shown, right in (("sentence", cells[4], cells[5]), ("candidate", cells[7], cells[8])):
        correct = sum(item.right(by) for item in expected)  # type: ignore[arg-type]
        accuracy = Accuracy(correct, 12)
        assert int(right) == correct > 0
        low, high = accuracy.interval or (0, 0)
        assert shown == f"{correct / 12:.1%} [{low:.1%}, {high:.1%}]"
    assert cells[-1] == "3", "answers outside the vocabulary"
    (known,) = [line for line in text.splitlines() if "answer in the vocabulary" in line]
    assert re.split(r" {2,}", known.strip())[1] == "9"
    assert "CBT-like" not in text


def test_files_that_are_only_like_cbt_are_labelled(cli: Cli, tiny_run: Path, files: Path) -> None:
    text = cli("cloze", tiny_run, "cbtlike_V_test.txt.gz").done
    assert "V (CBT-like)" in text
    assert "do not compare these accuracies with published ones" in text


def test_questions_that_cannot_be_scored_are_counted_and_told_with_their_lines(
    cli: Cli, tiny_run: Path, files: Path
) -> None:
    text = cli("cloze", tiny_run, "cbtlike_V_test.txt.gz", "--out", "r.jsonl").done
    assert "not scored: cbtlike_V_test.txt.gz, line 109: no XXXXX in the query sentence" in text
    assert "not scored: cbtlike_V_test.txt.gz, line 131: none of the 2 candidates is in the vocabulary" in text
    (row,) = [line for line in text.splitlines() if line.startswith("V ")]
    assert re.split(r" {2,}", row)[2:4] == ["10", "2"]
    found = records(files / "r.jsonl")
    assert [record["line"] for record in found] == list(range(21, 264, 22))
    assert [record["reason"] for record in found if "reason" in record] == [
        "no XXXXX in the query sentence",
        "none of the 2 candidates is in the vocabulary",
    ]


def test_of_very_many_defects_the_first_are_shown(cli: Cli, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text(BLOCKS[0] + without_gap(BLOCKS[0]) * 30)
    text = cli("cloze", tiny_run, "q.txt", "--out", "r.jsonl").done
    assert text.count("no XXXXX") == 20
    assert "not scored: 10 more of q.txt (--out lists all)" in text
    assert sum("reason" in record for record in records(tmp_path / "r.jsonl")) == 30


def test_records_are_the_models_own(cli: Cli, tiny_run: Path, files: Path) -> None:
    options = [option for context in CONTEXTS for option in ("--context", context)]
    assert cli("cloze", tiny_run, "cbtest_NE_test_2500ex.txt", *options, "--out", "r.jsonl").done
    found = records(files / "r.jsonl")
    expected = ranked(tiny_run, files / "cbtest_NE_test_2500ex.txt", CONTEXTS)
    assert len(found) == len(expected) == 36
    assert [(record["line"], record["context"]) for record in found] == [
        (21 + 22 * n, context) for n in range(12) for context in CONTEXTS
    ]
    for record, item in zip(found, expected, strict=True):
        assert record["class"] == "NE"
        assert record["file"] == "cbtest_NE_test_2500ex.txt"
        assert record["answer"] == item.question.answer
        assert record["candidates"] == list(item.question.candidates)
        assert record["sentence"] == pytest.approx(item.sentence)
        assert record["candidate"] == pytest.approx(item.candidate)
        assert record["oov"] == [word not in TINY_WORDS for word in record["candidates"]]


def test_json_holds_what_the_table_shows(cli: Cli, tiny_run: Path, files: Path) -> None:
    names = ["cbtest_NE_test_2500ex.txt", "cbtlike_V_test.txt.gz"]
    result = json.loads(cli("cloze", tiny_run, *names, "--json", "--context", "query", "--context", "none").done)
    assert [file["file"] for file in result["files"]] == names
    assert [(file["class"], file["cbt_like"]) for file in result["files"]] == [("NE", False), ("V", True)]
    assert [len(file["defects"]) for file in result["files"]] == [0, 2]
    for file, name in zip(result["files"], names, strict=True):
        assert list(file["contexts"]) == ["query", "none"]
        expected = ranked(tiny_run, files / name, ["query"])
        counts = file["contexts"]["query"]
        assert counts["questions"] == len(expected)
        assert counts["sentence"]["right"] == sum(item.right("sentence") for item in expected)
        assert counts["candidate"]["accuracy"] == sum(item.right("candidate") for item in expected) / len(expected)
    shares = [file["contexts"]["none"]["sentence"]["accuracy"] for file in result["files"]]
    assert result["macro"]["none"]["sentence"] == pytest.approx(sum(shares) / 2)


def test_a_model_of_single_sentences_reads_the_query_alone(cli: Cli, sentence_run: Path, files: Path) -> None:
    name = "cbtest_NE_test_2500ex.txt"
    text = cli("cloze", sentence_run, name).done
    assert "trained on lines that know nothing of each other: the sentences before a query are not read" in text
    assert "query: the query sentence alone" in text and "full:" not in text
    plain, asked = (
        json.loads(cli("cloze", sentence_run, name, "--json", *options).done)
        for options in ([], ["--context", "query"])
    )
    assert list(plain["files"][0]["contexts"]) == ["query"]
    assert plain == asked
    assert cli("cloze", sentence_run, name, "--context", "none").done
    cli("cloze", sentence_run, name, "--context", "query", "--context", "full", "--out", "r.jsonl").refused(
        "context=full: the model was trained on lines that know nothing of each other", "Take context query, or none."
    )
    assert not (files / "r.jsonl").exists()


def test_a_model_that_predicts_no_first_words(cli: Cli, unopened_run: Path, files: Path) -> None:
    """The first word of the query is read; where the gap is first, the question is told of and not scored."""
    lines = ["the XXXXX sat .\tcat\t\tcat|dog", "XXXXX sat on the mat .\tcat\t\tcat|dog"]
    (files / "first.txt").write_text("\n".join(["a dog ran .", lines[0], "", "a dog ran .", lines[1], ""]))
    text = cli("cloze", unopened_run, "first.txt", "--out", "r.jsonl").done
    assert "first.txt, line 5: the gap is the first word, which this model only reads" in text
    assert "not to predict it: that of a query has no part in its scores" in text
    record, defect = map(json.loads, (files / "r.jsonl").read_text().splitlines())
    rows = list(spanlm.load(unopened_run).score("the cat sat .", base=math.e, eos=True))
    assert record["sentence"][0] == pytest.approx(-sum(row.surprisal for row in rows[1:]), rel=1e-5)
    assert record["candidate"][0] == pytest.approx(-rows[1].surprisal, rel=1e-5)
    assert "sentence" not in defect
    cli("cloze", unopened_run, "first.txt", "--context", "none").refused("context=none: the candidate would be")


def test_a_model_of_running_text_is_not_told_so(cli: Cli, tiny_run: Path, files: Path) -> None:
    text = cli("cloze", tiny_run, "cbtest_NE_test_2500ex.txt").done
    assert "full: the context sentences" in text and "know nothing of each other" not in text


def test_the_same_context_twice_is_once(cli: Cli, tiny_run: Path, files: Path) -> None:
    result = json.loads(
        cli("cloze", tiny_run, "cbtest_NE_test_2500ex.txt", "--json", "--context", "full", "--context", "full").done
    )
    assert result["files"][0]["contexts"]["full"]["questions"] == 12


def test_the_mean_of_several_files(cli: Cli, tiny_run: Path, files: Path) -> None:
    text = cli("cloze", tiny_run, "cbtest_NE_test_2500ex.txt", "cbtlike_V_test.txt.gz").done
    assert "mean of 2 files" in text
    assert "mean of" not in cli("cloze", tiny_run, "cbtest_NE_test_2500ex.txt").done


def test_the_class_may_be_given(cli: Cli, tiny_run: Path, files: Path) -> None:
    result = json.loads(cli("cloze", tiny_run, "cbtest_NE_test_2500ex.txt", "--class", "names", "--json").done)
    assert result["files"][0]["class"] == "names"


def test_a_limit_is_of_each_file(cli: Cli, tiny_run: Path, files: Path) -> None:
    names = ["cbtest_NE_test_2500ex.txt", "cbtlike_V_test.txt.gz"]
    result = json.loads(cli("cloze", tiny_run, *names, "--limit", "5", "--json").done)
    assert [file["contexts"]["full"]["questions"] for file in result["files"]] == [5, 4]
    assert [len(file["defects"]) for file in result["files"]] == [0, 1]


def test_strict_stops_at_the_first_defect_and_writes_nothing(cli: Cli, tiny_run: Path, files: Path) -> None:
    (files / "r.jsonl").write_text("old")
    cli("cloze", tiny_run, "cbtlike_V_test.txt.gz", "--strict", "--out", "r.jsonl").refused(
        "cbtlike_V_test.txt.gz, line 109: no XXXXX in the query sentence", "--strict"
    )
    assert (files / "r.jsonl").read_text() == "old"
    assert cli("cloze", tiny_run, "cbtest_NE_test_2500ex.txt", "--strict").done


def test_batch_size_changes_no_answer(cli: Cli, tiny_run: Path, files: Path) -> None:
    for size, name in (("1", "one.jsonl"), ("5", "five.jsonl")):
        assert cli("cloze", tiny_run, "cbtest_NE_test_2500ex.txt", "--batch-size", size, "--out", name).done
    one, five = records(files / "one.jsonl"), records(files / "five.jsonl")
    for a, b in zip(one, five, strict=True):
        assert a.pop("sentence") == pytest.approx(b.pop("sentence"), rel=1e-5)
        assert a.pop("candidate") == pytest.approx(b.pop("candidate"), rel=1e-5)
        assert a == b


def test_questions_none_of_which_can_be_scored_are_an_error_after_the_report(
    cli: Cli, tiny_run: Path, tmp_path: Path
) -> None:
    (tmp_path / "q.txt").write_text(without_gap("".join(BLOCKS)))
    result = cli("cloze", tiny_run, "q.txt", "--out", "r.jsonl")
    result.refused("q.txt: no question could be scored", out=None)
    assert "q.txt, line 21: no XXXXX" in result.out
    assert len(records(tmp_path / "r.jsonl")) == 12


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["missing.txt"], ["missing.txt: no such file"]),
        (["cbtest_NE_test_2500ex.txt", "missing.txt"], ["missing.txt: no such file"]),
        (["empty.txt"], ["empty.txt: no question in it"]),
        (["."], ["a folder where a text file is needed"]),
        (["latin.txt"], ["latin.txt: not UTF-8 at byte 2"]),
        (["bad.gz"], ["bad.gz: damaged gzip file"]),
        ([], ["QUESTIONS"]),
        (["cbtest_NE_test_2500ex.txt", "--context", "half"], ["--context", "'half'"]),
        (["cbtest_NE_test_2500ex.txt", "--limit", "0"], ["--limit=0: must be at least 1"]),
        (["cbtest_NE_test_2500ex.txt", "--batch-size", "0"], ["--batch-size=0: must be at least 1"]),
        (["cbtest_NE_test_2500ex.txt", "--out", "nowhere/r.jsonl"], ["--out=nowhere/r.jsonl", "no folder nowhere"]),
        (["cbtest_NE_test_2500ex.txt", "--stric"], ["unknown option --stric", "Did you mean '--strict'?"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_bad_input_is_told_before_anything_is_ranked(
    cli: Cli, tiny_run: Path, files: Path, arguments: list[str], parts: list[str]
) -> None:
    (files / "empty.txt").write_text("\n")
    (files / "latin.txt").write_bytes(b"a \xff\n")
    (files / "bad.gz").write_bytes(b"no gzip")
    cli("cloze", tiny_run, *arguments).refused(*parts)


def test_every_file_is_looked_at_before_the_first_is_ranked(
    cli: Cli, tiny_run: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spanlm.runs.trained_model.rank_questions", lambda *_, **__: pytest.fail("too early"))
    cli("cloze", tiny_run, "cbtest_NE_test_2500ex.txt", "missing.txt").refused("missing.txt: no such file")


def test_a_run_that_is_none(cli: Cli, files: Path) -> None:
    cli("cloze", "nowhere", "cbtest_NE_test_2500ex.txt").refused("nowhere: is not the folder of a run")


@pytest.mark.parametrize("way", ["-", "/dev/stdin"])
def test_standard_input(cli: Cli, tiny_run: Path, files: Path, way: str) -> None:
    command = [sys.executable, "-m", "spanlm", "cloze", str(tiny_run), way, "--class", "NE", "--json"]
    found = subprocess.run(command, input="".join(BLOCKS).encode(), capture_output=True, timeout=60, check=False)
    assert (found.returncode, found.stderr) == (0, b"")
    (file,) = json.loads(found.stdout)["files"]
    expected = json.loads(cli("cloze", tiny_run, "cbtest_NE_test_2500ex.txt", "--json").done)["files"][0]
    assert file["contexts"]["full"]["questions"] == 12
    assert file["contexts"]["full"]["sentence"]["right"] == expected["contexts"]["full"]["sentence"]["right"]


def test_the_questions_of_these_tests_are_what_they_say(files: Path) -> None:
    found = list(read_questions(files / "cbtlike_V_test.txt.gz"))
    assert sum(isinstance(item, Defect) for item in found) == 1
    assert len(found) == 12
