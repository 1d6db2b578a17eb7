from __future__ import annotations

import hashlib
import json
import os
import threading
import time
import tracemalloc
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlm.data import encoding as encoding_module
from spanlm.data import text as text_module
from spanlm.data import tokens as tokens_module
from spanlm.data.config import Documents, Tokenizer
from spanlm.data.counts import WordCounts
from spanlm.data.text import Text, fingerprint
from spanlm.data.tokenizer import tokenize
from spanlm.data.tokens import TokenFile, count_words, token_file
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError, RunError
from tests.data.reference import document_starts, lines_of, tokens_of

CHARACTERS = st.sampled_from(
    [
        "a",
        "b",
        "É",
        "漢",
        "😀",
        "\u0301",
        "\u2028",
        "\u00a0",
        "\u0085",
        "\ufeff",
        ",",
        ".",
        " = ",
        *" \n\t\r\v\f",
    ]
)
WORDS = st.sampled_from(["a", "b", "ab", "É", "é", "漢", "=", ",", ".", "\u2028", "\u00a0", "\u0085"])
TEXTS = st.lists(CHARACTERS | st.sampled_from(["\n\n", "\n= a =\n", " <unk> "]), max_size=40).map("".join)


def encode(
    path: Path, vocabulary: Vocabulary, tokenizer: Tokenizer = "whitespace", documents: Documents = "none"
) -> tuple[TokenFile, int]:
    return token_file(Text(path), fingerprint(Text(path)), vocabulary, tokenizer, documents)


def build(path: Path, tokenizer: Tokenizer = "whitespace") -> Vocabulary:
    return Vocabulary.from_counts(count_words(Text(path), fingerprint(Text(path)), tokenizer))


def entries(cache: Path, kind: str = "tokens") -> list[Path]:
    return sorted((cache / kind).iterdir())


