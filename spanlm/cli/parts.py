"""What the two parts of a model with a span buffer are worth alone, beside what `spanlm evaluate` says of the model."""

from __future__ import annotations

import argparse

from spanlm.cli.main import VerbParser
from spanlm.errors import InputError
from spanlm.evaluation.parts import require_span_buffer
from spanlm.evaluation.perplexity import Evaluation
from spanlm.evaluation.scoring import shown
from spanlm.runs.trained_model import LoadedModel

PARTS = "--parts"


def add_parts(parser: VerbParser) -> None:
    """Add the option."""
    parser.add_argument(
        PARTS,
        action="store_true",
        help="of a model with a span buffer: what the encoder and the buffer are worth alone, and how much it is used",
    )


def check_parts(options: argparse.Namespace, runs: int) -> None:
    """Refuse what has no two parts, before anything is loaded.

    Raises:
        InputError: several runs, or a cache.
    """
    if options.parts and runs > 1:
        raise InputError(f"{PARTS}: is for one run; take each of the {runs} apart by itself")
    if options.parts and options.cache is not None:
        raise InputError(f"{PARTS} and --cache do not go together: measure the one, then the other")


def check_has_parts(options: argparse.Namespace, model: LoadedModel) -> None:
    """Refuse a model without a span buffer, before it reads anything.

    Raises:
        InputError: it has none.
    """
    if options.parts:
        require_span_buffer(model.config.model.memory, PARTS)


def parts_rows(result: Evaluation, options: argparse.Namespace) -> list[tuple[str, str]]:
    """Say what each part predicts alone, what is left of it with the best choice, and what the gate chooses."""
    parts = result.parts
    if parts is None or not options.parts:
        return []
    nothing = result.tokens - parts.remembering
    instead = f"; at {nothing:,} tokens nothing is remembered: there it is the encoder" if nothing else ""
    rows = [
        ("encoder alone", shown(parts.encoder)),
        ("buffer alone", f"{shown(parts.buffer)}{instead}"),
        ("oracle bound", f"{shown(parts.oracle)}: at each token the better of the two, chosen after the fact;"),
        ("", "no model's perplexity"),
    ]
    if parts.utilisation is None or parts.oracle_utilisation is None:
        return rows
    return [
        *rows,
        ("PoU", f"{parts.utilisation:.2%} of {parts.remembering:,} tokens: the gate prefers the buffer (a share ≥ ½)"),
        ("oracle PoU", f"{parts.oracle_utilisation:.2%}: the buffer gives the token more"),
        ("gate", f"buffer's share {parts.gate:.3f} before the temperature (mean); mean reward {parts.reward:.3f}"),
    ]
