"""The pages of results/: their tables are those of the records, and their links lead somewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RESULTS = Path(__file__).parents[1] / "results"
PAGES = sorted(RESULTS.rglob("*.md"))


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "pages.py"), "--check"]
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=False)


def test_tables_are_those_of_the_records() -> None:
    checked = check(RESULTS)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("li2020.md", "| 120.5 |", "| 120.6 |"),  # a page
        ("li2020/readings.csv", "120.48141924490159", "130.48141924490159"),  # a record
        ("li2020/ptb-small/table-1.md", "123.98", "113.98"),  # a page of `spanlm reproduce`
    ],
)
def test_a_number_that_differs_is_seen(tmp_path: Path, file: str, old: str, new: str) -> None:
    folder = tmp_path / "results"
    shutil.copytree(RESULTS, folder)
    text = (folder / file).read_text(encoding="utf-8")
    assert old in text
    (folder / file).write_text(text.replace(old, new), encoding="utf-8")
    checked = check(folder)
    assert checked.returncode == 1
    assert "li2020.md" in checked.stderr
    subprocess.run([sys.executable, str(folder / "pages.py")], check=True)
    assert check(folder).returncode == 0


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(RESULTS)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


def test_the_plan_has_the_tables_of_its_simulation(tmp_path: Path) -> None:
    for name in (
        "results/scaling.py",
        "results/bench-cpu.json",
        "results/bench-gpu.json",
        "results/streams.json",
        "docs/scale.md",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(RESULTS.parent / name, tmp_path / name)
    command = [sys.executable, str(tmp_path / "results" / "scaling.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0
    page = tmp_path / "docs" / "scale.md"
    page.write_text(page.read_text(encoding="utf-8").replace("| 45.0 |", "| 46.0 |"), encoding="utf-8")
    assert subprocess.run(command, check=False, capture_output=True).returncode == 1
