"""Parsers of verbs: argparse, whose options are fields of groups, with a short and a long help. No torch here."""

from __future__ import annotations

import argparse
import ctypes
import difflib
import os
import re
import shutil
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, get_args, get_origin

from spanlm.data.config import CONVENTIONS, SPLITS
from spanlm.errors import InputError, nearest, require, told
from spanlm.jobs import Engine
from spanlm.options import Precision, kinds
from spanlm.scoring.options import CacheOptions

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

PROCESSORS = os.cpu_count() or 1
GATE = "--gate-temperature"
ATTENTION = "--attention"

Owner = TypeVar("Owner", bound="DataclassInstance")

_LAST = ("--data-dir", "--device", "--precision", "--threads", "--as-text", "--json", "--help")
"""Options that many verbs share; they come after the verb's own."""

_MORE = "more options"


def filled(text: str, margin: int = 2) -> str:
    """Break paragraphs to the width of the terminal; examples, which are indented, stay as they are."""
    width = shutil.get_terminal_size().columns - margin
    return "\n\n".join(
        part if part.startswith(" ") else textwrap.fill(" ".join(part.split()), width, break_on_hyphens=False)
        for part in text.strip("\n").split("\n\n")
    )


class _Formatter(argparse.RawDescriptionHelpFormatter):
    def _format_action_invocation(self, action: argparse.Action) -> str:
        if "--help" in action.option_strings:
            return "-h, --help [all]"
        return super()._format_action_invocation(action)


class _Help(argparse.Action):
    def __call__(self, parser: Any, namespace: argparse.Namespace, value: Any, option: object = None) -> None:
        if value not in ("", "all"):
            raise InputError(f"--help {value}: there is the help, and `--help all`")
        print(parser.help_text(value == "all"), end="")
        parser.exit()


class _Threads(argparse.Action):
    """Sets the number of threads of this process as soon as it is read."""

    def __call__(self, parser: object, namespace: argparse.Namespace, value: Any, option: object = None) -> None:
        require(0 < value <= PROCESSORS, "--threads", value, f"1 to {PROCESSORS}, the processors of this machine")
        import torch

        torch.set_num_threads(value)
        namespace.threads = value


class Attention(argparse.Action):
    """Checks a lesion, or several, as soon as it is read."""

    def __call__(self, parser: object, namespace: object, value: Any, option: object = None) -> None:
        from spanlm.models.lesions import require_lesion

        for lesion in [value] if isinstance(value, str) else value:
            require_lesion(lesion, ATTENTION)
        setattr(namespace, self.dest, value)


