"""Attention as files: what to look at (.html, .svg, .png) and what to compute with (.csv, .npz, .json)."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from spanlm.analysis.by_lag import LagProfile, format_lag_table
from spanlm.analysis.figure_files import drawn
from spanlm.analysis.files import checked_suffix, csv_bytes, json_bytes, write_whole
from spanlm.analysis.heatmap import heatmap
from spanlm.analysis.lag_comparison import MeasuredLags, comparison_csv, comparison_json, comparison_markdown
from spanlm.analysis.lag_comparison_figure import lag_comparison_figure
from spanlm.analysis.lag_figure import lag_figure
from spanlm.analysis.page import render_page
from spanlm.analysis.published_lags import PUBLISHED_SOURCE, published_by_lag
from spanlm.analysis.record import AttentionRecord

CSV_COLUMNS = (
    "position",
    "word",
    "target",
    "surprisal_nats",
    "lag",
    "source_position",
    "source_word",
    "weight",
)


def save_attention(record: AttentionRecord, path: str | os.PathLike[str]) -> None:
    """Write `record` in the format that the suffix of `path` names.

    * `.html`: a page to explore, one file, no network; `page.html#pos=12` opens position 12.
    * `.svg`, `.png`: a heat map, words by lags; `.png` needs matplotlib.
    * `.csv`: one row for each position and lag whose slot held a word, oldest lag first. Positions count from
      0, the opening `<eos>`; lag 0 is the word at the position itself. In R: `read.csv(path, na.strings = "")`,
      or the word NA is taken for a gap.
    * `.npz`: without pickle the arrays words, targets, weights, surprisal_nats, title, and (N, K)
      expected_words, expected_probabilities, whose short rows end in "" and 0; column j of weights is lag lags[j].

    Raises:
        InputError: If the suffix is unknown, the folder is missing or closed, the text is too long for a
            figure, or matplotlib is missing.
        RunError: If writing fails.
    """
    path = Path(path)
    render = _ATTENTION[checked_suffix(path, ATTENTION_SUFFIXES)]
    write_whole(path, render(record))


def save_lag_profile(profile: LagProfile, path: str | os.PathLike[str], model: str | None = None) -> None:
    """Write `profile`, and beside it the published row of `model`, as `.svg`, `.png`, `.csv` or `.json`.

    Of spans on a fixed grid the lag is the nearest of those where each may end.

    Raises:
        InputError: If the suffix or `model` is unknown, the folder is missing or closed, or matplotlib is
            missing.
        RunError: If writing fails.
    """
    path = Path(path)
    render = _LAG_PROFILE[checked_suffix(path, tuple(_LAG_PROFILE))]
    write_whole(path, render(profile, model))


def save_lag_comparison(measured: Sequence[MeasuredLags], path: str | os.PathLike[str]) -> None:
    """Write several models side by side, and beside them what was published, as the suffix of `path` says.

    * `.svg`, `.png`: a line for each model; the paper's, where it has this window, lighter and dashed.
    * `.md`: a table, a row for each model and one for the paper's, cut to its window and scaled to sum to 100.
    * `.csv`: one row for each model and lag; `.json`: the same, with the notes.

    Raises:
        InputError: If the suffix is unknown, the folder is missing or closed, there are too many models for a
            figure, or matplotlib is missing.
        RunError: If writing fails.
    """
    path = Path(path)
    render = _LAG_COMPARISON[checked_suffix(path, LAG_SUFFIXES)]
    write_whole(path, render(measured))


def _attention_csv(record: AttentionRecord) -> bytes:
    # the shortest decimal that reads back as the same float32, not its 17 digits as a float64
    weights = record.weights.astype(str).astype(np.float64)
    occupied = record.occupied
    rows = (
        (
            position,
            word,
            record.targets[position],
            float(record.surprisal[position]),
            lag,
            position - lag,
            record.words[position - lag],
            float(weights[position, column]),
        )
        for position, word in enumerate(record.words)
        for column, lag in enumerate(record.lags)
        if occupied[position, column]
    )
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


_ATTENTION: dict[str, Callable[[AttentionRecord], bytes]] = {
    ".html": lambda record: render_page(record).encode("utf-8"),
    **drawn(heatmap),
    ".csv": _attention_csv,
    ".npz": _attention_npz,
}

_LAG_PROFILE: dict[str, Callable[[LagProfile, str | None], bytes]] = {
    **drawn(lag_figure),
    ".csv": _lag_csv,
    ".json": _lag_json,
}

_LAG_COMPARISON: dict[str, Callable[[Sequence[MeasuredLags]], bytes]] = {
    **drawn(lag_comparison_figure),
    ".csv": comparison_csv,
    ".json": comparison_json,
    ".md": comparison_markdown,
}

ATTENTION_SUFFIXES, LAG_SUFFIXES = tuple(_ATTENTION), tuple(_LAG_COMPARISON)
"""What `save_attention` and `save_lag_comparison` can write."""
