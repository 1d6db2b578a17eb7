"""Figures of numbers, drawn by matplotlib in one style, and files of every figure.

The style is in `figures.mplstyle`. A figure made again has the same bytes: no date, a fixed salt for ids, and the one
font that comes with matplotlib, whatever the user's own settings. In `.svg` a viewer without DejaVu Sans takes its own
font, which is narrower. `spanlm.analysis.word_figures` draws words.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
import unicodedata
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from spanlm.analysis.curves import LABELS, Curve
from spanlm.analysis.lags import HOLLOW, LAST, MeasuredLags, PublishedRow, axis_title, notes
from spanlm.analysis.utilisation import EXPLAINED, Utilisation, spread_epochs
from spanlm.errors import InputError, require

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

FIGURES = (".svg", ".png", ".pdf")
"""Suffixes of figures."""

INK, MUTED, FAINT, PAPER = "#1c1f24", "#5b626d", "#dfe3e8", "#ffffff"
TITLE_SIZE, HEAD_SIZE, LEGEND_SIZE, TEXT_SIZE = 11.5, 10.0, 9.0, 8.5
"""In points."""


class Style(NamedTuple):
    """The look of a series: a colour and a marker of matplotlib, so that colour alone never distinguishes."""

    colour: str
    mark: str


# every colour has a contrast of 3 : 1 on white, and every pair stays apart under protanopia, deuteranopia and
# tritanopia (CIELAB distance at least 17); the first four differ most
STYLES = (
    Style("#2171b5", "o"),
    Style("#b8480a", "s"),
    Style("#009e73", "^"),
    Style(INK, "D"),
    Style("#cc79a7", "v"),
    Style("#332288", "P"),
    Style("#882255", "X"),
)

_DASHED = (0, (3, 2))
# what XML 1.0 cannot hold even when escaped: control characters, surrogates, two non-characters
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


@contextmanager
def styled() -> Iterator[None]:
    """Use the style within the block, over matplotlib's defaults instead of the user's settings."""
    import matplotlib.style

    with matplotlib.style.context(["default", "spanlm.analysis.figures"]), warnings.catch_warnings():
        # a script that the font lacks is boxes in .png and .pdf; .svg and the pages show it
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


@styled()
def figure_bytes(figure: Figure, suffix: str) -> bytes:
    """Return a figure as a file of one of `FIGURES`; the page is as large as its content."""
    title = xml_text(str(figure.get_label()))
    about: dict[str, dict[str, str | None]] = {
        ".svg": {"Title": title, "Date": None, "Creator": None},
        ".png": {"Title": title.encode("latin-1", "replace").decode("latin-1"), "Software": None},
        ".pdf": {"Title": title, "CreationDate": None, "Creator": None, "Producer": None},
    }
    file = io.BytesIO()
    figure.savefig(file, format=suffix[1:], metadata=about[suffix])
    return file.getvalue()


def check_series(count: int, instead: str = "name fewer") -> None:
    """Refuse more models in a figure than can be told apart."""
    if count > len(STYLES):
        raise InputError(f"a figure of {count} models: must be at most {len(STYLES)}; {instead}")


# --- text ---


def xml_text(text: str) -> str:
    """Return text for every format: characters that XML forbids become U+FFFD."""
    return _ILLEGAL.sub("\ufffd", text)


@lru_cache(maxsize=4096)
def text_width(text: str, size: float) -> float:
    """Return the width of a line of text in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    width, _, _ = text_to_path.get_text_width_height_descent(xml_text(text), FontProperties(size=size), False)
    # letters that the font lacks are as wide as they are high where a viewer has them
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return float(width) + 0.4 * size * wide


def clip(text: str, size: float, width: float) -> str:
    """Return `text`, cut and ended by … where it would be wider than `width` points."""
    if text_width(text, size) <= width:
        return text
    while text and text_width(text + "…", size) > width:
        text = text[:-1]
    return text + "…"


