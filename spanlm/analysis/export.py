"""Attention as files: figures and pages (.html, .svg, .png, .pdf) and data (.csv, .npz, .json).

Every `save_…` function raises InputError if it cannot write the suffix, or the folder is missing or read-only, and
RunError if writing fails.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from spanlm.analysis.curves import Utilisation
from spanlm.analysis.figures import FIGURES, figure_bytes, lag_figure, utilisation_figure
from spanlm.analysis.flatness import Flatness, FlatnessRow, mean_flatness
from spanlm.analysis.heat_maps import by_word, sentence_figure, text_figure
from spanlm.analysis.lags import PUBLISHED_SOURCE, MeasuredLags, PublishedRow, lag_columns, notes
from spanlm.analysis.pages import render_page
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

Row = tuple[object, ...]


# --- whole files or none ---


def listed(suffixes: Sequence[str]) -> str:
    """Join suffixes: `.html, .svg or .csv`."""
    return " or ".join(filter(None, [", ".join(suffixes[:-1]), suffixes[-1]]))


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


def csv_bytes(rows: Iterable[Row]) -> bytes:
    """Return rows as CSV: words quoted, numbers not."""
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


Table = tuple[tuple[str, ...], Iterable[Row]]
"""Columns and rows."""


def save(
    path: Path,
    table: Table,
    content: Callable[[], Mapping[str, Any]] | None = None,
    figure: Callable[[], Figure] | None = None,
    more: Mapping[str, Callable[[], bytes]] | None = None,
) -> None:
    """Write the format that the suffix of `path` names: .csv of the table, .json of the content, a figure, or more."""
    columns, rows = table
    writers = {".csv": lambda: csv_bytes([columns, *rows])}
    if content is not None:
        writers[".json"] = lambda: json_bytes(content())
    if figure is not None:
        writers |= {suffix: partial(lambda suffix: figure_bytes(figure(), suffix), suffix) for suffix in FIGURES}
    writers |= more or {}
    write_whole(path, writers[checked_suffix(path, [*writers])]())


def _shortest(weights: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the shortest decimals that read back as the same float32."""
    return weights.astype(str).astype(np.float64)


# --- one text ---

CSV_COLUMNS = ("position", "word", "target", "surprisal_nats", "lag", "source_position", "source_word", "weight")
PLACE_COLUMNS = ("sentence", "index", "surprisal", "oov", "source_oov", "written")
"""Columns of a table's items: as `score --rows tokens` has them, surprisal in bits; and the written word's number."""
SPAN_COLUMNS = ("position", "word", "target", "gate", "span_from", "span_to", "span_words", "weight")


def save_attention(record: AttentionRecord, path: Path) -> None:
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
    page, parts = {".html": lambda: render_page(record).encode("utf-8")}, record.parts
    attention_suffixes(path, parts is not None)
    if parts is not None:
        save(path, attention_table(record), lambda: _attention_json(record, parts), more=page)
        return
    arrays = {".npz": lambda: _attention_npz(record)}
    save(path, attention_table(record), figure=lambda: text_figure(record), more=page | arrays)


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
    columns = (*CSV_COLUMNS, *(PLACE_COLUMNS if record.places else ()))
    return columns, map(itemgetter(*columns), _slots(record))


def _slots(record: AttentionRecord) -> Iterator[dict[str, object]]:
    """Yield a row, by column, for each slot that held a word."""
    weights, nats, bits = (x.tolist() for x in (_shortest(record.weights), record.surprisal, record.bits))
    lags = [*record.lags]
    for t, column in np.argwhere(record.occupied).tolist():
        target, source = record.targets[t], t - lags[column]
        slot = {
            "position": t,
            "word": record.words[t],
            "target": target,
            "surprisal_nats": nats[t],
            "lag": lags[column],
            "source_position": source,
            "source_word": record.words[source],
            "weight": weights[t][column],
        }
        if record.places:
            slot |= dict(zip(("sentence", "index", "written"), record.places[t], strict=True))
            slot |= {"surprisal": bits[t], "oov": int(target in record.unknown)}
            slot["source_oov"] = int(record.words[source] in record.unknown)
        yield slot


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


# --- sentences ---

Sentences = Sequence[Sequence[AttentionRecord]]
"""For each sentence a record of each model, titled with the run's name, in one order."""

SENTENCE_COLUMNS = (
    *("sentence", "run", "position", "target", "surprisal_nats"),
    *("lag", "source_position", "source_word", "source_unknown", "weight"),
)


def save_sentences(sentences: Sentences, path: Path) -> None:
    """Write the attention in sentences as the suffix of `path` says.

    * `.svg`, `.png`, `.pdf`: heat maps, a panel for each sentence and model.
    * `.csv`: one row for each weight of each panel. Sentences count from 1, positions from 0, the opening `<eos>`.
    * `.json`: the same, with the flatness of each panel and of each model.
    """
    table = SENTENCE_COLUMNS, _sentence_rows(sentences)
    save(path, table, lambda: _sentences(sentences), lambda: sentence_figure(sentences))


def _sentence_rows(sentences: Sentences) -> Iterator[Row]:
    for number, records in enumerate(sentences, start=1):
        for record in records:
            for slot in _slots(record):
                unknown = int(record.is_unknown(str(slot["source_word"])))
                slot |= {"sentence": number, "run": record.title, "source_unknown": unknown}
                yield itemgetter(*SENTENCE_COLUMNS)(slot)


def _sentences(sentences: Sentences) -> dict[str, Any]:
    runs = [
        {"run": records[0].title, "memory": records[0].about, "flatness": _flatness(mean_flatness(records))}
        for records in zip(*sentences, strict=True)
    ]
    return {"runs": runs, "sentences": [[_panel(record) for record in records] for records in sentences]}


