"""From a configuration to a trained run folder."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from spanlm.config import CHANGEABLE, RunConfig, first_difference, fixed_parts, save_config
from spanlm.data.config import DataConfig
from spanlm.data.corpora import Corpus
from spanlm.data.sources import findable
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError, RunError, SpanlmError, as_written, named, require, require_path
from spanlm.models.ops.precision import usable
from spanlm.store.checkpoints import holds_checkpoints, load_last_position
from spanlm.store.files import expanded, make_folder, regular, remove_unfinished, written
from spanlm.store.run_folder import (
    CHECKPOINTS,
    CONFIG,
    METRICS,
    MODEL,
    locked,
    model_digest,
    refuse_family,
    vocabulary_file,
)
from spanlm.training.card import CARD, run_card, write_card
from spanlm.training.config import TrainingConfig
from spanlm.training.distributed import ALONE, Ranks
from spanlm.training.position import Position
from spanlm.training.progress import Watcher
from spanlm.training.trainer import Trainer


def train(
    config: RunConfig,
    corpus: Corpus,
    folder: str | Path,
    watcher: Watcher | None = None,
    *,
    resume: bool = False,
    ranks: Ranks = ALONE,
) -> Position:
    """Train in `folder`, or resume there.

    Args:
        config: the configuration of the run.
        corpus: the data that `config.data` describes.
        folder: everything of the run goes here; created if missing.
        watcher: gets the run's progress.
        resume: continue from the last checkpoint, if there is one; only `CHANGEABLE` fields may differ from the
            folder's configuration.
        ranks: the processes that train together, `joined`; each calls this. Only rank 0 writes and has the watcher.

    Returns:
        The position at the end; `best_epoch` and `best_loss` are those of `model.safetensors`.

    Raises:
        InputError: the folder is in use, holds a run and `resume` is False, or holds another configuration; the corpus
            is not that of `config.data`.
        RunError: see `Trainer.restore` and `Trainer.run`.

    Example:
        >>> tree = {"data": {"corpus": "synthetic:copy,tokens=2000"}, "training": {"epochs": 1}}
        >>> config = spanlm.RunConfig.from_tree(tree)
        >>> spanlm.train(config, spanlm.load_corpus(config.data), "runs/copy").best_epoch
        1
    """
    require(isinstance(config, RunConfig), "config", type(config).__name__, "a RunConfig, such as a preset's .config")
    require(isinstance(corpus, Corpus), "corpus", type(corpus).__name__, "a Corpus; load_corpus(config.data) gives it")
    require_path("folder", folder)
    require(watcher is None or isinstance(watcher, Watcher), "watcher", watcher, "an object of a Watcher")
    folder, config = expanded(folder), RunConfig.from_tree(config.to_tree())  # validates the types of all values
    first, new = ranks.rank == 0, not folder.exists()
    watcher = watcher if watcher is not None and first else Watcher()
    # the caller's generator stays as it is, and gradients may be switched off there
    with ExitStack() as lock, torch.random.fork_rng(devices=[]), torch.enable_grad():
        with ranks.first_alone():
            if first:
                lock.enter_context(locked(folder, forget=new))
                remove_unfinished(folder)
            config = _check(config, corpus, folder, resume or not first)
            # before anything is written: refuses configurations that cannot be trained
            trainer = Trainer(config, corpus, folder, watcher, ranks)
            trainer.restore()
            if first:
                _write_config(config, corpus, folder)
        if ranks.count > 1:
            ranks.require_equal(_start_of(trainer))
            watcher.note(f"{ranks.count} processes, {len(trainer.streams)} streams each")
        watcher.start(config, corpus, folder, str(trainer.device), trainer.batcher.targets, trainer.started)
        position = trainer.run()
        if first and (note := write_card(folder, run_card(folder, config, len(corpus.vocabulary)))):
            watcher.note(note)
        return position


def _start_of(trainer: Trainer) -> str:
    """What all processes must have alike before they train together."""
    digest, position = model_digest(trainer.model), trainer.position
    precision = usable(trainer.config.training.precision, trainer.device)
    computes = f"{trainer.device.type} in {precision} by torch {torch.__version__}"
    return f"step {position.step} with weights {digest} on {computes}"


def words_of(config: RunConfig, folder: Path, file: Path) -> list[str]:
    """Write the configuration to `file`; return the words of the `spanlm` command that trains or resumes in `folder`.

    Raises:
        InputError: the file's folder cannot be created.
    """
    make_folder(file.parent, "out")
    save_config(file, config.to_yaml())
    return ["train", f"--config={file}", f"--out={folder}", "--resume=auto"]


def last_position(folder: Path) -> Position | None:
    """Return a run's position by its last intact checkpoint; None: it has no checkpoint.

    Raises:
        RunError: the positions of all checkpoints are damaged.
    """
    position = load_last_position(folder / CHECKPOINTS)
    return None if position is None else Position.from_json(position)


def ended(config: RunConfig, corpus: Corpus, folder: Path) -> Position | None:
    """Return the final position of a run; None if it is missing, unfinished, damaged, or of another configuration.

    The checkpoints' tensors are not read, since a run's result is its `model.safetensors`.
    """
    try:
        position = last_position(folder)
        if position is None or not position.run_over(config.training) or not (folder / MODEL).is_file():
            return None
        changed = _first_change(RunConfig.load(folder / CONFIG, whole=True), config) is not None
    except SpanlmError:  # the run's own process reports the error
        return None
    return None if changed or position.data != corpus.digest("train", "valid") else position


def _check(config: RunConfig, corpus: Corpus, folder: Path, resume: bool) -> RunConfig:
    data, metrics = findable(config.data), folder / METRICS
    if corpus.config and (difference := first_difference(*(_text_of(x) for x in (config.data, corpus.config)))):
        field, mine, other = difference
        raise InputError(
            f"data.{field}",
            mine,
            f"the corpus given was loaded with {as_written(other)}",
            "Give load_corpus(config.data).",
        )
    if missing := [part for part in ("train", "valid") if part not in corpus.splits]:
        raise InputError("splits", ", ".join(corpus.splits), f"training needs {missing[0]}, too", "Load it.")
    existing = [name for name in (CONFIG, CHECKPOINTS, MODEL, METRICS) if (folder / name).exists()]
    if existing and not resume:
        raise InputError(
            f"{folder}: already holds a run ({', '.join(existing)}). "
            f"Go on with it by {named('resume=True')}, or choose another folder."
        )
    refuse_family(folder)
    if CONFIG in existing:
        old = RunConfig.load(folder / CONFIG, whole=True)
        refuse_changes(old, config, folder)
        data = replace(old.data, dir=data.dir, download=data.download)
    if (words := vocabulary_file(folder)).exists() and Vocabulary.load(words).hash != corpus.vocabulary.hash:
        raise InputError(
            f"{words}: is not the vocabulary of {config.data.corpus} as it is now. "
            "Put the text back, or start with another folder."
        )
    if MODEL in existing and not holds_checkpoints(folder / CHECKPOINTS):
        # a run that was killed before its first checkpoint may have a model, but of one epoch at most
        epochs = regular(metrics, 2**30).read_bytes().count(b'"event": "valid"') if METRICS in existing else 2
        if epochs > 1 or (folder / CARD).exists():  # a card is of a finished run
            raise InputError(
                f"{folder}: holds a trained model, but no {CHECKPOINTS}/ to go on from: training would begin anew and "
                f"replace it. Put {CHECKPOINTS}/ back, or choose another folder."
            )
    return replace(config, data=data)


def _text_of(data: DataConfig) -> dict[str, Any]:
    """Identify a corpus's text and tokenisation, to compare it with `config.data`."""
    cut = {"tokenizer": data.effective_tokenizer, "documents": data.effective_documents}
    return asdict(findable(data)) | cut | {"dir": None, "download": False}


