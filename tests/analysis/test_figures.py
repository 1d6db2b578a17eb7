"""Figures of numbers: everything that was measured is there, legible, and the same again."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest

from spanlm.analysis.curves import Utilisation
from spanlm.analysis.figures import (
    MUTED,
    PAPER,
    STYLES,
    Panel,
    Point,
    RowsPanel,
    Series,
    Value,
    figure_bytes,
    lag_figure,
    rows_figure,
    sweep_figure,
    utilisation_figure,
)
from spanlm.analysis.lags import PUBLISHED, LagProfile, MeasuredLags
from spanlm.errors import InputError
from tests.cases import rest_slow

from .shown import assert_texts_apart, lines, texts
from .test_curves import LONG, ONE
from .test_heat_maps import KINDS as WORDS
from .test_lags import CURRENT, RM, SHORT, SPANS, WHOLE, as_published

EQUAL = LagProfile(tuple([100 / 15] * 15), 1234, 5)
SPANS_ALONE = MeasuredLags("spans", "a text", SPANS)
LADDER = Series("a", tuple(Point(x, 100 + x, 95 + x, 103 + x) for x in (15, 1, 5, 10)))
RISING = Series("b", tuple(Point(x, 100 + 2 * x, 90 + x, 103 + 2 * x) for x in (1, 5, 10)))
THEIRS = Series("a", (Point(1, 80.0), Point(15, 82.0)), published=True)
ROWS = ["RNN", "a model with a long name, $\\frac$", "<b>&amp;"]
PANELS = (
    RowsPanel("measured", (Value(80.0, 70.0, 99.0), Value(81.0, 81.0, 81.0), None), (None,) * 3),
    RowsPanel("both", (Value(0.5, 0.5, 0.5), None, Value(0.7, 0.7, 0.7)), (0.6, 0.61, 0.7), 3),
    RowsPanel("all the same", (Value(5.0, 5.0, 5.0),) * 3, (None,) * 3),
)

KINDS: dict[str, Callable[[], Any]] = {
    "lag": cache(lambda: lag_figure([MeasuredLags("one", "a text", EQUAL, "key-value")])),
    "lag of the current word": cache(
        lambda: lag_figure([MeasuredLags("rm", "a text", replace(EQUAL, nearest_lag=0), RM)])
    ),
    "lag of many": cache(
        lambda: lag_figure([MeasuredLags("many", "a text", LagProfile(tuple([0.5] * 200), 9, 1, older=0.0))])
    ),
    "lag of one": cache(lambda: lag_figure([MeasuredLags("one", "a text", LagProfile((100.0,), 9, 1))])),
    "lag of spans": cache(lambda: lag_figure([SPANS_ALONE])),
    "comparison": cache(lambda: lag_figure([*map(as_published, PUBLISHED), SHORT, CURRENT, WHOLE])),
    "use": cache(lambda: utilisation_figure("a title", [ONE, LONG], "a caption.")),
    "use of one epoch": cache(lambda: utilisation_figure("t", [Utilisation("one epoch", (0.976,), (0.46,))])),
    "never used": cache(lambda: utilisation_figure("t", [Utilisation("never", (0.0, 0.0), (0.0, 0.0))])),
    "sweep": cache(
        lambda: sweep_figure("a title", "window", "ppl", (Panel("ours", (LADDER, RISING)), Panel("theirs", (THEIRS,))))
    ),
    "sweep of one": cache(lambda: sweep_figure("t", "N", "ppl", (Panel("one", (Series("c", (Point(3, 7.0),)),)),))),
    "rows": cache(lambda: rows_figure("a title", ROWS, PANELS, "a caption")),
}


@pytest.mark.slow
def test_matplotlib_is_loaded_only_to_draw() -> None:
    program = "import sys, spanlm.analysis.export; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


EVERY = {**KINDS, **WORDS}
HOSTILE = [name for name in WORDS if "hostile" in name]
"""A figure of each kind of words."""
every_kind = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in KINDS else pytest.mark.slow) for name in EVERY]
)


@every_kind
def test_no_words_stand_on_others(name: str) -> None:
    assert_texts_apart(EVERY[name]())


@pytest.mark.parametrize("name", rest_slow(EVERY, always=3))
def test_svg_has_its_words_as_text(name: str) -> None:
    figure = EVERY[name]()
    root = ElementTree.fromstring(figure_bytes(figure, ".svg"))
    written = " ".join(root.itertext()).split()
    words = {word for word in " ".join(texts(figure)).split() if not re.fullmatch(r"[−\d.,]+", word)}  # but ticks
    assert words <= set(written)
    assert root.findtext("{http://www.w3.org/2000/svg}title") == figure.get_label()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "suffix"), [*((name, ".svg") for name in (*KINDS, *HOSTILE)), ("use", ".png"), ("use", ".pdf")]
)
def test_a_figure_made_again_has_the_same_bytes_whatever_the_users_settings_are(name: str, suffix: str) -> None:
    make = getattr(EVERY[name], "__wrapped__", EVERY[name])  # other tests share one that is made once
    one = figure_bytes(make(), suffix)
    before = dict(matplotlib.rcParams)
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": None, "savefig.pad_inches": 3}):
        assert figure_bytes(make(), suffix) == one
    assert dict(matplotlib.rcParams) == before
    assert one.startswith({".svg": b"<?xml", ".png": b"\x89PNG", ".pdf": b"%PDF"}[suffix])
    assert b"Date" not in one


def test_bars_are_as_high_as_the_mean_and_the_papers_line_stands_over_them() -> None:
    (axes,) = KINDS["lag"]().axes
    assert [bar.get_height() for bar in axes.patches] == pytest.approx(EQUAL.percent)
    assert [bar.get_x() + bar.get_width() / 2 for bar in axes.patches] == pytest.approx(range(-15, 0))
    (paper,) = axes.lines
    assert (list(paper.get_xdata()), list(paper.get_ydata())) == (
        list(range(-15, 0)),
        list(PUBLISHED["key-value"].percent),
    )
    assert lag_figure([SHORT]).axes[0].lines[:] == []
    said = " ".join(texts(KINDS["lag"]())).replace("\n", " ")
    assert "33.3 % falls on the last 5 of 15 words. 1,234 positions, 5 left out." in said


def test_of_several_models_each_has_a_line_and_the_paper_one_for_windows_of_fifteen() -> None:
    again = MeasuredLags("another", "a text", EQUAL, "attention")
    drawn = lines(lag_figure([*map(as_published, PUBLISHED), SHORT, again]))
    joined = [line for line in drawn if len(line.get_xdata()) > 1]
    solid, dashed = ([line for line in joined if (line.get_linestyle() == "-") == kind] for kind in (True, False))
    assert [line.get_color() for line in solid] == [style.colour for style in STYLES[:6]]
    assert [line.get_color() for line in dashed] == [s.colour for s in STYLES[:4]]
    for one, model in zip(solid, PUBLISHED, strict=False):
        assert list(one.get_ydata()) == list(PUBLISHED[model].percent)
        assert list(one.get_xdata()) == [-lag for lag in PUBLISHED[model].lags]
    (hollow,) = (line for line in drawn if line.get_markerfacecolor() == PAPER)
    assert (list(hollow.get_xdata()), list(hollow.get_ydata())) == ([0], [39.9])
    cut = lag_figure([SHORT, CURRENT])
    assert len(lines(cut)) == 2 and "none stands beside shorter ones" in " ".join(texts(cut)).replace("\n", " ")


def test_use_by_epoch_has_two_lines_a_run_and_the_papers_two_ends() -> None:
    oracle, learned, *_, one_end, other = lines(KINDS["use"]())
    assert list(learned.get_ydata()) == pytest.approx([50, 2, 10]) and learned.get_markerfacecolor() != PAPER
    assert list(oracle.get_ydata()) == pytest.approx([30, 10, 8]) and oracle.get_markerfacecolor() == PAPER
    assert list(learned.get_xdata()) == [1, 2, 3]
    assert [line.get_ydata()[0] for line in (one_end, other)] == [7, 10] and one_end.get_color() == MUTED
    assert {"paper: about 10 %", "paper: oracle 7 %", "one", "long"} <= set(texts(KINDS["use"]()))


def test_panels_of_a_sweep_have_the_same_axes_and_bands_over_seeds() -> None:
    ours, theirs = KINDS["sweep"]().axes
    assert ours.get_ylim() == theirs.get_ylim() and ours.get_xlim() == theirs.get_xlim()
    assert ours.get_yscale() == "log"
    one, other = (line for line in ours.lines if line.get_linestyle() == "-")
    assert list(one.get_ydata()) == [101, 105, 110, 115], "in the order of the setting"
    assert list(other.get_xdata()) == [1, 5, 10]
    low, high = zip(*(path.vertices[:, 1] for path in ours.collections[1].get_paths()), strict=True)
    assert (list(low), list(high)) == ([96, 100, 105, 110], [104, 108, 113, 118])
    assert (theirs.lines[0].get_color(), theirs.lines[0].get_linestyle()) == (STYLES[0].colour, "--")
    said = " ".join(texts(KINDS["sweep"]())).replace("\n", " ")
    assert "several seeds" in said and "Dashed: published." in said and "axis is logarithmic" in said


def test_every_row_has_its_dot_its_whisker_and_one_number() -> None:
    measured, both, _ = KINDS["rows"]().axes
    dots = [line for line in both.lines if line.get_marker() != "None"]
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in dots] == [
        *((0.6, 0), (0.5, 0), (0.61, 1)),
        *((0.7, 2), (0.7, 2)),
    ]
    assert [70.0, 99.0] in [list(line.get_xdata()) for line in measured.lines]
    written = texts(KINDS["rows"]())
    assert set(ROWS) <= set(written) and {"80.0", "81.0", "0.500", "0.610", "0.700"} <= set(written)
    assert "0.600" not in written, "of two dots the measured one has its number"


def test_more_than_can_be_told_apart_is_refused() -> None:
    with pytest.raises(InputError, match=r"of 8 models: must be at most 7"):
        lag_figure([replace(SHORT, name=str(n)) for n in range(8)])


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast_on_white(colour: str) -> float:
    """WCAG 2: (L1 + 0.05) / (L2 + 0.05)."""
    return 1.05 / (float(np.array([0.2126, 0.7152, 0.0722]) @ linear(colour)) + 0.05)


def test_every_colour_can_be_seen() -> None:
    assert all(contrast_on_white(style.colour) >= 3 for style in STYLES)  # WCAG 2.1, 1.4.11: graphical objects
    assert len({style.mark for style in STYLES}) == len({style.colour for style in STYLES}) == 7
    assert contrast_on_white(MUTED) >= 4.5  # WCAG 2.1, 1.4.3
