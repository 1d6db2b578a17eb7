import gzip
import re
import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spanlm.data.config import SPLITS, DataConfig
from spanlm.data.corpora import Corpus, load_corpus
from spanlm.data.sources import split_by_lines
from spanlm.data.subwords import Bytes, Characters, Subwords
from spanlm.data.token_files import TokenFile
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError
from tests.data.conftest import MakeCorpus


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPANLM_DATA", raising=False)


def load(path: Path | str, **options: Any) -> Corpus:
    return load_corpus(DataConfig(corpus=str(path), **options))


def test_a_folder_gives_three_splits_and_the_vocabulary_of_its_training_part(make_corpus: MakeCorpus) -> None:
    folder = make_corpus({"train": "the cat\nsat\n", "valid": "the dog sat <unk>\n", "test": "dog dog\n"})
    corpus = load(folder, min_count=1)
    assert (corpus.name, corpus.notes, corpus.tokenizer) == ("corpus", [], "whitespace")
    assert corpus.vocabulary.words == ("the", "cat", EOS, "sat", UNK)
    assert {split: tokens.ids.tolist() for split, tokens in corpus.splits.items()} == {
        "train": [0, 1, 2, 3, 2],
        "valid": [0, 4, 3, 4, 2],
        "test": [4, 4, 2],
    }
    assert corpus.oov == {"train": 0, "valid": 1, "test": 2}


def test_options_choose_the_words(make_corpus: MakeCorpus) -> None:
    folder = make_corpus({"train": "The cat saw the Cat, the dog\n"})
    for options, words in (
        ({"min_count": 1}, "The cat saw the Cat, dog"),
        ({}, "the"),
        ({"min_count": 1, "max_size": 3}, "the"),
        ({"min_count": 2, "tokenizer": "words"}, "the cat"),
    ):
        assert load(folder, **options).vocabulary.words == (*words.split(), EOS, UNK)


def test_a_given_vocabulary_is_used_as_it_is(make_corpus: MakeCorpus) -> None:
    folder = make_corpus({"train": "a b c\n= d =\nb\n"})
    vocabulary = Vocabulary(("c", EOS, UNK, "b"))
    corpus = load_corpus(DataConfig(corpus=str(folder), documents="heading"), vocabulary)
    assert corpus.vocabulary is vocabulary
    assert corpus.splits["train"].ids.tolist() == [2, 3, 0, 1, 2, 2, 2, 1, 3, 1]
    assert corpus.splits["train"].documents.tolist() == [0, 4], "a heading shows though = has no id"
    assert corpus.oov["train"] == 4


def test_marks_within_lines_do_not_change_what_is_read_later(make_corpus: MakeCorpus) -> None:
    """Where some lines hold two sentences in marks, a run reads the text as it was trained, without the outer ones."""
    line = "<s> the cat sat . </s>\n"
    folder = make_corpus({"train": line * 20 + f"{line.strip()} {line}" * 3, "valid": line * 3, "test": line * 3})
    corpus = load(folder)
    again = load_corpus(DataConfig(corpus=str(folder)), corpus.vocabulary)
    assert "<s>" not in corpus.vocabulary and "</s>" in corpus.vocabulary
    for split, tokens in corpus.splits.items():
        np.testing.assert_array_equal(tokens.ids, again.splits[split].ids)


def test_only_the_splits_that_are_asked_for_are_read(make_corpus: MakeCorpus) -> None:
    folder = make_corpus()
    (folder / "train.txt").unlink()
    vocabulary = Vocabulary(("cat", EOS, UNK))
    assert load_corpus(DataConfig(corpus=str(folder)), vocabulary, ["test"]).splits.keys() == {"test"}
    with pytest.raises(InputError, match=r"no train\.txt or train\.txt\.gz"):
        load_corpus(DataConfig(corpus=str(folder)), splits=["test"])


@pytest.mark.parametrize(
    ("names", "note"),
    [
        ("train.txt valid.txt test.txt old.train.txt dev.txt", None),
        ("train.tokens validation.tokens test.tokens", "train is train.tokens, valid is validation.tokens"),
        ("wiki.train wiki.dev wiki.test ._wiki.train train.txt~", "train is wiki.train, valid is wiki.dev"),
        ("a_train.txt.gz a-val.txt a.test.txt.gz pretrain.txt", "train is a_train.txt.gz, valid is a-val.txt"),
    ],
)
def test_a_folder_may_have_its_parts_as_they_are_published(tmp_path: Path, names: str, note: str | None) -> None:
    for name in names.split():
        text = b"a b a b\n"
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    corpus = load(tmp_path, min_count=1)
    assert {split: len(part) for split, part in corpus.splits.items()} == dict.fromkeys(SPLITS, 5)
    assert [line.startswith(note or "") for line in corpus.notes] == [True] * (note is not None)