def _write_config(config: RunConfig, corpus: Corpus, folder: Path) -> None:
    with written(folder, "Make room, or choose another folder.", "cannot be written"):
        save_config(folder / CONFIG, config.to_yaml())
        if not vocabulary_file(folder).exists():
            corpus.vocabulary.save(vocabulary_file(folder, bool(corpus.vocabulary.pieces)))


def _first_change(old: RunConfig, new: RunConfig) -> tuple[str, Any, Any] | None:
    before, after = (replace(config, data=config.data.compared).to_tree() for config in (old, new))
    for was, now in zip(fixed_parts(before), fixed_parts(after), strict=False):
        if difference := first_difference(was, now):
            return difference
    return None


def refuse_changes(old: RunConfig, new: RunConfig, folder: Path) -> None:
    """Refuse to resume a run with another configuration; InputError names the first field that differs."""
    if difference := _first_change(old, new):
        field, before, after = difference
        others = (name for name in CHANGEABLE if name != field)
        raise InputError(
            f"{folder}: the run began with {field}={as_written(before)}, not {as_written(after)}; resuming would "
            f"not be the same run. Leave {field} as it was (only {', '.join(others)} may change), or "
            "choose another folder."
        )
    if old.training != new.training:
        _refuse_another_past(old.training, new.training, folder)


def _refuse_another_past(old: TrainingConfig, new: TrainingConfig, folder: Path) -> None:
    """Refuse to change the end of a finished stage, or the number of stages once the last one has begun."""
    try:
        saved = load_last_position(folder / CHECKPOINTS)
    except RunError:  # all are damaged, which `Trainer.restore` reports
        return
    position = Position.from_json(saved) if saved else Position(rate=new.optimizer.lr)
    stage, done, before, now = position.stage, position.stage_epochs, old.finetune, new.finetune
    last_differs = before.last_latent_dropout is not None and stage in (before.stages, now.stages) and stage > 0
    for field, was, wanted, allowed in (
        ("epochs", old.epochs, new.epochs, stage == 0),
        ("patience", old.patience, new.patience, stage == 0),
        ("finetune.stages", before.stages, now.stages, now.stages >= stage and not last_differs),
        ("finetune.epochs", before.epochs, now.epochs, stage < 2),
    ):
        if was != wanted and not allowed:
            raise InputError(
                f"{folder}: training.{field} was {as_written(was)}, not {as_written(wanted)}, and the run is in "
                f"finetune stage {stage} already. Leave training.{field} as it was, or choose another folder."
            )
    field, wanted = ("finetune.epochs", now.epochs) if stage else ("epochs", new.epochs)
    if wanted < done:
        where = f" in finetune stage {stage}" if stage else ""
        raise InputError(
            f"training.{field}",
            wanted,
            f"{folder} has had {done} already{where}",
            "Take that or more, or choose another folder.",
        )
    if position.segment and position.stage_over(new) and not position.run_over(new):
        raise InputError(
            f"{folder}: is inside epoch {position.epoch + 1}, and with the training.epochs, training.patience or "
            "training.finetune.epochs that you give the next stage would begin there. Leave them as they were until "
            "the epoch has ended, or choose another folder."
        )
