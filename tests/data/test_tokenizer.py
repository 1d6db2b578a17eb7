from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from spanlm.data.config import DataConfig
from spanlm.data.corpora import load_corpus, load_text
from spanlm.data.tokenizer import (
    OTHER_SPACE,
    UNSEEN,
    SentenceEnds,
    as_in_corpus,
    into_sentences,
    tokenize,
    written_words,
)
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError

ANY_LINE = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(" \t\v\f.,'-<>=e"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("The cat sat.", ["the", "cat", "sat", "."]),
        ('He said: "Don\'t!"', ["he", "said", ":", '"', "don't", "!", '"']),
        ("a well-known fact - or so", ["a", "well-known", "fact", "-", "or", "so"]),
        ("1,000.50 is 3.5.", ["1,000.50", "is", "3.5", "."]),
        ("a.b.c.d ab.c. x.y.", ["a.b.c.d", "ab.c", ".", "x.y."]),
        ("a <unk> (<UNK>)", ["a", "<unk>", "(", "<unk>", ")"]),
        ("cafe\u0301 हिन्दी naïve", ["cafe\u0301", "हिन्दी", "naïve"]),
        ("ΟΔΟΣ, İstanbul", ["οδος", ",", "i\u0307stanbul"]),
        ("the ’90s’ end", ["the", "’", "90s", "’", "end"]),
    ],
)
def test_words_lowercases_and_splits_punctuation_off(line: str, words: list[str]) -> None:
    assert tokenize(line, "words") == words


PTB = """the man did do n't ca 's mr. u.s. ill ill. j. old companies ' $ # & N of lost was he it well-known a.m.
no no. in"""
WIKITEXT = """The man didn did don 't 's Mr. U.S. No No. J. old companies ' $ % , . " ( ) @-@ @,@ @.@ well known 1
000 3 5 : 10 30 was he He It it ill cannot ... – & AT"""
VOCABULARIES = {
    "ptb": Vocabulary((EOS, UNK, *PTB.split())),
    "wikitext-2": Vocabulary((EOS, UNK, *WIKITEXT.split())),
}


@pytest.mark.parametrize(
    ("corpus", "line", "tokens"),
    [
        ("ptb", "The man didn't, can't", "the|man|did n't|ca n't"),
        ("ptb", "Mr. J. Old's U.S. a.m.", "mr.|j.|old 's|u.s.|a.m."),
        ("ptb", "He lost $4.5 of £3, 12% (1,000).", "he|lost|$ N|of|# N|N N|N"),
        ("ptb", "The companies' old – 'companies'", "the|companies '|old||companies"),
        ("ptb", "No man was in it, no.", "no|man|was|in|it|no"),
        ("ptb", "Zebra-like “Well-known” it’s", "zebra-like|well-known|it 's"),
        ("ptb", "– —", "–|—"),  # a line has a token
        ("ptb", "the man was in no. N ill.", "the|man|was|in|no.|N|ill."),  # as it is written there
        ("ptb", "mr. old did n't lose % zebra's", "mr.|old|did|n't|lose|%|zebra's"),
        ("ptb", "The <unk> didn't, N it", "the|<unk>|did n't|N|it"),  # nothing there has other capitals than N
        ("wikitext-2", "The man didn't; don't", "The|man|didn 't ;|don 't"),
        ("wikitext-2", 'He: "it’s 1,000, or 3.5%"', 'He :|" it \'s|1 @,@ 000 ,|or|3 @.@ 5 % "'),
        ("wikitext-2", "Mr. J. was well-known in the U.S.", "Mr.|J.|was|well @-@ known|in|the|U.S."),
        ("wikitext-2", "The companies' (old) 10:30 AT&T.", "The|companies '|( old )|10 : 30|AT & T ."),
        ("wikitext-2", "He cannot , well @-@ made", "He|cannot|,|well|@-@|made"),
    ],
)
def test_natural_text_is_written_as_the_corpus_writes_it(corpus: str, line: str, tokens: str) -> None:
    found = as_in_corpus(line.split(), corpus, VOCABULARIES[corpus])
    assert "|".join(map(" ".join, found)) == tokens


NATURAL = st.lists(
    st.sampled_from(
        [*PTB.split(), *WIKITEXT.split(), "don't", "(well-known)", "1,000.5", "Q.", "–", "'old'", "x.y.z."]
    ),
    max_size=12,
)


@given(NATURAL | ANY_LINE.map(written_words), st.sampled_from(["ptb", "wikitext-2"]))
def test_what_a_corpus_would_write_stays_as_it_is(words: list[str], corpus: str) -> None:
    vocabulary = VOCABULARIES[corpus]
    once = [token for tokens in as_in_corpus(words, corpus, vocabulary) for token in tokens]
    assert [token for tokens in as_in_corpus(once, corpus, vocabulary) for token in tokens] == once
    assert bool(once) == bool(words)


@given(ANY_LINE)
def test_words_loses_no_character_and_changes_nothing_the_second_time(line: str) -> None:
    assume(b"<eos>" not in line.encode().split())
    words = tokenize(line, "words")
    assert "".join(words) == "".join(word.decode().lower() for word in line.encode().split())
    assert tokenize(" ".join(words), "words") == words


