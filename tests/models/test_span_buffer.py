"""The span buffer: against its loop; in a model its dropout, its two predictions and their gate, every head."""

import math
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from spanlm.models.encoders import LSTMConfig, RNNConfig
from spanlm.models.heads import MixtureOfSoftmaxesConfig, SoftmaxConfig
from spanlm.models.heads.softmax import SoftmaxHead
from spanlm.models.interfaces import Init, Readout
from spanlm.models.memories.span_buffer import SpanBufferConfig, SpanBufferMemory
from spanlm.models.memories.span_buffer.memory import Reads
from spanlm.models.memories.span_buffer.mixture import LEAST_TEMPERATURE, GateConfig, RewardConfig, SpanMixture, rewards
from tests import reference
from tests import reference as twin
from tests.cases import rest_slow
from tests.models import small
from tests.models.small import (
    HIDDEN,
    VOCABULARY,
    after_prefix,
    assert_same,
    bitwise,
    build,
    language_model,
    model_config,
    read,
    values,
    words,
)
from tests.models.twins import assert_twin, encoded, filled_slots, predicted, slots
from tests.reference import Mixture, adversarial_mixture, mixture_of_softmaxes

WIDTH = 3
CONFIGS = [
    SpanBufferConfig(buffer_size=4, span_length=2),
    SpanBufferConfig(buffer_size=6, span_length=2),
    SpanBufferConfig(buffer_size=4, words=True),
    SpanBufferConfig(buffer_size=6, span_length=3, newest="current"),
    SpanBufferConfig(buffer_size=1, words=True, newest="current"),
    SpanBufferConfig(buffer_size=6, span_length=3, reads="merge"),
]
every_config = pytest.mark.parametrize("config", CONFIGS, ids=small.identify)
every_reading = pytest.mark.parametrize("config", [CONFIGS[0], CONFIGS[-1]], ids=small.identify)


def parameters(memory: SpanBufferMemory) -> twin.Spans:
    config = memory.config
    return twin.Spans(
        buffer_size=config.buffer_size,
        length=1 if config.words else config.span_length,
        current=config.newest == "current",
        w_s=memory.span_key.weight,
        w_h=memory.query.weight,
        v=memory.score,
    )


def seen(memory: SpanBufferMemory, h: Tensor, reads: Tensor) -> Tensor:
    return twin.seen(h, reads, memory.config.reads, None if memory.read is None else memory.read.weight)


def gate(config: SpanBufferConfig, training: bool = True) -> twin.Gate:
    of, reward = config.gate, config.reward
    temperature = of.training_temperature if training else of.evaluation_temperature
    return twin.Gate(temperature, reward.weight, kappa=5.0, a=10.0, b=1.0, beta=3.0)


def state_of(memory: SpanBufferMemory, past: reference.Past, empty: float) -> dict[str, Tensor]:
    """What of each stream's past a state holds; `empty` where it holds nothing."""
    room = memory.carried
    recent = [outputs[len(outputs) - min(room, len(outputs)) :] for outputs in past]
    nothing = torch.full((WIDTH,), empty, dtype=torch.float64)
    return {"states": slots(recent, room, lambda x: x, nothing), "filled": filled_slots(recent, room)}


def pasts(kind: str, batch: int) -> reference.Past:
    """Nothing; much, from stream to stream one more; or next to nothing."""
    first, more = {"fresh": (0, 0), "young": (0, 1), "old": (9, 1)}[kind]
    return [[values(WIDTH, seed=100 * b + n).requires_grad_() for n in range(first + more * b)] for b in range(batch)]


