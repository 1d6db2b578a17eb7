"""`spanlm reading`: reading times by a law, from a table to numbers, figures and R."""

import csv
import json
import random
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import spanlm
from spanlm.config import RunConfig
from tests.cli.conftest import Cli, flat, read_rows
from tests.conftest import tiny_lines

PER_BIT, READERS, LINES = 20.0, 3, 40
TIMES = ("times.csv", "--response", "RT", "--item", "item", "--subject", "who", "--order", "n", "--spillover", "1")


def write_times(run: Path, name: str = "times.csv", lines: int = LINES, **changes: str) -> None:
    """Write times by a law: a level of the reader + 20 ms a bit of the run's surprisal + 5 ms a letter + noise."""
    draw, texts = random.Random(1), [line for line in tiny_lines(3 * LINES, 9) if len(line.split()) > 3][:lines]
    scored = list(spanlm.load(run).score_items(texts))
    with Path(name).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["item", "n", "word", "who", "RT"])
        for who in range(READERS):
            level = 300 + 40 * who
            for number, words in enumerate(scored):
                for word in words:
                    time = level + PER_BIT * word.surprisal + 5 * len(word.word) + draw.gauss(0, 15)
                    row = {"item": number, "n": word.index, "word": word.word, "who": f"r{who}", "RT": f"{time:.1f}"}
                    writer.writerow((row | changes).values())


@pytest.fixture
def times(tiny_run: Path, own_folder: None) -> Path:
    write_times(tiny_run)
    return tiny_run


def coefficient(run: dict[str, Any], name: str) -> tuple[float, float]:
    return next((row["value"], row["error"]) for row in run["coefficients"] if row["name"] == name)


def test_a_law_is_found_again_in_a_table(cli: Cli, times: Path, lstm_run: Path) -> None:
    found = json.loads(cli("reading", times, lstm_run, *TIMES, "--json").done)
    right, other = found["runs"]
    value, error = coefficient(right, "surprisal")
    assert value == pytest.approx(PER_BIT, abs=4 * error) and 0 < error < 2
    value, error = coefficient(right, "length")
    assert value == pytest.approx(5, abs=4 * error)
    assert right["delta"] > other["delta"] > 0 and right["interval"][0] < right["delta"] < right["interval"][1]
    (pair,) = found["differences"]
    assert (
        pair["difference"] == pytest.approx(other["delta"] - right["delta"])
        and pair["interval"][1] < 0 < pair["p"] < 0.05
    )
    texts = list(spanlm.load(times).score_items([" ".join(line) for line in texts_of("times.csv")]))
    bits = [word.surprisal for words in texts for word in words]
    assert right["bits"] == pytest.approx(sum(bits) / len(bits), rel=1e-5) and right[
        "word_perplexity"
    ] == pytest.approx(2 ** right["bits"])
    rows = read_rows(Path("times.csv").read_text())
    assert found["readings"] == len(rows) == found["left"] + sum(found["left_out"].values())
    assert found["left_out"]["first of a line"] == found["left_out"]["last of a line"] == LINES * READERS
    assert found["times"] <= found["left"] / READERS + LINES and found["items"] == LINES and found["readers"] == READERS
    assert found["unit"] == "nats a word" and found["frequencies"].endswith(f"training text of {times}")


def texts_of(name: str) -> list[list[str]]:
    texts: dict[str, list[str]] = {}
    for row in read_rows(Path(name).read_text()):
        if row["who"] == "r0":
            texts.setdefault(row["item"], []).append(row["word"])
    return [*texts.values()]


def test_what_is_printed_and_written(cli: Cli, times: Path, lstm_run: Path) -> None:
    told = cli("reading", times, lstm_run, *TIMES, "--subjects", "random", "--out", "t.csv").done
    assert "subjects as random intercepts" in told and "Δ log-likelihood, nats a reading" in told
    assert f"{LINES * READERS} first of a line" in told
    right, other = read_rows(Path("t.csv").read_text())
    assert f"{float(right['word_perplexity']):.2f}" in told and f"{float(right['delta']):+.5f}" in told
    assert float(right["surprisal"]) == pytest.approx(PER_BIT, abs=4 * float(right["surprisal_se"]))
    assert float(right["low"]) < float(right["delta"]) < float(right["high"]) and other["name"] == "lstm"
    assert "wrote f.svg" in cli("reading", times, lstm_run, *TIMES, "--out", "f.svg").done
    assert "perplexity of the words (logarithmic)" in Path("f.svg").read_text()


