"""What a word's context is: all of the text, its document, or its line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from spanlm.config import RunConfig
from spanlm.data.config import BatchingKind
from spanlm.data.corpora import Corpus
from spanlm.data.vocabulary import EOS
from spanlm.errors import InputError, require
from spanlm.evaluation.cloze import Context
from spanlm.evaluation.text_pieces import words_of
from spanlm.evaluation.words import Piece, StateMode
from spanlm.training.setup import batching_kind, remembers_everything

State = Literal["auto", "carry", "document", "line"]
STATES: dict[State, BatchingKind | None] = {
    "auto": None,
    "carry": "streams",
    "document": "documents",
    "line": "sentences",
}
"""What a word's context is -> how the text is cut; None: as in training."""


def cut_of(config: RunConfig, corpus: Corpus, split: str, state: State) -> BatchingKind:
    """Return how a part of a corpus is cut for a word's context to be `state`; auto: as in training.

    Raises:
        InputError: there is no such state, the corpus has no such part, documents are asked for and the part is one
            document, nothing is ever to be forgotten by a memory that holds everything since the last reset, or
            sentences that are not opened (training.batching.predict_first) are to know of others.
    """
    require(state in STATES, "state", state, "auto, carry, document or line")
    if split not in corpus.splits:
        raise InputError(f"split={split}: {corpus.name} has {', '.join(corpus.splits)}")
    tokens, kind = corpus.splits[split], STATES[state]
    if kind is None:
        # of a text that is one document, resets at documents leave one stream
        trained = config.training.batching.kind
        return batching_kind("auto" if trained == "documents" else trained, tokens)
    refuse_other_context(config, state, f"all of {corpus.name} {split}")
    if kind == "documents" and len(tokens.documents) == 1:
        instead = "line" if remembers_everything(config.model.memory) else "carry, which is the same here"
        raise InputError(
            f"state={state}: {corpus.name} {split} is one document, so there is nothing to reset at. Take {instead}; "
            f"data.documents of the training says what starts a document ({config.data.effective_documents})."
        )
    return kind


def refuse_other_context(config: RunConfig, state: State, text: str = "all of the text") -> None:
    """Refuse a context of words that a model was never given.

    Raises:
        InputError: a memory of everything since the last reset is to be carried over a whole `text`, or lines that are
            not opened, of which the first word is only read (training.batching.predict_first), are to know of others.
    """
    if state == "carry" and remembers_everything(config.model.memory):
        raise InputError(
            "state=carry: the model remembers everything since the last reset (model.memory.window=null), and carry "
            f"would make that {text}. Take line or document."
        )
    if state != "line" and not config.training.batching.predict_first:
        raise InputError(
            f"state={state}: the model was trained on sentences that know nothing of each other and that no <eos> "
            "opens (training.batching.predict_first=false), so it has never read what stands between two. Take line."
        )


def reads_line_by_line(config: RunConfig) -> bool:
    """Say whether the model was trained on lines that know nothing of each other."""
    return config.training.batching.kind == "sentences"


def cloze_contexts(config: RunConfig, asked: Sequence[Context] | None) -> tuple[Context, ...]:
    """Return what is to be read before the query of a cloze question; None: all that the model can make use of.

    Raises:
        InputError: the context sentences are asked for, and the model was trained on lines alone; or the candidate
            alone, and the model was not trained to predict a first word.
    """
    alone = reads_line_by_line(config)
    if asked is None:
        return ("query",) if alone else ("full",)
    if "none" in asked and not config.training.batching.predict_first:
        raise InputError(
            "context=none: the candidate would be the first word of its line, and the model was trained on sentences "
            "of which that is not predicted (training.batching.predict_first=false). Take context query."
        )
    if alone and "full" in asked:
        raise InputError(
            "context=full: the model was trained on lines that know nothing of each other, so the sentences before the "
            "query say nothing to it. Take context query, or none."
        )
    return tuple(asked)


def text_to_attend(pieces: Iterable[Piece], state: StateMode) -> tuple[list[str], list[int]]:
    """Return the words of a text with the <eos> of its lines or sentences, and at which of them a context begins.

    Blank lines at the end are left out, and where each line stands alone those at the beginning, too.

    Raises:
        InputError: there are no words.
    """
    require(state in get_args(StateMode), "state", state, "carry, line or document")
    words: list[str] = []
    starts, last, blank = [0], 0, False
    for piece in pieces:
        if state == "line" and not last:
            words = []
        if (state == "line" and piece.opens) or (state == "document" and blank and last and piece.words):
            starts += [len(words)] * (len(words) > starts[-1])
        words += words_of([piece])
        last, blank = len(words) if piece.words else last, piece.blank
    if not last:
        raise InputError("the text to attend to has no words; give --text or --file something to read")
    end = last + (words[last - 1] != EOS)
    return words[:end], [start for start in starts if start < end]
