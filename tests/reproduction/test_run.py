"""Running a plan: skip what is finished, go on with what is not, survive what fails."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spanlm.errors import InputError, Interrupted
from spanlm.evaluation import perplexity
from spanlm.reproduction import run as run_module
from spanlm.reproduction.plan import Plan, make_plan
from spanlm.reproduction.request import Request
from spanlm.reproduction.run import Outcome, finished_before, run_job, run_plan
from spanlm.runs.trained_model import TrainedModel
from spanlm.training.events import EpochEvent, Watcher


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def plan(corpus: Path, **changes: Any) -> Plan:
    return make_plan(Request(paper="daniluk2017", corpus=str(corpus), scale="smoke", device="cpu", **changes))


def outcomes(made: Plan) -> list[Outcome]:
    return list(run_plan(made))


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training or evaluating anything is a failure."""

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("nothing should have been run")

    monkeypatch.setattr(run_module, "train", refuse)
    monkeypatch.setattr(TrainedModel, "evaluate", refuse)


def test_a_record_says_what_ran_and_what_came_out(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, table="2b", rows=("2-gram",))
    (outcome,) = outcomes(made)
    record = json.loads(made.jobs[0].record.read_text())
    assert record == outcome.record
    config = made.jobs[0].config
    assert record["config"] == replace(config, data=replace(config.data, corpus="tiny")).to_tree()
    assert record["starts"][0]["device"] == "cpu"
    assert record["epochs"] == record["best_epoch"] == 1
    assert record["units"] == 2 * record["readout"]
    assert record["valid"]["tokens"] == len(made.corpus.splits["valid"])
    assert record["test"]["perplexity"] > 1


def test_the_record_has_what_an_evaluation_by_hand_gives(tiny_corpus: Path) -> None:
    import spanlm

    made = plan(tiny_corpus, table="2b", rows=("2-gram",))
    (outcome,) = outcomes(made)
    assert outcome.record is not None
    model = spanlm.load(made.jobs[0].folder, "cpu")
    for split in ("valid", "test"):
        assert outcome.record[split]["nll"] == pytest.approx(model.evaluate(split=split).nll, rel=1e-12)


def test_what_is_finished_is_neither_trained_nor_tested_again(
    tiny_corpus: Path, request: pytest.FixtureRequest
) -> None:
    made = plan(tiny_corpus, table="2b", rows=("2-gram", "3-gram"))
    first = outcomes(made)
    request.getfixturevalue("no_work")
    second = outcomes(made)
    assert all(outcome.done_before for outcome in second)
    assert [outcome.record for outcome in second] == [outcome.record for outcome in first]


def test_a_stopped_run_goes_on_where_it_was(tiny_corpus: Path) -> None:
    class Stop(Watcher):
        def epoch(self, event: EpochEvent) -> None:
            raise Interrupted("stopped", 2)

    made = plan(tiny_corpus, table="2b", rows=("2-gram", "3-gram"))
    with pytest.raises(Interrupted):
        list(run_plan(made, Stop()))
    assert not made.jobs[0].record.exists()
    weights = made.jobs[0].folder / "model.safetensors"
    before = weights.stat().st_mtime_ns
    ended = outcomes(made)
    assert all(outcome.record for outcome in ended)
    assert weights.stat().st_mtime_ns == before, "the finished epoch was trained again"


def test_a_row_that_fails_does_not_stop_the_others(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, table="2b", rows=("2-gram", "3-gram"))
    made.jobs[0].folder.parent.mkdir(parents=True)
    made.jobs[0].folder.write_text("in the way")
    failed, fine = outcomes(made)
    assert failed.record is None and "seed-1" in failed.error
    assert fine.record is not None and not fine.error


