"""What the pointer sentinel promises beyond the contract of memories: the mixture, and what it can point to."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spanlm.models.heads import SoftmaxConfig
from spanlm.models.interfaces import Init, Readout
from spanlm.models.memories import PointerSentinelConfig
from spanlm.models.memories.pointer_sentinel import Pointer
from tests.models.small import VOCABULARY, Given, Largest, assert_same, build, values, words


def logs(*numbers: float) -> Tensor:
    return torch.tensor([[numbers]], dtype=torch.float64).log()


def both(own: Tensor, pointer: Pointer) -> Tensor:
    """Log p of all words, asked at once; the answers one by one must be the same."""
    head, features = Given(own), torch.zeros(*own.shape[:2], 1)
    every = pointer.log_probs(head, features)
    for word in range(own.shape[-1]):
        targets = torch.full(own.shape[:2], word)
        assert_same(pointer.score(head, features, targets).log_prob, every[..., word])
    return every


def test_training_asks_the_pointer_alone_by_hand() -> None:
    """−log(g + a_i of the target): 0.4 + 0.5 for word 2, 0.4 + 0.1 for word 0, 0.4 for one that was not read."""
    head = SoftmaxConfig().build(2, torch.nn.Embedding(4, 2), Init(0.1, 0.1)).double()
    parts = logs(0.1, 0.2, 0.3), torch.tensor([[[0, 2, 2]]]), logs(0.4).squeeze(-1)
    features = torch.zeros(1, 1, 2, dtype=torch.float64)
    for target, mass in ((2, 0.9), (0, 0.5), (1, 0.4)):
        asked = Readout(features, mixture=Pointer(*parts, trained_alone=True))
        extra = head.score(asked, torch.tensor([[target]])).extra_loss
        assert isinstance(extra, Tensor) and extra.item() == pytest.approx(-math.log(mass))
    for silent in (Readout(features, mixture=Pointer(*parts)), Readout(features)):
        assert head.score(silent, torch.tensor([[2]])).extra_loss == 0.0


@given(window=st.integers(1, 7), vocabulary=st.integers(1, 6), scale=st.sampled_from([1.0, 30.0, 1e3]))
@settings(max_examples=25)
def test_any_mixture_sums_to_one(window: int, vocabulary: int, scale: float) -> None:
    shares = (scale * values(3, 2, window + 1)).log_softmax(-1)
    read = words(3, 2, window, size=vocabulary)
    own = (scale * values(3, 2, vocabulary, seed=1)).log_softmax(-1)
    total = both(own, Pointer(shares[..., 1:], read, shares[..., 0])).exp().sum(-1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-12)


@pytest.mark.parametrize("own", [-1.0, -150.0, -300.0])
@pytest.mark.parametrize("weight", [-1.0, -100.0, -200.0, -math.inf])
def test_what_float32_cannot_hold_is_not_lost(own: float, weight: float) -> None:
    """Probabilities far below the smallest float32, and gradients that would be 0 · inf."""
    log_own, log_weights = torch.full((1, 1), own), torch.tensor([[[weight, -0.5]]])
    leaves = [x.requires_grad_() for x in (log_own, log_weights)]
    target, read, gate = torch.zeros(1, 1, dtype=torch.int64), torch.tensor([[[0, 1]]]), torch.full((1, 1), -0.9)
    pointer, head, features = Pointer(log_weights, read, gate), Given(log_own.unsqueeze(-1).repeat(1, 1, 2)), gate
    one, every = pointer.score(head, features, target).log_prob, pointer.log_probs(head, features)[..., 0]
    expected = max(own - 0.9, weight) + math.log1p(math.exp(-abs(own - 0.9 - weight)))
    share = math.exp(own - 0.9 - expected)
    for answer in (one, every):
        assert answer.item() == pytest.approx(expected, rel=1e-6)
        by_own, by_weights = torch.autograd.grad(answer.sum(), leaves)
        assert by_own.item() == pytest.approx(share, abs=1e-6)
        assert by_weights.flatten().tolist() == pytest.approx([1 - share, 0], abs=1e-6)


@pytest.mark.parametrize("wanted", [True, False])
def test_the_pointer_is_trained_alone_where_that_is_asked_for(wanted: bool) -> None:
    """In training alone."""
    memory = build(PointerSentinelConfig(window=3, pointer_loss=wanted), 8, VOCABULARY)
    for training in (True, False):
        readout, _ = memory.train(training)(values(4, 2, 8), words(4, 2), memory.init_state(2))
        assert readout.mixture.trained_alone == (wanted and training)


def test_no_tensor_holds_every_step_slot_and_unit() -> None:
    steps, batch, window, vocabulary = 64, 2, 40, 50
    memory = build(PointerSentinelConfig(window=window), 32, vocabulary)
    head = build(SoftmaxConfig(), 32, torch.nn.Embedding(vocabulary, 3))
    h = values(steps, batch, 32).requires_grad_()
    with Largest() as largest:
        readout, _ = memory(h, words(steps, batch, size=vocabulary), memory.init_state(batch))
        head.log_prob(readout, words(steps, batch, size=vocabulary)).sum().backward()
    assert steps * batch * window < largest.elements < 4 * steps * batch * window
