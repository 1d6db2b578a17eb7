"""Rows that are measured on models trained for others: with a cache, averaged, or with dynamic evaluation."""

import json
import math
import shutil
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import spanlm
from spanlm.errors import InputError
from spanlm.papers.plan import Plan
from spanlm.papers.record import finished
from spanlm.papers.request import Request
from spanlm.papers.run import Run
from spanlm.scoring.dynamic.tuning import TRIALS
from spanlm.scoring.options import CacheConfig, DynamicConfig
from tests.conftest import tiny_lines

CACHE, SENTENCE_CACHE, ENSEMBLE = "grave-lstm-ptb-cache-500", "single-ptb-cache-500", "medium-x2"
WHOLE, TEMPERED = "mos-ps-at-snb-ptb-dynamic", "unannealed-test-ptb-dynamic"
PAPER_OF = {WHOLE: ("li2020", "3"), TEMPERED: ("li2020", "3")}
DIVERGED = "dynamic.rate: at every point of the grid the weights diverged. Take lower rates."


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text with room for a cache of 500 words, and one with room for spans in each of 100 streams."""
    base = tmp_path_factory.mktemp("text")
    for paper, sizes in {"salton2017": (120, 120, 120), "li2020": (300, 20, 20)}.items():
        folder = base / paper / "text"
        folder.mkdir(parents=True)
        for seed, (split, lines) in enumerate(zip(("train", "valid", "test"), sizes, strict=True)):
            (folder / f"{split}.txt").write_text("\n".join(tiny_lines(lines, seed)) + "\n", encoding="utf-8")
    return base


def measured(texts: Path, folder: Path, *rows: str) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert not any(outcome.error for outcome in Run(plan(texts, *rows)).outcomes())
    return folder


@pytest.fixture(scope="module")
def done(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which rows with caches and averages were measured."""
    return measured(text, tmp_path_factory.mktemp("done"), CACHE, SENTENCE_CACHE, ENSEMBLE)


