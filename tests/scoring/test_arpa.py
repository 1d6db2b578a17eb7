"""ARPA files and the models in them, against golden values of KenLM and a model in plain dictionaries."""

import bz2
import gzip
import itertools
import math
import random

import numpy as np
import pytest

from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError, RunError
from spanlm.scoring.ngram.arpa import read_arpa, shortest, write_arpa

TOY = """\\data\\
ngram 1=5
ngram 2=3

\\1-grams:
-1.0\t<unk>
-99\t<s>\t-0.3
-0.7\t</s>
-0.6\tthe\t-0.2
-0.9\tcat\t-0.1

\\2-grams:
-0.2\t<s> the
-0.4\tthe cat
-0.3\tcat </s>

\\end\\
"""


@pytest.fixture
def toy(tmp_path):
    path = tmp_path / "toy.arpa"
    path.write_text(TOY)
    return path


def ngrams_of(path):
    """Read an ARPA file into a dictionary from words to (log10 p, weight)."""
    listed, order = {}, 0
    for line in path.read_text().splitlines():
        if line.endswith("-grams:"):
            order = int(line[1])
        elif order and line and line[0] != "\\":
            fields = line.split()
            weight = float(fields[order + 1]) if len(fields) > order + 1 else 0.0
            listed[tuple(fields[1 : order + 1])] = (float(fields[0]), weight)
    return listed


def looked_up(listed, context, word):
    """log10 p(word | context) and the length of the n-gram, by the definition."""
    if (*context, word) in listed:
        return listed[(*context, word)][0], len(context) + 1
    if not context:
        return listed["<unk>",][0], 1
    value, length = looked_up(listed, context[1:], word)
    return listed.get(context, (0, 0.0))[1] + value, length


def random_arpa(path, order, seed, listed_suffixes):
    """Write a model of random numbers: every n-gram's context is listed, its suffix perhaps not."""
    draw = random.Random(seed)
    words = ["a", "b", "c", "d"]
    grams = [[("<unk>",), ("<s>",), ("</s>",), *((word,) for word in words)]]
    for _ in range(order - 1):
        longer = [
            (*context, word)
            for context, word in itertools.product(grams[-1], [*words, "</s>", "<unk>"])
            if context[-1] != "</s>" and (len(context) == 1 or not listed_suffixes or (*context[1:], word) in grams[-1])
        ]
        grams.append(sorted(draw.sample(longer, min(len(longer), 25)), key=lambda _: draw.random()))
    lines = ["\\data\\", *(f"ngram {k}={len(rows)}" for k, rows in enumerate(grams, 1)), ""]
    for length, rows in enumerate(grams, 1):
        lines.append(f"\\{length}-grams:")
        for row in rows:
            weight = f"\t{draw.uniform(-1, 0.2):.6f}" if length < order else ""
            lines.append(f"{draw.uniform(-5, 0):.6f}\t{' '.join(row)}{weight}")
        lines.append("")
    path.write_text("\n".join([*lines, "\\end\\", ""]))
    return ngrams_of(path)


def test_golden_vectors_of_kenlm(toy):
    model = read_arpa(toy)
    first, second = model.score([["the", "cat"], ["the", "dog", "cat"]])
    assert shortest(first.log10) == ["-0.2", "-0.4", "-0.3"] and first.lengths.tolist() == [2, 2, 2]
    assert shortest(second.log10) == ["-0.2", "-1.2", "-0.9", "-0.3"] and second.lengths.tolist() == [2, 1, 1, 2]
    assert second.oov.tolist() == [False, True, False, False] and not first.oov.any()
    assert (model.ids["the"], model.ids["cat"], "dog" in model.ids) == (3, 4, False)
    log10, oov = (np.concatenate([getattr(s, name) for s in (first, second)]) for name in ("log10", "oov"))
    assert 10 ** -log10.astype(float).mean() == pytest.approx(3.16227784617, abs=1e-6)
    assert 10 ** -log10[~oov].astype(float).mean() == pytest.approx(2.41731560245, abs=1e-6)


