"""A span buffer in evaluation: `--gate-temperature`, and what encoder and buffer are worth alone (`--parts`)."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import spanlm
from spanlm.evaluation.dynamic.statistics import DYNAMIC, gather_statistics
from spanlm.evaluation.perplexity import evaluate
from spanlm.evaluation.protocol import Protocol
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import SpanBufferConfig
from spanlm.runs.trained_model import TrainedModel
from tests.cases import rest_slow
from tests.cli.conftest import SMALL, Cli
from tests.cli.span_runs import CONFIG, GIVEN, flat


def by_hand(model: TrainedModel, temperature: float) -> LanguageModel:
    memory = model.config.model.memory
    assert isinstance(memory, SpanBufferConfig) and memory.gate.evaluation_temperature == 1.0
    rooms = replace(model.config.model, memory=memory.at_temperature(temperature))
    other = LanguageModel(rooms, len(model.vocabulary)).eval()
    other.load_state_dict(model.model.state_dict())
    return other


def test_it_is_the_model_that_is_configured_so(cli: Cli, span_run: Path) -> None:
    model = spanlm.load(span_run)
    for temperature in (0.1, 7.0):
        expected = evaluate(by_hand(model, temperature), model.corpus(), "test", protocol=Protocol(context="document"))
        found = json.loads(cli("evaluate", span_run, "--gate-temperature", temperature, "--json").done)
        assert found["nll"] == pytest.approx(expected.nll, rel=1e-12)
        assert found["gate_temperature"] == temperature
        assert found["nll"] != pytest.approx(model.evaluate().nll, rel=1e-6)
    assert model.config.model.memory.gate.evaluation_temperature == 1.0  # type: ignore[union-attr]


def test_the_temperature_is_printed(cli: Cli, span_run: Path, tiny_run: Path) -> None:
    assert "gate's T 1 perplexity " in flat(cli("evaluate", span_run).done)
    other = cli("evaluate", span_run, "--gate-temperature", 0.25).done
    assert "gate's T 0.25 in place of the run's 1 perplexity " in flat(other)
    assert json.loads(cli("evaluate", span_run, "--json").done)["gate_temperature"] == 1.0
    assert "gate_temperature" not in json.loads(cli("evaluate", tiny_run, "--json").done)


def test_parts_alone_are_what_they_were_at_any_temperature(cli: Cli, span_run: Path) -> None:
    """The temperature is of what mixes them; the lowest only chooses, and no number overflows."""
    one, other = (
        json.loads(cli("evaluate", span_run, "--parts", "--gate-temperature", temperature, "--json").done)
        for temperature in ("1", "1e-6")
    )
    assert one["parts"] == pytest.approx(other["parts"], rel=1e-6)
    assert other["parts"]["oracle"] < other["perplexity"] < math.inf
    assert one["nll"] != pytest.approx(other["nll"], rel=1e-6)


@pytest.mark.slow
def test_dynamic_evaluation_takes_statistics_of_the_likelihood_that_is_evaluated(cli: Cli, own_span_run: Path) -> None:
    """By hand those of a model that is configured so; in a file of their own, beside the run's, which stays."""
    model = spanlm.load(own_span_run)
    own = model.dynamic_statistics()
    found = json.loads(cli("evaluate", own_span_run, *GIVEN, "--gate-temperature", 0.2, "--json").done)
    expected = gather_statistics(by_hand(model, 0.2), model.corpus(), protocol=Protocol(context="document"))
    assert expected.mean != pytest.approx(own.mean, rel=1e-4)
    tempered = model.at_gate_temperature(0.2)
    by_these = tempered.evaluate(dynamic=CONFIG, statistics=expected)
    assert found["nll"] == pytest.approx(by_these.nll, rel=1e-12)
    others = replace(own, gate_temperature=0.2)
    assert found["nll"] != pytest.approx(tempered.evaluate(dynamic=CONFIG, statistics=others).nll, rel=1e-9)
    assert found["without_dynamic"]["nll"] == pytest.approx(tempered.evaluate().nll, rel=1e-9)
    again = tempered.dynamic_statistics()
    assert again.origin == f"read from {own_span_run / DYNAMIC}"
    assert found["nll"] != pytest.approx(model.evaluate(dynamic=CONFIG).nll, rel=1e-6)
    assert (own.gate_temperature, again.gate_temperature) == (1.0, 0.2)
    assert found["dynamic_statistics"]["gate_temperature"] == 0.2


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
    model, text, note = spanlm.load(span_run), (tmp_path / "text.txt").read_text(), "note: gate's T: 0.01 in place of"
    other = model.at_gate_temperature(0.01)
    scored = cli("score", span_run, "text.txt", "--gate-temperature", 0.01, "--format", "jsonl")
    assert scored.status == 0 and scored.err == f"{note} the run's 1\n"
    rows = [json.loads(line)["surprisal"] for line in scored.out.splitlines()]
    assert rows == [word.surprisal for word in other.score(text)]
    assert rows != [word.surprisal for word in model.score(text)]
    drawn = cli("generate", span_run, "--prompt", "the cat", "--length", 40, "--gate-temperature", 0.01)
    assert drawn.status == 0 and drawn.err == scored.err
    words = other.generate("the cat", length=40)
    assert drawn.out.split() == ["the", "cat", *(word for word in words if word != "<eos>")]
    assert other.generate("the cat", length=400) != model.generate("the cat", length=400)


