"""The tables of Li et al. (2020): four models, each without and with a span buffer, each as trained and adapting.

A rung is compared with the one that it grew out of: a model with the buffer with the same one without, and that with
the model below it. Table 3 takes the topmost apart: parts and another temperature are measured on the trained model,
its other rows are trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from spanlm.presets.li2020 import BASES, TOP
from spanlm.presets.preset import PENN_TREEBANK, WIKITEXT_2, Measured, reported_on
from spanlm.reproduction.ladder_scale import SCALES
from spanlm.reproduction.tables import Dynamic, Paper, Row, Table

_BELOW = {"mos": "awd", "mos-ps": "mos", "mos-ps-at": "mos-ps"}


PARTS = {
    "encoder": "using only sequential RNN",
    "buffer": "using only sequential neural buffer",
    "oracle": "oracle policy",
}
"""Table 3: what is read off the trained model."""

_PUBLISHED_PARTS = {
    "ptb": {"encoder": 46.85, "buffer": 52.54, "oracle": 38.72},
    "wt2": {"encoder": 39.11, "buffer": 45.57, "oracle": 32.35},
}
_PUBLISHED_UNANNEALED_TEST = {"ptb": 44.12, "wt2": 37.45}


def published_part(row: Row, part: str) -> float | None:
    """Return what Table 3 prints of a part of a row, the topmost model adapting; None: of another row."""
    for label, numbers in _PUBLISHED_PARTS.items():
        if row.name == dynamic(top(label)):
            return numbers[part]
    return None


def is_whole(row: Row) -> bool:
    """Say whether a row is the model that Table 3 takes apart, as trained or adapting."""
    return any(row.name in (top(label), dynamic(top(label))) for label in _PUBLISHED_PARTS)


def top(label: str) -> str:
    """Return the name of the row that Table 3 takes apart."""
    return f"{TOP}-snb-{label}"


def dynamic(row: str) -> str:
    """Return the name of the row that is a trained row adapting to the text it reads."""
    return f"{row}-dynamic"


def _twice(plain: Row) -> Iterator[Row]:
    """A trained row as it is, and adapting."""
    yield plain
    control = dynamic(plain.control) if plain.control else ""
    yield replace(plain, name=dynamic(plain.name), how=Dynamic(), control=control)


def _rungs(label: str) -> Iterator[Row]:
    """Table 1 or 2."""
    for name, base in BASES.items():
        plain, below = f"{name}-{label}", _BELOW.get(name)
        control = f"{below}-{label}" if below else ""
        yield from _twice(Row(name=plain, title=base.title, preset=f"{base.name}-{label}", control=control))
        buffered = f"{name}-snb-{label}"
        yield from _twice(Row(name=buffered, title=f"{base.title} + SNB", preset=f"li2020/{buffered}", control=plain))


def _ablations(label: str, on: Measured) -> Iterator[Row]:
    """Table 3, without the topmost model itself."""

    def trained(name: str, title: str) -> Iterator[Row]:
        row = f"{name}-{label}"
        return _twice(Row(name=row, title=title, preset=f"li2020/{row}", control=top(label)))

    yield from trained("unannealed", "w/o annealing in training")
    yield Row(
        name=dynamic(f"unannealed-test-{label}"),
        title="w/o annealing in test",
        preset=f"li2020/{top(label)}",
        how=Dynamic(gate_temperature=1.0),
        published=reported_on(on, test_ppl=_PUBLISHED_UNANNEALED_TEST[label]),
        control=dynamic(top(label)),
    )
    yield from trained("unrewarded", "w/o reward")
    yield from trained("words", "w/o RNNs-minus feature")


_LADDERS = {label: {row.name: row for row in _rungs(label)} for label in ("ptb", "wt2")}
_ANALYSES = {
    label: {row.name: row for row in _ablations(label, on)}
    for label, on in (("ptb", PENN_TREEBANK), ("wt2", WIKITEXT_2))
}

_CONTRADICTIONS = (
    "rows without SNB are quoted from other papers, and have as many parameters as those with it, though the buffer "
    "adds 0.3M to 0.8M. The text's differences for AWD-LSTM + SNB, 5.53/5.68 and 4.37/3.71, fit no table: 5.53/5.68 "
    "are those of valid on WikiText-2 without/with dynamic evaluation, where test has 5.37/5.71; Penn Treebank has "
    "3.18/3.37 and 2.38/3.56. Nor does every row gain the 2 points that it says: MoS on Penn Treebank 1.82 (test), "
    "MoS + PS on WikiText-2 0.77 (valid, with dynamic evaluation)"
)
_MISPRINTED = ". Its rows with dynamic evaluation have the parameters of Table 1"
_PARTS = (
    "the paper's parts, oracle and temperatures are those of the trained model while it adapts; here it adapts as a "
    "whole, and each part is read off"
)


def _ladder(name: str, label: str, on: Measured, remark: str) -> Table:
    return Table(
        name=name,
        kind="table",
        title=f"Table {name}: perplexity on {on.title}",
        rows=tuple(_LADDERS[label]),
        layout="ladder",
        home=on.corpus,
        published_on=f"{on.title} with {on.vocabulary_size:,} words",
        remark=remark,
    )


def _analysis(name: str, label: str, on: Measured) -> Table:
    full = top(label)
    return Table(
        name=name,
        kind="table",
        title=f"Table {name}: what is in it, on {on.title}",
        rows=(full, dynamic(full), *_ANALYSES[label]),
        layout="ablations",
        home=on.corpus,
        published_on=f"{on.title} with {on.vocabulary_size:,} words",
        remark=_PARTS,
    )


LI2020 = (
    _ladder("1", "ptb", PENN_TREEBANK, _CONTRADICTIONS),
    _ladder("2", "wt2", WIKITEXT_2, f"{_CONTRADICTIONS}{_MISPRINTED}"),
    _analysis("3", "ptb", PENN_TREEBANK),
    _analysis("3-wt2", "wt2", WIKITEXT_2),
)

LI = Paper(
    name="li2020",
    title="Li et al. 2020",
    rows={name: row for rows in (*_LADDERS.values(), *_ANALYSES.values()) for name, row in rows.items()},
    tables=LI2020,
    scales=SCALES,
)
