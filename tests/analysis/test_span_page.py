"""The page of a span buffer: it holds the record, and nothing of a text can become markup."""

from __future__ import annotations

import re

import numpy as np
import pytest

from spanlm.analysis.pages import render_span_page
from spanlm.evaluation.attention import PARTS, SpanRecord

from .conftest import HOSTILE
from .span_records import make_spans
from .test_page import Page

TEXT = ["<eos>", *(f"w{n}" for n in range(30))]
KINDS = {
    "sliding": make_spans(TEXT),
    "words": make_spans(TEXT, span=1, spans=7),
    "zero": make_spans(TEXT, zero=True),
    "nothing yet": make_spans(TEXT[:3], span=5),
}


@pytest.mark.parametrize("record", KINDS.values(), ids=KINDS)
def test_the_page_holds_the_record(record: SpanRecord) -> None:
    content = Page(render_span_page(record)).record()
    assert content["tokens"] == [record.words[0], *record.targets]
    for t in range(len(record)):
        ends = [content["newest"][t] - k * content["span"] for k in range(len(content["weights"][t]))]
        looks = sorted(record.looks(t), key=lambda look: -look.last)
        assert ends == [look.last for look in looks]
        np.testing.assert_allclose(np.array(content["weights"][t]) / 1e4, [x.weight for x in looks], atol=5.1e-5)
        assert content["gate"][t] == (pytest.approx(record.gate[t], abs=1e-4) if record.filled[t] else None)
        for part in PARTS:
            assert [tuple(guess) for guess in content["expected"][part][t]] == [
                (word, pytest.approx(chance, rel=0.01)) for word, chance in getattr(record, part)[t]
            ]
    np.testing.assert_allclose(content["bits"], -np.log2(record.chance[:, 2]), atol=0.00501)


def test_words_cannot_become_markup() -> None:
    hostile = make_spans(["<eos>", *HOSTILE, *HOSTILE], title='<b onload="x">&</title><script>')
    plain = Page(render_span_page(KINDS["sliding"]))
    text = render_span_page(hostile)
    page = Page(text)
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert page.inside("title") == page.inside("h1") == [hostile.title]
    data = text.split('<script id="record" type="application/json">')[1].split("</script>")[0]
    assert not set(data) & set("<>&\u2028")


def test_the_page_needs_nothing_from_outside_and_has_every_place_its_script_fills() -> None:
    page = Page(render_span_page(KINDS["sliding"]))
    assert not {name for _, attributes in page.tags for name in attributes} & {"src", "href", "style", "onclick"}
    (style,), script = page.inside("style"), page.inside("script")[-1]
    assert not re.search(r"\w+://|url\(|@import|fetch|eval|innerHTML", style + script)
    places = {attributes.get("id") for _, attributes in page.tags}
    assert set(re.findall(r'byId\("([\w-]+)"\)', script)) <= places
    assert set(PARTS) <= places


def test_the_darkest_blue_is_that_of_rows_with_a_choice() -> None:
    assert Page(render_span_page(KINDS["nothing yet"])).record()["darkest"] == 1.0
    content = Page(render_span_page(make_spans(TEXT, span=1, spans=25))).record()
    assert content["darkest"] < 0.5, "the first rows share all the weight among few spans"
