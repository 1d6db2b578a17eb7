"""Beginning a run with the weights of another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import nn

from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError
from spanlm.store.run_folder import CONFIG, VOCABULARY, copy_weights, read_weights

NEW = ("memory.", "head.projection.")
"""What a model may have that the other run lacks: a memory, and the buffer's own way into the softmax."""


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
    weights = read_weights(folder, vocabulary.hash)
    tensors = weights.tensors
    parameters = dict(model.named_parameters())
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
