"""The tables of Li et al. (2020): what each rung adds, as trained and adapting, and what its buffer does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spanlm.analysis.utilisation import spread_epochs
from spanlm.reproduction.grid import NONE, Grid, number, signed
from spanlm.reproduction.li2020 import PARTS, is_whole, published_part
from spanlm.reproduction.papers import find_row
from spanlm.reproduction.summary import RowSummary, Spread
from spanlm.reproduction.tables import Dynamic, Row

TITLES = {False: "Without dynamic evaluation", True: "With dynamic evaluation"}
"""Of the sections of a table."""

_DIGITS = 2
"""After the point of a perplexity: as the paper prints it."""

_SHARED = "on the mean of the seeds that both have"

_USE = ("PoU", "oracle PoU")
_USED = (
    "PoU: at how many of the words of test, in percent, the gate prefers the buffer; oracle PoU: at how many the "
    "buffer is better"
)
_BOUND = "The oracle policy takes the better part at each word once it is known: a bound, no model"

_SETTINGS = ("rate", "decay", "epsilon")
_BY_EPOCH, _EPOCHS = "utilisation_by_epoch", 12

Found = Mapping[str, RowSummary]


def sections(rows: Sequence[RowSummary], paper: str) -> dict[bool, list[RowSummary]]:
    """Part finished rows by whether the model adapts to what it reads: they do not compare."""
    parted = {}
    for adapting in TITLES:
        found = [row for row in rows if row.records and _adapts(find_row(paper, row.row)) == adapting]
        if found:
            parted[adapting] = found
    return parted


def ladder_grids(rows: Sequence[RowSummary], paper: str) -> list[Grid]:
    """Tables 1 and 2: a grid as trained and one adapting, what the parts do alone, and how it all came about."""
    found = {row.row: row for row in rows}
    parted = sections(rows, paper)
    grids = [_rungs(TITLES[adapting], part, found, paper) for adapting, part in parted.items()]
    grids += [grid for adapting, part in parted.items() for grid in _parts(TITLES[adapting], part, paper)]
    return [*grids, *_by_epoch(rows, paper), *_trainings(rows, paper), *_adaptations(rows, paper)]


def ablation_grids(rows: Sequence[RowSummary], paper: str) -> list[Grid]:
    """Table 3, adapting as in the paper, and the same as trained."""
    found = {row.row: row for row in rows}
    header = ("model", "valid ppl", "test ppl", "over the whole", "paper: test", "paper: over", *_USE)
    grids = []
    for adapting, part in reversed(sections(rows, paper).items()):
        lines = [line for summary in part for line in _analysed(summary, found, paper)]
        grids.append(Grid(header, tuple(lines), f"{TITLES[adapting]}. Over the whole: {_SHARED}. {_BOUND}. {_USED}"))
    return [*grids, *_by_epoch(rows, paper), *_trainings(rows, paper), *_adaptations(rows, paper)]


def _adapts(row: Row) -> bool:
    return isinstance(row.how, Dynamic)


def _both(summary: RowSummary) -> tuple[str, str]:
    """Perplexity of valid and test."""
    return summary.perplexity("valid").show(_DIGITS), summary.perplexity("test").show(_DIGITS)


def _rungs(title: str, part: Sequence[RowSummary], found: Found, paper: str) -> Grid:
    header = ("model", "parameters", "seeds", "valid ppl", "test ppl", "over")
    lines = []
    for summary in part:
        row = find_row(paper, summary.row)
        over = _over(summary, found, row.control)
        published = (
            _ppl(row.reported.valid_ppl),
            _ppl(row.reported.test_ppl),
            _published_over(row, paper),
        )
        size = f"{summary.records[0]['all_parameters'] / 1e6:.2f}M"
        lines.append(
            (
                row.title,
                size,
                str(len(summary.records)),
                *_both(summary),
                NONE if over is None else f"{_by(over)} ({row.control})",
                *published,
                *_use(summary),
            )
        )
    said = f"{title}. Over: test perplexity less that of the row named, the rung below, {_SHARED}. {_USED}"
    return Grid((*header, "paper: valid", "paper: test", "paper: over", *_USE), tuple(lines), said)


def _ppl(value: float | None) -> str:
    return number(value, _DIGITS)


def _by(difference: float) -> str:
    return signed(difference, _DIGITS)


def _over(summary: RowSummary, found: Found, control: str) -> float | None:
    """How much a row's test perplexity is above that of its control, at the seeds that both have."""
    over = summary.over(found[control]) if control in found else None
    return None if over is None else over.mean


def _published_over(row: Row, paper: str) -> str:
    """The same of the paper's numbers."""
    ours = row.reported.test_ppl
    theirs = find_row(paper, row.control).reported.test_ppl if row.control else None
    return NONE if ours is None or theirs is None else _by(ours - theirs)


def _use(summary: RowSummary) -> tuple[str, str]:
    """PoU and oracle PoU, in percent; dashes without a buffer."""
    if not _in_parts(summary):
        return NONE, NONE
    learned, best = (_part(summary, "test", name) for name in ("utilisation", "oracle_utilisation"))
    return _percent(learned), _percent(best)


def _in_parts(summary: RowSummary) -> bool:
    """Say whether there is a buffer, and it ever held anything."""
    parts = [record["test"]["parts"] for record in summary.records]
    return all(found is not None and found["utilisation"] is not None for found in parts)


