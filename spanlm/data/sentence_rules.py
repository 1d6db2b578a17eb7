"""What becomes of sentences, and in which batches they come. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LongSentences = Literal["keep", "cut", "split", "refuse"]
SentenceOrder = Literal["drawn", "bucketed", "by-length"]


@dataclass(frozen=True, kw_only=True)
class SentenceRules:
    """What becomes of sentences, and in which batches they come.

    Attributes:
        limit: The longest sentence, in targets; None: there is no limit.
        long: What a longer one becomes: whole as it is (keep), its first `limit` targets and the rest is lost (cut),
            pieces of `limit` targets, each with an empty state and the true word before it (split), or an error
            (refuse).
        opened: Each sentence is opened by `<eos>`, and its first word is a target. Otherwise the first word is only
            read, and a line without words has no target at all.
        order: In the order of the text or, when shuffled, one drawn for the epoch (drawn); that order, but with
            sentences of similar length in a batch (bucketed); all from short to long, for evaluation, where the order
            changes nothing (by-length).
    """

    limit: int | None = None
    long: LongSentences = "keep"
    opened: bool = True
    order: SentenceOrder = "drawn"
