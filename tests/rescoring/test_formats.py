"""n-best lists: what each format says, what is written is read again, and what is wrong is named with its place."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlm.errors import InputError
from spanlm.rescoring.formats import (
    TOTAL,
    Format,
    Hypothesis,
    NBestList,
    find_format,
    read_nbest,
    write_nbest,
)
from spanlm.rescoring.references import read_references

MOSES = "0 ||| the cat ||| LM0= -3.5 TM0= -1 -2 ||| -6.5 ||| 0-0 1-1\n0 |||  ||| LM0= -9 TM0= 0 -1 ||| -10\n"
KALDI = "u-1-1 the cat\nu-1-2\nu-2-1 a\n"
FILES: dict[str, tuple[dict[str, str], Format]] = {
    "moses": ({"n.txt": MOSES}, "moses"),
    "kaldi text": ({"n.txt": KALDI}, "kaldi"),
    "kaldi": ({"n/words_text": KALDI, "n/acwt": "u-1-1 3\nu-1-2 4\nu-2-1 5\n", "n/note": "of today\n"}, "kaldi"),
    "srilm": ({"n/u1.nbest": "-10 -2 2 the cat\n-11 -1 0\n", "n/u2": "-1 -1 1 a\n"}, "srilm"),
    "decipher": ({"u1": "NBestList1.0\n(-1000) the cat\n(-1100)\n"}, "srilm"),
    "espnet": (
        {
            "n/1best_recog/text": "u1 the cat\nu2 a\n",
            "n/1best_recog/score": "u1 -1.5\nu2 tensor(-2.5, device='cuda:0')\n",
            "n/2best_recog/text": "u1\n",
            "n/2best_recog/score": "u1 -3\n",
        },
        "espnet",
    ),
    "nemo": ({"n.tsv": "the cat\t-1.5\n\t-2\n"}, "nemo"),
    "jsonl": ({"n.jsonl": '{"id": 7, "hyps": [{"text": "the cat", "score": -1, "am": -2}, '
                          '{"text": "", "score": -3, "am": -4}]}\n'}, "jsonl"),
}  # fmt: skip


def made(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder / next(iter(files)).split("/")[0]


@pytest.mark.parametrize("name", FILES)
def test_format_is_found_and_lists_are_read_and_written_again(name: str, tmp_path: Path) -> None:
    files, expected = FILES[name]
    path = made(tmp_path, files)
    lists, format = read_nbest(path, list_size=2 if expected == "nemo" else None)
    assert format == expected == find_format(path)
    assert [each.text for each in lists[0].hypotheses] == ["the cat", ""]
    again = tmp_path / "again"
    write_nbest(again, format, lists)
    assert read_nbest(again, format, list_size=2)[0] == lists


def test_scores_are_natural_logarithms(tmp_path: Path) -> None:
    def first(name: str) -> dict[str, float]:
        path = made(tmp_path / name, FILES[name][0])
        return read_nbest(path, list_size=2)[0][0].hypotheses[0].scores

    assert first("moses") == {"LM0": -3.5, "TM0": -1.0, "TM0.2": -2.0, TOTAL: -6.5}
    assert first("kaldi") == {"acwt": -3.0}
    assert first("kaldi text") == {}
    assert first("srilm") == pytest.approx({"ascore": -10 * math.log(10), "lscore": -2 * math.log(10)})
    assert first("decipher") == pytest.approx({TOTAL: -102.4})
    assert first("espnet") == {TOTAL: -1.5}
    assert first("jsonl") == {"score": -1.0, "am": -2.0}


def test_ids_and_their_order_are_kept(tmp_path: Path) -> None:
    assert [each.id for each in read_nbest(made(tmp_path, FILES["kaldi"][0]))[0]] == ["u-1", "u-2"]
    names = [each.id for each in read_nbest(made(tmp_path / "s", FILES["srilm"][0]))[0]]
    assert names == ["u1", "u2"]


def test_lists_of_a_folder_come_as_people_count(tmp_path: Path) -> None:
    """References without ids are in this order."""
    path = made(tmp_path, {f"n/utt{n}.nbest": "-1 -1 1 a\n" for n in (10, 2, 1)})
    assert [each.id for each in read_nbest(path)[0]] == ["utt1", "utt2", "utt10"]


@pytest.mark.parametrize(
    ("line", "format"),
    [
        ("utt-1 chapter 5 begins", "kaldi"),
        ("room is 5 metres wide\t-3.2", "nemo"),
        ("1 2 3 go\t-3.2", "nemo"),
        ("-1.5e+02 -.5 1 go", "srilm"),
    ],
)
def test_numbers_among_words_are_no_scores(line: str, format: Format, tmp_path: Path) -> None:
    (tmp_path / "n").write_text(line + "\n")
    assert find_format(tmp_path / "n") == format


def test_every_name_and_digit_is_written(tmp_path: Path) -> None:
    """A run's folder may be called as a further value of a feature would be."""
    scores = {"LM0": -1234.56789, "kn.5": -7.0, "TM0": -1.0, "TM0.2": -2.0, TOTAL: -12345.6789}
    lists = [NBestList("0", (Hypothesis("a", scores),))]
    write_nbest(tmp_path / "n", "moses", lists)
    assert read_nbest(tmp_path / "n", "moses")[0] == lists


