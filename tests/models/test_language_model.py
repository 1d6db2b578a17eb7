"""Whole models, one of every kind of room (`-m slow`: all small ones): from word to probability, and the state."""

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spanlm.models.encoders import (
    AWDLSTMConfig,
    LSTMBlocksConfig,
    LSTMConfig,
    MogrifierLSTMConfig,
    VariationalLSTMConfig,
)
from spanlm.models.interfaces import LMState
from spanlm.models.language_model import LanguageModel, ModelConfig
from spanlm.models.memories import AttentiveConfig, KeyValueConfig, NGramConfig, PointerSentinelConfig, SpanBufferConfig
from tests.conftest import needs_bf16
from tests.models import small
from tests.models.small import assert_same, bitwise, every_device, join, language_model, tensors, words

every_model = pytest.mark.parametrize("config", small.one_of_each_kind(small.models()))


def after_prefix(model: LanguageModel, batch: int = 2, steps: int = 3) -> LMState:
    return model(words(steps, batch, seed=50).to(model.device), model.init_state(batch))[1].detach()


def answers(model: LanguageModel, tokens: Tensor, targets: Tensor, state: LMState) -> list[Tensor]:
    """Everything a model can be asked for a segment, each (T, B, ...)."""
    readout, _ = model(tokens, state)
    one, _ = model.log_prob(tokens, targets, state)
    every, _ = model.log_probs(tokens, state)
    return [*tensors(readout), one, every]


@every_model
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=5), fresh=st.booleans())
@settings(max_examples=3)
def test_any_cut_is_the_same_stream(config: ModelConfig, lengths: list[int], fresh: bool) -> None:
    model = language_model(config)
    assert_any_cut_is_the_same_stream(model, lengths, model.init_state(2) if fresh else after_prefix(model))


def assert_any_cut_is_the_same_stream(model: Any, lengths: list[int], start: LMState) -> None:
    tokens, targets = words(sum(lengths), 2), words(sum(lengths), 2, seed=1)
    whole, end = model(tokens, start)
    log_prob, _ = model.log_prob(tokens, targets, start)
    state, readouts, scores = start, [], []
    for segment, target in zip(tokens.split(lengths), targets.split(lengths), strict=True):
        readouts.append(model(segment, state)[0])
        score, state = model.log_prob(segment, target, state)
        scores.append(score)
    assert_same(join(readouts), whole)
    assert_same(torch.cat(scores), log_prob)
    assert_same(state, end)


@every_device
@every_model
@given(last=st.integers(0, 6), seed=st.integers(1, 1000), double=st.booleans())
@settings(max_examples=3)
def test_later_words_change_nothing_before_them(
    config: ModelConfig, device: str, last: int, seed: int, double: bool
) -> None:
    model = language_model(config, torch.float64 if double else torch.float32).to(device)
    tokens, targets = words(8, 3).to(device), words(8, 3, seed=2).to(device)
    other = tokens.clone()
    other[last + 1 :] = words(7 - last, 3, seed=seed)
    other[last + 1] = (tokens[last + 1] + 1) % small.VOCABULARY
    state = after_prefix(model, batch=3)
    one, two = answers(model, tokens, targets, state), answers(model, other, targets, state)
    assert bitwise([x[: last + 1] for x in one], [x[: last + 1] for x in two])
    for n, (a, b) in enumerate(zip(one, two, strict=True)):
        # the one weight of a window of one is 1 whatever was read; single scores know nothing of the current word
        changed = last + 1 + (n == 1 and getattr(config.memory, "score", None) == "single")
        if n in (1, 2) and small.KINDS[config.memory.kind].blind(config.memory):
            continue
        assert a.shape[-1] == 1 or changed == 8 or not torch.equal(a[changed], b[changed])


@every_model
def test_double_precision_changes_only_rounding(config: ModelConfig) -> None:
    tokens, targets = words(6, 2), words(6, 2, seed=1)
    models = [language_model(config, dtype) for dtype in (torch.float64, torch.float32)]
    wide, narrow = (answers(model, tokens, targets, model.init_state(2)) for model in models)
    assert {x.dtype for x in narrow} == {torch.float32}
    torch.testing.assert_close([x.double() for x in narrow], wide, rtol=1e-4, atol=1e-4)


