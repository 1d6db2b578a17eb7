"""Predictors of reading times beside surprisal: of written words, without a model. This module does not import torch.

Frequencies. A word counts without the punctuation at its edges, in lower case, and with ' for ’: `“Don’t` is `don't`.
With c(w) its count among N words, p(w) = c(w) / N; frequency is log10(10^6 p), unigram surprisal −log p. So the two are
one quantity in two units, and a regression takes one of them. A word that the source lacks has the frequency of the
rarest word of the source.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from spanlm.data.tables import Row, RowNotes, first_line_kind, read_table, table_kind
from spanlm.data.vocabulary import EOS, UNK
from spanlm.errors import InputError, require
from spanlm.store.files import is_pipe
from spanlm.store.plain import c_number

T = TypeVar("T")

PREDICTORS = {
    "length": "characters of the word without the punctuation at its edges",
    "frequency": "log10 of the word's occurrences per million, without punctuation and capitals; a word that the "
    "source lacks has the frequency of its rarest word",
    "unigram": "−log p(word) by the same frequencies, in the unit of the surprisal: the frequency in another unit",
    "position": "which word of the line, from 1",
    "first": "1 for the first word of the line, else 0",
    "last": "1 for the last word of the line, else 0",
    "punctuation_before": "1 if the word begins with punctuation, else 0",
    "punctuation_after": "1 if the word ends with punctuation, else 0",
}
"""What each predictor is, by name."""

OF_FREQUENCIES = "frequency", "unigram"

UNITS: dict[str, Callable[[float], float]] = {
    "count": float,
    "per_million": float,
    "log10_per_million": lambda value: 10**value,
    "zipf": lambda value: 10 ** (value - 3),
}
"""From a column of a frequency file to what p is proportional to; zipf is log10 per million, plus 3."""


def inner(word: str) -> tuple[int, int]:
    """Return where a word begins and ends without the punctuation (Unicode's P and `) at its edges.

    A word of punctuation alone has none of it: (its length, 0).
    """
    places = [place for place, mark in enumerate(word) if mark != "`" and unicodedata.category(mark)[0] != "P"]
    return (places[0], places[-1] + 1) if places else (len(word), 0)


def _key(word: str) -> str:
    """Return what a word is looked up by; punctuation alone is looked up as it is."""
    return (word[slice(*inner(word))] or word).lower().replace("’", "'")


class Frequencies:
    """Frequencies of written words, in a training text or a file.

    Attributes:
        source: what they are of, for people.
    """

    def __init__(self, counts: Mapping[str, float], source: str, total: float | None = None) -> None:
        """Take the counts of written words; `total` is N, by default their sum. InputError: there are no words."""
        merged = dict[str, float]()
        for word, count in counts.items():
            if word not in (EOS, UNK) and count > 0:
                merged[_key(word)] = merged.get(_key(word), 0.0) + count
        if not merged:
            raise InputError(f"{source}: has no word to count")
        self.source: str = source
        self._counts, self._rarest = merged, min(merged.values())
        # an <unk> of the text is a word, too
        total = total or math.fsum(count for word, count in counts.items() if word != EOS)
        self._log_total = math.log(total)

    def __contains__(self, word: str) -> bool:
        return _key(word) in self._counts

    def surprisal(self, word: str, base: float = 2.0) -> float:
        """Return −log p(w), in the unit of the logarithm's `base`."""
        return (self._log_total - math.log(self._counts.get(_key(word), self._rarest))) / math.log(base)

    def log10_per_million(self, word: str) -> float:
        return 6 - self.surprisal(word, 10.0)

    @classmethod
    def of_file(cls, path: str | Path, bad: RowNotes | None = None) -> Frequencies:
        """Read a table with a column `word`, and one of `count`, `per_million`, `log10_per_million` or `zipf`.

        Spellings that differ in capitals or punctuation are summed. A row is `bad`, by default an error, if its number
        is none, or its word came before.

        Raises:
            InputError: the file cannot be read, lacks these columns, or has no row that can be used.
        """
        path = Path(path)
        if is_pipe(path):
            raise InputError("frequencies", path, "is a pipe, and is read twice", "Write it to a file")
        kind = table_kind(path) or first_line_kind(path) or "csv"
        columns = {name.lower(): name for name in next(read_table(path, kind, (), bad=RowNotes())).values}
        units = [name for name in UNITS if name in columns]
        if "word" not in columns or not units:
            way = f"Name one column word, another {', '.join(UNITS)}"
            raise InputError("frequencies", path, f"has the columns {', '.join(columns.values())}", way)
        word, unit = columns["word"], columns[units[0]]
        counts, lines = dict[str, float](), dict[str, int]()

        def check(row: Row) -> None:
            spelled, value, count = row.values[word], str(row.values[unit]).strip(), math.nan
            if (line := lines.setdefault(spelled, row.line)) != row.line:
                raise InputError(word, spelled, f"is in line {line}, too", "Leave one of them out")
            with suppress(OverflowError):
                count = UNITS[units[0]](c_number(value))
            require(0 < count < math.inf, unit, value, "a number, of words that occur")
            counts[spelled] = count

        for _ in read_table(path, kind, [word], keys=[unit], check=check, bad=bad):
            pass
        total = None if units[0] == "count" else 1e6
        return cls(counts, str(path), total)


def predict(
    words: Sequence[str], names: Sequence[str], frequencies: Frequencies | None = None, base: float = 2.0
) -> dict[str, list[float]]:
    """Return the predictors of a line's written words by name; `base` is that of the unigram surprisal.

    Raises:
        InputError: a name is unknown, or a predictor needs frequencies and there are none.
    """
    for name in names:
        require(name in PREDICTORS, "predictors", name, f"some of {', '.join(PREDICTORS)}")
        if name in OF_FREQUENCIES and frequencies is None:
            raise InputError("predictors", name, "needs frequencies", "Name a file of them")
    cores, count = [inner(word) for word in words], len(words)
    columns: dict[str, Sequence[float]] = {
        "length": [max(0, end - start) for start, end in cores],
        "position": range(1, count + 1),
        "first": [int(place == 0) for place in range(count)],
        "last": [int(place == count - 1) for place in range(count)],
        "punctuation_before": [int(start > 0) for start, _ in cores],
        "punctuation_after": [int(end < len(word)) for word, (_, end) in zip(words, cores, strict=True)],
    }
    if frequencies is not None:
        columns["frequency"] = [frequencies.log10_per_million(word) for word in words]
        columns["unigram"] = [frequencies.surprisal(word, base) for word in words]
    return {name: [*columns[name]] for name in names}


def spillover(columns: Mapping[str, Sequence[T]], words: int) -> dict[str, list[T | None]]:
    """Return the columns of a line's words as they are 1 to `words` words before; None where the line has not begun.

    `length` becomes `length_prev1`, of the word before, `length_prev2` and so on.
    """
    return {
        f"{name}_prev{lag}": [*[None] * lag, *column][: len(column)]
        for lag in range(1, words + 1)
        for name, column in columns.items()
    }