class Parser(argparse.ArgumentParser):
    """The parser of a verb: its errors are InputErrors that name the nearest option; its help is short or long.

    `elsewhere` gives options of another parser, which errors suggest, too. `more` is a description that `--help all`
    adds. `library_names` maps fields of the library to their options. A verb that `computes` has `--threads`.
    """

    def __init__(
        self,
        verb: str,
        description: str,
        *,
        more: str | Callable[[], str] = "",
        help_action: str | type[argparse.Action] = _Help,
        computes: bool = True,
    ) -> None:
        super().__init__(
            prog=f"spanlm {verb}",
            description=filled(description),
            formatter_class=_Formatter,
            add_help=False,
            allow_abbrev=False,
        )
        self.register("type", Path, path)
        self._more, self._rare, self._groups = more, list[argparse.Action](), dict[str, argparse._ActionsContainer]()
        self._positionals.title = "arguments"
        self.elsewhere: Callable[[], Sequence[str]] = tuple
        self.library_names: dict[str, str] = {}
        settings: dict[str, Any] = {"default": argparse.SUPPRESS} if help_action is _Help else {}
        settings |= {"nargs": "?", "const": "", "metavar": "all", "action": help_action}
        self.add("-h --help", "show this; all: every option", **settings)
        if computes:
            keep_freed_memory()
            text = "threads of the processor to compute with (default: all cores; 1 is best for small models beside "
            text += "other work)"
            self.add("--threads", text, int, action=_Threads)

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Return the values of the options, and as `parser` this one, which names the options in errors and notes."""
        return self.parse_intermixed_args(arguments, argparse.Namespace(parser=self))

    def add(
        self, name: str, meaning: str, kind: Any = str, *, group: str = "", rare: bool | str = False, **settings: Any
    ) -> None:
        """Add an argument of a type, a flag as bool; an option may have several names, with a space between two.

        It is in the `group` of that name, if any. One that is `rare` is in `--help all` alone, in the group of that
        name. `settings` are those of argparse.
        """
        title = _MORE if rare is True else rare or group
        if title and title not in self._groups:
            self._groups[title] = self.add_argument_group(title)
        action = self._groups.get(title, self).add_argument(*name.split(), help=meaning, **_settings(kind) | settings)
        if rare:
            self._rare.append(action)

    def help_text(self, everything: bool) -> str:
        """Return the help, with the rare options or without them."""
        usage, words = self._get_formatter(), [self.prog]
        for action in sorted(self._actions, key=lambda action: len(action.option_strings)):
            action.help = told(action.help or "", self.option_of)
            # argparse hides the number of operands while it reads them between options
            action.nargs = getattr(action, "save_nargs", action.nargs)
            if action.required or not action.option_strings:
                words += [*action.option_strings[-1:], usage._format_args(action, action.dest)]
        self.usage: str = f"{' '.join(words)} [OPTIONS]"
        last = {name: place for place, name in enumerate(_LAST)}
        self._optionals._group_actions.sort(key=lambda action: last.get(action.option_strings[-1], -1))
        if everything:
            self._action_groups.sort(key=lambda group: group.title == _MORE)
            self.epilog: str = filled(self._more if isinstance(self._more, str) else self._more())
            return self.format_help()
        for action in self._rare:
            action.help = argparse.SUPPRESS
        count = f"{len(self._rare)} more options" if len(self._rare) > 1 else "one more option"
        explained = ", with more explanation" if self._more else ""
        return self.format_help() + f"\n`{self.prog} --help all` shows {count}{explained}.\n" * bool(self._rare)

    def option_of(self, field: str) -> str:
        """Return the option that a field of the library, or a setting that it advises, is here; else the field."""
        name, equals, value = field.partition("=")
        action = self._option_string_actions.get(f"--{re.sub('[_.]', '-', name)}")
        option = self.library_names.get(name) or (name if action is None else action.option_strings[-1])
        advice = _ADVICE.get(field, "")
        if advice.partition(" ")[0] in self._option_string_actions:
            return advice
        return field if option == name else f"{option} {value}" if equals else option

    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting: `main` prints."""
        words = message.split()
        if message.startswith("unrecognized arguments") and words[2].startswith("-"):
            options = [name for action in self._actions for name in action.option_strings]
            option = words[2].partition("=")[0]
            if not difflib.get_close_matches(option, options, n=1, cutoff=0.8):
                options += self.elsewhere()
            message = f"unknown option {option}.{nearest(option, options)}"
        if wrong := re.fullmatch(r"argument (?:.*/)?(-\S+): invalid (int|float) value: '(.*)'", message):
            option, kind, value = wrong.groups()
            message = f"{option}={value}: must be a {'whole number' if kind == 'int' else 'number'}"
        raise InputError(f"{message.removeprefix('argument ')} (see `{self.prog} --help`)")

    # --- options that several verbs share ---

    def add_engine(self, rare: str = "") -> None:
        """Add where runs are done, and how many at a time; `field_values` makes the `Engine`."""
        add_fields(self, Engine, on={"metavar": "ray[:ADDRESS]"}, jobs={"rare": ""}, rare=rare)

    def add_device(self) -> None:
        self.add("--device", "auto (a GPU if there is one), cpu or cuda", default="auto", metavar="NAME")

    def add_as_text(self) -> None:
        self.add("--as-text", "read a file as text even if it looks like another format", bool, rare=True)

    def add_row_options(self, prefix: bool = True, **settings: Any) -> None:
        """Add what is done with rows that cannot be used, and with columns named as those that are written."""
        if prefix:
            text = "put this before the names of the columns that are added to a table's own, as in lm_"
            self.add("--prefix", text, rare=True, metavar="TEXT", default="")
        text = "refuse a table with a row that cannot be used (default: the row is left out, and noted)"
        self.add("--strict", text, bool, rare=True, **settings)

    def add_corpus(self) -> None:
        """Add the options that name a corpus and a part of it, for `corpus_of`."""
        text = "a registered corpus, a folder, a whole text file or - (default: as in training)"
        self.add("--corpus", text, metavar="NAME|PATH")
        self.add("--split", "which part of a corpus (default: test); a text file alone is taken whole", choices=SPLITS)
        self.add("--data-dir", "where corpora are (default: $SPANLM_DATA)", metavar="DIR")
        self.add("--download", "fetch a registered corpus that is not there", bool, rare=True)
        self.add_as_text()

    def add_runs(self, files: str = "", files_help: str = "", *, hf: bool = True) -> None:
        """Add the runs, how several are combined, `files` that may follow, and the device; parse intermixed."""
        text = f"a trained run's folder, {'NAME.arpa[.gz] or hf:FOLDER' if hf else 'or NAME.arpa[.gz]'};"
        self.add("run", text, Path, metavar="RUN")
        text = f"more of them predict with it as one{f'; then {files_help}' if files else ''}"
        self.add("more", text, metavar=f"RUN|{files}" if files else "RUN", nargs="*", default=[])
        several = "several runs as one"
        text = "the average of their probabilities, which is the default"
        self.add("--combine", text, rare=several, choices=("linear",))
        text = "the weight of each run, in their order (default: equal)"
        self.add("--weights", text, float, rare=several, nargs="+", metavar="W")
        self.add_device()

    def add_gate(self, *, texts: bool = False) -> None:
        """Add another temperature of a span buffer's gate and, for `texts` of a user, how words are read."""
        if texts:
            text = f"read words as they are written (default of models of {', '.join(CONVENTIONS)}: as their corpus "
            text += "writes them)"
            self.add("--as-written", text, bool, rare=True)
        text = "of a model with a span buffer: the gate's temperature (default: the run's "
        text += "model.memory.gate.evaluation_temperature)"
        self.add(GATE, text, float, rare=True, metavar="T")

    def add_precision(self, rare: bool = False) -> None:
        self.add("--precision", "of matrix products (default fp32)", Precision, default="fp32", rare=rare)

    def add_attention(self) -> None:
        text = "change where the trained model looks: at all slots of its memory alike (uniform), at an empty memory "
        text += "(none), at the nearest K slots (window=K)"
        self.add(ATTENTION, text, rare=True, action=Attention, metavar="HOW")