@every_config
@pytest.mark.parametrize("kind", ["fresh", "young", "old"])
@pytest.mark.parametrize(("steps", "batch"), [(1, 4), (2, 4), (7, 2), (12, 3)], ids=str)
def test_span_buffer(config: SpanBufferConfig, steps: int, batch: int, kind: str) -> None:
    memory = build(config, WIDTH, VOCABULARY)
    h, past = values(steps, batch, WIDTH, seed=7).requires_grad_(), pasts(kind, batch)
    leaves = [h, *memory.parameters(), *[x for outputs in past for x in outputs]]

    readout, after = memory(h, words(steps, batch), state_of(memory, past, torch.nan))
    reads, weights, filled, outputs = twin.span_buffer(h, past, parameters(memory))

    expected_state = state_of(memory, outputs, 0)
    assert after.keys() == expected_state.keys()
    assert torch.equal(after["filled"], expected_state["filled"])
    assert torch.equal(readout.mixture.filled, filled)
    assert readout.features is h
    assert readout.attention.stride == (1 if config.words else config.span_length)
    assert readout.attention.nearest_lag == (config.newest == "before")
    gate_logits = twin.policy(h, memory.gate.weight)
    carried = torch.where(after["filled"][..., None], after["states"], 0)
    actual = [readout.mixture.features, readout.attention.by_lag(), readout.mixture.gate, carried]
    expected = [seen(memory, h, reads), weights, gate_logits, expected_state["states"]]
    assert_twin(actual, expected, leaves)


@pytest.mark.parametrize("config", CONFIGS[::2], ids=small.identify)
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_whole_language_model(tied: bool, config: SpanBufferConfig) -> None:
    """Two segments of training, the state between them carried and not detached: the loss and every gradient."""
    memory = taught(config)
    encoder = LSTMConfig(hidden_size=6, layers=2)
    model = small.language_model(small.model_config(encoder, memory, SoftmaxConfig(tied=tied)))
    tokens, targets = words(8, 2), words(8, 2, seed=1)
    h = encoded(model, tokens)
    reads, _, filled, _ = twin.span_buffer(h, [[], []], parameters(model.memory))
    p, q = (predicted(model, x).exp() for x in (h, seen(model.memory, h, reads)))
    logits = twin.policy(h, model.memory.gate.weight)
    compare(model, tokens, targets, twin.losses(p, q, logits, filled, targets, gate(memory)))
    compare_evaluated(model, tokens, targets, twin.mixed(p, q, logits, filled, memory.gate.evaluation_temperature))


@every_reading
@pytest.mark.parametrize("epsilon", rest_slow([0.2, 0.0]))
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_a_model_under_a_mixture_of_softmaxes(tied: bool, epsilon: float, config: SpanBufferConfig) -> None:
    """The same, rewards and margins included: both parts are predictions of the same experts."""
    fields: dict[str, Any] = {"experts": 3, "latent_dropout": 0.0, "tied": tied}
    softmaxes = MixtureOfSoftmaxesConfig(**fields, adversarial=epsilon)
    memory = taught(config)
    model = small.language_model(small.model_config(RNNConfig(hidden_size=6), memory, softmaxes)).train()
    head, tokens, targets = model.head, words(8, 2), words(8, 2, seed=1)
    h = model(tokens, model.init_state(2))[0].hidden
    reads, _, filled, _ = twin.span_buffer(h, [[], []], parameters(model.memory))
    reads = seen(model.memory, h, reads)
    experts = Mixture(head.latent.weight, head.latent.bias, head.prior.weight, head.weight, head.bias)
    p, q = (mixture_of_softmaxes(x, experts) for x in (h, reads))
    logits = twin.policy(h, model.memory.gate.weight)
    of_targets = [x.gather(-1, targets[..., None]) for x in (p, q)]
    if epsilon:
        of_targets = [adversarial_mixture(x, targets, experts, epsilon)[..., None] for x in (h, reads)]
    one, other = (x.exp() for x in of_targets)
    compare(model, tokens, targets, twin.losses(one, other, logits, filled, torch.zeros_like(targets), gate(memory)))
    every = twin.mixed(p.exp(), q.exp(), logits, filled, memory.gate.evaluation_temperature)
    compare_evaluated(model, tokens, targets, every)


