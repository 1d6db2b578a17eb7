"""Dynamic evaluation of a run: its statistics are gathered once, kept in its folder, and never those of another."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import spanlm
from spanlm.data.config import DataConfig
from spanlm.errors import InputError
from spanlm.evaluation.cache import CacheConfig
from spanlm.evaluation.dynamic.evaluate import evaluate_dynamic
from spanlm.evaluation.dynamic.statistics import DYNAMIC, gather_statistics
from spanlm.evaluation.dynamic.tuning import dynamic_grid, tune_dynamic
from spanlm.evaluation.dynamic.update import DynamicConfig
from spanlm.runs import statistics as module
from spanlm.runs.trained_model import TrainedModel
from tests.conftest import configure_anew
from tests.training.small import with_batching

CONFIG = DynamicConfig(rate=0.002, decay=0.01, epsilon=0.001)


@pytest.fixture
def model(tiny_run: Path, tmp_path: Path) -> TrainedModel:
    """A copy of the run, in whose folder can be written."""
    return spanlm.load(shutil.copytree(tiny_run, tmp_path / "run"))


@pytest.fixture
def gathers(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """How many segments were asked for, each time that statistics were gathered."""
    calls: list[int | None] = []

    def counted(*arguments: Any, **how: Any) -> Any:
        calls.append(how["segments"])
        return gather_statistics(*arguments, **how)

    monkeypatch.setattr(module, "gather_statistics", counted)
    return calls


def test_evaluate_is_dynamic_evaluation_with_the_runs_statistics(model: TrainedModel) -> None:
    corpus = model.corpus()
    statistics = gather_statistics(model.model, corpus, kind="documents")
    for state, kind in (("auto", "documents"), ("carry", "streams"), ("line", "sentences")):
        found = model.evaluate(state=state, dynamic=CONFIG)  # type: ignore[arg-type]
        expected = evaluate_dynamic(model.model, corpus, "test", statistics, CONFIG, kind=kind)  # type: ignore[arg-type]
        assert found.nll == expected.nll and found.protocol == expected.protocol
        assert found.without_dynamic is not None
        assert found.without_dynamic.nll == model.evaluate(state=state).nll  # type: ignore[arg-type]
        assert found.nll != pytest.approx(found.without_dynamic.nll, rel=1e-4)


def test_tune_dynamic_is_the_grid_on_valid(model: TrainedModel) -> None:
    grid: dict[str, Any] = {"rates": [0.0005, 0.002], "decays": [0.02], "epsilon": 0.001}
    found = model.tune_dynamic(**grid)
    statistics = gather_statistics(model.model, model.corpus(), kind="documents")
    expected = tune_dynamic(model.model, model.corpus(), "valid", statistics, dynamic_grid(**grid), kind="documents")
    assert found == expected and found.text == "tiny valid"


def test_statistics_are_gathered_once(model: TrainedModel, gathers: list[int | None]) -> None:
    path = model.folder / DYNAMIC
    first = model.dynamic_statistics()
    assert first.origin == f"gathered now, saved in {path}" and first.whole
    assert first.text == "tiny train"
    again = spanlm.load(model.folder).dynamic_statistics()
    assert again.origin == f"read from {path}"
    assert all(torch.equal(again.root_mean_squares[name], x) for name, x in first.root_mean_squares.items())
    model.evaluate(dynamic=CONFIG)
    model.tune_dynamic(rates=[0.001], decays=[0.0])
    assert gathers == [None]


def test_given_statistics_are_taken(model: TrainedModel, gathers: list[int | None]) -> None:
    statistics = model.dynamic_statistics(segments=1)
    found = model.evaluate(dynamic=CONFIG, statistics=statistics)
    model.tune_dynamic(rates=[0.001], decays=[0.0], statistics=statistics)
    assert gathers == [1]
    assert found.nll != model.evaluate(dynamic=CONFIG).nll
    assert gathers == [1, None]


def test_what_was_gathered_of_more_is_enough_but_not_of_less(model: TrainedModel, gathers: list[int | None]) -> None:
    assert not model.dynamic_statistics(segments=1).whole
    assert model.dynamic_statistics(segments=1).origin.startswith("read from")
    anew = model.dynamic_statistics()
    assert anew.origin.startswith(
        f"gathered anew ({model.folder / DYNAMIC}: is of fewer segments (the first 1)), saved in"
    )
    assert model.dynamic_statistics(segments=1).whole
    assert gathers == [1, None]


def test_another_length_has_statistics_of_its_own(model: TrainedModel, gathers: list[int | None]) -> None:
    model.dynamic_statistics()
    found = model.evaluate(dynamic=DynamicConfig(rate=0.002, decay=0.01, length=3))
    assert "after every 3 tokens" in found.protocol
    assert "is of segments of 3 steps, not 5" in model.dynamic_statistics().origin
    assert len(gathers) == 3


def test_other_weights_have_statistics_of_their_own(model: TrainedModel, gathers: list[int | None]) -> None:
    before = model.dynamic_statistics()
    with torch.no_grad():
        model.model.embedding.weight[0, 0] += 0.5  # type: ignore[operator, union-attr]
    after = model.dynamic_statistics()
    assert "is of other weights" in after.origin and after.mean != before.mean
    assert len(gathers) == 2


def moved(model: TrainedModel, tiny_corpus: Path, folder: Path) -> Path:
    """A copy of the training text that the run is told to have been trained on."""
    copy = shutil.copytree(tiny_corpus, folder / "tiny")
    config = model.config.data
    object.__setattr__(model.config, "data", DataConfig(corpus=str(copy), documents=config.documents))
    return copy


def test_another_training_text_has_statistics_of_its_own(
    model: TrainedModel, tiny_corpus: Path, tmp_path: Path, gathers: list[int | None]
) -> None:
    text = moved(model, tiny_corpus, tmp_path) / "train.txt"
    model.dynamic_statistics()
    text.write_text("the cat sat\n" + text.read_text())
    assert "is of another training text" in model.dynamic_statistics().origin
    assert len(gathers) == 2


def test_without_the_training_text_the_folders_statistics_are_taken_or_the_way_out_is_named(
    model: TrainedModel, tiny_corpus: Path, tmp_path: Path
) -> None:
    text = moved(model, tiny_corpus, tmp_path) / "train.txt"
    content = text.read_text()
    text.unlink()
    with pytest.raises(
        InputError, match=r"dynamic evaluation without statistics: there is no .*dynamic\.safetensors"
    ) as e:
        model.evaluate(dynamic=CONFIG)
    assert "no train.txt" in str(e.value) and f"Put the text back where it was, or this model's {DYNAMIC}" in str(
        e.value
    )
    text.write_text(content)
    expected = model.evaluate(dynamic=CONFIG).nll
    text.unlink()
    assert "the training text is not there to be compared" in model.dynamic_statistics().origin
    assert model.evaluate(dynamic=CONFIG).nll == expected
    with torch.no_grad():
        model.model.embedding.weight[0, 0] += 0.5  # type: ignore[operator, union-attr]
    with pytest.raises(
        InputError, match=r"without statistics: .*dynamic\.safetensors: is of other weights, and the text"
    ):
        model.evaluate(dynamic=CONFIG)


def test_a_folder_that_cannot_be_written_is_said(
    model: TrainedModel, gathers: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(module, "save_statistics", refuse)
    found = model.dynamic_statistics()
    assert found.origin == (
        f"gathered now; kept in memory alone: {model.folder / DYNAMIC} could not be written: Read-only file system"
    )
    assert not (model.folder / DYNAMIC).exists()
    assert model.evaluate(dynamic=CONFIG, statistics=found).nll == model.evaluate(dynamic=CONFIG).nll
    assert len(gathers) == 2


def test_something_else_of_that_name_is_left_alone(model: TrainedModel) -> None:
    (model.folder / DYNAMIC).mkdir()
    assert "kept in memory alone" in model.dynamic_statistics().origin
    assert not [path for path in model.folder.iterdir() if path.name.endswith(".unfinished")]


def test_damaged_statistics_are_gathered_anew(model: TrainedModel) -> None:
    (model.folder / DYNAMIC).write_bytes(b"nothing")
    assert "gathered anew" in (found := model.dynamic_statistics()).origin and "damaged" in found.origin
    assert model.dynamic_statistics().origin.startswith("read from")


def test_a_cache_beside_it_is_refused(model: TrainedModel) -> None:
    with pytest.raises(InputError, match="dynamic evaluation and a cache do not go together"):
        model.evaluate(dynamic=CONFIG, cache=CacheConfig(window=5, theta=0.1, lambda_=0.1))


def test_progress_is_told(model: TrainedModel) -> None:
    told: list[str] = []
    model.evaluate(dynamic=CONFIG, report=lambda what, done, total: told.append(what))
    assert sorted(set(told)) == ["dynamic evaluation", "gradient statistics"]
    (model.folder / DYNAMIC).unlink()
    told.clear()
    model.tune_dynamic(rates=[0.001], decays=[0.0], report=lambda what, done, total: told.append(what))
    assert {what.split(",")[0] for what in told} == {"gradient statistics", "point 1 of 1"}


def test_lines_that_were_not_opened_in_training_are_not_in_the_statistics(tiny_run: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_run, tmp_path / "lines")
    configure_anew(folder, lambda config: with_batching(config, kind="sentences", predict_first=False))
    run = spanlm.load(folder)
    found = run.dynamic_statistics()
    words = run.corpus().splits["train"]
    lines = int((words.ids == run.vocabulary.eos_id).sum())
    assert found.tokens == len(words) - lines
    result = run.evaluate(dynamic=CONFIG)
    assert result.salton2017 is not None and "not opened" in result.salton2017.protocol
