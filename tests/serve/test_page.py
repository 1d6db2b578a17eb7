"""The page in a real browser, used as people do: by mouse, finger and keyboard alone, on a phone, in the dark."""

import csv
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import torch

import spanlm
from spanlm.scoring.options import GenerationOptions
from spanlm.serve.fields import NEURAL_CACHE
from tests.browser import PATIENCE, barriers, launched, tab_to, visiting

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
pytest.importorskip("uvicorn", reason="needs the extra serve")
pytestmark = pytest.mark.slow

PANES = ("read", "generate", "compare", "learn", "share")
TEXT = "the cat sat on the zebra . the name is bound"
FUZZ = (
    "<img src=x onerror=document.title='broken'>",
    "</script><script>document.title='broken'</script>",
    "שלום",
    "مرحبا",
    "w" * 10_000,
    "👩‍👩‍👧‍👦",
    "&amp;",
    "a\u202eb",
)
Open = Callable[..., Any]


class Shown:
    """The page object: what people see of the page and do with it; all else is playwright's."""

    changed = property(lambda self: self.locator("#changed"))
    words = property(lambda self: self.locator("#reader .w"))
    status = property(lambda self: str(self.locator("#status").inner_text()))
    came = property(lambda self: str(self.locator("#reader .came .word").inner_text()))
    address = property(lambda self: str(self.evaluate("location.href")))  # what the browser tells of it may come later

    def __init__(self, page: Any) -> None:
        self.page = page

    def __getattr__(self, name: str) -> Any:
        return getattr(self.page, name)

    def ready(self, pane: str) -> None:
        first = {"read": "#reader .w", "generate": "#candidates li", "compare": "#columns .w", "learn": ".curves"}
        self.locator(first.get(pane, "#pane-share pre")).first.wait_for()

    def go(self, pane: str) -> None:
        self.locator(f"#tab-{pane}").click()
        self.ready(pane)

    def write(self, text: str) -> None:
        self.locator("#text").fill(text)

    def tab_to(self, selector: str, key: str = "Tab") -> None:
        tab_to(self.page, selector, key)

    @property
    def barriers(self) -> list[str]:
        return barriers(self.page)

    @property
    def percents(self) -> list[float]:
        shown = self.locator("#candidates .chance").all_inner_texts()
        return [float(text.replace("<", "").removesuffix("%")) for text in shown]

    @property
    def seen(self) -> list[list[float]]:
        """The bits of every word that the pane in sight shows, of each side."""
        self.locator("#waiting").wait_for(state="hidden")
        pane = self.evaluate("app.settings.pane")
        self.ready(pane)
        bits: list[list[float]] = self.evaluate(f"({BITS})(app.panes.{pane}.readers ?? [app.panes.{pane}.reader])")
        return bits

    def hold_first(self, address: str) -> list[Any]:
        held: list[Any] = []
        self.route(address, lambda route: route.continue_() if held else held.append(route))
        return held

    def let_go(self, held: list[Any]) -> None:
        """Continue a request that is held, as soon as it is."""
        for _ in range(PATIENCE // 10):
            if held:
                break
            self.wait_for_timeout(10)
        with suppress(sync_api.Error):  # it may have been given up
            held[0].continue_()


@pytest.fixture(scope="module")
def served(tiny_run: Path, lstm_run: Path, span_run: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "spanlm", "serve", str(tiny_run), str(lstm_run), str(span_run), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        yield found[0].rstrip("/")
        process.terminate()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from launched()


@pytest.fixture
def visit(browser: Any, served: str) -> Iterator[Open]:
    with visiting(browser, served + "/", "data:", "blob:" + served) as new_page:

        def opened(
            size: str = "wide", scheme: str = "light", address: str = "", *, ready: bool = True, **settings: str
        ) -> Any:
            page, place = Shown(new_page(size, scheme)), "&".join(f"{k}={v}" for k, v in settings.items())
            page.goto(f"{served}/{address}{place and f'#{place}'}")
            page.locator("#waiting").wait_for(state="hidden")
            if ready:
                page.ready(settings.get("pane", "read"))
            return page

        yield opened


# --- every pane, on every screen ---


@pytest.mark.parametrize(("size", "scheme"), [("wide", "light"), ("phone", "dark"), ("projector", "light")])
def test_panes_fit_and_can_be_read_by_all(visit: Open, size: str, scheme: str) -> None:
    page = visit(size, scheme, text=TEXT)
    for pane in PANES:
        page.go(pane)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (pane, "scrolls sideways")
        assert page.barriers == [], pane


# --- read ---


def test_a_text_is_read_while_it_is_typed(visit: Open, tiny_run: Path) -> None:
    page = visit()
    page.write("")
    page.locator("#text").press_sequentially(TEXT, delay=5)
    page.locator("#reader .w.target", has_text="bound").wait_for()
    assert page.words.all_inner_texts() == ["¶", *TEXT.split(), "¶"]
    assert page.locator("#reader .w.unknown").all_inner_texts() == ["zebra"]
    scores = list(spanlm.load(tiny_run).score(TEXT, state="document", eos=True))
    mean = sum(score.surprisal for score in scores) / len(scores)
    assert page.status.startswith(f"{len(TEXT.split())} words, 1 unknown; {mean:.2f} bits")
    # what is typed is what is shown: the caret stands behind the last word
    assert page.came == "bound"
    assert f"{scores[-2].surprisal:.1f} bits" in page.locator("#reader .came").inner_text()


def test_pointing_shows_and_clicking_keeps_and_the_address_has_it(visit: Open) -> None:
    page = visit(text=TEXT)
    words = page.words
    words.nth(6).hover()
    assert page.came == "zebra" and "read as <unk>" in page.locator("#reader .came").inner_text()
    assert page.locator("#reader .w.seen").count() == 3
    words.nth(3).click()
    words.nth(8).hover()
    assert page.came == "sat" and "pos=2" in page.address
    page.reload()
    page.locator("#reader .w.target[aria-pressed=true]").wait_for()
    assert page.came == "sat"
    page.locator("#reader .strip .plot").click(position={"x": 2, "y": 30})
    assert page.came == "the"


def test_read_and_generate_by_the_keyboard_alone(visit: Open) -> None:
    page = visit(text=TEXT)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.id === 'main' && location.hash.includes('text=')")
    page.tab_to(".w")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert page.came == "cat"
    assert "After the came cat" in page.locator("#reader [aria-live]").inner_text()
    page.keyboard.press("Enter")
    assert "pos=1" in page.address
    page.keyboard.press("Escape")
    assert "pos=" not in page.address
    page.tab_to("#tab-read", "Shift+Tab")
    page.keyboard.press("ArrowRight")
    assert page.locator("#pane-generate").is_visible() and page.evaluate("document.activeElement.id") == "tab-generate"
    page.ready("generate")
    made = page.locator("#story .made")
    page.tab_to("#draw")
    page.keyboard.press("Enter")
    made.nth(0).wait_for()
    page.tab_to("#temperature")
    page.keyboard.press("ArrowLeft")
    assert "t=0.95" in page.address
    page.tab_to(".candidate")
    for count in (2, 3):
        page.locator("#candidates:not([aria-busy])").wait_for()
        page.keyboard.press("Enter")
        assert made.count() == count, "the focus stays at the candidate"


def test_a_finger_reads_folds_and_gets_help_and_words_are_never_markup(visit: Open) -> None:
    page = visit("phone", text=TEXT)
    page.locator("#reader .fold").tap()
    page.words.nth(3).tap()
    assert page.came == "sat"
    assert page.locator("#reader .expected").is_hidden(), "it stays folded"
    page.locator("[data-term=lesion]").tap()
    assert page.locator("#tip").is_visible()
    page.write(" ".join(FUZZ))
    page.locator("#reader .w", has_text="&amp;").wait_for()
    shown = "".join(page.words.all_text_contents())
    assert all(word.lower() in shown.lower() for each in FUZZ for word in each.split())
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert page.title().startswith("spanlm")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_switches_say_what_they_change(visit: Open) -> None:
    page = visit(text=TEXT)
    assert page.changed.is_hidden()
    page.locator("#lesion").select_option("none")
    page.locator("#changed", has_text="With memory off it is").wait_for()
    assert page.locator("#reader .before").count() == 1 and "lesion=none" in page.address
    page.locator("#lesion").select_option("")
    page.locator("#state").select_option("line")
    page.locator("#changed", has_text="its line").wait_for()


def test_a_lesion_that_a_run_cannot_have_is_none(visit: Open) -> None:
    page = visit(text=TEXT, lesion="none")
    page.changed.wait_for()
    page.locator("#run").select_option("2")
    page.changed.wait_for(state="hidden")
    for address in ("run=2&lesion=none", "pane=compare&with=2:none,1"):
        page.evaluate("address => { location.hash = address; }", f"{address}&text={TEXT}")
        page.locator(".came b:visible").first.wait_for()
        assert "attention" not in page.status
        assert page.locator("h2.side", has_text="memory").count() == 0


def test_addresses_that_are_wrong_and_a_server_that_is_gone(visit: Open) -> None:
    page = visit(text="%0A%0Athe cat sat", state="line", pos="abc")
    page.locator("#changed", has_text="its line").wait_for()
    assert page.locator("#reader .w.target").count() == 1 and page.locator("#reader [aria-pressed=true]").count() == 0
    page.route("**/api/read", lambda route: route.abort())
    page.write("the")
    page.locator("#trouble", has_text="The server does not answer").wait_for()
    page.unroute("**/api/read")
    page.write("the cat")
    page.locator("#trouble").wait_for(state="hidden")


def test_the_newest_text_wins_and_an_error_is_said(visit: Open) -> None:
    page = visit()
    for end in range(1, 12):
        page.write("the cat " * end + "mat")
    page.locator("#status", has_text="23 words").wait_for()
    assert page.words.count() == 25
    page.write("a " * 20_001)
    for pane in ("read", "generate", "compare"):
        page.locator(f"#tab-{pane}").click()
        page.locator("#trouble", has_text="20,000").wait_for()
        assert page.locator("#text").get_attribute("aria-invalid") is not None
    page.write("the")
    page.locator("#trouble").wait_for(state="hidden")


@pytest.mark.parametrize(("pane", "place"), [("read", "#status"), ("compare", "#differences")])
def test_a_slow_answer_is_no_answer_to_an_emptied_field(visit: Open, pane: str, place: str) -> None:
    page = visit(pane=pane, text=TEXT)
    held = page.hold_first("**/api/read")
    with page.expect_request("**/api/read"):
        page.write("the mat")
    page.write("")
    page.locator(place, has_text="Write something").wait_for()
    page.let_go(held)
    page.wait_for_timeout(200)
    assert page.locator(place).inner_text() == "Write something, or choose an example."


# --- generate ---


def test_sliders_move_the_bars_by_the_rule_of_generation_and_ask_nothing(visit: Open, tiny_run: Path) -> None:
    page = visit(pane="generate", text="the")
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url))
    model = spanlm.load(tiny_run)
    drawn = next(model.draw("the", length=1))
    log_p = drawn.log_p.double().clone()
    log_p[model.vocabulary.unk_id] = -math.inf
    for temperature, top_k, top_p in ((2.0, 5, None), (1.0, None, 0.6), (0.7, 10, 0.8)):
        options = GenerationOptions(temperature=temperature, top_k=top_k, top_p=top_p)
        values = {"temperature": temperature, "top-k": {None: 10, 5: 3, 10: 4}[top_k], "top-p": top_p or 1}
        for name, value in values.items():
            page.locator(f"#{name}").fill(str(value))
        shown, known = page.percents, 100 * _distribution(log_p, options)
        assert shown == pytest.approx(known[: len(shown)].tolist(), rel=0.06, abs=0.02)
    page.locator("#temperature").fill("0")
    assert page.percents[:2] == [100, 0]
    assert asked == []


