"""Options that several verbs share, and the runs, corpora and files that they name."""

from __future__ import annotations

import argparse
import atexit
import ctypes
import io
import os
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields
from pathlib import Path
from tempfile import mkdtemp
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, TextIO, TypeVar, get_args, get_origin

from spanlm.cli.main import VerbParser
from spanlm.cli.render import note
from spanlm.config import RunConfig, yaml_group
from spanlm.data.config import DEMO, SPLITS, Split
from spanlm.data.corpora import CORPORA, WHOLE, Corpus
from spanlm.data.packed import replacing_packed
from spanlm.data.synthetic import PREFIX
from spanlm.data.tables import Kind, table_kind
from spanlm.errors import InputError, SpanlmError, as_written, nearest, require
from spanlm.jobs import Engine
from spanlm.options import kinds
from spanlm.store.files import is_arpa, is_hf, is_kenlm, run_name
from spanlm.store.run_folder import CONFIG

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from spanlm.runs.model import Model
    from spanlm.runs.texts import Texts
    from spanlm.scoring.ngram.kenlm import Kenlm

PROCESSORS = os.cpu_count() or 1
GATE = "--gate-temperature"
ATTENTION = "--attention"
TUNED_ON: Split = "valid"

Owner = TypeVar("Owner", bound="DataclassInstance")


class _Threads(argparse.Action):
    """Sets the number of threads of this process as soon as it is read."""

    def __call__(self, parser: object, namespace: argparse.Namespace, value: Any, option: object = None) -> None:
        import torch

        require(0 < value <= PROCESSORS, "--threads", value, f"1 to {PROCESSORS}, the processors of this machine")
        torch.set_num_threads(value)
        namespace.threads = value


class _Attention(argparse.Action):
    """Checks a lesion as soon as it is read."""

    def __call__(self, parser: object, namespace: object, value: Any, option: object = None) -> None:
        from spanlm.models.lesions import require_lesion

        require_lesion(value)
        setattr(namespace, self.dest, value)


