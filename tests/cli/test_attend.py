from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import spanlm
from tests.cli.conftest import Cli

TEXT = "the cat zebra sat\non the mat ."


def test_npz_holds_the_record(cli: Cli, tiny_run: Path) -> None:
    assert cli("attend", tiny_run, "--text", TEXT, "--out", "a.npz").done == "wrote a.npz\n"
    record = spanlm.load(tiny_run).attend(TEXT)
    with np.load("a.npz") as data:
        assert data["words"].tolist() == record.words
        assert data["targets"].tolist() == record.targets
        np.testing.assert_array_equal(data["weights"], record.weights)
        np.testing.assert_array_equal(data["surprisal_nats"], record.surprisal)
    assert record.words == ["<eos>", "the", "cat", "zebra", "sat", "<eos>", "on", "the", "mat", "."]


def test_csv_holds_every_weight(cli: Cli, tiny_run: Path) -> None:
    cli("attend", tiny_run, "--text", TEXT, "--out", "a.csv").done  # noqa: B018 (checks)
    record = spanlm.load(tiny_run).attend(TEXT)
    with open("a.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found = np.zeros_like(record.weights)
    for row in rows:
        position, lag = int(row["position"]), int(row["lag"])
        found[position, record.window - lag] = float(row["weight"])
        assert row["source_word"] == record.words[position - lag]
    np.testing.assert_allclose(found, record.weights, atol=1e-7)


@pytest.mark.parametrize(("suffix", "start"), [("html", b"<!"), ("svg", b"<"), ("png", b"\x89PNG"), ("HTML", b"<!")])
def test_things_to_look_at(cli: Cli, tiny_run: Path, suffix: str, start: bytes) -> None:
    if suffix == "png":
        pytest.importorskip("matplotlib")
    assert cli("attend", tiny_run, "--text", TEXT, "--out", f"a.{suffix}").done == f"wrote a.{suffix}\n"
    content = Path(f"a.{suffix}").read_bytes()
    assert content.startswith(start)
    if suffix != "png":
        assert b"zebra" in content, "words are shown as written"


def test_a_file_is_as_its_text(cli: Cli, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT + "\n\nthe dog\n", encoding="utf-8")
    cli("attend", tiny_run, "--file", "text.txt", "--out", "a.csv").done  # noqa: B018 (checks)
    cli("attend", tiny_run, "--text", TEXT + "\n\nthe dog", "--out", "b.csv").done  # noqa: B018 (checks)
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()


def test_a_file_in_pieces_is_whole(cli: Cli, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    monkeypatch.setattr("spanlm.evaluation.text_pieces.WORDS", 2)
    cli("attend", tiny_run, "--file", "text.txt", "--out", "a.csv").done  # noqa: B018 (checks)
    cli("attend", tiny_run, "--text", TEXT, "--out", "b.csv").done  # noqa: B018 (checks)
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()


def test_a_huge_file_is_refused_before_it_is_read(cli: Cli, tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("the cat sat\n" * 8000)
    cli("attend", tiny_run, "--file", "long.txt", "--out", "a.html").refused(
        "--file=long.txt", "more than 20,000 words"
    )
    assert not Path("a.html").exists()


def test_a_huge_file_of_blank_lines_is_refused(
    cli: Cli, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spanlm.cli.attend.MOST_WORDS", 100)
    (tmp_path / "long.txt").write_text("the" + "\n" * 1000 + "cat\n")
    cli("attend", tiny_run, "--file", "long.txt", "--out", "a.csv").refused("--file=long.txt")


@pytest.mark.parametrize(
    ("out", "parts"),
    [
        ("a.xyz", ["a.xyz: cannot write .xyz", "Did you mean '.npz'?"]),
        ("a", ["a: cannot write a file without a suffix", ".html, .svg, .png, .csv, .npz"]),
        ("nowhere/a.html", ["nowhere/a.html", "folder nowhere does not exist"]),
        ("folder.html", ["folder.html: is a folder"]),
        ("a.json", ["a.json: cannot write .json"]),
    ],
)
def test_where_nothing_can_be_written(cli: Cli, tiny_run: Path, tmp_path: Path, out: str, parts: list[str]) -> None:
    (tmp_path / "folder.html").mkdir()
    cli("attend", tiny_run, "--text", "the cat", "--out", out).refused(*parts)


@pytest.mark.parametrize("what", [["--text", "the cat", "--out", "a.xyz"], ["--by-lag", "--out", "a.html"]], ids=str)
def test_bad_outs_are_refused_before_any_work(
    cli: Cli, tiny_run: Path, monkeypatch: pytest.MonkeyPatch, what: list[str]
) -> None:
    monkeypatch.setattr("spanlm.models.language_model.LanguageModel.forward", None)  # any work fails
    try:
        cli("attend", tiny_run, *what).refused("cannot write")
    except TypeError:
        pytest.fail("the model was run first")


@pytest.mark.parametrize("text", ["", "\n\n", " "])
def test_no_words(cli: Cli, tiny_run: Path, text: str) -> None:
    cli("attend", tiny_run, "--text", text, "--out", "a.html").refused("no words")


def test_reserved_words_are_refused(cli: Cli, tiny_run: Path) -> None:
    cli("attend", tiny_run, "--text", "the <eos> cat", "--out", "a.html").refused("<eos> is reserved")


@pytest.mark.parametrize("what", [["--text", "the cat", "--out", "a.html"], ["--by-lag"]], ids=["text", "by lag"])
def test_a_model_without_attention(cli: Cli, lstm_run: Path, what: list[str]) -> None:
    cli("attend", lstm_run, *what).refused("attends to nothing", "model.memory.kind=key_value")


def test_by_lag_is_a_table(cli: Cli, tiny_run: Path) -> None:
    from spanlm.analysis.attend import attention_by_lag
    from spanlm.evaluation.perplexity import evaluation_batcher

    model = spanlm.load(tiny_run)
    out = cli("attend", tiny_run, "--by-lag", "--split", "valid").done
    profile = attention_by_lag(model.model, evaluation_batcher(model.corpus(), "valid", "documents", 1))
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
    from spanlm.analysis.by_lag import LagProfile

    profile = LagProfile(tuple([100 / 15] * 15), 10, 0)
    monkeypatch.setattr("spanlm.cli.attend.attention_by_lag", lambda *arguments: profile)
    lines = cli("attend", tiny_run, "--by-lag").done.splitlines()
    # Daniluk et al. (2017), Figure 3b, Key-Value-Predict
    assert lines[-1].split() == ["−1", "6.7", "%", "paper", "17.8", "%"]
    assert lines[1].split() == ["−15", "6.7", "%", "paper", "4.0", "%"]
