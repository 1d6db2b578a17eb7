"""Attention one can look at: by word, by lag, on a page, in a figure, as a table."""

from __future__ import annotations

from spanlm.analysis.by_lag import LagAccumulator, LagProfile, LagRow, format_lag_table, mean_by_lag
from spanlm.analysis.export import save_attention, save_lag_comparison, save_lag_profile
from spanlm.analysis.flatness import Flatness, FlatnessAccumulator, FlatnessRow
from spanlm.analysis.lag_comparison import MeasuredLags
from spanlm.analysis.published_lags import PUBLISHED, PublishedRow, published_by_lag
from spanlm.analysis.record import AttentionRecord
from spanlm.analysis.sweep_figure import Panel, Point, Series, sweep_figure

__all__ = [
    "PUBLISHED",
    "AttentionRecord",
    "Flatness",
    "FlatnessAccumulator",
    "FlatnessRow",
    "LagAccumulator",
    "LagProfile",
    "LagRow",
    "MeasuredLags",
    "Panel",
    "Point",
    "PublishedRow",
    "Series",
    "format_lag_table",
    "mean_by_lag",
    "published_by_lag",
    "save_attention",
    "save_lag_comparison",
    "save_lag_profile",
    "sweep_figure",
]
