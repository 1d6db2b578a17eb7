"""Errors for users: one line that names the field, the value, the limit and the way out."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sized
from dataclasses import fields
from operator import index
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FEW = 12

IN_USE = "another process is training in this folder"
"""Why a run is refused that can be tried again later."""


class _Absent:
    """The value of an error that is not about a value."""


ABSENT: Any = _Absent

_OPEN, _SHUT = "\x0e\x0f"
_MARKED = re.compile(f"{_OPEN}(.*?){_SHUT}")


def named(field: str) -> str:
    """Mark a field, or `field=value`, inside a text that callers are told, each under the name that it has for it."""
    return f"{_OPEN}{field}{_SHUT}"


def told(text: str, name: Callable[[str], str] = str) -> str:
    """Return a text, or a note, with marked fields as `name` calls them."""
    return _MARKED.sub(lambda marked: name(marked[1]), getattr(text, "marked", text))


class Note(str):
    """A remark of a result, with `marked` fields in it; as a string it has the names that Python has for them."""

    marked: str

    def __new__(cls, text: str) -> Self:
        note = super().__new__(cls, told(text))
        note.marked = text
        return note


class SpanlmError(Exception):
    """Root of every error raised on purpose; `exit_status` is what the command line returns.

    Either a `field` with its `value`, the `limit` that it breaks and the `way_out`, or a whole sentence.
    """

    exit_status = 1
    place: str = ""

    def __init__(self, field: object, value: object = ABSENT, limit: object = "", way_out: str = "") -> None:
        self.field: str = str(field)
        self.value: object = value
        self.limit: str = str(limit)
        self.way_out: str = way_out
        super().__init__(self.told())

    def told(self, name: Callable[[str], str] = str) -> str:
        """Return the error as a line; `name` gives what a field is called where the line is read."""
        subject = name(self.field) if self.limit else self.field
        subject += "" if self.value is ABSENT else f"={as_written(self.value)}"
        text = ". ".join(filter(None, [self.limit, self.way_out]))
        return told(": ".join(filter(None, [self.place, subject, text])), name)

    def to_json(self) -> dict[str, str]:
        """Return the error as a line and, if it is about a field, its parts, each as text; empty ones are left out."""
        value = "" if self.value is ABSENT else as_written(self.value)
        parts = {"field": self.field, "value": value, "limit": told(self.limit), "way_out": told(self.way_out)}
        shown = {name: text for name, text in parts.items() if text or name == "field"} if self.limit else {}
        return {"error": str(self), **shown}

    def within(self, place: object) -> Self:
        """Return the error as one of a file, or of another place, in which the field stands."""
        self.place = ": ".join(filter(None, [str(place), self.place]))
        self.args: tuple[Any, ...] = (self.told(),)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, vars(self))  # as another process has raised it


def _restored(kind: type[SpanlmError], arguments: tuple[str], fields: dict[str, Any]) -> SpanlmError:
    error = kind.__new__(kind, *arguments)
    vars(error).update(fields)
    return error


class RunError(SpanlmError):
    """A failure while running: a full disk, a damaged checkpoint, a loss that is not a number.

    Example:
        >>> tree = {"data": {"corpus": "synthetic:copy,tokens=2000"}, "training": {"optimizer": {"lr": 1e30}}}
        >>> config = spanlm.RunConfig.from_tree(tree)
        >>> spanlm.train(config, spanlm.load_corpus(config.data), "runs/diverges")
        Traceback (most recent call last):
        spanlm.errors.RunError: ...not finite... Start again with a lower training.optimizer.lr.
    """


class Interrupted(RunError):
    """The user or the system ended the work; the state is saved. Exits as the signal would: 128 + number."""

    def __init__(self, message: str, signal_number: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number
        self.exit_status: int = 128 + signal_number


class InputError(SpanlmError, ValueError):
    """Bad input: a file, an option or a configuration that cannot be used as it is.

    Example:
        >>> try:
        ...     config = spanlm.RunConfig.from_tree({"training": {"epochs": 0}})
        ... except spanlm.InputError as error:
        ...     (error.field, error.value, error.limit)
        ('training.epochs', 0, 'must be at least 1')
    """

    exit_status = 2


def installation(extra: str) -> str:
    """Return the command that installs an extra: in the checkout, or else the packages that it names."""
    import shlex  # all of this where something is missing, not at each start
    from importlib.metadata import requires

    home = Path(__file__).resolve().parents[1]
    if (home / "constraints.txt").is_file():
        return f'cd {shlex.quote(str(home))} && pip install -c constraints.txt -e ".[{extra}]"'
    needs = [line.partition(";")[0] for line in requires("spanlm") or () if f"extra == '{extra}'" in line]
    return f"pip install {shlex.join(needs)}"


def require(ok: bool, field: str, value: object, limit: str) -> None:
    """Raise InputError `field=value: must be <limit>` unless `ok`."""
    if not ok:
        raise InputError(field, value, f"must be {limit}")


def whole_number(name: str, value: object) -> int:
    """Return a whole number of at least 1, of numpy's kinds or Python's; InputError: it is none, or less."""
    plain: Any = None if isinstance(value, bool) else value
    try:
        number = index(plain)
    except TypeError:
        quoted = repr(value) if isinstance(value, str) else value
        raise InputError(name, quoted, "must be a whole number") from None
    require(number >= 1, name, number, "at least 1")
    return number


def require_path(name: str, value: object) -> None:
    require(isinstance(value, str | PathLike), name, type(value).__name__, "a path, a string or a Path")


def require_several(name: str, values: Sized) -> None:
    """Raise InputError for a list without values, or for what is no list."""
    require(hasattr(values, "__len__") and not isinstance(values, str), name, values, "a list of values")
    require(len(values) > 0, name, "", "at least one value")


def require_defaults(owner: DataclassInstance, prefix: str, names: Iterable[str], why: str) -> None:
    """Raise InputError `prefix.name=value: must be <default> <why>` for the first of `names` with another value.

    For fields that mean nothing beside the values of others: set, they would be ignored without a word.
    """
    defaults = {field.name: field.default for field in fields(owner)}
    for name in names:
        shown = f"{defaults[name]:g}" if isinstance(defaults[name], float) else as_written(defaults[name])
        require(getattr(owner, name) == defaults[name], f"{prefix}.{name}", getattr(owner, name), f"{shown} {why}")


def as_written(value: object) -> str:
    """Return a value with the words that YAML and the command line have for it: true, false, null."""
    if value is None:
        return "null"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(as_written, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def nearest_or_all(name: str, options: Iterable[str]) -> str:
    """Return `nearest`, and the options, however many, where it does not list them."""
    options = list(options)
    hint = nearest(name, options)
    return hint if "Choose" in hint else f"{hint} There are: {', '.join(options)}."


def nearest(name: str, options: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` for the option most like `name`, else the options if they are few."""
    options = [option for option in options if option != name]
    last = [option for option in options if option.rpartition(".")[2] == name.rpartition(".")[2].lstrip("-")]
    if len(last) == 1:
        return f" Did you mean {last[0]!r}?"
    if close := difflib.get_close_matches(name, options, n=1, cutoff=0.5):
        return f" Did you mean {close[0]!r}?"
    return f" Choose from: {', '.join(options)}." if 0 < len(options) <= FEW else ""
