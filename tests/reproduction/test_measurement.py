"""Rows that are measured on models trained for others: a cache, several as one."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import spanlm
from spanlm.errors import InputError
from spanlm.evaluation.cache import CacheConfig
from spanlm.reproduction import measurement as measurement_module
from spanlm.reproduction import run as run_module
from spanlm.reproduction.plan import Plan, make_plan
from spanlm.reproduction.request import Request
from spanlm.reproduction.run import Outcome, finished_before, run_plan
from tests.conftest import tiny_lines

ENSEMBLE = ("medium-x2",)
CACHE = ("grave-lstm-ptb-cache-500",)
SENTENCE_CACHE = ("single-ptb-cache-500",)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text with room for a cache of 500 words."""
    folder = tmp_path_factory.mktemp("text") / "text"
    folder.mkdir()
    for seed, split in enumerate(("train", "valid", "test")):
        (folder / f"{split}.txt").write_text("\n".join(tiny_lines(120, seed)) + "\n", encoding="utf-8")
    return folder


def plan(corpus: Path, rows: tuple[str, ...], **changes: Any) -> Plan:
    asked = {"paper": "salton2017", "table": "1", "scale": "smoke", "device": "cpu", **changes}
    return make_plan(Request(corpus=str(corpus), rows=rows, **asked))


def outcomes(made: Plan) -> dict[str, Outcome]:
    return {f"{outcome.job.row}, {outcome.job.seeds}": outcome for outcome in run_plan(made)}


def record(outcome: Outcome) -> dict[str, Any]:
    assert outcome.record is not None, outcome.error
    return outcome.record


def test_a_cache_is_tuned_on_valid_and_measured_with_and_without(text: Path) -> None:
    made = plan(text, CACHE)
    plain, cached = map(record, outcomes(made).values())
    model = spanlm.load(made.jobs[0].folder, "cpu")
    best = model.tune_cache((500,), split="valid").best
    assert cached["details"]["cache"] == {
        "window": 500,
        "theta": best.theta,
        "lambda": best.lambda_,
        "tuned_on": "text valid",
    }
    for split in ("valid", "test"):
        by_hand = model.evaluate(split=split, cache=best)
        assert cached[split]["nll"] == pytest.approx(by_hand.nll, rel=1e-12)
        assert cached[split]["without_cache"]["nll"] == pytest.approx(plain[split]["nll"], rel=1e-9)
    assert cached["members"] == [
        {"row": "grave-lstm-ptb", "seed": 1, "valid": plain["valid"]["nll"], "test": plain["test"]["nll"]}
    ]
    assert json.loads(made.tasks[1].record.read_text()) == cached


def test_the_cache_of_a_sentence_model_goes_on_over_the_lines(text: Path) -> None:
    made = plan(text, SENTENCE_CACHE)
    plain, cached = map(record, outcomes(made).values())
    without = cached["test"]["without_cache"]
    assert without["nll"] == pytest.approx(plain["test"]["nll"], rel=1e-6), "the state begins anew at each line"
    assert without["salton2017"]["nll"] == pytest.approx(plain["test"]["salton2017"]["nll"], rel=1e-6)
    chosen = cached["details"]["cache"]
    best = CacheConfig(window=500, theta=chosen["theta"], lambda_=chosen["lambda"])
    by_hand = spanlm.load(made.jobs[0].folder, "cpu").evaluate(split="test", state="line", cache=best)
    assert cached["test"]["nll"] == pytest.approx(by_hand.nll, rel=1e-12)
    assert cached["test"]["salton2017"]["perplexity"] == pytest.approx(by_hand.to_json()["salton2017"]["perplexity"])


def test_an_ensemble_is_the_mixture_of_its_members(text: Path) -> None:
    made = plan(text, ENSEMBLE)
    *members, both = map(record, outcomes(made).values())
    ensemble = spanlm.load_ensemble([job.folder for job in made.jobs], device="cpu")
    for split in ("valid", "test"):
        by_hand = ensemble.evaluate_members(split=split)
        assert both[split]["nll"] == pytest.approx(by_hand.ensemble.nll, rel=1e-12)
        assert both["details"][split]["members"] == pytest.approx([m[split]["perplexity"] for m in members])
        assert both["details"][split]["oracle_bound"] < both[split]["perplexity"]
    assert [member["seed"] for member in both["members"]] == [1, 2]
    assert both["all_parameters"] == 2 * members[0]["all_parameters"]


