"""`spanlm reproduce PAPER`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from signal import SIGINT

from spanlm.cli.main import VerbParser
from spanlm.cli.options import add_device, keep_freed_memory, verb_parser
from spanlm.cli.render import grid, note, out, paragraph, progress
from spanlm.cli.training_report import TrainingReport
from spanlm.errors import InputError, Interrupted, RunError, require
from spanlm.reproduction.papers import Paper, Table
from spanlm.reproduction.plan import PAPERS, Measurement, Plan, Request, Task, make_plan
from spanlm.reproduction.record import ASTRAY, finished
from spanlm.reproduction.run import Estimator, Outcome, finished_before, label, run_plan, run_side_by_side
from spanlm.reproduction.scales import several
from spanlm.reproduction.table import grids, order_notes, protocol, summarise, write_tables

_DESCRIPTION = """
Run the tables of a paper again: every row one after another, at matched parameters where the paper matches them, then
one Markdown page and one figure a table, measured and published side by side.

  spanlm reproduce daniluk2017 --scale smoke
  spanlm reproduce daniluk2017 --table 2c --corpus wikitext-2 --dry-run
  spanlm reproduce salton2017 --table 1 --scale small
  spanlm reproduce li2020 --corpus ptb --scale small --jobs 2

Finished runs are skipped and unfinished ones go on, so the same command can be given again at any time; a row that
fails does not stop the others.
"""
_MORE = """
With --jobs N, N rows are trained or measured at a time, each on its share of the processor's threads (on a GPU they
share it), the last of a table first, for it takes longest; small models, of which one does not keep many threads busy,
are done sooner so. Their speeds and minutes in the tables are those of a share.

