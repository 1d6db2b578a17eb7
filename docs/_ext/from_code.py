"""Directives for what the code knows best: the help of every verb, the presets, and the rooms of the package."""

from __future__ import annotations

import ast
import io
import os
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import ClassVar
from unittest.mock import patch

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import spanlm
from spanlm.cli.main import VERBS, main
from spanlm.cli.presets import read_listing


def _section(title: str, *children: nodes.Node) -> nodes.section:
    section = nodes.section("", nodes.title(title, title), *children, ids=[nodes.make_id(title)])
    section["names"] = [title.lower()]
    return section


def _literal(text: str) -> nodes.literal_block:
    return nodes.literal_block(text, text, language="none")


def _table(header: list[str], rows: list[list[nodes.Node]], widths: list[int]) -> nodes.table:
    def row(cells: list[nodes.Node]) -> nodes.row:
        return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", cell)) for cell in cells))

    group = nodes.tgroup("", *(nodes.colspec(colwidth=width) for width in widths), cols=len(header))
    group += nodes.thead("", row([nodes.Text(name) for name in header]))
    group += nodes.tbody("", *map(row, rows))
    return nodes.table("", group)


class Verbs(SphinxDirective):
    """A section a verb: what `spanlm VERB --help all` prints."""

    more: ClassVar = {"train": ["train ngram"]}

    def run(self) -> list[nodes.Node]:
        """Ask every verb."""
        names = [name for verb in VERBS for name in (verb, *self.more.get(verb, []))]
        return [_section(f"spanlm {name}", _literal(self._help(name))) for name in names]

    def _help(self, name: str) -> str:
        with patch.dict(os.environ, COLUMNS="88"), redirect_stdout(io.StringIO()) as printed:
            main([*name.split(), "--help", "all"])
        return printed.getvalue().strip()


class Presets(SphinxDirective):
    """A table a paper: what `spanlm presets` lists."""

    def run(self) -> list[nodes.Node]:
        """Make the tables."""
        papers: dict[str, list[dict[str, object]]] = {}
        for row in read_listing():
            papers.setdefault(str(row["paper"]), []).append(row)
        return [self._paper(paper, rows) for paper, rows in papers.items()]

    def _paper(self, paper: str, rows: list[dict[str, object]]) -> nodes.section:
        def cell(value: object) -> nodes.Node:
            return nodes.Text("" if value is None else f"{value:,}" if isinstance(value, int) else str(value))

        def published(row: dict[str, object]) -> str:
            pairs = [
                [row[f"published_{dynamic}{part}_perplexity"] for part in ("valid", "test")]
                for dynamic in ("", "dynamic_")
            ]
            bits = [row[f"published_{part}_bits_per_character"] for part in ("valid", "test")]
            of_bits = f"{' / '.join(map(str, bits))} bits per character" if any(bits) else ""
            printed = "; dynamic ".join(" / ".join(map(str, pair)) for pair in pairs if any(pair))
            return (printed or of_bits).replace("None", "–")

        lines: list[list[nodes.Node]] = [
            [
                nodes.literal(text=str(row["name"])),
                cell("; ".join(row["rows"])),  # type: ignore[arg-type]
                cell(row["model"]),
                cell(row["model_parameters"]),
                cell(published(row)),
            ]
            for row in rows
        ]
        header = ["preset", "published as", "model", "parameters without embeddings", "perplexity there, valid / test"]
        title = paper.removeprefix("none; ")
        return _section(title[:1].upper() + title[1:], _table(header, lines, [20, 20, 35, 10, 15]))


class Rooms(SphinxDirective):
    """A table of the package's folders, each with the first line of its docstring."""

    def run(self) -> list[nodes.Node]:
        """Read the docstrings."""
        found = []
        for path in sorted(Path(spanlm.__file__).parent.glob("*/__init__.py")):
            line = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
            parts = re.split("`([^`]*)`", line)
            meaning = nodes.inline(
                "", "", *(nodes.literal(text=part) if n % 2 else nodes.Text(part) for n, part in enumerate(parts))
            )
            found.append([nodes.literal(text=f"spanlm/{path.parent.name}/"), meaning])
        return [_table(["room", "what is in it"], found, [25, 75])]


def setup(app: Sphinx) -> dict[str, bool]:
    """Name the directives."""
    for name, directive in (("verbs", Verbs), ("presets", Presets), ("rooms", Rooms)):
        app.add_directive(name, directive)
    return {"parallel_read_safe": True}
