"""The tables of the papers as they are printed, and what their rows are compared with."""

import pytest

from spanlm.papers.paper import BY_EPOCH, BY_LAG, Dynamic, Paper, Plain, Row
from spanlm.papers.published.li2020 import PAPER as LI
from spanlm.papers.published.salton2017 import PAPER as SALTON
from spanlm.papers.registry import PAPERS
from spanlm.papers.table import COLUMNS

RUNGS = ("AWD-LSTM", "AWD-LSTM + MoS", "AWD-LSTM + MoS + PS", "AWD-LSTM + MoS + PS + AT")  # of Li et al.'s ladder

LABELS = ("ptb", "wt2")
ANALYSES = {"3": "ptb", "3-wt2": "wt2"}

every_paper = pytest.mark.parametrize("paper", PAPERS.values(), ids=lambda paper: paper.name)


@every_paper
def test_every_table_has_rows_and_columns_that_there_are(paper: Paper) -> None:
    for table in paper.tables:
        assert set(table.parts) <= set(table.rows) <= set(paper.rows)
        columns = {*table.columns, *(column for details in table.details for column in details.columns)}
        assert columns <= {*COLUMNS, *paper.columns, BY_EPOCH, BY_LAG}


@every_paper
def test_every_preset_has_one_plain_row_and_it_is_in_the_tables_that_need_it(paper: Paper) -> None:
    for table in paper.tables:
        for row in table.rows.values():
            plain = [r.name for r in paper.rows.values() if r.preset == row.preset and r.evaluation == Plain()]
            assert plain == [paper.plain(row).name]
            assert plain[0] in table.rows


def test_a_control_is_a_plain_lstm_of_the_same_table_counted_alike() -> None:
    for table in SALTON.tables:
        for row in table.rows.values():
            if row.control and table.columns:
                control = table.rows[row.control]
                # a cache on an attentive model is compared with one of the same size on the model without attention
                assert control.evaluation in (Plain(), row.evaluation)
                assert control.evaluation == Plain() or "single" in row.name
                assert control.preset.config.model.memory.kind == "none"
                assert control.by_sentence == row.by_sentence
                assert control.preset.config.data.lines == row.preset.config.data.lines


TABLES = {table.name: table for table in LI.tables}


def rows(table: str, *, adapting: bool) -> list[Row]:
    return [row for row in TABLES[table].rows.values() if isinstance(row.evaluation, Dynamic) == adapting]


@pytest.mark.parametrize(("table", "label"), [("1", "ptb"), ("2", "wt2")])
@pytest.mark.parametrize("adapting", [False, True])
def test_the_ladder_has_the_papers_rows_in_its_order_each_compared_with_the_one_it_grew_out_of(
    table: str, label: str, adapting: bool
) -> None:
    found, end = rows(table, adapting=adapting), f"-{label}-dynamic" if adapting else f"-{label}"
    again = [row for row in found if row.name.startswith("awd-snb-current")]
    assert [row.title for row in again] == ["AWD-LSTM + SNB, newest span at t"]
    assert found.index(again[0]) == 2 and again[0].reported == found[1].reported  # the row above in its other reading
    titles = [row.title for row in found if row not in again]
    assert titles == [f"{rung}{buffer}" for rung in RUNGS for buffer in ("", " + SNB")]
    for row in found:
        printed = row.preset.reported
        plain, dynamic = (printed.valid_ppl, printed.test_ppl), (printed.dynamic_valid_ppl, printed.dynamic_test_ppl)
        assert (row.reported.valid_ppl, row.reported.test_ppl) == (dynamic if adapting else plain)
    controls = {row.name.removesuffix(end): row.control.removesuffix(end) for row in found}
    ladder = {"awd": "", "mos": "awd", "mos-ps": "mos", "mos-ps-at": "mos-ps"}
    assert controls == ladder | {f"{rung}-snb": rung for rung in ladder} | {"awd-snb-current": "awd"}


@pytest.mark.parametrize(("table", "label"), [("state", "ptb"), ("state-wt2", "wt2")])
@pytest.mark.parametrize("adapting", [False, True])
def test_our_reading_stands_beside_each_rung_and_is_no_row_of_the_paper(table: str, label: str, adapting: bool) -> None:
    found, end = rows(table, adapting=adapting), f"-{label}-dynamic" if adapting else f"-{label}"
    assert [row.title for row in found if row.in_paper] == list(RUNGS)
    ours = {row.name.removesuffix(end): row.control.removesuffix(end) for row in found if not row.in_paper}
    assert ours == {f"{rung}-snb-state": rung for rung in ("awd", "mos", "mos-ps", "mos-ps-at")}


@pytest.mark.parametrize(("table", "label"), ANALYSES.items())
def test_the_analysis_takes_the_whole_model_apart(table: str, label: str) -> None:
    parts = TABLES[table].parts
    for row in (row for adapting in (False, True) for row in rows(table, adapting=adapting)):
        whole = f"mos-ps-at-snb-{label}" + "-dynamic" * isinstance(row.evaluation, Dynamic)
        assert row.name == whole or row.control == whole
    for row in rows(table, adapting=False):  # nothing is printed of these
        assert all(part.test_ppl is None for part in parts.get(row.name, ()))
        assert row.name in parts or (row.reported.valid_ppl, row.reported.test_ppl) == (None, None)
