"""The primitive: log-probabilities of every token, segment by segment, and their sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from spanlm.data.batching import Segment
from spanlm.evaluation.protocol import STANDARD, Protocol, autocast
from spanlm.models.interfaces import LMState, NextWordModel, Readout, Scores

Report = Callable[[str, int, int], None]
"""Told from time to time what is being done, how many tokens are through, and of how many."""


def quiet(what: str, done: int, total: int) -> None:
    """Report nothing."""


@contextmanager
def evaluating(model: NextWordModel) -> Iterator[None]:
    """No dropout and no gradients inside; afterwards the model is in the mode it was in, whatever happened."""
    was_training = model.training
    if was_training:  # setting a mode visits every module, which costs as much as a short segment of a small model
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        if was_training:
            model.train()


def to_device(segment: Segment, device: torch.device) -> Segment:
    """Move a segment."""
    if device.type == "cpu":
        return segment
    parts = ("inputs", "targets", "mask", "reset")
    return replace(segment, **{name: getattr(segment, name).to(device, non_blocking=True) for name in parts})


@dataclass(frozen=True)
class Scored:
    """A segment and what the model says of it.

    Attributes:
        segment: the tokens, on the model's device.
        log_p: log p(target), (T, B), natural logarithm; meaningless where the mask is False. Or what else was asked.
        readout: what the head read.
        metrics: more numbers of each step, (T, B), as `Scores` has them; none where `log_p` is another's.
    """

    segment: Segment
    log_p: Tensor
    readout: Readout
    metrics: Mapping[str, Tensor] = field(default_factory=dict)


def score(
    model: NextWordModel,
    segments: Iterable[Segment],
    protocol: Protocol = STANDARD,
    ask: Callable[[Readout, Tensor], Tensor] | None = None,
) -> Iterator[Scored]:
    """Run the model in evaluation mode over segments, carrying its state and resetting it as they say.

    Args:
        model: left in the mode it was in.
        segments: all of one batch size, as the protocol's batcher gives them.
        protocol: how the text is counted; its precision is that of the products.
        ask: what to make of a readout and its targets; by default the log p of the model's head.
    """
    device = model.device
    state: LMState | None = None
    for segment in segments:
        initial = model.init_state(segment.reset.shape[0])
        state = initial if state is None else state.reset(segment.reset, initial)
        segment = to_device(segment, device)
        with evaluating(model), autocast(device, protocol.precision):
            readout, state = model(segment.inputs, state)
            targets = segment.targets
            scores = model.head.score(readout, targets) if ask is None else Scores(ask(readout, targets))
        yield Scored(segment, scores.log_prob, readout, scores.metrics)


def metric_sums(metrics: Mapping[str, Tensor], mask: Tensor) -> Tensor:
    """Sum each metric (T, B) over the places of `mask`, (n,) float64; costs no wait for the device."""
    if not metrics:
        return torch.zeros(0, dtype=torch.float64, device=mask.device)
    return torch.stack(list(metrics.values())).where(mask, 0).sum((1, 2), dtype=torch.float64)


def added(sums: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    """Add named sums; what is missing is 0."""
    return {name: sums.get(name, 0.0) + more.get(name, 0.0) for name in {**sums, **more}}


@dataclass(frozen=True)
class Tally:
    """Sums over predicted tokens: how many, and their NLL in nats.

    Of these, those whose target is <unk>, and those that come first after a reset: where each sentence is a stream of
    its own, its first word. `metrics` are the sums of what a head says beside, by name.
    """

    tokens: int = 0
    nll: float = 0.0
    unk_tokens: int = 0
    unk_nll: float = 0.0
    first_tokens: int = 0
    first_nll: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def loss(self) -> float:
        """Nats a token."""
        return self.nll / self.tokens

    def plus(self, scored: Scored, unk_id: int) -> Tally:
        """Add a segment; sums are float64."""
        mask, targets = scored.segment.mask, scored.segment.targets
        nll = torch.where(mask, -scored.log_p.double(), 0.0)
        unk = mask & (targets == unk_id)
        first = mask[0] & scored.segment.reset
        counts = torch.stack([mask.sum(), unk.sum(), first.sum()]).tolist()
        sums = torch.stack([nll.sum(), nll[unk].sum(), nll[0, first].sum()]).tolist()
        return Tally(
            self.tokens + counts[0],
            self.nll + sums[0],
            self.unk_tokens + counts[1],
            self.unk_nll + sums[1],
            self.first_tokens + counts[2],
            self.first_nll + sums[2],
            added(self.metrics, dict(zip(scored.metrics, metric_sums(scored.metrics, mask).tolist(), strict=True))),
        )


def tally(scored: Iterable[Scored], unk_id: int) -> Tally:
    """Sum over segments."""
    total = Tally()
    for segment in scored:
        total = total.plus(segment, unk_id)
    return total


def perplexity(nll_per_token: float) -> float:
    """exp, without overflow: beyond e^700 it is infinite."""
    return math.exp(nll_per_token) if nll_per_token < 700 else math.inf


def shown(value: float, digits: int = 2) -> str:
    """A perplexity for people: `85.20`, `1,204.00`, and from a million on `1.2e+07`."""
    return f"{value:,.{digits}f}" if value < 1e6 else f"{value:.3g}"


def edge_note(name: str, value: float, values: Sequence[float]) -> str:
    """Say of the best value of a grid that it is the smallest or largest of several, where others could lie beyond."""
    if len(set(values)) == 1 or value not in (min(values), max(values)) or value == 0:
        return ""
    end = "smallest" if value == min(values) else "largest"
    return f"{name}={value:g} is the {end} that was tried: the best may lie beyond."
