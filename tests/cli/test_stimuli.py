"""`spanlm score` and `spanlm attend` on tables of stimuli, and what `score` adds for reading times."""

import csv
import gzip
import json
import math
from pathlib import Path

import pytest

import spanlm
from spanlm.scoring.predictors import PREDICTORS
from spanlm.store.run_folder import model_digest
from tests.cli.conftest import Cli, read_rows
from tests.conftest import TINY_WORDS

A, B, C, D = TINY_WORDS[:4]
ITEMS = [
    {"item": "1", "condition": "long", "text": f"  {A.title()} {B},  {C}."},
    {"item": "2", "condition": "short", "text": f'"Zebra" {D}\n{A}'},
    {"item": "3", "condition": "short", "text": f"{A} {B} {C} {D}"},
]
NUMBERS = ["surprisal", "entropy", "entropy_reduction", "rank", "oov"]
WORDS = ["sentence", "index", "word", "start", "end", "tokens", *NUMBERS]
LOOKS = ["attention_entropy", "attention_word", "attention_weight", "attention_lag"]


def write(name: str, rows: list[dict[str, str]] = ITEMS) -> str:
    kind = name.removesuffix(".gz").rpartition(".")[2]
    with Path(name).open("w", newline="") as file:
        if kind == "jsonl":
            file.writelines(json.dumps(row) + "\n" for row in rows)
        else:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if kind == "tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    return name


def test_a_row_a_word_as_written_with_the_columns_of_its_item(cli: Cli, words_run: Path) -> None:
    for out in ("o.csv", "o.csv.gz"):
        result = cli("score", words_run, write("s.csv"), "--text", "text", "--looks", "--out", out)
        assert (result.status, result.out) == (0, "") and "outside the vocabulary" in result.err
    assert gzip.decompress(Path("o.csv.gz").read_bytes()) == Path("o.csv").read_bytes()
    rows = read_rows(Path("o.csv").read_text())
    assert list(rows[0]) == ["item", "condition", *WORDS, *LOOKS, "oov_before"]
    for number, item in enumerate(ITEMS, 1):
        own = [row for row in rows if row["sentence"] == str(number)]
        assert all(row["item"] == item["item"] and row["condition"] == item["condition"] for row in own)
        written = [item["text"][int(row["start"]) : int(row["end"])] for row in own]
        assert [row["word"] for row in own] == written == item["text"].split()
        tokens = list(spanlm.load(words_run).score(" ".join(item["text"].split())))
        assert " ".join(row["tokens"] for row in own) == " ".join(token.word for token in tokens)
        total = math.fsum(token.surprisal for token in tokens)
        assert math.fsum(float(row["surprisal"]) for row in own) == pytest.approx(total, abs=1e-4)
    told, model = json.loads(Path("o.csv.meta.json").read_text()), spanlm.load(words_run)
    assert "members" not in told["runs"]["words"]
    assert list(told["columns"]) == list(rows[0]) and told["unit"] == "bits"
    assert told["runs"]["words"]["weights"] == model_digest(model.model)
    assert told["runs"]["words"]["vocabulary"]["sha256"] == model.vocabulary.hash


def test_tokens_are_the_rows_of_a_text(cli: Cli, words_run: Path) -> None:
    Path("s.txt").write_text("".join(" ".join(item["text"].split()) + "\n" for item in ITEMS))
    plain = read_rows(cli("score", words_run, "s.txt").out, "\t")
    found = read_rows(
        cli("score", words_run, write("s.csv"), "--text", "text", "--keep", "item", "--rows", "tokens").out
    )
    assert [{name: row[name] for name in row if name not in ("item", "oov_before")} for row in found] == plain
    assert [row["item"] for row in found] == [ITEMS[int(row["sentence"]) - 1]["item"] for row in plain]
    words = read_rows(cli("score", words_run, "s.txt", "--rows", "words").out, "\t")
    again = read_rows(cli("score", words_run, "s.csv", "--text", "text").out)
    assert [(x["word"], x["surprisal"]) for x in words] == [(x["word"], x["surprisal"]) for x in again]


def test_kinds_that_no_name_tells(cli: Cli, tiny_run: Path) -> None:
    expected = cli("score", tiny_run, write("s.csv"), "--text", "text", "--keep", "item").out
    Path("s.txt").write_text(Path("s.csv").read_text())
    assert cli("score", tiny_run, "s.txt", "--text", "text", "--keep", "item").out == expected
    Path("semicolons.csv").write_text('item;text\n1;"the cat, the"\n')
    rows = read_rows(cli("score", tiny_run, "semicolons.csv", "--column", "text").out)
    assert [row["word"] for row in rows] == ["the", "cat,", "the"]