def wrap(text: str, size: float, width: float) -> str:
    """Cut `text` into lines of about `width` points."""
    # a letter of DejaVu Sans is 0.56 of its size wide, in the mean of English text
    return textwrap.fill(xml_text(text), max(int(width / (0.57 * size)), 1), break_on_hyphens=False)


# --- what plots share ---


def _plot(width: float, height: float, panels: int = 1, gap: float = 0) -> tuple[Figure, list[Axes]]:
    """Make a figure of panels of this size in points; words stand outside, and saving makes room."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=((width * panels + gap * (panels - 1)) / 72, height / 72))
    figure.subplots_adjust(0, 0, 1, 1, wspace=gap / width)
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def note(axes: Axes, text: str, at: tuple[float, float], aside: tuple[float, float], **look: Any) -> None:
    """Write text some points aside of a place, in fractions of the axes unless `look` has other `xycoords`."""
    look = {"xycoords": "axes fraction", "color": MUTED, "annotation_clip": False, **look}
    axes.annotate(xml_text(text), at, aside, textcoords="offset points", **look)


def heading(axes: Axes, title: str, width: float, above: float, left: float = 0, about: str = "") -> None:
    """Write a title, and below it what the figure is `about`, so many points `above` the first of its plots."""
    if about:
        lines = wrap(about, TEXT_SIZE, width)
        note(axes, lines, (0, 1), (-left, above), linespacing=1.5)
        above += 5 + 13 * len(lines.split("\n"))
    text = wrap(title, 1.1 * TITLE_SIZE, width)
    note(axes, text, (0, 1), (-left, above + 6), size=TITLE_SIZE, weight="bold", color=INK)


def footnote(axes: Axes, text: str, width: float, below: float, left: float = 0) -> None:
    """Write what must be known to read a figure, so many points `below` the last of its plots."""
    note(axes, wrap(text, TEXT_SIZE, width), (0, 0), (-left, -below), va="top", linespacing=1.5)


def _frame(
    figure: Figure, title: str, keys: Sequence[Artist], text: str, above: float = 12, below: float = 42, left: float = 0
) -> Figure:
    """Write title and legend `above` points over the first of the plots, and a caption `below` it."""
    axes, (width, height) = figure.axes[0], 72 * figure.get_size_inches()
    figure.set_label(title)
    if keys:
        widest = 5 * LEGEND_SIZE + max(text_width(str(key.get_label()), LEGEND_SIZE) for key in keys)
        columns = max(int(width // widest), 1)
        axes.legend(handles=keys, loc="lower left", bbox_to_anchor=(0, 1 + above / height), ncols=columns)
        above += 16 * math.ceil(len(keys) / columns)
    heading(axes, title, width + left, above, left)
    footnote(axes, text, width + left, below, left)
    return figure


def _line(
    axes: Axes, x: Sequence[float], y: Sequence[float], style: Style, published: bool = False, **look: Any
) -> Line2D:
    """Join points by a line; what was published is paler and dashed, with smaller marks."""
    paler = {"alpha": 0.6, "linestyle": _DASHED, "markersize": 4.5, "zorder": 1.9} if published else {}
    (line,) = axes.plot(x, y, color=style.colour, marker=style.mark, clip_on=False, **{**paler, **look})
    return line


def _hollow(style: Style, size: float = 5) -> dict[str, Any]:
    return {"markerfacecolor": PAPER, "markeredgecolor": style.colour, "markeredgewidth": 1.2, "markersize": size}


_MOST_MARKS, _FEW_MARKS = 26, 12


def _pair(
    axes: Axes, x: Sequence[float], full: Sequence[float], thin: Sequence[float], style: Style, name: str
) -> Line2D:
    """Draw a line, and a thin one with hollow marks; of long ones only some places are marked."""
    marked = spread_epochs(len(x), _FEW_MARKS if len(x) > _MOST_MARKS else len(x))
    _line(axes, x, thin, style, markevery=marked, linewidth=0.75, **_hollow(style))
    return _line(axes, x, full, style, markevery=marked, label=name)


def _pair_keys(axes: Axes, full: str, thin: str) -> list[Artist]:
    grey = Style(MUTED, "o")
    return [
        _line(axes, [], [], grey, label=full),
        _line(axes, [], [], grey, label=thin, linewidth=0.75, **_hollow(grey)),
    ]


def _rule(axes: Axes, unit: str = "") -> None:
    """Rule the vertical axis at round numbers; shares in percent begin at 0."""
    from matplotlib.ticker import MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(f"{{x:g}}{unit}")
    axes.grid(axis="y")
    if unit:
        axes.autoscale_view()
        axes.set_ylim(0)


def _logarithmic(axes: Axes, side: str, low: float, high: float) -> None:
    """Make the axis x or y logarithmic from `low` to `high`, with round numbers."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    axes.set(**{f"{side}scale": "log", f"{side}lim": (low, high)})
    axis = getattr(axes, f"{side}axis")
    ratio = high / low
    subs = (1, 1.5, 2, 3, 5, 7) if ratio < 15 else (1, 2, 5) if ratio < 200 else (1,)
    axis.set_major_locator(MaxNLocator(7, steps=[1, 2, 5, 10]) if ratio < 5 else LogLocator(subs=subs))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_locator(NullLocator())


