"""Maps of sentences as files: what to look at (.svg, .png) and what to compute with (.csv, .json)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from spanlm.analysis.figure_files import drawn
from spanlm.analysis.files import checked_suffix, csv_bytes, json_bytes, write_whole
from spanlm.analysis.flatness import Flatness, FlatnessRow
from spanlm.analysis.sentence_map import SentenceMap, mean_flatness
from spanlm.analysis.triangle_figure import triangle_figure

Sentences = Sequence[Sequence[SentenceMap]]
"""For each sentence the maps of the models, in one order."""

CSV_COLUMNS = (
    *("sentence", "run", "position", "target", "surprisal_nats"),
    *("lag", "source_position", "source_word", "source_unknown", "weight"),
)
FLATNESS_COLUMNS = ("run", "text", "span", *FlatnessRow._fields)

Measured = dict[str, tuple[str, Flatness]]
"""For each model, by name, the text it read and how flat its attention was."""


def save_sentence_maps(sentences: Sentences, path: str | os.PathLike[str]) -> None:
    """Write maps of sentences as the suffix of `path` says.

    * `.svg`, `.png`: triangles, a panel for each sentence and model; `.png` needs matplotlib.
    * `.csv`: one row for each weight of each panel. Sentences count from 1, positions from 0, the opening `<eos>`.
    * `.json`: the same, with the flatness of each panel and of each model.

    Raises:
        InputError: If the suffix is unknown, the folder is missing or closed, or matplotlib is missing.
        RunError: If writing fails.
    """
    path = Path(path)
    render = _SENTENCES[checked_suffix(path, SENTENCE_SUFFIXES)]
    write_whole(path, render(sentences))


def save_flatness(measured: Measured, path: str | os.PathLike[str]) -> None:
    """Write the flatness of models, each with its text, as `.csv` (a row for each model and group) or `.json`.

    Raises:
        InputError: If the suffix is unknown, or the folder is missing or closed.
        RunError: If writing fails.
    """
    path = Path(path)
    render = _FLATNESS[checked_suffix(path, FLATNESS_SUFFIXES)]
    write_whole(path, render(measured))


def _sentences_csv(sentences: Sentences) -> bytes:
    rows = (
        (number, one.name, *cell)
        for number, maps in enumerate(sentences, start=1)
        for one in maps
        for cell in _weights(one)
    )
    return csv_bytes([CSV_COLUMNS, *rows])


def _weights(one: SentenceMap) -> Iterator[tuple[object, ...]]:
    record = one.record
    for t, (target, surprisal) in enumerate(zip(record.targets, record.surprisal.tolist(), strict=True)):
        end = t + 1 - record.nearest_lag
        for s in range(end - int(one.slots[t]), end):
            source = record.words[s]
            # the shortest decimal that reads back as the same float32
            weight = float(str(one.matrix[t, s]))
            yield (t, target, surprisal, t - s, s, source, int(source in one.unknown), weight)


def _sentences_json(sentences: Sentences) -> bytes:
    by_model = [mean_flatness(maps) for maps in zip(*sentences, strict=True)]
    content = {
        "runs": [
            {"run": one.name, "memory": one.memory, "flatness": _flatness(flatness)}
            for one, flatness in zip(sentences[0], by_model, strict=True)
        ],
        "sentences": [[_panel(one) for one in maps] for maps in sentences],
    }
    return json_bytes(content)


def _panel(one: SentenceMap) -> dict[str, Any]:
    record = one.record
    starts = [max(t + 1 - record.nearest_lag, 0) - slots for t, slots in enumerate(one.slots.tolist())]
    rows = zip(starts, one.slots.tolist(), strict=True)
    return {
        "run": one.name,
        "words": record.words,
        "targets": record.targets,
        "unknown": [word for word in dict.fromkeys(record.targets) if word in one.unknown],
        "surprisal_nats": record.surprisal.tolist(),
        "nearest_lag": record.nearest_lag,
        "first_word_of_row": starts,
        "weights": [
            [float(str(weight)) for weight in one.matrix[t, first : first + slots]]
            for t, (first, slots) in enumerate(rows)
        ],
        "on_no_word": one.on_no_word.tolist(),
        "flatness": _flatness(one.flatness),
    }


def _flatness(flatness: Flatness | None) -> dict[str, Any] | None:
    if flatness is None:
        return None
    return {
        "overall": flatness.overall._asdict(),
        "by_slots": [group._asdict() for group in flatness.groups],
        "left_out": flatness.left_out,
        "nearest_lag": flatness.nearest_lag,
        "span": flatness.span,
    }


def _flatness_csv(measured: Measured) -> bytes:
    rows = (
        (name, text, flatness.span, *row)
        for name, (text, flatness) in measured.items()
        for row in (*flatness.groups, flatness.overall)
    )
    return csv_bytes([FLATNESS_COLUMNS, *rows])


def _flatness_json(measured: Measured) -> bytes:
    runs = [{"run": name, "text": text, **(_flatness(flatness) or {})} for name, (text, flatness) in measured.items()]
    return json_bytes({"runs": runs})


_SENTENCES: dict[str, Callable[[Sentences], bytes]] = {
    **drawn(triangle_figure),
    ".csv": _sentences_csv,
    ".json": _sentences_json,
}

_FLATNESS: dict[str, Callable[[Measured], bytes]] = {".csv": _flatness_csv, ".json": _flatness_json}

SENTENCE_SUFFIXES = tuple(_SENTENCES)
"""What `save_sentence_maps` can write."""
FLATNESS_SUFFIXES = tuple(_FLATNESS)
"""What `save_flatness` can write."""
