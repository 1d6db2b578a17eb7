"""Figures of numbers, drawn by matplotlib in one style, and files of every figure.

There are three kinds of plot: curves, bars by lag, and dots on a line for each of several rows; matplotlib lays them
out on a sheet with a title, a legend and a caption. `spanlm.analysis.heat_maps` draws words. The style is in
`figures.mplstyle`. A figure made again has the same bytes: no date, a fixed salt for ids, and the one font that comes
with matplotlib, whatever the user's own settings. In `.svg` a viewer without DejaVu Sans takes its own font, which is
narrower.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

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


# --- what all share ---


def xml_text(text: str) -> str:
    """Return text for every format: characters that XML forbids become U+FFFD."""
    return _ILLEGAL.sub("\ufffd", text)


def clip(text: str, letters: int) -> str:
    """Return text for every format, of at most so many letters, the last of which then is …."""
    return xml_text(text if len(text) <= letters else f"{text[: letters - 1]}…")


def wrap(text: str, size: float, width: float) -> str:
    """Cut `text` into lines of about `width` points."""
    # a letter of DejaVu Sans is 0.56 of its size wide, in the mean of English text
    return textwrap.fill(xml_text(text), max(int(width / (0.57 * size)), 1), break_on_hyphens=False)


def sheet(width: float, height: float, rows: int = 1, columns: int = 1, **shared: Any) -> tuple[Figure, NDArray[Any]]:
    """Make a figure of panels (rows, columns), all of them together so many points wide and high."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 72, height / 72), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **shared)


def finished(figure: Figure, title: str, keys: Sequence[Artist], caption: str) -> Figure:
    """Put title and legend above the panels, a caption below them, and make room for both."""
    width, height = 72 * figure.get_size_inches()
    figure.set_label(title)
    longest = max((len(str(key.get_label())) for key in keys), default=1)
    columns = max(int(width / (0.6 * LEGEND_SIZE * longest + 50)), 1)
    head, text = wrap(title, 1.1 * TITLE_SIZE, width), wrap(caption, TEXT_SIZE, width)
    bold = {"size": TITLE_SIZE, "weight": "bold"}
    where: dict[str, Any] = {"loc": "outside upper left", "alignment": "left", "ncols": columns}
    figure.legend(handles=keys, title=head, title_fontproperties=bold, **where)
    figure.supxlabel(text, x=0, ha="left", size=TEXT_SIZE, color=MUTED, linespacing=1.5)
    lines = len(head.splitlines()) + math.ceil(len(keys) / columns) + len(text.splitlines())
    figure.set_figheight((height + 14 * lines + 46) / 72)
    return figure


def _curve(
    axes: Axes, x: Sequence[float], y: Sequence[float], style: Style, name: str = "", look: str = "", **more: Any
) -> Line2D:
    """Join points by a line, which `look` makes thin with hollow marks, or dashed and paler."""
    looks: dict[str, dict[str, Any]] = {
        "thin": {"linewidth": 0.75, **_hollow(style)},
        "dashed": {"alpha": 0.6, "linestyle": _DASHED, "markersize": 4.5, "zorder": 1.9},
    }
    more = {"color": style.colour, "marker": style.mark, "label": xml_text(name), "clip_on": False, **more}
    (line,) = axes.plot(x, y, **{**more, **looks.get(look, {})})
    return line


def _hollow(style: Style) -> dict[str, Any]:
    return {"markerfacecolor": PAPER, "markeredgecolor": style.colour, "markeredgewidth": 1.2, "markersize": 5}


def _percent(axes: Axes) -> None:
    axes.yaxis.set_major_formatter("{x:g} %")
    axes.grid(axis="y")
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
    axis.grid(visible=True)


# --- attention by lag ---

_MOST_TICKS = 20


