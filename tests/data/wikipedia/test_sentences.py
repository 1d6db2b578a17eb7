from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlm.data.wikipedia.sentences import split_sentences
from spanlm.data.wikipedia.text import normalise


@pytest.mark.parametrize(
    "paragraph",
    [
        "He came.| She left!| Who knows?| Nobody...| Really.",
        "Mr. J. R. Smith met Dr. Who of St. Louis.| He is Gen. Lee.",
        "It is in the U.S.| The capital is Washington, D.C.| In 1990 it grew.",
        "The U.S. Army and the U.S. Senate met at 5 p.m. Tuesday.",
        "Smith Jr. Stadium of Acme Inc. Ltd. stands.| However, it fell.",
        'He said "Go."| "No!" she said.| (He left.)| Then it ended.',
        "See No. 5 and fig. 3 of vol. 2.| He said no.| It came.",
        "Born c. 1500 (b. 1940, d. 1990), e.g. in Ur, i.e. there.",
        "World War I.| The next was World War II.| It ended.",
        "That was his career.|Three years passed.",
        "it fell to 3.5 million. of them few Yahoo! users, etc. and so on",
        "Ends without a mark.| Like this",
        "",
    ],
)
def test_where_sentences_end(paragraph: str) -> None:
    expected = [sentence.strip() for sentence in paragraph.split("|") if sentence]
    assert list(split_sentences(paragraph.replace("|", ""))) == expected


@given(st.one_of(st.text(max_size=80), st.text("aB .!?…\"')(StMr", max_size=80)))
def test_nothing_is_lost_between_sentences(text: str) -> None:
    paragraph = normalise(text).replace("\n", " ")
    sentences = list(split_sentences(paragraph))
    assert "".join("".join(sentences).split()) == "".join(paragraph.split())
    assert all(sentence == sentence.strip() != "" for sentence in sentences)
