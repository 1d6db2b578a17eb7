"""`spanlm reading RUN… TABLE`."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spanlm.analysis.export import json_bytes, write_whole
from spanlm.analysis.figures import FIGURES, STYLES, Point, Series, context_figure, figure_bytes
from spanlm.analysis.reading import COLUMNS, SCRIPT, Gain, NestedModels, Times, write_r
from spanlm.analysis.reading_surprisal import Surprisal, context_of, surprisals
from spanlm.analysis.reading_table import ReadingTable, choose_readings, needs_frequencies, read_times, split_baseline
from spanlm.cli.family import named_families
from spanlm.cli.options import check_output, note_unfinished
from spanlm.cli.parser import field_values
from spanlm.cli.predictors import lacking
from spanlm.cli.render import grid, note, out, out_json, paragraph, table
from spanlm.data.tables import RowNotes
from spanlm.errors import InputError
from spanlm.runs.loading import load
from spanlm.runs.model import require_weights
from spanlm.scoring.options import ReadingOptions
from spanlm.scoring.predictors import Frequencies
from spanlm.scoring.resampling import (
    FEWEST_BLOCKS,
    Array,
    Counts,
    Interval,
    drawn_apart,
    drawn_p,
    drawn_shifts,
    interval_of,
    of_chance,
)
from spanlm.scoring.tally import shown
from spanlm.store.plain import finite, several, table_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = ("name", "attention", "window", "bits", "word_perplexity", "unknown", "delta", "low", "high")


FEW = f"none: of fewer than {FEWEST_BLOCKS} items they would say nothing"


@dataclass(frozen=True, eq=False)
class _Side:
    """A run or a family, with a lesion of its memory, or with the last `window` tokens of the context alone."""

    name: str
    runs: tuple[Path, ...]
    attention: str | None
    window: int | None
    read: tuple[Surprisal, ...]  # by each run

    @property
    def title(self) -> str:
        lesion = "" if self.attention is None else f", attention {self.attention}"
        return f"{self.name}{lesion}{'' if self.window is None else f', last {self.window}'}"


def run(options: argparse.Namespace) -> None:
    settings = field_values(options, ReadingOptions)
    suffix = check_output(options.out, [options.table], suffixes=(".csv", ".json", *FIGURES))
    check_output(options.r, option="--r", folder=True)
    _refuse_names(settings, [*(COLUMNS if options.r else ()), *(_COLUMNS if suffix == ".csv" else ())])
    bad, odd = RowNotes(strict=options.strict), RowNotes("to be checked", options.strict)
    joined = RowNotes("of punctuation, read with the word beside it and left out", strict=None)
    words, settings = read_times(options.table, settings, options.layout, bad, odd, joined)
    frequencies = _frequencies(options, settings, bad)
    study = _Study(words, settings, words.predictors(settings, frequencies), list(_sides(options, words)))
    source = None if frequencies is None else frequencies.source
    report = {"table": str(options.table), **asdict(settings), "frequencies": source, **study.measure()}
    if suffix == ".csv":
        write_whole(options.out, _csv(report["runs"]))
    elif suffix:
        content = json_bytes(finite(report)) if suffix == ".json" else figure_bytes(_figure(report), suffix)
        write_whole(options.out, content)
    if options.r is not None:
        study.write_r(options.r)
    note(*bad.lines(), *odd.lines(), *joined.lines())
    if frequencies is not None and (unseen := sum(word.text not in frequencies for word in words.words)):
        note(lacking(frequencies.source, unseen))
    if options.json:
        out_json(report)
        return
    _print(report)
    for path in filter(None, (options.out, options.r and options.r / SCRIPT)):
        out(f"wrote {path}")


def _refuse_names(settings: ReadingOptions, taken: Sequence[str]) -> None:
    """Refuse columns of the table as predictors whose names other columns have in what is written."""
    for name in split_baseline(settings)[1]:
        if name in taken or re.fullmatch(r"surprisal(_prev\d+)?", name):
            why, way = "is the name of another column in what is written", "Rename it in the table"
            raise InputError("baseline", name, why, way)


def _frequencies(options: argparse.Namespace, settings: ReadingOptions, bad: RowNotes) -> Frequencies | None:
    """Return the frequencies of --frequencies, or of the first run's training text; None: no predictor needs them."""
    if not needs_frequencies(settings):
        if options.frequencies is not None:
            limit = f"is for frequency or unigram in the baseline, which is {settings.baseline}"
            raise InputError("frequencies", options.frequencies, limit, "Leave it out")
        return None
    if options.frequencies is not None:
        return Frequencies.of_file(options.frequencies, bad)
    texts = load(next(iter(named_families(options.runs).values()))[0], "cpu").texts
    try:
        return texts.frequencies()
    except InputError as error:
        way = "Name a file of frequencies by --frequencies, or another --baseline"
        raise InputError("baseline", settings.baseline, f"needs frequencies: {error}", way) from None