def _distribution(log_p: torch.Tensor, options: GenerationOptions) -> torch.Tensor:
    """Count what the rule says, the most probable word first."""
    p = (log_p / options.temperature).softmax(0).sort(descending=True).values
    kept, sum_before, held = [], 0.0, float(p[: options.top_k].sum())
    for place, share in enumerate(p.tolist()):
        stays = (options.top_k is None or place < options.top_k) and (
            options.top_p is None or sum_before < options.top_p * held
        )
        kept.append(share if stays else 0.0)
        sum_before += share
    return torch.tensor(kept, dtype=torch.float64) / sum(kept)


def test_words_are_drawn_taken_undone_and_explained(visit: Open) -> None:
    page = visit(pane="generate", text="the cat")
    made = page.locator("#story .made")
    page.locator("#draw").click()
    made.nth(0).wait_for()
    page.locator("#candidates:not([aria-busy])").wait_for()  # until then they are the candidates of the text before
    held = page.hold_first("**/api/next")
    page.locator("#candidates .candidate").nth(2).click()
    page.locator("#candidates .candidate").nth(0).click()
    assert made.count() == 2, "the second stood for the text before"
    page.let_go(held)
    page.locator("#candidates:not([aria-busy])").wait_for()
    page.locator("#write").click()
    made.nth(21).wait_for()
    page.locator("#write", has_text="Write 20 words").wait_for()
    page.locator("#tab-share").click()
    page.locator("#tab-generate").click()
    assert made.count() == 22, "they stay while one looks elsewhere"
    first = made.nth(1).inner_text()
    made.nth(1).click()
    assert f"Why “{first}”?" in page.locator("#why").inner_text() and "You took it" in page.locator("#why").inner_text()
    page.locator("#why", has_text="looked most at “").wait_for()
    assert "undefined" not in page.locator("#why").inner_text()
    page.locator("#why .candidate").nth(0).click()
    assert made.count() == 2
    page.locator("#undo").click()
    assert made.count() == 22
    for _ in range(3):
        page.locator("#undo").click()
    assert made.count() == 0 and page.locator("#undo").is_disabled()