@every_model
def test_targets_are_not_read(config: ModelConfig) -> None:
    model = language_model(config)
    tokens, targets, state = words(5, 2), words(5, 2, seed=1), after_prefix(model)
    other = targets.clone()
    other[2] = (other[2] + 1) % small.VOCABULARY
    one, end = model.log_prob(tokens, targets, state)
    two, other_end = model.log_prob(tokens, other, state)
    assert bitwise(end, other_end)
    assert (one != two).any(1).tolist() == [False, False, True, False, False]


@every_model
def test_streams_do_not_touch_each_other(config: ModelConfig) -> None:
    model = language_model(config)
    tokens, targets, state = words(6, 3), words(6, 3, seed=1), after_prefix(model, batch=3)
    whole = answers(model, tokens, targets, state)
    for b in range(3):
        column = slice(b, b + 1)
        alone = answers(model, tokens[:, column], targets[:, column], state.select(torch.tensor([b])))
        assert_same(alone, [x[:, column] for x in whole])
    other = tokens.clone()
    other[:, 1] = (other[:, 1] + 1) % small.VOCABULARY
    changed = answers(model, other, targets, state)
    assert bitwise([x[:, ::2] for x in changed], [x[:, ::2] for x in whole])
    assert not bitwise(changed, whole)


@every_model
def test_reset_streams_start_again(config: ModelConfig) -> None:
    """A reset stream is a new stream, bit by bit, even if NaN or no word stood in it; the others go on, bit by bit."""
    begun, new = begun_and_new(language_model(config))
    if config.memory.slots is not None:
        assert bitwise(begun, new)
    else:
        # the slots of the stream that goes on are there for all, empty, and a sum over more of them rounds differently
        assert not begun[1][..., : -new[1].shape[-1]].any()
        begun[1] = begun[1][..., -new[1].shape[-1] :]
        assert_same(begun, new)


