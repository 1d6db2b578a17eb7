"""The page of a run that reads what is typed: in Chromium it computes what Python does with the same weights."""

import json
import math
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import spanlm
from spanlm.analysis.live_page import render_live
from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.data.subwords import Bytes, Characters
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.errors import InputError
from spanlm.models.encoders import LSTMConfig
from spanlm.models.heads import SoftmaxConfig
from spanlm.models.language_model import LanguageModel, ModelConfig
from spanlm.models.memories import AttentiveConfig, KeyValueConfig, NoMemoryConfig
from spanlm.runs.model import TrainedModel
from spanlm.training.config import BatchingConfig, TrainingConfig
from tests.browser import barriers, launched, tab_to, visiting

from .conftest import HOSTILE
from .test_page import Page

NODE = shutil.which("node")
WORDS = ["the", "cat", "sat", "on", "mat", ".", "don't", "e.g.", "1,000", "naïve", "a", "猫", "(", "हिन्दी", "x"]
LINE = "The cat sat (on the mat). Don't! E.g. 1,000 NAÏVE 猫 हिन्दी well-known A.B. x² İ <unk> it’s co\u00adop\u00a0b"
TEXT = "\n".join([LINE, "", f"  {LINE} the", "the\tcat", LINE, LINE, LINE, LINE, LINE, "  ", ""])

SENTENCES = BatchingConfig(kind="sentences")
UNOPENED = replace(SENTENCES, predict_first=False)
HEAD = SoftmaxConfig(tied=True, projection=True, bias=False)
STACK = LSTMConfig(hidden_size=12, layers=2)


def model_of(
    memory: Any,
    tokenizer: Any = "words",
    batching: BatchingConfig | None = None,
    encoder: LSTMConfig | None = None,
    head: SoftmaxConfig | None = None,
    size: int = 10,
) -> TrainedModel:
    """A model of random weights, large enough to tell all words apart, and rounded as those of the page are."""
    rooms = ModelConfig(
        embedding_size=size,
        init_range=0.8,
        encoder=encoder or LSTMConfig(hidden_size=12),
        memory=memory,
        head=head or SoftmaxConfig(),
    )
    training = TrainingConfig() if batching is None else TrainingConfig(batching=batching)
    config = RunConfig(data=DataConfig(corpus="x", tokenizer=tokenizer), model=rooms, training=training)
    vocabulary = {"characters": Characters.vocabulary([LINE[:60].encode()]), "bytes": Bytes.vocabulary()}
    words = vocabulary.get(tokenizer, Vocabulary((EOS, UNK, *WORDS)))
    torch.manual_seed(1)
    network = LanguageModel(rooms, len(words)).eval()
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(weight.half())
    return TrainedModel(network, words, config, Path("runs/x"))


MODELS: dict[str, Callable[[], TrainedModel]] = {
    "attention": lambda: model_of(KeyValueConfig(roles=1, window=4, recency="learned"), "whitespace"),
    "key-value": lambda: model_of(KeyValueConfig(roles=2, window=1), encoder=STACK),
    "key-value-predict": lambda: model_of(KeyValueConfig(roles=3, window=5), "straight-words"),
    "none, tied": lambda: model_of(NoMemoryConfig(), batching=SENTENCES, head=HEAD, size=12),
    "single": lambda: model_of(AttentiveConfig(score="single"), batching=SENTENCES),
    "combined": lambda: model_of(AttentiveConfig(score="combined", window=3, recency="linear", merge_bias=False)),
    "combined, unopened": lambda: model_of(AttentiveConfig(score="combined"), batching=UNOPENED),
    "current alone": lambda: model_of(
        AttentiveConfig(score="single", window=4, includes_current=True, merge="context", merge_bias=False)
    ),
    "mean": lambda: model_of(AttentiveConfig(score="mean"), batching=UNOPENED),
    "merge": lambda: model_of(AttentiveConfig(score="none")),
    "characters": lambda: model_of(KeyValueConfig(roles=3, window=5), "characters"),
    "bytes": lambda: model_of(KeyValueConfig(roles=3, window=5), "bytes"),
}


# --- without a browser ---


