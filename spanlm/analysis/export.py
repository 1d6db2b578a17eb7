"""Attention as files: figures and pages (.html, .svg, .png, .pdf) and data (.csv, .npz, .json).

Every `save_…` function raises InputError if it cannot write the suffix, or the folder is missing or read-only, and
RunError if writing fails.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanlm.analysis.figures import FIGURES, figure_bytes, lag_figure, utilisation_figure
from spanlm.analysis.lags import PUBLISHED_SOURCE, MeasuredLags, lag_columns, notes
from spanlm.analysis.pages import render_page
from spanlm.analysis.sentences import Flatness, FlatnessRow, SentenceMap, mean_flatness
from spanlm.analysis.utilisation import Utilisation
from spanlm.analysis.word_figures import heatmap, triangle_figure
from spanlm.errors import InputError, RunError
from spanlm.scoring.attention import AttentionRecord, PartsRecord
from spanlm.store.files import replacing
from spanlm.store.plain import cells_line, finite, markdown, markdown_table
from spanlm.store.provenance import file_provenance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ATTENTION_SUFFIXES = (".html", *FIGURES, ".csv", ".npz")
LAG_SUFFIXES = (*FIGURES, ".csv", ".json", ".md")
SENTENCE_SUFFIXES = (*FIGURES, ".csv", ".json")
FLATNESS_SUFFIXES = (".csv", ".json")
SPAN_SUFFIXES = (".html", ".csv", ".json")
UTILISATION_SUFFIXES = (*FIGURES, ".csv", ".json")

PathLike = str | os.PathLike[str]
Row = tuple[object, ...]


# --- whole files or none ---


def listed(suffixes: Sequence[str]) -> str:
    """Join several suffixes: `.html, .svg or .csv`."""
    return " or ".join([", ".join(suffixes[:-1]), suffixes[-1]])


def checked_suffix(path: Path, legal: Sequence[str]) -> str:
    """Return the suffix of `path` in lower case, after checking that a file of that kind can be put there."""
    suffix = path.suffix.lower()
    if suffix not in legal:
        raise InputError(f"{path}: cannot write {suffix or 'a file without a suffix'}; end it in {listed(legal)}")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist; create it first")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file in it")
    return suffix


def csv_bytes(rows: Iterable[Row], *, gaps: bool = False) -> bytes:
    """Return rows as CSV: words quoted, numbers not; with gaps, only words that must be: "" is an empty cell."""
    if gaps:
        return "".join(cells_line(row, ",") for row in rows).encode("utf-8", "replace")
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "replace")


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """Return an object as JSON, with its origin: `format`, `made` (time, command, version, commit), and `content`."""
    whole = {"format": 1, "made": file_provenance(), **content}
    return (json.dumps(whole, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def write_whole(path: Path, content: bytes) -> None:
    """Write `content` under another name, then rename it: a reader sees the old file or the new one.

    Raises:
        InputError: the folder may not be written to.
        RunError: writing fails, as on a full disk; nothing is left behind.
    """
    try:
        with replacing(path) as file:
            file.write(content)
    except PermissionError as error:
        raise InputError(f"{path}: not allowed to write there; choose another folder") from error
    except OSError as error:
        raise RunError(f"{path}: could not be written: {error.strerror or error}") from error


def _save(
    path: PathLike,
    legal: Sequence[str],
    writers: Mapping[str, Callable[[], bytes]],
    figure: Callable[[], Figure] | None = None,
) -> None:
    """Write what `writers` has for the suffix of `path`, else the figure."""
    suffix = checked_suffix(Path(path), legal)
    content = figure_bytes(figure(), suffix) if figure and suffix in FIGURES else writers[suffix]()
    write_whole(Path(path), content)


def _shortest(weights: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the shortest decimals that read back as the same float32."""
    return weights.astype(str).astype(np.float64)


# --- one text ---

CSV_COLUMNS = ("position", "word", "target", "surprisal_nats", "lag", "source_position", "source_word", "weight")
PLACE_COLUMNS = ("sentence", "index", "surprisal", "oov", "source_oov", "written")
"""Columns of a table's items: as `score --rows tokens` has them, surprisal in bits; and the written word's number."""
SPAN_COLUMNS = ("position", "word", "target", "gate", "span_from", "span_to", "span_words", "weight")


