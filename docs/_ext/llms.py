"""`llms.txt` beside the pages: each page in a line and each verb in a line, for programs that read the site."""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

from spanlm.cli.main import VERBS


def _first_sentence(page: nodes.document) -> str:
    """Return the first sentence of the first paragraph with more than a few words."""
    texts = (" ".join(paragraph.astext().split()) for paragraph in page.findall(nodes.paragraph))
    text = next((text for text in texts if len(text.split()) > 4), "")
    return re.split(r"(?<=[.:])\s", text, maxsplit=1)[0].rstrip(".:")


def _write(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.name != "html":
        return
    index = app.env.get_doctree("index")
    lines = [f"# {app.config.html_title}", "", f"> {_first_sentence(index)}.", ""]
    for tree in index.findall(addnodes.toctree):
        lines += [f"## {tree['caption']}", ""]
        for title, page in tree["entries"]:
            shown, about = title or app.env.titles[page].astext(), _first_sentence(app.env.get_doctree(page))
            lines.append(f"- [{shown}]({page}.html)" + (f": {about}" if about else ""))
        lines.append("")
    lines += ["## Verbs of the command line", "", *(f"- `spanlm {verb}`: {text}" for verb, text in VERBS.items())]
    Path(app.outdir, "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the file when all pages are."""
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True}
