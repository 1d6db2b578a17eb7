"""What a span buffer looked at as files: to look at (.html, .svg, .png) and to compute with (.csv, .json)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spanlm.analysis.figure_files import drawn
from spanlm.analysis.files import checked_suffix, csv_bytes, json_bytes, write_whole
from spanlm.analysis.span_figure import span_figure
from spanlm.analysis.span_page import render_span_page
from spanlm.analysis.spans import SpanRecord

CSV_COLUMNS = ("position", "word", "target", "gate", "span_from", "span_to", "span_words", "weight")


def save_spans(record: SpanRecord, path: Path) -> None:
    """Write `record` as the suffix of `path` says.

    * `.html`: a page to explore, one file, no network; `page.html#pos=12` opens position 12.
    * `.svg`, `.png`: the last position, and the steps up to it (see `span_figure`); `.png` needs matplotlib.
    * `.json`: every position with all there is.
    * `.csv`: a row for each span that was looked at, of every position.

    Raises:
        InputError: the suffix is unknown, the folder is missing or closed, or matplotlib is missing.
        RunError: writing fails.
    """
    render = _SPANS[checked_suffix(path, SPAN_SUFFIXES)]
    write_whole(path, render(record))


def _csv(record: SpanRecord) -> bytes:
    rows = (
        (t, word, record.targets[t], float(record.gate[t]), look.first, look.last, record.words_of(look), look.weight)
        for t, word in enumerate(record.words)
        for look in record.looks(t)
    )
    return csv_bytes([CSV_COLUMNS, *rows])


_SPANS: dict[str, Callable[[SpanRecord], bytes]] = {
    ".html": lambda record: render_span_page(record).encode("utf-8"),
    **drawn(span_figure),
    ".csv": _csv,
    ".json": lambda record: json_bytes(record.to_json()),
}

SPAN_SUFFIXES = tuple(_SPANS)
"""What `save_spans` can write."""
