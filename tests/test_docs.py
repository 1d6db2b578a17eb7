"""What README.md and docs/ show can be done, and the site builds without a request to anywhere.

A block after the line `<!-- run -->` or `<!-- run: slow -->`, which no page shows, runs: those of a page in order, in a
folder with `examples/`, a small demo run as `runs/demo`, one in it as `lstm`, and two more as `runs/medium/seed-1` and
`seed-2`."""

import csv
import doctest
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import spanlm
from spanlm.cli.main import VERBS, main
from tests.cli.test_help import README, commands

ROOT = README.parent
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^<!-- run(: slow)? -->\n+```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SMALL = "--epochs 1 --hidden-size 30 --batch-size 64 --lr 0.01 --seeds 2 --no-tour --out runs/medium"


class Block(NamedTuple):
    slow: bool
    language: str
    code: str


def blocks(page: Path) -> list[Block]:
    return [Block(bool(slow), *rest) for slow, *rest in _BLOCK.findall(page.read_text(encoding="utf-8"))]


CHEAP = [page for page in PAGES if any(not block.slow for block in blocks(page))]
SLOW = [page for page in PAGES if any(block.slow for block in blocks(page))]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, session_cache: Path) -> Path:
    folder = tmp_path_factory.mktemp("docs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["train", "demo", *_SMALL.split()]) == 0
    shutil.copytree(folder / "runs/medium/seed-1", folder / "runs/demo")
    shutil.copytree(folder / "runs/medium/seed-2", folder / "runs/demo/lstm")
    return folder


@pytest.fixture
def workspace(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(trained / "runs", tmp_path / "runs")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPANLM_DATA", raising=False)
    return tmp_path


def python(code: str, names: dict[str, Any]) -> None:
    exec(compile(code, "block", "exec"), names)


@pytest.mark.parametrize("page", CHEAP, ids=lambda page: page.name)
def test_cheap_blocks_run(page: Path, workspace: Path) -> None:
    names: dict[str, Any] = {"spanlm": spanlm}
    for block in blocks(page):
        if block.slow:
            continue
        if block.language == "python":
            python(block.code, names)
            continue
        for line in block.code.replace("\\\n", " ").splitlines():
            verb, *words = shlex.split(line, comments=True)
            assert verb == "spanlm" and main(words) == 0, line


OTHERS = {"lm-eval": "lm_eval", "lm_eval": "lm_eval", "minicons": "minicons", "transformers": "transformers"}
"""Words of a block -> the library that it needs, which not everybody has."""


def lacking(block: Block) -> set[str]:
    needed = {library for word, library in OTHERS.items() if re.search(rf"^(from )?{word}\b", block.code, re.MULTILINE)}
    return {library for library in needed if importlib.util.find_spec(library) is None}


def add_models(folder: Path) -> None:
    """Stand-ins for what a page names and a user has: a run on PTB, and a GPT-2."""
    shutil.copytree(folder / "runs/demo", folder / "runs/ptb")
    if importlib.util.find_spec("transformers"):
        from tests.interop.test_yardstick import bytes_tokenizer, saved

        saved(folder / "models/gpt2", bytes_tokenizer())


@pytest.mark.slow
@pytest.mark.parametrize("page", SLOW, ids=lambda page: page.name)
def test_all_blocks_run(
    page: Path, workspace: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they are written; what is made for other libraries asks no network."""
    add_models(workspace)
    monkeypatch.setenv("HF_HOME", str(workspace / "home"))
    skipped: set[str] = set()
    program = tmp_path_factory.mktemp("bin") / "spanlm"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m spanlm "$@"\n')
    program.chmod(0o755)
    path = os.pathsep.join([str(program.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    there = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    names: dict[str, Any] = {"spanlm": spanlm}
    for block in blocks(page):
        if lacks := lacking(block):
            skipped |= lacks
            continue
        if block.language == "python":
            with warnings.catch_warnings():
                if any(word in block.code for word in OTHERS):
                    warnings.simplefilter("ignore")  # the libraries' own
                python(block.code, names)
            continue
        for line in block.code.replace("\\\n", " ").splitlines():
            _, *words = shlex.split(line, comments=True)
            if line.startswith("spanlm ") and not re.search(r"[|*$<>]", " ".join(words)):
                assert main(words) == 0, line  # another process would first load all libraries
                continue
            command = ["bash", "-e", "-u", "-o", "pipefail", "-c", line]
            environment = {**os.environ, "PATH": path, "PYTHONPATH": there}
            done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
            assert done.returncode == 0, (line, done.stdout, done.stderr)
    if skipped:
        pytest.skip(f"all but what needs {', '.join(sorted(skipped))}")


@pytest.mark.parametrize("name", ["", *sorted({*spanlm.__all__} - {"PRESETS"})])
def test_examples_of_the_public_api_run(name: str, workspace: Path) -> None:
    if name == "to_hf":
        pytest.importorskip("transformers", reason="needs the extra hf")
    thing = getattr(spanlm, name) if name else spanlm
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    said: list[str] = []
    (test,) = doctest.DocTestFinder(recurse=False).find(thing, name or "spanlm", globs={"spanlm": spanlm})
    runner.run(test, out=said.append)
    assert runner.tries and not runner.failures, "".join(said)


def test_no_example_is_left_out() -> None:
    """Nothing that looks like an example is only read, and the dictionary, which has no docstring, has one there."""
    assert "spanlm.PRESETS[" in "".join(block.code for block in blocks(ROOT / "docs/api.md"))
    for name in spanlm.__all__:
        members = vars(thing).values() if isinstance(thing := getattr(spanlm, name), type) else ()
        assert not any(">>>" in (member.__doc__ or "") for member in filter(callable, members)), name


def test_what_users_do_first_is_run() -> None:
    shown = "\n".join(f"```\n{block.code}```" for page in PAGES for block in blocks(page) if block.language == "sh")
    verbs = {words[0] for words in commands(shown)}
    assert verbs >= {"evaluate", "score", "attend", "generate", "pairs", "rescore", "plot", "export"}
    for page in PAGES:  # a mark with a slip would run nothing
        assert len(re.findall("<!-- run", page.read_text(encoding="utf-8"))) == len(blocks(page)), page.name


def test_the_table_of_the_stimuli_is_the_one_explained(workspace: Path) -> None:
    page = (ROOT / "docs/score.md").read_text(encoding="utf-8")
    assert main(shlex.split(next(block.code for block in blocks(ROOT / "docs/score.md")))[1:]) == 0
    with open("examples/stimuli.csv") as items, open("surprisal.csv") as table:
        sentences, rows = list(csv.DictReader(items)), list(csv.DictReader(table))
    assert len(sentences) == 30 and len(rows) == sum(len(item["sentence"].split()) for item in sentences)
    assert ",".join(rows[0]) in page and all(f"`{name}`" in page for name in rows[0])
    assert [row["word"] for row in rows if row["index"] == row["verb"]] == ["is"] * 30


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for needed in ("sphinx", "furo", "myst_parser"):
        pytest.importorskip(needed, reason="needs pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", "-D", "run_notebooks=0", ROOT / "docs"]
    done = subprocess.run(
        [*command, folder / "site", "-d", folder / "trees"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.mark.slow
def test_the_site_has_what_the_code_says_and_names_no_other_host(site: Path) -> None:
    pages = {path.stem: path.read_text(encoding="utf-8") for path in site.glob("*.html")}
    assert {page.stem for page in PAGES} - {"README"} <= pages.keys()
    loaded = re.compile(
        r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"(?:https?:)?//|<link\b[^>]*\bhref=\"(?:https?:)?//"
    )
    for name, text in pages.items():
        assert not loaded.search(text), name
    for path in (site / "_static").rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", path.read_text(encoding="utf-8")), path
    assert "spanlm rescore" in pages["cli"] and "daniluk2017/kvp-w5" in pages["presets"]
    assert all(f"spanlm.{name}" in pages["api"] for name in spanlm.__all__)
    summary = (site / "llms.txt").read_text(encoding="utf-8")
    assert {page.stem for page in PAGES} - {"README", "index"} == set(re.findall(r"\]\((\w+)\.html\)", summary))
    assert all(f"- `spanlm {verb}`: " in summary for verb in VERBS)


@pytest.mark.slow
def test_a_browser_asks_no_other_host_and_no_page_is_wider_than_a_phone(site: Path) -> None:
    """By the browser's own log of requests, on every page."""
    api = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("needs chromium")
    asked, wide = set[str](), []
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for width in (1300, 400):
            page = browser.new_page(viewport={"width": width, "height": 900})
            page.on("request", lambda request: asked.add(request.url))
            for path in sorted(site.glob("*.html")):
                page.goto(path.as_uri())
                if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
                    wide.append((path.name, width))
        browser.close()
    assert len(asked) > len(PAGES) and all(url.startswith((site.as_uri(), "data:")) for url in asked), asked
    assert wide == []


NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "examples").glob("*.ipynb"))}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "promised", "figures"),
    [
        ("surprisal", r"plural − singular: [+-]\d\.\d+ bits", 2),
        ("attention", r"as trained +\d+\.\d\n(.*\n)*none +\d+\.\d\n(.*\n)*gain +\d\.\d+ bits", 4),
        ("rescoring", r"first +WER +\d+\.\d% .*\nrescored +WER +\d+\.\d% .*\noracle ", 1),
    ],
)
def test_a_notebook_runs_and_its_page_shows_what_it_printed_and_drew(name: str, promised: str, figures: int) -> None:
    for needed in ("sphinx", "nbclient", "ipykernel"):
        pytest.importorskip(needed, reason="needs pip install -e '.[docs]'")
    command = [sys.executable, ROOT / "docs/_ext/notebooks.py", NOTEBOOKS[name]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(promised, done.stdout) and done.stdout.count("](data:image/png;base64,") == figures
    assert not re.search(r"^spanlm: ", done.stdout, re.MULTILINE)  # a verb failed


def test_notebooks_are_kept_without_outputs_and_use_public_names_alone() -> None:
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS.values():
        cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
        assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells), path.name
        code = "".join(line for cell in cells for line in [*cell["source"], "\n"])
        assert set(re.findall(r"\bspanlm\.(\w+)", code)) <= {*spanlm.__all__, "rescoring"}, path.name
