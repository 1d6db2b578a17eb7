"""`spanlm attend` of a model with a span buffer: spans instead of words, and what each part expected."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from spanlm.analysis.reading import Expected
from spanlm.analysis.span_export import check_spans_path, save_spans
from spanlm.analysis.spans import SpanRecord, attend_spans
from spanlm.cli.terminal import out, table
from spanlm.errors import InputError
from spanlm.files import run_name
from spanlm.models.memories import SpanBufferConfig
from spanlm.trained import TrainedModel

SHOWN = 8
"""Spans that are printed."""
CONTEXT = 16
"""Words before the next one that are printed."""


def has_spans(model: TrainedModel) -> bool:
    """Say whether a model has a span buffer."""
    return isinstance(model.config.model.memory, SpanBufferConfig)


def check_spans(models: Sequence[TrainedModel], options: argparse.Namespace) -> None:
    """Refuse what is told of single words for a model that looks at spans of several.

    Raises:
        InputError: by lag, flatness or a sentence; or a file that cannot be written.
    """
    asked = {"--by-lag": options.by_lag, "--flatness": options.flatness, "--sentence": options.sentence is not None}
    for name, there in asked.items():
        for model in models:
            memory = model.config.model.memory
            if there and isinstance(memory, SpanBufferConfig) and memory.stride > 1:
                raise InputError(
                    f"{name}: shows the weights of words, and {model.folder} looks at spans of {memory.stride}; "
                    "--text, --file, --document and --from show those"
                )
    if not any(asked.values()) and has_spans(models[0]) and options.out is not None:
        check_spans_path(options.out)


def show_spans(model: TrainedModel, targets: list[str], source: str, options: argparse.Namespace) -> None:
    """Read words; write what was looked at from each, or print what was from the last."""
    title = f"{run_name(model.folder)}, {model.config.model.memory.description}{source}"
    opened = model.config.training.batching.predict_first
    record = attend_spans(model.model, model.vocabulary, targets, title=title, opened=opened)
    if options.out is None:
        _print(record)
    else:
        save_spans(record, options.out)


def _print(record: SpanRecord) -> None:
    """Print the last position: after what, where it looked, and what came to mind."""
    last = len(record.words) - 1
    out(record.title)
    read = record.words[max(last + 1 - CONTEXT, 0) :]
    rows = [
        ("after", " ".join(["…"] * (last + 1 > CONTEXT) + read)),
        ("came", record.targets[last]),
    ]
    if record.filled[last]:
        rows.append(("gate", f"λ {record.gate[last]:.3f}: the {_preferred(record, last)} is preferred"))
        rows.append(("buffer alone", _listed(record.buffer[last])))
    rows += [("encoder alone", _listed(record.encoder[last])), ("both", _listed(record.mixture[last]))]
    table(rows)
    looks = record.looks(last)
    if not looks:
        out("it looked at nothing: no span has passed yet")
        return
    out()
    out(
        f"it looked at {len(looks)} spans" + (f"; the {SHOWN} with the largest weights:" if len(looks) > SHOWN else ":")
    )
    for look in looks[:SHOWN]:
        out(f"  {look.weight:6.1%}  {look.first:>6}–{look.last:<6}  {record.words_of(look)}")


def _preferred(record: SpanRecord, position: int) -> str:
    return "buffer" if record.gate[position] >= 0.5 else "encoder"


def _listed(expected: Expected) -> str:
    return ", ".join(f"{word} {chance:.3f}" for word, chance in expected)
