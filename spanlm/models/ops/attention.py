"""Attention over a sliding window of the past: additive, and by dot products.

A memory of T queries is stored as P + T slots: P carried slots, then the T of this segment. Query t may look back L
slots from P + t; lag j (1 = the step before) is slot P + t - j, column L - j. With P < L the first queries have fewer
than L slots behind them, and missing slots cost nothing.

Additive attention: lag j of all queries is one slice of the memory, so a loop over the L lags touches only contiguous
(T, B, D) slices that stay in cache. If the window is longer than the segment, the loop runs over the T queries
instead. Gradients are hand-written: they keep the tanh of all slices if memory allows, else compute it again. Where the
calls of a loop would take longer than what they compute, all lags are computed at once: on a GPU, which waits for each
call, and on a processor a long window of few numbers.

Dot products, and the reads of a long window: for one stream, the scores of T steps and L - 1 + T slots are one matrix
product, of which the window is a band: row t, columns t … t + L - 1. The reads are the product of the band, zero
elsewhere, with the values. Long segments are read in blocks, so that cost grows with T and not T².
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from spanlm.models.kernels import gpu_elements
from spanlm.models.ops.precision import learns, no_autocast, wide, without_autocast

KEPT_ELEMENTS = 2**25
"""Most activations kept for the gradients, 128 MB of float32; if there are more, the backward pass computes them."""

_SLICE_ELEMENTS = 2**20
"""Largest slice of a loop over queries on a CPU: a larger one would not fit in its cache."""

LONG = 16
"""Longest window that is always read by a loop."""

_TOGETHER_ELEMENTS = 2**19
"""Most activations of a longer window that a processor computes at once."""

_Place = int | slice


def _lags(steps: int, slots: int, window: int) -> Iterator[tuple[_Place, _Place, slice]]:
    """Yield the column of each lag, oldest first, the queries that have a slot at this lag, and these slots."""
    carried = slots - steps
    for lag in range(window, 0, -1):
        first = max(0, lag - carried)
        if first < steps:
            yield window - lag, slice(first, steps), slice(carried + first - lag, slots - lag)


def _queries(steps: int, slots: int, window: int) -> Iterator[tuple[_Place, _Place, slice]]:
    """Yield the columns of each query that have a slot, the query, and these slots."""
    carried = slots - steps
    for query in range(steps):
        last = carried + query
        first = max(0, last - window)
        if first < last:
            yield slice(window - (last - first), window), query, slice(first, last)


def _slices(query: Tensor, slots: int, window: int) -> list[tuple[_Place, _Place, slice]]:
    steps, slice_elements = len(query), window * query[:1].numel()
    by_query = steps < window and (not query.is_cpu or slice_elements <= _SLICE_ELEMENTS)
    return list((_queries if by_query else _lags)(steps, slots, window))


def _scratch(slices: list[tuple[_Place, _Place, slice]], query: Tensor) -> Tensor:
    return query.new_empty(max((slots.stop - slots.start for *_, slots in slices), default=0), *query.shape[1:])


def _sigmoid(query: Tensor, keys: Tensor, room: Tensor | None) -> Tensor:
    return torch.add(keys, query, out=None if room is None else room[: len(keys)]).sigmoid_()


class _AdditiveScores(torch.autograd.Function):
    """score[t, :, L-j] = w · tanh(keys[P+t-j] + query[t]), zero without such a slot.

    tanh x = 2 σ(2x) − 1: on CPUs torch's σ takes a quarter of the time of its tanh in float32, and the factors 2 and w
    and the 1 are shared by all slices.
    """

    @staticmethod
    @without_autocast
    def forward(ctx: Any, query: Tensor, keys: Tensor, weight: Tensor, window: int, learning: bool) -> Tensor:
        query, keys = 2 * query, 2 * keys
        slices = _slices(query, len(keys), window)
        keep = learning and window * query.numel() <= KEPT_ELEMENTS
        activations: list[Tensor] = []
        room = None if keep else _scratch(slices, query)
        scores = query.new_zeros((window, *query.shape[:2]))
        for columns, queries, slots in slices:
            s = _sigmoid(query[queries], keys[slots], room)
            scores[columns, queries] = (s @ weight).mul_(2).sub_(weight.sum())
            if keep:
                activations.append(s)
        ctx.slices = slices
        ctx.save_for_backward(query, keys, weight, *activations)
        return scores.permute(1, 2, 0).contiguous()

    @staticmethod
    @without_autocast
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        query, keys, weight, *activations = ctx.saved_tensors
        grad_scores = grads[0].permute(2, 0, 1).contiguous()
        grad_query, grad_keys, grad_weight = map(torch.zeros_like, (query, keys, weight))
        room, again = _scratch(ctx.slices, query), None if activations else _scratch(ctx.slices, query)
        for n, (columns, queries, slots) in enumerate(ctx.slices):
            s = activations[n] if activations else _sigmoid(query[queries], keys[slots], again)
            g = grad_scores[columns, queries]
            grad_weight += g.reshape(-1) @ s.reshape(-1, len(weight))
            # the gradient of σ alone; the common factor 4 w comes last
            inner = torch.addcmul(s, s, s, value=-1, out=room[: len(s)]).mul_(g.unsqueeze(-1))
            at = grad_query[queries]
            at.add_(inner.sum_to_size(at.shape))
            grad_keys[slots].add_(inner)
        weight = 4 * weight
        # all callers mask scores without a slot, so these add nothing to the sum
        grad_weight.mul_(2).sub_(grad_scores.sum())
        return grad_query.mul_(weight), grad_keys.mul_(weight), grad_weight, None, None


class _LongScores(torch.autograd.Function):
    """`_AdditiveScores` of a window that is full at every query, for all lags at once.

    The activations are (D, L, T·B): each lag is a contiguous part of every long row.
    """

    @staticmethod
    @without_autocast
    def forward(ctx: Any, query: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
        steps, batch, _ = query.shape
        query, keys = ((2 * x).permute(2, 0, 1).flatten(1) for x in (query, keys))
        s = (keys.unfold(1, steps * batch, batch)[:, :-1] + query.unsqueeze(1)).sigmoid_()
        scores = (weight @ s.flatten(1)).mul_(2).sub_(weight.sum())
        ctx.save_for_backward(weight, s)
        return scores.view(-1, steps, batch).permute(1, 2, 0).contiguous()

    @staticmethod
    @torch.autograd.function.once_differentiable
    @without_autocast
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]  # hidden
        (weight, s), (steps, batch, window) = ctx.saved_tensors, grads[0].shape
        grad_scores = grads[0].permute(2, 0, 1).flatten(1)
        inner = torch.addcmul(s, s, s, value=-1).mul_(grad_scores)
        grad_keys = s.new_zeros(len(s), (window + steps) * batch)
        read_by_lag = grad_keys.unfold(1, steps * batch, batch)[:, :-1]
        for read, of_lag in zip(read_by_lag.unbind(1), inner.unbind(1), strict=True):
            read.add_(of_lag)
        grad_weight = (s.flatten(1) @ grad_scores.flatten()).mul_(2).sub_(grad_scores.sum())
        grad_query, grad_keys = (x.unflatten(1, (-1, batch)).permute(1, 2, 0) for x in (inner.sum(1), grad_keys))
        return grad_query * (4 * weight), grad_keys * (4 * weight), grad_weight


class _WindowSum(torch.autograd.Function):
    """read[t] = Σ_j weights[t, :, L-j] values[P+t-j]."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, values: Tensor) -> Tensor:
        steps, window = weights.shape[0], weights.shape[2]
        read = values.new_zeros((steps, *values.shape[1:]))
        for column, queries, slots in _lags(steps, len(values), window):
            read[queries].addcmul_(values[slots], weights[queries, :, column, None])
        ctx.save_for_backward(weights, values)
        return read

    @staticmethod
    @without_autocast
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        weights, values = ctx.saved_tensors
        steps, window = weights.shape[0], weights.shape[2]
        grad = grads[0].contiguous()
        grad_weights = torch.zeros_like(weights)
        grad_values = torch.zeros_like(values)
        for column, queries, slots in _lags(steps, len(values), window):
            torch.sum(grad[queries] * values[slots], dim=-1, out=grad_weights[queries, :, column])
            grad_values[slots].addcmul_(grad[queries], weights[queries, :, column, None])
        return grad_weights, grad_values


