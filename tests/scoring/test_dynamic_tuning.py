"""The grid of dynamic evaluation: every point is an evaluation of its own; most read only the first tokens."""

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import spanlm
from spanlm.errors import InputError, RunError
from spanlm.runs.model import TrainedModel
from spanlm.scoring.dynamic.evaluate import evaluate_dynamic, read_adapting
from spanlm.scoring.dynamic.statistics import gather_statistics
from spanlm.scoring.dynamic.tuning import TRIALS, DynamicTuning, Search, Trials
from spanlm.scoring.options import Context, DynamicConfig, DynamicGrid
from spanlm.scoring.perplexity import evaluate
from spanlm.scoring.protocol import STANDARD, Protocol
from spanlm.scoring.tally import perplexity, tally
from tests.cases import rest_slow
from tests.scoring import reference
from tests.scoring.reference import CONTEXTS, CORPUS, TARGETS, VOCABULARY
from tests.scoring.test_dynamic import statistics_of

SOME_RATES, SOME_DECAYS = (0.0003, 0.003, 0.01), (0.0, 0.2)


def some_grid(**changes: Any) -> list[DynamicConfig]:
    return DynamicGrid(**{"rates": SOME_RATES, "decays": SOME_DECAYS, "epsilon": 0.002, **changes}).points


def tuned(
    grid: list[DynamicConfig] | None = None, lines: reference.Lines = reference.TEXT, **how: Any
) -> DynamicTuning:
    model = reference.small_model()
    sizes = {name: how.pop(name) for name in ("first_tokens", "finalists") if name in how}
    search = Search(model, reference.corpus(lines), "test", statistics_of(model)[0], **how)
    return search.tune(grid or some_grid(), **sizes)


@pytest.mark.parametrize("context", rest_slow(CONTEXTS))
def test_every_point_is_an_evaluation_and_the_best_is_the_lowest(context: Context) -> None:
    protocol = Protocol(context=context)
    model, found = reference.small_model(), tuned(protocol=protocol)
    assert [(point.rate, point.decay) for point in found.grid] == [(r, d) for r in SOME_RATES for d in SOME_DECAYS]
    for point, config in zip(found.grid, some_grid(), strict=True):
        result = evaluate_dynamic(model, CORPUS, "test", statistics_of(model)[0], config, protocol)
        assert point.first == point.perplexity == pytest.approx(result.perplexity, rel=1e-12)
    assert found.plain == pytest.approx(evaluate(model, CORPUS, protocol=protocol).perplexity, rel=1e-12)
    assert (found.text, found.tokens, found.first_tokens) == ("small test", TARGETS, TARGETS)
    lowest = min(found.grid, key=lambda point: point.first)
    assert len({point.first for point in found.grid}) == len(found.grid)
    assert found.perplexity == lowest.perplexity
    expected = DynamicConfig(rate=lowest.rate, decay=lowest.decay, epsilon=0.002, tuned_on="small test")
    assert found.best == expected


def test_without_finalists_the_first_tokens_decide() -> None:
    """No note says what helps: the trained weights were measured on all of the text."""
    read = set[str]()
    found = tuned(first_tokens=10, finalists=0, report=lambda what, *_: read.add(what.split()[0]))
    assert read == {"point"}
    assert [point.first for point in found.grid] == [point.first for point in tuned(first_tokens=10, finalists=6).grid]
    batches, statistics = STANDARD.batcher(CORPUS, "test", length=5), statistics_of(model := reference.small_model())[0]
    part = tally(read_adapting(model, batches.segments(), statistics, some_grid()[-1], most=10), VOCABULARY)
    assert found.grid[-1].first == pytest.approx(perplexity(part.nll / part.tokens), rel=1e-12)
    lowest = min(found.grid, key=lambda point: point.first)
    assert (found.best.rate, found.best.decay, found.perplexity) == (lowest.rate, lowest.decay, lowest.first)
    assert {point.perplexity for point in found.grid} == {None}
    assert tuned(some_grid(rates=(0.1,), decays=(0.0,)), first_tokens=10, finalists=0).notes == []


def test_points_that_diverge_are_never_the_best() -> None:
    found = tuned(some_grid(rates=(1e308, 0.003)))
    assert [math.isinf(point.first) for point in found.grid] == [True, True, False, False]
    assert found.best.rate == 0.003
    with pytest.raises(RunError, match=r"dynamic\.rate: at every point of the grid the weights diverged"):
        tuned(some_grid(rates=(1e308,)))


def test_more_points_read_all_of_it_until_one_helps() -> None:
    """High rates do best where the text repeats itself, and worst after that."""
    text = [*[["dog"] * 8] * 3, *reference.TEXT * 2]
    grid = some_grid(rates=(0.1, 0.07, 0.05, 0.02), decays=(0.0,))
    read: list[str] = []
    found = tuned(grid, text, first_tokens=25, finalists=1, report=lambda what, *_: read.append(what))
    assert [point.perplexity is not None for point in found.grid] == [True, True, True, False]
    assert found.best.rate == 0.05 and found.perplexity < found.plain and "no point" not in " ".join(found.notes)
    finalists = dict.fromkeys(what.partition(",")[0] for what in read if what.startswith("finalist"))
    assert list(finalists) == [f"finalist {n} of {n}" for n in (1, 2, 3)]
    none = tuned(grid[:2], text, first_tokens=25, finalists=1)
    assert all(point.perplexity is not None and point.perplexity > none.plain for point in none.grid)
    assert none.notes[0] == "no point of the grid helps."