class Parser(VerbParser):
    """The parser of a verb that computes: it has `--threads`, and methods for the options that several verbs share."""

    def __init__(self, verb: str, description: str, *, threads: bool = True, **settings: Any) -> None:
        super().__init__(verb, description, **settings)
        keep_freed_memory()
        if threads:
            text = "threads of the processor to compute with (default: all cores; 1 is best for small models beside "
            text += "other work)"
            self.add_argument("--threads", type=int, metavar="N", action=_Threads, help=text)

    def add_engine(self, rare: str = "") -> None:
        """Add where runs are done, and how many at a time; `field_values` makes the `Engine`."""
        add_fields(self, Engine, on={"metavar": "ray[:ADDRESS]"}, jobs={"rare": ""}, rare=rare)

    def add_device(self) -> None:
        self.add_argument("--device", default="auto", metavar="NAME", help="auto (a GPU if there is one), cpu or cuda")

    def add_as_text(self) -> None:
        text = "read a file as text even if it looks like another format"
        self.add_argument("--as-text", action="store_true", rare=True, help=text)

    def add_row_options(self, prefix: bool = True, **settings: Any) -> None:
        """Add what is done with rows that cannot be used, and with columns named as those that are written."""
        if prefix:
            text = "put this before the names of the columns that are added to a table's own, as in lm_"
            self.add_argument("--prefix", rare=True, metavar="TEXT", default="", help=text)
        text = "refuse a table with a row that cannot be used (default: the row is left out, and noted)"
        self.add_argument("--strict", action="store_true", rare=True, help=text, **settings)

    def add_corpus(self) -> None:
        """Add the options that name a corpus and a part of it, for `corpus_of`."""
        text = "a registered corpus, a folder, a whole text file or - (default: as in training)"
        self.add_argument("--corpus", metavar="NAME|PATH", help=text)
        text = "which part of a corpus (default: test); a text file alone is taken whole"
        self.add_argument("--split", choices=SPLITS, help=text)
        self.add_argument("--data-dir", metavar="DIR", help="where corpora are (default: $SPANLM_DATA)")
        text = "fetch a registered corpus that is not there"
        self.add_argument("--download", action="store_true", rare=True, help=text)
        self.add_as_text()

    def add_runs(self, files: str = "", files_help: str = "", *, hf: bool = True) -> None:
        """Add the runs, how several are combined, `files` that may follow, and the device; parse intermixed."""
        text = f"a trained run's folder, {'NAME.arpa[.gz] or hf:FOLDER' if hf else 'or NAME.arpa[.gz]'};"
        self.add_argument("run", metavar="RUN", type=Path, help=text)
        text = f"more of them predict with it as one{f'; then {files_help}' if files else ''}"
        self.add_argument("more", metavar=f"RUN|{files}" if files else "RUN", nargs="*", default=[], help=text)
        several = "several runs as one"
        text = "the average of their probabilities (linear, the default)"
        self.add_argument("--combine", rare=several, choices=("linear",), help=text)
        text = "the weight of each run, in their order (default: equal)"
        self.add_argument("--weights", rare=several, type=float, nargs="+", metavar="W", help=text)
        self.add_device()

    def add_gate(self, *, texts: bool = False) -> None:
        """Add another temperature of a span buffer's gate and, for `texts` of a user, how words are read."""
        if texts:
            text = "read words as they are written (default of models of ptb and wikitext-2: as their corpus writes "
            text += "them)"
            self.add_argument("--as-written", rare=True, action="store_true", help=text)
        text = "of a model with a span buffer: the gate's temperature (default: the run's "
        text += "model.memory.gate.evaluation_temperature)"
        self.add_argument(GATE, rare=True, type=float, metavar="T", help=text)

    def add_attention(self) -> None:
        text = "change where the trained model looks: at all slots of its memory alike (uniform), at an empty memory "
        text += "(none), at the nearest K slots (window=K)"
        self.add_argument(ATTENTION, rare=True, action=_Attention, metavar="HOW", help=text)


def add_fields(
    parser: VerbParser,
    owner: type[DataclassInstance],
    *names: str,
    prefix: str = "",
    rare: str = "",
    **changes: Mapping[str, Any],
) -> None:
    """Add an option for each field, or for those in `names`, of a library dataclass.

    Type, choices, default and help are the field's. `changes` has, by field, other arguments of
    `VerbParser.add_argument`, and `option` for another name. `field_values` makes the dataclass; where it refuses
    `top_k=0`, `main` prints `--top-k=0`. Fields are bool, int, float, str, Path or Literal, optional ones, tuples or
    sequences.

    All are `rare`, in that group, unless `changes` say otherwise. With a `prefix` such as cache, a field `theta` is
    `--cache-theta`, None if it was not given, and called `cache.theta` in messages of the library.
    """
    for field in fields(owner):
        if names and field.name not in names:
            continue
        dest, kind = f"{prefix}_{field.name}" if prefix else field.name, _settings(kinds(owner)[field.name])
        usual = {"required": True} if field.default is MISSING else {"default": field.default}
        meaning = field.metadata["help"].replace("%", "%%")
        settings = {"dest": dest, "help": meaning, "rare": rare, **usual, **kind, **changes.get(field.name, {})}
        option, value = settings.pop("option", f"--{dest.rstrip('_').replace('_', '-')}"), settings.get("default")
        if value not in (None, False) and "default" not in settings["help"]:
            settings["help"] += f" (default {value:g})" if isinstance(value, float) else f" (default {value})"
        if prefix:
            parser.library_names[f"{prefix}.{field.name.rstrip('_')}"] = option
            settings |= {"default": None, "required": False}
        parser.add_argument(option, **settings)


