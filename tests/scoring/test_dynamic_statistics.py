"""Gradient statistics: those of a plain loop over the text, and a file that says what they are of."""

import copy
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import spanlm
from spanlm.data.corpora import Corpus
from spanlm.data.token_files import TokenFile
from spanlm.errors import InputError, RunError
from spanlm.models.encoders import LSTMConfig
from spanlm.models.heads import SoftmaxConfig
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import PointerSentinelConfig
from spanlm.runs.model import TrainedModel
from spanlm.scoring.dynamic.statistics import (
    DYNAMIC,
    DynamicStatistics,
    gather_statistics,
    learning_weights,
    read_statistics,
    save_statistics,
)
from spanlm.scoring.options import Context, DynamicConfig
from spanlm.scoring.protocol import Protocol
from spanlm.store.checkpoints import to_bytes
from tests import reference_dynamic
from tests.models import small
from tests.scoring import reference
from tests.scoring.test_parts import span_model

EOS_ID = reference.VOCABULARY.eos_id
OTHER = "of the text"
STREAMS = 3


def corpus_of(ids: list[int], documents: tuple[int, ...] = (0,)) -> Corpus:
    tokens = TokenFile(np.array(ids, dtype=np.int32), np.array(documents, dtype=np.int64))
    return replace(reference.corpus(reference.TEXT), splits={"train": tokens}, oov={"train": 0})


def drawn(count: int, seed: int = 0) -> list[int]:
    return small.words(count, seed=seed, size=len(reference.WORDS)).tolist()


def gathered(model: LanguageModel, corpus: Corpus, context: Context = "carry", **how: Any) -> DynamicStatistics:
    protocol = Protocol(context=context, predict_first=how.pop("predict_first", True))
    return gather_statistics(model, corpus, protocol, streams=STREAMS, **how)


def assert_sizes(found: DynamicStatistics, model: LanguageModel, squares: list[Tensor], n: float) -> None:
    assert list(found.root_mean_squares) == list(learning_weights(model))
    assert found.segments == pytest.approx(n)
    for size, total in zip(found.root_mean_squares.values(), squares, strict=True):
        torch.testing.assert_close(size, (total / n).sqrt(), rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize(("memory", "size"), [("none", 10), ("kvp", 22), ("kvp", 3), ("span", 22)])
def test_streams_are_those_of_the_loop(memory: str, size: int) -> None:
    """Also where the last segment, or the only one, is short; of a span buffer, of the likelihood in evaluation."""
    model = span_model() if memory == "span" else reference.small_model(memory)
    ids = drawn(STREAMS * size)
    columns = reference_dynamic.columns_of(ids, EOS_ID, STREAMS)
    found = gathered(model, corpus_of(ids))
    assert_sizes(found, model, *reference_dynamic.mean_squares(model, columns, 5))
    assert (found.tokens, found.whole) == (len(ids), True)
    assert found.read == -(-size // 5) and found.segments == pytest.approx(size / 5)


def ragged(
    model: LanguageModel, batches: list[list[list[int]]], length: int, streams: int
) -> tuple[list[Tensor], float]:
    """Σ g² and n of batches of texts of different lengths, each batch from an empty state; one g a segment of all."""
    sums, n = [torch.zeros_like(w) for w in reference_dynamic.learning(model)], 0.0
    for batch in batches:
        states = [model.init_state(1) for _ in batch]
        for start in range(0, max(map(len, batch)) - 1, length):
            nll: list[Tensor] = []
            for number, ids in enumerate(batch):
                part = ids[start : start + length + 1]
                if len(part) > 1:
                    rows, states[number] = reference_dynamic.cross_entropy(
                        model, [part[:-1]], [part[1:]], states[number]
                    )
                    nll += rows
            share = len(nll) / (streams * length)
            for total, g in zip(sums, reference_dynamic.gradients_of(model, nll), strict=True):
                total += (share * g) ** 2
            n += share
    return sums, n


@pytest.mark.parametrize("opened", [True, False])
def test_lines_are_those_of_the_loop(opened: bool) -> None:
    """In the order of the text, opened or not as in training; padding says nothing."""
    model, source = reference.small_model(), reference.corpus(reference.TEXT, split="train")
    ids = source.splits["train"].ids.tolist()
    ends = [0, *(i + 1 for i, id in enumerate(ids) if id == EOS_ID)]
    lines = [[EOS_ID, *ids[a:b]] if opened else ids[a:b] for a, b in pairwise(ends)]
    lines = [line for line in lines if len(line) > 1]
    batches = [lines[start : start + STREAMS] for start in range(0, len(lines), STREAMS)]
    found = gathered(model, source, "line", predict_first=opened)
    assert_sizes(found, model, *ragged(model, batches, 5, STREAMS))
    assert found.whole and found.tokens == sum(len(line) - 1 for line in lines)


def test_documents_begin_anew() -> None:
    """Three streams, and a document that is a whole number of segments in each: no padding, resets in the middle."""
    model, ids = reference.small_model(), drawn(3 * 20)
    starts = tuple(range(0, 60, 10))
    found = gathered(model, corpus_of(ids, starts), "document")
    # equal columns: documents 0 and 1 in the first stream, and so on; each opened by <eos>
    batches = [[[EOS_ID, *ids[start : start + 10]] for start in starts[first::2]] for first in (0, 1)]
    assert_sizes(found, model, *ragged(model, batches, 5, 3))


@pytest.mark.parametrize(
    "changes", [{}, {"embedding_dropout": 0.4, "input_dropout": 0.4, "output_dropout": 0.4}], ids=str
)
def test_dropout_penalties_and_extra_losses_change_nothing(changes: dict[str, float]) -> None:
    head = SoftmaxConfig(tied=True, projection=True, projection_penalty=5.0)
    rooms = LSTMConfig(hidden_size=12, layers=2, dropout=0.5), PointerSentinelConfig(window=4), head
    model = small.language_model(small.model_config(*rooms, **changes))
    ids = drawn(30)
    expected = reference_dynamic.mean_squares(model, reference_dynamic.columns_of(ids, EOS_ID, 3), 5)
    assert_sizes(gathered(model.train(), corpus_of(ids)), model, *expected)
    assert model.training and all(p.grad is None for p in model.parameters())


def test_the_first_segments_alone() -> None:
    model, ids = reference.small_model(), drawn(3 * 20)
    columns = reference_dynamic.columns_of(ids, EOS_ID, 3)
    found = gathered(model, corpus_of(ids), segments=2)
    assert_sizes(found, model, *reference_dynamic.mean_squares(model, [column[:11] for column in columns], 5))
    assert (found.read, found.tokens, found.whole) == (2, 30, False)
    assert gathered(model, corpus_of(ids), segments=4).whole and gathered(model, corpus_of(ids), segments=9).whole


def test_statistics_that_say_nothing_are_refused() -> None:
    model = reference.small_model()
    model.head.weight.data.fill_(torch.nan)
    with pytest.raises(RunError, match=r"gradient statistics: their mean on small train is nan"):
        gathered(model, corpus_of(drawn(40)))


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[:-3] + bytes([content[-3] ^ 1]) + content[-2:],
        lambda _: to_bytes({"weight": torch.ones(1)}, {"spanlm": "[]"}),
    ],
    ids=["cut", "flipped", "no marks"],
)
def test_a_damaged_file_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path, model = tmp_path / DYNAMIC, reference.small_model().float()
    save_statistics(path, found := gathered(model, corpus_of(drawn(40))), OTHER)
    assert read_statistics(path, model, OTHER, None).to_json() == {**found.to_json(), "origin": f"read from {path}"}
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=r"dynamic\.safetensors: damaged"):
        read_statistics(path, model, OTHER, None)