@styled()
def lag_figure(measured: Sequence[MeasuredLags]) -> Figure:
    """Draw mean attention by lag: one model as bars, several as lines.

    A row of the paper with the same window of 15 stands beside them as a line, beside lines paler and dashed. A number
    that was inferred is a hollow mark.
    """
    check_series(len(measured))
    figure, ((axes,),) = sheet(600, 270)
    alone, first = len(measured) == 1, measured[0].profile
    keys: list[Artist] = []
    papers: dict[str | None, tuple[PublishedRow, Style]] = {}
    for one, style in zip(measured, STYLES, strict=False):
        profile, row = one.profile, one.published
        places = [-lag for lag in profile.lags]
        if alone:
            bars = axes.bar(places, profile.percent, 0.72 * profile.span, color=style.colour)
            bars[0].set_label(xml_text(one.name))
            keys.append(bars[0])
        else:
            keys.append(_curve(axes, places, profile.percent, style, one.name))
        if row is not None and not row.scaled:
            papers.setdefault(one.model, (row, STYLES[1] if alone else style))
    for name, (row, style) in papers.items():
        places = [-lag for lag in row.lags]
        keys.append(_curve(axes, places, row.percent, style, f"{name}, paper", "" if alone else "dashed"))
        for lag in row.inferred_lags:
            _curve(axes, [-lag], [row.percent[row.lags.index(lag)]], style, **_hollow(style))
    rows = [row for row, _ in papers.values()]
    lags = [*(one.profile.lags for one in measured), *(row.lags for row in rows)]
    # oldest first, the present to the right; of spans of several words where they end
    farthest, nearest = max(each[0] for each in lags), min(each[-1] for each in lags)
    ticks, span = range(nearest, farthest + 1, first.span), first.span
    axes.set_xticks([-lag for lag in ticks[:: math.ceil(len(ticks) / _MOST_TICKS)]])
    axes.set_xlim(-farthest - span / 2, -nearest + span / 2)
    axes.set_xlabel(axis_title(nearest, span))
    _percent(axes)
    text = notes(measured, rows, HOLLOW)
    if alone:
        text.insert(0, f"{first.positions:,} positions, {first.left_out:,} left out.")
        if first.window > LAST:
            what = "words" if span == 1 else "spans"
            text.insert(0, f"{first.last_five:.1f} % falls on the last {LAST} of {first.window} {what}.")
    elif any(one.published is not None and one.published.scaled for one in measured):
        text.append("The paper's figure has windows of 15 only: none stands beside shorter ones.")
    return finished(figure, "Mean attention by lag", keys, " ".join(text))


# --- curves ---


@dataclass(frozen=True)
class Point:
    """A number measured at x; `low` and `high` are the least and the greatest of several seeds."""

    x: float
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def span(self) -> tuple[float, float]:
        return (self.value if self.low is None else self.low, self.value if self.high is None else self.high)


@dataclass(frozen=True)
class Series:
    """A curve: the points, at least one, of a model, which has one colour in all panels."""

    name: str
    points: tuple[Point, ...]
    published: bool = False  # paler and dashed
    thin: bool = False  # with hollow marks, beside another curve of the model


@dataclass(frozen=True)
class Panel:
    """A plot of curves."""

    title: str
    series: tuple[Series, ...]


_WIDE = 20  # the largest setting over the smallest from which on their axis is logarithmic
_MOST_MARKS = 24


