"""The tables of Salton et al. (2017): rows of several papers, grouped by what a word's context was.

A model that reads a running text knows more than one that begins anew at each sentence; their perplexities do not
compare. Each group has a control, a plain LSTM under the same protocol, and says how far each row is below it.
"""

from __future__ import annotations

from collections.abc import Sequence

from spanlm.reproduction.grid import NONE, Grid, number, signed
from spanlm.reproduction.papers import find_row
from spanlm.reproduction.summary import RowSummary, Spread
from spanlm.reproduction.tables import Averaged, Cached, Plain, Row

OURS = " †"
_FIRST = ("model", "units", "parameters", "seeds", "valid ppl", "test ppl", "over the plain LSTM")
_COUNT = ("their count: valid", "their count: test")
_PAPER = ("paper: valid", "paper: test", "paper: parameters")
_PREDICTED = ("per predicted word: valid", "per predicted word: test")
_LAST = ("best epoch", "train ppl", "minutes")
_NOTES = (
    "Over the plain LSTM: test perplexity less that of the row named, which is counted alike, on the mean of the seeds "
    "that both have, or less the mean of an ensemble's own members. "
    "† is not in the paper's table."
)


def groups(rows: Sequence[RowSummary], paper: str) -> dict[str, list[RowSummary]]:
    """Part rows by what a word's context was, which is the title; groups without a finished row are left out."""
    done = [row for row in rows if row.records]
    by_sentence = [find_row(paper, row.row).by_sentence for row in done]
    parted = {
        title: [row for row, other in zip(done, by_sentence, strict=True) if other == sentences]
        for sentences, title in (
            (False, "Running text: one stream, state carried throughout"),
            (True, "Sentences: state reset at each line"),
        )
    }
    return {title: found for title, found in parted.items() if found}


def protocol_grids(rows: Sequence[RowSummary], paper: str) -> list[Grid]:
    """A grid for each group, one of the caches and one of the ensembles."""
    found = {row.row: row for row in rows}
    grids = []
    for title, group in groups(rows, paper).items():
        by_sentence = find_row(paper, group[0].row).by_sentence
        header = (*_FIRST, *(_COUNT if by_sentence else ()), *_PAPER, *(_PREDICTED if by_sentence else ()), *_LAST)
        lines = tuple(_line(find_row(paper, row.row), row, found, by_sentence) for row in group)
        unlike = (
            "Not to be compared with the rows of running text. Their count: the first word of each sentence is not "
            "predicted, but counted, as in the paper's code; its numbers stand beside, and after them the same words "
            "per predicted one. A cache goes on over the lines. "
        )
        grids.append(Grid(header, lines, f"{title}. {unlike if by_sentence else ''}{_NOTES}"))
    return grids + _caches(rows, paper) + _ensembles(rows, paper)


def titled(row: Row) -> str:
    """Return a row's title, marked if the paper does not have it."""
    return row.title + ("" if row.in_paper else OURS)


def _line(row: Row, summary: RowSummary, found: dict[str, RowSummary], by_sentence: bool) -> tuple[str, ...]:
    plain, first, published = isinstance(row.how, Plain), summary.records[0], row.reported
    millions = published.all_parameters
    return (
        titled(row),
        f"{first['units']:,}" if plain else NONE,
        f"{first['all_parameters'] / 1e6:.2f}M",
        f"1–{row.how.members}" if isinstance(row.how, Averaged) else str(len(summary.records)),
        summary.perplexity("valid").show(),
        summary.perplexity("test").show(),
        _over(row, summary, found),
        *(_unpredicted(summary, "perplexity") if by_sentence else ()),
        number(published.valid_ppl),
        number(published.test_ppl),
        NONE if millions is None else f"{millions:g}M",
        *(_unpredicted(summary, "perplexity_per_predicted") if by_sentence else ()),
        "; ".join(f"{r['best_epoch']} of {r['epochs']}" for r in summary.records) if plain else NONE,
        summary.of("train_perplexity_at_best").show() if plain else NONE,
        f"{summary.of('training_seconds').mean / 60:.1f}" if plain else NONE,
    )


def _over(row: Row, summary: RowSummary, found: dict[str, RowSummary]) -> str:
    """`−3.2 (medium)`: what a row adds to the plain LSTM; an ensemble, to the mean of its own members."""
    if isinstance(row.how, Averaged):
        over, name = summary.perplexity("test").mean - _members(summary, "test").mean, "its members"
    else:
        spread = summary.over(found[row.control]) if row.control in found else None
        if spread is None:
            return NONE
        over, name = spread.mean, row.control
    return f"{signed(over)} ({name})"


def _members(summary: RowSummary, split: str) -> Spread:
    (record,) = summary.records
    return Spread.of(record["details"][split]["members"])


def _unpredicted(summary: RowSummary, name: str) -> tuple[str, ...]:
    """A number of the count of Salton et al., valid and test."""
    return tuple(summary.of(split, "salton2017", name).show() for split in ("valid", "test"))


def _caches(rows: Sequence[RowSummary], paper: str) -> list[Grid]:
    header = ("model", "words", "θ", "λ", "valid: without", "valid: with", "test: without", "test: with")
    lines, notes = [], []
    for summary in rows:
        row = find_row(paper, summary.row)
        if isinstance(row.how, Cached):
            notes += [f" {row.title}: {note}" for record in summary.records for note in record["details"]["notes"]]
            chosen = [record["details"]["cache"] for record in summary.records]
            lines.append(
                (
                    titled(row),
                    f"{row.how.window:,}",
                    "; ".join(f"{cache['theta']:g}" for cache in chosen),
                    "; ".join(f"{cache['lambda']:g}" for cache in chosen),
                    *(
                        spread.show()
                        for split in ("valid", "test")
                        for spread in (summary.of(split, "without_cache", "perplexity"), summary.perplexity(split))
                    ),
                )
            )
    caption = f"Caches: θ and λ chosen on valid. Without: the same model in the same pass.{''.join(notes)}"
    return [Grid(header, tuple(lines), caption)] if lines else []


def _ensembles(rows: Sequence[RowSummary], paper: str) -> list[Grid]:
    header = ("ensemble", "members: valid", "members: test", "valid ppl", "test ppl", "oracle bound: test")
    lines = []
    for summary in rows:
        row = find_row(paper, summary.row)
        if isinstance(row.how, Averaged):
            (record,) = summary.records
            members = (_members(summary, split).show() for split in ("valid", "test"))
            bound = record["details"]["test"]["oracle_bound"]
            both = (summary.perplexity(split).show() for split in ("valid", "test"))
            lines.append((titled(row), *members, *both, number(bound)))
    caption = (
        "Ensembles: the mean of the members' probabilities, and the members alone. The oracle bound takes the best "
        "member at each word once it is known: a bound on mixtures, no model"
    )
    return [Grid(header, tuple(lines), caption)] if lines else []
