"""Modified Kneser-Ney against KenLM's output, and against the published equations in plain dictionaries."""

import math
import random
import tempfile
import tracemalloc
from collections import Counter, defaultdict

import numpy as np
import pytest

from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError, RunError
from spanlm.scoring.ngram.arpa import write_arpa
from spanlm.scoring.ngram.config import NgramConfig
from spanlm.scoring.ngram.kneser_ney import KneserNey
from tests.scoring.reference import numbered

FALLBACK = (0.5, 1.0, 1.5)
TINY = [line.split() for line in ("a b a", "a b b c", "c", "", "b a c a b")]

# `lmplz -o 3 --discount_fallback` on TINY
LMPLZ = """\
-1.0347621	<unk>	0
0	<s>	-0.30103
-0.5457416	</s>	0
-0.6825796	a	-0.30103
-0.6825796	b	-0.30103
-0.6825796	c	-0.30103
-0.6156328	<s> </s>	0
-0.5729885	a </s>	0
-0.6156328	b </s>	0
-0.32272068	c </s>	0
-0.51734626	<s> a	-0.30103
-0.51734626	b a	-0.30103
-0.5678122	c a	-0.30103
-0.6906975	<s> b	-0.30103
-0.45118552	a b	-0.30103
-0.6906975	b b	-0.30103
-0.6906975	<s> c	-0.30103
-0.6404564	a c	-0.30103
-0.6906975	b c	-0.30103
-0.41606045	b a </s>
-0.54087824	a b </s>
-0.13204928	<s> c </s>
-0.13204928	b c </s>
-0.18580367	<s> b a
-0.4967682	a b a
-0.19705094	a c a
-0.16946067	<s> a b
-0.16946067	c a b
-0.5709106	a b b
-0.43839413	b a c
-0.220459	b b c
"""


def rich(sentences=1200, words=1500):
    """Draw a text that has n-grams of every order with counts 1 to 4: a few frequent words and many rare ones."""
    draw, words = random.Random(1), range(words)
    weights = [(index + 1) ** -1.5 for index in words]
    return [[f"w{index}" for index in draw.choices(words, weights, k=draw.randrange(1, 12))] for _ in range(sentences)]


def published(sentences, order):
    """Chen and Goodman's equations, in float64: p and gamma of every n-gram, and the size of the vocabulary."""
    raw = [Counter() for _ in range(order + 1)]
    for sentence in sentences:
        padded = ("<s>", *sentence, "</s>")
        for length in range(1, order + 1):
            for end in range(max(length, 2), len(padded) + 1):
                raw[length][padded[end - length : end]] += 1
    rank = {
        word: at for at, word in enumerate(dict.fromkeys(["<unk>", "<s>", "</s>", *(w for s in sentences for w in s)]))
    }
    size = len(rank) - 1
    probability, gamma = {}, {}
    for length in range(1, order + 1):
        adjusted = Counter()
        if length == order:
            adjusted = raw[length]
        else:
            for gram in raw[length + 1]:
                adjusted[gram[1:]] += 1
            adjusted.update({gram: count for gram, count in raw[length].items() if gram[0] == "<s>"})
        n = Counter(adjusted.values())
        if length < order:  # lmplz's own count of the last n-gram that does not start with <s>
            last = max(adjusted, key=lambda gram: [rank[word] for word in gram[::-1]])
            chained = all(gram[0] != "<s>" for gram in [last[at:] for at in range(length)])
            if chained:
                n[adjusted[last]] -= 1
                n[raw[length][last]] += 1
        discount = [0, *FALLBACK]
        if all(n[j] for j in (1, 2, 3)):
            y = n[1] / (n[1] + 2 * n[2])
            own = [0, *(j - (j + 1) * y * n[j + 1] / n[j] for j in (1, 2, 3))]
            discount = own if all(0 <= value <= j for j, value in enumerate(own)) else discount
        followers = defaultdict(list)
        for gram, count in adjusted.items():
            followers[gram[:-1]].append(count)
        for context, counts in followers.items():
            gamma[context] = sum(discount[min(count, 3)] for count in counts) / sum(counts)
        for gram, count in adjusted.items():
            total = sum(followers[gram[:-1]])
            lower = probability[gram[1:]] if length > 1 else 1 / size
            probability[gram] = (count - discount[min(count, 3)]) / total + gamma[gram[:-1]] * lower
        if length == 1 and ("<unk>",) not in probability:
            probability["<unk>",] = gamma[()] / size
    return probability, gamma


