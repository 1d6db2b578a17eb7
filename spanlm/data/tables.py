"""Tables of stimuli, read row by row: CSV or TSV with a line of column names, or JSON lines."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TextIO

from spanlm.data.formats import conversion
from spanlm.data.packed import opened
from spanlm.errors import InputError, named, nearest_or_all, require
from spanlm.store.plain import cell, cells_line, finite, json_value, several

Kind = Literal["csv", "tsv", "jsonl"]
Errors = Literal["strict", "cp1252"]
"""Bytes that are not UTF-8 are refused, or read as CP1252."""
codecs.register_error(
    "cp1252",
    lambda error: (error.object[error.start : error.end].decode("cp1252", "replace"), error.end),  # type: ignore[attr-defined]
)

LONGEST_CELL = 1 << 26
"""Characters of a cell, which may hold a document; the csv module's default limit is 131,072."""

DELIMITERS = {"csv": ",", "tsv": "\t"}
_SUFFIXES: dict[str, Kind] = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


@dataclass(frozen=True)
class Row:
    """One row of a table.

    Attributes:
        line: line of the file where the row begins, from 1; line 1 has the column names.
        values: the cells by column name; strings, or any JSON value in JSON lines.
        number: number of the row, from 1, without blank rows.
    """

    line: int
    values: dict[str, Any]
    number: int = field(default=0, compare=False)


class TableError(InputError):
    """An error of the whole table, not of one row."""


@dataclass
class RowNotes:
    """Reasons by place (`FILE, line N`) of rows that are `what`, such as left out; `strict` refuses the first.

    None: the rows are in order, and no option refuses them.
    """

    what: str = "left out"
    strict: bool | None = False
    reasons: dict[str, str] = field(default_factory=dict)

    def add(self, place: str, why: str) -> None:
        """Note a row; InputError if `strict`."""
        if self.strict:
            raise InputError(f"{place}: {why}")
        self.reasons[place] = why

    def lines(self) -> list[str]:
        """Return a line with the number of noted rows and the first few reasons; none without rows."""
        count = len(self.reasons)
        first = [" ".join(f"{place}: {why}".split()) for place, why in islice(self.reasons.items(), 3)]
        few = "; ".join(first + ["…"] * (count > 3))
        way = "" if self.strict is None else " (--strict refuses them)"
        return [f"note: {several(count, 'row')} {self.what}: {few}{way}"] if count else []


def table_kind(path: Path) -> Kind | None:
    """Return the kind of table that a file's name shows; None: no table."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in (".gz", ".bz2")]
    return _SUFFIXES.get(suffixes[-1]) if suffixes else None


def first_line_kind(path: Path, errors: Errors = "strict") -> Kind | None:
    """Return the kind of table that a file's first line shows; None: no table, or a pipe, which is read only once."""
    if path.exists() and not path.is_file():
        return None
    with _opened(path, errors) as file:
        line = file.readline().strip()
    if line.startswith("{"):
        return "jsonl"
    return "tsv" if "\t" in line else "csv" if "," in line or ";" in line else None


def refuse_without_column(path: Path, kind: Kind, option: str) -> None:
    """Refuse to read a table as text; the error lists its columns and shows how to name one.

    A file that is not a table after all is reported by the text reader.
    """
    try:
        values = next(read_table(path, kind, ())).values
    except InputError:
        return
    if not values:
        return
    likely = next((name for name in values if name.lower() in ("sentence", "text", "stimulus")), None)
    likely = likely or max(values, key=lambda name: len(str(values[name])))
    raise InputError(
        f"{path}: is a table with the columns {', '.join(values)}; say which holds the text, as in {option} {likely} "
        f"({named('as_text=True')} reads all of it as text)"
    )


def read_table(
    path: Path,
    kind: Kind,
    texts: Sequence[str],
    *,
    keys: Sequence[str] = (),
    also: Sequence[str] = (),
    check: Callable[[Row], object] = lambda row: None,
    bad: RowNotes | None = None,
    errors: Errors = "strict",
) -> Iterator[Row]:
    """Yield a table's rows; a file whose name ends in `.gz` is decompressed.

    A row is `bad` if it has more or fewer cells than there are names, is not a JSON object, has no text in a column of
    `texts`, no text or number in a column of `keys`, lacks a column of `also`, or if `check` refuses it. By default
    the first bad row raises. Rows that `bad` has from an earlier reading are skipped.

    Raises:
        InputError: the file cannot be read, a table lacks a column, no row can be used, or `check` raises TableError.
    """
    bad = RowNotes(strict=True) if bad is None else bad
    number, used, first = 0, 0, ""
    with _opened(path, errors) as file:
        for line, values in _json_rows(file) if kind == "jsonl" else _cells(path, file, DELIMITERS[kind], errors):
            if texts and isinstance(values, dict) and kind != "jsonl" and not any(map(str.strip, values.values())):
                continue  # spreadsheets write rows of nothing but delimiters
            number, place = number + 1, f"{path}, line {line}"
            if place in bad.reasons:
                continue
            try:
                if not isinstance(values, dict):
                    raise InputError(values)
                if any("\0" in value for value in values.values() if isinstance(value, str)):
                    raise InputError("a NUL character; take it out")
                for name in (*texts, *keys, *also):
                    if name not in values:
                        why = f"no column {name}.{nearest_or_all(name, values)}"
                        raise InputError(why) if kind == "jsonl" else TableError(f"{place}: {why}")
                    if name in texts or name in keys:
                        _require_cell(name, values[name], text=name in texts)
                check(row := Row(line, values, number))
            except TableError:
                raise
            except InputError as error:
                bad.add(place, str(error))
                first = first or f"{place}: {error}"
                continue
            used += 1
            yield row
    if not number:
        raise InputError(f"{path}: the table has no rows")
    if not used:
        raise InputError(f"{first.rstrip('.')}. No row is left.")


