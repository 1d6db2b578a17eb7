"""Masks: which axes share a draw, what it does to the mean, and that nothing happens outside training."""

import dataclasses

import pytest
import torch
from torch import Tensor

from spanlm.models.language_model import LanguageModel, gaussian_noise, word_dropout
from spanlm.models.ops.dropout import dropout, locked_dropout, mask_on_gpu, rounded
from tests.models import small
from tests.models.small import bitwise, language_model, words

WORDS = 50


def test_streams_share_a_draw_of_words_where_they_are_told_to() -> None:
    x, tokens = torch.ones(4, 6, 1), torch.arange(4).unsqueeze(1).expand(4, 6)
    torch.manual_seed(0)
    drawn = word_dropout(x, tokens, WORDS, 0.5, True, shared=True)
    assert torch.equal(drawn, drawn[:, :1].expand_as(drawn))
    assert len(drawn.unique()) == 2


def test_noise_has_its_deviation_and_no_mean_and_is_for_training() -> None:
    x = torch.full((50, 20, 30), 7.0, dtype=torch.float64)
    torch.manual_seed(0)
    noise = gaussian_noise(x, 0.2, True) - x
    assert noise.std().item() == pytest.approx(0.2, rel=0.02)
    assert noise.mean().item() == pytest.approx(0, abs=0.005)
    assert gaussian_noise(x, 0.2, False) is x
    assert gaussian_noise(x, 0.0, True) is x


def test_word_dropout_drops_whole_words_wherever_they_stand() -> None:
    torch.manual_seed(0)
    tokens = words(60, 3, size=7)
    dropped = word_dropout(torch.ones(60, 3, 5), tokens, 7, 0.5, True)
    assert (dropped == dropped[..., :1]).all(), "a word's units share its fate"
    for stream in range(3):
        for word in range(7):
            assert len(dropped[:, stream][tokens[:, stream] == word].unique()) == 1
    assert dropped.unique().tolist() == [0, 2]


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.77])
@pytest.mark.parametrize("shape, gpu", [((401, 203), False), ((400, 300), False), ((400, 300), True)])
def test_weights_are_dropped_each_by_itself_and_keep_their_expectation(
    rate: float, shape: tuple[int, int], gpu: bool
) -> None:
    torch.manual_seed(0)
    weight = torch.full(shape, 2.0, dtype=torch.float64)
    dropped = (
        weight * mask_on_gpu(shape, rate, weight, None) / (1 - rounded(rate))
        if gpu
        else dropout(weight, rate, True, streams=None)
    )
    out = (dropped == 0).double()
    assert dropped.unique().tolist() == pytest.approx([0, 2 / (1 - rate)], rel=2**-14)
    deviation = (rate * (1 - rate) / out.numel()) ** 0.5
    assert out.mean().item() == pytest.approx(rate, abs=5 * deviation)
    assert dropped.mean().item() == pytest.approx(2, abs=10 * deviation / (1 - rate))
    for lag in (1, 2, 3, 4, shape[1]):  # four are drawn at once
        both = out.flatten()[lag:] * out.flatten()[:-lag]
        assert both.mean().item() == pytest.approx(rate * rate, abs=6 * (rate * rate / out.numel()) ** 0.5)


@pytest.mark.parametrize(("rate", "share"), [(1e-9, 0), (1 - 1e-9, 1 - 2**-16)])
def test_extreme_rates_are_the_nearest_that_16_bits_have(rate: float, share: float) -> None:
    torch.manual_seed(0)
    dropped = dropout(torch.ones(1000, 1000, dtype=torch.float64), rate, True, streams=None)
    assert (dropped == 0).double().mean().item() == pytest.approx(share, abs=2**-16)
    assert set(dropped.unique().tolist()) <= {0.0, 1 / (1 - share)}


def test_a_locked_mask_in_bfloat16_keeps_its_expectation() -> None:
    """1 / 0.75 is 1.3333, and 1.3359 in bfloat16, for every unit of every step."""
    torch.manual_seed(0)
    x = torch.linspace(1, 2, 129, dtype=torch.bfloat16).expand(2, 1, 129)
    dropped = locked_dropout(x, 0.25, True)
    kept = dropped[0, 0] != 0
    assert dropped.dtype == x.dtype
    ratio = (dropped[0, 0, kept].double() / x[0, 0, kept].double()).mean().item()
    assert ratio == pytest.approx(1 / 0.75, rel=5e-4)


def test_the_input_is_dropped_in_training_alone() -> None:
    """Words before units; a word that is out is zero for the encoder and whole for the softmax tied to it."""
    parts = (small.SMALL_ENCODERS["lstm"][0], small.SMALL_MEMORIES["none"][0], small.SMALL_HEADS["softmax"][2])
    config = small.model_config(*parts)
    tokens = words(30, 4)
    for name in ("embedding_dropout", "input_dropout"):
        model = language_model(dataclasses.replace(config, **{name: 0.375}))
        seen, state = read_by(model), model.init_state(4)
        assert bitwise(model(tokens, state)[0], language_model(config)(tokens, state)[0])
        model.train()(tokens, state)
        plain, out = model.embedding(tokens), seen[1] == 0
        if name == "embedding_dropout":
            assert torch.equal(out, out.all(-1, keepdim=True).expand_as(out))
        assert 0.2 < out.double().mean() < 0.6
        torch.testing.assert_close(seen[1][~out], plain[~out] / 0.625)


def read_by(model: LanguageModel) -> list[Tensor]:
    seen: list[Tensor] = []
    model.encoder.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    return seen


@pytest.mark.parametrize("locked", [True, False])
def test_locked_is_a_choice_for_what_is_read_and_what_is_predicted_from(locked: bool) -> None:
    config = small.models()[0].values[0]
    model = language_model(dataclasses.replace(config, input_dropout=0.5, output_dropout=0.5, locked_dropout=locked))
    seen = read_by(model)
    readout, _ = model.train()(words(12, 4), model.init_state(4))
    for dropped in (seen[0], readout.features):
        zero = dropped == 0
        assert zero.any() and not zero.all()
        assert bool((zero == zero[0]).all()) == locked


def test_noise_stands_between_both_dropouts_of_the_input() -> None:
    """As in the public code of Wang et al. (2019): on dropped words, too, and dropped itself."""
    config = dataclasses.replace(small.models()[0].values[0], embedding_dropout=0.5, input_noise=0.3)
    zeros = []
    for rate in (0.0, 0.4):
        model = language_model(dataclasses.replace(config, input_dropout=rate)).train()
        seen = read_by(model)
        model(words(9, 8), model.init_state(8))
        zeros.append(float((seen[0] == 0).double().mean()))
    assert zeros[0] == 0 and 0.2 < zeros[1] < 0.6