def _settings(kind: Any) -> dict[str, Any]:
    """Return the arguments that argparse needs for a type."""
    if kind is bool:
        return {"action": "store_true"}
    if get_origin(kind) is Literal:
        return {"choices": get_args(kind)}
    if get_origin(kind) in (tuple, Sequence):
        return {"nargs": "+", **_settings(get_args(kind)[0])}
    given = [one for one in get_args(kind) if one is not NoneType]  # of `X | None`
    return _settings(given[0]) if given else {"type": kind, "metavar": {int: "N", float: "X"}.get(kind)}


def field_values(options: argparse.Namespace, owner: type[Owner], prefix: str = "", **changes: Any) -> Owner:
    """Make a library dataclass from the options of `add_fields`; `changes` has its other fields."""
    given = given_with(options, prefix) if prefix else vars(options)
    return owner(**{field.name: given[field.name] for field in fields(owner) if field.name in given} | changes)


def given_with(options: argparse.Namespace, prefix: str) -> dict[str, Any]:
    """Return the fields of a prefix for which options were given."""
    found = {name.partition("_"): value for name, value in vars(options).items() if value is not None}
    return {name: value for (first, _, name), value in found.items() if first == prefix and name}


def refuse_given(options: argparse.Namespace, prefix: str, why: str) -> None:
    """Raise InputError if an option of a prefix was given without the option that it belongs to."""
    for name in given_with(options, prefix):
        raise InputError(f"{prefix}.{name.rstrip('_')}", limit=why)


def corpus_of(model: Model, options: argparse.Namespace) -> tuple[Corpus, str]:
    """Load the corpus that `add_corpus` names; return it with the part that is meant."""
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


def standard_input() -> str:
    """Put standard input, as a corpus, into a file, since a corpus is read more than once; return its path."""
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
    given = [Path(name) for name in more]
    runs = [(path / CONFIG).is_file() or is_arpa(path) or is_kenlm(path) or is_hf(path) for path in given]
    count = next((n for n, run in enumerate(runs) if not run), len(more))
    return [options.run, *map(Path, more[:count])], more[count:]


def check_gate(temperature: float | None, runs: int) -> None:
    """Refuse a temperature of several gates, or one that is too low, before anything is loaded."""
    if temperature is None:
        return
    if runs > 1:
        raise InputError(f"{GATE}: is for one run; each of the {runs} has a gate of its own")
    from spanlm.models.memories import require_temperature

    require_temperature(temperature, GATE)


def load_run(folder: Path, device: str, gate_temperature: float | None = None, as_written: bool = False) -> Model:
    """Load one run, with another temperature of its gate if one is given."""
    # here, since torch takes a second to load, and not every verb that has shared options needs it
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
    """Tell of a run whose training has not ended: what is read of it is the best model so far."""
    from spanlm.training.run import last_position

    with suppress(SpanlmError):  # what is damaged there is for who goes on with it
        at = last_position(folder)
        if at is not None and not at.run_over(RunConfig.load(folder / CONFIG).training):
            note(f"note: {folder}: its training has not ended; this is its best model after epoch {at.epoch}")


def load_runs(runs: Sequence[Path], options: argparse.Namespace) -> Model:
    """Load one run, or several as one; refuse options for several where there is one, and the reverse."""
    from spanlm.models.ensemble import normalised
    from spanlm.runs.ensemble import load_ensemble
    from spanlm.runs.model import require_weights

    # not every verb has these options
    temperature: float | None = vars(options).get("gate_temperature")
    attention: str | None = vars(options).get("attention")
    as_written: bool = vars(options).get("as_written", False)
    check_gate(temperature, len(runs))
    check_hf(runs[0], options)
    if len(runs) > 1:
        normalised(options.weights, len(runs))  # before anything is loaded
        ensemble = load_ensemble(runs, weights=options.weights, device=options.device)
        for run in runs:
            note_unfinished(Path(run))
        ensemble = ensemble if attention is None else ensemble.with_attention(attention)
        return ensemble.as_written() if as_written else ensemble
    for name, given in (("--combine", options.combine), ("--weights", options.weights)):
        if given is not None:
            raise InputError(f"{name}: is for several runs; name more than {runs[0]}")
    model = load_run(runs[0], options.device, temperature, as_written)
    return model if attention is None else require_weights(model, ATTENTION).with_attention(attention)


