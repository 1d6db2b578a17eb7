"""Scales keep the paper's proportions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spanlm.data.config import DataConfig
from spanlm.models.counting import count_configured, lstm_budget
from spanlm.presets import find_preset
from spanlm.presets.daniluk2017 import VOCABULARY_SIZE
from spanlm.reproduction.daniluk2017 import DANILUK2017
from spanlm.reproduction.matched_scale import SCALES

ROWS = sorted({row for table in DANILUK2017 for row in table.rows})
MATCHED = [row for row in ROWS if not row.startswith("rm-")]
TEXT = DataConfig(corpus="ptb")

every_row = pytest.mark.parametrize("row", ROWS)
every_matched_row = pytest.mark.parametrize("row", MATCHED)


@every_row
def test_at_the_papers_vocabulary_the_sizes_are_the_papers(row: str) -> None:
    preset = find_preset(f"daniluk2017/{row}").config
    config = SCALES["paper"].configure(preset, TEXT, VOCABULARY_SIZE, 22_500_000)
    assert config.model == preset.model
    assert config.training == preset.training


@every_matched_row
@pytest.mark.parametrize(("scale", "size"), [("paper", 10_000), ("small", 16_000), ("small", 9_000), ("smoke", 2_000)])
def test_elsewhere_no_size_is_nearer_to_the_lstms_parameters(row: str, scale: str, size: int) -> None:
    preset = find_preset(f"daniluk2017/{row}").config
    model = SCALES[scale].configure(preset, TEXT, size, 10**6).model
    budget = lstm_budget(SCALES[scale].units, model, size)
    parts = model.memory.parts

    def miss(hidden: int) -> int:
        return abs(count_configured(replace(model, encoder=model.encoder.resized(hidden)), size).model - budget)

    hidden = model.encoder.output_size
    assert miss(hidden) <= min(miss(other) for other in (hidden - parts, hidden + parts) if other > 0)


@pytest.mark.parametrize("row", [row for row in ROWS if row.startswith("rm-")])
def test_the_recurrent_memory_has_the_units_of_the_lstm_as_in_the_paper(row: str) -> None:
    preset = find_preset(f"daniluk2017/{row}").config
    assert SCALES["small"].configure(preset, TEXT, 16_000, 10**6).model.encoder.output_size == SCALES["small"].units


@pytest.mark.parametrize(
    ("row", "share"),
    [
        ("attention-w10", 296 / 300),
        ("kv-w10", 280 / 300),
        ("kvp-w5", 262 / 300),
        ("2-gram", 282 / 300),
        ("3-gram", 262 / 300),
        ("4-gram", 242 / 300),
    ],
)
def test_small_leaves_the_softmax_the_share_of_width_that_the_paper_leaves_it(row: str, share: float) -> None:
    """What a model's softmax reads, over what the LSTM's reads; KVP by its 786 units, which fit the paper's budget."""
    scale = SCALES["small"]
    assert scale.vocabulary_size is not None
    model = scale.configure(find_preset(f"daniluk2017/{row}").config, TEXT, scale.vocabulary_size, 10**6).model
    assert model.encoder.output_size / model.memory.parts / scale.units == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize(
    ("tokens", "epochs"), [(929_589, 8), (2_088_628, 6), (5_809_773, 2), (12_400_000, 1), (90_000_000, 1)]
)
def test_small_reads_about_the_same_number_of_tokens_of_every_corpus(tokens: int, epochs: int) -> None:
    assert SCALES["small"].epochs(find_preset("daniluk2017/lstm").config, tokens) == epochs


def test_a_vocabulary_that_is_asked_for_stays_if_it_is_smaller() -> None:
    assert SCALES["small"].data(DataConfig(max_size=500)).max_size == 500
    assert SCALES["small"].data(DataConfig(max_size=90_000)).max_size == 16_000
    assert SCALES["small"].data(DataConfig()).max_size == 16_000
    assert SCALES["paper"].data(DataConfig(max_size=90_000)).max_size == 90_000
