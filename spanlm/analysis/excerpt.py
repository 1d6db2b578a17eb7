"""A stretch of a corpus, to be looked at: a document, or what stands around a token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spanlm.data.corpora import Corpus
from spanlm.errors import InputError, require


@dataclass(frozen=True)
class Excerpt:
    """Consecutive words of a corpus.

    Attributes:
        words: as the model reads them: `<unk>` for what the vocabulary does not have, `<eos>` at line ends.
        source: where they stand, in words.
        first: number of the first of them, from 1, in the document or split.
        starts: which of them begin a document, or another context that knows nothing of what is before.
    """

    words: list[str]
    source: str
    first: int
    starts: Sequence[int] = (0,)


def excerpt(
    corpus: Corpus, split: str, *, document: int | None = None, start: int | None = None, length: int = 60
) -> Excerpt:
    """Take `length` tokens of a split, or fewer where it ends.

    Args:
        corpus: with the split.
        split: its name in the corpus.
        document: number of the document, from 1; None: the whole split is one.
        start: the token of the document that is wanted, from 1; the excerpt begins with the line it stands in.
        length: how many tokens, line ends counted.

    Raises:
        InputError: There is no such document or token, or `length` is below 1.
    """
    require(length >= 1, "--words", length, "at least 1")
    tokens, name = corpus.splits[split], f"{corpus.name} {split}"
    first, end = 0, len(tokens)
    if document is not None:
        first, end = _document(tokens.documents, end, document, name)
        name = f"{name}, document {document:,} of {len(tokens.documents):,}"
    if start is not None:
        require(1 <= start <= end - first, "--from", start, f"from 1 to {end - first:,}, the tokens of {name}")
    at = _line_start(tokens.ids[first : first + (start or 1) - 1], corpus.vocabulary.eos_id)
    ids = tokens.ids[first + at : min(first + at + length, end)].tolist()
    place = f"{name}, tokens {at + 1:,} to {at + len(ids):,} of {end - first:,}"
    inside = tokens.documents - (first + at)
    starts = [0, *inside[(inside > 0) & (inside < len(ids))].tolist()]
    return Excerpt([corpus.vocabulary.word(i) for i in ids], place, at + 1, starts)


def _document(starts: NDArray[np.int64], tokens: int, document: int, name: str) -> tuple[int, int]:
    count = len(starts)
    if count == 1 and document != 1:
        raise InputError(
            f"--document={document}: {name} is not cut into documents; --from TOKEN takes a place from 1 to {tokens:,}"
        )
    require(1 <= document <= count, "--document", document, f"from 1 to {count:,}, the documents of {name}")
    bounds = [*starts.tolist(), tokens]
    return bounds[document - 1], bounds[document]


def _line_start(before: NDArray[np.int32], eos_id: int) -> int:
    """Return how many of the tokens `before` the wanted one stand before its line."""
    ends = np.flatnonzero(before == eos_id)
    return int(ends[-1]) + 1 if len(ends) else 0
