"""What the two parts of a span buffer are worth alone: against a loop of one word at a time; and the whole is kept."""

import copy
import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from spanlm.models.encoders import LSTMConfig
from spanlm.models.ensemble import Ensemble
from spanlm.models.heads import AnyHeadConfig, MixtureOfSoftmaxesConfig, SoftmaxConfig
from spanlm.models.interfaces import LMState, metric_sums
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import SpanBufferConfig
from spanlm.models.memories.span_buffer import GateConfig, SpanBufferMemory
from spanlm.scoring.dynamic.evaluate import evaluate_dynamic
from spanlm.scoring.dynamic.statistics import gather_statistics
from spanlm.scoring.options import CacheConfig, Context, DynamicConfig
from spanlm.scoring.perplexity import Parts
from spanlm.scoring.protocol import STANDARD, Protocol
from spanlm.scoring.stream import distribution, read
from tests.models import small
from tests.reference_dynamic import Ids, adapted
from tests.scoring import reference
from tests.scoring.reference import CONTEXTS, CORPUS, evaluated

HEADS = {
    "softmax": SoftmaxConfig(),
    "mixture": MixtureOfSoftmaxesConfig(experts=2, tied=True, latent_dropout=0.3),
}
MEMORY = SpanBufferConfig(buffer_size=6, span_length=3, gate=GateConfig(evaluation_temperature=0.7))


def span_model(head: str | AnyHeadConfig = "softmax", memory: SpanBufferConfig = MEMORY) -> LanguageModel:
    config = HEADS[head] if isinstance(head, str) else head
    model = small.language_model(small.model_config(LSTMConfig(hidden_size=12), memory, config))
    assert isinstance(model.memory, SpanBufferMemory)
    with torch.no_grad():
        model.memory.gate.weight.copy_(small.values(2, 12, seed=5))  # prefers the one here and the other there
    return model


@dataclass
class Step:
    """What is said of one word."""

    log_p: float
    log_q: float
    share: float
    reward: float
    filled: bool


@torch.no_grad()
def steps_of(model: LanguageModel, inputs: Ids, targets: Ids, state: LMState) -> list[Step]:
    """One word at a time; p and q of the whole vocabulary, λ and the reward by hand."""
    found = []
    for word, target in zip(inputs, targets, strict=True):
        readout, state = model(torch.tensor([[word]]), state)
        buffer = readout.mixture
        assert buffer is not None
        p = model.head.own_log_probs(readout.features)[0, 0, target].item()
        q = model.head.own_log_probs(buffer.features)[0, 0, target].item()
        g0, g1 = buffer.gate[0, 0].tolist()
        r = min(math.exp(5.0 * (q - p)), 10.0) - 1.0
        share = 1 / (1 + math.exp(g1 - g0))
        found.append(Step(p, q, share, r if r >= 0 else 3 * r, bool(buffer.filled[0, 0])))
    return found


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def parts_of(model: LanguageModel, **how: Any) -> Parts:
    found = evaluated(model, **how).parts
    assert found is not None
    return found


