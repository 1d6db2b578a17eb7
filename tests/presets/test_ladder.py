"""The rungs of Li et al. (2020), Tables 1-3: against the papers' numbers and sums of parameters by hand."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from spanlm.config import RunConfig
from spanlm.models.counting import count_configured
from spanlm.models.memories import SpanBufferConfig
from spanlm.models.memories.span_buffer.memory import Reads
from spanlm.presets import PRESETS

PTB, WT2 = 10_000, 33_278
TITLES = {PTB: "Penn Treebank", WT2: "WikiText-2"}
CORPORA = {PTB: "ptb", WT2: "wikitext-2"}
PAPERS = {
    "merity2018": "Merity et al. 2018",
    "yang2018": "Yang et al. 2018",
    "press2019": "Press 2019",
    "wang2019": "Wang et al. 2019",
    "li2020": "Li et al. 2020",
}

AWD = {PTB: 24_221_600, WT2: 33_556_078}
MOS = {PTB: 21_500_620, WT2: 34_909_528}
WIDTHS = {"awd": {PTB: 400, WT2: 400}, "mos": {PTB: 620, WT2: 650}}


@dataclass(frozen=True)
class Row:
    """What was printed: millions, valid and test, and both with dynamic evaluation."""

    words: int
    millions: float | None
    plain: tuple[float | None, float | None]
    dynamic: tuple[float | None, float | None]

    @property
    def label(self) -> str:
        return {PTB: "ptb", WT2: "wt2"}[self.words]


def ablation(words: int, test: float) -> Row:
    return Row(words, None, (None, None), (None, test))


def ours(words: int) -> Row:
    return Row(words, None, (None, None), (None, None))


ROWS = {
    "merity2018/awd-ptb": Row(PTB, 24, (60.00, 57.30), (51.60, 51.10)),
    "li2020/awd-snb-ptb": Row(PTB, 24, (56.82, 54.92), (48.23, 47.54)),
    "yang2018/mos-ptb": Row(PTB, 22, (56.54, 54.44), (48.33, 47.69)),
    "li2020/mos-snb-ptb": Row(PTB, 22, (54.21, 52.62), (46.53, 45.41)),
    "press2019/mos-ps-ptb": Row(PTB, 22, (55.89, 53.92), (47.93, 47.49)),
    "li2020/mos-ps-snb-ptb": Row(PTB, 22, (53.45, 51.10), (45.51, 45.33)),
    "wang2019/mos-ps-at-ptb": Row(PTB, 22, (54.10, 52.20), (46.63, 46.01)),
    "li2020/mos-ps-at-snb-ptb": Row(PTB, 22, (52.37, 50.18), (44.37, 43.87)),
    "li2020/unannealed-ptb": ablation(PTB, 45.64),
    "li2020/unrewarded-ptb": ablation(PTB, 45.92),
    "li2020/words-ptb": ablation(PTB, 44.72),
    "li2020/awd-snb-state-ptb": ours(PTB),
    "li2020/mos-snb-state-ptb": ours(PTB),
    "li2020/mos-ps-snb-state-ptb": ours(PTB),
    "li2020/mos-ps-at-snb-state-ptb": ours(PTB),
    "merity2018/awd-wt2": Row(WT2, 33, (68.60, 65.80), (46.40, 44.30)),
    "li2020/awd-snb-wt2": Row(WT2, 33, (63.07, 60.43), (40.72, 38.59)),
    "yang2018/mos-wt2": Row(WT2, 35, (63.88, 61.45), (42.41, 40.68)),
    "li2020/mos-snb-wt2": Row(WT2, 35, (60.62, 58.79), (40.61, 37.76)),
    "press2019/mos-ps-wt2": Row(WT2, 35, (62.38, 59.98), (40.75, 39.03)),
    "li2020/mos-ps-snb-wt2": Row(WT2, 35, (60.11, 57.87), (39.98, 37.01)),
    "wang2019/mos-ps-at-wt2": Row(WT2, 35, (61.10, 58.95), (39.58, 38.07)),
    "li2020/mos-ps-at-snb-wt2": Row(WT2, 35, (58.75, 56.12), (38.42, 35.16)),
    "li2020/unannealed-wt2": ablation(WT2, 38.23),
    "li2020/unrewarded-wt2": ablation(WT2, 38.76),
    "li2020/words-wt2": ablation(WT2, 37.88),
    "li2020/awd-snb-state-wt2": ours(WT2),
    "li2020/mos-snb-state-wt2": ours(WT2),
    "li2020/mos-ps-snb-state-wt2": ours(WT2),
    "li2020/mos-ps-at-snb-state-wt2": ours(WT2),
}
EVERY_ROW = pytest.mark.parametrize(("name", "row"), ROWS.items(), ids=ROWS)
BUFFERED = [(name, row) for name, row in ROWS.items() if name.startswith("li2020/")]
EVERY_BUFFERED_ROW = pytest.mark.parametrize(("name", "row"), BUFFERED, ids=[name for name, _ in BUFFERED])


def below(name: str, row: Row) -> RunConfig:
    """The configuration of the same rung without a buffer, by the names of Tables 1 and 2."""
    rung = name.removeprefix("li2020/").removesuffix(f"-{row.label}").removesuffix("-state").removesuffix("-snb")
    papers = {"awd": "merity2018", "mos": "yang2018", "mos-ps": "press2019"}
    if rung not in papers:  # and all of Table 3
        return PRESETS[f"wang2019/mos-ps-at-{row.label}"].config
    return PRESETS[f"{papers[rung]}/{rung}-{row.label}"].config


def test_no_rung_is_left_out() -> None:
    assert set(ROWS) == {name for name in PRESETS if name.partition("/")[0] in PAPERS}


@EVERY_ROW
def test_numbers_are_those_that_were_printed(name: str, row: Row) -> None:
    found = PRESETS[name]
    reported = found.reported
    assert (reported.valid_ppl, reported.test_ppl) == row.plain
    assert (reported.dynamic_valid_ppl, reported.dynamic_test_ppl) == row.dynamic
    assert (reported.all_parameters, reported.model_parameters) == (row.millions, None)
    assert (reported.corpus, reported.vocabulary_size) == (TITLES[row.words], row.words)
    assert found.config.data.corpus == CORPORA[row.words]
    assert found.paper == PAPERS[name.partition("/")[0]]
    table = "Table 3" if row.millions is None else {PTB: "Table 1", WT2: "Table 2"}[row.words]
    table = "not in the paper" if "-state-" in name else table
    assert any(table in source for source in found.sources)


@EVERY_ROW
def test_sizes(name: str, row: Row) -> None:
    family = "awd" if "/awd-" in name else "mos"
    parameters = {"awd": AWD, "mos": MOS}[family][row.words]
    if name.startswith("li2020/"):
        width = WIDTHS[family][row.words]
        parameters += width * width * (4 if "-state-" in name else 2) + width + 2 * width
    assert count_configured(PRESETS[name].config.model, row.words).total == parameters


@EVERY_BUFFERED_ROW
def test_a_buffer_is_all_that_a_rung_adds(name: str, row: Row) -> None:
    config, base = PRESETS[name].config.to_tree(), below(name, row).to_tree()
    memory = config["model"].pop("memory")
    assert base["model"].pop("memory") == {"kind": "none"}
    assert memory["kind"] == "span_buffer"
    assert (memory["dropout"], config["model"].pop("output_dropout")) == (base["model"].pop("output_dropout"), 0.0)
    assert config == base


@pytest.mark.parametrize("name", [name for name in ROWS if "-state-" in name])
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


@pytest.mark.parametrize(("reads", "squares"), [("spans", 2), ("merge", 4)])
def test_what_q_reads_costs_where_it_is_merged(reads: Reads, squares: int) -> None:
    """W_h and W_s (d, d), and W (d, 2d)."""
    for name, width in (("li2020/awd-snb-ptb", 400), ("li2020/mos-snb-ptb", 620)):
        model = PRESETS[name].config.model
        assert isinstance(model.memory, SpanBufferConfig)
        found = count_configured(replace(model, memory=replace(model.memory, reads=reads)), PTB)
        without = AWD[PTB] if "awd" in name else MOS[PTB]
        assert found.total == without + squares * width**2 + 3 * width
        assert found.model == found.total - PTB * model.embedding_size