@pytest.mark.parametrize("documents", get_args(Documents))
@pytest.mark.parametrize("tokenizer", get_args(Tokenizer))
@given(text=TEXTS, chunk_bytes=st.integers(1, 9), remembered=st.integers(1, 3), known=st.sets(WORDS))
def test_ids_and_documents_are_those_of_a_plain_loop_whatever_the_chunk_size(
    tmp_path_factory: pytest.TempPathFactory,
    tokenizer: Tokenizer,
    documents: Documents,
    text: str,
    chunk_bytes: int,
    remembered: int,
    known: set[str],
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_bytes(text.encode())
    lines = [
        line if tokenizer == "whitespace" else tokenize(" ".join(line), tokenizer) for line in lines_of(text.encode())
    ]
    expected = tokens_of(lines)
    vocabulary = Vocabulary((*sorted(known), UNK, EOS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPANLM_CACHE", str(path.with_name(os.urandom(8).hex())))
        patch.setattr(text_module, "CHUNK_BYTES", chunk_bytes)
        patch.setattr(encoding_module, "_REMEMBERED", remembered)
        if set(expected) <= {EOS}:
            with pytest.raises(InputError, match=r"empty|no word"):
                build(path, tokenizer)
            with pytest.raises(InputError, match=r"empty|no word"):
                encode(path, vocabulary, tokenizer, documents)
            return
        counts = count_words(Text(path), fingerprint(Text(path)), tokenizer)
        assert counts.choose(1, None, ()) == list(dict.fromkeys(expected))
        assert counts.counts.tolist() == [expected.count(word) for word in dict.fromkeys(expected)]
        tokens, oov = encode(path, vocabulary, tokenizer, documents)
    assert tokens.ids.tolist() == vocabulary.encode(expected)
    assert tokens.ids.dtype == np.int32
    assert tokens.documents.tolist() == document_starts(lines, documents)
    assert oov == sum(word not in vocabulary for word in expected)


def test_the_last_line_needs_no_end_and_a_blank_line_is_a_lone_eos(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a b\r\n\n \t\na\xc2\xa0b a")
    vocabulary = build(path)
    assert vocabulary.words == ("a", "b", EOS, "a\u00a0b", UNK)
    assert encode(path, vocabulary)[0].ids.tolist() == [0, 1, 2, 2, 2, 3, 0, 2]


def test_unk_written_in_the_text_is_not_out_of_vocabulary(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a <unk> b c\n")
    tokens, oov = encode(path, Vocabulary(("a", EOS, UNK)))
    assert tokens.ids.tolist() == [0, 2, 2, 2, 1]
    assert oov == 2


def test_ids_are_a_read_only_memory_map(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a b\n")
    tokens, _ = encode(path, build(path))
    assert isinstance(tokens.ids, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        tokens.ids[0] = 1


def test_a_second_load_reads_the_cache_and_not_the_text(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a b\n\nc d\n")
    vocabulary = build(path)
    first, first_oov = encode(path, vocabulary, documents="blank-line")
    written = {entry: entry.stat().st_mtime_ns for entry in entries(cache) + entries(cache, "counts")}
    monkeypatch.setattr(tokens_module, "pieces", None)
    assert build(path) == vocabulary
    second, second_oov = encode(path, vocabulary, documents="blank-line")
    assert second.ids.tolist() == first.ids.tolist()
    assert second.documents.tolist() == first.documents.tolist() == [0, 4]
    assert second_oov == first_oov
    assert written == {entry: entry.stat().st_mtime_ns for entry in entries(cache) + entries(cache, "counts")}


def test_each_text_vocabulary_tokenizer_and_document_rule_has_an_entry_of_its_own(tmp_path: Path, cache: Path) -> None:
    path, other = tmp_path / "a.txt", tmp_path / "b.txt"
    path.write_bytes(b"a b\n")
    other.write_bytes(b"b a\n")
    vocabulary = build(path)
    encode(path, vocabulary)
    encode(path, vocabulary)
    assert len(entries(cache)) == 1
    encode(path, Vocabulary(("b", "a", EOS, UNK)))
    encode(path, vocabulary, "words")
    encode(path, vocabulary, documents="heading")
    encode(other, vocabulary)
    assert len(entries(cache)) == 5


@pytest.mark.parametrize("keep", [0, 10, 200, 256, 260, -8, -1])
@pytest.mark.parametrize("kind", ["tokens", "counts"])
def test_a_truncated_entry_is_built_anew(tmp_path: Path, cache: Path, kind: str, keep: int) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a b\n\nc d\n")
    vocabulary = build(path)
    encode(path, vocabulary)
    (entry,) = entries(cache, kind)
    whole = entry.read_bytes()
    entry.write_bytes(whole[:keep] if keep < len(whole) else b"")
    assert build(path) == vocabulary
    assert encode(path, vocabulary)[0].ids.tolist() == [0, 1, 2, 2, 3, 4, 2]
    assert entries(cache, kind) == [entry]
    assert entry.read_bytes() == whole


@pytest.mark.parametrize(
    "header",
    [b"null", b"[]", b"{}", b'{"tokens": "x"}', b'{"tokens": -1, "documents": 1, "oov": 0}', b"\xff\xfe"],
)
def test_an_entry_with_a_damaged_header_is_built_anew(tmp_path: Path, cache: Path, header: bytes) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a b\n")
    vocabulary = build(path)
    encode(path, vocabulary)
    for kind in ("tokens", "counts"):
        (entry,) = entries(cache, kind)
        whole = entry.read_bytes()
        entry.write_bytes(header.ljust(256) + whole[256:])
        assert build(path) == vocabulary
        assert encode(path, vocabulary)[0].ids.tolist() == [0, 1, 2]
        assert entry.read_bytes() == whole


def test_an_entry_that_is_one_byte_longer_is_built_anew(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a b\n")
    vocabulary = build(path)
    encode(path, vocabulary)
    for kind in ("tokens", "counts"):
        (entry,) = entries(cache, kind)
        whole = entry.read_bytes()
        entry.write_bytes(whole + b"x")
        build(path)
        encode(path, vocabulary)
        assert entry.read_bytes() == whole


def test_an_id_that_is_no_words_is_no_entry(tmp_path: Path, cache: Path) -> None:
    """Not even with its SHA-256."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"a b\n")
    vocabulary = build(path)
    encode(path, vocabulary)
    (entry,) = entries(cache)
    content = bytearray(entry.read_bytes()[:-32])
    content[256:260] = (4).to_bytes(4, "little")
    entry.write_bytes(content + hashlib.sha256(content).digest())
    with pytest.raises(RunError, match=r"has ids outside \[0, 4\); delete it"):
        encode(path, vocabulary)


def test_a_process_reads_an_entry_through_once(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a b\n")
    vocabulary = build(path)
    first, _ = encode(path, vocabulary)
    (entry,) = entries(cache)
    state, content = entry.stat(), entry.read_bytes()
    with entry.open("r+b") as file:
        file.write(b"x")
    os.utime(entry, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert encode(path, vocabulary)[0].ids.tolist() == first.ids.tolist()
    assert entry.read_bytes() != content
    os.utime(entry, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    assert encode(path, vocabulary)[0].ids.tolist() == first.ids.tolist()
    assert entry.read_bytes() == content


def test_a_text_that_is_refused_leaves_nothing_in_the_cache(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "a.txt"
    for data in (b"good words\n" * 1000 + b"\xff", b"\n\n\n", b"\xef\xbb\xbf"):
        path.write_bytes(data)
        with pytest.raises(InputError):
            build(path)
        with pytest.raises(InputError):
            encode(path, Vocabulary((EOS, UNK)))
    assert [entry for kind in cache.iterdir() for entry in kind.iterdir()] == []


def test_builders_at_the_same_time_do_no_harm(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"some words of a line\n" * 500)
    monkeypatch.setattr(text_module, "CHUNK_BYTES", 64)
    vocabulary = build(path)
    expected = vocabulary.encode([*b"some words of a line".decode().split(), EOS]) * 500
    # all of them find no entry before any has written one
    read, barrier = tokens_module._read, threading.Barrier(4)

    def read_together(entry: Path) -> tuple[TokenFile, int] | None:
        found = read(entry)
        if found is None:
            barrier.wait(timeout=10)
        return found

    monkeypatch.setattr(tokens_module, "_read", read_together)
    results: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda: results.append(encode(path, vocabulary)[0].ids.tolist())) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4
    assert len(entries(cache)) == 1


def test_a_cache_that_cannot_be_written_is_an_error_that_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a b\n")
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("SPANLM_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(RunError, match=r"cannot write the cache .*set SPANLM_CACHE to a folder"):
        build(path)
    with pytest.raises(RunError, match=r"cannot write the cache .*set SPANLM_CACHE to a folder"):
        encode(path, Vocabulary((EOS, UNK)))


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a b\n")
    vocabulary = build(path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match=r"No space left on device.*SPANLM_CACHE"):
        encode(path, vocabulary)
    assert entries(cache) == []


def test_what_a_killed_builder_left_is_removed_after_a_day(tmp_path: Path, cache: Path) -> None:
    (cache / "tokens").mkdir(parents=True)
    old, new = cache / "tokens" / "old.unfinished", cache / "tokens" / "new.unfinished"
    for left in (old, new):
        left.write_bytes(b"half")
    two_days_ago = time.time() - 2 * 24 * 3600
    os.utime(old, (two_days_ago, two_days_ago))
    path = tmp_path / "a.txt"
    path.write_bytes(b"a b\n")
    encode(path, build(path))
    assert not old.exists()
    assert new.exists()


def test_an_entry_holds_no_code(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a b\n")
    encode(path, build(path))
    (entry,) = entries(cache)
    content = entry.read_bytes()
    assert json.loads(content[:256]) == {"tokens": 3, "documents": 1, "oov": 0, "types": 4}
    assert content[256:-32] == np.array([0, 1, 2], "<i4").tobytes() + np.zeros(1, "<i8").tobytes()
    assert content[-32:] == hashlib.sha256(content[:-32]).digest()


@pytest.mark.parametrize("separator", [b" ", b"\n"])
@pytest.mark.parametrize("tokenizer", get_args(Tokenizer))
def test_memory_does_not_grow_with_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, separator: bytes, tokenizer: Tokenizer
) -> None:
    path = tmp_path / "a.txt"
    words = [hashlib.sha256(bytes([n])).hexdigest()[:7].encode() for n in range(256)]
    path.write_bytes(separator.join(words * 1000))
    monkeypatch.setattr(text_module, "CHUNK_BYTES", 1 << 14)
    build(path)
    tracemalloc.start()
    try:
        tokens, _ = encode(path, build(path), tokenizer)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(tokens) == (256_000 + 1 if separator == b" " else 2 * 256_000)
    assert peak < path.stat().st_size / 2


@given(st.dictionaries(st.text("abc", min_size=1), st.integers(1, 5)))
def test_counts_survive_the_disk(tmp_path_factory: pytest.TempPathFactory, counts: dict[str, int]) -> None:
    path = tmp_path_factory.getbasetemp() / "counts"
    with path.open("wb") as file:
        WordCounts.of(counts).write(file)
    again = WordCounts.read(path)
    assert again is not None
    assert dict(zip(again.choose(1, None, ()), again.counts.tolist(), strict=True)) == counts


def test_a_word_with_a_line_end_cannot_be_counted() -> None:
    with pytest.raises(InputError, match="a word holds a line end"):
        WordCounts.of({"a\nb": 1})