def taught(config: SpanBufferConfig) -> SpanBufferConfig:
    return replace(config, dropout=0.0, gate=GateConfig(training_temperature=3.0), reward=RewardConfig(weight=0.7))


def compare(model: Any, tokens: Tensor, targets: Tensor, expected: Tensor) -> None:
    leaves = [p for p in model.parameters() if p.requires_grad]
    actual, state = [], model.train().init_state(2)
    for inputs, outputs in zip(tokens.split([5, 3]), targets.split([5, 3]), strict=True):
        readout, state = model(inputs, state)
        scores = model.head.score(readout, outputs)
        actual.append(scores.extra_loss - scores.log_prob)
    assert_twin([torch.cat(actual)], [expected], leaves)


def compare_evaluated(model: Any, tokens: Tensor, targets: Tensor, every: Tensor) -> None:
    model.eval()
    one, _ = model.log_prob(tokens, targets, model.init_state(2))
    assert_same(one.exp(), every.gather(-1, targets[..., None]).squeeze(-1), rtol=1e-9)
    assert_same(model.log_probs(tokens, model.init_state(2))[0].exp(), every, rtol=1e-9)


def test_metrics_are_what_each_part_says_alone() -> None:
    config = CONFIGS[0]
    model = small.language_model(small.model_config(RNNConfig(hidden_size=6), config, SoftmaxConfig()))
    tokens, targets = words(8, 2), words(8, 2, seed=1)
    readout, _ = model(tokens, model.init_state(2))
    metrics = model.head.score(readout, targets).metrics
    p, q = (
        reference.linear_softmax(x, model.head.weight, model.head.bias).gather(-1, targets[..., None]).squeeze(-1)
        for x in (readout.features, readout.mixture.features)
    )
    g, shares = gate(config, training=False), readout.mixture.gate.softmax(-1)[..., 0]
    for t, b in ((t, b) for t in range(8) for b in range(2)):
        log_p, log_q, share = p[t, b].item(), q[t, b].item(), shares[t, b].item()
        held = {
            "steps": 1.0,
            "encoder_nll": -log_p,
            "buffer_nll": -log_q,
            "reward": twin.reward(p[t, b].exp().item(), q[t, b].exp().item(), g),
            "gate": share,
            "utilisation": float(share >= 0.5),
            "oracle_utilisation": float(log_q > log_p),
            "oracle_nll": -max(log_p, log_q),
            "untempered_nll": -math.log(share * math.exp(log_q) + (1 - share) * math.exp(log_p)),
            "equal_nll": -math.log((math.exp(log_q) + math.exp(log_p)) / 2),
        }
        others = {"other_nll": -log_p, "other_steps": 1.0}
        nothing = t < 2
        expected = dict.fromkeys(held if nothing else others, 0.0) | (others if nothing else held)
        assert {name: x[t, b].item() for name, x in metrics.items()} == pytest.approx(expected)


SMALL = SpanBufferConfig(buffer_size=6, span_length=3, dropout=0.0)


def trained(config: SpanBufferConfig, h: Tensor, steps_before: int = 8) -> Any:
    """What a memory in training says to h after some steps."""
    memory = build(config, HIDDEN, VOCABULARY)
    state = after_prefix(memory, steps_before, batch=h.shape[1])
    torch.manual_seed(1)
    return read(memory.train(), h, state), memory


