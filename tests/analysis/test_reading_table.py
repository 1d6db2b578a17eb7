"""Tables of reading times: their texts, what is left out, and the surprisal of their words."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import spanlm
from spanlm.analysis.reading_surprisal import context_of, surprisals
from spanlm.analysis.reading_table import ReadingTable, choose_readings, read_times
from spanlm.data.tables import RowNotes
from spanlm.errors import InputError
from spanlm.scoring.options import ReadingOptions
from tests.conftest import TINY_WORDS

A, B, C, D = TINY_WORDS[:4]


def table(
    tmp_path: Path, text: str, odd: RowNotes | None = None, layout: str | None = None, **options: Any
) -> ReadingTable:
    path = tmp_path / "times.csv"
    path.write_text(text, encoding="utf-8")
    settings = ReadingOptions(**({} if layout else {"response": "RT"}) | options)
    odd = RowNotes(strict=True) if odd is None else odd
    return read_times(path, settings, layout, RowNotes(strict=True), odd, RowNotes(strict=None))[0]


def test_a_word_keeps_its_place_if_readers_skip_it(tmp_path: Path) -> None:
    rows = (
        "item,line,n,word,who,RT\n1,1,1,a,x,100\n1,1,3,c,x,300\n1,2,1,d,x,400\n1,1,2,b,y,\n1,1,1,a,y,NA\n2,1,1,e,y,0\n"
    )
    odd = RowNotes()
    read = table(tmp_path, rows, odd, line="line", order="n", subject="who")
    assert [(word.text, word.item, word.line) for word in read.words] == [
        ("a", 0, 0),
        ("b", 0, 0),
        ("c", 0, 0),
        ("d", 0, 1),
        ("e", 1, 2),
    ]
    found = {
        (read.words[of].text, read.subjects[by]): time
        for of, by, time in zip(read.places, read.readers, read.times, strict=True)
    }
    assert found[("c", "x")] == 300 and found[("e", "y")] == 0 and math.isnan(found[("b", "y")])
    assert not odd.reasons


def test_a_bad_row_costs_itself_alone(tmp_path: Path) -> None:
    rows = "item,n,word,who,RT\n1,1,a,x,100\n1,2,b,x,2OO\n1,1,a,y,100\n1,1,z,z,100\n1,2,b,y,200\n1,2,b,y,201\n"
    odd = RowNotes()
    read = table(tmp_path, rows, odd, order="n", subject="who")
    assert [word.text for word in read.words] == ["a", "b"] and len(read.times) == 4
    assert [place.rpartition(" ")[2] for place in odd.reasons] == ["3", "5", "7"]
    assert "RT=2OO is no number" in next(iter(odd.reasons.values()))
    with pytest.raises(InputError, match="line 3: RT=2OO is no number"):
        table(tmp_path, rows, order="n", subject="who")


def test_numbers_that_could_not_be_squared_are_missing(tmp_path: Path) -> None:
    rows = "item,n,word,RT,own\n1,1,a,inf,1\n1,2,b,1e200,-1e300\n1,3,c,5,\n1,4,d,6,x\n"
    odd = RowNotes()
    read = table(tmp_path, rows, odd, order="n", baseline="own")
    assert np.isnan(read.times).tolist() == [True, True, False, False]
    assert [word.numbers[0] for word in read.words] == pytest.approx([1, math.nan, math.nan, math.nan], nan_ok=True)
    assert [reason for reason in odd.reasons.values()] == [
        "RT=inf is beyond 1e+100",
        "own=-1e300 is beyond 1e+100",
        "own=x is no number",
    ]


def test_a_predictor_is_the_word_s_and_not_a_reader_s(tmp_path: Path) -> None:
    rows = "item,n,word,who,RT,own\n1,1,a,x,1,\n1,1,a,y,2,7\n1,2,b,x,3,8\n"
    options = {"order": "n", "subject": "who", "baseline": "own"}
    assert [word.numbers for word in table(tmp_path, rows, **options).words] == [(7,), (8,)]
    with pytest.raises(
        InputError, match=r"baseline=own: must be the word's.* 'b' has 9 in .*line 5 and 8 in another row"
    ):
        table(tmp_path, rows + "1,2,b,y,4,9\n", **options)


def test_the_order_of_rows_changes_nothing(tmp_path: Path) -> None:
    rows = [f"{item},{n},{word},{n}" for item in ("b", "c", "a") for n, word in enumerate(f"uvwxyz{item}", 1)]
    one, other = (
        table(tmp_path, "item,n,word,RT\n" + "\n".join(part) + "\n", order="n") for part in (rows, rows[::-1])
    )
    assert one.words == other.words and one.items == other.items == ("a", "b", "c")
    assert one.times[np.argsort(one.places)].tolist() == other.times[np.argsort(other.places)].tolist()


def test_rows_that_come_twice_are_no_longer_text(tmp_path: Path) -> None:
    rows = "".join(f"1,{word},{n}\n" for n, word in enumerate("abcde"))
    assert len(table(tmp_path, f"item,word,RT\n{rows}").words) == 5
    with pytest.raises(
        InputError, match=r"item 1 has its 5 words twice, the second time from .*line 7 on. Leave one out"
    ):
        table(tmp_path, f"item,word,RT\n{rows}{rows}")


def test_two_versions_of_an_article_are_one_item_and_two_contexts(tmp_path: Path) -> None:
    header = (
        "participant_id,IA_FIRST_RUN_DWELL_TIME,article_batch,article_id,difficulty_level,paragraph_id,IA_ID,IA_LABEL"
    )
    rows = [
        f"{who},{200 + n},1,{article},{level},{paragraph},{n},{word}"
        for who, level in (("x", "Adv"), ("y", "Ele"))
        for article in (2, 1)
        for paragraph in (10, 9)
        for n, word in enumerate(f"{level} says this".split(), 1)
    ]
    read = table(tmp_path, "\n".join([header, *rows]) + "\n", layout="onestop")
    assert read.items == ("1,1", "1,2") and len(read.words) == 24 and len(read.lines) == 8
    assert [read.words[line[0]].item for line in read.lines] == [0] * 4 + [1] * 4
    assert [read.words[line[0]].context for line in read.lines] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [read.words[line[0]].text for line in read.lines] == ["Adv", "Adv", "Ele", "Ele"] * 2


def test_without_places_the_readers_of_an_item_read_the_same(tmp_path: Path) -> None:
    rows = "item,word,who,RT\n1,a,x,1\n1,b,x,2\n1,a,y,3\n1,b,y,4\n"
    assert [word.text for word in table(tmp_path, rows, subject="who").words] == ["a", "b"]
    skipped = rows.replace("1,a,y,3\n", "")
    with pytest.raises(InputError, match=r"line 4: item 1 has 'b' where .* has 'a'. Name .* place by order"):
        table(tmp_path, skipped, subject="who")
    twice = "item,n,word,RT\n1,1,a,1\n1,1,a,2\n1,2,b,2\n"
    with pytest.raises(InputError, match=r"line 3: 'a' has the place of .*line 2. Name .* readers by subject"):
        table(tmp_path, twice, order="n")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (
            {"response": None},
            "has the columns item, word, who, RT; say by response=COLUMN which holds the reading time",
        ),
        ({"item": "text"}, "line 2: no column text. .*There are: item, word, who, RT"),
        ({"subject": "RT"}, "subject=RT: has 10 values in 10 rows, so that it is no reader"),
        ({"subjects": "random"}, "subjects=random: needs to know who read. Add subject=COLUMN"),
        (
            {"baseline": "length,freq"},
            "baseline=freq: must be some of length, .* or a column of .*, item, word, who, RT",
        ),
        ({"order": "word"}, "word=a0: must be a number: it is of --order"),
        ({"exclude": "edge"}, "exclude=edge: must be none, or some of skipped, edges, outliers, unknown"),
    ],
)
def test_columns_that_do_not_fit(tmp_path: Path, options: dict[str, Any], error: str) -> None:
    with pytest.raises(InputError, match=error):
        table(tmp_path, "item,word,who,RT\n" + "".join(f"{n // 5},a{n},x,{n}\n" for n in range(10)), **options)


def test_a_published_layout_names_the_columns(tmp_path: Path) -> None:
    rows = "WorkerId,item,zone,word,RT\nx,1,1,If,300\nx,1,2,you,310\ny,1,1,If,280\ny,1,2,You,290\nz,1,2,you,290\n"
    odd = RowNotes()
    read = table(tmp_path, rows, odd, "natural-stories")
    assert [word.text for word in read.words] == ["If", "you"] and read.subjects == ("x", "y", "z")
    assert len(read.times) == 4 and len(odd.reasons) == 1, "a reading of another word is left out, and noted"
    with pytest.raises(InputError, match="zone"):
        table(tmp_path, rows.replace("zone", "place"), None, "natural-stories")


def test_a_line_that_is_named_beside_a_layout_is_within_its_texts(tmp_path: Path) -> None:
    rows = "WorkerId,item,zone,word,RT,sent\nx,1,1,If,300,1\nx,1,2,you,310,2\nx,2,1,We,280,1\n"
    read = table(tmp_path, rows, None, "natural-stories", line="sent")
    assert read.items == ("1", "2") and [word.line for word in read.words] == [0, 1, 2]


def words(tmp_path: Path, lines: list[str], items: list[int] | None = None, own: str = "") -> ReadingTable:
    rows = ["item,line,word,RT,own"]
    for number, line in enumerate(lines):
        item = number if items is None else items[number]
        rows += [f"{item},{number},{word},{100 + 10 * at},{own or at}" for at, word in enumerate(line.split())]
    return table(tmp_path, "\n".join(rows) + "\n", line="line", item="item", baseline="length,own")


def test_spillover_does_not_cross_a_line(tmp_path: Path) -> None:
    read = words(tmp_path, ["a bb ccc", "dddd e"], [1, 1])
    with pytest.raises(InputError, match="frequency"):
        read.predictors(ReadingOptions(), None)
    columns = words(tmp_path, ["a bb ccc", "dddd e"], [1, 1]).predictors(
        ReadingOptions(baseline="length,own", spillover=1), None
    )
    assert columns["length"].tolist() == [1, 2, 3, 4, 1] and columns["own"].tolist() == [0, 1, 2, 0, 1]
    assert columns["length_prev1"] == pytest.approx([math.nan, 1, 2, math.nan, 4], nan_ok=True)
    placed = ReadingOptions(baseline="position,own", spillover=1)
    assert "position_prev1" not in read.predictors(placed, None), "it would be the position itself"
    spilled = read.spilled(np.arange(5.0), 2)
    expected = [[0, None, None], [1, 0, None], [2, 1, 0], [3, None, None], [4, 3, None]]
    assert spilled == pytest.approx(np.array(expected, float), nan_ok=True)


def test_what_is_left_out_is_counted_once(tmp_path: Path) -> None:
    rows = ["item,n,word,who,RT"]
    for who in ("x", "y"):
        for at, time in enumerate([100, 110, 0, "", 105, *[100 + n % 7 for n in range(20)], 2_000, 101], 1):
            rows.append(f"1,{at},w{at},{who},{time}")
    read = table(tmp_path, "\n".join(rows) + "\n", order="n", subject="who")
    unknown, complete = np.zeros(27, bool), np.arange(27) >= 2
    unknown[10] = True
    kept, left_out = choose_readings(read, ReadingOptions(exclude="skipped,edges,outliers,unknown"), unknown, complete)
    counts = [count for count in left_out.values() if count]
    assert counts == [2, 2, 2, 2, 2, 2, 2] and len(kept) == 54 - sum(counts)
    assert next(iter(left_out)) == "without a time" and [*left_out][-1] == "beyond 3 SD of the subject's mean"
    kept, _ = choose_readings(read, ReadingOptions(exclude="none", spillover=0), unknown, np.ones(27, bool))
    assert len(kept) == 52, "without a time nothing can be fit"
    with pytest.raises(InputError, match=r"exclude=none: leaves none of 54 readings. 2 without a time, 52 "):
        choose_readings(read, ReadingOptions(exclude="none"), unknown, ~complete & complete)


# --- surprisal ---

LINES = [f"{A} {B} {C} {D} {A}", f"zebra {B} {C}", f"{D} {C} {B} {A}"]


def test_each_word_has_its_surprisal_in_its_context(tmp_path: Path, tiny_run: Path) -> None:
    model, read = spanlm.load(tiny_run), words(tmp_path, LINES, [1, 1, 2])
    assert context_of(model) == "document"
    alone = [word.surprisal for line in LINES for word in model.score(line)]
    assert surprisals(model, read, "line").bits == pytest.approx(alone)
    carried = [word.surprisal for text in ("\n".join(LINES[:2]), LINES[2]) for word in model.score(text, state="carry")]
    found = surprisals(model, read, "document")
    assert found.bits == pytest.approx(carried) and carried != pytest.approx(alone)
    assert found.unknown.tolist() == [False] * 5 + [True] + [False] * 6
    items = words(tmp_path, LINES)  # each an item of one line
    for whole in (surprisals(model, items, "document"), surprisals(model, items, "document", 99)):
        assert whole.bits == pytest.approx(alone, rel=1e-4)


def test_a_cell_of_several_words_has_their_sum(tmp_path: Path, words_run: Path) -> None:
    model = spanlm.load(words_run)
    read = table(tmp_path, f'item,word,RT\n1,"{A} {B}",1\n1,{C}-{D}.,2\n1,{A},3\n')
    scores = next(iter(model.score_items([f"{A} {B} {C}-{D}. {A}"])))
    first, second, *rest = (word.surprisal for word in scores)
    for found in (surprisals(model, read, "line"), surprisals(model, read, "line", 99)):
        assert found.bits == pytest.approx([first + second, *rest], rel=1e-5)


@pytest.mark.parametrize("run", ["tiny_run", "sentence_run", "unopened_run"])
def test_a_long_window_is_the_whole_context(tmp_path: Path, run: str, request: pytest.FixtureRequest) -> None:
    model = spanlm.load(request.getfixturevalue(run))
    read, context = words(tmp_path, LINES, [1, 1, 2]), context_of(model)
    whole, cut = surprisals(model, read, context), surprisals(model, read, context, 99)
    assert cut.bits == pytest.approx(whole.bits, rel=1e-4, nan_ok=True)
    assert (cut.unknown == whole.unknown).all() and np.isnan(whole.bits).any() == (run == "unopened_run")


@pytest.mark.parametrize("context", ["line", "document"])
def test_sentences_of_one_line_have_the_context_of_the_model(tmp_path: Path, sentence_run: Path, context: Any) -> None:
    """One item of a line is read as items of several are; a window never goes further back than the context."""
    model, two = spanlm.load(sentence_run), f"{A} {B} . {C.title()} {D} ."
    one = words(tmp_path, [two], [1])
    beside = words(tmp_path, [two, A, B], [1, 2, 2])
    whole = surprisals(model, one, context)
    assert whole.bits == pytest.approx(surprisals(model, beside, context).bits[:6])
    assert surprisals(model, one, context, 99).bits == pytest.approx(whole.bits, rel=1e-4)
    alone = [word.surprisal for sentence in (f"{A} {B} .", f"{C.title()} {D} .") for word in model.score(sentence)]
    assert (whole.bits == pytest.approx(alone)) == (context == "line")


def test_a_window_of_words_is_read_from_an_empty_state(tmp_path: Path, tiny_run: Path) -> None:
    model, read = spanlm.load(tiny_run), words(tmp_path, LINES, [1, 1, 2])
    found = surprisals(model, read, "document", 2)
    ids = model.vocabulary.encode(["<eos>", *LINES[0].split(), "<eos>", *LINES[1].split()])
    for at, number in ((3, 2), (7, 5), (8, 6)):  # a place in the stream, and the number of its word
        network: Any = model.model
        with torch.no_grad():
            log_probs, _ = network.log_probs(torch.tensor([[ids[at - 2]], [ids[at - 1]]]), network.init_state(1))
        assert found.bits[number] == pytest.approx(-float(log_probs[-1, 0, ids[at]]) / math.log(2), rel=1e-4)


def test_sub_words_have_no_windows(tmp_path: Path, bytes_run: Path) -> None:
    model, read = spanlm.load(bytes_run), words(tmp_path, LINES)
    assert np.isfinite(surprisals(model, read, "line").bits).all()
    with pytest.raises(InputError, match=r"windows=2: .* reads bytes, and a window is cut between words"):
        surprisals(model, read, "line", 2)
