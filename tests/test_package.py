import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

import spanlm

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "numpy", "rich", "pooch", "matplotlib", "safetensors", "yaml")


def python(code: str) -> str:
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout


@pytest.mark.parametrize("arguments", [None, [], ["--version"], ["trian"]], ids=str)
def test_importing_and_overview_load_nothing_heavy(arguments: list[str] | None) -> None:
    run = "" if arguments is None else f"from spanlm.cli.main import main; main({arguments});"
    out = python(f"import spanlm, sys; {run} print([name for name in {HEAVY} if name in sys.modules])")
    assert out.splitlines()[-1] == "[]"


def test_every_public_name_is_there() -> None:
    for name in spanlm.__all__:
        assert getattr(spanlm, name) is not None
    with pytest.raises(AttributeError, match="module 'spanlm' has no attribute 'trian'"):
        spanlm.trian  # noqa: B018
    assert "load" in dir(spanlm)


def test_the_version_is_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["hatch"]["version"]["path"] == "spanlm/store/__init__.py"
    assert re.fullmatch(r"\d+\.\d+\.\d+", spanlm.__version__)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    codemeta = json.loads((ROOT / "codemeta.json").read_text())
    changes = re.findall(r"^## \[(.+)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    released = spanlm.__version__, str(citation["date-released"])
    assert changes[0] == released == (codemeta["version"], codemeta["datePublished"])
    assert citation["version"] == spanlm.__version__
    described = project["project"]["description"], project["project"]["keywords"]
    assert (codemeta["description"], codemeta["keywords"]) == described and citation["keywords"] == described[1]


@pytest.mark.slow
def test_a_release_built_twice_has_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From two folders whose files have other times and modes, as two clones do."""
    for library in ("build", "hatchling"):
        pytest.importorskip(library, reason="needs pip install build hatchling")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1764374400")
    digests = []
    for number, name in enumerate(("once", "again")):
        left_out = shutil.ignore_patterns(".git", ".venv", "runs", "site", ".*_cache")
        shutil.copytree(ROOT, tmp_path / name, ignore=left_out)
        for path in (tmp_path / name / "spanlm").rglob("*.py"):
            path.chmod((0o644, 0o664)[number])
            os.utime(path, (number, 10**9 + number))
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path / "dist"), tmp_path / name]
        subprocess.run(command, check=True, capture_output=True)
        digests.append({path.name: sha256(path.read_bytes()).hexdigest() for path in (tmp_path / "dist").iterdir()})
    names = {f"spanlm-{spanlm.__version__}.tar.gz", f"spanlm-{spanlm.__version__}-py3-none-any.whl"}
    assert digests[0] == digests[1] and digests[0].keys() == names


def test_every_dependency_has_a_version_and_hashes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = {*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)}
    named = {re.split(r"[^\w-]", one)[0].lower() for one in asked} - {"spanlm"}
    versions = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text().lower(), re.MULTILINE))
    assert named <= versions.keys()
    blocks = re.split(r"\n(?=\S)", (ROOT / "constraints-hashes.txt").read_text().lower().strip())
    hashed = {block.partition("==")[0]: block for block in blocks if not block.startswith("#")}
    for name, block in hashed.items():
        assert re.search(r"--hash=sha256:[0-9a-f]{64}$", block, re.MULTILINE), name
    assert {name: re.split(r"==|[\s;]", hashed[name])[1] for name in versions} == versions


def test_nothing_reads_a_format_that_can_hold_code() -> None:
    libraries = r"(?m)^ *(import|from) (c?[pP]ickle|marshal|shelve|dill|joblib|cloudpickle)\b"
    pattern = re.compile(libraries + r"|torch\.load\(|allow_pickle=True|yaml\.load\(|(?<!\.)\b(eval|exec)\(")
    for path in (ROOT / "spanlm").rglob("*.py"):
        code = re.sub(r'""".*?"""|#.*', "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert not pattern.search(code), path


def test_imports_go_one_way() -> None:
    """As CONTRIBUTING.md says: no room imports one that comes after it; `runs` loads models of Hugging Face by name."""
    order = "store | jobs | data | models | scoring | training | runs interop | analysis rescoring | papers serve"
    rows = [*map(str.split, order.split("|")), ["cli"]]
    for number, here in enumerate(rows):
        above = {room for row in rows[number + 1 :] for room in row} | ({"data"} if here == ["models"] else set())
        for path in (path for room in here for path in (ROOT / "spanlm" / room).rglob("*.py")):
            imported = set(re.findall(r"(?:from|import) spanlm\.(\w+)", path.read_text(encoding="utf-8")))
            assert not imported & above, (path, imported & above)