def test_several_tables_have_a_column_of_their_names(cli: Cli, tiny_run: Path) -> None:
    rows = read_rows(cli("score", tiny_run, write("a.csv"), write("b.jsonl", ITEMS[:1]), "--text", "text").out)
    own = read_rows(
        cli("score", tiny_run, write("d.csv", [{"file": "f", "run": "r", "text": "a"}]), "--text", "text").out
    )
    assert (own[0]["file"], own[0]["run"]) == ("f", "r"), "of one file and one run these are free"
    assert [row["file"] for row in rows if row["index"] == "1"] == ["a.csv"] * 3 + ["b.jsonl"]
    cli("score", tiny_run, "a.csv", write("c.csv", [{"text": "a"}]), "--text", "text").refused(
        "c.csv, line 2: no column"
    )


def test_attend_reads_the_same_items_at_the_same_places(cli: Cli, tiny_run: Path) -> None:
    tokens = ("--text", "text", "--rows", "tokens", "--format", "jsonl", "--eos")
    scored = cli("score", tiny_run, write("s.csv"), *tokens).out
    attend = ("attend", tiny_run, "--file", "s.csv")
    cli(*attend, "--column", "text", "--out", "a.csv").done  # noqa: B018 (checks)
    rows = {(int(row["sentence"]), int(row["index"])): row for row in read_rows(Path("a.csv").read_text())}
    for score in map(json.loads, scored.splitlines()):
        row = rows.get((score["sentence"], score["index"]))
        assert (row is None) == (score["index"] == 1), "what comes first in an item looks at nothing"
        if row is not None:
            assert (row["target"], int(row["oov"])) == (score["word"], score["oov"])
            assert float(row["surprisal"]) == pytest.approx(score["surprisal"], rel=1e-5)
    cli(*attend, "--column", "text", "--out", "a.html")
    assert '"unknown":["' in Path("a.html").read_text()


def test_of_items_in_sentences_and_of_first_words_that_are_only_read(
    cli: Cli, sentence_run: Path, unopened_run: Path, span_run: Path
) -> None:
    item = f"{A} {B} . {C.title()} {D} . {A}"
    command = (write("s.jsonl", [{"text": item}] * 3), "--text", "text", "--base", "e")
    rows = [json.loads(line) for line in cli("score", sentence_run, *command, "--eos").out.splitlines()]
    expected = [score.surprisal for score in spanlm.load(sentence_run).score(item, base=math.e, eos=True)]
    assert [row["word"] for row in rows if row["sentence"] == 2 and row["word"] != "<eos>"] == item.split()
    assert [row["surprisal"] for row in rows] == pytest.approx(expected * 3, rel=1e-5)
    rows = [json.loads(line) for line in cli("score", unopened_run, *command).out.splitlines()]
    for name in ("surprisal", "entropy_reduction"):
        assert [row["index"] for row in rows if row[name] is None] == [1] * 3
    rows = [json.loads(line) for line in cli("score", span_run, *command, "--looks").out.splitlines()]
    assert any(row["attention_word"] for row in rows)


@pytest.mark.parametrize("state", ["line", "carry"])
def test_rows_of_one_line_are_read_as_that_line(cli: Cli, words_run: Path, state: str) -> None:
    lines = [f"{A.title()} {B}, {C} {D}.", f"{D} Zebra {A}", f"{B}"]
    cut = [[A.title(), f"{B}, {C}", f"{D}."], [f" {D} Zebra", A], [B]]
    rows = [{"trial": str(n), "text": text} for n, parts in enumerate(cut) for text in parts]
    how = ("--text", "text", "--state", state, "--eos", "--looks")
    found = read_rows(cli("score", words_run, write("words.csv", rows), *how, "--line", "trial").out)
    whole = read_rows(cli("score", words_run, write("lines.csv", [{"text": text} for text in lines]), *how).out)
    numbers = ["word", "tokens", *NUMBERS, *LOOKS]
    assert [[row[name] for name in numbers] for row in found] == [[row[name] for name in numbers] for row in whole]
    for row in found:
        text = rows[int(row["sentence"]) - 1]["text"]
        assert row["word"] in (text[int(row["start"]) : int(row["end"])], "<eos>")
    ends = [(row["sentence"], row["index"]) for row in found if row["word"] == "<eos>"]
    assert ends == [("3", "2"), ("5", "2"), ("6", "2")]


