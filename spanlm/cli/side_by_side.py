"""Trainings side by side: each in a process of its own, of which the terminal shows how it begins and ends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from spanlm.cli.render import out
from spanlm.cli.training_report import ppl
from spanlm.errors import RunError
from spanlm.store.engine import PASSED_OVER, STARTED_AGAIN, Engine, of_spanlm
from spanlm.store.files import make_folder
from spanlm.store.plain import several
from spanlm.training.progress import Position


def beside(folder: Path, suffix: str) -> Path:
    """Return the file of a run in `logs`, beside its folder, where `seed-*` finds none but runs."""
    return folder.parent / "logs" / f"{folder.name}{suffix}"


def best(at: Position) -> str:
    """Say what a run that has ended reached."""
    return f"best epoch {at.best_epoch} of {at.epoch}: valid ppl {ppl(at.best_loss)}"


def log_of(folder: Path) -> Path:
    """Return the file of what a run prints."""
    return beside(folder, ".log")


def train_side_by_side(
    engine: Engine,
    folders: Collection[Path],
    root: Path,
    words: Callable[[Path], Sequence[str]],
    ended: Callable[[Path], Position | None],
) -> None:
    """Train the runs of folders below `root` that have not `ended`, and print how each ends.

    `words` are what `spanlm` is to do for a folder.

    Raises:
        RunError: some failed; the others have ended.
        Interrupted: see `Engine.run`.
    """
    make_folder(root, "--out")
    left, of = [folder for folder in folders if ended(folder) is None], len(folders)
    done = f"; {of - len(left)} finished before" * (len(left) < of)
    out(f"{several(of, 'run')} in {root}; what each prints is in logs/ beside its folder{done}")
    threads = engine.threads(of)
    commands = {folder: of_spanlm(words(folder), threads) for folder in left}
    begun, failed = set[Path](), dict[Path, str]()
    for folder in commands:
        make_folder(log_of(folder).parent, "--out")

    def heard(folder: Path, line: str) -> None:
        told = line.endswith((PASSED_OVER, STARTED_AGAIN))
        if told or folder not in begun:
            begun.add(folder)
            out(f"{folder.relative_to(root)}: {line if told else 'begins'}")

    logs = {folder: log_of(folder) for folder in commands}
    first = of - len(commands) + 1
    for number, (folder, error) in enumerate(engine.run(commands, threads, heard, root, logs), start=first):
        if (at := None if error else ended(folder)) is None:
            other = "ended, but with other settings or another text than this command's: another command gave them"
            failed[folder] = error or other
        came = f"failed: {failed[folder]}" if at is None else best(at)
        out(f"[{number}/{of}] {folder.relative_to(root)}: {came}")
    if failed:
        alike = {why: [folder for folder in failed if failed[folder] == why] for why in failed.values()}
        each = "; ".join(
            f"{', '.join(str(folder.relative_to(root)) for folder in folders)}: {why} (log: {log_of(folders[0])})"
            for why, folders in alike.items()
        )
        raise RunError(f"{len(failed)} of {of} runs failed. {each}")
