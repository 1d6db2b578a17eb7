"""A page for each notebook of `examples/`: its cells, with what they printed and drew when the site was built."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

_PAGE = re.compile(r"^The notebook \[\S+\]\((\S+\.ipynb)\)")
"""The first words of a page that is a notebook; without this extension, as on GitHub, it is a link to it."""
_OF_TERMINALS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
"""Colours, and what moves the cursor; lines that were overwritten are gone already."""

Notebook = dict[str, Any]


def read(path: Path) -> Notebook:
    notebook: Notebook = json.loads(path.read_text(encoding="utf-8"))
    return notebook


def run(path: Path, limit: int = 600) -> Notebook:
    """Run the cells in an empty folder, each for `limit` seconds at most; CellExecutionError: a cell failed."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # for !spanlm
        environment = {**os.environ, "PATH": programs, "IPYTHONDIR": folder}
        settings: Any = {"kernel_name": "python3", "resources": {"metadata": {"path": folder}}, "timeout": limit}
        NotebookClient(notebook, coalesce_streams=True, **settings).execute(env=environment)
    return dict(notebook)


def _fenced(text: str, language: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def _output(output: Notebook, alt: str) -> str:
    """Show a figure, or else text."""
    data = output.get("data", {})
    if "image/png" in data:
        return f"![{alt}](data:image/png;base64,{''.join(data['image/png'].split())})"
    return _fenced(_OF_TERMINALS.sub("", "".join(output.get("text", data.get("text/plain", "")))), "none")


def _cell(cell: Notebook) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    alt = cell["metadata"].get("alt", "")
    shown = [_output(output, alt) for output in cell["outputs"]]
    return [_fenced(source, "sh" if source.startswith("!") else "python"), *shown]


def markdown(notebook: Notebook, link: str) -> str:
    """Return the page, which offers the notebook at `link` below its first cell."""
    title, *parts = [part for cell in notebook["cells"] for part in _cell(cell)]
    heading, _, text = title.partition("\n")
    download = f"This page is a notebook: [download it]({link}), and open it in Jupyter to change and run the cells."
    return "\n\n".join([heading, text, download, *parts])


def _show(app: Sphinx, page: str, source: list[str]) -> None:
    match = _PAGE.match(source[0])
    if match is None:
        return
    path = Path(app.srcdir, match[1])
    app.env.note_dependency(str(path))
    source[0] = markdown(run(path) if app.config.run_notebooks else read(path), match[1])


def setup(app: Sphinx) -> dict[str, bool]:
    """`-D run_notebooks=0` leaves the outputs out."""
    app.add_config_value("run_notebooks", True, "env", bool)
    app.connect("source-read", _show)
    return {"parallel_read_safe": True}


if __name__ == "__main__":  # runs notebooks, and writes their pages
    for name in sys.argv[1:]:
        sys.stdout.write(markdown(run(Path(name)), name) + "\n")
