"""`spanlm reading RUN… TABLE`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from spanlm.analysis.export import checked_suffix, json_bytes, write_whole
from spanlm.analysis.figures import FIGURES, STYLES, Point, Series, context_figure, figure_bytes
from spanlm.analysis.reading import Gain, NestedModels, Times
from spanlm.analysis.reading_r import SCRIPT, write_r
from spanlm.analysis.reading_surprisal import (
    ReadingContext,
    Surprisal,
    context_of,
    surprisals,
    truncated_surprisals,
)
from spanlm.analysis.reading_table import ReadingTable, choose_readings, needs_frequencies, read_times
from spanlm.cli.family import family_members
from spanlm.cli.options import check_output, note_unfinished, run_names
from spanlm.cli.parser import field_values
from spanlm.cli.render import grid, note, out, out_json, paragraph, table
from spanlm.data.tables import RowNotes
from spanlm.errors import InputError
from spanlm.models.lesions import require_lesion
from spanlm.runs.loading import load
from spanlm.runs.model import Model, require_weights
from spanlm.scoring.options import ReadingOptions
from spanlm.scoring.predictors import Frequencies
from spanlm.scoring.resampling import Array, Counts, Interval, drawn_p, drawn_shifts, interval_of, of_chance
from spanlm.scoring.tally import shown
from spanlm.store.plain import finite, several, table_bytes
from spanlm.store.run_folder import CONFIG

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SUFFIXES = (".csv", ".json", *FIGURES)


@dataclass(frozen=True, eq=False)
class _Side:
    """A run or a family, with all of the context or the last `window` tokens of it, and how it then did."""

    name: str
    runs: tuple[Path, ...]
    attention: str | None
    window: int | None
    read: tuple[Surprisal, ...]  # by each run

    @property
    def title(self) -> str:
        lesion = "" if self.attention is None else f", attention {self.attention}"
        return f"{self.name}{lesion}{'' if self.window is None else f', last {self.window}'}"


@dataclass(frozen=True, eq=False)
class _Result:
    side: _Side
    bits: float  # a word, over the words that all sides predict
    gains: tuple[Gain, ...]  # of each run
    draws: Array  # (DRAWS,) of the mean over runs, seeds drawn, too

    @property
    def perplexity(self) -> float:
        return float(2**self.bits)

    @property
    def delta(self) -> float:
        return float(np.mean([gain.delta for gain in self.gains]))

    @property
    def interval(self) -> Interval:
        return interval_of(self.draws[:, None])[0]

    @property
    def coefficients(self) -> list[tuple[str, float, float]]:
        """The name, the value and the standard error of each coefficient; the mean of each over seeds."""
        rows = zip(*(gain.coefficients for gain in self.gains), strict=True)
        return [
            (row[0].name, float(np.mean([x.value for x in row])), float(np.mean([x.error for x in row])))
            for row in rows
        ]

    def fields(self) -> dict[str, Any]:
        side = self.side
        return {
            "name": side.title,
            "runs": [str(path) for path in side.runs],
            "attention": side.attention,
            "window": side.window,
            "bits": self.bits,
            "perplexity": self.perplexity,
            "unknown": int(side.read[0].unknown.sum()),
            "delta": self.delta,
            "delta_by_run": [gain.delta for gain in self.gains],
            "interval": list(self.interval),
            "coefficients": [
                {"name": name, "value": value, "error": error} for name, value, error in self.coefficients
            ],
        }


def run(options: argparse.Namespace) -> None:
    settings = field_values(options, ReadingOptions)
    check_output(options.out, [options.table])
    if options.out is not None:
        checked_suffix(options.out, _SUFFIXES)
    check_output(options.r, option="--r", folder=True)
    for lesion in options.attention:
        require_lesion(lesion, "--attention")
    bad, odd = RowNotes(strict=options.strict), RowNotes("to be checked", options.strict)
    words, settings = read_times(options.table, settings, options.layout, bad, odd)
    frequencies = _frequencies(options, settings, bad)
    predictors = words.predictors(settings, frequencies)
    sides = list(_sides(options, words))
    report = _Report.of(options, settings, words, predictors, sides, frequencies)
    if options.out is not None:
        report.write(options.out)
    if options.r is not None:
        report.write_r(options.r)
    note(*bad.lines(), *odd.lines())
    if options.json:
        out_json(report.fields())
        return
    report.print()
    for path in filter(None, (options.out, options.r and options.r / SCRIPT)):
        out(f"wrote {path}")


def _frequencies(options: argparse.Namespace, settings: ReadingOptions, bad: RowNotes) -> Frequencies | None:
    """Return the frequencies of --frequencies, or of the first run's training text; None: no predictor needs them."""
    if not needs_frequencies(settings):
        return None
    if options.frequencies is not None:
        return Frequencies.of_file(options.frequencies, bad)
    try:
        return load(_groups(options.runs)[0][1][0], "cpu").texts.frequencies()
    except InputError as error:
        way = "Name a file of frequencies by --frequencies, or another --baseline"
        raise InputError("baseline", settings.baseline, f"needs frequencies: {error}", way) from None


