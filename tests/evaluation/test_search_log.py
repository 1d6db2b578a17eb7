"""A search for η and λ that is stopped loses one reading; nothing is taken for what it is not."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import spanlm
from spanlm import provenance as provenance_module
from spanlm import trained_dynamic as trained_module
from spanlm.evaluation import dynamic as dynamic_module
from spanlm.evaluation.dynamic import AstrayError, adapted_tally
from spanlm.evaluation.dynamic_config import DynamicConfig
from spanlm.evaluation.dynamic_statistics import gather_statistics
from spanlm.evaluation.part_tally import PartTally
from spanlm.evaluation.perplexity import evaluation_batcher
from spanlm.evaluation.scoring import Tally
from spanlm.evaluation.search_log import SearchLog, segments_digest
from spanlm.trained import TrainedModel

GRID: dict[str, Any] = {"rates": [0.0005, 0.002], "decays": [0.0, 0.02], "epsilon": 0.001}
BEST = DynamicConfig(rate=0.002, decay=0.02, epsilon=0.001)


@pytest.fixture(params=["tiny_run", "span_run"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> TrainedModel:
    return spanlm.load(shutil.copytree(request.getfixturevalue(request.param), tmp_path / "run"))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float, int | None]]:
    """η, λ and how much, of everything that is really read."""
    calls: list[tuple[float, float, int | None]] = []
    tally: Callable[..., Tally] = adapted_tally

    def counted(*arguments: Any, **how: Any) -> Tally:
        calls.append((arguments[3].rate, arguments[3].decay, how["most"]))
        return tally(*arguments, **how)

    monkeypatch.setattr(dynamic_module, "adapted_tally", counted)
    return calls


def logs(model: TrainedModel) -> list[Path]:
    return list(model.folder.glob("dynamic-search-*.jsonl"))


def stop_in(point: int) -> Callable[[str, int, int], None]:
    def report(what: str, done: int, total: int) -> None:
        if what.startswith(f"point {point} ") and done > 10:
            raise KeyboardInterrupt

    return report


def stopped(model: TrainedModel, point: int, **changes: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        model.tune_dynamic(**GRID | changes, report=stop_in(point))


def test_a_search_goes_on_where_it_was_stopped(model: TrainedModel, reads: list[Any]) -> None:
    expected = model.tune_dynamic(**GRID)
    assert len(reads) == 4 and not logs(model)
    reads.clear()
    stopped(model, 3)
    assert len(reads) == 3 and len(logs(model)) == 1
    reads.clear()
    again = spanlm.load(model.folder).tune_dynamic(**GRID)
    assert again == expected
    assert [(rate, decay) for rate, decay, _ in reads] == [(0.002, 0.0), (0.002, 0.02)]
    assert not logs(model), "the search is over"


def test_what_a_search_has_read_is_not_read_again_to_be_reported(model: TrainedModel, reads: list[Any]) -> None:
    log = model.search_log()
    tuning = model.tune_dynamic(**GRID, log=log)
    reads.clear()
    found = model.evaluate(split="valid", dynamic=tuning.best, log=log)
    assert not reads and found.perplexity == tuning.perplexity
    expected = model.evaluate(split="valid", dynamic=tuning.best)
    assert len(reads) == 1
    assert found.tokens_per_second > 0
    assert replace(found, tokens_per_second=0.0, without_dynamic=None) == replace(
        expected, tokens_per_second=0.0, without_dynamic=None
    )
    assert model.evaluate(split="test", dynamic=tuning.best, log=log).split == "test" and len(reads) == 2
    log.remove()
    assert not logs(model)


def test_after_a_stop_what_is_reported_is_the_same(model: TrainedModel) -> None:
    """Sums of both parts, those of <unk> and of first words with it."""
    expected = model.evaluate(split="valid", dynamic=BEST)
    first = model.search_log()
    model.evaluate(split="valid", dynamic=BEST, log=first)
    second = spanlm.load(model.folder).search_log()
    found = model.evaluate(split="valid", dynamic=BEST, log=second)
    assert (first.before, second.before) == (0, 1) and second.seconds_before > 0
    assert replace(found, tokens_per_second=0.0, without_dynamic=None) == replace(
        expected, tokens_per_second=0.0, without_dynamic=None
    )


def other_weights(model: TrainedModel) -> None:
    with torch.no_grad():
        next(iter(model.model.parameters())).add_(1e-3)


def fewer_statistics(model: TrainedModel) -> dict[str, Any]:
    return {"statistics": gather_statistics(model.model, model.corpus(), kind="documents", segments=1)}


CHANGES: dict[str, Callable[[TrainedModel, pytest.MonkeyPatch], dict[str, Any] | None]] = {
    "weights": lambda model, _: other_weights(model),
    "statistics": lambda model, _: fewer_statistics(model),
    "ε": lambda model, _: {"epsilon": 0.002},
    "length": lambda model, _: {"length": 4},
    "precision": lambda model, _: {"precision": "bf16"},
    "text": lambda model, _: {"split": "test"},
    "where the state begins anew": lambda model, _: {"state": "line"},
    "code": lambda model, patch: patch.setattr(trained_module, "code_digest", lambda: "another"),
    "machine": lambda model, patch: patch.setattr(trained_module, "machine", lambda device: {"threads": 99}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_nothing_is_taken_for_what_it_is_not(
    tiny_run: Path, tmp_path: Path, reads: list[Any], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    model = spanlm.load(shutil.copytree(tiny_run, tmp_path / "run"))
    stopped(model, 4)
    (kept,) = logs(model)
    before = kept.read_text(encoding="utf-8")
    reads.clear()
    changes = CHANGES[what](model, monkeypatch) or {}
    model.tune_dynamic(**GRID | changes)
    assert len(reads) == 4
    if kept.exists():
        assert kept.read_text(encoding="utf-8") == before, "it is another search's"


def test_the_loss_is_part_of_it(span_run: Path, tmp_path: Path, reads: list[Any]) -> None:
    model = spanlm.load(shutil.copytree(span_run, tmp_path / "run"))
    stopped(model, 4)
    reads.clear()
    model.tune_dynamic(**GRID, loss="training")
    assert len(reads) == 4


def test_a_wider_grid_goes_on_with_what_it_shares(model: TrainedModel, reads: list[Any]) -> None:
    stopped(model, 4)
    reads.clear()
    model.tune_dynamic(**GRID | {"rates": [0.0005, 0.001, 0.002]})
    assert sorted((rate, decay) for rate, decay, _ in reads) == [(0.001, 0.0), (0.001, 0.02), (0.002, 0.02)]


def test_a_search_that_goes_astray_keeps_what_it_read(model: TrainedModel, reads: list[Any]) -> None:
    ruinous = GRID | {"rates": [1e4, 1e30]}
    with pytest.raises(AstrayError):
        model.tune_dynamic(**ruinous)
    (kept,) = logs(model)
    found = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines() if line]
    assert [(line["rate"], line["decay"]) for line in found] == [(1e4, 0), (1e4, 0.02), (1e30, 0), (1e30, 0.02)]
    reads.clear()
    with pytest.raises(AstrayError):
        model.tune_dynamic(**ruinous)
    assert not reads


def test_half_a_line_and_what_is_no_reading_are_read_anew(model: TrainedModel, reads: list[Any]) -> None:
    expected = model.tune_dynamic(**GRID)
    stopped(model, 4)
    (kept,) = logs(model)
    first, second, third = (line for line in kept.read_text(encoding="utf-8").splitlines() if line)
    broken = [second.replace('"nll": "', '"nll": "x'), "[]", "null", '{"key": 1}', "[" * 100_000, "\x00"]
    kept.write_text("\n".join([first, *broken, third[: len(third) // 2]]), encoding="utf-8")
    reads.clear()
    stopped(model, 4)
    assert len(reads) == 3, "the second, the third, and the fourth, which is stopped"
    reads.clear()
    assert model.tune_dynamic(**GRID) == expected and len(reads) == 1, "what came after the half line is whole"


def test_a_folder_that_cannot_be_written_hinders_nothing(model: TrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = model.tune_dynamic(**GRID)

    really: Callable[..., Any] = Path.open

    def refused(path: Path, mode: str = "r", *more: Any, **how: Any) -> Any:
        if mode == "ab":
            raise PermissionError(13, "Permission denied", str(path))
        return really(path, mode, *more, **how)

    log = model.search_log()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refused)
        assert model.tune_dynamic(**GRID, log=log) == expected
    assert not logs(model)
    log.remove()


def test_a_text_that_differs_in_its_last_word_is_another(
    tiny_run: Path, tiny_corpus: Path, tmp_path: Path, reads: list[Any]
) -> None:
    model = spanlm.load(shutil.copytree(tiny_run, tmp_path / "run"))
    words = (tiny_corpus / "valid.txt").read_text(encoding="utf-8").split(" ")
    path = tmp_path / "text.txt"
    for last in ("the", "cat"):
        path.write_text(" ".join([*words[:40], last]) + "\n", encoding="utf-8")
        with pytest.raises(KeyboardInterrupt):
            model.tune_dynamic(str(path), **GRID, report=stop_in(4))
        assert len(reads) == 4
        reads.clear()
    with pytest.raises(KeyboardInterrupt):
        model.tune_dynamic(str(path), **GRID, report=stop_in(4))
    assert len(reads) == 1


@pytest.mark.parametrize("nll", [0.1 + 0.2, math.inf, 1e308, 5e-324])
@pytest.mark.parametrize("parts", [None, PartTally(3.0, 0.1, math.inf, -1 / 3, 0.5, 1.0, 2.0, 0.7, 1e-9)])
def test_every_bit_of_a_reading_is_kept(tmp_path: Path, nll: float, parts: PartTally | None) -> None:
    total = Tally(7, nll, 2, 1 / 3, 1, 2 / 3, parts)
    path = tmp_path / "log.jsonl"
    SearchLog(path).reading("a", {"rate": 1.0}, lambda: total)
    found = SearchLog(path).reading("a", {}, lambda: pytest.fail("it is known"))
    assert found.total == total
    for line in path.read_text(encoding="utf-8").splitlines():
        assert not line or json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_a_number_that_is_none_is_kept_as_that(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    SearchLog(path).reading("a", {}, lambda: Tally(1, math.nan))
    assert math.isnan(SearchLog(path).reading("a", {}, lambda: pytest.fail("it is known")).total.nll)


def test_the_digest_of_a_text_is_that_of_its_segments(model: TrainedModel) -> None:
    """The first tokens of a text are another text; so are the same words that begin elsewhere."""
    corpus = model.corpus()
    found = {
        segments_digest(evaluation_batcher(corpus, split, kind, 1, None, length), most)  # type: ignore[arg-type]
        for split in ("valid", "test")
        for kind in ("streams", "sentences")
        for length in (4, 5)
        for most in (None, 20)
    }
    assert len(found) >= 12
    again = evaluation_batcher(corpus, "valid", "streams", 1, None, 5)
    assert segments_digest(again, 20) in found and segments_digest(again, None) in found


def test_the_code_is_all_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(provenance_module.spanlm, "__file__", str(package / "__init__.py"))
    digests = []
    for text in ("a = 1\n", "a = 2\n", "a = 1\n"):
        (package / "inner" / "one.py").write_text(text)
        digests.append(provenance_module.code_digest.__wrapped__())
    (package / "inner" / "one.py").rename(package / "inner" / "two.py")
    digests.append(provenance_module.code_digest.__wrapped__())
    assert digests[0] == digests[2] and len(set(digests)) == 3