def save_attention(record: AttentionRecord, path: PathLike) -> None:
    """Write `record` in the format that the suffix of `path` names.

    * `.html`: a page to explore, one file, no network; `page.html#pos=12` opens position 12.
    * `.csv`: see `attention_table`. In R: `read.csv(path, na.strings = "")`, or the word NA is taken for a gap.

    Of a record without parts:

    * `.svg`, `.png`, `.pdf`: a heat map, words by lags.
    * `.npz`: without pickle the arrays words, targets, weights, surprisal_nats, unknown, title, (N, K)
      expected_words, expected_probabilities, whose short rows end in "" and 0; column j of weights is lag lags[j].

    Of one with parts:

    * `.json`: every position with all numbers.
    """
    columns, rows = attention_table(record)
    writers = {
        ".html": lambda: render_page(record).encode("utf-8"),
        ".csv": lambda: csv_bytes([columns, *rows]),
        ".npz": lambda: _attention_npz(record),
    }
    parts = record.parts
    if parts is not None:
        writers[".json"] = lambda: json_bytes(_attention_json(record, parts))
    _save(path, attention_suffixes(Path(path), parts is not None), writers, lambda: heatmap(record))


def attention_suffixes(path: Path | None, parts: bool) -> tuple[str, ...]:
    """Return the suffixes of a record with or without parts; refuse a figure of one with parts, which has none."""
    if parts and path is not None and path.suffix.lower() in FIGURES:
        raise InputError(f"{path}: there is no figure of spans; end it in .html, which shows them at every word")
    return SPAN_SUFFIXES if parts else ATTENTION_SUFFIXES


def attention_table(record: AttentionRecord) -> tuple[tuple[str, ...], Iterator[Row]]:
    """Return the columns and the rows of a record; positions count from 0, the opening `<eos>`.

    Without parts a row for each position and lag whose slot held a word, oldest lag first; lag 0 is the word at the
    position itself. Of a table's items `PLACE_COLUMNS` follow. With parts a row for each slot that was looked at, the
    largest weight first.
    """
    if record.parts is not None:
        before = zip(record.words, record.targets, record.parts.preference.tolist(), strict=True)
        return SPAN_COLUMNS, (
            (t, *row, look.first, look.last, record.words_of(look), look.weight)
            for t, row in enumerate(before)
            for look in record.looks(t)
        )
    return (*CSV_COLUMNS, *(PLACE_COLUMNS if record.places else ())), _word_rows(record)


def _word_rows(record: AttentionRecord) -> Iterator[Row]:
    weights = _shortest(record.weights)
    for t, column in np.argwhere(record.occupied).tolist():
        word, target, surprisal = record.words[t], record.targets[t], float(record.surprisal[t])
        lag = record.lags[column]
        place: Row = ()
        if record.places:
            oov = (int(word in record.unknown) for word in (target, record.words[t - lag]))
            item, token, written = record.places[t]
            place = (item, token, float(record.bits[t]), *oov, written)
        yield t, word, target, surprisal, lag, t - lag, record.words[t - lag], float(weights[t, column]), *place


def _attention_json(record: AttentionRecord, parts: PartsRecord) -> dict[str, Any]:
    """Return all numbers; `spans` are first and last position and weight, the largest weight first."""
    positions = [
        {
            "word": record.words[t],
            "target": record.targets[t],
            "gate": float(parts.preference[t]) if parts.there[t] else None,
            "spans": [list(look) for look in record.looks(t)],
            **{part: rows[t] for part, rows in parts.expected.items()},
            "target_probability": {part: finite(float(chance[t])) for part, chance in parts.chance.items()},
        }
        for t in range(len(record))
    ]
    return {"title": record.title, "span": record.span, "unknown": sorted(record.unknown), "positions": positions}


