import json
import math
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import spanlm
from spanlm.cli.main import main
from spanlm.models.ops.precision import usable
from spanlm.scoring.attention import attention_record
from spanlm.scoring.cache import cached_words
from spanlm.scoring.options import CacheConfig
from spanlm.store.plain import cell
from tests.cli.conftest import Cli, Typed, read_rows
from tests.conftest import TINY_WORDS

COLUMNS = ["sentence", "index", "word", "surprisal", "entropy", "rank", "oov"]
TEXT = 'the cat zebra\n\nnaïve 猫 "quoted\n<unk> sat .\n'


def table(text: str) -> list[dict[str, str]]:
    return read_rows(text, "\t")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_the_name_of_the_output_says_its_kind(cli: Cli, tiny_run: Path, file: Path) -> None:
    for name, options in (("o.csv", ["--format", "csv"]), ("o.jsonl", ["--format", "jsonl"]), ("o.txt", [])):
        expected = cli("score", tiny_run, file, *options).out
        cli("score", tiny_run, file, "--out", name)
        assert Path(name).read_text(encoding="utf-8") == expected
    rows = [word.word for word in spanlm.load(tiny_run).score(file)]
    assert rows == [row["word"] for row in table(cli("score", tiny_run, file).out)], "a path is a file to read"


@pytest.mark.parametrize("name", ["./text.txt", "link.txt"])
def test_what_is_read_is_never_written_over(cli: Cli, tiny_run: Path, file: Path, name: str) -> None:
    (file.parent / "link.txt").symlink_to(file)
    for verb in ("score", "cloze"):
        cli(verb, tiny_run, file, "--out", name).refused(f"--out={Path(name)}: is the file that is read")
    assert file.read_text(encoding="utf-8") == TEXT


def test_no_number_is_minus_zero() -> None:
    """A sum of shares can be a little more than 1."""
    assert [cell(number) for number in (-0.0, -1e-9)] == ["0.000000"] * 2


# --- a cache ---

CACHE = CacheConfig(window=7, theta=0.3, lambda_=0.2)
CACHED = ["--cache", "7", "--cache-theta", "0.3", "--cache-lambda", "0.2", "--eos", "--base", "e"]


def _in_parts(model: Any, parts: Sequence[str]) -> list[float]:
    """Surprisal with the cache, each part a text of its own, which the library reads in another way."""
    found: list[float] = []
    for part in parts:
        words, _ = model.texts.to_attend(part, "line" if not model.texts.predict_first else "carry")
        record = attention_record(model.model, model.vocabulary, words, features=True, looks=False)
        assert record.features is not None
        following = model.vocabulary.encode(record.targets)
        found += cached_words(record.features, following, record.surprisal, CACHE).surprisal.tolist()
    return found


@pytest.mark.parametrize("rows", ["tokens", "words"])
@pytest.mark.parametrize(("state", "breaks"), [("line", "\n"), ("document", "\n\n"), ("carry", "\n\n\n")])
def test_a_cache_begins_anew_where_the_context_does(
    cli: Cli, tiny_run: Path, tmp_path: Path, state: str, breaks: str, rows: str
) -> None:
    text = "the cat sat on the cat\nthe cat sat . zebra the\n\nthe dog ran to the zebra on the cat"
    (tmp_path / "text.txt").write_text(text + "\n")
    expected = _in_parts(spanlm.load(tiny_run), [part for part in text.split(breaks) if part])
    result = cli("score", tiny_run, "text.txt", "--state", state, "--rows", rows, *CACHED)
    assert result.status == 0 and "note: neural cache of the last 7 words" in result.err
    # the end of a blank line is one of the text, and what a document ends with is in no other's cache
    kept = [row for row in table(result.out) if row["sentence"] != "3" or state == "carry"]
    assert [float(row["surprisal"]) for row in kept] == pytest.approx(expected, abs=1e-5)
    assert {(row["entropy"], row["rank"]) for row in kept} == {("NaN", "NaN")}


