"""How the time of a pass shrinks with its streams on one core of a processor: `python -m results.streams` measures.

speed.jsonl has the processor's seconds, the least of a few rounds, of a forward and a backward pass of
the LSTMs and the tied softmax of AWD-LSTM (24.2 million parameters) over 70 steps. Seconds of the processor, not of the
clock, so that a busy machine disturbs them little; it disturbs caches all the same.
"""

import time
from itertools import pairwise

import torch
from torch import nn

from results.record import save

STREAMS, STEPS, ROUNDS, WORDS, SIZES = (1, 2, 5, 10, 20), 70, 4, 10_000, (400, 1150, 1150, 400)


def model() -> nn.ModuleDict:
    """Return the layers; the softmax shares the weights of the embedding."""
    layers = nn.ModuleList(nn.LSTM(*sizes) for sizes in pairwise(SIZES))
    return nn.ModuleDict({"words": nn.Embedding(WORDS, SIZES[0]), "layers": layers})


def seconds(parts: nn.ModuleDict, streams: int) -> float:
    """Return the processor's time of both passes."""
    words = torch.randint(WORDS, (STEPS, streams))
    began = time.process_time()
    hidden, layers = parts["words"](words), parts["layers"]
    assert isinstance(layers, nn.ModuleList)
    for layer in layers:
        hidden, _ = layer(hidden)
    scores = hidden @ parts["words"].weight.T
    torch.autograd.backward(nn.functional.cross_entropy(scores.flatten(0, 1), words.flatten()))
    return time.process_time() - began


def main() -> None:
    """Measure, and write the record."""
    torch.set_num_threads(1)
    parts = model()
    seconds(parts, 1)
    found = [[seconds(parts, streams) for streams in STREAMS] for _ in range(ROUNDS)]
    what = "processor seconds of a forward and backward pass of 70 steps, one thread, the least of the rounds"
    times = {str(n): round(min(each), 4) for n, each in zip(STREAMS, zip(*found, strict=True), strict=True)}
    save("speed", "streams", what, {"streams": {"torch": torch.__version__, "rounds": ROUNDS, "seconds": times}})


if __name__ == "__main__":
    main()
