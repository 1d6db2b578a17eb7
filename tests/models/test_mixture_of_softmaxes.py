"""The mixture of softmaxes against its loop; its dropout, its start, its size; what does not fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from spanlm.errors import InputError
from spanlm.models.heads import MixtureOfSoftmaxesConfig
from spanlm.models.interfaces import Readout
from spanlm.models.ops.dropout import dropout_mask
from tests.models.small import Largest, assert_same, build, values, words
from tests.models.twins import assert_twin, gradients
from tests.reference_mixture import Mixture, mixture_of_softmaxes

SIZE, EMBEDDING, VOCABULARY = 6, 4, 7


def head_of(**fields: Any) -> Any:
    torch.manual_seed(1)
    return build(MixtureOfSoftmaxesConfig(**fields), SIZE, nn.Embedding(VOCABULARY, EMBEDDING))


def twin_of(head: Any, mask: Tensor | None = None) -> Mixture:
    return Mixture(head.latent.weight, head.latent.bias, head.prior.weight, head.weight, head.bias, mask)


def picked(every: Tensor, targets: Tensor) -> Tensor:
    return every.gather(-1, targets[..., None]).squeeze(-1)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
@pytest.mark.parametrize(
    "fields",
    [{"experts": 3}, {"experts": 1}, {"experts": 4, "tied": False}, {"experts": 2, "tied": False, "latent_size": 5}],
    ids=str,
)
def test_it_is_the_loop(fields: dict[str, Any], bias: bool) -> None:
    head = head_of(bias=bias, **fields)
    features, targets = values(3, 2, SIZE).requires_grad_(), words(3, 2, size=VOCABULARY)
    leaves = [features, *head.parameters()]
    every = mixture_of_softmaxes(features, twin_of(head))

    actual = head.log_probs(Readout(features))
    assert_twin([actual], [every], leaves)
    one, expected = head.log_prob(Readout(features), targets), picked(every, targets)
    assert_twin([one], [expected], leaves)
    assert_same(torch.autograd.grad(one.mean(), leaves)[0], torch.autograd.grad(expected.mean(), leaves)[0])


@pytest.mark.parametrize("ask", ["log_prob", "log_probs"])
def test_the_dropout_of_training_is_one_mask_a_stream(ask: str) -> None:
    """Constant over the steps, different between streams, on g: the loop with the same mask says the same."""
    head = head_of(experts=3, latent_dropout=0.4).train()
    h = values(5, 2, SIZE).requires_grad_()
    targets = words(5, 2, size=VOCABULARY)
    torch.manual_seed(7)
    actual = head.log_prob(Readout(h), targets) if ask == "log_prob" else head.log_probs(Readout(h))
    torch.manual_seed(7)
    mask = dropout_mask((2, 3 * EMBEDDING), 0.4, h, 0)
    assert 0 < (mask == 0).sum() < mask.numel() and not torch.equal(mask[0], mask[1])
    every = mixture_of_softmaxes(h, twin_of(head, mask))
    expected = picked(every, targets) if ask == "log_prob" else every
    assert_same(actual, expected)
    leaves = [h, *head.parameters()]
    assert_same(gradients([actual], leaves), gradients([expected], leaves))


def test_a_latent_size_that_does_not_fit_the_tied_embedding() -> None:
    message = (
        r"^model\.head\.latent_size=5 does not fit the tied embedding: model\.embedding_size is 4\. "
        r"Leave model\.head\.latent_size null, or set model\.head\.tied=false\.$"
    )
    with pytest.raises(InputError, match=message):
        head_of(latent_size=5)
    assert head_of(latent_size=5, tied=False).weight.shape == (VOCABULARY, 5)
    assert head_of(latent_size=4).weight.shape == (VOCABULARY, 4)
    assert head_of().latent.weight.shape == (15 * 4, SIZE)


def largest_of(call: Any) -> int:
    """Elements of the largest tensor that is made."""
    with Largest() as largest:
        call()
    return largest.elements


def test_the_distribution_is_made_an_expert_at_a_time() -> None:
    head, readout = head_of(experts=9), Readout(values(11, 3, SIZE))
    with torch.no_grad():
        assert largest_of(lambda: head.log_probs(readout)) < 2 * 11 * 3 * max(VOCABULARY, 9 * EMBEDDING)
        wide = build(MixtureOfSoftmaxesConfig(experts=9), SIZE, nn.Embedding(500, EMBEDDING))
        assert largest_of(lambda: wide.log_probs(readout)) == 11 * 3 * 500
