"""The rows that Salton et al. (2017) compare with, and theirs: against tables typed from the papers and their codes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from spanlm.models.counting import count_configured
from spanlm.presets import PRESETS

PTB, WT2 = 10_000, 33_278
TITLES = {PTB: "Penn Treebank", WT2: "WikiText-2"}


@dataclass(frozen=True)
class Row:
    """Words, units, all parameters by the hand-written sums below, what was printed: millions, valid, test."""

    words: int
    units: int
    parameters: int
    millions: float | None
    valid: float | None
    test: float | None


def lstm(units: int, layers: int) -> int:
    return layers * 4 * units * (units + units + 1)


def tied(words: int, units: int, layers: int = 2) -> int:
    return words * units + lstm(units, layers) + words


def untied(words: int, units: int, layers: int = 2) -> int:
    return tied(words, units, layers) + words * units


def attention(units: int, matrices: int) -> int:
    """W_s (and W_q), v_s, W_c."""
    return matrices * units * units + units + 2 * units * units


POINTER = 650 * 650 + 650 + 650  # W, b, s
SINGLE, COMBINED = 1, 2


def salton(
    label: str, words: int, units: int, single: tuple[float, ...], combined: tuple[float, ...]
) -> dict[str, Row]:
    rows: dict[str, tuple[int, tuple[float | None, ...]]] = {
        "lstm": (0, (None,) * 3),
        "merge": (units**2, (None,) * 3),
        "mean": (2 * units**2, (None,) * 3),
        "single": (attention(units, SINGLE), single),
        "combined": (attention(units, COMBINED), combined),
        "lstm-stream": (0, (None,) * 3),
        "single-stream": (attention(units, SINGLE), (None,) * 3),
    }
    found = {}
    for name, (more, printed) in rows.items():
        found[f"salton2017/{name}-{label}"] = Row(words, units, tied(words, units) + more, *printed)
    return found


ROWS = {
    "zaremba2014/small": Row(PTB, 200, untied(PTB, 200), None, 120.7, 114.5),
    "zaremba2014/medium": Row(PTB, 650, untied(PTB, 650), 20, 86.2, 82.7),
    "zaremba2014/large": Row(PTB, 1500, untied(PTB, 1500), 66, 82.2, 78.4),
    "press2017/small-wt-pr": Row(PTB, 200, tied(PTB, 200) + 200 * 201, None, None, None),
    "press2017/medium-wt": Row(PTB, 650, tied(PTB, 650), None, None, None),
    "press2017/large-wt": Row(PTB, 1500, tied(PTB, 1500), 51, 77.7, 74.3),
    "press2017/large-bd": Row(PTB, 1500, untied(PTB, 1500), 66, 78.1, 75.2),
    "press2017/large-bd-wt": Row(PTB, 1500, tied(PTB, 1500), 51, 75.8, 73.2),
    "grave2017/lstm-ptb": Row(PTB, 1024, untied(PTB, 1024, 1), None, None, 82.3),
    "grave2017/lstm-wt2": Row(WT2, 1024, untied(WT2, 1024, 1), None, None, 99.3),
    "merity2017/pointer-ptb": Row(PTB, 650, untied(PTB, 650) + POINTER, 21, 72.4, 70.9),
    "merity2017/variational-wt2": Row(WT2, 650, untied(WT2, 650), 20, 101.7, 96.3),
    "merity2017/zoneout-wt2": Row(WT2, 650, untied(WT2, 650), 20, 108.7, 100.9),
    "merity2017/pointer-wt2": Row(WT2, 650, untied(WT2, 650) + POINTER, 21, 84.8, 80.8),
    **salton("ptb", PTB, 650, (14.5, 71.7, 70.1), (14.5, 72.6, 70.7)),
    **salton("wt2", WT2, 1000, (50, 73.7, 69.7), (50, 74.3, 70.8)),
}
EVERY_ROW = pytest.mark.parametrize(("name", "row"), ROWS.items(), ids=ROWS)


def test_no_row_is_left_out() -> None:
    papers = {name.partition("/")[0] for name in ROWS}
    assert set(ROWS) == {name for name in PRESETS if name.partition("/")[0] in papers}


@EVERY_ROW
def test_sizes(name: str, row: Row) -> None:
    assert count_configured(PRESETS[name].config.model, row.words).total == row.parameters


@EVERY_ROW
def test_numbers_are_those_that_were_printed(name: str, row: Row) -> None:
    found = PRESETS[name]
    reported = found.reported
    assert (reported.valid_ppl, reported.test_ppl, reported.all_parameters) == (row.valid, row.test, row.millions)
    assert reported.model_parameters is None, "these papers count the words' vectors in"
    assert (reported.corpus, reported.vocabulary_size) == (TITLES[row.words], row.words)
    assert found.name == name and found.sources
    assert found.paper.endswith(name.partition("/")[0][-4:])
    if row.test is None:
        assert "no published number" in found.remark or "not at hand" in found.remark
