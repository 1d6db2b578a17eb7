"""`spanlm context RUN`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from spanlm.analysis import context
from spanlm.analysis.compare import training_counts
from spanlm.analysis.export import write_whole
from spanlm.analysis.figures import FIGURES, Point, Series, context_figure, figure_bytes
from spanlm.cli.evaluation_report import Rows, gate_rows, model_rows, run_field
from spanlm.cli.options import check_output, corpus_of, load_runs, own_texts
from spanlm.cli.parser import field_values
from spanlm.cli.render import Progress, grid, out, out_json, paragraph, table
from spanlm.scoring.options import ContextOptions
from spanlm.scoring.resampling import FEWEST_BLOCKS
from spanlm.store.plain import table_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = (context.SHUFFLED, context.DROPPED, context.REPLACED, context.NO_MEMORY, context.NO_ENCODER)


def run(options: argparse.Namespace) -> None:
    suffix = check_output(options.out, own_texts(options), suffixes=(".csv", *FIGURES))
    settings = field_values(options, ContextOptions)
    model = load_runs([options.run, *options.more], options)
    network = model.predictor("context")
    corpus, split = corpus_of(model, options)
    protocol = model.texts.protocol(corpus, split, options.state, precision=options.precision)
    counts = training_counts(model, corpus)
    with Progress(shown=not options.json) as report:
        use = context.measure_context(network, corpus, split, protocol, settings, counts=counts, report=report)
    if options.out is not None:
        write_whole(options.out, _csv(use) if suffix == ".csv" else figure_bytes(_figure(use), suffix))
    if options.json:
        out_json({**run_field(model), "notes": corpus.notes, **use.to_json(), "gain": use.gain})
        return
    paragraph(*corpus.notes)
    _print(use, [*model_rows(model), *gate_rows(model)])
    if options.out is not None:
        out(f"wrote {options.out}")


def _csv(use: context.ContextUse) -> bytes:
    rows = (
        (change, point.words, point.positions, point.bits, point.excess, *point.interval)
        for change, curve in use.curves.items()
        for point in curve
    )
    return table_bytes(("change", "words", "positions", "bits", "excess", "low", "high"), rows)


def _print(use: context.ContextUse, model: Rows) -> None:
    truncated = use.curves[context.TRUNCATED]
    table(
        [
            *model,
            ("text", use.text),
            ("protocol", use.protocol),
            ("intervals", f"95 %, drawn from {use.blocks}"),
            ("whole context", f"{use.bits:.3f} bits a token"),
            ("gain", f"{_bits(use.gain)} bits a token, over no word of context"),
            ("effective", _effective(use)),
        ]
    )
    out()
    columns: dict[str, Callable[[context.ContextPoint], str]] = {
        "words": lambda point: f"{point.words}",
        "targets": lambda point: f"{point.positions:,}",
        "whole": lambda point: f"{point.bits - point.excess:.3f}",
        "alone": lambda point: f"{point.bits:.3f}",
        "more": lambda point: _bits(point.excess),
        "95 %": lambda point: " to ".join(map(_bits, point.interval)) if point.sure else "–",
        "gain left": lambda point: _left(use, point),
    }
    rows = [[cell(point) for cell in columns.values()] for point in truncated]
    grid([*columns], rows, "bits a token, with the whole context and with the last n words alone")
    if not all(point.sure for points in use.curves.values() for point in points):
        paragraph(f"– in fewer than {FEWEST_BLOCKS} of the blocks that intervals are drawn from")
    if not (names := [name for name in _COLUMNS if name in use.curves]):
        return
    cells = {(name, point.words): _around(point) for name in names for point in use.curves[name]}
    out()
    rows = [[f"{n}", *(cells.get((name, n), "") for name in names)] for n in sorted({n for _, n in cells})]
    grid(["words", *names], rows, "bits a token more, ± half of the 95 % interval, where beyond the last n words")
    far = f"the {use.far} words before these are shuffled, half of them dropped, or each replaced by one as frequent"
    parts = "the memory, or the encoder, has read nothing but the last n words"
    paragraph("; ".join([far] * (context.SHUFFLED in names) + [parts] * (context.NO_MEMORY in names)))


def _effective(use: context.ContextUse) -> str:
    length, low, high = _lengths(use)
    first, *_, last = use.curves[context.TRUNCATED]
    if not first.sure:
        return f"not known: no length has targets in {FEWEST_BLOCKS} of these blocks"
    if math.isnan(use.effective):
        worse = "better" if first.interval[1] < 0 else "as well, but for chance"
        return f"none: with no word of context it predicts {worse}"
    if math.isinf(use.effective):
        return f"{length} words back, the most that were tried: {_left(use, last)} of the gain is left there"
    return f"{length} words back (95 %: {low} to {high}); further ones are worth at most 1 % of the gain"


def _around(point: context.ContextPoint) -> str:
    low, high = point.interval
    return f"{_bits(point.excess)} {f'±{(high - low) / 2:.3f}' if point.sure else '  –'}"


def _bits(value: float) -> str:
    return f"{value:z.3f}".replace("-", "−")


def _left(use: context.ContextUse, point: context.ContextPoint) -> str:
    return f"{100 * point.excess / use.gain:z.1f} %".replace("-", "−") if use.gain > 0 else ""


def _lengths(use: context.ContextUse) -> list[str]:
    """Return the effective length and its interval as text; `over N` if beyond the longest measured context N."""
    longest = use.curves[context.TRUNCATED][-1].words
    values = (use.effective, *use.effective_interval)
    return [f"over {longest}" if math.isinf(value) else f"{value:.0f}" for value in values]


def _figure(use: context.ContextUse) -> Figure:
    curves = []
    for name, points in use.curves.items():
        sides = [(point, point.interval if point.sure else (point.excess,) * 2) for point in points if point.words]
        curves.append(Series(name, tuple(Point(point.words, point.excess, *interval) for point, interval in sides)))
    length, low, high = _lengths(use)
    marks = []
    if math.isfinite(use.effective) and use.effective >= 1:
        marks.append((f"1 % of the gain left: {length} ({low} to {high})", use.effective))
    caption = f"{use.text}. Bands: 95 % intervals, drawn from {use.blocks}."
    if any(name in use.curves for name in (context.SHUFFLED, context.DROPPED, context.REPLACED)):
        caption += f" Shuffled, half dropped, replaced: the {use.far} words before."
    labels = "words as they were", "bits a token more than with the whole context"
    return context_figure("What words further back are worth", labels, curves, caption, marks=marks)
