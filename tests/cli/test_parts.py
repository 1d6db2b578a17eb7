"""`spanlm evaluate --parts`: what is printed is what the library says, with and without dynamic evaluation."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import spanlm
from spanlm.models.language_model import LanguageModel
from tests.cli.conftest import Cli
from tests.cli.span_runs import CONFIG, GIVEN, flat


def test_the_table_has_each_part_and_the_bound(cli: Cli, span_run: Path) -> None:
    said = flat(cli("evaluate", span_run, "--parts").done)
    result = spanlm.load(span_run).evaluate()
    parts = result.parts
    assert parts is not None and parts.utilisation is not None and parts.oracle_utilisation is not None
    assert (
        f"perplexity {result.perplexity:.2f} encoder alone {parts.encoder:.2f} buffer alone {parts.buffer:.2f}; "
        in said
    )
    assert f"; at {result.tokens - parts.remembering:,} tokens nothing is remembered: there it is the encoder" in said
    assert f"oracle bound {parts.oracle:.2f}: at each token the better of the two" in said
    assert "chosen after the fact; no model's perplexity" in said
    assert f" PoU {parts.utilisation:.2%} of {parts.remembering:,} tokens" in said
    assert f"oracle PoU {parts.oracle_utilisation:.2%}: the buffer gives the token more" in said
    assert f"gate buffer's share {parts.gate:.3f} before the temperature (mean); mean reward {parts.reward:.3f}" in said
    assert parts.oracle < min(parts.encoder, parts.buffer, result.perplexity)


def test_unasked_the_table_is_of_the_model(cli: Cli, span_run: Path) -> None:
    said = cli("evaluate", span_run).done
    assert not any(word in said for word in ("alone", "oracle", "PoU", "reward"))


def test_lines_that_fit_in_no_span_have_no_shares(cli: Cli, span_run: Path, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("the\ncat\n")
    said = flat(cli("evaluate", span_run, "--corpus", "short.txt", "--state", "line", "--parts").done)
    assert "; at 4 tokens nothing is remembered" in said
    assert "PoU" not in said and "buffer's share" not in said


@pytest.mark.parametrize("state", ["auto", "carry", "line"])
def test_json_has_them_adapting_and_as_trained(cli: Cli, own_span_run: Path, state: Any) -> None:
    found = json.loads(cli("evaluate", own_span_run, "--parts", *GIVEN, "--state", state, "--json").done)
    result = spanlm.load(own_span_run).evaluate(state=state, dynamic=CONFIG)
    assert result.parts is not None and result.without_dynamic is not None
    plain = result.without_dynamic.parts
    assert plain is not None
    assert found["parts"] == pytest.approx(asdict(result.parts))
    assert found["without_dynamic"]["parts"] == pytest.approx(asdict(plain))
    assert result.parts.encoder != pytest.approx(plain.encoder, rel=1e-3)
    said = flat(cli("evaluate", own_span_run, "--parts", *GIVEN, "--state", state).done)
    assert f"encoder alone {result.parts.encoder:.2f} " in said


@pytest.mark.parametrize("options", [(), GIVEN], ids=["plain", "dynamic"])
def test_a_model_of_one_part_is_refused_before_it_reads(
    cli: Cli, tiny_run: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    monkeypatch.setattr(LanguageModel, "forward", lambda *_: pytest.fail("it was read"))
    cli("evaluate", tiny_run, "--parts", *options).refused(
        "--parts: this model has no span buffer (model.memory.kind=key_value)", "model.memory.kind=span_buffer"
    )


def test_several_runs_and_caches_are_refused_before_anything_is_loaded(cli: Cli) -> None:
    cli("evaluate", "a", "b", "--parts").refused("--parts: is for one run; take each of the 2 apart")
    cache = ("--cache", 5, "--cache-theta", 1, "--cache-lambda", 0.1)
    cli("evaluate", "a", "--parts", *cache).refused("--parts and --cache do not go together")