def begun_and_new(model: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Answers for streams that were reset, and for new ones; those of the others are as they would have been."""
    tokens, targets, fresh = words(6, 3), words(6, 3, seed=1), model.init_state(3)
    state = after_prefix(model, batch=3)
    marked = torch.tensor([True, False, True])
    poisoned = LMState.from_flat({name: poison(x, marked) for name, x in state.flat().items()})
    result = answers(model, tokens, targets, poisoned.reset(marked, fresh))
    new, old = (answers(model, tokens, targets, start) for start in (fresh, state))
    assert bitwise([x[:, ~marked] for x in result], [x[:, ~marked] for x in old])
    assert not bitwise(new, old)
    return [x[:, marked] for x in result], [x[:, marked] for x in new]


def poison(x: Tensor, streams: Tensor) -> Tensor:
    x = x.clone()
    if x.dtype != torch.bool:
        x[:, streams] = torch.nan if x.is_floating_point() else -1
    return x


@every_model
def test_probabilities(config: ModelConfig) -> None:
    model = language_model(config)
    tokens, targets, state = words(6, 3), words(6, 3, seed=1), after_prefix(model, batch=3)
    every, end = model.log_probs(tokens, state)
    one, same_end = model.log_prob(tokens, targets, state)
    assert every.shape == (6, 3, small.VOCABULARY)
    total = every.exp().sum(-1)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-13)
    assert_same(one, every.gather(-1, targets[..., None]).squeeze(-1))
    assert bitwise(end, same_end)


@every_model
def test_gradients_end_at_the_segment_border(config: ModelConfig) -> None:
    model = language_model(config)

    def reached(detach: bool) -> Tensor:
        """Which words of the first segment the second segment's loss teaches."""
        first, second = torch.tensor([[1], [2], [3]]), torch.tensor([[4], [5]])
        _, state = model(first, model.init_state(1))
        if detach:
            state = state.detach()
            assert not any(x.requires_grad for x in tensors(state))
        readout, _ = model(second, state)
        (gradient,) = torch.autograd.grad(readout.features.sum(), model.embedding.weight)
        return gradient.abs().sum(1).nonzero().flatten()

    assert reached(detach=True).tolist() == [4, 5]
    assert reached(detach=False).tolist() == [1, 2, 3, 4, 5]


@every_model
def test_sizes_are_counted_without_memory_for_the_weights(config: ModelConfig) -> None:
    """As before every training: no number may be asked of a tensor while a room is built."""
    with torch.device("meta"):
        counted = sum(x.numel() for x in LanguageModel(config, 50).parameters())
    assert counted == sum(x.numel() for x in LanguageModel(config, 50).parameters())


@every_model
def test_weights_start_in_range(config: ModelConfig) -> None:
    """U(-r, r) for everything that learns (of encoders: `test_encoders.py`; latents and slopes: their own tests)."""
    torch.manual_seed(0)
    width = 240 // config.memory.parts if config.head.tied else 20
    larger = dataclasses.replace(config, init_range=0.03, embedding_size=width, encoder=config.encoder.resized(240))
    for name, parameter in LanguageModel(larger, 50).named_parameters():
        if not name.startswith(("encoder.", "head.latent.", "head.prior.", "memory.slope.")):
            assert parameter.requires_grad
            assert -0.03 <= parameter.min() <= parameter.max() <= 0.03, name
            if parameter.numel() > 20:  # the bias of a gate has two
                assert parameter.min() < -0.02 and parameter.max() > 0.02, name


@every_model
def test_biases_have_a_range_of_their_own(config: ModelConfig) -> None:
    """With 0 they start at zero, but for the forget gate, which has an option, and rooms whose papers start them."""
    encoder = config.encoder
    if isinstance(encoder, LSTMConfig | VariationalLSTMConfig | MogrifierLSTMConfig | LSTMBlocksConfig):
        encoder = dataclasses.replace(encoder, forget_bias=0.0)
    model = LanguageModel(dataclasses.replace(config, bias_range=0.0, init_range=0.5, encoder=encoder), 10)
    own = ("head.latent", *["encoder"] * isinstance(encoder, AWDLSTMConfig))
    found = {name: x for name, x in model.named_parameters() if not name.startswith(own)}
    biases = {name for name in found if name.rsplit(".", 1)[-1].startswith("bias")}
    assert biases or isinstance(encoder, AWDLSTMConfig)
    assert {name for name, x in found.items() if not x.count_nonzero()} == biases


def dropped(kept: Tensor, plain: Tensor, rate: float) -> None:
    """Every element is zero or scaled up to keep the mean; neither all nor none are zero."""
    zero = kept == 0
    torch.testing.assert_close(kept[~zero], plain[~zero] / (1 - rate))
    assert rate / 2 < zero.double().mean() < (1 + rate) / 2


@pytest.mark.parametrize(
    "memory",
    [
        KeyValueConfig(roles=3, window=3),
        NGramConfig(order=3),
        PointerSentinelConfig(window=3),
        AttentiveConfig(score="single"),
        AttentiveConfig(score="combined", window=3),
    ],
    ids=small.identify,
)
def test_output_dropout_acts_only_in_training(memory: Any) -> None:
    """It acts on what the head reads; what is remembered and attended stays whole."""
    config = small.model_config(small.SMALL_ENCODERS["lstm"][0], memory, small.SMALL_HEADS["softmax"][0])
    model = language_model(dataclasses.replace(config, output_dropout=0.375))
    plain = language_model(config)
    tokens, state = words(9, 8), plain.init_state(8)
    expected, end = plain(tokens, state)
    assert bitwise(model(tokens, state)[0], expected)
    readout, same_end = model.train()(tokens, state)
    dropped(readout.features, expected.features, 0.375)
    assert bitwise(tensors(readout)[1:], tensors(expected)[1:])
    assert bitwise(same_end, end)
    assert not bitwise(model(tokens, state)[0], readout)


@needs_bf16
@every_device
@every_model
def test_reduced_precision_stays_close_over_segments(config: ModelConfig, device: str) -> None:
    torch.manual_seed(0)
    model = LanguageModel(config, small.VOCABULARY).to(device).eval()
    tokens, targets = words(8, 2).to(device), words(8, 2, seed=1).to(device)
    expected, _ = model.log_prob(tokens, targets, model.init_state(2))
    state, scores = model.init_state(2), []
    with torch.autocast(device, torch.bfloat16):
        for segment, target in zip(tokens.split(3), targets.split(3), strict=True):
            score, state = model.log_prob(segment, target, state)
            scores.append(score)
    actual = torch.cat(scores)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, expected, rtol=0.02, atol=0.02)
    actual.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)


