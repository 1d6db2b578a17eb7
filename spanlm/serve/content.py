"""Stands in for what the page's branch has in analysis/pages; goes with the merge."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from spanlm.analysis import pages
from spanlm.evaluation.attention import SpanRecord
from spanlm.store.plain import finite


def page_content(record: Any) -> dict[str, Any]:
    """As the page embeds it."""
    html = pages.render_span_page(record) if isinstance(record, SpanRecord) else pages.render_page(record)
    data = html.partition('type="application/json">')[2].partition("</script>")[0]
    return {"spans": isinstance(record, SpanRecord), **json.loads(data)}


def plain_content(tokens: Any, unknown: Any, bits: Any, expected: Any) -> dict[str, Any]:
    """Without weights."""
    return {
        "spans": False,
        "eos": "<eos>",
        "tokens": list(tokens),
        "unknown": sorted(unknown),
        "bits": finite([None if x is None else float(np.round(x, 4)) for x in bits]),
        "expected": [[[w, p] for w, p in row] for row in expected],
        "weights": None,
        "mean": None,
        "darkest": 1.0,
    }


def render_content(content: Any, title: str, about: str) -> str:
    """A page."""
    return f"<!doctype html><title>{title}</title>"