@pytest.mark.parametrize("order", range(1, 7))
@pytest.mark.parametrize("listed_suffixes", [True, False])
def test_every_context_agrees_with_the_definition(tmp_path, order, listed_suffixes):
    path = tmp_path / "random.arpa"
    listed = random_arpa(path, order, seed=order, listed_suffixes=listed_suffixes)
    model = read_arpa(path)
    draw = random.Random(0)
    sentences = [
        [draw.choice(["a", "b", "c", "d", "<unk>", "new"]) for _ in range(draw.randrange(12))] for _ in range(60)
    ]
    scores = list(model.score(sentences))
    for sentence, found in zip(sentences, scores, strict=True):
        history = ("<s>",)
        for at, word in enumerate([*sentence, "</s>"]):
            known = word if word != "new" else "<unk>"
            value, length = looked_up(listed, history[max(0, len(history) + 1 - order) :], known)
            assert (found.log10[at], found.lengths[at]) == (pytest.approx(value, abs=1e-5), length)
            assert found.oov[at] == (word in ("<unk>", "new"))
            history = (*history, known)
    ids, contexts = [], []
    for sentence in sentences:
        read = [model.ids["<s>"], *(model.ids.get(word, 0) for word in sentence), model.ids["</s>"]]
        for at, word in enumerate(read[1:], 1):
            before = read[max(0, at - order + 1) : at]
            contexts.append([-1] * (order - 1 - len(before)) + before)
            ids.append(word)
    ids, contexts = np.array(ids), np.array(contexts, np.int64).reshape(len(ids), order - 1)
    whole, _ = model.look_up(ids, contexts)
    assert (whole == np.concatenate([s.log10 for s in scores])).all()
    assert (model.distributions(contexts)[np.arange(len(ids)), ids] == whole).all()


def test_layout_does_not_matter(toy, tmp_path):
    expected = [s.log10.tolist() for s in read_arpa(toy).score([["the", "cat", "x"]])]
    for name, content in {
        "crlf": TOY.replace("\n", "\r\n").encode(),
        "spaces": TOY.replace("\t", "  ").encode(),
        "blank": b"\n# made by hand\n\n" + TOY.replace("\\2-grams:\n", "\n\\2-grams:\n").encode(),
        "capitals": TOY.replace("<unk>", "<UNK>").encode(),
        "packed.gz": gzip.compress(TOY.encode()),
        "weights": TOY.replace("<s> the", "<s> the\t0").encode(),
        "mark": b"\xef\xbb\xbf" + TOY.encode(),
        "text": b"Made by hand\non a Tuesday\n\n" + TOY.encode(),
        "packed.bz2": bz2.compress(TOY.encode()),
        "members.gz": gzip.compress(TOY[:90].encode()) + gzip.compress(f"{TOY[90:]} \n\n".encode()),
        "an order without n-grams": TOY.replace("2=3", "2=3\nngram 3=0").encode(),
        "and its section": TOY.replace("2=3", "2=3\nngram 3=0").replace("\\end", "\\3-grams:\n\n\\end").encode(),
    }.items():
        path = tmp_path / f"{name}"
        path.write_bytes(content)
        assert [s.log10.tolist() for s in read_arpa(path).score([["the", "cat", "x"]])] == expected, name


def test_written_and_read_again(tmp_path):
    path, name = tmp_path / "random.arpa", "again.arpa.gz"
    random_arpa(path, 4, seed=3, listed_suffixes=False)
    model = read_arpa(path)
    write_arpa(model, tmp_path / name)
    again = read_arpa(tmp_path / name)
    assert again.words == model.words
    for one, other in zip(model.tables, again.tables, strict=True):
        assert (one.keys == other.keys).all()
        np.testing.assert_array_equal(one.log10, other.log10)
        np.testing.assert_array_equal(one.backoff, other.backoff)
    packed = (tmp_path / name).read_bytes()
    write_arpa(model, tmp_path / name)
    assert (tmp_path / name).read_bytes() == packed
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([name, "random.arpa"])
    with pytest.raises(RunError, match="could not be written"):
        write_arpa(model, tmp_path / "missing" / name)


def test_numbers_in_the_fewest_digits():
    values = np.array([-0.2, 0.0, -0.0, -1e-6, -2.5e-7, -99, -1.2345678], np.float32)
    assert shortest(values) == ["-0.2", "0", "0", "-0.000001", "-2.5e-7", "-99", "-1.2345678"]
    assert shortest(np.array([3.1622778461709817, 1e17, 1e21, math.inf])) == [
        "3.1622778461709817",
        f"1{'0' * 17}",
        "1e21",
        "inf",
    ]


