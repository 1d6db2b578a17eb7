from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from spanlm.analysis.pages import render_page
from spanlm.evaluation.attention import AttentionRecord

from .conftest import make_record, mean_by_lag


class Page(HTMLParser):
    """What a browser would find: tags with their attributes, and the content of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: tuple[str, dict[str, str | None]] | None = None
        self.content: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

        self.open = self.tags[-1]

    def handle_endtag(self, tag: str) -> None:
        self.open = None

    def handle_data(self, data: str) -> None:
        if self.open:
            self.content.append((*self.open, data))

    def inside(self, tag: str) -> list[str]:
        return [data for name, _, data in self.content if name == tag and data.strip()]

    def record(self) -> dict[str, Any]:
        (text,) = (data for name, attrs, data in self.content if name == "script" and attrs.get("id") == "record")
        return dict(json.loads(text))


def test_words_cannot_become_markup(hostile: AttentionRecord) -> None:
    plain = Page(render_page(make_record(["<eos>", "a", "b"], 4)))
    page = Page(render_page(hostile))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert page.record()["tokens"] == [hostile.words[0], *hostile.targets]
    assert page.inside("title") == page.inside("h1") == [hostile.title]


def test_a_word_that_looks_like_a_placeholder_stays_a_word() -> None:
    page = Page(render_page(make_record(["<eos>", "{{script}}", "{{policy}}"], 2, title="{{record}}")))
    assert page.record()["tokens"][1:] == ["{{script}}", "{{policy}}"]
    assert page.inside("title") == ["{{record}}"]


def test_the_page_needs_nothing_from_outside(hostile: AttentionRecord) -> None:
    page = Page(render_page(hostile))
    names = {name for _, attributes in page.tags for name in attributes}
    assert not names & {"src", "href", "srcset", "data", "action", "style"}
    assert not [name for name in names if name.startswith("on")]
    assert not {tag for tag, _ in page.tags} & {"link", "img", "iframe", "object", "embed", "form", "base"}
    (style,) = page.inside("style")
    assert not re.search(r"url\(|@import|@font-face", style)
    script = page.inside("script")[-1]
    assert not re.search(r"fetch|XMLHttpRequest|WebSocket|import\s*\(|eval|innerHTML|\.write\(", script)
    assert not re.search(r"\w+://|[\"'(]//", style + script)


def test_the_policy_names_exactly_the_script_and_the_style(record: AttentionRecord) -> None:
    page = Page(render_page(record))
    (policy,) = (
        attributes["content"] or ""
        for tag, attributes in page.tags
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    (style,), script = page.inside("style"), page.inside("script")[-1]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules == {
        "default-src": "'none'",
        "style-src": f"'{_digest(style)}'",
        "script-src": f"'{_digest(script)}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_the_page_holds_the_record(record: AttentionRecord) -> None:
    content = Page(render_page(record)).record()
    assert (content["window"], content["nearest"]) == (3, 1)
    np.testing.assert_allclose(np.array(content["weights"]) / 1000, record.weights, atol=0.0005001)
    np.testing.assert_allclose(content["bits"], record.bits, atol=0.005001)
    assert content["expected"][2] == [["sat", 0.5], ["other", 0.25]]
    assert content["mean"] == pytest.approx(mean_by_lag(record.weights).percent, abs=0.005)


def test_the_page_knows_of_the_current_word(record: AttentionRecord, current: AttentionRecord) -> None:
    content = Page(render_page(current)).record()
    assert (content["window"], content["nearest"]) == (3, 0)
    assert content["mean"] == pytest.approx(mean_by_lag(current.weights, 0).percent, abs=0.005)
    assert "known without looking back" in render_page(record)
    assert "known without looking back" not in render_page(current), "it is looked at like the others"


def test_a_window_that_grows_with_the_text_has_no_mean() -> None:
    record = make_record(["<eos>", *"abcdefghij"], 9)
    content = Page(render_page(record)).record()
    assert content["mean"] is None
    assert content["darkest"] < 0.5, "the first rows share all the weight among few words"
