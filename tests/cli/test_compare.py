"""`spanlm compare` and `spanlm context`: what they print is what the library finds, at 80 columns."""

import json
import math
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

import spanlm
from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.scoring.cloze import SCORES
from spanlm.scoring.options import CONTEXTS
from tests.cli.conftest import Cli, flat, read_rows
from tests.cli.test_cloze import BLOCKS, BROKEN
from tests.conftest import TINY_WORDS

SHAPES = list(product(CONTEXTS, SCORES))


@pytest.fixture
def arpa(tmp_path: Path) -> Path:
    words = "".join(f"-1.1\t{word}\n" for word in [*dict.fromkeys(TINY_WORDS), "</s>", "<unk>"])
    count = words.count("\n") + 1
    path = tmp_path / "one.arpa"
    path.write_text(f"\\data\\\nngram 1={count}\n\n\\1-grams:\n-99\t<s>\n{words}\n\\end\\\n", encoding="utf-8")
    return path


def test_tables_in_a_file_have_the_rows_of_the_terminal(cli: Cli, tiny_run: Path, lstm_run: Path) -> None:
    shown = cli("compare", lstm_run, tiny_run, "--out", "t.md").done.splitlines()
    cli("compare", lstm_run, tiny_run, "--out", "t.tex").done  # noqa: B018 (checks)
    rows = [line.split() for line in Path("t.md").read_text().replace("|", " ").replace("\\", "").splitlines()]
    tables = [line.split() for line in shown[shown.index("") + 1 :] if "  " in line]
    assert tables and all(cells in rows for cells in tables)
    latex = Path("t.tex").read_text()
    assert latex.count(r"\toprule") == latex.count(r"\bottomrule") == 2 and r"\textless{}eos\textgreater{}" in latex


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


@pytest.mark.slow
def test_other_words(cli: Cli, tiny_run: Path, tiny_corpus: Path, arpa: Path, tiny_config: RunConfig) -> None:
    """An n-gram model takes the words of a run; two runs with different words have only common ones."""
    found = json.loads(cli("compare", arpa, tiny_run, "--json").done)
    assert found["compared"] == found["tokens"] == spanlm.load(tiny_run).evaluate().tokens
    assert found["baseline"]["name"] == "one"
    shutil.copytree(tiny_corpus, "copy")
    data = DataConfig(corpus="copy", documents="blank-line", max_size=9)
    few = replace(tiny_config, data=data, training=replace(tiny_config.training, epochs=1))
    spanlm.train(few, spanlm.load_corpus(few.data), Path("few"))
    cli("compare", tiny_run, "few").refused("have different vocabularies", "Add --words common", "--spell-unknown")
    spelled = json.loads(cli("compare", tiny_run, "few", "--spell-unknown", "--json").done)
    alone = [spanlm.load(run).evaluate(spell_unknown=True) for run in (tiny_run, "few")]
    assert spelled["compared"] == spelled["tokens"] == alone[0].tokens
    bits = [spelled["baseline"]["bits"], spelled["comparisons"][0]["bits"]]
    assert bits == pytest.approx([result.bits_per_token for result in alone], rel=1e-6)
    found = json.loads(cli("compare", tiny_run, "few", "--words", "common", "--corpus", tiny_corpus, "--json").done)
    alone = json.loads(cli("compare", tiny_run, "few", "--words", "common", "--json").done)
    assert alone["comparisons"] == found["comparisons"], "the text is the baseline's"
    ids = spanlm.load("few").corpus(str(tiny_corpus), "test").splits["test"].ids
    assert found["compared"] == (ids != spanlm.load("few").vocabulary.unk_id).sum() < found["tokens"]
    shutil.rmtree("copy")  # a cache, too, is tuned on the baseline's text
    command = ("compare", tiny_run, "few", "--words", "common", "--cache", "20", "--tune-cache", "--json")
    tuned = json.loads(cli(*command).done)
    assert all("tuning" in side for side in (tuned["baseline"], *tuned["comparisons"]))


