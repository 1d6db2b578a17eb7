"""A file is replaced whole; what is no file is written to."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import spanlm
from spanlm.analysis.files import write_whole
from spanlm.files import expanded, replace_file


def test_what_a_link_names_is_replaced_not_the_link(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "rows.tsv", tmp_path / "link.tsv"
    target.write_bytes(b"old")
    link.symlink_to(Path("far") / "rows.tsv")
    replace_file(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path / "far") == ["rows.tsv"]


def test_a_link_to_nothing_makes_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    replace_file(tmp_path / "link", b"new")
    assert (tmp_path / "target").read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("write", [replace_file, write_whole], ids=["bytes", "figure"])
@pytest.mark.parametrize("name", ["pipe.svg", "link.svg"])
def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path, write: Callable[[Path, bytes], None], name: str) -> None:
    pipe = tmp_path / "pipe.svg"
    os.mkfifo(pipe)
    (tmp_path / "link.svg").symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write(tmp_path / name, b"content")
        assert os.read(reader, 100) == b"content"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    assert sorted(os.listdir(tmp_path)) == ["link.svg", "pipe.svg"]


@pytest.mark.parametrize("letter", ["a", "é", "猫"])
def test_a_name_of_255_bytes_is_no_longer_while_it_is_written(tmp_path: Path, letter: str) -> None:
    path = tmp_path / (letter * (255 // len(letter.encode())))
    replace_file(path, b"content")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_name_that_is_too_long_is_the_one_that_is_told(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 256)
    with pytest.raises(OSError, match="too long") as error:
        replace_file(path, b"content")
    assert error.value.filename == str(path)


def test_a_tilde_is_a_home_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert expanded("~/a") == Path("/home/me/a")
    assert expanded("~nobody-of-this-name/a") == Path("~nobody-of-this-name/a")
    assert expanded(Path("b/~")) == Path("b/~")


def test_homes_are_found_in_one_way() -> None:
    package = Path(spanlm.__file__).parent
    users = {path.relative_to(package).as_posix() for path in package.rglob("*.py") if "expanduser" in path.read_text()}
    assert users == {"files.py"}