def _sides(options: argparse.Namespace, words: ReadingTable) -> Iterator[_Side]:
    """Read the texts with each run at each window, and with each lesion of its memory."""
    for name, folders in named_families(options.runs).items():
        read: dict[tuple[str | None, int | None], list[Surprisal]] = {}
        for folder in folders:
            model = load(folder, options.device)
            note_unfinished(folder)
            context = options.state or context_of(model)
            model.texts.refuse_context(context)
            for window in options.windows or [None]:
                read.setdefault((None, window), []).append(surprisals(model, words, context, window))
            for lesion in options.attention:
                changed = require_weights(model, "--attention").with_attention(lesion)
                read.setdefault((lesion, None), []).append(surprisals(changed, words, context))
        for (lesion, window), members in read.items():
            yield _Side(name, tuple(folders), lesion, window, tuple(members))


class _Study:
    """The readings that are left, and the models of their times."""

    def __init__(
        self, words: ReadingTable, settings: ReadingOptions, predictors: Mapping[str, Array], sides: Sequence[_Side]
    ) -> None:
        self.words, self.settings, self.sides = words, settings, sides
        self.read = [surprisal for side in sides for surprisal in side.read]
        spilled = [words.spilled(surprisal.bits, settings.spillover) for surprisal in self.read]
        outside = np.stack([surprisal.unknown for surprisal in self.read]).any(axis=0)
        unknown = (words.spilled(np.asarray(outside, np.float64), settings.spillover) == 1).any(axis=1)
        complete = np.isfinite(np.column_stack([*predictors.values(), *spilled])).all(axis=1)
        self.readings, self.left_out = choose_readings(words, settings, np.asarray(unknown), np.asarray(complete))
        self.places: Counts = words.places[self.readings]  # the word of each time
        times, by = words.times[self.readings], None
        if settings.subjects == "mean":
            self.places, inverse = np.unique(self.places, return_inverse=True)
            times = np.bincount(inverse, times) / np.bincount(inverse)
        else:
            by = np.unique(words.readers[self.readings], return_inverse=True)[1]
        items = np.unique([words.words[n].item for n in self.places], return_inverse=True)[1]
        self.baseline = {name: column[self.places] for name, column in predictors.items()}
        self.surprisals = [values[self.places] for values in spilled]
        columns = np.column_stack([*self.baseline.values(), np.empty((len(self.places), 0))])
        self.models = NestedModels(Times(times, items, by), columns, [*self.baseline], settings.folds, settings.seed)

    def measure(self) -> dict[str, Any]:
        """Return what is printed and written."""
        names = [f"surprisal{f'_prev{lag}' * (lag > 0)}" for lag in range(self.settings.spillover + 1)]
        generator, surprisals = np.random.default_rng(self.settings.seed), iter(self.surprisals)
        predicted = np.stack([np.isfinite(surprisal.bits) for surprisal in self.read]).all(axis=0)
        runs, draws, by_run = list[dict[str, Any]](), list[Array](), list[Array]()
        for side in self.sides:
            try:
                gains = [self.models.gain(next(surprisals), names) for _ in side.read]
            except InputError as error:
                raise error.within(side.title) from None
            deltas = np.array([gain.delta for gain in gains])
            draws.append(np.mean([gain.draws for gain in gains], axis=0))
            by_run.append(deltas[:, None])
            bits = float(np.mean([surprisal.bits[predicted].mean() for surprisal in side.read]))
            runs.append(
                {
                    **{"name": side.title, "runs": [str(path) for path in side.runs]},
                    **{"attention": side.attention, "window": side.window},
                    **{"bits": bits, "word_perplexity": 2**bits, "unknown": int(side.read[0].unknown.sum())},
                    **{"delta": float(deltas.mean()), "delta_by_run": deltas.tolist()},
                    **{"interval": self._interval(draws[-1] + drawn_shifts(by_run[-1], generator)[:, 0])},
                    **{"coefficients": _coefficients(gains)},
                }
            )
        differences = []
        for number, other in enumerate(runs[1:], 1):
            difference, paired = other["delta"] - runs[0]["delta"], other["runs"] == runs[0]["runs"]
            drawn = draws[number] - draws[0]
            drawn = drawn + drawn_apart(by_run[number], by_run[0], generator, paired=paired)[:, 0]
            interval, p = self._interval(drawn), math.nan if self.few else drawn_p(drawn, difference)
            differences.append({"name": other["name"], "difference": difference, "interval": interval, "p": p})
        return {
            "readings": len(self.words.places),
            "left_out": self.left_out,
            "left": len(self.readings),
            "times": len(self.places),
            "unit": f"nats a {'word' if self.settings.subjects == 'mean' else 'reading'}",
            "items": len(self.models.folds),
            "readers": len({*self.words.readers[self.readings].tolist()}) if self.settings.subject else None,
            "words": len(self.words.words),
            "predictors": [*self.baseline],
            "baseline_gain": self.models.baseline_gain,
            "runs": runs,
            "differences": differences,
        }

    @property
    def few(self) -> bool:
        """Whether there are too few items to draw from."""
        return len(self.models.folds) < FEWEST_BLOCKS

    def _interval(self, drawn: Array) -> Interval:
        return (math.nan, math.nan) if self.few else interval_of(drawn[:, None])[0]

    def write_r(self, folder: Path) -> None:
        items = [self.words.items[self.words.words[n].item] for n in self.places]
        random = self.settings.subjects == "random"
        subjects = [self.words.subjects[n] for n in self.words.readers[self.readings]] if random else []
        names = [f"{side.title}{f', {run.name}' * (len(side.runs) > 1)}" for side in self.sides for run in side.runs]
        write_r(folder, self.models, items, subjects, self.baseline, dict(zip(names, self.surprisals, strict=True)))


