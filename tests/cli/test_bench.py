from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from spanlm.benchmark import awd, contenders, groups, measure, memory
from spanlm.benchmark.awd import AWD_PTB, PortedAWD, awd_trainer, ported_step
from spanlm.benchmark.contenders import (
    KVP_834,
    LSTM_650,
    Size,
    synthetic_corpus,
    training_flops,
    with_memory,
    without_memory,
)
from spanlm.benchmark.dynamic import dynamic_step, passes_step
from spanlm.benchmark.groups import Aim
from spanlm.benchmark.measure import Report, benchmark
from spanlm.benchmark.memory import Peak
from spanlm.benchmark.mixture import MOS_PTB
from spanlm.benchmark.span_buffer import AWD_SNB, without_buffer
from spanlm.evaluation.cache import CacheConfig, lookups
from spanlm.evaluation.scoring import Scored
from spanlm.models.encoders import AWDLSTMConfig, LSTMConfig
from spanlm.models.heads import MixtureOfSoftmaxesConfig
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import AttentiveConfig, KeyValueConfig, NoMemoryConfig, SpanBufferConfig
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
AWD = replace(
    AWD_PTB,
    model=replace(
        AWD_PTB.model,
        embedding_size=6,
        encoder=AWDLSTMConfig(hidden_size=9, layers=3, last_size=6, hidden_dropout=0.25, weight_drop=0.5),
    ),
    vocabulary_size=50,
    batch_size=4,
    length=6,
)
SPANS = replace(
    AWD,
    name="spans",
    model=replace(AWD.model, output_dropout=0.0, memory=SpanBufferConfig(buffer_size=12, span_length=3)),
)
MIXTURE = replace(
    MOS_PTB,
    model=replace(AWD.model, embedding_size=5, head=MixtureOfSoftmaxesConfig(experts=3)),
    vocabulary_size=50,
    batch_size=4,
    length=6,
)
ADAPTING, ADAPTING_LESS = (
    replace(AWD, name=name, batch_size=1, length=12) for name in ("dynamic evaluation", "dynamic evaluation, less")
)
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
    monkeypatch.setattr(measure, "AWD_PTB", AWD)
    monkeypatch.setattr(measure, "AWD_SNB", SPANS)
    monkeypatch.setattr(measure, "MOS_PTB", MIXTURE)
    monkeypatch.setattr(measure, "ADAPTING_AWD", ADAPTING)
    monkeypatch.setattr(measure, "ADAPTING_SMALL", ADAPTING_LESS)
    monkeypatch.setattr(groups, "CACHE", CacheConfig(window=20, theta=0.3, lambda_=0.1))
    monkeypatch.setattr(measure, "MATRIX", 16)
    # all objects of a test session are looked through for each of forty contenders
    monkeypatch.setattr(memory.gc, "collect", lambda: 0)


def _flops(size: Size, name: str) -> float:
    for score in ("single", "combined"):
        if f"attentive, {score}" in name:
            size = with_memory(size, AttentiveConfig(score=score))
    if "buffer" in name:  # the head is asked twice, and of 12 steps carried over 9 are the left end of a span
        of_buffer = 6 * (2 * 6 * 6 + 2 * 6) + 6 * 50 * 6 + 4 * 9 * 6 * 6 / 6
        return training_flops(AWD) + (of_buffer if name.startswith("span") else 0)
    if size is MIXTURE:  # 3 experts share the embedding, which is counted once without them
        return training_flops(size) + 2 * 6 * 50 * 5
    if "cache of 20 words" in name:
        return training_flops(size) / 3 + 2 * 8 * 20
    return training_flops(size, memory="no memory" not in name) / (3 if name.startswith("spanlm, evaluation") else 1)


SIZES: list[Size] = [TIED, LOOKING_BACK, SENTENCES, STREAM, AWD, SPANS, MIXTURE, ADAPTING, ADAPTING_LESS]


def assert_consistent(groups: dict[str, list[dict[str, Any]]], ceiling: dict[str, float]) -> None:
    assert len(groups) == len(SIZES)
    for size, (title, rows) in zip(SIZES, groups.items(), strict=True):
        assert size.name in title and f"{size.batch_size} × {size.length}" in title and "V 50" in title
        by_name = {row["name"]: row for row in rows}
        assert len(by_name) == (6 if size in (TIED, LOOKING_BACK, SENTENCES, MIXTURE) else 4)
        for row in rows:
            seconds = float(row["milliseconds"]) / 1e3
            assert row["tokens_per_second"] == pytest.approx(size.tokens / seconds)
            assert 0 < float(row["fastest_milliseconds"]) <= float(row["milliseconds"])
            assert_compared(row, by_name)
            flops = _flops(size, str(row["name"]))
            expected = flops * size.tokens / seconds / 1e9 / ceiling[str(row["precision"])]
            assert row["of_ceiling"] == pytest.approx(expected)
            assert str(row["precision"]) in str(row["name"])
            assert row["step_megabytes"] is None or float(row["step_megabytes"]) >= 0


