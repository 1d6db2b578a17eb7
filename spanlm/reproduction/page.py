"""A table as a page of Markdown: what was run, the grids, the order, what failed, and what made it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import timedelta
from pathlib import Path

from spanlm.reproduction.grid import Grid
from spanlm.reproduction.grids import grids, order_notes
from spanlm.reproduction.plan import Plan
from spanlm.reproduction.run import Outcome
from spanlm.reproduction.summary import RowSummary, summarise
from spanlm.reproduction.tables import Plain, Table
from spanlm.reproduction.tasks import Job
from spanlm.reproduction.wording import several
from spanlm.store.plain import markdown, markdown_table


def markdown_page(
    plan: Plan, table: Table, outcomes: Sequence[Outcome], figure: str | None, by_epoch: str | None = None
) -> str:
    """Return the page of a table.

    Args:
        plan: what was run.
        table: which table.
        outcomes: of all jobs that have ended so far.
        figure: the file of its figure, beside the page.
        by_epoch: the file of the figure of its span buffers' use.
    """
    rows = summarise(outcomes, table.rows)
    paper = plan.request.paper
    parts = [
        f"# {plan.paper.title}, {table.title}",
        "\n".join(f"* {line}" for line in protocol(plan, table, rows)),
        *map(markdown_grid, grids(table, rows, paper)),
        *order_notes(table, rows, paper),
        f"![{table.title}]({figure})" if figure else "",
        f"![Figure 4: use of the span buffer by epoch]({by_epoch})" if by_epoch else "",
        _missing(plan, table, rows),
        _origin(plan, table, rows),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def protocol(plan: Plan, table: Table, rows: Sequence[RowSummary]) -> list[str]:
    """Say what was run, on what, and how it was counted, in lines."""
    corpus, jobs = plan.corpus, plan.jobs_of(table)
    remarked = plan.scale.remarks_hold(len(corpus.vocabulary))
    lines = [
        _corpus(plan, table),
        *dict.fromkeys(f"Corpus: {markdown(note)}." for text in plan.texts.values() for note in text.notes),
        *plan.scale.describe([job.config for job in jobs], len(corpus.vocabulary)),
    ]
    if counted := _counted(plan, rows):
        said = "; or: ".join(counted)
        lines.append(f"Perplexity: exp(NLL / token); {said}. The best epoch is that of the best validation.")
    lines.append(_seeds(rows))
    starts = [start for row in rows for record in row.records for start in record["starts"]]
    if {start.get("precision", plan.scale.precision) for start in starts} - {plan.scale.precision}:
        lines.append("Not in bf16 throughout: a processor cannot train an LSTM in it, so fp32 was used.")
    if table.remark:
        lines.append(f"Note: {table.remark}.")
    return lines + (_remarks(plan, jobs) if remarked else [])


def _remarks(plan: Plan, jobs: Sequence[Job]) -> list[str]:
    """What is to be said of the rows' presets, each thing once."""
    titles: dict[str, dict[str, None]] = {}
    for job in jobs:
        if job.preset.remark:
            titles.setdefault(job.preset.remark, {})[plan.paper.rows[job.row].title] = None
    return [f"{'; '.join(rows)}: {remark}." for remark, rows in titles.items()]


def _corpus(plan: Plan, table: Table) -> str:
    corpus = plan.corpus
    sizes = ", ".join(f"{split} {len(tokens):,}" for split, tokens in corpus.splits.items())
    said = f"Corpus: **{markdown(corpus.name)}** ({sizes} tokens; vocabulary {len(corpus.vocabulary):,})."
    if table.home == corpus.name and plan.scale.vocabulary_size is None:
        return f"{said} It is the paper's own."
    return f"{said} The paper's numbers are those of {table.published_on}: compare orders and differences, not values."


def _counted(plan: Plan, rows: Sequence[RowSummary]) -> list[str]:
    """Return how the plain rows' perplexities were counted, each way once; what a cache adds is said with it."""
    plain = (row for row in rows if row.records and isinstance(plan.paper.rows[row.row].how, Plain))
    return list(dict.fromkeys(row.records[0]["test"]["protocol"] for row in plain))


