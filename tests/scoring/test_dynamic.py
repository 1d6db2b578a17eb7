"""Dynamic evaluation: against the written-out formula, whatever the model; and the model's own weights stay."""

import copy
import math
from contextlib import suppress
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from spanlm.errors import InputError, RunError
from spanlm.models.encoders import LSTMConfig
from spanlm.models.heads import SoftmaxConfig
from spanlm.models.interfaces import LMState
from spanlm.models.language_model import LanguageModel, ModelConfig
from spanlm.models.memories import NoMemoryConfig, SpanBufferConfig
from spanlm.models.memories.span_buffer import GateConfig, RewardConfig
from spanlm.models.memories.span_buffer.memory import Reads
from spanlm.scoring.dynamic.evaluate import adapting, evaluate_dynamic, read_adapting
from spanlm.scoring.dynamic.statistics import DynamicStatistics, gate_temperature, learning_weights, segment_gradients
from spanlm.scoring.dynamic.tuning import Search
from spanlm.scoring.options import Context, DynamicConfig
from spanlm.scoring.perplexity import Evaluation
from spanlm.scoring.protocol import STANDARD, Protocol
from spanlm.scoring.tally import tally
from spanlm.store.run_folder import model_digest
from tests import reference as twin
from tests import reference_dynamic
from tests.cases import rest_slow
from tests.models import small
from tests.models.test_span_buffer import gate
from tests.scoring import reference
from tests.scoring.reference import CONTEXTS, CORPUS, TARGETS, VOCABULARY
from tests.scoring.reference import pieces as stream
from tests.scoring.test_parts import HEADS, span_model

EOS_ID = CORPUS.vocabulary.eos_id
HOW: dict[str, Any] = {"rate": 0.003, "decay": 0.05, "epsilon": 0.002}
USUAL = DynamicConfig(**HOW)


def statistics_of(model: LanguageModel) -> tuple[DynamicStatistics, list[Tensor], float]:
    """Of a text of its own, from the plain loop: as this project has them, and Σ g² and n."""
    ids = small.words(3 * 22, seed=4, size=model.vocabulary_size).tolist()
    sums, n = reference_dynamic.mean_squares(model, reference_dynamic.columns_of(ids, EOS_ID, 3), 5)
    sizes = {name: (x / n).sqrt() for name, x in zip(learning_weights(model), sums, strict=True)}
    read = (n, 5, len(ids), True, model_digest(model), gate_temperature(model))
    return DynamicStatistics(sizes, "small train", *read), sums, n


def weights(model: LanguageModel) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def unchanged(model: LanguageModel, before: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(model.parameters(), before, strict=True))


def evaluated(model: LanguageModel, config: DynamicConfig = USUAL, **how: Any) -> Evaluation:
    return evaluate_dynamic(model, CORPUS, "test", statistics_of(model)[0], config, **how)


@pytest.mark.parametrize("context", CONTEXTS)
def test_nll_is_that_of_the_loop(context: Context) -> None:
    """Over documents and lines the state begins anew, and the weights learn on; short segments make short steps."""
    model = reference.small_model()
    _, sums, n = statistics_of(model)
    rows = reference_dynamic.adapted(copy.deepcopy(model), stream(context), sums, n, **HOW)
    result = evaluated(model, protocol=Protocol(context=context))
    assert result.tokens == len(rows) == TARGETS
    assert result.nll == pytest.approx(sum(rows), rel=1e-11)
    assert result.without_dynamic is not None
    targets = [id for ids in stream(context) for id in ids[1:]]
    known = [row for row, id in zip(rows, targets, strict=True) if id != CORPUS.vocabulary.unk_id]
    assert result.perplexity_without_unk == pytest.approx(math.exp(sum(known) / len(known)), rel=1e-11)
    assert result.nll != pytest.approx(result.without_dynamic.nll, rel=1e-4)


@pytest.mark.parametrize("config", small.one_of_each_kind(small.models()))
def test_every_model_learns_and_comes_back(config: ModelConfig) -> None:
    model = small.language_model(config)
    before, (_, sums, n) = weights(model), statistics_of(model)
    rows = reference_dynamic.adapted(copy.deepcopy(model), stream("document"), sums, n, **HOW)
    result = evaluated(model, protocol=Protocol(context="document"))
    assert result.nll == pytest.approx(sum(rows), rel=1e-9)
    assert result.without_dynamic is not None and result.nll != pytest.approx(result.without_dynamic.nll, rel=1e-4)
    assert unchanged(model, before)


def test_a_weight_without_gradient_stays_what_it_is() -> None:
    model = reference.small_model()
    expected, statistics = evaluated(model).nll, statistics_of(model)[0]
    model.register_parameter("idle", torch.nn.Parameter(torch.ones(3, dtype=torch.float64)))
    sizes = {"idle": torch.zeros(3, dtype=torch.float64), **statistics.root_mean_squares}
    batcher = STANDARD.batcher(CORPUS, "test", length=5)
    # one tensor more in the mean
    config = replace(USUAL, decay=USUAL.decay * statistics.tensors / (statistics.tensors + 1))
    statistics = replace(statistics, root_mean_squares=sizes)
    total = tally(read_adapting(model, batcher.segments(), statistics, config), VOCABULARY)
    assert total.nll == pytest.approx(expected, rel=1e-12)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("config", small.models())