# --- attention by lag ---

_MOST_TICKS = 24


@styled()
def lag_figure(measured: Sequence[MeasuredLags]) -> Figure:
    """Draw mean attention by lag: one model as bars, several as lines.

    A row of the paper with the same window of 15 stands beside them as a line, beside lines paler and dashed. A number
    that was inferred is a hollow mark.
    """
    check_series(len(measured))
    figure, (axes,) = _plot(550, 250)
    alone, first = len(measured) == 1, measured[0].profile
    keys: list[Artist] = []
    papers: dict[str | None, tuple[PublishedRow, Style]] = {}
    for one, style in zip(measured, STYLES, strict=False):
        profile, row = one.profile, one.published
        places = [-lag for lag in profile.lags]
        if alone:
            bars = axes.bar(places, profile.percent, 0.72 * profile.span, color=style.colour)
            bars[0].set_label(one.name)
            keys.append(bars[0])
        else:
            keys.append(_line(axes, places, profile.percent, style, label=one.name))
        if row is not None and not row.scaled:
            papers.setdefault(one.model, (row, STYLES[1] if alone else style))
    for name, (row, style) in papers.items():
        places = [-lag for lag in row.lags]
        keys.append(_line(axes, places, row.percent, style, published=not alone, label=f"{name}, paper"))
        for lag in row.inferred_lags:
            _line(axes, [-lag], [row.percent[row.lags.index(lag)]], style, **_hollow(style, 6))
    rows = [row for row, _ in papers.values()]
    lags = [*(one.profile.lags for one in measured), *(row.lags for row in rows)]
    # oldest first, the present to the right; of spans of several words where they end
    farthest, nearest = max(each[0] for each in lags), min(each[-1] for each in lags)
    ticks, span = range(nearest, farthest + 1, first.span), first.span
    axes.set_xticks([-lag for lag in ticks[:: math.ceil(len(ticks) / _MOST_TICKS)]])
    axes.set_xlim(-farthest - span / 2, -nearest + span / 2)
    axes.set_xlabel(axis_title(nearest, span))
    _rule(axes, " %")
    text = notes(measured, rows, HOLLOW)
    if alone:
        text.insert(0, f"{first.positions:,} positions, {first.left_out:,} left out.")
        if first.window > LAST:
            what = "words" if span == 1 else "spans"
            text.insert(0, f"{first.last_five:.1f} % falls on the last {LAST} of {first.window} {what}.")
    elif any(one.published is not None and one.published.scaled for one in measured):
        text.append("The paper's figure has windows of 15 only: none stands beside shorter ones.")
    return _frame(figure, "Mean attention by lag", keys, " ".join(text))


