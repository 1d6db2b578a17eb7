"""`--help` names every option; every command line of the README is one that spanlm understands."""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from spanlm.cli.main import VERBS
from spanlm.cli.training_verbs import SHORT
from spanlm.config import RunConfig
from spanlm.models.heads import MixtureOfSoftmaxesConfig
from spanlm.models.memories import SpanBufferConfig
from tests.cli.conftest import Cli

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_fits_a_page_of_80_columns(cli: Cli, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = cli(verb, "--help").done.splitlines()
    assert len(lines) <= 60 and max(map(len, lines)) <= 80
    assert lines[0].startswith(f"usage: spanlm {verb}")


@pytest.mark.slow
def test_short_options_of_train_are_fields(cli: Cli) -> None:
    for option, (field, _, _) in SHORT.items():
        values = {"--memory": "ngram", "--precision": "bf16", "--device": "cpu", "--tokenizer": "bytes"}
        value = (values | {"--data-dir": "x"}).get(option, "7")
        short = cli("train", option, value, "--print_config").done
        assert short == cli("train", f"--{field}={value}", "--print_config").done


def test_help_of_train_follows_the_kinds(cli: Cli) -> None:
    assert "--model.memory.order" not in cli("train", "--help", "all").done
    text = cli("train", "--model.memory.kind=ngram", "--help", "all").done
    assert "--model.memory.order" in text and "--model.memory.window" not in text
    text = cli("train", "--memory", "span_buffer", "--help", "all").done
    for field in fields(SpanBufferConfig):
        assert re.search(rf"--model\.memory\.{field.name}[ .]", text), field.name
    text = cli("train", "--model.head.kind=mixture_of_softmaxes", "--help", "all").done
    for field in fields(MixtureOfSoftmaxesConfig):
        assert f"--model.head.{field.name} " in text, field.name


def test_the_overview(cli: Cli) -> None:
    for arguments in ([], ["--help"], ["help"]):
        text = cli(*arguments).done
        assert text.startswith("usage: spanlm VERB") and all(f"  {verb} " in text for verb in VERBS)
        assert max(map(len, text.splitlines())) <= 80


def commands(text: str) -> list[list[str]]:
    """Words of every `spanlm …` of the fenced blocks, without prompts, pipes, redirections and comments."""
    found = []
    for block in re.findall(r"^[ ]*```[^\n]*\n(.*?)^[ ]*```", text, re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"\||&&|;(?![^'\"]*['\"]$)", line.strip().removeprefix("$ ")):
                if part.strip().startswith("spanlm "):
                    found.append(shlex.split(re.split(r"\s[<>]", part.strip())[0], comments=True)[1:])
    return found


def check(cli: Cli, words: list[str]) -> None:
    verb, *rest = words
    if verb in ("--help", "--version"):
        assert cli(verb).status == 0
        return
    assert verb in VERBS, words
    if verb == "train":
        if {"--resume", "--out"} <= set(rest):  # an example that goes on with a run is of someone who has one
            folder = Path(rest[rest.index("--out") + 1])
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "config.yaml").write_text(RunConfig().to_yaml())
        for word in rest:
            if word.endswith(".txt"):  # a text of someone who has one
                Path(word).write_text("a\nb\nc\n")
        without_files = [word for i, word in enumerate(rest) if "--config" not in (word, rest[i - 1] if i else "")]
        result = cli("train", *without_files, "--print_config")
        assert result.status == 0, (words, result.err)
        return
    text = cli(verb, "--help", "all").done
    for word in rest:
        if re.match(r"--?[a-z]", word):
            option = re.escape(word.split("=")[0])
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", text), (words, word)


@pytest.mark.parametrize("page", [README, *sorted((README.parent / "docs").glob("*.md"))], ids=lambda page: page.name)
def test_the_pages_have_only_commands_that_exist(cli: Cli, page: Path) -> None:
    found = commands(page.read_text(encoding="utf-8"))
    if page == README:
        assert {words[0] for words in found} >= {"train", "evaluate", "score", "attend", "generate"}
    for words in found:
        check(cli, words)


@pytest.mark.parametrize("verb", VERBS)
def test_the_examples_of_the_help_exist(cli: Cli, verb: str) -> None:
    text = cli(verb, "--help", "all").done
    examples = [
        line.strip().split(" > ")[0].split(" | ")[-1] for line in text.splitlines() if line.startswith("  spanlm ")
    ]
    for example in examples:
        check(cli, shlex.split(example)[1:])
    if verb in ("train", "score", "attend", "generate"):
        assert examples


def test_help_of_a_verb_is_its_help(cli: Cli) -> None:
    for verb in (["score"], ["data"], ["data", "wikipedia"]):
        assert cli("help", *verb).done == cli(*verb, "--help").done


def test_neither_help_nor_a_wrong_option_loads_torch() -> None:
    """Both are answered at once; what computes is loaded when a verb computes."""
    asked = [[*verb.split(), word] for verb in [*VERBS, "train ngram", "data wikipedia"] for word in ("-h", "--epohcs")]
    program = (
        "import json, sys; from spanlm.cli.main import main\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    status = main(words)\n"
        "    assert status == (0 if words[-1] == '-h' else 2), (words, status)\n"
        "    assert 'torch' not in sys.modules, words"
    )
    done = subprocess.run([sys.executable, "-c", program, json.dumps(asked)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("window", "model.memory.window"), ("dropout", "model.encoder.dropout"), ("patience", "training.patience")],
)
def test_a_field_without_its_group_is_known(cli: Cli, typed: str, meant: str) -> None:
    cli("train", f"--{typed}", "3").refused(f"unknown option --{typed}. Did you mean '--{meant}'?")
