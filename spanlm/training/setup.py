"""Preparation of a run: stages, model, initial weights and batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import nn

from spanlm.config import RunConfig
from spanlm.data.batching import Batcher, make_batcher
from spanlm.data.config import BatchingKind
from spanlm.data.corpora import Corpus
from spanlm.data.token_files import TokenFile
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError, require
from spanlm.models.counting import count_configured
from spanlm.models.heads import MixtureOfSoftmaxesConfig
from spanlm.models.language_model import LanguageModel
from spanlm.store.machine import memory, pick_device
from spanlm.store.run_folder import CONFIG, copy_weights, read_weights, vocabulary_file
from spanlm.training.optimizers import OPTIMIZERS

Group = TypeVar("Group", bound=Any)

NEW = "memory."
"""Prefix of the parameters that the run of `start_from` may lack: those of a memory."""


def stage_config(config: RunConfig, stage: int) -> RunConfig:
    """Return the configuration of a stage (0: the main one), with the changes of `training.finetune`.

    Raises:
        InputError: a change is out of range for this run.
    """
    if stage == 0:
        return config
    training, finetune = config.training, config.training.finetune
    last = finetune.last_latent_dropout if stage == finetune.stages else None
    try:
        head = _changed(config.model.head, adversarial=finetune.adversarial, latent_dropout=last)
        model = replace(_changed(config.model, input_noise=finetune.input_noise), head=head)
        batching = _changed(training.batching, partial_shuffle=finetune.partial_shuffle)
    except InputError as error:
        raise InputError("training.finetune", limit=error) from None
    optimizer = _changed(training.optimizer, lr=finetune.lr)
    return replace(config, model=model, training=replace(training, batching=batching, optimizer=optimizer))


def _changed(group: Group, **values: object) -> Group:
    return replace(group, **{name: value for name, value in values.items() if value is not None})


def refuse_unfit(config: RunConfig) -> None:
    """Refuse finetune stages that change fields which the model lacks."""
    head, finetune = config.model.head, config.training.finetune
    require(
        finetune.last_latent_dropout is None or isinstance(head, MixtureOfSoftmaxesConfig),
        "training.finetune.last_latent_dropout",
        finetune.last_latent_dropout,
        f"null with model.head.kind={head.kind}; only mixture_of_softmaxes has latents",
    )
    for stage in range(1, finetune.stages + 1):
        stage_config(config, stage)


def batching_kind(kind: str, tokens: TokenFile) -> BatchingKind:
    """Resolve `auto`: documents if the text has several, else streams.

    Raises:
        InputError: `kind` is documents, but the text is one document.
    """
    several = len(tokens.documents) > 1
    if kind == "auto":
        return "documents" if several else "streams"
    if kind == "documents" and not several:
        raise InputError(
            "training.batching.kind",
            "documents",
            "the training text is one document, so there is nothing to reset at",
            "Say with data.documents what starts a document (blank-line, heading, book-title), or take "
            "training.batching.kind=auto.",
        )
    return cast(BatchingKind, kind)


def split_batcher(config: RunConfig, corpus: Corpus, split: str, batch_size: int, *, whole: bool) -> Batcher:
    """Make the batcher of a split for the configuration of a run or of a stage.

    The training split determines the kind of all splits. `whole`: predict every token, in the order of the text, as
    validation does.

    Raises:
        InputError: as `batching_kind`; options that the resolved kind lacks; or a memory that would grow with the text.
    """
    configured, tokens = config.training.batching, corpus.splits[split]
    if len(corpus.vocabulary) == 2:  # <eos> and <unk>
        raise InputError(
            "data.corpus",
            config.data.corpus,
            "no word of the training part is in the vocabulary, so that there is nothing to learn",
            "Words are what stands between spaces: put spaces between those of a text that has none, or keep "
            "rarer ones (data.min_count).",
        )
    kind = batching_kind(configured.kind, corpus.splits["train"])
    try:
        batching = replace(configured, kind=kind)
    except InputError as error:
        raise InputError(f"training.batching.kind={configured.kind}, which is {kind} for this text: {error}") from None
    if config.model.memory.slots is None and kind != "sentences":
        cut = kind if configured.kind == kind else f"{configured.kind} (here {kind})"
        raise InputError(
            "model.memory.window",
            "null",
            "everything since the last reset is remembered, which needs a reset at each sentence, but "
            f"training.batching.kind={cut}",
            "Take training.batching.kind=sentences, or give model.memory.window a number.",
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
    """Build the model from the run's seed, which also sets the global generator for training."""
    refuse_too_large(config, vocabulary_size)
    torch.manual_seed(config.training.seed)
    return LanguageModel(config.model, vocabulary_size)


