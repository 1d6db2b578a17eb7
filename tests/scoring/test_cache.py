"""The neural cache: against a plain loop over the words, whatever the cut, never with a look ahead; and its grid."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from spanlm.data.batching import Segment
from spanlm.data.pieces import lines_as_pieces
from spanlm.data.tokenizer import Words
from spanlm.models.ensemble import Ensemble
from spanlm.models.interfaces import NextWordModel, Readout
from spanlm.models.language_model import LanguageModel
from spanlm.models.ops.neural_cache import Lookup, cache_log_prob
from spanlm.runs.texts import text_to_attend
from spanlm.scoring.attention import attention_record
from spanlm.scoring.cache import CacheTuning, NeuralCache, cached_words, mixed, tune_cache
from spanlm.scoring.options import CacheConfig, Context
from spanlm.scoring.protocol import STANDARD, Protocol
from spanlm.scoring.stream import Reading, log_p, read
from tests.scoring import reference
from tests.scoring.reference import CONTEXTS, CORPUS, TARGETS, evaluated, small_model

SIZE = len(reference.WORDS)
USUAL = CacheConfig(window=7, theta=0.8, lambda_=0.3)


def loop(model: NextWordModel, ids: Sequence[int], cache: CacheConfig, openings: Sequence[int] = ()) -> list[float]:
    """-log p of every word but the first."""
    return _loop(model, ids[:-1], ids[1:], cache, openings)


def _loop(
    model: NextWordModel, inputs: Sequence[int], targets: Sequence[int], cache: CacheConfig, openings: Sequence[int]
) -> list[float]:
    p = reference.cached_distributions(model, inputs, targets, cache.window, cache.theta, cache.lambda_, openings)
    return (-np.log(p[range(len(targets)), targets])).tolist()


def loop_over(
    model: NextWordModel, parts: Sequence[Sequence[int]], cache: CacheConfig, across: bool
) -> list[list[float]]:
    """-log p of every target of texts that begin with an empty state and, unless `across`, an empty cache."""
    if not across:
        return [loop(model, part, cache) for part in parts]
    starts = np.cumsum([0, *(len(part) - 1 for part in parts)])
    inputs, targets = [i for part in parts for i in part[:-1]], [i for part in parts for i in part[1:]]
    rows = _loop(model, inputs, targets, cache, starts.tolist())
    return [rows[begin:end] for begin, end in pairwise(starts)]


@pytest.mark.parametrize("memory", ["none", "kvp"])
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("window", [1, 3, TARGETS])
def test_nll_is_that_of_the_equation(context: Context, memory: str, window: int) -> None:
    model, cache = small_model(memory), replace(USUAL, window=window)
    rows = [x for row in loop_over(model, reference.pieces(context), cache, context == "line") for x in row]
    result = evaluated(model, cache, context=context)
    assert result.tokens == len(rows) == TARGETS
    assert result.nll == pytest.approx(sum(rows), rel=1e-12)


@pytest.mark.parametrize("batch_size", [2, 5, TARGETS])
def test_streams_have_caches_of_their_own(batch_size: int) -> None:
    """Each starts in the middle with the true word before; with and without a cache."""
    parts, result = reference.pieces("carry", batch_size), evaluated(small_model(), USUAL, batch_size=batch_size)
    assert result.without_cache is not None and result.tokens == TARGETS
    for found, cache in ((result, USUAL), (result.without_cache, replace(USUAL, lambda_=0.0))):
        assert found.nll == pytest.approx(sum(sum(loop(small_model(), part, cache)) for part in parts), rel=1e-12)


@settings(max_examples=8)
@example(length=3, batch_size=2, context="carry", window=5)  # the first step of a segment needs all that were carried
@given(
    length=st.integers(1, 60),
    batch_size=st.integers(1, 9),
    context=st.sampled_from(CONTEXTS),
    window=st.none() | st.integers(1, TARGETS),
)
@pytest.mark.parametrize("memory", ["kvp", "attentive"])
def test_any_cut_is_the_same(memory: str, length: int, batch_size: int, context: Context, window: int | None) -> None:
    model, cache = small_model(memory), None if window is None else replace(USUAL, window=window)
    usual = evaluated(model, cache, context=context, batch_size=batch_size)
    batcher = Protocol(context=context, batch_size=batch_size).batcher(CORPUS, "test", in_order=True, length=length)
    questions = [log_p] if cache is None else [log_p, NeuralCache(cache, across=context == "line")]
    column = "log_p" if cache is None else "cached"
    blocks = read(model, batcher.segments(), STANDARD, *questions)
    assert -sum(float(block.numpy(column).sum()) for block in blocks) == pytest.approx(usual.nll, rel=1e-12)
    assert (usual.tokens, usual.unk_tokens, usual.oov_tokens) == (TARGETS, 3, 2)
    if context != "carry":
        one = evaluated(model, cache, context=context, batch_size=1)
        assert usual.nll == pytest.approx(one.nll, rel=1e-12) and usual.protocol == one.protocol


def test_the_count_of_salton_is_of_the_same_probabilities() -> None:
    model, lines = small_model(), reference.pieces("line")
    result = evaluated(model, USUAL, context="line")
    assert result.salton2017 is not None
    rows = loop_over(model, lines, USUAL, across=True)
    assert result.salton2017.nll == pytest.approx(sum(sum(row[1:]) for row in rows), rel=1e-12)
    assert "neural cache of the last 7 words" in result.salton2017.protocol
    unopened = [ids[1:] for ids in lines if len(ids) > 2]
    result = evaluated(model, USUAL, context="line", predict_first=False)
    assert result.salton2017 is not None
    assert result.salton2017.nll == pytest.approx(sum(map(sum, loop_over(model, unopened, USUAL, across=True))))


def test_an_ensemble_has_one_cache_of_all_features() -> None:
    model = Ensemble([small_model(name) for name in ("none", "kvp")], [0.3, 0.7])
    (whole,) = reference.pieces("carry")
    assert evaluated(model, USUAL).nll == pytest.approx(sum(loop(model, whole, USUAL)), rel=1e-12)


def segments(*cuts: tuple[Tensor, list[bool]]) -> list[Segment]:
    """Segments of words (T + 1, B): what is read, and what follows; and the streams that begin anew."""
    return [
        Segment(words[:-1], words[1:], torch.ones_like(words[1:], dtype=torch.bool), torch.tensor(reset), words[1:])
        for words, reset in cuts
    ]


def cached(model: LanguageModel, *cuts: tuple[Tensor, list[bool]]) -> Tensor:
    """Log p of the targets with a cache, (T, B)."""
    blocks = read(model, segments(*cuts), STANDARD, NeuralCache(USUAL, across=False))
    parts = zip(blocks, cuts, strict=True)
    return torch.cat([block.answers["cached"].view(words.shape[1], -1).T for block, (words, _) in parts])


def draw(steps: int, streams: int, seed: int = 0) -> Tensor:
    return torch.randint(SIZE, (steps + 1, streams), generator=torch.Generator().manual_seed(seed))


def test_a_reset_empties_one_streams_cache() -> None:
    model, first, second = small_model(), draw(6, 3), draw(5, 3, seed=1)
    found = cached(model, (first, [True] * 3), (second, [False, True, False]))
    for stream in range(3):
        a, b = first[:, stream].tolist(), second[:, stream].tolist()
        both = loop(model, a, USUAL) + loop(model, b, USUAL)
        expected = both if stream == 1 else _loop(model, a[:-1] + b[:-1], a[1:] + b[1:], USUAL, ())
        assert (-found[:, stream]).tolist() == pytest.approx(expected, rel=1e-12)


def test_padding_is_not_remembered() -> None:
    """In the middle of a stream, too: it is as if it were not there."""
    model, (segment,) = small_model(), segments((draw(8, 1), [True]))
    kept = torch.ones(8, dtype=torch.bool)
    kept[2:4] = False
    readout, _ = model(segment.inputs, model.init_state(1))
    poisoned = readout.features.masked_fill(~kept.view(-1, 1, 1), torch.nan)
    parts = {name: getattr(segment, name)[kept] for name in ("inputs", "targets", "mask", "place")}
    short, whole = replace(segment, **parts), replace(segment, mask=kept.unsqueeze(1))
    padded = Reading(model, whole, Readout(poisoned), torch.arange(8)[kept], segment.reset)
    without = Reading(model, short, Readout(poisoned[kept]), torch.arange(6), segment.reset)
    one, other = (NeuralCache(USUAL, across=False)(reading)["cached"] for reading in (padded, without))
    torch.testing.assert_close(one, other, rtol=1e-12, atol=0)


def test_later_words_change_nothing_bit_by_bit() -> None:
    model, words, cut = small_model().float(), draw(20, 2), 9
    other = words.clone()
    other[cut + 1 :] = (words[cut + 1 :] + 1) % SIZE
    a, b = (cached(model, (w[:11], [True] * 2), (w[10:], [False] * 2)) for w in (words, other))
    assert torch.equal(a[:cut], b[:cut])
    assert not torch.equal(a[cut:], b[cut:])


@pytest.mark.parametrize(("theta", "scale"), [(0.0, 1.0), (1e-40, 1e4), (1.0, 1e15), (1e300, 1e15)])
def test_no_size_of_likeness_is_no_number(theta: float, scale: float) -> None:
    model, words = small_model().float(), draw(30, 2)
    readout, _ = model(words[:-1], model.init_state(2))
    plain, h = model.head.log_prob(readout, words[1:]), readout.features * scale
    lookup = Lookup(h, h, words[1:], torch.ones_like(words[1:], dtype=torch.bool), USUAL.window)
    (log_cache,), empty = cache_log_prob(lookup, (theta,))
    found = mixed(plain, log_cache.masked_fill(empty, torch.nan), USUAL.lambda_)
    assert bool(found.isfinite().all())
    assert bool((found >= plain + math.log(1 - USUAL.lambda_) - 1e-6).all())


# one text, word by word


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("window", [3, TARGETS])
def test_words_of_one_text_are_those_of_the_equation(context: Context, window: int) -> None:
    model, cache = small_model(), replace(USUAL, window=window)
    text, starts = text_to_attend(
        lines_as_pieces([" ".join(line) for line in reference.TEXT], Words("whitespace")), context
    )
    record = attention_record(model, reference.VOCABULARY, text, starts=starts, features=True)
    ids = reference.VOCABULARY.encode(record.targets)
    assert record.features is not None
    contexts = [0] if context == "line" else starts
    found = cached_words(record.features, ids, record.surprisal, cache, contexts)
    rows = [x for row in loop_over(model, reference.pieces(context), cache, context == "line") for x in row]
    assert found.surprisal.tolist() == pytest.approx(rows, rel=1e-12)
    assert any(found.chance > 0) and np.isnan(found.chance[contexts]).all()
    for step, (chance, looked) in enumerate(zip(found.chance, found.places, strict=True)):
        assert all(ids[place] == ids[step] and max(0, step - window) <= place < step for place, _ in looked)
        assert sum(share for _, share in looked) == pytest.approx(0 if math.isnan(chance) else chance)


def test_what_was_not_predicted_is_not_kept() -> None:
    """As if it were not there, whatever the model made of it."""
    draw = np.random.default_rng(1)
    features, words, surprisal = draw.normal(size=(9, 4)), [0, 1, 0, 2, 1, 1, 0, 2, 1], draw.uniform(1, 5, 9)
    surprisal[[0, 4]] = math.nan
    there = np.flatnonzero(~np.isnan(surprisal))
    features[[0, 4]] = math.nan
    cache = replace(USUAL, window=3)
    whole = cached_words(features, words, surprisal, cache)
    short = cached_words(features[there], [words[i] for i in there], surprisal[there], cache)
    assert np.flatnonzero(np.isnan(whole.surprisal)).tolist() == [0, 4]
    assert whole.surprisal[there].tolist() == short.surprisal.tolist()
    assert [whole.places[i] for i in there] == [[(there[at], share) for at, share in row] for row in short.places]
    assert whole.places[4] == [] and any(whole.places)
    alone = cached_words(features[:1], words[:1], surprisal[:1], cache)
    assert math.isnan(alone.surprisal[0]) and alone.places == [[]]


# the grid: every point is an evaluation of its own, and one pass of the model gives them all

WINDOWS, SOME_THETAS, SOME_LAMBDAS = (2, 30), (0.0, 0.7), (0.1, 0.45, 1.0)
REPEATED = [["dog", "ran"] * 4] * 4


def tuned(lines: reference.Lines = reference.TEXT, protocol: Protocol = STANDARD, **grid: Any) -> CacheTuning:
    grid = {"windows": WINDOWS, "thetas": SOME_THETAS, "lambdas": SOME_LAMBDAS, **grid}
    return tune_cache(small_model(), reference.corpus(lines), "test", **grid, protocol=protocol)


@pytest.mark.parametrize("context", CONTEXTS)
def test_every_point_is_an_evaluation(context: Context) -> None:
    found, plain = tuned(protocol=Protocol(context=context)), evaluated(small_model(), context=context)
    points = [(w, t, x) for w in WINDOWS for t in SOME_THETAS for x in SOME_LAMBDAS]
    assert [(point.window, point.theta, point.lambda_) for point in found.grid] == points
    for point in found.grid:
        cache = CacheConfig(window=point.window, theta=point.theta, lambda_=point.lambda_)
        expected = evaluated(small_model(), cache, context=context).perplexity
        assert point.perplexity == pytest.approx(expected, rel=1e-12)
    assert found.plain == pytest.approx(plain.perplexity, rel=1e-12)
    assert (found.text, found.tokens) == ("small test", plain.tokens)


def test_the_edge_of_the_grid_is_noted() -> None:
    (note,) = tuned(REPEATED, windows=(5,), thetas=(0.3,), lambdas=(0.01, 0.02)).notes
    assert note.startswith("cache.lambda=0.02 is the largest that was tried")
    assert tuned(REPEATED, windows=(5,), thetas=(0.3,), lambdas=(0.02,)).notes == []
    assert tuned(REPEATED, windows=(5,), thetas=(0.3,), lambdas=(0.02, 1.0)).best.lambda_ == 0.02


def test_no_helpful_cache_is_noted() -> None:
    different = [list(reference.WORDS[1:3]), list(reference.WORDS[4:])]
    found = tuned(different, windows=(8,), lambdas=(0.0, 0.3))
    assert found.best.lambda_ == 0
    assert found.perplexity == found.plain
    assert found.notes == ["cache.lambda=0: no cache of the grid helps."]
