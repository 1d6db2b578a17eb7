"""`spanlm attend` of a model with a span buffer: what is printed is what the library says of the last word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import spanlm
from spanlm.analysis.spans import attend_spans
from spanlm.models.language_model import LanguageModel
from tests.cli.conftest import Cli

TEXT = "the cat sat\non the mat . the dog ran"
TARGETS = ["the", "cat", "sat", "<eos>", "on", "the", "mat", ".", "the", "dog", "ran", "<eos>"]


def test_the_last_word_is_told(cli: Cli, span_run: Path) -> None:
    said = cli("attend", span_run, "--text", TEXT).done
    model = spanlm.load(span_run)
    record = attend_spans(model.model, model.vocabulary, TARGETS)
    last = len(TARGETS) - 1
    flat = " ".join(said.split())
    assert "after <eos> the cat sat <eos> on the mat . the dog ran came <eos>" in flat
    for name, row in (
        ("buffer alone", record.buffer[last]),
        ("encoder alone", record.encoder[last]),
        ("both", record.mixture[last]),
    ):
        assert len(row) == 4
        assert f"{name} {', '.join(f'{word} {chance:.3f}' for word, chance in row)}" in flat
    preferred = "buffer" if record.gate[last] >= 0.5 else "encoder"
    assert f"gate λ {record.gate[last]:.3f}: the {preferred} is preferred" in flat
    looks = record.looks(last)
    assert f"it looked at {len(looks)} spans:" in said and len(looks) == 3
    for look in looks:
        assert f"{look.weight:.1%} {look.first}–{look.last} {record.words_of(look)}" in flat
    assert {record.words_of(look) for look in looks} == {"the dog", "mat .", "on the"}


def test_the_shortest_text_has_nothing_to_look_at(cli: Cli, span_run: Path) -> None:
    said = cli("attend", span_run, "--text", "the").done
    assert "it looked at nothing: no span has passed yet" in said
    assert "encoder alone" in said and "buffer alone" not in said and "gate" not in said


@pytest.mark.parametrize("suffix", ["json", "csv", "svg", "html"])
def test_files_are_those_of_the_library(cli: Cli, span_run: Path, suffix: str) -> None:
    assert cli("attend", span_run, "--text", TEXT, "--out", f"a.{suffix}").done == f"wrote a.{suffix}\n"
    text = Path(f"a.{suffix}").read_text(encoding="utf-8")
    if suffix == "json":
        assert [p["target"] for p in json.loads(text)["positions"]] == TARGETS
    else:
        assert {"csv": '"the dog"', "svg": "the dog: ", "html": '"dog"'}[suffix] in text


def test_a_stretch_of_the_corpus(cli: Cli, span_run: Path) -> None:
    said = cli("attend", span_run, "--split", "valid", "--from", 40, "--words", 30).done
    assert "tiny valid, tokens " in said and "span buffer, spans of 2, 6 steps back" in said
    assert "… " in said, "what stands farther back is left out"


@pytest.mark.parametrize("what", [("--by-lag",), ("--flatness",), ("--sentence", "the cat")], ids=str)
def test_what_is_told_of_words_is_refused(
    cli: Cli, span_run: Path, monkeypatch: pytest.MonkeyPatch, what: tuple[str, ...]
) -> None:
    monkeypatch.setattr(LanguageModel, "forward", lambda *_: pytest.fail("it was read"))
    cli("attend", span_run, *what).refused(f"{what[0]}: shows the weights of words", "looks at spans of 2", "--text")


def test_what_cannot_be_drawn_is_refused(cli: Cli, span_run: Path) -> None:
    cli("attend", span_run, "--text", TEXT, "--out", "a.npz").refused("a.npz: cannot write .npz")
    cli("attend", span_run, "--text", " ").refused("no words")
