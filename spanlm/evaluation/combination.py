"""Several models on one text: each alone, the ensemble, and the oracle bound of any choice among them.

The text is read once: each member scores a segment before the next one is read.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from spanlm.data.batching import Batcher
from spanlm.data.corpora import Corpus
from spanlm.evaluation.perplexity import Evaluation, count_split, without_notes
from spanlm.evaluation.protocol import STANDARD, Protocol
from spanlm.evaluation.scoring import Tally, score
from spanlm.models.ensemble import Ensemble

TOLERANCE = 1e-6
"""Nats a token that tuned weights may at most be short of the best ones."""

STEPS = 1000
"""Steps that tuning takes, at most."""


@dataclass(frozen=True)
class OracleBound:
    """The NLL if the best member at each token is chosen.

    A bound and not a model's perplexity: the choice is made after the token is seen, so these probabilities sum to
    more than 1 over the vocabulary. No linear mixture of the members does better, whatever its weights at each token;
    a normalised product can. `nll` is Σ_t −max_m log p_m(w_t) in nats, and `bound` is exp(nll / tokens).
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
        """Return plain values."""
        return asdict(self, dict_factory=without_notes)


@dataclass(frozen=True)
class TunedWeights:
    """The weights of the mixture that fit a text best; no others gain more than `gap` nats a token.

    `log_likelihoods` are mean log p of a token, nats, before each step and after the last; they never fall.
    """

    weights: tuple[float, ...]
    log_likelihoods: tuple[float, ...]
    gap: float

    @property
    def steps(self) -> int:
        """How many steps were taken."""
        return len(self.log_likelihoods) - 1


def evaluate_members(
    ensemble: Ensemble, corpus: Corpus, split: str = "test", protocol: Protocol = STANDARD
) -> EnsembleEvaluation:
    """Measure each member, the ensemble and the oracle bound in one pass; InputError: the corpus has no such split."""

    def read(batcher: Batcher) -> list[Tally]:
        """Sum over the text for each member, for all as one, and for the best member of each token."""
        totals = [Tally()] * (len(ensemble.members) + 2)
        for scored in score(ensemble, batcher.segments(), protocol, ask=ensemble.head.each_and_all):
            every = [*scored.log_p, scored.log_p[:-1].amax(0)]
            totals = [
                total.plus(replace(scored, log_p=log_p), corpus.vocabulary)
                for total, log_p in zip(totals, every, strict=True)
            ]
        return totals

    *members, together, oracle = count_split(read, corpus, split, protocol)
    return EnsembleEvaluation(
        combination="linear",
        weights=ensemble.head.weights,
        members=tuple(members),
        ensemble=together,
        oracle_bound=OracleBound(oracle.tokens, oracle.nll, oracle.nll_per_token, bound=oracle.perplexity),
    )


def tune_weights(
    ensemble: Ensemble, corpus: Corpus, split: str = "valid", protocol: Protocol = STANDARD
) -> TunedWeights:
    """Find the weights of the linear mixture that make a split most probable, which is never the one to report.

    The text is read once, lines as the members know them; one float64 number a token and member is held.

    Raises:
        InputError: the corpus has no such split.
    """
    batcher = protocol.batcher(corpus, split)
    scored = score(ensemble, batcher.segments(), protocol, ask=ensemble.head.each)
    return em_weights(torch.cat([s.log_p[:, s.segment.mask].double().cpu() for s in scored], dim=1))


def em_weights(log_p: Tensor, *, tolerance: float = TOLERANCE, steps: int = STEPS) -> TunedWeights:
    r"""Maximise the likelihood of a mixture over its weights by expectation maximisation (Dempster et al., 1977).

        w_m ← w_m g_m,    g_m = 1/N Σ_n p_mn / Σ_k w_k p_kn

    A step never lowers the likelihood, which is concave in w. By Jensen's inequality no weights are better by more
    than max_m log g_m nats a token; the search ends when that is below `tolerance`.

    `log_p` has log p_m of token n, (M, N), float64. The first weights are equal; there are at most so many `steps`.
    """
    count = len(log_p)
    weights = log_p.new_full((count,), 1 / count)
    # relative to the best member of each token: no probability is lost to rounding
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
