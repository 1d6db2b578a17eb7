"""A GPU gives what the CPU gives: every encoder, memory and head, values, states and gradients."""

import copy

import pytest
import torch
from torch import Tensor

from spanlm.models.encoders.awd_lstm import AWDLSTMEncoder
from spanlm.models.language_model import LanguageModel, ModelConfig
from tests.models import small
from tests.models.small import EMBEDDING, assert_same, language_model, tensors, values, words
from tests.models.test_encoder_twins import NOISY, recorded, replayed, stack

pytestmark = small.ON_GPU

every_model = pytest.mark.parametrize("config", small.models())


def two_segments(model: LanguageModel, device: str) -> list[Tensor]:
    """Answers for both, the state after them, and the gradient of all scores by every weight; on the CPU."""
    state, results, loss = model.init_state(3), [], torch.zeros((), dtype=torch.float64, device=device)
    assert {x.device.type for x in tensors(state)} <= {device}
    for seed in (0, 1):
        tokens, targets = words(6, 3, seed=seed).to(device), words(6, 3, seed=seed + 9).to(device)
        readout, _ = model(tokens, state)
        log_probs, _ = model.log_probs(tokens, state)
        score, state = model.log_prob(tokens, targets, state)
        mask = values(6, 3, seed=seed).to(device)
        attention = 0 if readout.attention is None else (readout.attention.weights * mask[..., None]).square().sum()
        loss = loss + (score * mask).sum() + attention
        results += [*tensors(readout), log_probs, score]
    weights = [p for p in model.parameters() if p.requires_grad]
    results += [*tensors(state), *torch.autograd.grad(loss, weights)]
    return [x.detach().cpu() for x in results]


@every_model
def test_gpu_agrees_with_cpu(config: ModelConfig) -> None:
    model = language_model(config)
    twin = copy.deepcopy(model).to("cuda")
    assert_same(two_segments(twin, "cuda"), two_segments(model, "cpu"), rtol=1e-9, atol=1e-10)


def two_segments_of(encoder: AWDLSTMEncoder, device: str, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Of segments in a row, each with masks of its own: outputs, states, gradients of both at once; on the CPU."""
    state, results, loss = encoder.init_state(3), [], torch.zeros((), dtype=dtype, device=device)
    for seed in (1, 2):
        h, state = encoder(values(6, 3, EMBEDDING, seed=seed, dtype=dtype).to(device), state)
        loss, results = loss + h.square().sum(), [*results, h]
    gradients = torch.autograd.grad(loss, list(encoder.parameters()))
    return [x.detach().cpu() for x in (*results, *state.values(), *gradients)]


def test_dropped_weights_are_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning that cuDNN finds the weights scattered would be an error here."""
    encoder = stack(**NOISY)
    twin = copy.deepcopy(encoder).to("cuda")
    with monkeypatch.context() as patch:
        drawn = recorded(patch)
        found = two_segments_of(twin, "cuda")
    assert {mask.device.type for mask in drawn} == {"cuda"} and len(drawn) == 2 * (3 + 2)
    replayed(monkeypatch, drawn, "cpu")
    assert_same(found, two_segments_of(encoder, "cpu"), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("reduced", [False, True], ids=["fp32", "bf16"])
def test_training_and_evaluation_in_turn(reduced: bool) -> None:
    """In the types that are trained in: no warning; weights that learn; an evaluation that no training call moves."""
    encoder = stack(**NOISY).float().to("cuda")
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)

    # a context for each: autocast keeps the weights that it has cast until its end
    def evaluated() -> list[Tensor]:
        with torch.autocast("cuda", torch.bfloat16, enabled=reduced):
            return two_segments_of(encoder.eval(), "cuda", torch.float32)

    for _ in range(3):
        before = evaluated()
        with torch.autocast("cuda", torch.bfloat16, enabled=reduced):
            h, _ = encoder.train()(values(6, 3, EMBEDDING).float().to("cuda"), encoder.init_state(3))
        assert_same(evaluated()[:2], before[:2], rtol=1e-5, atol=1e-6)
        optimizer.zero_grad()
        h.float().sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())
        optimizer.step()
        assert not torch.equal(evaluated()[0], before[0])
