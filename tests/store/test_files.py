"""A file is replaced whole; what is no file is written to."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from spanlm.analysis.export import write_whole
from spanlm.store.files import expanded, regular, replace_file, replacing


def write(path: Path, content: bytes) -> None:
    with replacing(path) as file:
        file.write(content)


@pytest.mark.parametrize("there", [True, False])
def test_what_a_link_names_is_replaced_or_made_and_not_the_link(tmp_path: Path, there: bool) -> None:
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "rows.tsv", tmp_path / "link.tsv"
    if there:
        target.write_bytes(b"old")
    link.symlink_to(Path("far") / "rows.tsv")
    write(link, b"new")
    assert link.is_symlink() and target.read_bytes() == b"new"
    assert os.listdir(tmp_path / "far") == ["rows.tsv"]


@pytest.mark.parametrize("write", [write, write_whole], ids=["bytes", "figure"])
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
    with pytest.raises(OSError, match="too long") as error:
        replace_file(too_long := tmp_path / ("a" * 256), b"content")
    assert error.value.filename == str(too_long)


def test_a_tilde_is_a_home_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert expanded("~/a") == Path("/home/me/a")
    assert expanded("~nobody-of-this-name/a") == Path("~nobody-of-this-name/a")
    assert expanded(Path("b/~")) == Path("b/~")


def test_what_is_read_of_a_run_is_a_file_that_is_not_too_large(tmp_path: Path) -> None:
    """A link to one is as good."""
    (tmp_path / "file").write_bytes(b"1234")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    assert regular(tmp_path / "link", 4).read_bytes() == b"1234"
    for name, limit in (("link", 3), ("pipe", 4), ("nothing", 4)):
        with pytest.raises(OSError) as error:
            regular(tmp_path / name, limit)
        assert error.value.filename == str(tmp_path / name)
    with pytest.raises(OSError, match="no regular file"):
        regular(Path(os.devnull), 4)
