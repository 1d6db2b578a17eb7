"""The variational LSTM with zoneout as a plain loop, in the manner of `tests/reference.py`; noise is an argument."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tests.reference import LSTMLayer, grid


@dataclass
class LSTMNoise:
    """What one layer's step multiplies and keeps; lists by gate (input, forget, candidate, output) or by step."""

    x: list[Tensor]  # by gate, (B, E)
    h: list[Tensor]  # by gate, (B, k)
    kept_h: list[Tensor]  # by step, (B, k)
    kept_c: list[Tensor]  # by step, (B, k)


def variational_lstm(
    x: Tensor, h0: Tensor, c0: Tensor, layers: list[LSTMLayer], noise: list[LSTMNoise]
) -> tuple[Tensor, Tensor, Tensor]:
    """Gal & Ghahramani (2016) and zoneout (Krueger et al., 2017): x (T, B, E), h0 and c0 (layers, B, k).

    Each gate reads x and h through masks of its own; new values are mixed with the old ones, the output's tanh
    reads the new cell before it is mixed.
    """
    steps, streams = x.shape[:2]
    outputs = [[torch.empty(0)] * streams for _ in range(steps)]
    last_h = [[h0[n, b] for b in range(streams)] for n in range(len(layers))]
    last_c = [[c0[n, b] for b in range(streams)] for n in range(len(layers))]
    for b in range(streams):
        for t in range(steps):
            below = x[t, b]
            for n, layer in enumerate(layers):
                h, c = last_h[n][b], last_c[n][b]
                k = len(h)
                gates = []
                for gate in range(4):
                    rows = slice(gate * k, (gate + 1) * k)
                    read = layer.w_x[rows].mv(below * noise[n].x[gate][b])
                    gates.append(read + layer.w_h[rows].mv(h * noise[n].h[gate][b]) + layer.b[rows])
                new_c = gates[1].sigmoid() * c + gates[0].sigmoid() * gates[2].tanh()
                new_h = gates[3].sigmoid() * new_c.tanh()
                kept_h, kept_c = noise[n].kept_h[t][b], noise[n].kept_c[t][b]
                last_c[n][b] = kept_c * c + (1 - kept_c) * new_c
                last_h[n][b] = kept_h * h + (1 - kept_h) * new_h
                below = last_h[n][b]
            outputs[t][b] = below
    return grid(outputs), grid(last_h), grid(last_c)