def _groups(folders: Sequence[Path]) -> list[tuple[str, list[Path]]]:
    """Return the name and the runs of each side: one run, or a family of seeds."""
    members = ([path] if (path / CONFIG).exists() else family_members(path) or [path] for path in folders)
    return [*zip(run_names(folders), members, strict=True)]


def _sides(options: argparse.Namespace, words: ReadingTable) -> Iterator[_Side]:
    """Read the texts with each run, with each lesion of it, and at each window."""
    windows: list[int | None] = options.windows or [None]
    for name, folders in _groups(options.runs):
        read: dict[tuple[str | None, int | None], list[Surprisal]] = {}
        for folder in folders:
            model = load(folder, options.device)
            note_unfinished(folder)
            context: ReadingContext = options.state or context_of(model)
            model.texts.refuse_context(context)
            for window in windows:
                read.setdefault((None, window), []).append(_surprisal(model, words, context, window))
            for lesion in options.attention:
                changed = require_weights(model, "--attention").with_attention(lesion)
                read.setdefault((lesion, None), []).append(surprisals(changed, words, context))
        for (lesion, window), members in read.items():
            yield _Side(name, tuple(folders), lesion, window, tuple(members))


def _surprisal(model: Model, words: ReadingTable, context: ReadingContext, window: int | None) -> Surprisal:
    if window is None:
        return surprisals(model, words, context)
    return truncated_surprisals(model, words, context, window)


# --- what is measured ---


