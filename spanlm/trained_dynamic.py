"""What dynamic evaluation must know of a run: in its folder, or gathered on the text it was trained on."""

from __future__ import annotations

from dataclasses import replace

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
from spanlm.models.ensemble import Ensemble
from spanlm.trained_run import TrainedRun
from spanlm.training.run_folder import weights_digest


def find_statistics(
    run: TrainedRun,
    *,
    segments: int | None = None,
    length: int = LENGTH,
    data_dir: str | None = None,
    download: bool = False,
    report: Report = quiet,
) -> DynamicStatistics:
    """Return a run's gradient statistics: those in its folder, or, if they are not of these weights and text, new ones.

    New ones are saved in the folder, as `run.statistics_file`; where that cannot be written they are only returned.
    `origin` says which.

    Args:
        run: one model, no ensemble.
        segments: so many of the training text are enough; None: all of it.
        length: steps of a segment.
        data_dir: where registered corpora are.
        download: fetch a registered corpus that is not there.
        report: told of progress while they are gathered.

    Raises:
        InputError: an ensemble, or neither statistics that belong to the weights nor the training text are there.
    """
    if isinstance(run.model, Ensemble):
        raise InputError(
            "dynamic evaluation: is for one run. Members of an ensemble would learn from its mixture, of which there "
            "are no statistics; evaluate each run by itself."
        )
    path, weights = run.folder / run.statistics_file, weights_digest(dict(run.model.named_parameters()))
    try:
        corpus = run.corpus(None, PART, data_dir=data_dir, download=download)
    except SpanlmError as missing:
        return _without_text(run, weights, length, segments, missing)
    text = text_digest(corpus)
    try:
        return read_statistics(path, run.model, weights, text, length, segments)
    except FileNotFoundError:
        origin = "gathered now"
    except InputError as stale:
        origin = f"gathered anew ({stale})"
    found = gather_statistics(
        run.model,
        corpus,
        kind=run.batching(corpus, PART),
        predict_first=run.opened,
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
    run: TrainedRun, weights: str, length: int, segments: int | None, missing: SpanlmError
) -> DynamicStatistics:
    """Return what the folder has, where the training text is not there to be compared."""
    path = run.folder / run.statistics_file
    try:
        found = read_statistics(path, run.model, weights, None, length, segments)
    except (FileNotFoundError, InputError) as error:
        why = f"there is no {path}" if isinstance(error, FileNotFoundError) else str(error)
        raise InputError(
            f"dynamic evaluation without statistics: {why}, and the text of the training, on which they are gathered, "
            f"is not to be had: {missing} Put the text back where it was, or this model's {path.name} into "
            f"{run.folder}."
        ) from None
    return replace(found, origin=f"{found.origin}; the training text is not there to be compared")
