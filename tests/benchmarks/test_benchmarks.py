"""What the library is compared with: the same models, under the names that the records have."""

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks import gpu, lstm, race
from benchmarks.__main__ import GROUPS, main
from benchmarks.awd import AWD_PTB, AWD_SNB, PortedAWD, awd_trainer, buffer_flops
from benchmarks.dynamic import dynamic_step, passes_step
from benchmarks.lstm import Textbook
from benchmarks.mixture import MOS_PTB, PortedMixture, mixture_flops, naive_trainer
from benchmarks.setting import Size, own_trainer, plain_step, random_segments, shrunk, training_flops
from results.records import Record, records
from spanlm.models.encoders import AWDLSTMConfig, LSTMConfig
from spanlm.models.heads import MixtureOfSoftmaxesConfig
from spanlm.models.language_model import LanguageModel
from spanlm.store.checkpoints import load_last_checkpoint
from tests.conftest import needs_bf16

CPU = torch.device("cpu")
WORDS = "words", "words-small"
CEILING: Any = {"fp32": 10.0, "bf16": 20.0}


def recorded(size: Size) -> list[Record]:
    return [one for one in records("speed", "bench-cpu") if one["size"] == size.title]


@needs_bf16
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(GROUPS.keys() - {"dropout", *WORDS}))  # of a machine without bf16
def test_names_ratios_and_targets_are_those_of_the_records(name: str) -> None:
    size, make = GROUPS[name]
    record = recorded(size)
    rows = race.race(shrunk(size), make(shrunk(size), CPU), CPU, 1, CEILING)
    assert all(row.keys() <= one.keys() for row, one in zip(rows, record, strict=True))

    def told(rows: list[dict[str, Any]]) -> list[Any]:
        return [
            (row["name"], row["precision"], [(one["reference"], one["what"], one["target"]) for one in row["compared"]])
            for row in rows
        ]

    assert told(rows) == told(record)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORDS)
def test_word_by_word_the_record_has_the_cell_and_the_kernel(name: str) -> None:
    size, make = GROUPS[name]
    rows = race.race(shrunk(size), make(shrunk(size), CPU), CPU, 1, CEILING)
    assert [row["name"] for row in rows] == [row["name"] for row in recorded(size)]


@pytest.mark.slow
def test_ratios_are_of_what_was_measured() -> None:
    size = shrunk(lstm.LSTM_650)
    aims = [race.Aim("b", 1.0), race.Aim("b", 0.5, "memory"), race.Aim("b")]
    done: list[str] = []
    contenders = [
        race.Contender("a", "bf16", lambda segment: done.append("a"), 3.0, aims),
        race.Contender("b", "fp32", lambda segment: done.append("b"), 1.0),
    ]
    a, b = race.race(size, contenders, CPU, 3, CEILING)
    assert done == ["a", "a", "b", "b", *["a", "b"] * 3]  # warm up, memory; then in turn
    assert a["tokens_per_second"] == pytest.approx(size.tokens / a["milliseconds"] * 1e3)
    assert a["of_ceiling"] == pytest.approx(3 * a["tokens_per_second"] / 20e9)
    ratio = a["tokens_per_second"] / b["tokens_per_second"]
    assert [one["ratio"] for one in a["compared"][::2]] == [pytest.approx(ratio)] * 2
    assert [one["reached"] for one in a["compared"][::2]] == [ratio >= 1, None]
    own, other = ({"step_megabytes": megabytes} for megabytes in (1.0, 4.0))
    found = [aims[1].compared(*pair) for pair in ((own, other), (other, own), (own, {"step_megabytes": None}))]
    assert [(one["ratio"], one["reached"]) for one in found] == [(0.25, True), (4.0, False), (None, None)]


def undropped(size: Size) -> Size:
    model = replace(size.model, embedding_dropout=0.0, input_dropout=0.0, output_dropout=0.0)
    if isinstance(model.encoder, AWDLSTMConfig):
        model = replace(model, encoder=replace(model.encoder, hidden_dropout=0.0, weight_drop=0.0))
    if isinstance(model.head, MixtureOfSoftmaxesConfig):
        model = replace(model, head=replace(model.head, latent_dropout=0.0))
    return replace(size, model=model)


def weights(model: nn.Module, layers: nn.Module, head: nn.Module) -> list[Tensor]:
    """Embedding, LSTM and head, in one order for all."""
    named = dict(head.named_parameters()) | {"embedding": model.get_parameter("embedding.weight")}
    return [*layers.parameters(), *(named[name] for name in sorted(named.keys() - {"weight"}))]