def assert_compared(row: dict[str, Any], by_name: dict[object, dict[str, Any]]) -> None:
    """With others alone, and every ratio is that of the numbers beside it."""
    for found in row["compared"]:
        other, target = by_name[found["reference"]], found["target"]
        assert other is not row
        if found["what"] == "memory":
            known = row["step_megabytes"] is not None and other["step_megabytes"]
            expected = row["step_megabytes"] / other["step_megabytes"] if known else None
        else:
            expected = row["tokens_per_second"] / other["tokens_per_second"]
        assert found["ratio"] == (None if expected is None else pytest.approx(expected))
        if target is None or expected is None:
            assert found["reached"] is None
        else:
            assert found["reached"] == (expected >= target if found["what"] == "speed" else expected <= target)


def test_the_report_is_consistent() -> None:
    told: list[str] = []
    report = benchmark("cpu", rounds=1, note=told.append)
    assert isinstance(report, Report)
    content = report.to_json()
    assert content.keys() == {"started", "rounds", "ceiling", "groups"}
    assert content["rounds"] == 1
    assert set(content["ceiling"]) == {"fp32", "bf16"}
    assert all(math.isfinite(value) and value > 0 for value in content["ceiling"].values())
    assert {"time", "command", "commit", "changed", "processor"} <= content["started"].keys()
    assert content["started"]["torch"] == torch.__version__
    assert content["started"]["threads"] == torch.get_num_threads()
    assert_consistent(content["groups"], content["ceiling"])
    assert told == ["matrix product", *(size.name for size in SIZES)]


def test_everything_is_compared_with_what_it_should_be_and_has_its_target() -> None:
    """By name: with whom, and what the ratio should be; memory at most, all else at least."""
    found = [{row.name: row.compared for row in group} for group in benchmark("cpu", rounds=2).groups.values()]
    aims = [
        {name: {(c.reference, c.what): c.target for c in compared} for name, compared in group.items() if compared}
        for group in found
    ]
    third, speed = pytest.approx(1 / 3), "speed"
    steps = {precision: f"spanlm, training {precision}" for precision in ("fp32", "bf16")}
    evaluations = {f"spanlm, evaluation {p}": {(step, speed): 2.5} for p, step in steps.items()}
    for group, port, targets in ((aims[0], "textbook", (1.0, 1.8)), (aims[4], "port", (1.0, 1.5))):
        own = {name: group.pop(name) for name in steps.values()}
        assert own[steps["fp32"]] == {(f"{port}, training fp32", speed): targets[0]}
        same = {(f"{port}, training fp32", speed): targets[1], (f"{port}, training bf16", speed): None}
        assert own[steps["bf16"]] == same
    assert aims[0] == evaluations and not aims[4]
    for precision, step in steps.items():
        training, bf16 = f"training {precision}", precision == "bf16"
        same_but = f"same encoder and softmax, no memory, {training}"
        assert aims[1][step] == {(same_but, speed): 0.85}
        for score, target in (("single", 0.91), ("combined", 0.80)):
            assert aims[2][f"attentive, {score}, {training}"] == {(f"no memory, {training}", speed): target}
        plain = {(f"spanlm, evaluation {precision}", speed): None if bf16 else pytest.approx(1 / 1.3)}
        assert aims[3][f"with a cache of 20 words, {precision}"] == plain
        assert aims[5][f"span buffer, {training}"] == {(f"no buffer, {training}", speed): pytest.approx(1 / 1.5)}
        port, naive, target = f"port, {training}", f"naive mixture, {training}", 1.2 if bf16 else None
        assert aims[6][naive] == {(port, speed): None}
        assert aims[6][step] == {(naive, speed): target, (port, speed): target, (naive, "memory"): third}
        passes = {(f"its forward and backward passes, {precision}", speed): pytest.approx(1 / 1.3)}
        assert aims[7][f"dynamic evaluation, {precision}"] == aims[8][f"dynamic evaluation, {precision}"] == passes


