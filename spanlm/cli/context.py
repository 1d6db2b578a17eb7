"""`spanlm context RUN`."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from spanlm.analysis import context
from spanlm.analysis.compare import training_counts
from spanlm.analysis.export import checked_suffix, write_whole
from spanlm.analysis.figures import FIGURES, Point, Series, context_figure, figure_bytes
from spanlm.cli.evaluation_report import Rows, model_rows, run_field
from spanlm.cli.options import Parser, add_fields, check_output, corpus_of, field_values, load_runs, own_texts
from spanlm.cli.render import grid, out, out_json, paragraph, progress, table
from spanlm.scoring.protocol import Protocol
from spanlm.scoring.resampling import FEWEST_BLOCKS
from spanlm.store.plain import table_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DESCRIPTION = """
How much context does a model use, and what of it? Words before a target are taken away, shuffled, thinned out or
replaced beyond the last n, for several n, and the loss is compared with that with the whole context (Khandelwal et al.,
2018). The effective context length is the n beyond which no more than 1 % of the gain over no context is left, lengths
aside at which more may be left by chance.

  spanlm context runs/demo --split valid
  spanlm context runs/kvp --lengths 1 2 5 10 20 --far 50 --out context.svg

Of a model with a memory, encoder and memory are emptied apart, too: what is left when only one of them has read more
than the last n words?
"""
_COLUMNS = (context.SHUFFLED, context.DROPPED, context.REPLACED, context.NO_MEMORY, context.NO_ENCODER)


def run(arguments: list[str]) -> None:
    options = _parsed(arguments)
    if options.out is not None:
        check_output(options.out, own_texts(options))
        checked_suffix(options.out, (".csv", *FIGURES))
    asked = field_values(options, context.ContextOptions)
    model = load_runs([options.run, *options.more], options)
    network = model.predictor("context")
    corpus, split = corpus_of(model, options)
    protocol = model.texts.protocol(corpus, split, options.state, precision=options.precision)
    with progress(shown=not options.json) as report:
        found = context.measure_context(
            network, corpus, split, protocol, asked, counts=training_counts(model, corpus), report=report
        )
    if options.out is not None:
        suffix = options.out.suffix.lower()
        write_whole(options.out, _csv(found) if suffix == ".csv" else figure_bytes(_figure(found), suffix))
    if options.json:
        out_json({**run_field(model), "notes": corpus.notes, **found.to_json(), "gain": found.gain})
        return
    paragraph(*corpus.notes)
    _print(found, model_rows(model))
    if options.out is not None:
        out(f"wrote {options.out}")


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("context", _DESCRIPTION)
    parser.add_runs(hf=False)
    parser.add_corpus()
    text = "a word's whole context: the split before it, its document, its line (default: as the model was trained)"
    parser.add_argument("--state", choices=("auto", "carry", "document", "line"), default="auto", help=text)
    shown = {"rare": ""}
    lengths = {**shown, "metavar": "N", "help": "the numbers n of words that stay as they are (default 1 to 200)"}
    add_fields(parser, context.ContextOptions, positions=shown, lengths=lengths, far=shown, seed={"rare": True})
    add_fields(parser, Protocol, "precision", rare="more options")
    parser.add_gate()
    parser.add_argument("--out", type=Path, metavar="FILE", help="a figure (.svg, .png, .pdf) or a table (.csv)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_intermixed_args(arguments)


def _csv(found: context.ContextUse) -> bytes:
    points = [(change, point) for change, curve in found.curves.items() for point in curve]
    rows = ((change, at.words, at.positions, at.bits, at.excess, *at.interval) for change, at in points)
    return table_bytes(("change", "words", "positions", "bits", "excess", "low", "high"), rows)


def _print(found: context.ContextUse, model: Rows) -> None:
    length, low, high = _lengths(found)
    used = f"{length} words back (95 %: {low} to {high}); further ones are worth at most 1 % of the gain"
    if math.isinf(found.effective):
        left = _left(found, found.curves[context.TRUNCATED][-1])
        used = f"{length} words back, the most that were tried: {left} of the gain is left there"
    least, most = found.curves[context.TRUNCATED][0].interval
    if math.isnan(least):
        used = f"not known: no length has targets in {FEWEST_BLOCKS} of these blocks"
    elif math.isnan(found.effective):
        used = f"none: with no word of context it predicts {'better' if most < 0 else 'as well, but for chance'}"
    table(
        [
            *model,
            ("text", found.text),
            ("protocol", found.protocol),
            ("intervals", f"95 %, drawn from {found.blocks}"),
            ("whole context", f"{found.bits:.3f} bits a token"),
            ("gain", f"{_bits(found.gain)} bits a token, over no word of context"),
            ("effective", used),
        ]
    )
    out()
    rows = []
    for point in found.curves[context.TRUNCATED]:
        low, high = map(_bits, point.interval)
        interval = "–" if math.isnan(point.interval[0]) else f"{low} to {high}"
        bits = [f"{point.bits - point.excess:.3f}", f"{point.bits:.3f}", _bits(point.excess)]
        rows.append([f"{point.words}", f"{point.positions:,}", *bits, interval, _left(found, point)])
    header = ["words", "targets", "whole", "alone", "more", "95 %", "gain left"]
    grid(header, rows, "bits a token, with the whole context and with the last n words alone")
    if any(math.isnan(point.interval[0]) for points in found.curves.values() for point in points):
        paragraph(f"– in fewer than {FEWEST_BLOCKS} of the blocks that intervals are drawn from")
    _print_changes(found)


def _print_changes(found: context.ContextUse) -> None:
    names = [name for name in _COLUMNS if name in found.curves]
    if not names:
        return
    cells = {name: {point.words: _around(point) for point in found.curves[name]} for name in names}
    words = sorted({n for each in cells.values() for n in each})
    out()
    rows = [[f"{n}", *(cells[name].get(n, "") for name in names)] for n in words]
    grid(["words", *names], rows, "bits a token more, ± half of the 95 % interval, where beyond the last n words")
    far = f"the {found.far} words before these are shuffled, half of them dropped, or each replaced by one as frequent"
    parts = "the memory, or the encoder, has read nothing but the last n words"
    paragraph("; ".join([far] * (context.SHUFFLED in names) + [parts] * (context.NO_MEMORY in names)))


def _around(point: context.ContextPoint) -> str:
    low, high = point.interval
    return f"{_bits(point.excess)} {'  –' if math.isnan(low) else f'±{(high - low) / 2:.3f}'}"


def _bits(value: float) -> str:
    return f"{value:z.3f}".replace("-", "−")


def _left(found: context.ContextUse, point: context.ContextPoint) -> str:
    share = 100 * point.excess / found.gain
    return f"{share:z.1f} %".replace("-", "−") if found.gain > 0 else ""


def _lengths(found: context.ContextUse) -> list[str]:
    """Write the effective length and its interval; beyond the longest that was tried, so."""
    longest = found.curves[context.TRUNCATED][-1].words
    values = (found.effective, *found.effective_interval)
    return [f"over {longest}" if math.isinf(value) else f"{value:.0f}" for value in values]


def _drawn(point: context.ContextPoint) -> Point:
    low, high = (point.excess,) * 2 if math.isnan(point.interval[0]) else point.interval
    return Point(point.words, point.excess, low, high)


def _figure(found: context.ContextUse) -> Figure:
    curves = [
        Series(name, tuple(_drawn(point) for point in points if point.words)) for name, points in found.curves.items()
    ]
    length, low, high = _lengths(found)
    marks = []
    if math.isfinite(found.effective) and found.effective >= 1:
        marks.append((f"1 % of the gain left: {length} ({low} to {high})", found.effective))
    caption = f"{found.text}. Bands: 95 % intervals, drawn from {found.blocks}."
    if any(name in found.curves for name in (context.SHUFFLED, context.DROPPED, context.REPLACED)):
        caption += f" Shuffled, half dropped, replaced: the {found.far} words before."
    return context_figure("What words further back are worth", curves, marks, caption)
