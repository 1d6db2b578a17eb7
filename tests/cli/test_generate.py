from __future__ import annotations

from pathlib import Path

import spanlm
from tests.cli.conftest import Cli


def test_words_of_the_python_call(cli: Cli, tiny_run: Path) -> None:
    options = ["--length", "30", "--seed", "3", "--temperature", "0.9", "--top-k", "9", "--top-p", "0.95"]
    out = cli("generate", tiny_run, "--prompt", "the cat", *options).done
    words = spanlm.load(tiny_run).generate("the cat", length=30, seed=3, temperature=0.9, top_k=9, top_p=0.95)
    assert "<eos>" in words, "else the line ends below are not seen"
    text = " ".join(["the", "cat", *words]).replace(" <eos> ", "\n").replace(" <eos>", "\n").replace("<eos> ", "\n")
    assert out.rstrip("\n").split("\n") == text.rstrip("\n").split("\n")
    assert out.endswith("\n")
    assert "<eos>" not in out


def test_the_same_seed_the_same_words(cli: Cli, tiny_run: Path) -> None:
    first = cli("generate", tiny_run, "--length", "20").done
    assert cli("generate", tiny_run, "--length", "20", "--seed", "1").done == first
    assert cli("generate", tiny_run, "--length", "20", "--seed", "2").done != first


def test_defaults(cli: Cli, tiny_run: Path) -> None:
    words = spanlm.load(tiny_run).generate()
    assert len(words) == 50
    assert cli("generate", tiny_run).done.split() == [word for word in words if word != "<eos>"]


def test_no_line_starts_with_a_space(cli: Cli, tiny_run: Path) -> None:
    out = cli("generate", tiny_run, "--length", "60", "--seed", "5").done
    assert not any(line.startswith(" ") or line.endswith(" ") for line in out.split("\n"))