def test_a_target_is_at_least_of_speed_and_at_most_of_memory() -> None:
    speed, memory = Aim("another", 0.5), Aim("another", 0.5, "memory")
    assert [speed.reached(ratio) for ratio in (0.4, 0.5, 0.6)] == [False, True, True]
    assert [memory.reached(ratio) for ratio in (0.4, 0.5, 0.6)] == [True, True, False]


def test_dynamic_evaluation_needs_the_passes_it_is_compared_with() -> None:
    """The same: as many words to as many weights; and what it learns it keeps, without which nothing would be timed."""
    model = LanguageModel(ADAPTING.model, ADAPTING.vocabulary_size).eval()
    read: list[int] = []
    readers: list[LanguageModel] = []
    model.register_forward_pre_hook(lambda module, given: read.append(len(given[0])))
    model.register_forward_pre_hook(lambda module, given: readers.append(module))
    before = [weight.detach().clone() for weight in model.parameters()]
    (segment,) = groups.random_segments(ADAPTING, 1)
    passes_step(model, "fp32")(segment)
    assert read == [5, 5, 2]
    assert all(map(torch.equal, model.parameters(), before))
    step = dynamic_step(model, "fp32")
    for count in (1, 2):
        step(segment)
        assert read == [5, 5, 2] * (1 + count)
        after = [weight.detach().clone() for weight in readers[-1].parameters()]
        assert not any(map(torch.equal, after, before))
        before = after


def test_the_memory_of_a_step_is_what_it_takes_beside_what_is_there() -> None:
    cpu, held = torch.device("cpu"), torch.ones(2**23)
    with Peak(cpu) as small:
        torch.ones(2**10)
    with Peak(cpu) as large:
        torch.ones(2**23) + 1
    assert held.sum() == 2**23
    if small.megabytes is None or large.megabytes is None:
        pytest.skip("this system does not say how much memory a process had")
    assert small.megabytes < 8 and 60 < large.megabytes < 80


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
        "× the speed of port, training bf16",
        "(at least 1.20 ",
        "(at most 0.33 ",
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


def test_the_port_is_the_same_model_with_the_same_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing dropped, a step of both leads from the same weights to the same ones, penalties included."""
    encoder = replace(AWD.model.encoder, hidden_dropout=0.0, weight_drop=0.0)
    model = replace(AWD.model, encoder=encoder, embedding_dropout=0.0, input_dropout=0.0, output_dropout=0.0)
    size, cpu = replace(AWD, model=model), torch.device("cpu")
    trainer, made = awd_trainer(size, "fp32", "cpu", synthetic_corpus(size, 4)), []
    monkeypatch.setattr(awd, "PortedAWD", lambda size: made.append(PortedAWD(size)) or made[0])
    step = ported_step(size, "fp32", cpu)
    ours, theirs = trainer.model, made[0]
    pairs = list(zip(ours.encoder.parameters(), theirs.layers.parameters(), strict=True))
    pairs += [(ours.embedding.weight, theirs.embedding.weight), (ours.head.bias, theirs.decoder.bias)]
    with torch.no_grad():
        for one, two in pairs:
            two.copy_(one.uniform_(-1, 1))
    for segment in groups.random_segments(size, 2):
        trainer.step(segment)
        step(segment)
    for one, two in pairs:
        torch.testing.assert_close(two, one, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("drawn", ["hidden_dropout", "weight_drop", "embedding", "input", "output", None])
def test_the_port_draws_every_kind_of_noise(drawn: str | None) -> None:
    """One rate that is not zero is enough to change the answer."""
    rates = {"hidden_dropout": 0.5, "weight_drop": 0.5}
    model = {f"{name}_dropout": 0.5 for name in ("embedding", "input", "output")}
    kept = {name: rate if name == drawn else 0.0 for name, rate in rates.items()}
    others = {name: rate if name == f"{drawn}_dropout" else 0.0 for name, rate in model.items()}
    size = replace(AWD, model=replace(AWD.model, encoder=replace(AWD.model.encoder, **kept), **others))
    torch.manual_seed(0)
    port = PortedAWD(size)
    tokens = torch.arange(24).view(6, 4)
    one, two = (port(tokens, port.zeros(4))[2] for _ in range(2))
    assert torch.equal(one, two) == (drawn is None)


def test_without_the_buffer_it_is_the_model_below() -> None:
    """At the published size, dropped at the same places and rates."""
    assert without_buffer(AWD_SNB) == replace(AWD_PTB, name=AWD_SNB.name)
    buffer = AWD_SNB.model.memory
    assert isinstance(buffer, SpanBufferConfig) and isinstance(without_buffer(AWD_SNB).model.memory, NoMemoryConfig)
    assert (buffer.buffer_size, buffer.span_length) == (512, 8)
