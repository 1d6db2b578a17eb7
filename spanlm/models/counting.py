"""Parameter counts, and the hidden size that meets a budget of parameters."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, field, replace
from typing import Any, cast

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from spanlm.errors import InputError
from spanlm.models.encoders import LSTMConfig
from spanlm.models.heads import SoftmaxConfig
from spanlm.models.interfaces import NextWordModel
from spanlm.models.language_model import LanguageModel, ModelConfig
from spanlm.models.memories import NoMemoryConfig

LARGEST_HIDDEN_SIZE = 2**16


@dataclass(frozen=True)
class ParameterCount:
    """Trainable parameters as Daniluk et al. (2017) count them."""

    total: int  # θ_{W+M}, all parameters; a tied matrix counts once
    model: int  # θ_M, without the word representations (the input embedding)
    state: int = field(default=0, compare=False)  # bytes of the streams' state


def count_parameters(model: NextWordModel) -> ParameterCount:
    total = sum(p.numel() for p in model.parameters() if p.requires_grad)
    words = sum(m.embedding.weight.numel() for m in model.modules() if isinstance(m, LanguageModel))
    input_embedding: Any = getattr(model, "get_input_embeddings", None)  # only Hugging Face models have it
    words = words if input_embedding is None else input_embedding().weight.numel()
    return ParameterCount(total, total - words)


class _Unfilled(TorchFunctionMode):
    """Skips drawing weights: on the meta device, torch's `normal_` would load its compiler, which takes a second."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        return kwargs["tensor"] if func is nn.init.normal_ else func(*args, **kwargs)


def shapes_alone(config: ModelConfig, vocabulary_size: int) -> LanguageModel:
    """Build a model on torch's device `meta`: its tensors have shapes and no values."""
    with torch.device("meta"), _Unfilled():
        return LanguageModel(config, vocabulary_size)


def count_configured(config: ModelConfig, vocabulary_size: int, streams: int = 0) -> ParameterCount:
    """Count the parameters of a configuration without allocating weights or states."""
    layers: int = getattr(config.encoder, "layers", 1)
    if layers > 3:  # all layers but the first and the last are equal, so a billion need not be built
        fewer = [replace(config, encoder=replace(cast(Any, config.encoder), layers=n)) for n in (2, 3)]
        counts = (astuple(count_configured(shallow, vocabulary_size, streams)) for shallow in fewer)
        return ParameterCount(*(a + (layers - 2) * (b - a) for a, b in zip(*counts, strict=True)))
    model = shapes_alone(config, vocabulary_size)
    with torch.device("meta"):
        # joining states on the meta device would load torch's compiler, too
        state = model.init_state(streams).flat().values() if streams else ()
    return replace(count_parameters(model), state=sum(x.nbytes for x in state))


def lstm_budget(hidden_size: int, like: ModelConfig, vocabulary_size: int) -> int:
    """Return θ_M of a one-layer LSTM without memory, with the embedding size of `like` and an untied softmax."""
    plain = replace(like, encoder=LSTMConfig(hidden_size=hidden_size), memory=NoMemoryConfig(), head=SoftmaxConfig())
    return count_configured(plain, vocabulary_size).model


def match_parameters(config: ModelConfig, vocabulary_size: int, budget: int) -> ModelConfig:
    """Choose the encoder's output size, divisible by the memory's parts, whose θ_M is nearest to `budget`.

    Raises:
        InputError: a head of fixed width, such as a tied softmax, or a budget that no size meets.
    """
    if config.head.binds_width:
        limit = "a tied softmax is as wide as the embedding, so the hidden size is not free"
        raise InputError("match_parameters", limit=limit, way_out="Use model.head.tied=false.")

    def model_of(parts: int) -> ModelConfig:
        return replace(config, encoder=config.encoder.resized(parts * config.memory.parts))

    def count(parts: int) -> int:
        return count_configured(model_of(parts), vocabulary_size).model

    if budget < count(1):
        limit = f"{budget:,} parameters are too few for this model and a vocabulary of {vocabulary_size:,} words"
        raise InputError("match_parameters", limit=f"{limit}; the smallest has {count(1):,}.")
    sizes = range(1, LARGEST_HIDDEN_SIZE // config.memory.parts + 1)
    larger = bisect_right(sizes, budget, key=count)
    if larger == len(sizes):
        limit = f"{budget:,} parameters need more than {LARGEST_HIDDEN_SIZE:,} units; ask for fewer."
        raise InputError("match_parameters", limit=limit)
    return model_of(min(sizes[larger - 1], sizes[larger], key=lambda parts: abs(count(parts) - budget)))
