"""What is logged of a span buffer: against loops over single numbers."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from spanlm.models.span_mixture import PartScores
from spanlm.training.part_sums import FIELDS, part_means, training_sums
from torch import Tensor

from spanlm.analysis.utilisation import read_utilisation
from spanlm.errors import InputError
from spanlm.evaluation.parts import PartTally
from spanlm.models.interfaces import Head
from spanlm.runs.loading import load
from spanlm.training.optimizer_config import FinetuneConfig
from spanlm.training.run import train
from tests.training.small import RUNS, Heard, make_config, make_corpus, rows, with_batching, with_training
from tests.training.test_stages import STAGES


def by_hand(places: list[dict[str, float]], others: list[dict[str, float]]) -> dict[str, float]:
    """Means over places, each with log p, log q, log λ, r and what the loss adds; there is no q in the others."""
    n, everywhere = len(places), len(places) + len(others)
    elsewhere = sum(-place["p"] for place in others)
    return {
        "steps": n,
        "encoder_nll": (sum(-place["p"] for place in places) + elsewhere) / everywhere,
        "buffer_nll": (sum(-place["q"] for place in places) + elsewhere) / everywhere,
        "reward": sum(place["r"] for place in places) / n,
        "reward_loss": sum(place["extra"] for place in places) / n,
        "gate": sum(math.exp(place["share"]) for place in places) / n,
        "utilisation": sum(math.exp(place["share"]) >= 0.5 for place in places) / n,
        "oracle_utilisation": sum(place["q"] > place["p"] for place in places) / n,
    }


def places(parts: PartScores, mask: Tensor, extra: Tensor | float) -> list[dict[str, float]]:
    """The places that count, one by one."""
    found = []
    for t in range(mask.shape[0]):
        for b in range(mask.shape[1]):
            if mask[t, b] and parts.filled[t, b]:
                named = {"p": parts.encoder, "q": parts.buffer, "share": parts.log_share, "r": parts.reward}
                here = {name: float(x.detach()[t, b]) for name, x in named.items()}
                found.append({**here, "extra": extra if isinstance(extra, float) else float(extra.detach()[t, b])})
    return found


def elsewhere(parts: PartScores, mask: Tensor) -> list[dict[str, float]]:
    """The places that have nothing to read, one by one."""
    return places(replace(parts, filled=~parts.filled), mask, 0.0)


def drawn(steps: int = 5, streams: int = 3, poison: bool = False) -> tuple[PartScores, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(2)
    p, q, share, r, extra = (-torch.rand(steps, streams, generator=draw, dtype=torch.float64) * 2 for _ in range(5))
    filled, mask = (torch.rand(steps, streams, generator=draw) < 0.7 for _ in range(2))
    if poison:
        q, share, r, extra = (x.where(filled & mask, float("nan")) for x in (q, share, r, extra))
        p = p.where(mask, float("nan"))
    return PartScores(p, q, share, r, filled), mask, extra


@pytest.mark.parametrize("poison", [False, True])
def test_sums_are_over_predicted_words_with_something_to_read(poison: bool) -> None:
    parts, mask, extra = drawn(poison=poison)
    found = part_means(dict(zip(FIELDS, training_sums(parts, mask, extra).tolist(), strict=True)))
    assert found == pytest.approx(by_hand(places(parts, mask, extra), elsewhere(parts, mask)), rel=1e-12)
    assert 0 < found["utilisation"] < 1 and 0 < found["oracle_utilisation"] < 1
    assert 0 < found["steps"] < mask.sum()


def test_an_evaluation_sums_the_same() -> None:
    """And, besides, what a perplexity of each part needs: the bound, and the words with nothing to read."""
    parts, mask, extra = drawn()
    here, there = places(parts, mask, extra), elsewhere(parts, mask)
    found = PartTally().plus(parts, mask)
    expected = dict(zip(FIELDS, training_sums(parts, mask, extra).tolist(), strict=True))
    assert asdict(found) == pytest.approx(
        {
            **{name: value for name, value in expected.items() if name not in ("reward_loss", "other_steps")},
            "oracle_nll": sum(-max(place["p"], place["q"]) for place in here),
            "other_nll": sum(-place["p"] for place in there),
        }
    )
    assert there and found.plus(parts, mask).steps == 2 * found.steps
    assert expected["other_steps"] == len(there)


def test_half_is_used() -> None:
    """λ >= 0.5, not above it (Eq. 15); q = p is not better."""
    half, p = torch.full((1, 1), math.log(0.5), dtype=torch.float64), torch.full((1, 1), -1.0, dtype=torch.float64)
    ones = torch.ones(1, 1, dtype=torch.bool)
    found = dict(zip(FIELDS, training_sums(PartScores(p, p, half, p * 0, ones), ones, 0.0).tolist(), strict=True))
    assert (found["utilisation"], found["oracle_utilisation"], found["reward_loss"]) == (1.0, 0.0, 0.0)


def test_where_nothing_was_read_there_is_nothing_to_say() -> None:
    parts, mask, extra = drawn()
    nothing = training_sums(PartScores(parts.encoder, parts.buffer, parts.log_share, parts.reward, ~mask), mask, extra)
    assert part_means(dict(zip(FIELDS, nothing.tolist(), strict=True))) == {}
    assert part_means({}) == {}


def test_sums_of_an_earlier_version_are_of_the_words_with_something_to_read() -> None:
    """A checkpoint within an epoch has them."""
    parts, mask, extra = drawn()
    sums = dict(zip(FIELDS, training_sums(parts, mask, extra).tolist(), strict=True))
    del sums["other_nll"], sums["other_steps"]
    assert part_means(sums) == pytest.approx(by_hand(places(parts, mask, extra), []))


def test_they_take_no_gradient_and_are_wide() -> None:
    parts, mask, extra = drawn()
    narrow = PartScores(
        *(x.float().requires_grad_() for x in (parts.encoder, parts.buffer)),
        parts.log_share.float(),
        parts.reward.float(),
        parts.filled,
    )
    sums = training_sums(narrow, mask, extra.float())
    assert sums.dtype == torch.float64 and not sums.requires_grad


@pytest.mark.parametrize("group_size", [None, 1])
def test_rows_and_events_tell_the_means_of_an_epoch(
    room: Path, monkeypatch: pytest.MonkeyPatch, group_size: int | None
) -> None:
    """Of every word that the trainer, and the validation, asked for."""
    asked: list[tuple[bool, Scores]] = []
    score = Head.score

    def spied(self: Head, *arguments: Any) -> Scores:
        asked.append((self.training, score(self, *arguments)))
        return asked[-1][1]

    monkeypatch.setattr(Head, "score", spied)
    config = with_batching(RUNS[STAGES](), group_size=group_size)
    optimizer = replace(config.training.optimizer, switch_after=None)
    config = with_training(config, optimizer=optimizer, epochs=1, finetune=FinetuneConfig())
    watcher = Heard()
    train(config, make_corpus(), room, watcher)
    (row,) = [row for row in rows(room) if row["event"] == "valid"]
    (event,) = watcher.epochs
    expected: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    others: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    for training, scores in asked:
        parts = scores.parts
        assert parts is not None
        # 300 and 100 words in 3 and 2 streams: no padding
        everywhere = torch.ones_like(parts.filled)
        expected[training] += places(parts, everywhere, scores.extra_loss)
        others[training] += elsewhere(parts, everywhere)
    assert others[True] and others[False]
    assert row["parts"]["train"] == pytest.approx(by_hand(expected[True], others[True]), rel=1e-5)
    by_loop = by_hand(expected[False], others[False])
    valid = {name: value for name, value in by_loop.items() if name != "reward_loss"}
    assert row["parts"]["valid"] == pytest.approx(valid, rel=1e-5)
    assert (event.train_parts, event.valid_parts) == (row["parts"]["train"], row["parts"]["valid"])
    assert 200 < row["parts"]["train"]["steps"] < 300 and row["parts"]["train"]["reward_loss"] != 0


def test_valid_is_told_as_an_evaluation_tells_it(room: Path) -> None:
    """`evaluate --parts` of the model that was saved."""
    config, corpus = RUNS[STAGES](), make_corpus()
    optimizer = replace(config.training.optimizer, switch_after=None)
    config = with_training(config, optimizer=optimizer, epochs=1, finetune=FinetuneConfig())
    train(config, corpus, room)
    (row,) = [row for row in rows(room) if row["event"] == "valid"]
    found = load(room).evaluate(corpus, "valid", batch_size=config.training.batching.eval_batch_size)
    assert found.parts is not None and found.perplexity == pytest.approx(row["perplexity"], rel=1e-6)
    for name in ("encoder_nll", "buffer_nll", "gate", "utilisation", "oracle_utilisation", "reward"):
        assert row["parts"]["valid"][name] == pytest.approx(getattr(found.parts, name), rel=1e-6)


def test_a_validation_text_too_short_for_spans_hides_nothing_of_the_training(room: Path) -> None:
    config = RUNS[STAGES]()
    optimizer = replace(config.training.optimizer, switch_after=None)
    config = with_training(config, optimizer=optimizer, epochs=1, finetune=FinetuneConfig())
    watcher = Heard()
    train(with_batching(config, eval_batch_size=50), make_corpus(), room, watcher)  # 2 words in each of 50 streams
    (row,) = [row for row in rows(room) if row["event"] == "valid"]
    assert row["parts"] == {"train": watcher.epochs[0].train_parts} and row["parts"]["train"]["steps"] > 0
    with pytest.raises(InputError, match=r"never held a span of the validation text, which is too short"):
        read_utilisation(room, "room")


def test_every_epoch_begins_its_sums_anew(room: Path) -> None:
    train(RUNS[STAGES](), make_corpus(), room)
    found = [row["parts"] for row in rows(room) if row["event"] == "valid"]
    assert len(found) == 4 and len({parts["train"]["gate"] for parts in found}) == 4
    assert {parts["train"]["steps"] for parts in found} == {found[0]["train"]["steps"]}
    assert {parts["valid"]["steps"] for parts in found} == {found[0]["valid"]["steps"]}


def test_within_an_epoch_it_is_told_what_was_so_far(room: Path) -> None:
    train(with_training(RUNS[STAGES](), log_every=1), make_corpus(), room)
    told = rows(room)
    for number in range(1, 5):
        *steps, valid = [row for row in told if row["epoch"] == number]
        assert [row["event"] for row in [*steps, valid]] == ["train"] * len(steps) + ["valid"]
        read = [row["parts"]["steps"] for row in steps if "parts" in row]
        assert read == sorted(set(read)) and len(steps) - 2 <= len(read) <= len(steps)  # at first there is no span
        assert steps[-1]["parts"] == valid["parts"]["train"]


def test_without_a_buffer_nothing_is_told(room: Path) -> None:
    watcher = Heard()
    train(make_config(epochs=1), make_corpus(), room, watcher)
    assert not any("parts" in row for row in rows(room))
    assert not watcher.epochs[0].train_parts and not watcher.epochs[0].valid_parts
