"""`spanlm pairs`: what it counts is what the model says of each sentence by itself."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest

import spanlm
from tests.cli.conftest import Cli, read_rows
from tests.conftest import TINY_WORDS

A, B, C, D = TINY_WORDS[:4]
PAIRS = [
    {"sentence_good": f"{A} {B} {C}", "sentence_bad": f"{C} {A} {A}", "UID": "order", "at": "3"},
    {"sentence_good": f"{D} {D} {A}", "sentence_bad": f"{A} {B} {C}", "UID": "order", "at": "3"},
    {"sentence_good": f"{A} zebra {C}", "sentence_bad": f"{A} gnu {C}", "UID": "unknown", "at": "2-3"},
]
ARPA = "\\data\\\nngram 1=4\n\n\\1-grams:\n-1\t<unk>\n-99\t<s>\n-0.5\t</s>\n-0.7\ta\n\n\\end\\\n"


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(pair) + "\n" for pair in PAIRS))
    return path


def nats(run: Path, text: str) -> list[float]:
    """-log p of every word and of the line end."""
    return [word.surprisal for word in spanlm.load(run).score(text, base=math.e, eos=True)]


def test_columns_of_a_table_that_answers_would_cover_are_refused(cli: Cli, tiny_run: Path) -> None:
    Path("p.csv").write_text(f"good,bad\n{A} {B},{B} {A}\n")
    how = ("pairs", tiny_run, "p.csv", "--good", "good", "--bad", "bad")
    assert cli(*how).status == 0
    for out in ("o.csv", "o.jsonl"):
        cli(*how, "--out", out).refused("p.csv, line 2", "column good", "--prefix")
        assert not Path(out).exists()
    cli(*how, "--out", "o.csv", "--prefix", "lm_").done  # noqa: B018 (checks)
    assert Path("o.csv").read_text().startswith("good,bad,lm_good,lm_bad,lm_correct,lm_tie,lm_oov\n")


def test_a_table_of_answers_keeps_every_value_in_its_column(cli: Cli, tiny_run: Path) -> None:
    rows: list[dict[str, Any]] = [{**PAIRS[0], "z": 0.1234567890123, "l": ["é"]}, {**PAIRS[1], "l": None, "z": 1e-9}]
    rows[1] = dict(reversed(rows[1].items()))
    Path("p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    cli("pairs", tiny_run, "p.jsonl", "--out", "o.csv").done  # noqa: B018 (checks)
    for row, found in zip(rows, read_rows(Path("o.csv").read_text()), strict=True):
        expected = {name: x if isinstance(x, str) else json.dumps(x, ensure_ascii=False) for name, x in row.items()}
        assert {name: found[name] for name in expected} == expected
    Path("p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (*rows, PAIRS[2])))
    cli("pairs", tiny_run, "p.jsonl", "--out", "o.tsv").refused("p.jsonl, line 3", "other columns")
    assert cli("pairs", tiny_run, "p.jsonl", "--out", "o.jsonl").status == 0


def test_columns_of_a_table_and_an_arpa_file(cli: Cli, tmp_path: Path) -> None:
    with (tmp_path / "p.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("yes", "no", "kind"), ("a a", "b a", "x"), ("b", "a", "y")])
    (tmp_path / "m.arpa").write_text(ARPA)
    command = ("pairs", tmp_path / "m.arpa", tmp_path / "p.csv", "--good", "yes", "--bad", "no", "--by", "kind")
    assert json.loads(cli(*command, "--json").done)["groups"]["x"]["accuracy"] == 1.0
    assert json.loads(cli(*command, "--json").done)["groups"]["y"]["accuracy"] == 0.0


def test_one_bad_row_does_not_cost_the_file(cli: Cli, tiny_run: Path, bytes_run: Path) -> None:
    good = [json.dumps(pair) for pair in PAIRS]
    bad = ["[1]", '{"sentence_good": "a", "sentence_bad": null}', "{", '{"sentence_bad": "b"}']
    bad.append('{"sentence_good": "a <eos> b", "sentence_bad": "b"}')
    good.append(json.dumps({"sentence_good": f"{A} {B} <eos>", "sentence_bad": f"{B} {A} <eos>", "UID": "ends"}))
    same = json.dumps({"sentence_good": f"{A} {B}", "sentence_bad": f"{A}  {B} ", "UID": "a\nb"})
    Path("p.jsonl").write_text("\n".join([bad[0], *good, *bad[1:], same, ""]))
    found = cli("pairs", tiny_run, "p.jsonl", "--out", "o.jsonl", "--json")
    counted, (left, ties) = json.loads(found.out), found.err.splitlines()
    assert counted["left_out"] == len(bad) and f"{len(bad)} rows left out: p.jsonl, line 1: " in left
    assert "1 row counted as a tie: p.jsonl, line 10: " in ties
    Path("q.jsonl").write_text("\n".join([*good, same]))
    assert counted["pairs"] == json.loads(cli("pairs", tiny_run, "q.jsonl", "--json").out)["pairs"]
    uids = [json.loads(line)["UID"] for line in Path("o.jsonl").read_text().splitlines()]
    assert uids == [*(pair["UID"] for pair in PAIRS), "ends", "a\nb"]
    rows = cli("pairs", tiny_run, "q.jsonl").out.split("\n\n")[1].splitlines()
    assert len(rows) == 6, "a row a value, also of one with a line end"
    assert cli("pairs", bytes_run, "q.jsonl").status == 0, "a mark at the end is none of its tokens"
    Path("p.jsonl").write_text("\n".join(bad))
    cli("pairs", tiny_run, "p.jsonl").refused("p.jsonl, line 1", "No row is left")
