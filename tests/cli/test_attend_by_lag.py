"""`spanlm attend --by-lag`: one run, and several side by side."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

import spanlm
from spanlm.analysis.by_lag import LagProfile
from spanlm.cli.attend_options import CHECKS
from spanlm.config import RunConfig
from spanlm.models.config import ModelConfig
from spanlm.models.memories import AnyMemoryConfig, KeyValueConfig, NoMemoryConfig, RecurrentMemoryConfig
from tests.cli.conftest import Cli

TEXT = "the cat zebra sat\non the mat ."


def test_by_lag_is_a_table(cli: Cli, tiny_run: Path) -> None:
    from spanlm.analysis.attend import attention_by_lag
    from spanlm.evaluation.protocol import Protocol

    model = spanlm.load(tiny_run)
    out = cli("attend", tiny_run, "--by-lag", "--split", "valid").done
    profile = attention_by_lag(model.model, Protocol(context="document", batch_size=1).batcher(model.corpus(), "valid"))
    lines = out.splitlines()
    assert f"tiny valid, {profile.positions:,} positions" in lines[0]
    assert "windows of 15 only" in lines[-1]  # the window is 3: nothing was published for it, and it is said
    rows = [line.split() for line in lines[1:-1]]
    assert rows == [[f"−{lag}", f"{percent:.1f}", "%"] for lag, percent in zip((3, 2, 1), profile.percent, strict=True)]


@pytest.mark.parametrize("suffix", ["svg", "csv", "json"])
def test_by_lag_as_a_file(cli: Cli, tiny_run: Path, suffix: str) -> None:
    out = cli("attend", tiny_run, "--by-lag", "--out", f"lags.{suffix}").done
    assert out.endswith(f"wrote lags.{suffix}\n")
    content = Path(f"lags.{suffix}").read_text()
    if suffix == "json":
        assert sum(json.loads(content)["measured_percent"]) == pytest.approx(100, abs=0.01)


def test_by_lag_of_window_15_stands_beside_the_paper(cli: Cli, tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = LagProfile(tuple([100 / 15] * 15), 10, 0)
    monkeypatch.setattr("spanlm.cli.attend.attention_by_lag", lambda *arguments: profile)
    lines = cli("attend", tiny_run, "--by-lag").done.splitlines()
    # Daniluk et al. (2017), Figure 3b, Key-Value-Predict
    assert lines[-1].split() == ["−1", "6.7", "%", "paper", "17.8", "%"]
    assert lines[1].split() == ["−15", "6.7", "%", "paper", "4.0", "%"]


def test_by_lag_says_what_lies_on_no_word(cli: Cli, tiny_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a pointer's weights: its gate is what they miss."""
    profile = LagProfile((10.0, 27.5), 10, 0, 0)
    monkeypatch.setattr("spanlm.cli.attend.attention_by_lag", lambda *arguments: profile)
    lines = cli("attend", tiny_run, "--by-lag", "--out", "lags.json").done.splitlines()
    assert [line.split() for line in lines[2:4]] == [
        ["0", "(current", "word)", "27.5", "%"],
        ["no", "word", "62.5", "%"],
    ]
    assert json.loads(Path("lags.json").read_text())["on_no_step_percent"] == pytest.approx(62.5)


@pytest.fixture(scope="module")
def current_run(tiny_config: RunConfig, tmp_path_factory: pytest.TempPathFactory, session_cache: Path) -> Path:
    """A run whose model attends to the current word, too."""
    folder = tmp_path_factory.mktemp("runs") / "current"
    memory = RecurrentMemoryConfig(window=4)
    training = replace(tiny_config.training, epochs=1)
    config = replace(tiny_config, model=replace(tiny_config.model, memory=memory), training=training)
    spanlm.train(config, spanlm.load_corpus(config.data), folder)
    return folder


def test_by_lag_of_a_model_of_the_current_word_says_so(cli: Cli, current_run: Path) -> None:
    lines = cli("attend", current_run, "--by-lag", "--split", "valid", "--out", "lags.json").done.splitlines()
    labels = [line[2:20].strip() for line in lines[1:5]]
    assert labels == ["−3", "−2", "−1", "0 (current word)"]
    content = json.loads(Path("lags.json").read_text())
    assert content["lags"] == [3, 2, 1, 0]
    assert [float(line[20:].split()[0]) for line in lines[1:5]] == [
        pytest.approx(percent, abs=0.051) for percent in content["measured_percent"]
    ]


