"""`spanlm score` for reading times: predictors, spillover, regions, layouts, and text without spaces."""

import json
import math
from pathlib import Path

import pytest

import spanlm
from spanlm.scoring.predictors import PREDICTORS
from tests.cli.conftest import Cli, read_rows
from tests.cli.test_stimuli import write
from tests.conftest import TINY_WORDS

A, B, C, D = TINY_WORDS[:4]
ROWS = [
    {"trial": trial, "part": part, "rt": rt, "w": word}
    for trial, part, rt, word in [
        ("1", "x", "10", A.title()),
        ("1", "x", "11", f"“{B},"),
        ("1", "y", "12", f"{C} zebra"),
        ("2", "x", "13", D),
        ("2", "y", "14", A),
    ]
]
WORDS = [[A.title(), f"“{B},", C, "zebra"], [D, A]]


def test_predictors_of_a_line_go_on_over_its_rows_and_spillover_ends_with_it(cli: Cli, words_run: Path) -> None:
    how = (words_run, write("w.csv", ROWS), "--text", "w", "--line", "trial")
    plain = read_rows(cli("score", *how).out)
    found = cli("score", *how, "--predictors", "all", "--spillover", "2", "--eos", "--out", "o.csv")
    assert "the training text of" in found.err and "lacks 1 of the words" in found.err
    rows = read_rows(Path("o.csv").read_text())
    ends, rows = [row for row in rows if row["word"] == "<eos>"], [row for row in rows if row["word"] != "<eos>"]
    assert [{name: row[name] for name in plain[0]} for row in rows] == plain
    words = [*WORDS[0], *WORDS[1]]
    assert [row["word"] for row in rows] == words
    assert [row["position"] + row["first"] + row["last"] for row in rows] == ["110", "200", "300", "401", "110", "201"]
    assert [row["length"] for row in rows] == [str(len(word.strip("“,"))) for word in words]
    assert rows[1]["punctuation_before"] + rows[1]["punctuation_after"] == "11"
    counts = spanlm.load(words_run).texts.frequencies()
    assert float(rows[0]["unigram"]) == pytest.approx(counts.surprisal(A, 2.0), abs=1e-6)
    assert float(rows[0]["frequency"]) == pytest.approx(6 - float(rows[0]["unigram"]) * math.log10(2), abs=1e-5)
    for name in ("surprisal", *PREDICTORS):
        values = [row[name] for row in rows]
        for lag in (1, 2):
            before = ["NaN"] * lag + values[: 4 - lag] + (["NaN"] * lag + values[4 : 6 - lag])[:2]
            assert [row[f"{name}_prev{lag}"] for row in rows] == before, name
    assert all(end[name] == "NaN" for end in ends for name in ("length", "last", "surprisal_prev1"))
    told = json.loads(Path("o.csv.meta.json").read_text())
    assert list(told["columns"]) == list(rows[0]) and told["columns"]["length"] == PREDICTORS["length"]
    assert told["runs"]["words"]["frequencies"] == f"the training text of {words_run}"


def test_regions_are_sums_and_means_of_words_in_succession(cli: Cli, tiny_run: Path, lstm_run: Path) -> None:
    Path("f.csv").write_text(f"word,zipf\n{A},6\n{B},5\n{C},4\n{D},2\n")
    how = (tiny_run, lstm_run, write("w.csv", ROWS), "--text", "w", "--line", "trial", "--predictors")
    how = (*how, "length,frequency", "--frequencies", "f.csv", "--spillover", "1", "--format", "jsonl")
    words = [json.loads(line) for line in cli("score", *how).out.splitlines()]
    regions = [json.loads(line) for line in cli("score", *how, "--region", "part", "--prefix", "lm_").out.splitlines()]
    assert [row["lm_run"] for row in regions] == ["tiny", "lstm"] * 4
    for run in ("tiny", "lstm"):
        own = [row for row in words if row["run"] == run]
        before = None
        for row, (start, stop) in zip(regions[run == "lstm" :: 2], [(0, 2), (2, 4), (4, 5), (5, 6)], strict=True):
            part = own[start:stop]
            assert (row["rt"], row["lm_word"]) == (part[0]["rt"], " ".join(word["word"] for word in part))
            assert (row["lm_words"], row["lm_oov"]) == (len(part), sum(word["oov"] for word in part))
            for name in ("surprisal", "length", "frequency"):
                total = math.fsum(word[name] for word in part)
                assert row[f"lm_{name}_sum"] == pytest.approx(total)
                assert row[f"lm_{name}_mean"] == pytest.approx(total / len(part))
            assert row["lm_surprisal_sum_prev1"] == (None if start in (0, 4) else before)
            before = row["lm_surprisal_sum"]


