"""Figures of numbers, drawn by matplotlib in one style, and files of every figure.

There are three kinds of plot: curves, bars by lag, and dots on a line for each of several rows; matplotlib lays them
out on a sheet with a title, a legend and a caption. `spanlm.analysis.word_figures` draws words. The style is in
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


def sheet(width: float, height: float, panels: int = 1, **shared: Any) -> tuple[Figure, list[Axes]]:
    """Make a figure of panels, all of them so many points wide and high."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 72, height / 72), layout="constrained")
    return figure, list(figure.subplots(1, panels, squeeze=False, **shared)[0])


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


def _band(axes: Axes, x: Sequence[float], low: Sequence[float], high: Sequence[float], style: Style) -> None:
    axes.fill_between(x, low, high, color=style.colour, alpha=0.15, linewidth=0)
    axes.vlines(x, low, high, color=style.colour, alpha=0.4, linewidth=0.75)


_MOST_MARKS = 12


def _pair(
    axes: Axes, x: Sequence[float], full: Sequence[float], thin: Sequence[float], style: Style, name: str
) -> Line2D:
    """Draw a line, and a thin one with hollow marks; of long ones only some places are marked."""
    marked = spread_epochs(len(x), _MOST_MARKS if len(x) > 2 * _MOST_MARKS else len(x))
    _curve(axes, x, thin, style, look="thin", markevery=marked)
    return _curve(axes, x, full, style, name, markevery=marked)


def _pair_keys(full: str, thin: str) -> list[Artist]:
    from matplotlib.lines import Line2D

    grey: dict[str, Any] = {"color": MUTED, "marker": "o"}
    return [
        Line2D([], [], label=full, **grey),
        Line2D([], [], label=thin, linewidth=0.75, **grey, **_hollow(Style(MUTED, "o"))),
    ]


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


def _settings(axes: Axes, label: str, points: Sequence[Point], *, wide: bool) -> None:
    """Tick the horizontal axis at the settings that were measured; a `wide` one is logarithmic."""
    from matplotlib.ticker import NullLocator

    values = sorted({point.x for point in points})
    low, high = values[0], values[-1]
    room = (high / low) ** 0.06 * 1.02 if wide else 0.06 * (high - low) or 0.5
    axes.set_xscale("log" if wide else "linear")
    axes.set_xlim(*((low / room, high * room) if wide else (low - room, high + room)))
    axes.set_xticks(values, [f"{x:g}" for x in values])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(f"{label}{' (logarithmic)' * wide}")


# --- attention by lag ---

_MOST_TICKS = 20


@styled()
def lag_figure(measured: Sequence[MeasuredLags]) -> Figure:
    """Draw mean attention by lag: one model as bars, several as lines.

    A row of the paper with the same window of 15 stands beside them as a line, beside lines paler and dashed. A number
    that was inferred is a hollow mark.
    """
    check_series(len(measured))
    figure, (axes,) = sheet(600, 270)
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


# --- curves over epochs ---

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
    from matplotlib.ticker import MaxNLocator

    check_series(len(measured))
    figure, (axes,) = sheet(570, 250)
    keys: list[Artist] = []
    for one, style in zip(measured, STYLES, strict=False):
        learned, oracle = ([100 * share for share in shares] for shares in (one.learned, one.oracle))
        keys.append(_pair(axes, range(1, len(one) + 1), learned, oracle, style, one.name))
    keys += _pair_keys("PoU", "oracle PoU")
    for (name, percent), side in zip(PUBLISHED_UTILISATION.items(), ("top", "bottom"), strict=True):
        axes.axhline(percent, color=MUTED, linewidth=0.75, linestyle=_DASHED, zorder=1.5)
        where = axes.get_yaxis_transform()
        axes.text(1.01, percent, f"paper: {name}{percent:g} %", color=MUTED, va=side, transform=where)
    _percent(axes)
    longest = max(map(len, measured))
    axes.set_xlim(1 - max(0.02 * (longest - 1), 0.5), longest + max(0.02 * (longest - 1), 0.5))
    axes.xaxis.set_major_locator(MaxNLocator(12, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    axes.set_xlabel("epoch")
    return finished(figure, title, keys, " ".join([caption, f"{EXPLAINED}.", _PAPER]).strip())


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
    figure, (axes,) = sheet(560, 280)
    keys: list[Artist] = []
    for curve, style in zip(curves, STYLES, strict=False):
        train, valid = (list(zip(*runs, strict=True)) for runs in (curve.train, curve.valid))
        if len(curve.valid) > 1:
            for runs in (train, valid):
                _band(axes, curve.x, [*map(min, runs)], [*map(max, runs)], style)
        keys.append(_pair(axes, curve.x, [*map(fmean, valid)], [*map(fmean, train)], style, curve.name))
    keys += _pair_keys("valid", "train")
    drawn = [run for curve in curves for run in (*curve.train, *curve.valid)]
    values = [value for run in drawn for value in run if math.isfinite(value)]
    if not values:
        raise InputError("no perplexity is finite, so there is nothing to draw")
    _logarithmic(axes, "y", 0.93 * min(values), 1.07 * max(values))
    axes.xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10], integer=True))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 2M tokens, 500k
    axes.set_xlim(left=0)
    axes.set(xlabel=LABELS[by], ylabel="perplexity")
    caption = "train: of the weights as they moved through the epoch, with dropout. The vertical axis is logarithmic."
    seeds = max(len(curve.valid) for curve in curves)
    caption += f" Bands go from the least to the greatest of {seeds} seeds." if seeds > 1 else ""
    return finished(figure, "Learning curves", keys, caption)