# --- compare, learn, share ---


def test_runs_stand_side_by_side_and_show_the_same_word(visit: Open, tiny_run: Path, lstm_run: Path) -> None:
    page = visit(pane="compare", text=TEXT)
    ours, theirs = (
        [score.surprisal for score in spanlm.load(run).score(TEXT, state="document")] for run in (tiny_run, lstm_run)
    )
    mean = sum(a - b for a, b in zip(ours, theirs, strict=True)) / len(ours)
    said = page.locator("#differences figcaption").inner_text()
    assert f"{'B' if mean >= 0 else 'A'} is surprised less, by {abs(mean):.2f} bits a word" in said
    wins = sum(a > b for a, b in zip(ours, theirs, strict=True))
    assert f"B gains at {wins} of {len(ours)} words" in said
    page.locator("#columns article").nth(0).locator(".w").nth(6).hover()
    assert page.locator("#columns .came .word").all_inner_texts() == ["zebra", "zebra"]
    page.locator("#sides select[aria-label='run B']").select_option("1")
    page.locator("#sides select[aria-label='memory of B']").select_option("uniform")
    page.locator("h2.side", has_text="B: tiny, memory equal weights").wait_for()
    assert "with=1%2C1%3Auniform" in page.address
    page.locator("#sides button", has_text="Add one").click()
    page.locator("h2.side", has_text="C:").wait_for()
    page.locator("#differences figure").nth(1).wait_for()
    page.locator("#sides select[aria-label='memory of A']").focus()
    page.keyboard.press("ArrowDown")
    page.locator("h2.side", has_text="A: tiny, memory equal weights").wait_for()
    assert page.evaluate("document.activeElement.ariaLabel") == "memory of A", "the focus stays"
    page.locator("#run").select_option("2")
    page.locator("h2.side", has_text="A: lstm").wait_for()


