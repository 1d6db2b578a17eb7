"""Rows that are measured on trained models which adapt to what they read."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import spanlm
from spanlm.errors import InputError, RunError
from spanlm.evaluation.dynamic import tuning as tuning_module
from spanlm.evaluation.dynamic.evaluate import DivergedError, adapted_tally
from spanlm.evaluation.dynamic.statistics import DYNAMIC
from spanlm.evaluation.dynamic.tuning import TRIALS
from spanlm.evaluation.dynamic.update import DynamicConfig
from spanlm.evaluation.perplexity import evaluate
from spanlm.evaluation.scoring import Tally
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import SpanBufferConfig
from spanlm.presets import find_preset
from spanlm.reproduction import estimate as estimate_module
from spanlm.reproduction import measurement as measurement_module
from spanlm.reproduction import run as run_module
from spanlm.reproduction.estimate import dynamic_seconds, estimate
from spanlm.reproduction.page import markdown_page
from spanlm.reproduction.plan import Plan, make_plan
from spanlm.reproduction.request import Request
from spanlm.reproduction.run import Outcome, run_plan
from spanlm.reproduction.scale import DynamicSearch
from spanlm.reproduction.tasks import Measurement
from spanlm.runs.trained_model import TrainedModel
from tests.conftest import tiny_lines

WHOLE, TEMPERED = "mos-ps-at-snb-ptb-dynamic", "unannealed-test-ptb-dynamic"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text") / "text"
    folder.mkdir()
    # statistics are gathered in 100 streams, each of which must be long enough for a span
    for seed, (split, lines) in enumerate({"train": 300, "valid": 20, "test": 20}.items()):
        (folder / f"{split}.txt").write_text("\n".join(tiny_lines(lines, seed)) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def done(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which both rows were measured."""
    folder = tmp_path_factory.mktemp("done")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        records(plan(text, WHOLE, TEMPERED))
    return folder


