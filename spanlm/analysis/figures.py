"""Figures of numbers, drawn by matplotlib in one style, and every figure as a file.

A figure made again has the same bytes: no date, a fixed salt for ids, and the one font that comes with matplotlib,
whatever the user's own settings. In `.svg` text stays text, which can be searched and edited; a viewer without DejaVu
Sans takes its own font, which is narrower. In `.pdf` the font is inside. `spanlm.analysis.word_figures` draws words.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from spanlm.analysis.by_lag import LAST, LEAST_SHOWN, LagProfile, axis_title, signed
from spanlm.analysis.compare import (
    HOLLOW,
    PUBLISHED_SOURCE,
    MeasuredLags,
    PublishedRow,
    check_alike,
    notes,
    published_by_lag,
    published_notes,
)
from spanlm.analysis.utilisation import EXPLAINED, Utilisation, longest, spread_epochs
from spanlm.errors import InputError, require

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.transforms import Transform

FIGURES = (".svg", ".png", ".pdf")
"""Suffixes of figures."""

INK, MUTED, FAINT, PAPER = "#1c1f24", "#5b626d", "#dfe3e8", "#ffffff"
MEASURED, PUBLISHED_INK = "#2171b5", "#b8480a"


@dataclass(frozen=True)
class Style:
    """How a series looks, never by colour alone: a colour and a marker of matplotlib."""

    colour: str
    mark: str

    @property
    def lighter(self) -> str:
        """A paler shade of the colour, for what was published beside what was measured."""
        channels = (int(self.colour[at : at + 2], 16) for at in (1, 3, 5))
        return "#" + "".join(f"{round(0.6 * channel + 0.4 * 255):02x}" for channel in channels)


# every colour has a contrast of 3 : 1 on white, and every pair stays apart under protanopia, deuteranopia and
# tritanopia (CIELAB distance at least 17); the first four differ most
STYLES = (
    Style(MEASURED, "o"),
    Style(PUBLISHED_INK, "s"),
    Style("#009e73", "^"),
    Style(INK, "D"),
    Style("#cc79a7", "v"),
    Style("#332288", "P"),
    Style("#882255", "X"),
)

TITLE_SIZE, HEAD_SIZE, LEGEND_SIZE, TEXT_SIZE = 11.5, 10.0, 9.0, 8.5
"""In points."""

_RC = {
    "figure.facecolor": PAPER,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": TEXT_SIZE,
    "text.color": INK,
    "text.parse_math": False,  # a word may be $x$
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.labelpad": 6,
    "axes.axisbelow": True,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "grid.color": FAINT,
    "xtick.color": MUTED,
    "xtick.major.pad": 5.5,
    "xtick.major.size": 0,
    "ytick.color": MUTED,
    "ytick.major.pad": 6,
    "ytick.major.size": 0,
    "lines.markersize": 6.5,
    "lines.markeredgecolor": PAPER,
    "lines.markeredgewidth": 0.75,
    "legend.fontsize": LEGEND_SIZE,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "legend.columnspacing": 1.8,
    "savefig.dpi": 192,
    "savefig.bbox": "tight",
    "savefig.pad_inches": 0.2,
    "svg.fonttype": "none",
    "svg.hashsalt": "spanlm",
    "pdf.fonttype": 42,
}
_DASHED = (0, (3, 2))
# what XML 1.0 cannot hold even when escaped: control characters, surrogates, two non-characters
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")

Shown = ParamSpec("Shown")
Drawn = TypeVar("Drawn")


@contextmanager
def _style() -> Iterator[None]:
    """Set the style for a while, over matplotlib's defaults: the user's settings count for nothing here."""
    import matplotlib.style

    with matplotlib.style.context(["default", _RC]), warnings.catch_warnings():
        # a script that the font lacks is boxes in .png and .pdf; .svg and the pages show it
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def styled(draw: Callable[Shown, Drawn]) -> Callable[Shown, Drawn]:
    """Make a function draw in the style of all figures."""

    @wraps(draw)
    def in_style(*shown: Shown.args, **options: Shown.kwargs) -> Drawn:
        with _style():
            return draw(*shown, **options)

    return in_style


@styled
def figure_bytes(figure: Figure, suffix: str) -> bytes:
    """Return a figure as a file of `FIGURES`: the paper as large as what is on it."""
    title = xml_text(str(figure.get_label()))
    about: dict[str, dict[str, str | None]] = {
        ".svg": {"Title": title, "Date": None, "Creator": None},
        ".png": {"Title": title.encode("latin-1", "replace").decode("latin-1"), "Software": None},
        ".pdf": {"Title": title, "CreationDate": None, "Creator": None, "Producer": None},
    }
    file = io.BytesIO()
    figure.savefig(file, format=suffix[1:], metadata=about[suffix])
    return file.getvalue()


def check_lags(count: int) -> None:
    """Refuse more models in a figure by lag than can be told apart."""
    if count > len(STYLES):
        raise InputError(f"a figure of {count} models: must be at most {len(STYLES)}; write .csv, .json or .md")


def check_utilisation(count: int) -> None:
    """Refuse more runs in a figure by epoch than can be told apart."""
    if count > len(STYLES):
        raise InputError(f"a figure of {count} runs: must be at most {len(STYLES)}; write .csv or .json")


# --- text ---


def xml_text(text: str) -> str:
    """Return text that every format can hold: what XML forbids becomes U+FFFD."""
    return _ILLEGAL.sub("\ufffd", text)


@lru_cache(maxsize=4096)
def text_width(text: str, size: float) -> float:
    """Return how wide a line of text is, in points."""
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
    """Make a figure of panels side by side that fill it, in points; words stand outside, and saving makes room."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 72, height / 72))
    one = (width - gap * (panels - 1)) / panels
    figure.subplots_adjust(0, 0, 1, 1, wspace=gap / one)
    return figure, list(figure.subplots(1, panels, squeeze=False)[0])