def assert_parts(found: Parts, steps: list[Step]) -> None:
    read = [step for step in steps if step.filled]
    assert 0 < len(read) < len(steps), "what is not filled must be met, too"
    assert found.remembering == len(read)
    assert found.encoder_nll == pytest.approx(mean([-s.log_p for s in steps]), rel=1e-11)
    assert found.buffer_nll == pytest.approx(mean([-(s.log_q if s.filled else s.log_p) for s in steps]), rel=1e-11)
    best = [-max(s.log_p, s.log_q) if s.filled else -s.log_p for s in steps]
    assert found.oracle_nll == pytest.approx(mean(best), rel=1e-11)
    mixed = [math.log(s.share * math.exp(s.log_q) + (1 - s.share) * math.exp(s.log_p)) for s in steps if s.filled]
    halves = [math.log((math.exp(s.log_q) + math.exp(s.log_p)) / 2) for s in steps if s.filled]
    others = [s.log_p for s in steps if not s.filled]
    assert found.untempered_nll == pytest.approx(-mean(mixed + others), rel=1e-11)
    assert found.equal_nll == pytest.approx(-mean(halves + others), rel=1e-11)
    for name in ("encoder", "buffer", "oracle", "untempered", "equal"):
        assert getattr(found, name) == pytest.approx(math.exp(getattr(found, f"{name}_nll")))
    assert found.utilisation == pytest.approx(mean([s.share >= 0.5 for s in read]))
    assert found.oracle_utilisation == pytest.approx(mean([s.log_q > s.log_p for s in read]))
    assert 0 < mean([s.share >= 0.5 for s in read]) < 1 and 0 < mean([s.log_q > s.log_p for s in read]) < 1
    assert found.gate == pytest.approx(mean([s.share for s in read]), rel=1e-11)
    assert found.reward == pytest.approx(mean([s.reward for s in read]), rel=1e-9)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("context", CONTEXTS)
def test_every_number_is_that_of_the_loop(context: Context, head: str) -> None:
    model = span_model(head)
    texts = [steps_of(model, ids[:-1], ids[1:], model.init_state(1)) for ids in reference.pieces(context)]
    assert_parts(parts_of(model, context=context), [step for steps in texts for step in steps])


@pytest.mark.parametrize("context", CONTEXTS)
def test_parts_of_an_adapting_model_are_from_before_each_update(context: Context) -> None:
    """Of the weights that the segment met, in a plain loop that listens before they learn."""
    model, steps = span_model(), list[Step]()
    how: dict[str, Any] = {"rate": 0.003, "decay": 0.05, "epsilon": 0.002}
    train = reference.corpus(reference.TEXT, split="train")
    statistics = gather_statistics(model, train)
    sums = [x**2 for x in statistics.root_mean_squares.values()]

    def listen(follower: LanguageModel, *asked: Any) -> list[Tensor]:
        steps.extend(steps_of(follower, *asked))
        return []  # they learn from the likelihood, as usual

    adapted(copy.deepcopy(model), reference.pieces(context), sums, 1.0, learnt=listen, **how)
    result = evaluate_dynamic(model, CORPUS, "test", statistics, DynamicConfig(**how), Protocol(context=context))
    assert result.parts is not None and result.without_dynamic is not None
    assert_parts(result.parts, steps)
    static = parts_of(model, context=context)
    assert result.without_dynamic.parts == static
    assert result.parts.encoder != pytest.approx(static.encoder, rel=1e-4)


def test_padding_is_no_part_of_any_sum_whatever_stands_there() -> None:
    numbers = small.values(3, 2, 4)
    mask = torch.tensor([[1, 0, 1, 0], [0, 1, 1, 0]]).bool()
    metrics = dict(zip("abc", numbers, strict=True))
    spoilt = {name: x.masked_fill(~mask, math.nan) for name, x in metrics.items()}
    found = metric_sums(metrics, mask)
    assert found.dtype == torch.float64 and torch.equal(found, metric_sums(spoilt, mask))
    assert found.tolist() == pytest.approx([x[mask].sum().item() for x in numbers])


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_mixture_with_a_cache_has_no_two_parts_and_the_model_in_it_has(context: Context) -> None:
    result = evaluated(span_model(), CacheConfig(window=5, theta=0.3, lambda_=0.2), context=context)
    assert result.parts is None and result.without_cache is not None
    found = result.without_cache.parts
    assert found is not None and vars(found) == pytest.approx(vars(parts_of(span_model(), context=context)))


def test_other_models_have_no_parts() -> None:
    for other in (reference.small_model(), Ensemble([span_model(), span_model("mixture")]).eval()):
        assert evaluated(other).parts is None
    batcher = STANDARD.batcher(CORPUS, "test")
    scored = next(read(span_model(), batcher.segments(), STANDARD, distribution))
    assert not scored.metrics, "something else was asked"