def test_learn_says_what_a_run_is_and_no_figure_that_is_not_there(visit: Open) -> None:
    page = visit(pane="learn")
    cards, lines = page.locator("#pane-learn .run-card"), page.locator("#pane-learn .curves .line")
    assert (cards.count(), lines.count()) == (3, 6) and "Parameters" in cards.nth(0).inner_text()
    assert page.locator(".glossary dt").count() >= 15
    examples = [{"title": f"no. {n}", "text": f"the cat sat {n}", "look": f"look {n}"} for n in range(4)]

    def answered(route: Any) -> None:
        content = route.fetch().json()
        models = content["models"]
        gap: dict[str, Any] = {"train": None, "valid": None}
        models[0] |= {"perplexity": {"split": "valid", "value": None, "protocol": ""}, "parameters": 0}
        models[0] |= {"examples": examples, "curves": [{"epoch": 1, **gap}, {"epoch": 2, "train": 8.0, "valid": 9.0}]}
        models[1]["curves"] = [{"epoch": 1, **gap}]
        del models[2]
        route.fulfill(json=content)

    page.route("**/api/models", answered)
    page.reload()
    page.locator("#waiting").wait_for(state="hidden")
    assert lines.count() == 2
    assert "Parameters" not in cards.nth(0).inner_text() and "Perplexity" not in cards.nth(0).inner_text()
    page.locator(".example-list button").first.click()
    page.locator("#look", has_text="look 0").wait_for()
    assert page.locator("#pane-read").is_visible() and "perplexity" not in page.locator("#about").inner_text()
    page.locator("#examples").focus()
    page.keyboard.press("ArrowDown")
    page.locator("#look", has_text="look 1").wait_for()
    page.write("the mat")
    assert page.locator("#examples").input_value() == ""


