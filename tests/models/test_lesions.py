"""Lesions of every memory that attends: which weights are left, what is read with them, and what is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor

from spanlm.errors import InputError
from spanlm.models.interfaces import LMState, Readout
from spanlm.models.language_model import LanguageModel, ModelConfig
from spanlm.models.lesions import lesioned
from spanlm.models.memories import AttentiveConfig, KeyValueConfig, RecurrentMemoryConfig, SpanBufferConfig
from spanlm.models.memories.pointer_sentinel import Pointer
from spanlm.models.memories.span_buffer import SpanMixture
from tests import reference
from tests.models import small
from tests.models.small import HIDDEN, assert_same, attended, attends, language_model, only, span_ends, words
from tests.models.test_span_buffer import seen

STEPS, STREAMS = 9, 2
LSTM, SOFTMAX = small.SMALL_ENCODERS["lstm"][0], small.SMALL_HEADS["softmax"][0]
TOKENS = words(STEPS, STREAMS)

attending = only(attends)


def model_of(memory: Any) -> LanguageModel:
    return language_model(small.model_config(LSTM, memory, SOFTMAX))


def pair(memory: Any, how: str) -> tuple[LanguageModel, LanguageModel]:
    model = model_of(memory)
    return model, lesioned(model, how, "run")


@torch.no_grad()
def read(model: LanguageModel) -> Readout:
    return model(TOKENS, model.init_state(STREAMS))[0]


def weights(model: LanguageModel, columns: int) -> Tensor:
    """Those of the nearest slots, (T, B, `columns`)."""
    attention = read(model).attention
    assert attention is not None
    return torch.nn.functional.pad(attention.weights, (columns, 0))[..., -columns:]


def log_probs(model: LanguageModel, *, forgetting: bool = False, step: int = 1) -> Tensor:
    """Log p of every word, some steps a call; when `forgetting` the memory is that of a new stream in every call."""
    state, found = model.init_state(STREAMS), []
    with torch.no_grad():
        for tokens in TOKENS.split(step):
            if forgetting:
                state = LMState(state.encoder, model.memory.init_state(STREAMS))
            log_p, state = model.log_probs(tokens, state)
            found.append(log_p)
    return torch.cat(found)


@attending
def test_uniform_gives_every_slot_that_exists_the_same(config: Any) -> None:
    trained, equal = pair(config, "uniform")
    before, after = read(trained), read(equal)
    assert after.attention is not None
    nearest = after.attention.nearest_lag
    for t in range(STEPS):
        ends = attended(config, t, nearest)
        kept = 1.0
        if isinstance(before.mixture, Pointer):
            kept = 1 - before.mixture.log_gate[t].exp().unsqueeze(-1)
        lags = after.attention.by_lag()[t].flip(-1)  # column 0 is the nearest lag
        expected = torch.zeros_like(lags)
        expected[:, [end - nearest for end in ends]] = kept / max(1, len(ends))
        assert_same(lags, expected)
    # how much is taken of what was read is not what a lesion changes
    if isinstance(before.mixture, Pointer) and isinstance(after.mixture, Pointer):
        assert_same(after.mixture.log_gate, before.mixture.log_gate)
    if isinstance(before.mixture, SpanMixture) and isinstance(after.mixture, SpanMixture):
        assert_same(after.mixture.gate, before.mixture.gate)


@pytest.mark.slow
@pytest.mark.parametrize("window", [1, 2, 4])
@attending
def test_a_narrower_window_shares_out_what_was_on_the_slots_beyond(config: Any, window: int) -> None:
    if config.slots is not None and window > config.slots:
        with pytest.raises(InputError, match=f"attention=window={window}: run: has {config.slots} slots"):
            pair(config, f"window={window}")
        return
    trained, narrow = pair(config, f"window={window}")
    whole = weights(trained, STEPS)
    # the sentinel is under the softmax, too
    elsewhere = torch.where(whole.sum(-1) > 0, 1 - whole.sum(-1), 0)
    nearest = whole[..., -window:]
    total = nearest.sum(-1) + elsewhere
    assert_same(weights(narrow, window), nearest / torch.where(total > 0, total, 1).unsqueeze(-1), atol=1e-9)
    assert bool((weights(narrow, STEPS)[..., :-window] == 0).all())


@attending
def test_none_is_a_memory_that_has_read_nothing_at_every_step(config: Any) -> None:
    trained, empty = pair(config, "none")
    assert_same(log_probs(empty), log_probs(trained, forgetting=True))
    assert empty.init_state(STREAMS).memory == {}
    nearest = read(empty).attention
    assert nearest is not None
    alone = len(attended(config, 0, nearest.nearest_lag))  # the current word, where it is in the window
    assert bool(((weights(empty, STEPS) > 0).sum(-1) == alone).all())


@pytest.mark.slow
@pytest.mark.parametrize("how", ["uniform", "none", "window=1"])
@attending
def test_any_cut_is_the_same_stream(config: Any, how: str) -> None:
    model = pair(config, how)[1]
    assert_same(log_probs(model, step=4), log_probs(model, step=STEPS))


# --- what is read with equal weights: independent loops ---


@torch.no_grad()
def encoded(model: LanguageModel) -> Tensor:
    return model.encoder(model.embedding(TOKENS), model.encoder.init_state(STREAMS))[0]


@pytest.mark.parametrize("roles", [1, 2, 3])
def test_uniform_key_value(roles: int) -> None:
    trained, equal = pair(KeyValueConfig(roles=roles, window=3), "uniform")
    m: Any = trained.memory
    no_scores = torch.zeros_like(m.score)
    p = reference.Projections(m.memory_key.weight, m.query.weight, no_scores, m.read.weight, m.predict.weight)
    nothing: list[list[Tensor]] = [[] for _ in range(STREAMS)]
    assert_same(read(equal).features, reference.look_back(encoded(trained), nothing, 3, p, roles)[0].detach())


def test_uniform_recurrent_memory() -> None:
    trained, equal = pair(RecurrentMemoryConfig(window=4, composition="linear"), "uniform")
    m: Any = trained.memory
    flat, u = torch.zeros_like(m.keys.weight), m.composition.of_hidden.weight
    t_c = list(m.value_lags.flip(0))
    p = reference.WordMemory(flat, m.values.weight, t_m=None, t_c=t_c, gated=None, u=u)
    expected = reference.recurrent_memory(encoded(trained), TOKENS, [[] for _ in range(STREAMS)], 4, p)[0]
    assert_same(read(equal).features, expected.detach())


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("score", ["single", "combined"])
def test_uniform_attentive_memory_is_the_mean(score: Any, window: int | None) -> None:
    trained, equal = pair(AttentiveConfig(score=score, window=window), "uniform")
    mean = model_of(AttentiveConfig(score="mean", window=window))
    mean.load_state_dict({name: x for name, x in trained.state_dict().items() if name in mean.state_dict()})
    assert_same(read(equal).features, read(mean).features)


@pytest.mark.parametrize("config", small.SMALL_MEMORIES["span_buffer"], ids=small.identify)
def test_uniform_span_buffer_reads_the_mean_of_the_spans(config: SpanBufferConfig) -> None:
    trained, equal = pair(config, "uniform")
    h, mixture = encoded(trained), read(equal).mixture
    assert isinstance(mixture, SpanMixture)
    for t in range(STEPS):
        ends = span_ends(config, t)
        spans = [h[t - last] if first == last else h[t - last] - h[t - first] for first, last in ends]
        mean = torch.stack(spans).mean(0) if spans else torch.zeros(STREAMS, HIDDEN, dtype=torch.float64)
        assert_same(mixture.features[t : t + 1], seen(equal.memory, h[t : t + 1], mean[None]))


@pytest.mark.slow
@pytest.mark.parametrize("config", [p for p in small.models() if p.values[0].memory.slots])
def test_a_window_as_wide_as_the_model_changes_nothing_whatever_stands_around_it(config: ModelConfig) -> None:
    trained = language_model(config)
    assert_same(log_probs(lesioned(trained, f"window={config.memory.slots}", "run")), log_probs(trained))


def test_the_trained_model_is_left_as_it_is() -> None:
    trained = model_of(KeyValueConfig(window=3))
    before = log_probs(trained)
    for how in ("uniform", "none", "window=2"):
        assert not torch.equal(log_probs(lesioned(trained, how, "run")), before)
    assert torch.equal(log_probs(trained), before)


@pytest.mark.parametrize("config", [p for p in small.memories() if p.values[0].slots == 0])
def test_a_memory_that_does_not_attend_has_no_lesion(config: Any) -> None:
    with pytest.raises(InputError, match=r"attention=uniform: run: does not attend. Name a run whose memory does"):
        pair(config, "uniform")


@pytest.mark.parametrize("how", ["", "window", "window=0", "window=-1", "window=1.5", "window=٣", "Uniform", "none "])
def test_what_names_no_lesion_is_refused(how: str) -> None:
    with pytest.raises(InputError, match=f"attention={how}: must be uniform, none or window=K"):
        pair(KeyValueConfig(), how)
