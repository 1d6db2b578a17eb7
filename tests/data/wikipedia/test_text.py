"""From text to prose, sentences and words."""

import re
import unicodedata
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlm.data.wikipedia.text import clean, cut_sentence, normalise, prose, split_sentences

ARTICLE = """Ann Lee

Ann Lee (, born 1900) was a writer. She wrote.
Early life.
She was born here. It is a town.
Works.
He died.
Her books:
Among the books that she wrote are these:
• One, a novel.
* Two
Three (1950)
and a line that stops
A long line that stops in mid-sentence is kept. It has a sentence that ends in it, so
! Year || Place
{| class="x"
The end of it is a very long sentence that nobody would take for a heading."""


@pytest.mark.parametrize(
    ("line", "cleaned"),
    [
        ("Plain (with 1 < 2 & more) stays.", "Plain (with 1 < 2 & more) stays."),
        ("Keeble &amp; Co. &lt;br&gt; and &quot;x&quot;", 'Keeble & Co.   and "x"'),
        ('sources,<ref name="x">A "note".</ref> and<ref name=y/> more', "sources, and more"),
        ("name () of (, ; born 1900; ) and ( ) and (also, )", "name  of (born 1900) and  and (also)"),
        ("see [http://x.org/a?b a label], https://y.org/z. and www.q.net/r", "see a label, . and"),
        ("left [[a|b]] and {{cn}} behind", "left b and  behind"),
        ("<poem>A rose</poem><br/>is", "A rose  is"),
    ],
)
def test_what_extractors_leave_behind(line: str, cleaned: str) -> None:
    assert clean(normalise(line)) == cleaned


@pytest.mark.slow
@given(st.text(max_size=50))
def test_normalised_text_has_nothing_invisible(text: str) -> None:
    found = normalise(text)
    assert normalise(found) == found and unicodedata.is_normalized("NFC", found)
    assert all(letter in " \n" or not letter.isspace() for letter in found)
    found.encode()


def test_lines_that_are_no_prose_are_left_out_and_counted() -> None:
    left_out: Counter[str] = Counter()
    assert list(prose(ARTICLE, "Ann Lee", left_out)) == [
        "Ann Lee (born 1900) was a writer. She wrote.",
        "She was born here. It is a town.",
        "He died.",
        "Among the books that she wrote are these:",
        "A long line that stops in mid-sentence is kept. It has a sentence that ends in it, so",
        "The end of it is a very long sentence that nobody would take for a heading.",
    ]
    assert left_out == {"title": 2, "heading": 3, "list": 6, "fragment": 9, "table": 6}

    # where blank lines part paragraphs, short ones are no headings
    assert list(prose("Early life.\n\nMore of it.\n\nEnd.", "T", Counter())) == ["Early life.", "More of it.", "End."]


@given(st.lists(st.sampled_from(["Ann Lee", "Early life.", "He died.", "• a b", "x y", "Is it? Yes.", ""]), max_size=9))
def test_every_word_is_given_out_or_counted(lines: list[str]) -> None:
    left_out: Counter[str] = Counter()
    given_out = sum(len(line.split()) for line in prose("\n".join(lines), "Ann Lee", left_out))
    assert given_out + left_out.total() == sum(len(line.split()) for line in lines)


@pytest.mark.parametrize(
    "paragraph",
    [
        "He came.| She left!| Who knows?| Nobody...| Really.",
        "Mr. J. R. Smith met Gen. Lee of St. Louis.| It is in Washington, D.C.| In 1990 it grew.",
        "World War I.| The next was World War II.| It ended, etc. and so on",
        'He said: "It was late. We left."| Then they slept (as we know. And do.) here.| But there.',
        "That was his career.|Three years passed.",
        "",
    ],
)
def test_where_sentences_end(paragraph: str) -> None:
    assert list(split_sentences(paragraph.replace("|", ""))) == [one.strip() for one in paragraph.split("|") if one]


