"""Options that several verbs share: loads their runs and corpora, checks and opens their files."""

from __future__ import annotations

import argparse
import atexit
import io
import os
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, TextIO

from spanlm.cli.parser import ATTENTION, GATE
from spanlm.cli.render import note
from spanlm.config import RunConfig
from spanlm.data.config import CORPORA, DEMO, Part, Split
from spanlm.data.corpora import WHOLE, Corpus
from spanlm.data.packed import replacing_packed
from spanlm.data.synthetic import PREFIX
from spanlm.data.tables import Kind, table_kind
from spanlm.errors import InputError, SpanlmError, nearest, require
from spanlm.store.files import is_arpa, is_hf, is_kenlm, is_pipe, run_name
from spanlm.store.run_folder import CONFIG

if TYPE_CHECKING:
    from spanlm.runs.model import Model
    from spanlm.runs.texts import LoadCorpus, Texts
    from spanlm.scoring.ngram.kenlm import Kenlm

TUNED_ON: Split = "valid"


def corpus_of(model: Model, options: argparse.Namespace) -> tuple[Corpus, Part]:
    """Load the corpus of --corpus (default: the model's own); return it and the split to read."""
    split: Split = options.split or "test"
    where = {"data_dir": options.data_dir, "download": options.download}
    name = standard_input() if options.corpus == "-" else options.corpus
    corpus = model.corpus(name, split, as_text=options.as_text, **where)
    if WHOLE not in corpus.splits:
        return corpus, split
    if options.split is not None:
        raise InputError(
            f"--split={options.split}: {options.corpus} is one file, which is taken whole. Leave --split out, or name "
            "a folder with train.txt, valid.txt and test.txt."
        )
    return corpus, WHOLE


def corpus_request(options: argparse.Namespace, split: Split | None) -> LoadCorpus:
    """Return the part of the corpus of --corpus, by default of the training corpus."""
    from spanlm.runs.texts import LoadCorpus

    where = {"data_dir": options.data_dir, "download": options.download, "as_text": options.as_text}
    return LoadCorpus(options.corpus, split, **where)


def standard_input() -> str:
    """Copy standard input to a file, since a corpus is read more than once; return its path."""
    folder = mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    name = os.path.join(folder, "standard input")
    if sys.stdin is None:
        raise InputError("--corpus=-: there is no standard input to read")
    if Path(name).write_bytes(sys.stdin.buffer.read()) == 0:
        raise InputError("--corpus=-: standard input is empty; give a text with at least one word")
    return name


def runs_and_files(options: argparse.Namespace) -> tuple[list[Path], list[str]]:
    """Split the operands into runs (folders with a configuration, ARPA files, hf:FOLDER) and the files after them."""
    more: list[str] = options.more
    if table_kind(options.run) is not None and options.run.is_file():
        raise InputError(f"{options.run}: is a file; name the folder of a run before it")
    require("" not in more, "FILE", '""', "a name")
    paths = [Path(name) for name in more]
    runs = [(path / CONFIG).is_file() or is_arpa(path) or is_kenlm(path) or is_hf(path) for path in paths]
    count = next((n for n, run in enumerate(runs) if not run), len(more))
    return [options.run, *map(Path, more[:count])], more[count:]


def check_gate(temperature: float | None, runs: int) -> None:
    """Reject --gate-temperature for several runs, or below its minimum, before anything is loaded."""
    if temperature is None:
        return
    if runs > 1:
        raise InputError(f"{GATE}: is for one run; each of the {runs} has a gate of its own")
    from spanlm.models.memories import require_temperature

    require_temperature(temperature, GATE)


def load_run(folder: Path, device: str, gate_temperature: float | None = None, as_written: bool = False) -> Model:
    """Load one run; `gate_temperature`, unless None, replaces the one that it was trained with."""
    # imported here: torch takes a second to load, and not every verb with shared options needs it
    from spanlm.models.memories import require_gate
    from spanlm.runs.loading import load
    from spanlm.runs.model import require_weights

    model = load(folder, device)
    model = model.as_written() if as_written else model
    note_unfinished(folder)
    if gate_temperature is None:
        return model
    trained = require_weights(model, GATE)
    require_gate(trained.config.model.memory, GATE)
    return trained.at_gate_temperature(gate_temperature)