@pytest.mark.parametrize("error", [RuntimeError("CUDA out of memory"), MemoryError(), OSError(28, "No space left")])
def test_what_the_machine_refuses_is_a_failed_row(
    tiny_corpus: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(run_module, "train", refuse)
    (outcome,) = outcomes(plan(tiny_corpus, table="2b", rows=("2-gram",)))
    assert outcome.record is None and outcome.error


def test_a_record_of_another_configuration_is_refused_before_anything_runs(tiny_corpus: Path) -> None:
    outcomes(plan(tiny_corpus, table="2b", rows=("2-gram",)))
    with pytest.raises(InputError, match=r"2-gram-seed-1\.json.*training\.precision was fp32, not bf16"):
        outcomes(plan(tiny_corpus, table="2b", precision="bf16"))


def test_a_record_of_another_text_is_refused(tiny_corpus: Path, tmp_path: Path) -> None:
    other = tmp_path / "tiny"
    shutil.copytree(tiny_corpus, other)
    outcomes(plan(other, table="2b", rows=("2-gram",)))
    with (other / "test.txt").open("a") as file:
        file.write("the cat sat\n")
    with pytest.raises(InputError, match=r"corpus\.test was"):
        outcomes(plan(other, table="2b", rows=("2-gram",)))


def test_where_a_text_lies_makes_no_other_run(tiny_corpus: Path, tmp_path: Path) -> None:
    outcomes(plan(tiny_corpus, table="2b", rows=("2-gram",)))
    other = tmp_path / "elsewhere" / "tiny"
    shutil.copytree(tiny_corpus, other)
    made = plan(other, table="2b", rows=("2-gram",))
    assert outcomes(made)[0].done_before
    assert str(tiny_corpus) not in made.jobs[0].record.read_text()


def test_a_measure_of_a_run_that_is_gone_is_not_made_by_training_another(tiny_corpus: Path) -> None:
    outcomes(plan(tiny_corpus, table="2a", rows=("kvp-w15",)))
    shutil.rmtree("runs")
    (outcome,) = outcomes(plan(tiny_corpus, table="3", rows=("kvp-w15",)))
    assert "--runs" in outcome.error and "attention" in outcome.error


def test_folders_that_cannot_be_made_are_refused_before_training(tiny_corpus: Path) -> None:
    Path("taken").write_text("")
    for option in ("runs", "out"):
        with pytest.raises(InputError, match=f"--{option}=taken"):
            outcomes(plan(tiny_corpus, table="2b", **{option: Path("taken")}))


def test_a_damaged_provenance_fails_its_row_alone(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, table="2b", rows=("2-gram", "3-gram"))
    outcomes(made)
    made.jobs[0].record.unlink()
    (made.jobs[0].folder / "provenance.jsonl").write_text("{")
    damaged, fine = outcomes(made)
    assert "provenance.jsonl" in damaged.error and fine.record is not None


def test_other_seeds_that_were_run_before_stay_in_the_table(tiny_corpus: Path) -> None:
    outcomes(plan(tiny_corpus, table="2b", rows=("2-gram",)))
    made = plan(tiny_corpus, table="2b", rows=("2-gram",), seeds=(2,))
    assert [(o.job.row, o.job.seed) for o in finished_before(made)] == [("2-gram", 1)]


def test_a_finished_run_is_the_same_however_device_and_place_are_asked_for(
    tiny_corpus: Path, request: pytest.FixtureRequest
) -> None:
    outcomes(plan(tiny_corpus, table="2b", rows=("2-gram",)))
    request.getfixturevalue("no_work")
    asked = Request(
        paper="daniluk2017", corpus=str(tiny_corpus), scale="smoke", table="2b", rows=("2-gram",), data_dir="elsewhere"
    )
    (outcome,) = outcomes(make_plan(asked))
    assert outcome.done_before, outcome.error


@pytest.mark.parametrize("lost", ["test", "valid", "starts", "units"])
def test_a_record_that_lost_a_part_is_told(tiny_corpus: Path, lost: str) -> None:
    made = plan(tiny_corpus, table="2b", rows=("2-gram",))
    outcomes(made)
    record = json.loads(made.jobs[0].record.read_text())
    del record[lost]
    made.jobs[0].record.write_text(json.dumps(record))
    with pytest.raises(InputError, match="is not a record of a run"):
        outcomes(made)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"config": 3}', "[" * 10_000], ids=lambda text: text[:9])
def test_a_file_that_is_no_record_is_left_alone(tiny_corpus: Path, content: str) -> None:
    made = plan(tiny_corpus, table="2b", rows=("2-gram",))
    made.jobs[0].record.parent.mkdir(parents=True)
    made.jobs[0].record.write_text(content)
    with pytest.raises(InputError, match=r"2-gram-seed-1\.json"):
        run_job(made.jobs[0], made.corpus)
    assert made.jobs[0].record.read_text() == content


def test_a_measure_that_is_missing_is_added_without_training_or_testing_again(
    tiny_corpus: Path, request: pytest.FixtureRequest
) -> None:
    perplexities = plan(tiny_corpus, table="2a", rows=("kvp-w15",))
    (first,) = outcomes(perplexities)
    request.getfixturevalue("no_work")
    (second,) = outcomes(plan(tiny_corpus, table="3", rows=("kvp-w15",)))
    assert first.record is not None and second.record is not None, second
    assert "attention" not in first.record
    assert sum(second.record["attention"]["percent"]) == pytest.approx(100)
    assert second.record["attention"]["lags"] == list(range(15, 0, -1))
    assert {**second.record, "attention": None} == {**first.record, "attention": None}


def test_the_test_part_is_read_once(tiny_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    evaluate = perplexity.evaluate

    def counted(model: Any, corpus: Any, split: str, *protocol: Any, **options: Any) -> Any:
        read.append(split)
        return evaluate(model, corpus, split, *protocol, **options)

    monkeypatch.setattr("spanlm.runs.trained_model.evaluate", counted)
    made = plan(tiny_corpus, table="2b", rows=("2-gram",))
    outcomes(made)
    outcomes(made)
    assert read == ["valid", "test"]