# --- curves over a setting (Daniluk et al. 2017, Figures 2a and 2b), or over how much context there is ---


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


def _series(axes: Axes, one: Series, style: Style) -> Line2D:
    points = sorted(one.points, key=lambda point: point.x)
    x, spans = [point.x for point in points], [point.span for point in points]
    if any(low < high for low, high in spans):
        _band(axes, x, [low for low, _ in spans], [high for _, high in spans], style)
    return _curve(axes, x, [p.value for p in points], style, one.name, "dashed" if one.published else "")


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
    figure, plots = sheet(640, 250, len(panels), sharex=True, sharey=True)
    points = [point for one in curves for point in one.points]
    least, most = min(point.x for point in points), max(point.x for point in points)
    low, high = min(point.span[0] for point in points), max(point.span[1] for point in points)
    # at least a scale for values that are all the same; an eighth of the height above and below the values
    room = max(1.02, high / low) ** 0.12
    keys: dict[str, Artist] = {}
    for panel, axes in zip(panels, plots, strict=True):
        axes.set_title(clip(panel.title, 320 // len(panels) // 3), loc="left", size=HEAD_SIZE, weight="bold", color=INK)
        for one in panel.series:
            keys.setdefault(one.name, _series(axes, one, styles[one.name]))
        _settings(axes, x_label, points, wide=least > 0 and most / least >= _WIDE)
        _logarithmic(axes, "y", low / room, high * room)
    plots[0].set_ylabel(y_label)
    caption += " Bands go from the least to the greatest of several seeds." * any(p.span[0] < p.span[1] for p in points)
    caption += " Dashed: published." * any(one.published for one in curves)
    return finished(figure, title, [*keys.values()], f"{caption} The vertical axis is logarithmic.".strip())


@styled()
def context_figure(title: str, curves: Sequence[Series], marks: Sequence[tuple[str, Point]], caption: str) -> Figure:
    """Draw curves over numbers of words on a logarithmic axis, with bands, and marked numbers as dashed lines."""
    check_series(len(curves))
    figure, (axes,) = sheet(560, 280)
    keys = [_series(axes, one, style) for one, style in zip(curves, STYLES, strict=False)]
    points = [point for one in curves for point in one.points]
    axes.axhline(0, color=MUTED, linewidth=0.9)
    for name, point in marks:
        axes.axvline(point.x, color=MUTED, linewidth=0.9, linestyle=_DASHED, zorder=1.5)
        axes.text(point.x, 1, f" {name}", color=MUTED, va="top", transform=axes.get_xaxis_transform())
    _settings(axes, "words as they were", points, wide=True)
    sides = [side for point in points for side in point.span]
    room = 0.04 * (max(sides) - min(sides))
    axes.set_ylim(min(sides) - room, max(sides) + room)
    axes.set_ylabel("bits a token more than with the whole context")
    axes.grid(axis="y")
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
    figure, plots = sheet(width, 18 * len(rows) + 30, len(heads), sharex=True, sharey=True)
    for head, axes in zip(heads, plots, strict=True):
        axes.set_title(clip(head, 36), loc="left", size=LEGEND_SIZE, weight="bold", color=INK)
        axes.spines["bottom"].set_visible(False)
        axes.grid()
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axes.xaxis.set_major_formatter("{x:g}")
    plots[0].set_yticks(range(len(rows)), [clip(row, _MOST_LETTERS) for row in rows], color=INK)
    plots[0].set_ylim(len(rows) - 0.4, -0.6)
    return figure, plots


_MOST_LETTERS = 60  # of the name of a row


def _dot(axes: Axes, mark: Value, row: int, style: Style, label: str) -> None:
    """Draw a dot with its whiskers, and to the right of them a label."""
    axes.plot((mark.low, mark.high), (row, row), color=style.colour)
    axes.plot(mark.value, row, style.mark, color=style.colour)
    look: dict[str, Any] = {"textcoords": "offset points", "va": "center_baseline", "color": style.colour}
    axes.annotate(label, (mark.high, row), (6, 0), **look)
