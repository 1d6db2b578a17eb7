"""The pages: they hold the record, nothing of a text can become markup, and their scripts shade the right words."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spanlm.analysis.pages import darkest, render_page
from spanlm.scoring.attention import AttentionRecord
from tests.browser import launched, visiting

from .conftest import HOSTILE, WORDS, make_record, make_spans, mean_by_lag


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


def page_of(words: list[str], *, spans: bool, title: str = "a model") -> str:
    """The page of what a window of four words or a span buffer did."""
    words = ["<eos>", *words]
    return render_page(make_spans(words, title=title) if spans else make_record(words, 4, title))


both_pages = pytest.mark.parametrize("spans", [False, True], ids=["words", "spans"])


@both_pages
def test_words_cannot_become_markup(spans: bool) -> None:
    title = '{{record}}<b onload="x">&</title><script>'
    text = page_of([*HOSTILE, *HOSTILE], spans=spans, title=title)
    plain, page = Page(page_of(["a", "b"], spans=spans)), Page(text)
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert page.record()["tokens"] == ["<eos>", *HOSTILE, *HOSTILE]
    assert page.inside("title") == page.inside("h1") == [title]
    data = text.split('<script id="record" type="application/json">')[1].split("</script>")[0]
    assert not set(data) & set("<>&\u2028")


@both_pages
def test_the_page_needs_nothing_from_outside_and_has_every_place_its_script_fills(spans: bool) -> None:
    page = Page(page_of(list(HOSTILE), spans=spans))
    names = {name for _, attributes in page.tags for name in attributes}
    assert not names & {"src", "href", "srcset", "data", "action", "style"}
    assert not [name for name in names if name.startswith("on")]
    assert not {tag for tag, _ in page.tags} & {"link", "img", "iframe", "object", "embed", "form", "base"}
    (style,), script = page.inside("style"), page.inside("script")[-1]
    assert not re.search(r"url\(|@import|@font-face", style)
    assert not re.search(r"fetch|XMLHttpRequest|WebSocket|import\s*\(|eval|innerHTML|\.write\(", script)
    assert not re.search(r"\w+://|[\"'(]//", style + script.replace("http://www.w3.org/2000/svg", ""))
    places = {attributes.get("id") for _, attributes in page.tags}
    assert set(re.findall(r'getElementById\("([\w-]+)"\)', script)) == {"reader", "record"} <= places


@both_pages
def test_the_policy_names_exactly_the_script_and_the_style(spans: bool) -> None:
    page = Page(page_of(["a", "b"], spans=spans))
    metas = [attributes for tag, attributes in page.tags if tag == "meta"]
    (policy,) = (one["content"] or "" for one in metas if one.get("http-equiv") == "Content-Security-Policy")
    style, script = (
        base64.b64encode(hashlib.sha256(page.inside(tag)[-1].encode()).digest()).decode() for tag in ("style", "script")
    )
    assert dict(rule.strip().split(" ", 1) for rule in policy.split(";")) == {
        "default-src": "'none'",
        "style-src": f"'sha256-{style}'",
        "script-src": f"'sha256-{script}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


@pytest.mark.parametrize("nearest", [0, 1])
def test_the_page_holds_the_record(nearest: int) -> None:
    record = make_record(WORDS, 3, nearest_lag=nearest)
    content = Page(render_page(record)).record()
    assert (content["window"], content["nearest"]) == (3, nearest)
    np.testing.assert_allclose(np.array(content["weights"]) / 10_000, record.weights, atol=0.00005001)
    np.testing.assert_allclose(content["bits"], record.bits, atol=0.000051)
    assert content["expected"][2] == [["sat", 0.5], ["other", 0.25]]
    assert content["mean"] == pytest.approx(mean_by_lag(record.weights, nearest).percent, abs=0.005)


def test_a_window_that_grows_has_no_mean_and_the_darkest_blue_is_that_of_rows_with_a_choice() -> None:
    record = make_record(["<eos>", *"abcdefghij"], 9)
    content = Page(render_page(record)).record()
    assert content["mean"] is None
    assert content["darkest"] < 0.5, "the first rows share all the weight among few words"


TEXT = ["<eos>", *(f"w{n}" for n in range(30))]
BUFFERS = {
    "sliding": make_spans(TEXT),
    "words": make_spans(TEXT, span=1, spans=7),
    "zero": make_spans(TEXT, zero=True),
    "nothing yet": make_spans(TEXT[:3], span=5),
}


@pytest.mark.parametrize("record", BUFFERS.values(), ids=BUFFERS)
def test_the_page_of_a_span_buffer_holds_the_record(record: AttentionRecord) -> None:
    content, parts = Page(render_page(record)).record(), record.parts
    assert parts is not None
    assert content["tokens"] == [record.words[0], *record.targets]
    for t in range(len(record)):
        ends = [content["newest"][t] - k * content["span"] for k in range(len(content["weights"][t]))]
        looks = sorted(record.looks(t), key=lambda look: -look.last)
        assert ends == [look.last for look in looks]
        np.testing.assert_allclose(np.array(content["weights"][t]) / 1e4, [x.weight for x in looks], atol=5.1e-5)
        assert content["gate"][t] == (pytest.approx(parts.preference[t], abs=1e-4) if parts.there[t] else None)
        for part, rows in parts.expected.items():
            assert [tuple(guess) for guess in content["expected"][part][t]] == [
                (word, pytest.approx(chance, rel=0.01)) for word, chance in rows[t]
            ]
    np.testing.assert_allclose(content["bits"], record.bits, atol=0.000051)
    every = [weight / 1e4 for row in content["weights"] for weight in row]
    assert sum(weight > content["darkest"] for weight in every) <= 0.05 * len(every)
    assert content["darkest"] == darkest(np.array([content["darkest"]])), "a round number: no legend says ≥ 99.7 %"
    assert every or content["darkest"] == 1.0


# --- the scripts, run ---

EVERY_POSITION = """() => reader.content.bits.map((_, t) => {
  location.hash = `#pos=${t}`;
  readAddress();
  const marked = (name) => reader.words.flatMap((word, i) => (word.classList.contains(name) ? [i] : []));
  const percent = reader.words.flatMap(({ dataset }, i) => (dataset.percent ? [[i, Number(dataset.percent)]] : []));
  const peaks = [...reader.view.peaks.children].map((item) => [...item.childNodes].map((child) => child.textContent));
  return { read: marked("read"), came: marked("target"), seen: marked("seen"), percent, peaks };
})"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from launched()


