"""The configuration of an n-gram run: its text and its estimation. This module does not import torch."""

from __future__ import annotations

from dataclasses import asdict, field
from typing import Any

import yaml

from spanlm.data.config import DataConfig
from spanlm.errors import require
from spanlm.options import Limit, at_least, option, options
from spanlm.scoring.ngram.model import MAX_ORDER

FALLBACK = 0.5, 1.0, 1.5
"""The usual discounts of an order whose own cannot be computed."""


@options("ngram")
class NgramConfig:
    """An interpolated modified Kneser-Ney model, optionally mixed with a cache of recent words."""

    order: int = option(
        "n, the length of the longest n-grams, 1 to 6",
        default=5,
        limit=Limit(lambda order: 1 <= order <= MAX_ORDER, f"from 1 to {MAX_ORDER}"),
    )
    fallback: tuple[float, float, float] | None = option(
        "discounts D_1, D_2, D_3 for an order of which the text has too few n-grams to compute them (0.5, 1, 1.5 "
        "is usual); null refuses such a text",
        default=None,
    )
    cache: int | None = option(
        "C, how many of the words just read a unigram cache holds (Kuhn & De Mori, 1990); null: no cache",
        default=None,
        limit=at_least(1),
    )
    cache_share: float | None = option(
        "λ, the cache's share of the probability; null: what fits the validation part best, written here",
        default=None,
        limit=Limit(lambda share: 0 < share < 1, "between 0 and 1"),
    )

    def __post_init__(self) -> None:
        """Refuse discounts out of range, and a share without a cache."""
        for count, discount in enumerate(self.fallback or (), 1):
            require(0 < discount <= count, f"ngram.fallback: D_{count}", discount, f"above 0, and at most {count}")
        share = self.cache_share
        require(share is None or self.cache is not None, "ngram.cache_share", share, "null where ngram.cache is")


@options()
class NgramRunConfig:
    """Everything that determines an n-gram run, except its folder; the group `ngram` marks its `config.yaml`."""

    data: DataConfig = field(default_factory=DataConfig)
    ngram: NgramConfig = field(default_factory=NgramConfig)

    @property
    def description(self) -> str:
        cache = self.ngram.cache
        return f"{self.ngram.order}-gram Kneser-Ney{'' if cache is None else f' + cache of the last {cache:,} words'}"

    def to_tree(self) -> dict[str, Any]:
        """Return nested dictionaries of plain values."""
        return asdict(self)

    def to_yaml(self) -> str:
        """Return the same as YAML text."""
        return yaml.safe_dump(self.to_tree(), sort_keys=False, allow_unicode=True)
