"""Dynamic evaluation of a span buffer that learns from the loss of its training: against the written-out loss."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from spanlm.errors import InputError
from spanlm.evaluation import dynamic as dynamic_module
from spanlm.evaluation.dynamic import tuning as tuning_module
from spanlm.evaluation.dynamic.tuning import dynamic_grid, tune_dynamic
from spanlm.evaluation.dynamic.update import require_loss
from spanlm.models.ensemble import Ensemble
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import SpanBufferConfig
from spanlm.models.memories.span_buffer import GateConfig, RewardConfig
from spanlm.models.state import LMState
from tests import reference_dynamic
from tests import reference_span_buffer as twin
from tests.evaluation import reference
from tests.evaluation.test_dynamic import CORPUS, USUAL, evaluated, statistics_of, stream, weights
from tests.evaluation.test_parts import HEADS, span_model
from tests.models.test_span_buffer_twin import gate

MEMORY = SpanBufferConfig(
    buffer_size=6,
    span_length=3,
    dropout=0.3,  # there is none in evaluation
    gate=GateConfig(training_temperature=5.0, evaluation_temperature=0.7),
    reward=RewardConfig(weight=0.8, power=1.5),
)
TRAINING = replace(USUAL, loss="training")


def training_losses(model: LanguageModel, inputs: Any, targets: Any, state: LMState) -> list[Tensor]:
    """Eq. 11 at every target, from both parts' whole distributions."""
    read = torch.tensor([list(inputs)]).T
    readout, _ = model(read, state)
    buffer, memory = readout.mixture, model.memory.config  # type: ignore[union-attr]
    assert buffer is not None and isinstance(memory, SpanBufferConfig)
    p, q = (model.head.own_log_probs(x).exp() for x in (readout.features, buffer.features))
    losses = twin.losses(p, q, buffer.gate, buffer.filled, torch.tensor([list(targets)]).T, gate(memory))
    return list(losses[:, 0])


@pytest.mark.parametrize("head", HEADS)
def test_the_weights_learn_from_the_loss_of_training(head: str) -> None:
    """What counts is the likelihood at the temperature of evaluation, as when they learn from that."""
    model = span_model(head, MEMORY)
    (_, sums, n), before = statistics_of(model), weights(model)
    how: dict[str, Any] = {"rate": USUAL.rate, "decay": USUAL.decay, "epsilon": USUAL.epsilon}
    rows = reference_dynamic.adapted(copy.deepcopy(model), stream("documents"), sums, n, learnt=training_losses, **how)
    found, usual = (evaluated(model, config, kind="documents") for config in (TRAINING, USUAL))
    assert found.nll == pytest.approx(sum(rows), rel=1e-9)
    assert found.nll != pytest.approx(usual.nll, rel=1e-5)
    assert found.without_dynamic is not None and usual.without_dynamic is not None
    assert found.without_dynamic.nll == usual.without_dynamic.nll
    assert "learning from the loss of training" in found.protocol and "loss of training" not in usual.protocol
    assert all(torch.equal(a, b) for a, b in zip(weights(model), before, strict=True))


def test_the_same_temperature_and_no_reward_are_the_likelihood() -> None:
    same = replace(
        MEMORY, gate=GateConfig(training_temperature=0.7, evaluation_temperature=0.7), reward=RewardConfig(weight=0.0)
    )
    model = span_model(memory=same)
    found, usual = (evaluated(model, config) for config in (TRAINING, USUAL))
    assert found.nll == pytest.approx(usual.nll, rel=1e-12)


def test_a_grid_learns_from_what_it_is_told() -> None:
    model = span_model(memory=MEMORY)
    statistics = statistics_of(model)[0]
    found = {}
    for loss in ("likelihood", "training"):
        grid = dynamic_grid([USUAL.rate], [USUAL.decay], USUAL.epsilon, loss=loss)  # type: ignore[arg-type]
        tuning = tune_dynamic(model, CORPUS, "test", statistics, grid)
        assert tuning.best.loss == loss
        found[loss] = tuning.perplexity
    assert found["training"] == pytest.approx(evaluated(model, TRAINING).perplexity)
    assert found["training"] != pytest.approx(found["likelihood"], rel=1e-5)


def test_without_a_gate_it_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, reads in ((dynamic_module, "evaluate"), (tuning_module, "tally")):
        monkeypatch.setattr(module, reads, lambda *_, **__: pytest.fail("minutes were spent"))
    model = reference.small_model()
    message = r"dynamic\.loss=training: must be likelihood without a span buffer"
    with pytest.raises(InputError, match=message):
        evaluated(model, TRAINING)
    with pytest.raises(InputError, match=message):
        tune_dynamic(model, CORPUS, "test", statistics_of(model)[0], [TRAINING])


def test_an_ensemble_is_refused() -> None:
    with pytest.raises(InputError, match=r"dynamic\.loss=training: must be likelihood without a span buffer"):
        require_loss(TRAINING, Ensemble([span_model(), span_model()]))


def test_another_loss_is_refused() -> None:
    with pytest.raises(InputError, match=r"dynamic\.loss=reward: must be likelihood or training"):
        replace(USUAL, loss="reward")  # type: ignore[arg-type]
