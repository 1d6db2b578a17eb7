"""Groups of options: frozen dataclasses whose fields carry their help and their limits.

A group is written once. Python takes its fields as keywords, the command line as options, a configuration as YAML and
the server as JSON; each of them shows the same help and refuses the same values.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from operator import index
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

from spanlm.errors import InputError, as_written, nearest, require, told

Precision = Literal["fp32", "tf32", "bf16"]
"""Of matrix products."""

Group = TypeVar("Group")
Tree = Mapping[str, Any]
"""Values by the names of fields; those of a group in it are a tree again."""

_LISTS = tuple, Sequence
_WRITTEN = "data.", "model.", "training.", "ngram."
"""Groups of configurations, in which null can be written."""

_COUNT = re.compile(r"(\d{1,15}(?:\.\d*)?(?:E\d{1,2})?)([KM]?)")
_SCALES = {"": 1, "K": 1_000, "M": 1_000_000}

_TYPES = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}

# --- limits ---


@dataclass(frozen=True)
class Limit:
    """A condition on a value, and its words after `must be`."""

    fits: Callable[[Any], bool]
    words: str


def at_least(least: float, words: str = "") -> Limit:
    """No less than `least`; `words` say more than the number."""
    return Limit(lambda value: value >= least, words or f"at least {least}")


POSITIVE = Limit(lambda value: 0 < value < math.inf, "positive and finite")
NOT_NEGATIVE = Limit(lambda value: 0 <= value < math.inf, "0 or positive, and finite")
RATE = Limit(lambda value: 0 <= value < 1, "in [0, 1)")
SHARE = Limit(lambda value: 0 <= value <= 1, "in [0, 1]")
SEED = Limit(lambda value: 0 <= value < 2**63, "in [0, 2^63)")
WEIGHT = Limit(lambda value: abs(value) <= 1e30, "from -1e30 to 1e30")

# --- groups ---


def _choices(kind: Any) -> tuple[Any, ...]:
    """Return the types that a value may have one of."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def option(
    help: str,
    *,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    limit: Limit | None = None,
    kw_only: bool = True,
) -> Any:
    """Make a field of a group, with its help and, unless it is None, the limit of its value.

    `kw_only=False`: Python takes it without its name.
    """
    metadata = {"help": help, "limit": limit}
    if default_factory is not MISSING:
        return field(default_factory=default_factory, metadata=metadata, kw_only=kw_only)
    return field(default=default, metadata=metadata, kw_only=kw_only)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(option, field))
def options(prefix: str | None = None) -> Callable[[type[Group]], type[Group]]:
    """Make a class a group of options: a frozen dataclass of keywords, which refuses values of a wrong type or range.

    Messages call a field `prefix.field`; without a prefix, as the class above does, or `field`. A `__post_init__` then
    refuses what does not go together. The help of the fields is added to the docstring.

    Raises, when the class is called:
        InputError: a value that its field cannot have.
    """

    def decorate(cls: type[Group]) -> type[Group]:
        refuse = cls.__dict__.get("__post_init__")

        def check(self: Any) -> None:
            check_fields(self)
            if refuse is not None:
                refuse(self)

        if refuse is not None or not hasattr(cls, "__post_init__"):
            cls.__post_init__ = check  # type: ignore[attr-defined]
        above: str = getattr(cls, "PREFIX", "")
        cls.PREFIX = above if prefix is None else f"{prefix}."  # type: ignore[attr-defined]
        group = with_meanings(dataclass(frozen=True, kw_only=True)(cls))
        if group.__doc__ is not None and "Raises:" not in group.__doc__:
            group.__doc__ += "\n\nRaises:\n    InputError: a value of another type, or outside its limit."
        return group

    return decorate


def with_meanings(record: type[Group]) -> type[Group]:
    """Add the meanings of the fields of a dataclass to its docstring."""
    lines = "\n".join(f"    {name}: {text}." for name, text in meanings(record).items())
    if record.__doc__ is not None and lines:
        record.__doc__ = f"{inspect.cleandoc(record.__doc__)}\n\nAttributes:\n{lines}"
    return record


def meanings(record: Any) -> dict[str, str]:
    """Return what each field means: the help of an option, or the text in `Annotated[type, text]`."""
    if helps := {member.name: member.metadata["help"] for member in fields(record) if "help" in member.metadata}:
        return {name: told(help) for name, help in helps.items()}
    hints = get_type_hints(record, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if get_origin(hint) is Annotated}


