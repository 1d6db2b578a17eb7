"""The tables of the papers as they are printed, and what their rows are compared with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spanlm.models.memories import NoMemoryConfig, SpanBufferConfig
from spanlm.reproduction import Dynamic, Paper, Plain, Row
from spanlm.reproduction.daniluk2017 import PUBLISHED_CLOZE
from spanlm.reproduction.li2020 import LI, PARTS
from spanlm.reproduction.plan import PAPERS
from spanlm.reproduction.salton2017 import SALTON
from spanlm.reproduction.table import BY_EPOCH, COLUMNS

LADDERS = {"1": "ptb", "2": "wt2"}
ANALYSES = {"3": "ptb", "3-wt2": "wt2"}

# Salton et al.'s two tables as printed: parameters in millions, valid, test
SALTON_PRINTED = {
    "1": [
        (20, 86.2, 82.7),
        (66, 82.2, 78.4),
        (51, 75.8, 73.2),
        (None, None, 72.1),
        (21, 72.4, 70.9),
        (14.5, 72.6, 70.7),
        (14.5, 71.7, 70.1),
        (40, 80.6, 77.0),
        (100, 76.7, 73.3),
        (200, 75.2, 72.0),
        (122, 76.9, 73.6),
        (660, 72.8, 69.5),
        (2508, 71.9, 68.7),
    ],
    "2": [
        (20, 108.7, 100.9),
        (None, None, 99.3),
        (20, 101.7, 96.3),
        (None, None, 81.6),
        (21, 84.8, 80.8),
        (50, 74.3, 70.8),
        (50, 73.7, 69.7),
        (None, None, 68.9),
    ],
}


# Li et al.'s tables 1 and 2 as printed: parameters in millions; valid and test; both with dynamic evaluation
PRINTED = {
    "1": {
        "AWD-LSTM": (24, 60.00, 57.30, 51.60, 51.10),
        "AWD-LSTM + SNB": (24, 56.82, 54.92, 48.23, 47.54),
        "AWD-LSTM + MoS": (22, 56.54, 54.44, 48.33, 47.69),
        "AWD-LSTM + MoS + SNB": (22, 54.21, 52.62, 46.53, 45.41),
        "AWD-LSTM + MoS + PS": (22, 55.89, 53.92, 47.93, 47.49),
        "AWD-LSTM + MoS + PS + SNB": (22, 53.45, 51.10, 45.51, 45.33),
        "AWD-LSTM + MoS + PS + AT": (22, 54.10, 52.20, 46.63, 46.01),
        "AWD-LSTM + MoS + PS + AT + SNB": (22, 52.37, 50.18, 44.37, 43.87),
    },
    "2": {
        "AWD-LSTM": (33, 68.60, 65.80, 46.40, 44.30),
        "AWD-LSTM + SNB": (33, 63.07, 60.43, 40.72, 38.59),
        "AWD-LSTM + MoS": (35, 63.88, 61.45, 42.41, 40.68),
        "AWD-LSTM + MoS + SNB": (35, 60.62, 58.79, 40.61, 37.76),
        "AWD-LSTM + MoS + PS": (35, 62.38, 59.98, 40.75, 39.03),
        "AWD-LSTM + MoS + PS + SNB": (35, 60.11, 57.87, 39.98, 37.01),
        "AWD-LSTM + MoS + PS + AT": (35, 61.10, 58.95, 39.58, 38.07),
        "AWD-LSTM + MoS + PS + AT + SNB": (35, 58.75, 56.12, 38.42, 35.16),
    },
}

# Table 3 as printed: test, with dynamic evaluation
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


every_paper = pytest.mark.parametrize("paper", PAPERS.values(), ids=lambda paper: paper.name)


@every_paper
def test_every_table_has_rows_and_columns_that_there_are(paper: Paper) -> None:
    for table in paper.tables:
        assert set(table.rows) <= set(paper.rows) and set(table.parts) <= set(table.rows)
        columns = {*table.columns, *(column for details in table.details for column in details.columns)}
        assert columns <= {*COLUMNS, BY_EPOCH}
        if table.measure == "cloze":
            assert set(table.rows) == set(PUBLISHED_CLOZE)


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
    assert [(r.all_parameters, r.valid_ppl, r.test_ppl) for r in found] == SALTON_PRINTED[table]


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


@pytest.mark.parametrize("corpus", ["ptb", "wt2"])
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


@pytest.mark.parametrize("table", LADDERS)
@pytest.mark.parametrize("adapting", [False, True])
def test_the_ladder_has_the_papers_rows_in_its_order_with_its_numbers(table: str, adapting: bool) -> None:
    found = {row.title: row.reported for row in rows(table, adapting=adapting)}
    assert list(found) == list(PRINTED[table])
    for title, (millions, *numbers) in PRINTED[table].items():
        reported = found[title]
        assert (reported.valid_ppl, reported.test_ppl) == tuple(numbers[2:] if adapting else numbers[:2]), title
        assert reported.all_parameters == millions


@pytest.mark.parametrize(("table", "label"), ANALYSES.items())
def test_the_analysis_has_the_papers_rows_in_its_order_with_its_numbers(table: str, label: str) -> None:
    column, parts = list(ANALYSES.values()).index(label), TABLES[table].parts
    found: dict[str, float | None] = {}
    for row in rows(table, adapting=True):
        found[row.title] = row.reported.test_ppl
        found |= {title: parts[row.name][part] for part, title in PARTS.values() if row.name in parts}
    assert found == {title: numbers[column] for title, numbers in ANALYSED.items()}
    assert list(found) == list(ANALYSED)
    for row in rows(table, adapting=False):  # of which nothing is printed
        assert not parts.get(row.name)
        assert row.name in parts or (row.reported.valid_ppl, row.reported.test_ppl) == (None, None)


@pytest.mark.parametrize("label", ["ptb", "wt2"])
@pytest.mark.parametrize("rung", ["awd", "mos", "mos-ps", "mos-ps-at"])
def test_a_buffer_is_compared_with_the_same_model_without_one(rung: str, label: str) -> None:
    row = LI.rows[f"{rung}-snb-{label}"]
    assert LI.rows[f"{row.name}-dynamic"].control == f"{row.control}-dynamic"
    config, control = row.trained.config, LI.rows[row.control].trained.config
    assert (config.data, config.training) == (control.data, control.training)
    memory = config.model.memory
    assert isinstance(memory, SpanBufferConfig) and memory.dropout == control.model.output_dropout
    bare = replace(config.model, memory=NoMemoryConfig(), output_dropout=memory.dropout)
    assert bare == control.model


@pytest.mark.parametrize(("table", "label"), ANALYSES.items())
def test_an_ablation_lacks_one_thing_of_the_whole(table: str, label: str) -> None:
    whole = LI.rows[f"mos-ps-at-snb-{label}"].trained.config
    memory = whole.model.memory
    assert isinstance(memory, SpanBufferConfig)
    lacks = {
        "unannealed": replace(memory, gate=replace(memory.gate, training_temperature=1.0)),
        "unrewarded": replace(memory, reward=replace(memory.reward, weight=0.0)),
        "words": replace(memory, words=True),
    }
    for name, changed in lacks.items():
        row = LI.rows[f"{name}-{label}"]
        assert row.control == f"mos-ps-at-snb-{label}" and row.name in TABLES[table].rows
        assert row.trained.config == replace(whole, model=replace(whole.model, memory=changed))
