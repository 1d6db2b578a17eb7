"""A table as a page of Markdown: what was run, the grids, the order, what failed, and what made it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta
from pathlib import Path

from spanlm.reproduction.grids import Grid, grids, order_note
from spanlm.reproduction.plan import Plan
from spanlm.reproduction.run import Outcome
from spanlm.reproduction.summary import RowSummary, several, summarise
from spanlm.reproduction.tables import TITLES, Table


def markdown_page(plan: Plan, table: Table, outcomes: Sequence[Outcome], figure: str | None) -> str:
    """Return the page of a table.

    Args:
        plan: what was run.
        table: which table.
        outcomes: of all jobs that have ended so far.
        figure: the file of its figure, beside the page.
    """
    rows = summarise(outcomes, table.rows)
    paper = plan.request.paper
    parts = [
        f"# {plan.jobs[0].preset.paper}, {table.title}",
        "\n".join(f"* {line}" for line in protocol(plan, table, rows)),
        *map(markdown_grid, grids(table, rows, paper)),
        order_note(rows, paper) if table.measure == "perplexity" else "",
        f"![{table.title}]({figure})" if figure else "",
        _missing(plan, table, rows),
        _origin(plan, table, rows),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def protocol(plan: Plan, table: Table, rows: Sequence[RowSummary]) -> list[str]:
    """Say what was run, on what, and how it was counted, in lines."""
    corpus, jobs = plan.corpus, plan.jobs_of(table)
    published = plan.scale.as_published(len(corpus.vocabulary))
    sizes = ", ".join(f"{split} {len(tokens):,}" for split, tokens in corpus.splits.items())
    vocabulary = len(corpus.vocabulary)
    lines = [
        f"Corpus: **{corpus.name}** ({sizes} tokens; vocabulary {vocabulary:,}). The paper's numbers are those of its "
        "own corpus, 7,500 Wikipedia articles with 77,000 words: compare orders and differences, not values.",
        *(f"Corpus: {note}." for note in corpus.notes),
        _sizes(plan),
        _recipe(plan, table),
    ]
    evaluated = [row.records[0]["test"]["protocol"] for row in rows if row.records]
    if evaluated:
        lines.append(f"Perplexity: exp(NLL / token); {evaluated[0]}. The best epoch is that of the best validation.")
    lines.append(_seeds(rows))
    if table.remark:
        lines.append(f"Note: {table.remark}.")
    lines += [f"{TITLES[job.row]}: {job.preset.remark}." for job in jobs if job.preset.remark and published]
    return lines


def markdown_grid(grid: Grid) -> str:
    """Return a grid as a Markdown table under its caption."""

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    rule = line(["---", *["---:"] * (len(grid.header) - 1)])
    table = "\n".join([line(grid.header), rule, *map(line, grid.rows)])
    return f"**{grid.caption}**\n\n{table}" if grid.caption else table


def _sizes(plan: Plan) -> str:
    scale, vocabulary = plan.scale, len(plan.corpus.vocabulary)
    if scale.as_published(vocabulary):
        return "Sizes: the paper's own."
    return (
        f"Sizes (scale {scale.name}): embedding {scale.units}; hidden sizes chosen so that θ_M, the parameters without "
        f"word representations, is that of a {scale.units}-unit LSTM (RM: {scale.units} units and, as in the paper, "
        f"more parameters). V / units is {vocabulary / scale.units:.0f}; the paper's is 257."
    )


def _recipe(plan: Plan, table: Table) -> str:
    training = plan.jobs_of(table)[0].config.training
    optimizer, batching = training.optimizer, training.batching
    return (
        f"Recipe: {optimizer.kind}, learning rate {optimizer.lr:g}, {batching.batch_size} streams × {batching.length} "
        f"steps, gradient norm at most {optimizer.clip:g}, weights start in ±{plan.scale.init_range:g}, no dropout, at "
        f"most {several(training.epochs, 'epoch')}, patience {training.patience}, products in {training.precision}."
    )


def _seeds(rows: Sequence[RowSummary]) -> str:
    seeds = sorted({record["seed"] for row in rows for record in row.records})
    spread = any(len(row.records) > 1 for row in rows)
    return f"Seeds: {', '.join(map(str, seeds))}{'; means, with the least and the greatest' if spread else ''}."


def _missing(plan: Plan, table: Table, rows: Sequence[RowSummary]) -> str:
    lines = [f"* {TITLES[row.row]}: **failed**: {error}" for row in rows for error in row.errors]
    ended = {row.row for row in rows}
    asked = {job.row for job in plan.jobs}
    lines += [f"* {TITLES[row]}: not run yet" for row in table.rows if row in asked - ended]
    left_out = [TITLES[row] for row in table.rows if row not in asked | ended]
    lines += [f"* not asked for: {', '.join(left_out)}"] if left_out else []
    return "Missing:\n\n" + "\n".join(lines) if lines else ""


def command(plan: Plan, table: Table, shown: Collection[str]) -> str:
    """Return the command that makes a table of a plan with the rows that are shown."""
    request = plan.request
    words = ["spanlm", "reproduce", request.paper, "--table", table.name]
    words += ["--corpus", Path(request.corpus or plan.corpus.name).name, "--scale", request.scale]
    if request.rows:
        words += ["--rows", *(row for row in table.rows if row in shown)]
    if request.seeds != (1,):
        words += ["--seeds", *map(str, request.seeds)]
    if request.questions and table.measure == "cloze":
        words += ["--questions", *(path.name for path in request.questions)]
    words += ["--precision", request.precision] if request.precision else []
    words += ["--device", request.device] if request.device != "auto" else []
    return shlex.join(words)


def _origin(plan: Plan, table: Table, rows: Sequence[RowSummary]) -> str:
    """Say what made the runs: command, time, commits, machines; the records have every start."""
    records = [record for row in rows for record in row.records]
    if not records:
        return ""
    seconds = sum(record["training_seconds"] for record in records)
    starts = [start for record in records for start in record["starts"]]
    commits = sorted({f"{s['commit'][:10]}{' (changed)' if s['changed'] else ''}" for s in starts if s["commit"]})
    machines = sorted(
        {f"{s['processor']}, {s['threads']} thread(s), {s['device']}, torch {s['torch']}" for s in starts}
    )
    lines = [f"Made again by `{command(plan, table, {row.row for row in rows})}`."]
    lines += [
        f"Training time of {several(len(records), 'run')}: {timedelta(seconds=round(seconds))}, validation left out."
    ]
    lines += [f"Code: commit {', '.join(commits)}."] if commits else ["Code: not from a checkout; no commit known."]
    lines += [f"Machine: {'; '.join(machines)}."] if machines else []
    return "\n".join(f"* {line}" for line in lines)