_additive_scores: Callable[..., Tensor] = _AdditiveScores.apply  # the library leaves them untyped
_long_scores: Callable[..., Tensor] = _LongScores.apply
_window_sum: Callable[..., Tensor] = _WindowSum.apply


def cleared(slots: Tensor, filled: Tensor) -> Tensor:
    """Set to zero the slots (L, B) or (L, B, D) that are not `filled` (L, B)."""
    # where, not a product, through which NaN in an empty slot would leak
    return torch.where(filled.view(*filled.shape, *[1] * (slots.dim() - 2)), slots, 0)


def with_steps(filled: Tensor, steps: int) -> Tensor:
    """Append T = `steps` filled slots to `filled` (L, B): (L + T, B)."""
    return torch.cat([filled, filled.new_ones(steps, filled.shape[1])])


def window_filled(filled: Tensor, steps: int, window: int) -> Tensor:
    """Return which slots each of T queries may read, (T, B, L).

    `filled` (L, B) are the carried slots that hold something, or (L - 1, B) where lag 0 is in the window.
    """
    return with_steps(filled, steps).unfold(0, window, 1)[:steps]


def masked_softmax(scores: Tensor, filled: Tensor) -> Tensor:
    """Softmax over the `filled` entries of the last dimension; a row without any is zero, not uniform."""
    masked = scores.masked_fill(~filled, torch.finfo(scores.dtype).min)
    return torch.where(filled, masked.softmax(-1), torch.zeros((), dtype=scores.dtype, device=scores.device))


