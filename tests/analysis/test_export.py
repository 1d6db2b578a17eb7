"""Attention as files: whole or none, the same again, and read back what was measured."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spanlm.analysis.export import CSV_COLUMNS, save_attention, save_sentence_maps
from spanlm.analysis.sentences import mean_flatness
from spanlm.scoring.attention import AttentionRecord

from .conftest import HOSTILE, UNKNOWN, make_sentence

ONE = make_sentence(["the", "zebra", "sat"], unknown=("zebra",), name="one")
OTHER = make_sentence(["the", "zebra", "sat"], window=2, nearest_lag=0, gate=0.5, name="other")
HOSTILE_MAPS = [make_sentence(list(HOSTILE), name=name) for name in ("one", "other")]
SENTENCES = [[ONE, OTHER], HOSTILE_MAPS]


@pytest.mark.parametrize("nearest_lag", [0, 1])
def test_csv_has_a_row_for_each_occupied_slot(tmp_path: Path, record: AttentionRecord, nearest_lag: int) -> None:
    record = replace(record, nearest_lag=nearest_lag)
    rows = _csv_rows(tmp_path / "a.csv", record)
    assert len(rows) == record.occupied.sum()
    assert tuple(rows[0]) == CSV_COLUMNS
    for row in rows:
        position, lag = int(row["position"]), int(row["lag"])
        assert row["word"] == record.words[position] and row["target"] == record.targets[position]
        assert int(row["source_position"]) == position - lag
        assert row["source_word"] == record.words[position - lag]
        assert float(row["surprisal_nats"]) == record.surprisal[position]
        assert np.float32(row["weight"]) == record.weights[position, record.lags.index(lag)]


def _csv_rows(path: Path, record: AttentionRecord) -> list[dict[str, str]]:
    save_attention(record, path)
    return _rows(path)


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
    save_sentence_maps(SENTENCES, tmp_path / "a.csv")
    rows = _rows(tmp_path / "a.csv")
    assert len(rows) == sum(one.slots.sum() for maps in SENTENCES for one in maps)
    found = {(row["sentence"], row["run"]): [] for row in rows}  # type: ignore[var-annotated]
    for row in rows:
        one = SENTENCES[int(row["sentence"]) - 1][["one", "other"].index(row["run"])]
        t, s = int(row["position"]), int(row["source_position"])
        found[row["sentence"], row["run"]].append((t, s))
        assert np.float32(row["weight"]) == one.matrix[t, s]
        assert (row["target"], row["source_word"]) == (one.record.targets[t], one.record.words[s])
        assert int(row["lag"]) == t - s and float(row["surprisal_nats"]) == one.record.surprisal[t]
        assert bool(int(row["source_unknown"])) == one.record.is_unknown(row["source_word"])
    assert all(len(cells) == len(set(cells)) for cells in found.values())


def test_json_gives_every_weight_back_with_the_flatness(tmp_path: Path) -> None:
    save_sentence_maps(SENTENCES, tmp_path / "a.json")
    content = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    for maps, panels in zip(SENTENCES, content["sentences"], strict=True):
        for one, panel in zip(maps, panels, strict=True):
            matrix = np.full(one.matrix.shape, np.nan, dtype=np.float32)
            for t, (first, row) in enumerate(zip(panel["first_word_of_row"], panel["weights"], strict=True)):
                matrix[t, first : first + len(row)] = row
            np.testing.assert_array_equal(matrix, one.matrix)
            assert (panel["words"], panel["targets"]) == (one.record.words, one.record.targets)
            assert panel["on_no_word"] == one.on_no_word.tolist()
            assert one.flatness is not None
            assert panel["flatness"]["overall"] == one.flatness.overall._asdict()
    assert content["sentences"][0][0]["unknown"] == ["zebra"]
    both = mean_flatness([OTHER, HOSTILE_MAPS[1]])
    assert both is not None
    assert content["runs"][1]["flatness"]["overall"] == both.overall._asdict()
    assert [run["memory"] for run in content["runs"]] == [ONE.memory, OTHER.memory]


def test_a_sentence_without_a_choice_has_no_flatness(tmp_path: Path) -> None:
    save_sentence_maps([[make_sentence(["yes"])]], tmp_path / "a.json")
    content = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert content["runs"][0]["flatness"] is None and content["sentences"][0][0]["flatness"] is None
