"""What a run folder and a file of an analysis say of the code, the machine and the commands that made them."""

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest
import torch

from spanlm.analysis.export import json_bytes
from spanlm.errors import RunError
from spanlm.store import VERSION
from spanlm.store.machine import processor_name
from spanlm.store.provenance import PROVENANCE, code_version, commit_of, last_fact, provenance, record_start, starts

CPU = torch.device("cpu")


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("ignored", [False, True])
@pytest.mark.parametrize("changed", [False, True])
def test_the_commit_is_that_of_the_checkout_and_of_nobody_elses(tmp_path: Path, changed: bool, ignored: bool) -> None:
    """A package that lies in a repository and is not tracked there belongs to another."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (tmp_path / ".gitignore").write_text("package\n" if ignored else "")
    assert commit_of(package) == (None, None)
    commit_of.cache_clear()
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    if changed:
        (package / "__init__.py").write_text("x = 1\n")
    assert commit_of(package) == ((None, None) if ignored else (git(tmp_path, "rev-parse", "HEAD"), changed))


def test_the_version_of_the_code_is_the_commit_and_what_was_changed_in_it(tmp_path: Path) -> None:
    """So that a search in an edited tree takes no trial of other edits, and goes on with its own."""
    module = tmp_path / "__init__.py"

    def version(text: str) -> str:
        module.write_text(text)
        commit_of.cache_clear()
        code_version.cache_clear()
        return code_version(tmp_path)

    assert version("x = 1\n") == VERSION, "no checkout: an installed copy"
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    assert version("x = 1\n") == git(tmp_path, "rev-parse", "HEAD")
    one, other = version("x = 2\n"), version("x = 3\n")
    git(tmp_path, "add", ".")  # staged or not
    assert version("x = 2\n") == one and len({one, other, version("x = 1\n")}) == 3


def test_without_git_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert commit_of(tmp_path) == (None, None)


def test_a_file_of_an_analysis_has_what_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/somewhere/bin/spanlm", "attend", "/runs/mine", "--out", "a.json"])
    found = json.loads(json_bytes({"word": "é"}))
    assert list(found) == ["format", "made", "word"]
    made = found["made"]
    assert made["command"] == "spanlm attend mine --out a.json"
    assert made.keys() == {"time", "command", "spanlm", "commit", "changed"}
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
        (["compare", "hf:/home/me/gpt", "--like=hf:/x/y", "hf:mine"], ["compare", "hf:gpt", "--like=hf:y", "hf:mine"]),
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
    with pytest.raises(RunError, match=r"provenance\.jsonl: damaged: a line is no JSON object"):
        starts(tmp_path)


def test_texts_are_those_of_the_last_start_that_recorded_any(tmp_path: Path) -> None:
    assert starts(tmp_path) == [] and last_fact(tmp_path, "texts", {}) == {}
    for texts in ({"train": "0"}, {"train": "1"}, None):
        record_start(tmp_path, CPU, texts=texts)
    with (tmp_path / PROVENANCE).open("a") as file:
        file.write('{"texts": 5}\n')
    assert last_fact(tmp_path, "texts", {}) == {"train": "1"}


def test_a_processor_is_named_with_its_family_and_model(tmp_path: Path) -> None:
    first = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n\n"
    for content, name in (
        (first + first.replace("EPYC", "other").replace("25", "99"), "AMD EPYC (family 25, model 17)"),
        ("processor\t: 0\nmodel name\t: A: Processor\n", "A: Processor"),
    ):
        (tmp_path / "cpuinfo").write_text(content)
        assert processor_name(tmp_path / "cpuinfo") == name