@given(st.one_of(st.text(max_size=80), st.text("aB .!?…\"')(StMr«“", max_size=80)))
def test_nothing_is_lost_between_sentences(text: str) -> None:
    paragraph = normalise(text).replace("\n", " ")
    sentences = list(split_sentences(paragraph))
    assert "".join("".join(sentences).split()) == "".join(paragraph.split())
    assert all(sentence == sentence.strip() != "" for sentence in sentences)


@pytest.mark.parametrize("paragraph", ["It is so. " * 5000, "x" * 25_000 + " y. Z."])
def test_nothing_is_lost_of_a_long_paragraph(paragraph: str) -> None:
    assert "".join(split_sentences(paragraph)).replace(" ", "") == paragraph.replace(" ", "")


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        ("Well-known O'Brien left.", "Well-known O'Brien left ."),
        ('He said, "Go!"', 'He said , " Go ! "'),
        ("She didn't; they'll, it's Ann's.", "She did n't ; they 'll , it 's Ann 's ."),
        ("You cannot, won't and can't.", "You can not , wo n't and ca n't ."),
        ("The players' day", "The players ' day"),
        ("Mr. J. A. Smith Jr. of AT&T Inc. came.", "Mr. J. A. Smith Jr. of AT&T Inc. came ."),
        ("He moved to the U.S.", "He moved to the U.S."),
        ("It was World War I.", "It was World War I ."),
        ("He wrote Op. 5, No. 3 and said no.", "He wrote Op. N , No. N and said no ."),
        ("Pay $1,234.5 or 5% at 10:30, not .308.", "Pay $ N or N % at N , not N ."),
        ("In 1914–18 and 1978-79, 3/4 and 5½", "In N – N and N , N and N"),
        ("the 1990s, the 19th and a 30-year-old in the 90's", "the 1990s , the 19th and a 30-year-old in the N 's"),
        ("5'6\" tall", "N ' N \" tall"),
        ("and/or (see e.g. ch. 2)", "and / or ( see e.g. ch. N )"),
        ("so on... or -- and—then", "so on ... or -- and — then"),
        ("Last.fm and U.S.-led rock 'n' roll of the '80s", "Last.fm and U.S.-led rock 'n' roll of the '80s"),
        ("<unk> and <eos>", "< unk > and < eos >"),
        ("நிலம் é", "நிலம் é"),
        ("", ""),
    ],
)
def test_treebank_conventions(sentence: str, words: str) -> None:
    assert cut_sentence(sentence) == words.split()
    small = [word if word == "N" else word.lower() for word in words.split()]
    assert cut_sentence(sentence, lowercase=True) == small


TEXTS = st.one_of(st.text(max_size=60), st.text("ab Ae.'-,N1½9 (\"s)&/:n’t—U$%", max_size=60))


@given(TEXTS)
def test_every_letter_is_accounted_for(text: str) -> None:
    sentence = normalise(text)
    words = cut_sentence(sentence)
    one = {"N": r"(?:N|[\d¼-¾⅐-⅞.,:/-]+)"}  # a number, or itself
    assert re.fullmatch("".join(one.get(word, re.escape(word)) for word in words), "".join(sentence.split()))
    assert all(words) and not any(re.search(r"\s", word) for word in words)
    assert not {"<unk>", "<eos>"} & set(words)


@given(TEXTS, TEXTS)
def test_a_word_is_cut_the_same_wherever_it_stands(before: str, after: str) -> None:
    """Only the last of a sentence may differ, by its period."""
    first, second = normalise(before), normalise(after)
    together = cut_sentence(f"{first} {second} end")
    assert together == cut_sentence(f"{first} end")[:-1] + cut_sentence(f"{second} end")


@given(st.integers(0, 10**9))
def test_numbers_are_one_symbol(number: int) -> None:
    for written in (f"{number}", f"{number:,}", f"{number}.{number}", f".{number}"):
        assert cut_sentence(f"a {written} b") == ["a", "N", "b"]
    assert "N" not in cut_sentence(f"a {number}th b")
