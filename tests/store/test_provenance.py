"""What a run folder and a file of an analysis say of the code, the machine and the commands that made them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from spanlm.analysis.export import json_bytes
from spanlm.errors import RunError
from spanlm.store import VERSION
from spanlm.store import provenance as provenance_module
from spanlm.store.process import processor_name
from spanlm.store.provenance import PROVENANCE, provenance, read_texts, record_start, starts

CPU = torch.device("cpu")


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package in a folder that git does not know yet; the code believes to be in it."""
    folder = tmp_path / "checkout" / "package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    monkeypatch.setattr(provenance_module, "PACKAGE", folder)
    return folder


def committed(package: Path) -> str:
    git(package.parent, "init", "-q")
    git(package.parent, "add", ".")
    git(package.parent, "commit", "-qm", "first")
    return git(package.parent, "rev-parse", "HEAD")


@pytest.mark.parametrize("changed", [False, True])
def test_the_commit_is_that_of_the_checkout_and_changed_code_is_said_to_be(package: Path, changed: bool) -> None:
    commit = committed(package)
    if changed:
        (package / "__init__.py").write_text("x = 1\n")
    found: dict[str, Any] = provenance(CPU)
    assert (found["commit"], found["changed"]) == (commit, changed)


@pytest.mark.parametrize("missing", ["checkout", "git"])
def test_without_git_or_inside_another_repository_there_is_no_commit(
    package: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    (package.parent / ".gitignore").write_text("package\n")
    committed(package)
    if missing == "git":
        monkeypatch.setenv("PATH", "")
    found = provenance(CPU)
    assert (found["commit"], found["changed"]) == (None, None)


def test_a_file_of_an_analysis_says_what_made_it(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = committed(package)
    monkeypatch.setattr("sys.argv", ["/somewhere/bin/spanlm", "attend", "/runs/mine", "--out", "a.json"])
    found = json.loads(json_bytes({"word": "é"}))
    assert list(found) == ["format", "made", "word"]
    made = found["made"]
    assert (made["command"], made["commit"]) == ("spanlm attend mine --out a.json", commit)
    assert made.keys() == {"time", "command", "spanlm", "commit", "changed"} and made["changed"] is False
    assert made.items() <= (provenance(CPU) | {"time": made["time"]}).items()


@pytest.mark.parametrize(
    ("words", "recorded"),
    [
        (["train", "--corpus", "my text.txt"], None),
        (["train", "--out", os.fsdecode(b"caf\xe9")], None),  # not UTF-8, as the interpreter hands it on
        *((["train", "--out", letters], None) for letters in ("a\u2028b", "a\x85b", "a\nb")),
        (
            ["train", "--corpus", "/home/me/text.txt", "--out=/data/runs/one", "--config", "mine/c.yaml"],
            ["train", "--corpus", "text.txt", "--out=one", "--config", "mine/c.yaml"],
        ),
    ],
    ids=ascii,
)
def test_a_start_is_a_line_with_code_machine_and_command_without_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], recorded: list[str] | None
) -> None:
    monkeypatch.setattr("sys.argv", ["/somewhere/bin/spanlm", *words])
    record_start(tmp_path, CPU)
    first = (tmp_path / PROVENANCE).read_bytes()
    record_start(tmp_path, CPU)
    assert (tmp_path / PROVENANCE).read_bytes().startswith(first)
    start, _ = starts(tmp_path)
    assert shlex.split(start["command"]) == ["spanlm", *(recorded or words)]
    assert (start["torch"], start["spanlm"]) == (torch.__version__, VERSION)
    assert (start["threads"], start["device"]) == (torch.get_num_threads(), "cpu")
    assert start["processor"] == processor_name()


@pytest.mark.parametrize("line", [b"5", b"null", b"[]", b"{", b"\xff", b"[" * 10_000], ids=lambda line: line[:5])
def test_a_line_that_is_no_object_is_damage(tmp_path: Path, line: bytes) -> None:
    (tmp_path / PROVENANCE).write_bytes(b"{}\n" + line + b"\n")
    for read in (starts, read_texts):
        with pytest.raises(RunError, match=r"provenance\.jsonl: damaged: a line is no JSON object"):
            read(tmp_path)


def test_texts_are_those_of_the_last_start_that_recorded_any(tmp_path: Path) -> None:
    assert starts(tmp_path) == [] and read_texts(tmp_path) == {}
    for texts in ({"train": "0"}, {"train": "1"}, None):
        record_start(tmp_path, CPU, texts=texts)
    with (tmp_path / PROVENANCE).open("a") as file:
        file.write('{"texts": 5}\n')
    assert read_texts(tmp_path) == {"train": "1"}
