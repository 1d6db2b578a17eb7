"""Streams of different lengths, read side by side: each one is read as if it were alone, and nothing is padded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

import torch
from torch import Tensor

from spanlm.models.interfaces import NextWordModel
from spanlm.models.state import LMState

TOKENS = 4096
"""Read at a time, over all streams; any number gives the same result, up to rounding."""

Ids = Sequence[int]


def read(model: NextWordModel, inputs: Sequence[Ids], state: LMState) -> LMState:
    """Read each stream to its end; nothing is predicted.

    Args:
        model: in the mode it is to read in.
        inputs: the words of each stream; they may differ in number, and a stream may have none.
        state: of the streams before.

    Returns:
        The state of each stream after its own last word.
    """
    return _run(model, inputs, None, state)[1]


def score(
    model: NextWordModel, inputs: Sequence[Ids], targets: Sequence[Ids], state: LMState
) -> tuple[Tensor, LMState]:
    """Read each stream to its end, and score what follows each word.

    Args:
        model: in the mode it is to read in.
        inputs: the words of each stream; they may differ in number, and a stream may have none.
        targets: what follows them: as many for each stream.
        state: of the streams before.

    Returns:
        log p(target), natural, float64 (T, B) with T the longest stream and 0 after the end of a shorter one; and the
        state of each stream after its own last word.
    """
    return _run(model, inputs, targets, state)


def _run(
    model: NextWordModel, inputs: Sequence[Ids], targets: Sequence[Ids] | None, state: LMState
) -> tuple[Tensor, LMState]:
    device = model.device
    lengths = torch.tensor([len(stream) for stream in inputs])
    # from the longest to the shortest: those that go on are always the first ones
    order = lengths.argsort(descending=True, stable=True)
    words = _columns(inputs, order, device)
    wanted = None if targets is None else _columns(targets, order, device)
    log_p = torch.zeros(words.shape, dtype=torch.float64, device=device)
    going, ended, everyone = state.select(order.to(device)), [], torch.arange(len(inputs), device=device)
    held = len(inputs)
    for begin, end, streams in _pieces(lengths[order].tolist()):
        if streams < held:
            ended.append(going.select(everyone[streams:held]))
            going, held = going.select(everyone[:streams]), streams
        readout, going = model(words[begin:end, :streams], going)
        if wanted is not None:
            log_p[begin:end, :streams] = model.head.log_prob(readout, wanted[begin:end, :streams]).double()
    back = order.argsort().to(device)
    return log_p.index_select(1, back), LMState.beside([going, *reversed(ended)]).select(back)


def _columns(streams: Sequence[Ids], order: Tensor, device: torch.device) -> Tensor:
    """Lay the streams out as columns (T, B); what fills up the shorter ones is never read."""
    rows = list(zip_longest(*(streams[stream] for stream in order.tolist()), fillvalue=0))
    return torch.tensor(rows, dtype=torch.long).view(len(rows), len(streams)).to(device)


def _pieces(lengths: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Cut streams, the longest first, into pieces: the steps from begin to end of the first so many streams."""
    begin, streams = 0, len(lengths)
    while streams:
        if lengths[streams - 1] <= begin:
            streams -= 1
            continue
        end = min(lengths[streams - 1], begin + max(1, TOKENS // streams))
        yield begin, end, streams
        begin = end
