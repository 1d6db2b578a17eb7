"""Five texts for each kind of corpus: agreement, a name that comes again, a list, a quotation, a garden path.

Each says what to look for. They are written as the corpus is, in words that nearly all are in its vocabulary.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources


def examples_for(corpus: str | None) -> list[dict[str, str]]:
    """Return title, text and what to look for of a registered corpus' examples, or of those in plain English."""
    known = _examples()
    return known.get(corpus or "", known[""])


@cache
def _examples() -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = json.loads(
        (resources.files("spanlm.serve") / "examples.json").read_text("utf-8")
    )
    return found
