"""Options of `spanlm score` for reading times: predictors beside surprisal, spillover, and rows of regions."""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING, Any

from spanlm.data.tables import RowNotes
from spanlm.data.vocabulary import EOS
from spanlm.errors import InputError, require
from spanlm.scoring.predictors import OF_FREQUENCIES, PREDICTORS, Frequencies, predict, spillover

if TYPE_CHECKING:
    from spanlm.runs.model import Model

_Row = dict[str, Any]
_Rows = Sequence[tuple[Any, list[_Row]]]
"""Rows by the item that they were made of, which has a `region`."""

_OF_REGION = {
    "word": "the words of the region, with a space between two",
    "words": "how many words it has",
    "oov": "how many of them have a token that is not in the vocabulary",
}


def names_of_predictors(options: argparse.Namespace) -> list[str]:
    """Return the predictors of --predictors; InputError: one is unknown, or --frequencies serves none."""
    names = options.predictors.split(",") if options.predictors is not None else []
    names = [*PREDICTORS] if names == ["all"] else [*dict.fromkeys(names)]
    for name in names:
        require(name in PREDICTORS, "--predictors", name, f"all, or some of {', '.join(PREDICTORS)}")
    if options.frequencies is not None and not {*OF_FREQUENCIES} & {*names}:
        way = f"Add --predictors {','.join(OF_FREQUENCIES)}"
        raise InputError("--frequencies", options.frequencies, "is for predictors that need it", way)
    return names


class Predictors:
    """Columns that are added to the rows of a line, and rows that replace them.

    Attributes:
        columns: what each column means, of rows of words or, with --region, of regions.
    """

    def __init__(self, options: argparse.Namespace, models: Mapping[str, Model], base: float) -> None:
        self._names, self._base = names_of_predictors(options), base
        self.bad: RowNotes = RowNotes(strict=options.strict)
        self._region, self._spillover = options.region, options.spillover
        self._unseen = Counter[str]()
        self._frequencies = self._counted(options, models)
        added = {name: PREDICTORS[name] for name in self._names}
        numbers = {"surprisal": "the surprisal"} | added
        if self._region is not None:
            sums = {f"{name}_sum": f"sum over the words of the region: {text}" for name, text in numbers.items()}
            means = {f"{name}_mean": f"mean over the words of the region: {text}" for name, text in numbers.items()}
            numbers = sums | means
            added = _OF_REGION | numbers
        unit = "word" if self._region is None else "region"
        for lag in range(1, self._spillover + 1):
            before = f"{lag} {unit}s before in the line; NaN where there is none"
            added |= {f"{name}_prev{lag}": f"{name} of the {unit} {before}" for name in numbers}
        self.columns = added

    def _counted(self, options: argparse.Namespace, models: Mapping[str, Model]) -> Mapping[str, Frequencies]:
        if not {*OF_FREQUENCIES} & {*self._names}:
            return {}
        if options.frequencies is not None:
            return dict.fromkeys(models, Frequencies.of_file(options.frequencies, self.bad))
        try:
            return {name: model.texts.frequencies() for name, model in models.items()}
        except InputError as error:
            way = "Name a file by --frequencies, or other --predictors"
            raise InputError(f"{str(error).rstrip('.')}. {way}: these are counted in the training text") from None

    def finished(self, model: str, line: _Rows) -> _Rows:
        """Add the columns to a model's rows of a line; with --region return a row a region, by its first item.

        An <eos> is no word: it has no predictors and is in no region.
        """
        if not self.columns:
            return line
        for _, rows in line:
            for row in rows:
                row |= dict.fromkeys(self.columns if self._region is None else ())
        words = [(item, row) for item, rows in line for row in rows if row["word"] != EOS]
        columns: Mapping[str, Sequence[float]]
        numbers: dict[str, Sequence[float]] = {"surprisal": [row["surprisal"] for _, row in words]}
        frequencies, texts = self._frequencies.get(model), [row["word"] for _, row in words]
        if frequencies is not None:
            self._unseen[frequencies.source] += sum(text not in frequencies for text in texts)
        numbers |= predict(texts, self._names, frequencies, self._base)
        if self._region is None:
            columns = {name: numbers[name] for name in self._names}
            before = spillover(numbers, self._spillover)
        else:
            groups = [list(group) for _, group in groupby(words, key=lambda word: word[0].region)]
            bounds = [*pairwise(accumulate(map(len, groups), initial=0))]
            sums = {f"{name}_sum": [math.fsum(x[a:b]) for a, b in bounds] for name, x in numbers.items()}
            means = {f"{name}_mean": [math.fsum(x[a:b]) / (b - a) for a, b in bounds] for name, x in numbers.items()}
            columns = {**sums, **means}
            before = spillover(columns, self._spillover)
            words = [(group[0][0], _merged([row for _, row in group])) for group in groups]
            line = [(item, [row]) for item, row in words]
        for place, (_, row) in enumerate(words):
            row |= {name: column[place] for name, column in (*columns.items(), *before.items())}
        return line

    def source(self, model: str) -> str | None:
        """Return what the frequencies for a model are of; None: no predictor needs them."""
        return None if (frequencies := self._frequencies.get(model)) is None else frequencies.source

    def notes(self) -> Iterator[str]:
        yield from self.bad.lines()
        for source, count in self._unseen.items():
            if count:
                yield lacking(source, count)


def lacking(source: str, count: int) -> str:
    """Note words without a frequency."""
    return f"note: {source} lacks {count:,} of the words: they count as its rarest word"


def _merged(rows: Sequence[_Row]) -> _Row:
    """Return the columns of a region that are no sums of numbers."""
    first = rows[0]
    row = {"sentence": first["sentence"], "word": " ".join(row["word"] for row in rows), "words": len(rows)}
    return row | {"oov": sum(row["oov"] for row in rows), "oov_before": first["oov_before"]}