@dataclass(frozen=True, eq=False)
class _Report:
    table: Path
    settings: ReadingOptions
    words: ReadingTable
    frequencies: Frequencies | None
    readings: Counts  # those that are left
    left_out: dict[str, int]
    models: NestedModels
    results: list[_Result]
    baseline: dict[str, Array]  # by time
    surprisals: dict[str, Array]  # by run, (N, K + 1)
    places: Counts  # (N,) the word of each time

    @staticmethod
    def of(
        options: argparse.Namespace,
        settings: ReadingOptions,
        words: ReadingTable,
        predictors: dict[str, Array],
        sides: Sequence[_Side],
        frequencies: Frequencies | None,
    ) -> _Report:
        spilled = {
            (n, seed): words.spilled(surprisal.bits, settings.spillover)
            for n, side in enumerate(sides)
            for seed, surprisal in enumerate(side.read)
        }
        read = [surprisal for side in sides for surprisal in side.read]
        unknown = np.asarray(np.stack([surprisal.unknown for surprisal in read]).any(axis=0))
        predicted = np.stack([np.isfinite(surprisal.bits) for surprisal in read]).all(axis=0)
        complete = np.asarray(~np.isnan(np.column_stack([*predictors.values(), *spilled.values()])).any(axis=1))
        readings, left_out = choose_readings(words, settings, unknown, complete)
        if settings.subjects == "mean":
            places, inverse = np.unique(words.of[readings], return_inverse=True)
            values = np.bincount(inverse, words.times[readings]) / np.bincount(inverse)
            by = None
        else:
            places, values = words.of[readings], words.times[readings]
            by = np.unique(words.by[readings], return_inverse=True)[1]
        items = np.unique([words.words[n].item for n in places], return_inverse=True)[1]
        baseline = {name: column[places] for name, column in predictors.items()}
        columns = np.column_stack([*baseline.values()]) if baseline else np.empty((len(places), 0))
        models = NestedModels(Times(values, items, by), columns, [*baseline], settings.folds, settings.seed)
        names = [f"surprisal{f'_prev{lag}' * (lag > 0)}" for lag in range(settings.spillover + 1)]
        results = []
        generator = np.random.default_rng(settings.seed)
        for n, side in enumerate(sides):
            try:
                gains = [models.gain(spilled[n, seed][places], names) for seed in range(len(side.read))]
            except InputError as error:
                raise error.within(side.title) from None
            shifts = drawn_shifts(np.array([[gain.delta] for gain in gains]), generator)[:, 0]
            draws = np.mean([gain.draws for gain in gains], axis=0) + shifts
            bits = float(np.mean([surprisal.bits[predicted].mean() for surprisal in side.read]))
            results.append(_Result(side, bits, tuple(gains), draws))
        titles = {
            (n, s): sides[n].title + (f", {sides[n].runs[s].name}" if len(sides[n].read) > 1 else "")
            for n, s in spilled
        }
        by_run = {titles[key]: values[places] for key, values in spilled.items()}
        return _Report(
            options.table, settings, words, frequencies, readings, left_out, models, results, baseline, by_run, places
        )

    @property
    def unit(self) -> str:
        return "word" if self.settings.subjects == "mean" else "reading"

    @property
    def notes(self) -> list[str]:
        notes = list[str]()
        if self.baseline and self.models.baseline_gain <= 0:
            notes.append("the baseline predicts held-out times no better than their mean")
        if "unknown" not in self.settings.exclusions:
            counts = {result.side.name: int(result.side.read[0].unknown.sum()) for result in self.results}
            words = f"of {len(self.words.words):,} words are outside the vocabulary of"
            notes += [f"{count:,} {words} {name}, and left in" for name, count in counts.items() if count]
        return notes

    def differences(self) -> list[dict[str, Any]]:
        """Compare each result with the first."""
        first, *others = self.results
        rows = []
        for other in others:
            difference, draws = other.delta - first.delta, other.draws - first.draws
            rows.append(
                {
                    **{"name": other.side.title, "baseline": first.side.title, "difference": difference},
                    **{"interval": list(interval_of(draws[:, None])[0]), "p": drawn_p(draws, difference)},
                }
            )
        return rows

    def fields(self) -> dict[str, Any]:
        items = np.unique(self.models.times.items)
        return {
            "table": str(self.table),
            **{name: value for name, value in asdict(self.settings).items()},
            "readings": len(self.words.of),
            "left_out": self.left_out,
            "left": len(self.readings),
            "times": len(self.places),
            "unit": f"nats a {self.unit}",
            "items": len(items),
            "readers": len({*self.words.by[self.readings].tolist()}) if self.settings.subject else None,
            "predictors": [*self.baseline],
            "frequencies": None if self.frequencies is None else self.frequencies.source,
            "baseline_gain": self.models.baseline_gain,
            "notes": self.notes,
            "runs": [result.fields() for result in self.results],
            "differences": self.differences(),
        }

    # --- what is printed ---

    def print(self) -> None:
        settings, fields = self.settings, self.fields()
        reasons = [f"{count:,} {reason}" for reason, count in self.left_out.items() if count]
        readers = f" of {fields['readers']:,} readers" if settings.subject else ""
        means = f"{len(self.places):,} words" if self.unit == "word" else "each reading, subjects as random intercepts"
        of_file = "" if self.frequencies is None else f"; frequencies of {self.frequencies.source}"
        table(
            [
                ("times", f"{settings.response} of {self.table}: {fields['readings']:,} readings"),
                ("left out", ", ".join(reasons) or "none"),
                ("left", f"{len(self.readings):,} readings{readers}, {means}"),
                ("baseline", f"{', '.join(self.baseline) or 'the mean alone'}{of_file}"),
                ("folds", f"{settings.folds} of {several(fields['items'], 'item')}, seed {settings.seed}"),
                ("intervals", "95 %, of items drawn anew, each draw fit anew"),
            ]
        )
        paragraph(*self.notes)
        out()
        families = max(len(result.gains) for result in self.results) > 1
        seeds = ["seeds"] * families
        rows = [
            [
                result.side.title,
                *[str(len(result.gains))] * families,
                shown(result.perplexity),
                _signed(result.delta),
                _to(result.interval),
            ]
            for result in self.results
        ]
        title = f"Δ log-likelihood, nats a {self.unit}, of held-out items: with surprisal and without"
        grid(["", *seeds, "perplexity", "Δ", "95 %"], rows, title)
        out()
        lags = ["the word", *(f"{lag} before" for lag in range(1, settings.spillover + 1))]
        rows = [
            [
                result.side.title,
                *(f"{value:.2f} ± {error:.2f}" for _, value, error in result.coefficients[-len(lags) :]),
            ]
            for result in self.results
        ]
        grid(["", *lags], rows, f"{settings.response} a bit of surprisal, with its standard error, fit to all items")
        if differences := self.differences():
            out()
            rows = [
                [row["name"], _signed(row["difference"]), _to(row["interval"]), of_chance(row["p"])]
                for row in differences
            ]
            grid(["", "difference", "95 %", "p"], rows, f"Δ less that of {self.results[0].side.title}")

    def write(self, path: Path) -> None:
        suffix = path.suffix.lower()
        if suffix == ".json":
            write_whole(path, json_bytes(finite(self.fields())))
        elif suffix == ".csv":
            header = ["run", "attention", "window", "bits", "perplexity", "unknown", "delta", "low", "high"]
            names = [name for name, _, _ in self.results[0].coefficients]
            rows = []
            for result in self.results:
                fields, side = result.fields(), result.side
                row = [side.name, side.attention or "", "all" if side.window is None else side.window]
                row += [fields[name] for name in header[3:7]] + [*result.interval]
                rows.append([*row, *(x for _, value, error in result.coefficients for x in (value, error))])
            header += [column for name in names for column in (name, f"{name}_se")]
            write_whole(path, table_bytes(header, rows))
        else:
            write_whole(path, figure_bytes(self.figure(), suffix))

    def figure(self) -> Figure:
        """Draw Δ over the windows, a curve a run, or over perplexity, a point a run."""
        axis = f"Δ log-likelihood, nats a {self.unit}"
        windows = len({result.side.window for result in self.results}) > 1
        longest = max(map(len, self.words.lines))
        curves: dict[str, list[Point]] = {}
        for result in self.results:
            side = result.side
            name = side.title if not windows else _Side(side.name, (), side.attention, None, ()).title
            x = float(f"{result.perplexity:.4g}")
            if windows:
                x = longest if side.window is None else side.window
            curves.setdefault(name, []).append(Point(x, result.delta, *result.interval))
        if len(curves) > len(STYLES):
            curves = {"all runs": [point for points in curves.values() for point in points]}
        series = [Series(name, tuple(points)) for name, points in curves.items()]
        whole = f" All of the context stands at {longest:,}." if windows else ""
        caption = f"{self.settings.response} of {self.table.name}.{whole} Bands: 95 % intervals, drawn from items."
        labels = ("tokens of context" if windows else "perplexity (logarithmic)", axis)
        return context_figure("Reading times", labels, series, caption, logarithmic=not windows)

    def write_r(self, folder: Path) -> None:
        items = [self.words.items[self.words.words[n].item] for n in self.places]
        random = self.settings.subjects == "random"
        subjects = [self.words.subjects[n] for n in self.words.by[self.readings]] if random else []
        write_r(folder, self.models, (items, subjects), self.baseline, self.surprisals)


def _signed(nats: float) -> str:
    return "0" if abs(nats) < 5e-6 else f"{nats:+.5f}".replace("-", "−")


def _to(interval: Sequence[float]) -> str:
    low, high = (math.nan if x is None else x for x in interval)
    return f"{_signed(low)} to {_signed(high)}"
