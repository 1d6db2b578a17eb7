import json
import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError

WORDS = st.sampled_from(["a", "b", "c", "d", "e", EOS, UNK, "é", "\u2028"])


@given(st.lists(WORDS), st.integers(1, 4), st.none() | st.integers(2, 9))
def test_from_counts_agrees_with_a_plain_choice(text: list[str], min_count: int, max_size: int | None) -> None:
    counts = Counter(text)
    common = [word for word in counts if counts[word] >= min_count and word not in (EOS, UNK)]
    best = sorted(common, key=lambda word: -counts[word])[: None if max_size is None else max_size - 2]
    expected = [word for word in counts if word in best or word in (EOS, UNK)]
    expected += [special for special in (EOS, UNK) if special not in counts]
    assert Vocabulary.from_counts(counts, min_count, max_size).words == tuple(expected)


def test_unknown_words_have_the_id_of_unk() -> None:
    vocabulary = Vocabulary(("a", EOS, UNK))
    assert vocabulary.encode(["b", "a", EOS]) == [vocabulary.id(word) for word in ("b", "a", EOS)] == [2, 0, 1]
    assert (vocabulary.eos_id, vocabulary.unk_id, len(vocabulary), vocabulary.word(0)) == (1, 2, 3, "a")
    assert "a" in vocabulary and "b" not in vocabulary
    for id in (-1, 3):
        with pytest.raises(InputError, match=f"word id={id}: must be from 0 to 2"):
            vocabulary.word(id)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a", UNK), "<eos> is missing"),
        (("a", EOS), "<unk> is missing"),
        ((EOS, UNK, "a", "b", "a"), "'a' is listed twice"),
        ((EOS, "", UNK), "empty or holds white space"),
        ((EOS, UNK, "a b"), "empty or holds white space"),
        ((EOS, UNK, "\ud800"), "not Unicode"),
        ((), "empty or holds white space"),
    ],
)
def test_bad_words_are_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Vocabulary(words)


def test_save_and_load_give_the_same_vocabulary(tmp_path: Path) -> None:
    vocabulary = Vocabulary(("é", "\u2028", '"quote\\', EOS, UNK))
    vocabulary.save(tmp_path / "vocabulary.json")
    assert Vocabulary.load(tmp_path / "vocabulary.json") == vocabulary
    content = json.loads((tmp_path / "vocabulary.json").read_text("utf-8"))
    assert content == {"format": 1, "hash": vocabulary.hash, "words": list(vocabulary.words)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" * 100_000, "not a vocabulary, which is"),
        ('{"format": 2, "words": ["<eos>", "<unk>"]}', "format=2: must be 1"),
        ('{"format": 1, "words": ["<eos>", "<unk>"]}', "its hash None does not match"),
        (f'{{"format": 1, "hash": "{Vocabulary((EOS, UNK)).hash}", "words": ["<unk>", "<eos>"]}}', "its hash"),
    ],
)
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "vocabulary.json"
    path.write_text(content)
    with pytest.raises(InputError, match=rf"vocabulary\.json: .*{message}"):
        Vocabulary.load(path)


@pytest.mark.parametrize("content", [None, "{", "[]", '{"model": 3}', '{"model": {}}', '{"words": [1]}'])
def test_damaged_pieces_are_told_from_damaged_words(tmp_path: Path, content: str | None) -> None:
    for name, described in (("tokenizer.json", "not the pieces of a run"), ("vocabulary.json", "not a vocabulary")):
        path = tmp_path / name
        if content is not None:
            path.write_text(content)
        with pytest.raises(InputError, match=rf"{name}: .*; restore it from the run") as refused:
            Vocabulary.load(path)
        said = str(refused.value)
        assert ("cannot read" if content is None else described) in said
        assert not re.search(r"\(('|.*(object|indices))", said), "words of Python"