def test_words_are_what_stands_between_ascii_white_space(tmp_path: Path) -> None:
    """A no-break space is a part of its word, as everywhere."""
    path = made(tmp_path, {"n.txt": "0 ||| 10\u00a0000  euros\u00a0! ||| LM0= 1 ||| 1\n"})
    (hypothesis,) = read_nbest(path)[0][0].hypotheses
    assert hypothesis.words == ["10\u00a0000", "euros\u00a0!"]


def test_scores_may_come_in_any_order(tmp_path: Path) -> None:
    hyps = '[{"text": "x", "am": 1, "lm": 2}, {"text": "y", "lm": 3, "am": 4}]'
    (found,) = read_nbest(made(tmp_path, {"n.jsonl": f'{{"id": 1, "hyps": {hyps}}}\n'}))[0]
    assert [each.scores for each in found.hypotheses] == [{"am": 1, "lm": 2}, {"am": 4, "lm": 3}]


def test_fields_of_json_that_are_no_scores_are_kept(tmp_path: Path) -> None:
    record = {"id": 7, "ref": "x", "hyps": [{"text": "x", "am": 1.0, "tokens": ["x"], "total": None, "who": "103"}]}
    lists, _ = read_nbest(made(tmp_path, {"n.jsonl": json.dumps(record) + "\n"}))
    assert lists[0].id == "7" and lists[0].hypotheses[0].scores == {"am": 1.0}
    write_nbest(tmp_path / "again.jsonl", "jsonl", lists)
    assert json.loads((tmp_path / "again.jsonl").read_text()) == record
    scored = replace(lists[0].hypotheses[0], scores={"am": 1.0, "total": 2.0})
    write_nbest(tmp_path / "again.jsonl", "jsonl", [replace(lists[0], hypotheses=(scored,))])
    assert json.loads((tmp_path / "again.jsonl").read_text())["hyps"][0]["total"] == 2.0


@pytest.mark.parametrize(
    "files",
    [
        {"n/a": "", "n/.hidden": "", "n/b": "-1 -2 1 x\n"},
        {"n.jsonl": '{"id": "a", "hyps": []}\n{"id": "b", "hyps": [{"text": "x", "ascore": 1, "lscore": 2}]}\n'},
    ],
    ids=["srilm", "jsonl"],
)
def test_a_list_without_hypotheses_has_one_without_words(files: dict[str, str], tmp_path: Path) -> None:
    empty, other = read_nbest(made(tmp_path, files))[0]
    assert (empty.id, other.id) == ("a", "b")
    assert empty.hypotheses == (Hypothesis("", {"ascore": 0.0, "lscore": 0.0}),)


def test_gz(tmp_path: Path) -> None:
    (tmp_path / "n.gz").write_bytes(gzip.compress(MOSES.encode()))
    assert read_nbest(tmp_path / "n.gz")[1] == "moses"


def test_what_is_called_compressed_is_written_so(tmp_path: Path) -> None:
    lists = [NBestList("a", (Hypothesis("x", {TOTAL: -1.0}),))]
    write_nbest(tmp_path / "n.jsonl.gz", "jsonl", lists)
    assert read_nbest(tmp_path / "n.jsonl.gz")[0] == lists


def test_damage_of_a_compressed_list_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(MOSES.encode() * 300)
    for place in range(10, len(whole), 7):
        (tmp_path / "n.gz").write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with pytest.raises(InputError):
            read_nbest(tmp_path / "n.gz", "moses")


