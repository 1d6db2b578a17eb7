"""Another temperature of a span buffer's gate than the run has: the option of several verbs, and what is told of it."""

from __future__ import annotations

import argparse
from typing import Any, TypeVar

from spanlm.cli.main import VerbParser
from spanlm.errors import InputError
from spanlm.models.memories import SpanBufferConfig
from spanlm.models.memories.span_buffer import require_temperature
from spanlm.runs.ensemble import TrainedEnsemble
from spanlm.runs.gate import TemperedModel
from spanlm.runs.trained_model import LoadedModel, TrainedModel

GATE = "--gate-temperature"


def add_gate(parser: VerbParser) -> None:
    """Add the option."""
    parser.add_argument(
        GATE,
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


def tempered(model: LoadedT, options: argparse.Namespace) -> LoadedT | TemperedModel:
    """Return the model with the gate that is asked for.

    Raises:
        InputError: it has no gate.
    """
    given = options.gate_temperature
    if given is None:
        return model
    assert isinstance(model, TrainedModel)  # `check_gate` refuses several
    return TemperedModel(model, given, GATE)


def gate_rows(model: LoadedModel) -> list[tuple[str, str]]:
    """Say the temperature that is used, where there is one gate."""
    used = _used(model)
    if used is None:
        return []
    instead = f" in place of the run's {model.own:g}" if isinstance(model, TemperedModel) else ""
    return [("gate's T", f"{used:g}{instead}")]


def gate_note(model: LoadedModel) -> list[str]:
    """Say that it is not the run's, beside output that has no place for it."""
    return [f"note: {name}: {line}" for name, line in gate_rows(model) if isinstance(model, TemperedModel)]


def gate_fields(model: LoadedModel) -> dict[str, Any]:
    """Return what JSON says of it."""
    used = _used(model)
    return {} if used is None else {"gate_temperature": used}


def _used(model: LoadedModel) -> float | None:
    memory = model.config.model.memory
    if isinstance(model, TrainedEnsemble) or not isinstance(memory, SpanBufferConfig):
        return None
    return memory.gate.evaluation_temperature
