"""A process knows which code it runs, however late it is asked."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import spanlm
from spanlm import code
from spanlm.code import changed_since_loaded, code_digest

PACKAGE = Path(spanlm.__file__).parent

LATE = """
import sys
from pathlib import Path
import spanlm
spanlm.PRESETS
from spanlm.evaluation import lessons
with open(lessons.__file__, "a") as file:
    file.write("# another\\n")
assert lessons.__file__.startswith(sys.path[0])
from spanlm.code import changed_since_loaded
print(changed_since_loaded())
"""


def run(script: str, root: Path) -> str:
    """Run a script whose package is in a folder, or an archive, of its own."""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(root)!r})\n{script}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_code_that_changes_after_any_of_it_was_loaded_has_changed(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "spanlm", ignore=shutil.ignore_patterns("__pycache__"))
    assert run("from spanlm.code import changed_since_loaded; print(changed_since_loaded())", tmp_path) == "False"
    assert run(LATE, tmp_path) == "True"


def test_it_is_the_first_of_the_package_and_needs_no_torch() -> None:
    script = "import spanlm; print([x for x in sys.modules if x.startswith('spanlm.')], 'torch' in sys.modules)"
    assert run(script, PACKAGE.parent) == "['spanlm.code'] False"


def test_of_code_in_an_archive_nothing_can_be_told(tmp_path: Path) -> None:
    archive = tmp_path / "spanlm.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in PACKAGE.rglob("*.py"):
            file.write(path, path.relative_to(PACKAGE.parent))
    script = "import spanlm.code as code; print(code.__file__, code.LOADED, code.changed_since_loaded())"
    assert run(script, archive) == f"{archive}/spanlm/code.py None True"


def test_the_code_is_all_of_the_package(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    digests = []
    for text in ("a = 1\n", "a = 2\n", "a = 1\n"):
        (package / "inner" / "one.py").write_text(text)
        digests.append(code_digest(package))
    (package / "inner" / "one.py").rename(package / "inner" / "two.py")
    digests.append(code_digest(package))
    assert digests[0] == digests[2] and len(set(digests)) == 3


def test_what_cannot_be_read_is_still_a_file(tmp_path: Path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("")
    both = code_digest(tmp_path)
    (tmp_path / "b.py").unlink()
    alone = code_digest(tmp_path)
    (tmp_path / "b.py").mkdir()  # as good as a file that nobody may read
    assert len({both, alone, code_digest(tmp_path)}) == 3


def test_the_code_of_this_process_is_that_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not changed_since_loaded()
    monkeypatch.setattr(code, "LOADED", "what this process loaded")
    assert changed_since_loaded()
