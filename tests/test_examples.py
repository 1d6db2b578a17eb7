"""The scripts in `examples/` run, and print what they promise."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

import spanlm

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "promised", "made"),
    [
        ("train_and_score", r"bound +\d+\.\d  #+\n", []),
        ("attention_by_lag", r"5 words back: \d+% of the attention\n", ["attention_by_lag.png"]),
        ("compare_memories", r"no memory: test perplexity \d+\n.*5 states: test perplexity \d+\n", []),
    ],
)
def test_an_example(
    name: str,
    promised: str,
    made: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = str(EXAMPLES / f"{name}.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script])
    runpy.run_path(script, run_name="__main__")
    assert re.search(promised, capsys.readouterr().out)
    assert [path.name for path in tmp_path.iterdir()] == made


def test_examples_use_public_names_alone() -> None:
    scripts = {path.stem: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py")}
    assert len(scripts) == 3
    for text in scripts.values():
        assert set(re.findall(r"\bspanlm\.(\w+)", text)) <= set(spanlm.__all__)
        assert re.findall(r"^(?:import|from) spanlm.*", text, re.MULTILINE) == ["import spanlm"]
