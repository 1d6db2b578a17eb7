"""Nearest neighbours: against a plain loop over all states of the training text, and their datastore."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import spanlm
from spanlm.errors import InputError
from spanlm.models.language_model import LanguageModel
from spanlm.runs.model import TrainedModel
from spanlm.scoring.neighbours import (
    KEYS,
    QUERIES,
    STREAMS,
    Datastore,
    evaluate_neighbours,
    find_datastore,
    tune_neighbours,
)
from spanlm.scoring.options import Context, NeighboursConfig, NeighboursGrid
from spanlm.scoring.perplexity import Evaluation, evaluate
from spanlm.scoring.protocol import Protocol
from tests.models.small import Largest
from tests.scoring import reference
from tests.scoring.reference import CONTEXTS, CORPUS, TARGETS, lines_of, small_model

TRAIN = lines_of("the dog sat on the mat .\nthe cat ran\n\nran on the dog .\n\nthe cat sat on mat\n<unk> dog ran .") * 3
TEXTS = replace(
    CORPUS,
    splits=CORPUS.splits | reference.corpus(TRAIN, split="train").splits,
    oov=CORPUS.oov | {"train": 0},
)
N = len(TEXTS.splits["train"].ids)
USUAL = NeighboursConfig(k=5, temperature=0.7, lambda_=0.3)


def near(config: NeighboursConfig = USUAL, split: str = "test", memory: str = "kvp", **how: Any) -> Evaluation:
    model, protocol = small_model(memory), Protocol(**how)
    store = find_datastore(model, TEXTS, replace(protocol, batch_size=None))
    return evaluate_neighbours(model, TEXTS, split, protocol, store, config)


def steps(model: LanguageModel, piece: list[int]) -> Iterator[tuple[NDArray[np.float64], int, float]]:
    """The head's input, the word that follows, and its probability, one word at a time from an empty state."""
    state = model.init_state(1)
    for word, target in pairwise(piece):
        with torch.no_grad():
            readout, state = model(torch.tensor([[word]]), state)
            p = model.head.log_probs(readout)[0, 0, target].exp()
        yield readout.features[0, 0].numpy(), target, float(p)


def loop(config: NeighboursConfig, context: Context) -> float:
    """The NLL of the test text."""
    model, nll = small_model(), 0.0
    parts = reference.pieces(context, STREAMS, TRAIN)
    pairs = [(h.astype(np.float16).astype(np.float64), word) for part in parts for h, word, _ in steps(model, part)]
    assert len(pairs) == N
    for piece in reference.pieces(context):
        for h, target, p in steps(model, piece):
            distances = [float(((key - h) ** 2).sum()) for key, _ in pairs]
            nearest = sorted(range(N), key=lambda i: distances[i])[: config.k]
            weights = {i: np.exp(-(distances[i] - distances[nearest[0]]) / config.temperature) for i in nearest}
            followed = sum(weight for i, weight in weights.items() if pairs[i][1] == target)
            nll -= np.log((1 - config.lambda_) * p + config.lambda_ * followed / sum(weights.values()))
    return nll


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("k", [1, 5, N])
def test_nll_is_that_of_the_equation(context: Context, k: int) -> None:
    config = replace(USUAL, k=k)
    result = near(config, context=context)
    plain = evaluate(small_model(), TEXTS, protocol=Protocol(context=context))
    assert result.tokens == TARGETS and result.without_neighbours is not None
    assert result.nll == pytest.approx(loop(config, context), rel=1e-5)
    assert result.without_neighbours.nll == pytest.approx(plain.nll, rel=1e-12)
    assert f"{k} nearest neighbours, T 0.7, λ 0.3 in small train" in result.protocol


@pytest.mark.parametrize("batch_size", [2, 7, 64])
@pytest.mark.parametrize("context", ["document", "line"])
def test_any_batch_size_gives_the_same(context: Context, batch_size: int) -> None:
    """Many states of the first steps of lines are equal: the earliest of them are taken."""
    whole, parts = (near(context=context, batch_size=size) for size in (1, batch_size))
    assert parts.nll == pytest.approx(whole.nll, rel=1e-6)


def test_the_training_text_finds_itself() -> None:
    """Three documents begin at <eos>, two go on with "the": of these equal states the earliest is found."""
    model, protocol = small_model(), Protocol(context="document")
    texts = replace(CORPUS, splits={"train": CORPUS.splits["test"]}, oov={"train": 0})
    store = find_datastore(model, texts, protocol)
    states = torch.from_numpy(store.keys.astype(np.float32))
    distances, words = store.nearest(states, 1)
    assert float(distances.max()) < 1e-5
    first = [next(i for i in range(TARGETS) if torch.equal(states[i], state)) for state in states]
    assert words[:, 0].tolist() == store.words[first].tolist()
    assert np.count_nonzero(np.array(first) == np.arange(TARGETS)) == TARGETS - 3
    result = evaluate_neighbours(model, texts, "train", protocol, store, replace(USUAL, k=1, lambda_=0.99))
    assert result.without_neighbours is not None
    assert result.perplexity < 2 < 5 < result.without_neighbours.perplexity