def note_unfinished(folder: Path) -> None:
    """Note that a run's training has not ended, so that the loaded model is only the best so far."""
    from spanlm.training.run import last_position

    with suppress(SpanlmError):  # damaged checkpoints concern only `spanlm train --resume`
        at = last_position(folder)
        if at is not None and not at.run_over(RunConfig.load(folder / CONFIG).training):
            note(f"note: {folder}: its training has not ended; this is its best model after epoch {at.epoch}")


def load_runs(runs: Sequence[Path], options: argparse.Namespace) -> Model:
    """Load one run, or several as an ensemble; reject ensemble options for one run, and the reverse."""
    from spanlm.models.ensemble import normalised
    from spanlm.runs.ensemble import load_ensemble
    from spanlm.runs.model import require_weights

    # some verbs lack these options
    temperature: float | None = vars(options).get("gate_temperature")
    attention: str | None = vars(options).get("attention")
    as_written: bool = vars(options).get("as_written", False)
    check_gate(temperature, len(runs))
    check_hf(runs[0], options)
    if len(runs) > 1:
        normalised(options.weights, len(runs))  # reject bad weights before anything is loaded
        ensemble = load_ensemble(runs, weights=options.weights, device=options.device)
        for run in runs:
            note_unfinished(Path(run))
        ensemble = ensemble if attention is None else ensemble.with_attention(attention)
        return ensemble.as_written() if as_written else ensemble
    for name, value in (("--combine", options.combine), ("--weights", options.weights)):
        if value is not None:
            raise InputError(f"{name}: is for several runs; name more than {runs[0]}")
    model = load_run(runs[0], options.device, temperature, as_written)
    return model if attention is None else require_weights(model, ATTENTION).with_attention(attention)


def check_hf(run: str | Path, options: argparse.Namespace) -> None:
    """Reject word-vocabulary options for Hugging Face models."""
    names = [name for name in ("vocab-pad", "cache") if vars(options).get(name.replace("-", "_"))]
    if names and is_hf(run):
        raise InputError(f"--{names[0]}: {run} predicts sub-words, not the words of a vocabulary. Leave it out.")


def load_kenlm(run: Path, options: argparse.Namespace) -> Kenlm | None:
    """Load a KenLM binary to score whole texts; None if `run` is not one. InputError: an option is for other runs."""
    from spanlm.scoring.ngram.kenlm import Kenlm

    if not is_kenlm(run) or run.is_dir():
        return None
    # in a verb without --combine, --weights are not those of an ensemble
    for name in ("gate_temperature", "attention", "combine", *["weights"] * ("combine" in options)):
        if vars(options).get(name) is not None:
            why = "has no weights and no memory, and nothing to combine with"
            raise InputError(f"--{name.replace('_', '-')}: {run} is an n-gram model, which {why}")
    return Kenlm(run)


def tuning_part(
    model: Model, options: argparse.Namespace, option: str, otherwise: str, texts: Texts | None = None
) -> Corpus:
    """Load the split to tune on, of --corpus or else of the training corpus of `texts` (default: the model's).

    InputError, if there is no such split, names the `option` that needs it and what to give `otherwise`.
    """
    if options.corpus == "-":
        raise InputError(f"{option}: standard input has no {TUNED_ON} part to tune on. Give {otherwise}.")
    valid = (texts or model.texts).corpus(corpus_request(options, TUNED_ON), model.texts)
    if TUNED_ON not in valid.splits:
        why = f"{valid.name} has no {TUNED_ON} part to tune on"
        raise InputError(f"{option}: {why}. Name a corpus that has one, or give {otherwise}.")
    model.texts.note_changes(valid)
    return valid


def own_texts(options: argparse.Namespace) -> list[Path]:
    """Return the input files among the options."""
    values = (getattr(options, name, None) for name in ("file", "corpus", "tags"))
    return [Path(name) for name in values if name is not None]