def path(text: str) -> Path:
    """Return the path of an argument; a shell leaves the ~ of `--out=~/run` as it is."""
    if not text:
        raise argparse.ArgumentTypeError("is empty; name a file or a folder")
    from spanlm.store.files import expanded

    return expanded(text)


_ADVICE = {
    "as_text=True": "--as-text",
    "corpus=…": "--corpus",
    "resume=True": "--resume auto",
    "weights=…": "--weights",
}
"""Settings that messages of the library advise, and their options."""


def add_fields(
    parser: Parser,
    owner: type[DataclassInstance],
    *names: str,
    prefix: str = "",
    rare: str = "",
    **changes: Mapping[str, Any],
) -> None:
    """Add an option for each field, or for those in `names`, of a library dataclass.

    Type, choices, default and help are the field's. `changes` has, by field, other arguments of
    `Parser.add`, `option` for another name, and `meaning` for another help. `field_values` makes the dataclass;
    where it refuses `top_k=0`, `main` prints `--top-k=0`. Fields are bool, int, float, str, Path or Literal, optional
    ones, tuples or sequences.

    All are `rare`, in that group, unless `changes` say otherwise. With a `prefix` such as cache, a field `theta` is
    `--cache-theta`, None if it was not given, and called `cache.theta` in messages of the library.
    """
    for field in fields(owner):
        if names and field.name not in names:
            continue
        dest = f"{prefix}_{field.name}" if prefix else field.name
        usual = {"required": True} if field.default is MISSING else {"default": field.default}
        settings = {"dest": dest, "rare": rare, **usual, **changes.get(field.name, {})}
        option, value = settings.pop("option", f"--{dest.rstrip('_').replace('_', '-')}"), settings.get("default")
        meaning = settings.pop("meaning", field.metadata["help"].replace("%", "%%"))
        if value not in (None, False) and "default" not in meaning:
            meaning += f" (default {value:g})" if isinstance(value, float) else f" (default {value})"
        parser.library_names[f"{prefix}.{field.name.rstrip('_')}" if prefix else field.name] = option
        if prefix:
            settings |= {"default": None, "required": False}
        parser.add(option, meaning, kinds(owner)[field.name], **settings)


def _settings(kind: Any) -> dict[str, Any]:
    """Return the arguments that argparse needs for a type."""
    if kind is bool:
        return {"action": "store_true"}
    if get_origin(kind) is Literal:
        return {"choices": get_args(kind)}
    if get_origin(kind) in (tuple, Sequence):
        return {"nargs": "+", **_settings(get_args(kind)[0])}
    choices = [choice for choice in get_args(kind) if choice is not NoneType]  # of `X | None`
    metavars = {int: "N", float: "X", Path: "FILE"}
    return _settings(choices[0]) if choices else {"type": kind, "metavar": metavars.get(kind)}


def field_values(options: argparse.Namespace, owner: type[Owner], prefix: str = "", **changes: Any) -> Owner:
    """Make a library dataclass from the options of `add_fields`; `changes` has its other fields."""
    values = given_with(options, prefix) if prefix else vars(options)
    return owner(**{field.name: values[field.name] for field in fields(owner) if field.name in values} | changes)


def given_with(options: argparse.Namespace, prefix: str) -> dict[str, Any]:
    """Return the fields of a prefix for which options were given."""
    parts = {name.partition("_"): value for name, value in vars(options).items() if value is not None}
    return {name: value for (first, _, name), value in parts.items() if first == prefix and name}


def refuse_given(options: argparse.Namespace, prefix: str, why: str) -> None:
    """Raise InputError if an option of a prefix was given without the option that it belongs to."""
    for name in given_with(options, prefix):
        raise InputError(f"{prefix}.{name.rstrip('_')}", limit=why)


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


def add_cache(parser: Parser, rare: str = "") -> None:
    """Add the options of a neural cache; the two that others need are in the group `rare`, or in each help."""
    common: dict[str, Any] = {
        "window": {"option": "--cache", "dest": "cache", "metavar": "C", "rare": rare},
        "tune": {"option": "--tune-cache", "rare": rare},
    }
    symbols = {"thetas": {"option": "--cache-theta", "metavar": "θ"}}
    symbols["lambdas"] = {"option": "--cache-lambda", "metavar": "λ"}
    add_fields(parser, CacheOptions, prefix="cache", rare="neural cache", **common, **symbols)
