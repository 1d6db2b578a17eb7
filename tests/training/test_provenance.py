"""What a run folder says of the code, the machine and the commands that made it."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest
import torch

import spanlm
from spanlm.errors import RunError
from spanlm.store import process as machine
from spanlm.store.provenance import PROVENANCE, changed_texts, record_start, starts

CPU = torch.device("cpu")


def test_a_start_names_code_machine_and_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/somewhere/bin/spanlm", "train", "--corpus", "my text.txt"])
    record_start(tmp_path, CPU)
    (start,) = starts(tmp_path)
    assert start["command"] == "spanlm train --corpus 'my text.txt'"
    assert start["torch"] == torch.__version__
    assert start["spanlm"] == spanlm.__version__
    assert start["threads"] == torch.get_num_threads()
    assert start["device"] == "cpu"
    assert start["processor"] == machine.processor_name()


def test_folders_of_the_machine_are_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["train", "--corpus", "/home/me/text.txt", "--out=/data/runs/one", "--config", "mine/c.yaml"]
    monkeypatch.setattr("sys.argv", ["spanlm", *words])
    record_start(tmp_path, CPU)
    (start,) = starts(tmp_path)
    assert start["command"] == "spanlm train --corpus text.txt --out=one --config mine/c.yaml"


def test_a_command_that_is_no_utf8_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    argument = os.fsdecode(b"caf\xe9")  # as the interpreter hands it on
    monkeypatch.setattr("sys.argv", ["spanlm", "train", "--out", argument])
    record_start(tmp_path, CPU)
    (start,) = starts(tmp_path)
    assert shlex.split(start["command"]) == ["spanlm", "train", "--out", argument]


@pytest.mark.parametrize("letters", ["a\u2028b", "a\x85b", "a\nb"], ids=ascii)
def test_a_command_is_one_line_whatever_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, letters: str) -> None:
    monkeypatch.setattr("sys.argv", ["spanlm", "train", "--out", letters])
    record_start(tmp_path, CPU)
    (start,) = starts(tmp_path)
    assert shlex.split(start["command"])[-1] == letters


@pytest.mark.parametrize("line", [b"5", b"null", b"[]", b"{", b"\xff", b"[" * 10_000], ids=lambda line: line[:5])
def test_a_line_that_is_no_object_is_damage(tmp_path: Path, line: bytes) -> None:
    (tmp_path / PROVENANCE).write_bytes(b"{}\n" + line + b"\n")
    for read in (starts, lambda folder: changed_texts(folder, {"train": "0"})):
        with pytest.raises(RunError, match=r"provenance\.jsonl: damaged: a line is no JSON object"):
            read(tmp_path)


def test_texts_that_are_none_are_not_known(tmp_path: Path) -> None:
    (tmp_path / PROVENANCE).write_text('{"texts": {"train": "1"}}\n{"texts": 5}\n')
    assert changed_texts(tmp_path, {"train": "0", "valid": "0"}) == ["train"]


def test_texts_are_those_of_the_last_start(tmp_path: Path) -> None:
    record_start(tmp_path, CPU, texts={"train": "0"})
    record_start(tmp_path, CPU, texts={"train": "1"})
    record_start(tmp_path, CPU)
    assert changed_texts(tmp_path, {"train": "1"}) == []
    assert changed_texts(tmp_path, {"train": "0"}) == ["train"]


def test_every_start_adds_a_line(tmp_path: Path) -> None:
    record_start(tmp_path, CPU)
    first = (tmp_path / PROVENANCE).read_text()
    record_start(tmp_path, CPU)
    assert (tmp_path / PROVENANCE).read_text().startswith(first)
    assert len(starts(tmp_path)) == 2


def test_a_folder_without_the_file_has_no_starts(tmp_path: Path) -> None:
    assert starts(tmp_path) == []


def test_the_file_is_json_lines(tmp_path: Path) -> None:
    record_start(tmp_path, CPU)
    assert all(json.loads(line) for line in (tmp_path / PROVENANCE).read_text().splitlines())