def _attention_npz(record: AttentionRecord) -> bytes:
    width = max(len(row) for row in record.expected)
    padded = [[*row, *[("", 0.0)] * (width - len(row))] for row in record.expected]
    file = io.BytesIO()
    np.savez_compressed(
        file,
        words=np.array(record.words, dtype=str),
        targets=np.array(record.targets, dtype=str),
        weights=record.weights,
        lags=np.array(record.lags),
        surprisal_nats=record.surprisal,
        expected_words=np.array([[word for word, _ in row] for row in padded], dtype=str),
        expected_probabilities=np.array([[chance for _, chance in row] for row in padded], dtype=np.float64),
        unknown=np.array(sorted(record.unknown), dtype=str),
        title=np.array(record.title, dtype=str),
    )
    return file.getvalue()


# --- by lag ---

LAG_COLUMNS = ("lag", "measured_percent", "published_percent", "published_inferred")
COMPARISON_COLUMNS = (
    *("run", "text", "window", "lag", "measured_percent"),
    *("published_model", "published_percent", "published_scaled", "published_inferred"),
)


def save_lags(measured: Sequence[MeasuredLags], path: PathLike) -> None:
    """Write one model, or several side by side, and beside them the paper's numbers, as the suffix of `path` says.

    * `.svg`, `.png`, `.pdf`: see `lag_figure`.
    * `.md`: a table, a row for each model and one for the paper's, cut to its window and scaled to sum to 100.
    * `.csv`: one row for each model and lag. One model alone has no columns that are the same in every row, and only
      numbers of the paper that are not scaled.
    * `.json`: the same; several have the notes, too.
    """
    said = notes(measured)
    (_, *header), *table = zip(*lag_columns(measured), strict=True)
    if len(measured) == 1:
        # what is scaled stands only beside others
        found = ((*row[3:5], *(("", "") if row[7] else (row[6], row[8]))) for row in _comparison_rows(measured[0]))
        rows = [LAG_COLUMNS, *found]
        content = _lags_alone(measured[0])
    else:
        rows = [COMPARISON_COLUMNS, *(row for one in measured for row in _comparison_rows(one))]
        content = {"notes": said, "runs": [_lags_beside(one) for one in measured]}
    writers = {
        ".csv": lambda: csv_bytes(rows, gaps=True),
        ".json": lambda: json_bytes(content),
        ".md": lambda: f"{markdown_table(('model', *header), table)}\n\n{markdown(' '.join(said))}\n".encode(),
    }
    _save(path, LAG_SUFFIXES, writers, lambda: lag_figure(measured))


def _comparison_rows(one: MeasuredLags) -> Iterator[Row]:
    row = one.published
    published = {} if row is None else dict(zip(row.lags, row.percent, strict=True))
    for lag, percent in zip(one.profile.lags, one.profile.percent, strict=True):
        beside: Row = ("", "", "", "")
        if row is not None and lag in published:
            beside = (one.model, published[lag], int(row.scaled), int(lag in row.inferred_lags))
        yield one.name, one.text, one.profile.window, lag, percent, *beside


def _lags_alone(one: MeasuredLags) -> dict[str, Any]:
    row = one.published if one.published and not one.published.scaled else None
    return {
        **one.profile.to_json(),
        "published_model": one.model if row else None,
        "published_percent": row.percent if row else None,
        "published_inferred_lags": row.inferred_lags if row else None,
        "published_source": PUBLISHED_SOURCE if row else None,
    }


def _lags_beside(one: MeasuredLags) -> dict[str, Any]:
    row = one.published
    published = row and {
        "model": one.model,
        "source": PUBLISHED_SOURCE,
        "lags": list(row.lags),
        "percent": row.percent,
        "scaled": row.scaled,
        "inferred_lags": row.inferred_lags,
    }
    return {"run": one.name, "text": one.text, **one.profile.to_json(), "published": published}


# --- sentences and flatness ---

Sentences = Sequence[Sequence[SentenceMap]]
"""For each sentence the maps of the models, in one order."""

SENTENCE_COLUMNS = (
    *("sentence", "run", "position", "target", "surprisal_nats"),
    *("lag", "source_position", "source_word", "source_unknown", "weight"),
)

Measured = Mapping[str, tuple[str, Flatness]]
"""For each model, by name, the text it read and how flat its attention was."""


