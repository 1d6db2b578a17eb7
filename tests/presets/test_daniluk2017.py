"""Every row of Daniluk et al. (2017), Figures 2a-2c, against a table typed from the paper."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from spanlm.errors import InputError
from spanlm.models.counting import count_configured
from spanlm.presets import PRESETS, Preset, find_preset


@dataclass(frozen=True)
class Row:
    """k (the full output), parts, the memory, θ_M in millions by our count, the printed perplexities; the encoder."""

    k: int
    parts: int
    memory: dict[str, object]
    millions: str
    valid: float | None
    test: float
    figures: tuple[str, ...]
    encoder: dict[str, object] = field(
        default_factory=lambda: {"kind": "lstm", "layers": 1, "dropout": 0.0, "forget_bias": 1.0}
    )
    printed: str = "23.9"


def _attentive(k: int, roles: int, window: int, millions: str, valid: float | None, test: float) -> Row:
    memory = {"kind": "key_value", "roles": roles, "window": window}
    return Row(k, roles, memory, millions, valid, test, ("2a",) if valid is None else ("2a", "2c"))


def _ngram(k: int, order: int, millions: str, valid: float, test: float) -> Row:
    figures = ("2b", "2c") if order == 4 else ("2b",)
    return Row(k, order, {"kind": "ngram", "order": order}, millions, valid, test, figures)


def _plain(k: int, millions: str, valid: float, test: float, encoder: dict[str, object]) -> Row:
    return Row(k, 1, {"kind": "none"}, millions, valid, test, ("2c",), encoder)


def _hornn(pooling: str) -> dict[str, object]:
    return {"kind": "hornn", "order": 3, "pooling": pooling, "forgetting_factor": 0.6}


def _recurrent_memory(window: int, millions: str, valid: float | None, test: float) -> Row:
    memory = {"kind": "recurrent_memory", "window": window, "temporal": True, "composition": "gated"}
    figures = ("2a",) if valid is None else ("2a", "2c")
    return Row(300, 1, memory, millions, valid, test, figures, printed="70.6")


ATTENTIVE = {
    ("attention", 296, 1, "23.93"): [(1, None, 82.2), (5, None, 82.2), (10, 80.6, 82.0), (15, None, 82.8)],
    ("kv", 560, 2, "23.88"): [(1, None, 78.7), (5, None, 79.0), (10, 77.1, 78.2), (15, None, 78.9)],
    ("kvp", 834, 3, "25.58"): [(1, None, 76.1), (5, 74.2, 75.8), (10, None, 76.0), (15, None, 75.8)],
    ("kvp-786", 786, 3, "23.94"): [(1, None, 76.1), (5, 74.2, 75.8), (10, None, 76.0), (15, None, 75.8)],
}
ROWS = {
    "rnn": _plain(307, "23.90", 121.7, 125.7, {"kind": "rnn", "layers": 1, "dropout": 0.0}),
    "fofe-hornn-3": _plain(303, "23.77", 116.7, 120.5, _hornn("fofe")),
    "gated-hornn-3": _plain(297, "23.83", 93.9, 97.1, _hornn("gated")),
    "rm-w1": _recurrent_memory(1, "70.64", None, 83.5),
    "rm-w5": _recurrent_memory(5, "70.64", None, 80.5),
    "rm-w10": _recurrent_memory(10, "70.65", None, 80.3),
    "rm-w15": _recurrent_memory(15, "70.65", 78.2, 80.1),
    "lstm": Row(300, 1, {"kind": "none"}, "23.90", 83.2, 85.2, ("2c",)),
    **{
        f"{name}-w{window}": _attentive(k, roles, window, millions, valid, test)
        for (name, k, roles, millions), printed in ATTENTIVE.items()
        for window, valid, test in printed
    },
    "2-gram": _ngram(564, 2, "23.90", 76.0, 77.1),
    "3-gram": _ngram(786, 3, "23.87", 74.9, 75.9),
    "4-gram": _ngram(968, 4, "23.86", 74.8, 75.9),
    "5-gram": _ngram(1120, 5, "23.94", 76.0, 77.3),
}
EVERY_ROW = pytest.mark.parametrize(("name", "row"), ROWS.items(), ids=ROWS)


def preset(name: str) -> Preset:
    return PRESETS[f"daniluk2017/{name}"]


def test_the_names_are_these() -> None:
    assert {name for name in PRESETS if name.startswith("daniluk2017/")} == {f"daniluk2017/{name}" for name in ROWS}
    assert all(preset.name == name for name, preset in PRESETS.items())


@EVERY_ROW
def test_sizes_are_the_printed_ones(name: str, row: Row) -> None:
    found = preset(name)
    assert found.reported.vocabulary_size == 77_000
    count = count_configured(found.config.model, 77_000)
    assert f"{count.model / 1e6:.2f}" == row.millions
    assert count.total - count.model == 77_000 * 300
    assert str(found.reported.model_parameters) == row.printed
    assert f"{count.model / 1e6:.1f}" == row.printed or row.k in (834, 303, 297), "the paper's other sizes are right"


@EVERY_ROW
def test_numbers_and_sources_are_those_of_the_paper(name: str, row: Row) -> None:
    found = preset(name)
    assert (found.reported.valid_ppl, found.reported.test_ppl) == (row.valid, row.test)
    assert found.paper == "Daniluk et al. 2017"
    assert len(found.sources) == len(row.figures)
    assert all(f"Figure {figure}" in source for figure, source in zip(row.figures, found.sources, strict=True))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("dmo", "'demo'"), ("daniluk2017/kvp", "'daniluk2017/kvp-w"), ("daniluk2017/4gram", "'daniluk2017/4-gram'")],
)
def test_unknown_names_are_answered_with_the_nearest(typed: str, meant: str) -> None:
    with pytest.raises(InputError) as error:
        find_preset(typed)
    assert f"unknown preset {typed}. Did you mean {meant}" in str(error.value)
    assert "`spanlm presets`" in str(error.value)