def markdown_grid(grid: Grid) -> str:
    """Return a grid as a Markdown table under its caption."""
    table = markdown_table(grid.header, grid.rows)
    return f"**{grid.caption}**\n\n{table}" if grid.caption else table


def _seeds(rows: Sequence[RowSummary]) -> str:
    seeds = sorted({seed for row in rows for seeds in row.seeds for seed in seeds})
    spread = any(len(row.records) > 1 for row in rows)
    return f"Seeds: {', '.join(map(str, seeds))}{'; means, with the least and the greatest' if spread else ''}."


def _missing(plan: Plan, table: Table, rows: Sequence[RowSummary]) -> str:
    titles = _told_apart({row: plan.paper.rows[row].title for row in table.rows})
    lines = [f"* {titles[row.row]}: **failed**: {markdown(error)}" for row in rows for error in row.errors]
    ended = {row.row for row in rows}
    asked = {task.row for task in plan.tasks}
    lines += [f"* {titles[row]}: not run yet" for row in table.rows if row in asked - ended]
    left_out = [row for row in table.rows if row in plan.left_out and row not in ended]
    lines += [f"* {titles[row]}: left out: {plan.left_out[row]}" for row in left_out]
    others = [titles[row] for row in table.rows if row not in asked | ended | plan.left_out.keys()]
    lines += [f"* not asked for: {', '.join(others)}"] if others else []
    return "Missing:\n\n" + "\n".join(lines) if lines else ""


def _told_apart(titles: dict[str, str]) -> dict[str, str]:
    """Add a row's name where several have its title: they differ in how they are evaluated."""
    shown = Counter(titles.values())
    return {row: title if shown[title] == 1 else f"{title} (`{row}`)" for row, title in titles.items()}


def commands(plan: Plan, table: Table, rows: Sequence[RowSummary]) -> list[str]:
    """Return what makes the rows that are shown, each with the seeds that it has of those that were asked for."""
    asked = set(plan.request.seeds)
    alike: dict[tuple[int, ...], list[str]] = {}
    for row in rows:
        has = {seed for seeds in row.seeds for seed in seeds} & asked
        of_many = any(len(seeds) > 1 for seeds in row.seeds)  # an ensemble, which says itself what it needs
        alike.setdefault(tuple(sorted(asked if of_many or not has else has)), []).append(row.row)
    return [command(plan, table, shown, seeds, every=len(alike) == 1) for seeds, shown in alike.items()]


def command(plan: Plan, table: Table, shown: Collection[str], seeds: Sequence[int], *, every: bool = True) -> str:
    """Return the command that makes rows of a table.

    Args:
        plan: what was asked for.
        table: of the plan.
        shown: the rows.
        seeds: of each.
        every: these are all that the plan has rows for; they are named only if the request named some.
    """
    request = plan.request
    words = ["spanlm", "reproduce", request.paper, "--table", table.name]
    words += ["--corpus", Path(request.corpus or plan.corpus.name).name, "--scale", request.scale]
    if request.rows or not every:
        words += ["--rows", *(row for row in table.rows if row in shown)]
    if tuple(seeds) != (1,):
        words += ["--seeds", *map(str, seeds)]
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
    trained = [record for record in records if "training_seconds" in record]
    seconds = sum(record["training_seconds"] for record in trained)
    starts = [start for record in records for start in record["starts"]]
    commits = sorted({f"{s['commit'][:10]}{' (changed)' if s['changed'] else ''}" for s in starts if s["commit"]})
    machines = sorted(
        {f"{s['processor']}, {s['threads']} thread(s), {s['device']}, torch {s['torch']}" for s in starts}
    )
    lines = [f"Made again by {' and '.join(f'`{line}`' for line in commands(plan, table, rows))}."]
    lines += [
        f"Training time of {several(len(trained), 'run')}: {timedelta(seconds=round(seconds))}, validation left out."
    ]
    lines += [f"Code: commit {', '.join(commits)}."] if commits else ["Code: not from a checkout; no commit known."]
    lines += [f"Machine: {'; '.join(machines)}."] if machines else []
    return "\n".join(f"* {line}" for line in lines)
