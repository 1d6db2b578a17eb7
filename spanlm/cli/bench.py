"""`spanlm bench`."""

from __future__ import annotations

import json

from rich.table import Table

from spanlm.benchmark.measure import Compared, Measured, Report, benchmark
from spanlm.cli.allocation import keep_freed_memory
from spanlm.cli.arguments import add_device, verb_parser
from spanlm.cli.terminal import console, note, out

_DESCRIPTION = """
Speed on this machine. What is compared takes turns on the same random tokens: training steps with those of a textbook
(embedding, nn.LSTM, linear, cross-entropy) and of ports of published code, a memory with the same model without it, a
cache and dynamic evaluation with the evaluation that they need anyway. Medians are shown, how much of a large matrix
product's speed they reach, and the memory that a step takes. Some five minutes on two quiet CPU cores; fewer --rounds
take less.
"""


def run(arguments: list[str]) -> None:
    """Measure."""
    keep_freed_memory()
    parser = verb_parser("bench", _DESCRIPTION)
    add_device(parser)
    parser.add_argument("--rounds", type=int, default=15, help="steps of each; the median counts (default 15)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds={options.rounds}: must be at least 1")
    report = benchmark(options.device, options.rounds, lambda text: note(f"measuring: {text}"))
    if options.json:
        out(json.dumps(report.to_json(), indent=1, ensure_ascii=False))
    else:
        _show(report)


def _show(report: Report) -> None:
    out(", ".join(f"{name} {value}" for name, value in report.started.items() if name != "command"))
    out("matrix product: " + ", ".join(f"{name} {value:,.0f} GFLOP/s" for name, value in report.ceiling.items()))
    for name, measured in report.groups.items():
        out()
        console().print(_table(name, measured))


def _table(name: str, measured: list[Measured]) -> Table:
    table = Table(title=name, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("step")
    for column in ("ms", "tokens/s", "of ceiling", "step MB"):
        table.add_column(column, justify="right")
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
