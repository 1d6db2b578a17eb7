"""`spanlm attend` of a model with a span buffer: what is printed is what the library says of the last word."""

import json
import re
import shutil
from pathlib import Path

import pytest

import spanlm
from spanlm.errors import InputError
from tests.cli.conftest import Cli
from tests.cli.conftest import flat as on_one_line

TEXT = "the cat sat\non the mat . the dog ran"


def test_python_records_both_in_one_call(span_run: Path, tiny_run: Path) -> None:
    model, of_words = spanlm.load(span_run), spanlm.load(tiny_run)
    record, same = model.attend(TEXT), model.attend_spans(TEXT)
    assert record.parts is not None and same.parts is not None
    assert record.span == 2 and record.parts.expected == same.parts.expected and model.has_spans
    assert record.expected == record.parts.expected["mixture"] and len(record.expected[0]) == 5
    assert of_words.attend(TEXT).parts is None
    with pytest.raises(InputError, match=r"has no span buffer; attend\(text\)"):
        of_words.attend_spans(TEXT)


def test_words_are_numbered_as_the_text_they_are_from(cli: Cli, span_run: Path) -> None:
    """The title's count, not the position in what was read of it; <eos> opens the stretch and is the token before."""
    where = ("--split", "valid", "--from", 40, "--words", 12)
    said, model = cli("attend", span_run, *where).done, spanlm.load(span_run)
    (start, end) = map(int, re.findall(r"tokens (\d+) to (\d+) of", said)[0])
    assert end == start + 11 and 30 < start <= 40
    tokens = model.corpus().splits["valid"].ids
    rows = re.findall(r"% +(\d+)–(\d+) +(.*)", said)
    assert len(rows) == 3 and int(rows[0][1]) < end
    for first, last, words in rows:
        assert [model.vocabulary.word(i) for i in tokens[int(first) - 1 : int(last)]] == words.split()


def test_the_shortest_text_has_nothing_to_look_at(cli: Cli, span_run: Path) -> None:
    said = cli("attend", span_run, "--text", "the").done
    assert "the buffer is empty: no span has ended yet" in said
    assert "encoder alone" in said and "buffer alone" not in said and "gate" not in said


def test_what_is_told_of_words_is_refused(cli: Cli, span_run: Path) -> None:
    said = cli("attend", span_run, "--sentence", "the cat")
    said.refused("--sentence: shows the weights of words", "looks at spans of 2", "--text")
    cli("attend", span_run, "--text", "the", "--out", "a.svg").refused("a.svg: there is no figure of spans", ".html")


def test_by_lag_spans_do_not_stand_beside_words(cli: Cli, span_run: Path, tiny_run: Path, lstm_run: Path) -> None:
    said = cli("attend", span_run, tiny_run, "--by-lag")
    said.refused("by lag: spans looks at spans of 2 words and tiny at words", "name one alone")
    cli("attend", span_run, lstm_run, "--by-lag").refused("attends to nothing")


def test_as_many_words_as_are_asked_for(cli: Cli, span_run: Path, tmp_path: Path) -> None:
    """Of each part, printed and in the data; what shows none refuses to be asked."""
    text = ("--text", "the cat sat on the mat .")
    printed = on_one_line(cli("attend", span_run, *text, "--top", 2).done)
    both = re.search(r"both (.*?);", printed)
    assert both is not None and both[1].count(", ") == 1
    cli("attend", span_run, *text, "--top", 7, "--out", tmp_path / "a.json")
    content = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert {len(position["mixture"]) for position in content["positions"]} == {7}
    cli("attend", span_run, *text, "--top", 0).refused("--top=0", "at least 1")
    cli("attend", span_run, "--flatness", "--top", 3).refused("--top", "--flatness")


# --- by epoch: from the log of a run, without its model ---


@pytest.fixture
def in_training(span_run: Path, tmp_path: Path) -> Path:
    """A run that has not saved a model yet."""
    folder = tmp_path / "in-training"
    folder.mkdir()
    shutil.copy(span_run / "metrics.jsonl", folder)
    return folder


def test_runs_of_different_lengths_stand_side_by_side(cli: Cli, span_run: Path, in_training: Path) -> None:
    metrics = in_training / "metrics.jsonl"
    last = [line for line in metrics.read_text(encoding="utf-8").splitlines() if '"valid", "step"' in line][-1]
    metrics.write_text(metrics.read_text(encoding="utf-8") + last + "\n", encoding="utf-8")
    *_, row, _ = cli("attend", span_run, in_training, "--by-epoch").done.splitlines()
    assert len(row.split()) == 3, "the first run has no such epoch"


@pytest.mark.parametrize("line", ["{", "5", "\xff", "[" * 10_000], ids=lambda line: line[:3])
def test_a_damaged_line_is_left_out(cli: Cli, in_training: Path, line: str, caplog: pytest.LogCaptureFixture) -> None:
    shown = cli("attend", in_training, "--by-epoch").done
    with (in_training / "metrics.jsonl").open("a", encoding="latin-1") as file:
        file.write(line + "\n")
    assert cli("attend", in_training, "--by-epoch").done == shown
    assert "metrics.jsonl: left out 1 row" in caplog.text


def test_what_cannot_be_told_is_refused(cli: Cli, tiny_run: Path, in_training: Path) -> None:
    cli("attend", tiny_run, "--by-epoch").refused("no span buffer to show")
    cli("attend", in_training, "--by-epoch", "--out", "a.html").refused("a.html: cannot write .html")
    cli("attend", in_training, "--by-epoch", "--by-lag").refused("--by-lag and --by-epoch do not go together")
    cli("attend", in_training, "--by-epoch", "--corpus", "ptb").refused("--corpus=ptb: is for", "not for --by-epoch")
    cli("attend", in_training, "--by-epoch", "--split", "test").refused("--split=test: is for", "not for --by-epoch")
    cli("attend", in_training, in_training, "--by-epoch").refused("is named twice")