@pytest.mark.slow
def test_windows_and_lesions(cli: Cli, times: Path) -> None:
    command = ("reading", times, *TIMES, "--windows", "1,2,99,all", "--attention", "none,window=1", "--out", "w.svg")
    found = json.loads(cli(*command, "--json").done)["runs"]
    assert [(run["window"], run["attention"]) for run in found] == [
        *((window, None) for window in (1, 2, 99, None)),
        *((None, lesion) for lesion in ("none", "window=1")),
    ]
    assert found[2]["delta"] == pytest.approx(found[3]["delta"], rel=1e-3) and found[0]["delta"] < found[3]["delta"]
    assert len({run["bits"] for run in found}) > 3 and "tokens of context" in Path("w.svg").read_text()


@pytest.mark.slow
def test_a_family_has_an_interval_of_its_seeds(cli: Cli, times: Path, tiny_config: RunConfig) -> None:
    for seed in (1, 2):
        config = replace(tiny_config, training=replace(tiny_config.training, seed=seed, epochs=1))
        spanlm.train(config, spanlm.load_corpus(config.data), Path(f"family/seed-{seed}"))
    runs = ["family", "family/seed-1"], ["family/seed-2"]
    command = [[times, *others, *TIMES, "--json"] for others in runs]
    family, one, two = (row for options in command for row in json.loads(cli("reading", *options).done)["runs"][1:])
    assert family["delta_by_run"] == [one["delta"], two["delta"]] and one["delta"] != two["delta"]
    assert family["delta"] == pytest.approx((one["delta"] + two["delta"]) / 2)
    widths = [row["interval"][1] - row["interval"][0] for row in (family, one)]
    assert widths[0] > widths[1], "two seeds say little about their variance"
    command = ["reading", "family", *TIMES, "--windows", "99,all", "--json"]
    (same,) = json.loads(cli(*command).done)["differences"]
    width = same["interval"][1] - same["interval"][0]
    assert abs(same["difference"]) < 1e-3 and width < widths[0] / 10, "of the same runs the seeds are paired"


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--response", "time"], ["no column time"]),
        (["--item", "who"], ["--folds=10: must be at most 3, the items. Take fewer"]),
        (["--folds", "1"], ["--folds=1: must be at least 2"]),
        (["--subject", "RT"], ["--subject=RT: has", "is no reader"]),
        (["--baseline", "n,length,position"], ["--baseline=n: is a sum", "before it"]),
        (["--baseline", "first"], ["--baseline=first: is the same at every word that is left"]),
        (["--baseline", "speed"], ["--baseline=speed: must be some of length, frequency"]),
        (["--frequencies", "no.csv", "--baseline", "length"], ["--frequencies=no.csv: is for frequency or unigram"]),
        (["--exclude", "all"], ["--exclude=all: must be none, or some of skipped, edges"]),
        (["--spillover", "9"], ["--exclude=skipped,edges,outliers: leaves none of"]),
        (["--windows", "0"], ["--windows=0: must be whole numbers of at least 1, or all"]),
        (["--attention", "some"], ["--attention=some: must be uniform, none or window=K"]),
        (["--out", "t.doc"], [".csv, .json"]),
        (["--layout", "provo"], ["--text=IA_LABEL: this layout (Provo"]),
    ],
)
def test_bad_input_is_one_line(cli: Cli, times: Path, options: list[str], parts: list[str]) -> None:
    given = [] if "--layout" in options else TIMES[1:]
    cli("reading", times, "times.csv", *given, *options).refused(*parts)


def test_tables_that_are_none(cli: Cli, times: Path, tiny_corpus: Path) -> None:
    cli("reading", times, "no.csv", "--response", "RT").refused("no.csv")
    cli("reading", times, "times.csv").refused("has the columns item, n, word, who, RT", "--response")
    Path("zero.csv").write_text(Path("times.csv").read_text().replace(".", "x"))
    cli("reading", times, "zero.csv", *TIMES[1:]).refused("--response=RT: is a number in none of", "zero.csv, line 2")
    write_times(times, "few.csv", lines=10, RT="0")
    cli("reading", times, "few.csv", *TIMES[1:]).refused("leaves none of", "skipped (time 0)")
    write_times(times, "same.csv", RT="250")
    cli("reading", times, "same.csv", *TIMES[1:]).refused("--response: is the same at every word")


