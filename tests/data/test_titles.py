"""Title lines of books: never text, always the start of a document, wherever the text is cut into pieces."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spanlm.data import text as text_module
from spanlm.data.config import DataConfig
from spanlm.data.corpora import load_corpus, load_text
from spanlm.data.text import Text, fingerprint, pieces
from spanlm.data.titles import without_titles
from spanlm.data.tokens import count_words, token_file
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError
from tests.data.conftest import MakeCorpus
from tests.data.reference import lines_of

TITLE = "_BOOK_TITLE_ : An_Author___A_Title.txt.out"
LINES = st.lists(
    st.sampled_from(
        [
            TITLE,
            TITLE,
            f" \t{TITLE} with more words",
            "_BOOK_TITLE_",
            "_BOOK_TITLE_\r",
            "_BOOK_TITLE_: glued",
            "x_BOOK_TITLE_ : y",
            "a _BOOK_TITLE_ : inside",
            "",
            "  ",
            "a b",
            "c",
        ]
    ),
    max_size=9,
)


def is_title(line: list[str]) -> bool:
    return line[:1] == ["_BOOK_TITLE_"]


def books_of(data: bytes) -> tuple[list[str], list[int]]:
    """Words and document starts by the plain rule, over the whole text."""
    words: list[str] = []
    starts, after_title = [0], False
    for line in lines_of(data):
        if is_title(line):
            after_title = True
            continue
        if after_title and any(word != EOS for word in words):
            starts.append(len(words))
        after_title = False
        words += [*line, EOS]
    return words, starts


@settings(max_examples=50)
@given(lines=LINES, end=st.sampled_from(["", "\n"]), chunk_bytes=st.integers(1, 40))
def test_ids_counts_and_documents_are_those_of_a_plain_loop_wherever_the_text_is_cut(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], end: str, chunk_bytes: int
) -> None:
    data = ("\n".join(lines) + end).encode()
    words, starts = books_of(data)
    if not any(word != EOS for word in words):
        return
    folder = tmp_path_factory.mktemp("books")
    (folder / "text.txt").write_bytes(data)
    text = Text(folder / "text.txt")
    vocabulary = Vocabulary(("a", "b", "_BOOK_TITLE_", ":", EOS, UNK))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "CHUNK_BYTES", chunk_bytes)
        patch.setenv("SPANLM_CACHE", str(folder))
        counts = count_words(text, fingerprint(text), "whitespace", "book-title")
        tokens, oov = token_file(text, fingerprint(text), vocabulary, "whitespace", "book-title")
    assert dict(zip(counts.words.decode().split("\n"), counts.counts.tolist(), strict=True)) == {
        word: words.count(word) for word in words
    }
    assert tokens.ids.tolist() == vocabulary.encode(words)
    assert tokens.documents.tolist() == starts
    assert oov == sum(word not in vocabulary for word in words)


@given(lines=LINES, cuts=st.lists(st.integers(0, 200), max_size=9))
def test_an_empty_piece_stands_for_every_title(lines: list[str], cuts: list[int]) -> None:
    data = ("\n".join(lines) + "\n").encode()
    edges = sorted(
        {0, len(data), *(data.find(b"\n", cut) + 1 for cut in cuts), *(data.find(b" ", c) + 1 for c in cuts)}
    )
    found = list(without_titles(data[a:b] for a, b in itertools.pairwise(edges)))
    assert found.count(b"") == sum(is_title(line) for line in lines_of(data))
    # white space before a title may have been given out already; it is no word
    assert b"".join(found).replace(b"\n", b" <eos> ").split() == [word.encode() for word in books_of(data)[0]]


@pytest.fixture
def books(make_corpus: MakeCorpus) -> Path:
    return make_corpus(
        {
            "train": f"{TITLE}\nOnce a king .\nHe sat .\n{TITLE}\nA cat .\n{TITLE}\n",
            "valid": f"A part .\n{TITLE}\nA cat .\n",
            "test": f"{TITLE}\n{TITLE}\nA _BOOK_TITLE_ .\n",
        }
    )


def test_a_corpus_of_books(books: Path) -> None:
    corpus = load_corpus(DataConfig(corpus=str(books), documents="book-title", min_count=1))
    assert corpus.vocabulary.words == ("Once", "a", "king", ".", EOS, "He", "sat", "A", "cat", UNK)
    assert {name: part.documents.tolist() for name, part in corpus.splits.items()} == {
        "train": [0, 9],
        "valid": [0, 4],
        "test": [0],
    }
    assert len(corpus.splits["train"]) == 13
    assert corpus.oov == {"train": 0, "valid": 1, "test": 1}


def test_the_same_files_without_titles_and_with_them_do_not_meet_in_the_cache(books: Path) -> None:
    for _ in range(2):
        with_titles = load_corpus(DataConfig(corpus=str(books), documents="none"))
        without = load_corpus(DataConfig(corpus=str(books), documents="book-title"))
        assert len(with_titles.splits["train"]) == len(without.splits["train"]) + 3 * 4
        assert "_BOOK_TITLE_" in with_titles.vocabulary
        assert "_BOOK_TITLE_" not in without.vocabulary


@pytest.mark.parametrize("tokenizer", ["whitespace", "words"])
def test_titles_are_no_text_however_words_are_cut(books: Path, tokenizer: str) -> None:
    corpus = load_corpus(DataConfig(corpus=str(books), documents="book-title", tokenizer=tokenizer))  # type: ignore[arg-type]
    assert not any("title" in word.lower() for word in corpus.vocabulary.words)
    assert len(corpus.splits["train"].documents) == 2


def test_a_single_text_is_read_the_same_way(books: Path) -> None:
    vocabulary = Vocabulary(("A", "cat", ".", EOS, UNK))
    corpus = load_text(DataConfig(corpus=str(books / "valid.txt"), documents="book-title"), vocabulary)
    assert corpus.splits["text"].ids.tolist() == [0, 4, 2, 3, 0, 1, 2, 3]
    assert corpus.splits["text"].documents.tolist() == [0, 4]


def test_one_file_of_books_is_split_by_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "books.txt"
    path.write_text("".join(f"{TITLE}\nbook {n} .\nends here .\n" for n in range(40)))
    corpus = load_corpus(DataConfig(corpus=str(path), documents="book-title", min_count=1))
    assert corpus.notes == ["one file, split by lines: train 1-108, valid 109-114, test 115-120"]
    assert {name: len(part.documents) for name, part in corpus.splits.items()} == {"train": 36, "valid": 2, "test": 2}
    assert "_BOOK_TITLE_" not in corpus.vocabulary


@pytest.mark.parametrize("content", [f"{TITLE}\n", f"{TITLE}", f"{TITLE}\n\n{TITLE}\n"])
def test_titles_alone_are_no_text(make_corpus: MakeCorpus, content: str) -> None:
    for split in ("train", "valid"):
        folder = make_corpus({split: content}, name=split)
        with pytest.raises(InputError, match=rf"{split}\.txt: no word in it"):
            load_corpus(DataConfig(corpus=str(folder), documents="book-title"))


def test_a_reserved_word_is_named_by_its_line_in_the_file(make_corpus: MakeCorpus) -> None:
    folder = make_corpus({"train": f"{TITLE}\na\n{TITLE}\n<eos>\n"})
    with pytest.raises(InputError, match=r"train\.txt, line 4: the word <eos>"):
        load_corpus(DataConfig(corpus=str(folder), documents="book-title"))


def test_a_title_longer_than_what_is_read_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_module, "CHUNK_BYTES", 8)
    path = tmp_path / "text.txt"
    path.write_text(f"a\n{TITLE} " + "_BOOK_TITLE_ x " * 50 + "\nb\n")
    assert b"".join(without_titles(pieces(Text(path)))) == b"a\nb\n"
