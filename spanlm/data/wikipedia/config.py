"""What is asked of a corpus of Wikipedia articles."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import Path

from spanlm.errors import InputError, require

PAPER_VOCABULARY = 77_000
FEWEST_WORDS = 3


@dataclass(frozen=True, kw_only=True)
class WikipediaConfig:
    """Which articles become a corpus, and how.

    Attributes:
        sources: Files or folders: JSON lines of WikiExtractor, or MediaWiki XML dumps.
        out: The folder to make.
        vocabulary: Size of the vocabulary, `<unk>` and `<eos>` included, as a model and `data.max_size` count it.
        coverage: Choose the smallest vocabulary that has this share of the training part's words, instead.
        category: Take only articles with a category in which this regular expression is found.
        articles: Take no more than this many, the first ones.
        seed: Decides which articles are held out.
        jobs: Processes that cut text into words; None: one for each processor.
        lowercase: Write words in small letters.
        keep_partial: Keep what is good of a damaged source, instead of refusing it.
    """

    sources: tuple[Path, ...]
    out: Path
    vocabulary: int = PAPER_VOCABULARY
    coverage: float | None = None
    category: str | None = None
    articles: int | None = None
    seed: int = 1
    jobs: int | None = None
    lowercase: bool = False
    keep_partial: bool = False

    def __post_init__(self) -> None:
        """Refuse values that no corpus could have.

        Raises:
            InputError: A field is outside its limits.
        """
        least = f"at least {FEWEST_WORDS} (<eos>, <unk> and a word)"
        require(self.vocabulary >= FEWEST_WORDS, "--vocabulary", self.vocabulary, least)
        share = self.coverage is None or (math.isfinite(self.coverage) and 0 < self.coverage <= 1)
        require(share, "--coverage", self.coverage, "above 0 and at most 1, such as 0.97")
        require(self.articles is None or self.articles >= FEWEST_WORDS, "--articles", self.articles, "at least 3")
        require(self.jobs is None or self.jobs >= 1, "--jobs", self.jobs, "at least 1")
        if self.category is not None:
            try:
                re.compile(self.category)
            except re.error as error:
                raise InputError(
                    f"--category={self.category}: no regular expression ({error}); put a \\ before a character that "
                    "stands for itself"
                ) from error

    @property
    def processes(self) -> int:
        """How many processes cut text into words."""
        allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return self.jobs or allowed or 1
