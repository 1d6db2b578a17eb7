"""`spanlm attend` of a model with a span buffer: what is printed is what the library says of the last word."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import spanlm
from spanlm.errors import InputError
from spanlm.scoring.attention import attention_record
from tests.cli.conftest import Cli
from tests.cli.conftest import flat as on_one_line

TEXT = "the cat sat\non the mat . the dog ran"
TARGETS = ["the", "cat", "sat", "<eos>", "on", "the", "mat", ".", "the", "dog", "ran", "<eos>"]


def test_the_last_word_is_told(cli: Cli, span_run: Path) -> None:
    said = cli("attend", span_run, "--text", TEXT).done
    model = spanlm.load(span_run)
    record = attention_record(model.model, model.vocabulary, TARGETS, starts=(0, 4))
    last = len(TARGETS) - 1
    flat = " ".join(said.split())
    assert "after <eos> the cat sat <eos> on the mat . the dog ran came <eos>" in flat
    parts = record.parts
    assert parts is not None
    for name, part in (("buffer alone", "buffer"), ("encoder alone", "encoder"), ("both", "mixture")):
        row, came = parts.expected[part][last], parts.chance[part][last]
        assert len(row) == 4
        assert f'{name} {", ".join(f"{word} {chance:.3f}" for word, chance in row)}; "<eos>" {came:.3f}' in flat
    preferred, share = "buffer" if parts.preference[last] >= 0.5 else "encoder", f"{parts.preference[last]:.3f}"
    assert f"gate λ {share}, used as {share} (T 1): the {preferred} is preferred" in flat
    looks = record.looks(last)
    assert f"it looked at {len(looks)} spans:" in said and len(looks) == 3
    for look in looks:
        assert f"{look.weight:.1%} {look.first}–{look.last} {record.words_of(look)}" in flat
    assert {record.words_of(look) for look in looks} == {"the dog", "mat .", "on the"}


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


def test_the_gate_can_have_another_temperature(cli: Cli, span_run: Path) -> None:
    said = cli("attend", span_run, "--text", TEXT, "--gate-temperature", 0.2)
    assert (said.status, said.err) == (0, "note: gate's T: 0.2 in place of the run's 1\n")
    model = spanlm.load(span_run)
    record = attention_record(model.model, model.vocabulary, TARGETS, starts=(0, 4))
    assert record.parts is not None
    gate = record.parts.preference[-1]
    used = 1 / (1 + (1 / gate - 1) ** 5)
    assert f"gate λ {gate:.3f}, used as {used:.3f} (T 0.2): the" in on_one_line(said.out)


def test_the_shortest_text_has_nothing_to_look_at(cli: Cli, span_run: Path) -> None:
    said = cli("attend", span_run, "--text", "the").done
    assert "the buffer is empty: no span has ended yet" in said
    assert "encoder alone" in said and "buffer alone" not in said and "gate" not in said


def test_what_is_told_of_words_is_refused(cli: Cli, span_run: Path) -> None:
    said = cli("attend", span_run, "--sentence", "the cat")
    said.refused("--sentence: shows the weights of words", "looks at spans of 2", "--text")
    cli("attend", span_run, "--text", "the", "--out", "a.svg").refused("a.svg: there is no figure of spans", ".html")


def test_flatness_of_spans_beside_that_of_words(cli: Cli, span_run: Path, tiny_run: Path) -> None:
    words = cli("attend", tiny_run, "--flatness", "--split", "valid").done
    assert "newest" not in words and " spans " not in words
    lines = cli("attend", span_run, tiny_run, "--flatness", "--split", "valid", "--out", "a.json").done.splitlines()
    assert lines[1].startswith("spans, ")
    assert lines[2].split() == ["spans", "rows", "flatness", "largest", "newest", "equal"]
    assert any(line.split()[:4] == ["words", "rows", "flatness", "largest"] for line in lines)
    assert lines[-2] == "newest: mean share of the span that ended last"
    assert [run["span"] for run in json.loads(Path("a.json").read_text())["runs"]] == [2, 1]


def test_spans_by_lag(cli: Cli, span_run: Path) -> None:
    lines = cli("attend", span_run, "--by-lag", "--split", "valid", "--out", "a.json").done.splitlines()
    content = json.loads(Path("a.json").read_text())
    assert (content["lags"], content["span"], content["fixed"]) == ([5, 3, 1], 2, False)
    rows = [[f"−{lag}", f"{x:.1f}"] for lag, x in zip((5, 3, 1), content["measured_percent"], strict=True)]
    assert [line.split() for line in lines[2:5]] == rows
    assert "A span of 2 words stands at the lag of its last word; none ends at the lags between." in lines
    assert sum(content["measured_percent"]) == pytest.approx(100, abs=0.01)


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


def logged(run: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [row["parts"]["valid"] for row in rows if row["event"] == "valid"]


@pytest.fixture
def in_training(span_run: Path, tmp_path: Path) -> Path:
    """A run that has not saved a model yet."""
    folder = tmp_path / "in-training"
    folder.mkdir()
    shutil.copy(span_run / "metrics.jsonl", folder)
    return folder


def test_every_epoch_has_its_line(cli: Cli, in_training: Path) -> None:
    head, names, *rows, explained = cli("attend", in_training, "--by-epoch").done.splitlines()
    assert "valid, in percent" in head and names.split() == ["epoch", "in-training", "oracle"]
    assert [row.split() for row in rows] == [
        [str(n), f"{100 * parts['utilisation']:.1f}", f"{100 * parts['oracle_utilisation']:.1f}"]
        for n, parts in enumerate(logged(in_training), start=1)
    ]
    assert "λ ≥ ½" in explained


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
