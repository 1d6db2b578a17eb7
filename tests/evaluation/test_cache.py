"""The neural cache: against a plain loop over the words, whatever the cut, and never with a look ahead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from spanlm.data.batching import Segment
from spanlm.evaluation import protocol as module
from spanlm.evaluation.cache import CacheConfig, with_cache
from spanlm.evaluation.perplexity import evaluate
from spanlm.evaluation.protocol import Context, Protocol
from spanlm.evaluation.scoring import Scored, score
from spanlm.models.ensemble import Combination, Ensemble
from spanlm.models.interfaces import NextWordModel, Readout
from spanlm.models.language_model import LanguageModel
from tests.evaluation import reference
from tests.evaluation.reference import CONTEXTS

TARGETS = sum(len(line) + 1 for line in reference.TEXT)
SIZE = len(reference.WORDS)
USUAL = CacheConfig(window=7, theta=0.8, lambda_=0.3)


def pieces(context: Context, batch_size: int = 1) -> list[tuple[list[int], list[int]]]:
    """Inputs and targets of what is read from an empty state."""
    corpus = reference.corpus(reference.TEXT)
    eos = corpus.vocabulary.eos_id
    if context == "carry":
        ids = [eos, *corpus.splits["test"].ids.tolist()]
        column = math.ceil(TARGETS / batch_size)
        found = [ids[start : start + column + 1] for start in range(0, TARGETS, column)]
    else:
        groups = reference.groups(reference.TEXT, context)
        encode = corpus.vocabulary.encode
        found = [[eos, *(i for n in g for i in encode([*reference.TEXT[n], "<eos>"]))] for g in groups]
    return [(ids[:-1], ids[1:]) for ids in found]


def loop(
    model: NextWordModel,
    inputs: Sequence[int],
    targets: Sequence[int],
    cache: CacheConfig,
    openings: Sequence[int] = (),
) -> list[float]:
    """-log p of every target."""
    p = reference.cached_distributions(model, inputs, targets, cache.window, cache.theta, cache.lambda_, openings)
    return (-np.log(p[range(len(targets)), targets])).tolist()


def loop_over(
    model: NextWordModel, parts: Sequence[tuple[list[int], list[int]]], cache: CacheConfig, across: bool
) -> list[list[float]]:
    """-log p of every target of texts that begin with an empty state and, unless `across`, an empty cache."""
    if not across:
        return [loop(model, *part, cache) for part in parts]
    starts = np.cumsum([0, *(len(targets) for _, targets in parts)])
    inputs, targets = ([i for part in parts for i in part[side]] for side in (0, 1))
    rows = loop(model, inputs, targets, cache, starts.tolist())
    return [rows[begin:end] for begin, end in pairwise(starts)]


@pytest.mark.parametrize("memory", reference.MEMORIES)
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("window", [1, 3, 11, TARGETS])
def test_nll_is_that_of_the_equation(context: Context, memory: str, window: int) -> None:
    model, cache = reference.small_model(memory), CacheConfig(window=window, theta=0.8, lambda_=0.3)
    rows = [x for row in loop_over(model, pieces(context), cache, context == "line") for x in row]
    result = evaluate(model, reference.corpus(reference.TEXT), protocol=Protocol(context=context), cache=cache)
    assert result.tokens == len(rows) == TARGETS
    assert result.nll == pytest.approx(sum(rows), rel=1e-12)


@pytest.mark.parametrize("batch_size", [2, 3, 5, TARGETS])
def test_streams_have_caches_of_their_own(batch_size: int) -> None:
    model, corpus = reference.small_model(), reference.corpus(reference.TEXT)
    expected = sum(sum(loop(model, *piece, USUAL)) for piece in pieces("carry", batch_size))
    assert evaluate(model, corpus, protocol=Protocol(batch_size=batch_size), cache=USUAL).nll == pytest.approx(
        expected, rel=1e-12
    )


@settings(max_examples=15, deadline=None)
@example(length=3, batch_size=2, context="carry", window=5)  # the first step of a segment needs all that were carried
@given(
    length=st.integers(1, 60),
    batch_size=st.integers(1, 9),
    context=st.sampled_from(CONTEXTS),
    window=st.integers(1, TARGETS),
)
def test_any_cut_is_the_same(length: int, batch_size: int, context: Context, window: int) -> None:
    model, corpus, cache = reference.small_model(), reference.corpus(reference.TEXT), replace(USUAL, window=window)
    usual = evaluate(model, corpus, protocol=Protocol(context=context, batch_size=batch_size), cache=cache)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LENGTH", length)
        result = evaluate(model, corpus, protocol=Protocol(context=context, batch_size=batch_size), cache=cache)
    assert result.nll == pytest.approx(usual.nll, rel=1e-12)
    if context != "carry":
        assert result.nll == pytest.approx(
            evaluate(model, corpus, protocol=Protocol(context=context), cache=cache).nll, rel=1e-12
        )


def test_without_the_cache_it_is_the_plain_evaluation() -> None:
    model, corpus = reference.small_model(), reference.corpus(reference.TEXT)
    for context in CONTEXTS:
        found, plain = (
            evaluate(model, corpus, protocol=Protocol(context=context), cache=USUAL),
            evaluate(model, corpus, protocol=Protocol(context=context)),
        )
        assert found.without_cache is not None and plain.without_cache is None
        same = {"tokens_per_second": 0.0}
        assert replace(found.without_cache, **same) == replace(plain, **same)
        assert abs(found.nll - plain.nll) > 0.1
        kept = ("corpus", "split", "tokens", "oov_tokens", "unk_tokens")
        assert [asdict(found)[name] for name in kept] == [asdict(plain)[name] for name in kept]


def test_the_count_of_salton_is_of_the_same_probabilities() -> None:
    model, corpus = reference.small_model(), reference.corpus(reference.TEXT)
    rows = loop_over(model, pieces("line"), USUAL, across=True)
    result = evaluate(model, corpus, protocol=Protocol(context="line"), cache=USUAL)
    assert result.salton2017 is not None and result.without_cache is not None
    assert result.salton2017.nll == pytest.approx(sum(sum(row[1:]) for row in rows), rel=1e-12)
    assert "neural cache of the last 7 words" in result.salton2017.protocol
    unopened = [(targets[:-1], targets[1:]) for _, targets in pieces("line") if len(targets) > 1]
    result = evaluate(model, corpus, protocol=Protocol(context="line", predict_first=False), cache=USUAL)
    assert result.salton2017 is not None and result.without_cache is not None
    assert result.salton2017.nll == pytest.approx(sum(map(sum, loop_over(model, unopened, USUAL, across=True))))
    plain = evaluate(model, corpus, protocol=Protocol(context="line", predict_first=False))
    assert result.without_cache.salton2017 is not None and plain.salton2017 is not None
    assert result.without_cache.salton2017.nll == pytest.approx(plain.salton2017.nll, rel=1e-12)


@pytest.mark.parametrize("combination", ["linear", "geometric"])
def test_an_ensemble_has_one_cache_of_all_features(combination: Combination) -> None:
    model = Ensemble([reference.small_model(name) for name in ("none", "kvp")], combination, [0.3, 0.7])
    expected = sum(loop(model, *pieces("carry")[0], USUAL))
    result = evaluate(model, reference.corpus(reference.TEXT), cache=USUAL)
    assert result.nll == pytest.approx(expected, rel=1e-12)


def segments(*cuts: tuple[Tensor, list[bool]]) -> list[Segment]:
    """Segments of words (T + 1, B): what is read, and what follows; and the streams that begin anew."""
    return [
        Segment(words[:-1], words[1:], torch.ones_like(words[1:], dtype=torch.bool), torch.tensor(reset))
        for words, reset in cuts
    ]


def scored(model: LanguageModel, parts: list[Segment]) -> list[Scored]:
    return list(score(model, parts))


def draw(steps: int, streams: int, seed: int = 0) -> Tensor:
    return torch.randint(SIZE, (steps + 1, streams), generator=torch.Generator().manual_seed(seed))


def test_a_reset_empties_one_streams_cache() -> None:
    model, first, second = reference.small_model(), draw(6, 3), draw(5, 3, seed=1)
    parts = scored(model, segments((first, [True] * 3), (second, [False, True, False])))
    found = torch.cat([item.log_p for item in with_cache(parts, USUAL)])
    for stream in range(3):
        a, b = first[:, stream].tolist(), second[:, stream].tolist()
        if stream == 1:
            expected = loop(model, a[:-1], a[1:], USUAL) + loop(model, b[:-1], b[1:], USUAL)
        else:
            expected = loop(model, a[:-1] + b[:-1], a[1:] + b[1:], USUAL)
        assert (-found[:, stream]).tolist() == pytest.approx(expected, rel=1e-12)


def test_padding_is_not_remembered() -> None:
    """In the middle of a stream, too: nothing says that it must stand at its end."""
    model, words = reference.small_model(), draw(8, 1)
    (segment,) = segments((words, [True]))
    mask = segment.mask.clone()
    mask[2:4] = False
    (item,) = scored(model, [segment])
    poisoned = item.readout.features.clone()
    poisoned[2:4] = torch.nan
    item = replace(item, segment=replace(segment, mask=mask), readout=Readout(poisoned))
    (found,) = with_cache([item], replace(USUAL, window=8))
    h, p = poisoned[:, 0], item.log_p[:, 0].exp()
    for t in (4, 7):
        pairs = [i for i in range(t) if i not in (2, 3)]
        alike = torch.stack([(USUAL.theta * (h[t] @ h[i])).exp() for i in pairs])
        hits = torch.tensor([float(words[i + 1, 0] == words[t + 1, 0]) for i in pairs]).double()
        expected = (1 - USUAL.lambda_) * p[t] + USUAL.lambda_ * (alike * hits).sum() / alike.sum()
        assert float(found.log_p[t, 0].exp()) == pytest.approx(float(expected), rel=1e-12)


@pytest.mark.parametrize("cut", [4, 9, 13])
def test_later_words_change_nothing_bit_by_bit(cut: int) -> None:
    model, words = reference.small_model().float(), draw(20, 2)
    other = words.clone()
    other[cut + 1 :] = (words[cut + 1 :] + 1) % SIZE
    a, b = (
        torch.cat(
            [x.log_p for x in with_cache(scored(model, segments((w[:11], [True] * 2), (w[10:], [False] * 2))), USUAL)]
        )
        for w in (words, other)
    )
    assert torch.equal(a[:cut], b[:cut])
    assert not torch.equal(a[cut:], b[cut:])


@pytest.mark.parametrize("theta", [0.0, 1e-40, 1.0, 1e30, 1e300])
@pytest.mark.parametrize("scale", [1.0, 1e4, 1e15])
def test_no_size_of_likeness_is_no_number(theta: float, scale: float) -> None:
    model, words = reference.small_model().float(), draw(30, 2)
    (item,) = scored(model, segments((words, [True] * 2)))
    item = replace(item, readout=Readout(item.readout.features * scale))
    (found,) = with_cache([item], replace(USUAL, theta=theta))
    assert bool(found.log_p.isfinite().all())
    assert bool((found.log_p >= item.log_p + math.log(1 - USUAL.lambda_) - 1e-6).all())