@pytest.mark.parametrize(
    ("name", "value", "limit"), [("first_tokens", 0, "at least 1"), ("finalists", -1, "0 or more")]
)
def test_numbers_out_of_range_are_refused(name: str, value: int, limit: str) -> None:
    with pytest.raises(InputError, match=rf"dynamic\.{name}={value}: must be {limit}"):
        tuned(**{name: value})


# trials in the folder of a run

SMALL_GRID: dict[str, Any] = {"rates": [0.0005, 0.002], "decays": [0.02], "epsilon": 0.001}

Searched = tuple[Path, DynamicTuning]


@pytest.fixture(scope="module")
def search(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Searched:
    """A run whose folder has the trials of a whole search; tests copy it."""
    folder = shutil.copytree(tiny_run, tmp_path_factory.mktemp("searched") / "run")
    return folder, spanlm.load(folder).tune_dynamic(**SMALL_GRID)


@pytest.fixture
def searched(search: Searched, tmp_path: Path) -> TrainedModel:
    return spanlm.load(shutil.copytree(search[0], tmp_path / "searched"))


def as_new(found: DynamicTuning) -> DynamicTuning:
    return replace(found, read_before=0, seconds_before=0.0)


def test_a_search_goes_on_where_it_was_stopped(trained: TrainedModel, search: Searched) -> None:
    path, (folder, expected) = trained.folder / TRIALS, search
    assert (expected.read_before, len((folder / TRIALS).read_text().splitlines())) == (0, 2)

    def stop(what: str, done: int, total: int) -> None:
        if what.startswith("point 2 ") and done > 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained.tune_dynamic(**SMALL_GRID, report=stop)
    assert len(path.read_text().splitlines()) == 1
    again = spanlm.load(trained.folder).tune_dynamic(**SMALL_GRID)
    assert again.read_before == 1 and again.seconds_before > 0 and as_new(again) == expected
    assert again.to_json().keys() == {field.name for field in fields(again)} - {"seconds_before"}
    more = trained.tune_dynamic(**SMALL_GRID | {"rates": [0.0005, 0.002, 0.004]})
    assert more.read_before == 2 and len(path.read_text().splitlines()) == 3


def other_weights(trained: TrainedModel) -> dict[str, Any]:
    next(trained.model.parameters()).data.add_(1e-3)
    return {}


CHANGES: dict[str, Callable[[TrainedModel], dict[str, Any]]] = {
    "weights": other_weights,
    "statistics": lambda trained: {"statistics": gather_statistics(trained.model, trained.corpus(), segments=1)},
    "ε": lambda _: {"epsilon": 0.002},
    "precision": lambda _: {"precision": "bf16"},
    "text": lambda _: {"split": "test"},
    "context": lambda _: {"state": "line"},
    "first tokens": lambda _: {"first_tokens": 10, "finalists": 0},
}


@pytest.mark.parametrize("what", rest_slow(CHANGES, always=2))
def test_a_trial_of_something_else_is_not_taken(searched: TrainedModel, what: str) -> None:
    changes = {"rates": [0.002], "decays": [0.02], **CHANGES[what](searched)}
    assert searched.tune_dynamic(**SMALL_GRID | changes).read_before == 0


def other_lines(content: bytes) -> bytes:
    first, *rest = content.splitlines(keepends=True)
    broken = json.loads(rest[0]) | {"sums": {"tokens": "many"}}
    return b"\xff\n[1]\n{}\n" + json.dumps(broken).encode() + b"\n" + first


def another_digit(content: bytes) -> bytes:
    at = content.rindex(b'"nll": ') + len(b'"nll": ')
    return content[:at] + (b"1" if content[at : at + 1] != b"1" else b"2") + content[at + 1 :]


@pytest.mark.parametrize(
    ("damage", "left"),
    rest_slow(
        [
            (another_digit, 1),
            (other_lines, 1),
            (lambda _: b"[" * 100_000, 0),
        ]
    ),
    ids=["another digit", "other lines", "nested"],
)
def test_a_damaged_line_is_ignored(
    searched: TrainedModel, search: Searched, damage: Callable[[bytes], bytes], left: int
) -> None:
    path = searched.folder / TRIALS
    path.write_bytes(damage(path.read_bytes()))
    found = searched.tune_dynamic(**SMALL_GRID)
    assert found.read_before == left and as_new(found) == search[1]
    assert searched.tune_dynamic(**SMALL_GRID).read_before == 2, "what was read is there again, on lines of its own"


def test_a_file_that_cannot_be_written_stops_no_search(
    trained: TrainedModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (trained.folder / TRIALS).symlink_to(tmp_path / "other")
    with caplog.at_level("WARNING", "spanlm"):
        found = trained.tune_dynamic(**SMALL_GRID)
    assert len(found.grid) == 2 and found.read_before == 0 and not (tmp_path / "other").exists()
    assert len(caplog.records) == 1 and TRIALS in caplog.text


def test_a_trial_that_diverged_is_one(tmp_path: Path) -> None:
    """Sums that are not finite are null in the file. Trials of other code are not taken."""
    model, grid = reference.small_model(), some_grid(rates=(1e308, 0.003))
    searches = [
        Search(model, CORPUS, "test", statistics_of(model)[0], trials=Trials(tmp_path / TRIALS, code)).tune(grid)
        for code in ("one", "one", "other")
    ]
    assert [found.read_before for found in searches] == [0, 4, 0]
    assert as_new(searches[1]) == searches[0] and math.isinf(searches[1].grid[0].first)