def _shifted(figure: Figure, y: float, x: float = 0) -> Transform:
    """Return fractions of the figure, shifted upwards and to the right by points."""
    from matplotlib.transforms import ScaledTranslation

    return figure.transFigure + ScaledTranslation(x / 72, y / 72, figure.dpi_scale_trans)


def _head(figure: Figure, title: str, keys: Sequence[Sequence[Artist]], y: float = 12, left: float = 0) -> None:
    """Write the title above a plot and, between them, the legend: groups of keys, each on lines of its own.

    `y` is the room between them and the plot, `left` that of labels to the left of it.
    """
    from matplotlib.legend import Legend

    width = 72 * figure.get_figwidth() + left
    for line in reversed([line for group in keys for line in _legend_lines(group, width)]):
        labels = [str(key.get_label()) for key in line]
        legend = Legend(figure, line, labels, loc="lower left", ncols=len(line), borderpad=0, borderaxespad=0)
        legend.set_bbox_to_anchor((0, 1), _shifted(figure, y))
        figure.add_artist(legend)
        y += 16
    figure.set_label(title)
    where, lines = _shifted(figure, y + 6, -left), wrap(title, 1.1 * TITLE_SIZE, width)
    figure.text(0, 1, lines, size=TITLE_SIZE, weight="bold", transform=where, va="bottom")


def _legend_lines(keys: Sequence[Artist], width: float) -> list[list[Artist]]:
    lines: list[list[Artist]] = [[]]
    used = 0.0
    for key in keys:
        needed = 5 * LEGEND_SIZE + text_width(str(key.get_label()), LEGEND_SIZE)
        if lines[-1] and used + needed > width:
            lines.append([])
            used = 0.0
        lines[-1].append(key)
        used += needed
    return lines if keys else []