def _part(summary: RowSummary, split: str, name: str) -> Spread:
    return summary.of(split, "parts", name)


def _percent(share: Spread) -> str:
    return Spread(100 * share.mean, 100 * share.low, 100 * share.high, share.count).show()


def _parts(title: str, part: Sequence[RowSummary], paper: str) -> list[Grid]:
    """What the encoder and the buffer of a model predict by themselves."""
    header = (
        "model",
        *(f"{split}: {what}" for split in ("valid", "test") for what in ("RNN", "buffer", "oracle", "both")),
    )
    lines = tuple(
        (
            find_row(paper, summary.row).title,
            *(
                cell
                for split in ("valid", "test")
                for cell in (
                    *(_part(summary, split, name).show(_DIGITS) for name in PARTS),
                    summary.perplexity(split).show(_DIGITS),
                )
            ),
        )
        for summary in part
        if _in_parts(summary)
    )
    return [Grid(header, lines, f"{title}: each part of the trained models by itself. {_BOUND}")] if lines else []


def _analysed(summary: RowSummary, found: Found, paper: str) -> list[tuple[str, ...]]:
    """A line of Table 3; the whole model is followed by its parts."""
    row = find_row(paper, summary.row)
    whole, over = is_whole(row), _over(summary, found, row.control)
    compared = (NONE, NONE) if whole or over is None else (_by(over), _published_over(row, paper))
    line = (row.title, *_both(summary), compared[0], _ppl(row.reported.test_ppl), compared[1], *_use(summary))
    return [line, *(_alone(name, row, summary) for name in PARTS if whole and _in_parts(summary))]


def _alone(name: str, row: Row, summary: RowSummary) -> tuple[str, ...]:
    """A part of the whole model by itself."""
    theirs, whole = published_part(row, name), row.reported.test_ppl
    over = _part(summary, "test", name).mean - summary.perplexity("test").mean
    both = (_part(summary, split, name).show(_DIGITS) for split in ("valid", "test"))
    paper_over = NONE if theirs is None or whole is None else _by(theirs - whole)
    return (PARTS[name], *both, _by(over), _ppl(theirs), paper_over, NONE, NONE)


def _by_epoch(rows: Sequence[RowSummary], paper: str) -> list[Grid]:
    """Figure 4: a line a model, of its first seed; at most so many of the epochs, the first and the last among them."""
    runs = {row.row: row.records[0][_BY_EPOCH] for row in rows if _BY_EPOCH in row.records[0]}
    if not runs:
        return []
    epochs = max(map(len, runs.values()))
    shown = spread_epochs(epochs, _EPOCHS)
    lines = tuple(
        (find_row(paper, row).title, *(f"{100 * run[epoch]:.1f}" if epoch < len(run) else NONE for epoch in shown))
        for row, run in runs.items()
    )
    caption = (
        "PoU on valid after each epoch, in percent, first seed (Figure 4). The paper's falls from about 50 to nearly 0 "
        "and then rises to about 10, with an oracle PoU of 7"
    )
    return [Grid(("epoch", *(str(epoch + 1) for epoch in shown)), lines, caption)]


def _trainings(rows: Sequence[RowSummary], paper: str) -> list[Grid]:
    header = ("model", "units", "parameters", "best epoch", "train ppl", "tokens/s", "minutes")
    lines = []
    for summary in rows:
        row = find_row(paper, summary.row)
        if not _adapts(row):
            first = summary.records[0]
            lines.append(
                (
                    row.title,
                    f"{first['units']:,}",
                    f"{first['all_parameters'] / 1e6:.2f}M",
                    "; ".join(f"{record['best_epoch']} of {record['epochs']}" for record in summary.records),
                    summary.of("train_perplexity_at_best").show(),
                    f"{summary.of('tokens_per_second').mean:,.0f}",
                    f"{summary.of('training_seconds').mean / 60:.1f}",
                )
            )
    return [Grid(header, tuple(lines), "Trainings, finetuning included")] if lines else []


def _gathered(details: Mapping[str, Any]) -> str:
    """Of how many words of the training text the gradients were gathered."""
    statistics = details["statistics"]
    return "all of train" if statistics["whole"] else f"{statistics['tokens']:,}"


def _read_whole(point: Mapping[str, Any]) -> bool:
    """Whether a pair read all of valid; a perplexity beyond all numbers is null, too, and older records do not say."""
    return bool(point.get("whole", point["perplexity"] is not None))


def _adaptations(rows: Sequence[RowSummary], paper: str) -> list[Grid]:
    header = ("model", "η", "λ", "ε", "pairs tried", "on all of valid", "MS over words", "minutes")
    lines, notes = [], []
    for summary in rows:
        row = find_row(paper, summary.row)
        if _adapts(row):
            details = [record["details"] for record in summary.records]
            notes += [f" {row.title}: {note}" for found in details for note in found["notes"]]
            chosen = ("; ".join(f"{found['dynamic'][name]:.2g}" for found in details) for name in _SETTINGS)
            minutes = f"{summary.of('seconds').mean / 60:.1f}"
            points = details[0].get("grid")  # which older records do not have
            whole = "–" if points is None else str(sum(map(_read_whole, points)))
            lines.append((row.title, *chosen, str(details[0]["tried"]), whole, _gathered(details[0]), minutes))
    caption = f"Dynamic evaluation: η and λ chosen on valid; MS: the mean squares of gradients.{''.join(notes)}"
    return [Grid(header, tuple(lines), caption)] if lines else []
