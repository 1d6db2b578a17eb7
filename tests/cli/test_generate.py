from __future__ import annotations

import re
from pathlib import Path

import spanlm
from tests.cli.conftest import Cli


def test_words_of_the_python_call(cli: Cli, tiny_run: Path) -> None:
    options = ["--length", "30", "--seed", "3", "--temperature", "0.9", "--top-k", "9", "--top-p", "0.95"]
    out = cli("generate", tiny_run, "--prompt", "the cat", *options).done
    words = spanlm.load(tiny_run).generate("the cat", length=30, seed=3, temperature=0.9, top_k=9, top_p=0.95)
    assert "<eos>" in words, "else the line ends below are not seen"
    text = re.sub(" ?<eos> ?", "\n", " ".join(["the", "cat", *words]))
    assert out.rstrip("\n").split("\n") == text.rstrip("\n").split("\n")
    assert out.endswith("\n")
    assert "<eos>" not in out


def test_unk_is_drawn_where_that_is_asked_for(cli: Cli, tiny_run: Path) -> None:
    drawn = ["--length", "200", "--temperature", "3"]
    words = spanlm.load(tiny_run).generate(length=200, temperature=3.0, unk=True)
    assert "<unk>" in words
    assert cli("generate", tiny_run, *drawn, "--unk").done.split() == [word for word in words if word != "<eos>"]
    assert "<unk>" not in cli("generate", tiny_run, *drawn).done


def test_defaults(cli: Cli, tiny_run: Path) -> None:
    words, out = spanlm.load(tiny_run).generate(), cli("generate", tiny_run).done
    assert len(words) == 50 and out.split() == [word for word in words if word != "<eos>"]
    assert not any(line.startswith(" ") or line.endswith(" ") for line in out.split("\n"))
    assert cli("generate", tiny_run, "--seed", "1").done == out != cli("generate", tiny_run, "--seed", "2").done


def test_a_prompt_is_cut_as_the_training_text_was(cli: Cli, sentence_run: Path) -> None:
    """Into sentences, each of which that model reads alone: only the last, open one tells how it goes on."""
    options = ["--length", "30", "--seed", "2"]
    alone = cli("generate", sentence_run, "--prompt", "He said", *options).done
    both = cli("generate", sentence_run, "--prompt", "The cat sat . Zebra ran ! He said", *options).done
    assert both == "The cat sat . Zebra ran ! " + alone
    start = cli("generate", sentence_run, "--prompt", "The cat sat .\n", *options).done
    assert start == "The cat sat .\n" + cli("generate", sentence_run, *options).done


def test_a_line_end_in_a_prompt_is_one(cli: Cli, tiny_run: Path) -> None:
    model = spanlm.load(tiny_run)
    assert model.texts.prompt("the cat\n\nsat on") == ["the", "cat", "<eos>", "<eos>", "sat", "on"]
    assert model.texts.prompt("the cat\n") == ["the", "cat", "<eos>"] and model.texts.prompt("") == []
    out = cli("generate", tiny_run, "--prompt", "the cat\n", "--length", "9").done
    assert out.startswith("the cat\n") and not out.startswith("the cat\n ")


def test_a_model_that_predicts_no_first_words_ends_with_its_line(cli: Cli, unopened_run: Path) -> None:
    words = spanlm.load(unopened_run).generate("the", length=200, seed=3)
    assert words.index("<eos>") == len(words) - 1 < 199
    assert cli("generate", unopened_run, "--prompt", "the", "--length", "200", "--seed", "3").done == " ".join(
        ["the", *words]
    ).replace(" <eos>", "\n")
    for prompt in ([], ["--prompt", ""], ["--prompt", "the cat\n"]):
        cli("generate", unopened_run, *prompt).refused("--prompt=''", "give the first word")
