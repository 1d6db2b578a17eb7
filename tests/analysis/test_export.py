from __future__ import annotations

import csv
import io
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spanlm.analysis.export import CSV_COLUMNS, save_attention
from spanlm.errors import InputError, RunError
from spanlm.evaluation.attention import AttentionRecord

MAGIC = {
    ".html": b"<!doctype html>",
    ".svg": b"<?xml",
    ".png": b"\x89PNG",
    ".pdf": b"%PDF",
    ".csv": b'"position"',
    ".npz": b"PK",
    ".HTML": b"<!doctype html>",
}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", MAGIC)
def test_every_suffix_writes_its_format(tmp_path: Path, record: AttentionRecord, suffix: str) -> None:
    """And the same bytes when it is written again."""
    path = tmp_path / f"a{suffix}"
    save_attention(record, str(path))
    assert path.read_bytes().startswith(MAGIC[suffix])
    assert os.listdir(tmp_path) == [path.name]
    again = tmp_path / f"b{suffix}"
    save_attention(record, again)
    assert path.read_bytes() == again.read_bytes()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.htm", r"cannot write \.htm; end it in \.html, \.svg, \.png, \.pdf, \.csv or \.npz$"),
        ("a", "without a suffix"),
        ("a.xlsx", r"cannot write \.xlsx"),
    ],
)
def test_an_unknown_suffix_names_the_known(tmp_path: Path, record: AttentionRecord, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        save_attention(record, tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_a_missing_folder_is_named(tmp_path: Path, record: AttentionRecord) -> None:
    with pytest.raises(InputError, match="nowhere does not exist"):
        save_attention(record, tmp_path / "nowhere" / "a.csv")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file does not exist"):
        save_attention(record, tmp_path / "file" / "a.csv")


@pytest.mark.parametrize(
    ("failure", "error"),
    [(OSError(28, "No space left on device"), RunError), (PermissionError(), InputError)],
)
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path,
    record: AttentionRecord,
    monkeypatch: pytest.MonkeyPatch,
    failure: OSError,
    error: type[Exception],
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("old")

    def fail(_: int) -> None:
        raise failure

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(error, match=r"a\.csv"):
        save_attention(record, path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.csv"]


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


def test_csv_gives_hostile_words_back(tmp_path: Path, hostile: AttentionRecord) -> None:
    rows = _csv_rows(tmp_path / "a.csv", hostile)
    assert [row["target"] for row in rows if row["lag"] == "1"] == hostile.targets[1:]


def _csv_rows(path: Path, record: AttentionRecord) -> list[dict[str, str]]:
    save_attention(record, path)
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
