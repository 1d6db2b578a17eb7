"""A run that comes home as bytes: what is packed comes back, and nothing else can come with it."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import pytest

from spanlm.errors import RunError
from spanlm.store.archive import packed, unpack
from spanlm.store.engine import Files, Place, as_task, sent_with


def zipped(*entries: tuple[str, bytes], how: int = ZIP_STORED) -> bytes:
    content = io.BytesIO()
    with ZipFile(content, "w", how) as archive:
        for name, data in entries:
            archive.writestr(ZipInfo(name), data, how)
    return content.getvalue()


def test_a_folder_comes_back_without_its_lock_and_links(tmp_path: Path) -> None:
    run = tmp_path / "lr=0.1"
    (run / "checkpoints" / "step-000000028").mkdir(parents=True)
    (run / "config.yaml").write_text("data:\n")
    (run / "checkpoints" / "step-000000028" / "weights.safetensors").write_bytes(os.urandom(999))
    (run / ".lock").touch()
    os.utime(run / "config.yaml", (0, 0))  # before the years that an archive knows
    (run / "link").symlink_to("/etc/passwd")
    unpack(packed(run), tmp_path / "back")
    found = {path.relative_to(tmp_path / "back"): path.read_bytes() for path in (tmp_path / "back").rglob("*.*")}
    assert found.pop(Path("config.yaml")) == b"data:\n"
    weights = Path("checkpoints/step-000000028/weights.safetensors")
    assert found == {weights: (run / weights).read_bytes()}


def changed(content: bytes, old: bytes, new: bytes, where: int = 0) -> bytes:
    """Put other bytes at `where` after the signature of the directory's entry, and of the file's if they are there."""
    begin = content.index(b"PK\x01\x02") + where
    assert content[begin : begin + len(old)] == old
    return content[:begin] + new + content[begin + len(new) :]


ONE = zipped(("config.yaml", b"x"))


@pytest.mark.parametrize(
    "content",
    [
        b"not a zip",
        changed(ONE, b"\0\0", b"\1\0", 8),  # encrypted: RuntimeError
        changed(changed(ONE, b"\0\0", b"\0\x08", 8), b"config", b"\xff\xff", 46),  # a name that is no UTF-8
        changed(ONE, b"\x14\0", b"\x63\0", 6),  # a version that is not known: NotImplementedError
        changed(ONE, b"\0\0\0\0", b"\xff\xff\xff\x7f", 42),  # begins past the end
        zipped(("../escaped", b"x")),
        zipped(("a/../../escaped", b"x")),
        zipped(("/escaped", b"x")),
        zipped(("a\\..\\escaped", b"x")),
        zipped((".lock", b"x")),
        zipped(("a/./b", b"x")),
        zipped(("line\nbreak", b"x")),
        zipped(("bomb", bytes(10**6)), how=ZIP_DEFLATED),
        zipped(("config.yaml", b"x"))[:-30],
    ],
)
def test_what_is_no_run_is_refused_and_leaves_nothing(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(RunError, match="what came back is"):
        unpack(content, tmp_path / "in" / "run")
    assert [path.name for path in tmp_path.rglob("*")] == ["in"]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_comes_twice_and_a_folder_that_is_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="'a' is no name of a run's file"):
        unpack(zipped(("a", b"x"), ("a", b"y")), tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").write_text("my only copy")
    with pytest.raises(RunError, match="cannot be written"):
        unpack(zipped(("a", b"x")), tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine"] and len([*tmp_path.iterdir()]) == 1


def test_a_machine_without_the_disk_trains_in_its_own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its own cache and texts, where it says where they are."""
    monkeypatch.setenv("SPANLM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SPANLM_DATA", "here")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "c.yaml").write_text("data: ")
    monkeypatch.chdir(tmp_path / "home")
    files = sent_with(Files(Path("runs/a"), [Path("c.yaml")]))
    place = Place(str(tmp_path / "gone"), "head", ".mark", {"SPANLM_CACHE": "/no/such", "SPANLM_DATA": "there"})
    code = "import os; os.makedirs('runs/a'); given = open('c.yaml').read() + os.environ['SPANLM_DATA']; "
    code += "open('runs/a/x', 'w').write(given); print('done')"
    heard: list[str] = []
    error, content = as_task([sys.executable, "-c", code], place, files, heard.append)
    assert (error, heard) == ("", ["done"])
    assert list((tmp_path / "cache").rglob("x"))  # else a run that is lost on its way home would be lost for good
    assert Place(str(tmp_path / "gone"), "head", ".mark", {}).elsewhere().is_relative_to(tmp_path / "cache")
    unpack(content, Path("back"))
    assert Path("back/x").read_text() == "data: here"
    for outside in (tmp_path / "home" / "new", Path("../new")):
        error, _ = as_task(["true"], place, sent_with(Files(outside)), heard.append)
        assert error.startswith(f"{outside}: is not below the folder of the command, and ")
    unseen = f" does not see {tmp_path / 'gone'}: it needs a shared disk"
    assert as_task(["true"], place, None, heard.append)[0].endswith(unseen)
    assert "is begun, and " in as_task(["true"], place, sent_with(Files(Path("back"))), heard.append)[0]