def test_the_page_is_one_file_that_asks_for_nothing(tiny_run: Path) -> None:
    model = spanlm.load(tiny_run)
    assert isinstance(model, TrainedModel)
    text = render_live(model)
    page = Page(text)
    assert page.inside("title") == page.inside("h1") == ["tiny reads as you write"]
    names = {name for _, attributes in page.tags for name in attributes}
    assert not names & {"src", "href", "style"} and not [name for name in names if name.startswith("on")]
    script = page.inside("script")[-1]
    assert not re.search(r"fetch|XMLHttpRequest|WebSocket|import\s*\(|eval|innerHTML|\.write\(", script)
    places = {attributes.get("id") for _, attributes in page.tags}
    assert set(re.findall(r'byId\("([\w-]+)"\)', script)) <= places
    assert page.record()["words"] == list(model.vocabulary.words)
    assert "default-src 'none'" in text


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_the_script_computes_the_bits_of_the_run(tiny_run: Path) -> None:
    model = spanlm.load(tiny_run)
    assert isinstance(model, TrainedModel)
    with torch.no_grad():
        for weight in model.model.parameters():
            weight.copy_(weight.half())
    script = resources.files("spanlm.analysis.pages").joinpath("network.js").read_text(encoding="utf-8")
    ids = [0, *range(len(model.vocabulary)), *range(0, len(model.vocabulary), 2)]
    halves = np.arange(0x7C00, dtype="<u2")  # all that are finite and not negative
    program = f"""const UNK = "<unk>", page = {json.dumps(Page(render_live(model)).record())};
{script}
const steps = new Network(page, decodeHalves(page.weights)).read({ids}, (t) => t === 0);
console.log(JSON.stringify([steps.map(({{ bits }}) => bits), [...decodeHalves("{b64encode(halves).decode()}")]]));"""
    done = subprocess.run([str(NODE), "-"], input=program, capture_output=True, text=True, encoding="utf-8", check=True)
    bits, decoded = json.loads(done.stdout)
    assert decoded == halves.view("<f2").tolist()
    steps = torch.tensor(ids).unsqueeze(1)
    with torch.no_grad():
        log_p, _ = model.model.log_prob(steps[:-1], steps[1:], model.model.init_state(1))
    np.testing.assert_allclose(bits, -log_p[:, 0].numpy() / math.log(2), atol=1e-4)


def test_what_is_too_large_is_refused() -> None:
    words = Vocabulary((EOS, UNK, *map(str, range(60_000))))
    config = RunConfig(model=ModelConfig(embedding_size=100, encoder=STACK, memory=KeyValueConfig(roles=3)))
    model = TrainedModel(LanguageModel(config.model, len(words)), words, config, Path("runs/x"))
    with pytest.raises(InputError, match=r"runs/x: its weights would take 16\.8 MB .* at most 16\. .*data\.max_size"):
        render_live(model)


def test_a_weight_beyond_16_bits_is_refused() -> None:
    model = model_of(NoMemoryConfig())
    with torch.no_grad():
        model.model.embedding.weight[0, 0] = 1e5
    with pytest.raises(InputError, match="65,504"):
        render_live(model)


# --- in a browser ---

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from launched()


