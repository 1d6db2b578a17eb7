"""The primitive: log-probabilities of every token, segment by segment, and their sums."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from spanlm.data.batching import Segment
from spanlm.errors import require
from spanlm.models.interfaces import NextWordModel, Readout, Scores
from spanlm.models.state import LMState

Precision = Literal["fp32", "bf16"]


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[Any]:
    """Products in bfloat16 for bf16; the model's own precision for fp32, and where a processor has no bf16."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=usable(precision, device) == "bf16")


def usable(precision: Precision, device: torch.device | str) -> Precision:
    """Return the precision that `device` computes in when asked for `precision`: fp32 where a processor has no bf16."""
    require(precision in get_args(Precision), "precision", precision, "fp32 or bf16")
    doubtful = precision == "bf16" and torch.device(device).type == "cpu"
    return "fp32" if doubtful and not _processor_has_bf16() else precision


@cache
def _processor_has_bf16() -> bool:
    """Try the kernel that some lack, an LSTM's (on x86 it takes AVX-512); log if it fails. Draws no random numbers."""
    x, h, *weights = (torch.zeros(size) for size in ((2, 2, 8), (1, 2, 8), (32, 8), (32, 8), (32,), (32,)))
    try:
        with torch.enable_grad(), torch.autocast("cpu", torch.bfloat16):
            read = torch.lstm(x, (h, h), [w.requires_grad_() for w in weights], True, 1, 0.0, True, False, False)[0]
            torch.autograd.grad(read.sum(), weights)
    except RuntimeError:
        logging.getLogger("spanlm").warning("bf16: this processor cannot train an LSTM in it; fp32 is used instead")
        return False
    return True


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


def scored_segments(
    model: NextWordModel,
    segments: Iterable[Segment],
    precision: Precision = "fp32",
    stop: Callable[[], bool] = lambda: False,
    ask: Callable[[Readout, Tensor], Tensor] | None = None,
) -> Iterator[Scored]:
    """Run the model in evaluation mode over segments, carrying its state and resetting it as they say.

    Args:
        model: left in the mode it was in.
        segments: all of one batch size.
        precision: of the products.
        stop: asked before each segment; True ends the iteration.
        ask: what to make of a readout and its targets; by default the log p of the model's head.
    """
    device = model.device
    state: LMState | None = None
    for segment in segments:
        if stop():
            break
        initial = model.init_state(segment.reset.shape[0])
        state = initial if state is None else state.reset(segment.reset, initial)
        segment = to_device(segment, device)
        with evaluating(model), autocast(device, precision):
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


def tally(
    model: NextWordModel,
    segments: Iterable[Segment],
    unk_id: int,
    precision: Precision = "fp32",
    stop: Callable[[], bool] = lambda: False,
) -> Tally:
    """Sum the NLL of every token of `segments`; `stop` is asked before each of them."""
    total = Tally()
    for scored in scored_segments(model, segments, precision, stop):
        total = total.plus(scored, unk_id)
    return total


def perplexity(nll_per_token: float) -> float:
    """exp, without overflow: beyond e^700 it is infinite."""
    return math.exp(nll_per_token) if nll_per_token < 700 else math.inf


def shown(value: float, digits: int = 2) -> str:
    """A perplexity for people: `85.20`, `1,204.00`, and from a million on `1.2e+07`."""
    return f"{value:,.{digits}f}" if value < 1e6 else f"{value:.3g}"