def test_models_that_cut_words_in_other_ways_are_compared_by_written_word(
    cli: Cli, tiny_run: Path, words_run: Path, arpa: Path
) -> None:
    """The sums are those of `evaluate`, over written words and line ends, whatever tokens a word has."""
    Path("t.txt").write_text("The cat's here . a dog, sat\n\nzebra naïve\n", encoding="utf-8")
    command = ("compare", tiny_run, words_run, "--corpus", "t.txt", "--state", "carry", "--spell-unknown")
    found = json.loads(cli(*command, "--json").done)
    assert found["unit"] == "written word" and found["compared"] == 12
    for run, side in ((tiny_run, found["baseline"]), (words_run, found["comparisons"][0])):
        alone = json.loads(
            cli("evaluate", run, "--corpus", "t.txt", "--state", "carry", "--spell-unknown", "--json").done
        )
        assert alone["spelling"]["words"] > 0
        assert side["bits"] * 12 * math.log(2) == pytest.approx(alone["nll"], rel=1e-6)
        assert any("open vocabulary" in line for line in found["notes"])
    assert any("capitals" in line for line in found["notes"]), "one of them reads The as the"
    rows = {row["name"]: row["tokens"] for row in found["comparisons"][0]["where"]["frequency in training"]}
    assert rows["0 times"] == 5 and rows["<eos>"] == 3
    shown = flat(cli(*command).done)
    assert "12 written words and line ends" in shown and "bits a written word" in shown
    textless = cli("compare", tiny_run, arpa, "--state", "carry", "--spell-unknown")
    textless.refused("one.arpa", "does not say which text it is of", "Leave --spell-unknown out")


