"""The cloze questions of a table: which files, and a model's accuracy on them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spanlm.data.cbt import Defect, is_cbt_like, read_questions, word_class
from spanlm.data.config import CBT
from spanlm.data.sources import DATA_VARIABLE
from spanlm.errors import InputError
from spanlm.evaluation.cloze import ClozeTally
from spanlm.reproduction.daniluk2017 import CLOZE_CLASSES
from spanlm.runs.trained_model import TrainedModel
from spanlm.store.files import expanded

_SHOWN = 20
"""Defects that are kept in words; all are counted."""


def find_questions(data_dir: str | None, given: tuple[Path, ...]) -> tuple[Path, ...]:
    """Return the question files that were given, or the test questions beside the corpus cbt.

    Beside the corpus, one file is taken for every word class: the real one if it is there, else a CBT-like one.

    Raises:
        InputError: there are none; says where they were looked for. One that was given cannot be read, or its name does
            not say of which word class it is: told before hours of training, not after.
    """
    for path in given:
        next(read_questions(path))
        if word_class(path) not in CLOZE_CLASSES:
            raise InputError(
                f"--questions={path}: its name does not say what it asks for. Name it like cbtest_NE_test_2500ex.txt, "
                f"with one of {', '.join(CLOZE_CLASSES)}."
            )
    if given:
        return given
    root = data_dir or os.environ.get(DATA_VARIABLE)
    folder = expanded(root) / CBT if root else None
    found = sorted(folder.rglob("cbt*_test_2500*.txt*")) if folder else []
    if not found:
        where = f"in {folder}" if folder else f"({DATA_VARIABLE} is not set)"
        raise InputError(
            f"--questions: no test questions {where}. Put cbtest_NE_test_2500ex.txt and the like there, or name files."
        )
    by_class = ([path for path in found if word_class(path) == name] for name in CLOZE_CLASSES)
    return tuple(min(paths, key=lambda path: (is_cbt_like(path), path)) for paths in by_class if paths)


def cloze_accuracies(model: TrainedModel, questions: Sequence[Path]) -> dict[str, Any]:
    """Rank the candidates of every question with its whole context; return accuracies by word class as plain values.

    Raises:
        InputError: a file cannot be read, or holds no question.
    """
    tallies: dict[str, ClozeTally] = {}
    defects: list[str] = []
    for path in questions:
        tally = tallies.setdefault(word_class(path), ClozeTally())
        for found in model.cloze(path, contexts=("full",)):
            if isinstance(found, Defect):
                defects.append(f"{path.name}, line {found.line}: {found.reason}")
            else:
                tally.add(found)
    return {
        "context": "full",
        "files": [path.name for path in questions],
        "cbt_like": any(map(is_cbt_like, questions)),
        "classes": {name: tally.to_json() for name, tally in tallies.items()},
        "defects": len(defects),
        "first_defects": defects[:_SHOWN],
    }
