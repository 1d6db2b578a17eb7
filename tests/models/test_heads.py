"""What every registered head promises (see `spanlm.models.head`)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from spanlm.models.heads import SoftmaxConfig
from spanlm.models.interfaces import Init, Readout
from tests.models import small
from tests.models.small import assert_same, bitwise, build, values, words
from tests.reference import grid, linear_softmax

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
    """Both questions to a head have one answer, gradients included."""
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


@pytest.mark.parametrize("config", small.SMALL_HEADS["softmax"], ids=small.identify)
def test_weights_start_uniform(config: SoftmaxConfig) -> None:
    torch.manual_seed(0)
    table = nn.Embedding(500, 40)
    head = config.build(40, table, Init(0.03, 0.03))
    own = [p for p in head.parameters() if p is not table.weight]
    assert len(own) == (not config.tied) + config.bias + 2 * config.projection
    for parameter in own:
        assert 0.029 < parameter.abs().max() <= 0.03
        assert abs(parameter.mean()) < 0.005


@pytest.mark.parametrize("config", [p for p in small.heads() if p.values[0].tied])
def test_a_tied_head_shares_the_embedding(config: Any) -> None:
    table = embedding()
    head = config.build(SIZE, table, Init(0.1, 0.1))
    assert head.weight is table.weight

    def answer() -> Tensor:
        return head.double().log_probs(Readout(values(1, 1, SIZE))).detach()

    before = answer()
    with torch.no_grad():
        table.weight[3] += 1
    assert not bitwise(answer(), before)


def test_a_projection_stands_before_the_softmax() -> None:
    """softmax(W* (P h + b_P) + b), against the loop."""
    head = head_of(SoftmaxConfig(tied=True, projection=True))
    features, targets = values(4, 3, SIZE), words(4, 3, size=VOCABULARY)
    projection = head.projection
    rows = [[projection.weight.mv(x) + projection.bias for x in step] for step in features]
    expected = linear_softmax(grid(rows), head.weight, head.bias)
    assert_same(head.log_probs(Readout(features)), expected)
    assert_same(head.log_prob(Readout(features), targets), expected.gather(-1, targets[..., None]).squeeze(-1))


def test_the_penalty_is_the_sum_of_squares() -> None:
    head = head_of(SoftmaxConfig(tied=True, projection=True, projection_penalty=0.25))
    by_hand = sum(0.25 * w**2 for row in head.projection.weight.tolist() for w in row)
    penalty = head.penalty()
    assert penalty.item() == pytest.approx(by_hand)
    penalty.backward()
    assert_same(head.projection.weight.grad, 0.5 * head.projection.weight.detach())
    assert head.projection.bias.grad is None
