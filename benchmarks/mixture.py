"""The mixture of softmaxes at its published size, beside a port of its authors' code.

The port's mixture (zihangdai/mos) makes every word's probability under every expert, (T, B, K, V), and mixes them.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, nll_loss

from benchmarks.awd import PortedAWD, awd_trainer, locked
from benchmarks.race import Aim, Contender
from benchmarks.setting import Size, of_preset, plain_step, raced, training_flops
from spanlm.models.heads import MixtureOfSoftmaxesConfig
from spanlm.models.heads.mixture_of_softmaxes import MixtureOfSoftmaxesHead
from spanlm.models.interfaces import Head, Init
from spanlm.options import Precision
from spanlm.training.trainer import Trainer

MOS_PTB = of_preset("yang2018/mos-ptb", "mixture of 15 softmaxes PTB size tied", batch_size=12, length=70)


class NaiveMixture(MixtureOfSoftmaxesHead):
    """The same weights; the probabilities of all words under all experts at once."""

    @classmethod
    def of(cls, config: MixtureOfSoftmaxesConfig, size: int, embedding: nn.Embedding, head: Head) -> NaiveMixture:
        """Make one that has the parameters of another head."""
        naive = cls(config, size, embedding, Init(0.1, 0.0))
        for name, parameters in [*head.named_children(), *head.named_parameters(recurse=False)]:
            setattr(naive, name, parameters)
        return naive

    def forward(self, features: Tensor) -> Tensor:
        """Log p of every word, (T, B, V); without the 1e-8 that the authors' code adds to p."""
        g = self.latent(features).tanh()
        if self.training:
            g = locked(g, self.latent_dropout)
        each = linear(g.view(-1, self.weight.shape[1]), self.weight, self.bias).softmax(-1)
        prior = self.prior(features).view(-1, self.experts).softmax(-1)
        mixed: Tensor = (each.view(-1, self.experts, len(self.weight)) * prior.unsqueeze(2)).sum(1)
        return mixed.log().view(*features.shape[:2], -1)

    def own_log_prob(self, features: Tensor, targets: Tensor, *, mixed: bool = False) -> Tensor:
        """Log p(target), (T, B)."""
        every: Tensor = self(features)
        return every.gather(-1, targets.unsqueeze(-1)).squeeze(-1)


class PortedMixture(PortedAWD):
    """The port of AWD-LSTM with the naive mixture on top."""

    cross_entropy = staticmethod(nll_loss)  # the mixture gives logarithms of probabilities

    def __init__(self, size: Size) -> None:
        super().__init__(size)
        self.decoder = NaiveMixture(_head(size), size.model.encoder.output_size, self.embedding, Init(0.1, 0.0))


def naive_trainer(size: Size, precision: Precision, device: torch.device) -> Trainer:
    """Make the trainer of the timed model with a naive mixture of the same weights."""
    trainer = awd_trainer(size, precision, device)
    model = trainer.model
    model.head = NaiveMixture.of(_head(size), model.memory.readout_size, model.embedding, model.head)
    return trainer


def mixture_group(size: Size, device: torch.device) -> Iterator[Contender]:
    """The mixture's training step against that of the port, and against a naive mixture alone."""
    flops = mixture_flops(size)
    for precision in raced(device):
        port, naive = f"port, training {precision}", f"naive mixture, training {precision}"
        target = 1.2 if precision == "bf16" else None
        yield Contender(port, precision, plain_step(PortedMixture(size), size, precision, device), flops)
        yield Contender(naive, precision, naive_trainer(size, precision, device).step, flops, [Aim(port)])
        aims = [Aim(naive, target), Aim(port, target), Aim(naive, 1 / 3, "memory")]
        step = awd_trainer(size, precision, device).step
        yield Contender(f"spanlm, training {precision}", precision, step, flops, aims)


def mixture_flops(size: Size) -> float:
    """Floating-point operations of one trained token: every expert multiplies with the embedding."""
    return training_flops(size) + 6.0 * (_head(size).experts - 1) * size.vocabulary_size * size.model.embedding_size


def _head(size: Size) -> MixtureOfSoftmaxesConfig:
    assert isinstance(size.model.head, MixtureOfSoftmaxesConfig)
    return size.model.head
