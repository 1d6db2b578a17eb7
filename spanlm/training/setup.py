"""What a run is made of before its first step: the model, the cut of the text, the identity of the data."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import cast

import numpy as np
import torch

from spanlm.config import RunConfig
from spanlm.data.batching import Batcher, make_batcher
from spanlm.data.config import BatchingKind
from spanlm.data.corpora import Corpus
from spanlm.data.token_files import TokenFile
from spanlm.errors import InputError
from spanlm.models.counting import count_configured
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import AnyMemoryConfig, AttentiveConfig
from spanlm.store.machine import memory, pick_device
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
    if kind == "documents" and whole:
        batch_size = min(batch_size, len(tokens.documents))  # more streams would only read padding
    steps = min(batching.length, -(-len(tokens) // batch_size)) if kind == "streams" else 1
    refuse_too_large(config, len(corpus.vocabulary), batch_size, steps)
    return make_batcher(
        kind,
        tokens,
        corpus.vocabulary.eos_id,
        batch_size=batch_size,
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
    refuse_too_large(config, vocabulary_size)
    torch.manual_seed(config.training.seed)
    return LanguageModel(config.model, vocabulary_size)


def refuse_too_large(config: RunConfig, vocabulary_size: int, streams: int = 1, steps: int = 0) -> None:
    """Refuse a model, or its training in segments of so many steps, that this process cannot hold.

    What counts is sure to be held, so that nothing is refused that would fit.

    Raises:
        InputError: the least that is needed is more than there is.
    """
    model, training, most = config.model, config.training, memory()
    copies, token = 1, 17  # ids read and predicted, and the mask
    if steps and pick_device(training.device, "training.device").type == "cpu":
        if training.learns == "all":  # gradients, and what the optimiser keeps
            copies = {"adam": 4, "adagrad": 3}.get(training.optimizer.kind, 2)
        if training.batching.group_size is None:  # words and outputs, in bfloat16
            token += 2 * (model.embedding_size + model.encoder.output_size)
    try:
        count = count_configured(model, vocabulary_size, streams if steps else 0)
        least = count.total * copies * torch.float32.itemsize + count.state + streams * steps * token
        needed = f"{least:,}"
    except (RuntimeError, TypeError) as error:
        if "verflow" not in str(error):
            raise
        least, needed = most + 1, "2^63 or more"  # of one matrix alone: torch counts no further
    if least > most:
        raise InputError(
            f"model: would take at least {needed} bytes with {streams:,} streams, and there are {most:,}. Take smaller "
            "sizes (model, training.batching), or a smaller vocabulary (data.max_size)."
        )


def data_fingerprint(corpus: Corpus) -> str:
    """Identify what is trained on: the vocabulary and every id of the training and validation parts."""
    digest = hashlib.sha256(corpus.vocabulary.hash.encode())
    for split in ("train", "valid"):
        digest.update(np.ascontiguousarray(corpus.splits[split].ids).data)
        digest.update(corpus.splits[split].documents.tobytes())
    return digest.hexdigest()
