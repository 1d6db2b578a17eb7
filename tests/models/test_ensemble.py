"""Several models as one: the promises of one model, and the mixture written out."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from spanlm.errors import InputError
from spanlm.models import ensemble as module
from spanlm.models.counting import count_parameters
from spanlm.models.encoders import HORNNConfig, LSTMConfig
from spanlm.models.ensemble import Ensemble
from spanlm.models.heads import SoftmaxConfig
from spanlm.models.interfaces import LMState, Readout
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import (
    AttentiveConfig,
    KeyValueConfig,
    NoMemoryConfig,
    PointerSentinelConfig,
    RecurrentMemoryConfig,
    SpanBufferConfig,
)
from spanlm.models.memories.span_buffer import GateConfig
from tests.conftest import needs_bf16
from tests.models import small
from tests.models.small import Given, assert_same, bitwise, language_model, model_config, words
from tests.models.test_language_model import assert_any_cut_is_the_same_stream, begun_and_new

LSTM, SOFT = LSTMConfig(hidden_size=12), GateConfig(evaluation_temperature=1.0)
CONFIGS = [
    model_config(LSTM, KeyValueConfig(roles=3, window=4), SoftmaxConfig()),
    model_config(LSTM, NoMemoryConfig(), SoftmaxConfig(tied=True)),
    model_config(HORNNConfig(hidden_size=12, order=3), RecurrentMemoryConfig(window=4), SoftmaxConfig(bias=False)),
    model_config(LSTM, AttentiveConfig(score="combined"), SoftmaxConfig()),
    model_config(LSTM, PointerSentinelConfig(window=4), SoftmaxConfig()),
    model_config(LSTM, SpanBufferConfig(buffer_size=4, span_length=2, gate=SOFT), SoftmaxConfig()),
]
"""A head that is tied and one that is not, a state that grows, a pointer, and a second prediction."""
WEIGHTS = (0.2, 0.1, 0.2, 0.1, 0.2, 0.2)


def models(dtype: torch.dtype = torch.float64) -> list[LanguageModel]:
    return [language_model(config, dtype) for config in CONFIGS]


def ensemble(weights: Any = WEIGHTS, dtype: torch.dtype = torch.float64) -> Ensemble:
    return Ensemble(models(dtype), weights).eval()


def brute_force(members: list[LanguageModel], weights: Any, tokens: Tensor) -> Tensor:
    p = [model.log_probs(tokens, model.init_state(tokens.shape[1]))[0].exp() for model in members]
    return torch.stack([w * x for w, x in zip(weights, p, strict=True)]).sum(0).log()


@pytest.mark.parametrize(
    "weights", [(1 / 6,) * 6, WEIGHTS, (0.0, 0.5, 0.2, 0.0, 0.0, 0.3), (0.0, 0.0, 0.0, 0.0, 1.0, 0.0)], ids=str
)
def test_it_is_the_mixture_written_out(weights: tuple[float, ...]) -> None:
    tokens, targets = words(6, 3), words(6, 3, seed=1)
    whole = ensemble(weights)
    expected = brute_force(models(), weights, tokens)
    every, end = whole.log_probs(tokens, whole.init_state(3))
    one, same_end = whole.log_prob(tokens, targets, whole.init_state(3))
    assert_same(every, expected)
    assert_same(one, expected.gather(-1, targets[..., None]).squeeze(-1))
    assert every.dtype == one.dtype == torch.float64
    torch.testing.assert_close(every.exp().sum(-1), torch.ones(6, 3, dtype=torch.float64), rtol=0, atol=1e-13)
    assert bitwise(end, same_end)


@pytest.mark.parametrize("lengths", [[1, 1, 1, 1], [2, 3], [5]], ids=str)
def test_any_cut_is_the_same_stream(lengths: list[int]) -> None:
    whole = ensemble()
    assert_any_cut_is_the_same_stream(whole, lengths, whole.init_state(2))


def test_reset_streams_start_again_and_the_others_go_on() -> None:
    # not bit by bit: the growing memory holds empty slots for the streams that begin
    assert_same(*begun_and_new(ensemble()))


def test_its_state_is_its_members_states() -> None:
    """Of more than ten members, too: the state of member 1 is not that of member 11."""
    model = models()[1]
    whole = Ensemble([model] * 12)
    state, own = (m(words(4, 3), m.init_state(3))[1] for m in (whole, model))
    assert len(state.flat()) == 12 * len(own.flat())
    chosen = torch.tensor([2, 0])
    for number in range(12):
        for room, tensor in own.flat().items():
            kind, _, name = room.partition(".")
            assert torch.equal(state.flat()[f"{kind}.{number}.{name}"], tensor)
            assert torch.equal(state.select(chosen).flat()[f"{kind}.{number}.{name}"], tensor[:, chosen])
    assert bitwise(LMState.from_flat(state.flat()), state)


def test_ensembles_can_be_members() -> None:
    one, two, three, *_ = models()
    nested = Ensemble([Ensemble([one, two], [1, 3]), three], [0.4, 0.6])
    tokens, targets = words(5, 2), words(5, 2, seed=1)
    found = nested.log_prob(tokens, targets, nested.init_state(2))[0]
    flat = Ensemble([one, two, three], [0.1, 0.3, 0.6])
    assert_same(found, flat.log_prob(tokens, targets, flat.init_state(2))[0])


@needs_bf16
def test_narrow_members_give_float32() -> None:
    whole, wide = ensemble(dtype=torch.float32), ensemble()
    tokens, targets = words(6, 2), words(6, 2, seed=1)
    expected = wide.log_prob(tokens, targets, wide.init_state(2))[0]
    for precise in (True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=not precise):
            one, _ = whole.log_prob(tokens, targets, whole.init_state(2))
            every, _ = whole.log_probs(tokens, whole.init_state(2))
        assert one.dtype == every.dtype == torch.float32
        margin = 1e-5 if precise else 0.5
        torch.testing.assert_close(one.double(), expected, rtol=margin, atol=margin)


def test_words_of_no_measurable_probability_stay_apart() -> None:
    """Probabilities far below the smallest float32: their logarithms are right."""
    heads = [Given(torch.tensor(log_p).expand(3, 1, 3)) for log_p in ([0.0, -1000.0, -2000.0], [0.0, -1200.0, -1900.0])]
    head = module.EnsembleHead(heads, (0.5, 0.5))
    member = Readout(torch.zeros(3, 1, 1))
    readout = module.EnsembleReadout(member.features, members=(member, member))
    found = head.log_prob(readout, torch.arange(3).view(3, 1)).flatten().tolist()
    half = math.log(2)
    expected = [0.0, -1000 - half, -1900 - half]
    assert found == pytest.approx(expected, rel=1e-6)
    assert head.log_probs(readout)[0, 0].tolist() == pytest.approx(expected, rel=1e-6)


def test_it_is_one_module_of_its_members_weights() -> None:
    members = models()
    whole = Ensemble(members)
    assert count_parameters(whole).total == sum(count_parameters(model).total for model in members)
    whole.float().train()
    assert all(model.training and model.head.training for model in members)
    assert all(p.dtype == torch.float32 for model in members for p in model.parameters())
    assert (whole.device, whole.vocabulary_size) == (members[0].device, small.VOCABULARY)


def test_members_that_make_no_ensemble_are_refused() -> None:
    with pytest.raises(InputError, match="members=0: must be at least 1 model"):
        Ensemble([])
    other = LanguageModel(CONFIGS[0], 7)
    with pytest.raises(InputError, match="their vocabularies have 7 and 11 words, not one"):
        Ensemble([*models(), other])