def test_spaces_around_cells_are_no_text_between_them(cli: Cli, bytes_run: Path) -> None:
    how = ("--text", "text", "--line", "trial")
    rows = [{"trial": "1", "text": text} for text in (f" {A} ", B)]
    spaced = read_rows(cli("score", bytes_run, write("a.csv", rows), *how).done)
    plain = read_rows(cli("score", bytes_run, write("b.csv", [{"trial": "1", "text": x} for x in (A, B)]), *how).done)
    assert [row["surprisal"] for row in spaced] == [row["surprisal"] for row in plain]
    assert [(row["start"], row["end"]) for row in spaced] == [("1", str(1 + len(A))), ("0", str(len(B)))]


def test_an_unknown_word_of_a_joined_line_is_an_error_by_name(cli: Cli, tiny_run: Path) -> None:
    rows = [{"trial": str(n // 2), "text": text} for n, text in enumerate((A, B, "zebra", C))]
    how = ("--text", "text", "--line", "trial", "--oov", "error")
    cli("score", tiny_run, write("a.csv", rows), *how).refused(
        "a.csv, line 4 and the rows of its line: 'zebra'", out=None
    )


def test_a_table_of_looks_by_word_is_joined_to_its_scores(cli: Cli, bytes_run: Path) -> None:
    how = (write("s.csv"), "text")
    attend = ("attend", bytes_run, "--file", how[0], "--column", how[1], "--rows", "words", "--out", "look.csv")
    assert cli(*attend).status == 0
    looked = {(row["sentence"], row["written"]): row["target"] for row in read_rows(Path("look.csv").read_text())}
    scored = read_rows(cli("score", bytes_run, how[0], "--text", how[1], "--eos").done)
    assert looked == {(row["sentence"], row["index"]): row["word"] for row in scored if row["index"] != "1"}


def test_a_file_of_any_bytes_has_scores_by_word(cli: Cli, bytes_run: Path) -> None:
    Path("latin1.txt").write_bytes(b"na\xefve cat\n")
    rows = cli("score", bytes_run, "latin1.txt", "--rows", "words").done.splitlines()
    assert len(rows) == 3


def test_marks_of_toolkits_in_cells_are_left_out_and_move_no_row(cli: Cli, tiny_run: Path) -> None:
    rows = [{"line": "1", "rt": str(rt), "text": word} for rt, word in enumerate(("<s>", A, B, "</s>"))]
    joined = read_rows(cli("score", tiny_run, write("apart.csv", rows), "--text", "text", "--line", "line").done)
    assert [(row["rt"], row["word"]) for row in joined] == [("1", A), ("2", B)]
    for cell in (f"{A} {B}", f"<s> {A} {B} </s>", f"{A} {B} <eos>"):
        marked = cli("score", tiny_run, write("marked.csv", [{"text": cell}]), "--text", "text").done
        assert [row["surprisal"] for row in read_rows(marked)] == [row["surprisal"] for row in joined]


def test_several_runs_as_one_name_their_members(cli: Cli, tiny_run: Path, lstm_run: Path) -> None:
    as_one = ("score", tiny_run, lstm_run, write("s.csv"), "--text", "text", "--combine", "linear")
    assert cli(*as_one, "--weights", 1, 3, "--out", "o.csv").status == 0
    (both,) = json.loads(Path("o.csv.meta.json").read_text())["runs"].values()
    assert both["members"] == [str(tiny_run), str(lstm_run)]
    assert both["model"].endswith("(linear), weights 0.250 0.750")


def test_a_bad_row_is_left_out_by_whatever_reads_tables(cli: Cli, tiny_run: Path) -> None:
    texts = [f'"{A} {B}"', '""', '["a"]', f'"{C} {D}"', '"a <eos> b"', "7", f'"{B} <eos>"']
    Path("s.jsonl").write_text("".join(f'{{"n": {n}, "text": {text}}}\n' for n, text in enumerate(texts, 1)))
    for more in ([], ["--state", "carry"], ["--rows", "tokens"]):
        found = cli("score", tiny_run, "s.jsonl", "--text", "text", "--out", "o.jsonl", *more)
        rows = [json.loads(line) for line in Path("o.jsonl").read_text().splitlines()]
        assert [(row["n"], row["index"]) for row in rows] == [(1, 1), (1, 2), (4, 1), (4, 2), (7, 1)]
        assert "4 rows left out: s.jsonl, line 2: the column text is empty; s.jsonl, line 3: " in found.err
    Path("t.csv").write_text(f'n,text\n1,{A}\n2,<eos>\n3,"{C} {D}"\n')
    found = cli("score", tiny_run, "t.csv", "--text", "text", "--rows", "tokens", "--out", "o.csv")
    assert [row["n"] for row in read_rows(Path("o.csv").read_text())] == ["1", "3", "3"]
    assert "1 row left out: t.csv, line 3: the column text has nothing that the model reads" in found.err
    attend = ("attend", tiny_run, "--file", "s.jsonl", "--column", "text", "--out")
    attended = cli(*attend, "a.csv")
    assert attended.status == 0 and "4 rows left out: s.jsonl, line 2" in attended.err
    assert {row["sentence"] for row in read_rows(Path("a.csv").read_text())} == {"1", "4", "7"}
    cli(*attend, "b.csv", "--strict").refused("line 2")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ([], [0, 1, 2, 2, 0, 0, 0, 1, 1]),
        (["--line", "line"], [0, 1, 2, 2, 3, 0, 0, 1, 1]),
        (["--state", "carry", "--document", "doc"], [0, 1, 2, 2, 3, 3, 0, 1, 1]),
        (["--state", "carry", "--document", "doc", "--line", "line"], [0, 1, 2, 2, 3, 3, 0, 1, 1]),
        (["--state", "carry"], [0, 1, 2, 2, 3, 3, 3, 4, 4]),
    ],
)
def test_unknown_words_before_a_word_are_counted_as_its_context_goes(
    cli: Cli, tiny_run: Path, more: list[str], expected: list[int]
) -> None:
    texts = [("1", "x", f"zebra quux {A} zebra"), ("1", "x", f"{A}"), ("1", "y", f"{B}"), ("2", "y", f"gnu {A} {B}")]
    table = write("s.csv", [{"doc": doc, "line": line, "text": text} for doc, line, text in texts])
    found = cli("score", tiny_run, table, "--text", "text", "--out", "o.csv", *more)
    rows = read_rows(Path("o.csv").read_text())
    assert [int(row["oov_before"]) for row in rows] == expected
    assert "zebra (2), quux (1), gnu (1)" in found.err
    assert "oov_before" in json.loads(Path("o.csv.meta.json").read_text())["columns"]


def test_of_plain_text_rows_of_words_count_unknown_words_before(cli: Cli, tiny_run: Path) -> None:
    Path("t.txt").write_text(f"zebra {A}\n{B}\n\n{C} quux\n{D}\n")
    for state, expected in (("line", "010000"), ("document", "011001"), ("carry", "011112")):
        rows = read_rows(cli("score", tiny_run, "t.txt", "--rows", "words", "--state", state).out, "\t")
        assert "".join(row["oov_before"] for row in rows) == expected, state


def test_the_commonest_names_of_columns_and_rows_that_lie_apart(cli: Cli, tiny_run: Path, lstm_run: Path) -> None:
    rows = [("1", "1", A), ("2", "10", C), ("1", "2", B), ("2", "9", D), ("1", "3", C)]
    table = write("w.csv", [dict(zip(("sentence", "index", "word"), row, strict=True)) for row in rows])
    how = ("score", tiny_run, lstm_run, table, "--text", "word", "--line", "sentence", "--prefix", "lm_")
    found = read_rows(cli(*how, "--order", "index").done)
    whole = read_rows(
        cli("score", tiny_run, lstm_run, write("l.csv", [{"t": f"{A} {B} {C}"}, {"t": f"{D} {C}"}]), "--text", "t").done
    )
    assert list(found[0])[:5] == ["sentence", "index", "lm_run", "lm_sentence", "lm_index"]
    for run in (tiny_run, lstm_run):
        own = [row for row in found if row["lm_run"] == run.name]
        assert [row["lm_surprisal"] for row in own] == [row["surprisal"] for row in whole if row["run"] == run.name]
        assert [row["lm_sentence"] for row in own] == ["1", "3", "5", "4", "2"], "the rows of the file"
    assert "3 rows out of place: w.csv, line 4: sentence=1 comes again" in cli(*how).err
    cli(*how, "--strict", "--out", "o.csv").refused("w.csv, line 4: sentence=1 comes again")
    assert "3 rows out of place: w.csv, line 4: has the sentence of another" in cli(*how, "--order", "sentence").err
    cli(*how[:4], "--text", "word", "--line", "sentence").refused("w.csv: the output has a column sentence", "--prefix")
    Path("p.txt").write_text(f"{A}\n")
    assert cli("score", tiny_run, "p.txt", "--prefix", "lm_").done.startswith("lm_sentence\tlm_index\t")


def test_several_columns_are_a_document(cli: Cli, tiny_run: Path) -> None:
    rows = [("1", "a", A), ("1", "b", B), ("2", "b", C), ("2", "b", D)]
    table = write("d.csv", [dict(zip(("x", "y", "text"), row, strict=True)) for row in rows])
    one = write("e.csv", [{"d": x + y, "text": text} for x, y, text in rows])
    how = ("--text", "text", "--state", "carry", "--document")
    found = [read_rows(cli("score", tiny_run, name, *how, by).out) for name, by in ((table, "x,y"), (one, "d"))]
    assert [row["surprisal"] for row in found[0]] == [row["surprisal"] for row in found[1]]
    again = write("f.csv", [{"d": d, "text": A} for d in "121"])
    assert "f.csv, line 4: d=1 comes again" in cli("score", tiny_run, again, *how, "d").err


def test_what_is_likely_a_mistake_is_noted(cli: Cli, tiny_run: Path) -> None:
    def noted(name: str, *more: str, **columns: str) -> str:
        values = [dict(zip(columns, row, strict=True)) for row in zip(*map(str.split, columns.values()), strict=True)]
        return cli("score", tiny_run, write(name, values), "--text", "text", *more).err

    words, lines = f"{A} {B} {C} {D}", ("--line", "trial")
    assert "--line" in noted("single.csv", trial="1 1 1 1", text=words)
    for more in (lines, ("--rows", "tokens")):
        assert "--line" not in noted("single.csv", *more, trial="1 1 1 1", text=words)
    assert "--line" not in noted("one.csv", "--eos", trial="1", text=A)
    assert "2 rows out of place: apart.csv, line 4: trial=1" in noted("apart.csv", *lines, trial="1 2 1 2", text=words)
    assert "comes again" not in noted("whole.csv", *lines, trial="1 1 2 2", text=words)
    assert "written otherwise: 1 in lower case" in noted("upper.csv", item="1 2", text=f"{A.upper()} zebra")
    assert "otherwise" not in noted("reserved.csv", run="7 7 7", text="zebra <EOS> <UNK>")


# --- reading times: predictors, spillover, regions, layouts, and text without spaces ---


TRIALS = [
    {"trial": trial, "part": part, "rt": rt, "w": word}
    for trial, part, rt, word in [
        ("1", "x", "10", A.title()),
        ("1", "x", "11", f"“{B},"),
        ("1", "y", "12", f"{C} zebra"),
        ("2", "x", "13", D),
        ("2", "y", "14", A),
    ]
]
WORDS_OF_TRIALS = [[A.title(), f"“{B},", C, "zebra"], [D, A]]


def test_predictors_of_a_line_go_on_over_its_rows_and_spillover_ends_with_it(cli: Cli, words_run: Path) -> None:
    how = (words_run, write("w.csv", TRIALS), "--text", "w", "--line", "trial")
    plain = read_rows(cli("score", *how).out)
    found = cli("score", *how, "--predictors", "all", "--spillover", "2", "--eos", "--out", "o.csv")
    assert "the training text of" in found.err and "lacks 1 of the words" in found.err
    rows = read_rows(Path("o.csv").read_text())
    ends, rows = [row for row in rows if row["word"] == "<eos>"], [row for row in rows if row["word"] != "<eos>"]
    assert [{name: row[name] for name in plain[0]} for row in rows] == plain
    words = [*WORDS_OF_TRIALS[0], *WORDS_OF_TRIALS[1]]
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
    how = (tiny_run, lstm_run, write("w.csv", TRIALS), "--text", "w", "--line", "trial", "--predictors")
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


def test_a_reserved_word_in_a_line_costs_its_row_alone(cli: Cli, tiny_run: Path) -> None:
    rows = [("0", A), ("0", "<eos>"), ("0", B), ("1", C)]
    table = write("e.csv", [{"item": item, "word": word} for item, word in rows])
    found = cli("score", tiny_run, table, "--text", "word", "--line", "item", "--out", "o.csv")
    assert "1 row left out: e.csv, line 3: the word <eos> is reserved" in found.err
    whole = read_rows(cli("score", tiny_run, write("w.csv", [{"t": f"{A} {B}"}, {"t": C}]), "--text", "t").done)
    assert [row["surprisal"] for row in read_rows(Path("o.csv").read_text())] == [row["surprisal"] for row in whole]


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
    columns = ("--text", "word", "--line", "sent_nr")
    cli("score", tiny_run, table, *columns, "--repair", "readings").refused("--repair=readings", "Add --order COLUMN")
    cli("score", tiny_run, table, *columns[:2], "--repair", "marks").refused("--repair=marks", "Add --line COLUMN")
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