def leaves(group: Any, name: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield the name, the value and the help, with what the value may be, of each field of a group and its groups."""
    groups = [cls for cls in type(group).__mro__ if is_dataclass(cls)]
    for member in fields(group):
        value, full = getattr(group, member.name), f"{name}{member.name}"
        if is_dataclass(value):
            yield from leaves(value, f"{full}.")
        else:  # a kind is explained where all kinds are
            meaning = next((texts[member.name] for texts in map(meanings, groups) if member.name in texts), "")
            yield full, value, f"{meaning} ({said(kinds(type(group))[member.name])})"


def kinds(group: Any) -> dict[str, Any]:
    """Return the type of each field."""
    if "KINDS" not in vars(group):
        hints = get_type_hints(group)
        group.KINDS = {member.name: hints[member.name] for member in fields(group)}
    return group.KINDS  # type: ignore[no-any-return]


def full_name(group: type[Any], name: str) -> str:
    """Return what messages call a field; `lambda_` is lambda everywhere but in Python."""
    return f"{group.PREFIX}{name.rstrip('_')}"


def check_fields(group: Any) -> None:
    """Make the values of a group plain ones of their types, also those of numpy; InputError: one does not fit."""
    cls = type(group)
    for member in fields(group):
        value, kind, name = getattr(group, member.name), kinds(cls)[member.name], full_name(cls, member.name)
        try:
            plain = fitted(value, kind)
        except (TypeError, ValueError, OverflowError):
            numeric = isinstance(value, str) and {int, float} & {*_choices(kind)}
            raise InputError(name, repr(value) if numeric else as_written(value), f"must be {said(kind)}") from None
        limit: Limit | None = member.metadata.get("limit")
        if limit is not None and plain is not None:
            require(
                limit.fits(plain),
                name,
                "''" if plain == "" else plain,
                limit.words + ", or null" * (NoneType in _choices(kind) and cls.PREFIX.startswith(_WRITTEN)),
            )
        if plain is not value and not isinstance(value, int):  # 1 is written without a point where 1.5 may stand, too
            object.__setattr__(group, member.name, plain)


def require_fields(group: Any, *checks: tuple[str, bool, str]) -> None:
    """Refuse the first of some fields that does not fit beside the others; a check is its name, whether, its limit."""
    for name, fits, limit in checks:
        require(fits, full_name(type(group), name), getattr(group, name), limit)


# --- values ---


def said(kind: Any) -> str:
    """Return what a value of a type must be, in words."""
    words = [_said(choice) for choice in _choices(kind) if choice is not NoneType]
    return ", or ".join([*words, *["null"] * (NoneType in _choices(kind))])


def _said(kind: Any) -> str:
    inner = get_args(kind)
    if get_origin(kind) is Literal:
        return " or ".join(filter(None, [", ".join(map(str, inner[:-1])), str(inner[-1])]))
    if get_origin(kind) in _LISTS:
        return f"a list of {len(inner) if len(inner) > 1 and inner[-1] is not ... else 'values'}, each {said(inner[0])}"
    return _TYPES.get(kind) or f"a {getattr(kind, '__name__', kind)}"


def fitted(value: Any, kind: Any) -> Any:
    """Return a value as one of a type: numbers of numpy as Python's, a whole number where any may stand as a float.

    Raises:
        TypeError, ValueError: it is none. Types that no text stands for, such as a function, are not checked.
    """
    if hasattr(value, "dtype") and value.ndim == 0:
        value = value.item()
    if len(choices := _choices(kind)) > 1:
        for choice in choices:
            with suppress(TypeError, ValueError):
                return fitted(value, choice)
        raise ValueError(value)
    origin, inner = get_origin(kind), get_args(kind)
    if origin in _LISTS:
        if isinstance(value, str | bytes | Mapping):
            raise TypeError(value)
        kinds_of_parts = inner if len(inner) > 1 and inner[-1] is not ... else [inner[0]] * len(value)
        return tuple(fitted(part, part_kind) for part, part_kind in zip(value, kinds_of_parts, strict=True))
    if kind in (int, float):
        if isinstance(value, str | bool):
            raise TypeError(value)
        return index(value) if kind is int else float(value)
    if origin is Literal and not any(value == choice and type(value) is type(choice) for choice in inner):
        raise ValueError(value)
    record = is_dataclass(kind) and not hasattr(kind, "PREFIX")  # groups may stand for others of their kind
    if (kind in (bool, str, NoneType) or record) and not isinstance(value, kind):
        raise TypeError(value)
    return value


def whole_count(value: int | str) -> int:
    """Return the whole number that a value stands for, as 1000000, 1e6 or 1M; ValueError: it stands for none."""
    count = _COUNT.fullmatch(str(value).upper().replace("_", "").replace(",", ""))
    if count is None:
        raise ValueError(value)
    return round(float(count[1]) * _SCALES[count[2]])


def short_count(count: int) -> str:
    """Write a whole number with the largest of M and K that leaves no fraction: 1M, 1500K, 1234."""
    scale = next((scale for scale in ("M", "K") if count % _SCALES[scale] == 0), "")
    return f"{count // _SCALES[scale]}{scale}"


def from_text(text: str, kind: Any) -> Any:
    """Return the value that a text stands for; a list is written [1, 2].

    Raises:
        TypeError, ValueError: it stands for none of this type.
    """
    choices = _choices(kind)
    if NoneType in choices and text in ("null", "~"):
        return None
    if str in choices or any(text in get_args(choice) for choice in choices if get_origin(choice) is Literal):
        return text
    for choice in choices:
        with suppress(TypeError, ValueError):
            return _parsed(text, choice)
    raise ValueError(text)


def _parsed(text: str, kind: Any) -> Any:
    if get_origin(kind) in _LISTS and text[:1] + text[-1:] == "[]":
        inner = get_args(kind)
        return fitted([from_text(part.strip(), inner[0]) for part in text[1:-1].split(",") if part.strip()], kind)
    if kind is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind is float:
        return float(text.replace(".inf", "inf").replace(".nan", "nan"))  # as YAML writes them
    if kind is int:
        return int(text)
    raise ValueError(text)


def read_group(group: type[Group], tree: Tree, name: str = "") -> Group:
    """Make a group, and the groups in it, of nested values; those of other fields are the defaults.

    Values are of their types, as in YAML, or texts that stand for them. A field that may be one of several groups is
    the one whose `kind` the values have.

    Raises:
        InputError: an unknown field or kind, a value in place of a group, a wrong type, a value out of range.
    """
    values = {}
    for key, value in tree.items():
        full = f"{name}{key}"
        if key not in kinds(group):
            raise InputError(f"unknown field {full}.{nearest(str(key), kinds(group))}")
        kind = kinds(group)[key]
        if is_dataclass(inner := _choices(kind)[0]):
            inner_tree = as_group(value, full)
            if len(_choices(kind)) > 1:
                choices = {choice.kind: choice for choice in _choices(kind)}
                inner = kind_of(inner_tree, getattr(group(), key).kind, choices, full)
            values[key] = read_group(inner, inner_tree, f"{full}.")
            continue
        try:
            values[key] = from_text(value, kind) if isinstance(value, str) else fitted(value, kind)
        except (TypeError, ValueError, OverflowError):
            if value is None:
                raise InputError(full, "null", "must have a value") from None
            quoted = ", in YAML in quotation marks" if str in _choices(kind) else ""
            raise InputError(full, value, f"must be {said(kind)}{quoted}") from None
    return group(**values)


def kind_of(tree: Tree, default: str, groups: Mapping[str, type[Group]], name: str) -> type[Group]:
    """Return the one of several groups whose kind a tree has, or of the `default` kind; InputError: there is none."""
    kind = tree.get("kind", default)
    if not isinstance(kind, str) or kind not in groups:
        raise InputError(f"{name}.kind={as_written(kind)}: unknown.{nearest(str(kind), groups)}")
    return groups[kind]


def as_group(value: object, name: str) -> dict[str, Any]:
    """Return the values of a group's fields; InputError: a value stands in their place."""
    if not isinstance(value, dict):
        text = " ".join(as_written(value).split())
        shown = text if len(text) <= 60 else f"{text[:60]}…"  # it may be a whole file
        raise InputError(name, shown, "must be a group of fields")
    return value