@pytest.mark.slow
def test_few_items_have_no_interval(cli: Cli, times: Path, lstm_run: Path) -> None:
    write_times(times, "few.csv", lines=9)
    command = ("reading", times, lstm_run, "few.csv", *TIMES[1:], "--folds", "3")
    found = json.loads(cli(*command, "--json").done)
    assert found["runs"][0]["interval"] == [None, None] and found["differences"][0]["p"] is None
    shown = cli(*command, "--out", "few.svg").done
    assert "none: of fewer than 10 items" in shown and "nan" not in shown


@pytest.mark.slow
def test_words_outside_a_vocabulary_leave_with_those_they_spill_over_to(cli: Cli, times: Path) -> None:
    rows = Path("times.csv").read_text().splitlines()
    rows = [row.replace(row.split(",")[2], "zebra") if row.split(",")[:2] == ["3", "2"] else row for row in rows]
    Path("times.csv").write_text("\n".join(rows) + "\n")
    left_out = [
        json.loads(cli("reading", times, *TIMES, "--exclude", "unknown", "--spillover", spill, "--json").out)
        for spill in "01"
    ]
    assert [found["left_out"]["outside a vocabulary"] for found in left_out] == [READERS, 2 * READERS]


def test_a_time_that_is_no_number_is_named(cli: Cli, times: Path) -> None:
    lines = Path("times.csv").read_text().splitlines()
    lines[4] = f"{lines[4].rpartition(',')[0]},fast"
    Path("times.csv").write_text("\n".join(lines) + "\n")
    result = cli("reading", times, *TIMES)
    assert result.status == 0 and "note: 1 row to be checked: times.csv, line 5: RT=fast is no number" in result.err
    assert "1 without a time" in flat(result.out)
    cli("reading", times, *TIMES, "--strict").refused("times.csv, line 5: RT=fast is no number")


def test_a_model_without_a_training_text_needs_frequencies(cli: Cli, times: Path, tmp_path: Path) -> None:
    words = "".join(f"-{1 + at / 10}\t{word}\n" for at, word in enumerate(("the", "cat", "sat", "</s>", "<unk>")))
    Path("one.arpa").write_text(f"\\data\\\nngram 1=6\n\n\\1-grams:\n-99\t<s>\n{words}\n\\end\\\n")
    cli("reading", "one.arpa", *TIMES).refused(
        "--baseline=length,frequency,position: needs frequencies", "--frequencies"
    )
    Path("f.csv").write_text("word,count\nthe,9\ncat,3\nsat,1\n")
    result = cli("reading", times, "one.arpa", *TIMES, "--frequencies", "f.csv", "--json")
    found = json.loads(result.out)
    assert found["frequencies"] == "f.csv" and len(found["runs"]) == 2
    assert "f.csv lacks" in result.err and "they count as its rarest word" in result.err


def test_a_column_named_as_another_one_of_r_is_refused(cli: Cli, times: Path) -> None:
    named = Path("times.csv").read_text().replace(",RT\n", ",RT,time\n", 1).splitlines()
    Path("times.csv").write_text(
        "\n".join([named[0], *(f"{row},{len(row.split(',')[2])}" for row in named[1:])]) + "\n"
    )
    asked = ("reading", times, *TIMES, "--baseline", "time", "--r", "fit")
    cli(*asked).refused("--baseline=time: is the name of another column")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("Rscript") is None, reason="R is not here")
@pytest.mark.parametrize("subjects", ["mean", "random"])
def test_r_fits_the_same_models(cli: Cli, times: Path, lstm_run: Path, subjects: str) -> None:
    """With lme4 if subjects are random; coefficients, their errors and Δ of held-out items."""
    if subjects == "random" and subprocess.run(["Rscript", "-e", "library(lme4)"], capture_output=True).returncode:
        pytest.skip("R has no lme4")
    options = ("--subjects", subjects, "--r", "fit", "--out", "t.json")
    cli("reading", times, lstm_run, *TIMES, *options).done  # noqa: B018 (checks)
    subprocess.run(["Rscript", "reading.R"], cwd="fit", check=True, capture_output=True)
    ours = json.loads(Path("t.json").read_text())["runs"]
    rows = read_rows(Path("fit/coefficients.csv").read_text())
    expected = [(row["value"], row["error"], run["delta"]) for run in ours for row in run["coefficients"]]
    found = [tuple(float(row[name]) for name in ("value", "error", "delta")) for row in rows]
    assert len(found) == len(expected)
    for row, own in zip(found, expected, strict=True):
        assert row == pytest.approx(own, rel=1e-3)
