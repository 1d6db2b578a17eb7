"""Evaluate several models on one text: each alone, the ensemble, and the oracle bound of any choice among them.

The text is read once: all members score a segment before the next segment is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from spanlm.data.corpora import Corpus
from spanlm.models.ensemble import Ensemble
from spanlm.models.interfaces import NextWordModel, Readout
from spanlm.scoring.perplexity import Evaluation, measure, without_notes
from spanlm.scoring.protocol import STANDARD, Protocol
from spanlm.scoring.stream import Reading, read

TOLERANCE = 1e-6
"""Tuned weights are at most this many nats per token short of the optimum."""

STEPS = 1000
"""Steps of tuning, at most."""


@dataclass(frozen=True)
class OracleBound:
    """The NLL of choosing the best member at each token.

    This is a bound, not a model's perplexity: the choice is made after the token is seen, so these probabilities sum
    to more than 1 over the vocabulary. No linear mixture of the members does better, even with other weights at each
    token; a normalised product can. `nll` is Σ_t −max_m log p_m(w_t) in nats, and `bound` is exp(nll / tokens).
    """

    tokens: int
    nll: float
    nll_per_token: float
    bound: float


@dataclass(frozen=True)
class EnsembleEvaluation:
    """The evaluation of several models on one split: each alone, the ensemble, and the oracle bound."""

    combination: str
    weights: tuple[float, ...]
    members: tuple[Evaluation, ...]
    ensemble: Evaluation
    oracle_bound: OracleBound

    def to_json(self) -> dict[str, Any]:
        return asdict(self, dict_factory=without_notes)


@dataclass(frozen=True)
class TunedWeights:
    """The mixture weights that fit a text best; no other weights gain more than `gap` nats per token.

    `log_likelihoods` are the mean log p of a token, nats, before each step and after the last; they never decrease.
    """

    weights: tuple[float, ...]
    log_likelihoods: tuple[float, ...]
    gap: float

    @property
    def steps(self) -> int:
        return len(self.log_likelihoods) - 1


def evaluate_members(
    ensemble: Ensemble, corpus: Corpus, split: str = "test", protocol: Protocol = STANDARD
) -> EnsembleEvaluation:
    """Measure each member, the ensemble and the oracle bound in one pass; InputError: the corpus has no such split."""
    names = [f"member {number}" for number in range(len(ensemble.members))]

    def every(reading: Reading) -> Mapping[str, Tensor]:
        """Answer log p of each member, of the ensemble, and of the best member at each token."""
        log_p = ensemble.head.each_and_all(reading.readout, reading.segment.targets)
        columns = dict(zip([*names, "ensemble"], map(reading.flat, log_p), strict=True))
        return {**columns, "oracle": reading.flat(log_p[:-1].amax(0))}

    columns = dict.fromkeys([*names, "ensemble", "oracle"], "")
    *members, together, oracle = measure(
        lambda segments: read(ensemble, segments, protocol, every), corpus, split, protocol, columns
    )
    return EnsembleEvaluation(
        combination="linear",
        weights=ensemble.head.weights,
        members=tuple(members),
        ensemble=together,
        oracle_bound=OracleBound(oracle.tokens, oracle.nll, oracle.nll_per_token, bound=oracle.perplexity),
    )


def log_p_of_each(
    model: NextWordModel,
    log_p_of: Callable[[Readout, Tensor], Tensor],
    corpus: Corpus,
    split: str,
    protocol: Protocol = STANDARD,
) -> Tensor:
    """Return log p of a split's tokens by each part of a mixture, (M, N) float64; `log_p_of` returns (M, T, B)."""

    def ask(reading: Reading) -> Mapping[str, Tensor]:
        log_p = log_p_of(reading.readout, reading.segment.targets)
        return {"each": reading.flat(log_p.movedim(0, -1))}

    scored = read(model, protocol.batcher(corpus, split).segments(), protocol, ask)
    return torch.cat([block.answers["each"].double().cpu() for block in scored]).T.contiguous()


def em_weights(log_p: Tensor, *, tolerance: float = TOLERANCE, steps: int = STEPS) -> TunedWeights:
    r"""Maximise the likelihood of a mixture over its weights by expectation maximisation (Dempster et al., 1977).

        w_m ← w_m g_m,    g_m = 1/N Σ_n p_mn / Σ_k w_k p_kn

    The likelihood is concave in w, and no step lowers it. By Jensen's inequality no weights are better by more than
    max_m log g_m nats per token; the search ends when this is below `tolerance`, or after `steps` steps.

    `log_p` has log p_m of token n, (M, N), float64. The search starts with equal weights.
    """
    count = len(log_p)
    weights = log_p.new_full((count,), 1 / count)
    # divide by the best member's p, so that no probability underflows
    best = log_p.amax(0)
    likely, base, history = (log_p - best).exp(), float(best.mean()), []
    while True:
        mixture = weights @ likely
        history.append(base + float(mixture.log().mean()))
        gain = likely @ mixture.reciprocal() / len(mixture)
        gap = math.log(float(gain.max()))
        if gap <= tolerance or len(history) > steps:
            return TunedWeights(tuple(weights.tolist()), tuple(history), max(gap, 0.0))
        weights = weights * gain
        weights /= weights.sum()
