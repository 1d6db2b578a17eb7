"""What every registered head promises; the mixture of softmaxes against its loop; adversarial training of both."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from spanlm.errors import InputError
from spanlm.models.heads import MixtureOfSoftmaxesConfig, SoftmaxConfig
from spanlm.models.interfaces import Readout
from spanlm.models.ops.dropout import dropout_mask
from tests.models import small
from tests.models.small import Largest, assert_same, bitwise, build, values, words
from tests.models.twins import assert_twin, gradients
from tests.reference import Mixture, adversarial_log_prob, adversarial_mixture, mixture_of_softmaxes

SIZE, VOCABULARY = 6, 13

every_head = pytest.mark.parametrize("config", small.heads())


def embedding() -> nn.Embedding:
    torch.manual_seed(1)
    return nn.Embedding(VOCABULARY, SIZE).double()


def head_of(config: Any) -> Any:
    return build(config, SIZE, embedding())


@every_head
@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
def test_one_target_is_one_column_of_all(config: Any, scale: float) -> None:
    head = head_of(config)
    features = (scale * values(4, 3, SIZE)).requires_grad_()
    targets = words(4, 3, size=VOCABULARY)
    leaves = [features, *head.parameters()]
    one = head.log_prob(Readout(features), targets)
    every = head.log_probs(Readout(features)).gather(-1, targets[..., None]).squeeze(-1)
    assert one.shape == targets.shape
    assert_same(one, every)
    mask = values(4, 3, seed=2)
    assert_same(
        list(torch.autograd.grad((one * mask).sum(), leaves)),
        list(torch.autograd.grad((every * mask).sum(), leaves)),
        atol=1e-10,
    )


@every_head
def test_one_target_is_one_column_of_all_under_autocast(config: Any) -> None:
    """The bias, which is often the largest addend, is rounded in neither."""
    head, features, targets = head_of(config).float(), values(4, 3, SIZE).float(), words(4, 3, size=VOCABULARY)
    if head.bias is not None:
        head.bias.data.uniform_(-9, 9)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        one = head.log_prob(Readout(features), targets)
        every = head.log_probs(Readout(features)).gather(-1, targets[..., None]).squeeze(-1)
    assert_same(one, every, atol=1e-3)


EPSILON = 0.3

CONFIGS: list[Any] = [
    SoftmaxConfig,
    lambda **f: SoftmaxConfig(tied=True, bias=False, **f),
    lambda **f: SoftmaxConfig(tied=True, projection=True, **f),
    lambda **f: MixtureOfSoftmaxesConfig(experts=3, latent_dropout=0.0, **f),
    lambda **f: MixtureOfSoftmaxesConfig(experts=2, latent_dropout=0.0, bias=False, tied=False, **f),
]
both_heads = pytest.mark.parametrize(
    "config", CONFIGS, ids=["softmax", "tied-no-bias", "projection", "mixture", "mixture-untied-no-bias"]
)


def head_with(config: Any, **fields: Any) -> Any:
    torch.manual_seed(1)
    return build(config(**fields), SIZE, nn.Embedding(VOCABULARY, SIZE).double())


def twin(head: Any, features: Tensor, targets: Tensor) -> Tensor:
    if hasattr(head, "latent"):
        parts = Mixture(head.latent.weight, head.latent.bias, head.prior.weight, head.weight, head.bias)
        return adversarial_mixture(features, targets, parts, EPSILON)
    xs = features if head.projection is None else linear(features, head.projection.weight, head.projection.bias)
    flat = list(xs.flatten(0, 1)), targets.flatten().tolist()
    return torch.stack(adversarial_log_prob(*flat, head.weight, head.bias, EPSILON)).view_as(targets)


@both_heads
@pytest.mark.parametrize("vocabulary", [2, VOCABULARY], ids=["targets-repeat", "targets-differ"])
def test_it_is_the_loop(config: Any, vocabulary: int) -> None:
    head = head_with(config, adversarial=EPSILON).train()
    features, targets = values(4, 3, SIZE).requires_grad_(), words(4, 3, size=vocabulary)
    leaves = [features, *head.parameters()]
    actual = head.log_prob(Readout(features), targets)
    expected = twin(head, features, targets)
    assert_twin([actual], [expected], leaves)


@both_heads
def test_it_acts_in_training_alone(config: Any) -> None:
    """Dynamic evaluation learns in evaluation mode, where there is none either."""
    plain = head_with(config)
    head = head_with(config, adversarial=EPSILON)
    readout, targets = Readout(values(4, 3, SIZE)), words(4, 3, size=VOCABULARY)
    assert bitwise(head.log_prob(readout, targets), plain.log_prob(readout, targets))
    assert bitwise(head.log_probs(readout), plain.log_probs(readout))
    head.train(), plain.train()
    trained, without = head.log_prob(readout, targets), plain.log_prob(readout, targets)
    assert (trained <= without).all()
    assert (trained < without).any()


def test_the_dropped_latent_is_what_the_mixture_is_trained_against() -> None:
    """What an expert is asked with is what it is changed against: g after its dropout."""
    config = MixtureOfSoftmaxesConfig(experts=2, latent_dropout=0.6, adversarial=EPSILON)
    head = head_with(lambda: config).train()
    features, targets = values(4, 3, SIZE), words(4, 3, size=VOCABULARY)
    torch.manual_seed(3)
    actual = head.log_prob(Readout(features), targets)
    torch.manual_seed(3)
    seen = head._seen(features).detach()
    words_seen = targets.flatten().repeat_interleave(2).tolist()
    each = adversarial_log_prob(list(seen.flatten(0, 2)), words_seen, head.weight, head.bias, EPSILON)
    share = head.prior(features).softmax(-1)
    assert_same(actual, (share * torch.stack(each).view(4, 3, 2).exp()).sum(-1).log())
    assert (seen == 0).any()


@both_heads
def test_in_bfloat16_it_trains(config: Any) -> None:
    head = head_with(config, adversarial=EPSILON).float().train()
    wide = head_with(config, adversarial=EPSILON).train()
    features, targets = values(5, 2, SIZE), words(5, 2, size=VOCABULARY)
    with torch.autocast("cpu", torch.bfloat16):
        log_p = head.log_prob(Readout(features.bfloat16()), targets)
    assert log_p.dtype == torch.float32
    torch.testing.assert_close(log_p.double(), wide.log_prob(Readout(features), targets), rtol=0.05, atol=0.05)
    log_p.mean().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in head.parameters())


EMBEDDING = 4


def mixture_of(**fields: Any) -> Any:
    torch.manual_seed(1)
    return build(MixtureOfSoftmaxesConfig(**fields), SIZE, nn.Embedding(VOCABULARY, EMBEDDING))


def twin_of(head: Any, mask: Tensor | None = None) -> Mixture:
    return Mixture(head.latent.weight, head.latent.bias, head.prior.weight, head.weight, head.bias, mask)


def picked(every: Tensor, targets: Tensor) -> Tensor:
    return every.gather(-1, targets[..., None]).squeeze(-1)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])
@pytest.mark.parametrize(
    "fields",
    [{"experts": 3}, {"experts": 1}, {"experts": 4, "tied": False}, {"experts": 2, "tied": False, "latent_size": 5}],
    ids=str,
)
def test_a_mixture_is_the_loop(fields: dict[str, Any], bias: bool) -> None:
    head = mixture_of(bias=bias, **fields)
    features, targets = values(3, 2, SIZE).requires_grad_(), words(3, 2, size=VOCABULARY)
    leaves = [features, *head.parameters()]
    every = mixture_of_softmaxes(features, twin_of(head))

    actual = head.log_probs(Readout(features))
    assert_twin([actual], [every], leaves)
    one, expected = head.log_prob(Readout(features), targets), picked(every, targets)
    assert_twin([one], [expected], leaves)
    assert_same(torch.autograd.grad(one.mean(), leaves)[0], torch.autograd.grad(expected.mean(), leaves)[0])


@pytest.mark.parametrize("ask", ["log_prob", "log_probs"])
def test_the_dropout_of_training_is_one_mask_a_stream(ask: str) -> None:
    """Constant over the steps, different between streams, on g: the loop with the same mask says the same."""
    head = mixture_of(experts=3, latent_dropout=0.4).train()
    h = values(5, 2, SIZE).requires_grad_()
    targets = words(5, 2, size=VOCABULARY)
    torch.manual_seed(7)
    actual = head.log_prob(Readout(h), targets) if ask == "log_prob" else head.log_probs(Readout(h))
    torch.manual_seed(7)
    mask = dropout_mask((2, 3 * EMBEDDING), 0.4, h, 0)
    assert 0 < (mask == 0).sum() < mask.numel() and not torch.equal(mask[0], mask[1])
    every = mixture_of_softmaxes(h, twin_of(head, mask))
    expected = picked(every, targets) if ask == "log_prob" else every
    assert_same(actual, expected)
    leaves = [h, *head.parameters()]
    assert_same(gradients([actual], leaves), gradients([expected], leaves))


def test_a_latent_size_that_does_not_fit_the_tied_embedding() -> None:
    message = (
        r"^model\.head\.latent_size=5 does not fit the tied embedding: model\.embedding_size is 4\. "
        r"Leave model\.head\.latent_size null, or set model\.head\.tied=false\.$"
    )
    with pytest.raises(InputError, match=message):
        mixture_of(latent_size=5)
    assert mixture_of(latent_size=5, tied=False).weight.shape == (VOCABULARY, 5)
    assert mixture_of(latent_size=4).weight.shape == (VOCABULARY, 4)
    assert mixture_of().latent.weight.shape == (15 * 4, SIZE)


def largest_of(call: Any) -> int:
    """Elements of the largest tensor that is made."""
    with Largest() as largest:
        call()
    return largest.elements


def test_the_distribution_is_made_an_expert_at_a_time() -> None:
    head, readout = mixture_of(experts=9), Readout(values(11, 3, SIZE))
    with torch.no_grad():
        assert largest_of(lambda: head.log_probs(readout)) < 2 * 11 * 3 * max(VOCABULARY, 9 * EMBEDDING)
        wide = build(MixtureOfSoftmaxesConfig(experts=9), SIZE, nn.Embedding(500, EMBEDDING))
        assert largest_of(lambda: wide.log_probs(readout)) == 11 * 3 * 500
