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
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from spanlm.analysis.curves import EXPLAINED, LABELS, Curve, Utilisation, spread_epochs
from spanlm.analysis.lags import HOLLOW, LAST, LagProfile, MeasuredLags, PublishedRow, axis_title, notes
from spanlm.errors import InputError, require

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIGURES = (".svg", ".png", ".pdf")
"""Suffixes of figures."""

INK, MUTED, FAINT, PAPER = "#1c1f24", "#5b626d", "#dfe3e8", "#ffffff"
TITLE_SIZE, LEGEND_SIZE, TEXT_SIZE = 11.5, 9.0, 8.5
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
    """Cut text to so many letters, the last of which then is …, and make it fit for every format."""
    return xml_text(text if len(text) <= letters else f"{text[: letters - 1]}…")


def wrap(text: str, size: float, width: float) -> str:
    """Cut `text` into lines of about `width` points."""
    # a letter of DejaVu Sans is 0.56 of its size wide, in the mean of English text
    return textwrap.fill(xml_text(text), max(int(width / (0.57 * size)), 1), break_on_hyphens=False)


def sheet(width: float, height: float, rows: int = 1, columns: int = 1, **shared: Any) -> tuple[Figure, NDArray[Any]]:
    """Make a figure of panels (rows, columns), which together have this width and height in points."""
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


def _percent(axes: Axes) -> None:
    axes.yaxis.set_major_formatter("{x:g} %")
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


# --- curves and bars ---


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
    """A curve of at least one point; its model has one colour in all panels."""

    name: str  # of the model
    points: tuple[Point, ...]
    published: bool = False  # paler and dashed
    thin: bool = False  # with hollow marks, beside another curve of the model
    label: str = ""  # in the legend; "": the name
    bars: float = 0.0  # the width of bars, in place of a curve


@dataclass(frozen=True)
class Panel:
    """A plot of curves."""

    title: str
    series: tuple[Series, ...]


_WIDE = 20  # the largest setting over the smallest from which on their axis is logarithmic
_MOST_MARKS, _MOST_TICKS = 24, 20