@pytest.fixture(autouse=True)
def own_copy(done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(done, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")


def plan(corpus: Path, *rows: str) -> Plan:
    made = make_plan(Request(paper="li2020", table="3", scale="smoke", device="cpu", corpus=str(corpus), rows=rows))
    assert made.scale.dynamic.rates is not None and len(made.scale.dynamic.rates) > 1, "there is a choice"
    return made


def records(made: Plan) -> dict[str, dict[str, Any]]:
    outcomes: dict[str, Outcome] = {outcome.job.row: outcome for outcome in run_plan(made)}
    assert not any(outcome.error for outcome in outcomes.values()), outcomes
    return {row: outcome.record for row, outcome in outcomes.items() if outcome.record is not None}


def test_settings_are_found_on_valid_and_the_model_is_measured_with_and_without_them(text: Path) -> None:
    made = plan(text, WHOLE)
    plain, found = records(made).values()
    model = spanlm.load(made.jobs[0].folder, "cpu")
    search, statistics = made.scale.dynamic, model.dynamic_statistics(segments=made.scale.dynamic.statistics)
    tried = {
        rate: model.evaluate(
            split="valid", dynamic=DynamicConfig(rate=rate, decay=0.002), statistics=statistics
        ).perplexity
        for rate in search.rates or ()
    }
    chosen = found["details"]["dynamic"]
    assert chosen["rate"] == min(tried, key=lambda rate: tried[rate])
    points = found["details"]["grid"]
    assert [(point["rate"], point["decay"]) for point in points] == [(rate, 0.002) for rate in tried]
    assert (chosen["decay"], chosen["tuned_on"]) == (0.002, "text valid")
    assert found["valid"]["perplexity"] == pytest.approx(min(tried.values()), rel=1e-9)
    by_hand = model.evaluate(split="test", dynamic=DynamicConfig(**chosen), statistics=statistics)
    assert found["test"]["nll"] == pytest.approx(by_hand.nll, rel=1e-12)
    for split in ("valid", "test"):
        assert found[split]["without_dynamic"]["nll"] == pytest.approx(plain[split]["nll"], rel=1e-9)
        assert found[split]["nll"] != pytest.approx(plain[split]["nll"], rel=1e-6)
        assert found[split]["parts"]["oracle"] <= found[split]["perplexity"] * (1 + 1e-9)
        assert found[split]["parts"] != plain[split]["parts"]
    assert json.loads(made.tasks[1].record.read_text()) == found


def test_a_record_says_of_what_the_statistics_are_but_not_where_they_lie(text: Path) -> None:
    made = plan(text, WHOLE)
    found = records(made)[WHOLE]
    assert found["details"]["statistics"]["text"] == "text train"
    assert str(made.jobs[0].folder) not in json.dumps(found) and str(text) not in json.dumps(found)


def test_another_temperature_of_the_gate_is_that_of_the_same_weights(text: Path) -> None:
    made = plan(text, WHOLE, TEMPERED)
    assert len(made.jobs) == 1
    found = records(made)
    folder = made.jobs[0].folder
    model = spanlm.load(folder, "cpu")
    memory = model.config.model.memory
    assert isinstance(memory, SpanBufferConfig) and memory.gate.evaluation_temperature == 0.1
    rooms = replace(model.config.model, memory=memory.at_temperature(1.0))
    other = LanguageModel(rooms, len(model.vocabulary)).eval()
    other.load_state_dict(model.model.state_dict())
    by_hand = evaluate(other, model.corpus(), "test").nll
    assert found[TEMPERED]["test"]["without_dynamic"]["nll"] == pytest.approx(by_hand, rel=1e-9)
    assert by_hand != pytest.approx(found[WHOLE]["test"]["without_dynamic"]["nll"], rel=1e-7)
    assert found[TEMPERED]["how"]["gate_temperature"] == 1.0
    temperatures = [found[row]["details"]["statistics"].pop("gate_temperature") for row in (WHOLE, TEMPERED)]
    assert temperatures == [0.1, 1.0]
    assert found[TEMPERED]["details"]["statistics"] == found[WHOLE]["details"]["statistics"]


def test_each_temperature_has_statistics_of_its_own(text: Path) -> None:
    """Whichever row gathers first; those of the run as it was trained are not written over."""
    made = plan(text, WHOLE, TEMPERED)
    records(made)
    folder = made.jobs[0].folder
    kept = {name: (folder / name).read_bytes() for name in (DYNAMIC, "dynamic-gate-1.0.safetensors")}
    assert len(set(kept.values())) == 2
    for measurement in made.tasks[1:]:
        measurement.record.unlink()
    for name in kept:
        (folder / name).unlink()
    records(plan(text, TEMPERED, WHOLE))
    assert {name: (folder / name).read_bytes() for name in kept} == kept


def test_what_is_measured_is_not_measured_again(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(text, WHOLE)
    first = records(made)

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("nothing should have been run")

    for module in (run_module, measurement_module):
        monkeypatch.setattr(module, "load", refuse)
    assert records(made) == first


def test_a_record_of_another_search_is_refused(text: Path) -> None:
    made = plan(text, WHOLE)
    records(made)
    path = made.tasks[1].record
    record = json.loads(path.read_text())
    record["how"]["search"]["first_tokens"] = 7
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match=r"how\.search\.first_tokens was 7, not 500"):
        records(made)


def test_test_is_read_once_with_and_once_without(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(text, WHOLE)
    made.tasks[1].record.unlink()
    read: list[tuple[str, bool]] = []
    measure = TrainedModel.evaluate

    def counted(self: TrainedModel, corpus: Any, split: Any, **options: Any) -> Any:
        read.append((split, "dynamic" in options))
        return measure(self, corpus, split, **options)

    monkeypatch.setattr(TrainedModel, "evaluate", counted)
    records(made)
    assert read == [("valid", True), ("test", True)]


def test_gradients_are_looked_at_in_as_many_segments_as_the_scale_says(
    text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan(text, WHOLE)
    made.tasks[1].record.unlink()
    asked: list[dict[str, Any]] = []
    gather = TrainedModel.dynamic_statistics

    def noted(self: TrainedModel, **options: Any) -> Any:
        asked.append(options)
        return gather(self, **options)

    monkeypatch.setattr(TrainedModel, "dynamic_statistics", noted)
    records(made)
    assert [options["segments"] for options in asked] == [made.scale.dynamic.statistics] == [5]


def test_the_time_it_takes_is_estimated_from_all_that_is_read(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes on by one at each look: a lesson and a scored token have a price, and all of them are paid."""
    made = plan(text, WHOLE)
    job, corpus = made.jobs[0], made.corpus
    search = replace(made.scale.dynamic, rates=(1e-4, 2e-4), decays=(0.002,), first_tokens=30, finalists=1)
    clock = iter(range(10**6))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    valid, test = (len(corpus.splits[split]) for split in ("valid", "test"))
    assert valid > 30

    def seconds(**changes: Any) -> float:
        return dynamic_seconds(job.config, corpus, replace(search, **changes))

    adapted = min(40 * 5, valid)
    whole = seconds()
    scored = min(5 * 256, valid)
    segments = min(5, -(-len(corpus.splits["train"]) // 500))
    plain = (2 * valid + test) / scored
    assert whole == pytest.approx(segments / 5 + (2 * 30 + valid + test) / adapted + plain)
    # more finalists than points are none more; without any, and of the whole text at once, the best is not read again
    assert seconds(finalists=9) - whole == pytest.approx(valid / adapted)
    assert seconds(finalists=0) == whole
    assert whole - seconds(first_tokens=valid) == pytest.approx((2 * 30 + valid - 2 * valid) / adapted)


def test_a_training_is_estimated_with_its_validations_and_what_comes_after(
    text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan(text, WHOLE)
    job, corpus = made.jobs[0], made.corpus
    clock = iter(range(10**6))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(estimate_module, "scoring_seconds", lambda model, batcher, precision="fp32": 1000.0)
    found = estimate(job, corpus)
    training = job.config.training
    epochs = training.epochs + training.finetune.stages * training.finetune.epochs
    assert training.finetune.stages and found.epochs == epochs
    valid, test = (len(corpus.splits[split]) for split in ("valid", "test"))
    # a step takes one tick, and reads as many tokens
    assert 1 < found.tokens_per_second <= training.batching.batch_size * 2 * training.batching.length
    trained = epochs * len(corpus.splits["train"]) / found.tokens_per_second
    assert found.seconds == pytest.approx(trained + 1000 * (epochs * valid + valid + test))


def test_the_published_grid_has_the_point_of_the_models_authors_too() -> None:
    """Whose ε is not that of the grid."""
    published = find_preset("yang2018/mos-wt2").dynamic
    assert published is not None and published.epsilon != DynamicConfig().epsilon
    assert DynamicSearch().grid(published) == [*DynamicSearch().grid(None), published]
    for own in ({"rates": (1e-4,)}, {"decays": (0.002,)}):
        assert published not in DynamicSearch(**own).grid(published)


def test_a_row_is_measured_with_the_point_of_its_preset(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[DynamicConfig | None] = []

    def note(*arguments: Any) -> None:
        given.append(arguments[-1])
        raise RunError("enough")

    made, published = plan(text, WHOLE), DynamicConfig(epsilon=1e-3)
    (job,), measurement = made.jobs, made.tasks[1]
    own = replace(job, preset=replace(job.preset, dynamic=published))
    monkeypatch.setattr(measurement_module, "adapted", note)
    with pytest.raises(RunError, match="enough"):
        measurement_module.measure(replace(measurement, jobs=(own,), record=Path("new.json")), made.corpus)
    assert given == [published]


def test_a_measurement_that_is_stopped_goes_on(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same results; only the readings that were not over are made again."""
    made = plan(text, WHOLE)
    path = made.tasks[1].record
    expected = json.loads(path.read_text())
    path.unlink()
    (made.jobs[0].folder / TRIALS).unlink()
    tally: Callable[..., Tally] = adapted_tally
    begun: list[int] = []

    def stopped(*arguments: Any, **how: Any) -> Tally:
        begun.append(1)
        if len(begun) == len(expected["details"]["grid"]):
            raise KeyboardInterrupt
        return tally(*arguments, **how)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(tuning_module, "adapted_tally", stopped)
        list(run_plan(made))
    trials = made.jobs[0].folder / TRIALS
    kept = [json.loads(line) for line in trials.read_text(encoding="utf-8").splitlines()]
    assert len(kept) == len(begun) - 1 >= 1
    trials.write_text("".join(json.dumps({**line, "seconds": 1e6}) + "\n" for line in kept), encoding="utf-8")
    (found,) = (records(made)[WHOLE],)
    assert found["details"].pop("read_before") == len(kept)
    assert found["details"].pop("seconds_before") == len(kept) * 1e6
    assert found["details"] == expected["details"] and found["seconds"] > 1e6
    for split in ("valid", "test"):
        assert found[split]["nll"] == expected[split]["nll"] and found[split]["parts"] == expected[split]["parts"]


def ruined(made: Plan) -> Plan:
    """The same plan with a search whose every rate ruins the weights; nothing of it is measured yet."""
    trained, measurement = made.tasks
    assert isinstance(measurement, Measurement) and measurement.search is not None
    search = replace(measurement.search, rates=(1e4, 1e30), decays=(0.0,))
    measurement.record.unlink()
    return replace(made, tasks=(trained, replace(measurement, search=search)))


def test_what_goes_astray_has_a_record_and_is_not_tried_again(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ruined(plan(text, WHOLE))
    _, first = run_plan(made)
    assert first.record is None and not first.done_before
    assert first.error == "dynamic.rate: at every point of the grid the weights diverged. Take lower rates."
    kept = made.tasks[1].record.read_text()
    record = json.loads(kept, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    points = record["details"]["grid"]
    assert [(point["rate"], point["decay"], point["whole"]) for point in points] == [(1e4, 0, True), (1e30, 0, True)]
    assert points[1]["perplexity"] is None and record["details"]["tried"] == 2
    assert record["valid"] == {"tokens": len(made.corpus.splits["valid"])}, "there is no result"
    assert record["details"]["statistics"]["text"] == "text train" and record["starts"][0]["command"]
    monkeypatch.setattr(measurement_module, "load", lambda *_: pytest.fail("it was tried again"))
    _, again = run_plan(made)
    assert again == replace(first, done_before=True, seconds=again.seconds)
    assert made.tasks[1].record.read_text() == kept


def test_the_page_says_of_what_went_astray_that_it_did(text: Path) -> None:
    made = ruined(plan(text, WHOLE))
    table = made.tables[0]
    pages = [markdown_page(made, table, list(run_plan(made)), None) for _ in range(2)]
    assert pages[0] == pages[1]
    assert f"(`{WHOLE}`): **failed**: dynamic.rate: at every point of the grid the weights diverged" in pages[0]


def test_a_setting_that_goes_astray_on_test_is_kept_too(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test was read: whoever gave the same command again would read it once more."""
    made = plan(text, WHOLE)
    made.tasks[1].record.unlink()
    measure = TrainedModel.evaluate

    def astray(self: TrainedModel, corpus: Any, split: Any, **options: Any) -> Any:
        if split == "test":
            raise DivergedError("dynamic.rate=1: the weights diverged")
        return measure(self, corpus, split, **options)

    monkeypatch.setattr(TrainedModel, "evaluate", astray)
    assert [outcome.error for outcome in run_plan(made)] == ["", "dynamic.rate=1: the weights diverged"]
    details = json.loads(made.tasks[1].record.read_text())["details"]
    assert details["dynamic"]["tuned_on"] == "text valid" and details["statistics"] and details["grid"]
    assert details["measured"].keys() == {"valid"} and details["measured"]["valid"]["perplexity"] > 1
    monkeypatch.setattr(TrainedModel, "evaluate", lambda *_, **__: pytest.fail("test was read again"))
    assert [outcome.error for outcome in run_plan(made)] == ["", "dynamic.rate=1: the weights diverged"]


def test_the_record_of_another_search_that_went_astray_is_refused(text: Path) -> None:
    made = plan(text, WHOLE)
    list(run_plan(ruined(made)))
    with pytest.raises(InputError, match=r"how\.search\.rates was .*10000"):
        list(run_plan(made))


def test_a_record_of_before_with_statistics_of_another_likelihood_is_refused(text: Path) -> None:
    made = plan(text, TEMPERED, WHOLE)
    paths = {task.row: task.record for task in made.tasks[1:]}
    for path in paths.values():
        record = json.loads(path.read_text())
        del record["details"]["statistics"]["gate_temperature"]
        path.write_text(json.dumps(record))
    list(run_plan(plan(text, WHOLE)))  # at the run's own temperature they were right
    with pytest.raises(InputError, match=r"details\.statistics\.gate_temperature was None, not 1\.0\. Move it away"):
        list(run_plan(made))
    for damaged in (None, {}, {"statistics": 3}):
        path = paths[TEMPERED]
        path.write_text(json.dumps({**json.loads(path.read_text()), "details": damaged}))
        with pytest.raises(InputError, match=r"gate_temperature was None"):
            list(run_plan(made))


@pytest.mark.parametrize("said", [None, "", 5, ["x"]], ids=str)
def test_what_only_seems_to_have_gone_astray_is_no_record(text: Path, said: object) -> None:
    made = plan(text, WHOLE)
    path = made.tasks[1].record
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "astray": said, "test": {"tokens": record["test"]["tokens"]}}))
    with pytest.raises(InputError, match="is not a record of a run"):
        list(run_plan(made))


def test_a_training_never_went_astray(text: Path) -> None:
    made = plan(text, WHOLE)
    path = made.jobs[0].record
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "astray": "x", "test": {"tokens": record["test"]["tokens"]}}))
    with pytest.raises(InputError, match="is not a record of a run"):
        list(run_plan(made))


def test_one_ruinous_pair_of_several_is_null_in_the_record(text: Path) -> None:
    made = plan(text, WHOLE)
    trained, measurement = made.tasks
    assert isinstance(measurement, Measurement) and measurement.search is not None
    search = replace(measurement.search, rates=(1e-4, 1e30), decays=(0.0,))
    measurement.record.unlink()
    list(run_plan(replace(made, tasks=(trained, replace(measurement, search=search)))))
    kept = measurement.record.read_text()
    points = json.loads(kept, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))["details"]["grid"]
    assert [(point["perplexity"] is None, point["whole"]) for point in points] == [(False, True), (True, True)]