# --- a span buffer by epoch ---

PUBLISHED_UTILISATION = {"oracle ": 7.0, "about ": 10.0}
"""Where the paper's example ends, oracle PoU and PoU in percent; its text has these two numbers."""
_PAPER = (
    "Dashed: where the paper's example ends; it begins near 50 % and falls to almost nothing before it rises "
    "(Li et al. 2020, Figure 4, as its text says)."
)


@styled()
def utilisation_figure(title: str, measured: Sequence[Utilisation], caption: str = "") -> Figure:
    """Draw PoU as a line for each run, and its oracle PoU as a thin one with hollow marks, over the epochs.

    `caption` comes before what the figure itself needs to be read.
    """
    from matplotlib.ticker import MaxNLocator

    check_series(len(measured))
    figure, (axes,) = _plot(470, 225)
    keys: list[Artist] = []
    for one, style in zip(measured, STYLES, strict=False):
        learned, oracle = ([100 * share for share in shares] for shares in (one.learned, one.oracle))
        keys.append(_pair(axes, range(1, len(one) + 1), learned, oracle, style, one.name))
    keys += _pair_keys(axes, "PoU", "oracle PoU")
    for percent in PUBLISHED_UTILISATION.values():
        axes.axhline(percent, color=MUTED, linewidth=0.75, linestyle=_DASHED, zorder=1.5)
    _rule(axes, " %")
    aside = 3 if axes.get_ylim()[1] > 60 else 0  # there the two names would touch
    for (name, percent), y in zip(PUBLISHED_UTILISATION.items(), (-aside, aside), strict=True):
        note(
            axes, f"paper: {name}{percent:g} %", (1, percent), (5, y), xycoords=axes.get_yaxis_transform(), va="center"
        )
    longest = max(map(len, measured))
    edge = max(0.02 * (longest - 1), 0.5)
    axes.set_xlim(1 - edge, longest + edge)
    ticks = MaxNLocator(12, steps=[1, 2, 5, 10], integer=True).tick_values(1, longest)
    axes.set_xticks([1, *(tick for tick in ticks if 1 < tick <= longest)])
    axes.set_xlabel("epoch")
    return _frame(figure, title, keys, " ".join([caption, f"{EXPLAINED}.", _PAPER]).strip())


# --- learning curves ---


@styled()
def curves_figure(curves: Sequence[Curve]) -> Figure:
    """Draw the perplexity of valid as a line for each run, that of train as a thin one with hollow marks.

    Of several seeds the line is the mean, and a band goes from the least to the greatest. The vertical axis is
    logarithmic: equal heights are equal changes in percent.
    """
    from matplotlib.ticker import EngFormatter, MaxNLocator

    check_series(len(curves))
    by, *others = {curve.by: None for curve in curves}
    require(not others, "by", by, f"that of all curves; others are over {', '.join(others)}")
    figure, (axes,) = _plot(500, 260)
    keys: list[Artist] = []
    for curve, style in zip(curves, STYLES, strict=False):
        train, valid = (list(zip(*runs, strict=True)) for runs in (curve.train, curve.valid))
        if len(curve.valid) > 1:
            for runs in (train, valid):
                axes.fill_between(curve.x, [*map(min, runs)], [*map(max, runs)], color=style.colour, alpha=0.15)
        keys.append(_pair(axes, curve.x, [*map(fmean, valid)], [*map(fmean, train)], style, curve.name))
    keys += _pair_keys(axes, "valid", "train")
    drawn = [run for curve in curves for run in (*curve.train, *curve.valid)]
    values = [value for run in drawn for value in run if math.isfinite(value)]
    if not values:
        raise InputError("no perplexity is finite, so there is nothing to draw")
    _logarithmic(axes, "y", 0.93 * min(values), 1.07 * max(values))
    axes.xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10], integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 2M tokens, 500k
    axes.set_xlim(left=0)
    axes.grid(axis="y")
    axes.set_xlabel(LABELS[by])
    note(axes, "perplexity", (0, 1), (0, 5))
    caption = "train: of the weights as they moved through the epoch, with dropout. The vertical axis is logarithmic."
    seeds = max(len(curve.valid) for curve in curves)
    caption += f" Bands go from the least to the greatest of {seeds} seeds." if seeds > 1 else ""
    return _frame(figure, "Learning curves", keys, caption, above=24)