def _panel(record: AttentionRecord) -> dict[str, Any]:
    weights, slots = by_word(record), record.occupied.sum(axis=1)
    ends = np.maximum(np.arange(len(record)) + 1 - record.nearest_lag, 0)
    missing = 1 - np.nansum(weights, axis=1, dtype=np.float64)
    return {
        "run": record.title,
        "words": record.words,
        "targets": record.targets,
        "unknown": [word for word in dict.fromkeys(record.targets) if record.is_unknown(word)],
        "surprisal_nats": record.surprisal.tolist(),
        "nearest_lag": record.nearest_lag,
        "first_word_of_row": (ends - slots).tolist(),
        "weights": [row[~np.isnan(row)].tolist() for row in _shortest(weights)],
        "on_no_word": np.where(slots > 0, np.maximum(missing, 0.0), 0.0).tolist(),
        "flatness": _flatness(mean_flatness([record])),
    }


def _flatness(flatness: Flatness | None) -> dict[str, Any] | None:
    return None if flatness is None else flatness.to_json()


# --- flatness ---

Measured = Mapping[str, tuple[str, Flatness]]
"""For each model, by name, the text it read and how flat its attention was."""


def save_flatness(measured: Measured, path: Path) -> None:
    """Write the flatness of models, each with its text, as `.csv` (a row for each model and group) or `.json`."""
    columns = ("run", "text", "span", *FlatnessRow._fields)
    rows = [(name, text, flatness.span, *row) for name, (text, flatness) in measured.items() for row in flatness.rows]
    runs = [{"run": name, "text": text, **flatness.to_json()} for name, (text, flatness) in measured.items()]
    save(path, (columns, rows), lambda: {"runs": runs})


# --- by lag ---

LAG_COLUMNS = ("lag", "measured_percent", "published_percent", "published_inferred")
COMPARISON_COLUMNS = (
    *("run", "text", "window", "lag", "measured_percent"),
    *("published_model", "published_percent", "published_scaled", "published_inferred"),
)


def save_lags(measured: Sequence[MeasuredLags], path: Path) -> None:
    """Write one model, or several side by side, and beside them the paper's numbers, as the suffix of `path` says.

    * `.svg`, `.png`, `.pdf`: see `lag_figure`.
    * `.md`: a table, a row for each model and one for the paper's, cut to its window and scaled to sum to 100.
    * `.csv`: one row for each model and lag. One model alone has no columns that are the same in every row, and only
      numbers of the paper that are not scaled.
    * `.json`: the same; several have the notes, too.
    """
    (_, *header), *lines = zip(*lag_columns(measured), strict=True)
    alone, said = len(measured) == 1, notes(measured)
    runs = [_lags_json(model, alone=alone) for model in measured]
    columns = LAG_COLUMNS if alone else COMPARISON_COLUMNS
    cells = (row for model in measured for row in _lag_rows(model, _published(model, alone=alone)))
    table = columns, [tuple(row.get(name, "") for name in columns) for row in cells]
    more = {
        ".csv": lambda: "".join(cells_line(row, ",") for row in (table[0], *table[1])).encode("utf-8", "replace"),
        ".md": lambda: f"{markdown_table(('model', *header), lines)}\n\n{markdown(' '.join(said))}\n".encode(),
    }
    save(path, table, lambda: runs[0] if alone else {"notes": said, "runs": runs}, lambda: lag_figure(measured), more)


def _published(model: MeasuredLags, *, alone: bool) -> PublishedRow | None:
    """Return the paper's row; a scaled one stands only beside others."""
    return None if alone and model.published and model.published.scaled else model.published


def _lag_rows(model: MeasuredLags, row: PublishedRow | None) -> Iterator[dict[str, object]]:
    published = {} if row is None else dict(zip(row.lags, row.percent, strict=True))
    for lag, percent in zip(model.profile.lags, model.profile.percent, strict=True):
        cells = {"run": model.name, "text": model.text, "window": model.profile.window}
        cells |= {"lag": lag, "measured_percent": percent}
        if row is not None and lag in published:
            cells |= {"published_model": model.model, "published_percent": published[lag]}
            cells |= {"published_scaled": int(row.scaled), "published_inferred": int(lag in row.inferred_lags)}
        yield cells


def _lags_json(model: MeasuredLags, *, alone: bool) -> dict[str, Any]:
    row, published = _published(model, alone=alone), dict[str, Any]()
    if row is not None:
        published = {"model": model.model, "source": PUBLISHED_SOURCE, "lags": [*row.lags], "percent": row.percent}
        published |= {"scaled": row.scaled, "inferred_lags": row.inferred_lags}
    if not alone:
        return {"run": model.name, "text": model.text, **model.profile.to_json(), "published": published or None}
    keys = ("model", "percent", "inferred_lags", "source")
    return {**model.profile.to_json(), **{f"published_{key}": published.get(key) for key in keys}}


# --- the use of parts by epoch ---

UTILISATION_COLUMNS = ("run", "epoch", "utilisation", "oracle_utilisation")


def save_utilisation(measured: Sequence[Utilisation], path: Path) -> None:
    """Write how several runs used their span buffer by epoch, as the suffix of `path` says; shares in data are of 1."""
    rows = [
        (run.name, epoch, *shares)
        for run in measured
        for epoch, shares in enumerate(zip(run.learned, run.oracle, strict=True), start=1)
    ]
    runs = [{"run": run.name, "utilisation": run.learned, "oracle_utilisation": run.oracle} for run in measured]
    figure = partial(utilisation_figure, "Use of the span buffer by epoch", measured)
    save(path, (UTILISATION_COLUMNS, rows), lambda: {"split": "valid", "runs": runs}, figure)
