"""A table of reading times, a row a word and reader: the texts that were read, and which times are left in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spanlm.data.tables import Row, RowNotes, first_line_kind, read_table, table_kind
from spanlm.errors import InputError, named, require
from spanlm.scoring.options import ReadingOptions
from spanlm.scoring.predictors import OF_FREQUENCIES, PREDICTORS, Frequencies, predict, spillover
from spanlm.scoring.resampling import Array, Counts
from spanlm.store.plain import c_number

_MISSING = {"", ".", "na", "n/a", "nan", "null", "none"}
_PLACES = ("position", "first", "last")
"""Predictors that spillover would only repeat."""
SPREADS = 3
"""Standard deviations from the mean of a subject from which on a time is an outlier."""

Flags = NDArray[np.bool_]
Place = tuple[tuple[str, ...], tuple[float, ...]]
"""The line of a word in its item, and its numbers of --order, or of its row."""


@dataclass(frozen=True)
class Word:
    """A word of a text: as written, the number of its item, its line, and its numbers in columns of the table."""

    text: str
    item: int
    line: int
    numbers: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class ReadingTable:
    """The M words of the texts of a table in reading order, and N readings of them."""

    words: tuple[Word, ...]
    items: tuple[str, ...]  # names, by number
    subjects: tuple[str, ...]  # names, by number
    of: Counts  # (N,) the number of each reading's word
    by: Counts  # (N,) of its subject
    times: Array  # (N,), NaN: missing

    @property
    def lines(self) -> list[list[int]]:
        """The numbers of the words of each line."""
        lines: list[list[int]] = [[] for _ in range(self.words[-1].line + 1)]
        for number, word in enumerate(self.words):
            lines[word.line].append(number)
        return lines

    def predictors(self, options: ReadingOptions, frequencies: Frequencies | None) -> dict[str, Array]:
        """Return the baseline's predictors (M,) by name; NaN where the table has no number, or the line no such word.

        Raises:
            InputError: a predictor needs frequencies and there are none.
        """
        names, own = split_baseline(options)
        columns: dict[str, list[Array]] = {}
        for line in self.lines:
            words = [self.words[n] for n in line]
            values = predict([word.text for word in words], names, frequencies)
            values |= {name: [word.numbers[at] for word in words] for at, name in enumerate(own)}
            for name, column in _with_spillover(values, options.spillover).items():
                columns.setdefault(name, []).append(column)
        return {name: np.concatenate(parts) for name, parts in columns.items()}

    def spilled(self, surprisal: Array, spill: int) -> Array:
        """Return surprisal (M,) of each word and of the words before it in its line, (M, spill + 1), NaN before it."""
        parts = [_with_spillover({"": surprisal[line].tolist()}, spill) for line in self.lines]
        return np.concatenate([np.column_stack([*part.values()]) for part in parts])


def _with_spillover(columns: dict[str, list[float]], spill: int) -> dict[str, Array]:
    before = spillover({name: x for name, x in columns.items() if name not in _PLACES}, spill)
    return {name: np.array(column, np.float64) for name, column in {**columns, **before}.items()}


def split_baseline(options: ReadingOptions) -> tuple[list[str], list[str]]:
    """Return the predictors of the baseline that are computed, and those that are columns of the table."""
    names = [name for name in options.baseline.split(",") if name]
    require(len(names) == len({*names}), "baseline", options.baseline, "names, each once")
    return [name for name in names if name in PREDICTORS], [name for name in names if name not in PREDICTORS]


def needs_frequencies(options: ReadingOptions) -> bool:
    return any(name in OF_FREQUENCIES for name in split_baseline(options)[0])


# --- reading ---


def read_times(path: Path, options: ReadingOptions, bad: RowNotes, unread: RowNotes) -> ReadingTable:
    """Read a table; rows that are `bad` are left out, and a time that is no number is missing, with a note (`unread`).

    Raises:
        InputError: there is no such column; rows disagree on a word; a subject has a place twice, or is none.
    """
    kind = table_kind(path) or first_line_kind(path)
    if kind is None:
        raise InputError(f"{path}: is no table with a line of column names, .csv, .tsv or .jsonl")
    header = next(read_table(path, kind, (), bad=RowNotes())).values
    response = options.response
    if response is None:
        why = f"say by {named('response=…')} which holds the reading time"
        raise InputError(f"{path}: has the columns {', '.join(header)}; {why}")
    line = _columns(options.line)
    item = _columns(options.item) or line or [name for name in ("item",) if name in header]
    if not item:
        why = f"say by {named('item=…')} which tells the texts apart"
        raise InputError(f"{path}: has the columns {', '.join(header)}; {why}")
    order, subject, own = _columns(options.order), _columns(options.subject), split_baseline(options)[1]
    if unknown := [name for name in own if name not in header]:
        known = f"must be some of {', '.join(PREDICTORS)}, or a column of {path}, {', '.join(header)}"
        raise InputError("baseline", unknown[0], known)
    texts = _Texts(bool(order), bool(subject))

    def check(row: Row) -> None:
        for name in order:
            require(not math.isnan(_number(row.values[name])), name, row.values[name], "a number: it is of --order")

    for row in read_table(
        path,
        kind,
        [options.text],
        keys=[*dict.fromkeys([*item, *line, *order, *subject])],
        also=[response, *own],
        check=check,
        bad=bad,
    ):
        values, cell = row.values, row.values[response]
        time = _number(cell)
        if math.isnan(time) and not _is_missing(cell):
            unread.add(f"{path}, line {row.line}", f"{response}={cell}")
        keys = _Keys(*(tuple(str(values[name]) for name in names) for names in (item, line, subject)))
        places = tuple(_number(values[name]) for name in order)
        numbers = tuple(_number(values[name]) for name in own)
        texts.add(f"{path}, line {row.line}", str(values[options.text]).strip(), keys, places, numbers, time)
    return texts.table(options)


def _columns(names: str | None) -> list[str]:
    return names.split(",") if names else []


def _is_missing(cell: object) -> bool:
    return cell is None or str(cell).strip().lower() in _MISSING


def _number(cell: object) -> float:
    """Return the number of a cell; NaN: it has none."""
    with suppress(ValueError):
        return math.nan if _is_missing(cell) else c_number(str(cell).strip())
    return math.nan


class _Keys(NamedTuple):
    """The cells of a row that name its item, its line and its subject."""

    item: tuple[str, ...]
    line: tuple[str, ...]
    subject: tuple[str, ...]


class _Texts:
    """The words of items by their places, and the readings of them."""

    def __init__(self, ordered: bool, several: bool) -> None:
        self.ordered, self.several = ordered, several
        self._words = dict[tuple[str, ...], dict[Place, tuple[str, tuple[float, ...], str]]]()
        self._subjects = dict[tuple[str, ...], int]()
        self._read = dict[tuple[object, ...], str]()
        self._counts = dict[tuple[object, ...], int]()
        self._readings = list[tuple[tuple[str, ...], Place, int, float]]()

    def add(
        self,
        row: str,
        text: str,
        keys: _Keys,
        order: tuple[float, ...],
        numbers: tuple[float, ...],
        time: float,
    ) -> None:
        item, line, subject = keys
        by = self._subjects.setdefault(subject, len(self._subjects))
        count = self._counts[by, item] = self._counts.get((by, item), 0) + 1
        place = line, order if self.ordered else (float(count),)
        words = self._words.setdefault(item, {})
        word, _, first = words.setdefault(place, (text, numbers, row))
        where = f"{row}: item {','.join(item)}"
        if word != text:
            way = "A row is missing or added" if self.ordered else f"Name the column of its place by {named('order=…')}"
            raise InputError(f"{where} has the word {text!r} where {first} has {word!r}. {way}.")
        if (again := self._read.setdefault((by, item, place), row)) != row:
            who = f"subject {subject[0]} reads" if self.several else "has"
            way = "" if self.several else f" Name the column of readers by {named('subject=…')}."
            raise InputError(f"{where}: {who} {text!r} at the place of {again} again.{way}")
        self._readings.append((item, place, by, time))

    def table(self, options: ReadingOptions) -> ReadingTable:
        words, numbers, lines = list[Word](), dict[tuple[tuple[str, ...], Place], int](), -1
        for number, (item, places) in enumerate(self._words.items()):
            ranks, last = self._ranks([line for line, _ in places]), None
            for place in sorted(places, key=lambda place: (ranks[place[0]] if self.ordered else 0, place[1])):
                lines, last = lines + (place[0] != last), place[0]
                numbers[item, place] = len(words)
                words.append(Word(places[place][0], number, lines, places[place][1]))
        readings = [(numbers[item, place], by, time) for item, place, by, time in self._readings]
        of, by, times = (np.array(column) for column in zip(*readings, strict=True))
        subjects = tuple(",".join(name) for name in self._subjects)
        if self.several and len(subjects) > max(2, len(times) // 2):
            why = f"has {len(subjects):,} values in {len(times):,} rows, so that it is no reader"
            raise InputError("subject", options.subject, why)
        if options.subjects == "random" and len(subjects) < 2:
            raise InputError("subjects", "random", f"there is one, {subjects[0]}", f"Take {named('subjects=mean')}")
        items = tuple(",".join(name) for name in self._words)
        return ReadingTable(tuple(words), items, subjects, of, by, times.astype(np.float64))

    @staticmethod
    def _ranks(lines: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], int]:
        """Return the order of lines: of numbers their own, else the one in which they come first."""
        lines = [*dict.fromkeys(lines)]
        values = {line: tuple(map(_number, line)) for line in lines}
        if not any(math.isnan(x) for value in values.values() for x in value):
            lines.sort(key=values.__getitem__)
        return {line: rank for rank, line in enumerate(lines)}


# --- what is left out ---


def choose_readings(
    table: ReadingTable, options: ReadingOptions, unknown: Flags, complete: Flags
) -> tuple[Counts, dict[str, int]]:
    """Return the numbers of the readings that are left in, and how many are left out, by reason.

    `unknown` and `complete` (M,): which words are outside a vocabulary, and have all their predictors.

    Raises:
        InputError: no reading is left.
    """
    first = np.zeros(len(table.words), np.bool_)
    last = first.copy()
    for line in table.lines:
        first[line[0]] = last[line[-1]] = True
    kept, left_out = np.ones(len(table.of), np.bool_), dict[str, int]()

    def leave_out(reason: str, readings: Flags) -> None:
        left_out[reason] = int((kept & readings).sum())
        kept[readings] = False

    chosen = options.exclusions
    leave_out("without a time", np.isnan(table.times))
    if "skipped" in chosen:
        leave_out("skipped (time 0)", table.times == 0)
    if "edges" in chosen:
        leave_out("first of a line", first[table.of])
        leave_out("last of a line", last[table.of])
    if "unknown" in chosen:
        leave_out("outside a vocabulary", unknown[table.of])
    before = f"fewer than {options.spillover} words before it in its line, or no number in a column"
    leave_out(before if options.spillover else "no number in a column", ~complete[table.of])
    if "outliers" in chosen:
        counts = np.maximum(np.bincount(table.by[kept], minlength=len(table.subjects)), 1)
        means, squares = (
            np.bincount(table.by[kept], table.times[kept] ** power, len(table.subjects)) / counts for power in (1, 2)
        )
        spread = np.sqrt(np.maximum(squares - means**2, 0))
        far = abs(table.times - means[table.by]) > SPREADS * spread[table.by]
        leave_out(f"beyond {SPREADS} SD of the subject's mean", far)
    if not kept.any():
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items() if count)
        raise InputError("exclude", options.exclude, f"leaves none of {len(kept):,} readings", reasons)
    return np.flatnonzero(kept), left_out
