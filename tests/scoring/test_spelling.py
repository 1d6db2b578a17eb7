"""Spelled unknown words: the character model is a distribution, and its cost is part of every number."""

import json
import math
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import spanlm
from spanlm.data.vocabulary import EOS, UNK
from spanlm.scoring.options import CacheConfig, DynamicConfig
from spanlm.scoring.spelling import Speller
from tests.cases import rest_slow

UNSEEN = "☃"
WORDS = ["ab", "abab", "b", "baba", "aab", "abba", "bab", "aaab"]


@pytest.mark.parametrize("counts", [dict.fromkeys(WORDS, 1), {"a": 1}, {UNK: 5, EOS: 9, "ba": 3, "aa": 1}])
def test_the_spellings_of_all_words_share_one(counts: dict[str, int]) -> None:
    """Over all strings of a tiny alphabet; one of the other code points stands for all of them."""
    speller = Speller(counts)
    letters = sorted({letter for word in counts for letter in word if word not in (UNK, EOS)})
    others = 0x110000 - len(letters)
    total, left = 0.0, 1.0
    for length in range(8):
        costs = speller.costs(map("".join, product([*letters, UNSEEN], repeat=length)))
        total += math.fsum(math.exp(-cost) * others ** word.count(UNSEEN) for word, cost in costs.items())
        assert all(cost < math.inf for cost in costs.values())
        left, before = 1 - total, left
        assert -1e-6 < left <= before
    assert left < 0.05


def test_words_that_the_training_text_has_once_say_how_words_are_spelled() -> None:
    once = Speller({"the": 9, EOS: 3, "xylo": 1, "xyla": 1})
    assert once.spellings == 2 and once.cost("xylu") < once.cost("thet")
    published = Speller({"the": 9, EOS: 3, UNK: 1, "xylo": 1, "xyla": 1})
    assert published.spellings == 3 and published.cost("the") < once.cost("the")
    assert once.cost("xylo") == once.costs(["xyla", "xylo"])["xylo"]
    assert once.cost("<s>xylo</s>") > once.cost("xylo"), "marks in a word are its characters"


@pytest.mark.parametrize("run", rest_slow(["tiny_run", "words_run", "span_run"]))
def test_scores_sum_to_the_evaluation(run: str, request: pytest.FixtureRequest, tiny_corpus: Path) -> None:
    model = spanlm.load(request.getfixturevalue(run))
    plain, spelled = (model.evaluate(split="test", spell_unknown=on) for on in (False, True))
    rows = [
        list(model.score(tiny_corpus / "test.txt", state="carry", base=math.e, eos=True, spell_unknown=on))
        for on in (False, True)
    ]
    cost = math.fsum(row.surprisal - other.surprisal for row, other in zip(rows[1], rows[0], strict=True))
    assert spelled.spelling is not None and spelled.spelling.words == plain.oov_tokens == 3
    assert cost == pytest.approx(spelled.spelling.nll, abs=1e-9)
    assert spelled.nll - plain.nll == pytest.approx(cost, abs=1e-9)
    paid = {row.word for other, row in zip(*rows, strict=True) if row.surprisal > other.surprisal}
    assert paid == {"zebra"}, "a written <unk> is a known word"
    assert spelled.perplexity_without_unk == plain.perplexity_without_unk
    for name, share in spelled.shares.items():
        more = 0 if "unk" in name else cost
        assert share.nll - plain.shares[name].nll == pytest.approx(more, abs=1e-9)
    assert "sum to more than 1" in " ".join(spelled.notes), "the text has a written <unk>, too"
    if plain.parts is not None and spelled.parts is not None:
        ratio = math.exp(cost / plain.tokens)
        assert spelled.parts.encoder == pytest.approx(plain.parts.encoder * ratio)
        assert spelled.parts.oracle == pytest.approx(plain.parts.oracle * ratio)


def test_without_unknown_words_nothing_changes(tiny_run: Path) -> None:
    def numbers(**how: Any) -> dict[str, Any]:
        fields = spanlm.load(tiny_run).evaluate(split="train", **how).to_json()
        return {name: value for name, value in fields.items() if name not in ("protocol", "spelling")}

    one, other = numbers(), numbers(spell_unknown=True)
    del one["tokens_per_second"], other["tokens_per_second"]
    assert one == other


def test_every_evaluation_of_a_text_pays_for_its_spellings(tiny_run: Path, lstm_run: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_run, tmp_path / "tiny")  # dynamic evaluation keeps its statistics there
    model, both = spanlm.load(folder), spanlm.load_ensemble([tiny_run, lstm_run])
    cost = model.evaluate(spell_unknown=True).spelling
    assert cost is not None
    ways: list[dict[str, Any]] = [
        {"cache": CacheConfig(window=9, theta=0.3, lambda_=0.1)},
        {"dynamic": DynamicConfig(rate=0.002)},
    ]
    for way in ways:
        plain, spelled = (model.evaluate(**way, spell_unknown=on) for on in (False, True))
        for name in ("without_cache", "without_dynamic"):
            before, after = getattr(plain, name), getattr(spelled, name)
            assert before is None or after.nll - before.nll == pytest.approx(cost.nll, abs=1e-9)
        assert spelled.nll - plain.nll == pytest.approx(cost.nll, abs=1e-9)
    closed, opened = (both.evaluate_members(spell_unknown=on) for on in (False, True))
    for before, after in zip(closed.members, opened.members, strict=True):
        assert after.nll - before.nll == pytest.approx(cost.nll, abs=1e-9)
    assert opened.oracle_bound.nll - closed.oracle_bound.nll == pytest.approx(cost.nll, abs=1e-9)
    lines = model.evaluate(state="line", spell_unknown=True)
    assert lines.salton2017 is None and json.dumps(lines.to_json())