def test_regions_that_lie_apart_or_go_on_over_a_line_are_named(cli: Cli, tiny_run: Path) -> None:
    rows = [("1", "a"), ("1", "b"), ("2", "b"), ("2", "c"), ("2", "b"), ("3", "x"), ("4", "x")]
    table = write("r.csv", [{"trial": trial, "part": part, "w": A} for trial, part in rows])
    how = ("score", tiny_run, table, "--text", "w", "--line", "trial", "--region", "part")
    found = cli(*how)
    assert len(read_rows(found.out)) == 7
    assert "2 rows out of place: r.csv, line 4: part=b goes on from the line before" in found.err
    assert "r.csv, line 6: part=b comes again in its line" in found.err
    cli(*how, "--strict", "--out", "o.csv").refused("part=b goes on from the line before")


def test_readings_of_a_layout_are_scored_once_with_the_words_that_others_skipped(cli: Cli, tiny_run: Path) -> None:
    rows = [("1", "7", n, word) for n, word in enumerate((A, B, C), 1)]
    rows += [("2", "7", 3, C), ("2", "7", 1, A), ("2", "8", 1, D), ("3", "7", 2, B)]
    names = ("subj_nr", "sent_nr", "word_pos", "word")
    table = write("readings.tsv", [dict(zip(names, map(str, row), strict=True)) for row in rows])
    found = read_rows(cli("score", tiny_run, table, "--layout", "ucl", "--predictors", "position").done, "\t")
    whole = read_rows(cli("score", tiny_run, write("s.csv", [{"t": f"{A} {B} {C}"}, {"t": D}]), "--text", "t").done)
    expected = [0, 0, 1, 1, 2, 2, 3]
    assert [row["surprisal"] for row in found] == [whole[n]["surprisal"] for n in expected]
    assert [row["subj_nr"] for row in found] == ["1", "2", "1", "3", "1", "2", "2"]
    assert [row["sentence"] for row in found] == ["1", "5", "2", "7", "3", "4", "6"]
    assert [row["position"] for row in found] == ["1", "1", "2", "2", "3", "3", "1"]
    cli("score", tiny_run, table, "--layout", "ucl", "--region", "word_pos").refused("--region=word_pos", "--repair")
    alone = cli("score", tiny_run, table, "--layout", "ucl", "--repair", "none")
    assert "3 rows out of place" in alone.err


def test_provo_in_cp1252_with_true_as_a_logical(cli: Cli, tiny_run: Path) -> None:
    words = [b"The ", b"don\x92t", b"TRUE", "â€œcafÃ©".encode(), b"cat"]
    lines = [b"Sub01,1,%d,%s,5" % (place, word) for place, word in enumerate(words, 1)]
    head = b"Participant_ID,Text_ID,IA_ID,IA_LABEL,IA_DWELL_TIME"
    Path("p.csv").write_bytes(b"\n".join([head, *lines, b"Sub01,1,,cat,5", b""]))
    found = cli("score", tiny_run, "p.csv", "--layout", "provo", "--keep", "IA_ID", "--out", "o.csv")
    rows = read_rows(Path("o.csv").read_text())
    assert [row["word"] for row in rows] == ["The", "don’t", "true", "“café", "cat"]
    assert "p.csv, line 7: the column IA_ID is empty" in found.err and "line 4: TRUE is read as true" in found.err
    told = json.loads(Path("o.csv.meta.json").read_text())
    assert (told["layout"], told["line"], told["text"]) == ("provo", "Text_ID", "IA_LABEL")
    cli("score", tiny_run, "p.csv", "--layout", "provo", "--repair", "none").refused("p.csv: not UTF-8")


def test_dundee_with_marks_in_rows_of_their_own(cli: Cli, words_run: Path) -> None:
    words = ["(", A, ",", B, "n't", ")", "."]
    table = [{"SentenceID": "1.0", "ID": f"{n}.0", "Word": word} for n, word in enumerate(words, 1)]
    rows = read_rows(cli("score", words_run, write("d.tsv", table), "--layout", "dundee").out, "\t")
    assert [(row["ID"], row["word"]) for row in rows] == [("2.0", f"({A},"), ("4.0", f"{B}n't).")]


def test_rows_of_a_line_without_spaces(cli: Cli, bytes_run: Path, tiny_run: Path) -> None:
    rows = [("1", "th"), ("1", "ecat"), ("2", "naïve"), ("2", "a b"), ("2", "t")]
    table = write("z.csv", [dict(zip(("trial", "w"), row, strict=True)) for row in rows])
    how = (table, "--text", "w", "--line", "trial", "--separator", "")
    found = cli("score", bytes_run, *how, "--eos", "--predictors", "position")
    assert "z.csv, line 5: w=a b: has white space" in found.err
    rows_out = read_rows(found.out)
    tokens = [list(spanlm.load(bytes_run).score(line, eos=True)) for line in ("thecat", "naïvet")]
    assert [row["word"] for row in rows_out] == ["th", "ecat", "<eos>", "naïve", "t", "<eos>"]
    sizes = [2, 4, 1, 6, 1, 1]
    surprisals = [token.surprisal for line in tokens for token in line]
    for row, size in zip(rows_out, sizes, strict=True):
        assert float(row["surprisal"]) == pytest.approx(math.fsum(surprisals[:size]), abs=1e-5)
        surprisals = surprisals[size:]
    cli("score", tiny_run, *how).refused("--separator=''", "white space between")
