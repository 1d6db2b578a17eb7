"""Log-probabilities of every token, segment by segment, and their sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import starmap
from statistics import NormalDist

import torch
from torch import Tensor

from spanlm.data.batching import Segment
from spanlm.data.vocabulary import Vocabulary
from spanlm.evaluation.protocol import STANDARD, Protocol
from spanlm.models.interfaces import LMState, NextWordModel, Readout, Scores, metric_sums
from spanlm.models.ops.precision import Precision, autocast

ROWS = 64
"""Distributions that numbers are taken from at a time: few enough to stay near the processor."""

ROWS = 64
"""Distributions are computed in multiples of so many."""

DISTRIBUTIONS = 1 << 22
"""Probabilities computed at a time: words times V."""

Report = Callable[[str, int, int], None]
"""Called with the name of the work, the tokens done and the tokens in all."""


def quiet(what: str, done: int, total: int) -> None:
    """Report nothing."""


@contextmanager
def evaluating(model: NextWordModel, precision: Precision = "fp32") -> Iterator[None]:
    """Switch dropout and gradients off, and take products in `precision`; what was comes back, also after an error.

    An autocast of the caller's does not reach into it.
    """
    was_training = model.training
    if was_training:  # setting a mode visits every module, which costs as much as a short segment of a small model
        model.eval()
    try:
        with torch.no_grad(), autocast(model.device, precision):
            yield
    finally:
        if was_training:
            model.train()


@dataclass(frozen=True)
class Scored:
    """A segment on the model's device, and what the model makes of it.

    `log_p` is log p(target), (T, B), natural logarithm, or the result of `ask`; meaningless where the mask is False.
    `metrics` are more numbers of each step, (T, B), as `Scores` has them; empty with `ask`.
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
    """Run the model in evaluation mode over segments of one batch size; carry its state, and reset it where they do.

    `ask` computes `log_p` from a readout and its targets; None: the head's log p. The model keeps its mode.
    """
    device = model.device
    state: LMState | None = None
    for segment in segments:
        initial = model.init_state(segment.reset.shape[0])
        state = initial if state is None else state.reset(segment.reset, initial)
        segment = segment.to(device)
        with evaluating(model, protocol.precision):
            readout, state = model(segment.inputs, state)
            targets = segment.targets
            scores = model.head.score(readout, targets) if ask is None else Scores(ask(readout, targets))
        yield Scored(segment, scores.log_prob, readout, scores.metrics)