def _curves(panels: Sequence[Panel], x_label: str, y_label: str, *, settings: bool) -> tuple[Figure, list[Artist]]:
    """Draw panels side by side on the same axes, with bands where points have several seeds; return the keys, too.

    The horizontal axis has a tick at each of the `settings` that were measured, or counts from 0.
    """
    from matplotlib.ticker import EngFormatter, MaxNLocator, NullLocator

    every = [one for panel in panels for one in panel.series]
    styles = dict(zip(dict.fromkeys(one.name for one in every), STYLES, strict=False))
    check_series(len({one.name for one in every}))
    values = sorted({point.x for one in every for point in one.points})
    least, most = values[0], values[-1]
    wide = settings and least > 0 and most / least >= _WIDE
    figure, (plots,) = sheet(620, 270, 1, len(panels), sharex=True, sharey=True)
    keys: dict[str, Artist] = {}
    for panel, axes in zip(panels, plots, strict=True):
        axes.set_title(clip(panel.title, 100 // len(panels)), loc="left", size=HEAD_SIZE, weight="bold", color=INK)
        for one in panel.series:
            style, points = styles[one.name], sorted(one.points, key=lambda point: point.x)
            x, (low, high) = [point.x for point in points], zip(*(point.span for point in points), strict=True)
            if low != high:
                axes.fill_between(x, low, high, color=style.colour, alpha=0.15, linewidth=0)
                axes.vlines(x, low, high, color=style.colour, alpha=0.4, linewidth=0.75)
            look, marked = "dashed" if one.published else "thin" * one.thin, spread_epochs(len(x), _MOST_MARKS)
            line = _curve(axes, x, [point.value for point in points], style, one.name, look, markevery=marked)
            if not one.thin:
                keys.setdefault(one.name, line)
        axes.grid(axis="y")
        axes.set_xlabel(f"{x_label}{' (logarithmic)' * wide}")
    plots[0].set_ylabel(y_label)
    if not settings:
        plots[0].set_xlim(0, most)
        plots[0].xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
        plots[0].xaxis.set_major_formatter(EngFormatter(sep=""))  # 2M tokens, 500k
        return figure, [*keys.values()]
    if wide:
        room = 1.02 * (most / least) ** 0.06
        plots[0].set(xscale="log", xlim=(least / room, most * room))
    else:
        room = 0.06 * (most - least) or 0.5
        plots[0].set_xlim(least - room, most + room)
    plots[0].set_xticks(values, [f"{x:g}" for x in values])
    plots[0].xaxis.set_minor_locator(NullLocator())
    return figure, [*keys.values()]


def _ends(panels: Sequence[Panel]) -> tuple[float, float]:
    sides = [side for panel in panels for one in panel.series for point in one.points for side in point.span]
    finite = [side for side in sides if math.isfinite(side)]
    if not finite:
        raise InputError("no perplexity is finite, so there is nothing to draw")
    return min(finite), max(finite)


def _perplexities(figure: Figure, panels: Sequence[Panel]) -> None:
    """Make the vertical axis logarithmic: equal heights are equal changes in percent."""
    low, high = _ends(panels)
    # at least a scale for values that are all the same; an eighth of the height above and below the values
    room = max(1.02, high / low) ** 0.12
    _logarithmic(figure.axes[0], "y", low / room, high * room)


def _pair_keys(full: str, thin: str) -> list[Artist]:
    from matplotlib.lines import Line2D

    grey: dict[str, Any] = {"color": MUTED, "marker": "o"}
    hollow = {**grey, "linewidth": 0.75, **_hollow(Style(MUTED, "o"))}
    return [Line2D([], [], label=full, **grey), Line2D([], [], label=thin, **hollow)]


PUBLISHED_UTILISATION = {"oracle ": 7.0, "about ": 10.0}
"""Where the paper's example ends, oracle PoU and PoU in percent; its text has these two numbers."""
_PAPER = (
    "Dashed: where the paper's example ends; it begins near 50 % and falls to almost nothing before it rises "
    "(Li et al. 2020, Figure 4, as its text says)."
)


@styled()
def utilisation_figure(title: str, measured: Sequence[Utilisation], caption: str = "") -> Figure:
    """Draw PoU as a line for each run, and oracle PoU as a thin one with hollow marks, over the epochs.

    `caption` comes before what the figure itself needs to be read.
    """
    series = []
    for one in measured:
        oracle, learned = ([Point(n, 100 * x) for n, x in enumerate(xs, 1)] for xs in (one.oracle, one.learned))
        series += [Series(one.name, tuple(oracle), thin=True), Series(one.name, tuple(learned))]
    figure, keys = _curves([Panel("", tuple(series))], "epoch", "", settings=False)
    (axes,) = figure.axes
    for (name, percent), side in zip(PUBLISHED_UTILISATION.items(), ("top", "bottom"), strict=True):
        axes.axhline(percent, color=MUTED, linewidth=0.75, linestyle=_DASHED, zorder=1.5)
        where = axes.get_yaxis_transform()
        axes.text(1.01, percent, f"paper: {name}{percent:g} %", color=MUTED, va=side, transform=where)
    _percent(axes)
    text = " ".join([caption, f"{EXPLAINED}.", _PAPER]).strip()
    return finished(figure, title, [*keys, *_pair_keys("PoU", "oracle PoU")], text)


@styled()
def curves_figure(curves: Sequence[Curve]) -> Figure:
    """Draw the perplexity of valid as a line for each run, that of train as a thin one with hollow marks.

    Of several seeds the line is the mean, and a band goes from the least to the greatest.
    """
    by, *others = {curve.by: None for curve in curves}
    require(not others, "by", by, f"that of all curves; others are over {', '.join(others)}")
    series = []
    for curve in curves:
        for runs, thin in ((curve.train, True), (curve.valid, False)):
            columns = zip(curve.x, zip(*runs, strict=True), strict=True)
            points = tuple(Point(x, fmean(values), min(values), max(values)) for x, values in columns)
            series.append(Series(curve.name, points, thin=thin))
    panels = [Panel("", tuple(series))]
    figure, keys = _curves(panels, LABELS[by], "perplexity", settings=False)
    _perplexities(figure, panels)
    caption = "train: of the weights as they moved through the epoch, with dropout. The vertical axis is logarithmic."
    seeds = max(len(curve.valid) for curve in curves)
    caption += f" Bands go from the least to the greatest of {seeds} seeds." if seeds > 1 else ""
    return finished(figure, "Learning curves", [*keys, *_pair_keys("valid", "train")], caption)


@styled()
def sweep_figure(title: str, x_label: str, y_label: str, panels: tuple[Panel, ...], caption: str = "") -> Figure:
    """Draw perplexities over a setting (Daniluk et al. 2017, Figures 2a and 2b), `panels` side by side.

    The axis of settings as far apart as learning rates are is logarithmic. What the figure itself needs to be read is
    added to `caption`.
    """
    figure, keys = _curves(panels, x_label, y_label, settings=True)
    _perplexities(figure, panels)
    points = [point for panel in panels for one in panel.series for point in one.points]
    caption += " Bands go from the least to the greatest of several seeds." * any(p.span[0] < p.span[1] for p in points)
    caption += " Dashed: published." * any(one.published for panel in panels for one in panel.series)
    return finished(figure, title, keys, f"{caption} The vertical axis is logarithmic.".strip())


@styled()
def context_figure(title: str, curves: Sequence[Series], marks: Sequence[tuple[str, Point]], caption: str) -> Figure:
    """Draw what is lost over how many words of context there are, with bands; marked numbers are dashed lines."""
    panels, y_label = [Panel("", tuple(curves))], "bits a token more than with the whole context"
    figure, keys = _curves(panels, "words as they were", y_label, settings=True)
    (axes,) = figure.axes
    axes.axhline(0, color=MUTED, linewidth=0.9)
    for name, point in marks:
        axes.axvline(point.x, color=MUTED, linewidth=0.9, linestyle=_DASHED, zorder=1.5)
        axes.text(point.x, 1, f" {name}", color=MUTED, va="top", transform=axes.get_xaxis_transform())
    low, high = _ends(panels)
    axes.set_ylim(low - 0.04 * (high - low), high + 0.04 * (high - low))
    return finished(figure, title, keys, caption)


# --- dots on a line for each of several rows: numbers, or differences in classes of words ---


class Value(NamedTuple):
    """A number, with the least and the greatest of several seeds, or the ends of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class RowsPanel:
    """A column of dots: each row's measured and published number, or None, written with `digits` decimals."""

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
    figure, plots = _dot_panels(rows, [panel.title for panel in panels])
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
    return finished(figure, title, [], caption)


@styled()
def differences_figure(
    title: str, rows: Sequence[tuple[str, str]], panels: Sequence[tuple[str, Sequence[Value | None]]], caption: str
) -> Figure:
    """Draw a dot with its interval on a line for each of `rows`, (table, class), in every panel; a rule marks 0.

    A table's name stands over its first class. A panel has a heading and a value for each row, or None; all panels have
    one scale.
    """
    names, places, heads = list[str](), list[int](), list[int]()
    for n, (table, name) in enumerate(rows):
        if n == 0 or rows[n - 1][0] != table:
            heads.append(len(names))
            names.append(table)
        places.append(len(names))
        names.append(name)
    figure, plots = _dot_panels(names, [heading for heading, _ in panels])
    for head in heads:
        plots[0].get_yticklabels()[head].set_fontweight("bold")
    for (_, values), axes in zip(panels, plots, strict=True):
        axes.axvline(0, color=MUTED, linewidth=0.9)
        for place, value in zip(places, values, strict=True):
            if value is not None:
                _dot(axes, value, place, STYLES[0], "")
    return finished(figure, title, [], caption)


def _dot_panels(rows: Sequence[str], heads: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """Make panels with a line for each row, which share their axes; the first has the rows' names."""
    from matplotlib.ticker import MaxNLocator

    letters = min(max(map(len, rows)), _MOST_LETTERS)
    width = 220 * len(heads) + 5 * letters
    figure, (plots,) = sheet(width, 18 * len(rows) + 30, 1, len(heads), sharex=True, sharey=True)
    for head, axes in zip(heads, plots, strict=True):
        axes.set_title(clip(head, 36), loc="left", size=LEGEND_SIZE, weight="bold", color=INK)
        axes.spines["bottom"].set_visible(False)
        axes.grid()
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter("{x:g}")
    plots[0].set_yticks(range(len(rows)), [clip(row, _MOST_LETTERS) for row in rows], color=INK)
    plots[0].set_ylim(len(rows) - 0.4, -0.6)
    return figure, [*plots]


_MOST_LETTERS = 60  # of the name of a row


def _dot(axes: Axes, mark: Value, row: int, style: Style, label: str) -> None:
    """Draw a dot with its whiskers, and to the right of them a label."""
    axes.plot((mark.low, mark.high), (row, row), color=style.colour)
    axes.plot(mark.value, row, style.mark, color=style.colour)
    look: dict[str, Any] = {"textcoords": "offset points", "va": "center_baseline", "color": style.colour}
    axes.annotate(label, (mark.high, row), (6, 0), **look)