def _require_cell(name: str, value: Any, text: bool) -> None:
    if value is None or not str(value).strip():
        raise InputError(f"the column {name} is empty")
    if not isinstance(value, str if text else str | int | float):
        limit = "text, in quotation marks" if text else "text or a number"
        require(False, name, json.dumps(value, ensure_ascii=False)[:40], limit)


@contextmanager
def _opened(path: Path, errors: Errors) -> Iterator[TextIO]:
    try:
        with opened(path) as raw:
            yield io.TextIOWrapper(raw, encoding="utf-8-sig", errors=errors, newline="")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error.reason}); {conversion(path, error.object, 0)}") from None


def _cells(path: Path, file: TextIO, delimiter: str, errors: Errors) -> Iterator[tuple[int, dict[str, str] | str]]:
    """Yield for each row its line, and its values by name or the reason why it is bad."""
    rows = _raw_rows(path, file, delimiter)
    head = [name.strip() for name in next(rows, (1, [""]))[1]]
    if not head[-1] and path.is_file():  # unnamed columns at the end stay only if they have a value
        with _opened(path, errors) as again:
            head = head[: max((len(_whole(cells)) for _, cells in _raw_rows(path, again, delimiter)), default=1)]
    names = [name or f"column_{number}" for number, name in enumerate(head, 1)]
    if twice := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{path}, line 1: two columns are called {twice[0]!r}")
    for line, cells in rows:
        cells = _whole(cells, len(names))
        fits = len(cells) == len(names)
        why = f"{len(cells)} cells where there are {len(names)} columns"
        yield line, dict(zip(names, cells, strict=True)) if fits else why


def _raw_rows(path: Path, file: TextIO, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line and the cells of each row that is not blank, starting with the names."""
    head = list[str]()
    first, line = file.readline(), 1
    if "\0" in first:  # perhaps UTF-16 without a byte order mark
        raise InputError(f"{path}, line 1: a NUL character; {conversion(path, first.encode(), 0)}")
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_CELL))
    try:
        if named := re.fullmatch(r'sep=([^\r\n"])\s*', first):  # Excel's own header
            delimiter, first, line = named[1], file.readline(), 2
        elif delimiter == ",":
            second = file.readline()
            delimiter, head = _delimiter(first, second), [second]
        reader, begin = csv.reader(chain([first, *head], file), delimiter=delimiter, strict=True), line
        for cells in reader:
            if cells:  # a blank line has none
                yield line, cells
            line = begin + reader.line_num
    except csv.Error as error:
        why = 'put a cell that begins with " in quotation marks as a whole, and write each " inside it twice'
        if "expected after" not in str(error):  # the file ended within a quoted cell
            why = f"a quotation mark is left open: {why}"
        if "limit" in str(error):
            why = f"a cell has more than {LONGEST_CELL:,} characters: score it as text, or cut it in rows"
        raise InputError(f"{path}, line {line}: {why}") from None


def _delimiter(names: str, row: str) -> str:
    """Return the delimiter that cuts names and first row into equally many cells; of several, the one with most cells.

    In locales with decimal commas, spreadsheets write CSV with semicolons; R writes tabs into a file of any name.
    """
    unquoted = re.sub(r'"[^"]*"', "", names)
    cells = {}
    for mark in (mark for mark in (",", ";", "\t") if mark in unquoted):
        first, second = ([*csv.reader([line], delimiter=mark)] or [[]] for line in (names, row))
        many = len(_whole(first[0]))
        cells[mark] = (many, len(first[0])), many <= len(_whole(second[0], many)) <= len(first[0])
    fitting = [mark for mark, (_, fits) in cells.items() if fits] or list(cells)
    return max(fitting, key=lambda mark: cells[mark][0], default=",")


def _whole(cells: list[str], least: int = 1) -> list[str]:
    """Drop the empty cells that spreadsheets write at the end of a row, down to `least` cells."""
    while len(cells) > least and not cells[-1].strip():
        cells = cells[:-1]
    return cells


def _json_rows(file: TextIO) -> Iterator[tuple[int, dict[str, Any] | str]]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            values = json_value(line)
        except ValueError as error:
            yield number, f"not JSON ({error})"
        else:
            yield number, values if isinstance(values, dict) else 'a JSON object is needed, as {"sentence": …}'


_encoded = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def row_line(row: Mapping[str, object], kind: Kind) -> str:
    """Format a row as a line of a table; in JSON lines, NaN and infinities are null."""
    if kind == "jsonl":
        return _encoded(finite(row)) + "\n"
    return cells_line(row.values(), DELIMITERS[kind], cell)


def repeated(values: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    """Prepare values of an input row for output; in CSV and TSV, numbers from JSON keep all their digits."""
    if kind == "jsonl":
        return dict(values)
    return {name: x if isinstance(x, str) else json.dumps(x, ensure_ascii=False) for name, x in values.items()}