def check_hf(run: str | Path, options: argparse.Namespace) -> None:
    """Refuse what is for the words of a vocabulary, if the run is a model of Hugging Face's."""
    given = [name for name in ("vocab-pad", "cache") if vars(options).get(name.replace("-", "_"))]
    if given and is_hf(run):
        raise InputError(f"--{given[0]}: {run} predicts sub-words, not the words of a vocabulary. Leave it out.")


def load_kenlm(run: Path, options: argparse.Namespace) -> Kenlm | None:
    """Load a file in KenLM's binary format to score whole texts; None: it is none. It takes no option of a run."""
    from spanlm.scoring.ngram.kenlm import Kenlm

    if not is_kenlm(run) or run.is_dir():
        return None
    # where nothing is combined, --weights is of other things
    for name in ("gate_temperature", "attention", "combine", *["weights"] * ("combine" in options)):
        if vars(options).get(name) is not None:
            why = "has no weights and no memory, and nothing to combine with"
            raise InputError(f"--{name.replace('_', '-')}: {run} is an n-gram model, which {why}")
    return Kenlm(run)


def tuning_part(
    model: Model, options: argparse.Namespace, option: str, otherwise: str, texts: Texts | None = None
) -> Corpus:
    """Load the part to tune on; an error names the `option` that needs it, and what to give `otherwise`.

    It is of the corpus that is named, else of the training of the model, or of the one whose `texts` are given.
    """
    from spanlm.runs.texts import LoadCorpus

    if options.corpus == "-":
        raise InputError(f"{option}: standard input has no {TUNED_ON} part to tune on. Give {otherwise}.")
    where = {"data_dir": options.data_dir, "download": options.download, "as_text": options.as_text}
    valid = (texts or model.texts).corpus(LoadCorpus(options.corpus, TUNED_ON, **where), model.texts)
    if TUNED_ON not in valid.splits:
        why = f"{valid.name} has no {TUNED_ON} part to tune on"
        raise InputError(f"{option}: {why}. Name a corpus that has one, or give {otherwise}.")
    model.texts.note_changes(valid)
    return valid


def own_texts(options: argparse.Namespace) -> list[Path]:
    """Return the files that options name to be read."""
    given = (getattr(options, name, None) for name in ("file", "corpus", "tags"))
    return [Path(name) for name in given if name is not None]


def check_output(path: Path | None, read: Iterable[Path] = (), option: str = "--out", *, folder: bool = False) -> None:
    """Refuse what cannot be written to before there is anything to write.

    Raises:
        InputError: `path` is one of the files that are read; a folder, or where one is to be made (`folder`) one that
            holds something; or its own folder is not there, or may not be written to.
    """
    if path is None:
        return
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
    if not os.access(path.parent, os.W_OK):
        raise InputError(option, path, "the folder may not be written to", "Choose another.")


def check_kind(path: Path | None, option: str, kinds: Collection[Kind], what: str) -> None:
    """Refuse an output that is named as a kind of table that is none of `kinds`; `what` is written instead."""
    if path is not None and table_kind(path) not in (None, *kinds):
        raise InputError(option, path, what)


@contextmanager
def output(path: Path | None) -> Iterator[TextIO]:
    """Open `path` for writing as it will be when complete, or standard output for None."""
    if path is None:
        yield sys.stdout
        return
    check_output(path)
    with replacing_packed(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="")
        yield text
        text.flush()
        text.detach()  # the bytes below it are for `replacing` to sync and close


