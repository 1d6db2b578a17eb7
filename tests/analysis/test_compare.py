"""Two models token by token: what each gives is what `evaluate` and `score` say, classes by brute force."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import spanlm
from spanlm.analysis.classes import (
    ATTENDED,
    Looks,
    by_attention,
    by_frequency,
    by_novelty,
    by_recurrence,
    by_tag,
    distances,
    places,
)
from spanlm.analysis.compare import MOVED, SharedText, TokenBits, compare, read_tokens, shared_text
from spanlm.analysis.pages import render_comparison
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import PointerSentinelConfig
from spanlm.runs.model import TrainedModel
from spanlm.scoring.options import Context
from tests.analysis.conftest import HOSTILE
from tests.cases import rest_slow

WORDS = ("a", "b", "c", "d", "<eos>", "<unk>")
VOCABULARY = Vocabulary(WORDS)
EOS, UNK = VOCABULARY.eos_id, VOCABULARY.unk_id


def drawn_text(tokens: int = 400, seed: int = 0) -> SharedText:
    """Random words in lines and three documents."""
    draw = np.random.default_rng(seed)
    ids = draw.choice(6, tokens, p=[0.4, 0.2, 0.1, 0.05, 0.15, 0.1])
    documents = np.array([0, 130, 300])
    return SharedText("a text", "as it is", "document", VOCABULARY, ids, documents, np.ones(tokens, np.bool_))


def bits(tokens: int, seed: int, seeds: int = 1) -> TokenBits:
    return TokenBits(f"model {seed}", np.random.default_rng(seed).gamma(2.0, 2.0, (seeds, tokens)))


# --- what models give ---


@pytest.mark.parametrize("run", rest_slow(["tiny_run", "lstm_run", "unopened_run", "sentence_run"]))
def test_tokens_are_those_of_evaluate_and_of_score_in_the_order_of_the_text(
    run: str, request: pytest.FixtureRequest
) -> None:
    model = spanlm.load(request.getfixturevalue(run))
    corpus = model.corpus(None, "test")
    found, result = read_tokens(model, corpus, "test"), model.evaluate(corpus)
    assert found.bits.shape == (1, result.tokens)
    assert found.bits.sum() * math.log(2) == pytest.approx(result.nll, rel=1e-6)
    assert found.perplexity == pytest.approx(result.perplexity, rel=1e-6)
    text = shared_text(model, corpus, "test")
    if model.texts.predict_first:
        scored = list(model.score(corpus.written_lines("test"), state=text.context, eos=True))
        # `score` begins a document at a blank line, as this corpus does
        assert found.bits[0] == pytest.approx([word.surprisal for word in scored], abs=2e-4)


def test_where_a_model_looked_is_what_attend_shows(tiny_run: Path) -> None:
    model = spanlm.load(tiny_run)
    corpus = model.corpus(None, "test")
    looks = read_tokens(model, corpus, "test").looks
    assert looks is not None
    first, second = corpus.splits["test"].documents[:2].tolist()
    lines = " ".join(map(model.vocabulary.word, corpus.splits["test"].ids[first : second - 1].tolist()))
    record = model.attend(lines.replace(" <eos> ", "\n").replace(" <eos>", "\n"), state="carry")
    assert np.array(record.targets[: second - 1]).tolist() == lines.split()
    top = [record.lags[row.argmax()] for row in record.weights]
    assert (looks.lag[: second - 1] == top[: second - 1])[looks.slots[: second - 1] > 0].all()
    assert looks.peak[: second - 1] == pytest.approx(record.weights.max(1)[: second - 1], abs=1e-5)
    assert looks.slots[:5].tolist() == [0, 1, 2, 3, 3] and looks.slots[second] == 0
    assert read_tokens(model.with_attention("none"), corpus, "test").looks is None, "a lesion is not looked into"


def test_the_largest_share_of_the_slots_is_at_least_that_of_equal_ones(tiny_run: Path) -> None:
    """Also where a sentinel has a part of the weight."""
    trained = spanlm.load(tiny_run)
    assert isinstance(trained, TrainedModel)
    memory = PointerSentinelConfig(window=4)
    config = replace(trained.config, model=replace(trained.config.model, memory=memory))
    torch.manual_seed(1)
    model = LanguageModel(config.model, len(trained.vocabulary)).eval()
    pointer = TrainedModel(model, trained.vocabulary, config, tiny_run)
    looks = read_tokens(pointer, trained.corpus(None, "test"), "test").looks
    assert looks is not None
    assert (looks.peak * looks.slots)[looks.slots > 0].min() > 1 - 1e-5
    assert (looks.peak[looks.slots == 1] == 1).all() and (looks.slots == 1).any()


# --- the comparison ---


def test_a_model_is_no_better_than_itself() -> None:
    text = drawn_text()
    for one in (bits(400, 1), bits(400, 1, seeds=3)):
        found = compare(text, one, one)
        assert (found.whole.difference, found.p) == (0.0, 1.0)
        assert found.gains == found.losses == []
        assert all(row.difference == 0 for rows in found.where.values() for row in rows)
    assert compare(text, bits(400, 1), bits(400, 1)).whole.interval == (0.0, 0.0)


def test_parts_sum_to_the_whole_and_means_are_means() -> None:
    text = drawn_text()
    text = replace(text, counts=np.array([5_000, 40, 3, 0, 900, 12]))
    one, other = bits(400, 1), bits(400, 2)
    found, d = compare(text, one, other), other.bits[0] - one.bits[0]
    assert found.whole.difference == pytest.approx(d.mean())
    low, high = found.whole.interval
    assert low < found.whole.difference < high
    assert len(found.where) == 4
    for title, rows in found.where.items():
        words = "words" in title  # without <eos> and <unk>
        sorted_here = np.isin(text.ids, (EOS, UNK), invert=True) if words else np.full(400, True)
        assert sum(row.tokens for row in rows) == sorted_here.sum()
        assert sum(row.part for row in rows) == pytest.approx(d[sorted_here].sum() / 400)
        for row in rows:
            low, high = row.interval
            assert low <= row.difference <= high or math.isnan(low), row
    few = {row.name for rows in found.where.values() for row in rows if math.isnan(row.interval[0])}
    assert "1–10" in few and "6–10" not in few, "three documents begin in three blocks, which say little"
    eos = next(row for row in found.where["frequency in training"] if row.name == "<eos>")
    assert (eos.tokens, eos.difference) == ((text.ids == EOS).sum(), pytest.approx(d[text.ids == EOS].mean()))
    assert [word.place for word in found.gains] == np.argsort(d, kind="stable")[:MOVED].tolist()
    assert [word.place for word in found.losses] == np.argsort(-d, kind="stable")[:MOVED].tolist()


def test_seeds_widen_the_interval() -> None:
    """A family whose seeds lie far apart is less sure than one of them against the other."""
    text, base = drawn_text(), bits(400, 1)
    shifts = np.array([[-0.4], [0.0], [0.4]])
    family = TokenBits("family", base.bits + shifts + 0.2)
    found, one = compare(text, base, family), compare(text, base, TokenBits("one", base.bits + 0.2))
    assert found.whole.difference == pytest.approx(0.2) == one.whole.difference
    assert one.whole.interval == pytest.approx((0.2, 0.2)) and one.p < 0.001
    low, high = found.whole.interval
    assert low < -0.2 and high > 0.6 and found.p > 0.1
    assert found.runs == 3


def test_a_family_that_is_changed_is_compared_with_itself_seed_by_seed() -> None:
    """What the seeds share is in both, however far apart they lie."""
    text, base = drawn_text(), bits(400, 1)
    family = replace(base, bits=base.bits + np.array([[-0.4], [0.0], [0.4]]), runs=(Path("1"), Path("2"), Path("3")))
    changed = replace(family, bits=family.bits + np.array([[0.019], [0.02], [0.021]]))
    found = compare(text, family, changed)
    assert found.whole.difference == pytest.approx(0.02) and found.p < 0.05
    low, high = found.whole.interval
    assert 0.015 < low < 0.02 < high < 0.025
    other = compare(text, family, replace(changed, runs=(Path("4"), Path("5"), Path("6"))))
    assert other.whole.interval[0] < 0 < other.whole.interval[1] and other.p > 0.1


def test_only_words_that_both_know_are_compared() -> None:
    text = drawn_text()
    known = text.ids != WORDS.index("b")
    one, other = bits(400, 1), bits(400, 2)
    found = compare(replace(text, known=known), one, other)
    assert found.whole.tokens == known.sum() < 400
    assert found.whole.difference == pytest.approx((other.bits - one.bits)[0, known].mean())
    assert all(word.word != "b" for word in (*found.gains, *found.losses))
    with pytest.raises(InputError, match="no word that both"):
        compare(replace(text, known=np.zeros(400, np.bool_)), one, other)


@pytest.mark.parametrize("context", ["carry", "document", "line"])
def test_a_word_is_new_where_its_context_has_not_held_it(context: Context) -> None:
    """A memory that begins anew at each line has not seen the words of the last."""
    text, seen, new = replace(drawn_text(), context=context), set[int](), 0
    for place, id in enumerate(text.ids.tolist()):
        begins = {"carry": False, "document": place in text.documents, "line": text.ids[place - 1] == EOS}[context]
        seen = set() if begins else seen
        new += id not in (EOS, UNK, *seen)
        seen.add(id)
    rows = compare(text, bits(400, 1), bits(400, 2)).where["words by last occurrence"]
    assert {row.name: row.tokens for row in rows}["new"] == new
    assert by_novelty(text.ids, VOCABULARY, text.openings).labels.tolist().count(1) == new


# --- classes ---


def test_distances_are_those_of_a_loop() -> None:
    text = drawn_text()
    last: dict[int, int] = {}
    expected = []
    for place, id in enumerate(text.ids.tolist()):
        last = {} if place in text.documents else last
        expected.append(place - last[id] if id in last else 0)
        last[id] = place
    assert distances(text.ids, text.documents).tolist() == expected
    found = by_recurrence(text.ids, VOCABULARY, text.documents)
    ranges = {"new": (0, 0), "1–5 back": (1, 5), "6–50 back": (6, 50), "51–500 back": (51, 500)}
    for place, distance in enumerate(expected):
        special = text.ids[place] in (EOS, UNK)
        name = None if found.labels[place] < 0 else found.names[found.labels[place]]
        assert name is None if special else ranges[name][0] <= distance <= ranges[name][1]  # type: ignore[index]


def test_frequency_and_places() -> None:
    ids = np.arange(6)
    found = by_frequency(ids, VOCABULARY, np.array([0, 9, 10, 12_000, 7, 7]))
    assert [found.names[n] for n in found.labels.tolist()] == [
        *("0 times", "1–9 times", "10–99 times", "10,000 or more times", "<eos>", "<unk>")
    ]
    assert places(7, np.array([0, 3])).tolist() == [1, 2, 3, 1, 2, 3, 4]


def test_where_a_model_looked_most_is_named_by_the_first_that_holds() -> None:
    a, b, c, d = range(4)
    ids = np.array([a, b, a, EOS, c, a, b, d, d])  # read before: <eos> a b a <eos> c a b d
    lag = np.array([1, 1, 2, 2, 4, 1, 4, 1, 2])
    slots = np.array([0, 1, 2, 3, 4, 4, 4, 4, 4])
    peak = np.array([0, 1, 0.9, 0.9, 0.9, 0.26, 0.9, 0.9, 0.9])
    looks = Looks(lag, peak.astype(np.float32), slots)
    found = by_attention(looks, ids, np.zeros(1, np.int64), EOS, "it")
    assert [ATTENDED[n] for n in found.labels.tolist()] == [
        *("nothing yet", "<eos>", "before the target", "older slot", "<eos>"),
        *("diffuse", "the target itself", "nearest slot", "older slot"),
    ]


def test_parts_of_speech(tmp_path: Path) -> None:
    ids = np.array([0, 1, EOS, EOS, UNK, 2, EOS])
    path = tmp_path / "tagged.txt"
    path.write_text("a_DT b_NN\n\nzeb_ra_NN C_VB\n")
    found = by_tag(path, ids, VOCABULARY)
    assert [found.names[n] if n >= 0 else "" for n in found.labels.tolist()] == ["DT", "NN", "", "", "NN", "VB", ""]
    for text, why in {
        "a_DT b_NN\n\nzebra_NN\n": "line 3: has 1 words, and the text 2",
        "a_DT b\n\nzebra_NN c_VB\n": "line 1: 'b' has no tag; write each word as word_TAG",
        "a_DT d_NN\n\nzebra_NN c_VB\n": "line 1: 'd' is 'b' in the text",
        "a_DT b_NN\n\n": "other lines than the text, which has 3",
        "a_DT b_NN\n\nzebra_NN c_VB\na_DT\n": "other lines than the text, which has 3",
    }.items():
        path.write_text(text)
        with pytest.raises(InputError, match=why):
            by_tag(path, ids, VOCABULARY)


# --- the page ---


def test_the_page_holds_hostile_words_as_text() -> None:
    vocabulary = Vocabulary((*(word.replace(" ", "") for word in HOSTILE if "\u2028" not in word), "<eos>", "<unk>"))
    ids = np.arange(len(vocabulary)).repeat(8)
    size = len(ids)
    text = SharedText(HOSTILE[1], "", "carry", vocabulary, ids, np.zeros(1, np.int64), np.ones(size, np.bool_))
    names = HOSTILE[:2]
    one, other = (replace(bits(size, seed), name=name) for seed, name in enumerate(names))
    page = render_comparison([compare(text, one, other)], one.name, text.name)
    assert "<script" not in page and "<img" not in page and "&lt;imgsrc=x" in page
    assert page.count("<li>") == size, "every word moves"
    assert "://" not in page and "default-src 'none'" in page


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_bits_that_are_not_finite_are_named(bad: float) -> None:
    text, one = drawn_text(), bits(400, 1)
    lost = TokenBits("lost", np.where(np.arange(400) == 7, bad, one.bits))
    with pytest.raises(InputError, match=f"lost: {VOCABULARY.word(int(text.ids[7]))}, token 8 of a text"):
        compare(text, one, lost)


def test_differences_of_any_size_are_compared() -> None:
    """Huge ones have no perplexity; a token that makes all of the spread marks the interval; three blocks have none."""
    text, one = drawn_text(), bits(400, 1)
    huge = compare(text, one, TokenBits("huge", one.bits * 1e6))
    assert huge.perplexity == math.inf and huge.p < 0.001 and huge.whole.interval[0] > 1e5
    spike = compare(text, one, TokenBits("spike", one.bits + 1e6 * (np.arange(400) == 7))).whole
    assert spike.lopsided and spike.interval[0] < 0 < spike.interval[1]
    short = replace(text, ids=text.ids[:60], known=text.known[:60], documents=text.documents[:1])
    few = compare(short, TokenBits("a", one.bits[:, :60]), TokenBits("b", one.bits[:, :60] + 0.1))
    assert math.isnan(few.p) and math.isnan(few.whole.interval[0]) and few.whole.difference == pytest.approx(0.1)