# --- a number over one setting (Daniluk et al. 2017, Figures 2a and 2b) ---


@dataclass(frozen=True)
class Point:
    """A number measured at one setting, x; `low` and `high` are the least and the greatest of several seeds."""

    x: float
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def span(self) -> tuple[float, float]:
        return (self.value if self.low is None else self.low, self.value if self.high is None else self.high)


@dataclass(frozen=True)
class Series:
    """A curve: the points, at least one, of a model, which has one look in all panels; published: paler and dashed."""

    name: str
    points: tuple[Point, ...]
    published: bool = False


@dataclass(frozen=True)
class Panel:
    """A plot of curves."""

    title: str
    series: tuple[Series, ...]


_WIDE = 20  # the largest setting over the smallest from which on their axis is logarithmic


@styled()
def sweep_figure(title: str, x_label: str, y_label: str, panels: tuple[Panel, ...], caption: str = "") -> Figure:
    """Draw `panels` side by side on the same axes.

    The vertical one is logarithmic: equal heights are equal changes in percent. So is the horizontal one of settings as
    far apart as learning rates are.

    What the figure itself needs to be read is added to `caption`.
    """
    curves = [one for panel in panels for one in panel.series]
    names = list(dict.fromkeys(one.name for one in curves))
    require(0 < len(names) <= len(STYLES), "curves of a figure", len(names), f"from 1 to {len(STYLES)}")
    styles = dict(zip(names, STYLES, strict=False))
    gap, whole = 54, 567
    width = (whole + gap) / len(panels) - gap
    figure, plots = _plot(width, 218, len(panels), gap)
    keys: dict[str, Artist] = {}
    points = [point for one in curves for point in one.points]
    settings = sorted({point.x for point in points})
    wide = settings[0] > 0 and settings[-1] / settings[0] >= _WIDE
    places = {x: math.log(x) if wide else x for x in settings}
    edge = 0.06 * (places[settings[-1]] - places[settings[0]]) or 0.5
    low, high = min(point.span[0] for point in points), max(point.span[1] for point in points)
    # at least a scale for values that are all the same; an eighth of the height above and below the values
    room = max(1.02, high / low) ** 0.12
    for panel, axes in zip(panels, plots, strict=True):
        note(axes, clip(panel.title, HEAD_SIZE, width), (0, 1), (0, 18), size=HEAD_SIZE, weight="bold", color=INK)
        note(axes, y_label, (0, 1), (0, 5))
        axes.set_xlabel(f"{x_label}{' (logarithmic)' * wide}")
        axes.set_xticks(list(places.values()), [f"{x:g}" for x in settings])
        for one, key in zip(panel.series, _curves(axes, panel, styles, places, 0.15 * edge), strict=True):
            if not one.published or one.name not in keys:
                keys[one.name] = key
        axes.grid(axis="y")
        axes.set_xlim(places[settings[0]] - edge, places[settings[-1]] + edge)
        _logarithmic(axes, "y", low / room, high * room)
    caption += " Bars go from the least to the greatest of several seeds." * any(p.span[0] < p.span[1] for p in points)
    caption += " Dashed: published." * any(one.published for one in curves)
    text = f"{caption} The vertical axis is logarithmic.".strip()
    return _frame(figure, title, [keys[name] for name in names], text, above=42)