# --- `--parts` ---


def test_the_table_has_each_part_and_the_bound(cli: Cli, span_run: Path) -> None:
    assert "oracle" not in cli("evaluate", span_run).done
    text, parts = flat(cli("evaluate", span_run, "--parts").done), spanlm.load(span_run).evaluate().parts
    assert parts is not None and parts.utilisation is not None and parts.oracle_utilisation is not None
    for number in (
        f"encoder alone {parts.encoder:.2f} ",
        f"buffer alone {parts.buffer:.2f};",
        f"oracle bound {parts.oracle:.2f}:",
        f"gate at T 1 {parts.untempered:.2f}:",
        f"equal shares {parts.equal:.2f}:",
        f" PoU {parts.utilisation:.2%} of {parts.remembering:,} tokens",
        f"oracle PoU {parts.oracle_utilisation:.2%}:",
        f"share {parts.gate:.3f} ",
        f"reward {parts.reward:.3f}",
    ):
        assert number in text


def test_lines_that_fit_in_no_span_have_no_shares(cli: Cli, span_run: Path, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("the\ncat\n")
    text = flat(cli("evaluate", span_run, "--corpus", "short.txt", "--state", "line", "--parts").done)
    assert "; at 4 tokens nothing is remembered" in text
    assert "PoU" not in text and "buffer's share" not in text


@pytest.mark.parametrize("state", rest_slow(["auto", "line"]))
def test_json_has_them_adapting_and_as_trained(cli: Cli, own_span_run: Path, state: Any) -> None:
    found = json.loads(cli("evaluate", own_span_run, "--parts", *GIVEN, "--state", state, "--json").done)
    result = spanlm.load(own_span_run).evaluate(state=state, dynamic=CONFIG)
    assert result.parts is not None and result.without_dynamic is not None
    plain = result.without_dynamic.parts
    assert plain is not None and result.parts.encoder != pytest.approx(plain.encoder, rel=1e-3)
    assert found["parts"] == pytest.approx(asdict(result.parts))
    assert found["without_dynamic"]["parts"] == pytest.approx(asdict(plain))


@pytest.mark.slow
@pytest.mark.parametrize("reads", ["merge"])
def test_whatever_q_reads_every_verb_takes_the_run(
    cli: Cli, tiny_corpus: Path, tmp_path: Path, reads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    buffer = (
        "--memory=span_buffer",
        "--model.memory.buffer_size=6",
        "--model.memory.span_length=2",
        "--model.output_dropout=0",
    )
    options = (f"--data.corpus={tiny_corpus}", *SMALL, *buffer, "--no-tour")
    cli("train", *options, f"--model.memory.reads={reads}", "--out=run").done  # noqa: B018 (refuses complaints)
    model = spanlm.load("run")
    assert model.config.model.memory.reads == reads  # type: ignore[union-attr]
    assert ("memory.read.weight" in model.model.state_dict()) == (reads == "merge")
    parts = json.loads(cli("evaluate", "run", "--parts", "--json").done)
    assert parts["parts"]["buffer"] != pytest.approx(parts["parts"]["encoder"], rel=1e-6)
    assert math.isfinite(json.loads(cli("evaluate", "run", *GIVEN, "--dynamic-loss", "training", "--json").done)["nll"])
    lesion = json.loads(cli("evaluate", "run", "--attention", "uniform", "--json").done)
    assert lesion["nll"] != pytest.approx(parts["nll"], rel=1e-9)
    assert "buffer alone" in flat(cli("attend", "run", "--text", "the cat sat on the mat").done)
    cli("train", *options, f"--model.memory.reads={reads}", "--out=run").refused("already holds a run", status=2)
    other = cli("train", *options, "--model.memory.reads=spans", "--out=run", "--resume=auto")
    other.refused("model.memory.reads", reads, "spans", out=None)
    cli("train", *options, "--model.memory.reads=both", "--out=other").refused("model.memory.reads=both", "merge")