def additive_scores(query: Tensor, keys: Tensor, weight: Tensor, window: int) -> Tensor:
    """Compare each step with the window before it: w · tanh(key_{t-j} + query_t),  j = 1 … L.

    query (T, B, D), keys (P + T, B, D) and w (D,) give (T, B, L), column j being lag L - j, in float32 or float64. The
    last key is never read; scores without a slot are 0 and must be masked.
    """
    inputs = wide(query), wide(keys), wide(weight)
    if not query.is_cpu and window * query.numel() <= gpu_elements(query.device):
        with no_autocast(query.device):
            return scores_at_once(*inputs, window)
    if LONG < window <= len(query) == len(keys) - window and window * query.numel() <= _TOGETHER_ELEMENTS:
        return _long_scores(*inputs)
    return _additive_scores(*inputs, window, learns(inputs))


def scores_at_once(query: Tensor, keys: Tensor, weight: Tensor, window: int) -> Tensor:
    """`additive_scores` by torch's own gradients, all lags at once."""
    activations = torch.tanh(_windows(keys, len(query), window).permute(0, 3, 1, 2) + query.unsqueeze(1))
    return (activations @ weight).transpose(1, 2)


def _windows(slots: Tensor, steps: int, window: int) -> Tensor:
    """View P + T slots (P + T, B, D) as what each query looks back at, (T, B, D, L), zero without a slot."""
    missing = window + steps - len(slots)
    return pad(slots, (0, 0, 0, 0, missing, -1)).unfold(0, window, 1)  # the last slot is never read


