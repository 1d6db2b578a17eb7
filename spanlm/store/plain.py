"""Plain text and plain JSON: no terminal commands or markup in text, and no NaN in JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_LATEX: dict[str, str | int | None] = {"[": "{[}", "−": "$-$", "–": "--", "…": r"\ldots{}", "†": r"\dag{}"}
_LATEX |= {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}"}
_LATEX |= {">": r"\textgreater{}", "≥": r"$\geq$", "θ": r"$\theta$", "λ": r"$\lambda$", "η": r"$\eta$"}
_LATEX |= {mark: f"\\{mark}" for mark in "%&#_${}"}
_MARKUP = re.compile(r"[\\`*<>|~&]|\](?=[(\[])|\b_|_\b")

_C_NUMBER = re.compile(r"[-+]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?|inf(?:inity)?|nan)", re.I)


def c_number(text: str) -> float:
    """Parse a number as C does, without `1_0` and digits beyond ASCII; NaN: it is none."""
    return float(text) if _C_NUMBER.fullmatch(text) else math.nan


def visible(text: str) -> str:
    """Escape characters that a terminal obeys: direction marks, and controls other than tabs and line ends."""
    return _OBEYED.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def markdown(text: str) -> str:
    return _MARKUP.sub(r"\\\g<0>", visible(" ".join(text.split())))


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; the first column is flushed left, the others right."""
    lines = [header, ("---", *["---:"] * (len(header) - 1)), *rows]
    return "\n".join(f"| {' | '.join(map(markdown, line))} |" for line in lines)


Grid = tuple[Sequence[str], Sequence[Sequence[str]], str | None]
"""Header, rows and title of a table for people."""
TABLES = (".md", ".tex")
"""Suffixes of such tables."""


def grids_bytes(grids: Iterable[Grid], suffix: str) -> bytes:
    r"""Format tables as Markdown, or as LaTeX tabulars (with `\usepackage{booktabs}`), each below its title."""
    parts = []
    for header, rows, title in grids:
        if suffix == ".md":
            parts += [*([markdown(title)] if title else []), markdown_table(header, rows)]
            continue
        top, *lines = (" & ".join(map(_latex, line)) + r" \\" for line in (header, *rows))
        head = [rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}", r"\toprule", top, r"\midrule"]
        head = [*([f"% {_latex(title)}"] if title else []), *head]
        parts.append("\n".join([*head, *lines, r"\bottomrule", r"\end{tabular}"]))
    return ("\n\n".join(parts) + "\n").encode("utf-8", "replace")


def _latex(text: str) -> str:
    return visible(" ".join(text.split())).translate(str.maketrans(_LATEX))


@cache
def _special(between: str) -> Callable[[str], object]:
    return re.compile(f'{"^[=+@-]|" * (between == ",")}["\r\n{between}]').search


def cells_line(cells: Iterable[object], between: str = "\t", shown: Callable[[object], object] = str) -> str:
    """Return a line of a data table that R, pandas and csv read.

    Strings are quoted if necessary; in CSV also strings that begin with =, +, - or @, so that spreadsheets which take
    quoted cells for text do not compute them. Other values are formatted by `shown`.
    """
    special = _special(between)
    # in place: a table has a million cells
    texts = [(_quoted(x) if special(x) else x) if isinstance(x, str) else str(shown(x)) for x in cells]
    return between.join(texts) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def cell(value: object) -> object:
    """Format a value for a data table: six decimals, 0 or 1 for booleans, NaN for missing values."""
    # NaN rather than an empty cell: R, pandas and float() all read it as a number
    if isinstance(value, float):
        return f"{value:z.6f}" if value == value else "NaN"  # z: nothing is ever minus zero
    return int(value) if isinstance(value, bool) else "NaN" if value is None else value


def table_bytes(header: Sequence[str], rows: Iterable[Iterable[object]]) -> bytes:
    """Return CSV of a header and rows, with values formatted by `cell`."""
    return "".join([cells_line(header, ","), *(cells_line(row, ",", cell) for row in rows)]).encode()


def _json(text: str | bytes, **settings: Any) -> Any:
    try:
        return json.loads(text, **settings)
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(named := dict(pairs)) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"has {max(names, key=names.count)} twice")
    return named


def json_value(line: str) -> Any:
    """Parse JSON from a user.

    Raises:
        ValueError: not JSON, a repeated name in an object, or half of a surrogate pair, which cannot be written.
    """
    value = _json(line, object_pairs_hook=_object)
    if "\\u" in line:
        json.dumps(value, ensure_ascii=False).encode()
    return value


def json_object(text: str | bytes) -> dict[str, Any]:
    """Parse a JSON object; ValueError: not JSON, or not an object."""
    value = _json(text)
    if not isinstance(value, dict):
        raise ValueError("is no JSON object")
    return value


def several(count: int, noun: str) -> str:
    """Return a count with its noun: `1 run`, `2 runs`."""
    return f"{count} {noun}{'s' * (count != 1)}"


def finite(value: Any) -> Any:
    """Replace numbers that are not finite by None, for JSON."""
    if isinstance(value, dict):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
