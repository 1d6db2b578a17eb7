"""The pages of results/: their tables are those of the records, and their links lead somewhere."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from results.records import read, write

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "results").glob("*.md"))
FILES = sorted(path.stem for path in (ROOT / "results").glob("*.jsonl"))


def run(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "results", *words]
    return subprocess.run(command, cwd=root, capture_output=True, encoding="utf-8", check=False)


def test_tables_are_those_of_the_records() -> None:
    checked = run(ROOT, "--check")
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.slow
def test_a_number_that_differs_is_seen(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "results", tmp_path / "results")
    (tmp_path / "docs").mkdir()
    changes = {
        "results/li2020.md": ("| 120.5 |", "| 120.6 |"),  # a page
        "results/memories.jsonl": ("2.8147606431245515", "3.8147606431245515"),  # a record
        "results/salton2017.jsonl": ('"nll":356755.7', '"nll":366755.7'),  # a sum, from which a perplexity follows
        "docs/scale.md": ("| 45.0 |", "| 46.0 |"),  # a simulation
    }
    shutil.copy(ROOT / "docs" / "scale.md", tmp_path / "docs")
    for name, (old, new) in changes.items():
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert old in text
        (tmp_path / name).write_text(text.replace(old, new, 1), encoding="utf-8")
    checked = run(tmp_path, "--check")
    assert checked.returncode == 1
    assert [
        page for page in ("li2020.md", "memories.md", "salton2017.md", "scale.md") if page not in checked.stderr
    ] == []
    assert "speed.md" not in checked.stderr
    assert run(tmp_path).returncode == 0
    for page in ("li2020.md", "speed.md"):  # a record is as it was: so is its page
        assert (tmp_path / "results" / page).read_bytes() == (ROOT / "results" / page).read_bytes()


LONG = {"yardstick", "daniluk2017", "salton2017", "li2020"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in FILES])
def test_a_record_is_packed_and_whole_again(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = read(name)  # the configuration of each run is that which was run, or this refuses
    monkeypatch.setattr("results.records.HERE", tmp_path)
    write(name, [record for table in tables.values() for record in table])
    assert read(name) == tables
    monkeypatch.undo()
    assert (tmp_path / f"{name}.jsonl").read_bytes() == (ROOT / "results" / f"{name}.jsonl").read_bytes()


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []
