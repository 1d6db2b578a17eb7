"""What the library says of its fields, said of the options that were typed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from spanlm.errors import InputError


def in_options(message: str, options: Mapping[str, str]) -> str:
    """Return a message that begins `field=value` with the option for the field; any other as it is.

    Args:
        message: of the library.
        options: each field as an option is written before its value: `--cache=`, `--weights `.
    """
    field, _, rest = message.partition("=")
    return f"{options[field]}{rest}" if field in options else message


@contextmanager
def refusing_options(options: Mapping[str, str], way_out: str = "") -> Iterator[None]:
    """Let what the library refuses within be told in options, as `in_options` does, with a way out at the end."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{in_options(str(error), options)}{way_out}") from None