@given(st.lists(st.lists(st.text("abÄ'", min_size=1, max_size=3), max_size=4), min_size=1, max_size=5))
def test_jsonl_keeps_every_text(texts: list[list[str]]) -> None:
    import tempfile

    hypotheses = tuple(Hypothesis(" ".join(words), {TOTAL: -float(n)}) for n, words in enumerate(texts))
    with tempfile.TemporaryDirectory() as folder:
        write_nbest(Path(folder) / "n.jsonl", "jsonl", [NBestList("a", hypotheses)])
        assert read_nbest(Path(folder) / "n.jsonl")[0] == [NBestList("a", hypotheses)]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"n.txt": MOSES + "1 ||| a ||| LM0= x TM0= 1 1 ||| 0\n"}, "line 3: the feature LM0 'x'"),
        ({"n.txt": MOSES + "1 ||| a ||| LM0= nan TM0= 1 1 ||| 0\n"}, "not a finite number"),
        ({"n.txt": MOSES + "1 ||| a ||| LM0= 1 ||| 0\n"}, "hypothesis 1 of 1 has the scores LM0, total"),
        ({"n.txt": MOSES + "1 ||| a\n"}, "line 3: .* is not `ID"),
        ({"n.txt": MOSES + MOSES.replace("0 |", "1 |") + MOSES}, "line 5: the id 0 comes again"),
        ({"n.txt": "u-1 a\nu-1 b\n"}, "line 2: u-1 is there twice"),
        ({"n.txt": "u-1 a\nhello b\n"}, "line 2: 'hello' is not an id"),
        ({"n/words_text": "u-1 a\n", "n/acwt": "u-2 3\n"}, "acwt: has no score of u-1"),
        ({"n": "NBestList2.0\n(-1) a ( st: 1 )\n"}, "NBestList2.0 is not read"),
        ({"n.ctm": "u 1 0.0 0.1 a\n"}, "CTM"),
        ({"n.txt": "Call me Ishmael.\n"}, "no known n-best list begins so"),
        ({"n.jsonl": '{"id": 1, "hyps": [{"score": 3}]}\n'}, "line 1: is not"),
        ({"n.jsonl": '{"id": 1, "hyps": ' + "[" * 100_000 + "\n"}, "line 1: is not .*nested"),
        ({"n.jsonl": '{"id": 1, "hyps": [{"text": "\\ud800", "score": 3}]}\n'}, "line 1: is not .*surrogates"),
        ({"n.jsonl": '{"id": 1, "hyps": [{"text": "a", "score": "3"}]}\n'}, "line 1: the score score is '3'"),
        ({"n.jsonl": '{"id": 1, "hyps": []}\n'}, "holds no hypotheses"),
        ({"n.txt": "u-1 a <eos>\n"}, "hypothesis 1 of u has the word <eos>"),
        ({"n.tsv": "a\t-1\nb\t-2\nc\t-3\n"}, "3 lines are no whole number of lists of 2"),
        ({"n.txt": ""}, "no known n-best list"),
        ({"n/1best_recog/text": "u1 a\n", "n/1best_recog/score": "u2 1\n"}, "has no score of u1"),
    ],
)
def test_what_is_wrong_is_named(files: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read_nbest(made(tmp_path, files), list_size=2)


def test_nemo_needs_the_size_of_its_lists(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="list_size"):
        read_nbest(made(tmp_path, FILES["nemo"][0]))


LISTS = [NBestList("u1", (Hypothesis("a"),)), NBestList("u2", (Hypothesis("b"),))]


@pytest.mark.parametrize("text", ["u2 c d\nu1 a b\n", "c d (u2)\na b (u1)\n", "a b\nc d\n"])
def test_references(text: str, tmp_path: Path) -> None:
    (tmp_path / "r").write_text(text)
    assert read_references(tmp_path / "r", LISTS) == [["a", "b"], ["c", "d"]]


@pytest.mark.parametrize("text", ["U1 a b\nU2 c d\n", "a b (spk-u1)\nc d (spk-u2)\n", "u1.wav a b\nu2.wav c d\n"])
def test_ids_that_are_nearly_those_of_the_lists_are_no_words(text: str, tmp_path: Path) -> None:
    (tmp_path / "r").write_text(text)
    with pytest.raises(InputError, match=r"its lines have ids, such as .*, and these are not the lists', such as u1"):
        read_references(tmp_path / "r", LISTS)


def test_words_that_begin_with_a_number_are_words_of_lists_that_are_numbered(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("10 men came\n")
    assert read_references(tmp_path / "r", [NBestList("0", (Hypothesis("a"),))]) == [["10", "men", "came"]]


def test_lists_of_kaldi_come_by_their_numbers(tmp_path: Path) -> None:
    """Its files are sorted by key, utt-10 before utt-2."""
    (tmp_path / "n.txt").write_text("".join(f"utt-{n} w{n}\n" for n in sorted(range(1, 13), key=str)))
    (found,), _ = read_nbest(tmp_path / "n.txt")
    assert [each.text for each in found.hypotheses] == [f"w{n}" for n in range(1, 13)]


@pytest.mark.parametrize("text", ["-10 -2 4 <s> the cat </s>\n", "NBestList1.0\n(-1000) <s> the cat </s>\n"])
def test_marks_of_a_lattices_ends_are_no_words(text: str, tmp_path: Path) -> None:
    (tmp_path / "u1").write_text(text)
    (found,), _ = read_nbest(tmp_path / "u1", "srilm")
    assert found.hypotheses[0].text == "the cat"


@pytest.mark.parametrize(
    ("text", "message"),
    [("u1 a\nu3 b\n", "no reference of u2"), ("a\n", "1 lines for 2 lists"), ("u1 a\nu1 b\nu2 c\n", "line 2: u1")],
)
def test_references_that_do_not_fit(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "r").write_text(text)
    with pytest.raises(InputError, match=message):
        read_references(tmp_path / "r", LISTS)
