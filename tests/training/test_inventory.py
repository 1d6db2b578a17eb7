"""Everything that a run needs to go on is in its checkpoint: nothing can be missing without a word, and all matters."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from spanlm.errors import InputError, RunError, SpanlmError
from spanlm.store.checkpoints import to_bytes
from spanlm.store.run_folder import model_digest
from spanlm.training.position import Position
from spanlm.training.run import train
from spanlm.training.trainer import Trainer
from tests.training.small import (
    LAGGED,
    RUNS,
    STAGES,
    STEPS,
    Heard,
    checkpoints,
    differing,
    goes_on_exactly,
    make_config,
    make_corpus,
    outcome,
    signed,
    undisturbed,
)
from tests.training.test_signals import stopped_at

PLAIN = "adam"
GROWING, ADAGRAD = (
    "attentive single, bucketed sentences, cut",
    "variational LSTM, locked, projection, adagrad, streams",
)
CASES = {
    PLAIN: (make_config(epochs=1), 10),
    LAGGED: (RUNS[LAGGED](), 20),
    STAGES: (RUNS[STAGES](), 3 * STEPS + 5),
    GROWING: (RUNS[GROWING](), 10),
    ADAGRAD: (RUNS[ADAGRAD](), 10),
}
"""A configuration, and the step after which its run is stopped: within an epoch, with a full memory, after averages."""

ENTRIES = {
    PLAIN: ("exp_avg", "exp_avg_sq", "step"),
    LAGGED: ("average",),
    STAGES: ("average",),
    ADAGRAD: ("step", "sum"),
}
"""Of the optimiser's state; plain descent has none."""

PARTS = ("weights", "optimizer", "carried")
Change = Callable[[Any], Any]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    torch.set_num_threads(1)
    folders = {}
    for name, (config, step) in CASES.items():
        folders[name] = tmp_path_factory.mktemp("stopped")
        stopped_at(config, folders[name], step)
    yield folders


def names(case: str, part: str) -> list[str]:
    model = Trainer(CASES[case][0], make_corpus(), Path(), Heard()).model
    trained = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    return {
        "weights": [name for name, _ in model.named_parameters()],
        "optimizer": [f"{name}/{entry}" for name in trained for entry in ENTRIES.get(case, ())],
        "carried": [*model.init_state(1).flat(), "generator.cpu"],
        "position": list(Position.__dataclass_fields__),
    }[part]


def values_of(folder: Path, part: str) -> dict[str, Any]:
    if part == "position":
        found: dict[str, Any] = json.loads((checkpoints(folder)[-1] / "position.json").read_text())
        assert found.pop("schema") == 1
        return found
    return safetensors.torch.load((checkpoints(folder)[-1] / f"{part}.safetensors").read_bytes())


def write(folder: Path, part: str, values: dict[str, Any]) -> None:
    file, content = f"{part}.safetensors", b""
    if part == "position":
        file, content = "position.json", json.dumps(values).encode()
    signed(checkpoints(folder)[-1], file, content or to_bytes(values))


MISSING = object()


def others(value: Any, part: str) -> list[Any]:
    """What a value is not: of another kind, or of none."""
    if part == "position":
        optional = [] if value is None else [None]
        return [
            MISSING,
            "1" * (not isinstance(value, str)) or 1,
            [[0]],
            {"a": {}},
            True,
            *optional,
            -(2**70),
            float("nan"),
        ]
    types = [torch.float64, torch.int16]
    shapes = [value[None], value.flatten()[:1], value.flatten()[:0], torch.cat([value[None], value[None]])]
    return [MISSING, *shapes, *(value.to(kind) for kind in types if kind != value.dtype)]


@pytest.mark.slow
@pytest.mark.parametrize("part", [*PARTS, "position"])
@pytest.mark.parametrize("case", CASES)
def test_the_inventory_is_complete_and_what_does_not_fit_is_refused_by_name(
    stopped: dict[str, Path], room: Path, case: str, part: str
) -> None:
    """One at a time, behind a manifest that fits: never other weights, and nothing is copied before all is compared."""
    folder = Path(shutil.copytree(stopped[case], room / "run"))
    whole, expected = values_of(folder, part), names(case, part)
    assert sorted(whole) == sorted(expected)
    trainer = Trainer(CASES[case][0], make_corpus(), folder, Heard())
    before = model_digest(trainer.model)
    unfit = [(name, value) for name in expected for value in others(whole[name], part)]
    for name, value in [*unfit, ("another", whole.get("step", torch.ones(2)))]:
        values = {**whole, name: value}
        write(folder, part, {name: value for name, value in values.items() if value is not MISSING})
        if name == "tokens" and value in (MISSING, None):  # older versions did not count them
            continue
        with pytest.raises(SpanlmError) as error:
            trainer.restore()
        assert name in str(error.value) or (name == "averaging_since" and "average" in str(error.value)), (name, value)
        assert part == "position" or model_digest(trainer.model) == before