def test_two_files_for_one_part_are_refused_by_name(make_corpus: MakeCorpus) -> None:
    folder = make_corpus()
    (folder / "train.txt").rename(folder / "ptb.train.txt")
    (folder / "ptb.char.train.txt").write_text("a b\n")
    with pytest.raises(InputError, match=r"ptb\.char\.train\.txt, ptb\.train\.txt: name the one"):
        load(folder)


BABYLM = {
    **{"train_10M/childes.train": "a b\n\nb\n", "train_10M/bnc_spoken.train": "c <unk>", "train_10M/._qed.train": "\0"},
    **{"dev/bnc_spoken.dev": "c\n", "dev/childes.dev": "a\n", "test/childes.test": "b\n", "README": "a b"},
}


def write(folder: Path, texts: Mapping[str, str]) -> Path:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("flat", [False, True])
def test_a_split_may_have_several_files_as_in_babylm(tmp_path: Path, flat: bool) -> None:
    write(tmp_path, {Path(name).name if flat else name: text for name, text in BABYLM.items()})
    corpus = load(tmp_path, documents="blank-line")
    words = corpus.vocabulary.words
    read = {split: " ".join(words[id] for id in tokens.ids) for split, tokens in corpus.splits.items()}
    assert read == {"train": "c <unk> <eos> a b <eos> <eos> b <eos>", "valid": "c <eos> a <eos>", "test": "b <eos>"}
    assert [tokens.documents.tolist() for tokens in corpus.splits.values()] == [[0, 3, 7], [0, 2], [0]]
    assert corpus.notes == [
        "train is bnc_spoken.train + childes.train, valid is bnc_spoken.dev + childes.dev, test is childes.test"
    ]
    assert corpus.written("train") == (5, 15, 15)
    assert load(tmp_path).splits["train"].documents.tolist() == [0]
    before = corpus.texts
    write(tmp_path, {("" if flat else "train_10M/") + "bnc_spoken.train": "c <unk>\n"})
    assert load(tmp_path).texts["train"] != before["train"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"train_100M/childes.train": "a\n"}, r"train_100M, train_10M: each has a train part"),
        ({"dev/childes.dev.gz": ""}, r"childes\.dev, childes\.dev\.gz: name the one that is the valid part"),
        ({"dev/childes.dev": "a \0 b"}, r"dev/childes\.dev: a NUL byte at byte 2"),
        ({"dev/childes.dev": ""}, r"dev/childes\.dev: the file is empty"),
    ],
)
def test_files_that_are_not_parts_are_refused_by_name(tmp_path: Path, more: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(write(tmp_path, {**BABYLM, **more}))


def test_arrow_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, {"train/data-00000-of-00001.arrow": "ARROW1"})
    with pytest.raises(InputError, match=r"\(\.arrow\), which is not read; write the text of each split to train\.txt"):
        load(tmp_path)
    with pytest.raises(InputError, match=r"Arrow or Parquet, not plain text"):
        load(tmp_path / "train" / "data-00000-of-00001.arrow")


def test_one_file_is_split_by_lines(tmp_path: Path) -> None:
    path = tmp_path / "book.txt.gz"
    path.write_bytes(gzip.compress("\n".join(f"line {n}" for n in range(200)).encode()))
    corpus = load(path, tokenizer="words", min_count=1)
    assert [len(corpus.splits[split]) for split in ("train", "valid", "test")] == [540, 30, 30]
    assert corpus.vocabulary.words[:4] == ("line", "0", EOS, "1")
    assert "180" not in corpus.vocabulary
    assert corpus.oov == {"train": 0, "valid": 10, "test": 10}
    assert corpus.notes == ["one file, split by lines: train 1-180, valid 181-190, test 191-200"]


