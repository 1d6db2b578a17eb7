"""The record of a finished run: what it is, what made it, and what it measured; the test part is read once."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError, RunError
from spanlm.files import replace_file
from spanlm.reproduction.plan import Job
from spanlm.trained import TrainedModel
from spanlm.training.provenance import starts
from spanlm.training.run import refuse_changes
from spanlm.training.run_folder import METRICS


def finished_record(job: Job) -> dict[str, Any] | None:
    """Return the record of a job that is done, or None.

    Raises:
        InputError: the file is no record, or that of another configuration.
    """
    if not job.record.exists():
        return None
    try:
        record = json.loads(job.record.read_text(encoding="utf-8"))
        config = RunConfig.from_tree(record["config"], str(job.record))
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{job.record}: is not a record of a run. Move it away, or choose another --out.") from None
    refuse_changes(config, job.config, job.record)
    return dict(record)


def make_record(job: Job, model: TrainedModel, corpus: Corpus) -> dict[str, Any]:
    """Evaluate a trained model on valid and, this once, on test; return all there is to say of the run."""
    epochs = [row for row in _metrics(model.folder) if row["event"] == "valid"]
    best = min(epochs, key=lambda row: row["loss"])
    return {
        "paper": job.preset.paper,
        "preset": job.preset.name,
        "row": job.row,
        "seed": job.seed,
        "corpus": corpus.name,
        "notes": corpus.notes,
        "vocabulary_size": len(corpus.vocabulary),
        "model_parameters": job.parameters.model,
        "all_parameters": job.parameters.total,
        "units": job.config.model.encoder.output_size,
        "readout": model.model.memory.readout_size,
        "epochs": len(epochs),
        "best_epoch": best["epoch"],
        "train_perplexity_at_best": math.exp(min(best["train_loss"], 700)),
        "tokens_per_second": statistics.median(row["tokens_per_second"] for row in epochs),
        "training_seconds": round(_seconds(epochs, len(corpus.splits["train"])), 1),
        "valid": model.evaluate(corpus, "valid").to_json(),
        "test": model.evaluate(corpus, "test").to_json(),
        "starts": starts(model.folder),
        "config": job.config.to_tree(),
    }


def save_record(path: Path, record: dict[str, Any]) -> None:
    """Write a record.

    Raises:
        RunError: the disk refused.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())
    except OSError as error:
        raise RunError(f"{path}: could not be written: {error.strerror}. Make room, or choose another --out.") from None


def _metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / METRICS).read_text(encoding="utf-8").splitlines()]


def _seconds(epochs: list[dict[str, Any]], tokens: int) -> float:
    """Return the time of all training steps, validation left out."""
    return float(sum(tokens / row["tokens_per_second"] for row in epochs))
