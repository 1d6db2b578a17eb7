"""The Python API on a model that remembers everything since the last reset: its state grows with what is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

import spanlm
from spanlm.config import RunConfig
from spanlm.data.cbt import Question
from spanlm.errors import InputError
from spanlm.models.memories import AttentiveConfig
from spanlm.runs.model import TrainedModel
from spanlm.scoring.cloze import RankedQuestion
from spanlm.training.config import BatchingConfig


@pytest.fixture(scope="module", params=["single", "combined"])
def model(
    request: pytest.FixtureRequest, tiny_config: RunConfig, tmp_path_factory: pytest.TempPathFactory
) -> TrainedModel:
    score: Literal["single", "combined"] = request.param
    batching = BatchingConfig(kind="sentences", batch_size=4, length=7, shuffle=True, bucket=True, eval_batch_size=5)
    config = replace(
        tiny_config,
        model=replace(tiny_config.model, memory=AttentiveConfig(score=score)),
        training=replace(tiny_config.training, batching=batching, epochs=1),
    )
    folder = tmp_path_factory.mktemp("runs") / score
    spanlm.train(config, spanlm.load_corpus(config.data), folder)
    return spanlm.load(folder)


def test_it_is_not_carried_through_a_text(model: TrainedModel) -> None:
    with pytest.raises(InputError, match=r"^state=carry: .*model\.memory\.window=null.* Take line or"):
        model.evaluate(state="carry")
    assert model.evaluate(state="document").tokens == model.evaluate().tokens


@pytest.mark.parametrize("state", ["line", "document"])
def test_streams_side_by_side_change_nothing(model: TrainedModel, state: Literal["line", "document"]) -> None:
    """Streams of other lengths leave empty slots behind."""
    one, many = (model.evaluate(state=state, batch_size=size).nll for size in (1, 7))
    assert one == pytest.approx(many, rel=1e-5)


def test_cloze_reads_queries_of_different_lengths(model: TrainedModel) -> None:
    questions = [
        Question("q", number, ("the cat sat .",), "a dog " * (3 - number), "on it " * number, "ran", ("ran", "sat"))
        for number in range(3)
    ]
    together = list(model.cloze(questions))
    apart = [ranked for question in questions for ranked in model.cloze([question])]
    for one, other in zip(together, apart, strict=True):
        assert isinstance(one, RankedQuestion) and isinstance(other, RankedQuestion)
        assert one.sentence == pytest.approx(other.sentence, rel=1e-4)
        assert one.candidate == pytest.approx(other.candidate, rel=1e-4)
