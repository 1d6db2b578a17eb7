"""The tables of the papers as they are printed, and what their rows are compared with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spanlm.reproduction import Dynamic, Paper, Plain, Row
from spanlm.reproduction.li2020 import LI, PARTS
from spanlm.reproduction.plan import PAPERS
from spanlm.reproduction.salton2017 import SALTON
from spanlm.reproduction.table import BY_EPOCH, BY_LAG, COLUMNS

# Salton et al.'s two tables as printed: parameters in millions, valid, test
SALTON_PRINTED = {
    "1": "20 86.2 82.7, 66 82.2 78.4, 51 75.8 73.2, - - 72.1, 21 72.4 70.9, 14.5 72.6 70.7, 14.5 71.7 70.1, "
    "40 80.6 77.0, 100 76.7 73.3, 200 75.2 72.0, 122 76.9 73.6, 660 72.8 69.5, 2508 71.9 68.7",
    "2": "20 108.7 100.9, - - 99.3, 20 101.7 96.3, - - 81.6, 21 84.8 80.8, 50 74.3 70.8, 50 73.7 69.7, - - 68.9",
}

RUNGS = ("AWD-LSTM", "AWD-LSTM + MoS", "AWD-LSTM + MoS + PS", "AWD-LSTM + MoS + PS + AT")  # of Li et al.'s ladder

# Table 3 as printed: test, with dynamic evaluation
LABELS = ("ptb", "wt2")
ANALYSES = {"3": "ptb", "3-wt2": "wt2"}
ANALYSED = {
    "AWD-LSTM + MoS + PS + AT + SNB": (43.87, 35.16),
    "using only sequential RNN": (46.85, 39.11),
    "using only sequential neural buffer": (52.54, 45.57),
    "oracle policy": (38.72, 32.35),
    "w/o annealing in training": (45.64, 38.23),
    "w/o annealing in test": (44.12, 37.45),
    "w/o reward": (45.92, 38.76),
    "w/o RNNs-minus feature": (44.72, 37.88),
}


def numbers(printed: str) -> list[tuple[float | None, ...]]:
    rows = (row.split() for row in printed.split(", "))
    return [tuple(None if number == "-" else float(number) for number in row) for row in rows]


every_paper = pytest.mark.parametrize("paper", PAPERS.values(), ids=lambda paper: paper.name)


@every_paper
def test_every_table_has_rows_and_columns_that_there_are(paper: Paper) -> None:
    for table in paper.tables:
        assert set(table.rows) <= set(paper.rows) and set(table.parts) <= set(table.rows)
        columns = {*table.columns, *(column for details in table.details for column in details.columns)}
        assert columns <= {*COLUMNS, BY_EPOCH, BY_LAG}


@every_paper
def test_every_preset_has_one_plain_row_and_it_is_in_the_tables_that_need_it(paper: Paper) -> None:
    for table in paper.tables:
        for name in table.rows:
            row = paper.rows[name]
            plain = [r.name for r in paper.rows.values() if r.preset == row.preset and r.how == Plain()]
            assert plain == [paper.plain(row).name]
            assert plain[0] in table.rows


@pytest.mark.parametrize("table", SALTON_PRINTED)
def test_the_papers_rows_stand_in_its_order_with_its_numbers(table: str) -> None:
    rows = [SALTON.rows[name] for name in next(one for one in SALTON.tables if one.name == table).rows]
    found = [row.reported for row in rows if row.in_paper]
    assert [(r.all_parameters, r.valid_ppl, r.test_ppl) for r in found] == numbers(SALTON_PRINTED[table])


def test_a_control_is_a_plain_lstm_of_the_same_table_counted_alike() -> None:
    for table in SALTON.tables:
        for row in (SALTON.rows[name] for name in table.rows):
            if row.control:
                control = SALTON.rows[row.control]
                assert control.name in table.rows
                # a cache on an attentive model is compared with one of the same size on the model without attention
                assert control.how in (Plain(), row.how) and (control.how == Plain() or "single" in row.name)
                assert control.trained.config.model.memory.kind == "none"
                assert control.by_sentence == row.by_sentence
                assert control.trained.config.data.lines == row.trained.config.data.lines


@pytest.mark.parametrize("corpus", LABELS)
def test_the_control_of_the_attention_differs_from_it_in_nothing_else(corpus: str) -> None:
    control = SALTON.rows[f"lstm-{corpus}"].trained.config
    for score in ("single", "combined", "mean", "merge"):
        config = SALTON.rows[f"{score}-{corpus}"].trained.config
        assert (config.data, config.training) == (control.data, control.training)
        assert config.model.encoder == control.model.encoder
        assert config.model.memory.kind == "attentive"
    plain, single = (SALTON.rows[f"{name}-stream-{corpus}"].trained.config for name in ("lstm", "single"))
    assert replace(single, model=replace(single.model, memory=plain.model.memory)) == plain
    sentences = replace(plain.training, batching=control.training.batching)
    assert (plain.model, sentences) == (control.model, control.training)
    assert plain.data.lines == "as-written" and plain.training.batching.kind == "streams"


TABLES = {table.name: table for table in LI.tables}


def rows(table: str, *, adapting: bool) -> list[Row]:
    found = [LI.rows[name] for name in TABLES[table].rows]
    return [row for row in found if isinstance(row.how, Dynamic) == adapting]


@pytest.mark.parametrize(("table", "label"), [("1", "ptb"), ("2", "wt2")])
@pytest.mark.parametrize("adapting", [False, True])
def test_the_ladder_has_the_papers_rows_in_its_order_each_compared_with_the_one_it_grew_out_of(
    table: str, label: str, adapting: bool
) -> None:
    found, end = rows(table, adapting=adapting), f"-{label}-dynamic" if adapting else f"-{label}"
    assert [row.title for row in found] == [f"{rung}{buffer}" for rung in RUNGS for buffer in ("", " + SNB")]
    for row in found:
        printed = row.trained.reported
        plain, dynamic = (printed.valid_ppl, printed.test_ppl), (printed.dynamic_valid_ppl, printed.dynamic_test_ppl)
        assert (row.reported.valid_ppl, row.reported.test_ppl) == (dynamic if adapting else plain)
    controls = {row.name.removesuffix(end): row.control.removesuffix(end) for row in found}
    ladder = {"awd": "", "mos": "awd", "mos-ps": "mos", "mos-ps-at": "mos-ps"}
    assert controls == ladder | {f"{rung}-snb": rung for rung in ladder}


@pytest.mark.parametrize(("table", "label"), [("state", "ptb"), ("state-wt2", "wt2")])
@pytest.mark.parametrize("adapting", [False, True])
def test_our_reading_stands_beside_each_rung_and_is_no_row_of_the_paper(table: str, label: str, adapting: bool) -> None:
    found, end = rows(table, adapting=adapting), f"-{label}-dynamic" if adapting else f"-{label}"
    assert [row.title for row in found if row.in_paper] == list(RUNGS)
    ours = {row.name.removesuffix(end): row.control.removesuffix(end) for row in found if not row.in_paper}
    assert ours == {f"{rung}-snb-state": rung for rung in ("awd", "mos", "mos-ps", "mos-ps-at")}


@pytest.mark.parametrize(("table", "label"), ANALYSES.items())
def test_the_analysis_has_the_papers_rows_in_its_order_with_its_numbers(table: str, label: str) -> None:
    column, parts = LABELS.index(label), TABLES[table].parts
    found: dict[str, float | None] = {}
    for row in rows(table, adapting=True):
        found[row.title] = row.reported.test_ppl
        found |= {title: parts[row.name][part] for part, title in PARTS.values() if row.name in parts}
    assert found == {title: printed[column] for title, printed in ANALYSED.items()}
    assert list(found) == list(ANALYSED)
    for row in (row for adapting in (False, True) for row in rows(table, adapting=adapting)):
        whole = f"mos-ps-at-snb-{label}" + "-dynamic" * isinstance(row.how, Dynamic)
        assert row.name == whole or row.control == whole
    for row in rows(table, adapting=False):  # nothing is printed of these
        assert not parts.get(row.name)
        assert row.name in parts or (row.reported.valid_ppl, row.reported.test_ppl) == (None, None)