def run_names(folders: Sequence[Path]) -> list[str]:
    """Name runs by the end of their paths that tells them apart: kv/seed-1 and kvp/seed-1 are kv and kvp."""
    paths = [folder.resolve() for folder in folders]
    for folder, path in zip(folders, paths, strict=True):
        if paths.count(path) > 1:
            raise InputError(f"{folder}: is named twice; name each run once")
    if len(folders) == 1:
        return [run_name(folders[0])]
    while len({path.name for path in paths}) == 1:
        paths = [path.parent for path in paths]
    families = len({path.parent for path in paths}) > 1  # then a seed has its family's name before it
    parts, names = 1, [run_name(path) if families else _stem(path) for path in paths]
    while len({*names}) < len(paths):
        parts += 1
        names = ["/".join([*path.parts[-parts:-1], _stem(path)]) for path in paths]
    return names


def _stem(path: Path) -> str:
    return run_name(path) if is_arpa(path) or is_kenlm(path) else path.name


def keep_freed_memory() -> None:
    """Let the large tensors of one step serve the next, instead of going back to the system page by page.

    The logits of a step are tens of megabytes, which the C library maps anew for every step; touching new pages cost
    a quarter of a training step of a small model. For the whole process, so only for verbs that compute. Elsewhere
    than with the GNU C library nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return
    for parameter, value in ((-4, 0), (-1, 2**31 - 1), (-2, 64 * 2**20)):  # M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD
        mallopt(parameter, value)


# --- training: fields of a configuration, a preset, a text ---

Fields = dict[str, str]
"""Options that are fields of the configuration: full name → value as it was typed."""


def text_and_preset(names: Sequence[str], corpus: str | None, known: Iterable[str]) -> tuple[str | None, str | None]:
    """Sort the operands into a preset, one of those `known`, and a text, which may also be given by `--corpus`."""
    starts, ends = ("/", ".", "~", PREFIX), (".txt", ".gz")

    def is_text(name: str) -> bool:
        return name in CORPORA or os.path.exists(name) or name.startswith(starts) or name.endswith(ends)

    texts = [name for name in names if name not in known and is_text(name)]
    presets = [name for name in names if name not in texts]
    if DEMO in presets and (DEMO not in known or len(presets) > 1):  # it is a preset and a corpus
        presets.remove(DEMO)
        texts.append(DEMO)
    texts += [] if corpus is None else [corpus]
    if more := [*presets[1:], *texts[1:]]:
        like = nearest(more[0], [*known, *CORPORA])
        raise InputError(
            f"unrecognized arguments: {' '.join(more)}: name one preset and one text, or one of them.{like}"
        )
    return next(iter(presets), None), next(iter(texts), None)


def split_fields(
    arguments: list[str], short: Mapping[str, tuple[str, str, str]], groups: Collection[str]
) -> tuple[list[str], Fields]:
    """Separate this verb's own arguments from the fields of the configuration: `--group.field VALUE` or `=VALUE`.

    Of `groups` all fields can be one option, as in YAML: `--group='{field: VALUE, …}'`.
    """
    mine: list[str] = []
    fields: Fields = {}
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        name = f"--{short[name][0]}" if name in short else name
        field = name.removeprefix("--")
        if field == name or not ("." in field or field in groups):
            mine.append(argument)
            continue
        value = value if equals else next(rest, "--")
        if not equals and value.startswith("--"):
            raise InputError(f"{name}: expected one argument")
        group = field in groups and (value.lstrip().startswith("{") or "." not in field)
        fields |= _of_group(field, yaml_group(value, field)) if group else {field: value}
    return mine, fields


def _of_group(name: str, group: Mapping[str, Any]) -> Fields:
    if not group:
        raise InputError(name, "{}", "names no field")
    fields: Fields = {}
    for inner, value in group.items():
        full = f"{name}.{inner}"
        fields |= _of_group(full, value) if isinstance(value, dict) else {full: as_written(value)}
    return fields


def free_folder(preset: str | None, text: str) -> Path:
    corpus = Path(text).name.split(".")[0]
    stem = "-".join(dict.fromkeys([*(preset or "").split("/"), corpus]).keys()).strip("-")
    folder, number = Path("runs") / stem, 1
    while folder.exists():
        number += 1
        folder = Path("runs") / f"{stem}-{number}"
    return folder
