import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.conftest import TINY_WORDS


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


def test_questions_that_cannot_be_scored_are_shown_and_recorded_with_their_lines(
    cli: Cli, tiny_run: Path, files: Path
) -> None:
    command = ("cloze", tiny_run, "cbtlike_V_test.txt.gz", "--out", "r.jsonl")
    text = cli(*command).done
    reasons = {record["line"]: record["reason"] for record in records(files / "r.jsonl") if "reason" in record}
    assert [*reasons] == [109, 131]
    assert "V (CBT-like)" in text and "do not compare these accuracies with published ones" in text
    for line, reason in reasons.items():
        assert f"cbtlike_V_test.txt.gz, line {line}: {reason}" in text
    (files / "r.jsonl").write_text("old")
    cli(*command, "--strict").refused("cbtlike_V_test.txt.gz, line 109")
    assert (files / "r.jsonl").read_text() == "old"
    # an error comes after the report
    (files / "q.txt").write_text(without_gap("".join(BLOCKS)))
    cli("cloze", tiny_run, "q.txt", "--out", "r.jsonl").refused("q.txt: no question could be scored", out=None)
    assert len(records(files / "r.jsonl")) == 12


def test_json_holds_the_tallies_of_the_model(cli: Cli, tiny_run: Path, files: Path) -> None:
    names = ["cbtest_NE_test_2500ex.txt", "cbtlike_V_test.txt.gz"]
    result = json.loads(cli("cloze", tiny_run, *names, "--json", "--context", "query", "--context", "full").done)
    found = [(file["file"], file["class"], file["cbt_like"], len(file["defects"])) for file in result["files"]]
    assert found == [(names[0], "NE", False, 0), (names[1], "V", True, 2)]
    assert [list(file["contexts"]) for file in result["files"]] == [["query", "full"]] * 2
    few = json.loads(cli("cloze", tiny_run, *names, "--limit", "5", "--class", "names", "--json").done)["files"]
    assert [(file["contexts"]["full"]["questions"], len(file["defects"])) for file in few] == [(5, 0), (4, 1)]


def test_a_model_of_single_sentences_reads_the_query_alone(cli: Cli, sentence_run: Path, files: Path) -> None:
    command = ["cloze", sentence_run, "cbtest_NE_test_2500ex.txt"]
    plain, asked = (json.loads(cli(*command, "--json", *more).done) for more in ([], ["--context", "query"]))
    assert plain == asked and list(plain["files"][0]["contexts"]) == ["query"]
    cli(*command, "--context", "query", "--context", "full", "--out", "r.jsonl").refused(
        "context=full: the model was trained on independent lines", "Take context query."
    )
    assert not (files / "r.jsonl").exists()
