"""`spanlm reproduce PAPER`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from signal import SIGINT

from spanlm.cli.parser import field_values
from spanlm.cli.render import Progress, duration, grid, note, out, paragraph
from spanlm.cli.training_report import TrainingReport
from spanlm.config import RunConfig
from spanlm.errors import InputError, Interrupted, RunError, SpanlmError, require
from spanlm.jobs import Engine
from spanlm.papers.page import Page, write_overview, write_pages
from spanlm.papers.plan import Plan, Task, for_each_corpus
from spanlm.papers.record import DIVERGED, finished
from spanlm.papers.request import Request
from spanlm.papers.run import Estimator, Outcome, Run, finished_before
from spanlm.papers.table import FilledTable, overview
from spanlm.store.plain import several


def run(options: argparse.Namespace) -> None:
    engine = field_values(options, Engine)
    require(len(set(options.seeds)) == len(options.seeds), "--seeds", options.seeds, "different numbers")
    request = field_values(options, Request)
    tables, failed = list[FilledTable](), list[str]()
    for part in for_each_corpus(request):
        plan = Plan(part)
        if not options.no_tables:
            _introduce(plan)
        if options.dry_run:
            _dry_run(plan)
            continue
        pages, error = _run(plan, engine, tables=not options.no_tables)
        tables += [page.filled for page in pages]
        failed += [error] if error else []
    if len(tables) > 1 and tables[0].paper.overview and any(filled.lines for filled in tables):
        out()
        grid(*overview(tables))
        for path in write_overview(request, tables):
            out(f"written: {path}")
    if failed:
        raise RunError("; ".join(failed))


def _introduce(plan: Plan) -> None:
    if not plan.tasks:
        paragraph(f"{plan.paper.title}, {plan.tables[0].title}: drawn from its equation, nothing is trained")
        return
    names = ", ".join(table.name for table in plan.tables)
    measurements = len(plan.tasks) - len(plan.jobs)
    work = " and ".join([several(len(plan.jobs), "run"), *[several(measurements, "measurement")][:measurements]])
    paragraph(
        f"{plan.paper.title}, {plan.tables[0].kind} {names}: {work} on {plan.corpus.name} at scale {plan.scale.name} "
        f"({plan.scale.purpose})"
    )
    paragraph(*plan.corpus.notes)
    if done := sum(task.record.exists() for task in plan.tasks):
        paragraph(f"{done} have a record in {plan.out} and are not run again; another --out and --runs train them anew")


def _dry_run(plan: Plan) -> None:
    """Print the plan with times estimated from one measured step of each kind of model."""
    if not plan.tasks:
        return
    note("measuring a training step of each kind of model …")
    rows, total, estimator = list[Sequence[str]](), 0.0, Estimator(plan)
    for task in plan.tasks:
        count, cells = task.jobs[0].parameters, [""] * 5
        if isinstance(task.config, RunConfig) and not task.models:
            units = task.config.model.encoder.output_size
            cells[:3] = [f"{units:,}", _millions(count.model), _millions(count.total)]
        if (record := finished(task, plan.text_of(task))) is not None:
            about = "diverged" if DIVERGED in record else "finished"
        else:
            try:
                seconds, epochs, speed = estimator(task)
                about, total = duration(seconds), total + seconds
                cells[3:] = [str(epochs), f"{speed:,.0f}"] if epochs else ["", ""]
            except (InputError, RunError, RuntimeError) as error:
                about = f"fails: {error}"
        seeds = "" if task.by_counting else task.seeds.partition(" ")[2]
        rows.append((task.row.name, seeds, *cells, about))
    grid(["row", "seed", "units", "θ_M", "θ_W+M", "epochs", "tokens/s", "about"], rows)
    if len(plan.jobs) < len(plan.tasks):
        paragraph("a row without sizes evaluates the model of another row in another way")
    paragraph(f"in all about {duration(total)} on this machine as it is now; runs that stop improving end earlier")
    if any(task.search for task in plan.tasks):
        paragraph("longer where no finalist of a search helps: it then tries further pairs of η and λ")
    for row, reason in plan.left_out.items():
        paragraph(f"left out: {row}: {reason}")


def _run(plan: Plan, engine: Engine, tables: bool) -> tuple[list[Page], str]:
    """Run the plan; return its pages and a text on failed runs. Without `tables` (in a job) no task is announced."""
    others, ran, written = finished_before(plan) if tables else [], list[Outcome](), list[Path]()
    began, problem = time.monotonic(), None

    def started(task: Task) -> None:
        if tables and engine.here:
            out(f"\n[{plan.tasks.index(task) + 1}/{len(plan.tasks)}] {task.row.title}, {task.seeds}")

    def heard(task: Task, line: str) -> None:
        if line not in plan.corpus.notes:  # this process has printed them
            out(f"{plan.label(task)}  {line}")

    try:
        with TrainingReport(notes=False) as report:
            work = Run(plan, report if engine.here else None, started, Progress, heard)
            for outcome in work.outcomes(engine):
                out((f"{plan.label(outcome.task)}  " if not engine.here else "") + _ended(outcome))
                ran.append(outcome)
                ran.sort(key=lambda outcome: plan.tasks.index(outcome.task))  # parallel runs end in any order
                if tables:
                    try:
                        written, problem = write_pages(plan, [*others, *ran]), None
                    except (SpanlmError, OSError) as error:  # run the remaining rows before raising it
                        problem = error
    except Interrupted as stop:
        raise Interrupted(f"{stop}. The same command goes on", stop.signal_number) from None
    except KeyboardInterrupt:
        why = "stopped between two steps; what was finished is kept. The same command goes on"
        raise Interrupted(why, SIGINT) from None
    if tables and not plan.tasks:  # figures that need no training
        written = write_pages(plan, [])
    pages = [Page(plan, table, [*others, *ran]) for table in plan.tables if tables]
    if tables:
        for page in pages:
            _show(page)
        for path in written:
            out(f"written: {path}")
        out(f"total time now: {duration(time.monotonic() - began)}")
    if failed := [outcome for outcome in ran if outcome.error]:
        names = ", ".join(f"{outcome.task.row.name} ({outcome.task.seeds})" for outcome in failed)
        first = failed[0]
        # report failed runs even if a page cannot be written
        return pages, f"{len(failed)} of {len(ran)} runs failed: {names}. {first.task.row.name}: {first.error}"
    if problem is not None:
        raise problem
    return pages, ""


def _ended(outcome: Outcome) -> str:
    when = "finished before" if outcome.done_before else f"after {duration(outcome.seconds)}"
    if outcome.record is not None and not outcome.error:
        valid, test = (outcome.record[split]["perplexity"] for split in ("valid", "test"))
        return f"valid ppl {valid:,.2f}, test ppl {test:,.2f} ({when})"
    record = outcome.task.record
    tried = f" {record} lists what was tried; delete it to try the row again."
    advice = tried if outcome.task.models and record.exists() else ""
    return f"failed{' before' if outcome.done_before else ''}: {outcome.error}{advice}"


def _show(page: Page) -> None:
    out(f"\n{page.table.title}")
    for line in page.protocol():
        paragraph(f"  {line}")
    for header, rows, caption in page.filled.grids():
        out()
        grid(header, rows, caption or None)
    for line in page.filled.order():
        out()
        paragraph(line)


def _millions(count: int) -> str:
    return f"{count / 1e6:.2f}M" if count >= 1e5 else f"{count / 1e3:.1f}K"
