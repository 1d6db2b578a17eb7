"""The books of the Children's Book Test as a corpus: which file stands for the training part, and what is checked."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from spanlm.data import registry
from spanlm.data.config import SPLITS, DataConfig, Split
from spanlm.data.corpora import load_corpus
from spanlm.data.registry import CORPORA, PublishedCorpus, PublishedFile
from spanlm.errors import InputError


def test_the_childrens_books_are_checked_but_for_the_file_nobody_here_has_seen() -> None:
    published, rebuilt = CORPORA["cbt"], CORPORA["cbt"].rebuilt
    assert rebuilt is not None and "rebuilt" in rebuilt.title
    assert published.files["train"].sha256 is None
    assert rebuilt.files["train"].stem == "cbt_train_rebuilt"
    assert {split: published.files[split] is rebuilt.files[split] for split in SPLITS} == {
        "train": False,
        "valid": True,
        "test": True,
    }
    for split in SPLITS:
        assert len(bytes.fromhex(rebuilt.files[split].sha256 or "")) == 32


BOOK = b"_BOOK_TITLE_ : An_Author___A_Title.txt.out\n"
BOOKS: dict[Split, bytes] = {
    "train": BOOK + b"a b\n" + BOOK + b"b\n",
    "valid": BOOK + b"a\n",
    "test": BOOK + b"a b\n",
}


@pytest.fixture
def books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a collection of books like that of the Children's Book Test, its training part rebuilt."""
    monkeypatch.delenv("SPANLM_DATA", raising=False)
    files = {
        split: PublishedFile(
            stem=f"cbt_{split}",
            sha256=hashlib.sha256(text).hexdigest(),
            tokens=len(text.split()) + text.count(b"\n") - 4 * text.count(BOOK),
        )
        for split, text in BOOKS.items()
    }
    made = replace(files["train"], stem="cbt_train_rebuilt")
    rebuilt = PublishedCorpus(title="the books, one file rebuilt", types=3, files={**files, "train": made})
    unseen = PublishedFile(stem="cbt_train", sha256=None, tokens=None)
    corpus = PublishedCorpus(title="the books", types=None, files={**files, "train": unseen}, rebuilt=rebuilt)
    monkeypatch.setitem(registry.CORPORA, "cbt", corpus)
    folder = tmp_path / "data" / "cbt"
    folder.mkdir(parents=True)
    (folder / "cbt_train_rebuilt.txt.gz").write_bytes(gzip.compress(BOOKS["train"]))
    (folder / "cbt_valid.txt").write_bytes(BOOKS["valid"])
    (folder / "cbt_test.txt").write_bytes(BOOKS["test"])
    return folder


def test_books_are_documents_unasked_and_their_titles_no_text(books: Path) -> None:
    corpus = load_corpus(DataConfig(corpus="cbt", dir=str(books.parent)))
    assert corpus.vocabulary.words == ("a", "b", "<eos>", "<unk>")
    assert corpus.splits["train"].ids.tolist() == [0, 1, 2, 1, 2]
    assert corpus.splits["train"].documents.tolist() == [0, 3]


def test_a_rebuilt_file_is_named_as_such_and_only_where_it_is_used(books: Path) -> None:
    config = DataConfig(corpus="cbt", dir=str(books.parent))
    corpus = load_corpus(config)
    assert corpus.notes == ["the books, one file rebuilt"]
    assert load_corpus(config, corpus.vocabulary, ["valid", "test"]).notes == []


def test_the_published_file_goes_before_the_rebuilt_one_and_is_taken_as_it_is(books: Path) -> None:
    (books / "cbt_train.txt").write_bytes(BOOK + b"another text\n")
    corpus = load_corpus(DataConfig(corpus="cbt", dir=str(books.parent)))
    assert corpus.vocabulary.words == ("another", "text", "<eos>", "<unk>")
    (note,) = corpus.notes
    assert note.startswith(f"{books / 'cbt_train.txt'}: taken as it is; the SHA-256")


@pytest.mark.parametrize("name", ["cbt_train_rebuilt.txt.gz", "cbt_valid.txt", "cbt_test.txt"])
def test_books_with_another_hash_are_refused_by_name(books: Path, name: str) -> None:
    text = BOOK + b"b b a\n"
    (books / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    with pytest.raises(InputError, match=rf"{name}: not the published cbt"):
        load_corpus(DataConfig(corpus="cbt", dir=str(books.parent)))


def test_counts_of_books_leave_titles_out(books: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = CORPORA["cbt"]
    assert corpus.rebuilt is not None
    wrong = replace(corpus.rebuilt, files={**corpus.rebuilt.files, "train": _with_tokens(corpus.rebuilt, 13)})
    for bad, message in ((wrong, "5 tokens, but"), (replace(corpus.rebuilt, types=5), "3 types, but")):
        monkeypatch.setitem(registry.CORPORA, "cbt", replace(corpus, rebuilt=bad))
        with pytest.raises(InputError, match=rf"cbt_train_rebuilt\.txt\.gz: {message}"):
            load_corpus(DataConfig(corpus="cbt", dir=str(books.parent)))


def _with_tokens(corpus: PublishedCorpus, tokens: int) -> PublishedFile:
    return replace(corpus.files["train"], tokens=tokens)


@pytest.mark.parametrize("download", [False, True])
def test_books_that_are_nowhere_are_an_error_that_names_the_files(tmp_path: Path, download: bool) -> None:
    with pytest.raises(InputError) as caught:
        load_corpus(DataConfig(corpus="cbt", dir=str(tmp_path / "nothing"), download=download))
    message = str(caught.value)
    for part in (
        "cbt_train.txt or cbt_train_rebuilt.txt, cbt_valid.txt, cbt_test.txt",
        tmp_path / "nothing" / "cbt",
        "cannot be downloaded",
        "--data.dir",
        "SPANLM_DATA",
    ):
        assert str(part) in message
    assert "--data.download" not in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ("cbt_train_rebuilt.txt.gz", "cbt_train.txt or cbt_train_rebuilt.txt missing"),
        ("cbt_test.txt", "cbt_test.txt missing"),
    ],
)
def test_books_of_which_one_file_is_missing_are_an_error_that_names_it(books: Path, missing: str, named: str) -> None:
    (books / missing).unlink()
    with pytest.raises(InputError, match=rf"cbt: {named}; a corpus needs train, valid, test"):
        load_corpus(DataConfig(corpus="cbt", dir=str(books.parent)))
