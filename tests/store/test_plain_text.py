"""No text is markup or a formula, and none is changed on the way."""

import csv
import io
import re

from hypothesis import given
from hypothesis import strategies as st

from spanlm.analysis.export import csv_bytes
from spanlm.store.plain import cells_line, grids_bytes, markdown_table, visible

UNESCAPED = r"(?<!\\)(?:\\\\)*[{}]"
NASTY = st.text(alphabet="|`<>*_[]()&~\\\"'=+-@ab\n\r\t\x1b\u202e\u2028é,") | st.text()
WORD = NASTY.map(lambda text: "".join(text.split())).filter(bool)


@given(NASTY, NASTY)
def test_a_cell_of_a_markdown_table_is_text(one: str, two: str) -> None:
    lines = markdown_table(["name", one], [[two, one]]).split("\n")
    assert [len(re.findall(UNESCAPED.format("|"), line)) for line in lines] == [3, 3, 3]
    assert not any(re.search(UNESCAPED.format("`<>*~&"), line) for line in lines)
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202e]", lines[2])
    plain = re.sub(r"\\([\\`*<>|~&\]_])", r"\1", lines[2])
    assert plain == f"| {visible(' '.join(two.split()))} | {visible(' '.join(one.split()))} |"


@given(NASTY, NASTY)
def test_a_cell_of_a_latex_table_is_text(one: str, two: str) -> None:
    lines = grids_bytes([(["name", one], [[two, one]], None)], ".tex").decode().split("\n")
    assert [lines[n] for n in (0, 1, 3, 5, 6)] == [
        r"\begin{tabular}{lr}",
        *(r"\toprule", r"\midrule", r"\bottomrule", r"\end{tabular}"),
    ]
    assert len(re.findall(r"(?<!\\)&", lines[4])) == 1 and lines[4].endswith(r" \\") and len(lines) == 8
    assert not re.search(r"(?<!\\)[%#_]", lines[4])


def test_special_characters_of_latex() -> None:
    cell = r"50 % of a_b & #1 {$x^2~} \ <unk> θ_M −3 1–2 [x]"
    wanted = r"50 \% of a\_b \& \#1 \{\$x\textasciicircum{}2\textasciitilde{}\} \textbackslash{} "
    wanted += r"\textless{}unk\textgreater{} $\theta$\_M $-$3 1--2 {[}x] \\"
    assert wanted in grids_bytes([([""], [[cell]], None)], ".tex").decode().splitlines()


@given(st.lists(WORD, min_size=1, max_size=4), st.floats(allow_nan=False))
def test_a_word_is_read_as_it_was_and_never_as_a_formula(words: list[str], number: float) -> None:
    for line, delimiter in ((cells_line([*words, number]), "\t"), (csv_bytes([(*words, number)]).decode("utf-8"), ",")):
        (row,) = csv.reader(io.StringIO(line, newline=""), delimiter=delimiter)
        assert row == [*(word.encode("utf-8", "replace").decode() for word in words), str(number)]
        assert line.startswith('"') or words[0][0] not in "=+-@" or delimiter == "\t"


def test_a_column_of_numbers_stays_one() -> None:
    assert cells_line(["-", "-LRB-", "10,000", 'a"b', -0.5, 3]) == '-\t-LRB-\t10,000\t"a""b"\t-0.5\t3\n'
    assert cells_line(["=1+1", "", -0.5], ",") == '"=1+1",,-0.5\n'
    assert csv_bytes([("-5", -5)]) == b'"-5",-5\n'
