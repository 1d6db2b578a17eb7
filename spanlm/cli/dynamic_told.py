"""What `spanlm evaluate` tells of dynamic evaluation: what it changed, and how its rates were chosen."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from spanlm.cli.dynamic import DynamicChoice
from spanlm.cli.tuning import both_counts, tuned_rows
from spanlm.evaluation.dynamic_tuning import DynamicTuning
from spanlm.evaluation.grid_edge import edge_note
from spanlm.evaluation.perplexity import Evaluation


def dynamic_fields(choice: DynamicChoice | None) -> dict[str, Any]:
    """Return what JSON says of dynamic evaluation."""
    if choice is None:
        return {}
    config = {**choice.config.to_json(), "sum_convention": choice.first_release}
    found = {"dynamic": config, "dynamic_statistics": choice.statistics.to_json()}
    if choice.tuning is None or choice.log is None:
        return found
    return {**found, "tuning": {**choice.tuning.to_json(), "read_before": choice.log.before}}


def dynamic_rows(result: Evaluation, choice: DynamicChoice | None) -> list[tuple[str, str]]:
    """Say what following the text changed, of what the statistics are, and how η and λ were chosen."""
    if choice is None or result.without_dynamic is None:
        return []
    rows = [
        ("without dynamic", both_counts(result.without_dynamic)),
        ("statistics", f"{choice.statistics.description}; {choice.statistics.origin}"),
    ]
    if choice.sum_convention:
        given = choice.first_release
        rows.append(
            ("convention", f"sum: η {given['rate']:.3g}, λ {given['decay']:.3g}, ε {given['epsilon']:.3g} as given")
        )
    if choice.tuning is None:
        return rows
    told = replace(choice.tuning, notes=_notes(choice, choice.tuning))
    return [*rows, *tuned_rows(result, told, _chosen(told)), *_resumed_rows(choice)]


def _resumed_rows(choice: DynamicChoice) -> list[tuple[str, str]]:
    """Say what was not read now."""
    count = 0 if choice.log is None else choice.log.before
    were = "1 reading is that" if count == 1 else f"{count} readings are those"
    return [("resumed", f"{were} of a search that was stopped")] if count else []


def _notes(choice: DynamicChoice, tuning: DynamicTuning) -> list[str]:
    """Say of a best value on the edge of the grid which ones to try next, as they are given as options."""
    notes = list(tuning.notes)
    for name, most in (("rate", math.inf), ("decay", 1.0)):
        best, tried = getattr(tuning.best, name), [getattr(point, name) for point in tuning.grid]
        noted = edge_note(f"dynamic.{name}", best, tried)
        if noted in notes:
            given = choice.first_release[name] / best if choice.sum_convention else 1.0
            beyond = [best * factor for factor in ((1, 2, 4) if best == max(tried) else (1, 0.5, 0.25))]
            values = " ".join(f"{value * given:.3g}" for value in beyond if value <= most)
            said = edge_note(f"--dynamic-{name}", best * given, [value * given for value in tried])
            notes[notes.index(noted)] = f"{said} Try --dynamic-{name} {values}" if " " in values else said
    return notes


def _chosen(tuning: DynamicTuning) -> str:
    read = [point for point in tuning.grid if point.whole]
    how = "" if len(read) == len(tuning.grid) else f", {len(read)} of them on all of it"
    return f"η {tuning.best.rate:.3g}, λ {tuning.best.decay:.3g} of {len(tuning.grid)} pairs{how}"
