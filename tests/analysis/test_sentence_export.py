"""Maps of sentences and flatness as data: read back, they are what was measured."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest

from spanlm.analysis.export import save_flatness, save_sentence_maps
from spanlm.analysis.sentences import FlatnessAccumulator, mean_flatness
from spanlm.errors import InputError

from .conftest import HOSTILE
from .maps import make_sentence

ONE = make_sentence(["the", "zebra", "sat"], unknown=("zebra",), name="one")
OTHER = make_sentence(["the", "zebra", "sat"], window=2, nearest_lag=0, gate=0.5, name="other")
HOSTILE_MAPS = [make_sentence(list(HOSTILE), name=name) for name in ("one", "other")]
SENTENCES = [[ONE, OTHER], HOSTILE_MAPS]


def test_csv_gives_every_weight_back(tmp_path: Path) -> None:
    save_sentence_maps(SENTENCES, tmp_path / "a.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text(encoding="utf-8"), newline="")))
    assert len(rows) == sum(one.slots.sum() for maps in SENTENCES for one in maps)
    found = {(row["sentence"], row["run"]): [] for row in rows}  # type: ignore[var-annotated]
    for row in rows:
        one = SENTENCES[int(row["sentence"]) - 1][["one", "other"].index(row["run"])]
        t, s = int(row["position"]), int(row["source_position"])
        found[row["sentence"], row["run"]].append((t, s))
        assert np.float32(row["weight"]) == one.matrix[t, s]
        assert (row["target"], row["source_word"]) == (one.record.targets[t], one.record.words[s])
        assert int(row["lag"]) == t - s and float(row["surprisal_nats"]) == one.record.surprisal[t]
        assert bool(int(row["source_unknown"])) == (row["source_word"] in one.unknown)
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


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "start"), [(".svg", b"<?xml"), (".pdf", b"%PDF"), (".csv", b'"sentence"')])
def test_every_suffix_writes_its_format(tmp_path: Path, suffix: str, start: bytes) -> None:
    for name in ("a", "b"):
        save_sentence_maps(SENTENCES, tmp_path / f"{name}{suffix}")
    content = (tmp_path / f"a{suffix}").read_bytes()
    assert content.startswith(start) and content == (tmp_path / f"b{suffix}").read_bytes()


def test_flatness_as_data(tmp_path: Path) -> None:
    accumulator = FlatnessAccumulator()
    accumulator.update([[0.0, 0.5, 0.5], [0.2, 0.2, 0.6]], [2, 3])
    flatness = accumulator.result()
    for suffix in (".csv", ".json"):
        measured = {"one": ("ptb valid", flatness), "other": ("wikitext-2 valid", flatness)}
        save_flatness(measured, tmp_path / f"a{suffix}")
    rows = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert [(row["run"], row["text"], row["slots"]) for row in rows] == [
        (*run, slots) for run in (("one", "ptb valid"), ("other", "wikitext-2 valid")) for slots in ("2-5", "all")
    ]
    assert float(rows[1]["flatness"]) == flatness.overall.flatness
    content = json.loads((tmp_path / "a.json").read_text())
    assert [(run["run"], run["text"], run["left_out"]) for run in content["runs"]] == [
        (name, text, 0) for name, (text, _) in measured.items()
    ]
    assert content["runs"][1]["by_slots"] == [group._asdict() for group in flatness.groups]


def test_other_suffixes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write \.html"):
        save_sentence_maps(SENTENCES, tmp_path / "a.html")
    with pytest.raises(InputError, match=r"cannot write \.svg"):
        save_flatness({}, tmp_path / "a.svg")