def test_a_file_cut_at_any_line_is_refused(toy):
    lines = TOY.splitlines(keepends=True)
    for count in range(len(lines)):
        toy.write_text("".join(lines[:count]))
        with pytest.raises(InputError, match=rf"toy\.arpa: line {count + 1}: .*(expected|promises)"):
            read_arpa(toy)
    toy.with_name("cut.gz").write_bytes(gzip.compress(TOY.encode())[:-20])
    with pytest.raises(InputError, match="cut short"):
        read_arpa(toy.with_name("cut.gz"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("ngram 2=3", "ngram 2=4", r"line 16: section \\2-grams: ends after 3 n-grams; \\data\\ promises 4"),
        ("ngram 2=3", "ngram 2=2", r"line 15: expected \\end\\, found '-0.3.*promises fewer"),
        ("ngram 1=5", "ngram 1=4", r"line 10: expected \\2-grams:, found '-0.9.*promises fewer 1-grams"),
        ("ngram 2=3", "ngram 3=3", r"line 3: section \\data\\: expected ngram 2=COUNT"),
        ("ngram 2=3", "".join(f"ngram {k}=3\n" for k in range(2, 8)), "order 7: must be at most 6"),
        ("-0.4\tthe cat", "nan\tthe cat", "line 14: .*log10 probability 'nan': must be a finite number"),
        ("-0.4\tthe cat", "0.4\tthe cat", "line 14: .*'0.4': must be .* at most 0"),
        ("the\t-0.2", "the\t1e99", "line 9: .*back-off weight '1e99': must be a finite number"),
        ("the cat", "the dog", "line 14: .*the word 'dog' is not among the 1-grams"),
        ("the cat", "the", r"line 14: section \\2-grams: expected a probability, 2 words"),
        ("cat </s>", "the cat", "line 15: .*listed twice"),
        ("\tcat\t", "\tthe\t", "line 10: .*listed twice"),
        ("\t</s>\n", "\tend\n", "must list </s>"),
        ("\\data\\", "It was a text.", "line 1: .*expected .*data"),
        ("\\data\\", "iARPA\n\n\\data\\", "line 1: iARPA .*compile-lm toy.arpa --text=yes"),
        ("\\end\\\n", "\\end\\\n\nmore\n", r"line 19: nothing may follow .end., found 'more'"),
        ("-0.4\tthe cat", "-1_0\tthe cat", "line 14: .*log10 probability '-1_0'"),
        ("-0.4\tthe cat", "-\uff11\tthe cat", "line 14: .*log10 probability"),
        ("the\t-0.2", "the\t-inf", "line 9: .*back-off weight '-inf': must be a finite number"),
    ],
)
def test_broken_files_are_refused_by_line(toy, old, new, message):
    toy.write_text(TOY.replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        read_arpa(toy)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ngram", "ngram"),
        ("the\t-0.2", "the"),  # a missing weight is 0, as in KenLM's own tests
        ("-99\t<s>", "-inf\t<s>"),
        ("-0.9\tcat", "-inf\tcat"),
        ("-0.4\tthe cat", "-inf\tthe cat"),
        ("cat", "\f"),
        ("cat", "c\va\ft"),
        ("-0.6\tthe", "-.6e0\tthe"),
    ],
)
def test_kenlm_gives_the_same(toy, old, new):
    kenlm = pytest.importorskip("kenlm")
    toy.write_text(TOY.replace(old, new))
    options = kenlm.Config()
    options.show_progress, options.arpa_complain = False, kenlm.ARPALoadComplain.NONE
    theirs = kenlm.Model(str(toy), options)
    sentences = [["the", "cat"], ["cat", "the", "dog"], ["c\va\ft", "-0.1", "the"], []]
    for sentence, found in zip(sentences, read_arpa(toy).score(sentences), strict=True):
        state, after = kenlm.State(), kenlm.State()
        theirs.BeginSentenceWrite(state)
        for word, value in zip([*sentence, "</s>"], found.log10.tolist(), strict=True):
            assert theirs.BaseScore(state, word, after) == value, (sentence, word)
            state, after = after, state


def test_not_utf8_not_there_and_marks_in_a_sentence(toy):
    with pytest.raises(InputError, match="<s> as a word"):
        list(read_arpa(toy).score([["a", "<s>"]]))
    toy.write_bytes(TOY.encode().replace(b"cat", b"c\xff"))
    with pytest.raises(InputError, match=r"line 10: .*not UTF-8"):
        read_arpa(toy)
    with pytest.raises(InputError, match=r"none\.arpa: no such file"):
        read_arpa(toy.with_name("none.arpa"))


def test_without_unk_unknown_words_have_kenlms_value(toy):
    toy.write_text(TOY.replace("ngram 1=5", "ngram 1=4").replace("-1.0\t<unk>\n", ""))
    (scores,) = read_arpa(toy).score([["dog"]])
    assert scores.log10[0] == np.float32(-100.3) and scores.oov[0]


def test_columns_of_another_vocabulary(toy):
    model = read_arpa(toy)
    columns = model.columns(Vocabulary(("cat", "<eos>", "bird", "<unk>")))
    (row,) = model.distributions(np.array([[model.ids["cat"]]]), columns)
    assert row == pytest.approx([-1.0, -0.3, -1.1 - math.log10(2), -1.1 - math.log10(2)], abs=1e-6)
