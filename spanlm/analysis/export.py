"""Attention as files: to look at (.html, .svg, .png, .pdf) and to compute with (.csv, .npz, .json)."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spanlm.analysis.by_lag import LagProfile
from spanlm.analysis.compare import (
    PUBLISHED_SOURCE,
    MeasuredLags,
    format_lag_table,
    lag_columns,
    notes,
    published_by_lag,
)
from spanlm.analysis.figures import FIGURES, figure_bytes, lag_comparison_figure, lag_figure, utilisation_figure
from spanlm.analysis.flatness import Flatness, FlatnessRow
from spanlm.analysis.pages import render_page, render_span_page
from spanlm.analysis.sentences import SentenceMap, mean_flatness
from spanlm.analysis.utilisation import Utilisation
from spanlm.analysis.word_figures import heatmap, span_figure, triangle_figure
from spanlm.errors import InputError, RunError
from spanlm.evaluation.attention import AttentionRecord, SpanRecord
from spanlm.store.files import replacing
from spanlm.store.plain import cells_line, markdown, markdown_table
from spanlm.store.provenance import made

ATTENTION_SUFFIXES = (".html", *FIGURES, ".csv", ".npz")
LAG_SUFFIXES = (*FIGURES, ".csv", ".json", ".md")
SENTENCE_SUFFIXES = (*FIGURES, ".csv", ".json")
FLATNESS_SUFFIXES = (".csv", ".json")
SPAN_SUFFIXES = (".html", *FIGURES, ".csv", ".json")
UTILISATION_SUFFIXES = (*FIGURES, ".csv", ".json")


# --- whole files or none ---


def listed(suffixes: Sequence[str]) -> str:
    """Say several suffixes: `.html, .svg or .csv`."""
    *others, last = suffixes
    return f"{', '.join(others)} or {last}" if others else last


def checked_suffix(path: Path, legal: tuple[str, ...]) -> str:
    """Return the suffix of `path` in lower case, after checking that a file of that kind can be put there.

    Raises:
        InputError: If the suffix is not in `legal`, the folder does not exist, or `path` is itself a folder.
    """
    suffix = path.suffix.lower()
    if suffix not in legal:
        raise InputError(f"{path}: cannot write {suffix or 'a file without a suffix'}; end it in {listed(legal)}")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist; create it first")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file in it")
    return suffix


def csv_bytes(rows: Iterable[tuple[object, ...]], *, gaps: bool = False) -> bytes:
    """Return rows as CSV: words quoted, numbers not; with gaps, only words that must be, so that "" is nothing."""
    if gaps:
        return "".join(cells_line(row, ",") for row in rows).encode("utf-8", "replace")
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n").writerows(rows)
    return text.getvalue().encode("utf-8", "replace")


def json_bytes(content: Mapping[str, Any]) -> bytes:
    """Return an object as JSON, with its origin: `format`, `made` (time, command, version, commit), and `content`."""
    whole = {"format": 1, "made": made(), **content}
    return (json.dumps(whole, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def write_whole(path: Path, content: bytes) -> None:
    """Write `content` under another name, then rename it: a reader sees the old file or the new one.

    Raises:
        InputError: If the folder may not be written to.
        RunError: If writing fails, as on a full disk; nothing is left behind.
    """
    try:
        with replacing(path) as file:
            file.write(content)
    except PermissionError as error:
        raise InputError(f"{path}: not allowed to write there; choose another folder") from error
    except OSError as error:
        raise RunError(f"{path}: could not be written: {error.strerror or error}") from error


# --- one text ---

CSV_COLUMNS = ("position", "word", "target", "surprisal_nats", "lag", "source_position", "source_word", "weight")


def save_attention(record: AttentionRecord, path: str | os.PathLike[str]) -> None:
    """Write `record` in the format that the suffix of `path` names.

    * `.html`: a page to explore, one file, no network; `page.html#pos=12` opens position 12.
    * `.svg`, `.png`, `.pdf`: a heat map, words by lags.
    * `.csv`: one row for each position and lag whose slot held a word, oldest lag first. Positions count from
      0, the opening `<eos>`; lag 0 is the word at the position itself. In R: `read.csv(path, na.strings = "")`,
      or the word NA is taken for a gap.
    * `.npz`: without pickle the arrays words, targets, weights, surprisal_nats, title, and (N, K)
      expected_words, expected_probabilities, whose short rows end in "" and 0; column j of weights is lag lags[j].

    Raises:
        InputError: If the suffix is unknown, the folder is missing or closed, or the text is too long for a figure.
        RunError: If writing fails.
    """
    path = Path(path)
    match checked_suffix(path, ATTENTION_SUFFIXES):
        case ".html":
            content = render_page(record).encode("utf-8")
        case ".csv":
            content = _attention_csv(record)
        case ".npz":
            content = _attention_npz(record)
        case suffix:
            content = figure_bytes(heatmap(record), suffix)
    write_whole(path, content)


def _attention_csv(record: AttentionRecord) -> bytes:
    # the shortest decimal that reads back as the same float32, not its 17 digits as a float64
    weights = record.weights.astype(str).astype(np.float64)
    rows: list[tuple[object, ...]] = []
    for t, column in np.argwhere(record.occupied).tolist():
        word, target, surprisal = record.words[t], record.targets[t], float(record.surprisal[t])
        lag = record.lags[column]
        rows.append((t, word, target, surprisal, lag, t - lag, record.words[t - lag], float(weights[t, column])))
    return csv_bytes([CSV_COLUMNS, *rows])


def _attention_npz(record: AttentionRecord) -> bytes:
    width = max(len(row) for row in record.expected)
    words = np.array([[word for word, _ in row] + [""] * (width - len(row)) for row in record.expected], dtype=str)
    chances = [[chance for _, chance in row] + [0.0] * (width - len(row)) for row in record.expected]
    file = io.BytesIO()
    np.savez_compressed(
        file,
        words=np.array(record.words, dtype=str),
        targets=np.array(record.targets, dtype=str),
        weights=record.weights,
        lags=np.array(record.lags),
        surprisal_nats=record.surprisal,
        expected_words=words,
        expected_probabilities=np.array(chances, dtype=np.float64),
        title=np.array(record.title, dtype=str),
    )
    return file.getvalue()


# --- by lag ---

COMPARISON_COLUMNS = (
    *("run", "text", "window", "lag", "measured_percent"),
    *("published_model", "published_percent", "published_scaled", "published_inferred"),
)


def save_lag_profile(profile: LagProfile, path: str | os.PathLike[str], model: str | None = None) -> None:
    """Write `profile`, and beside it the published row of `model`, as a figure, `.csv` or `.json`.

    Of spans on a fixed grid the lag is the nearest of those where each may end.

    Raises:
        InputError: If the suffix or `model` is unknown, or the folder is missing or closed.
        RunError: If writing fails.
    """
    path = Path(path)
    match checked_suffix(path, (*FIGURES, ".csv", ".json")):
        case ".csv":
            content = _lag_csv(profile, model)
        case ".json":
            content = _lag_json(profile, model)
        case suffix:
            content = figure_bytes(lag_figure(profile, model), suffix)
    write_whole(path, content)


def save_lag_comparison(measured: Sequence[MeasuredLags], path: str | os.PathLike[str]) -> None:
    """Write several models side by side, and beside them what was published, as the suffix of `path` says.

    * `.svg`, `.png`, `.pdf`: a line for each model; the paper's, where it has this window, lighter and dashed.
    * `.md`: a table, a row for each model and one for the paper's, cut to its window and scaled to sum to 100.
    * `.csv`: one row for each model and lag; `.json`: the same, with the notes.

    Raises:
        InputError: If the suffix is unknown, the folder is missing or closed, or there are too many models for a
            figure.
        RunError: If writing fails.
    """
    path = Path(path)
    match checked_suffix(path, LAG_SUFFIXES):
        case ".csv":
            rows = (row for one in measured for row in _comparison_rows(one))
            content = csv_bytes([COMPARISON_COLUMNS, *rows], gaps=True)
        case ".json":
            content = json_bytes({"notes": notes(measured), "runs": [_lag_run(one) for one in measured]})
        case ".md":
            (_, *header), *table = zip(*lag_columns(measured), strict=True)
            content = f"{markdown_table(('model', *header), table)}\n\n{markdown(' '.join(notes(measured)))}\n".encode()
        case suffix:
            content = figure_bytes(lag_comparison_figure(measured), suffix)
    write_whole(path, content)


def _lag_csv(profile: LagProfile, model: str | None) -> bytes:
    rows = [
        (row.lag, row.measured, *(("", "") if row.published is None else (row.published, int(row.inferred))))
        for row in format_lag_table(profile, model)
    ]
    return csv_bytes([("lag", "measured_percent", "published_percent", "published_inferred"), *rows], gaps=True)


def _lag_json(profile: LagProfile, model: str | None) -> bytes:
    published = published_by_lag(model, profile.window)
    content = {
        **profile.to_json(),
        "published_model": model if published else None,
        "published_percent": published.percent if published else None,
        "published_inferred_lags": published.inferred_lags if published else None,
        "published_source": PUBLISHED_SOURCE if published else None,
    }
    return json_bytes(content)


def _comparison_rows(one: MeasuredLags) -> Iterator[tuple[object, ...]]:
    row = one.published
    published = {} if row is None else dict(zip(row.lags, row.percent, strict=True))
    for lag, percent in zip(one.profile.lags, one.profile.percent, strict=True):
        beside: tuple[object, ...] = ("", "", "", "")
        if row is not None and lag in published:
            beside = (one.model, published[lag], int(row.scaled), int(lag in row.inferred_lags))
        yield (one.name, one.text, one.profile.window, lag, percent, *beside)


def _lag_run(one: MeasuredLags) -> dict[str, Any]:
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

Measured = dict[str, tuple[str, Flatness]]
"""For each model, by name, the text it read and how flat its attention was."""


def save_sentence_maps(sentences: Sentences, path: str | os.PathLike[str]) -> None:
    """Write maps of sentences as the suffix of `path` says.

    * `.svg`, `.png`, `.pdf`: triangles, a panel for each sentence and model.
    * `.csv`: one row for each weight of each panel. Sentences count from 1, positions from 0, the opening `<eos>`.
    * `.json`: the same, with the flatness of each panel and of each model.

    Raises:
        InputError: If the suffix is unknown, or the folder is missing or closed.
        RunError: If writing fails.
    """
    path = Path(path)
    match checked_suffix(path, SENTENCE_SUFFIXES):
        case ".csv":
            rows = (
                (number, one.name, *cell)
                for number, maps in enumerate(sentences, start=1)
                for one in maps
                for cell in _sentence_rows(one)
            )
            content = csv_bytes([SENTENCE_COLUMNS, *rows])
        case ".json":
            content = _sentences_json(sentences)
        case suffix:
            content = figure_bytes(triangle_figure(sentences), suffix)
    write_whole(path, content)


def save_flatness(measured: Measured, path: str | os.PathLike[str]) -> None:
    """Write the flatness of models, each with its text, as `.csv` (a row for each model and group) or `.json`.

    Raises:
        InputError: If the suffix is unknown, or the folder is missing or closed.
        RunError: If writing fails.
    """
    path = Path(path)
    if checked_suffix(path, FLATNESS_SUFFIXES) == ".csv":
        rows = (
            (name, text, flatness.span, *row)
            for name, (text, flatness) in measured.items()
            for row in (*flatness.groups, flatness.overall)
        )
        content = csv_bytes([("run", "text", "span", *FlatnessRow._fields), *rows])
    else:
        runs = [{"run": name, "text": text, **_flatness(flatness)} for name, (text, flatness) in measured.items()]
        content = json_bytes({"runs": runs})
    write_whole(path, content)


def _sentence_rows(one: SentenceMap) -> Iterator[tuple[object, ...]]:
    record = one.record
    for t, s in np.argwhere(~np.isnan(one.matrix)).tolist():
        source = record.words[s]
        surprisal = float(record.surprisal[t])
        # the shortest decimal that reads back as the same float32
        weight = float(str(one.matrix[t, s]))
        yield (t, record.targets[t], surprisal, t - s, s, source, int(source in one.unknown), weight)


def _sentences_json(sentences: Sentences) -> bytes:
    by_model = [mean_flatness(maps) for maps in zip(*sentences, strict=True)]
    content = {
        "runs": [
            {"run": one.name, "memory": one.memory, "flatness": flatness and _flatness(flatness)}
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


# --- a span buffer ---

SPAN_COLUMNS = ("position", "word", "target", "gate", "span_from", "span_to", "span_words", "weight")
UTILISATION_COLUMNS = ("run", "epoch", "utilisation", "oracle_utilisation")


def save_spans(record: SpanRecord, path: str | os.PathLike[str]) -> None:
    """Write `record` as the suffix of `path` says.

    * `.html`: a page to explore, one file, no network; `page.html#pos=12` opens position 12.
    * `.svg`, `.png`, `.pdf`: the last position, and the steps up to it (see `span_figure`).
    * `.json`: every position with all there is.
    * `.csv`: a row for each span that was looked at, of every position.

    Raises:
        InputError: the suffix is unknown, or the folder is missing or closed.
        RunError: writing fails.
    """
    path = Path(path)
    match checked_suffix(path, SPAN_SUFFIXES):
        case ".html":
            content = render_span_page(record).encode("utf-8")
        case ".csv":
            content = csv_bytes([SPAN_COLUMNS, *_span_rows(record)])
        case ".json":
            content = json_bytes(record.to_json())
        case suffix:
            content = figure_bytes(span_figure(record), suffix)
    write_whole(path, content)


def _span_rows(record: SpanRecord) -> Iterator[tuple[object, ...]]:
    for t, word in enumerate(record.words):
        target, gate = record.targets[t], float(record.gate[t])
        for look in record.looks(t):
            yield (t, word, target, gate, look.first, look.last, record.words_of(look), look.weight)


def save_utilisation(measured: Sequence[Utilisation], path: str | os.PathLike[str]) -> None:
    """Write how several runs used their span buffer by epoch, as the suffix of `path` says; shares in data are of 1.

    Raises:
        InputError: the suffix is unknown, the folder is missing or closed, or there are too many runs for a figure.
        RunError: writing fails.
    """
    path = Path(path)
    match checked_suffix(path, UTILISATION_SUFFIXES):
        case ".csv":
            rows = (
                (one.name, epoch, learned, oracle)
                for one in measured
                for epoch, (learned, oracle) in enumerate(zip(one.learned, one.oracle, strict=True), start=1)
            )
            content = csv_bytes([UTILISATION_COLUMNS, *rows])
        case ".json":
            runs = [{"run": x.name, "utilisation": x.learned, "oracle_utilisation": x.oracle} for x in measured]
            content = json_bytes({"split": "valid", "runs": runs})
        case suffix:
            content = figure_bytes(utilisation_figure("Use of the span buffer by epoch", measured), suffix)
    write_whole(path, content)
