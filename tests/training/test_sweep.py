"""What a sweep.yaml asks for, and what its settings are called."""

from pathlib import Path

import pytest

from spanlm.config import RunConfig, with_options
from spanlm.errors import InputError
from spanlm.training.position import Position
from spanlm.training.sweep import Result, Setting, Sweep, differences, folder_name, labels, ranked, table_csv


def sweep(path: Path, text: str) -> Sweep:
    (path / "some.yaml").write_text(text)
    return Sweep.load(path / "some.yaml")


def test_every_run_of_the_list_is_combined_with_every_point_of_the_grid(tmp_path: Path) -> None:
    asked = sweep(tmp_path, "corpus: x\nruns: [{a.b: 1}, {}]\ngrid: {c: [0.5, null], d: {e: true}}\n")
    assert asked.out == "runs/some" and asked.seeds is None
    assert list(asked.overrides()) == [
        {"data.corpus": "x", **first, "c": c, "d.e": "true"} for first in ({"a.b": "1"}, {}) for c in ("0.5", "null")
    ]
    assert list(sweep(tmp_path, "preset: demo").overrides()) == [{}]
    (kept,) = sweep(tmp_path, "runs: [{training.keep_at: [100K, 1M]}]").overrides()
    assert with_options(RunConfig(), kept).training.keep_at == ("100K", "1M")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("presett: demo", "some.yaml: unknown key presett. Did you mean 'preset'?"),
        ("grid: [1]", r"grid=\[1\]: must be a group of fields"),
        ("runs: {a: 1}", "must be a list of groups of fields"),
        ("runs: [1]", "must be a list of groups of fields"),
        ("seeds: 0", "seeds=0: must be at least 1"),
        ("seeds: true", "seeds=true: must be a whole number"),
        ("out: 3", "out=3: must be a name or a path"),
        ("grid: {a: []}", r"grid: a=\[\]: must be a list of one value or more"),
        ("runs: [{data.corpus: 2024-01-01}]", "data.corpus=2024-01-01: is a date to YAML. Put it in quotes"),
        ("grid: {a: [1]}\nruns: [{a: 2}]", "runs: a=2: is in grid, too"),
        ("grid: {training.seed: [1, 2]}\nseeds: 2", "training.seed=1: leave it out beside seeds: 2"),
        (f"grid: {{a: {list(range(2000))}}}\nseeds: 6", "runs of the sweep=12000: must be at most 10,000"),
        (f"grid: {{a: {list(range(200))}, b: {list(range(200))}}}", "runs of the sweep=40000: must be at most 10,000"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(sweep(tmp_path, text).overrides())


def test_settings_are_named_by_what_differs() -> None:
    trees = [{"model": {"memory": {"kind": "none"}}}, {"model": {"memory": {"kind": "key_value", "window": 7}}}]
    given = [
        {"training.epochs": 3, "model.memory.kind": kind, "model.memory.window": 7} for kind in ("none", "key_value")
    ]
    found = differences([RunConfig.from_tree(tree) for tree in trees], given)
    short = labels(list(found[1]))
    assert [folder_name(one, short, "all") for one in found] == ["memory=none", "memory=key_value,window=7"]
    assert folder_name({}, short, "all") == "all"
    assert labels(["a.b.lr", "a.c.lr", "x.kind"]) == {"a.b.lr": "b.lr", "a.c.lr": "c.lr", "x.kind": "x"}


def test_a_home_folder_is_meant_by_its_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    asked = sweep(tmp_path, "out: ~/runs\nconfig: ~/c.yaml\n")
    assert (asked.out, asked.config) == (f"{tmp_path}/runs", f"{tmp_path}/c.yaml")


def test_names_of_folders_are_short_and_plain() -> None:
    short = labels(["data.corpus", "x"])
    assert folder_name({"data.corpus": "/my texts/a.txt", "x": "1e-05"}, short, "") == "corpus=my-texts-a.txt,x=1e-05"
    assert [folder_name({"x": value}, short, "") for value in ("-1.0", "1.0")] == ["x=-1.0", "x=1.0"]
    one, other = (folder_name({"x": "ж" * 200 + end}, short, "") for end in "ab")
    assert one != other and max(len(one.encode()), len(other.encode())) < 220, "a file system takes 255 bytes"


def test_the_best_mean_is_first_and_what_lacks_runs_comes_after() -> None:
    def result(name: str, *losses: float | None) -> Result:
        folders = [Path(name, f"seed-{number}") for number in range(len(losses))]
        ended = {
            f: Position(0.1, epoch=4, best_loss=x, best_epoch=3) for f, x in zip(folders, losses, strict=True) if x
        }
        return Result(Setting(name, {"lr": name}, {}, dict.fromkeys(folders, RunConfig())), ended)

    results = ranked([result("none", None), result("2", 1.0, 3.0), result("half", 0.5, None), result("1", 1.8, 1.9)])
    assert [one.setting.name for one in results] == ["1", "2", "half", "none"]
    lines = table_csv(results, ["lr"]).decode().splitlines()
    assert lines[0] == "run,lr,seed,valid_perplexity,best_epoch,epochs,folder,parameters,seconds" and len(lines) == 8
    assert (
        lines[1].startswith("1,1,1,6.0496")
        and lines[1].endswith(",3,4,1/seed-0,0,0.0")
        and lines[6].endswith(",,,half/seed-1,0,")
    )
