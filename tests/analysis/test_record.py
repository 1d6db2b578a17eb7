"""A record is what the model did: each weight with its words and, of a span buffer, each list with its part."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from spanlm.analysis.export import save_attention
from spanlm.errors import InputError
from spanlm.models.interfaces import Readout
from spanlm.models.language_model import LanguageModel
from spanlm.models.memories import SpanBufferConfig
from spanlm.scoring.attention import MOST_WEIGHTS, AttentionRecord, PartsRecord, attention_record
from spanlm.scoring.stream import STEPS
from tests.scoring import reference
from tests.scoring.reference import VOCABULARY
from tests.scoring.test_parts import span_model

from .conftest import make_record

TEXT = [word for line in reference.TEXT * 5 for word in [*line, "<eos>"]]
assert len(TEXT) > STEPS, "more than is read at a time"
MEMORIES = {
    "sliding": SpanBufferConfig(buffer_size=6, span_length=3),
    "words": SpanBufferConfig(buffer_size=4, words=True),
    "current": SpanBufferConfig(buffer_size=6, span_length=3, newest="current"),
}


def recorded(model: LanguageModel, **how: Any) -> AttentionRecord:
    return attention_record(model, VOCABULARY, TEXT, **how)


def parts_of(record: AttentionRecord) -> PartsRecord:
    assert record.parts is not None
    return record.parts


def read(model: LanguageModel) -> Readout:
    with torch.no_grad():
        readout, _ = model.forward(torch.tensor([VOCABULARY.encode(["<eos>", *TEXT[:-1]])]).T, model.init_state(1))
    return readout


def ends(position: int, kind: str) -> list[int]:
    """Where spans end that a position can look at, from the definition; position t has read t words before."""
    memory = MEMORIES[kind]
    if kind == "words":
        return [i for i in range(position - 1, -1, -1)][:4]
    newest = position if kind == "current" else position - 1
    return [i for i in (newest, newest - 3) if i - memory.reach >= 0]


@pytest.mark.parametrize("kind", MEMORIES)
def test_every_weight_has_its_words(kind: str) -> None:
    model = span_model(memory=MEMORIES[kind])
    record = recorded(model)
    length = 1 if kind == "words" else 3
    looked = read(model).attention
    assert looked is not None
    attention = looked.by_lag()
    for t in range(len(TEXT)):
        looks = record.looks(t)
        assert {look.last for look in looks} == set(ends(t, kind))
        assert bool(looks) == bool(parts_of(record).there[t])
        assert [look.weight for look in looks] == sorted((look.weight for look in looks), reverse=True)
        for look in looks:
            assert look.first == look.last - length + 1 >= 0
            column = attention.shape[-1] - (t - look.last) - (kind == "current")
            assert look.weight == pytest.approx(attention[t, 0, column].item(), abs=1e-6)
            assert record.words_of(look).split() == ["<eos>", *TEXT][look.first : look.last + 1]
        assert not looks or sum(look.weight for look in looks) == pytest.approx(1, abs=1e-5)


def test_of_equal_weights_the_newest_span_comes_first() -> None:
    record = recorded(span_model(memory=MEMORIES["sliding"]))
    even = replace(record, weights=np.where(record.weights > 0, np.float32(0.5), np.float32(0)))
    assert [look.last for look in even.looks(len(TEXT) - 1)] == ends(len(TEXT) - 1, "sliding")


@pytest.mark.parametrize("head", ["softmax", "mixture"])
def test_each_list_is_that_of_its_part(head: str) -> None:
    model = span_model(head)
    parts, readout = parts_of(recorded(model, expected=3)), read(model)
    buffer = readout.mixture
    assert buffer is not None
    with torch.no_grad():
        of = {
            "encoder": model.head.own_log_probs(readout.features),
            "buffer": model.head.own_log_probs(buffer.features),
            "mixture": model.head.log_probs(readout),
        }
    gates = buffer.gate[:, 0].softmax(-1)[:, 0]
    for name, log_p in of.items():
        for t, row in enumerate(parts.expected[name]):
            if name == "buffer" and not buffer.filled[t, 0]:
                assert row == []
                continue
            best = sorted(range(len(VOCABULARY)), key=lambda i: -log_p[t, 0, i].item())[:3]
            assert [word for word, _ in row] == [VOCABULARY.word(i) for i in best]
            assert [chance for _, chance in row] == pytest.approx([log_p[t, 0, i].exp().item() for i in best])
    np.testing.assert_allclose(parts.preference[parts.there], gates[buffer.filled[:, 0]].numpy(), rtol=1e-10)
    assert parts.expected["encoder"] != parts.expected["mixture"]
    came = torch.tensor(VOCABULARY.encode(TEXT))
    for part, chance in parts.chance.items():
        there = buffer.filled[:, 0] if part == "buffer" else torch.ones(len(TEXT), dtype=torch.bool)
        chances = of[part][:, 0].gather(1, came[:, None])[:, 0].exp()
        np.testing.assert_allclose(chance[there], chances[there].numpy(), rtol=1e-5)
        assert np.isnan(chance[~there]).all()


def test_csv_holds_every_span_of_every_position(tmp_path: Path) -> None:
    record = recorded(span_model(), title="t")
    save_attention(record, tmp_path / "a.csv")
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == np.count_nonzero(record.weights)
    for row in rows:
        t, first, last = int(row["position"]), int(row["span_from"]), int(row["span_to"])
        assert (row["word"], row["target"]) == (record.words[t], TEXT[t])
        assert row["span_words"].split() == record.words[first : last + 1]
        assert float(row["weight"]) == record.weights[t, record.weights.shape[1] - (t - last)]


def test_what_cannot_be_shown_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected=0"):
        recorded(span_model(), expected=0)
    with pytest.raises(InputError, match="at least 1 words"):
        attention_record(span_model(), VOCABULARY, [])
    with pytest.raises(InputError, match="at least 2 words"):
        attention_record(span_model(), VOCABULARY, TEXT[:1], predict_first=False)
    with pytest.raises(InputError, match=r"no figure of spans.*\.html"):
        save_attention(recorded(span_model()), tmp_path / "a.svg")
    with pytest.raises(InputError, match=r"cannot write \.npz"):
        save_attention(recorded(span_model()), tmp_path / "a.npz")
    wide, many = span_model(memory=replace(MEMORIES["sliding"], buffer_size=60)), 1 + MOST_WEIGHTS // 60
    with pytest.raises(InputError, match=rf"{many:,} words, each with 60 weights or more, has too many weights"):
        attention_record(wide, VOCABULARY, ["the"] * many)


# --- a record of words ---


def test_a_slot_between_two_weights_is_occupied_even_at_zero(record: AttentionRecord) -> None:
    weights = record.weights.copy()
    weights[6] = [0.5, 0, 0.5]  # a full window that ignores its middle
    weights[7] = [0, 0, 1]  # a new text began one word ago
    occupied = replace(record, weights=weights).occupied
    assert occupied[6].tolist() == [True, True, True]
    assert occupied[7].tolist() == [False, False, True]


@pytest.mark.parametrize(("nearest_lag", "counts"), [(0, [1, 2, 3, 3]), (1, [0, 1, 2, 3]), (3, [0, 0, 0, 1])])
def test_no_slot_is_occupied_before_the_text_begins(
    record: AttentionRecord, nearest_lag: int, counts: list[int]
) -> None:
    everywhere = replace(record, weights=np.full((8, 3), 1 / 3), nearest_lag=nearest_lag)
    assert everywhere.occupied.sum(axis=1).tolist()[:4] == counts


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("surprisal", np.full(8, np.inf), "finite"),
        ("weights", np.full((8, 3), np.nan), "finite"),
        ("weights", np.full((8, 3), -0.1), "not negative"),
    ],
)
def test_what_does_not_fit_is_refused(record: AttentionRecord, field: str, value: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(record, **{field: value})


def test_scales_are_for_full_windows_or_of_one_that_grows_for_the_later_half() -> None:
    words = ["<eos>", *"abcdefghij"]
    bounded, growing, opening = (make_record(words, window) for window in (3, 9, 15))
    np.testing.assert_array_equal(bounded.settled, bounded.weights[3:])
    np.testing.assert_array_equal(growing.settled, growing.weights[5:])
    np.testing.assert_array_equal(opening.settled, opening.weights[5:])