The test part is read once for every run, and again for every row that evaluates a
trained model in another way: with a cache, with dynamic evaluation, or several as one; such rows train what they need
and share it. Their settings are chosen on valid. Where dynamic evaluation diverged the row has failed, for good: its
record, in the row's name under --out, says what was tried; without that file it is tried again.
"""


def run(arguments: list[str]) -> None:
    """Reproduce."""
    keep_freed_memory()
    options = _parser().parse_args(arguments)
    require(bool(options.seeds), "--seeds", options.seeds, "one or more numbers")
    require(options.jobs >= 1, "--jobs", options.jobs, "at least 1")
    require(len(set(options.seeds)) == len(options.seeds), "--seeds", options.seeds, "different numbers")
    asked = {field.name: getattr(options, field.name) for field in fields(Request)}
    lists = {name: tuple(value) for name, value in asked.items() if isinstance(value, list)}
    plan = make_plan(Request(**asked | lists))
    if options.no_tables:
        _refuse_failed(list(_reported(plan, 1, said=False)))
        return
    _introduce(plan)
    if options.dry_run:
        _dry_run(plan)
    else:
        _run(plan, options.jobs)


def _parser() -> VerbParser:
    parser = verb_parser(
        "reproduce", _DESCRIPTION, more="\n\n".join([_MORE, *map(_tables_and_scales, PAPERS.values())])
    )
    parser.add_argument("paper", metavar="PAPER", help=f"whose tables: {', '.join(PAPERS)}")
    parser.add_argument("--table", metavar="NAME", help="one of them (default: all that the corpus allows)")
    parser.add_argument(
        "--corpus",
        metavar="NAME|PATH",
        help="wikipedia (built by `spanlm data wikipedia`), ptb, wikitext-2, cbt, a folder or a file (default: the "
        "scale's, demo for smoke; else the table's own)",
    )
    parser.add_argument("--scale", default="small", metavar="NAME", help="smoke, small or paper, as a rule (small)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], metavar="N", help="a run of every row for each")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="only these rows, as --dry-run names them")
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR", help="where runs are kept (runs)")
    parser.add_argument(
        "--out", type=Path, default=Path("results"), metavar="DIR", help="where records and tables go (results)"
    )
    add_device(parser)
    parser.add_argument("--precision", choices=("fp32", "bf16"), help="of the products (default: the scale's)")
    parser.add_argument("--data-dir", metavar="DIR", help="where registered corpora are (default: $SPANLM_DATA)")
    parser.add_argument(
        "--questions",
        rare=True,
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="of table 2d (default: the test files of cbt)",
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="rows at a time (1)")
    parser.add_argument(
        "--no-tables", rare=True, action="store_true", help="train and measure only, as each of --jobs does"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan, sizes and an estimate of the time")
    return parser


def _tables_and_scales(paper: Paper) -> str:
    """Name the tables of a paper, and the scales at which they can be run."""
    tables = _listed((table.name, table.title.partition(": ")[2]) for table in paper.tables)
    scales = _listed((scale.name, scale.purpose) for scale in paper.scales.values())
    return f"{paper.name}, --table {tables}; --scale {scales}."


def _listed(pairs: Iterable[tuple[str, str]]) -> str:
    return "; ".join(f"{name}: {what}" for name, what in pairs)


def _introduce(plan: Plan) -> None:
    names = ", ".join(table.name for table in plan.tables)
    measurements = sum(isinstance(task, Measurement) for task in plan.tasks)
    work = [several(len(plan.jobs), "run"), *([several(measurements, "measurement")] if measurements else [])]
    out(
        f"{plan.paper.title}, {plan.tables[0].kind} {names}: {' and '.join(work)} on {plan.corpus.name} at scale "
        f"{plan.scale.name} ({plan.scale.purpose})"
    )
    for line in plan.corpus.notes:
        paragraph(line)
    done = sum(task.record.exists() for task in plan.tasks)
    if done:
        out(f"{done} have a record in {plan.out} and are not run again; another --out and --runs train them anew")


def _dry_run(plan: Plan) -> None:
    """Print the plan; its times come from one measured step of each kind of model."""
    rows = list[Sequence[str]]()
    estimator, total, searching = Estimator(plan, lambda row: note(f"measuring: {row}")), 0.0, False
    for task in plan.tasks:
        measured = isinstance(task, Measurement)
        model, count = task.config.model, task.jobs[0].parameters
        sizes = ["", "", ""] if measured else [f"{model.encoder.output_size:,}", f"{count.model:,}", f"{count.total:,}"]
        cells = ["", ""]
        if (record := finished(task, plan.text_of(task))) is not None:
            about = "diverged" if ASTRAY in record else "finished"
        else:
            try:
                found = estimator(task)
                about = f"{'evaluated only ' if measured else ''}{_duration(found.seconds)}"
                total += found.seconds
                cells = cells if measured else [str(found.epochs), f"{found.tokens_per_second:,.0f}"]
                searching = searching or (isinstance(task, Measurement) and task.search is not None)
            except (InputError, RunError, RuntimeError) as error:
                about = f"fails: {error}"
        rows.append((task.row, task.seeds.partition(" ")[2], *sizes, *cells, about))
    grid(["row", "seed", "units", "θ_M", "θ_W+M", "epochs", "tokens/s", "about"], rows)
    out(f"in all about {_duration(total)} on this machine as it is now; runs that stop improving end before")
    if searching:
        out("more, where none of a search's finalists helps: it reads on, one pair of η and λ after another")
    for row, reason in plan.left_out.items():
        out(f"left out: {row}: {reason}")


def _run(plan: Plan, jobs: int) -> None:
    others, ran = finished_before(plan), list[Outcome]()
    written: list[Path] = []
    began = time.monotonic()
    try:
        for outcome in _reported(plan, jobs):
            ran.append(outcome)
            ran.sort(key=lambda one: plan.tasks.index(one.job))  # side by side they end in any order
            written = write_tables(plan, [*others, *ran])
    except Interrupted as stop:
        raise Interrupted(f"{stop}. The same command goes on", stop.signal_number) from None
    except KeyboardInterrupt:
        said = "stopped between two steps; what was over is kept. The same command goes on"
        raise Interrupted(said, SIGINT) from None
    for table in plan.tables:
        _show(plan, table, [*others, *ran])
    for path in written:
        out(f"written: {path}")
    out(f"total time now: {_duration(time.monotonic() - began)}")
    _refuse_failed(ran)


def _refuse_failed(ran: Sequence[Outcome]) -> None:
    failed = [outcome for outcome in ran if outcome.error]
    if failed:
        names = ", ".join(f"{outcome.job.row} ({outcome.job.seeds})" for outcome in failed)
        first = failed[0]
        raise RunError(f"{len(failed)} of {len(ran)} runs failed: {names}. {first.job.row}: {first.error}")


def _reported(plan: Plan, jobs: int, said: bool = True) -> Iterator[Outcome]:
    """Run the plan; unless another process has `said` so, say of every task that it starts, and how it ended."""
    number = 0

    def started(task: Task) -> None:
        nonlocal number
        number += 1
        if said:
            out(f"\n[{number}/{len(plan.tasks)}] {plan.paper.rows[task.row].title}, {task.seeds}")

    if jobs == 1:
        with TrainingReport(notes=False) as report:
            for outcome in run_plan(plan, report, started, lambda: progress(shown=True)):
                out(_ended(outcome))
                yield outcome
        return

    def heard(name: str, line: str) -> None:
        out(f"{name}  {line}")

    for outcome in run_side_by_side(plan, jobs, started, lambda: progress(shown=True), heard):
        if outcome.done_before or outcome.error or len(outcome.job.jobs) > 1:  # else its own process said so
            out(f"{label(plan, outcome.job)}  {_ended(outcome)}")
        yield outcome


def _ended(outcome: Outcome) -> str:
    if outcome.record is None:
        tried = isinstance(outcome.job, Measurement) and outcome.job.record.exists()
        kept = f" {outcome.job.record} says what was tried; without that file the row is tried again." if tried else ""
        return f"failed{' before' if outcome.done_before else ''}: {outcome.error}{kept}"
    valid, test = (outcome.record[split]["perplexity"] for split in ("valid", "test"))
    when = "finished before" if outcome.done_before else f"after {_duration(outcome.seconds)}"
    return f"valid ppl {valid:,.2f}, test ppl {test:,.2f} ({when})"


def _show(plan: Plan, table: Table, outcomes: Sequence[Outcome]) -> None:
    """Print a table as its page has it."""
    lines = summarise(outcomes, table, plan.paper)
    out(f"\n{table.title}")
    for line in protocol(plan, table, lines):
        paragraph(f"  {line.replace('**', '')}")
    for one in grids(table, lines, plan.paper):
        out(f"\n{one.caption}" if one.caption else "")
        grid(one.header, one.rows)
    for line in order_notes(table, lines, plan.paper):
        out()
        paragraph(line)


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
