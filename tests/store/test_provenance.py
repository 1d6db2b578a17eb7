"""The commit of the code that made a file, and what a file of an analysis says of it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from spanlm.analysis.export import json_bytes
from spanlm.store import provenance

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
    monkeypatch.setattr(provenance, "PACKAGE", folder)
    return folder


def committed(package: Path) -> str:
    git(package.parent, "init", "-q")
    git(package.parent, "add", ".")
    git(package.parent, "commit", "-qm", "first")
    return git(package.parent, "rev-parse", "HEAD")


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


def test_a_file_of_an_analysis_says_what_made_it(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = committed(package)
    monkeypatch.setattr("sys.argv", ["/somewhere/bin/spanlm", "attend", "/runs/mine", "--out", "a.json"])
    found = json.loads(json_bytes({"word": "é"}))
    assert list(found) == ["format", "made", "word"]
    made = found["made"]
    assert (made["command"], made["commit"]) == ("spanlm attend mine --out a.json", commit)
    assert made.keys() == {"time", "command", "spanlm", "commit", "changed"} and made["changed"] is False
    assert made.items() <= (provenance.provenance(CPU) | {"time": made["time"]}).items()
