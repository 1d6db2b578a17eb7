"""What a run is made of before its first step: the model, the cut of the text, the identity of the data."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from typing import cast

import numpy as np
import torch

from spanlm.config import RunConfig
from spanlm.data.batching import Batcher, make_batcher
from spanlm.data.config import BatchingKind
from spanlm.data.corpora import Corpus
from spanlm.data.tokens import TokenFile
from spanlm.errors import InputError
from spanlm.models.config import ModelConfig
from spanlm.models.counting import count_configured
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import AnyMemoryConfig, AttentiveConfig
from spanlm.training.config import BatchingConfig


def batching_kind(kind: str, tokens: TokenFile) -> BatchingKind:
    """Return how to cut a text: auto means documents where it has several, else streams.

    Raises:
        InputError: documents are asked for by name, but the text is one document.
    """
    several = len(tokens.documents) > 1
    if kind == "auto":
        return "documents" if several else "streams"
    if kind == "documents" and not several:
        raise InputError(
            "training.batching.kind=documents: the training text is one document, so there is nothing to reset at. "
            "Say with data.documents what starts a document (blank-line, heading, book-title), "
            "or take training.batching.kind=auto."
        )
    return cast(BatchingKind, kind)


def resolved(batching: BatchingConfig, tokens: TokenFile) -> tuple[BatchingKind, BatchingConfig]:
    """Return how to cut a text, and the configuration with this kind.

    Raises:
        InputError: as `batching_kind`, or what auto means here cannot have something that is asked for.
    """
    kind = batching_kind(batching.kind, tokens)
    try:
        return kind, replace(batching, kind=kind)
    except InputError as error:
        raise InputError(f"training.batching.kind={batching.kind}, which is {kind} for this text: {error}") from None


def remembers_everything(memory: AnyMemoryConfig) -> bool:
    """Say whether what a memory holds grows until a reset."""
    return isinstance(memory, AttentiveConfig) and memory.window is None and memory.score != "none"


def refuse_unbounded(memory: AnyMemoryConfig, kind: BatchingKind, asked: str) -> None:
    """Refuse to train a memory that holds everything since the last reset, unless each sentence is one.

    Args:
        memory: the model's.
        kind: how the training text is cut.
        asked: training.batching.kind as it was asked for.

    Raises:
        InputError: what is remembered would grow with the text.
    """
    if remembers_everything(memory) and kind != "sentences":
        cut = kind if asked == kind else f"{asked} (here {kind})"
        raise InputError(
            "model.memory.window=null: everything since the last reset is remembered, which needs a reset at each "
            f"sentence, but training.batching.kind={cut}. Take training.batching.kind=sentences, or give "
            "model.memory.window a number."
        )


def split_batcher(config: RunConfig, corpus: Corpus, split: str, batch_size: int, *, whole: bool) -> Batcher:
    """Cut a part of the corpus as the configuration says.

    Args:
        config: the run's, or that of one of its stages.
        corpus: its data; how the training part is cut decides for all.
        split: train, valid or test.
        batch_size: streams, or sentences, side by side.
        whole: every token is predicted, in the order of the text, as in validation; else as in training.

    Raises:
        InputError: as `resolved` and `refuse_unbounded`.
    """
    asked, tokens = config.training.batching, corpus.splits[split]
    kind, batching = resolved(asked, corpus.splits["train"])
    refuse_unbounded(config.model.memory, kind, asked.kind)
    return make_batcher(
        kind,
        tokens,
        corpus.vocabulary.eos_id,
        # more streams than whole documents would only read padding
        batch_size=min(batch_size, len(tokens.documents)) if kind == "documents" and whole else batch_size,
        length=batching.length,
        shuffle=batching.shuffle and not whole,
        whole=whole,
        sentences=batching.sentences(training=not whole),
        streams=batching.streams(training=not whole),
    )


def build_model(config: RunConfig, vocabulary_size: int) -> LanguageModel:
    """Make the model with the run's own seed; leaves the global generator where training begins.

    Raises:
        InputError: its weights are more than the machine has memory.
    """
    _refuse_too_large(config.model, vocabulary_size)
    torch.manual_seed(config.training.seed)
    return LanguageModel(config.model, vocabulary_size)


def _refuse_too_large(model: ModelConfig, vocabulary_size: int) -> None:
    """Refuse weights that the machine cannot hold: they would end in the allocator, or in the system's killing us."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        size = count_configured(model, vocabulary_size).total * torch.float32.itemsize
        needed = f"{size:,}"
    except (RuntimeError, TypeError) as error:
        if "verflow" not in str(error):
            raise
        size, needed = memory + 1, "2^63 or more"  # of one matrix alone: torch counts no further
    if size > memory:
        raise InputError(
            f"model: its weights would take {needed} bytes, and this machine has {memory:,}. Take smaller sizes "
            "(model.encoder, model.embedding_size), or a smaller vocabulary (data.max_size)."
        )


def data_fingerprint(corpus: Corpus) -> str:
    """Identify what is trained on: the vocabulary and every id of the training and validation parts."""
    digest = hashlib.sha256(corpus.vocabulary.hash.encode())
    for split in ("train", "valid"):
        digest.update(np.ascontiguousarray(corpus.splits[split].ids).data)
        digest.update(corpus.splits[split].documents.tobytes())
    return digest.hexdigest()
