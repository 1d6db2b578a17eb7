"""What `spanlm attend` prints: attention by lag, in sentences, and how flat it is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from spanlm.analysis.by_lag import LEAST_SHOWN, lag_groups, signed
from spanlm.analysis.compare import (
    ABOUT,
    MeasuredLags,
    format_lag_table,
    lag_columns,
    notes,
    published_by_lag,
    published_notes,
)
from spanlm.analysis.flatness import Flatness, FlatnessRow
from spanlm.analysis.sentences import SentenceMap, common_scale, mean_flatness, triangle_lines
from spanlm.cli.terminal import out

_EXPLAINED = "entropy of a row over that of equal weights: 1 is flat, 0 all on one word"


def print_lags(measured: MeasuredLags) -> None:
    """Print mean attention by lag of one model, with what the paper printed of it."""
    profile, model = measured.profile, measured.model
    out(f"mean attention by lag, {measured.text}, {profile.positions:,} positions {profile.counted}")
    rows = format_lag_table(profile, model)
    groups = lag_groups(profile.lags)
    labels = [profile.label(group[0], group[-1]) for group in groups]
    width = max(7, *map(len, labels))
    if profile.older is not None:
        out(f"  {'older':<{width}} {profile.older:5.1f} %")
    left = iter(rows)
    for group, label in zip(groups, labels, strict=True):
        inside = list(islice(left, len(group)))
        beside = f"   if all were equal {100 * len(group) / len(rows):5.1f} %" * (len(groups) < len(rows))
        if inside[0].published is not None:
            beside = f"   paper {ABOUT * inside[0].inferred + f'{inside[0].published:.1f}':>5} %"
        out(f"  {label:<{width}} {sum(row.measured for row in inside):5.1f} %{beside}")
    if profile.null_mass >= LEAST_SHOWN:
        out(f"  {'no word':<{width}} {profile.null_mass:5.1f} %")
    if profile.older is not None:
        out(f"  (it looks at all words since the last reset; older: beyond the nearest {profile.window})")
    if profile.about_spans:
        out(f"  ({profile.about_spans[:-1]})")
    published = published_by_lag(model, profile.window)
    if model is not None and published is None:
        out("  (the paper's Figure 3b has windows of 15 only: none stands beside these)")
    for note in published_notes([published] if published else []):
        out(f"  ({note})")


def print_lags_of_several(measured: Sequence[MeasuredLags]) -> None:
    """Print mean attention by lag, a column for each model."""
    out("mean attention by lag, percent")
    rows = list(lag_columns(measured))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *cells in rows:
        right = "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
        out(f"  {first:<{widths[0]}}{right}".rstrip())
    for note in notes(measured):
        out(note)


def print_maps(sentences: Sequence[Sequence[SentenceMap]]) -> None:
    """Print every sentence as every model saw it."""
    for maps in sentences:
        top, _ = common_scale(maps)
        for one in maps:
            out(f"{one.name}: {one.memory}")
            for line in triangle_lines(one, top):
                out(f"  {line}")
            out()


def print_sentence_flatness(sentences: Sequence[Sequence[SentenceMap]]) -> None:
    """Print a number for each sentence and model and, of several sentences, for all of them."""
    names = [one.name for one in sentences[0]]
    label = max(len(name) for name in [*names, "all sentences"])
    out(f"flatness ({_EXPLAINED})")
    out(f"  {'':<{label}}" + "".join(f"  {name:>7}" for name in names))
    rows = [(f"sentence {number}", [one.flatness for one in maps]) for number, maps in enumerate(sentences, start=1)]
    if len(sentences) > 1:
        rows.append(("all sentences", [mean_flatness(maps) for maps in zip(*sentences, strict=True)]))
    for name, found in rows:
        cells = zip(names, ["-" if one is None else f"{one.overall.flatness:.3f}" for one in found], strict=True)
        out(f"  {name:<{label}}" + "".join(f"  {cell:>{max(len(model), 7)}}" for model, cell in cells))


def print_flatness(measured: dict[str, tuple[str, Flatness]]) -> None:
    """Print a table for each model: how flat its rows are, by how many words there were to choose from."""
    out(f"flatness of attention ({_EXPLAINED})")
    for name, (text, flatness) in measured.items():
        slots, nearest = ("words", f"at {signed(flatness.nearest_lag)}") if flatness.span == 1 else ("spans", "newest")
        elsewhere = flatness.overall.on_no_word >= LEAST_SHOWN / 100
        out(f"{name}, {text}")
        head = f"  {slots:>7} {'rows':>10} {'flatness':>9} {'largest':>8} {nearest:>8} {'equal':>8}"
        out(head + " on no word" * elsewhere)
        for row in (*flatness.groups, flatness.overall):
            out(_flatness_line(row, elsewhere))
        out(f"  {flatness.left_out:,} rows without a choice are left out")
    out("largest, at ...: mean share of the largest weight and of the nearest word; equal: of each if all were equal")
    if any(one.span > 1 for _, one in measured.values()):
        out("newest: mean share of the span that ended last")


def _flatness_line(row: FlatnessRow, elsewhere: bool) -> str:
    shares = [f"{100 * share:6.1f} %" for share in (row.largest, row.nearest, row.equal)]
    line = f"  {row.slots:>7} {row.rows:>10,} {row.flatness:>9.3f} {' '.join(shares)}"
    return line + f"   {100 * row.on_no_word:6.1f} %" * elsewhere
