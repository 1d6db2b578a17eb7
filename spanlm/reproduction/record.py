"""The record of a finished run: what it is, what made it, and what it measured; the test part is read once."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from spanlm.analysis.export import write_whole
from spanlm.analysis.utilisation import epoch_rows, utilisation_of
from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError
from spanlm.models.language_model import LanguageModel
from spanlm.reproduction.tasks import Job
from spanlm.runs.trained_model import TrainedModel
from spanlm.store.plain import json_object
from spanlm.store.provenance import starts
from spanlm.training.run import first_difference

_SHOWN = (
    "corpus",
    "vocabulary_size",
    "seed",
    "model_parameters",
    "units",
    "readout",
    "epochs",
    "best_epoch",
    "train_perplexity_at_best",
    "tokens_per_second",
    "training_seconds",
    "starts",
)
"""What tables take of every record, beside the perplexities."""

ASTRAY = "astray"
"""Of the record of a measurement that has no perplexities: why it has none."""


def finished_record(job: Job, corpus: Corpus) -> dict[str, Any] | None:
    """Return the record of a job that is done, or None.

    Raises:
        InputError: the file is no record, or that of another configuration or text.
    """
    if not job.record.exists():
        return None
    return read_record(job.record, corpus, job.config, _SHOWN)


def read_record(
    path: Path, corpus: Corpus, config: RunConfig, shown: Sequence[str], *, adapts: bool = False
) -> dict[str, Any]:
    """Read a record.

    Args:
        path: of the file.
        corpus: the text it must be of.
        config: the configuration it must be of.
        shown: what must be in it beside that and the perplexities.
        adapts: weights may have gone astray, so that there are no perplexities.

    Raises:
        InputError: the file is no record, or that of another configuration or text.
    """
    try:
        record = json_object(path.read_text(encoding="utf-8"))
        recorded = RunConfig.from_tree(record["config"], str(path))
        _ = [record[name] for name in shown]
        if not (adapts and isinstance(record.get(ASTRAY), str) and record[ASTRAY]):
            _ = [float(record[split]["perplexity"]) for split in ("valid", "test")]
        _text(record)
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{path}: is not a record of a run. Move it away, or choose another --out.") from None
    # how a device is asked for, and where the text lies, make no other run of one that is finished
    one, other = (replace(run, data=replace(run.data.compared, corpus=corpus.name)) for run in (recorded, config))
    one = replace(one, training=replace(one.training, device=config.training.device))
    refuse_another(path, _text(record), _text_of(corpus), "corpus")
    refuse_another(path, one.to_tree(), other.to_tree())
    return dict(record)


def refuse_another(path: Path, recorded: object, asked: object, prefix: str = "") -> None:
    """Refuse a record that says another thing than what is asked for.

    Raises:
        InputError: names the first field that differs.
    """
    difference = first_difference(recorded, asked, prefix)
    if difference:
        field, was, now = difference
        raise InputError(
            f"{path}: is the result of another run: {field} was {was}, not {now}. Move it away, or choose "
            "another --out (and --runs)."
        )


def _text(record: dict[str, Any]) -> dict[str, Any]:
    """Return what identifies the text of a record."""
    sizes = {split: record[split]["tokens"] for split in ("valid", "test")}
    return {"name": record["corpus"], "vocabulary_size": record["vocabulary_size"], **sizes}


def _text_of(corpus: Corpus) -> dict[str, Any]:
    sizes = {split: len(corpus.splits[split]) for split in ("valid", "test")}
    return {"name": corpus.name, "vocabulary_size": len(corpus.vocabulary), **sizes}


def make_record(job: Job, model: TrainedModel, corpus: Corpus) -> dict[str, Any]:
    """Evaluate a trained model on valid and, this once, on test; return all there is to say of the run."""
    epochs = epoch_rows(model.folder)
    best = min(epochs, key=lambda row: row["loss"])
    assert isinstance(model.model, LanguageModel), "a row is one model"
    tokens = len(corpus.splits["train"])
    seconds = sum(tokens / row["tokens_per_second"] for row in epochs)  # of all training steps, validation left out
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
        "training_seconds": round(seconds, 1),
        "valid": model.evaluate(corpus, "valid").to_json(),
        "test": model.evaluate(corpus, "test").to_json(),
        **_utilisation(epochs),
        "starts": starts(model.folder),
        "config": recorded_config(job.config, corpus),
    }


def _utilisation(epochs: list[dict[str, Any]]) -> dict[str, Any]:
    """PoU and oracle PoU on valid after each epoch (Li et al., 2020, Figure 4); nothing without a span buffer."""
    found = utilisation_of(epochs, "the run")
    if found is None:
        return {}
    return {"utilisation_by_epoch": list(found.learned), "oracle_utilisation_by_epoch": list(found.oracle)}


def recorded_config(config: RunConfig, corpus: Corpus) -> dict[str, Any]:
    """Return a configuration as records have it: the corpus by its name, since where it lies is the machine's own."""
    return replace(config, data=replace(config.data, corpus=corpus.name, dir=None)).to_tree()


def save_record(path: Path, record: dict[str, Any]) -> None:
    """Write a record.

    Raises:
        InputError: not allowed to write there.
        RunError: the disk refused.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())
