"""`spanlm attend --by-lag`, `--sentence`, `--flatness`, `--by-epoch`: one run, and several side by side."""

import io
import json
from pathlib import Path

import pytest

from spanlm.analysis.lags import PUBLISHED
from spanlm.cli.attend import published_name
from spanlm.cli.options import run_names
from spanlm.config import RunConfig
from spanlm.models.language_model import ModelConfig
from spanlm.models.memories import (
    AnyMemoryConfig,
    KeyValueConfig,
    NoMemoryConfig,
    RecurrentMemoryConfig,
)
from tests.cli.conftest import Cli


def test_several_runs_read_one_standard_input(
    cli: Cli, tiny_run: Path, words_run: Path, tiny_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (tiny_corpus / "valid.txt").read_bytes()
    told = []
    for runs in ((tiny_run,), (tiny_run, words_run)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
        told.append(
            [line.split()[1] for line in cli("attend", *runs, "--by-lag", "--corpus", "-").done.splitlines()[2:5]]
        )
    assert told[0] == told[1]


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


def test_a_model_of_sentences_reads_one_sentence(cli: Cli, sentence_run: Path) -> None:
    cli("attend", sentence_run, "--sentence", "The cat sat . He ran !").refused("is 2 sentences to a model trained on")


def test_several_runs_and_sentences_are_one_file(cli: Cli, tiny_run: Path, unopened_run: Path) -> None:
    command = ("attend", unopened_run, tiny_run, "--sentence", SENTENCE, "--sentence", "the dog", "--out", "a.json")
    assert cli(*command).done.endswith("wrote a.json\n")
    cli(*command[:-1], "a.html").refused("a.html: a page shows one run")
    cli("attend", tiny_run, "--sentence", SENTENCE, "--sentence", "the dog", "--out", "a.html").done  # noqa: B018
    assert '"zebra"' in Path("a.html").read_text(encoding="utf-8")
    panels = json.loads(Path("a.json").read_bytes())["sentences"]
    assert [[panel["run"] for panel in row] for row in panels] == [["unopened", "tiny"]] * 2


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