@pytest.mark.parametrize("run", ["lstm_run", "unopened_run"])
def test_a_cache_is_tuned_as_it_is_used(cli: Cli, request: pytest.FixtureRequest, run: str) -> None:
    """The perplexity of the one point of a grid is that of the rows of the text that it was tuned on."""
    model = spanlm.load(request.getfixturevalue(run))
    valid = Path(model.config.data.corpus, "valid.txt")
    if model.texts.predict_first:  # other counts have more targets than rows with numbers
        tuning = model.tune_cache([7], over_lines=False, thetas=[CACHE.theta], lambdas=[CACHE.lambda_], state="line")
        rows = [row.surprisal for row in model.score(valid, state="line", eos=True, base=math.e, cache=CACHE)]
        assert math.exp(math.fsum(rows) / len(rows)) == pytest.approx(tuning.perplexity, rel=1e-5)
    file = cli("score", model.folder, valid, "--cache", "7", "--tune-cache", "--eos").out
    best = model.tune_cache([7], over_lines=False, state="line").best
    expected = [f"{row.surprisal:.6f}" for row in model.score(valid, state="line", eos=True, cache=best)]
    assert [row["surprisal"] for row in table(file)] == [text.replace("nan", "NaN") for text in expected]


def test_the_first_word_of_a_line_has_no_number_where_it_was_only_read_in_training(
    cli: Cli, unopened_run: Path, file: Path
) -> None:
    result = cli("score", unopened_run, file, "--eos")
    assert result.status == 0 and result.err.count("\n") == 1
    assert "note: the first word of each line has no surprisal" in result.err
    for row in table(result.out):
        numbers = [row[name] for name in ("surprisal", "entropy", "rank")]
        assert (numbers == ["NaN"] * 3) == (row["index"] == "1") and all(float(number) for number in numbers)
    first = json.loads(cli("score", unopened_run, file, "--format", "jsonl").out.partition("\n")[0])
    assert [first[name] for name in ("word", "surprisal", "entropy", "rank")] == ["the", None, None, None]


def test_an_error_leaves_the_old_file_and_no_other(cli: Cli, tiny_run: Path, file: Path, tmp_path: Path) -> None:
    (tmp_path / "s.tsv").write_text("old")
    before = sorted(path.name for path in tmp_path.iterdir())
    cli("score", tiny_run, file, "--oov", "error", "--out", tmp_path / "s.tsv").refused("line 1, word 3", "'zebra'")
    assert (tmp_path / "s.tsv").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_blank_text_has_a_header_alone(cli: Cli, tiny_run: Path) -> None:
    Path("blank.txt").write_text("\n \n")
    assert cli("score", tiny_run, "blank.txt").done == "\t".join(COLUMNS) + "\n"


def test_standard_input(cli: Cli, typed: Typed, tiny_run: Path, file: Path) -> None:
    expected = cli("score", tiny_run, file).done
    typed(TEXT.encode())
    assert cli("score", tiny_run).done == expected


