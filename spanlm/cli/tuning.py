"""The part of a corpus on which something is tuned before another part is measured, and what is told of it."""

from __future__ import annotations

import argparse

from spanlm.data.config import Split
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError
from spanlm.evaluation.cache import CacheTuning
from spanlm.evaluation.dynamic.tuning import DynamicTuning
from spanlm.evaluation.perplexity import Evaluation
from spanlm.evaluation.scoring import shown
from spanlm.runs.trained_model import LoadedModel

TUNED_ON: Split = "valid"


def tuning_part(model: LoadedModel, options: argparse.Namespace, option: str, otherwise: str) -> Corpus:
    """Load what is tuned on, in the model's vocabulary.

    Args:
        model: what is measured.
        options: name the corpus.
        option: that asks for the tuning.
        otherwise: what can be given instead.

    Raises:
        InputError: the corpus has no such part.
    """
    valid = model.corpus(options.corpus, TUNED_ON, data_dir=options.data_dir, download=options.download)
    if TUNED_ON not in valid.splits:
        raise InputError(
            f"{option}: {valid.name} has no {TUNED_ON} part to tune on. Name a corpus that has one, or give "
            f"{otherwise}."
        )
    return valid


def tuned_rows(result: Evaluation, tuning: CacheTuning | DynamicTuning, chosen: str) -> list[tuple[str, str]]:
    """Say on what something was tuned, what was `chosen`, what it did there, and what to know of that."""
    same = tuning.text == f"{result.corpus} {result.split}"
    there = f"{tuning.text}{', the text shown here, too, so this is optimistic' if same else ''}"
    numbers = f"{shown(tuning.perplexity)} there, {shown(tuning.plain)} without"
    return [("tuned on", f"{there}: {chosen}; {numbers}"), *(("", note) for note in tuning.notes)]


def both_counts(result: Evaluation) -> str:
    """Return a perplexity, and beside it that of the count of Salton et al. where there is one."""
    count = "" if result.salton2017 is None else f", Salton's count {shown(result.salton2017.perplexity)}"
    return f"{shown(result.perplexity)}{count}"
