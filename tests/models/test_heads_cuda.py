"""A GPU gives what the CPU gives: the mixture of softmaxes and the adversarial margin, values and gradients."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from spanlm.models.heads import MixtureOfSoftmaxesConfig, SoftmaxConfig
from spanlm.models.interfaces import Readout
from spanlm.models.ops import softmax as linear_log_prob
from spanlm.models.ops import softmax as mixture_log_prob
from tests.models.small import assert_same, build, values, words

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


@pytest.mark.parametrize("direction", ["own", "shared"])
@pytest.mark.parametrize("kind", [SoftmaxConfig, MixtureOfSoftmaxesConfig], ids=["softmax", "mixture"])
@pytest.mark.parametrize("grad", ["mean", "any"])
@pytest.mark.parametrize("chunk", [2**25, 200], ids=["whole", "chunks"])
def test_training_on_a_gpu(kind: Any, direction: Any, grad: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (linear_log_prob, mixture_log_prob):
        monkeypatch.setattr(module, "CHUNK_ELEMENTS", chunk)
    config = kind(tied=False, adversarial=0.2, adversarial_direction=direction)
    if kind is MixtureOfSoftmaxesConfig:
        config = kind(experts=3, latent_dropout=0.0, adversarial=0.2, adversarial_direction=direction)
    torch.manual_seed(0)
    here = build(config, 6, nn.Embedding(11, 5).double()).train()
    there = copy.deepcopy(here).cuda()

    def results(head: Any, device: str) -> list[Tensor]:
        features = values(7, 3, 6).to(device).requires_grad_()
        log_p = head.log_prob(Readout(features), words(7, 3, size=11).to(device))
        weights = torch.full((7, 3), -0.25).double() if grad == "mean" else values(7, 3, seed=9)
        gradients = torch.autograd.grad(log_p, [features, *head.parameters()], weights.to(device))
        return [x.detach().cpu() for x in (log_p, *gradients)]

    assert_same(results(there, "cuda"), results(here, "cpu"), rtol=1e-9, atol=1e-10)
