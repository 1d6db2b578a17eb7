"""Lesions of memory: predictions of a trained model without its attention, or with a part of it.

    uniform     equal weights on the slots that exist
    none        at every step the memory of a stream that has read nothing
    window=K    the nearest K slots alone, with a softmax over them

Each attention weight belongs to a slot: an output, a word or, in a span buffer, a span. If a memory's window contains
the current word, `none` leaves that word, and it is the first of K. A pointer's sentinel is not a slot, and keeps its
share under `uniform`.

`uniform` sets all scores to zero; `window=K` loads the same weights with a narrower window; `none` reads every step as
a new stream.
"""

from __future__ import annotations

import re
from dataclasses import replace

from torch import Tensor

from spanlm.errors import InputError
from spanlm.models.interfaces import Memory, Readout, Tensors
from spanlm.models.language_model import LanguageModel, to_be_filled

_WINDOW = re.compile(r"window=([1-9]\d*)", re.ASCII)


def require_lesion(lesion: str, field: str = "attention") -> int | None:
    """Return the K of `window=K`, or None.

    Raises:
        InputError: neither uniform nor none nor window=K with K at least 1.
    """
    if lesion in ("uniform", "none"):
        return None
    if match := _WINDOW.fullmatch(str(lesion)):
        return int(match[1])
    raise InputError(field, lesion, "must be uniform, none or window=K, with a number K of slots, at least 1")


def described_lesion(lesion: str) -> str:
    """Describe the attention under a lesion in a few words."""
    slots = require_lesion(lesion)
    if slots is not None:
        return "the nearest slot alone" if slots == 1 else f"the nearest {slots} slots alone"
    return "equal weights on all slots" if lesion == "uniform" else "nothing is remembered"


def lesioned(model: LanguageModel, lesion: str, title: str) -> LanguageModel:
    """Return a trained model with a lesion; `title` names it in errors.

    Raises:
        InputError: `lesion` is unknown, the memory does not attend, or its window is narrower than K.
    """
    config, nearest = model.config, require_lesion(lesion)
    slots = config.memory.slots
    if slots == 0:
        attends = "Name a run whose memory does, as that of model.memory.kind=key_value"
        raise InputError("attention", lesion, f"{title}: does not attend", f"{attends}.")
    if nearest is not None and slots is not None and nearest > slots:
        raise InputError("attention", lesion, f"{title}: has {slots} slots", f"Use window={slots} or fewer.")
    # for a stream that has read nothing, all windows hold the same: take the narrowest
    fewer = 1 if lesion == "none" else nearest
    memory = config.memory if fewer is None else config.memory.nearest(fewer)
    changed = to_be_filled(replace(config, memory=memory), model.vocabulary_size).to(next(model.parameters()))
    rows = {name: len(x) for name, x in changed.state_dict().items()}
    # weights with a row per lag have the oldest lag first: keep the last rows
    changed.load_state_dict({name: x[len(x) - rows[name] :] for name, x in model.state_dict().items()})
    if lesion == "uniform":
        changed.memory.equalise()
    if lesion == "none":
        changed.memory = Forgetful(changed.memory)
    return changed.eval()


class Forgetful(Memory):
    """A memory that has read nothing before each step; no state."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.memory = memory
        self.readout_size: int = memory.readout_size
        self.gate_temperature: float | None = memory.gate_temperature

    def init_state(self, batch_size: int) -> Tensors:
        return {}

    def forward(self, h: Tensor, tokens: Tensor, state: Tensors) -> tuple[Readout, Tensors]:
        """Look back from every step of h (T, B, H) as from the first step of one of T · B streams."""
        steps, streams = tokens.shape
        fresh = self.memory.init_state(steps * streams)
        readout, _ = self.memory(h.flatten(0, 1).unsqueeze(0), tokens.reshape(1, -1), fresh)

        def in_steps(x: Tensor) -> Tensor:
            return x.reshape(steps, streams, *x.shape[2:])

        attention = readout.attention
        if attention is not None:
            attention = replace(attention, given=in_steps(attention.weights))
        return replace(readout.map(in_steps), attention=attention), {}
