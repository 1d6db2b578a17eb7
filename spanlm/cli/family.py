"""`spanlm train … --seeds N`: runs that differ in nothing but their seed, one after the other."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from spanlm.cli.report import ppl
from spanlm.cli.terminal import out
from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError
from spanlm.store.run_folder import CONFIG, FolderInUse, locked
from spanlm.training.run import finished, refuse_changes

PREFIX = "seed-"


class TrainOne(Protocol):
    """Trains one run with a report on the terminal."""

    def __call__(self, config: RunConfig, corpus: Corpus, folder: Path, *, resume: bool) -> None:
        """Train, or go on."""


def members_begun(folder: Path) -> list[Path]:
    """Return the runs of a family that were begun, by seed."""
    found = {path.parent for path in folder.glob(f"{PREFIX}*/{CONFIG}")}
    numbered = {path: path.name.removeprefix(PREFIX) for path in found}
    return sorted((path for path in found if numbered[path].isdecimal()), key=lambda path: int(numbered[path]))


def train_family(
    config: RunConfig, corpus: Corpus, folder: Path, seeds: int, train_one: TrainOne, *, resume: bool
) -> None:
    """Train FOLDER/seed-S for `seeds` seeds, from that of the configuration on, unless it is or is being trained.

    Raises:
        InputError: the folder is a run itself, or holds members that cannot be gone on with; nothing was trained.
        Interrupted: Ctrl-C or SIGTERM ends the family; the run is saved.
    """
    first = config.training.seed
    configs = [replace(config, training=replace(config.training, seed=first + n)) for n in range(seeds)]
    members = {folder / f"{PREFIX}{member.training.seed}": member for member in configs}
    _check(members, folder, resume)
    elsewhere: list[str] = []
    for number, (path, member) in enumerate(members.items(), start=1):
        try:
            with locked(path) if path.exists() else nullcontext():
                before = finished(member, corpus, path)
            if before is not None:
                best = f"best epoch {before.best_epoch} of {before.epoch}: valid ppl {ppl(before.best_loss)}"
                out(f"run {number} of {seeds}, {path}: finished before; {best}")
                continue
            out(f"run {number} of {seeds}: {path}")
            train_one(member, corpus, path, resume=resume)
            out()
        except FolderInUse:
            out(f"run {number} of {seeds}, {path}: passed over, since another process trains it")
            elsewhere.append(path.name)
    some = f"{seeds - len(elsewhere)} of {seeds} runs are trained; other processes train {', '.join(elsewhere)}"
    every = f"{seeds} runs are trained. All as one: spanlm evaluate {shlex.quote(str(folder / PREFIX))}*"
    out(some if elsewhere else every)


def _check(members: dict[Path, RunConfig], folder: Path, resume: bool) -> None:
    """Refuse before the first run what would be refused at a later one."""
    if (folder / CONFIG).exists():
        raise InputError(f"--out={folder}: is one run, not a family of seeds. Choose another --out.")
    begun = [path for path in members if (path / CONFIG).exists()]
    if begun and not resume:
        raise InputError(
            f"--out={folder}: already holds runs ({', '.join(path.name for path in begun)}). "
            "Go on with them by --resume auto, or choose another --out."
        )
    for path in begun:
        refuse_changes(RunConfig.load(path / CONFIG, whole=True), members[path], path)
