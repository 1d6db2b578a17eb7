"""From a text to ids and documents, and what of them is kept in the cache."""

import os
import time
from collections import Counter
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlm.data.config import Documents, WordRule
from spanlm.data.text import Text, fingerprint
from spanlm.data.token_files import TokenFile, count_words, counted, token_file
from spanlm.data.tokenizer import Words, tokenize
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError
from tests.cases import rest_slow
from tests.data.reference import PLACES, TITLE, cut_at, lines_of, read_text

LETTERS = [*"abÉ漢😀,.", "\u0301", "\u2028", "\u00a0", "\u0085", "\ufeff", " = ", *" \n\t\r\v\f", " <unk> "]
LINES = [
    *("\n\n", "\n= a =\n", "\n= b c =\n", "\n\n= a =\n\n", "\n= = a = =\n", "\n= = =\n", "= =\n"),
    *("\n= a b\n", "\na =\n", f"\n{TITLE} : a b\n", f"\n \t{TITLE}\n", f"{TITLE}\n"),
    *(f"{TITLE}: glued", f"x{TITLE} b", f"a {TITLE} inside\n"),
]
TEXTS = st.lists(st.sampled_from(LETTERS) | st.sampled_from(LINES), max_size=40).map("".join)
WORDS = st.sampled_from(["a", "b", "ab", "É", "é", "漢", "=", ",", ".", "\u2028", "\u00a0", "\u0085", TITLE])


def encode(
    path: Path, vocabulary: Vocabulary, tokenizer: WordRule = "whitespace", documents: Documents = "none"
) -> tuple[TokenFile, int]:
    text = Text(path, as_text=True)
    return token_file(text, fingerprint(text), vocabulary, Words(tokenizer, vocabulary), documents)[:2]


def count(path: Path, tokenizer: WordRule = "whitespace", documents: Documents = "none") -> dict[str, int]:
    text = Text(path, as_text=True)
    return count_words(text, fingerprint(text), tokenizer, documents)


def build(path: Path, tokenizer: WordRule = "whitespace", documents: Documents = "none") -> Vocabulary:
    return Vocabulary.from_counts(count(path, tokenizer, documents))


def entries(cache: Path, kind: str = "tokens") -> list[Path]:
    return sorted((cache / kind).iterdir())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a b\n\nc d\n")
    return path


@pytest.mark.parametrize("documents", rest_slow(get_args(Documents), always=2))
@settings(max_examples=20)
@given(tokenizer=st.sampled_from(get_args(WordRule)), text=TEXTS, place=PLACES, known=st.sets(WORDS))
def test_words_ids_and_documents_are_those_of_a_plain_loop_wherever_the_text_is_cut(
    tmp_path_factory: pytest.TempPathFactory,
    tokenizer: WordRule,
    documents: Documents,
    text: str,
    place: int | None,
    known: set[str],
) -> None:
    path, data = tmp_path_factory.getbasetemp() / "any.txt", cut_at(place, text.encode())
    path.write_bytes(data)
    lines = lines_of(data)
    if tokenizer != "whitespace":  # titles are what was written, headings what was cut
        titles = documents == "book-title"
        lines = [line if titles and line[:1] == [TITLE] else tokenize(" ".join(line), tokenizer) for line in lines]
    expected, starts = read_text(lines, documents)
    vocabulary = Vocabulary((*sorted(known), UNK, EOS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPANLM_CACHE", str(path.with_name(os.urandom(8).hex())))
        if set(expected) <= {EOS}:
            for refused in (build, lambda *how: encode(path, vocabulary, *how[1:])):
                with pytest.raises(InputError, match=r"empty|no word"):
                    refused(path, tokenizer, documents)
            return
        counts = count(path, tokenizer, documents)
        assert list(counts.items()) == list(Counter(expected).items()), "in order of first appearance"
        tokens, oov = encode(path, vocabulary, tokenizer, documents)
    assert tokens.ids.tolist() == vocabulary.encode(expected)
    assert tokens.ids.dtype == np.int32
    assert tokens.documents.tolist() == starts
    assert oov == sum(word not in vocabulary for word in expected)


def test_words_that_are_no_text_are_counted() -> None:
    assert counted([b"na\xefve cat\n", b"cat\n"], "whitespace") == {"na\udcefve": 1, "cat": 2, "<eos>": 2}


def test_a_second_load_reads_the_cache_and_not_the_text(path: Path, cache: Path) -> None:
    vocabulary = build(path)
    first = encode(path, vocabulary, documents="blank-line")
    written = {entry: entry.stat().st_mtime_ns for entry in entries(cache) + entries(cache, "counts")}
    # the cached files go by the hash alone: the text itself is not there any more
    print_, gone = fingerprint(Text(path)), Text(path.with_name("gone.txt"))
    assert Vocabulary.from_counts(count_words(gone, print_, "whitespace")) == vocabulary
    second = token_file(gone, print_, vocabulary, Words("whitespace", vocabulary), "blank-line")
    assert second[0].ids.tolist() == first[0].ids.tolist()
    assert second[0].documents.tolist() == first[0].documents.tolist() == [0, 4]
    assert second[1] == first[1]
    assert written == {entry: entry.stat().st_mtime_ns for entry in entries(cache) + entries(cache, "counts")}


def test_each_text_vocabulary_tokenizer_and_document_rule_has_an_entry_of_its_own(path: Path, cache: Path) -> None:
    other = path.with_name("b.txt")
    other.write_bytes(b"b a\n")
    vocabulary = build(path)
    for _ in range(2):
        encode(path, vocabulary)
        encode(path, Vocabulary(("b", "a", EOS, UNK)))
        encode(path, vocabulary, "words")
        encode(path, vocabulary, documents="heading")
        encode(other, vocabulary)
    assert len(entries(cache)) == 5
    build(path, documents="heading")
    assert len(entries(cache, "counts")) == 1, "only the titles of books are no words"
    build(path, documents="book-title")
    assert len(entries(cache, "counts")) == 2


def test_a_text_that_is_refused_leaves_nothing_in_the_cache(path: Path, cache: Path) -> None:
    for data in (b"good words\n" * 1000 + b"\xff", b"\n\n\n", b"\xef\xbb\xbf"):
        path.write_bytes(data)
        for read in (build, lambda path: encode(path, Vocabulary((EOS, UNK)))):
            with pytest.raises(InputError):
                read(path)
    assert [entry for kind in cache.iterdir() for entry in kind.iterdir()] == []


def test_what_a_killed_builder_left_is_removed_after_a_day(path: Path, cache: Path) -> None:
    (cache / "tokens").mkdir(parents=True)
    for name, age in (("old", 2 * 24 * 3600), ("new", 0)):
        left = cache / "tokens" / f"{name}.unfinished"
        left.write_bytes(b"half")
        os.utime(left, (time.time() - age,) * 2)
    encode(path, build(path))
    assert [left.stem for left in entries(cache) if left.suffix == ".unfinished"] == ["new"]
