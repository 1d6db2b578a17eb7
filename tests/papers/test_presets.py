"""Presets are the papers' models: sizes against sums by hand and what was printed; rows differ in what they compare.

The printed perplexities stand in `spanlm/papers/listing.jsonl`, which is compared with the presets in tests/cli.
"""

from __future__ import annotations

import pytest

from spanlm.config import RunConfig
from spanlm.errors import InputError
from spanlm.models.counting import count_configured
from spanlm.papers import PRESETS, find_preset

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
    **attentive(PTB, 650, "ptb"),
    **attentive(WT2, 1000, "wt2"),
}
DANILUK = [name for name in PRESETS if name.startswith("daniluk2017/")]
LADDER = [name for name in PRESETS if name.partition("/")[0] in ("merity2018", "yang2018", "press2019", "wang2019")]
BUFFERED = [name for name in PRESETS if name.startswith("li2020/")]


def test_no_preset_of_a_paper_is_left_out() -> None:
    ours = {name for name in PRESETS if name == "demo" or name.startswith("yardstick/")}
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
    other = any(label in name for label in ("/kvp-w", "hornn"))
    assert (f"{count.model / 1e6:.1f}" == str(found.reported.model_parameters)) != other
    assert bool(found.remark) == (other or "/kvp-786" in name), "a size that does not fit is said"


def below(name: str) -> RunConfig:
    """The configuration of the same rung without a buffer, by the names of Tables 1 and 2."""
    rung, _, label = name.removeprefix("li2020/").rpartition("-")
    rung = rung.removesuffix("-state").removesuffix("-snb")
    papers = {"awd": "merity2018", "mos": "yang2018", "mos-ps": "press2019"}
    # all of Table 3 stands on the topmost rung
    return PRESETS[f"{papers[rung]}/{rung}-{label}" if rung in papers else f"wang2019/mos-ps-at-{label}"].config


@pytest.mark.parametrize("name", BUFFERED)
def test_a_buffer_is_all_that_a_rung_adds(name: str) -> None:
    config, base = PRESETS[name].config.to_tree(), below(name).to_tree()
    memory = config["model"].pop("memory")
    assert base["model"].pop("memory") == {"kind": "none"}
    assert memory["kind"] == "span_buffer"
    assert (memory["dropout"], config["model"].pop("output_dropout")) == (base["model"].pop("output_dropout"), 0.0)
    assert config == base


@pytest.mark.parametrize("name", [name for name in BUFFERED if "-state-" in name])
def test_our_reading_differs_from_the_papers_in_what_q_reads_and_in_the_gate(name: str) -> None:
    found, printed = PRESETS[name].config.to_tree(), PRESETS[name.replace("-state", "")].config.to_tree()
    memory = printed["model"]["memory"]
    memory |= {"reads": "merge", "gate": {"training_temperature": 1.0, "evaluation_temperature": 1.0}}
    memory["reward"]["weight"] = 0.0
    assert found == printed


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("merity2018/awd-ptb", ("4.64e-05", "0.00143", "2.32e-05")),
        ("merity2018/awd-wt2", ("3.09e-05", "0.00143", "1.55e-05")),
        ("yang2018/mos-ptb", ("4.64e-05", "0.00441", "2.32e-05")),
        ("yang2018/mos-wt2", ("3.09e-05", "0.00118", "3.09e-05")),
    ],
)
def test_published_settings_of_dynamic_evaluation_are_in_our_convention(name: str, settings: tuple[str, ...]) -> None:
    """η, λ and ε of the first release over √n, K and √n: 0.002 / √1859 = 4.64e-5, 0.075 / 17 = 0.0044."""
    found = PRESETS[name].dynamic
    assert found is not None
    assert tuple(f"{value:.3g}" for value in (found.rate, found.decay, found.epsilon)) == settings


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("dmo", "'demo'"), ("daniluk2017/kvp", "'daniluk2017/kvp-w"), ("daniluk2017/4gram", "'daniluk2017/4-gram'")],
)
def test_unknown_names_are_answered_with_the_nearest(typed: str, meant: str) -> None:
    with pytest.raises(InputError) as error:
        find_preset(typed)
    assert f"unknown preset {typed}. Did you mean {meant}" in str(error.value)
    assert "`spanlm presets`" in str(error.value)