def _foot(figure: Figure, caption: str, y: float = 42, left: float = 0) -> None:
    """Write what must be known below a plot."""
    text = wrap(caption, TEXT_SIZE, 72 * figure.get_figwidth() + left)
    where = _shifted(figure, -y, -left)
    figure.text(0, 0, text, color=MUTED, transform=where, va="top", linespacing=1.5)


def _note(
    axes: Axes,
    text: str,
    at: tuple[float, float],
    aside: tuple[float, float],
    coordinates: str | Transform = "axes fraction",
    **look: Any,
) -> None:
    """Write a line of text, muted unless `look` says so, some points aside of a place."""
    axes.annotate(text, at, aside, xycoords=coordinates, textcoords="offset points", **{"color": MUTED, **look})


def _line(
    axes: Axes,
    points: Sequence[tuple[float, float]],
    style: Style,
    label: str = "_",
    published: bool = False,
    marked: Sequence[int] | None = None,
) -> Line2D:
    """Join points by a line, lighter and dashed if it was published; mark all of them, or those of some numbers."""
    (line,) = axes.plot(
        *zip(*points, strict=True),
        color=style.lighter if published else style.colour,
        linestyle=_DASHED if published else "-",
        linewidth=1.5,
        marker=style.mark,
        markersize=4.5 if published else 6.5,
        markevery=marked,
        label=label,
        clip_on=False,
        zorder=1.9 if published else 2,
    )
    return line


def _make_hollow(line: Line2D, size: float | None = None) -> None:
    """Show the outlines alone of a line's marks."""
    line.set(markerfacecolor=PAPER, markeredgecolor=line.get_color(), markeredgewidth=1.2)
    line.set_markersize(size or line.get_markersize())


def _ticks(low: float, high: float, most: int = 6, whole: bool = False) -> list[float]:
    """Return about `most` round numbers, the first not above `low` and the last not below `high`."""
    from matplotlib.ticker import MaxNLocator

    return [float(tick) for tick in MaxNLocator(most, steps=[1, 2, 5, 10], integer=whole).tick_values(low, high)]


def _rule(axes: Axes, ticks: Sequence[float], unit: str = "") -> None:
    axes.set_yticks(ticks, [f"{tick:.6g}{unit}" for tick in ticks])
    axes.grid(axis="y")


def _percent_axis(axes: Axes, largest: float) -> None:
    """Rule a scale from 0 to a round number that is not below `largest`."""
    ticks = _ticks(0, largest)
    _rule(axes, ticks, " %")
    axes.set_ylim(0, ticks[-1])


def _lag_axis(axes: Axes, lags: range, span: int) -> None:
    """Name lags, oldest first, the present to the right; of spans of several words those where they end."""
    # at most 24 have room
    every = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, len(lags)) if len(lags) <= 24 * step)
    shown = [lag for number, lag in enumerate(reversed(lags)) if (lag if span == 1 else number) % every == 0]
    shown = list(dict.fromkeys([lags[-1], *shown]))
    axes.set_xticks([-lag for lag in shown], [signed(lag) for lag in shown])
    axes.set_xlim(-lags[0] - span / 2, -lags[-1] + span / 2)
    axes.set_xlabel(axis_title(lags[-1], span))


# --- attention by lag ---


@styled
def lag_figure(profile: LagProfile, model: str | None = None) -> Figure:
    """Draw `profile` as bars and, for window 15, the published row of `model` as a line.

    A number of that row that was inferred is a hollow mark, and a note says so.

    Raises:
        InputError: As `published_by_lag`.
    """
    from matplotlib.patches import Patch

    row = published_by_lag(model, profile.window)
    figure, (axes,) = _plot(475, 185)
    width = min(0.72 * profile.span, 45 / 475 * profile.window * profile.span)
    axes.bar([-lag for lag in profile.lags], profile.percent, width, color=MEASURED)
    keys: list[Artist] = [Patch(color=MEASURED, label="measured")]
    if row:
        keys.append(_row_line(axes, row, Style(PUBLISHED_INK, "o"), f"{model}, {PUBLISHED_SOURCE}"))
    _percent_axis(axes, max((*profile.percent, *(row.percent if row else ()))))
    _lag_axis(axes, profile.lags, profile.span)
    _head(figure, "Mean attention by lag", [keys])
    _foot(figure, " ".join([_shares(profile), *published_notes([row] if row else [], HOLLOW)]))
    return figure


