"""The output of `spanlm compare --questions`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from spanlm.analysis.questions import Answers, PairedAnswers, Way, paired
from spanlm.cli.cloze import CBT_LIKE_NOTE, MOST_SHOWN, TITLES
from spanlm.cli.render import grid, out, paragraph, table
from spanlm.data.cbt import Defect, Question, is_cbt_like, word_class
from spanlm.errors import InputError
from spanlm.scoring.cloze import Score
from spanlm.scoring.resampling import FEWEST_BLOCKS, of_chance
from spanlm.store.plain import Grid

_RANKED: dict[Score, str] = {"sentence": "ranked by the whole sentence", "candidate": "ranked by the candidate alone"}
_HEADER = ("right", "accuracy", "difference", "95 %", "p")
_COUNTS = ("right answers of", "both", "this one alone", "baseline alone", "neither")


class QuestionReport:
    """The answers of a baseline and of other models to the questions of some files, compared in each way.

    Raises:
        InputError: there is no question that every model could score.
    """

    def __init__(
        self, files: Sequence[Path], questions: Sequence[Question | Defect], models: Sequence[Answers]
    ) -> None:
        self._files, self._questions, (baseline, *others) = files, questions, models
        known = np.logical_and.reduce([answers.scored for answers in models])
        if not known.any():
            defect = next((f": {question}" for question in questions if isinstance(question, Defect)), "")
            raise InputError(f"{', '.join(map(str, files))}: no question that every model can score{defect}")
        classes = [word_class(Path(question.file)) for question in questions]
        self._compared, self._baseline, self._others = int(known.sum()), baseline.name, [other.name for other in others]
        self._pairs: dict[Way, list[list[PairedAnswers]]] = {
            way: [paired(baseline, other, way, classes, known) for other in others] for way in baseline.right
        }

    def fields(self, runs: Sequence[Sequence[Path]]) -> dict[str, Any]:
        """Return the fields of `--json`; `runs` has the runs of the baseline, then of each other model."""
        folders = [[str(path) for path in paths] for paths in runs]
        defects = [asdict(question) for question in self._questions if isinstance(question, Defect)]
        names = enumerate(zip(self._others, folders[1:], strict=True))
        return {
            "files": [
                {"file": str(file), "class": word_class(file), "cbt_like": is_cbt_like(file)} for file in self._files
            ],
            "questions": len(self._questions),
            "compared": self._compared,
            "defects": defects,
            "baseline": {"name": self._baseline, "runs": folders[0]},
            "comparisons": [{"name": name, "runs": paths, "contexts": self._nested(n)} for n, (name, paths) in names],
        }

    def _nested(self, number: int) -> dict[str, dict[str, list[dict[str, Any]]]]:
        nested = dict[str, dict[str, list[dict[str, Any]]]]()
        for (context, score), pairs in self._pairs.items():
            nested.setdefault(context, {})[score] = [row.to_json() for row in pairs[number]]
        return nested

    def print(self) -> None:
        """Print the tables; of defects at most `MOST_SHOWN`."""
        names = ", ".join(f"{file.name} ({word_class(file)})" for file in self._files)
        total, compared = len(self._questions), self._compared
        defects = [question for question in self._questions if isinstance(question, Defect)]
        paragraph(*(f"not scored: {defect}" for defect in defects[:MOST_SHOWN]))
        only = "" if compared == total else f", {compared:,} of them compared: those that every model scores"
        table(
            [
                ("questions", f"{names}: {total:,} questions{only}"),
                ("intervals", f"95 %, over draws of the {compared:,} questions; p: McNemar's exact test"),
            ]
        )
        for cells in self.tables():
            out()
            grid(*cells)
        rows = [row for pairs in self._pairs.values() for rows in pairs for row in rows]
        if any(row.questions < FEWEST_BLOCKS for row in rows):
            paragraph(f"– fewer than {FEWEST_BLOCKS} questions")
        if any(row.sparse for row in rows if row.questions >= FEWEST_BLOCKS):
            paragraph(f"? fewer than {FEWEST_BLOCKS} discordant questions: the interval may be too short")
        if any(map(is_cbt_like, self._files)):
            out()
            paragraph(CBT_LIKE_NOTE)

    def tables(self) -> Iterator[Grid]:
        """Yield, for each way, the accuracies with their differences in points, and the fourfold counts."""
        for way, pairs in self._pairs.items():
            context, score = way
            rows = [_row(self._baseline, row, row.both + row.lost, row.baseline_accuracy) for row in pairs[0]]
            counts = []
            for name, answers in zip(self._others, pairs, strict=True):
                for row in answers:
                    right = _row(name, row, row.both + row.gained, row.accuracy)
                    rows.append([*right[:3], _points(row.difference), _interval(row), of_chance(row.p)])
                    numbers = (row.both, row.gained, row.lost, row.neither)
                    counts.append([right[0], *(f"{number:,}" for number in numbers)])
            yield ["", *_HEADER], rows, f"{TITLES[context]}; {_RANKED[score]}"
            yield _COUNTS, counts, None


def _row(model: str, row: PairedAnswers, right: int, accuracy: float) -> list[str]:
    return [model if row.name == "all" else f"  {row.name}", f"{right:,}", f"{accuracy:.1%}", "", "", ""]


def _interval(row: PairedAnswers) -> str:
    low, high = map(_points, row.interval)
    return f"{'?' * row.sparse}{low} to {high}" if row.questions >= FEWEST_BLOCKS else "–"


def _points(difference: float) -> str:
    """Format a difference in points of a percentage: `+1.2`, `−0.4`, `0.0`."""
    return "0.0" if abs(difference) < 0.0005 else f"{100 * difference:+.1f}".replace("-", "−")