@pytest.mark.parametrize("reads", get_args(Reads))
def test_one_mask_for_what_asks_gates_predicts_and_is_read(reads: Reads) -> None:
    h, config = values(7, 3, HIDDEN), replace(SMALL, reads=reads)
    (readout, _), memory = trained(replace(config, dropout=0.375), h)
    kept = readout.features != 0
    assert torch.equal(kept, kept[:1].expand_as(kept))
    assert 0.3 < kept[0].double().mean() < 0.9
    assert not torch.equal(kept[0, 0], kept[0, 1])
    mask = kept[:1].double() / 0.625
    assert_same(readout.features, h * mask)
    assert_same(readout.mixture.gate, (h * mask) @ memory.gate.weight.T)
    # the same mask on a memory without dropout: on the query, and on what is read
    plain = build(SMALL, HIDDEN, VOCABULARY)
    plain.load_state_dict({name: x for name, x in memory.state_dict().items() if name in plain.state_dict()})
    state = after_prefix(plain, 8, batch=3)
    for b in range(3):
        with torch.no_grad():
            plain.query.weight.copy_(memory.query.weight * mask[0, b])
        one, _ = read(plain, h[:, b : b + 1], {name: x[:, b : b + 1] for name, x in state.items()})
        dropped = seen(memory, readout.features[:, b : b + 1], one.mixture.features * mask[:, b : b + 1])
        assert_same(readout.mixture.features[:, b : b + 1], dropped)
        assert_same(readout.attention.weights[:, b : b + 1], one.attention.weights)


def test_a_model_drops_nothing_twice_and_hands_on_the_whole_output() -> None:
    config = model_config(LSTMConfig(hidden_size=HIDDEN), replace(SMALL, dropout=0.375), SoftmaxConfig())
    model, tokens = language_model(config).train(), words(9, 8)
    torch.manual_seed(1)
    readout, state = model(tokens, model.init_state(8))
    kept = readout.features != 0
    assert_same(readout.features[kept], readout.hidden[kept] / 0.625)
    assert torch.equal(state.memory["states"], readout.hidden[-6:])
    assert readout.hidden.all()


def test_autocast_does_not_touch_the_gate() -> None:
    """A small temperature of evaluation would make much of what bfloat16 rounds."""
    memory = build(SMALL, HIDDEN, VOCABULARY).float()
    h = values(7, 3, HIDDEN, dtype=torch.float32)
    expected, _ = read(memory, h, memory.init_state(3))
    with torch.autocast("cpu", torch.bfloat16):
        readout, _ = read(memory, h, memory.init_state(3))
    assert torch.equal(readout.mixture.gate, expected.mixture.gate)
    assert not torch.equal(readout.attention.weights, expected.attention.weights)


GATE, REWARD = GateConfig(training_temperature=100.0, evaluation_temperature=0.1), RewardConfig(weight=0.5)
STEPS, BATCH, SIZE = 4, 3, 6
log_probabilities = st.floats(-1e4, 0.0)


def numbers(*x: float) -> Tensor:
    return torch.tensor(x, dtype=torch.float64)


def mixture(gate: Tensor | None = None, filled: Tensor | None = None, **how: Any) -> SpanMixture:
    gate = values(STEPS, BATCH, 2, seed=2) if gate is None else gate
    filled = torch.ones(STEPS, BATCH, dtype=torch.bool) if filled is None else filled
    return replace(SpanMixture(values(STEPS, BATCH, SIZE, seed=1), gate, filled, GATE, REWARD), **how)


def reading(of: SpanMixture) -> Readout:
    return Readout(values(STEPS, BATCH, SIZE), mixture=of)


def head() -> SoftmaxHead:
    torch.manual_seed(0)
    return SoftmaxConfig().build(SIZE, nn.Embedding(VOCABULARY, 9), Init(0.7, 0.7)).double()


def some_filled() -> Tensor:
    return torch.arange(STEPS)[:, None] >= torch.arange(BATCH)


@given(p=log_probabilities, q=log_probabilities, more=st.floats(0, 100))
def test_rewards_are_bounded_and_grow_with_q(p: float, q: float, more: float) -> None:
    """Above −β b and up to a − b, however far apart the two are; in float32, too."""
    for dtype in (torch.float64, torch.float32):
        one, two = rewards(torch.tensor(p, dtype=dtype), torch.tensor([q, q + more], dtype=dtype)).tolist()
        assert -3 <= one <= two <= 9 + 1e-5
        assert (one > 0) == (q > p) or abs(q - p) < 1e-2


