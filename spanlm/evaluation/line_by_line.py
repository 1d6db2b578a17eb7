"""A model that begins anew at each line of a running text, so that what is measured beside it need not.

A model trained on sentences knows nothing of the text before; a neural cache may. In one stream whose state is put
back wherever `<eos>` is read, the model gives each word the probability it has in its sentence, and the cache goes on
over the lines.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from spanlm.models.interfaces import LMState, Readout
from spanlm.models.next_word_model import NextWordModel


class LineByLine(NextWordModel):
    """Another model with its state put back before each `<eos>`; for one stream, and heads that read features alone.

    Args:
        model: it; not copied.
        eos_id: what opens a line.
    """

    def __init__(self, model: NextWordModel, eos_id: int) -> None:
        super().__init__()
        self.model, self.head, self.eos_id = model, model.head, eos_id
        self.vocabulary_size = model.vocabulary_size

    def init_state(self, batch_size: int) -> LMState:
        """State of a stream that has read nothing."""
        return self.model.init_state(batch_size)

    def forward(self, tokens: Tensor, state: LMState) -> tuple[Readout, LMState]:
        """Read tokens (T, 1), each line apart: the lines that end here side by side, the last one by itself."""
        words = tokens.squeeze(1)
        opens = (words == self.eos_id).nonzero().flatten().tolist()
        begins = opens if opens[:1] == [0] else [0, *opens]
        lines = [words[begin:end] for begin, end in zip(begins, [*begins[1:], len(words)], strict=True)]
        if begins == opens:
            state = self.model.init_state(1)
        features = []
        if len(lines) > 1:
            features.append(self._read(lines[0].unsqueeze(1), state)[0])
            features += self._whole(lines[1:-1])
            state = self.model.init_state(1)
        last, state = self._read(lines[-1].unsqueeze(1), state)
        return Readout(torch.cat([*features, last])), state

    def _whole(self, lines: list[Tensor]) -> list[Tensor]:
        """Read lines that are whole, each with an empty state; what pads them comes after them, and changes nothing."""
        if not lines:
            return []
        padded = pad_sequence(lines, padding_value=self.eos_id)
        features, _ = self._read(padded, self.model.init_state(len(lines)))
        return [features[: len(line), number : number + 1] for number, line in enumerate(lines)]

    def _read(self, tokens: Tensor, state: LMState) -> tuple[Tensor, LMState]:
        readout, state = self.model(tokens, state)
        assert readout.pointer is None and not readout.members, "heads that read features alone"
        return readout.features, state