@pytest.mark.slow
def test_the_stopped_run_goes_on_exactly(stopped: dict[str, Path], room: Path) -> None:
    """Tests below would say nothing otherwise."""
    for number, (case, (config, _)) in enumerate(CASES.items()):
        goes_on_exactly(config, Path(shutil.copytree(stopped[case], room / str(number))))


MATTER: list[tuple[str, str, str, Change]] = [
    *((PLAIN, "weights", name, lambda x: x + 0.5) for name in names(PLAIN, "weights") if "bias_hh" not in name),
    *((PLAIN, "optimizer", name, lambda x: x * 3 + 0.01) for name in names(PLAIN, "optimizer")[:9]),
    *(
        (PLAIN, "carried", name, lambda x: ~x if x.dtype == torch.bool else x - 0.3)
        for name in names(PLAIN, "carried")[:-1]
    ),
    (PLAIN, "carried", "generator.cpu", lambda x: torch.Generator().manual_seed(99).get_state()),
    *((LAGGED, "optimizer", f"{name}/average", lambda x: x + 0.3) for name in ("embedding.weight", "head.bias")),
]
FIELDS: list[tuple[str, dict[str, Any]]] = [
    (PLAIN, {"rate": 0.5, "epoch": 1, "segment": 6, "step": 8, "epoch_nll": 1.0, "epoch_tokens": 1, "tokens": 1}),
    (PLAIN, {"logged_nll": 1.0, "logged_tokens": 1, "best_loss": 0.1, "metrics_checksum": 1}),
    (LAGGED, {"averaging_since": 12, "late_rate": 1.0, "losses": []}),
    (STAGES, {"stage": 1, "stage_began": 1, "parts": {"gate": 1.0}}),
]
MATTER += [
    (case, "position", name, lambda _, value=value: value)  # type: ignore[misc]
    for case, fields in FIELDS
    for name, value in fields.items()
]


@pytest.mark.slow
@pytest.mark.parametrize(("case", "part", "name", "change"), MATTER)
def test_all_of_it_matters(
    stopped: dict[str, Path], room: Path, case: str, part: str, name: str, change: Change
) -> None:
    """The test above would say nothing of what is saved but not put back."""
    folder, config = Path(shutil.copytree(stopped[case], room / "run")), CASES[case][0]
    values = values_of(folder, part)
    write(folder, part, {**values, name: change(values[name])})
    try:
        train(config, make_corpus(), folder, resume=True)
        found = outcome(folder)
    except RunError as error:
        assert name == "averaging_since" or name in str(error)  # averages are missing; fewer than were logged
        return
    except FileNotFoundError:  # a best loss that was never reached, or no epoch that is left: no model
        assert name in ("best_loss", "epoch")
        return
    assert {"weights", "rows", "position", "last"} & set(differing(found, undisturbed(config)))


@pytest.mark.parametrize("change", ["a digit", "a line less", "no file"])
def test_a_changed_metrics_file_is_lost_history_and_no_more(
    stopped: dict[str, Path], room: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder, config = Path(shutil.copytree(stopped[PLAIN], room / "run")), CASES[PLAIN][0]
    metrics = folder / "metrics.jsonl"
    lines = metrics.read_bytes().splitlines(keepends=True)
    changed = b"".join(lines[:-1]) if change == "a line less" else b"".join(lines).replace(b'"step": ', b'"step": 1', 1)
    metrics.unlink() if change == "no file" else metrics.write_bytes(changed)
    with caplog.at_level("INFO", "spanlm"):
        train(config, make_corpus(), folder, resume=True)
    assert differing(outcome(folder), undisturbed(config)) == ["rows"]
    assert "begins anew" in caplog.text
    assert not {*lines} & {*metrics.read_bytes().splitlines(keepends=True)}
    assert change == "no file" or (folder / "metrics.jsonl.changed").read_bytes() == changed


def test_positions_of_other_versions_are_refused_by_name(stopped: dict[str, Path], room: Path) -> None:
    values = Position(rate=0.1, step=3, epoch_nll=2.0).to_json()
    assert Position.from_json(values).to_json() == values
    lacking = {name: value for name, value in values.items() if name != "tokens"}
    for other in (lacking, {**values, "mood": 1}):
        with pytest.raises(RunError, match=r"position\.json: field \w+: was written by another version"):
            Position.from_json(other)
    folder = Path(shutil.copytree(stopped[PLAIN], room / "run"))
    for path in folder.glob("checkpoints/*/position.json"):
        path.write_text(path.read_text().replace('"schema": 1', '"schema": 2'))
        manifest = json.loads((path.parent / "manifest.json").read_text())
        manifest[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
        (path.parent / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=r"position\.json: schema=2: must be 1"):
        train(CASES[PLAIN][0], make_corpus(), folder, resume=True)