def test_what_is_measured_is_not_measured_again(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(text, (*ENSEMBLE, *CACHE))
    first = outcomes(made)

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("nothing should have been run")

    for module in (run_module, measurement_module):
        monkeypatch.setattr(module, "load", refuse)
    monkeypatch.setattr(run_module, "train", refuse)
    second = outcomes(made)
    assert all(outcome.done_before for outcome in second.values())
    assert [o.record for o in second.values()] == [o.record for o in first.values()]
    single = plan(text, ("medium",))
    shown = {f"{o.job.row}, {o.job.seeds}" for o in finished_before(single)}
    assert shown == {*first} - {"medium, seed 1"}


def test_what_needs_a_failed_run_fails_with_it_and_nothing_else_does(text: Path) -> None:
    made = plan(text, (*ENSEMBLE, *CACHE))
    broken = next(job for job in made.jobs if (job.row, job.seed) == ("medium", 2))
    broken.folder.parent.mkdir(parents=True)
    broken.folder.write_text("in the way")
    found = outcomes(made)
    assert {name for name, outcome in found.items() if outcome.error} == {"medium, seed 2", "medium-x2, seeds 1 to 2"}
    assert found["medium-x2, seeds 1 to 2"].error == "needs medium, seed 2, which failed"


def test_a_cache_that_no_word_could_fill_fails_its_row_alone(tiny_corpus: Path) -> None:
    found = outcomes(plan(tiny_corpus, CACHE))
    assert found["grave-lstm-ptb, seed 1"].record is not None
    assert "cache.window=500" in found["grave-lstm-ptb-cache-500, seed 1"].error


def test_a_measurement_of_models_that_were_trained_anew_is_refused(text: Path) -> None:
    made = plan(text, CACHE)
    outcomes(made)
    trained = json.loads(made.jobs[0].record.read_text())
    trained["valid"]["nll"] += 1
    made.jobs[0].record.write_text(json.dumps(trained))
    with pytest.raises(InputError, match=r"cache-500-seed-1\.json: is the result of another run: members"):
        outcomes(made)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("how", {"kind": "cached", "window": 7}, "how.window was 7, not 500"),
        ("details", None, "is not a record"),
        ("valid", {"tokens": 1, "perplexity": 2.0}, "corpus.valid was 1"),
    ],
)
def test_a_record_of_something_else_is_refused_before_anything_runs(
    text: Path, field: str, value: object, told: str
) -> None:
    made = plan(text, CACHE)
    outcomes(made)
    path = made.tasks[1].record
    changed = {**json.loads(path.read_text()), field: value}
    if value is None:
        del changed[field]
    path.write_text(json.dumps(changed))
    with pytest.raises(InputError, match=told):
        outcomes(made)


def test_models_that_are_elsewhere_are_asked_for(text: Path) -> None:
    outcomes(plan(text, ("grave-lstm-ptb",)))
    shutil.rmtree("runs")
    found = outcomes(plan(text, CACHE))
    assert found["grave-lstm-ptb, seed 1"].done_before
    assert "--runs" in found["grave-lstm-ptb-cache-500, seed 1"].error


def test_a_measurement_can_be_taken_by_itself_once_its_models_are_there(text: Path) -> None:
    made = plan(text, CACHE)
    job, task = made.tasks
    with pytest.raises(InputError, match="grave-lstm-ptb, seed 1, is not trained yet"):
        measurement_module.measure(replace(task), made.corpus)  # type: ignore[arg-type]
    run_module.run_job(job, made.corpus)  # type: ignore[arg-type]
    found, before = measurement_module.measure(task, made.corpus)  # type: ignore[arg-type]
    assert not before and found["row"] == task.row
