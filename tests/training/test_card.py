"""README.md of a run: only what its folder records, the same for the same run, and never over a person's."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

import spanlm
from spanlm.config import RunConfig
from spanlm.data.config import CORPORA, corpus_licence, corpus_title
from spanlm.training.card import CARD, run_card
from spanlm.training.run import train
from tests.cases import rest_slow
from tests.training.small import CUT, Heard, make_config, make_corpus, with_training
from tests.training.test_signals import stopped_at


def front(folder: Path) -> dict[str, Any]:
    _, text, _ = (folder / CARD).read_text(encoding="utf-8").split("---\n", 2)
    tree: dict[str, Any] = yaml.safe_load(text)
    return tree


def test_the_number_is_that_of_evaluate_under_its_protocol(tmp_path: Path, tiny_config: RunConfig) -> None:
    """With the streams and the resets of validation."""
    for kind, state, size in (("streams", "carry", 3), ("documents", "document", 3), ("sentences", "line", 3)):
        batching = replace(tiny_config.training.batching, kind=kind, eval_batch_size=size)
        config = with_training(tiny_config, epochs=1, batching=batching)
        folder = tmp_path / kind
        corpus = spanlm.load_corpus(config.data)
        train(config, corpus, folder)
        (result,) = front(folder)["model-index"][0]["results"]
        (metric,) = result["metrics"]
        found = spanlm.load(folder, "cpu").evaluate(split="valid", state=state, batch_size=size)
        assert metric["value"] == pytest.approx(found.perplexity, rel=1e-4)
        assert metric["name"] == f"perplexity per token ({found.protocol})"
        assert result["dataset"] == {"type": "tiny", "name": "tiny", "split": "validation"}
        text = (folder / CARD).read_text(encoding="utf-8")
        assert all(digest in text for digest in corpus.texts.values()) and len(corpus.texts) == 3
        assert str(tmp_path) not in text and str(Path(config.data.corpus).parent) not in text


def test_first_words_that_are_not_predicted_are_said(room: Path) -> None:
    train(make_config(**CUT, shuffle=False, predict_first=False, epochs=1), make_corpus(), room)
    (result,) = front(room)["model-index"][0]["results"]
    assert "every token but the first of each line predicted once" in result["metrics"][0]["name"]


@pytest.mark.slow
def test_a_resumed_run_has_the_card_of_one_that_nothing_stopped(room: Path) -> None:
    train(make_config(), make_corpus(), room / "whole/run")
    stopped_at(make_config(), room / "stopped/run", 9)
    assert not (room / "stopped/run" / CARD).exists(), "it is not finished"
    train(make_config(), make_corpus(), room / "stopped/run", resume=True)
    expected, card = (room / "whole/run" / CARD).read_bytes(), room / "stopped/run" / CARD
    assert card.read_bytes() == expected
    card.unlink()
    train(make_config(), make_corpus(), room / "stopped/run", resume=True)
    assert card.read_bytes() == expected
    train(make_config(epochs=3), make_corpus(), room / "stopped/run", resume=True)
    assert card.read_bytes() != expected, "more epochs, another number"


@pytest.mark.parametrize("how", rest_slow(["changed", "written", "linked", "of bytes"], always=1))
def test_a_persons_file_stays(room: Path, how: str) -> None:
    folder, heard = room / "run", Heard()
    train(make_config(epochs=1), make_corpus(), folder)
    path = folder / CARD
    ours = path.read_text(encoding="utf-8")
    theirs = {"written": b"# My model\n", "changed": (ours.replace("seed 1", "seed 7")).encode(), "of bytes": b"\xff"}
    path.unlink()
    if how == "linked":
        (room / "elsewhere.md").write_text(ours)
        path.symlink_to(room / "elsewhere.md")
    else:
        path.write_bytes(theirs[how])
    before = path.read_bytes()
    train(make_config(epochs=2), make_corpus(), folder, heard, resume=True)
    assert path.read_bytes() == before and path.is_symlink() == (how == "linked")
    assert any("another hand, and stays" in note for note in heard.notes)


def test_nothing_is_made_up(room: Path) -> None:
    """A folder without its records, a changed network, and a revision have no number; no corpus but a known one has a
    licence or a language."""
    config = with_training(make_config(epochs=1), keep_at=[100])
    train(config, make_corpus(), room / "run")
    assert "licence" not in front(room / "run") and "language" not in front(room / "run")
    assert "its licence: not known to spanlm" in (room / "run" / CARD).read_text()
    other = replace(config.model, memory=replace(config.model.memory, window=2))
    bare = shutil.copytree(room / "run", room / "bare", ignore=lambda *_: ["checkpoints", "metrics.jsonl"])
    for folder, network in ((room / "run", other), (bare, None), (room / "run/revisions/100", None)):
        card = run_card(folder, config, 24, network)
        assert card.measured == [] and "No number is recorded for these weights." in card.text
    (room / "run/provenance.jsonl").write_text("damaged")
    assert "SHA-256 of its texts: not recorded" in run_card(room / "run", config, 24).text
    assert corpus_licence("my/ptb") == "" and corpus_title("/home/me/my text") == "my text"
    for name in ("demo", *CORPORA):
        text = run_card(room / "run", replace(config, data=replace(config.data, corpus=name)), 24).text
        assert "language: en\n" in text and f"datasets:\n- {name}\n" in text
        assert (corpus_licence(name) or "not known to spanlm") in text
    assert [name for name in CORPORA if not corpus_licence(name)] == ["cbt"]


def test_the_last_line_signs_the_rest(room: Path) -> None:
    train(make_config(epochs=1), make_corpus(), room)
    text = (room / CARD).read_text(encoding="utf-8")
    assert re.search(r"\n<!-- spanlm wrote this card; SHA-256 of what is above: [0-9a-f]{64} -->\n$", text)
    assert text == run_card(room, make_config(epochs=1), 24).text