BITS = (
    """(readers) => readers.map(({ content: { bits, tokens } }) => bits.filter((_, t) => tokens[t + 1] !== "<eos>"))"""
)
CASES: dict[str, dict[str, str]] = {
    "all": {"run": "3", "cache": "1", "state": "carry", "lesion": "uniform", "pos": "3", "tint": "the gate (λ)"},
    "sides": {
        "pane": "compare",
        "with": "1:none,2,3:uniform",
        "state": "line",
        "cache": "1",
        "lesion": "uniform",
        "at": "4",
    },
    "drawn": {"pane": "generate", "lesion": "none", "cache": "1", "t": "0.5", "k": "5", "p": "0.9"},
}
TYPED = "The Cat sat on the cat .\nthe cat's ZEBRA, the\n\nThe dog sat on the Cat ."


@pytest.mark.parametrize("case", CASES)
def test_what_is_shared_has_the_numbers_of_what_is_seen(
    visit: Open, case: str, tmp_path: Path, browser: Any, served: str
) -> None:
    settings = CASES[case] | {"text": quote(TYPED)}
    page = visit(**settings)
    if case == "drawn":
        page.locator("#write").click()
        page.locator("#write", has_text="Write 20 words").wait_for()
        page.locator("#candidates:not([aria-busy])").wait_for()
        asked = page.evaluate("app.panes.generate.shared()[0].body.text")
        next_words = page.locator("#candidates").inner_text()
        assert len(asked.split()) > len(TYPED.split())
        fields = {"text": asked, "state": "document", "attention": "none"}
        record = page.request.post(f"{served}/api/read", data=fields).json()["items"][0]["record"]
        seen = [[bits for bits, came in zip(record["bits"], record["tokens"][1:], strict=True) if came != "<eos>"]]
    else:
        seen = page.seen
    expected = [pytest.approx(bits, abs=1e-3) for bits in seen]
    page.locator("#tab-share").click()
    for number, bits in enumerate(expected):
        label = f"Save {'ABC'[number]} as page" if len(seen) > 1 else "Save as page"
        with page.expect_download() as download:
            page.get_by_role("button", name=label).click()
        download.value.save_as(tmp_path / "saved.html")
        context = browser.new_context(offline=True)
        offline = context.new_page()
        offline.goto((tmp_path / "saved.html").as_uri())
        assert offline.evaluate(f"({BITS})([reader])") == [bits]
        context.close()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save rows").click()
    download.value.save_as(tmp_path / "rows.csv")
    rows = list(csv.DictReader((tmp_path / "rows.csv").read_text(encoding="utf-8").splitlines()))
    sides: dict[str, list[float]] = {}
    for row in rows:
        sides.setdefault(row.get("side", ""), []).append(float(row["surprisal"]))
    assert [*sides.values()] == expected
    for curl, bits in zip(re.findall(r"-d '(.*)'", page.locator("pre").first.inner_text()), expected, strict=True):
        answer = page.request.post(f"{served}/api/score", data=json.loads(curl.replace("'\\''", "'"))).json()
        assert [row["surprisal"] for row in answer["rows"]] == bits
    address = page.locator(".address").input_value()
    page.goto("about:blank")
    page.goto(address)
    if case == "drawn":
        page.locator("#candidates li").first.wait_for()
        assert page.locator("#candidates").inner_text() == next_words
        assert page.locator("#text").input_value() == asked
    else:
        assert page.seen == seen
    kept = page.evaluate("app.settings") | {"text": settings["text"]}
    assert settings.items() <= kept.items()