def test_blocks_of_keys_and_queries_change_nothing() -> None:
    draw = np.random.default_rng(1)
    keys, words = draw.normal(size=(KEYS + 5, 3)).astype(np.float16), draw.integers(0, 9, KEYS + 5, np.int32)
    keys[-5:] = keys[:5]
    queries = np.concatenate([keys[:5], draw.normal(size=(QUERIES, 3))]).astype(np.float32)
    with Largest() as largest:
        d, followed = Datastore(Path("none"), "", "", keys, words).nearest(torch.from_numpy(queries), 7)
    assert largest.elements < 1.01 * QUERIES * KEYS
    some = [*range(9), *range(-9, 0)]  # of both blocks of queries
    exact = ((keys.astype(np.float64)[None] - queries[some, None]) ** 2).sum(-1)
    order = np.argsort(exact, axis=1, kind="stable")[:, :7]
    np.testing.assert_allclose(d[some], np.take_along_axis(exact, order, 1), atol=1e-5)
    assert (followed[:5, :2].numpy() == words[[range(5), range(-5, 0)]].T).all()
    assert (followed[some].numpy() == words[order]).mean() > 0.98  # rounding may turn two neighbours round


def test_states_far_from_0_and_near_each_other_are_told_apart() -> None:
    """In float32 the difference of their squares would be noise."""
    draw = np.random.default_rng(1)
    keys = (3 + 0.02 * draw.normal(size=(2000, 16))).astype(np.float16)
    queries = (3 + 0.02 * draw.normal(size=(50, 16))).astype(np.float32)
    d, followed = Datastore(Path("none"), "", "", keys, np.arange(2000, dtype=np.int32)).nearest(
        torch.from_numpy(queries), 9
    )
    exact = ((keys.astype(np.float64)[None] - queries[:, None]) ** 2).sum(-1)
    order = np.argsort(exact, axis=1, kind="stable")[:, :9]
    assert (followed.numpy() == order).mean() > 0.99
    np.testing.assert_allclose(d, np.take_along_axis(exact, order, 1), rtol=1e-5)


def test_every_point_of_the_grid_is_an_evaluation() -> None:
    model, protocol = small_model(), Protocol(context="document")
    grid = NeighboursGrid(k=4, temperatures=(0.3, 2.0), lambdas=(0.0, 0.2, 1.0))
    tuned = tune_neighbours(model, TEXTS, "test", protocol, find_datastore(model, TEXTS, protocol), grid)
    assert len(tuned.grid) == 6
    for point in tuned.grid:
        config = NeighboursConfig(k=4, temperature=point.temperature, lambda_=point.lambda_)
        assert point.perplexity == pytest.approx(near(config, context="document").perplexity, rel=1e-12)
    best = min(tuned.grid, key=lambda point: point.perplexity)
    assert tuned.perplexity == best.perplexity and tuned.best.tuned_on == "small test"
    assert (tuned.best.k, tuned.best.temperature, tuned.best.lambda_) == (4, best.temperature, best.lambda_)
    assert tuned.plain == pytest.approx(tuned.grid[0].perplexity)


def test_a_datastore_is_written_once_and_made_again_if_damaged_or_of_another(tmp_path: Path) -> None:
    model = small_model()
    store = find_datastore(model, TEXTS)
    content, written = store.path.read_bytes(), store.path.stat().st_mtime_ns
    assert find_datastore(model, TEXTS).path.stat().st_mtime_ns == written
    shutil.copy(store.path, tmp_path / "other")
    for damaged in (content[:-1], content[:600] + b"\0\1" + content[602:], b""):
        store.path.write_bytes(damaged)
        assert find_datastore(model, TEXTS).path.read_bytes() == content
    others = [
        find_datastore(small_model("attention"), TEXTS),
        find_datastore(model, TEXTS, lesion="window=1"),
        find_datastore(model, TEXTS, Protocol(context="line")),
        find_datastore(model, replace(TEXTS, splits={"train": CORPUS.splits["test"]})),
    ]
    assert len({other.path for other in [store, *others]}) == 5
    right = others[0].path.read_bytes()
    shutil.copy(tmp_path / "other", others[0].path)
    assert find_datastore(small_model("attention"), TEXTS).path.read_bytes() == right


def test_what_is_refused(trained: TrainedModel, lstm_run: Path) -> None:
    plain = spanlm.load(lstm_run)
    for refused, why in (
        ({"neighbours": USUAL, "cache": spanlm.CacheConfig(window=5, theta=1, lambda_=0.1)}, "do not go together"),
        ({"neighbours": USUAL, "dynamic": spanlm.DynamicConfig()}, "do not go together"),
        ({"neighbours": USUAL, "datastore": plain.datastore()}, r"datastore=.*: must be of this model's states"),
        ({"neighbours": replace(USUAL, k=10**6)}, r"neighbours.k=1000000: must be at most [\d,]+, the words of tiny"),
        ({"neighbours": 5}, "neighbours=5: must be a NeighboursConfig"),
    ):
        with pytest.raises(InputError, match=why):
            trained.evaluate(split="valid", **refused)
    intact = trained.datastore()
    with pytest.raises(InputError, match="must be of this model's states"):
        trained.with_attention("none").tune_neighbours(k=3, datastore=intact)
    broken = spanlm.load_ensemble([trained.folder, lstm_run])
    with pytest.raises(InputError, match=r"neighbours: .* has no weights"):
        broken.evaluate(neighbours=USUAL)
