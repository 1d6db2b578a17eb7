"""Attention one can look at: by word, by lag, on a page, in a figure, as a table."""

from __future__ import annotations

from spanlm.analysis.by_lag import (
    PUBLISHED,
    LagAccumulator,
    LagProfile,
    LagRow,
    format_lag_table,
    mean_by_lag,
    published_by_lag,
)
from spanlm.analysis.export import save_attention, save_lag_profile
from spanlm.analysis.record import AttentionRecord

__all__ = [
    "PUBLISHED",
    "AttentionRecord",
    "LagAccumulator",
    "LagProfile",
    "LagRow",
    "format_lag_table",
    "mean_by_lag",
    "published_by_lag",
    "save_attention",
    "save_lag_profile",
]