def _coefficients(gains: Sequence[Gain]) -> list[dict[str, Any]]:
    """Return the coefficients; of m seeds their means, with an error of the fit and of the draw of m seeds."""
    coefficients = []
    for row in zip(*(gain.coefficients for gain in gains), strict=True):
        values, errors = np.array([x.value for x in row]), np.array([x.error for x in row])
        among = float(values.var(ddof=1)) / len(row) if len(row) > 1 else 0.0
        error = math.sqrt(float(errors.mean()) ** 2 + among)
        coefficients.append({"name": row[0].name, "value": float(values.mean()), "error": error})
    return coefficients


# --- what is printed and written ---


def _print(report: dict[str, Any]) -> None:
    unit, runs, left = report["unit"], report["runs"], report["left"]
    readers = f" of {report['readers']:,} readers" if report["readers"] else ""
    means = f"means of {report['times']:,} words" if report["subjects"] == "mean" else "subjects as random intercepts"
    counted = "" if report["frequencies"] is None else f"; frequencies of {report['frequencies']}"
    reasons = [f"{count:,} {reason}" for reason, count in report["left_out"].items() if count]
    rows = [
        ("times", f"{report['response']} of {report['table']}: {report['readings']:,} readings"),
        ("left out", ", ".join(reasons) or "none"),
        ("left", f"{left:,} readings{readers}, {means}"),
        ("baseline", f"{', '.join(report['predictors']) or 'the mean alone'}{counted}"),
        ("folds", f"{report['folds']} of {several(report['items'], 'item')}, seed {report['seed']}"),
        ("intervals", "95 %, of items drawn anew, each draw fit anew" if report["items"] >= FEWEST_BLOCKS else FEW),
    ]
    table(rows)
    if report["predictors"] and report["baseline_gain"] <= 0:
        paragraph("the baseline predicts held-out times no better than their mean")
    for name, count in {
        run["name"]: run["unknown"] for run in runs if run["window"] is run["attention"] is None
    }.items():
        if count and "unknown" not in report["exclude"]:
            paragraph(f"{count:,} of {report['words']:,} words are outside the vocabulary of {name}, and left in")
    out()
    seeds = ["seeds"] * (max(len(run["runs"]) for run in runs) > 1)
    title = f"Δ log-likelihood, {unit}, of held-out items: with surprisal and without"
    cells = [
        [
            run["name"],
            *[str(len(run["runs"]))] * len(seeds),
            shown(run["word_perplexity"]),
            *_with_interval(run, "delta"),
        ]
        for run in runs
    ]
    grid(["", *seeds, "word perplexity", "Δ", "95 %"], cells, title)
    out()
    lags = ["the word", *(f"{lag} before" for lag in range(1, report["spillover"] + 1))]
    cells = []
    for run in runs:
        numbers = [f"{x['value']:.2f} ± {x['error']:.2f}" for x in run["coefficients"][-len(lags) :]]
        cells.append([run["name"], *(text.replace("-", "−") for text in numbers)])
    grid(["", *lags], cells, f"{report['response']} a bit of surprisal, with its standard error, fit to all items")
    if report["differences"]:
        out()
        cells = [
            [row["name"], *_with_interval(row, "difference"), of_chance(row["p"])] for row in report["differences"]
        ]
        grid(["", "difference", "95 %", "p"], cells, f"Δ less that of {runs[0]['name']}")


