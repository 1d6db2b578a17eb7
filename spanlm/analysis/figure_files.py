"""What all figures share as files: their suffixes, how one is written, and how many series it can hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

from spanlm.analysis.drawing import Drawing
from spanlm.analysis.palette import STYLES
from spanlm.analysis.png import render_png
from spanlm.analysis.svg import render_svg
from spanlm.errors import InputError

FIGURES = (".svg", ".png")

Shown = ParamSpec("Shown")


def drawn(draw: Callable[Shown, Drawing]) -> dict[str, Callable[Shown, bytes]]:
    """Return how what `draw` draws is written, for each of `FIGURES`; `.png` needs matplotlib."""

    def svg(*shown: Shown.args, **options: Shown.kwargs) -> bytes:
        return render_svg(draw(*shown, **options)).encode("utf-8")

    def png(*shown: Shown.args, **options: Shown.kwargs) -> bytes:
        return render_png(draw(*shown, **options))

    return dict(zip(FIGURES, (svg, png), strict=True))


def check_series(what: str, instead: str, count: int) -> None:
    """Refuse more series than can be told apart.

    Args:
        what: they are, in the plural.
        instead: formats that hold any number.
        count: how many there are.

    Raises:
        InputError: there are more.
    """
    if count > len(STYLES):
        raise InputError(f"a figure of {count} {what}: must be at most {len(STYLES)}; write {instead}")