def check_output(
    path: Path | None,
    read: Iterable[Path] = (),
    option: str = "--out",
    *,
    suffixes: Sequence[str] = (),
    folder: bool = False,
) -> str:
    """Reject an output path before hours of work; return its suffix, one of `suffixes` if any are given.

    Raises:
        InputError: `path` is one of the files that are `read`, or a folder, which with `folder` it may be if empty; its
            parent folder does not exist or is not writable, unless it is a pipe or a device that is; or its suffix is
            not one of `suffixes`.
    """
    if path is None:
        return ""
    if str(path) == "-":
        raise InputError(option, "-", f"name a file; without {option} it is printed where it can be")
    for source in read:
        if path.resolve() == source.resolve() or (path.exists() and source.exists() and path.samefile(source)):
            raise InputError(option, path, "is the file that is read, which would be lost", "Choose another.")
    if path.is_dir() and not folder:
        raise InputError(option, path, "is a folder", "Name a file in it.")
    if folder and path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise InputError(option, path, "is to be a folder, and is there already", "Choose another.")
    if not path.parent.is_dir():
        raise InputError(option, path, f"there is no folder {path.parent}", "Make it first.")
    if is_pipe(path):
        if not os.access(path, os.W_OK):
            raise InputError(option, path, "may not be written to", "Choose another.")
    elif not os.access(path.parent, os.W_OK):
        raise InputError(option, path, "the folder may not be written to", "Choose another.")
    if not suffixes:
        return ""
    from spanlm.analysis.export import checked_suffix  # loads torch

    return checked_suffix(path, suffixes)


def check_kind(path: Path | None, option: str, kinds: Collection[Kind], limit: str) -> None:
    """Reject an output whose suffix names a kind of table other than `kinds`; the error says `limit`."""
    if path is not None and table_kind(path) not in (None, *kinds):
        raise InputError(option, path, limit)


@contextmanager
def output(path: Path | None) -> Iterator[TextIO]:
    """Open `path` for text, replaced only when complete and packed as its suffix says; None: standard output."""
    if path is None:
        yield sys.stdout
        return
    check_output(path)
    with replacing_packed(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
        yield text
        text.flush()
        text.detach()  # `replacing_packed` syncs and closes the file below


def run_names(folders: Sequence[Path]) -> list[str]:
    """Name runs by the part of their paths that differs: kv/seed-1 and kvp/seed-1 are kv and kvp."""
    paths = [folder.resolve() for folder in folders]
    for folder, path in zip(folders, paths, strict=True):
        if paths.count(path) > 1:
            raise InputError(f"{folder}: is named twice; name each run once")
    if len(folders) == 1:
        return [run_name(folders[0])]
    while len({path.name for path in paths}) == 1:
        paths = [path.parent for path in paths]
    families = len({path.parent for path in paths}) > 1  # then the name is FAMILY/seed-S
    parts, names = 1, [run_name(path) if families else _stem(path) for path in paths]
    alike = len({(path.parent, _stem(path)) for path in paths}) < len(paths)  # model.arpa and model.arpa.gz of a folder
    while len({*names}) < len(paths):
        parts += 1
        names = ["/".join([*path.parts[-parts:-1], path.name if alike else _stem(path)]) for path in paths]
    return names


def _stem(path: Path) -> str:
    return run_name(path) if is_arpa(path) or is_kenlm(path) else path.name


# --- training ---


def text_and_preset(names: Sequence[str], corpus: str | None, known: Iterable[str]) -> tuple[str | None, str | None]:
    """Sort the operands into a preset (one of `known`) and a text, which may come from --corpus instead."""
    starts, ends = ("/", ".", "~", PREFIX), (".txt", ".gz")

    def is_text(name: str) -> bool:
        return name in CORPORA or os.path.exists(name) or name.startswith(starts) or name.endswith(ends)

    texts = [name for name in names if name not in known and is_text(name)]
    presets = [name for name in names if name not in texts]
    if DEMO in presets and (DEMO not in known or len(presets) > 1):  # `demo` names a preset and a corpus
        presets.remove(DEMO)
        texts.append(DEMO)
    texts += [] if corpus is None else [corpus]
    if more := [*presets[1:], *texts[1:]]:
        like = nearest(more[0], [*known, *CORPORA])
        raise InputError(
            f"unrecognized arguments: {' '.join(more)}: name one preset and one text, or one of them.{like}"
        )
    return next(iter(presets), None), next(iter(texts), None)


def free_folder(preset: str | None, text: str) -> Path:
    corpus = os.path.basename(os.path.abspath(text)).strip(".").split(".")[0]  # of `.` and `..`, too
    stem = "-".join(dict.fromkeys([*(preset or "").split("/"), corpus]).keys()).strip("-")
    folder, number = Path("runs") / stem, 1
    while folder.exists():
        number += 1
        folder = Path("runs") / f"{stem}-{number}"
    return folder