@every_model
def test_penalties_are_of_what_the_encoder_gave(config: ModelConfig) -> None:
    """TAR's h is that before any dropout (Merity et al., 2018), whatever memory and head come after it."""
    own = isinstance(config.memory, SpanBufferConfig)  # which has a dropout of its own
    model = language_model(config if own else dataclasses.replace(config, output_dropout=0.5)).train()
    given: list[Tensor] = []
    model.encoder.register_forward_hook(lambda _, inputs, found: given.append(found[0]))
    readout, _ = model(words(5, 3), model.init_state(3))
    assert readout.hidden is not None and torch.equal(readout.hidden, given[0])


def carried(config: ModelConfig, batch: int = 4) -> LMState:
    model = language_model(config)
    return model(words(3, batch), model.init_state(batch))[1]


@every_model
def test_select_takes_and_repeats_streams(config: ModelConfig) -> None:
    model = language_model(config)
    state = carried(config)
    index = torch.tensor([2, 0, 0, 3, 2])
    chosen = state.select(index)
    assert bitwise(chosen, state.map(lambda x: x[:, index]))
    tokens = words(4, 4, seed=1)
    whole, end = model(tokens, state)
    some, some_end = model(tokens[:, index], chosen)
    assert_same(some, [x[:, index] for x in small.tensors(whole)])
    assert_same(some_end, end.select(index))


@every_model
def test_reset_touches_only_the_marked_streams(config: ModelConfig) -> None:
    """A state that has grown keeps its slots: those that the initial one does not have become empty."""
    state = carried(config)
    before = state.map(torch.clone)
    initial = language_model(config).init_state(4)
    for mask in torch.tensor([[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1]]).bool():
        result = state.reset(mask, initial)
        for fresh, x in zip(small.tensors(initial), small.tensors(result), strict=True):
            older = len(x) - len(fresh)
            assert torch.equal(x[older:, mask], fresh[:, mask])
            assert not x[:older, mask].any()
        assert (result is initial) == mask.all()
        if result is not initial:
            kept = [[x[:, ~mask] for x in small.tensors(one)] for one in (result, state)]
            assert bitwise(*kept)
        assert bitwise(state, before)


@every_model
def test_streams_of_other_lengths_stand_side_by_side(config: ModelConfig) -> None:
    """Each goes on as if it were alone; what one has grown less is empty."""
    model = language_model(config)
    lengths, tokens = (5, 0, 3), words(4, 3, seed=1)
    states = [model(words(n, 1, seed=n), model.init_state(1))[1] if n else model.init_state(1) for n in lengths]
    beside = LMState.beside(states)
    assert bitwise(LMState.beside(states[:1]), states[0])
    whole, end = model(tokens, beside)
    for b, state in enumerate(states):
        alone, end_alone = model(tokens[:, b : b + 1], state)
        assert_same(whole.features[:, b : b + 1], alone.features)
        if alone.attention is not None:
            # the nearest step is the last column, however far back the others reach
            every, one = whole.attention.weights, alone.attention.weights
            assert_same(every[:, b : b + 1, -one.shape[-1] :], one)
        kept = [x[len(x) - len(y) :, b : b + 1] for x, y in zip(*map(small.tensors, (end, end_alone)), strict=True)]
        assert_same(kept, small.tensors(end_alone))
