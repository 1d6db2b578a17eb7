"""Predictors of reading times: of written words, without a model."""

import math
import subprocess
import sys
from pathlib import Path

import pytest

from spanlm.data.tables import RowNotes
from spanlm.errors import InputError
from spanlm.scoring.predictors import OF_FREQUENCIES, PREDICTORS, Frequencies, inner, predict, spillover

COUNTS = {"The": 3, "the": 1, "cat,": 2, "“don’t": 1, ".": 1, "<unk>": 2, "<eos>": 9}
LINE = ["“The", "cat", "--", "don't", "sleep.”"]


def test_a_word_without_the_punctuation_at_its_edges() -> None:
    words = {"“don’t,”": "don’t", "(well-known)": "well-known", "$4.5": "$4.5", "``a''": "a", "é́.": "é́", "--": ""}
    assert {word: word[slice(*inner(word))] for word in words} == words


def test_a_line_in_columns() -> None:
    names = [name for name in PREDICTORS if name not in OF_FREQUENCIES]
    assert predict(LINE, names) == {
        "length": [3, 3, 0, 5, 5],
        "position": [1, 2, 3, 4, 5],
        "first": [1, 0, 0, 0, 0],
        "last": [0, 0, 0, 0, 1],
        "punctuation_before": [1, 0, 1, 0, 0],
        "punctuation_after": [0, 0, 1, 0, 1],
    }
    assert predict([], names) == {name: [] for name in names}
    assert predict(["a"], ["last", "first"]) == {"last": [1], "first": [1]}


def test_frequencies_of_a_text_sum_spellings_and_count_every_word_but_line_ends() -> None:
    text = Frequencies(COUNTS, "a text")
    known = {"THE": 4, "cat": 2, "don't": 1, ".": 1}
    columns = predict([*known, "zebra"], ["frequency", "unigram"], text, base=2.0)
    # the rarest word has 1 of 10
    expected = [math.log10(1e6 * count / 10) for count in [*known.values(), 1]]
    assert columns["frequency"] == pytest.approx(expected)
    assert columns["unigram"] == pytest.approx([(6 - x) / math.log10(2) for x in expected])
    assert [word in text for word in [*known, "zebra", "unk", "“cat”"]] == [True] * 4 + [False] * 2 + [True]
    with pytest.raises(InputError, match="no word to count"):
        Frequencies({"<eos>": 3}, "a text")


@pytest.mark.parametrize(
    ("unit", "values"),
    [("count", (3, 1)), ("per_million", (30, 10)), ("log10_per_million", (1.5, 0.5)), ("Zipf", (4.5, 3.5))],
)
def test_a_file_says_the_unit_by_its_columns_name(tmp_path: Path, unit: str, values: tuple[float, float]) -> None:
    path = tmp_path / "f.csv"
    path.write_text(f"Word,{unit},CD\ncat,{values[0]},9\nTRUE,{values[1]},9\n")
    per_million = {"count": (7.5e5, 2.5e5), "per_million": (30, 10)}.get(unit, (10**1.5, 10**0.5))
    found = predict(["cat", "true", "zebra"], ["frequency"], Frequencies.of_file(path))["frequency"]
    assert found == pytest.approx([math.log10(x) for x in (*per_million, per_million[1])])


def test_a_bad_row_of_a_file_is_left_out_and_named(tmp_path: Path) -> None:
    path, bad = tmp_path / "f.tsv", RowNotes()
    path.write_text("word\tcount\ncat\t8\ndog\tmany\ncat\t5\nowl\t0\nbat\t-1\nel\tk\tx\nThe\t1\nthe\t1\n")
    frequencies = Frequencies.of_file(path, bad)
    assert frequencies.surprisal("the", 2) == pytest.approx(math.log2(10 / 2))
    assert "dog" not in frequencies and "owl" not in frequencies
    (note,) = bad.lines()
    assert "5 rows left out" in note and f"{path}, line 3: count=many" in note
    assert "word=cat: is in line 2, too. Leave one of them out" in bad.reasons[f"{path}, line 4"]
    with pytest.raises(InputError, match="line 3: count=many: must be a number"):
        Frequencies.of_file(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cat,8\ndog,2\n", "has the columns cat, 8. Name one column word, another count, per_million"),
        ("word,rank\ncat,1\n", "has the columns word, rank. Name"),
        ("word,count\ncat,x\ndog,0\n", "line 2: count=x: must be a number, of words that occur. No row is left"),
        ("word,count\n", "no rows"),
    ],
)
def test_a_file_without_a_row_that_can_be_used(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "f.csv").write_text(text)
    with pytest.raises(InputError, match=r"f\.csv") as raised:
        Frequencies.of_file(tmp_path / "f.csv", RowNotes())
    assert message in str(raised.value) and "\n" not in str(raised.value)


def test_predictors_that_are_not_there() -> None:
    with pytest.raises(InputError, match="predictors=lenght: must be some of length, "):
        predict(LINE, ["lenght"])
    with pytest.raises(InputError, match="predictors=unigram: needs frequencies"):
        predict(LINE, ["unigram"])


def test_spillover_is_of_the_words_before_and_nothing_before_the_line() -> None:
    assert spillover({"length": [3, 0, 5], "surprisal": [1.5, math.inf, 2.5]}, 2) == {
        "length_prev1": [None, 3, 0],
        "surprisal_prev1": [None, 1.5, math.inf],
        "length_prev2": [None, None, 3],
        "surprisal_prev2": [None, None, 1.5],
    }
    assert spillover({"length": [3]}, 3) == {f"length_prev{lag}": [None] for lag in (1, 2, 3)}
    assert spillover({"length": [3]}, 0) == {}


def test_predictors_need_no_torch() -> None:
    code = "import sys, spanlm.scoring.predictors; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
