"""The tables of `spanlm bench`."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from spanlm.benchmark.measure import Compared, Measured, Report
from spanlm.benchmark.operations import WatchedStep
from spanlm.benchmark.recipe import TimedTraining, TrainingReport
from spanlm.cli.terminal import columns, console, out


def _show_started(started: dict[str, Any]) -> None:
    out(", ".join(f"{name} {value}" for name, value in started.items() if name != "command"))


def show_trainings(report: TrainingReport) -> None:
    """Print how fast configurations train."""
    _show_started(report.started)
    for name, training in report.trainings.items():
        out()
        console().print(_speeds_table(name, training))
        for speed in training.speeds:
            if speed.watched is not None:
                out()
                console().print(_operations_table(speed.precision, speed.watched))


def _speeds_table(name: str, training: TimedTraining) -> Table:
    table = columns(
        ["training"],
        ["ms a step", "tokens/s", "step MB", "an epoch", "its validation"],
        f"{name} on {training.corpus}: V {training.vocabulary_size:,}, {training.epoch_tokens:,} tokens an epoch, "
        f"{training.parameters:,} parameters",
    )
    for speed in training.speeds:
        table.add_row(
            speed.precision,
            f"{speed.milliseconds:,.1f}",
            f"{speed.tokens_per_second:,.0f}",
            _megabytes(speed.step_megabytes),
            f"{speed.epoch_seconds:,.1f} s",
            f"{speed.validation_seconds:,.1f} s",
        )
    return table


def _operations_table(precision: str, step: WatchedStep) -> Table:
    """Rows that add up to the whole step."""
    title = f"a step in {precision}, watched: {step.milliseconds:,.1f} ms"
    table = columns(["operation"], ["calls", "ms", "of the step"], title)
    told = sum(one.milliseconds for one in step.operations) + step.other_milliseconds
    rows = [(one.name, f"{one.calls:,.1f}", one.milliseconds) for one in step.operations]
    if step.other_operations:
        rows.append((f"{step.other_operations} other operations", "", step.other_milliseconds))
    rows.append(("Python, waiting", "", max(0.0, step.milliseconds - told)))
    for operation, calls, spent in rows:
        table.add_row(operation, calls, f"{spent:,.1f}", f"{spent / step.milliseconds:.0%}")
    return table


def show_comparisons(report: Report) -> None:
    """Print what was compared."""
    _show_started(report.started)
    out("matrix product: " + ", ".join(f"{name} {value:,.0f} GFLOP/s" for name, value in report.ceiling.items()))
    for name, measured in report.groups.items():
        out()
        console().print(_table(name, measured))


def _table(name: str, measured: list[Measured]) -> Table:
    table = columns(["step"], ["ms", "tokens/s", "of ceiling", "step MB"], name)
    table.add_column("compared (target)")
    for m in measured:
        table.add_row(
            m.name,
            f"{m.milliseconds:,.1f}",
            f"{m.tokens_per_second:,.0f}",
            f"{m.of_ceiling:.0%}",
            _megabytes(m.step_megabytes),
            "\n".join(map(_compared, m.compared)),
        )
    return table


def _megabytes(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _compared(found: Compared) -> str:
    """Say how a contender compares: `1.62× the speed of port, training fp32 (at least 1.50 ✓)`."""
    if found.ratio is None:
        return f"{found.what} beside {found.reference}: unknown"
    said = f"{found.ratio:.2f}× the {found.what} of {found.reference}"
    if found.target is None:
        return said
    bound = "at least" if found.what == "speed" else "at most"
    return f"{said} ({bound} {found.target:.2f} {'✓' if found.reached else '✗'})"
