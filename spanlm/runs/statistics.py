"""What dynamic evaluation must know of a run: in its folder, or gathered on the text it was trained on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from spanlm.errors import InputError, SpanlmError
from spanlm.evaluation.dynamic_statistics import (
    LENGTH,
    PART,
    DynamicStatistics,
    gather_statistics,
    read_statistics,
    save_statistics,
    text_digest,
)
from spanlm.evaluation.lessons import Report, quiet
from spanlm.models.interfaces import NextWordModel
from spanlm.runs.texts import Texts
from spanlm.store.run_folder import weights_digest


def find_statistics(
    model: NextWordModel,
    texts: Texts,
    file: str,
    *,
    segments: int | None = None,
    length: int = LENGTH,
    data_dir: str | None = None,
    download: bool = False,
    report: Report = quiet,
) -> DynamicStatistics:
    """Return a run's gradient statistics: those in its folder, or, if they are not of these weights and text, new ones.

    New ones are saved in the folder, as `file`; where that cannot be written they are only returned.
    `origin` says which.

    Args:
        model: one model, no ensemble.
        texts: what it was trained on.
        file: the name of the statistics in its folder.
        segments: so many of the training text are enough; None: all of it.
        length: steps of a segment.
        data_dir: where registered corpora are.
        download: fetch a registered corpus that is not there.
        report: told of progress while they are gathered.

    Raises:
        InputError: neither statistics that belong to the weights nor the training text are there.
    """
    path, weights = texts.folder / file, weights_digest(dict(model.named_parameters()))
    try:
        corpus = texts.corpus(None, PART, data_dir=data_dir, download=download)
    except SpanlmError as missing:
        return _without_text(path, model, weights, length, segments, missing)
    text = text_digest(corpus)
    try:
        return read_statistics(path, model, weights, text, length, segments)
    except FileNotFoundError:
        origin = "gathered now"
    except InputError as stale:
        origin = f"gathered anew ({stale})"
    found = gather_statistics(
        model,
        corpus,
        kind=texts.batching(corpus, PART),
        predict_first=texts.predict_first,
        length=length,
        segments=segments,
        report=report,
    )
    try:
        save_statistics(path, found, weights, text)
    except OSError as error:
        return replace(found, origin=f"{origin}; kept in memory alone: {path} could not be written: {error.strerror}")
    return replace(found, origin=f"{origin}, saved in {path}")


def _without_text(
    path: Path, model: NextWordModel, weights: str, length: int, segments: int | None, missing: SpanlmError
) -> DynamicStatistics:
    """Return what the folder has, where the training text is not there to be compared."""
    try:
        found = read_statistics(path, model, weights, None, length, segments)
    except (FileNotFoundError, InputError) as error:
        why = f"there is no {path}" if isinstance(error, FileNotFoundError) else str(error)
        raise InputError(
            f"dynamic evaluation without statistics: {why}, and the text of the training, on which they are gathered, "
            f"is not to be had: {missing} Put the text back where it was, or this model's {path.name} into "
            f"{path.parent}."
        ) from None
    return replace(found, origin=f"{found.origin}; the training text is not there to be compared")