def save_sentence_maps(sentences: Sentences, path: PathLike) -> None:
    """Write maps of sentences as the suffix of `path` says.

    * `.svg`, `.png`, `.pdf`: triangles, a panel for each sentence and model.
    * `.csv`: one row for each weight of each panel. Sentences count from 1, positions from 0, the opening `<eos>`.
    * `.json`: the same, with the flatness of each panel and of each model.
    """
    rows = ((n, *row) for n, maps in enumerate(sentences, start=1) for one in maps for row in _sentence_rows(one))
    writers = {
        ".csv": lambda: csv_bytes([SENTENCE_COLUMNS, *rows]),
        ".json": lambda: json_bytes(_sentences(sentences)),
    }
    _save(path, SENTENCE_SUFFIXES, writers, lambda: triangle_figure(sentences))


def save_flatness(measured: Measured, path: PathLike) -> None:
    """Write the flatness of models, each with its text, as `.csv` (a row for each model and group) or `.json`."""
    rows = (
        (name, text, flatness.span, *row)
        for name, (text, flatness) in measured.items()
        for row in (*flatness.groups, flatness.overall)
    )
    runs = [{"run": name, "text": text, **_flatness(flatness)} for name, (text, flatness) in measured.items()]
    writers = {
        ".csv": lambda: csv_bytes([("run", "text", "span", *FlatnessRow._fields), *rows]),
        ".json": lambda: json_bytes({"runs": runs}),
    }
    _save(path, FLATNESS_SUFFIXES, writers)


def _sentence_rows(one: SentenceMap) -> Iterator[Row]:
    record, weights = one.record, _shortest(one.matrix)
    for t, s in np.argwhere(~np.isnan(one.matrix)).tolist():
        source, surprisal = record.words[s], float(record.surprisal[t])
        unknown, weight = int(record.is_unknown(source)), float(weights[t, s])
        yield one.name, t, record.targets[t], surprisal, t - s, s, source, unknown, weight


def _sentences(sentences: Sentences) -> dict[str, Any]:
    by_model = zip(sentences[0], map(mean_flatness, zip(*sentences, strict=True)), strict=True)
    return {
        "runs": [
            {"run": one.name, "memory": one.memory, "flatness": flatness and _flatness(flatness)}
            for one, flatness in by_model
        ],
        "sentences": [[_panel(one) for one in maps] for maps in sentences],
    }


def _panel(one: SentenceMap) -> dict[str, Any]:
    record = one.record
    starts = [max(t + 1 - record.nearest_lag, 0) - slots for t, slots in enumerate(one.slots.tolist())]
    return {
        "run": one.name,
        "words": record.words,
        "targets": record.targets,
        "unknown": [word for word in dict.fromkeys(record.targets) if record.is_unknown(word)],
        "surprisal_nats": record.surprisal.tolist(),
        "nearest_lag": record.nearest_lag,
        "first_word_of_row": starts,
        "weights": [row[~np.isnan(row)].tolist() for row in _shortest(one.matrix)],
        "on_no_word": one.on_no_word.tolist(),
        "flatness": one.flatness and _flatness(one.flatness),
    }


def _flatness(flatness: Flatness) -> dict[str, Any]:
    return {
        "overall": flatness.overall._asdict(),
        "by_slots": [group._asdict() for group in flatness.groups],
        "left_out": flatness.left_out,
        "nearest_lag": flatness.nearest_lag,
        "span": flatness.span,
    }


# --- the use of parts by epoch ---

UTILISATION_COLUMNS = ("run", "epoch", "utilisation", "oracle_utilisation")


def save_utilisation(measured: Sequence[Utilisation], path: PathLike) -> None:
    """Write how several runs used their span buffer by epoch, as the suffix of `path` says; shares in data are of 1."""
    rows = (
        (one.name, epoch, *shares)
        for one in measured
        for epoch, shares in enumerate(zip(one.learned, one.oracle, strict=True), start=1)
    )
    runs = [{"run": x.name, "utilisation": x.learned, "oracle_utilisation": x.oracle} for x in measured]
    writers = {
        ".csv": lambda: csv_bytes([UTILISATION_COLUMNS, *rows]),
        ".json": lambda: json_bytes({"split": "valid", "runs": runs}),
    }
    _save(path, UTILISATION_SUFFIXES, writers, lambda: utilisation_figure("Use of the span buffer by epoch", measured))
