"""`spanlm sweep FILE`: many trainings, each a process `spanlm train … --resume auto`."""

from __future__ import annotations

import argparse
import math
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from spanlm.analysis import figures
from spanlm.analysis.export import write_whole
from spanlm.cli.family import LOGS, train_side_by_side
from spanlm.cli.options import check_output
from spanlm.cli.parser import field_values
from spanlm.cli.render import duration, grid, out
from spanlm.cli.train import matched, matched_field, named_config, refuse_twice, with_words
from spanlm.config import RunConfig, flat, nested
from spanlm.data.config import DataConfig
from spanlm.data.corpora import Corpus, load_corpus
from spanlm.errors import InputError, Interrupted, RunError
from spanlm.jobs import Engine, safe_path
from spanlm.models.counting import count_configured
from spanlm.scoring.tally import edge_note, shown
from spanlm.store.files import make_folder
from spanlm.store.plain import TABLES, Grid, grids_bytes, several
from spanlm.store.run_folder import METRICS, epoch_rows
from spanlm.training.position import Position
from spanlm.training.progress import training_seconds
from spanlm.training.run import ended
from spanlm.training.setup import refuse_too_large, refuse_unfit
from spanlm.training.sweep import (
    Result,
    Setting,
    Sweep,
    differences,
    folder_name,
    labels,
    ranked,
    refuse_begun,
    seeded,
    table_csv,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SLURM = """#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array=0-{last}
#SBATCH --cpus-per-task={threads}
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output={logs}
# What your cluster needs beside: #SBATCH --time=04:00:00, --partition=NAME, --gpus=1
# When all have ended, the command that made this script makes the table: {table}
cd {here} || exit
{safe}case "${{SLURM_ARRAY_TASK_ID:?}}" in
{cases}
esac
run+=(--threads "${{SLURM_CPUS_PER_TASK:-{threads}}}")
if ! command -v srun > /dev/null; then
  exec "${{run[@]}}"
fi
srun --cpus-per-task="${{SLURM_CPUS_PER_TASK:-{threads}}}" "${{run[@]}}" # which srun does not take over by itself
status=$?
if [ "$status" -eq 143 ]; then # stopped by TERM, at a step with a checkpoint: it goes on from there
  scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
fi
exit "$status"
"""
_FEWEST_POINTS = 3
"""Least number of numeric values of a setting for a curve; else the figure has a row for each setting."""
_MOST_ROWS = 40
"""Rows of a figure."""


def run(options: argparse.Namespace) -> None:
    engine = field_values(options, Engine)
    check_output(options.out, [options.file], suffixes=TABLES)
    sweep = _Sweep(options.file, options.out, options.as_text)
    if options.print_slurm:
        if options.dry_run or engine.on is not None:
            other = "--dry-run" if options.dry_run else f"--on={engine.on}"
            raise InputError(f"--print-slurm and {other} do not go together: the script is for SLURM alone; take one")
        sweep.print_slurm(engine, shlex.join(["spanlm", "sweep", str(options.file), *["--as-text"] * options.as_text]))
    elif options.dry_run:
        sweep.list_runs()
    else:
        sweep.train(engine)


class _Sweep:
    """The checked settings of a sweep file, and their corpora."""

    def __init__(self, file: Path, table: Path | None = None, as_text: bool = False) -> None:
        self.sweep, self._file, self._as_text = Sweep.load(file), table, as_text
        self.out = Path(self.sweep.out or "runs")
        self.corpora: dict[DataConfig, Corpus] = {}
        base = named_config(self.sweep.preset, Path(self.sweep.config) if self.sweep.config else None)
        try:
            options = [flat(nested(fields)) for fields in self.sweep.overrides()]
        except InputError as error:
            raise error.within(file) from None
        configs = [self._checked(base, fields, file) for fields in options]
        values = differences(configs, options)
        self.short = labels(list(dict.fromkeys(name for setting_values in values for name in setting_values)))
        plain = (self.sweep.preset or "").rpartition("/")[2] or file.stem
        self.settings = []
        for varied, fields, config in zip(values, options, configs, strict=True):
            name = folder_name(varied, self.short, plain)
            self.settings.append(Setting(name, varied, fields, seeded(config, self.out / name, self.sweep.seeds)))
        names = [setting.name for setting in self.settings]
        for number, name in enumerate(names):
            if name in names[:number]:
                first = names.index(name) + 1
                raise InputError(f"{file}: runs {first} and {number + 1} are the same, or named alike: {name}")
        self.members = {folder: config for setting in self.settings for folder, config in setting.members.items()}
        refuse_begun(self.members)

    def _checked(self, base: RunConfig, fields: Mapping[str, str], file: Path) -> RunConfig:
        try:
            config = with_words(base, fields, None)
            refuse_unfit(config)
            if config.data not in self.corpora:
                self.corpora[config.data] = load_corpus(config.data, as_text=self._as_text)
            size = len(self.corpora[config.data].vocabulary)
            if (budget := self.sweep.match_parameters) is not None:
                refuse_twice(fields, matched_field(config), "match_parameters", budget)
                config = matched(config, budget, size)
            refuse_too_large(config, size)  # rejects impossible models, too
        except InputError as error:
            raise error.within(file) from None
        return config

    # --- runs ---

    def _command(self, setting: Setting, folder: Path) -> list[str]:
        base = [*([self.sweep.preset] if self.sweep.preset else [])]
        base += ["--config", self.sweep.config] if self.sweep.config else []
        fields = dict(setting.options)
        if self.sweep.seeds is not None:
            fields["training.seed"] = str(setting.members[folder].training.seed)
        options = [f"--{name}={value}" for name, value in fields.items()]
        if self.sweep.match_parameters is not None:
            options.append(f"--match-parameters={self.sweep.match_parameters}")
        as_text = ["--as-text"] * self._as_text
        return ["train", *(base or ["demo"]), *options, *as_text, f"--out={folder}", "--resume=auto"]

    def train(self, engine: Engine) -> None:
        words = {path: self._command(setting, path) for setting in self.settings for path in setting.members}
        try:
            train_side_by_side(engine, words, self.out, words.__getitem__, self._ended)
        except Interrupted as stop:
            raise Interrupted(f"{stop}. The same command goes on", stop.signal_number) from None
        except RunError:
            self._show(ranked(self._results()))  # the runs that ended
            raise
        self._show(ranked(self._results()))

    def _ended(self, folder: Path) -> Position | None:
        config = self.members[folder]
        return ended(config, self.corpora[config.data], folder)

    def _results(self) -> list[Result]:
        results = []
        for setting in self.settings:
            done = {folder: at for folder in setting.members if (at := self._ended(folder)) is not None}
            config = next(iter(setting.members.values()))
            corpus = self.corpora[config.data]
            seconds = {folder: training_seconds(epoch_rows(folder), len(corpus.splits["train"])) for folder in done}
            parameters = count_configured(config.model, len(corpus.vocabulary)).model
            results.append(Result(setting, done, seconds, parameters))
        return results

    # --- results ---

    def list_runs(self) -> None:
        results = self._results()
        rows = []
        for result in results:
            for folder in result.setting.members:
                begun = "begun" if (folder / METRICS).exists() else "new"
                rows.append((str(folder.relative_to(self.out)), "finished" if folder in result.ended else begun))
        grid(["run", ""], rows, f"{several(len(rows), 'run')} in {self.out}")
        first = self.settings[0]
        out(f"the first: {shlex.join(['spanlm', *self._command(first, next(iter(first.members)))])}")
        if any(result.ended for result in results):
            self._table(ranked(results))

    def _table(self, results: Sequence[Result]) -> None:
        """Print the varied values, the sizes and the valid perplexities of the settings, the best first."""
        out()
        grid(*(table := self._grid(results)))
        if self._file is not None:
            write_whole(self._file, grids_bytes([table], self._file.suffix.lower()))
            out(f"written: {self._file}")

    def _grid(self, results: Sequence[Result]) -> Grid:
        rows = []
        for result in results:
            done, count = result.ended.values(), len(result.setting.members)
            cells = [f"{result.parameters:,}", "", "", ""]
            if done:
                epochs = [at.best_epoch for at in done]
                first, last = min(epochs), max(epochs)
                cells[1:3] = [shown(result.mean), f"{first}" if first == last else f"{first}–{last}"]
                cells[3] = duration(fmean(result.seconds.values()))
            if len(done) > 1:
                cells[1] += f" ({shown(min(result.perplexities))}–{shown(max(result.perplexities))})"
            progress = "" if result.complete else f"{len(done)} of {count} done"
            values = [result.setting.values.get(name, "") for name in self.short] or [result.setting.name]
            rows.append((*values, *cells, progress))
        lacking = any(row[-1] for row in rows)
        header = [*(self.short.values() or ["run"]), "θ_M", "valid ppl", "best epoch", "time", ""]
        seeds = f"mean (least–greatest) of {self.sweep.seeds} seeds" if (self.sweep.seeds or 1) > 1 else None
        return header if lacking else header[:-1], [row if lacking else row[:-1] for row in rows], seeds

    def _show(self, results: Sequence[Result]) -> None:
        self._table(results)
        write_whole(self.out / "sweep.csv", table_csv(results, list(self.short)))
        out(f"written: {self.out / 'sweep.csv'}")
        best = results[0]
        if not best.ended:
            return
        if len({self._counted(result) for result in results if result.ended}) > 1:
            out("note: these perplexities count different tokens, so that none is the best; see `spanlm evaluate`")
            return
        if math.isfinite(best.mean):
            write_whole(self.out / "sweep.svg", figures.figure_bytes(self._figure(results), ".svg"))
            out(f"written: {self.out / 'sweep.svg'}")
        for name, label in self.short.items():
            tried = [result.setting.values.get(name, "") for result in results if result.ended]
            if all(map(_is_number, tried)) and (text := edge_note(label, float(tried[0]), [*map(float, tried)])):
                out(f"note: {text}")
        where = shlex.quote(str(self.out / best.setting.name))
        mean = f"mean of {len(best.ended)} seeds " if len(best.ended) > 1 else ""
        out(f"best by valid: {best.setting.name}, {mean}ppl {shown(best.mean)}")
        command = f"spanlm evaluate {where} --split test"
        if self.sweep.seeds is not None:  # named together, the seeds would be evaluated as an ensemble
            command = f'for run in {where}/seed-*; do spanlm evaluate "$run" --split test; done'
        out(f"Test it once: {command}")

    def _counted(self, result: Result) -> tuple[object, ...]:
        """Return what the perplexity on valid is over; only those over the same can be compared."""
        config = next(iter(result.setting.members.values()))
        corpus = self.corpora[config.data]
        return corpus.vocabulary.hash, len(corpus.splits["valid"]), config.training.batching.predict_first

    def _figure(self, results: Sequence[Result]) -> Figure:
        """Draw valid perplexity over the field with most numbers if they are enough; else a row for each setting."""
        done = [result for result in results if result.ended and math.isfinite(result.mean)]
        numbers = {
            name: {float(result.setting.values[name]) for result in done}
            for name in self.short
            if all(_is_number(result.setting.values.get(name, "")) for result in done)
        }
        field = max(numbers, key=lambda name: len(numbers[name]), default="")
        curves: dict[str, list[figures.Point]] = {}
        for result in done if field else ():
            others = {name: value for name, value in result.setting.values.items() if name != field}
            low, high = min(result.perplexities), max(result.perplexities)
            point = figures.Point(float(result.setting.values[field]), result.mean, low, high)
            curves.setdefault(folder_name(others, self.short, "valid"), []).append(point)
        if field and len(numbers[field]) >= _FEWEST_POINTS and len(curves) <= len(figures.STYLES):
            series = tuple(figures.Series(name, tuple(points)) for name, points in sorted(curves.items()))
            return figures.sweep_figure(
                self.out.name, self.short[field], "valid perplexity", (figures.Panel("", series),)
            )
        best = done[:_MOST_ROWS]
        names = [result.setting.name for result in best]
        values = tuple(figures.Value(x.mean, min(x.perplexities), max(x.perplexities)) for x in best)
        panel = figures.RowsPanel("valid perplexity", values, (None,) * len(names), 2)
        caption = "Bars go from the least to the greatest of several seeds. " * ((self.sweep.seeds or 1) > 1)
        caption += f"The best {len(names)} of {len(done)} settings. " * (len(done) > len(names))
        return figures.rows_figure(
            self.out.name, names, [panel], f"{caption}The axis is logarithmic.", logarithmic=True
        )

    def print_slurm(self, engine: Engine, table: str) -> None:
        logs = self.out / LOGS
        make_folder(logs, "out")
        members = [(setting, folder) for setting in self.settings for folder in setting.members]
        words = [[sys.executable, "-m", "spanlm", *self._command(*member)] for member in members]
        cases = "\n".join(f"  {number}) run=({shlex.join(command)}) ;;" for number, command in enumerate(words))
        name = re.sub(r"[^\w.-]", "-", self.out.name)
        safe = "".join(f"export {name}={value}\n" for name, value in safe_path().items())
        here, files = (shlex.quote(str(path)) for path in (Path.cwd(), logs / "slurm-%a.log"))
        where = {"here": here, "logs": files, "table": table, "safe": safe}
        out(
            _SLURM.format(name=name, last=len(words) - 1, threads=engine.threads(len(words)), cases=cases, **where)[:-1]
        )


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