def _shares(profile: LagProfile) -> str:
    positions = f"{profile.positions:,} positions {profile.counted} ({profile.left_out:,} left out)."
    shares = []
    if profile.window > LAST:
        among = f" of {profile.window}" if profile.older is None else ""
        shares.append(f"{profile.last_five:.1f} % falls on the last {LAST}{among} {profile.slots}.")
    if profile.older is not None:
        shares.append(f"{profile.older:.1f} % lies on older words than these {profile.window}.")
    if profile.null_mass >= LEAST_SHOWN:
        shares.append(f"{profile.null_mass:.1f} % lies on no word.")
    return " ".join([*shares, f"Mean over {positions}", profile.about_spans]).rstrip()


def _row_line(axes: Axes, row: PublishedRow, style: Style, label: str, published: bool = False) -> Line2D:
    """Draw what was published, `published`: paler and without marks. A number that was inferred has a hollow mark."""
    points = [(-lag, percent) for lag, percent in zip(row.lags, row.percent, strict=True)]
    inferred = [number for number, lag in enumerate(row.lags) if lag in row.inferred_lags]
    known = [number for number in range(len(points)) if number not in inferred and not published]
    line = _line(axes, points, style, label, published, known)
    for number in inferred:
        _make_hollow(_line(axes, [points[number]], style, published=published), 6)
    return line


@styled
def lag_comparison_figure(measured: Sequence[MeasuredLags]) -> Figure:
    """Draw a line for each model and, where its window is the paper's 15, the paper's row: lighter and dashed.

    A number of the paper that was inferred is a hollow mark.

    Raises:
        InputError: If there are more models than can be told apart, or as `check_alike`.
    """
    check_lags(len(measured))
    check_alike({one.name: one.profile.alike for one in measured})
    figure, (axes,) = _plot(550, 250)
    papers: dict[str, PublishedRow] = {}
    ours: list[Artist] = []
    theirs: list[Artist] = []
    for one, style in zip(measured, STYLES, strict=False):
        row = one.published
        if one.model is not None and row is not None and not row.scaled and one.model not in papers:
            papers[one.model] = row
            theirs.append(_row_line(axes, row, style, f"{one.model}, paper", published=True))
        points = [(-lag, percent) for lag, percent in zip(one.profile.lags, one.profile.percent, strict=True)]
        ours.append(_line(axes, points, style, one.name))
    spans = [*(one.profile.lags for one in measured), *(row.lags for row in papers.values())]
    span = measured[0].profile.span
    shares = [*(one.profile.percent for one in measured), *(row.percent for row in papers.values())]
    _percent_axis(axes, max(map(max, shares)))
    _lag_axis(axes, range(max(lags[0] for lags in spans), min(lags[-1] for lags in spans) - 1, -span), span)
    _head(figure, "Mean attention by lag", [ours, theirs])
    text = notes(measured, list(papers.values()), HOLLOW)
    if any(one.published is not None and one.published.scaled for one in measured):
        text.append("The paper's figure has windows of 15 only: none stands beside shorter ones.")
    _foot(figure, " ".join(text))
    return figure


# --- a span buffer by epoch ---

PUBLISHED_UTILISATION = {"oracle": 7.0, "learned": 10.0}
"""Where the paper's example ends, in percent; its text has these two numbers."""
_PAPER = (
    "Dashed: where the paper's example ends; it begins near 50 % and falls to almost nothing before it rises "
    "(Li et al. 2020, Figure 4, as its text says)."
)
_MOST_MARKS, _FEW_MARKS = 26, 12