@given(ANY_LINE.map(lambda line: line.replace("e", "’")))
def test_straight_words_are_those_of_the_line_with_straight_apostrophes_and_plain_spaces(line: str) -> None:
    assume("<eos>" not in line)
    seen = UNSEEN.sub("", OTHER_SPACE.sub(" ", line.replace("’", "'")))
    found = tokenize(line, "straight-words")
    assert [word for word in found if not OTHER_SPACE.match(word) and not UNSEEN.match(word)] == tokenize(seen, "words")
    assert len(found) >= len(line.encode().split()), "every written word has a token"


def test_the_reserved_word_is_refused() -> None:
    for tokenizer in ("whitespace", "words"):
        with pytest.raises(InputError, match="<eos> is reserved"):
            tokenize("a <eos> b", tokenizer)  # type: ignore[arg-type]
    assert tokenize("a<eos>b", "whitespace") == ["a<eos>b"]
    assert tokenize("a<eos>b", "words") == ["a", "<", "eos", ">", "b"]


WORDS = [EOS, UNK, *["He", "he", "went", "home", ".", "!", "?", ")", "]", "'", '"', "”", "said", "Then", "3", "..."]]
VOCABULARY = Vocabulary(tuple(WORDS))


def tokens(text: str) -> NDArray[np.int32]:
    words = [word for line in text.split("\n") for word in [*line.split(), EOS]]
    return np.array(VOCABULARY.encode(words), np.int32)


def cut(text: str, documents: tuple[int, ...] = (0,)) -> tuple[list[int], list[int]]:
    ids, starts = into_sentences(tokens(text), np.array(documents, np.int64), VOCABULARY)
    return ids.tolist(), starts.tolist()


def lines(text: str) -> list[str]:
    text = " ".join(map(VOCABULARY.word, cut(text)[0]))
    assert text.endswith(EOS)
    return [line.strip() for line in text.removesuffix(EOS).split(EOS)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("He went . He went home .", ["He went .", "He went home ."]),
        ("He went ? Then ! He", ["He went ?", "Then !", "He"]),
        ("He went . he said", ["He went . he said"]),  # an abbreviation
        ("He went . 3 he said", ["He went .", "3 he said"]),
        ('" He went . " Then he said', ['" He went . "', "Then he said"]),  # it closes
        ('He went . " Then he said . "', ["He went .", '" Then he said . "']),  # it opens
        ("He went . ) ' Then", ["He went . ) '", "Then"]),
        ("He went . ) ' ] Then", ["He went . ) ' ] Then"]),  # more than close a sentence
        ("He went ? ! Then", ["He went ? !", "Then"]),
        ('" He went . " Then " he said . " Then', ['" He went . "', 'Then " he said . "', "Then"]),
        ('" He " went . " Then . "', ['" He " went .', '" Then . "']),
    ],
)
def test_a_line_becomes_its_sentences(line: str, expected: list[str]) -> None:
    assert lines(line) == expected


def test_quotes_are_counted_in_their_own_line() -> None:
    assert lines('He " went\nHe . " Then') == ['He " went', "He .", '" Then']


def test_documents_begin_at_the_same_words_and_one_without_words_is_left_out() -> None:
    assert cut("He .\n\n\nThen\n\n", (0, 4, 5, 7))[1] == [0, 3]
    ids, documents = cut("He . Then .\n\nHe said .\n\n3 .", (0, 6, 11))
    assert [VOCABULARY.word(ids[start]) for start in documents] == ["He", "He", "3"]
    assert all(start == 0 or ids[start - 1] == 0 for start in documents)


@given(st.lists(st.lists(st.sampled_from(WORDS[1:]), max_size=8), min_size=1, max_size=6))
def test_no_word_is_lost_and_no_line_is_blank(text: list[list[str]]) -> None:
    whole = "\n".join(" ".join(line) for line in [["He"], *text])
    ids, found = tokens(whole), np.array(cut(whole)[0])
    assert found[found > 0].tolist() == ids[ids > 0].tolist()
    assert found[0] > 0 and not np.any((found[:-1] == 0) & (found[1:] == 0))
    assert (found == 0).sum() >= 1 + sum(map(bool, text))


def test_a_mark_that_the_vocabulary_lacks_is_none() -> None:
    ends = SentenceEnds(Vocabulary((EOS, UNK, "He")))
    assert not any(map(ends.ends_before, ("He", "!", "He")))


def test_load_corpus_says_what_was_done(tmp_path: Path) -> None:
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("He went . Then he said .\n\nHe went home .\n")
    corpus = load_corpus(DataConfig(corpus=str(tmp_path), lines="sentences"))
    assert (len(corpus.splits["train"]), corpus.lines) == (14, "sentences")
    assert corpus.notes[-1].startswith("lines cut into sentences")
    assert load_text(DataConfig(corpus=str(tmp_path / "test.txt"), lines="sentences"), VOCABULARY).lines == "sentences"


@given(st.text(st.characters(max_codepoint=0x7F)))
def test_words_of_ascii_are_cut_alike_in_any_text(line: str) -> None:
    """They have a pattern of their own, which does not look at all of Unicode."""
    assume("<eos>" not in line)
    for word in line.split():
        assert tokenize(f"{word}。", "words") == [*tokenize(word, "words"), "。"]