@pytest.fixture
def run(browser: Any, tmp_path: Path) -> Iterator[Callable[[AttentionRecord, str], Any]]:
    """Opens the page of a record and runs a script there; `EVERY_POSITION` says what the page shows of each."""
    file = tmp_path / "page.html"
    with visiting(browser, file.as_uri()) as new_page:

        def ran(record: AttentionRecord, script: str) -> Any:
            file.write_text(render_page(record), encoding="utf-8")
            page = new_page()
            page.goto(file.as_uri())
            return page.evaluate(script)

        yield ran


@pytest.mark.slow
def test_the_words_at_the_lags_turn_blue(run: Any, record: AttentionRecord, current: AttentionRecord) -> None:
    for known in (record, current):
        for t, found in enumerate(run(known, EVERY_POSITION)):
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


@pytest.mark.slow
@pytest.mark.parametrize(("span", "zero"), [(3, False), (1, False), (8, True)])
def test_every_word_of_the_spans_turns_blue(run: Any, span: int, zero: bool) -> None:
    record = make_spans(["<eos>", *(f"w{n}" for n in range(20))], span=span, zero=zero)
    for t, found in enumerate(run(record, EVERY_POSITION)):
        looks = record.looks(t)
        assert (found["read"], found["came"]) == ([t], [t + 1])
        assert found["seen"] == sorted({word for look in looks for word in range(look.first, look.last + 1)})
        named = [words.replace("¶", "<eos>") for words, _ in found["peaks"]] if looks else []
        assert named == [record.words_of(look) for look in sorted(looks, key=lambda look: -look.weight)]
        assert [percent for _, percent in found["percent"]] == pytest.approx(
            [100 * look.weight for look in sorted(looks, key=lambda look: look.last) if look.weight >= 0.01], abs=0.51
        )


@pytest.mark.slow
def test_one_probability_has_one_spelling_and_an_unknown_word_is_the_guess_unk(run: Any) -> None:
    shares = [0.997, 0.99946, 0.99951, 1, 0.98, 0.0994, 0.00123, 1e-7, 0]
    guesses = 'guessList([["the", 0.5], ["<unk>", 0.2]], "<unk>", (word) => word).map((item) => [...item.classList])'
    script = f"[{shares}.map(percent), {shares}.map(wholePercent), {guesses}]"
    spelled, whole, hits = run(make_record(WORDS, 3), script)
    assert spelled == ["99.7 %", "99.9 %", "100 %", "100 %", "98 %", "9.9 %", "0.12 %", "< 0.001 %", "0 %"]
    assert whole == [99, 99, 100, 100, 98, 10, 0, 0, 0]
    assert hits == [[], ["hit"]]


@pytest.mark.parametrize(
    ("largest", "top"),
    [(0.004, 0.004), (0.0041, 0.005), (0.1, 0.1), (0.11, 0.15), (0.61, 0.8), (0.97, 1.0), (1.0, 1.0), (0.0, 1.0)],
)
def test_a_scale_ends_at_a_round_number_not_below_the_largest(largest: float, top: float) -> None:
    assert darkest(np.array([largest])) == pytest.approx(top)
    assert darkest(np.array([largest], dtype=np.float32)) == pytest.approx(top)
