"""`spanlm rescore`: lists in, weights, the best of each out; the library's numbers are tested beside it."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, read_rows
from tests.conftest import TINY_WORDS

A, B, C, D = TINY_WORDS[:4]
LISTS = f"u1 ||| {A} {A} {C} ||| AM= -1 ||| -1\nu1 ||| {A} {B} {C} ||| AM= -1.5 ||| -1.5\n"
LISTS += f"u2 ||| {D} ||| AM= -2 ||| -2\nu2 |||  ||| AM= -2.5 ||| -2.5\n"
REFERENCES = f"u2 {D}\nu1 {A} {B} {C}\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "n.txt").write_text(LISTS)
    (tmp_path / "r.txt").write_text(REFERENCES)
    return tmp_path / "n.txt", tmp_path / "r.txt"


def rows(path: Path) -> list[dict[str, str]]:
    return read_rows(path.read_text(encoding="utf-8"), "\t")


def test_utterances_without_hypotheses_count_and_those_without_a_list_are_named(
    cli: Cli, tiny_run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hypotheses = json.dumps([{"text": f"{A} {B}", "am": -1}])
    (tmp_path / "n.jsonl").write_text(f'{{"id": "u1", "hyps": []}}\n{{"id": "u2", "hyps": {hypotheses}}}\n')
    (tmp_path / "r").write_text(f"u1 {C} {D}\nu2 {A} {B}\nu3 {A}\nu4 {B}\n")
    command = ("rescore", tiny_run, "--nbest", "n.jsonl", "--refs", "r", "--weights", "words=1", "--out", "o", "--json")
    errors = json.loads(cli(*command).done)["errors"]["rescored"]
    assert errors["word_error_rate"] == 0.5 and errors["interval"] == [None, None]
    assert "–" in cli(*command[:-1]).done
    assert "no hypotheses of u1;" in caplog.text and "no list of u3 and 1 more" in caplog.text
    assert (tmp_path / "o").read_text() == f"u1\nu2 {A} {B}\n"


def test_tuned_weights_are_taken_again_from_what_is_printed_and_from_a_file(
    cli: Cli, tiny_run: Path, files: tuple[Path, Path]
) -> None:
    lists, references = files
    command = ("rescore", tiny_run, "--nbest", lists, "--refs", references)
    found = json.loads(cli(*command, "--tune", "--json").done)
    shown = cli(*command, "--tune").done
    again = shown[shown.index("--weights") :].split()[1:]
    same = json.loads(cli(*command, "--weights", *again, "--json").done)
    assert found["tuned"]["optimum"] == "local" and same["errors"] == found["errors"]
    Path("tuned.json").write_text(json.dumps(found))
    assert json.loads(cli(*command, "--weights", "tuned.json", "--json").done)["weights"] == found["weights"]
    Path("n").write_text(f"u1-1 {A}\nu1-2 {A} {B}\n")
    Path("r").write_text(f"u1 {A} {B}\n")
    one = json.loads(cli("rescore", tiny_run, "--nbest", "n", "--refs", "r", "--tune", "--json").done)
    assert one["tuned"]["optimum"] == "exact", "one weight"


def test_noise_words_are_in_no_score_and_no_error_but_are_written(cli: Cli, tiny_run: Path) -> None:
    Path("n").write_text(f"u ||| -pau- {A} {B} ||| LM= -1 ||| -1\n")
    Path("clean").write_text(f"u ||| {A} {B} ||| LM= -1 ||| -1\n")
    Path("r").write_text(f"{A} [laugh] {B} (u)\n")
    options = ("--refs", "r", "--weights", "words=0", "--leave-out", "-pau-,[laugh]", "--json")
    noisy = json.loads(cli("rescore", tiny_run, "--nbest", "n", *options, "--scores", "s", "--out", "o").done)
    assert noisy == json.loads(cli("rescore", tiny_run, "--nbest", "clean", *options).done)
    assert noisy["errors"]["rescored"]["word_error_rate"] == 0
    assert rows(Path("s"))[0]["words"] == "2.000000" and "-pau-" in Path("o").read_text()
    Path("r").write_text("[laugh] (u)\n")
    told = json.loads(cli("rescore", tiny_run, "--nbest", "n", *options).done)
    assert told["errors"]["first"]["word_error_rate"] is None, "references have no words"


def test_other_case_and_punctuation_are_noted(cli: Cli, tiny_run: Path, files: tuple[Path, Path]) -> None:
    command = ("rescore", tiny_run, "--nbest", files[0], "--weights", "words=0", "--refs")
    Path("r").write_text(f"u2 {D.upper()}.\nu1 {A.upper()}, {B} {C}\n")
    note = cli(*command, "r").err
    assert "75.00%" in note and "25.00%" in note
    assert "note" not in cli(*command, files[1]).err


def test_bad_rows_are_noted_or_refused(
    cli: Cli, tiny_run: Path, files: tuple[Path, Path], caplog: pytest.LogCaptureFixture
) -> None:
    Path("bad").write_text(LISTS + f"u2 ||| {A} ||| AM= 1_0 ||| -1\n")
    command = ("rescore", tiny_run, "--nbest", "bad", "--weights", "words=0")
    assert json.loads(cli(*command, "--json").done)["hypotheses"] == 4
    assert "line 5" in caplog.text and "1 of 5" in caplog.text
    cli(*command, "--strict").refused("line 5")


def test_lists_that_only_their_size_parts_are_written_whole(cli: Cli, tiny_run: Path) -> None:
    rows = [f"{words}\t{score}" for words, score in (("a b", -1), ("a", "nan"), ("a c", -2)) for _ in (1,)] * 3
    Path("n.tsv").write_text("\n".join(rows) + "\n")
    how = ("--nbest", "n.tsv", "--list-size", "3", "--weights", "total=1")
    assert cli("rescore", tiny_run, *how, "--out", "best.txt").status == 0
    cli("rescore", tiny_run, *how, "--nbest-out", "o.tsv").refused("--nbest-out=o.tsv", "known by their size, 3")


def test_a_score_called_as_a_column_is_refused(cli: Cli, tiny_run: Path) -> None:
    Path("n.jsonl").write_text('{"id":"u","hyps":[{"text":"a","score":-1.5,"rank":1}]}\n')
    how = ("rescore", tiny_run, "--nbest", "n.jsonl", "--weights", "score=1")
    cli(*how, "--scores", "s.tsv").refused("--scores: has a column rank")


def test_without_scores_of_its_own_a_list_is_ranked_by_the_model(cli: Cli, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "n").write_text(f"u1-1 {A} {A} {A} {A}\nu1-2 {A}\n")
    cli("rescore", tiny_run, "--nbest", tmp_path / "n", "--out", tmp_path / "o")
    assert (tmp_path / "o").read_text() == f"u1 {A}\n"  # more words are less probable
