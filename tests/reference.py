"""Every equation once more: a plain loop over streams, time steps and memory slots, one vector at a time.

Written from the papers, not from `spanlm.models`; slow on purpose. Vectors are float64 tensors only so that
autograd can differentiate the loops. `past[b]` lists what stream b remembers, oldest first; it may be shorter
than the window, or empty. Every function returns new lists and leaves its arguments as they were."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

Past = list[list[Tensor]]


@dataclass
class LSTMLayer:
    """One layer: gates stacked in the order input, forget, candidate, output, each with one bias."""

    w_x: Tensor  # (4k, E)
    w_h: Tensor  # (4k, k)
    b: Tensor  # (4k,)


@dataclass
class LSTMNoise:
    """What one layer's step multiplies and keeps; lists by gate or by step."""

    x: list[Tensor]  # by gate, (B, E)
    h: list[Tensor]  # by gate, (B, k)
    kept_h: list[Tensor]  # by step, (B, k)
    kept_c: list[Tensor]  # by step, (B, k)


def lstm(
    x: Tensor, h0: Tensor, c0: Tensor, layers: list[LSTMLayer], noise: list[LSTMNoise] | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Stack of LSTM cells (Hochreiter & Schmidhuber, 1997): x (T, B, E), h0 and c0 (layers, B, k).

    i = σ(W_i x + U_i h + b_i), likewise f and o;  g = tanh(W_g x + U_g h + b_g)
    c' = f·c + i·g;  h' = o·tanh(c')

    With noise (Gal & Ghahramani, 2016; zoneout, Krueger et al., 2017) each gate reads x and h through masks of its own;
    new values are mixed with the old ones, the output's tanh reads the new cell before it is mixed.
    """
    streams, outputs = x.shape[1], blank(x)
    last_h = [[h0[n, b] for b in range(streams)] for n in range(len(layers))]
    last_c = [[c0[n, b] for b in range(streams)] for n in range(len(layers))]
    for b, t in places(x):
        below = x[t, b]
        for n, layer in enumerate(layers):
            h, c = last_h[n][b], last_c[n][b]
            k, gates = len(h), []
            for gate in range(4):
                rows = slice(gate * k, (gate + 1) * k)
                of_x = below if noise is None else below * noise[n].x[gate][b]
                of_h = h if noise is None else h * noise[n].h[gate][b]
                gates.append(layer.w_x[rows].mv(of_x) + layer.w_h[rows].mv(of_h) + layer.b[rows])
            new_c = gates[1].sigmoid() * c + gates[0].sigmoid() * gates[2].tanh()
            new_h = gates[3].sigmoid() * new_c.tanh()
            if noise is not None:
                kept_h, kept_c = noise[n].kept_h[t][b], noise[n].kept_c[t][b]
                new_c, new_h = kept_c * c + (1 - kept_c) * new_c, kept_h * h + (1 - kept_h) * new_h
            last_c[n][b], last_h[n][b], below = new_c, new_h, new_h
        outputs[t][b] = below
    return grid(outputs), grid(last_h), grid(last_c)


def awd_lstm(
    x: Tensor, h0: list[Tensor], c0: list[Tensor], layers: list[LSTMLayer], m: list[Tensor], z: list[Tensor]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Merity et al. (2018): x (T, B, E); by layer h0, c0 (B, k), m (4k, k); between the layers z (B, k below).

    Each layer's U is U ⊙ m; the layer above reads h' ⊙ z.
    """
    last_h, last_c = [], []
    for n, layer in enumerate(layers):
        read = x * z[n - 1] if n else x
        x, h, c = lstm(read, h0[n][None], c0[n][None], [LSTMLayer(layer.w_x, layer.w_h * m[n], layer.b)])
        last_h.append(h[0])
        last_c.append(c[0])
    return x, last_h, last_c


@dataclass
class RNNLayer:
    """One layer of tanh units, each with one bias."""

    w_x: Tensor  # (k, E)
    w_h: Tensor  # (k, k)
    b: Tensor  # (k,)


def rnn(x: Tensor, h0: Tensor, layers: list[RNNLayer]) -> tuple[Tensor, Tensor]:
    """Stack of simple recurrent layers (Elman, 1990), h' = tanh(W x + U h + b): x (T, B, E), h0 (layers, B, k)."""
    streams, outputs = x.shape[1], blank(x)
    last = [[h0[n, b] for b in range(streams)] for n in range(len(layers))]
    for b, t in places(x):
        below = x[t, b]
        for n, layer in enumerate(layers):
            last[n][b] = (layer.w_x.mv(below) + layer.w_h.mv(last[n][b]) + layer.b).tanh()
            below = last[n][b]
        outputs[t][b] = below
    return grid(outputs), grid(last)


@dataclass
class HigherOrder:
    """A higher-order network; of the lists, entry n - 1 belongs to the n-th output of the pool, newest first."""

    w_in: Tensor  # (k, E)
    b: Tensor  # (k,)
    w: list[Tensor]  # W_n (k, k)
    v: list[Tensor]  # V_n (k, E), of the gates
    u: list[Tensor]  # U_n (k, k), of the gates
    w_0: Tensor | None = None  # (k, k); of the newest output, which then is not in the pool


def hornn(x: Tensor, past: Past, pooling: str, factor: float, p: HigherOrder) -> tuple[Tensor, Past]:
    """Soltani & Jiang (2016): h_t = tanh(W_in x_t + pooled over n of W_n h_{t-n} + b). Before the start: zeros.

    fofe: Σ factor^n W_n h_{t-n}; gated: Σ r_n ⊙ (W_n h_{t-n}), r_n = σ(V_n x_t + U_n h_{t-n}); max: the largest.
    With W_0: tanh(W_in x_t + W_0 h_{t-1} + pooled over n of W_n h_{t-1-n} + b).
    """
    order, skipped = len(p.w), 0 if p.w_0 is None else 1
    outputs = blank(x)
    after = [list(earlier) for earlier in past]
    for b, t in places(x):
        terms = []
        for n in range(1, order + 1):
            lag = n + skipped
            h = after[b][-lag] if lag <= len(after[b]) else torch.zeros_like(p.b)
            term = p.w[n - 1].mv(h)
            if pooling == "fofe":
                term = factor**n * term
            if pooling == "gated":
                term = (p.v[n - 1].mv(x[t, b]) + p.u[n - 1].mv(h)).sigmoid() * term
            terms.append(term)
        pooled = terms[0]
        for term in terms[1:]:
            pooled = torch.maximum(pooled, term) if pooling == "max" else pooled + term
        if p.w_0 is not None and after[b]:
            pooled = pooled + p.w_0.mv(after[b][-1])
        outputs[t][b] = (p.w_in.mv(x[t, b]) + pooled + p.b).tanh()
        after[b].append(outputs[t][b])
    return grid(outputs), [earlier[-order - skipped :] for earlier in after]


@dataclass
class SelfAttention:
    """The matrices of a layer; heads are consecutive rows of the first three."""

    q: Tensor  # (heads · d, k)
    k: Tensor
    v: Tensor
    o: Tensor  # (k, heads · d)


def turned(x: Tensor, place: int) -> Tensor:
    """Su et al. (2021): x (d,) as d/2 complex numbers, x_i + i x_{i + d/2}, times exp(i place 10000^(−2i/d))."""
    half = len(x) // 2
    rates = 10_000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    out = torch.complex(x[:half], x[half:]) * torch.polar(torch.ones_like(rates), place * rates)
    return torch.cat([out.real, out.imag])


def self_attention(x: Tensor, window: int, heads: int, p: SelfAttention) -> Tensor:
    """Vaswani et al. (2017) with rotary positions: x (T, B, k) from an empty state, step by step, lag by lag."""
    outputs = blank(x)
    keys, values = (
        [[w.mv(x[t, b]).chunk(heads) for t in range(len(x))] for b in range(x.shape[1])] for w in (p.k, p.v)
    )
    for b, t in places(x):
        read, near = [], range(max(0, t - window), t + 1)
        for head, q in enumerate(p.q.mv(x[t, b]).chunk(heads)):
            scores = torch.stack([turned(q, t) @ turned(keys[b][s][head], s) for s in near]) / len(q) ** 0.5
            weights = scores.exp() / scores.exp().sum()
            read.append(torch.stack([w * values[b][s][head] for w, s in zip(weights, near, strict=True)]).sum(0))
        outputs[t][b] = p.o.mv(torch.cat(read))
    return grid(outputs)


@dataclass
class MogrifierLayer:
    """One layer: an LSTM's, and the matrices of the rounds, Q^1, R^2, Q^3, …"""

    lstm: LSTMLayer
    rounds: list[Tensor]


def mogrifier_lstm(
    x: Tensor, h0: Tensor, c0: Tensor, layers: list[MogrifierLayer]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Melis et al. (2020): x (T, B, E), h0 and c0 (layers, B, k); of each layer the last h and c (B, k).

    x^i = 2σ(Q^i h^{i-1}) x^{i-2} for odd i, h^i = 2σ(R^i x^{i-1}) h^{i-2} for even i; then a step of an LSTM.
    """
    last_h, last_c = [], []
    for n, layer in enumerate(layers):
        outputs, hs, cs = blank(x), list(h0[n]), list(c0[n])
        for b, t in places(x):
            below, h = x[t, b], hs[b]
            for i, matrix in enumerate(layer.rounds, 1):
                if i % 2 == 1:
                    below = 2 * matrix.mv(h).sigmoid() * below
                else:
                    h = 2 * matrix.mv(below).sigmoid() * h
            _, new_h, new_c = lstm(below[None, None], h[None, None], cs[b][None, None], [layer.lstm])
            outputs[t][b] = hs[b] = new_h[0, 0]
            cs[b] = new_c[0, 0]
        x = grid(outputs)
        last_h.append(torch.stack(hs))
        last_c.append(torch.stack(cs))
    return x, last_h, last_c


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Zhang & Sennrich (2019): a vector x divided by √(mean of its squares + 1e-6), times a weight."""
    return x / (x.dot(x) / len(x) + 1e-6).sqrt() * weight


@dataclass
class Block:
    """The two branches of a block, without the layer."""

    norm: Tensor  # (k,), before the layer
    mlp_norm: Tensor  # (k,), before the feed-forward network
    gate: Tensor  # (d, k)
    up: Tensor  # (d, k)
    down: Tensor  # (k, d)


def normed(x: Tensor, weight: Tensor) -> Tensor:
    """What a layer reads: every vector of x (T, B, k), normed."""
    return torch.stack([torch.stack([rms_norm(v, weight) for v in row]) for row in x])


def block(x: Tensor, y: Tensor, p: Block) -> Tensor:
    """x and what the layer made of it, y (T, B, k): x + y and the feed-forward branch (Shazeer, 2020)."""
    outputs = blank(x)
    for b, t in places(x):
        v = x[t, b] + y[t, b]
        u = rms_norm(v, p.mlp_norm)
        gate = p.gate.mv(u)
        outputs[t][b] = v + p.down.mv(gate * gate.sigmoid() * p.up.mv(u))
    return grid(outputs)


def min_gru(
    x: Tensor, h0: Tensor, w_z: Tensor, b_z: Tensor, w_h: Tensor, b_h: Tensor, w_o: Tensor
) -> tuple[Tensor, Tensor]:
    """Feng et al. (2024): x (T, B, k), h0 (B, d), W_z and W_h (d, k), W_o (k, d); W_o h_t of each step, and the last h.

    h_t = (1 - z) h_{t-1} + z g(W_h x + b_h), z = σ(W_z x + b_z), g(a) = a + 0.5 from 0 on and σ(a) below.
    """
    outputs, last = blank(x), list(h0)
    for b, t in places(x):
        z, a = (w_z.mv(x[t, b]) + b_z).sigmoid(), w_h.mv(x[t, b]) + b_h
        g = torch.stack([unit + 0.5 if unit >= 0 else unit.sigmoid() for unit in a])
        last[b] = (1 - z) * last[b] + z * g
        outputs[t][b] = w_o.mv(last[b])
    return grid(outputs), torch.stack(last)


@dataclass
class DeltaHead:
    """A head of a gated delta network; the convolutions have a row for each lag, the farthest first."""

    w_q: Tensor  # (d_k, k)
    w_k: Tensor  # (d_k, k)
    w_v: Tensor  # (d_v, k)
    conv_q: Tensor  # (4, d_k)
    conv_k: Tensor  # (4, d_k)
    conv_v: Tensor  # (4, d_v)
    w_g: Tensor  # (d_v, k)
    w_alpha: Tensor  # (k,)
    w_beta: Tensor  # (k,)
    a: Tensor  # ()
    b: Tensor  # ()
    norm: Tensor  # (d_v,)
    w_o: Tensor  # (k, d_v)


@dataclass
class HeadState:
    """What a stream carries of a head: the last three q, k and v before the convolution, and S."""

    q: list[Tensor]
    k: list[Tensor]
    v: list[Tensor]
    s: Tensor  # (d_v, d_k)


def delta_head(x: Tensor, states: list[HeadState], p: DeltaHead) -> tuple[Tensor, list[HeadState]]:
    """Yang et al. (2025): x (T, B, k); the head's part of the output (T, B, k), and what each stream carries.

    S_t = S_{t-1} (α (I - β k kᵀ)) + β v kᵀ, o = S_t q, y = W_o (norm(o) silu(W_g x));  β = σ(w_β x),
    α = exp(-exp(a) log(1 + exp(w_α x + b))); q, k, v: SiLU of a sum over four steps; q and k then have length 1.
    """
    outputs = blank(x)
    states = [HeadState(list(old.q), list(old.k), list(old.v), old.s) for old in states]
    for b, t in places(x):
        u, state = x[t, b], states[b]
        read = []
        for past, w, conv in ((state.q, p.w_q, p.conv_q), (state.k, p.w_k, p.conv_k), (state.v, p.w_v, p.conv_v)):
            past.append(w.mv(u))
            total = sum((conv[n] * past[n] for n in range(4)), torch.zeros_like(past[0]))
            read.append(total * total.sigmoid())
            del past[0]
        q, k = (v / (v.dot(v) + 1e-6).sqrt() for v in read[:2])
        beta = p.w_beta.dot(u).sigmoid()
        alpha = (-p.a.exp() * (1 + (p.w_alpha.dot(u) + p.b).exp()).log()).exp()
        erase = alpha * (torch.eye(len(k), dtype=k.dtype) - beta * k.outer(k))
        state.s = state.s @ erase + beta * read[2].outer(k)
        gate = p.w_g.mv(u)
        outputs[t][b] = p.w_o.mv(rms_norm(state.s.mv(q), p.norm) * gate * gate.sigmoid())
    return grid(outputs), states


@dataclass
class Projections:
    """The matrices of Eq. 1-4 of Daniluk et al. (2017): all k x k, `w` a vector, no biases."""

    w_y: Tensor
    w_h: Tensor
    w: Tensor
    w_r: Tensor
    w_x: Tensor
    slope: Tensor | float = 0.0


def look_back(h: Tensor, past: Past, window: int, p: Projections, roles: int) -> tuple[Tensor, Tensor, Past]:
    """For each step: score the outputs of the last `window` steps, average their values, combine.

    The current output is not among them. Nothing remembered: r = 0 and no weights.
    With 1 role (Eq. 1-4) an output is key, value and what the next word is predicted from, with 2 (Eq. 6-10)
    h = [k; v] and the value predicts, with 3 (Eq. 11-12) h = [k; v; p] and the third part does nothing else.
    Weights are (T, B, window), the last column one step back; columns before the stream's start are 0.
    """

    def parts(output: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        pieces = output.chunk(roles)
        return pieces[0], pieces[min(1, roles - 1)], pieces[-1]

    features, weights = blank(h), blank(h)
    after = [list(outputs) for outputs in past]
    for b, t in places(h):
        query, _, predict = parts(h[t, b])
        remembered = after[b][-window:]
        exponentials = []
        for lag, output in zip(range(len(remembered), 0, -1), remembered, strict=True):
            m = (p.w_y.mv(parts(output)[0]) + p.w_h.mv(query)).tanh()
            exponentials.append((p.w.dot(m) - p.slope * lag).exp())
        alpha = [e / sum(exponentials) for e in exponentials]
        r = torch.zeros_like(predict)
        for a, output in zip(alpha, remembered, strict=True):
            r = r + a * parts(output)[1]
        features[t][b] = (p.w_r.mv(r) + p.w_x.mv(predict)).tanh()
        empty = [h.new_zeros(())] * (window - len(alpha))
        weights[t][b] = torch.stack(empty + alpha)
        after[b].append(h[t, b])
    return grid(features), grid(weights), [outputs[-window:] for outputs in after]


def ngram(h: Tensor, past: Past, order: int, w_n: Tensor) -> tuple[Tensor, Past]:
    """Eq. 13 with N = `order` equal parts: h* = tanh(W^N [h_t^1; h_{t-1}^2; ...; h_{t-N+1}^N]).

    (The text says N - 1 parts, the time indices and the published sizes say N.) Before the start: zeros.
    """
    k = h.shape[2] // order
    features = blank(h)
    after = [list(outputs) for outputs in past]
    for b, t in places(h):
        after[b].append(h[t, b])
        pieces = []
        for lag in range(order):
            if lag < len(after[b]):
                pieces.append(after[b][-1 - lag][lag * k : (lag + 1) * k])
            else:
                pieces.append(h.new_zeros(k))
        features[t][b] = w_n.mv(torch.cat(pieces)).tanh()
    return grid(features), [outputs[-(order - 1) :] for outputs in after]


@dataclass
class WordMemory:
    """RM of Tran et al. (2016). Entry `lag` of the lists is the row for that lag; None: no temporal matrix.

    `gated` has W_z, U_z, b_z, W_r, U_r, b_r, W, U, b; None: the linear composition with `u`.
    """

    m: Tensor  # (V, k)
    c: Tensor  # (V, k)
    t_m: list[Tensor] | None
    t_c: list[Tensor] | None
    gated: list[Tensor] | None
    u: Tensor | None


def recurrent_memory(
    h: Tensor, words: Tensor, past: list[list[int]], window: int, p: WordMemory
) -> tuple[Tensor, Tensor, list[list[int]]]:
    """For each step: attend over the last `window` words, the current one included, and compose with h.

    Weights are (T, B, window), the last column the current word; columns before the stream's start are 0.
    """
    features, weights = blank(h), blank(h)
    after = [list(earlier) for earlier in past]
    for b, t in places(h):
        after[b].append(int(words[t, b]))
        seen = after[b][-window:]
        exponentials, contents = [], []
        for i, word in enumerate(seen):
            lag = len(seen) - 1 - i
            key = p.m[word] if p.t_m is None else p.m[word] + p.t_m[lag]
            contents.append(p.c[word] if p.t_c is None else p.c[word] + p.t_c[lag])
            exponentials.append(key.dot(h[t, b]).exp())
        alpha = [e / sum(exponentials) for e in exponentials]
        s = sum(a * content for a, content in zip(alpha, contents, strict=True))
        features[t][b] = compose(s, h[t, b], p)
        weights[t][b] = torch.stack([h.new_zeros(())] * (window - len(alpha)) + alpha)
    remembered = [earlier[max(0, len(earlier) - (window - 1)) :] for earlier in after]
    return grid(features), grid(weights), remembered


def compose(s: Tensor, h: Tensor, p: WordMemory) -> Tensor:
    """U h + s, or a gated recurrent unit's step from h with s as its input."""
    if p.gated is None:
        return p.u.mv(h) + s
    w_z, u_z, b_z, w_r, u_r, b_r, w, u, b = p.gated
    z = (w_z.mv(s) + u_z.mv(h) + b_z).sigmoid()
    r = (w_r.mv(s) + u_r.mv(h) + b_r).sigmoid()
    candidate = (w.mv(s) + u.mv(r * h) + b).tanh()
    return (1 - z) * h + z * candidate


@dataclass
class Attentive:
    """Eq. 7, 9 and 10 of Salton et al. (2017).

    `w_q` None: single, a score of what is remembered alone; `w_s` None: all scores are 0.
    """

    w_s: Tensor | None  # (k, k)
    w_q: Tensor | None  # (k, k)
    v_s: Tensor | None  # (k,)
    w_c: Tensor | None  # (k, 2 k); None: c alone, no merge
    b_c: Tensor | None  # (k,)
    slope: Tensor | float = 0.0


def score(remembered: Tensor, current: Tensor, p: Attentive) -> Tensor:
    """Eq. 9 without W_q, Eq. 10 with it."""
    if p.w_s is None or p.v_s is None:
        return remembered.new_zeros(())
    inner = p.w_s.mv(remembered)
    if p.w_q is not None:
        inner = inner + p.w_q.mv(current)
    return p.v_s.dot(inner.tanh())


def attentive(
    h: Tensor, past: Past, window: int | None, columns: int, p: Attentive, *, includes_current: bool = False
) -> tuple[Tensor, Tensor, Past]:
    """Eq. 3-7: average the last `window` outputs (None: all), without the current one unless it is included; merge.

    Nothing remembered: c = 0. Weights are (T, B, columns), the last column one step back, or the current step.
    """
    features, weights = blank(h), blank(h)
    after = [list(outputs) for outputs in past]
    for b, t in places(h):
        remembered = [*after[b], h[t, b]] if includes_current else after[b]
        remembered = remembered if window is None else remembered[-window:]
        lags = range(len(remembered) - includes_current, -includes_current, -1)
        scores = [score(output, h[t, b], p) - p.slope * lag for lag, output in zip(lags, remembered, strict=True)]
        exponentials = [x.exp() for x in scores]
        a = [e / sum(exponentials) for e in exponentials]
        c = torch.zeros_like(h[t, b])
        for share, output in zip(a, remembered, strict=True):
            c = c + share * output
        features[t][b] = c
        if p.w_c is not None:
            merged = p.w_c.mv(torch.cat([h[t, b], c]))
            features[t][b] = (merged if p.b_c is None else merged + p.b_c).tanh()
        weights[t][b] = torch.stack([h.new_zeros(())] * (columns - len(a)) + a)
        after[b].append(h[t, b])
    if window is not None:
        kept = window - 1 if includes_current else window
        after = [outputs[max(0, len(outputs) - kept) :] for outputs in after]
    return grid(features), grid(weights), after


PastWords = list[list[tuple[Tensor, int]]]
Copies = list[list[dict[int, Tensor]]]


@dataclass
class Sentinel:
    """W, b and s of Merity et al. (2017)."""

    w: Tensor  # (k, k)
    b: Tensor  # (k,)
    s: Tensor  # (k,)


def pointer_sentinel(
    h: Tensor, words: Tensor, past: PastWords, window: int, p: Sentinel
) -> tuple[Tensor, Tensor, Copies, PastWords]:
    """For each step: softmax over its product with the last `window` states, its own included, and the sentinel.

    `past` pairs each state with the word that was read there. Weights are (T, B, window), the last column the current
    step; gates (T, B); for each step and stream, what is copied: the probability of each word in the window.
    """
    steps, streams = h.shape[:2]
    weights, gates = blank(h), blank(h)
    copies: Copies = [[{} for _ in range(streams)] for _ in range(steps)]
    after = [list(earlier) for earlier in past]
    for b, t in places(h):
        after[b].append((h[t, b], int(words[t, b])))
        q = (p.w.mv(h[t, b]) + p.b).tanh()
        seen = after[b][-window:]
        exponentials = [q.dot(state).exp() for state, _ in seen]
        gate = q.dot(p.s).exp()
        total = sum(exponentials) + gate
        a = [e / total for e in exponentials]
        weights[t][b] = torch.stack([h.new_zeros(())] * (window - len(a)) + a)
        gates[t][b] = gate / total
        for weight, (_, word) in zip(a, seen, strict=True):
            copies[t][b][word] = copies[t][b].get(word, 0) + weight
    remembered = [earlier[max(0, len(earlier) - (window - 1)) :] for earlier in after]
    return grid(weights), grid(gates), copies, remembered


def mixture(vocabulary: Tensor, gates: Tensor, copies: Copies) -> Tensor:
    """Log of g p_vocab(w) + what is copied of w, (T, B, V), from log p_vocab (T, B, V)."""
    size, rows = vocabulary.shape[2], blank(vocabulary)
    for b, t in places(vocabulary):
        p = [gates[t, b] * vocabulary[t, b, w].exp() + copies[t][b].get(w, 0) for w in range(size)]
        rows[t][b] = torch.stack(p).log()
    return grid(rows)


def cache_distribution(
    query: Tensor, keys: Tensor, words: Tensor, filled: Tensor, window: int, theta: float, size: int
) -> tuple[Tensor, Tensor]:
    """p_cache of each of `size` words (T, B, size), zero where the cache is empty; and where that is, (T, B) bool.

    Grave et al. (2017), §3, over the filled slots among the last C before each step's own:

        p_cache(w) ∝ Σ_i 1[x_{i+1} = w] exp(θ h_t · h_i)

    query (T, B, D) are the h_t of the steps; keys (S + T, B, D), words and filled (S + T, B) the slots, the steps' own
    last, and the word that followed each.
    """
    steps, streams, _ = query.shape
    carried = len(keys) - steps
    p = torch.zeros(steps, streams, size, dtype=torch.float64)
    empty = torch.ones(steps, streams, dtype=torch.bool)
    for b, t in places(query):
        slots = [i for i in range(max(0, carried + t - window), carried + t) if filled[i, b]]
        alike = [float((theta * (query[t, b] @ keys[i, b])).exp()) for i in slots]
        for i, weight in zip(slots, alike, strict=True):
            p[t, b, words[i, b]] += weight / sum(alike)
            empty[t, b] = False
    return p, empty


def linear_softmax(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Eq. 5: log of exp(W*_v x + b_v) / sum over the vocabulary, (T, B, V)."""
    rows = blank(x)
    for b, t in places(x):
        logits = [weight[v].dot(x[t, b]) for v in range(len(weight))]
        if bias is not None:
            logits = [logit + bias[v] for v, logit in enumerate(logits)]
        total = sum(logit.exp() for logit in logits)
        rows[t][b] = torch.stack([(logit.exp() / total).log() for logit in logits])
    return grid(rows)


def grid(rows: list[list[Tensor]]) -> Tensor:
    """Stack a list of lists of vectors along two new leading dimensions."""
    return torch.stack([torch.stack(row) for row in rows])


def blank(x: Tensor) -> list[list[Tensor]]:
    """A place for a vector at every step and stream of x (T, B, ·)."""
    return [[torch.empty(0)] * x.shape[1] for _ in x]


def places(x: Tensor) -> Iterator[tuple[int, int]]:
    """Stream and step of everything in x (T, B, ·), one stream after the other."""
    return product(range(x.shape[1]), range(len(x)))


@dataclass
class Mixture:
    """A mixture of softmaxes (Yang et al., 2018); `mask[b]` is stream b's dropout of g, None: no dropout."""

    w_l: Tensor  # (K E, D)
    b_l: Tensor  # (K E,)
    w_p: Tensor  # (K, D)
    words: Tensor  # (V, E)
    bias: Tensor | None  # (V,)
    mask: Tensor | None = None  # (B, K E)

    def latents(self, h: Tensor, stream: int) -> list[Tensor]:
        """g_k of one step."""
        g = (self.w_l.mv(h) + self.b_l).tanh()
        if self.mask is not None:
            g = g * self.mask[stream]
        size = self.words.shape[1]
        return [g[k * size : (k + 1) * size] for k in range(len(self.w_p))]

    def priors(self, h: Tensor) -> list[Tensor]:
        """π_k of one step."""
        exponentials = [row.dot(h).exp() for row in self.w_p]
        return [e / sum(exponentials) for e in exponentials]


def mixture_of_softmaxes(features: Tensor, p: Mixture) -> Tensor:
    """Log Σ_k π_k softmax(W g_k + b), (T, B, V), mixed as probabilities."""
    rows = [[torch.empty(0)] * features.shape[1] for _ in features]
    for t, step in enumerate(features):
        for b, h in enumerate(step):
            total = torch.zeros(len(p.words), dtype=h.dtype)
            for share, g in zip(p.priors(h), p.latents(h, b), strict=True):
                exponentials = torch.stack([z.exp() for z in logits(g, p.words, p.bias)])
                total = total + share * exponentials / exponentials.sum()
            rows[t][b] = total.log()
    return grid(rows)


def logits(x: Tensor, words: Tensor, bias: Tensor | None) -> list[Tensor]:
    """w_v · x + b_v of every word."""
    return [w.dot(x) + (0 if bias is None else bias[v]) for v, w in enumerate(words)]


def adversarial_change(x: Tensor, w: Tensor, epsilon: float) -> Tensor:
    """What is added to w: −ε‖w‖ x/‖x‖, a constant, and nothing unless cos(x, w) > 0."""
    x, w = x.detach(), w.detach()
    x_norm, w_norm = (x.dot(x) + 1e-8).sqrt(), (w.dot(w) + 1e-8).sqrt()
    if not x.dot(w) / x_norm / w_norm > 0:
        return torch.zeros_like(w)
    return -epsilon * w_norm * x / x_norm


def adversarial_log_prob(
    xs: list[Tensor], targets: list[int], words: Tensor, bias: Tensor | None, epsilon: float
) -> list[Tensor]:
    """Log p(target) of each x where the target's vector has moved."""
    changes = [adversarial_change(x, words[y], epsilon) for x, y in zip(xs, targets, strict=True)]
    found = []
    for x, y, change in zip(xs, targets, changes, strict=True):
        z = logits(x, words, bias)
        z[y] = z[y] + change.dot(x)
        found.append(z[y] - sum(one.exp() for one in z).log())
    return found


def adversarial_mixture(features: Tensor, targets: Tensor, p: Mixture, epsilon: float) -> Tensor:
    """Log p(target) (T, B) of a mixture whose experts all meet the moved vector."""
    steps, streams = targets.shape
    xs, repeated, priors = [], [], []
    for t in range(steps):
        for b in range(streams):
            xs += p.latents(features[t, b], b)
            repeated += [int(targets[t, b])] * len(p.w_p)
            priors += p.priors(features[t, b])
    each = adversarial_log_prob(xs, repeated, p.words, p.bias, epsilon)
    terms = torch.stack([share * one.exp() for share, one in zip(priors, each, strict=True)])
    return terms.view(steps, streams, -1).sum(-1).log()


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
