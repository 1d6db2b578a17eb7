"""`spanlm attend --by-lag`, `--sentence`, `--flatness`, `--by-epoch`: one run, and several side by side."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

import spanlm
from spanlm.analysis.attend import attention_by_lag
from spanlm.analysis.lags import PUBLISHED
from spanlm.cli.attend import published_name
from spanlm.cli.options import run_names
from spanlm.config import RunConfig
from spanlm.models.language_model import ModelConfig
from spanlm.models.memories import (
    AnyMemoryConfig,
    AttentiveConfig,
    KeyValueConfig,
    NoMemoryConfig,
    RecurrentMemoryConfig,
)
from spanlm.scoring.protocol import Protocol
from spanlm.training.config import BatchingConfig
from tests.cli.conftest import Cli


def test_by_lag_is_a_table(cli: Cli, tiny_run: Path) -> None:
    model = spanlm.load(tiny_run)
    out = cli("attend", tiny_run, "--by-lag", "--split", "valid").done
    profile = attention_by_lag(model.model, Protocol(context="document", batch_size=1).batcher(model.corpus(), "valid"))
    lines = out.splitlines()
    assert "tiny valid." in out and f"{profile.positions:,}" in out and "scaled to sum to 100" in out
    rows = [line.split()[:2] for line in lines[2:5]]
    assert rows == [[f"−{lag}", f"{percent:.1f}"] for lag, percent in zip((3, 2, 1), profile.percent, strict=True)]


@pytest.fixture(scope="module")
def current_run(tiny_config: RunConfig, tmp_path_factory: pytest.TempPathFactory, session_cache: Path) -> Path:
    """A run whose model attends to the current word, too."""
    folder = tmp_path_factory.mktemp("runs") / "current"
    memory = RecurrentMemoryConfig(window=4)
    training = replace(tiny_config.training, epochs=1)
    config = replace(tiny_config, model=replace(tiny_config.model, memory=memory), training=training)
    spanlm.train(config, spanlm.load_corpus(config.data), folder)
    return folder


def test_several_runs_read_one_standard_input(
    cli: Cli, tiny_run: Path, current_run: Path, tiny_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (tiny_corpus / "valid.txt").read_bytes()
    told = []
    for runs in ((tiny_run,), (tiny_run, current_run)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
        told.append(
            [line.split()[1] for line in cli("attend", *runs, "--by-lag", "--corpus", "-").done.splitlines()[2:5]]
        )
    assert told[0] == told[1]


def test_several_runs_stand_side_by_side(cli: Cli, tiny_run: Path, current_run: Path) -> None:
    out = cli("attend", tiny_run, current_run, "--by-lag", "--split", "valid", "--out", "lags.csv").done
    header, *rows = (line.split() for line in out.splitlines()[1:9])
    assert header == ["lag", "tiny", "paper", "current", "paper"]
    # Daniluk et al. (2017), Figure 3b, the last three of Key-Value-Predict: 9.5, 12.5 and 17.8 of 39.8
    assert [(row[0], row[2]) for row in rows[:3]] == [("−3", "23.9"), ("−2", "31.4"), ("−1", "44.7")]
    written = list(csv.DictReader(Path("lags.csv").read_text().splitlines()))
    assert [row["run"] for row in written] == ["tiny"] * 3 + ["current"] * 4
    assert {row["text"] for row in written} == {"tiny valid"}


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["runs/kv"], ["kv"]),
        (["runs/kv", "runs/kvp"], ["kv", "kvp"]),
        (["runs/kv/seed-1", "runs/kvp/seed-1"], ["kv", "kvp"]),
        (["runs/kv/seed-1", "runs/kv/seed-2"], ["seed-1", "seed-2"]),
        (["runs/kv/seed-1", "runs/kv/seed-2", "runs/kvp/seed-1"], ["kv/seed-1", "kv/seed-2", "kvp/seed-1"]),
        (["runs/kv", "runs/kvp/seed-1"], ["kv", "kvp/seed-1"]),
        (["runs/demo", "runs/demo/lstm"], ["demo", "lstm"]),
        (["a/x/b/s", "a/y/c/s"], ["b", "c"]),
        (["a/s", "s"], ["a", "FOLDER"]),
        (["runs/kv/seed-12"], ["kv/seed-12"]),
        (["runs/kv/seed-x"], ["seed-x"]),
    ],
    ids=str,
)
def test_runs_are_named_by_what_tells_them_apart(folders: list[str], names: list[str]) -> None:
    assert run_names([Path(folder) for folder in folders]) == [
        name.replace("FOLDER", Path.cwd().name) for name in names
    ]


@pytest.mark.parametrize(
    ("memory", "name"),
    [
        (KeyValueConfig(roles=1), "attention"),
        (KeyValueConfig(roles=2), "key-value"),
        (KeyValueConfig(roles=3), "key-value-predict"),
        (RecurrentMemoryConfig(), "RM(+tM-g)"),
        (RecurrentMemoryConfig(temporal=False), None),
        (RecurrentMemoryConfig(composition="linear"), None),
        (NoMemoryConfig(), None),
    ],
)
def test_a_model_stands_beside_the_row_of_its_own_kind(memory: AnyMemoryConfig, name: str | None) -> None:
    assert published_name(RunConfig(model=ModelConfig(memory=memory))) == name
    assert name is None or name in PUBLISHED


SENTENCE = "the cat zebra sat on the mat ."


@pytest.fixture(scope="module")
def attentive_run(tiny_config: RunConfig, tmp_path_factory: pytest.TempPathFactory, session_cache: Path) -> Path:
    """A run whose memory holds the whole sentence."""
    folder = tmp_path_factory.mktemp("runs") / "attentive"
    batching = BatchingConfig(kind="sentences", batch_size=4, length=6)
    training = replace(tiny_config.training, epochs=1, batching=batching)
    model = replace(tiny_config.model, memory=AttentiveConfig(score="single"))
    config = replace(tiny_config, model=model, training=training)
    spanlm.train(config, spanlm.load_corpus(config.data), folder)
    return folder


def test_a_sentence_is_printed_where_there_is_no_file(cli: Cli, tiny_run: Path) -> None:
    first, *lines = cli("attend", tiny_run, "--sentence", SENTENCE).done.splitlines()
    assert first.startswith("tiny: key-value-predict memory, window 3; ")
    rows = [line.split() for line in lines[:9]]
    assert rows[:2] == [["the", "–"], ["cat", "<eos>", "100"]]
    assert rows[2][:2] == ["zebra", "<unk>"] and "zebra <unk> " in lines[4], "by the row and in those after it"
    assert [len(row) for row in rows[4:8]] == [1 + 2 * 3 + row.count("<unk>") for row in rows[4:8]]
    said = cli("attend", tiny_run, "--sentence", SENTENCE, "--sentence", "the cat").done
    assert [line.split()[:2] for line in said.splitlines()[-3:]] == [
        *(["sentence", "1"], ["sentence", "2"], ["all", "sentences"])
    ]


def test_a_model_of_sentences_reads_one_sentence(cli: Cli, sentence_run: Path) -> None:
    cli("attend", sentence_run, "--sentence", "The cat sat . He ran !").refused("is 2 sentences to a model trained on")


def test_several_runs_and_sentences_are_one_file(cli: Cli, tiny_run: Path, attentive_run: Path) -> None:
    command = ("attend", attentive_run, tiny_run, "--sentence", SENTENCE, "--sentence", "the dog", "--out", "a.json")
    assert cli(*command).done.endswith("wrote a.json\n")
    cli(*command[:-1], "a.html").refused("a.html: a page shows one run")
    cli("attend", tiny_run, "--sentence", SENTENCE, "--sentence", "the dog", "--out", "a.html").done  # noqa: B018
    assert '"zebra"' in Path("a.html").read_text(encoding="utf-8")
    panels = json.loads(Path("a.json").read_bytes())["sentences"]
    assert [[panel["run"] for panel in row] for row in panels] == [["attentive", "tiny"]] * 2


def test_flatness_of_a_split(cli: Cli, tiny_run: Path, attentive_run: Path) -> None:
    out = cli("attend", tiny_run, attentive_run, "--flatness", "--split", "valid", "--out", "a.json").done
    content = json.loads(Path("a.json").read_text())
    assert {run["text"] for run in content["runs"]} == {"tiny valid"} and out.startswith("flatness of attention (")
    assert "tiny, tiny valid\n" in out and "attentive, tiny valid\n" in out
    for run in content["runs"]:
        group = run["by_slots"][0]
        line = [*f"2-5 {group['rows']:,} {group['flatness']:.3f}".split(), f"{100 * group['largest']:.1f}", "%"]
        assert any(printed.split()[:5] == line for printed in out.splitlines())
    assert [run["run"] for run in content["runs"]] == ["tiny", "attentive"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--sentence", ""], ["at least one word"]),
        (["--sentence", "the <eos> cat"], ["<eos> is reserved"]),
        (["--sentence", "cat " * 121], ["121 words: must be at most 120", "--text"]),
    ],
)
def test_what_is_refused(cli: Cli, tiny_run: Path, arguments: list[str], parts: list[str]) -> None:
    cli("attend", tiny_run, *arguments).refused(*parts)


@pytest.mark.parametrize("what", [["--sentence", "the cat"], ["--flatness"], ["--by-lag"]], ids=lambda what: what[0])
def test_the_run_without_attention_is_named(cli: Cli, tiny_run: Path, lstm_run: Path, what: list[str]) -> None:
    cli("attend", tiny_run, lstm_run, *what).refused(str(lstm_run), "attends to nothing")