@pytest.mark.slow
def test_documents_that_begin_with_headings_are_read_apart_by_written_word_too(
    cli: Cli, tiny_run: Path, tiny_corpus: Path, tiny_config: RunConfig
) -> None:
    """The sums are those of `evaluate`, whose context ends at headings and not at blank lines."""
    paragraph = [*(tiny_corpus / "test.txt").read_text(encoding="utf-8").splitlines()[:4], ""]
    documents = [line for title in "abc" for line in [f" = {title} = ", "", *paragraph, " = = part = = ", *paragraph]]
    shutil.copytree(tiny_corpus, "headed")
    for part in ("train", "valid", "test"):
        Path("headed", f"{part}.txt").write_text("\n".join(["", *documents, ""]), encoding="utf-8")
    data = DataConfig(corpus="headed", documents="heading")
    for name, tokens in {
        "words": data,
        "few": replace(data, max_size=9),
        "bytes": replace(data, tokenizer="bytes"),
    }.items():
        config = replace(tiny_config, data=tokens, training=replace(tiny_config.training, epochs=1))
        spanlm.train(config, spanlm.load_corpus(config.data), Path(name))
    found = json.loads(cli("compare", "words", "few", "bytes", "--spell-unknown", "--json").done)
    assert "3 documents" in found["protocol"]
    other = json.loads(cli("compare", "few", "bytes", "--spell-unknown", "--json").done)
    assert other["comparisons"][0]["bits"] == found["comparisons"][1]["bits"]
    for run, side in zip(("words", "few", "bytes"), (found["baseline"], *found["comparisons"]), strict=True):
        alone = spanlm.load(run).evaluate(spell_unknown=True)
        assert side["bits"] * found["compared"] == pytest.approx(alone.nll / math.log(2), rel=1e-5), run


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
def test_a_training_text_that_was_moved(
    cli: Cli, tiny_corpus: Path, tiny_config: RunConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, text, moved = tmp_path / "run", tmp_path / "tiny", tmp_path / "moved" / "tiny"
    shutil.copytree(tiny_corpus, text)
    config = replace(tiny_config, data=replace(tiny_config.data, corpus=str(text)))
    spanlm.train(config, spanlm.load_corpus(config.data), run)
    moved.parent.mkdir()
    text.rename(moved)
    found = json.loads(cli("compare", run, "--attention", "none", "--data-dir", moved.parent, "--json").done)
    assert "frequency in training" in found["comparisons"][0]["where"]
    spelled = ("evaluate", run, "--spell-unknown", "--split", "test")
    counted = json.loads(cli(*spelled, "--data-dir", moved.parent, "--json").done)["spelling"]
    cli(*spelled, "--corpus", moved).refused("the training text", "no such corpus", "--data-dir")
    beside = ("--attention", "none", "--spell-unknown", "--data-dir", moved.parent, "--json")
    assert cli("compare", run, "--split", "test", *beside).status == 0
    Path("known.txt").write_text("the\n" * 50)
    assert cli("compare", run, "--corpus", "known.txt", *beside).status == 0
    Path("t.txt").write_text("the zebra\n")
    assert cli("score", run, "t.txt", "--spell-unknown", "--data-dir", moved.parent).status == 0
    with (moved / "train.txt").open("a", encoding="utf-8") as file:
        file.write("zebrano zeal\n")
    changed = cli(*spelled, "--data-dir", moved.parent, "--json")
    assert "tiny train: not the text that it was" in caplog.text
    assert json.loads(changed.out)["spelling"]["nll"] < counted["nll"], "zebra is spelled as zebrano"
    elsewhere = cli("compare", run, "--attention", "none", "--corpus", moved)
    assert elsewhere.status == 0 and "frequency in training" not in elsewhere.out and "--data-dir" in elsewhere.err


def test_answers_to_questions_are_those_of_cloze(cli: Cli, tiny_run: Path, lstm_run: Path, arpa: Path) -> None:
    names = ("cbtest_NE_test.txt", "cbtlike_V_test.txt")
    for name, blocks in zip(names, (BLOCKS, BROKEN), strict=True):
        Path(name).write_text("".join(blocks), encoding="utf-8")
    questions = [word for name in names for word in ("--questions", name)]
    command = ("compare", lstm_run, tiny_run, arpa, *questions, "--context", "full", "--context", "query")
    told = json.loads(cli(*command, "--json").done)
    assert (told["questions"], told["compared"], len(told["defects"])) == (24, 22, 1)
    sides = [("baseline_accuracy", lstm_run, 0), ("accuracy", tiny_run, 0), ("accuracy", arpa, 1)]
    for column, run, number in sides:
        alone = json.loads(cli("cloze", run, *names, "--json", "--context", "full", "--context", "query").done)
        for (context, by), (place, file) in product(SHAPES, enumerate(alone["files"])):
            row = told["comparisons"][number]["contexts"][context][by][1 + place]
            assert (row["name"], row[column]) == (file["class"], file["contexts"][context][by]["accuracy"])
    for rows in (told["comparisons"][0]["contexts"][context][by] for context, by in SHAPES):
        whole, *classes = rows
        for name in ("both", "gained", "lost", "neither"):
            assert whole[name] == sum(row[name] for row in classes)
        assert whole["difference"] == pytest.approx(whole["accuracy"] - whole["baseline_accuracy"])
        assert whole["interval"][0] <= whole["difference"] <= whole["interval"][1]
    shown = cli(*command, "--out", "t.md").done
    assert max(map(len, shown.splitlines()[3:-2])) <= 80 and "22 of them compared" in flat(shown)
    assert flat(shown).count("McNemar") == 1 and Path("t.md").read_text(encoding="utf-8").count("| difference |") == 4
    changed = json.loads(cli("compare", tiny_run, "--attention", "none", *questions, "--json").done)
    assert changed["comparisons"][0]["name"].endswith("attention none")


def test_questions_need_one_context_and_one_answer(
    cli: Cli, tiny_run: Path, lstm_run: Path, sentence_run: Path
) -> None:
    Path("q.txt").write_text("".join(BLOCKS), encoding="utf-8")
    command = ("compare", tiny_run, sentence_run, "--questions", "q.txt")
    cli(*command).refused("full to ", "query to ", "--context query")
    assert "query: the query sentence alone" in cli(*command, "--context", "query").done
    shutil.copytree(lstm_run, "family/seed-1")
    cli("compare", tiny_run, "family", "--questions", "q.txt").done  # noqa: B018 (checks): of one run it is that run
    shutil.copytree(lstm_run, "family/seed-2")
    change = Path("family/seed-2/config.yaml")
    change.write_text(change.read_text(encoding="utf-8").replace("seed: 1", "seed: 2"), encoding="utf-8")
    cli("compare", tiny_run, "family", "--questions", "q.txt").refused("family: is a family")


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