@pytest.mark.parametrize(
    ("published", "make", "port"),
    [
        (lstm.LSTM_650, own_trainer, Textbook),
        (AWD_PTB, awd_trainer, PortedAWD),
        (MOS_PTB, awd_trainer, PortedMixture),
        (MOS_PTB, naive_trainer, PortedMixture),
    ],
    ids=["textbook", "awd", "mixture", "naive mixture"],
)
def test_a_port_is_the_same_model_with_the_same_loss(published: Size, make: Any, port: Any) -> None:
    """With nothing dropped, steps of both lead from the same weights to the same ones, penalties included.

    torch's LSTM has two biases for each unit; where the library learns one, the port's second one is held, too.
    """
    size = undropped(shrunk(published))
    trainer, theirs = make(size, "fp32", CPU), port(size)
    step = plain_step(theirs, size, "fp32", CPU)
    ours, layers = trainer.model, theirs.lstm if port is Textbook else theirs.layers
    pairs = list(zip(weights(ours, ours.encoder, ours.head), weights(theirs, layers, theirs.decoder), strict=True))
    with torch.no_grad():
        for one, two in pairs:
            two.copy_(one.uniform_(-1, 1)).requires_grad_(one.requires_grad)
    before = [one.detach().clone() for one, _ in pairs]
    for segment in random_segments(size, 2):
        trainer.step(segment)
        step(segment)
    for (one, two), first in zip(pairs, before, strict=True):
        torch.testing.assert_close(two, one, rtol=1e-5, atol=1e-6)
        assert torch.equal(one, first) != one.requires_grad


def test_dynamic_evaluation_needs_the_passes_it_is_compared_with() -> None:
    """As many words to as many weights; and what it learns it keeps, else nothing would be timed."""
    size = shrunk(GROUPS["dynamic"][0])
    model = LanguageModel(size.model, size.vocabulary_size).eval()
    read: list[tuple[nn.Module, int]] = []
    model.register_forward_pre_hook(lambda module, given: read.append((module, len(given[0]))))
    (segment,) = random_segments(size, 1)
    passes_step(model, "fp32")(segment)
    step, before = dynamic_step(model, "fp32"), list(model.parameters())
    for _ in range(2):
        assert step(segment) == 12
        after = [weight.detach().clone() for weight in read[-1][0].parameters()]
        assert not any(map(torch.equal, after, before))
        before = after
    assert [length for _, length in read] == [5, 5, 2] * 3


def test_operations_by_hand() -> None:
    """Two for each weight of a matrix product and token, three products with backward; tied weights count once."""
    size = shrunk(lstm.LSTM_650)
    assert training_flops(size) == 6 * (2 * 4 * 6 * (6 + 6) + 50 * 6)
    size = replace(size, model=replace(lstm.KVP_834.model, embedding_size=6, encoder=LSTMConfig(hidden_size=12)))
    of_lstm, of_memory, of_head = 4 * 12 * (6 + 12), 4 * 4 * 4, 50 * 4
    assert training_flops(size) == 6 * (of_lstm + of_memory + of_head)
    assert training_flops(size, without="memory") == 6 * (of_lstm + of_head)
    products = 4 * (960 * (280 + 960) + 960 * (960 + 960) + 620 * (960 + 620)) + 620 * (15 * 280 + 15)
    assert mixture_flops(MOS_PTB) == 6 * (products + 15 * 280 * 10_000)  # every expert meets the embedding
    spans = shrunk(AWD_SNB)  # the head is asked twice; of 12 steps carried over, 9 end no span of this segment
    assert buffer_flops(spans) == training_flops(shrunk(AWD_PTB)) + 6 * (84 + 50 * 6) + 4 * 9 * 6 * 6 / 6


@needs_bf16
@pytest.mark.slow
def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    size = shrunk(lstm.ONE_STREAM_650)
    monkeypatch.setitem(GROUPS, "cache", (size, lstm.cache_group))
    monkeypatch.setattr(race, "MATRIX", 16)
    main(["cache", "--rounds", "1", "--device", "cpu", "--json", str(tmp_path / "report.json")])
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert (
        list(report["groups"]) == [size.title]
        and report["rounds"] == 1
        and report["ceiling"].keys() == {"fp32", "bf16"}
    )
    assert f"the speed of {report['groups'][size.title][0]['name']}" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["cash"])


@pytest.mark.slow
def test_the_run_for_a_gpu_tells_all_and_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    few = ["--device", "cpu", "--corpus", "demo", "--minutes", "0.9", "--steps", "4", "--rounds", "1"]
    gpu.main([str(tmp_path / "out"), "--run", str(tmp_path / "run"), *few])
    report = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))
    assert not [name for name, part in report.items() if "failed" in str(part)[:6]], report
    assert report["recorded"].keys() == gpu.RECORDED.keys()
    assert all(part["fp32"]["largest_loss_difference"] == 0 for part in report["recorded"].values())
    assert len(report["groups"]) == len(GROUPS) - 4 and "demo" in report["operations"]["trainings"]
    whole = b"".join((tmp_path / "out" / name).read_bytes() for name in report["training"]["parts"])
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        tar.extractall(tmp_path / "again")
    run = tmp_path / "again" / "run"
    assert {path.name for path in run.iterdir()} >= {"config.yaml", "checkpoints", "vocabulary.json"}
    assert load_last_checkpoint(run / "checkpoints")[0] is not None
