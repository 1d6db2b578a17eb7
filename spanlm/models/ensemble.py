"""Several language models as one.

With the models' distributions p_m over the next word and weights w_m >= 0, Σ_m w_m = 1, the ensemble averages
probabilities, in log space:

    p(v) = Σ_m w_m p_m(v)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from spanlm.errors import InputError, require
from spanlm.models.interfaces import Head, LMState, NextWordModel, Readout, Scores


class Ensemble(NextWordModel):
    """Several models that predict together. The state has the members' tensors: `name` of member m is `m.name`.

    The members are not copied. Weights are scaled to sum to 1; None: equal weights.

    Raises:
        InputError: no member, vocabularies of different sizes, or weights out of range.
    """

    head: EnsembleHead

    def __init__(self, members: Iterable[NextWordModel], weights: Sequence[float] | None = None) -> None:
        super().__init__()
        self.members: nn.ModuleList = nn.ModuleList(members)
        models = list(self._members())
        require(bool(models), "members", len(models), "at least 1 model")
        sizes = {model.vocabulary_size for model in models}
        if len(sizes) > 1:
            raise InputError(
                "members", limit=f"their vocabularies have {' and '.join(map(str, sorted(sizes)))} words, not one"
            )
        self.vocabulary_size: int = models[0].vocabulary_size
        self.head = EnsembleHead([model.head for model in models], normalised(weights, len(models)))

    def _members(self) -> Iterator[NextWordModel]:
        for member in self.members:
            assert isinstance(member, NextWordModel)
            yield member

    def init_state(self, batch_size: int) -> LMState:
        return _joined(member.init_state(batch_size) for member in self._members())

    def forward(self, tokens: Tensor, state: LMState) -> tuple[Readout, LMState]:
        read = [member(tokens, _part(state, number)) for number, member in enumerate(self._members())]
        readouts, states = zip(*read, strict=True)
        features = torch.cat([readout.features for readout in readouts], dim=-1)
        return EnsembleReadout(features, members=readouts), _joined(states)


@dataclass(frozen=True)
class EnsembleReadout(Readout):
    """The readouts of the `members`; `features` concatenates their features."""

    members: tuple[Readout, ...] = ()

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        return replace(super().map(function), members=tuple(member.map(function) for member in self.members))


class EnsembleHead(Head):
    """Mixes the distributions of the members' heads; `weights` sum to 1."""

    def __init__(self, heads: Sequence[Head], weights: Sequence[float]) -> None:
        super().__init__()
        self._heads = tuple(heads)  # a tuple, not submodules: the heads belong to their models
        self.weights: tuple[float, ...] = tuple(weights)

    def score(self, readout: Readout, targets: Tensor) -> Scores:
        return Scores(self.each_and_all(readout, targets)[-1])

    def log_probs(self, readout: Readout) -> Tensor:
        heads = zip(self._heads, self.weights, _members(readout), strict=True)
        # one at a time, so that two distributions (T, B, V) are in memory, not M
        terms = ((head.log_probs(member), weight) for head, weight, member in heads if weight > 0)
        return functools.reduce(torch.logaddexp, (log_p + math.log(weight) for log_p, weight in terms))

    def each(self, readout: Readout, targets: Tensor) -> Tensor:
        """Every member's log p(target), (M, T, B)."""
        pairs = zip(self._heads, _members(readout), strict=True)
        return torch.stack([head.log_prob(member, targets) for head, member in pairs])

    def each_and_all(self, readout: Readout, targets: Tensor) -> Tensor:
        """Every member's log p(target) and, last, the ensemble's, (M + 1, T, B)."""
        log_ps = self.each(readout, targets)
        weighted = [log_p + math.log(w) for log_p, w in zip(log_ps, self.weights, strict=True) if w > 0]
        return torch.cat([log_ps, torch.stack(weighted).logsumexp(0, keepdim=True)])


def normalised(weights: Sequence[float] | None, count: int) -> tuple[float, ...]:
    """Scale `count` weights to sum to 1; None: equal weights. InputError: another number, or a weight out of range."""
    if weights is None:
        return (1 / count,) * count
    try:
        weights = [math.fsum([weight]) for weight in weights]  # unlike float, fsum refuses strings
    except TypeError:
        raise InputError("weights", weights, f"must be {count} numbers") from None
    shown = " ".join(f"{weight:g}" for weight in weights)
    require(len(weights) == count, "weights", shown, f"as many as models, {count}")
    require(all(0 <= weight <= 1e300 for weight in weights), "weights", shown, "at least 0, and at most 1e300")
    total = math.fsum(weights)
    require(total > 0, "weights", shown, "above 0 in sum")
    return tuple(weight / total for weight in weights)


def _joined(states: Iterable[LMState]) -> LMState:
    """Name tensor `room.name` of member m `room.m.name`."""
    joined: dict[str, Tensor] = {}
    for m, state in enumerate(states):
        joined |= {key.replace(".", f".{m}.", 1): x for key, x in state.flat().items()}
    return LMState.from_flat(joined)


def _part(state: LMState, number: int) -> LMState:
    flat = state.flat().items()
    return LMState.from_flat({k.replace(f".{number}.", ".", 1): x for k, x in flat if k.split(".")[1] == f"{number}"})


def _members(readout: Readout) -> tuple[Readout, ...]:
    assert isinstance(readout, EnsembleReadout)  # an ensemble's head reads only its ensemble's readouts
    return readout.members