@pytest.fixture(scope="module")
def followed(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which rows with dynamic evaluation were measured."""
    return measured(text, tmp_path_factory.mktemp("followed"), WHOLE, TEMPERED)


@pytest.fixture(autouse=True)
def own_copy(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of either: dynamic evaluation is slow."""
    slow = request.node.get_closest_marker("slow")
    shutil.copytree(request.getfixturevalue("followed" if slow else "done"), tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")


def plan(texts: Path, *rows: str) -> Plan:
    paper, table = PAPER_OF.get(rows[0], ("salton2017", "1"))
    corpus = texts if (texts / "train.txt").exists() else texts / paper / "text"
    return Plan(Request(paper=paper, table=table, scale="smoke", device="cpu", corpus=str(corpus), rows=rows))


def records(made: Plan) -> list[dict[str, Any]]:
    found = [finished(task, made.text_of(task)) for task in made.tasks]
    assert all(record is not None for record in found)
    return [record for record in found if record is not None]


def errors(made: Plan) -> list[str]:
    return [outcome.error for outcome in Run(made).outcomes()]


def change(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_the_blocks_of_a_record_are_its_test_text(text: Path) -> None:
    """Read as a stream, or line by line."""
    for row in (CACHE, SENTENCE_CACHE):
        plain, _ = records(plan(text, row))
        assert sum(plain["blocks"]["tokens"]) == plain["test"]["tokens"]
        bits = plain["test"]["nll"] / math.log(2)
        assert sum(plain["blocks"]["bits"]) == pytest.approx(bits, rel=1e-5) and len(plain["blocks"]["bits"]) > 1


def test_a_cache_is_tuned_on_valid_and_measured_with_and_without(text: Path) -> None:
    made = plan(text, CACHE)
    plain, cached = records(made)
    model = spanlm.load(made.jobs[0].folder, "cpu")
    best = model.tune_cache((500,), split="valid").best
    chosen = {"window": 500, "theta": best.theta, "lambda": best.lambda_, "tuned_on": "text valid"}
    assert cached["details"]["cache"] == chosen
    for split in ("valid", "test"):
        assert cached[split]["nll"] == pytest.approx(model.evaluate(split=split, cache=best).nll, rel=1e-12)
        assert cached[split]["without_cache"]["nll"] == pytest.approx(plain[split]["nll"], rel=1e-9)
    nlls = {split: plain[split]["nll"] for split in ("valid", "test")}
    assert cached["members"] == [{"row": "grave-lstm-ptb", "seed": 1, **nlls}]


def test_the_cache_of_a_sentence_model_goes_on_over_the_lines(text: Path) -> None:
    made = plan(text, SENTENCE_CACHE)
    plain, cached = records(made)
    without, chosen = cached["test"]["without_cache"], cached["details"]["cache"]
    assert without["nll"] == pytest.approx(plain["test"]["nll"], rel=1e-6), "the state begins anew at each line"
    best = CacheConfig(window=500, theta=chosen["theta"], lambda_=chosen["lambda"])
    by_hand = spanlm.load(made.jobs[0].folder, "cpu").evaluate(split="test", state="line", cache=best)
    assert cached["test"]["nll"] == pytest.approx(by_hand.nll, rel=1e-12)


def test_an_ensemble_is_the_mixture_of_its_members(text: Path) -> None:
    made = plan(text, ENSEMBLE)
    *members, both = records(made)
    ensemble = spanlm.load_ensemble([job.folder for job in made.jobs], device="cpu")
    for split in ("valid", "test"):
        assert both[split]["nll"] == pytest.approx(ensemble.evaluate_members(split=split).ensemble.nll, rel=1e-12)
        assert both["details"][split]["members"] == pytest.approx([m[split]["perplexity"] for m in members])
        assert both["details"][split]["oracle_bound"] < both[split]["perplexity"]
    assert [member["seed"] for member in both["members"]] == [1, 2]
    assert both["all_parameters"] == 2 * members[0]["all_parameters"]


@pytest.mark.slow
def test_settings_are_found_on_valid_and_the_model_is_measured_with_and_without_them(text: Path) -> None:
    made = plan(text, WHOLE)
    plain, found = records(made)
    model, search = spanlm.load(made.jobs[0].folder, "cpu"), made.scale.dynamic
    statistics = model.dynamic_statistics(segments=search.statistics)
    chosen, points = found["details"]["dynamic"], found["details"]["grid"]
    assert len(points) > 1 and [(p["rate"], p["decay"]) for p in points] == [
        (rate, 0.002) for rate in search.rates or ()
    ]
    assert chosen["rate"] == min(points, key=lambda point: point["perplexity"])["rate"]
    assert chosen["tuned_on"] == "text valid"
    config = DynamicConfig(**{field.name: chosen[field.name] for field in fields(DynamicConfig)})
    for split in ("valid", "test"):
        by_hand = model.evaluate(split=split, dynamic=config, statistics=statistics)
        assert found[split]["nll"] == pytest.approx(by_hand.nll, rel=1e-9)
        assert found[split]["without_dynamic"]["nll"] == pytest.approx(plain[split]["nll"], rel=1e-9)
        assert found[split]["nll"] != pytest.approx(plain[split]["nll"], rel=1e-6)
        assert found[split]["parts"]["oracle"] <= found[split]["perplexity"] * (1 + 1e-9)
    assert found["details"]["statistics"]["text"] == "text train"
    assert str(made.jobs[0].folder) not in json.dumps(found) and str(text) not in json.dumps(found)


@pytest.mark.slow
def test_another_temperature_of_the_gate_is_that_of_the_same_weights(text: Path) -> None:
    made = plan(text, WHOLE, TEMPERED)
    _, whole, tempered = records(made)
    by_hand = spanlm.load(made.jobs[0].folder, "cpu").at_gate_temperature(1.0).evaluate(split="test").nll
    assert tempered["test"]["without_dynamic"]["nll"] == pytest.approx(by_hand, rel=1e-9)
    assert by_hand != pytest.approx(whole["test"]["without_dynamic"]["nll"], rel=1e-7)
    assert tempered["how"]["gate_temperature"] == 1.0
    assert [one["details"]["statistics"]["gate_temperature"] for one in (whole, tempered)] == [0.1, 1.0]


@pytest.mark.parametrize(
    ("row", "changes", "said"),
    [
        (CACHE, {"how": {"kind": "cached", "window": 7}}, r"how\.window was 7, not 500"),
        (CACHE, {"details": None, "starts": 3, "members": 5, "config": 0}, "is not a record"),
        (CACHE, {"valid": {"tokens": 1, "perplexity": 2.0}}, r"valid\.tokens was 1"),
        (CACHE, {"members": [{"row": "grave-lstm-ptb", "seed": 1, "valid": 1.0, "test": 1.0}]}, "members"),
        *(
            pytest.param(WHOLE, {"astray": why, "test": {"tokens": 1}}, "is not a record", marks=pytest.mark.slow)
            for why in ("", ["x"])
        ),
    ],
)
def test_a_record_of_something_else_is_refused_before_anything_runs(
    text: Path, row: str, changes: dict[str, Any], said: str
) -> None:
    made = plan(text, row)
    change(made.tasks[1].record, **changes)
    with pytest.raises(InputError, match=said):
        list(Run(made).outcomes())


@pytest.mark.slow
def test_a_measurement_that_is_stopped_goes_on(text: Path) -> None:
    """With the same results; only the trials that were not over are made again."""
    made = plan(text, WHOLE)
    path = made.tasks[1].record
    expected = json.loads(path.read_text())
    path.unlink()
    (made.jobs[0].folder / TRIALS).unlink()

    def stop(what: str, done: int, total: int) -> None:
        if what.startswith("point 2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(Run(made, reporting=lambda: nullcontext(stop)).outcomes())
    assert errors(made) == ["", ""]
    found = json.loads(path.read_text())
    assert found["details"].pop("read_before") == 1 and found["details"].pop("seconds_before") >= 0
    assert found["details"] == expected["details"]
    for split in ("valid", "test"):
        assert found[split]["nll"] == expected[split]["nll"] and found[split]["parts"] == expected[split]["parts"]


@pytest.mark.slow
def test_what_diverges_has_a_record_and_is_not_tried_again(text: Path) -> None:
    made = plan(text, WHOLE)
    trained, measurement = made.tasks
    assert measurement.search is not None
    ruinous = replace(measurement.search, rates=(1e4, 1e30), decays=(0.0,))
    ruined = plan(text, WHOLE)
    ruined.tasks = (trained, replace(measurement, search=ruinous))
    measurement.record.unlink()
    _, first = Run(ruined).outcomes()
    assert (first.record, first.error, first.done_before) == (None, DIVERGED, False)
    kept = measurement.record.read_text()
    record = json.loads(kept, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    points = record["details"]["grid"]
    assert [(point["rate"], point["decay"]) for point in points] == [(1e4, 0), (1e30, 0)]
    assert record["valid"] == {"tokens": len(made.corpus.splits["valid"])}, "there is no result"
    assert record["details"]["statistics"]["text"] == "text train" and record["starts"][0]["command"]
    shutil.rmtree(made.jobs[0].folder)
    _, again = Run(ruined).outcomes()
    assert (again.record, again.error, again.done_before) == (None, DIVERGED, True)
    assert measurement.record.read_text() == kept
    with pytest.raises(InputError, match=r"how\.search\.rates was .*10000"):
        list(Run(made).outcomes())