def _curves(
    axes: Axes, panel: Panel, styles: dict[str, Style], places: Mapping[float, float], step: float
) -> Iterator[Artist]:
    """Draw the curves of a panel; those with bars stand beside each other by `step`, so that no bar hides another."""
    barred = [one for one in panel.series if any(point.span[0] < point.span[1] for point in one.points)]
    for one in panel.series:
        aside = step * (barred.index(one) - (len(barred) - 1) / 2) if one in barred else 0.0
        style, points = styles[one.name], sorted(one.points, key=lambda point: point.x)
        x, values = [places[point.x] + aside for point in points], [point.value for point in points]
        if one in barred:
            sides = [[max(p.value - p.span[0], 0.0) for p in points], [max(p.span[1] - p.value, 0.0) for p in points]]
            axes.errorbar(x, values, sides, fmt="none", ecolor=style.colour, elinewidth=1.1, capthick=1.1)
        yield _line(axes, x, values, style, one.published, label=one.name)


# --- a number for each of several models ---


class Value(NamedTuple):
    """A number, with the least and the greatest of several seeds."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class RowsPanel:
    """A column of dots: each row's measured and published number, or None, with `digits` decimals."""

    title: str
    measured: tuple[Value | None, ...]
    published: tuple[float | None, ...]
    digits: int = 1


@styled()
def rows_figure(
    title: str, rows: Sequence[str], panels: Sequence[RowsPanel], caption: str, *, logarithmic: bool = False
) -> Figure:
    """Draw a dot on a line for each of `rows`, in that order from the top, in every panel, with whiskers over seeds.

    All panels have one scale; a `logarithmic` one is for perplexities.
    """
    figure, plots = _dot_panels([panel.title for panel in panels], range(len(rows)), rows, (190, 20), LEGEND_SIZE)
    marks = [mark[1:] for panel in panels for mark in panel.measured if mark is not None]
    marks += [(paper, paper) for panel in panels for paper in panel.published if paper is not None]
    place, number_at = (math.log, math.exp) if logarithmic else (float, float)
    low, high = place(min(low for low, _ in marks)), place(max(high for _, high in marks))
    # values that are all the same, or nearly, are no scale; to the right there is room for a number
    room = max(high - low, 0.01 * abs(high)) or 0.01
    ends = number_at(low - 0.15 * room), number_at(high + 0.35 * room)
    for panel, axes in zip(panels, plots, strict=True):
        axes.set_xlim(*ends)
        if logarithmic:
            _logarithmic(axes, "x", *ends)
        for number, (mark, paper) in enumerate(zip(panel.measured, panel.published, strict=True)):
            if paper is not None:
                _dot(axes, Value(paper, paper, paper), number, STYLES[1], "" if mark else f"{paper:.{panel.digits}f}")
            if mark is not None:
                _dot(axes, mark, number, STYLES[0], f"{mark.value:.{panel.digits}f}")
    left = 6 + max(text_width(row, LEGEND_SIZE) for row in rows)
    return _frame(figure, title, [], caption, above=26, below=32, left=left)


def _dot_panels(
    heads: Sequence[str], places: Sequence[int], names: Sequence[str], cell: tuple[float, float], size: float
) -> tuple[Figure, list[Axes]]:
    """Make panels of a row for each name at its place, `cell` points wide and high; the first has the names."""
    from matplotlib.ticker import MaxNLocator

    figure, plots = _plot(cell[0], cell[1] * (places[-1] + 1), len(heads), gap=36)
    for head, axes in zip(heads, plots, strict=True):
        note(axes, clip(head, LEGEND_SIZE, cell[0]), (0, 1), (0, 8), size=LEGEND_SIZE, weight="bold", color=INK)
        axes.set_yticks(places, names if axes is plots[0] else [""] * len(names), size=size, color=INK)
        axes.set_ylim(places[-1] + 0.6, -0.6)
        axes.spines["bottom"].set_visible(False)
        axes.grid()
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter("{x:g}")
    return figure, plots


