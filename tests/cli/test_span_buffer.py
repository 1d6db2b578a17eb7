"""A span buffer in evaluation: `--gate-temperature`, and what encoder and buffer are worth alone (`--parts`)."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

import spanlm
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import SpanBufferConfig
from spanlm.scoring.dynamic.statistics import DYNAMIC
from spanlm.scoring.perplexity import evaluate
from spanlm.scoring.protocol import Protocol
from tests.cli.conftest import Cli, flat


def test_it_is_the_model_that_is_configured_so(cli: Cli, span_run: Path) -> None:
    model, temperature = spanlm.load(span_run), 0.1
    memory = model.config.model.memory
    assert isinstance(memory, SpanBufferConfig) and memory.gate.evaluation_temperature == 1.0
    rooms = replace(model.config.model, memory=memory.at_temperature(temperature))
    other = LanguageModel(rooms, len(model.vocabulary)).eval()
    other.load_state_dict(model.model.state_dict())
    expected = evaluate(other, model.corpus(), "test", protocol=Protocol(context="document"))
    found = json.loads(cli("evaluate", span_run, "--gate-temperature", temperature, "--json").done)
    assert found["nll"] == pytest.approx(expected.nll, rel=1e-12)
    assert found["gate_temperature"] == temperature
    assert found["nll"] != pytest.approx(model.evaluate().nll, rel=1e-6)
    assert "gate's T 0.1 in place of the run's 1" in flat(
        cli("evaluate", span_run, "--gate-temperature", temperature).done
    )


def test_parts_alone_are_what_they_were_at_any_temperature(cli: Cli, span_run: Path) -> None:
    """The temperature is of what mixes them; the lowest only chooses, and no number overflows."""
    one, other = (
        json.loads(cli("evaluate", span_run, "--parts", "--gate-temperature", temperature, "--json").done)
        for temperature in ("1", "1e-6")
    )
    assert one["parts"] == pytest.approx(other["parts"], rel=1e-6)
    assert other["parts"]["oracle"] < other["perplexity"] < math.inf
    assert one["nll"] != pytest.approx(other["nll"], rel=1e-6)


def test_statistics_of_another_temperature_are_not_taken_for_those_asked_for(own_span_run: Path) -> None:
    model = spanlm.load(own_span_run)
    tempered, path = model.at_gate_temperature(0.2), own_span_run / DYNAMIC
    expected = tempered.dynamic_statistics().mean
    assert f"({path}: is of temperature 0.2 of a gate, not 1.0)" in model.dynamic_statistics().origin
    found = tempered.dynamic_statistics()
    assert f"gathered anew ({path}: is of temperature 1.0 of a gate, not 0.2)" in found.origin
    assert found.mean == pytest.approx(expected, rel=1e-12)


def test_words_are_scored_and_drawn_with_it(cli: Cli, span_run: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("the cat sat on the mat .\nthe dog ran on\n")
    other, how = spanlm.load(span_run).at_gate_temperature(0.01), ("--gate-temperature", 0.01)
    scored = cli("score", span_run, "text.txt", *how, "--format", "jsonl")
    assert (scored.status, scored.err) == (0, "note: gate's T: 0.01 in place of the run's 1\n")
    rows = [json.loads(line)["surprisal"] for line in scored.out.splitlines()]
    assert rows == [word.surprisal for word in other.score(tmp_path / "text.txt")]
    drawn = cli("generate", span_run, "--prompt", "the cat", "--length", 40, *how)
    assert (drawn.status, drawn.err) == (0, scored.err)
    words = other.generate("the cat", length=40)
    assert drawn.out.split() == ["the", "cat", *(word for word in words if word != "<eos>")]


# --- `--parts` ---


def test_the_table_has_each_part_and_the_bound(cli: Cli, span_run: Path) -> None:
    assert "oracle" not in cli("evaluate", span_run).done
    text, parts = flat(cli("evaluate", span_run, "--parts").done), spanlm.load(span_run).evaluate().parts
    assert parts is not None
    for number in (parts.encoder, parts.buffer, parts.oracle, parts.untempered, parts.equal):
        assert f" {number:.2f}" in text
    assert f"PoU {parts.utilisation:.2%}" in text and f"share {parts.gate:.3f} " in text