def test_a_gpu_gives_what_the_cpu_gives(config: ModelConfig) -> None:
    model = small.language_model(config)
    statistics, protocol = statistics_of(model)[0], Protocol(context="document")
    expected = evaluated(model, protocol=protocol)
    before = weights(model.cuda())
    there = replace(statistics, root_mean_squares={k: x.cuda() for k, x in statistics.root_mean_squares.items()})
    found = evaluate_dynamic(model, CORPUS, "test", there, USUAL, protocol=protocol)
    assert found.nll == pytest.approx(expected.nll, rel=1e-9)
    assert unchanged(model, before)


def test_only_what_was_read_is_learnt_from_bit_by_bit() -> None:
    model = reference.small_model().float()
    statistics, cut = statistics_of(model)[0], 10
    other = [*reference.TEXT[:2], ["ran"] * 5, *reference.TEXT[3:]]
    read = sum(len(line) + 1 for line in reference.TEXT[:2])
    assert read >= cut
    sums = []
    for text in (reference.TEXT, other):
        batcher = STANDARD.batcher(reference.corpus(text), "test", length=5)
        sums.append(tally(read_adapting(model, batcher.segments(), statistics, USUAL, most=cut), VOCABULARY))
    assert sums[0] == sums[1] and sums[0].tokens == cut


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_models_own_weights_are_never_written(error: type[BaseException]) -> None:
    """Neither while a copy follows the text, nor after an exception."""
    model = reference.small_model("kvp").float()
    before, versions = weights(model), [p._version for p in model.parameters()]

    def report(what: str, done: int, total: int) -> None:
        assert unchanged(model, before)
        if done > 12:
            raise error("stop")

    with pytest.raises(error, match="stop"):
        evaluated(model, report=report)
    assert unchanged(model, before) and [p._version for p in model.parameters()] == versions


def test_weights_that_predict_worse_than_nothing_at_all_have_diverged() -> None:
    """However finite: 1 nat above equal probabilities, and above the trained weights."""
    model, chance = reference.small_model(), math.log(len(reference.VOCABULARY))
    found = dict[float, float]()
    for rate in (0.001, 0.1, 0.3, 1.0, 3.0, 30.0):
        with suppress(RunError):
            found[rate] = evaluated(model, DynamicConfig(rate=rate)).nll_per_token
    assert 0.001 in found and 30.0 not in found and max(found.values()) <= chance + 1


def test_tied_weights_are_one_and_stay_tied() -> None:
    config = small.model_config(LSTMConfig(hidden_size=5), NoMemoryConfig(), SoftmaxConfig(tied=True))
    model = small.language_model(config)
    statistics = statistics_of(model)[0]
    assert statistics.tensors == len({id(p) for p in model.parameters() if p.requires_grad})
    batcher = STANDARD.batcher(CORPUS, "test", length=5)
    follower, update = adapting(model, statistics, USUAL)
    tied = follower.get_parameter("embedding.weight")
    for segment in segment_gradients(follower, batcher.segments(), 5):
        before = tied.detach().clone()
        update(segment)
        assert not torch.equal(tied, before)
        assert len({p.data_ptr() for p in follower.parameters()}) == len(list(model.parameters()))


# the loss of a span buffer's training

MEMORY = SpanBufferConfig(
    buffer_size=6,
    span_length=3,
    dropout=0.3,  # there is none in evaluation
    gate=GateConfig(training_temperature=5.0, evaluation_temperature=0.7),
    reward=RewardConfig(weight=0.8),
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


@pytest.mark.parametrize("reads", rest_slow(get_args(Reads), always=2))
@pytest.mark.parametrize("head", HEADS)
def test_the_weights_learn_from_the_loss_of_training(head: str, reads: Reads) -> None:
    """What counts is the likelihood at the temperature of evaluation, as when they learn from that."""
    model = span_model(head, replace(MEMORY, reads=reads))
    (_, sums, n), before = statistics_of(model), weights(model)
    rows = reference_dynamic.adapted(copy.deepcopy(model), stream("document"), sums, n, learnt=training_losses, **HOW)
    found, usual = (evaluated(model, config, protocol=Protocol(context="document")) for config in (TRAINING, USUAL))
    assert found.nll == pytest.approx(sum(rows), rel=1e-9)
    assert found.nll != pytest.approx(usual.nll, rel=1e-5)
    assert found.without_dynamic is not None and usual.without_dynamic is not None
    assert found.without_dynamic.nll == usual.without_dynamic.nll
    assert "learning from the loss of training" in found.protocol and "loss of training" not in usual.protocol
    assert all(torch.equal(a, b) for a, b in zip(weights(model), before, strict=True))


def test_what_cannot_be_evaluated_is_refused() -> None:
    model, other = reference.small_model(), reference.small_model("none")
    no_gate = "training: must be likelihood without a span"
    for config, source, message in ((USUAL, other, "of another model's weights"), (TRAINING, model, no_gate)):
        text = model, CORPUS, "test", statistics_of(source)[0]
        with pytest.raises(InputError, match=message):
            evaluate_dynamic(*text, config)
        with pytest.raises(InputError, match=message):
            Search(*text).tune([config])
    with pytest.raises(InputError, match="batch_size=4: must be 1: dynamic evaluation reads one stream"):
        evaluated(model, protocol=Protocol(batch_size=4))