def test_a_closed_gate_is_pushed_no_further_and_can_open() -> None:
    """λ = e^-30: a negative reward says nothing more, and the loss does not fall without end; a positive one does."""
    gate = torch.tensor([-30.0, 0.0]).double().expand(1, 2, 2).clone().requires_grad_()
    loss = mixture(gate, torch.ones(1, 2, dtype=torch.bool)).reward_loss(numbers(-3.0, 9.0)[None])
    (gradient,) = torch.autograd.grad(loss.sum(), gate)
    assert loss[0, 0].item() == pytest.approx(-0.5 * 3 * 20, abs=1e-9)
    assert gradient[0, 0].abs().max() < 1e-9
    assert gradient[0, 1, 0] < -0.5


@pytest.mark.parametrize("config", [SoftmaxConfig(adversarial=0.3), MixtureOfSoftmaxesConfig(adversarial=0.3)])
def test_the_reward_teaches_the_gate_alone(config: Any) -> None:
    torch.manual_seed(1)
    model = config.build(SIZE, nn.Embedding(VOCABULARY, SIZE), Init(0.7, 0.7)).double().train()
    gate = values(STEPS, BATCH, 2, seed=2).requires_grad_()
    extra = model.score(reading(mixture(gate, training=True)), words(STEPS, BATCH)).extra_loss.sum()
    found = torch.autograd.grad(extra, [gate, *model.parameters()], allow_unused=True)
    assert found[0] is not None and found[0].any() and all(gradient is None for gradient in found[1:])


def test_evaluation_adds_no_reward_and_a_reward_without_weight_is_none() -> None:
    targets = words(STEPS, BATCH)
    evaluated, trained = (head().score(reading(mixture(training=t)), targets) for t in (False, True))
    assert evaluated.extra_loss == 0.0
    assert torch.equal(trained.extra_loss, trained.metrics["reward_loss"])
    assert bitwise(trained.metrics["encoder_nll"], evaluated.metrics["encoder_nll"])
    assert not torch.equal(trained.log_prob, evaluated.log_prob)
    unpaid = mixture(training=True, reward=RewardConfig(weight=0.0))
    assert not head().score(reading(unpaid), targets).extra_loss.any()


def test_what_is_alike_in_both_parts_has_no_reward_whatever_is_dropped() -> None:
    """Masks of its own for each part would make a ratio of noise, which the reward is not symmetric in."""
    torch.manual_seed(0)
    config = MixtureOfSoftmaxesConfig(experts=3, latent_dropout=0.5)
    model = config.build(SIZE, torch.nn.Embedding(VOCABULARY, SIZE), Init(0.7, 0.7)).double().train()
    features = values(STEPS, BATCH, SIZE)
    readout = Readout(features, mixture=mixture(features=features))
    metrics = model.score(readout, words(STEPS, BATCH)).metrics
    assert_same(metrics["encoder_nll"], metrics["buffer_nll"])
    torch.testing.assert_close(metrics["reward"], torch.zeros(STEPS, BATCH).double(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("temperature", [LEAST_TEMPERATURE, 0.01, 1.0, 100.0])
def test_narrow_gates_give_float32_and_hard_ones_no_nan(temperature: float) -> None:
    gate = (1e3 * values(STEPS, BATCH, 2, seed=2)).bfloat16().requires_grad_()
    features, temperatures = values(STEPS, BATCH, SIZE).float(), GateConfig(training_temperature=temperature)
    one = SpanMixture(features, gate, some_filled(), temperatures, REWARD, training=True)
    readout = Readout(values(STEPS, BATCH, SIZE, seed=9).float(), mixture=one)
    scores = head().float().score(readout, words(STEPS, BATCH))
    assert {x.dtype for x in (scores.log_prob, scores.extra_loss, *scores.metrics.values())} == {torch.float32}
    (gradient,) = torch.autograd.grad((scores.extra_loss - scores.log_prob).sum(), gate)
    assert scores.log_prob.isfinite().all() and scores.extra_loss.isfinite().all() and gradient.isfinite().all()
