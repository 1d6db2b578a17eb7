"""What `spanlm attend` prints of sentences, and how flat attention is."""

from __future__ import annotations

from collections.abc import Sequence

from spanlm.analysis.flatness import Flatness, FlatnessRow
from spanlm.analysis.lags import signed
from spanlm.analysis.sentence_map import SentenceMap, common_scale, mean_flatness
from spanlm.analysis.triangle_text import key_line, triangle_lines
from spanlm.cli.terminal import out

_EXPLAINED = "entropy of a row over that of equal weights: 1 is flat, 0 all on one word"
_LEAST_SHOWN = 0.0005


def print_maps(sentences: Sequence[Sequence[SentenceMap]]) -> None:
    """Print every sentence as every model saw it."""
    for maps in sentences:
        top, _ = common_scale(maps)
        for one in maps:
            out(f"{one.name}: {one.memory}")
            for line in triangle_lines(one, top):
                out(f"  {line}")
            key = key_line(one, top)
            out(f"  ({key or 'percent'}; a row: the next word; a column: the word at its head, on the diagonal)")
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


def print_flatness(text: str, measured: dict[str, Flatness]) -> None:
    """Print a table for each model: how flat its rows are, by how many words there were to choose from."""
    out(f"flatness of attention, {text} ({_EXPLAINED})")
    for name, flatness in measured.items():
        nearest = signed(flatness.nearest_lag)
        elsewhere = flatness.overall.on_no_word >= _LEAST_SHOWN
        out(name)
        head = f"  {'words':>6} {'rows':>10} {'flatness':>9} {'largest':>8} {'at ' + nearest:>8} {'equal':>8}"
        out(head + " on no word" * elsewhere)
        for row in (*flatness.groups, flatness.overall):
            out(_flatness_line(row, elsewhere))
        out(f"  {flatness.left_out:,} rows without a choice are left out")
    out("largest, at ...: mean share of the largest weight and of the nearest word; equal: of each if all were equal")


def _flatness_line(row: FlatnessRow, elsewhere: bool) -> str:
    shares = [f"{100 * share:6.1f} %" for share in (row.largest, row.nearest, row.equal)]
    line = f"  {row.slots:>6} {row.rows:>10,} {row.flatness:>9.3f} {' '.join(shares)}"
    return line + f"   {100 * row.on_no_word:6.1f} %" * elsewhere
