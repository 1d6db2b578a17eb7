"""`spanlm attend` of a model with a span buffer: spans instead of words, and what each part expected."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from spanlm.analysis.attend import Excerpt
from spanlm.analysis.export import SPAN_SUFFIXES, checked_suffix, save_spans
from spanlm.cli.attend_options import CHECKS
from spanlm.cli.gate import gate_note
from spanlm.cli.terminal import note, out, table
from spanlm.errors import InputError
from spanlm.evaluation.attention import Expected
from spanlm.evaluation.spans import EXPECTED_OF_PART, PARTS, Look, SpanRecord, attend_spans
from spanlm.models.memories import SpanBufferConfig
from spanlm.runs.trained_model import TrainedModel

SHOWN = 8
"""Spans that are printed."""
CONTEXT = 16
"""Words before the next one that are printed."""


def check_spans(models: Sequence[TrainedModel], options: argparse.Namespace) -> None:
    """Refuse a sentence for a model that looks at spans of several words, and a file that spans cannot be written to.

    Raises:
        InputError: that.
    """
    if options.what not in CHECKS:
        if models[0].has_spans and options.out is not None:
            checked_suffix(options.out, SPAN_SUFFIXES)
        return
    for model in models:
        length, *_ = slots_of(model)
        if options.what == "--sentence" and length > 1:
            raise InputError(
                f"{options.what}: shows the weights of words, and {model.folder} looks at spans of {length}; "
                "--text, --file, --document and --from show those"
            )


def slots_of(model: TrainedModel) -> tuple[int, bool, int]:
    """Return how many words what it looks at stands for, whether on a fixed grid, and the lag of its nearest span."""
    memory = model.config.model.memory
    if isinstance(memory, SpanBufferConfig):
        return memory.stride, False, memory.nearest_lag
    return 1, False, 1


def show_spans(model: TrainedModel, text: Excerpt, options: argparse.Namespace) -> None:
    """Read words; write what was looked at from each, or print what was from the last."""
    how: dict[str, Any] = {"title": model.title(text.source), "opened": model.texts.predict_first}
    how |= {"first_token": text.first, "starts": text.starts, "expected": options.top or EXPECTED_OF_PART}
    record = attend_spans(model.model, model.vocabulary, text.words, **how)
    if options.out is None:
        assert model.gate_temperature is not None  # what has spans has a gate
        _print(record, model.gate_temperature)
    else:
        save_spans(record, options.out)
    for line in gate_note(model):
        note(line)


def _print(record: SpanRecord, temperature: float) -> None:
    """Print the last position: after what, where it looked, and what came to mind."""
    last = len(record.words) - 1
    out(record.title)
    read = record.words[max(last + 1 - CONTEXT, 0) :]
    rows = [
        ("after", " ".join(["…"] * (last + 1 > CONTEXT) + read)),
        ("came", record.targets[last]),
    ]
    if record.filled[last]:
        shares = f"λ {record.gate[last]:.3f}, used as {record.used[last]:.3f} (T {temperature:g})"
        rows.append(("gate", f"{shares}: the {_preferred(record, last)} is preferred"))
        rows.append(("buffer alone", _listed(record, "buffer")))
    table([*rows, ("encoder alone", _listed(record, "encoder")), ("both", _listed(record, "mixture"))])
    looks = record.looks(last)
    if not looks:
        out("it looked at nothing: no span has passed yet")
        return
    out()
    what = f"{len(looks)} {'word' if record.span == 1 else 'span'}{'s' if len(looks) > 1 else ''}"
    out(f"it looked at {what}{f'; the {SHOWN} with the largest weights' if len(looks) > SHOWN else ''}:")
    for look in looks[:SHOWN]:
        out(f"  {look.weight:6.1%}  {_place(record, look)}  {record.words_of(look)}")


def _preferred(record: SpanRecord, position: int) -> str:
    return "buffer" if record.gate[position] >= 0.5 else "encoder"


def _place(record: SpanRecord, look: Look) -> str:
    """Number its words as the text does."""
    first, last = look.first + record.first_token, look.last + record.first_token
    return f"{last:>6}" if record.span == 1 else f"{first:>6}–{last:<6}"


def _listed(record: SpanRecord, part: str) -> str:
    """Say what a part expected at the last position, and what it gave the word that came."""
    expected: Expected = getattr(record, part)[-1]
    came = f'"{record.targets[-1]}" {record.chance[-1, PARTS.index(part)]:.3f}'
    return f"{', '.join(f'{word} {chance:.3f}' for word, chance in expected)}; {came}"
