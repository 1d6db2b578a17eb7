"""`spanlm data`: what it explains, refuses, prints, and makes."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import SMALL, Cli, flat
from tests.data.wikipedia.small import ROOT, dump, json_lines, made_articles

ARTICLES = made_articles(40)


@pytest.fixture(autouse=True)
def wiki(tmp_path: Path) -> None:
    (tmp_path / "wiki.jsonl").write_bytes(json_lines(ARTICLES))
    (tmp_path / "wiki.xml").write_bytes(dump(ARTICLES))


def make(cli: Cli, *arguments: object) -> Any:
    return cli("data", "wikipedia", "--source", "wiki.jsonl", "--out", "out", "--jobs", 1, *arguments)


def test_it_prints_the_counts_and_how_to_go_on(cli: Cli, tmp_path: Path) -> None:
    text = make(cli, "--vocabulary", 60).done
    told = json.loads((tmp_path / "out" / "corpus.json").read_text())
    for split, counts in told["splits"].items():
        (line,) = re.findall(rf"^{split} +(\d.*)$", text, re.M)
        for name in ("articles", "sentences", "words", "tokens"):
            assert f"{counts[name]:,} {name}" in line
    assert f"60 with <unk> and <eos>: {told['vocabulary']['coverage']:.2%}" in text
    make(cli, "--vocabulary", 60).refused("is there already", out=None)


def test_it_prints_how_much_of_a_paper_s_choice_there_is(cli: Cli) -> None:
    told = flat(make(cli, "--vocabulary", 40, "--like", "daniluk2017", "--articles", 60).done)
    assert "as in daniluk2017 People 12 of 12, Cities 12 of 12, Countries 0 of 12, Universities 0 of 12, Novels" in told
    assert "the paper's: 7,500 articles of 24,900,000 words" in told


@pytest.mark.slow
def test_the_printed_command_trains_on_it(cli: Cli, tmp_path: Path) -> None:
    begin = shlex.split("data wikipedia --source wiki.xml --vocabulary 60 --jobs 1 --out")
    text = cli(*begin, tmp_path / "a folder").done
    _, *command = shlex.split(text.splitlines()[-1])
    assert command[:2] == ["train", "daniluk2017/kvp-w5"]
    trained = cli(*command, *SMALL, "--out", "run").done
    told = json.loads((tmp_path / "a folder" / "corpus.json").read_text())
    sizes = [f"{told['splits'][split]['tokens']:,}" for split in ("train", "valid", "test")]
    assert f"train {sizes[0]}, valid {sizes[1]}, test {sizes[2]} tokens" in trained
    assert "documents: blank-line" in (tmp_path / "run" / "config.yaml").read_text()
    again = (*command, *SMALL, "--out", "run", "--resume", "auto", "--training.epochs", 2)
    assert "epoch   2" in cli(*again).done


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_and_the_same_command_goes_on(cli: Cli, tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "more.jsonl").write_bytes(json_lines(made_articles(2500)[40:]))
    command = shlex.split("data wikipedia --source wiki.jsonl more.jsonl --out out --jobs 1 --vocabulary 60")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    started = [sys.executable, "-m", "spanlm", *command]
    with subprocess.Popen(started, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as build:
        while not list(tmp_path.glob(".out.unfinished/*.jsonl")):  # the first source is kept
            assert build.poll() is None
            time.sleep(0.01)
        build.send_signal(number)
        assert build.stderr is not None
        assert f"stopped by {number.name}; sources that were read to their ends are kept" in build.stderr.read()
    assert build.returncode == 128 + number and not (tmp_path / "out").exists()
    assert cli(*command).done.startswith("going on")
