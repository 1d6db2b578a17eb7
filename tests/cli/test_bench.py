from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from spanlm.benchmark import contenders, groups, measure
from spanlm.benchmark.contenders import (
    KVP_834,
    LSTM_650,
    Size,
    synthetic_corpus,
    training_flops,
    with_memory,
    without_memory,
)
from spanlm.benchmark.measure import Report, benchmark
from spanlm.evaluation.cache import CacheConfig, lookups
from spanlm.evaluation.scoring import Scored
from spanlm.models.encoders import LSTMConfig
from spanlm.models.memories import AttentiveConfig, KeyValueConfig
from tests.cli.conftest import Cli

TIED = replace(
    LSTM_650,
    model=replace(LSTM_650.model, embedding_size=8, encoder=LSTMConfig(hidden_size=8, layers=2)),
    vocabulary_size=50,
    batch_size=3,
    length=5,
)
SENTENCES = replace(TIED, name="sentences")
STREAM = replace(TIED, name="one stream", batch_size=1, length=7)
LOOKING_BACK = replace(
    KVP_834,
    model=replace(
        KVP_834.model, embedding_size=6, encoder=LSTMConfig(hidden_size=12), memory=KeyValueConfig(roles=3, window=2)
    ),
    vocabulary_size=50,
    batch_size=4,
    length=3,
)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "LSTM_650", TIED)
    monkeypatch.setattr(measure, "KVP_834", LOOKING_BACK)
    monkeypatch.setattr(measure, "SENTENCES_650", SENTENCES)
    monkeypatch.setattr(measure, "ONE_STREAM_650", STREAM)
    monkeypatch.setattr(groups, "CACHE", CacheConfig(window=20, theta=0.3, lambda_=0.1))
    monkeypatch.setattr(measure, "MATRIX", 16)


def _flops(size: Size, name: str) -> float:
    for score in ("single", "combined"):
        if f"attentive, {score}" in name:
            size = with_memory(size, AttentiveConfig(score=score))
    if "cache of 20 words" in name:
        return training_flops(size) / 3 + 2 * 8 * 20
    return training_flops(size, memory="no memory" not in name) / (3 if "evaluation" in name else 1)


def assert_consistent(groups: dict[str, list[dict[str, object]]], ceiling: dict[str, float]) -> None:
    sizes: list[Size] = [TIED, LOOKING_BACK, SENTENCES, STREAM]
    assert len(groups) == len(sizes)
    for size, (title, rows) in zip(sizes, groups.items(), strict=True):
        assert size.name in title and f"{size.batch_size} × {size.length}" in title and "V 50" in title
        by_name = {row["name"]: row for row in rows}
        assert len(by_name) == (4 if size is STREAM else 6)
        for row in rows:
            seconds = float(row["milliseconds"]) / 1e3  # type: ignore[arg-type]
            reference = by_name[row["reference"]]
            assert row["tokens_per_second"] == pytest.approx(size.tokens / seconds)
            assert row["ratio"] == pytest.approx(row["tokens_per_second"] / reference["tokens_per_second"])  # type: ignore[operator]
            flops = _flops(size, str(row["name"]))
            expected = flops * size.tokens / seconds / 1e9 / ceiling[str(row["precision"])]
            assert row["of_ceiling"] == pytest.approx(expected)
            assert str(row["precision"]) in str(row["name"])
            assert row["peak_megabytes"] is None or float(row["peak_megabytes"]) > 0  # type: ignore[arg-type]


def test_the_report_is_consistent() -> None:
    told: list[str] = []
    report = benchmark("cpu", rounds=1, note=told.append)
    assert isinstance(report, Report)
    content = report.to_json()
    assert content.keys() == {"machine", "ceiling", "groups"}
    assert set(content["ceiling"]) == {"fp32", "bf16"}
    assert all(math.isfinite(value) and value > 0 for value in content["ceiling"].values())
    assert content["machine"]["torch"] == torch.__version__
    assert content["machine"]["threads"] == torch.get_num_threads()
    assert_consistent(content["groups"], content["ceiling"])
    assert told == ["matrix product", TIED.name, LOOKING_BACK.name, SENTENCES.name, STREAM.name]