@styled
def utilisation_figure(title: str, measured: Sequence[Utilisation], caption: str = "") -> Figure:
    """Draw PoU as a line for each run, and its oracle PoU as a thin one with hollow marks, over the epochs.

    Args:
        title: above all.
        measured: the runs.
        caption: below all, before what the figure itself needs to be read.

    Raises:
        InputError: there are more runs than can be told apart.
    """
    from matplotlib.lines import Line2D

    check_utilisation(len(measured))
    figure, (axes,) = _plot(470, 225)
    keys: list[Artist] = []
    for one, style in zip(measured, STYLES, strict=False):
        # of a long line only some are marked, or they would hide it
        marked = spread_epochs(len(one), _FEW_MARKS if len(one) > _MOST_MARKS else len(one))
        lines = [[(epoch, 100 * x) for epoch, x in enumerate(shares, 1)] for shares in (one.oracle, one.learned)]
        _make_oracle(_line(axes, lines[0], style, marked=marked))
        keys.append(_line(axes, lines[1], style, one.name, marked=marked))
    largest = max(100 * share for one in measured for share in (*one.learned, *one.oracle))
    _percent_axis(axes, max(largest, *PUBLISHED_UTILISATION.values()))
    _paper_ends(axes)
    edge = max(0.02 * (longest(measured) - 1), 0.5)
    axes.set_xlim(1 - edge, longest(measured) + edge)
    axes.set_xticks([1, *(tick for tick in _ticks(1, longest(measured), 12, True) if 1 < tick <= longest(measured))])
    axes.set_xlabel("epoch")
    which = [Line2D([], [], color=MUTED, marker="o", linewidth=1.5, label=label) for label in ("PoU", "oracle PoU")]
    _make_oracle(which[1])
    _head(figure, title, [keys, which])
    _foot(figure, " ".join([caption, f"{EXPLAINED}.", _PAPER]).strip())
    return figure


def _make_oracle(line: Line2D) -> None:
    _make_hollow(line, 5)
    line.set_linewidth(0.75)


def _paper_ends(axes: Axes) -> None:
    """Rule a line where each of the paper's two ends, named to the right."""
    close = axes.get_ylim()[1] > 60  # there the two names would touch
    for name, percent in PUBLISHED_UTILISATION.items():
        axes.axhline(percent, color=MUTED, linewidth=0.75, linestyle=_DASHED, zorder=1.5)
        label = f"paper: {'oracle ' if name == 'oracle' else 'about '}{percent:g} %"
        aside = (-3 if name == "oracle" else 3) if close else 0
        _note(axes, label, (1, percent), (5, aside), axes.get_yaxis_transform(), va="center")


# --- a number over one setting (Daniluk et al. 2017, Figures 2a and 2b) ---


@dataclass(frozen=True)
class Point:
    """What was measured at one setting.

    Attributes:
        x: the setting.
        value: what is joined to a curve.
        low: least of several seeds, None for one.
        high: greatest of several seeds, None for one.
    """

    x: float
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def span(self) -> tuple[float, float]:
        """The least and the greatest of its numbers."""
        return (self.value if self.low is None else self.low, self.value if self.high is None else self.high)


@dataclass(frozen=True)
class Series:
    """A curve: the points of one model, in any order.

    Attributes:
        name: of the model; it has one colour and mark in all panels.
        points: at least one.
        published: not measured here: lighter and dashed.
    """

    name: str
    points: tuple[Point, ...]
    published: bool = False


@dataclass(frozen=True)
class Panel:
    """A plot with a vertical axis of its own: what can be read on one scale, such as perplexities of one text."""

    title: str
    series: tuple[Series, ...]


