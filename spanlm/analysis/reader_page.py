"""What the pages share on which the words of a text can be pointed at: all but the panel, and the scale of shades."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlm.analysis.self_contained import self_contained

_SHADE_QUANTILE = 0.99  # the darkest blue: a few single peaks must not make all the rest pale


def reader_page(
    record: object, *, panel: str, script: str, styles: Sequence[str] = (), title: str, texts: Mapping[str, str]
) -> str:
    """Return a self-contained HTML page.

    Args:
        record: what the scripts read, as plain values.
        panel: the file of what stands beside the text.
        script: the file of what fills the panel.
        styles: files of the panel's own style, in order.
        title: any text.
        texts: `introduction`, `just_read` and `footnote` of `reader.html`, and `tint` and `most_tint`, the ends of the
            scale of tints; markup of our own.
    """
    return self_contained(
        "reader.html",
        record,
        fragments={"panel": panel},
        styles=("page.css", *styles),
        scripts=("reader.js", script),
        title=title,
        texts=texts,
    )


def darkest(seen: NDArray[np.floating[Any]], units: int) -> float:
    """Return the weight shown in the darkest blue, one for the whole text so that shades can be compared.

    Args:
        seen: weights that were looked with; without any, it is 1.
        units: so many of the page's weights are 1; it is at least one of them.
    """
    return max(round(units * float(np.quantile(seen, _SHADE_QUANTILE))), 1) / units if seen.size else 1.0
