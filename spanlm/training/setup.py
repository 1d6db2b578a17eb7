"""What a run is made of before its first step: the model, its first weights, and the text, cut and identified."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import nn

from spanlm.config import RunConfig
from spanlm.data.batching import Batcher, make_batcher
from spanlm.data.config import BatchingKind
from spanlm.data.corpora import Corpus
from spanlm.data.token_files import TokenFile
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError
from spanlm.models.counting import count_configured
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import AnyMemoryConfig, AttentiveConfig
from spanlm.store.process import memory, pick_device
from spanlm.store.run_folder import CONFIG, VOCABULARY, copy_weights, read_weights

NEW = ("memory.", "head.projection.")
"""What a model may have that the run it begins with lacks: a memory, and the buffer's own way into the softmax."""


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


def remembers_everything(memory: AnyMemoryConfig) -> bool:
    """Say whether what a memory holds grows until a reset."""
    return isinstance(memory, AttentiveConfig) and memory.window is None and memory.score != "none"


def split_batcher(config: RunConfig, corpus: Corpus, split: str, batch_size: int, *, whole: bool) -> Batcher:
    """Cut a part of the corpus as the configuration says.

    Args:
        config: the run's, or that of one of its stages.
        corpus: its data; how the training part is cut decides for all.
        split: train, valid or test.
        batch_size: streams, or sentences, side by side.
        whole: every token is predicted, in the order of the text, as in validation; else as in training.

    Raises:
        InputError: as `batching_kind`; what auto means here cannot have something that is asked for; or what a memory
            holds would grow with the text.
    """
    asked, tokens = config.training.batching, corpus.splits[split]
    kind = batching_kind(asked.kind, corpus.splits["train"])
    try:
        batching = replace(asked, kind=kind)
    except InputError as error:
        raise InputError(f"training.batching.kind={asked.kind}, which is {kind} for this text: {error}") from None
    if remembers_everything(config.model.memory) and kind != "sentences":
        cut = kind if asked.kind == kind else f"{asked.kind} (here {kind})"
        raise InputError(
            "model.memory.window=null: everything since the last reset is remembered, which needs a reset at each "
            f"sentence, but training.batching.kind={cut}. Take training.batching.kind=sentences, or give "
            "model.memory.window a number."
        )
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


@dataclass(frozen=True)
class WarmStart:
    """What a run began with.

    Attributes:
        folder: of the run whose best weights they were.
        weights: their SHA-256.
        fresh: names of the parameters that it lacks, which began as usual.
    """

    folder: Path
    weights: str
    fresh: tuple[str, ...]

    def __str__(self) -> str:
        """Say it in words."""
        new = f"; new: {', '.join(self.fresh)}" if self.fresh else ""
        return f"the weights of {self.folder}{new}"


def hold_all_but_new(model: nn.Module) -> None:
    """Let nothing learn but what may be new.

    Raises:
        InputError: there is nothing new.
    """
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(parameter.requires_grad and name.startswith(NEW))
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError(
            "training.learns=memory: the model has no memory with weights. Name one with model.memory.kind, or take "
            "training.learns=all."
        )


def warm_start(model: nn.Module, folder: Path, vocabulary: Vocabulary) -> WarmStart:
    """Give a new model the best weights of a run; each of them must have its place in it.

    Args:
        model: just made; a memory that the run lacks stays as it is.
        folder: of the run.
        vocabulary: the model's.

    Raises:
        InputError: no such run, one of other words, one with a weight that the model lacks or has in another shape, or
            one without a weight that only a memory could do without, or with one that is not finite.
    """
    field = f"training.start_from={folder}"
    if not (folder / CONFIG).is_file():
        raise InputError(f"{field}: is not the folder of a run. Name one that `spanlm train --out` has made.")
    if Vocabulary.load(folder / VOCABULARY).hash != vocabulary.hash:
        raise InputError(
            f"{field}: its vocabulary is not that of the training text. Train it on the same text, with the "
            "same fields of data."
        )
    weights, parameters = read_weights(folder, vocabulary.hash), dict(model.named_parameters())
    tensors = weights.tensors
    for name, tensor in sorted(tensors.items()):
        there = parameters.get(name)
        if there is None or there.shape != tensor.shape:
            has = "lacks it" if there is None else f"has {tuple(there.shape)}"
            raise InputError(
                f"{field}: its weight {name} is {tuple(tensor.shape)}, and this model {has}. Give "
                "model.embedding_size, model.encoder and model.head the values of that run's config.yaml, and leave "
                "out nothing that it has."
            )
    fresh = tuple(sorted(parameters.keys() - tensors.keys()))
    if strange := [name for name in fresh if not name.startswith(NEW)]:
        raise InputError(
            f"{field}: it has no weight {strange[0]}, which would begin at random. Give model.encoder and model.head "
            "the values of that run's config.yaml; only a memory may be new."
        )
    copy_weights({**parameters, **tensors}, model, field)
    return WarmStart(folder, weights.digest, fresh)