def _curves(panels: Sequence[Panel], x_label: str, y_label: str = "") -> tuple[Figure, list[Axes], list[Artist]]:
    """Draw panels side by side on the same axes, with bands where points have several seeds; return the keys, too."""
    every = [series for panel in panels for series in panel.series]
    names = dict.fromkeys(series.name for series in every)
    check_series(len(names))
    styles = dict(zip(names, STYLES, strict=False))
    figure, (plots,) = sheet(620, 270, 1, len(panels), sharex=True, sharey=True)
    keys: dict[str, Artist] = {}
    for panel, axes in zip(panels, plots, strict=True):
        axes.set_title(clip(panel.title, 100 // len(panels)))
        for series in panel.series:
            drawn = _draw(axes, series, styles[series.name])
            if not series.thin:
                keys.setdefault(series.label or series.name, drawn)
        axes.set_xlabel(x_label)
    plots[0].set_ylabel(y_label)
    return figure, [*plots], [*keys.values()]


def _draw(axes: Axes, series: Series, style: Style) -> Artist:
    points = sorted(series.points, key=lambda point: point.x)
    x, values, label = [point.x for point in points], [point.value for point in points], series.label or series.name
    if series.bars:
        first: Artist = axes.bar(x, values, series.bars, color=style.colour)[0]
        first.set_label(xml_text(label))
        return first
    low, high = zip(*(point.span for point in points), strict=True)
    if low != high:
        axes.fill_between(x, low, high, color=style.colour, alpha=0.15, linewidth=0)
        axes.vlines(x, low, high, color=style.colour, alpha=0.4, linewidth=0.75)
    look: dict[str, Any] = {"color": style.colour, "marker": style.mark, "label": xml_text(label), "clip_on": False}
    if series.thin:
        look |= {"linewidth": 0.75, "markersize": 5}
        look |= {"markerfacecolor": PAPER, "markeredgecolor": style.colour, "markeredgewidth": 1.2}
    if series.published:
        look |= {"alpha": 0.6, "linestyle": _DASHED, "markersize": 4.5, "zorder": 1.9}
    (line,) = axes.plot(x, values, markevery=spread_epochs(len(x), _MOST_MARKS), **look)
    return line


def _points(panels: Sequence[Panel]) -> list[Point]:
    return [point for panel in panels for series in panel.series for point in series.points]


def _ends(panels: Sequence[Panel]) -> tuple[float, float]:
    finite = [side for point in _points(panels) for side in point.span if math.isfinite(side)]
    if not finite:
        raise InputError("no perplexity is finite, so there is nothing to draw")
    return min(finite), max(finite)


def _perplexities(axes: Axes, panels: Sequence[Panel]) -> None:
    """Make the vertical axis logarithmic: equal heights are equal changes in percent."""
    low, high = _ends(panels)
    # at least a scale for values that are all the same; an eighth of the height above and below the values
    room = max(1.02, high / low) ** 0.12
    _logarithmic(axes, "y", low / room, high * room)


def _count_axis(axes: Axes, panels: Sequence[Panel]) -> None:
    """Count along the horizontal axis from 0: 2M tokens, 500k."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    axes.set_xlim(0, max(point.x for point in _points(panels)) or 1)
    axes.xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _setting_axis(plots: Sequence[Axes], panels: Sequence[Panel]) -> None:
    """Give each setting that was measured a tick; an axis of settings as far apart as learning rates is logarithmic."""
    from matplotlib.ticker import NullLocator

    values = sorted({point.x for point in _points(panels)})
    least, most = values[0], values[-1]
    if least > 0 and most / least >= _WIDE:
        room = 1.02 * (most / least) ** 0.06
        plots[0].set(xscale="log", xlim=(least / room, most * room))
        for axes in plots:
            axes.set_xlabel(f"{axes.get_xlabel()} (logarithmic)")
    else:
        room = 0.06 * (most - least) or 0.5
        plots[0].set_xlim(least - room, most + room)
    plots[0].set_xticks(values, [f"{x:g}" for x in values])
    plots[0].xaxis.set_minor_locator(NullLocator())


@styled()
def lag_figure(measured: Sequence[MeasuredLags]) -> Figure:
    """Draw mean attention by lag: one model as bars, several as lines.

    A row of the paper with the same window of 15 stands beside them as a line, beside lines paler and dashed. A number
    that was inferred is a hollow mark.
    """
    alone, first = len(measured) == 1, measured[0].profile
    span, series, papers = first.span, list[Series](), dict[str | None, PublishedRow]()
    for model in measured:
        series.append(Series(model.name, _by_lag(model.profile), bars=0.72 * span * alone))
        row = model.published
        if row is not None and not row.scaled and model.model not in papers:
            papers[model.model], label = row, f"{model.model}, paper"
            name = label if alone else model.name
            series.append(Series(name, _by_lag(row), label=label, published=not alone))
            if inferred := tuple(point for point in _by_lag(row) if -point.x in row.inferred_lags):
                series.append(Series(name, inferred, thin=True))
    figure, (axes,), keys = _curves([Panel("", tuple(series))], "")
    rows = [*papers.values()]
    lags = [*(model.profile.lags for model in measured), *(row.lags for row in rows)]
    # oldest first, the present to the right; of spans of several words where they end
    farthest, nearest = max(lag[0] for lag in lags), min(lag[-1] for lag in lags)
    ticks = range(nearest, farthest + 1, span)
    axes.set_xticks([-lag for lag in ticks[:: math.ceil(len(ticks) / _MOST_TICKS)]])
    axes.set_xlim(-farthest - span / 2, -nearest + span / 2)
    axes.set_xlabel(axis_title(nearest, span))
    _percent(axes)
    text = notes(measured, rows, HOLLOW)
    if alone:
        text.insert(0, f"{first.positions:,} positions, {first.left_out:,} left out.")
        if first.window > LAST:
            slots = "words" if span == 1 else "spans"
            text.insert(0, f"{first.last_five:.1f} % falls on the last {LAST} of {first.window} {slots}.")
    elif any(model.published is not None and model.published.scaled for model in measured):
        text.append("The paper's figure has windows of 15 only: none stands beside shorter ones.")
    return finished(figure, "Mean attention by lag", keys, " ".join(text))


def _by_lag(row: LagProfile | PublishedRow) -> tuple[Point, ...]:
    return tuple(Point(-lag, percent) for lag, percent in zip(row.lags, row.percent, strict=True))


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
    for run in measured:
        oracle, learned = ([Point(n, 100 * x) for n, x in enumerate(xs, 1)] for xs in (run.oracle, run.learned))
        series += [Series(run.name, tuple(oracle), thin=True), Series(run.name, tuple(learned))]
    panels = [Panel("", tuple(series))]
    figure, (axes,), keys = _curves(panels, "epoch")
    _count_axis(axes, panels)
    for (name, percent), side in zip(PUBLISHED_UTILISATION.items(), ("top", "bottom"), strict=True):
        axes.axhline(percent, color=MUTED, linewidth=0.75, linestyle=_DASHED, zorder=1.5)
        where = axes.get_yaxis_transform()
        axes.text(1.01, percent, f"paper: {name}{percent:g} %", color=MUTED, va=side, transform=where)
    _percent(axes)
    text = " ".join([caption, f"{EXPLAINED}. Thin, with hollow marks: oracle PoU.", _PAPER]).strip()
    return finished(figure, title, keys, text)


@styled()
def curves_figure(curves: Sequence[Curve]) -> Figure:
    """Draw the perplexity of valid as a line for each run, that of train as a thin one with hollow marks.

    Of several seeds the line is the mean, and a band goes from the least to the greatest.
    """
    unit, *others = {curve.by: None for curve in curves}
    require(not others, "by", unit, f"that of all curves; others are over {', '.join(others)}")
    series = []
    for curve in curves:
        for runs, thin in ((curve.train, True), (curve.valid, False)):
            columns = zip(curve.x, zip(*runs, strict=True), strict=True)
            points = tuple(Point(x, fmean(values), min(values), max(values)) for x, values in columns)
            series.append(Series(curve.name, points, thin=thin))
    panels = [Panel("", tuple(series))]
    figure, (axes,), keys = _curves(panels, LABELS[unit], "perplexity")
    _count_axis(axes, panels)
    _perplexities(axes, panels)
    caption = "Thin, with hollow marks: train, of the weights as they moved through the epoch, with dropout."
    caption += " Others: valid. The vertical axis is logarithmic."
    seeds = max(len(curve.valid) for curve in curves)
    caption += f" Bands go from the least to the greatest of {seeds} seeds." if seeds > 1 else ""
    return finished(figure, "Learning curves", keys, caption)


@styled()
def sweep_figure(title: str, x_label: str, y_label: str, panels: tuple[Panel, ...], caption: str = "") -> Figure:
    """Draw perplexities over a setting (Daniluk et al. 2017, Figures 2a and 2b), `panels` side by side.

    What the figure itself needs to be read is added to `caption`.
    """
    figure, plots, keys = _curves(panels, x_label, y_label)
    _setting_axis(plots, panels)
    _perplexities(plots[0], panels)
    seeds = any(low < high for low, high in (point.span for point in _points(panels)))
    caption += " Bands go from the least to the greatest of several seeds." * seeds
    caption += " Dashed: published." * any(series.published for panel in panels for series in panel.series)
    return finished(figure, title, keys, f"{caption} The vertical axis is logarithmic.".strip())


@styled()
def equation_figure(title: str, x_label: str, y_label: str, panels: tuple[Panel, ...]) -> Figure:
    """Draw curves of an equation on plain axes."""
    figure, plots, keys = _curves(panels, x_label, y_label)
    ends = [point.x for point in _points(panels)]
    plots[0].set_xlim(min(ends), max(ends))
    plots[0].axhline(0, color=MUTED, linewidth=0.9)
    return finished(figure, title, keys, "Drawn from the equation.")


@styled()
def context_figure(
    title: str,
    labels: tuple[str, str],
    curves: Sequence[Series],
    caption: str,
    *,
    marks: Sequence[tuple[str, float]] = (),
    logarithmic: bool = False,
) -> Figure:
    """Draw gains or losses over how much context there is, or over perplexity (`logarithmic`), with bands.

    `labels` are of the two axes; marked numbers are dashed lines.
    """
    panels = [Panel("", tuple(curves))]
    figure, (axes,), keys = _curves(panels, *labels)
    if logarithmic:
        least, most = (side(point.x for point in _points(panels)) for side in (min, max))
        room = max(1.1, most / least) ** 0.1
        _logarithmic(axes, "x", least / room, most * room)
    else:
        _setting_axis([axes], panels)
    axes.axhline(0, color=MUTED, linewidth=0.9)
    for name, x in marks:
        axes.axvline(x, color=MUTED, linewidth=0.9, linestyle=_DASHED, zorder=1.5)
        axes.text(x, 1, f" {name}", color=MUTED, va="top", transform=axes.get_xaxis_transform())
    low, high = _ends(panels)
    room = 0.04 * (high - low) or 0.04 * abs(high) or 0.5
    axes.set_ylim(low - room, high + room)
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
    published: tuple[float | None, ...] = ()  # (): none of any row
    digits: int | None = 1  # None: the numbers are not written


_MOST_LETTERS = 60  # of the name of a row


@styled()
def rows_figure(
    title: str,
    rows: Sequence[str],
    panels: Sequence[RowsPanel],
    caption: str,
    *,
    logarithmic: bool = False,
    zero: bool = False,
    headings: Collection[int] = (),
) -> Figure:
    """Draw a dot on a line for each of `rows`, in that order from the top, in every panel, with whiskers over seeds.

    All panels have one scale; a `logarithmic` one is for perplexities, and with `zero` a rule marks 0. Rows whose
    numbers are in `headings` have their names in bold.
    """
    from matplotlib.ticker import MaxNLocator

    letters = min(max(map(len, rows)), _MOST_LETTERS)
    width, height = 220 * len(panels) + 5 * letters, 18 * len(rows) + 30
    figure, (plots,) = sheet(width, height, 1, len(panels), sharex=True, sharey=True)
    plots[0].set_yticks(range(len(rows)), [clip(row, _MOST_LETTERS) for row in rows], color=INK)
    plots[0].set_ylim(len(rows) - 0.4, -0.6)
    for row in headings:
        plots[0].get_yticklabels()[row].set_fontweight("bold")
    marks = [mark[1:] for panel in panels for mark in panel.measured if mark is not None]
    marks += [(paper, paper) for panel in panels for paper in panel.published if paper is not None]
    place, number_at = (math.log, math.exp) if logarithmic else (float, float)
    low, high = place(min(low for low, _ in marks)), place(max(high for _, high in marks))
    # values that are all the same, or nearly, are no scale; to the right there is room for a number
    room = max(high - low, 0.01 * abs(high)) or 0.01
    ends = number_at(low - 0.15 * room), number_at(high + 0.35 * room)
    for panel, axes in zip(panels, plots, strict=True):
        axes.set_title(clip(panel.title, 36))
        axes.spines["bottom"].set_visible(False)
        axes.grid(visible=True)
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlim(*ends)
        if logarithmic:
            _logarithmic(axes, "x", *ends)
        if zero:
            axes.axvline(0, color=MUTED, linewidth=0.9)
        published = panel.published or [None] * len(rows)
        for number, (mark, paper) in enumerate(zip(panel.measured, published, strict=True)):
            if paper is not None:
                _dot(axes, Value(paper, paper, paper), number, STYLES[1], None if mark else panel.digits)
            if mark is not None:
                _dot(axes, mark, number, STYLES[0], panel.digits)
    return finished(figure, title, [], caption)


def _dot(axes: Axes, mark: Value, row: int, style: Style, digits: int | None) -> None:
    """Draw a dot with its whiskers, and to the right of them the number."""
    axes.plot((mark.low, mark.high), (row, row), color=style.colour)
    axes.plot(mark.value, row, style.mark, color=style.colour)
    if digits is not None:
        look: dict[str, Any] = {"textcoords": "offset points", "va": "center_baseline", "color": style.colour}
        axes.annotate(f"{mark.value:.{digits}f}", (mark.high, row), (6, 0), **look)
