"""What the mixture of softmaxes is compared with: the same values and gradients, at three times the memory and more."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from spanlm.benchmark import groups
from spanlm.benchmark.awd import awd_trainer, ported_step
from spanlm.benchmark.contenders import Size, synthetic_corpus, training_flops
from spanlm.benchmark.mixture import MOS_PTB, NaiveMixture, PortedMixture, mixture_flops, naive_trainer
from spanlm.models.heads import MixtureOfSoftmaxesConfig
from spanlm.models.interfaces import Init, Readout
from spanlm.models.ops import softmax as mixture_log_prob
from tests.cli.test_bench import MIXTURE
from tests.models.small import values, words

CONFIG = MixtureOfSoftmaxesConfig(experts=15, latent_dropout=0.0)


def both_heads(size: int, embedding: int, vocabulary: int, dtype: torch.dtype) -> list[Any]:
    """Ours and the naive one, with the same parameters, training."""
    torch.manual_seed(0)
    table = nn.Embedding(vocabulary, embedding)
    head = CONFIG.build(size, table, Init(0.5, 0.5)).to(dtype)
    return [head.train(), NaiveMixture.of(CONFIG, size, table, head).train()]


def test_the_naive_mixture_gives_the_same_values_and_gradients() -> None:
    features, targets = values(5, 3, 6).requires_grad_(), words(5, 3, size=20)
    found = []
    for head in both_heads(6, 4, 20, torch.float64):
        leaves = [features, *head.parameters()]
        log_p = head.log_prob(Readout(features), targets)
        found.append([log_p, *torch.autograd.grad(log_p.mean(), leaves)])
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12)


def peak_bytes(call: Callable[[], None]) -> int:
    """Most bytes of tensors made inside that lived at once."""
    alive: dict[int, int] = {}
    peak = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal peak
            result = func(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, tuple | list) else (result,):
                if isinstance(tensor, Tensor):
                    storage = tensor.untyped_storage()
                    if storage._cdata not in alive:
                        alive[storage._cdata] = storage.nbytes()
                        weakref.finalize(storage, alive.pop, storage._cdata, None)
            peak = max(peak, sum(alive.values()))
            return result

    with Watch():
        call()
    return peak


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_third_of_the_naive_memory_is_enough(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the proportions of a segment of the PTB: as many chunks, every size divided."""
    steps, streams, vocabulary = 35, 3, 2500
    elements = steps * streams * CONFIG.experts * vocabulary
    monkeypatch.setattr(
        mixture_log_prob, "CHUNK_ELEMENTS", mixture_log_prob.CHUNK_ELEMENTS * elements // (70 * 12 * 15 * 10_000)
    )
    features = values(steps, streams, 40, dtype=torch.float32).requires_grad_()
    targets = words(steps, streams, size=vocabulary)

    def step(head: Any) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            log_p = head.log_prob(Readout(features), targets)
        log_p.mean().backward()

    ours, naive = (peak_bytes(lambda head=head: step(head)) for head in both_heads(40, 18, vocabulary, torch.float32))
    assert 3 * ours < naive
    assert naive > 2 * elements * (4 if precision == "fp32" else 2)


def undropped(size: Size) -> Size:
    model = replace(
        size.model,
        encoder=replace(size.model.encoder, hidden_dropout=0.0, weight_drop=0.0),
        head=replace(size.model.head, latent_dropout=0.0),
        embedding_dropout=0.0,
        input_dropout=0.0,
        output_dropout=0.0,
    )
    return replace(size, model=model)


def test_the_port_is_the_same_model_with_the_same_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing dropped, a step of all three leads from the same weights to the same ones."""
    size, made = undropped(MIXTURE), []
    corpus = synthetic_corpus(size, 4)
    trainers = [make(size, "fp32", "cpu", corpus) for make in (awd_trainer, naive_trainer)]

    def port(size: Size) -> PortedMixture:
        made.append(PortedMixture(size))
        return made[0]

    step = ported_step(size, "fp32", torch.device("cpu"), port)  # type: ignore[arg-type]
    every = []
    for trainer in trainers:
        model = trainer.model
        every.append([*model.encoder.parameters(), *map(dict(model.named_parameters()).get, NAMES)])
    theirs = dict(made[0].named_parameters())
    renamed = [name.replace("head", "decoder") for name in NAMES]
    every.append([*made[0].layers.parameters(), *map(theirs.get, renamed)])
    with torch.no_grad():
        for one, *others in zip(*every, strict=True):
            one.uniform_(-1, 1)  # type: ignore[union-attr]
            for other in others:
                other.copy_(one)  # type: ignore[union-attr, arg-type]
    for segment in groups.random_segments(size, 2):
        for trainer in trainers:
            trainer.step(segment)
        step(segment)
    for one, *others in zip(*every, strict=True):
        for other in others:
            torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)


NAMES = ["embedding.weight", "head.latent.weight", "head.latent.bias", "head.prior.weight", "head.bias"]


def test_the_naive_mixture_drops_its_latents() -> None:
    torch.manual_seed(0)
    head = NaiveMixture(replace(CONFIG, latent_dropout=0.5), 6, nn.Embedding(20, 4), Init(0.5, 0.5))
    features = values(5, 3, 6, dtype=torch.float32)
    assert not torch.equal(head(features), head(features))
    assert torch.equal(head.eval()(features), head(features))


def test_every_expert_counts() -> None:
    """At the published size, where the embedding is multiplied with 15 times."""
    products = 4 * (960 * (280 + 960) + 960 * (960 + 960) + 620 * (960 + 620)) + 620 * (15 * 280 + 15)
    assert mixture_flops(MOS_PTB) == 6 * (products + 15 * 280 * 10_000)
    assert training_flops(MOS_PTB) == 6 * (products + 280 * 10_000)