@styled
def sweep_figure(title: str, x_label: str, y_label: str, panels: tuple[Panel, ...], caption: str = "") -> Figure:
    """Draw `panels` side by side, which share the horizontal axis.

    Each has a vertical axis of its own, so that perplexities of different texts are not read against each other; but
    all span the same ratio, so that a step as high in one panel as in another is the same change in percent.

    Args:
        title: above all.
        x_label: of the setting; every value of it that occurs is named.
        y_label: of the numbers.
        panels: at least one.
        caption: below all; what the figure itself needs to be read is added.

    Raises:
        InputError: If there is nothing to draw, or there are more curves than can be told apart.
    """
    names = list(dict.fromkeys(one.name for panel in panels for one in panel.series))
    require(0 < len(names) <= len(STYLES), "curves of a figure", len(names), f"from 1 to {len(STYLES)}")
    styles = dict(zip(names, STYLES, strict=False))
    figure, plots = _plot(567, 218, len(panels), gap=54)
    keys: dict[str, Artist] = {}
    settings = sorted({point.x for panel in panels for one in panel.series for point in one.points})
    edge = 0.06 * (settings[-1] - settings[0]) or 0.5
    spans = [[point.span for one in panel.series for point in one.points] for panel in panels]
    ranges = [(min(low for low, _ in each), max(high for _, high in each)) for each in spans]
    # at least a scale for values that are all the same; an eighth of the height above and below the values
    half = max(1.02, *(high / low for low, high in ranges)) ** 0.62
    for panel, axes, (low, high) in zip(panels, plots, ranges, strict=True):
        _set_panel(axes, panel, (x_label, y_label), settings)
        axes.set_xlim(settings[0] - edge, settings[-1] + edge)
        bottom, top = math.sqrt(low * high) / half, math.sqrt(low * high) * half
        _rule(axes, [tick for tick in _ticks(bottom, top) if bottom <= tick <= top])
        axes.set_ylim(bottom, top)
        for one, key in _curves(axes, panel, styles, 0.15 * edge):
            if not one.published or one.name not in keys:
                keys[one.name] = key
    _head(figure, title, [[keys[name] for name in names]], y=42)
    _foot(figure, " ".join([caption, *_sweep_notes(panels)]).strip())
    return figure


def _set_panel(axes: Axes, panel: Panel, labels: tuple[str, str], settings: Sequence[float]) -> None:
    width = 72 * axes.get_window_extent().width / axes.figure.dpi
    heading = clip(panel.title, HEAD_SIZE, width)
    _note(axes, heading, (0, 1), (0, 18), size=HEAD_SIZE, weight="bold", color=INK)
    _note(axes, labels[1], (0, 1), (0, 5))
    axes.set_xlabel(labels[0])
    shown = [settings[0]]
    for value in settings[1:]:
        if (value - shown[-1]) * width >= 22 * (settings[-1] - settings[0]):
            shown.append(value)
    axes.set_xticks(shown, [f"{value:g}" for value in shown])


def _curves(axes: Axes, panel: Panel, styles: dict[str, Style], step: float) -> Iterator[tuple[Series, Artist]]:
    """Draw the curves of a panel; those with bars stand beside each other by `step`, so that no bar hides another."""
    barred = [one for one in panel.series if any(point.span[0] < point.span[1] for point in one.points)]
    for one in panel.series:
        aside = step * (barred.index(one) - (len(barred) - 1) / 2) if one in barred else 0.0
        style, points = styles[one.name], sorted(one.points, key=lambda point: point.x)
        places = [(point.x + aside, point.value) for point in points]
        line = _line(axes, places, style, one.name, one.published)
        if one in barred:
            sides = [[max(p.value - p.span[0], 0.0) for p in points], [max(p.span[1] - p.value, 0.0) for p in points]]
            x, values = zip(*places, strict=True)
            colour = line.get_color()
            axes.errorbar(x, values, sides, fmt="none", ecolor=colour, elinewidth=1.1, capsize=2.2, capthick=1.1)
        yield one, line