def _with_interval(row: Mapping[str, Any], name: str) -> tuple[str, str]:
    middle, low, high = (f"{x:+.5f}".replace("-", "−") for x in (row[name], *row["interval"]))
    return middle, "–" if math.isnan(row["interval"][0]) else f"{low} to {high}"


def _csv(runs: Sequence[Mapping[str, Any]]) -> bytes:
    header = [*_COLUMNS, *(f"{x['name']}{error}" for x in runs[0]["coefficients"] for error in ("", "_se"))]
    rows = []
    for run in runs:
        named = {**run, "attention": run["attention"] or "", "window": run["window"] or "all"}
        numbers = [x[part] for x in run["coefficients"] for part in ("value", "error")]
        named |= dict(zip(("low", "high"), run["interval"], strict=True))
        rows.append([*(named[name] for name in _COLUMNS), *numbers])
    return table_bytes(header, rows)


def _figure(report: Mapping[str, Any]) -> Figure:
    """Draw Δ over the windows, a curve a run, or over perplexity, a point a run."""
    runs = report["runs"]
    windows = any(run["window"] for run in runs)
    curves: dict[str, list[Point]] = {}
    for run in runs:
        if windows and run["window"] is None:  # no number stands for all of the context
            continue
        name, _, _ = run["name"].rpartition(", last") if windows else (run["name"], "", "")
        x = run["window"] if windows else float(f"{run['word_perplexity']:.4g}")
        ends = [run["delta"] if math.isnan(end) else end for end in run["interval"]]
        curves.setdefault(name, []).append(Point(x, run["delta"], *ends))
    if len(curves) > len(STYLES):
        curves = {"all runs": [point for points in curves.values() for point in points]}
    series = [Series(name, tuple(points)) for name, points in curves.items()]
    labels = "tokens of context" if windows else "perplexity of the words (logarithmic)", f"Δ, {report['unit']}"
    bands = "" if report["items"] < FEWEST_BLOCKS else " Bands: 95 % intervals, of items drawn anew."
    caption = f"{report['response']} of {Path(report['table']).name}.{bands}"
    return context_figure("Log-likelihood of reading times", labels, series, caption, logarithmic=not windows)