def test_every_change_of_a_text_is_seen() -> None:
    ids, starts = drawn(40), (0, 10)
    corpus = corpus_of(ids, starts)
    other_words = replace(corpus, vocabulary=type(corpus.vocabulary)((*reference.WORDS, "more")))
    others = [corpus_of([*ids[:-1], (ids[-1] + 1) % 11], starts), corpus_of(ids, (0, 11)), other_words]
    assert copy.deepcopy(corpus).digest("train") == corpus.digest("train")
    assert len({x.digest("train") for x in [corpus, *others]}) == 4


# in the folder of a run

CONFIG = DynamicConfig(rate=0.002, decay=0.01, epsilon=0.001)


def test_statistics_are_gathered_once_for_weights_and_text(trained: TrainedModel) -> None:
    path = trained.folder / DYNAMIC
    assert not trained.dynamic_statistics(segments=1).whole
    assert trained.dynamic_statistics(segments=1).origin == f"read from {path}"
    first = trained.dynamic_statistics()
    assert first.whole and first.text == "tiny train"
    assert first.origin == f"gathered anew ({path}: is of fewer segments (the first 1)), saved in {path}"
    again = spanlm.load(trained.folder).dynamic_statistics(segments=1)
    assert (again.origin, again.whole) == (f"read from {path}", True)
    assert all(torch.equal(again.root_mean_squares[name], x) for name, x in first.root_mean_squares.items())
    written = path.stat().st_mtime_ns
    trained.evaluate(dynamic=CONFIG)
    trained.tune_dynamic(rates=[0.001], decays=[0.0])
    assert path.stat().st_mtime_ns == written


def test_without_the_training_text_the_folders_statistics_are_taken_or_the_way_out_is_named(
    trained: TrainedModel, tiny_corpus: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_corpus, tmp_path / "tiny")
    config = replace(trained.config, data=replace(trained.config.data, corpus=str(folder)))
    trained = TrainedModel(trained.model, trained.vocabulary, config, trained.folder)
    text = folder / "train.txt"
    content = text.read_text()
    text.unlink()
    with pytest.raises(InputError, match=rf"there is no .*{DYNAMIC}.*no train\.txt.*Put the text back where it was"):
        trained.evaluate(dynamic=CONFIG)
    text.write_text("the cat sat\n" + content)
    trained.dynamic_statistics()
    text.write_text(content)
    assert "is of another training text" in trained.dynamic_statistics().origin
    expected = trained.evaluate(dynamic=CONFIG).nll
    text.unlink()
    assert "the training text is not there to be compared" in trained.dynamic_statistics().origin
    assert trained.evaluate(dynamic=CONFIG).nll == expected
    with torch.no_grad():
        trained.model.embedding.weight[0, 0] += 0.5  # type: ignore[operator, union-attr]
    with pytest.raises(
        InputError, match=r"needs gradient statistics: .*\.safetensors: is of other weights, and the training text"
    ):
        trained.evaluate(dynamic=CONFIG)


def test_statistics_that_cannot_be_saved_are_used_all_the_same(trained: TrainedModel) -> None:
    path = trained.folder / DYNAMIC
    path.mkdir()
    found = trained.dynamic_statistics()
    assert f"kept in memory alone: {path} could not be written: " in found.origin
    assert trained.evaluate(dynamic=CONFIG, statistics=found).nll == trained.evaluate(dynamic=CONFIG).nll
