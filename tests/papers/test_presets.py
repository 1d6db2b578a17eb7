"""Presets are the papers' models: sizes against sums by hand, and against what was printed.

The printed perplexities stand in `spanlm/papers/listing.jsonl`, which is compared with the presets in tests/cli; the
goldens have every configuration.
"""

import pytest

from spanlm.models.counting import count_configured
from spanlm.papers.registry import PRESETS

PTB, WT2 = 10_000, 33_278


def lstm(units: int, layers: int) -> int:
    return layers * 4 * units * (units + units + 1)


def tied(words: int, units: int, layers: int = 2) -> int:
    return words * units + lstm(units, layers) + words


def untied(words: int, units: int, layers: int = 2) -> int:
    return tied(words, units, layers) + words * units


def attentive(words: int, units: int, label: str) -> dict[str, int]:
    """W_c alone or with zeros; W_s (and W_q), v_s, W_c."""
    single, combined = units**2 + units + 2 * units**2, 2 * units**2 + units + 2 * units**2
    more = {"lstm": 0, "merge": units**2, "mean": 2 * units**2, "single": single, "combined": combined}
    more |= {"lstm-stream": 0, "single-stream": single}
    return {f"salton2017/{name}-{label}": tied(words, units) + added for name, added in more.items()}


def awd(types: int, embedding: int, units: int) -> int:
    sizes = [(embedding, units), (units, units), (units, embedding)]
    return types * embedding + types + sum(4 * out * (size + out + 2) for size, out in sizes)  # two biases


POINTER = 650 * 650 + 650 + 650  # W, b, s
AWD = {"ptb": 24_221_600, "wt2": 33_556_078}
MOS = {"ptb": 21_500_620, "wt2": 34_909_528}
WIDTHS = {"awd": {"ptb": 400, "wt2": 400}, "mos": {"ptb": 620, "wt2": 650}}
SIZES = {
    "zaremba2014/small": untied(PTB, 200),
    "zaremba2014/medium": untied(PTB, 650),
    "zaremba2014/large": untied(PTB, 1500),
    "press2017/small-wt-pr": tied(PTB, 200) + 200 * 201,
    "press2017/medium-wt": tied(PTB, 650),
    "press2017/large-wt": tied(PTB, 1500),
    "press2017/large-bd": untied(PTB, 1500),
    "press2017/large-bd-wt": tied(PTB, 1500),
    "grave2017/lstm-ptb": untied(PTB, 1024, 1),
    "grave2017/lstm-wt2": untied(WT2, 1024, 1),
    "merity2017/pointer-ptb": untied(PTB, 650) + POINTER,
    "merity2017/variational-wt2": untied(WT2, 650),
    "merity2017/zoneout-wt2": untied(WT2, 650),
    "merity2017/pointer-wt2": untied(WT2, 650) + POINTER,
    "merity2018b/awd-ptb-char": awd(50, 200, 1000),
    "merity2018b/awd-enwik8": awd(205, 400, 1840),
    **attentive(PTB, 650, "ptb"),
    **attentive(WT2, 1000, "wt2"),
}
DANILUK = [name for name in PRESETS if name.startswith("daniluk2017/")]
LADDER = [name for name in PRESETS if name.partition("/")[0] in ("merity2018", "yang2018", "press2019", "wang2019")]
BUFFERED = [name for name in PRESETS if name.startswith("li2020/")]


def test_no_preset_of_a_paper_is_left_out() -> None:
    ours = {name for name in PRESETS if name == "demo" or name.startswith(("yardstick/", "neighbours/"))}
    assert {*SIZES, *DANILUK, *LADDER, *BUFFERED, *ours} == set(PRESETS)
    assert all(preset.name == name and preset.sources for name, preset in PRESETS.items())


@pytest.mark.parametrize("name", [*SIZES, *LADDER, *BUFFERED])
def test_sizes_are_the_sums_by_hand(name: str) -> None:
    found, label = PRESETS[name], name.rpartition("-")[2]
    if name in SIZES:
        expected = SIZES[name]
    else:
        family = "awd" if "/awd-" in name else "mos"
        expected = {"awd": AWD, "mos": MOS}[family][label]
        if name in BUFFERED:
            width = WIDTHS[family][label]
            expected += width * width * (4 if "-state-" in name else 2) + width + 2 * width
    assert count_configured(found.config.model, found.reported.vocabulary_size).total == expected
    assert found.reported.model_parameters is None, "these papers count the words' vectors in"


@pytest.mark.parametrize("name", DANILUK)
def test_sizes_are_the_printed_ones(name: str) -> None:
    found = PRESETS[name]
    count = count_configured(found.config.model, 77_000)
    assert count.total - count.model == 77_000 * 300
    other = "/kvp-w" in name
    assert (f"{count.model / 1e6:.1f}" == str(found.reported.model_parameters)) != other
    assert bool(found.remark) == (other or "/kvp-786" in name or "hornn" in name), "a size that does not fit is said"


def test_neighbours_have_as_many_parameters_as_the_lstm_of_daniluk() -> None:
    """But the recurrent memory, which as in its paper has as many units as the LSTM."""
    rows = {name: preset for name, preset in PRESETS.items() if name.startswith("neighbours/")}
    counts = {name: count_configured(preset.config.model, 77_000).model for name, preset in rows.items()}
    lstm = counts["neighbours/lstm"]
    assert {name for name, count in counts.items() if abs(count / lstm - 1) > 0.005} == {
        "neighbours/recurrent-memory-w5"
    }
    assert {name for name, preset in rows.items() if preset.own_size} == {"neighbours/recurrent-memory-w5"}