@given(lengths=st.lists(st.integers(0, 9) | st.just(40_000), min_size=3, max_size=60), end=st.booleans())
def test_the_parts_of_one_file_are_the_file(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], end: bool
) -> None:
    data = b"\n".join(b"x" * length for length in lengths) + b"\n" * end
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    assume(lines >= len(SPLITS))
    path = tmp_path_factory.getbasetemp() / "book.txt"
    path.write_bytes(data)
    texts, _ = split_by_lines(path)
    parts = [data[text.start : text.stop] for text in texts.values()]
    assert b"".join(parts) == data and all(part.endswith(b"\n") for part in parts[:2])
    counts = [part.count(b"\n") + (not part.endswith(b"\n")) for part in parts]
    assert counts[1] == counts[2] == max(1, lines // 20)


@pytest.mark.parametrize("chunk_bytes", [1, 3, 1 << 20])
@pytest.mark.parametrize("tokenizer", ["whitespace", "words", "bytes"])
def test_words_and_characters_are_those_of_the_text_as_written(
    make_corpus: MakeCorpus, monkeypatch: pytest.MonkeyPatch, tokenizer: Any, chunk_bytes: int
) -> None:
    """One space or line end a word, whatever the text has; titles of books are no text."""
    monkeypatch.setattr("spanlm.data.text.CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr("spanlm.data.token_files._BLOCK", chunk_bytes)
    lines = ["  It's  é\u0301, 漢😀 ", "", " \t ", "a\u00a0b\t(c)", "<unk> zebra"]
    text = "\ufeff_BOOK_TITLE_ : A\n" + "\r\n".join(lines)
    config = DataConfig(corpus=str(make_corpus({"test": text})), tokenizer=tokenizer, documents="book-title")
    corpus = load_corpus(config)
    words = [re.findall(r"[^ \t\r\n]+", line) for line in lines]
    read = [f"{' '.join(line)}\n" for line in words]
    assert corpus.written("test") == (sum(map(len, words)), len("".join(read)), len("".join(read).encode()))
    assert [re.findall(r"[^ \t\r\n]+", line) for line in corpus.written_lines("test")] == words


def test_a_word_of_any_length_is_one_written_word(make_corpus: MakeCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanlm.data.text.CHUNK_BYTES", 100)
    monkeypatch.setattr("spanlm.data.text.LONGEST_WORD", 300)
    corpus = load(make_corpus({"test": f"a {'語' * 1000} b\n \n\n{'x' * 1000}\n\n"}), tokenizer="bytes")
    assert corpus.written("test") == (4, 2 + 2000 + 4 + 3, 2 + 4000 + 4 + 3)


def test_counts_of_a_long_text_take_little_memory() -> None:
    ids = np.zeros(1 << 20, np.int32)
    ids[1::2] = 1
    vocabulary, tokens = Vocabulary((UNK, EOS)), TokenFile(ids, np.zeros(1, np.int64))
    corpus = Corpus(name="x", vocabulary=vocabulary, splits={"test": tokens}, notes=[], oov={}, tokenizer="whitespace")
    corpus = replace(corpus, sources={"test": lambda: iter([b"<unk>\n"])})
    tracemalloc.start()
    assert corpus.unk_tokens("test") == 1 << 19 and corpus.written("test") == (1, 6, 6)
    assert tracemalloc.get_traced_memory()[1] < 500_000
    tracemalloc.stop()


def test_the_demo_is_written_as_its_words() -> None:
    corpus = load_corpus(DataConfig(corpus="demo"), splits=("valid",))
    lines = list(corpus.written_lines("valid"))
    assert corpus.vocabulary.encode(word for line in lines for word in [*line.split(), EOS]) == list(
        corpus.splits["valid"].ids
    )
    read = "".join(f"{line}\n" for line in lines)
    assert corpus.written("valid") == (len(read.split()), len(read), len(read.encode()))
    with pytest.raises(InputError, match="test: has only ids"):
        next(replace(corpus, sources={}).written_lines("test"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"one\ntwo\n", r"2 line\(s\) cannot be split"),
        (b"\n\n\n\n", "no word in the part of its lines from byte 0"),
        (b"one\ntwo\n<eos> three\n", "line 3: the word <eos> is reserved"),
    ],
)
def test_one_file_that_cannot_be_split_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "book.txt"
    path.write_bytes(data)
    with pytest.raises(InputError, match=rf"^[^\n]*book\.txt[^\n]*{message}[^\n]*$"):
        load(path)


def test_a_mistyped_path_is_not_answered_with_a_file_of_a_like_name(
    make_corpus: MakeCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(make_corpus())
    for name in ("trian.txt", str(Path("trian.txt").absolute())):
        with pytest.raises(InputError, match=r"no such corpus, folder or file(?!.*train\.txt)"):
            load(name)


@pytest.mark.parametrize("name", ["ptp", "x" * 5000, "a\0b"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="no such corpus, folder or file"):
        load(name)


@pytest.mark.parametrize("kind", [Bytes, Characters])
def test_one_long_line_is_read_in_chunks_of_bounded_size(monkeypatch: pytest.MonkeyPatch, kind: type[Subwords]) -> None:
    """They end between words, and their tokens are the line's."""
    monkeypatch.setattr("spanlm.data.subwords.LONGEST_LINE", 1 << 12)
    pieces = [b"word " * 500] * 40
    tokenizer = kind(Bytes.vocabulary() if kind is Bytes else Characters.vocabulary(pieces))
    chunks = list(tokenizer.chunks(pieces))
    assert b"".join(chunks) == b"".join(pieces) and max(map(len, chunks)) <= (1 << 12) + len(pieces[0])
    assert len(chunks) > 9 and all(chunk.endswith(b"word") for chunk in chunks[:-1])
    assert np.concatenate([*map(tokenizer.encode, chunks)]).tolist() == tokenizer.encode(b"".join(pieces)).tolist()
