"""What a run folder says of the code, the machine and the commands that made it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

import spanlm
from spanlm import processor
from spanlm.training import provenance
from spanlm.training.provenance import PROVENANCE, record_start, starts

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
    monkeypatch.setattr(spanlm, "__file__", str(folder / "__init__.py"))
    return folder


def committed(package: Path) -> str:
    git(package.parent, "init", "-q")
    git(package.parent, "add", ".")
    git(package.parent, "commit", "-qm", "first")
    return git(package.parent, "rev-parse", "HEAD")


def test_a_start_names_code_machine_and_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/somewhere/bin/spanlm", "train", "--corpus", "my text.txt"])
    record_start(tmp_path, CPU)
    (start,) = starts(tmp_path)
    assert start["command"] == "spanlm train --corpus 'my text.txt'"
    assert start["torch"] == torch.__version__
    assert start["spanlm"] == spanlm.__version__
    assert start["threads"] == torch.get_num_threads()
    assert start["device"] == "cpu"
    assert start["processor"] == processor.described()


def test_a_command_that_is_no_utf8_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    argument = os.fsdecode(b"caf\xe9")  # as the interpreter hands it on
    monkeypatch.setattr("sys.argv", ["spanlm", "train", "--out", argument])
    record_start(tmp_path, CPU)
    (start,) = starts(tmp_path)
    assert shlex.split(start["command"]) == ["spanlm", "train", "--out", argument]


def test_every_start_adds_a_line(tmp_path: Path) -> None:
    record_start(tmp_path, CPU)
    first = (tmp_path / PROVENANCE).read_text()
    record_start(tmp_path, CPU)
    assert (tmp_path / PROVENANCE).read_text().startswith(first)
    assert len(starts(tmp_path)) == 2


def test_a_folder_without_the_file_has_no_starts(tmp_path: Path) -> None:
    assert starts(tmp_path) == []


def test_the_commit_is_that_of_the_checkout(package: Path) -> None:
    commit = committed(package)
    found: dict[str, Any] = provenance.provenance(CPU)
    assert (found["commit"], found["changed"]) == (commit, False)


def test_changed_code_is_said_to_be_changed(package: Path) -> None:
    commit = committed(package)
    (package / "__init__.py").write_text("x = 1\n")
    found = provenance.provenance(CPU)
    assert (found["commit"], found["changed"]) == (commit, True)


def test_a_copy_installed_inside_another_repository_has_no_commit(package: Path) -> None:
    (package.parent / ".gitignore").write_text("package\n")
    committed(package)
    found = provenance.provenance(CPU)
    assert (found["commit"], found["changed"]) == (None, None)


def test_without_git_there_is_no_commit(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    found = provenance.provenance(CPU)
    assert (found["commit"], found["changed"]) == (None, None)


def test_the_file_is_json_lines(tmp_path: Path) -> None:
    record_start(tmp_path, CPU)
    assert all(json.loads(line) for line in (tmp_path / PROVENANCE).read_text().splitlines())
