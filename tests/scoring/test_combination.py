"""Each model, all as one and the oracle bound in one pass: each is what it would be by itself, in float64."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from spanlm.models.ensemble import Ensemble
from spanlm.models.language_model import LanguageModel
from spanlm.scoring.combination import em_weights, evaluate_members, log_p_of_each
from spanlm.scoring.options import Context
from spanlm.scoring.perplexity import evaluate
from spanlm.scoring.protocol import Protocol
from tests.scoring import reference
from tests.scoring.reference import CONTEXTS, CORPUS, TEXT, VOCABULARY, small_model

NAMES = ("kvp", "ngram", "none")
WEIGHTS = (0.5, 0.3, 0.2)


def models() -> list[LanguageModel]:
    return [small_model(name) for name in NAMES]


def ensemble(weights: Any = WEIGHTS) -> Ensemble:
    return Ensemble(models(), weights).eval()


def target_log_p(state: str) -> Tensor:
    """(M, N): log p of every token of TEXT under each model, one word at a time."""
    found = [[-row.nll for row in reference.rows(model, VOCABULARY, TEXT, state)] for model in models()]
    return torch.tensor(found, dtype=torch.float64)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("predict_first", [True, False])
def test_each_is_what_it_is_alone(context: Context, predict_first: bool) -> None:
    whole = ensemble()
    protocol = Protocol(context=context, predict_first=predict_first)
    result = evaluate_members(whole, CORPUS, protocol=protocol)
    for found, model in zip((*result.members, result.ensemble), (*models(), whole), strict=True):
        mine, theirs = vars(found), vars(evaluate(model, CORPUS, protocol=protocol))
        for name in ("tokens", "unk_tokens", "oov_tokens", "protocol", "corpus", "split"):
            assert mine[name] == theirs[name]
        for name in ("nll", "perplexity_without_unk"):
            assert mine[name] == pytest.approx(theirs[name], rel=1e-12)
        counts = [each.salton2017 for each in (found, evaluate(model, CORPUS, protocol=protocol)) if each.salton2017]
        assert len(counts) == (2 if context == "line" else 0) and len({round(count.nll, 9) for count in counts}) < 2
    assert (result.combination, result.weights) == ("linear", WEIGHTS)


@pytest.mark.parametrize("context", CONTEXTS)
def test_the_ensemble_and_the_bound_are_sums_of_a_plain_loop(context: Context) -> None:
    log_p = target_log_p(context)
    result = evaluate_members(ensemble(), CORPUS, protocol=Protocol(context=context))
    mixed = torch.tensor(WEIGHTS, dtype=torch.float64) @ log_p.exp()
    assert result.ensemble.nll == pytest.approx(float(-mixed.log().sum()), rel=1e-10)
    best = float(-log_p.amax(0).sum())
    assert result.oracle_bound.nll == pytest.approx(best, rel=1e-10)
    assert result.oracle_bound.tokens == log_p.shape[1] == result.ensemble.tokens
    assert result.oracle_bound.bound == pytest.approx(math.exp(best / log_p.shape[1]))


def drawn(models: int, tokens: int, seed: int) -> Tensor:
    return torch.tensor(np.random.default_rng(seed).normal(-3, 1.5, (models, tokens)))


@pytest.mark.parametrize("seed", range(5))
def test_weights_of_two_are_the_best_of_a_fine_grid(seed: int) -> None:
    log_p = drawn(2, 50, seed)
    shares = torch.linspace(0, 1, 10_001, dtype=torch.float64)
    values = (torch.stack([shares, 1 - shares], 1) @ log_p.exp()).log().mean(1)
    found = em_weights(log_p, tolerance=1e-12, steps=100_000)
    assert found.weights[0] == pytest.approx(float(shares[values.argmax()]), abs=2e-4)
    assert found.log_likelihoods[-1] >= float(values.max()) - 1e-12


def test_the_gap_bounds_what_other_weights_could_add() -> None:
    log_p = drawn(3, 100, 1)
    best = em_weights(log_p, tolerance=1e-13, steps=100_000)
    for steps in (0, 1, 3, 10):
        found = em_weights(log_p, tolerance=0.0, steps=steps)
        assert found.steps == steps
        missing = best.log_likelihoods[-1] - found.log_likelihoods[-1]
        assert 0 <= missing <= found.gap
    loose = em_weights(log_p, tolerance=1e-3)
    assert best.log_likelihoods[-1] - loose.log_likelihoods[-1] <= loose.gap <= 1e-3
    assert loose.steps < em_weights(log_p, tolerance=1e-6).steps


def test_probabilities_below_the_smallest_number_are_weighed_right() -> None:
    log_p = drawn(2, 60, 4)
    moved = log_p - torch.linspace(0, 5000, 60, dtype=torch.float64)
    assert em_weights(moved).weights == pytest.approx(em_weights(log_p).weights)


@pytest.mark.parametrize("context", CONTEXTS)
def test_tuned_weights_are_those_of_a_plain_loop_over_the_text(context: Context) -> None:
    """Padding and <eos> that open streams are no tokens; the weights of the ensemble do not matter."""
    expected = em_weights(target_log_p(context))
    for size in (1,) if context == "carry" else (1, 2):  # two streams are another context
        whole, protocol = ensemble(weights=(0.0, 1.0, 0.0)), Protocol(context=context, batch_size=size)
        found = em_weights(log_p_of_each(whole, whole.head.each, CORPUS, "test", protocol))
        assert found.weights == pytest.approx(expected.weights, abs=1e-9)
        assert found.log_likelihoods[-1] == pytest.approx(expected.log_likelihoods[-1], rel=1e-12)
