"""What every registered head promises (see `spanlm.models.head`)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from spanlm.models.interfaces import Readout
from tests.models import small
from tests.models.small import assert_same, build, values, words

SIZE, VOCABULARY = 6, 13

every_head = pytest.mark.parametrize("config", small.heads())


def embedding() -> nn.Embedding:
    torch.manual_seed(1)
    return nn.Embedding(VOCABULARY, SIZE).double()


def head_of(config: Any) -> Any:
    return build(config, SIZE, embedding())


@every_head
@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
def test_one_target_is_one_column_of_all(config: Any, scale: float) -> None:
    head = head_of(config)
    features = (scale * values(4, 3, SIZE)).requires_grad_()
    targets = words(4, 3, size=VOCABULARY)
    leaves = [features, *head.parameters()]
    one = head.log_prob(Readout(features), targets)
    every = head.log_probs(Readout(features)).gather(-1, targets[..., None]).squeeze(-1)
    assert one.shape == targets.shape
    assert_same(one, every)
    mask = values(4, 3, seed=2)
    assert_same(
        list(torch.autograd.grad((one * mask).sum(), leaves)),
        list(torch.autograd.grad((every * mask).sum(), leaves)),
        atol=1e-10,
    )


@every_head
def test_one_target_is_one_column_of_all_under_autocast(config: Any) -> None:
    """The bias, which is often the largest addend, is rounded in neither."""
    head, features, targets = head_of(config).float(), values(4, 3, SIZE).float(), words(4, 3, size=VOCABULARY)
    if head.bias is not None:
        head.bias.data.uniform_(-9, 9)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        one = head.log_prob(Readout(features), targets)
        every = head.log_probs(Readout(features)).gather(-1, targets[..., None]).squeeze(-1)
    assert_same(one, every, atol=1e-3)
