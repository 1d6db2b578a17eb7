"""What a model is given at a time: a piece of every stream."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spanlm.data.tokens import TokenFile

Positions = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of each stream.

    Attributes:
        inputs: What the model reads, int64 (T, B).
        targets: The word that follows each input, int64 (T, B).
        mask: False where the target is padding, bool (T, B).
        reset: The streams that begin anew with this segment, bool (B,).
    """

    inputs: Tensor
    targets: Tensor
    mask: Tensor
    reset: Tensor


class SegmentSource:
    """Reads segments from the ids of a split, all streams at once."""

    def __init__(self, tokens: TokenFile, eos_id: int) -> None:
        # a plain view: indexing the memory map class itself takes twice as long
        self._ids = np.asarray(tokens.ids)
        self._eos_id = eos_id

    def __len__(self) -> int:
        return len(self._ids)

    def segment(
        self, begin: Positions, end: Positions, opening: Positions, steps: int, reset: NDArray[np.bool_]
    ) -> Segment:
        """Read a segment; positions are those of targets in the split.

        Args:
            begin: Where each stream goes on, int64 (B,).
            end: Where it ends; what lies beyond is padding.
            opening: Where it opened; the input there is `<eos>`, elsewhere the token before the target.
            steps: T.
            reset: The streams that begin anew, bool (B,).
        """
        at = begin + np.arange(steps)[:, None]
        mask = at < end
        # one read gives both: an input is the target before it
        ids = self._ids[np.clip(np.concatenate([begin[None] - 1, at]), 0, len(self) - 1)]
        targets = np.where(mask, ids[1:], self._eos_id)
        inputs = np.where(mask & (at != opening), ids[:-1], self._eos_id)
        return Segment(
            torch.from_numpy(inputs.astype(np.int64)),
            torch.from_numpy(targets.astype(np.int64)),
            torch.from_numpy(mask),
            torch.from_numpy(reset.copy()),
        )
