"""How far a build is, for whoever shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a build is.

    Attributes:
        phase: "cutting" articles into words, "counting" those of the training part, "writing" the corpus.
        done: Bytes of the sources that were read, or articles.
        total: How many there are.
        articles: Articles so far.
        words: Words so far.
        reused: Pieces that an earlier start had made.
    """

    phase: Literal["cutting", "counting", "writing"]
    done: int
    total: int
    articles: int
    words: int
    reused: int = 0


Report = Callable[[Progress], None]
"""Called often; what it raises ends the build, and what is done is kept."""
