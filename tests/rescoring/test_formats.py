"""n-best lists: what each format says, what is written is read again, and what is wrong is named with its place."""

import gzip
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from spanlm.errors import InputError
from spanlm.rescoring.formats import TOTAL, Format, Hypothesis, NBestList, find_format, read_nbest, write_nbest

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
    for again in (tmp_path / "again", tmp_path / "again.gz"):
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


def test_a_name_that_moses_could_not_read_is_written_without_spaces(tmp_path: Path) -> None:
    write_nbest(tmp_path / "n", "moses", [NBestList("0", (Hypothesis("a b", {"my run ||| x=": -1.5, "d": 2.0}),))])
    (found,), _ = read_nbest(tmp_path / "n", "moses")
    assert found.hypotheses[0].text == "a b" and found.hypotheses[0].scores["my_run_x_"] == -1.5


def test_every_name_and_digit_is_written(tmp_path: Path) -> None:
    """A run's folder may be called as a further value of a feature would be."""
    scores = {"LM0": -1234.56789, "kn.5": -7.0, "TM0": -1.0, "TM0.2": -2.0, TOTAL: -12345.6789}
    lists = [NBestList("0", (Hypothesis("a", scores),))]
    write_nbest(tmp_path / "n", "moses", lists)
    assert read_nbest(tmp_path / "n", "moses")[0] == lists


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


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"n.txt": MOSES + "1 ||| a ||| LM0= x TM0= 1 1 ||| 0\n"}, "line 3: the feature LM0 'x'"),
        ({"n.txt": "1 ||| a ||| LM0= 1 LM0= 2 ||| 0\n"}, "line 1: the feature LM0 is there twice"),
        ({"n.jsonl": '{"id": 1, "hyps": [{"text": "a", "am": 1, "am": 2}]}\n'}, "line 1: .*am twice"),
        ({"n/words_text": "u-1 a\n", "n/acwt": "u-1 3\nu-1 4\n"}, "acwt, line 2: u-1 is there twice"),
        ({"n/u1.nbest": "-1 -1 1 a\n", "n/u1.score.gz": ""}, "another file of u1"),
        ({"n.txt": MOSES + "1 ||| a ||| LM0= 1 ||| 0\n"}, "hypothesis 1 of 1 has the scores LM0, total"),
        ({"n.txt": MOSES + "1 ||| a\n"}, "line 3: .* is not `ID"),
        ({"n.txt": MOSES + MOSES.replace("0 |", "1 |") + MOSES}, "line 5: the id 0 comes again"),
        ({"n.txt": "u-1 a\nhello b\n"}, "line 2: 'hello' is not an id"),
        ({"n/words_text": "u-1 a\n", "n/acwt": "u-2 3\n"}, "acwt: has no score of u-1"),
        ({"n": "NBestList2.0\n(-1) a ( st: 1 )\n"}, "NBestList2.0 is not read"),
        ({"n.ctm": "u 1 0.0 0.1 a\n"}, "CTM"),
        ({"n.txt": "Call me Ishmael.\n"}, "no known n-best list begins so"),
        ({"n.jsonl": '{"id": 1, "hyps": [{"text": "a", "score": "3"}]}\n'}, "line 1: the score score is '3'"),
        ({"n.jsonl": '{"id": 1, "hyps": []}\n'}, "holds no hypotheses"),
        ({"n.txt": "u-1 a <eos>\n"}, "hypothesis 1 of u has the word <eos>"),
        ({"n.tsv": "a\t-1\nb\t-2\nc\t-3\n"}, "3 lines are no whole number of lists of 2"),
        ({"n.tsv": "a\t-1\nb\t-2\n"}, "list_size"),
    ],
)
def test_what_is_wrong_is_named(files: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read_nbest(made(tmp_path, files), list_size=None if message == "list_size" else 2)


@pytest.mark.parametrize("text", ["-10 -2 4 <s> the cat </s>\n", "NBestList1.0\n(-1000) <s> the cat </s>\n"])
def test_marks_of_a_lattices_ends_are_no_words(text: str, tmp_path: Path) -> None:
    (tmp_path / "u1").write_text(text)
    (found,), _ = read_nbest(tmp_path / "u1", "srilm")
    assert found.hypotheses[0].text == "the cat"


GOOD, BAD = "u ||| a ||| LM= -1 ||| -1\n", "u ||| b ||| LM= x ||| -2\n"


@pytest.mark.parametrize(
    ("files", "texts", "place"),
    [
        ({"n.txt": GOOD + BAD + GOOD.replace("a", "c")}, ["a", "c"], "line 2"),
        ({"n.txt": GOOD + "half a row\n" + GOOD.replace("a", "c")}, ["a", "c"], "line 2"),
        ({"n.txt": GOOD + GOOD.replace("a", "a <eos>")}, ["a"], "hypothesis 2 of u"),
        ({"n/text": "u-1 a\nu-2 b\nu-3 c\n", "n/am": "u-1 -1.5\nu-2 x\nu-3 -2\n"}, ["a", "c"], "am, line 2"),
        ({"n/text": "u-1 a\nu-2 b\n", "n/acwt": "u-1 1\n"}, ["a"], "acwt: has no score of u-2"),
        ({"n/u": "-1 -1 1 a\n-1 x 1 b\n"}, ["a"], "line 2"),
        ({"u": "NBestList1.0\n(-100) a\n(x) b\n"}, ["a"], "line 3"),
        ({"n.tsv": "a\t-1\nb\t1_0\nc\t-1\nd\t-1\n"}, ["a"], "line 2"),
        (
            {
                "n/1best_recog/text": "u a\nv a\n",
                "n/1best_recog/score": "u -1\nv -1\n",
                "n/2best_recog/text": "u b\n",
                "n/2best_recog/score": "u x\n",
            },
            ["a"],
            "score, line 1",
        ),
        ({"n.jsonl": '{"id": "u", "hyps": [{"text": "a", "am": 1}, {"text": "b"}]}\n'}, ["a"], "hypothesis 2 of u"),
        ({"n.jsonl": '{"id": "u", "hyps": [{"text": "a", "score": 1}, {"text": "b", "score": "x"}]}'}, ["a"], "line 1"),
    ],
)
def test_a_bad_row_is_named_and_left_out_or_refused(
    files: dict[str, str], texts: list[str], place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = made(tmp_path, files)
    with caplog.at_level("INFO"):
        found = read_nbest(path, list_size=2)[0][0]
    assert [each.text for each in found.hypotheses] == texts
    assert place in caplog.text and "1 of " in caplog.text
    with pytest.raises(InputError, match=place):
        read_nbest(path, list_size=2, strict=True)


@pytest.mark.parametrize(
    "text",
    [GOOD + BAD.replace("u", "v"), BAD, GOOD + BAD * 2, "u ||| a ||| -1\nv ||| b ||| -2\n"],
    ids=["a list lost", "all", "most", "columns"],
)
def test_bad_rows_that_leave_no_list_or_few_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line"):
        read_nbest(made(tmp_path, {"n.txt": text}), "moses")


@pytest.mark.parametrize(
    ("keys", "ids"),
    [
        (["1089-134686-0000", "1089-134686-0001", "1089-134687-0000"], None),
        (["a-0000", "b-0000"], None),
        (["s-1", "s-2", "t-3", "t-7"], None),
        (["u-2"], None),
        (["u-1", "u-2", "u-10", "v-1", *(f"u-{n}" for n in range(3, 10))], ["u", "v"]),
        (["u-0", "u-1", "v-0"], ["u", "v"]),
        (["2020-01-1", "2020-01-2"], ["2020-01"]),
    ],
)
def test_numbers_after_ids_are_ranks_only_if_they_run_from_0_or_1(
    keys: list[str], ids: list[str] | None, tmp_path: Path
) -> None:
    scores = "".join(f"{key} -{place}.5\n" for place, key in enumerate(keys))
    texts = "".join(f"{key} w {place}\n" for place, key in enumerate(keys))
    found = read_nbest(made(tmp_path, {"n/text": texts, "n/score": scores}))[0]
    assert [each.id for each in found] == (keys if ids is None else ids)
    if "u-10" in keys:  # the file is sorted by its keys, u-10 before u-2
        assert found[0].hypotheses[-1].text == f"w {keys.index('u-10')}"
    assert sum(len(each.hypotheses) for each in found) == len(keys)


def test_files_beside_the_texts_of_kaldi_that_are_no_scores(tmp_path: Path) -> None:
    files = {"words_text": "u-1 yes\nu-2 no\n", "words_int": "u-1 57\nu-2 41\n", "acwt": "u-1 10\nu-2 11\n"}
    files |= {"am": "u-1 tensor(-1.5, device='cpu')\nu-2 -2\n", "utt2dur": "u-1 1.5\nu-2 2.5\n", ".DS_Store": "\0"}
    (found,) = read_nbest(made(tmp_path, {f"n/{name}": text for name, text in files.items()}))[0]
    assert found.hypotheses[0].scores == {"acwt": -10.0, "am": -1.5}


@pytest.mark.parametrize(
    ("features", "scores"),
    [
        ("LM0= -1 WT_a~b= 2", {"LM0": -1.0, "WT_a~b": 2.0}),
        ("LM0=-1 WT_a=b= 2 Glue=.5", {"LM0": -1.0, "WT_a=b": 2.0, "Glue": 0.5}),
        ("lm: -1 tm: -2 -3", {"lm": -1.0, "tm": -2.0, "tm.2": -3.0}),
    ],
)
def test_features_of_moses_joshua_and_cdec(features: str, scores: dict[str, float], tmp_path: Path) -> None:
    lists = read_nbest(made(tmp_path, {"n.txt": f"0 ||| a ||| {features} ||| -3\n0 ||| b ||| {features} ||| -3\n"}))[0]
    assert lists[0].hypotheses[1].scores == {**scores, TOTAL: -3.0}


def test_a_sparse_feature_may_be_absent(tmp_path: Path) -> None:
    text = MOSES + "1 ||| x ||| LM0= -1 TM0= -1 -2 WT_x~y= 1 ||| -4 ||| 0-0\n"
    path = made(tmp_path, {"n.txt": text})
    lists = read_nbest(path, strict=True)[0]
    write_nbest(tmp_path / "again", "moses", lists)
    assert read_nbest(tmp_path / "again")[0] == lists and "WT_x~y" not in lists[0].hypotheses[0].scores


def test_names_of_lists_of_srilm_and_hidden_files(tmp_path: Path) -> None:
    """In the order in which people count: references without ids are in it."""
    names = ["u10.score", "u2.nbest", "u3", "u4.5", ".DS_Store", "._u1.score"]
    path = made(tmp_path, {f"n/{name}": "-1 -1 1 a\n" for name in names})
    for name in ("u6.score.gz", "u7.nbest.gz"):
        (path / name).write_bytes(gzip.compress(b"-1 -1 1 a\n"))
    assert [each.id for each in read_nbest(path)[0]] == ["u2", "u3", "u4.5", "u6", "u7", "u10"]
