"""The rows of Li et al., and from a request to what is done for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spanlm.errors import InputError
from spanlm.models.memories import NoMemoryConfig, SpanBufferConfig
from spanlm.reproduction.li2020 import LI, LI2020, PARTS, is_whole, published_part
from spanlm.reproduction.plan import Plan, make_plan
from spanlm.reproduction.request import Request
from spanlm.reproduction.tables import Dynamic, Plain, Row
from spanlm.reproduction.tasks import Job, Measurement

TABLES = {table.name: table for table in LI2020}
LADDERS = {"1": "ptb", "2": "wt2"}
ANALYSES = {"3": "ptb", "3-wt2": "wt2"}

# Tables 1 and 2 as printed: parameters in millions; valid and test; both with dynamic evaluation
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


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPANLM_DATA", raising=False)


def plan(corpus: object, **changes: Any) -> Plan:
    return make_plan(Request(**{"paper": "li2020", "corpus": str(corpus), "scale": "smoke", "table": "1", **changes}))


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
    column = list(ANALYSES.values()).index(label)
    found: dict[str, float | None] = {}
    for row in rows(table, adapting=True):
        found[row.title] = row.reported.test_ppl
        found |= {PARTS[part]: published_part(row, part) for part in PARTS if is_whole(row)}
    assert found == {title: numbers[column] for title, numbers in ANALYSED.items()}
    assert list(found) == list(ANALYSED)


def test_nothing_is_printed_of_the_analysis_without_dynamic_evaluation() -> None:
    for table, label in ANALYSES.items():
        for row in rows(table, adapting=False):
            assert published_part(row, "encoder") is None
            if not is_whole(row):
                assert (row.reported.valid_ppl, row.reported.test_ppl) == (None, None)
        assert {is_whole(LI.rows[f"mos-ps-at-{label}"]), is_whole(LI.rows[f"awd-snb-{label}"])} == {False}


@pytest.mark.parametrize(("table", "label"), LADDERS.items())
def test_a_rung_is_compared_with_the_one_below_it(table: str, label: str) -> None:
    below = {
        "awd": "",
        "awd-snb": "awd",
        "mos": "awd",
        "mos-snb": "mos",
        "mos-ps": "mos",
        "mos-ps-snb": "mos-ps",
        "mos-ps-at": "mos-ps",
        "mos-ps-at-snb": "mos-ps-at",
    }
    controls = {row.name: row.control for row in rows(table, adapting=False)}
    assert controls == {f"{name}-{label}": f"{control}-{label}" if control else "" for name, control in below.items()}
    for row in rows(table, adapting=True):
        plain = LI.rows[row.name.removesuffix("-dynamic")]
        assert row.control == (f"{plain.control}-dynamic" if plain.control else "")
        assert row.preset == plain.preset and row.how == Dynamic()


@pytest.mark.parametrize("label", ["ptb", "wt2"])
@pytest.mark.parametrize("rung", ["awd", "mos", "mos-ps", "mos-ps-at"])
def test_a_buffer_is_compared_with_the_same_model_without_one(rung: str, label: str) -> None:
    row = LI.rows[f"{rung}-snb-{label}"]
    config, control = row.trained.config, LI.rows[row.control].trained.config
    assert (config.data, config.training) == (control.data, control.training)
    memory = config.model.memory
    assert isinstance(memory, SpanBufferConfig) and memory.dropout == control.model.output_dropout
    bare = replace(config.model, memory=NoMemoryConfig(), output_dropout=memory.dropout)
    assert bare == control.model


@pytest.mark.parametrize(("table", "label"), ANALYSES.items())
def test_an_ablation_lacks_one_thing_of_the_whole(table: str, label: str) -> None:
    whole = LI.rows[f"mos-ps-at-snb-{label}"].trained.config
    lacks = {
        "unannealed": {"training_temperature": 1.0},
        "unrewarded": {"reward": 0.0},
        "words": {"words": True},
    }
    for name, change in lacks.items():
        row = LI.rows[f"{name}-{label}"]
        assert row.control == f"mos-ps-at-snb-{label}" and row.name in TABLES[table].rows
        memory = whole.model.memory
        assert isinstance(memory, SpanBufferConfig)
        changed = replace(memory, **change)  # type: ignore[arg-type]
        assert row.trained.config == replace(whole, model=replace(whole.model, memory=changed))


def test_the_differences_that_the_text_gives_are_not_those_of_the_tables() -> None:
    def gain(table: str, title: str, of: str, position: int) -> str:
        return f"{PRINTED[table][of][position] - PRINTED[table][title][position]:.2f}"

    awd = {table: [gain(table, "AWD-LSTM + SNB", "AWD-LSTM", n) for n in (1, 3, 2, 4)] for table in ("1", "2")}
    remark = TABLES["1"].remark
    assert f"{awd['2'][0]}/{awd['2'][1]} are those of valid on WikiText-2 without/with dynamic evaluation" in remark
    assert f"where test has {awd['2'][2]}/{awd['2'][3]}; Penn Treebank has" in remark
    assert f"{awd['1'][0]}/{awd['1'][1]} and {awd['1'][2]}/{awd['1'][3]}" in remark
    assert f"MoS on Penn Treebank {gain('1', 'AWD-LSTM + MoS + SNB', 'AWD-LSTM + MoS', 2)} (test)" in remark
    shuffled = gain("2", "AWD-LSTM + MoS + PS + SNB", "AWD-LSTM + MoS + PS", 3)
    assert f"MoS + PS on WikiText-2 {shuffled} (valid, with dynamic evaluation)" in remark


def test_each_rung_is_trained_once_and_measured_twice(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus)
    assert [task.row for task in made.tasks] == list(TABLES["1"].rows)
    assert len(made.jobs) == 8 and len(made.tasks) == 16
    for job, measurement in zip(made.tasks[::2], made.tasks[1::2], strict=True):
        assert isinstance(job, Job) and isinstance(measurement, Measurement)
        assert measurement.jobs == (job,) and measurement.search == made.scale.dynamic
        assert measurement.record.name == f"{job.row}-dynamic-seed-1.json"


def test_the_ablations_of_table_3_come_after_the_ladder_and_share_its_training(tiny_corpus: Path) -> None:
    made = plan(tiny_corpus, table=None, rows=(*TABLES["1"].rows, *TABLES["3"].rows))
    trained = [job.row for job in made.jobs]
    ladder = [row.name for row in rows("1", adapting=False)]
    assert trained == [*ladder, "unannealed-ptb", "unrewarded-ptb", "words-ptb"]
    (tempered,) = (task for task in made.tasks if task.row == "unannealed-test-ptb-dynamic")
    assert isinstance(tempered, Measurement) and tempered.how == Dynamic(gate_temperature=1.0)
    assert [job.row for job in tempered.jobs] == ["mos-ps-at-snb-ptb"]


@pytest.mark.parametrize(
    ("table", "corpus"), [("1", "ptb"), ("2", "wikitext-2"), ("3", "ptb"), ("3-wt2", "wikitext-2")]
)
def test_a_table_runs_on_its_own_corpus_unless_told(table: str, corpus: str) -> None:
    with pytest.raises(InputError, match=corpus):  # which is not there
        make_plan(Request(paper="li2020", table=table, scale="small"))


@pytest.mark.parametrize(
    ("table", "corpus", "home", "other"),
    [
        ("1", "wikitext-2", "ptb", "2"),
        ("2", "ptb", "wikitext-2", "1"),
        ("3", "wikitext-2", "ptb", "3-wt2"),
        ("3-wt2", "ptb", "wikitext-2", "3"),
    ],
)
@pytest.mark.parametrize("scale", ["smoke", "small", "paper"])
def test_a_table_is_refused_on_the_corpus_of_its_twin(
    table: str, corpus: str, home: str, other: str, scale: str
) -> None:
    said = (
        f"--corpus={corpus}: table {table} has the settings of {home}; those of {corpus} are table {other}. Use "
        f"--table {other}, or --corpus {home}."
    )
    with pytest.raises(InputError) as error:
        make_plan(Request(paper="li2020", table=table, corpus=corpus, scale=scale))
    assert str(error.value) == said


@pytest.mark.parametrize("table", ["1", "2", "3", "3-wt2"])
def test_every_table_runs_on_a_text_of_ones_own(tiny_corpus: Path, table: str) -> None:
    assert make_plan(Request(paper="li2020", table=table, corpus=str(tiny_corpus), scale="smoke")).jobs


def test_without_a_table_or_a_corpus_it_must_be_said_which() -> None:
    with pytest.raises(
        InputError, match=r"--table: must be given at scale small: 1 \(ptb\), 2 \(wikitext-2\), 3 \(ptb\)"
    ):
        make_plan(Request(paper="li2020", scale="small"))


def test_every_trained_row_is_plain_and_of_a_preset_of_its_own() -> None:
    plain = [row for row in LI.rows.values() if row.how == Plain()]
    assert len({row.preset for row in plain}) == len(plain) == 22
    assert all(row.trained.sources for row in plain)
