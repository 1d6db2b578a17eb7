"""How much of the past a span buffer's read holds (Li et al., 2020), beside what equal weights would read.

    python results/li2020/what_is_read.py RUN… > results/li2020/what-is-read.json

Over valid, where the buffer is full: the root mean square of the norms of h_t, of single steps h_t − h_{t−1}, of the
spans (or outputs) in the buffer, of the read ξ_t and of the plain mean of what is held; how flat the attention is (1:
equal weights); and the perplexity of the head's prediction from ξ_t, from the plain mean, and from a vector of zeros,
which is what the head says without any context.

The plain mean of m vectors that have nothing to do with each other is 1/√m as long as they are, the difference of two
√2 as long. Of a sliding grid, and a head whose mixture the buffer shares.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import spanlm
from spanlm.evaluation.protocol import STANDARD
from spanlm.models.interfaces import Readout
from spanlm.models.memories import SpanBufferConfig
from spanlm.store.provenance import provenance


@torch.no_grad()
def measured(run: str) -> dict[str, Any]:
    """Read valid once."""
    trained = spanlm.load(run, device="cpu")
    model, memory, corpus = trained.model, trained.config.model.memory, trained.corpus()
    assert isinstance(memory, SpanBufferConfig) and memory.grid == "sliding"
    assert getattr(trained.config.model.head, "buffer", "mixture") == "mixture"
    count, reach, stride = memory.buffer_size // memory.stride, memory.reach, memory.stride
    sums: dict[str, float] = {}
    steps = 0

    def add(name: str, values: Tensor) -> None:
        sums[name] = sums.get(name, 0.0) + values.double().sum().item()

    past = torch.zeros(0, trained.config.model.encoder.output_size)
    state = model.init_state(1)
    for segment in STANDARD.batcher(corpus, "valid").segments():
        readout, state = model(segment.inputs, state)
        begin, h = len(past), readout.features[:, 0]
        every = torch.cat([past, h])
        past = every[-(memory.buffer_size + reach + 1) :]
        full = [t for t in range(len(h)) if begin + t > memory.buffer_size + reach]
        if not full:
            continue
        ends = begin + torch.tensor(full)[:, None] - 1 - stride * torch.arange(count)
        values = every[ends] - (every[ends - reach] if reach else 0)
        weights = readout.attention[full, 0]
        weights = weights[:, -1 - stride * torch.arange(count)]
        reads = readout.buffer.features[full, 0]
        torch.testing.assert_close((weights[..., None] * values).sum(1), reads, rtol=1e-3, atol=1e-4)
        steps += len(full)
        add("h", h[full].square().sum(-1))
        add("step", (every[begin + torch.tensor(full)] - every[begin + torch.tensor(full) - 1]).square().sum(-1))
        add("held", values.square().sum(-1).mean(-1))
        add("read", reads.square().sum(-1))
        add("plain_mean", values.mean(1).square().sum(-1))
        add("flatness", torch.special.entr(weights).sum(-1) / math.log(count))
        targets = segment.targets[full]
        for name, x in (("read", reads), ("plain_mean", values.mean(1)), ("nothing", torch.zeros_like(reads))):
            add(f"nll_{name}", -model.head.own_log_prob(Readout(x.unsqueeze(1)), targets))
    means = {name: total / steps for name, total in sums.items()}
    return {
        "run": "/".join(Path(run).parts[-3:]),
        "holds": memory.description,
        "steps": steps,
        "norm": {name: math.sqrt(means[name]) for name in ("h", "step", "held", "read", "plain_mean")},
        "flatness": means["flatness"],
        "perplexity_from": {name: math.exp(means[f"nll_{name}"]) for name in ("read", "plain_mean", "nothing")},
    }


if __name__ == "__main__":
    record = {"models": [measured(run) for run in sys.argv[1:]], "started": provenance(torch.device("cpu"))}
    sys.stdout.write(json.dumps(record, indent=1) + "\n")