def test_by_lag_of_the_papers_recurrent_memory_marks_what_could_not_be_read(
    cli: Cli, current_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = LagProfile(tuple([100 / 15] * 15), 10, 0, 0)
    monkeypatch.setattr("spanlm.cli.attend.attention_by_lag", lambda *arguments: profile)
    lines = cli("attend", current_run, "--by-lag").done.splitlines()
    assert lines[15].split() == ["0", "(current", "word)", "6.7", "%", "paper", "≈39.9", "%"]
    assert lines[14].split() == ["−1", "6.7", "%", "paper", "15.2", "%"]
    assert "illegible" in lines[16] and "position −1 of RM(+tM-g) is the current word" in lines[17]


def test_text_of_a_model_of_the_current_word(cli: Cli, current_run: Path) -> None:
    for name in ("a.csv", "a.html", "a.svg"):
        cli("attend", current_run, "--text", TEXT, "--out", name).done  # noqa: B018 (checks)
    with open("a.csv", encoding="utf-8", newline="") as file:
        first = next(csv.DictReader(file))
    assert (first["position"], first["lag"], first["source_word"], float(first["weight"])) == ("0", "0", "<eos>", 1.0)
    assert '"nearest":0' in Path("a.html").read_text(encoding="utf-8")
    assert "0: the current word" in Path("a.svg").read_text(encoding="utf-8")


def test_several_runs_stand_side_by_side(cli: Cli, tiny_run: Path, current_run: Path) -> None:
    out = cli("attend", tiny_run, current_run, "--by-lag", "--split", "valid", "--out", "lags.csv").done
    header, *rows = (line.split("  ") for line in out.splitlines()[1:9])
    header, *rows = ([cell.strip() for cell in row if cell.strip()] for row in [header, *rows])
    assert header == ["lag", "tiny", "paper", "current", "paper"]
    assert [row[0] for row in rows[:5]] == ["−3", "−2", "−1", "0 (current word)", "last 5"]
    for run, split in ((tiny_run, slice(0, 3)), (current_run, slice(3, 7))):
        cli("attend", run, "--by-lag", "--split", "valid", "--out", "one.csv").done  # noqa: B018 (checks)
        one, several = (list(csv.DictReader(Path(name).read_text().splitlines())) for name in ("one.csv", "lags.csv"))
        found = several[split]
        assert {row["run"] for row in found} == {run.name} and {row["text"] for row in found} == {"tiny valid"}
        assert [(row["lag"], row["measured_percent"]) for row in found] == [
            (row["lag"], row["measured_percent"]) for row in one
        ]
    # Daniluk et al. (2017), Figure 3b, the last three of Key-Value-Predict: 9.5, 12.5 and 17.8 of 39.8
    assert [row[2] for row in rows[:3]] == ["23.9", "31.4", "44.7"]
    assert "scaled to sum to 100" in out and "cannot be compared" in out and "≈ (lag 0)" in out


@pytest.mark.parametrize("suffix", ["svg", "md", "json"])
def test_several_runs_as_a_file(cli: Cli, tiny_run: Path, current_run: Path, suffix: str) -> None:
    out = cli("attend", tiny_run, current_run, "--by-lag", "--out", f"lags.{suffix}").done
    assert out.endswith(f"wrote lags.{suffix}\n")
    content = Path(f"lags.{suffix}").read_text(encoding="utf-8")
    assert "tiny" in content and "current" in content


def test_one_run_as_markdown(cli: Cli, tiny_run: Path) -> None:
    cli("attend", tiny_run, "--by-lag", "--out", "lags.md").done  # noqa: B018 (checks)
    lines = Path("lags.md").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("| model | −3 | −2 | −1 |") and lines[2].startswith("| tiny |")
    assert lines[3].startswith("| paper | 23.9 | 31.4 | 44.7 |")


def test_of_several_runs_the_one_without_attention_is_named_before_any_work(
    cli: Cli, tiny_run: Path, lstm_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spanlm.cli.attend.attention_by_lag", None)
    cli("attend", tiny_run, lstm_run, "--by-lag").refused(str(lstm_run), "attends to nothing")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["--text", "a", "--out", "a.svg"], ["2 runs: --text takes one", *CHECKS]),
        (["--document", "1", "--out", "a.svg"], ["2 runs: --document takes one"]),
        (["--by-lag", "--out", "a.npz"], ["cannot write .npz"]),
    ],
)
def test_what_several_runs_cannot_do(
    cli: Cli, tiny_run: Path, lstm_run: Path, arguments: list[str], parts: list[str]
) -> None:
    cli("attend", tiny_run, lstm_run, *arguments).refused(*parts)


def test_the_same_run_twice(cli: Cli, tiny_run: Path) -> None:
    cli("attend", tiny_run, tiny_run / ".." / tiny_run.name, "--by-lag").refused("is named twice")


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["runs/kv"], ["kv"]),
        (["runs/kv", "runs/kvp"], ["kv", "kvp"]),
        (["runs/kv/seed-1", "runs/kvp/seed-1"], ["kv", "kvp"]),
        (["runs/kv/seed-1", "runs/kv/seed-2"], ["seed-1", "seed-2"]),
        (["runs/kv/seed-1", "runs/kv/seed-2", "runs/kvp/seed-1"], ["kv/seed-1", "kv/seed-2", "kvp/seed-1"]),
        (["runs/demo", "runs/demo/lstm"], ["demo", "lstm"]),
        (["a/x/b/s", "a/y/c/s"], ["b", "c"]),
        (["a/s", "s"], ["a", "FOLDER"]),
        (["runs/kv"], ["kv"]),
        (["runs/kv/seed-12"], ["kv/seed-12"]),
        (["runs/kv/seed-x"], ["seed-x"]),
    ],
    ids=str,
)
def test_runs_are_named_by_what_tells_them_apart(folders: list[str], names: list[str]) -> None:
    from spanlm.cli.arguments import run_names

    assert run_names([Path(folder) for folder in folders]) == [
        name.replace("FOLDER", Path.cwd().name) for name in names
    ]


@pytest.mark.parametrize(
    ("memory", "name"),
    [
        (KeyValueConfig(roles=1), "attention"),
        (KeyValueConfig(roles=2), "key-value"),
        (KeyValueConfig(roles=3), "key-value-predict"),
        (RecurrentMemoryConfig(), "RM(+tM-g)"),
        (RecurrentMemoryConfig(temporal=False), None),
        (RecurrentMemoryConfig(composition="linear"), None),
        (NoMemoryConfig(), None),
    ],
)
def test_a_model_stands_beside_the_row_of_its_own_kind(memory: AnyMemoryConfig, name: str | None) -> None:
    from spanlm.analysis.compare import PUBLISHED
    from spanlm.cli.attend import published_name

    assert published_name(RunConfig(model=ModelConfig(memory=memory))) == name
    assert name is None or name in PUBLISHED