def window_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Σ_j weights_{t,j} value_{t-j} (T, B, D) of weights (T, B, L) and values (P + T, B, D).

    Column j is lag L - j, zero without a slot; the last value is never read.
    """
    steps, window = weights.shape[0], weights.shape[2]
    with no_autocast(values.device):
        if not values.is_cpu and window * values[:steps].numel() <= gpu_elements(values.device):
            return sum_at_once(weights, values)
        if LONG < window == len(values) - steps:
            return band_sum(weights, values[:-1])
        return _window_sum(weights, values)


def sum_at_once(weights: Tensor, values: Tensor) -> Tensor:
    """`window_sum` as one product for each step and stream, whose matrix is a view of the values."""
    steps, batch, window = weights.shape
    windows = _windows(values, steps, window).flatten(0, 1)
    return torch.bmm(windows, weights.reshape(-1, window, 1)).view(steps, batch, -1)


def additive_window_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    weight: Tensor,
    filled: Tensor,
    window: int | None = None,
    slope: Tensor | float | None = None,
) -> tuple[Tensor, Tensor]:
    """Attend over the window before each step.

        α_t = softmax_j(w · tanh(key_{t-j} + query_t) − m j),  j = 1 … L,    r_t = Σ_j α_{t,j} value_{t-j}

    query (T, B, D) and keys (P + T, B, D) are projected; values are (P + T, B, D'), w is (D,). The first P slots are
    carried, the last is never read. `filled` (P, B) marks carried slots that hold something; others must be finite. The
    window L is at least P; None: P. The `slope` m is a number or (1,); None: 0.

    Returns:
        The reads (T, B, D') and the weights (T, B, L), column j being lag L - j, in float32 or float64.
    """
    # reduced precision would quantise the weights, and the products around this function dominate the cost
    query, values, weight = map(wide, (query, values, weight))
    window = len(filled) if window is None else window
    may_read = window_filled(pad(filled, (0, 0, window - len(filled), 0)), len(query), window)
    scores = additive_scores(query, keys, weight, window)
    if slope is not None:
        scores = scores - slope * torch.arange(window, 0, -1, device=scores.device)
    weights = masked_softmax(scores, may_read)
    return window_sum(weights, values), weights


LEAST_BLOCK = 32
"""Steps of a block if the window is shorter; otherwise a block is as long as the window."""


def _join(parts: tuple[Tensor, ...] | list[Tensor]) -> Tensor:
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def _overlapping(slots: Tensor, window: int, size: int) -> Iterator[Tensor]:
    pieces = torch.split(slots, size)  # not slices of `slots`, each of whose gradients would be as long as `slots`
    for first in range(0, len(slots) - window + 1, size):
        piece = first // size
        yield _join(pieces[piece : piece + 2])[: size + window - 1]


def _band(square: Tensor) -> Tensor:
    """(B, T, T + L - 1) -> (B, T, L): take columns t … t + L - 1 of row t."""
    batch, steps, slots = square.shape
    # with one more column per row in the view, each row starts one column earlier
    skewed = pad(square.flatten(1), (0, steps)).view(batch, steps, slots + 1)
    return skewed[..., : slots - steps + 1]


def _square(band: Tensor) -> Tensor:
    """(B, T, L) -> (B, T, T + L - 1): undo `_band`, zero outside the band."""
    batch, steps, window = band.shape
    return pad(band, (0, steps)).flatten(1)[:, :-steps].view(batch, steps, steps + window - 1)


def _scores(query: Tensor, keys: Tensor) -> Tensor:
    """(T, B, L): score[t, :, j] = query[t] · keys[t + j]."""
    return _band(torch.bmm(query.transpose(0, 1), keys.permute(1, 2, 0))).transpose(0, 1)


def _reads(weights: Tensor, values: Tensor) -> Tensor:
    """(T, B, D): read[t] = Σ_j weights[t, :, j] values[t + j]."""
    return torch.bmm(_square(weights.transpose(0, 1)), values.transpose(0, 1)).transpose(0, 1)


def band_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Σ_j weights_{t,j} value_{t-j} (T, B, D),  j = 0 … L - 1, as products with a band, which suits long windows.

    weights (T, B, L) have lag L - 1 - j in column j, zero without a slot; values (L - 1 + T, B, D).
    """
    window = weights.shape[-1]
    size = max(window, LEAST_BLOCK)
    return _join(list(map(_reads, torch.split(weights, size), _overlapping(values, window, size))))


def dot_window_scores(query: Tensor, keys: Tensor, window: int) -> Tensor:
    """Compare each step with the window that ends with it: key_{t-j} · query_t,  j = 0 … L - 1.

    query (T, B, D) and keys (L - 1 + T, B, D) give (T, B, L), column j being lag L - 1 - j, in float32 or float64.
    """
    query, keys = wide(query), wide(keys)
    size = max(window, LEAST_BLOCK)
    with no_autocast(query.device):
        return _join(list(map(_scores, torch.split(query, size), _overlapping(keys, window, size))))


def dot_window_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    filled: Tensor,
    key_lags: Tensor | None = None,
    value_lags: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attend over the window that ends with each step.

        α_t = softmax_j((key_{t-j} + K_j) · query_t),  j = 0 … L - 1,    r_t = Σ_j α_{t,j} (value_{t-j} + V_j)

    query (T, B, D), keys (L - 1 + T, B, D) and values (L - 1 + T, B, D'); the first L - 1 slots are carried, then each
    step has one. `filled` (L - 1, B) marks carried slots that hold something; others must be finite. The rows K_j
    (L, D) and V_j (L, D') have the oldest lag first; None: zero.

    Returns:
        The reads (T, B, D') and the weights (T, B, L), column j being lag L - 1 - j, in float32 or float64.
    """
    query, values = wide(query), wide(values)
    steps, window = len(query), len(filled) + 1
    scores = dot_window_scores(query, keys, window)
    with no_autocast(query.device):
        if key_lags is not None:
            scores = scores + query @ key_lags.T
        weights = masked_softmax(scores, window_filled(filled, steps, window))
        read = band_sum(weights, values)
        if value_lags is not None:
            read = read + weights @ value_lags
    return read, weights