def ngrams(model):
    """Read a model's tables back into words: {n-gram: (log10 p, log10 weight)}."""
    known, size = [{(index,): index for index in range(len(model.words))}], len(model.words)
    listed = {}
    rows = [(index,) for index in range(size)]
    for table in model.tables:
        if len(known) > 1:
            rows = [(int(key) % size, *rows[int(key) // size]) for key in table.keys]
        known.append({})
        for row, log10, backoff in zip(rows, table.log10.tolist(), table.backoff.tolist(), strict=True):
            listed[tuple(model.words[word] for word in row)] = log10, backoff
    return listed


def test_lmplz_writes_the_same(tmp_path):
    write_arpa(KneserNey(3, FALLBACK).estimate(*numbered(TINY)), tmp_path / "tiny.arpa")
    lines = (tmp_path / "tiny.arpa").read_text().splitlines()
    assert lines[:6] == ["\\data\\", "ngram 1=6", "ngram 2=13", "ngram 3=12", "", "\\1-grams:"]
    assert lines[-2:] == ["", "\\end\\"]
    rows = [line.split("\t") for line in lines if "\t" in line]
    expected = [line.split("\t") for line in LMPLZ.splitlines()]
    assert [row[1] for row in rows] == [row[1] for row in expected]
    for row, other in zip(rows, expected, strict=True):
        numbers, others = ([float(field) for field in fields[::2]] for fields in (row, other))
        assert numbers == pytest.approx(others, abs=1e-6)


@pytest.mark.parametrize(("order", "unknown"), [(1, "y"), (3, "w3"), pytest.param(6, "y", marks=pytest.mark.slow)])
def test_published_equations(order, unknown):
    """Unknown words of the text are counted."""
    sentences = [[word if word != unknown else "<unk>" for word in sentence] for sentence in rich()]
    listed = ngrams(KneserNey(order, FALLBACK).estimate(*numbered(sentences)))
    probability, gamma = published(sentences, order)
    assert set(listed) == {*probability, ("<s>",)}
    for gram, value in probability.items():
        assert listed[gram][0] == pytest.approx(math.log10(value), abs=2e-6)
        expected = math.log10(gamma[gram]) if gram in gamma and len(gram) < order else 0
        assert listed[gram][1] == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize("block", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_blocks_change_nothing(block, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    sentences = rich(40)
    whole = KneserNey(4, FALLBACK).estimate(*numbered(sentences))
    parts = KneserNey(4, FALLBACK, block=block).estimate(*numbered(sentences))
    assert not list(tmp_path.iterdir())
    for one, other in zip(whole.tables, parts.tables, strict=True):
        assert (one.keys == other.keys).all() and (one.log10 == other.log10).all()
        assert (one.backoff == other.backoff).all()


def test_ids_of_a_vocabulary_in_pieces():
    sentences = rich(300)
    vocabulary = Vocabulary(("<eos>", *sorted({word for sentence in sentences for word in sentence}), "never", "<unk>"))
    ids = np.array([vocabulary.id(word) for sentence in sentences for word in [*sentence, "<eos>"]])
    model = KneserNey(3, FALLBACK).estimate(np.array_split(ids, 50), vocabulary)
    start = np.array([[-1, model.ids["<s>"]]])
    assert (10.0 ** model.distributions(start, model.columns(vocabulary)).astype(float)).sum() == pytest.approx(1)
    one, other = ngrams(model), ngrams(KneserNey(3, FALLBACK).estimate(*numbered(sentences)))
    assert one["never",] == one["<unk>",] and one.keys() - other.keys() == {("never",)}
    ids = np.array([model.ids.get(word, 0) for word in ["never", "w1", "other"]])
    known, _ = model.look_up(ids, start.repeat(3, axis=0))
    assert np.isfinite(known).all()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text():
    def peak(sentences):
        pieces, vocabulary = numbered(sentences)
        tracemalloc.start()
        KneserNey(4, FALLBACK, block=2048).estimate(pieces, vocabulary)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    text = rich(16000, words=60)
    assert peak(text) < 1.25 * peak(text[:4000])


@pytest.mark.parametrize(
    ("sentences", "options", "message"),
    [
        (TINY, {}, r"no discounts for order 1: 0, 0, 2 and 1 1-grams|no discounts for order 1: "),
        ([["a"], ["b"]], {"order": 4, "fallback": FALLBACK}, r"order=4: must be at most 3; no sentence has 2 words"),
        ([], {}, "the text is empty"),
    ],
)
def test_texts_that_cannot_be_estimated(sentences, options, message):
    with pytest.raises(InputError, match=message):
        KneserNey(**options).estimate(*numbered(sentences))


@pytest.mark.parametrize(
    "options",
    [
        {"order": 0},
        {"fallback": (0.5, 1.0, 3.5)},
        {"fallback": (0.0, 1, 1)},
        {"cache": 0},
        {"cache": 9, "cache_share": 1.0},
    ],
)
def test_options_out_of_range(options):
    with pytest.raises(InputError, match=r"^ngram\..* must be"):
        NgramConfig(**options)


def test_other_refusals(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="does not end in <eos>"):
        KneserNey(2, FALLBACK).estimate([np.array([0, 1])], Vocabulary(("a", "<unk>", "<eos>")))
    with pytest.raises(InputError, match="vocabulary=<s>: must be without"):
        KneserNey(2, FALLBACK).estimate([np.array([1])], Vocabulary(("<s>", "<eos>", "<unk>")))
    with pytest.raises(InputError, match=r"vocabulary=<UNK>: must be without it.*write <unk>"):
        KneserNey(2, FALLBACK).estimate([np.array([1])], Vocabulary(("<UNK>", "<eos>", "<unk>")))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(RunError, match=r"none: No such file.*TMPDIR"):
        KneserNey(2, FALLBACK).estimate(*numbered(TINY))