@pytest.fixture
def visit(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens the page of a model."""
    file = tmp_path / "live.html"
    with visiting(browser, file.as_uri()) as new_page:

        def opened(model: Any, size: str = "wide", scheme: str = "light") -> Any:
            file.write_text(render_live(model), encoding="utf-8")
            page = new_page(size, scheme)
            page.goto(file.as_uri())
            page.locator("#reader .w").first.wait_for()
            return page

        yield opened


def words_of(page: Any) -> list[str]:
    return [str(word) for word in page.locator("#reader .w").all_inner_texts()]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_page_reads_as_python_does(visit: Open, name: str) -> None:
    model = MODELS[name]()
    page, state = visit(model), "line" if model.texts.line_by_line else "carry"
    page.locator("#text").fill(TEXT)
    content = page.evaluate("reader.content")
    if model.config.model.memory.slots == 0:
        scores = [*model.score(TEXT.rstrip(), state=state, eos=True)]
        tokens, bits = [EOS, *(score.word for score in scores)], [score.surprisal for score in scores]
        assert content["weights"] is None
    else:
        record = model.attend(TEXT, state=state)
        tokens, bits = [record.words[0], *record.targets], record.bits.tolist()
        weights = np.array(content["weights"]) / 10_000
        longer = record.window - weights.shape[1]  # by a row before a word that is not predicted
        np.testing.assert_allclose(np.pad(weights, ((0, 0), (longer, 0))), record.weights, atol=1e-5)
        assert content["held"] == record.occupied.sum(axis=1).tolist()
        assert content["nearest"] == record.nearest_lag and set(content["unknown"]) == record.unknown
        expected = [[word for word, _ in row] for row in record.expected]
        assert [[word for word, _ in row] for row in content["expected"]] == expected
    assert content["tokens"] == tokens
    np.testing.assert_allclose(np.array(content["bits"], dtype=float), bits, atol=1e-3)


@pytest.mark.slow
def test_a_text_is_read_while_it_is_typed_and_goes_on_by_a_click(visit: Open) -> None:
    model = MODELS["key-value-predict"]()
    page = visit(model)
    text, next_words = page.locator("#text"), page.locator("#next button")
    text.fill("")
    assert page.locator("#status").inner_text().startswith("Write something") and next_words.count() == 0
    assert page.locator("#reader").is_hidden()
    text.press_sequentially("the cat zebra\na mat")
    assert words_of(page) == ["¶", "the", "cat", "zebra", "¶", "a", "mat", "¶"]
    assert page.locator("#reader .w.unknown").all_inner_texts() == ["zebra"]
    assert page.locator("#reader .came .word").inner_text() == "mat", "the caret stands behind it"
    assert page.locator("#status").inner_text().startswith("5 words, 1 unknown; ")
    for _ in range(6):
        text.press("ArrowLeft")
    assert page.locator("#reader .came .word").inner_text() == "zebra"
    text.press("Backspace")
    scores = model.score("the cat zebr\na mat", state="carry", eos=True)
    assert page.evaluate("reader.content.bits") == pytest.approx([score.surprisal for score in scores], abs=1e-3)
    text.fill("the")
    log_p = next(model.draw("the", length=1, temperature=0.0, unk=True)).log_p
    best = [word for word in map(model.vocabulary.word, log_p.topk(5).indices.tolist()) if word != UNK]
    assert [button.split()[0].replace("¶", EOS) for button in next_words.all_inner_texts()] == best
    next_words.nth(1).click()
    assert text.input_value() == ("the\n" if best[1] == EOS else f"the {best[1]}")
    assert page.evaluate("document.activeElement.id") == "text"


@pytest.mark.slow
def test_what_is_written_is_never_markup_nor_a_line_end(visit: Open) -> None:
    page = visit(MODELS["attention"]())
    text, trouble = page.locator("#text"), page.locator("#trouble")
    text.fill("\n".join(HOSTILE))
    assert page.locator("#reader img, #reader script").count() == 0
    shown = page.locator("#reader .w").all_text_contents()
    assert all(word in shown for line in HOSTILE for word in line.split(" "))
    text.fill("the <eos> cat")
    assert "reserved" in trouble.inner_text() and text.get_attribute("aria-invalid") is not None
    text.fill("a " * 2100)
    assert "2,102 tokens" in trouble.inner_text()
    assert len(page.evaluate("reader.content.tokens")) == 2000
    text.fill("the")
    assert trouble.is_hidden()
    page = visit(MODELS["characters"]())
    page.locator("#text").fill("  ")
    assert words_of(page) == ["¶", "▁", "▁", "¶"]


@pytest.mark.slow
@pytest.mark.parametrize(("size", "scheme"), [("wide", "light"), ("phone", "dark")])
def test_the_page_fits_and_can_be_read_by_all(visit: Open, size: str, scheme: str) -> None:
    page = visit(MODELS["key-value-predict"](), size, scheme)
    page.locator("#examples").select_option("1")
    assert page.locator("#look").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert barriers(page) == []
    page.locator("#text").focus()
    tab_to(page, "#reader .w")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    assert page.locator("#reader .w.target[aria-pressed=true]").count() == 1
    page.keyboard.press("Escape")
    assert page.locator("#reader [aria-pressed=true]").count() == 0
