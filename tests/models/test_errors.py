"""What cannot be built says which field, which value, which limit, and what would do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from spanlm.errors import InputError
from spanlm.models.config import ModelConfig
from spanlm.models.encoders import HORNNConfig, LSTMConfig, RNNConfig
from spanlm.models.heads import SoftmaxConfig
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import KeyValueConfig, NGramConfig, PointerSentinelConfig, RecurrentMemoryConfig


def model(hidden_size: int, memory: Any, **config: Any) -> LanguageModel:
    with torch.device("meta"):
        encoder = LSTMConfig(hidden_size=hidden_size)
        return LanguageModel(ModelConfig(encoder=encoder, memory=memory, **config), 10)


@pytest.mark.parametrize(
    ("memory", "hidden_size", "message"),
    [
        (
            KeyValueConfig(roles=3),
            400,
            r"^model\.memory\.roles=3 needs model\.encoder\.hidden_size divisible by 3, got 400 "
            r"\(awd_lstm: model\.encoder\.last_size\)\. Use 399 or 402\.$",
        ),
        (KeyValueConfig(roles=2), 301, r"roles=2 .* divisible by 2, got 301 .* Use 300 or 302\.$"),
        (
            NGramConfig(order=4),
            970,
            r"^model\.memory\.order=4 needs model\.encoder\.hidden_size divisible by 4, got 970 "
            r"\(awd_lstm: model\.encoder\.last_size\)\. Use 968 or 972\.$",
        ),
        (NGramConfig(order=7), 6, r"order=7 .* divisible by 7, got 6 .* Use 7\.$"),
        (KeyValueConfig(roles=3), 2, r"roles=3 .* divisible by 3, got 2 .* Use 3\.$"),
    ],
)
def test_sizes_that_do_not_divide(memory: Any, hidden_size: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        model(hidden_size, memory)


@pytest.mark.parametrize("hidden_size", [399, 402, 3])
def test_the_sizes_named_as_a_way_out_do(hidden_size: int) -> None:
    assert model(hidden_size, KeyValueConfig(roles=3)).memory.readout_size == hidden_size // 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: KeyValueConfig(roles=4),
            r"^model\.memory\.roles=4: must be 1 \(attention\), 2 \(key-value\) or 3 \(key-value-predict\)$",
        ),
        (lambda: KeyValueConfig(roles=0), r"^model\.memory\.roles=0: must be 1"),
        (lambda: KeyValueConfig(window=0), r"^model\.memory\.window=0: must be at least 1$"),
        (lambda: KeyValueConfig(window=-5), r"^model\.memory\.window=-5: must be at least 1$"),
        (lambda: NGramConfig(order=1), r"^model\.memory\.order=1: must be at least 2$"),
        (lambda: LSTMConfig(hidden_size=0), r"^model\.encoder\.hidden_size=0: must be at least 1$"),
        (lambda: LSTMConfig(layers=0), r"^model\.encoder\.layers=0: must be at least 1$"),
        (lambda: LSTMConfig(dropout=-0.1), r"^model\.encoder\.dropout=-0\.1: must be in \[0, 1\)$"),
        (lambda: LSTMConfig(dropout=1.0), r"^model\.encoder\.dropout=1\.0: must be in \[0, 1\)$"),
        (lambda: RNNConfig(hidden_size=0), r"^model\.encoder\.hidden_size=0: must be at least 1$"),
        (lambda: RNNConfig(layers=-1), r"^model\.encoder\.layers=-1: must be at least 1$"),
        (lambda: RNNConfig(dropout=1.0), r"^model\.encoder\.dropout=1\.0: must be in \[0, 1\)$"),
        (lambda: HORNNConfig(hidden_size=0), r"^model\.encoder\.hidden_size=0: must be at least 1$"),
        (lambda: HORNNConfig(order=0), r"^model\.encoder\.order=0: must be at least 1$"),
        (lambda: HORNNConfig(pooling="mean"), r"^model\.encoder\.pooling=mean: must be fofe, gated or max$"),
        (
            lambda: HORNNConfig(forgetting_factor=0.0),
            r"^model\.encoder\.forgetting_factor=0\.0: must be above 0 and at most 1$",
        ),
        (lambda: HORNNConfig(forgetting_factor=1.5), r"^model\.encoder\.forgetting_factor=1\.5: must be above 0"),
        (lambda: HORNNConfig(forgetting_factor=float("nan")), r"^model\.encoder\.forgetting_factor=nan: must be"),
        (
            lambda: HORNNConfig(pooling="gated", forgetting_factor=0.5),
            r"^model\.encoder\.forgetting_factor=0\.5: must be left at 0\.6 with pooling=gated, "
            r"which does not use it\. Use pooling=fofe\.$",
        ),
        (lambda: HORNNConfig(pooling="max", forgetting_factor=1.0), r"forgetting_factor=1\.0: .* with pooling=max,"),
        (lambda: PointerSentinelConfig(window=0), r"^model\.memory\.window=0: must be at least 1$"),
        (lambda: RecurrentMemoryConfig(window=0), r"^model\.memory\.window=0: must be at least 1$"),
        (
            lambda: RecurrentMemoryConfig(composition="added"),
            r"^model\.memory\.composition=added: must be gated or linear$",
        ),
        (lambda: ModelConfig(embedding_size=0), r"^model\.embedding_size=0: must be at least 1$"),
        (lambda: ModelConfig(input_dropout=-0.5), r"^model\.input_dropout=-0\.5: must be in \[0, 1\)$"),
        (lambda: ModelConfig(input_dropout=1.0), r"^model\.input_dropout=1\.0: must be in \[0, 1\)$"),
        (lambda: ModelConfig(output_dropout=-1e-9), r"^model\.output_dropout=-1e-09: must be in \[0, 1\)$"),
        (lambda: ModelConfig(output_dropout=1.5), r"^model\.output_dropout=1\.5: must be in \[0, 1\)$"),
        (lambda: ModelConfig(init_range=0.0), r"^model\.init_range=0\.0: must be positive and finite$"),
        (
            lambda: ModelConfig(output_dropout=float("nan")),
            r"^model\.output_dropout=nan: must be in \[0, 1\)$",
        ),
    ],
)
def test_values_outside_their_range(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_tied_head_needs_a_readout_as_wide_as_the_embedding() -> None:
    message = (
        r"^model\.head\.tied=true needs a readout as wide as the embedding: the readout has 100 units, "
        r"model\.embedding_size is 40\. Set model\.embedding_size=100\.$"
    )
    with pytest.raises(InputError, match=message):
        model(300, KeyValueConfig(roles=3), embedding_size=40, head=SoftmaxConfig(tied=True))
    built = model(300, KeyValueConfig(roles=3), embedding_size=100, head=SoftmaxConfig(tied=True))
    assert built.head.weight is built.embedding.weight


def test_errors_are_value_errors_and_exit_with_2() -> None:
    with pytest.raises(ValueError) as caught:
        NGramConfig(order=0)
    assert isinstance(caught.value, InputError)
    assert caught.value.exit_status == 2
