"""A table of reading times, a row a word and reader: the texts that were read, and which times are left in."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spanlm.data.layouts import LAYOUTS, repaired, with_marks, words_of
from spanlm.data.tables import Errors, Row, RowNotes, first_line_kind, read_table, table_kind
from spanlm.errors import InputError, named, require
from spanlm.scoring.options import ReadingOptions
from spanlm.scoring.predictors import OF_FREQUENCIES, PREDICTORS, Frequencies, predict, spillover
from spanlm.scoring.resampling import Array, Counts
from spanlm.store.plain import c_number

_MISSING = {"", ".", "na", "n/a", "nan", "null", "none"}
_PLACES = ("position", "first", "last")
"""Predictors that spillover would only repeat."""
LARGEST = 1e100
"""From which on a number is none: it could not be squared."""
REPEATED = 5
"""Fewest words that no text has twice, one after the other, and nothing else."""
SPREADS = 3
"""Standard deviations from the mean of a subject from which on a time is an outlier."""

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Word:
    """A word as written, the numbers of its item, its context and its line, and its own in columns of the table."""

    text: str
    item: int
    context: int
    line: int
    numbers: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class ReadingTable:
    """The M words of the texts of a table in reading order, and N readings of them."""

    words: tuple[Word, ...]
    items: tuple[str, ...]  # names, by number
    subjects: tuple[str, ...]  # names, by number
    places: Counts  # (N,) the number of each reading's word
    readers: Counts  # (N,) the number of its subject
    times: Array  # (N,), NaN: missing

    @property
    def lines(self) -> list[list[int]]:
        """The numbers of the words of each line."""
        by_line = groupby(range(len(self.words)), key=lambda number: self.words[number].line)
        return [list(numbers) for _, numbers in by_line]

    def predictors(self, options: ReadingOptions, frequencies: Frequencies | None) -> dict[str, Array]:
        """Return the baseline's predictors (M,) by name; NaN where the table has no number, or the line no such word.

        Raises:
            InputError: a predictor needs frequencies and there are none.
        """
        names, in_table = split_baseline(options)
        columns: dict[str, list[Array]] = {}
        for line in self.lines:
            words = [self.words[n] for n in line]
            values = predict([word.text for word in words], names, frequencies)
            values |= {name: [word.numbers[at] for word in words] for at, name in enumerate(in_table)}
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
    names = [name for name in options.baseline.split(",") if name not in ("", "none")]
    require(len(names) == len({*names}), "baseline", options.baseline, "names, each once")
    return [name for name in names if name in PREDICTORS], [name for name in names if name not in PREDICTORS]


def needs_frequencies(options: ReadingOptions) -> bool:
    return any(name in OF_FREQUENCIES for name in split_baseline(options)[0])


# --- reading ---


class _Row(NamedTuple):
    """A reading of a word: the cells that name its item, its line in it and its subject, and its place in the line."""

    place: str
    text: str
    item: tuple[str, ...]
    within: tuple[str, ...]
    subject: tuple[str, ...]
    order: tuple[float, ...]
    numbers: tuple[float, ...]
    time: float

    @property
    def line(self) -> tuple[str, ...]:
        return self.item + self.within


def in_layout(options: ReadingOptions, layout: str, header: Collection[str]) -> ReadingOptions:
    """Return the options with the columns of a published table where they name none.

    Raises:
        InputError: the table lacks one of them.
    """
    published = LAYOUTS[layout]
    columns = published.columns(header, {"text": options.text, "line": options.item, "order": options.order})
    response, subject = (
        next((column for column in wanted.split("|") if column in header), None)
        for wanted in (published.response, published.subject)
    )
    item, line = columns["line"], options.line
    if published.item and not options.item:
        within = [name for name in _columns(item) if name not in _columns(published.item)]
        item, line = published.item, ",".join([*within, *_columns(line)])
    return replace(
        options,
        text=columns["text"],
        order=columns["order"],
        item=item,
        line=line,
        response=options.response or response,
        subject=options.subject or subject,
    )


def read_times(
    path: Path, options: ReadingOptions, layout: str | None, bad: RowNotes, odd: RowNotes, joined: RowNotes
) -> tuple[ReadingTable, ReadingOptions]:
    """Read a table; return its texts and times, and the options with the columns that were read.

    Rows that are `bad` are left out. `odd` are a time or a predictor that is no number, which is missing, and with
    --order a reading of another word than most at its place, or a second of one subject, which are left out.
    Punctuation that is read with the word beside it is `joined`.

    Raises:
        InputError: there is no such column; no time is a number; rows of a word have other predictors; without --order,
            subjects have read other words, or a text twice; a subject is none.
    """
    repairs = [] if layout is None else LAYOUTS[layout].repair.split(",")
    errors: Errors = "cp1252" if "encoding" in repairs else "strict"
    kind = table_kind(path) or first_line_kind(path, errors)
    if kind is None:
        raise InputError(f"{path}: is no table with a line of column names, .csv, .tsv or .jsonl")
    header = next(read_table(path, kind, (), bad=RowNotes(), errors=errors)).values
    options = options if layout is None else in_layout(options, layout, header)
    order, subject, added = _columns(options.order), _columns(options.subject), split_baseline(options)[1]
    line, text = _columns(options.line), options.text or "word"
    item = _columns(options.item) or [name for name in ("item",) if name in header] or line
    response = options.response
    has = f"{path}: has the columns {', '.join(header)}; say by"
    if response is None:
        raise InputError(f"{has} {named('response=COLUMN')} which holds the reading time")
    if not item:
        raise InputError(f"{has} {named('item=COLUMN')} which tells the texts apart")
    if options.subjects == "random" and not subject:
        raise InputError("subjects", "random", "needs to know who read", f"Add {named('subject=COLUMN')}")
    if unknown := [name for name in added if name not in header]:
        known = f"must be some of {', '.join(PREDICTORS)}, or a column of {path}, {', '.join(header)}"
        raise InputError("baseline", unknown[0], known)

    def check(row: Row) -> None:
        for name in order:
            require(not math.isnan(_number(row.values[name])), name, row.values[name], "a number: it is of --order")

    rows, counts = list[_Row](), Counter[tuple[object, ...]]()
    keys = [*dict.fromkeys([*item, *line, *order, *subject])]
    for row in read_table(path, kind, [text], keys=keys, also=[response, *added], check=check, bad=bad, errors=errors):
        values, place = row.values, f"{path}, line {row.line}"
        of_item, of_line, reader = (tuple(str(values[name]) for name in names) for names in (item, line, subject))
        counts[of_item, reader] += 1
        numbers = tuple(_number(values[name]) for name in order) or (float(counts[of_item, reader]),)
        time, *predictors = (_finite(name, values[name], place, odd) for name in (response, *added))
        word = repaired(values[text], repairs).strip()
        rows.append(_Row(place, word, of_item, of_line, reader, numbers, tuple(predictors), time))
    if rows and all(math.isnan(row.time) for row in rows):
        shown = next((f": {where} has {why.partition(' ')[0]}" for where, why in odd.reasons.items()), "")
        raise InputError("response", response, f"is a number in none of {len(rows):,} rows{shown}")
    table = _table(rows, options, added, odd, joined if "marks" in repairs else None)
    return table, replace(options, item=",".join(item))


def _columns(names: str | None) -> list[str]:
    return names.split(",") if names else []


def _is_missing(cell: object) -> bool:
    return cell is None or str(cell).strip().lower() in _MISSING


def _number(cell: object) -> float:
    """Return the number of a cell; NaN: it has none."""
    return math.nan if _is_missing(cell) else c_number(str(cell).strip())


def _finite(name: str, cell: object, place: str, odd: RowNotes) -> float:
    """Return the number of a cell, NaN if it is missing; one that is neither is odd, and missing."""
    if abs(number := _number(cell)) < LARGEST:
        return number
    if not _is_missing(cell):
        odd.add(place, f"{name}={cell} is {'no number' if math.isnan(number) else f'beyond {LARGEST:g}'}")
    return math.nan


def _table(
    rows: Sequence[_Row], options: ReadingOptions, added: Sequence[str], odd: RowNotes, joined: RowNotes | None
) -> ReadingTable:
    """Join the readings of each word; punctuation alone is `joined` with the word beside it, if not None."""
    of_items = _ranks(sorted({row.item for row in rows}))  # whatever the order of rows, which deals them to folds
    items = {item: n for n, item in enumerate(sorted(of_items, key=of_items.__getitem__))}
    subjects = {subject: n for n, subject in enumerate(dict.fromkeys(row.subject for row in rows))}
    if options.subject is not None and 2 * len(subjects) > len(rows) >= 10:
        why = f"has {len(subjects):,} values in {len(rows):,} rows, so that it is no reader"
        raise InputError("subject", options.subject, why)
    if options.subjects == "random" and len(subjects) < 2:
        raise InputError("subjects", "random", f"there is one, {rows[0].subject[0]}", f"Take {named('subjects=mean')}")
    if options.order is None:
        words = list(_in_order_of_rows(sorted(rows, key=lambda row: (items[row.item], row.order))))
        _refuse_repeated(words)
    else:
        ranks = _ranks([row.line for row in rows])
        words = list(words_of(sorted(rows, key=lambda row: (items[row.item], ranks[row.line], row.order)), odd))
    read, readings, contexts = list[Word](), list[tuple[int, int, float]](), dict[tuple[str, ...], int]()
    for number, (_, group) in enumerate(groupby(words, key=lambda readings: readings[0].line)):
        line = list(group)
        texts = [of_word[0].text for of_word in line]
        for text, of_word in zip(texts if joined is None else with_marks(texts), line, strict=True):
            if joined is not None and not text:
                joined.reasons |= {row.place: row.text for row in of_word}
                continue
            for row in _once(of_word, bool(options.subject), odd):
                readings.append((len(read), subjects[row.subject], row.time))
            first = of_word[0]
            context = contexts.setdefault(first.item + first.within[:-1], len(contexts))
            read.append(Word(text, items[first.item], context, number, _numbers(of_word, added)))
    places, readers, times = (np.array(column) for column in zip(*readings, strict=True))
    item_names, subject_names = (tuple(",".join(name) for name in several) for several in (items, subjects))
    return ReadingTable(tuple(read), item_names, subject_names, places, readers, times.astype(np.float64))


def _numbers(readings: Sequence[_Row], names: Sequence[str]) -> tuple[float, ...]:
    """Return the predictors of a word; a row may lack one, but not have another number."""
    first = list(readings[0].numbers)
    for row in readings:
        for at, number in enumerate(row.numbers):
            if math.isnan(first[at]):
                first[at] = number
            elif number != first[at] and not math.isnan(number):
                why = f"{row.text!r} has {number:g} in {row.place} and {first[at]:g} in another row"
                raise InputError("baseline", names[at], f"must be the word's, alike for all who read it: {why}")
    return tuple(first)


def _in_order_of_rows(rows: Sequence[_Row]) -> Iterator[list[_Row]]:
    """Yield the readings of each word of an item, whose places are numbers of rows."""
    for _, group in groupby(rows, key=lambda row: (row.item, row.order)):
        first, *others = readings = list(group)
        for row in others:
            if (row.text, row.line) != (first.text, first.line):
                seen = f"has {row.text!r} where {first.place} has {first.text!r}"
                way = f"Name the column of a word's place by {named('order=COLUMN')}"
                raise InputError(f"{row.place}: item {','.join(row.item)} {seen}. {way}.")
        yield readings


def _refuse_repeated(words: Sequence[Sequence[_Row]]) -> None:
    for _, group in groupby(words, key=lambda readings: readings[0].item):
        first = [readings[0] for readings in group]
        half, more = divmod(len(first), 2)
        texts = [(row.text, row.line) for row in first]
        if half >= REPEATED and not more and texts[:half] == texts[half:]:
            why = f"has its {half} words twice, the second time from {first[half].place} on"
            way = (
                f"Leave one out, or name the readers by {named('subject=COLUMN')}, or places by {named('order=COLUMN')}"
            )
            raise InputError(f"item {','.join(first[0].item)} {why}. {way}.")


def _once(readings: Sequence[_Row], several: bool, odd: RowNotes) -> Iterator[_Row]:
    """Yield the first reading of a word by each subject."""
    first: dict[tuple[str, ...], _Row] = {}
    for row in readings:
        before = first.setdefault(row.subject, row)
        if before is row:
            yield row
        elif several:
            odd.add(row.place, f"subject {row.subject[0]} has read {row.text!r} in {before.place}; left out")
        else:
            way = f"Name the column of readers by {named('subject=COLUMN')}"
            raise InputError(f"{row.place}: {row.text!r} has the place of {before.place}. {way}.")


def _ranks(names: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], tuple[int, ...]]:
    """Return the order of names of one or more columns: in each of numbers their own, else in which they come first."""
    ranks = list[dict[str, int]]()
    for column in zip(*names, strict=True):
        cells = [*dict.fromkeys(column)]
        if not any(math.isnan(_number(cell)) for cell in cells):
            cells.sort(key=_number)
        ranks.append({cell: rank for rank, cell in enumerate(cells)})
    return {name: tuple(rank[cell] for rank, cell in zip(ranks, name, strict=True)) for name in dict.fromkeys(names)}


# --- what is left out ---


def choose_readings(
    table: ReadingTable, options: ReadingOptions, unknown: Flags, complete: Flags
) -> tuple[Counts, dict[str, int]]:
    """Return the numbers of the readings that are left in, and how many are left out, by reason.

    `unknown` and `complete` (M,): for which words a surprisal, also of spillover, is of one outside a vocabulary, and
    which have all their predictors.

    Raises:
        InputError: no reading is left.
    """
    lines = np.array([word.line for word in table.words])
    first, last = lines != np.roll(lines, 1), lines != np.roll(lines, -1)
    first[0] = last[-1] = True
    before = f"fewer than {options.spillover} words before it in its line, or " * (options.spillover > 0)
    reasons = [
        ("", "without a time", np.isnan(table.times)),
        ("skipped", "skipped (time 0)", table.times == 0),
        ("edges", "first of a line", first[table.places]),
        ("edges", "last of a line", last[table.places]),
        ("unknown", "outside a vocabulary", unknown[table.places]),
        ("", f"{before}no number in a column", ~complete[table.places]),
    ]
    left_in, left_out = np.ones(len(table.places), np.bool_), dict[str, int]()

    def leave_out(name: str, reason: str, readings: Flags) -> None:
        if not name or name in options.exclusions:
            left_out[reason] = int((left_in & readings).sum())
            left_in[readings] = False

    for row in reasons:
        leave_out(*row)
    means, spreads = np.zeros((2, len(table.subjects)))
    for subject in np.unique(table.readers[left_in]):
        times = table.times[left_in & (table.readers == subject)]
        means[subject], spreads[subject] = times.mean(), times.std()
    far = abs(table.times - means[table.readers]) > SPREADS * spreads[table.readers]
    leave_out("outliers", f"beyond {SPREADS} SD of the subject's mean", far)
    if not left_in.any():
        counts = ", ".join(f"{count:,} {reason}" for reason, count in left_out.items() if count)
        raise InputError("exclude", options.exclude, f"leaves none of {len(left_in):,} readings", counts)
    return np.flatnonzero(left_in), left_out
