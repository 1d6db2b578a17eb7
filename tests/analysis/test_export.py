"""Attention as files: whole or none, the same again, and read back what was measured."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spanlm.analysis.export import save_attention, save_sentences
from spanlm.analysis.heat_maps import by_word
from spanlm.scoring.attention import AttentionRecord

from .conftest import HOSTILE, UNKNOWN, make_sentence

ONE = make_sentence(["the", "zebra", "sat"], unknown=("zebra",), name="one")
OTHER = make_sentence(["the", "zebra", "sat"], window=2, nearest_lag=0, gate=0.5, name="other")
HOSTILE_MAPS = [make_sentence(list(HOSTILE), name=name) for name in ("one", "other")]
SENTENCES = [[ONE, OTHER], HOSTILE_MAPS]


def _rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline="")))


@pytest.mark.parametrize("nearest_lag", [0, 1])
def test_npz_gives_the_record_back_without_pickle(tmp_path: Path, hostile: AttentionRecord, nearest_lag: int) -> None:
    hostile = replace(hostile, nearest_lag=nearest_lag)
    save_attention(hostile, tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as arrays:
        again = AttentionRecord(
            arrays["words"].tolist(),
            arrays["targets"].tolist(),
            arrays["weights"],
            arrays["surprisal_nats"],
            *UNKNOWN,
            [
                [(word, chance) for word, chance in zip(words, chances, strict=True) if word]
                for words, chances in zip(
                    arrays["expected_words"].tolist(), arrays["expected_probabilities"].tolist(), strict=True
                )
            ],
            str(arrays["title"]),
            int(arrays["lags"][-1]),
        )
        assert arrays["lags"].tolist() == list(hostile.lags)
    assert (again.words, again.targets, again.title) == (hostile.words, hostile.targets, hostile.title)
    assert (again.expected, again.lags) == (hostile.expected, hostile.lags)
    np.testing.assert_array_equal(again.weights, hostile.weights)
    np.testing.assert_array_equal(again.surprisal, hostile.surprisal)


def test_csv_of_sentences_gives_every_weight_back(tmp_path: Path) -> None:
    save_sentences(SENTENCES, tmp_path / "a.csv")
    rows = _rows(tmp_path / "a.csv")
    assert len(rows) == sum(record.occupied.sum() for records in SENTENCES for record in records)
    cells = [(row["sentence"], row["run"], row["position"], row["source_position"]) for row in rows]
    assert len(cells) == len(set(cells))
    for row in rows:
        record = SENTENCES[int(row["sentence"]) - 1][["one", "other"].index(row["run"])]
        t, s = int(row["position"]), int(row["source_position"])
        assert np.float32(row["weight"]) == by_word(record)[t, s]
        assert (row["target"], row["source_word"]) == (record.targets[t], record.words[s])
        assert int(row["lag"]) == t - s and float(row["surprisal_nats"]) == record.surprisal[t]
        assert bool(int(row["source_unknown"])) == record.is_unknown(row["source_word"])


def test_a_sentence_without_a_choice_has_no_flatness(tmp_path: Path) -> None:
    save_sentences([[make_sentence(["yes"])]], tmp_path / "a.json")
    content = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert content["runs"][0]["flatness"] is None and content["sentences"][0][0]["flatness"] is None
