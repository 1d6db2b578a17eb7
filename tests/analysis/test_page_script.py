"""The scripts of the pages, run: which words they shade for which position. Needs Node.js for want of a browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from spanlm.analysis.pages import render_page, render_span_page
from spanlm.evaluation.attention import AttentionRecord

from .span_records import make_spans
from .test_page import Page

NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(NODE is None, reason="needs node")

BROWSER = """
class Element {
  classes = new Set(); style = { setProperty() {} }; dataset = {}; children = []; textContent = "";
  classList = { add: (name) => this.classes.add(name), remove: (name) => this.classes.delete(name) };
  set className(names) { this.classes = new Set(names.split(" ")); }
  get className() { return [...this.classes].join(" "); }
  get firstChild() { return this.children[0]; }
  append(...children) { this.children.push(...children); }
  appendChild(child) { this.children.push(child); return child; }
  replaceChildren(...children) { this.children = children; }
  setAttribute() {} addEventListener() {} scrollIntoView() {}
}
const elements = {}, heard = {}, location = { hash: "" };
const document = {
  createElement: () => new Element(),
  createDocumentFragment: () => new Element(),
  getElementById: (id) => (elements[id] ??= new Element()),
  addEventListener() {},
};
const addEventListener = (name, listener) => { heard[name] = listener; };
document.getElementById("record").textContent = RECORD;
"""
EVERY_POSITION = """
const lines = elements.text.children[0].children;
const spans = lines.flatMap((line) => line.children).filter((child) => child instanceof Element);
const marked = (name) => spans.flatMap((span, i) => (span.classes.has(name) ? [i] : []));
console.log(JSON.stringify(record.bits.map((_, t) => {
  location.hash = `#pos=${t}`;
  heard.hashchange();
  const percent = spans.flatMap(({ dataset }, i) => (dataset.percent ? [[i, dataset.percent]] : []));
  const peaks = elements.peaks.children.map((item) => item.children.map((child) => child.textContent));
  return { read: marked("read"), came: marked("target"), seen: marked("seen"), percent, peaks };
})));
"""


def shown(page: str) -> list[dict[str, Any]]:
    """What the page shows of each position: numbers of marked words, percents under words, what the panel names."""
    found = Page(page)
    browser = BROWSER.replace("RECORD", json.dumps(json.dumps(found.record())))
    program = browser + found.inside("script")[-1] + EVERY_POSITION
    done = subprocess.run([str(NODE), "-"], input=program, capture_output=True, text=True, encoding="utf-8", check=True)
    return list(json.loads(done.stdout))


def test_the_words_at_the_lags_turn_blue(record: AttentionRecord, current: AttentionRecord) -> None:
    for known in (record, current):
        for t, found in enumerate(shown(render_page(known))):
            weights = {t - lag: known.weights[t, j] for j, lag in enumerate(known.lags) if lag <= t}
            assert (found["read"], found["came"]) == ([t], [t + 1])
            assert found["seen"] == sorted(weights)
            for source, percent in found["percent"]:
                assert percent == pytest.approx(100 * weights[source], abs=0.56)
            if weights:
                most = max(weights, key=lambda source: weights[source])
                word, lag, _ = found["peaks"][0]
                assert word == known.words[most].replace("<eos>", "¶")
                assert lag == (f"−{t - most}" if t > most else "0")


@pytest.mark.parametrize(("span", "zero"), [(3, False), (1, False), (8, True)])
def test_every_word_of_the_spans_turns_blue(span: int, zero: bool) -> None:
    record = make_spans(["<eos>", *(f"w{n}" for n in range(20))], span=span, zero=zero)
    for t, found in enumerate(shown(render_span_page(record))):
        looks = record.looks(t)
        assert (found["read"], found["came"]) == ([t], [t + 1])
        assert found["seen"] == sorted({word for look in looks for word in range(look.first, look.last + 1)})
        named = [words.replace("¶", "<eos>") for words, _ in found["peaks"]] if looks else []
        assert named == [record.words_of(look) for look in sorted(looks, key=lambda look: -look.weight)]
        assert [percent for _, percent in found["percent"]] == pytest.approx(
            [100 * look.weight for look in sorted(looks, key=lambda look: look.last) if look.weight >= 0.01], abs=0.51
        )
