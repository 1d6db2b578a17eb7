"""`spanlm attend … --out FILE.json`: each kind of file says what made it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import spanlm
from tests.cli.conftest import Cli

SPANS = {
    "of a text": ("--text", "the dog sat on the mat"),
    "by lag": ("--by-lag", "--split", "valid"),
    "flatness": ("--flatness", "--split", "valid"),
    "by epoch": ("--by-epoch",),
}


def made(file: str) -> str:
    content = json.loads(Path(file).read_text(encoding="utf-8"))
    assert list(content)[:2] == ["format", "made"] and content["made"]["time"]
    return str(content["made"]["spanlm"])


@pytest.mark.parametrize("what", SPANS)
def test_of_spans(cli: Cli, span_run: Path, what: str) -> None:
    assert "wrote a.json" in cli("attend", span_run, *SPANS[what], "--out", "a.json").done
    assert made("a.json") == spanlm.__version__


@pytest.mark.parametrize("how", [("--sentence", "the cat"), ("--by-lag", "--split", "valid")], ids=["maps", "by lag"])
def test_of_several_runs(cli: Cli, tiny_run: Path, tmp_path: Path, how: tuple[str, ...]) -> None:
    other = shutil.copytree(tiny_run, tmp_path / "other")
    assert "wrote a.json" in cli("attend", tiny_run, other, *how, "--out", "a.json").done
    assert made("a.json") == spanlm.__version__
