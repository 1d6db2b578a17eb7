"""What is logged of a span buffer: against loops over single numbers."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spanlm.analysis.curves import read_utilisation
from spanlm.config import RunConfig
from spanlm.errors import InputError
from spanlm.models.interfaces import MixingHead, Scores
from spanlm.training.config import FinetuneConfig
from spanlm.training.run import train
from tests.training.small import RUNS, STAGES, Heard, make_corpus, rows, with_batching, with_training


def by_hand(asked: list[Scores]) -> dict[str, float]:
    """Means over all words that were asked for, one number at a time."""
    sums = {
        name: math.fsum(x for one in asked for x in one.metrics[name].flatten().tolist()) for name in asked[0].metrics
    }
    everywhere = sums["steps"] + sums["other_steps"]
    assert sums["other_steps"] and everywhere == sum(one.log_prob.numel() for one in asked)
    alone = {name: (sums[name] + sums["other_nll"]) / everywhere for name in ("encoder_nll", "buffer_nll")}
    others = ("reward", "gate", "utilisation", "oracle_utilisation", "reward_loss")
    return {"steps": sums["steps"], **alone, **{name: sums[name] / sums["steps"] for name in others if name in sums}}


def one_epoch(**batching: Any) -> RunConfig:
    config = with_batching(RUNS[STAGES](), **batching)
    optimizer = replace(config.training.optimizer, switch_after=None)
    return with_training(config, optimizer=optimizer, epochs=1, finetune=FinetuneConfig())


@pytest.mark.parametrize("group_size", [None, 1])
def test_rows_and_events_tell_the_means_of_an_epoch(
    room: Path, monkeypatch: pytest.MonkeyPatch, group_size: int | None
) -> None:
    """Of every word that the trainer, and the validation, asked for."""
    asked: list[tuple[bool, Scores]] = []
    score = MixingHead.score

    def spied(self: MixingHead, *arguments: Any) -> Scores:
        asked.append((self.training, score(self, *arguments)))
        return asked[-1][1]

    monkeypatch.setattr(MixingHead, "score", spied)
    watcher = Heard()
    train(one_epoch(group_size=group_size), make_corpus(), room, watcher)
    (row,) = [row for row in rows(room) if row["event"] == "valid"]
    (event,) = watcher.epochs
    # 300 and 100 words in 3 and 2 streams: no padding
    trained, validated = ([scores for training, scores in asked if training == which] for which in (True, False))
    assert row["parts"]["train"] == pytest.approx(by_hand(trained), rel=1e-5)
    assert row["parts"]["valid"] == pytest.approx(by_hand(validated), rel=1e-5)
    assert (event.train_parts, event.valid_parts) == (row["parts"]["train"], row["parts"]["valid"])
    assert 200 < row["parts"]["train"]["steps"] < 300 and row["parts"]["train"]["reward_loss"] != 0


def test_a_validation_text_too_short_for_spans_hides_nothing_of_the_training(room: Path) -> None:
    watcher = Heard()
    train(one_epoch(eval_batch_size=50), make_corpus(), room, watcher)  # 2 words in each of 50 streams
    (row,) = [row for row in rows(room) if row["event"] == "valid"]
    assert row["parts"] == {"train": watcher.epochs[0].train_parts} and row["parts"]["train"]["steps"] > 0
    with pytest.raises(InputError, match=r"never held a span of the validation text, which is too short"):
        read_utilisation(room, "room")
