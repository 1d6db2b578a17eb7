"""What the library says of its fields, said of the options that were typed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from spanlm.errors import SpanlmError


def in_options(message: str, options: Mapping[str, str], *, first: bool = False) -> str:
    """Return a message with options in place of fields.

    Args:
        message: of the library.
        options: what to say for a field, written as it stands there: `cache.window=` is `--cache=`.
        first: only of the one that the message begins with: the rest may be a user's words or a path.
    """
    fields = "|".join(map(re.escape, options))
    begins = "^" if first else r"(?<![\w.])"
    return re.sub(f"{begins}(?:{fields})", lambda found: options[found[0]], message)


@contextmanager
def refusing_options(options: Mapping[str, str], more: str = "") -> Iterator[None]:
    """Let what the library refuses within be told in options, as `in_options` does, with `more` at the end."""
    try:
        yield
    except SpanlmError as error:
        said = in_options(str(error), options)
        if said != str(error):
            error.args = (f"{said}{more}", *error.args[1:])
        raise
