"""`spanlm VERB RUN RUN …`: several runs where a verb takes one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import spanlm
from tests.cli.conftest import Cli
from tests.cli.test_cloze import BLOCKS


@pytest.fixture
def both(tiny_run: Path, lstm_run: Path) -> list[Path]:
    return [tiny_run, lstm_run]


def expected(both: list[Path], split: Any = "test", state: Any = "auto", **options: Any) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(
        json.dumps(spanlm.load_ensemble(both, **options).evaluate_members(split=split, state=state).to_json())
    )
    return result


def without_clock(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: without_clock(value) for name, value in values.items() if name != "tokens_per_second"}
    return [without_clock(value) for value in values] if isinstance(values, list) else values


@pytest.mark.parametrize(
    ("options", "how"),
    [
        ([], {}),
        (["--combine", "geometric"], {"combination": "geometric"}),
        (["--weights", "3", "1", "--combine", "linear"], {"weights": [3, 1]}),
        (["--split", "valid", "--weights", "0", "1"], {"split": "valid", "weights": [0, 1]}),
    ],
    ids=str,
)
def test_json_is_the_evaluation(cli: Cli, both: list[Path], options: list[str], how: dict[str, Any]) -> None:
    out = cli("evaluate", *both, *options, "--json").done
    assert out.count("\n") == 1
    found, right = json.loads(out), expected(both, **how)
    for member, run in zip(found["members"], both, strict=True):
        assert member.pop("run") == str(run)
    assert found.pop("runs") == [str(run) for run in both]
    found.pop("notes")
    assert found.pop("precision") == "fp32"
    assert without_clock(found) == without_clock(right)


def test_the_precision_is_as_asked_for(cli: Cli, both: list[Path]) -> None:
    found = json.loads(cli("evaluate", *both, "--precision", "bf16", "--json").done)
    ensemble = spanlm.load_ensemble(both)
    right, usual = ensemble.evaluate_members(precision="bf16"), ensemble.evaluate_members()
    assert right.ensemble.nll != pytest.approx(usual.ensemble.nll, rel=1e-7), "else a dropped option is not seen"
    assert found["ensemble"]["nll"] == pytest.approx(right.ensemble.nll, rel=1e-9)


def test_the_table_has_every_number(cli: Cli, both: list[Path]) -> None:
    out, right = cli("evaluate", *both, "--state", "line").done, expected(both, state="line")
    for result in (*right["members"], right["ensemble"]):
        counts = result["salton2017"]["perplexity"], result["salton2017"]["perplexity_per_predicted"]
        numbers = result["perplexity"], *counts, result["perplexity_without_unk"]
        (row,) = [line for line in out.splitlines() if all(f" {number:.2f}" in line for number in numbers)]
        assert row.endswith(f"{result['nll_per_token']:.4f}")
    assert f"{right['oracle_bound']['bound']:.2f}" in out


def test_weights_are_tuned_on_valid_before_the_split_is_read(cli: Cli, both: list[Path]) -> None:
    tuned = spanlm.load_ensemble(both).tune_weights(split="valid")
    assert tuned.steps > 0
    found = json.loads(cli("evaluate", *both, "--tune-weights", "--json").done)
    assert found["weights"] == pytest.approx(list(tuned.weights))
    assert found["tuned"] == {"on": "valid", "steps": tuned.steps, "gap": pytest.approx(tuned.gap)}
    assert found["ensemble"]["split"] == "test"
    right = expected(both, weights=tuned.weights)
    assert found["ensemble"]["nll"] == pytest.approx(right["ensemble"]["nll"])
    out = cli("evaluate", *both, "--tune-weights", "--split", "valid").done
    assert " ".join(f"{weight:.4f}" for weight in tuned.weights) in out and "so what follows is optimistic" in out


def test_a_text_file_has_nothing_to_tune_on(cli: Cli, both: list[Path], tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("the cat\n" * 5)
    cli("evaluate", *both, "--corpus", "other.txt", "--tune-weights").refused(
        "--tune-weights: other.txt has no valid part to tune on", "--weights"
    )
    found = json.loads(cli("evaluate", *both, "--corpus", "other.txt", "--json").done)
    assert (found["ensemble"]["split"], found["ensemble"]["tokens"]) == ("text", 15)


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("evaluate RUN --weights 1", ["--weights: is for several runs"]),
        ("evaluate RUN --combine linear", ["--combine: is for several runs"]),
        ("evaluate RUN --tune-weights", ["--tune-weights: is for several runs"]),
        ("score RUN text.txt --combine geometric", ["--combine: is for several runs"]),
        ("generate RUN --weights 1", ["--weights: is for several runs"]),
        ("evaluate RUN LSTM --weights 1", ["spanlm: --weights 1: must be as many as models, 2"]),
        ("evaluate RUN LSTM --weights -1 2", ["spanlm: --weights -1 2: must be finite and at least 0"]),
        ("evaluate RUN LSTM --weights nan 2", ["spanlm: --weights nan 2: must be finite"]),
        ("score RUN LSTM text.txt --weights 0 0", ["spanlm: --weights 0 0: must be above 0 in sum"]),
        ("evaluate RUN LSTM --weights some", ["--weights", "'some'"]),
        ("evaluate RUN LSTM --combine mean", ["--combine", "'mean'", "'linear', 'geometric'"]),
        ("evaluate RUN LSTM --tune-weights --weights 1 1", ["--tune-weights and --weights do not go together"]),
        ("evaluate RUN LSTM --tune-weights --combine geometric", ["only the weights of --combine linear are tuned"]),
        ("evaluate RUN LSTM --tune-weights --cache 9", ["--tune-weights and --cache do not go together"]),
        ("evaluate RUN RUN", ["is named twice", "--weights"]),
        ("evaluate RUN nowhere", ["nowhere: is not the folder of a run"]),
        ("generate RUN nowhere", ["nowhere: is not the folder of a run"]),
        ("score RUN text.txt more.txt", ["more.txt: no such file"]),
        ("score RUN text.txt LSTM", ["a folder where a text file is needed"]),
        ("cloze RUN LSTM", ["the following arguments are required: QUESTIONS"]),
        ("attend RUN LSTM --text a --out a.html", ["2 runs: --text takes one; several stand side by side"]),
    ],
)
def test_what_is_refused(cli: Cli, both: list[Path], tmp_path: Path, command: str, parts: list[str]) -> None:
    (tmp_path / "text.txt").write_text("the cat\n")
    names = {"RUN": str(both[0]), "LSTM": str(both[1])}
    cli(*(names.get(word, word) for word in command.split())).refused(*parts)


def test_runs_of_other_words_are_refused(cli: Cli, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("the lion sat\n" * 30)
    small = ("--model.embedding_size=6", "--model.encoder.hidden_size=12", "--training.batching.batch_size=2")
    cli("train", "demo", *small, "--training.epochs=1", "--corpus", "other.txt", "--out", "other").done  # noqa: B018
    cli("evaluate", tiny_run, "other").refused("tiny and other: have different vocabularies", "18 and 5 words")


# the verbs


@pytest.mark.parametrize("options", [[], ["--weights", "3", "1"], ["--combine", "geometric"]], ids=str)
def test_score(cli: Cli, both: list[Path], tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "text.txt").write_text("the cat zebra\nsat on\n")
    how: dict[str, Any] = {"weights": [3, 1]} if "--weights" in options else {}
    if "--combine" in options:
        how = {"combination": "geometric"}
    model = spanlm.load_ensemble(both, **how)
    for command in (
        [*both, "text.txt", *options],
        [both[0], "--base", "2", both[1], *options, "--oov", "flag", "text.txt"],
    ):
        found = [line.split("\t") for line in cli("score", *command).done.splitlines()[1:]]
        right = list(model.score("the cat zebra\nsat on"))
        assert [(row[2], row[6]) for row in found] == [(word.word, str(int(word.oov))) for word in right]
        assert [float(row[3]) for row in found] == pytest.approx([word.surprisal for word in right], abs=1e-5)


def test_generate(cli: Cli, both: list[Path]) -> None:
    out = cli("generate", *both, "--prompt", "the cat", "--length", "8", "--seed", "5").done
    words = spanlm.load_ensemble(both).generate("the cat", length=8, seed=5)
    assert out.split() == ["the", "cat", *(word for word in words if word != "<eos>")]


def test_cloze(cli: Cli, both: list[Path], tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("".join(BLOCKS), encoding="utf-8")
    found = json.loads(cli("cloze", *both, "q.txt", "--json", "--weights", "1", "3").done)
    assert found["runs"] == [str(run) for run in both]
    assert (found["combination"], found["weights"]) == ("linear", [0.25, 0.75])
    ranks = [item for item in spanlm.load_ensemble(both, weights=[1, 3]).cloze(tmp_path / "q.txt")]
    right = sum(item.right("sentence") for item in ranks)  # type: ignore[union-attr]
    assert found["files"][0]["contexts"]["full"]["sentence"]["right"] == right
    out = cli("cloze", *both, "q.txt").done
    assert "2 runs as one: average of the probabilities (linear), equal weights" in out
    assert f"  {both[1]}: LSTM 12, no memory, softmax" in out