def refuse_too_large(config: RunConfig, vocabulary_size: int, streams: int = 1, steps: int = 0) -> None:
    """Refuse a model, or with `steps` its training in segments of so many steps, that exceeds the memory.

    The estimate is a lower bound, so that no model that fits is refused.
    """
    model, training, most = config.model, config.training, memory()
    copies, token = 1, 17  # two ids and the mask
    if steps and pick_device(training.device, "training.device").type == "cpu":
        if training.learns == "all":  # gradients, and the optimiser's state
            copies = 2 + sum(entry != "step" for entry in OPTIMIZERS[training.optimizer.kind].entries)
        if training.batching.group_size is None:  # words and outputs, in bfloat16
            token += 2 * (model.embedding_size + model.encoder.output_size)
    try:
        count = count_configured(model, vocabulary_size, streams if steps else 0)
        least = count.total * copies * torch.float32.itemsize + count.state + streams * steps * token
        needed = f"{least:,}"
    except (RuntimeError, TypeError):  # a single matrix exceeds torch's largest size
        least, needed = most + 1, "2^63 or more"
    if least > most:
        raise InputError(
            "model",
            limit=f"would take at least {needed} bytes with {streams:,} streams, and there are {most:,}",
            way_out="Take smaller sizes (model, training.batching), or a smaller vocabulary (data.max_size).",
        )


@dataclass(frozen=True)
class WarmStart:
    """The start of a run from another run's weights."""

    folder: Path  # of the other run
    weights: str  # SHA-256
    fresh: tuple[str, ...]  # parameters that the other run lacks, initialised as usual

    def __str__(self) -> str:
        return f"the weights of {self.folder}" + (f"; new: {', '.join(self.fresh)}" if self.fresh else "")


def hold_all_but_new(model: nn.Module) -> None:
    """Freeze all parameters except those of the memory; refuse a model without any."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(parameter.requires_grad and name.startswith(NEW))
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise InputError(
            "training.learns",
            "memory",
            "the model has no memory with weights",
            "Name one with model.memory.kind, or take training.learns=all.",
        )


def warm_start(model: nn.Module, folder: Path, vocabulary: Vocabulary) -> WarmStart:
    """Copy the best weights of a run into a new model; a memory that the run lacks keeps its initial weights.

    Raises:
        InputError: no such run, another vocabulary, a weight without a parameter of its shape, a parameter outside
            `NEW` without a weight, or a weight that is not finite.
    """
    field = f"training.start_from={folder}"
    if not (folder / CONFIG).is_file():
        raise InputError(f"{field}: is not the folder of a run. Name one that `spanlm train --out` has made.")
    if Vocabulary.load(vocabulary_file(folder, bool(vocabulary.pieces))).hash != vocabulary.hash:
        raise InputError(
            f"{field}: its vocabulary is not that of the training text. Train it on the same text, with the "
            "same fields of data."
        )
    weights, parameters = read_weights(folder, vocabulary.hash), dict(model.named_parameters())
    tensors = weights.tensors
    for name, tensor in sorted(tensors.items()):
        parameter = parameters.get(name)
        if parameter is None or parameter.shape != tensor.shape:
            has = "lacks it" if parameter is None else f"has {tuple(parameter.shape)}"
            raise InputError(
                f"{field}: its weight {name} is {tuple(tensor.shape)}, and this model {has}. Give "
                "model.embedding_size, model.encoder and model.head the values of that run's config.yaml, and leave "
                "out nothing that it has. key_value with roles 2 or 3, and ngram, predict from a part of the encoder's "
                "output, so they need the weights of a run with them."
            )
    fresh = tuple(sorted(parameters.keys() - tensors.keys()))
    if strange := [name for name in fresh if not name.startswith(NEW)]:
        raise InputError(
            f"{field}: it has no weight {strange[0]}, which would begin at random. Give model.encoder and model.head "
            "the values of that run's config.yaml; only a memory may be new."
        )
    copy_weights({**parameters, **tensors}, model, field)
    return WarmStart(folder, weights.digest, fresh)
