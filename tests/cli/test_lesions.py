"""`--attention`: what verbs print of a model with a lesion is what the library says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import spanlm
from spanlm.errors import InputError
from spanlm.scoring.options import DynamicConfig
from tests.cli.conftest import Cli, flat
from tests.cli.test_cloze import make_block
from tests.conftest import TINY_WORDS

TEXT = " ".join(TINY_WORDS[:6])


def test_every_verb_has_it_and_says_so(cli: Cli, tiny_run: Path, tmp_path: Path) -> None:
    how, words = "window=2", "the nearest 2 slots alone"
    option, changed = ("--attention", how), spanlm.load(tiny_run).with_attention(how)
    note = f"note: attention: {how}: {words}; not trained so\n"
    found = json.loads(cli("evaluate", tiny_run, *option, "--json").done)
    assert (found["attention"], found["perplexity"]) == (how, changed.evaluate().perplexity)
    assert f"attention {how}: {words}; not trained so" in flat(cli("evaluate", tiny_run, *option).done)

    (tmp_path / "t.txt").write_text(f"{TEXT}\n")
    scored = cli("score", tiny_run, "t.txt", *option, "--format", "jsonl")
    rows = [json.loads(line)["surprisal"] for line in scored.out.splitlines()]
    assert (rows, scored.err) == ([word.surprisal for word in changed.score(TEXT)], note)
    (tmp_path / "t.csv").write_text(f"text\n{TEXT}\n")
    assert cli("score", tiny_run, "t.csv", "--text", "text", *option, "--out", "s.csv").status == 0
    assert json.loads((tmp_path / "s.csv.meta.json").read_text())["attention"] == how

    pair = {"sentence_good": TEXT, "sentence_bad": f"{TEXT} {TINY_WORDS[0]}"}
    (tmp_path / "p.jsonl").write_text(json.dumps(pair) + "\n")
    assert cli("pairs", tiny_run, "p.jsonl", *option, "--out", "o").err == note
    answer = json.loads((tmp_path / "o").read_text())
    assert answer["good"] == pytest.approx(changed.compare(*pair.values()).good, abs=1e-9)
    (tmp_path / "q.txt").write_text(make_block(1))
    assert json.loads(cli("cloze", tiny_run, "q.txt", *option, "--json").done)["attention"] == how


def test_a_gate_keeps_its_temperature_in_either_order(span_run: Path) -> None:
    model = spanlm.load(span_run)
    found = {
        (changed.attention, changed.gate_temperature, changed.evaluate().perplexity)
        for changed in (
            model.at_gate_temperature(0.2).with_attention("window=1"),
            model.with_attention("window=1").at_gate_temperature(0.2),
            model.with_attention("none").at_gate_temperature(0.2).with_attention("window=1"),
        )
    }
    assert len(found) == 1 and {each[:2] for each in found} == {("window=1", 0.2)}


def test_of_several_runs_each_has_it(cli: Cli, tiny_run: Path, span_run: Path) -> None:
    found = json.loads(cli("evaluate", tiny_run, span_run, "--attention", "none", "--json").done)
    alone = [spanlm.load(run).with_attention("none").evaluate().nll for run in (tiny_run, span_run)]
    assert [member["nll"] for member in found["members"]] == pytest.approx(alone, rel=1e-6)
    assert found["attention"] == "none"


def test_weights_that_follow_the_text_have_none(tiny_run: Path) -> None:
    model = spanlm.load(tiny_run).with_attention("uniform")
    for refused in (lambda: model.evaluate(dynamic=DynamicConfig()), model.tune_dynamic):
        with pytest.raises(InputError, match="attention=uniform: dynamic evaluation"):
            refused()