def test_comparisons_are_with_the_textbook_and_with_no_memory() -> None:
    found = benchmark("cpu", rounds=2).groups.values()
    first, second, third, fourth = ({row.name: row for row in group} for group in found)
    assert (
        first["spanlm, training fp32"].reference
        == first["spanlm, training bf16"].reference
        == "textbook, training fp32"
    )
    assert first["spanlm, training fp32"].target is not None
    assert first["textbook, training fp32"].ratio == 1.0
    for precision in ("fp32", "bf16"):
        looking = second[f"spanlm, training {precision}"]
        assert looking.reference == f"same encoder and softmax, no memory, training {precision}"
        assert second[f"spanlm, evaluation {precision}"].reference == f"spanlm, training {precision}"
        for score in ("single", "combined"):
            attentive = third[f"attentive, {score}, training {precision}"]
            assert attentive.reference == f"no memory, training {precision}" and attentive.target is not None
        assert fourth[f"with a cache of 20 words, {precision}"].reference == f"spanlm, evaluation {precision}"
    assert fourth["with a cache of 20 words, fp32"].target == pytest.approx(1 / 1.3)


def test_json(cli: Cli) -> None:
    result = cli("bench", "--device", "cpu", "--rounds", "1", "--json")
    assert result.status == 0
    content = json.loads(result.out)
    assert_consistent(content["groups"], content["ceiling"])
    assert all(line.startswith("measuring: ") for line in result.err.splitlines())


def test_the_tables(cli: Cli) -> None:
    result = cli("bench", "--device", "cpu", "--rounds", "1")
    assert result.status == 0
    for part in (
        TIED.name,
        LOOKING_BACK.name,
        "textbook, training fp32",
        "GFLOP/s",
        "tokens/s",
        "ratio",
        torch.__version__,
    ):
        assert part in result.out
    assert "\x1b" not in result.out


def test_operations_by_hand() -> None:
    """Two for each weight of a matrix product and token, three products with backward."""
    lstm = 2 * 4 * 8 * (8 + 8)
    assert training_flops(TIED) == 6 * (lstm + 50 * 8)
    lstm, memory, head = 4 * 12 * (6 + 12), 4 * 4 * 4, 50 * 4
    assert training_flops(LOOKING_BACK) == 6 * (lstm + memory + head)


def test_the_cache_is_full_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """From step to step, whatever the segments say of new streams: else an empty one would be timed."""
    filled: list[int] = []
    monkeypatch.setattr(contenders, "with_cache", lambda scored, cache: _spied(scored, cache, filled))
    benchmark("cpu", rounds=1)
    assert filled[:3] == [0, 7, 14]
    # two to warm up and one to time, for each precision
    assert [count for count in filled if count == 20] == [20] * 6


def _spied(scored: Iterator[Scored], cache: CacheConfig, filled: list[int]) -> Iterator[Scored]:
    for item, lookup in lookups(scored, cache.window):
        filled.append(int(lookup.filled[: -len(lookup.query)].sum()))
        yield item


def test_the_random_text_is_the_same_every_time() -> None:
    a, b = (synthetic_corpus(TIED, 4) for _ in range(2))
    assert a.splits["train"].ids.tolist() == b.splits["train"].ids.tolist()
    assert len(a.splits["train"]) == 4 * TIED.tokens
    assert len(a.vocabulary) == 50


def test_without_memory_keeps_encoder_and_softmax() -> None:
    from spanlm.benchmark.contenders import project_trainer

    corpus = synthetic_corpus(LOOKING_BACK, 2)
    plain = without_memory(project_trainer(LOOKING_BACK, "fp32", "cpu", corpus)).model
    whole = project_trainer(LOOKING_BACK, "fp32", "cpu", corpus).model
    assert plain.head.weight.shape == whole.head.weight.shape  # type: ignore[union-attr]
    assert sum(p.numel() for p in plain.encoder.parameters()) == sum(p.numel() for p in whole.encoder.parameters())
    assert sum(p.numel() for p in plain.memory.parameters()) == 0
