"""The protocol of an evaluation: how a text is counted, and a description for people."""

from __future__ import annotations

from spanlm.data.batching import Batcher, make_batcher
from spanlm.data.config import BatchingKind, Lines, SentenceRules
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError
from spanlm.options import Precision, at_least, option, options
from spanlm.scoring.options import Context
from spanlm.scoring.spelling import Spelling

KINDS: dict[Context, BatchingKind] = {"carry": "streams", "document": "documents", "line": "sentences"}
"""A word's context -> how the text is cut."""

LENGTH = 256
"""Steps at a time by default; any number gives the same result, up to rounding."""

SENTENCES = 64
"""Sentences side by side by default; any number gives the same result, up to rounding."""


@options()
class Protocol:
    """How a text is counted. Every token of it is predicted exactly once, <eos> included."""

    context: Context = option(
        "the context of a word: all of the text before it (carry), its document, or its line", default="carry"
    )
    batch_size: int | None = option(
        "streams side by side. With carry each starts in the middle of the text with an empty state, so 1 is the "
        "standard protocol; with document and line it changes nothing. None: 1, or `SENTENCES` lines",
        default=None,
        limit=at_least(1),
    )
    precision: Precision = option("of matrix products", default="fp32")
    predict_first: bool = option(
        "<eos> is read before each line, and its first word is predicted. False: as in training, the first word "
        "of a line is read without being predicted (Salton et al., 2017)",
        default=True,
    )
    spelling: Spelling | None = option("the spelling of the text's unknown words, whose cost is added", default=None)

    def batcher(
        self, corpus: Corpus, split: str, *, in_order: bool = False, length: int = LENGTH, whole: bool = True
    ) -> Batcher:
        """Make the batcher of a split, `length` steps at a time; only very long lines are cut.

        Lines come in the order of the text if `in_order`, else from short to long, which is faster. `whole` keeps each
        document in one stream.

        Raises:
            InputError: the corpus has no such split, or the batch size is below 1.
        """
        if split not in corpus.splits:
            raise InputError("split", split, f"{corpus.name} has {', '.join(corpus.splits)}")
        return make_batcher(
            KINDS[self.context],
            corpus.splits[split],
            corpus.vocabulary.eos_id,
            batch_size=(SENTENCES if self.context == "line" else 1) if self.batch_size is None else self.batch_size,
            length=length,
            whole=whole,
            sentences=SentenceRules(predict_first=self.predict_first, order="drawn" if in_order else "by-length"),
        )

    def description(self, corpus: Corpus, split: str) -> str:
        every, cut = "every token predicted once, <eos> counted", lines_counted(corpus.lines)
        if self.context == "carry":
            size = self.batch_size or 1
            streams = "one stream" if size == 1 else f"{size} streams, each starting with an empty state"
            return f"{every}; {streams}, opened by <eos>, state carried throughout{cut}"
        if self.context == "document":
            documents = len(corpus.splits[split].documents)
            return f"{every}; state reset at each of {documents:,} documents, each opened by <eos>{cut}"
        untrained = "" if self.predict_first else ", which is new to the model, as it is to predict first words"
        return f"{every}; state reset at each line, each opened by <eos>{untrained}{cut}"

    @property
    def tuning_notes(self) -> list[str]:
        """Notes if tuning reads a text in another way than evaluation."""
        note = "sentences were read as in training, without an <eos> before them: first words are not predicted."
        return [] if self.predict_first else [note]


STANDARD = Protocol()
"""One stream, with the state carried throughout."""


def lines_counted(lines: Lines) -> str:
    """Describe lines that were cut into sentences; empty for lines as written."""
    if lines == "as-written":
        return ""
    return "; lines cut into sentences, an <eos> after each, blank lines left out: not comparable with a count by lines"