def _dot(axes: Axes, mark: Value, row: int, style: Style, label: str) -> None:
    """Draw a dot with its whiskers, and to the right of them a label."""
    axes.plot((mark.low, mark.high), (row, row), color=style.colour)
    axes.plot(mark.value, row, style.mark, color=style.colour)
    note(axes, label, (mark.high, row), (6, 0), xycoords="data", va="center_baseline", color=style.colour)


# --- a difference in each class of words ---


@styled()
def differences_figure(
    title: str, rows: Sequence[tuple[str, str]], panels: Sequence[tuple[str, Sequence[Value | None]]], caption: str
) -> Figure:
    """Draw a dot with its interval on a line for each of `rows`, (table, class), in every panel; a rule marks 0.

    A table's name stands over its first class. A panel has a heading and a value for each row, or None; all panels have
    one scale.
    """
    heads = [n for n, (table, _) in enumerate(rows) if n == 0 or rows[n - 1][0] != table]
    # a line more for the name of each table
    places = [n + 1 + sum(head <= n for head in heads[1:]) for n in range(len(rows))]
    names = [name for _, name in rows]
    figure, plots = _dot_panels([heading for heading, _ in panels], places, names, (260, 15), TEXT_SIZE)
    for (_, values), axes in zip(panels, plots, strict=True):
        axes.axvline(0, color=MUTED, linewidth=0.9)
        for place, value in zip(places, values, strict=True):
            if value is not None:
                _dot(axes, value, place, STYLES[0], "")
    drawn = [axes for axes, (_, values) in zip(plots, panels, strict=True) if any(values)]
    ends = [end for axes in drawn for end in axes.get_xlim()]
    for axes in plots:
        axes.set_xlim(min(ends), max(ends))
    left = 6 + max(text_width(name, TEXT_SIZE) for name in names)
    for head in heads:
        at = (0.0, places[head] - 1)
        where = plots[0].get_yaxis_transform()
        note(plots[0], rows[head][0], at, (-left, 0), xycoords=where, va="center", weight="bold", size=TEXT_SIZE)
    return _frame(figure, title, [], caption, above=26, below=32, left=left)


# --- loss by how much context there is ---


@styled()
def context_figure(title: str, curves: Sequence[Series], marks: Sequence[tuple[str, Point]], caption: str) -> Figure:
    """Draw curves over numbers of words on a logarithmic axis, with bands, and marked numbers below as whiskers."""
    from matplotlib.ticker import NullLocator

    check_series(len(curves))
    figure, (axes,) = _plot(500, 260)
    axes.set_xscale("log")
    keys: list[Artist] = []
    for one, style in zip(curves, STYLES, strict=False):
        x = [point.x for point in one.points]
        low, high = zip(*(point.span for point in one.points), strict=True)
        axes.fill_between(x, low, high, color=style.colour, alpha=0.15, linewidth=0)
        keys.append(_line(axes, x, [point.value for point in one.points], style, label=one.name, markersize=5))
    _rule(axes)
    axes.axhline(0, color=MUTED, linewidth=0.9)
    for name, point in marks:
        axes.axvline(point.x, color=MUTED, linewidth=0.9, linestyle=_DASHED, zorder=1.5)
        note(axes, name, (point.x, 1), (4, -4), xycoords=axes.get_xaxis_transform(), va="top")
    ticks = sorted({point.x for one in curves for point in one.points})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(ticks[0] / 1.1, ticks[-1] * 1.1)
    sides = [side for one in curves for point in one.points for side in point.span]
    least, most = min(sides), max(sides)
    axes.set_ylim(least - 0.04 * (most - least), most + 0.04 * (most - least))
    axes.set_xlabel("words as they were (logarithmic)")
    note(axes, "bits a token more than with the whole context", (0, 1), (0, 5))
    return _frame(figure, title, keys, caption, above=24)
