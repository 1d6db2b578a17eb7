"""`spanlm compare` and `spanlm context`: what they print is what the library finds, at 80 columns."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import spanlm
from spanlm.cli import render
from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from tests.cli.conftest import Cli, flat, read_rows
from tests.conftest import TINY_WORDS

CACHE = ("--cache", "20", "--cache-theta", "0.5", "--cache-lambda", "0.3")


@pytest.fixture
def arpa(tmp_path: Path) -> Path:
    words = "".join(f"-1.1\t{word}\n" for word in [*dict.fromkeys(TINY_WORDS), "</s>", "<unk>"])
    count = words.count("\n") + 1
    path = tmp_path / "one.arpa"
    path.write_text(f"\\data\\\nngram 1={count}\n\n\\1-grams:\n-99\t<s>\n{words}\n\\end\\\n", encoding="utf-8")
    return path


def test_two_runs(cli: Cli, tiny_run: Path, lstm_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = json.loads(cli("compare", lstm_run, tiny_run, "--json").done)
    (one,) = found["comparisons"]
    runs = [spanlm.load(run).evaluate() for run in (lstm_run, tiny_run)]
    bits = [run.bits_per_token for run in runs]
    assert (found["baseline"]["bits"], one["bits"]) == pytest.approx(bits, rel=1e-6)
    assert one["whole"]["difference"] == pytest.approx(bits[1] - bits[0], abs=1e-6)
    assert found["tokens"] == found["compared"] == runs[0].tokens
    assert one["perplexity"] == pytest.approx(runs[1].perplexity) and 0 < one["p"] <= 1
    assert len(one["where"]) == 5 and "where tiny looked most" in one["where"]
    monkeypatch.setattr(render, "_columns", lambda: 80)
    shown = cli("compare", lstm_run, tiny_run).done
    assert max(map(len, shown.splitlines())) <= 80
    difference = f"{one['whole']['difference']:+.3f}".replace("-", "−")
    assert f"{runs[1].bits_per_token:.3f}" in shown and difference in shown


def test_tables_in_a_file_have_the_rows_of_the_terminal(cli: Cli, tiny_run: Path, lstm_run: Path) -> None:
    shown = cli("compare", lstm_run, tiny_run, "--out", "t.md").done.splitlines()
    cli("compare", lstm_run, tiny_run, "--out", "t.tex").done  # noqa: B018 (checks)
    rows = [line.split() for line in Path("t.md").read_text().replace("|", " ").replace("\\", "").splitlines()]
    tables = [line.split() for line in shown[shown.index("") + 1 :] if "  " in line]
    assert tables and all(cells in rows for cells in tables)
    latex = Path("t.tex").read_text()
    assert latex.count(r"\toprule") == latex.count(r"\bottomrule") == 2 and r"\textless{}eos\textgreater{}" in latex


def test_a_run_against_itself_changed(cli: Cli, tiny_run: Path) -> None:
    cli("compare", tiny_run, tiny_run).refused("is named twice")
    changed = json.loads(cli("compare", tiny_run, "--attention", "none", *CACHE, "--json").done)["comparisons"]
    model = spanlm.load(tiny_run)
    cache = spanlm.CacheConfig(window=20, theta=0.5, lambda_=0.3)
    expected = [model.with_attention("none").evaluate(), model.evaluate(cache=cache)]
    assert [one["name"] for one in changed] == ["tiny, attention none", "tiny, cache"]
    assert [one["perplexity"] for one in changed] == pytest.approx([each.perplexity for each in expected], rel=1e-5)


def test_several_each_with_a_cache(cli: Cli, tiny_run: Path, lstm_run: Path) -> None:
    command = ("compare", lstm_run, tiny_run, "--cache", "20", "--tune-cache", "--combine", "linear")
    found = json.loads(cli(*command, "--json").done)
    sides = [found["baseline"], *found["comparisons"]]
    assert [one["name"] for one in sides] == ["lstm, cache", "tiny, cache", "all as one (linear)"]
    valid = spanlm.load(lstm_run).corpus(None, "valid")
    models = [spanlm.load(lstm_run), spanlm.load(tiny_run), spanlm.load_ensemble([lstm_run, tiny_run])]
    for model, one in zip(models, sides, strict=True):
        tuning = model.tune_cache((20,), valid, "valid")
        assert (one["cache"], one["tuning"]) == (tuning.best.to_json(), json.loads(json.dumps(tuning.to_json())))
        assert one["perplexity"] == pytest.approx(model.evaluate(cache=tuning.best).perplexity, rel=1e-5)
    shown = cli(*command).done
    assert shown.count("neural cache of the last 20") == 3


@pytest.mark.slow
def test_families_ensembles_and_files(cli: Cli, tiny_run: Path, lstm_run: Path, tmp_path: Path) -> None:
    config = spanlm.load(lstm_run).config
    for seed in (1, 2):
        member = replace(config, training=replace(config.training, seed=seed, epochs=1))
        spanlm.train(member, spanlm.load_corpus(config.data), Path(f"family/seed-{seed}"))
    shutil.copytree(tiny_run, "family/another")  # is none of its seeds
    figure, page = tmp_path / "where.svg", tmp_path / "words.html"
    shown = cli("compare", tiny_run, "family", "--out", figure).done
    assert "and from the seeds" in shown and f"wrote {figure}" in shown
    assert "place in sentence" in figure.read_text(encoding="utf-8")
    (one,) = json.loads(cli("compare", tiny_run, "family", "--json").done)["comparisons"]
    assert [Path(run).name for run in one["runs"]] == ["seed-1", "seed-2"]
    bits = [spanlm.load(Path("family") / run).evaluate().bits_per_token for run in ("seed-1", "seed-2")]
    assert bits[0] != bits[1] and one["bits"] == pytest.approx(sum(bits) / 2, rel=1e-6)
    assert one["bits_by_run"] == pytest.approx(bits, rel=1e-6)
    cached = json.loads(cli("compare", tiny_run, "family", "--cache", "20", "--tune-cache", "--json").done)
    first = spanlm.load("family/seed-1")
    tuned = first.tune_cache((20,), first.corpus(None, "valid"), "valid").best
    assert cached["comparisons"][0]["cache"] == tuned.to_json()
    cli("compare", tiny_run, "family", "--out", "where.csv").done  # noqa: B018 (checks)
    whole, *classes = read_rows(Path("where.csv").read_text())
    assert whole["sorted_by"] == "all" and float(whole["low"]) < float(whole["difference"]) < float(whole["high"])
    expected = {(title, each["name"]): each["part"] for title, found in one["where"].items() for each in found}
    written = {(row["sorted_by"], row["class"]): float(row["part"]) for row in classes}
    assert written == pytest.approx(expected, abs=1e-6)
    cli("compare", lstm_run, tiny_run, "--combine", "linear", "--out", page).done  # noqa: B018 (checks)
    assert "all as one (linear): gains most" in page.read_text(encoding="utf-8")


def test_other_words(cli: Cli, tiny_run: Path, tiny_corpus: Path, arpa: Path, tiny_config: RunConfig) -> None:
    """An n-gram model takes the words of a run; two runs with different words have only common ones."""
    found = json.loads(cli("compare", arpa, tiny_run, "--json").done)
    assert found["compared"] == found["tokens"] == spanlm.load(tiny_run).evaluate().tokens
    assert found["baseline"]["name"] == "one"
    shutil.copytree(tiny_corpus, "copy")
    data = DataConfig(corpus="copy", documents="blank-line", max_size=9)
    few = replace(tiny_config, data=data, training=replace(tiny_config.training, epochs=1))
    spanlm.train(few, spanlm.load_corpus(few.data), Path("few"))
    cli("compare", tiny_run, "few").refused("have different vocabularies", "Add --words common")
    found = json.loads(cli("compare", tiny_run, "few", "--words", "common", "--corpus", tiny_corpus, "--json").done)
    alone = json.loads(cli("compare", tiny_run, "few", "--words", "common", "--json").done)
    assert alone["comparisons"] == found["comparisons"], "the text is the baseline's"
    ids = spanlm.load("few").corpus(str(tiny_corpus), "test").splits["test"].ids
    assert found["compared"] == (ids != spanlm.load("few").vocabulary.unk_id).sum() < found["tokens"]
    shutil.rmtree("copy")  # a cache, too, is tuned on the baseline's text
    command = ("compare", tiny_run, "few", "--words", "common", "--cache", "20", "--tune-cache", "--json")
    tuned = json.loads(cli(*command).done)
    assert all("tuning" in side for side in (tuned["baseline"], *tuned["comparisons"]))


def test_a_text_of_ones_own_with_tags(cli: Cli, tiny_run: Path, lstm_run: Path) -> None:
    lines = [" ".join(TINY_WORDS[n % 7 : n % 7 + 5]) for n in range(30)]
    Path("t.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    tagged = [" ".join(f"{word}_{'DT' if word in ('the', 'a') else 'X'}" for word in line.split()) for line in lines]
    Path("t.tagged").write_text("\n".join(tagged) + "\n", encoding="utf-8")
    found = json.loads(cli("compare", lstm_run, tiny_run, "--corpus", "t.txt", "--tags", "t.tagged", "--json").done)
    rows = {row["name"]: row["tokens"] for row in found["comparisons"][0]["where"]["part of speech"]}
    assert rows == {"DT": sum(word in ("the", "a") for line in lines for word in line.split()), "X": 150 - rows["DT"]}
    cli("compare", lstm_run, tiny_run, "--tags", "t.tagged").refused("t.tagged", "Tag", out=None)


@pytest.mark.slow
def test_a_training_text_that_was_moved(cli: Cli, tiny_corpus: Path, tiny_config: RunConfig, tmp_path: Path) -> None:
    run, text, moved = tmp_path / "run", tmp_path / "tiny", tmp_path / "moved" / "tiny"
    shutil.copytree(tiny_corpus, text)
    config = replace(tiny_config, data=replace(tiny_config.data, corpus=str(text)))
    spanlm.train(config, spanlm.load_corpus(config.data), run)
    moved.parent.mkdir()
    text.rename(moved)
    found = json.loads(cli("compare", run, "--attention", "none", "--data-dir", moved.parent, "--json").done)
    assert "frequency in training" in found["comparisons"][0]["where"]
    elsewhere = cli("compare", run, "--attention", "none", "--corpus", moved)
    assert elsewhere.status == 0 and "frequency in training" not in elsewhere.out and "--data-dir" in elsewhere.err


def test_what_cannot_be_compared(cli: Cli, tiny_run: Path, lstm_run: Path, unopened_run: Path) -> None:
    for name, run in (("mixed/seed-1", lstm_run), ("mixed/seed-2", tiny_run), ("twice/seed-1", lstm_run)):
        shutil.copytree(run, name)
    shutil.copytree(lstm_run, "twice/seed-3")
    cli("compare", tiny_run, "mixed").refused("mixed: is no family of seeds: model.memory.kind")
    cli("compare", tiny_run, "twice").refused("twice: is no family of seeds: seed-1 and seed-3 both have seed 1")
    cli("compare", tiny_run, "mixed/..").refused("..")
    found = cli("compare", tiny_run, unopened_run, "--state", "line")
    assert "unopened never learnt to predict the first word of a line" in flat(found.done)


# --- context ---


def test_context(cli: Cli, tiny_run: Path, tmp_path: Path) -> None:
    how = ("context", tiny_run, "--positions", 120, "--lengths", 1, 2, 5, "--far", 6)
    found = json.loads(cli(*how, "--json").done)
    curves = found["curves"]
    assert [*curves] == ["truncated", "memory emptied", "encoder emptied", "shuffled", "half dropped", "replaced"]
    assert [point["words"] for point in curves["truncated"]] == [0, 1, 2, 5]
    assert found["gain"] == curves["truncated"][0]["excess"] > 0
    assert curves["memory emptied"][2]["excess"] == pytest.approx(0, abs=1e-6), "it holds three words"
    figure = tmp_path / "context.svg"
    shown = cli(*how, "--out", figure).done
    assert f"{found['gain']:.3f} bits a token, over no word of context" in shown
    assert all(f" {point['bits']:.3f} " in flat(shown) for point in curves["truncated"])
    assert "shuffled" in figure.read_text(encoding="utf-8")
    cli(*how, "--out", "context.csv").done  # noqa: B018 (checks)
    rows = read_rows(Path("context.csv").read_text())
    points = [(change, at["words"], at["excess"]) for change, curve in curves.items() for at in curve]
    assert [(row["change"], int(row["words"])) for row in rows] == [each[:2] for each in points]
    assert [float(row["excess"]) for row in rows] == pytest.approx([each[2] for each in points], abs=1e-6)
