from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlm.data.config import DataConfig
from spanlm.data.corpora import load_corpus, load_text
from spanlm.data.sentence_lines import SentenceEnds, into_sentences
from spanlm.data.tokens import TokenFile
from spanlm.data.vocabulary import EOS, UNK, Vocabulary

WORDS = [EOS, UNK, *["He", "he", "went", "home", ".", "!", "?", ")", "]", "'", '"', "”", "said", "Then", "3", "..."]]
VOCABULARY = Vocabulary(tuple(WORDS))


def tokens(text: str, documents: tuple[int, ...] = (0,)) -> TokenFile:
    words = [word for line in text.split("\n") for word in [*line.split(), EOS]]
    return TokenFile(np.array(VOCABULARY.encode(words), np.int32), np.array(documents, np.int64))


def lines(part: TokenFile) -> list[str]:
    text = " ".join(VOCABULARY.word(int(number)) for number in part.ids)
    assert text.endswith(EOS)
    return [line.strip() for line in text.removesuffix(EOS).split(EOS)]


def word_by_word(line: list[str]) -> list[str]:
    """The sentences of a line that is read from its start; what the vocabulary lacks as `<unk>`."""
    ends, found = SentenceEnds(VOCABULARY), [""]
    for word in line:
        if ends.before(word):
            found.append("")
        found[-1] += f" {word if word in VOCABULARY else UNK}"
    return [sentence.strip() for sentence in found]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("He went . He went home .", ["He went .", "He went home ."]),
        ("He went ? Then ! He", ["He went ?", "Then !", "He"]),
        ("He went . he said", ["He went . he said"]),  # an abbreviation
        ("He went . 3 he said", ["He went .", "3 he said"]),
        ("He ( went . ) Then".replace("( ", ""), ["He went . )", "Then"]),
        ('" He went . " Then he said', ['" He went . "', "Then he said"]),  # it closes
        ('He went . " Then he said . "', ["He went .", '" Then he said . "']),  # it opens
        ('" He went . \' " Then', ['" He went . \' "', "Then"]),
        ("He went . ) ' Then", ["He went . ) '", "Then"]),
        ("He went . ) ' ] Then", ["He went . ) ' ] Then"]),  # more than close a sentence
        ("He went ) Then", ["He went ) Then"]),
        ("He went ? ! Then", ["He went ? !", "Then"]),
        ("He went .", ["He went ."]),
        ("He went", ["He went"]),
        (". . .", [". . ."]),
        ('" He went . " Then " he said . " Then', ['" He went . "', 'Then " he said . "', "Then"]),
        ('" He " went . " Then . "', ['" He " went .', '" Then . "']),
        ("He ... Then", ["He ... Then"]),
    ],
)
def test_a_line_becomes_its_sentences(line: str, expected: list[str]) -> None:
    assert lines(into_sentences(tokens(line), VOCABULARY)) == expected
    assert word_by_word(line.split()) == expected


def test_quotes_are_counted_in_their_own_line() -> None:
    assert lines(into_sentences(tokens('He " went\nHe . " Then'), VOCABULARY)) == ['He " went', "He .", '" Then']


def test_blank_lines_are_left_out() -> None:
    assert lines(into_sentences(tokens("\n\nHe went .\n\nThen . He\n"), VOCABULARY)) == ["He went .", "Then .", "He"]


def test_documents_begin_at_the_same_words() -> None:
    part = tokens("He . Then .\n\nHe said .\n\n3 .", (0, 6, 11))
    found = into_sentences(part, VOCABULARY)
    assert [VOCABULARY.word(int(found.ids[start])) for start in found.documents] == ["He", "He", "3"]
    assert all(start == 0 or found.ids[start - 1] == 0 for start in found.documents)


def test_a_document_without_words_is_left_out() -> None:
    assert into_sentences(tokens("He .\n\n\nThen\n\n", (0, 4, 5, 7)), VOCABULARY).documents.tolist() == [0, 3]


def test_a_text_without_a_mark_stays_as_it_is() -> None:
    part = tokens("He went\nThen he said")
    assert into_sentences(part, VOCABULARY).ids.tolist() == part.ids.tolist()


@given(st.lists(st.lists(st.sampled_from(WORDS[1:]), max_size=8), min_size=1, max_size=6))
def test_no_word_is_lost_and_no_line_is_blank(text: list[list[str]]) -> None:
    part = tokens("\n".join(" ".join(line) for line in [["He"], *text]))
    found = into_sentences(part, VOCABULARY)
    assert found.ids[found.ids > 0].tolist() == part.ids[part.ids > 0].tolist()
    assert found.ids[0] > 0 and not np.any((found.ids[:-1] == 0) & (found.ids[1:] == 0))
    assert (found.ids == 0).sum() >= 1 + sum(map(bool, text))


@given(st.lists(st.sampled_from([*WORDS[1:], "zebra", "Zebra", "``"]), min_size=1, max_size=14))
def test_word_by_word_a_line_ends_where_it_does_as_a_whole(line: list[str]) -> None:
    """Words that the vocabulary lacks are the same to both: no marks, and no small letters."""
    assert word_by_word(line) == lines(into_sentences(tokens(" ".join(line)), VOCABULARY))


def test_a_mark_that_the_vocabulary_lacks_is_none() -> None:
    vocabulary = Vocabulary((EOS, UNK, "He", "."))
    for word in ("!", "."):
        ends = SentenceEnds(vocabulary)
        assert [ends.before(each) for each in ("He", word, "He")] == [False, False, word == "."]


def test_load_corpus_says_what_was_done(tmp_path: Path) -> None:
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("He went . Then he said .\n\nHe went home .\n")
    corpus = load_corpus(DataConfig(corpus=str(tmp_path), lines="sentences"))
    assert len(corpus.splits["train"]) == 14 and corpus.lines == "sentences"
    assert corpus.notes[-1].startswith("lines cut into sentences, blank ones left out: train 14 → 14 tokens, valid 14")
    assert load_text(DataConfig(corpus=str(tmp_path / "test.txt"), lines="sentences"), VOCABULARY).lines == "sentences"
    plain = load_corpus(DataConfig(corpus=str(tmp_path)))
    assert len(plain.splits["train"]) == 14 and plain.lines == "as-written"


@pytest.mark.corpus
@pytest.mark.skipif("SPANLM_DATA" not in os.environ, reason="needs a folder with corpora: set SPANLM_DATA")
def test_wikitext_2_has_one_end_a_sentence() -> None:
    corpus = load_corpus(DataConfig(corpus="wikitext-2", lines="sentences"), splits=("valid",))
    whole = load_corpus(DataConfig(corpus="wikitext-2"), splits=("valid",))
    words = [
        part.ids[part.ids != corpus.vocabulary.id(EOS)] for part in (corpus.splits["valid"], whole.splits["valid"])
    ]
    assert words[0].tolist() == words[1].tolist()
    # 24 words a sentence, as English prose has; the lines have 57
    assert 20 < len(words[0]) / (len(corpus.splits["valid"]) - len(words[0])) < 26