def _sweep_notes(panels: Sequence[Panel]) -> list[str]:
    curves = [one for panel in panels for one in panel.series]
    found = []
    if any(point.span[0] < point.span[1] for one in curves for point in one.points):
        found.append("Bars go from the least to the greatest of several seeds.")
    if any(one.published for one in curves):
        found.append("Dashed: published.")
    if len(panels) > 1:
        found.append("Each panel has a scale of its own; all span the same ratio: equal heights are equal percentages.")
    return found


# --- a number for each of several models ---


@dataclass(frozen=True)
class Value:
    """A number, with the least and the greatest of several seeds."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class RowsPanel:
    """One scale.

    Attributes:
        title: what is shown.
        measured: a value for every row, or None.
        published: a number for every row, or None; on the same scale.
        digits: after the point.
    """

    title: str
    measured: tuple[Value | None, ...]
    published: tuple[float | None, ...]
    digits: int = 1


_PANEL_WIDTH, _PANEL_GAP = 190, 36


@styled
def rows_figure(title: str, rows: Sequence[str], panels: Sequence[RowsPanel], caption: str) -> Figure:
    """Draw a dot on a line for each of `rows`, in that order from the top, in every panel, with whiskers over seeds."""
    width = _PANEL_WIDTH * len(panels) + _PANEL_GAP * (len(panels) - 1)
    figure, plots = _plot(width, 20 * len(rows), len(panels), gap=_PANEL_GAP)
    for panel, axes in zip(panels, plots, strict=True):
        _note(axes, panel.title, (0, 1), (0, 8), size=LEGEND_SIZE, weight="bold", color=INK)
        axes.set_yticks(range(len(rows)), rows if axes is plots[0] else [""] * len(rows), size=LEGEND_SIZE, color=INK)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.spines["bottom"].set_visible(False)
        axes.grid()
        _set_scale(axes, panel)
        for number, (mark, published) in enumerate(zip(panel.measured, panel.published, strict=True)):
            if published is not None:
                label = "" if mark else f"{published:.{panel.digits}f}"
                _dot(axes, Value(published, published, published), number, STYLES[1], label)
            if mark is not None:
                _dot(axes, mark, number, STYLES[0], f"{mark.value:.{panel.digits}f}")
    left = 6 + max(text_width(row, LEGEND_SIZE) for row in rows)
    _head(figure, title, [], y=26, left=left)
    _foot(figure, caption, y=32, left=left)
    return figure


def _set_scale(axes: Axes, panel: RowsPanel) -> None:
    values = [value for value in panel.published if value is not None]
    values += [edge for mark in panel.measured if mark is not None for edge in (mark.low, mark.high)]
    # values that are all the same, or nearly, are no scale
    wider = max(0.0, 0.01 * abs(max(values)) - (max(values) - min(values))) / 2
    ticks = _ticks(min(values) - wider, max(values) + wider, 4)
    axes.set_xlim(ticks[0], ticks[-1])
    axes.set_xticks(ticks, [f"{tick:.6g}" for tick in ticks])


def _dot(axes: Axes, mark: Value, row: int, style: Style, label: str) -> None:
    """Draw a dot with its whiskers, and a label beside them on the side where there is room."""
    axes.plot((mark.low, mark.high), (row, row), color=style.colour, linewidth=1.5, clip_on=False)
    axes.plot(mark.value, row, style.mark, color=style.colour, clip_on=False)
    low, high = axes.get_xlim()
    needed = (text_width(label, TEXT_SIZE) + 6) / _PANEL_WIDTH * (high - low)
    at, aside, ha = (mark.high, (6, 0), "left")
    if high - mark.high < needed:
        at, aside, ha = (mark.low, (-6, 0), "right") if mark.low - low >= needed else (mark.value, (0, 7), "center")
    _note(axes, label, (at, row), aside, "data", ha=ha, va="center_baseline", color=style.colour)
