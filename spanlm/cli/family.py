"""Many trainings, each `spanlm train … --resume auto` in its own process; a family is one setting in several seeds."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from spanlm.cli.options import run_names
from spanlm.cli.render import out
from spanlm.cli.training_report import ppl
from spanlm.config import RunConfig, first_difference
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError, RunError, as_written
from spanlm.jobs import PASSED_OVER, STARTED_AGAIN, Engine, of_spanlm
from spanlm.store.files import make_folder
from spanlm.store.plain import several
from spanlm.store.run_folder import CONFIG, SEED, seed_folders
from spanlm.training.position import Position
from spanlm.training.run import ended, words_of
from spanlm.training.setup import refuse_too_large
from spanlm.training.sweep import refuse_begun, seeded

LOGS = ".logs"
"""Folder of what runs print."""


def family_members(folder: Path) -> list[Path]:
    """Return the folders of a family's runs that have begun, by seed.

    The configurations may differ only in the seed, the device and the folders of the machine.

    Raises:
        InputError: two runs have the same seed, or differ in another field; names the field and both values.
    """
    members = seed_folders(folder)
    seeds: dict[int, str] = {}
    first: RunConfig | None = None
    for path in members:
        config = RunConfig.load(path / CONFIG)
        first = first or config
        alike = replace(config.training, seed=first.training.seed, device=first.training.device)
        before, after = (replace(run, data=run.data.compared) for run in (first, replace(config, training=alike)))
        if difference := first_difference(before.to_tree(), after.to_tree()):
            field, value, other = difference
            both = f"{as_written(value)} in {members[0].name} and {as_written(other)} in {path.name}"
            raise InputError(f"{folder}: is no family of seeds: {field} is {both}. Name the runs one by one.")
        if (seed := config.training.seed) in seeds:
            raise InputError(f"{folder}: is no family of seeds: {seeds[seed]} and {path.name} both have seed {seed}")
        seeds[seed] = path.name
    return members


def named_families(folders: Sequence[Path]) -> dict[str, list[Path]]:
    """Return the runs of each folder by its name: the folder itself, or the members of a family."""
    runs = ([folder] if (folder / CONFIG).exists() else family_members(folder) or [folder] for folder in folders)
    return dict(zip(run_names(folders), runs, strict=True))


def train_family(
    config: RunConfig, corpus: Corpus, folder: Path, seeds: int, engine: Engine, *, resume: bool, more: Sequence[str]
) -> None:
    """Train FOLDER/seed-S for `seeds` seeds, from the configuration's on; `more` are options outside it.

    Raises:
        InputError: a later run would refuse its configuration; or FOLDER holds runs, and `resume` is False.
        RunError, Interrupted: see `train_side_by_side`.
    """
    members = seeded(config, folder, seeds)
    refuse_begun(members)
    begun = [path for path in members if (path / CONFIG).exists()]
    if begun and not resume:
        raise InputError(
            f"--out={folder}: already holds runs ({', '.join(path.name for path in begun)}). "
            "Go on with them by --resume auto, or choose another --out."
        )
    refuse_too_large(config, len(corpus.vocabulary))  # rejects impossible models, too
    train_side_by_side(
        engine,
        members,
        folder,
        words=lambda path: [*words_of(members[path], path, beside(path, ".yaml")), *more],
        ended=lambda path: ended(members[path], corpus, path),
        echo=engine.here,
    )
    out(f"{seeds} runs are trained. All as one: spanlm evaluate {shlex.quote(str(folder / SEED))}*")


def beside(folder: Path, suffix: str) -> Path:
    """Return a file of a run in `LOGS`, beside its folder, so that `*` matches runs alone."""
    return folder.parent / LOGS / f"{folder.name}{suffix}"


def train_side_by_side(
    engine: Engine,
    folders: Collection[Path],
    root: Path,
    words: Callable[[Path], Sequence[str]],
    ended: Callable[[Path], Position | None],
    echo: bool = False,
) -> None:
    """Train the runs below `root` that have not `ended`, and print when each begins and how it ends.

    Each run is a process; `words` returns the arguments of `spanlm` for a folder. With `echo` the output of the
    processes is printed here, too.

    Raises:
        RunError: some runs failed; the others have ended.
        Interrupted: see `Engine.run`.
    """
    make_folder(root, "out")
    left, count = [folder for folder in folders if ended(folder) is None], len(folders)
    done = f"; {count - len(left)} finished before" * (len(left) < count)
    out(f"{several(count, 'run')} in {root}; what each prints is in {LOGS}/ beside its folder{done}")
    threads = engine.threads(count)
    commands = {folder: of_spanlm(words(folder), threads) for folder in left}
    begun, failed = set[Path](), dict[Path, str]()
    for folder in commands:
        make_folder(beside(folder, ".log").parent, "out")

    def heard(folder: Path, line: str) -> None:
        is_event = line.endswith((PASSED_OVER, STARTED_AGAIN))
        if is_event or folder not in begun:
            begun.add(folder)
            out(f"{folder.relative_to(root)}: {line if is_event else 'begins'}")
        if echo and not is_event:
            out(line)

    logs = {folder: beside(folder, ".log") for folder in commands}
    first = count - len(commands) + 1
    for number, (folder, error) in enumerate(engine.run(commands, threads, heard, root, logs), start=first):
        if (at := None if error else ended(folder)) is None:
            other = "ended, but with other settings or another text than this command's: another command gave them"
            failed[folder] = error or other
            outcome = f"failed: {failed[folder]}"
        else:
            outcome = f"best epoch {at.best_epoch} of {at.epoch}: valid ppl {ppl(at.best_loss)}"
        out(f"[{number}/{count}] {folder.relative_to(root)}: {outcome}")
    if failed:
        alike = {why: [folder for folder in failed if failed[folder] == why] for why in failed.values()}
        reasons = "; ".join(
            f"{', '.join(str(folder.relative_to(root)) for folder in folders)}: {why} (log: {logs[folders[0]]})"
            for why, folders in alike.items()
        )
        raise RunError(f"{len(failed)} of {count} runs failed. {reasons}")