def test_what_stands_side_by_side_has_one_axis(visit: Open) -> None:
    page = visit(pane="compare", text=TEXT, **{"with": "1,2,3:uniform"})
    for word in (2, 6):
        page.locator("#columns article").first.locator(".w").nth(word).click()
        tops = page.locator("#columns .strip .top").all_inner_texts()
        assert len(tops) == 3 and len({*tops}) == 1
    ends = page.locator(".difference .up, .difference .down").all_inner_texts()
    assert len(ends) == 4 and len({text.partition(", to ")[2] for text in ends}) == 1 and "bit" in ends[0]
    assert page.evaluate("[...new Set(app.panes.compare.readers.map(({ content }) => content.darkest))].length") == 1


# of text on each tint of the words: by WCAG it is 4.5 at least
CONTRAST = """() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const linear = (x) => x / 255 <= 0.04045 ? x / 255 / 12.92 : ((x / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([red, green, blue]) =>
    0.05 + 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
  const word = document.querySelectorAll("#reader .w:not(.seen):not(.target)")[1];
  const paper = numbers(getComputedStyle(document.body).backgroundColor);
  word.style.transition = "none";
  return [...Array(9).keys()].map((step) => {
    word.style.setProperty("--tint", step / 8);
    const [red, green, blue, alpha = 1] = numbers(getComputedStyle(word).backgroundColor);
    const back = [red, green, blue].map((x, i) => paper[i] + (x - paper[i]) * alpha);
    const [dark, bright] = [light(back), light(numbers(getComputedStyle(word).color))].sort((a, b) => a - b);
    return bright / dark;
  });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_tints_can_be_read_through(visit: Open, scheme: str) -> None:
    page = visit(scheme=scheme, text=TEXT)
    assert min(page.evaluate(CONTRAST)) >= 4.5


def test_unknown_words_are_said_beside_the_perplexity(visit: Open, tiny_run: Path) -> None:
    page = visit(text="zebra gnu the cat yak")
    rows = [row for row in spanlm.load(tiny_run).score("zebra gnu the cat yak", eos=True) if not row.oov]
    known = 2 ** (sum(row.surprisal for row in rows) / len(rows))
    status = page.status
    assert "3 unknown" in status and "an unknown word counts as <unk>" in status
    assert f"among known words (perplexity {known:.1f})" in status
    page.locator("#tab-compare").click()
    page.locator("#differences figcaption", has_text="3 unknown words count as <unk>; without").wait_for()


def test_it_opens_at_the_most_surprising_content_word(visit: Open) -> None:
    for settings in ({}, {"run": "2"}, {"run": "3"}, {"pane": "compare"}, {"cache": "1"}):
        page = visit(text="The CAT sat on the zebra . the name is BOUND .", **settings)
        came = page.locator(".came .word:visible").first.inner_text()
        assert came in ("CAT", "sat", "name", "BOUND")  # as they were typed, and none of "the", "." or an unknown word
        assert "CAT" in page.locator("#reader, #columns article").locator("visible=true").first.inner_text()


# --- tour, help, start ---


def test_the_tour_shows_only_what_is_there(visit: Open) -> None:
    page = visit(text="the mat", run="2")
    page.locator("#tour").click()
    for step in range(1, 5):
        page.locator(".tour", has_text=f"{step} of 7").wait_for()
        page.keyboard.press("Enter")
    page.locator("#changed", has_text="With memory off").wait_for()
    assert page.locator("#run").input_value() != "2", "an LSTM has none"
    held = page.hold_first("**/api/next")
    with page.expect_request("**/api/next"):
        page.get_by_role("button", name="Next").click()
    page.keyboard.press("Escape")
    page.let_go(held)
    page.wait_for_timeout(200)
    assert page.locator(".tour").is_hidden() and page.locator("#run").input_value() == "2"


def test_every_term_is_explained(visit: Open) -> None:
    page, told = visit(text=TEXT), list[str]()
    for pane in PANES:
        page.go(pane)
        # a pane's all at once: an answer that comes in between may write some of them anew
        told += page.evaluate(
            "[...document.querySelectorAll('.term')].filter(term => term.checkVisibility())"
            ".map(term => { term.focus(); return document.querySelector('#tip').innerText; })"
        )
    assert len(told) > 10 and all(len(said) > 30 and "undefined" not in said for said in told), told
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()


def test_the_page_waits_for_a_model_that_is_trained(browser: Any, served: str) -> None:
    context = browser.new_context()
    context.set_default_timeout(PATIENCE)
    page, asked = Shown(context.new_page()), []

    def still_training(route: Any) -> None:
        asked.append(route)
        if len(asked) > 2:
            route.continue_()
        else:
            route.fulfill(json={"version": "0", "ready": False, "progress": "epoch 3 of 8", "models": []})

    page.route("**/api/models", still_training)
    page.goto(served)
    page.locator("#waiting", has_text="epoch 3 of 8").wait_for()
    page.words.first.wait_for()
    context.close()


def test_the_page_is_small_and_keeps_a_token_out_of_its_address(visit: Open) -> None:
    page = visit(address="?token=secret", text=TEXT)
    assert "secret" not in page.address
    names = page.evaluate("performance.getEntriesByType('resource').map(({ name }) => name)")
    files = [page.url.partition("#")[0], *(name for name in names if "/static/" in name)]
    sizes = {name: len(page.request.get(name).body()) for name in files}
    assert len(sizes) > 10 and sum(sizes.values()) < 140_000, sizes
    with page.expect_request("**/api/read") as sent:
        page.write("the mat")
    assert sent.value.headers["authorization"] == "Bearer secret"
    assert json.loads(sent.value.post_data)["text"] == "the mat"


# --- a cache ---


@pytest.mark.parametrize(("size", "scheme"), [("wide", "light"), ("phone", "dark")])
def test_a_cache_shows_its_hits_and_what_it_changes(
    visit: Open, size: str, scheme: str, lstm_run: Path, tmp_path: Path
) -> None:
    page = visit(size, scheme, text=TEXT, run="2")
    words, cached = page.words, page.locator("#reader .cached")
    assert page.locator("#reader .had").count() == cached.count() == 0 and page.changed.is_hidden()
    page.locator("#cache").focus()
    page.keyboard.press("Space")
    page.locator("#changed", has_text="With a cache it is").wait_for()
    assert page.locator("#reader .w.had").all_inner_texts() == ["the", "the"] and "cache=1" in page.address
    (tmp_path / "text.txt").write_text(TEXT + "\n", encoding="utf-8")
    cache = replace(NEURAL_CACHE, window=len(TEXT.split()))
    found = spanlm.load(lstm_run).evaluate(str(tmp_path / "text.txt"), state="carry", cache=cache)
    assert f"{found.bits_per_token:.2f} bits a token" in page.status

    (words.nth(8).tap if size == "phone" else words.nth(8).click)()
    assert re.match(r"The cache\s+had this word, [\d.]+ %: \d\.\d\d bits (gained|lost)\s", cached.inner_text())
    assert page.locator("#reader .w.seen").all_inner_texts() == ["the", "the"]
    rows = [row.split() for row in cached.locator("li").all_inner_texts()]
    assert sorted(row[:3] for row in rows) == [["on", "the", "−2"], ["¶", "the", "−6"]]
    page.keyboard.press("ArrowRight")
    assert "The cache: did not have this word" in page.locator("#reader [aria-live]").inner_text()
    assert page.barriers == []
    page.locator("#cache").uncheck()
    page.changed.wait_for(state="hidden")
    assert page.locator("#reader .had").count() == cached.count() == 0 and "cache" not in page.address
