"""How far a model of `transformers` is from itself, read in another way: for the tests, and for results/interop.py."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

BOUND = 2e-5
"""Log-probabilities that come from sums in another order differ by less."""


def farthest(one: Tensor, other: Tensor) -> float:
    return float((one.double() - other.double()).abs().max())


def cut(model: Any, ids: Tensor) -> float:
    """Of words (B, N) read in two parts, with the state between them."""
    first = model(ids[:, :4])
    second = model(ids[:, 4:], state=first.state)
    return farthest(torch.cat([first.logits, second.logits], 1), model(ids).logits)


def side_by_side(rows: Sequence[Tensor], padding: int, left: bool) -> tuple[Tensor, Tensor]:
    """Return rows of words, padded to one length, and their mask."""
    missing = [max(map(len, rows)) - len(row) for row in rows]
    gaps = [(gap, 0) if left else (0, gap) for gap in missing]
    words = [pad(row, gap, value=padding) for row, gap in zip(rows, gaps, strict=True)]
    masks = [pad(torch.ones_like(row), gap) for row, gap in zip(rows, gaps, strict=True)]
    return torch.stack(words), torch.stack(masks)


def padded(model: Any, ids: Tensor, left: bool) -> float:
    """Of rows of three lengths read side by side, and of the word after them."""
    rows = [row[: len(row) - 3 * number] for number, row in enumerate(ids)]
    beside, mask = side_by_side(rows, model.config.vocab_size - 1, left)
    found = model(beside, attention_mask=mask)
    after = model(ids[:, :1], state=found.state).logits
    differences = []
    for number, row in enumerate(rows):
        alone = model(row[None])
        differences.append(farthest(found.logits[number, mask[number].bool()], alone.logits[0]))
        differences.append(farthest(after[number], model(ids[number, None, :1], state=alone.state).logits[0]))
    return max(differences)


def same_beams(model: Any, ids: Tensor) -> bool:
    """Whether beams that go on from their states are those that read all words anew."""
    how = {"max_new_tokens": 6, "num_beams": 3, "eos_token_id": None}
    return torch.equal(model.generate(ids, **how), model.generate(ids, use_cache=False, **how))
