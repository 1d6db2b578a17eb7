"""The span buffer once more, as `reference.py` has the other memories: plain loops, one vector and one word at a time.

A stream's past is everything it has read since its start: what is too far back is not looked at, and never dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tests.reference import Past, blank, grid, places


@dataclass
class Spans:
    """Li et al. (2020), Eq. 4-7."""

    buffer_size: int
    length: int
    current: bool  # the newest span may end at the output of the step itself
    w_s: Tensor  # (d, H)
    w_h: Tensor  # (d, H)
    v: Tensor  # (d,)


def span_ends(now: int, p: Spans) -> list[tuple[int, int]]:
    """First and last of every span that is looked at when there are `now` outputs to look at, the newest span first."""
    lasts = [now - 1 - n * p.length for n in range(p.buffer_size // p.length)]
    return [(last - p.length + 1, last) for last in lasts if last - p.length + 1 >= 0]


def span_buffer(h: Tensor, past: Past, p: Spans) -> tuple[Tensor, Tensor, Tensor, Past]:
    """ξ (T, B, H), weights by the lag of a span's last output (T, B, buffer_size), where any is, and all outputs."""
    steps, streams = h.shape[:2]
    reads, weights = blank(h), blank(h)
    filled = torch.zeros(steps, streams, dtype=torch.bool)
    after = [list(outputs) for outputs in past]
    for b, t in places(h):
        outputs, current = after[b], h[t, b]
        if p.current:
            outputs.append(current)
        ends = span_ends(len(outputs), p)
        spans = [outputs[last] - outputs[first] if first < last else outputs[last] for first, last in ends]
        exponentials = []
        for span in spans:
            exponentials.append(p.v.dot((p.w_h.mv(current) + p.w_s.mv(span)).tanh()).exp())
        read, row = torch.zeros_like(current), [h.new_zeros(())] * p.buffer_size
        for (_, last), span, e in zip(ends, spans, exponentials, strict=True):
            share = e / sum(exponentials)
            read = read + share * span
            row[p.buffer_size - (len(outputs) - last)] = share
        reads[t][b], weights[t][b], filled[t, b] = read, torch.stack(row), bool(ends)
        if not p.current:
            outputs.append(current)
    return grid(reads), grid(weights), filled, after


def seen(h: Tensor, spans: Tensor, reads: str, w: Tensor | None) -> Tensor:
    """What q is predicted from (T, B, H): ξ by Eq. 8; of the other reading tanh(W [h; ξ]) with W (H, 2H)."""
    rows, size = blank(h), h.shape[-1]
    for b, t in places(h):
        current, read = h[t, b], spans[t, b]
        if reads == "merge":
            assert w is not None
            read = torch.stack([(row[:size].dot(current) + row[size:].dot(read)).tanh() for row in w])
        rows[t][b] = read
    return grid(rows)


def policy(h: Tensor, w_g: Tensor) -> Tensor:
    """Eq. 10, g (T, B, 2)."""
    return grid([[w_g.mv(x) for x in row] for row in h])


@dataclass
class Gate:
    """Eq. 9-14, and what the gate is taught."""

    temperature: float
    eta: float
    kappa: float
    a: float
    b: float
    beta: float


def reward(p: float, q: float, g: Gate) -> float:
    """Eq. 12-13, without the paper's ε (1e-10, against p = 0): tests compare to more digits than it leaves."""
    z = min((q / p) ** g.kappa, g.a) - g.b
    return z if z >= 0 else g.beta * z


def mixed(p: Tensor, q: Tensor, logits: Tensor, filled: Tensor, temperature: float) -> Tensor:
    """Eq. 9 with λ̂ of Eq. 14 for all words: p and q (T, B, V), logits (T, B, 2)."""
    rows = blank(p)
    for b, t in places(p):
        one, other = ((x / temperature).exp() for x in logits[t, b])
        share = one / (one + other)
        rows[t][b] = share * q[t, b] + (1 - share) * p[t, b] if filled[t, b] else p[t, b]
    return grid(rows)


def losses(p: Tensor, q: Tensor, logits: Tensor, filled: Tensor, targets: Tensor, g: Gate) -> Tensor:
    """Eq. 11, (T, B): p and q (T, B, V) of all words."""
    mixture = mixed(p, q, logits, filled, g.temperature)
    rows = blank(p)
    for b, t in places(p):
        word = int(targets[t, b])
        loss = -mixture[t, b, word].log()
        if filled[t, b]:
            one, other = (x.exp() for x in logits[t, b])
            log_share = (one / (one + other)).log()
            r = reward(p[t, b, word].item(), q[t, b, word].item(), g)
            loss = loss - g.eta * r * (log_share if r >= 0 else max(log_share, log_share.new_tensor(-20.0)))
        rows[t][b] = loss
    return grid(rows)