@pytest.mark.slow
def test_a_note_says_that_a_terminal_is_read(cli: Cli, tiny_run: Path, file: Path) -> None:
    terminal, keys = pty.openpty()
    command = [sys.executable, "-m", "spanlm", "score", str(tiny_run)]
    with subprocess.Popen(command, stdin=keys, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        os.close(keys)
        os.write(terminal, TEXT.encode() + b"\x04")
        found, said = process.communicate(timeout=240)
    os.close(terminal)
    assert found == cli("score", tiny_run, file).done.encode()
    assert b"standard input" in said and b"Ctrl-D" in said and said.count(b"\n") == 1


@pytest.mark.slow
def test_what_is_no_prose_is_scored_only_if_asked_for(cli: Cli, typed: Typed, tiny_run: Path) -> None:
    Path("a.json").write_text('{"text": "the cat sat"}\n' * 6)
    for verb in (["score", tiny_run, "a.json"], ["attend", tiny_run, "--file", "a.json", "--out", "a.csv"]):
        cli(*verb).refused("a.json: JSON", "--as-text")
        assert cli(*verb, "--as-text").status == 0
    for text, part in {b'{"text": "the cat"}\n': "/dev/stdin", b"the\ncat\nsat <eos> on\n": "line 3"}.items():
        typed(text)
        cli("score", tiny_run, "-").refused(part, out=None)


def test_whatever_scores_takes_the_precision_of_products(cli: Cli, tiny_run: Path, file: Path) -> None:
    the, cat = TINY_WORDS[:2]
    Path("pairs.jsonl").write_text(f'{{"sentence_good": "{the} {cat}", "sentence_bad": "{cat} {the}"}}\n')
    Path("nbest.txt").write_text(f"u ||| {the} {cat} ||| AM= -1 ||| -1\nu ||| {cat} ||| AM= -2 ||| -2\n")
    Path("cloze.txt").write_text(f"1 {the} {cat}\n2 {the} XXXXX\t{cat}\t\t{the}|{cat}\n")
    for command in (
        ("pairs", tiny_run, "pairs.jsonl"),
        ("rescore", tiny_run, "--nbest", "nbest.txt", "--weights", "words=1"),
        ("cloze", tiny_run, "cloze.txt"),
    ):
        assert json.loads(cli(*command, "--precision", "bf16", "--json").done)["precision"] == usable("bf16", "cpu")
    rows = [cli("score", tiny_run, file, "--precision", precision).done for precision in ("bf16", "fp32")]
    assert (rows[0] != rows[1]) == (usable("bf16", "cpu") == "bf16")


NATURAL = "The dog isn't old, it's ill."


@pytest.fixture(scope="module")
def of_ptb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of a corpus that has the name, and the tokens, of the Penn Treebank."""
    folder = tmp_path_factory.mktemp("named") / "ptb"
    folder.mkdir()
    for split in ("train", "valid", "test"):
        (folder / f"ptb.{split}.txt").write_text("the dog is n't old it 's ill <unk> N\nmr. dog was ill.\n" * 4)
    how = ("--order", "2", "--ngram.fallback", "[0.5, 1, 1.5]", "--corpus", str(folder), "--out", str(folder / "kn2"))
    assert main(["train", "ngram", *how]) == 0
    return folder / "kn2"


def test_a_model_of_ptb_reads_stimuli_as_its_corpus_is_written(
    cli: Cli, of_ptb: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    path = tmp_path / "items.jsonl"
    path.write_text(json.dumps({"text": NATURAL}) + '\n{"text": "– dog"}\n{"text": "–"}\n')
    found = cli("score", of_ptb, path, "--text", "text")
    assert found.status == 0 and "'The' as 'the'; --as-written" in caplog.text
    rows = [json.loads(line) for line in found.out.splitlines()]
    assert [NATURAL[row["start"] : row["end"]] for row in rows[:6]] == NATURAL.split()
    assert [row["tokens"] for row in rows] == ["the", "dog", "is n't", "old", "it 's", "ill", "", "dog", "–"]
    assert [row["oov"] for row in rows] == [0] * 8 + [1] and rows[6]["surprisal"] is None
    plain = [json.loads(x) for x in cli("score", of_ptb, path, "--text", "text", "--as-written").out.splitlines()]
    assert [row["tokens"] for row in plain] == [*NATURAL.split(), "–", "dog", "–"]
    model = spanlm.load(of_ptb)
    for how, expected in ({}, "the dog is n't old it 's ill"), ({"as_written": True}, NATURAL):
        assert [word.word for word in model.score(NATURAL, **how)] == expected.split()
    assert model.score_texts([NATURAL])[0][0].oov == 0
    # of a corpus no word is written otherwise
    (tmp_path / "own.txt").write_text(f"{NATURAL}\nmr. dog was ill.\n")
    for corpus in (of_ptb.parent, tmp_path / "own.txt"):
        assert json.loads(cli("evaluate", of_ptb, "--corpus", corpus, "--json").done)["unk_tokens"] == 4