def readout_values(model: NextWordModel, readout: Readout, targets: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
    """Return surprisal, entropy (nats) and rank of some targets of (T, B), (N,) each; `rows` (N,) counts step by step.

    No more than `DISTRIBUTIONS` probabilities are held.
    """
    found, words = [], targets.flatten()
    # every other number of rows is a kernel of its own, of which the library keeps 1,024, some hundred megabytes
    padded = torch.cat([rows, rows[:1].expand(-len(rows) % ROWS)])
    for some in torch.split(padded, max(1, DISTRIBUTIONS // model.vocabulary_size)):
        log_p = model.head.log_probs(readout.map(partial(_as_steps, some)))
        found.append(word_values(log_p, words[some].unsqueeze(1)))
    return tuple(torch.cat(each).squeeze(1)[: len(rows)] for each in zip(*found, strict=True))


def _as_steps(rows: Tensor, x: Tensor) -> Tensor:
    """(T, B, ...) -> (N, 1, ...)."""
    return x.flatten(0, 1).index_select(0, rows).unsqueeze(1)


def word_values(log_p: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return surprisal, entropy (nats) and rank of the targets under log_p (T, B, V)."""
    parts = zip(torch.split(log_p.flatten(0, 1), ROWS), torch.split(targets.flatten(), ROWS), strict=True)
    surprisal, entropy, rank = (torch.cat(x).view_as(targets) for x in zip(*starmap(_row_values, parts), strict=True))
    return surprisal, entropy, rank


def _row_values(log_p: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same of rows, (N, V)."""
    own = log_p.gather(-1, targets.unsqueeze(-1))
    # counted in floating point, which is exact below 2²⁴ words: sums of truth values take seven times as long
    rank = torch.gt(log_p, own, out=torch.empty_like(log_p)).sum(-1).long() + 1
    # p log p is 0 where p is: not 0 · -inf
    terms = log_p.clamp(min=torch.finfo(log_p.dtype).min).mul_(log_p.exp())
    entropy = terms.double().sum(-1)
    # 0 − x, not −x: what is certain has surprisal and entropy 0, not -0.0
    return 0.0 - own.squeeze(-1).double(), 0.0 - entropy, rank


def added(sums: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    """Add named sums; what is missing is 0."""
    return {name: sums.get(name, 0.0) + more.get(name, 0.0) for name in {**sums, **more}}


@dataclass(frozen=True)
class Tally:
    """Sums over predicted tokens: how many, and their NLL in nats.

    Beside them the same of targets that are <unk>, of those that are <eos>, and of those that come first after a reset:
    where each line is a stream of its own, of first words. `metrics` are the sums of the head's metrics by name.
    """

    tokens: int = 0
    nll: float = 0.0
    unk_tokens: int = 0
    unk_nll: float = 0.0
    eos_tokens: int = 0
    eos_nll: float = 0.0
    first_tokens: int = 0
    first_nll: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def loss(self) -> float:
        """Nats a token."""
        return self.nll / self.tokens

    def plus(self, scored: Scored, vocabulary: Vocabulary) -> Tally:
        """Add a segment; sums are float64."""
        mask, targets = scored.segment.mask, scored.segment.targets
        nll = torch.where(mask, -scored.log_p.double(), 0.0)
        unk, eos = (mask & (targets == id) for id in (vocabulary.unk_id, vocabulary.eos_id))
        first = mask[0] & scored.segment.reset
        counts = torch.stack([mask.sum(), unk.sum(), eos.sum(), first.sum()]).tolist()
        sums = torch.stack([nll.sum(), nll[unk].sum(), nll[eos].sum(), nll[0, first].sum()]).tolist()
        return Tally(
            self.tokens + counts[0],
            self.nll + sums[0],
            self.unk_tokens + counts[1],
            self.unk_nll + sums[1],
            self.eos_tokens + counts[2],
            self.eos_nll + sums[2],
            self.first_tokens + counts[3],
            self.first_nll + sums[3],
            added(self.metrics, dict(zip(scored.metrics, metric_sums(scored.metrics, mask).tolist(), strict=True))),
        )


def tally(scored: Iterable[Scored], vocabulary: Vocabulary) -> Tally:
    """Sum over segments."""
    total = Tally()
    for segment in scored:
        total = total.plus(segment, vocabulary)
    return total


def perplexity(nll_per_token: float) -> float:
    """exp, without overflow: beyond e^700 it is infinite."""
    return math.exp(nll_per_token) if nll_per_token < 700 else math.inf


Z = NormalDist().inv_cdf(0.975)
"""The normal quantile of a 95 % interval."""


def wilson(right: int, count: int) -> tuple[float, float]:
    r"""Return the 95 % interval of Wilson (1927) of a share of right answers.

        (p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n)

    with p the share, n the answers and z = 1.96.
    """
    p, scale = right / count, 1 + Z * Z / count
    centre, half = p + Z * Z / (2 * count), Z * math.sqrt(p * (1 - p) / count + Z * Z / (4 * count * count))
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def shown(value: float, digits: int = 2) -> str:
    """Write a perplexity for people: `85.20`, `1,204.00`, and from a million on `1.2e+07`."""
    return f"{value:,.{digits}f}" if value < 1e6 else f"{value:.3g}"


def edge_note(name: str, value: float, values: Sequence[float]) -> str:
    """Note that the best value of a grid is its smallest or largest, so that a better one may lie beyond it."""
    if len(set(values)) == 1 or value not in (min(values), max(values)) or value == 0:
        return ""
    end = "smallest" if value == min(values) else "largest"
    return f"{name}={value:g} is the {end} that was tried: the best may lie beyond."
