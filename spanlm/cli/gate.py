"""Another temperature of a span buffer's gate than the run has: the option of several verbs, and its output."""

from __future__ import annotations

import argparse
from typing import Any, TypeVar

from spanlm.cli.main import VerbParser
from spanlm.cli.options import refusing_options
from spanlm.errors import InputError
from spanlm.models.memories.span_buffer import require_temperature
from spanlm.runs.trained_model import LoadedModel, TrainedModel

GATE = "--gate-temperature"


def add_gate(parser: VerbParser) -> None:
    """Add the option."""
    parser.add_argument(
        GATE,
        rare=True,
        type=float,
        metavar="T",
        help="of a model with a span buffer: the gate's temperature (default: the run's "
        "model.memory.gate.evaluation_temperature)",
    )


def check_gate(options: argparse.Namespace, runs: int) -> None:
    """Refuse what has no gate, or is no temperature, before anything is loaded.

    Raises:
        InputError: several runs; below 1e-6, or not finite.
    """
    if options.gate_temperature is None:
        return
    if runs > 1:
        raise InputError(f"{GATE}: is for one run; each of the {runs} has a gate of its own")
    require_temperature(options.gate_temperature, GATE)


LoadedT = TypeVar("LoadedT", bound=LoadedModel)


def tempered(model: LoadedT, options: argparse.Namespace) -> LoadedT | TrainedModel:
    """Return the model with the gate that is asked for.

    Raises:
        InputError: it has no gate.
    """
    if options.gate_temperature is None:
        return model
    assert isinstance(model, TrainedModel)  # `check_gate` refuses several
    with refusing_options({"gate_temperature": GATE}):
        return model.at_gate_temperature(options.gate_temperature)


def gate_rows(model: LoadedModel) -> list[tuple[str, str]]:
    """Return a row with the temperature that is used, where there is one gate."""
    if not isinstance(model, TrainedModel) or model.gate_temperature is None:
        return []
    used, own = model.gate_temperature, model.own_gate_temperature
    return [("gate's T", f"{used:g}" if used == own else f"{used:g} in place of the run's {own:g}")]


def gate_note(model: LoadedModel) -> list[str]:
    """Return a note that it is not the run's, for output that has no place for it."""
    if not isinstance(model, TrainedModel) or model.gate_temperature == model.own_gate_temperature:
        return []
    return [f"note: {name}: {line}" for name, line in gate_rows(model)]


def gate_fields(model: LoadedModel) -> dict[str, Any]:
    """Return the temperature for JSON."""
    used = model.gate_temperature if isinstance(model, TrainedModel) else None
    return {} if used is None else {"gate_temperature": used}
