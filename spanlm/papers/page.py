"""Pages and figures of a plan's tables: what was measured and how, what is missing, and how to make it again."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from spanlm.analysis import figures
from spanlm.analysis.curves import Utilisation
from spanlm.analysis.export import write_whole
from spanlm.analysis.figures import Panel, Point, RowsPanel, Series
from spanlm.analysis.heat_maps import sentence_figure, text_figure
from spanlm.analysis.snapshots import Snapshot, snapshot_figure
from spanlm.papers.paper import WORD_CLASSES, Dynamic, Paper, Plain, Row, Table
from spanlm.papers.plan import Plan
from spanlm.papers.request import Request
from spanlm.papers.run import Outcome
from spanlm.papers.table import FilledTable, Line, overview, seeds_of
from spanlm.scoring.attention import AttentionRecord
from spanlm.store.plain import markdown, markdown_table, several


class Page:
    """A table of a plan with its outcomes."""

    def __init__(self, plan: Plan, table: Table, outcomes: Sequence[Outcome]) -> None:
        self.plan: Plan = plan
        self.paper: Paper = plan.paper
        self.table: Table = table
        self.outcomes: list[Outcome] = [outcome for outcome in outcomes if outcome.task.row.name in table.rows]
        records = [outcome.record for outcome in self.outcomes if outcome.record is not None]
        frequencies = plan.unigram_perplexity if table.rows else None
        self.filled: FilledTable = FilledTable(plan.paper, table, records, frequencies)

    def protocol(self, escape: Callable[[str], str] = str) -> list[str]:
        """Say what was measured, and how; a sentence or a few a line."""
        if not self.table.rows:
            return [f"{self.table.remark}."]
        plan, corpus, filled, text = self.plan, self.plan.corpus, self.filled, self.table.text
        sizes = ", ".join(f"{split} {len(tokens):,}" for split, tokens in corpus.splits.items())
        lines = [f"Corpus: {escape(corpus.name)} ({sizes} tokens; vocabulary {len(corpus.vocabulary):,})."]
        if self.table.home == corpus.name and plan.scale.vocabulary_size is None:
            lines[0] += " It is the paper's own."
        elif text:
            described = text.described or f"{text.title} with {text.vocabulary_size:,} {text.unit}"
            lines[0] += f" The paper's numbers are those of {described}: compare orders and differences, not values."
        lines += dict.fromkeys(f"Corpus: {escape(note)}." for text in plan.texts.values() for note in text.notes)
        adapting = any(isinstance(row.evaluation, Dynamic) for row in self.table.rows.values())
        lines += plan.scale.describe(adapting)
        lines += ["What the published rows leave open: `spanlm presets`."] if text else []
        seeds = sorted({seed for record in filled.records for seed in seeds_of(record)})
        # what a cache adds is in the notes on it
        plain = [line for line in filled.lines.values() if isinstance(line.row.evaluation, Plain)]
        if counted := dict.fromkeys(line.records[0]["test"]["protocol"] for line in plain):
            ways = "; or: ".join(counted)
            best = " The best epoch is that of the best validation." if seeds else ""
            lines.append(f"Perplexity: exp(NLL / token); {ways}.{best}")
        spread = "; means, with the least and the greatest" * (filled.most_seeds > 1)
        if seeds:
            lines.append(f"Seeds: {', '.join(map(str, seeds))}{spread}.")
        return lines + ([f"Note: {self.table.remark}."] if self.table.remark else [])

    def markdown(self, figures: Iterable[str] = ()) -> str:
        """Return the page; `figures` are files beside it."""
        title, grids = self.table.title, self.filled.grids()
        tables = ((grid.caption and f"**{grid.caption}**", markdown_table(grid.header, grid.rows)) for grid in grids)
        parts = [
            f"# {self.paper.title}, {title}",
            _listed(self.protocol(markdown)),
            *chain.from_iterable(tables),
            *self.filled.order(),
            *(f"![{title}{', use of the span buffer' if 'epoch' in name else ''}]({name})" for name in figures),
            self._missing(),
            _listed(self._origin()),
        ]
        return _page(parts)

    def _missing(self) -> str:
        titles = {name: row.title for name, row in self.table.rows.items()}
        alike = Counter(titles.values())  # rows with one title differ in how they are evaluated
        titles = {row: title if alike[title] == 1 else f"{title} (`{row}`)" for row, title in titles.items()}
        reasons = {task.row.name: "not run yet" for task in self.plan.tasks}
        reasons |= {row: f"left out: {why}" for row, why in self.plan.left_out.items()}
        ended = [(row, outcome) for row in titles for outcome in self.outcomes if outcome.task.row.name == row]
        failed = [(row, outcome) for row, outcome in ended if outcome.error and row not in self.filled.lines]
        lines = [f"{titles[row]}: **failed**: {markdown(outcome.error)}" for row, outcome in failed]
        rest = [row for row in titles if row not in dict(ended)]
        lines += [f"{titles[row]}: {reasons.get(row, 'not asked for')}" for row in rest]
        return f"Missing:\n\n{_listed(lines)}" if lines else ""

    def _origin(self) -> list[str]:
        request, records = self.plan.request, self.filled.records
        # an ensemble needs no --seeds
        seeds = sorted({seeds[0] for seeds in map(seeds_of, records) if len(seeds) == 1})
        again = replace(
            request,
            table=self.table.name,
            corpus=Path(request.corpus or self.plan.corpus.name).name,
            seeds=tuple(seeds) or request.seeds,
            rows=tuple(self.filled.lines) if request.rows else None,
            questions=tuple(Path(path.name) for path in request.questions),
            **{place: getattr(Request, place) for place in ("runs", "out", "data_dir")},
        )
        trained = [record["training_seconds"] for record in records if "training_seconds" in record]
        starts = [start for record in records for start in record["starts"]]
        commits = sorted({f"{s['commit'][:10]}{' (changed)' if s['changed'] else ''}" for s in starts if s["commit"]})
        machine = "{processor}, {threads} thread(s), {device}, torch {torch}"
        machines = sorted({machine.format_map(s) + (f", {s['precision']}" if "precision" in s else "") for s in starts})
        time = f"{several(len(trained), 'run')}: {timedelta(seconds=round(sum(trained)))}"
        lines = [
            f"Made again by `{shlex.join(['spanlm', *again.words])}`.",
            f"Training time of {time}, validation left out.",
            f"Code: commit {', '.join(commits)}." if commits else "Code: not from a checkout; no commit known.",
            f"Machine: {'; '.join(machines)}.",
        ]
        return lines if records else []

    def figures(self) -> dict[str, Figure]:
        """Return the figures by file name."""
        lines, file = list(self.filled.lines.values()), f"{self.table.file}.svg"
        heading = f"{self.paper.title}, {self.table.title}"
        if self.table.equation is not None:
            panels = (Panel("", tuple(self.table.equation())),)
            return {file: figures.equation_figure(heading, self.table.x_label, self.table.y_label, panels)}
        if not lines or self.table.measure == "excess":  # the overview has one of them all
            return {}
        drawn = self._drawn(heading, lines)
        by_file = {} if drawn is None else {file: drawn}
        if self.table.measure != "perplexity":
            return by_file
        fields = "utilisation_by_epoch", "oracle_utilisation_by_epoch"
        if used := [line for line in lines if fields[0] in line.records[0]]:
            use = [Utilisation(line.row.title, *(tuple(line.records[0][name]) for name in fields)) for line in used]
            heading = f"{self.paper.title}, {self.paper.by_epoch}: use of the span buffer by epoch"
            caption = f"{self.plan.corpus.name}, scale {self.plan.scale.name}, first seed."
            by_file[f"{self.table.file}-by-epoch.svg"] = figures.utilisation_figure(heading, use, caption)
        return by_file

    def _drawn(self, heading: str, lines: Sequence[Line]) -> Figure | None:
        """Return the figure of what the table measures; None: it has none of its own."""
        table, measure, most = self.table, self.table.measure, self.filled.most_seeds
        seeds = "One seed." if most == 1 else f"Means of up to {most} seeds."
        if measure == "attention":
            return figures.lag_figure(self.filled.lags())
        if measure == "article":
            return text_figure(self._looked(lines[0], lines[0].records[0][measure], heading))
        if measure == "sentences":
            read = [[self._looked(line, line.records[0][measure][text]) for line in lines] for text in table.texts]
            return sentence_figure(read, heading)
        if measure == "buffer" and table.kind == "figure":
            return snapshot_figure(heading, Snapshot.from_json(lines[0].records[0][measure]))
        bars = "" if most == 1 else " Bars go from the least to the greatest."
        if measure == "cloze":
            caption, titles = f"Squares: the paper, the real questions. {seeds}{bars}", [line.title for line in lines]
            panels = list(self._accuracies())
            return figures.rows_figure(heading, titles, panels, caption) if panels else None
        if table.x_label:  # explains its own error bars
            return figures.sweep_figure(heading, table.x_label, table.y_label, self._curves(), seeds)
        if not table.columns:  # those of the details alone
            return None
        titles = list(dict.fromkeys(line.title for line in lines))
        caption, panels = f"{seeds}{bars} The axis is logarithmic.", list(self._perplexities(titles))
        if all(mark is None for panel in panels for mark in (*panel.measured, *panel.published)):
            return None
        return figures.rows_figure(heading, titles, panels, caption, logarithmic=True)

    def _looked(self, line: Line, tree: Mapping[str, Any], title: str = "") -> AttentionRecord:
        record = AttentionRecord.from_json(tree)
        where = f"{self.plan.corpus.name}, scale {self.plan.scale.name}"
        about = f"{line.title}, scale {self.plan.scale.name}. {record.title}" if title else where
        return replace(record, title=title or line.title, about=about)

    def _perplexities(self, titles: Sequence[str]) -> Iterator[RowsPanel]:
        nothing = (None,) * len(titles)
        for section, lines, _, _ in self.filled.groups:
            measured = {line.title: line.value(f"test.{section.counted}") for line in lines}
            printed = {line.title: line.row.reported.test_ppl for line in lines}
            here = f"{section.label}, {self.plan.corpus.name}, {self.plan.scale.name}"
            yield RowsPanel(here, tuple(map(measured.get, titles)), nothing, self.paper.digits)
            if self.table.text and any(printed.values()):
                where = f"{section.label}, published: {self.table.text.name}"
                yield RowsPanel(where, nothing, tuple(map(printed.get, titles)), self.paper.digits)

    def _accuracies(self) -> Iterator[RowsPanel]:
        lines = self.filled.lines.values()
        for number, (name, title) in enumerate(WORD_CLASSES.items()):
            measured = tuple(line.value(f"cloze.classes.{name}.sentence.accuracy") for line in lines)
            published = tuple(line.row.accuracies[number] for line in lines)
            if None not in measured:  # there were such questions, and some could be scored
                yield RowsPanel(f"{title}: accuracy", measured, published, 3)

    def _curves(self) -> tuple[Panel, ...]:
        curves = defaultdict[str, list[Row]](list)
        for row in self.table.rows.values():
            curves[row.curve[0]].append(row)
        measured, published = [], []
        for name, rows in curves.items():
            done = [(row, line.value("test.perplexity")) for row in rows if (line := self.filled.lines.get(row.name))]
            if points := tuple(Point(row.curve[1], *test) for row, test in done if test):
                measured.append(Series(name, points))
                theirs = ((row.curve[1], row.reported.test_ppl) for row in rows)
                if points := tuple(Point(x, ppl) for x, ppl in theirs if ppl):
                    published.append(Series(name, points, published=True))
        here = Panel(f"measured on {self.plan.corpus.name}, scale {self.plan.scale.name}", tuple(measured))
        theirs_on = self.table.text.name if self.table.text else ""
        return (here, Panel(f"the paper, {theirs_on}", tuple(published))) if published else (here,)


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"* {line}" for line in lines)


def _page(parts: Iterable[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


def write_pages(plan: Plan, outcomes: Sequence[Outcome]) -> list[Path]:
    """Write page and figures (`figure-2c.md`, `figure-2c.svg`) of every table; return the files."""
    written = list[Path]()
    for page in (Page(plan, table, outcomes) for table in plan.tables):
        drawn = page.figures()
        written += _written(plan.out, page.table.file, page.markdown(drawn), drawn)
    return written


def write_overview(request: Request, tables: Sequence[FilledTable]) -> list[Path]:
    """Write the page of all tables and its figure below the folder of all records; return the files."""
    paper, grid, panels = tables[0].paper, overview(tables), list[RowsPanel]()
    titles = [row[0] for row in grid.rows]
    for filled in (filled for filled in tables if filled.lines):
        values = {line.title: line.value("excess_bits") for line in filled.lines.values()}
        panels.append(RowsPanel(filled.table.name, tuple(map(values.get, titles)), (None,) * len(titles), paper.digits))
    heading = f"{paper.title}: {paper.overview} in bits a target"
    seeds, name = grid.caption.removeprefix(f"{paper.note}. "), f"overview-{request.scale}"
    drawn = figures.rows_figure(heading, titles, panels, f"{seeds}.")
    again = replace(
        request, table=None, rows=tuple(dict.fromkeys(chain(*(x.lines for x in tables)))) if request.rows else None
    )
    parts = [
        f"# {heading}",
        grid.caption,
        markdown_table(grid.header, grid.rows),
        _listed(f"{filled.table.title}; {filled.table.remark}" for filled in tables),
        f"![{heading}]({name}.svg)",
        f"Made again by `{shlex.join(['spanlm', *again.words])}`.",
    ]
    return _written(request.out / paper.name, name, _page(parts), {f"{name}.svg": drawn})


def _written(folder: Path, name: str, page: str, drawn: Mapping[str, Figure]) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, Any] = {f"{name}.md": page.encode(errors="backslashreplace")}
    files |= {name: figures.figure_bytes(figure, ".svg") for name, figure in drawn.items()}
    for file, content in files.items():
        write_whole(folder / file, content)
    return [folder / file for file in files]
