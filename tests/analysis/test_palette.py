"""Colours stay apart on white and for eyes that see fewer of them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from spanlm.analysis.drawing import Mark
from spanlm.analysis.palette import MUTED, PAPER, STYLES, UNKNOWN_INK, blue, ink_on, lighter, mixed

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB
EYES = {
    "all colours": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])


def _linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def _contrast_on_white(colour: str) -> float:
    """WCAG 2: (L1 + 0.05) / (L2 + 0.05)."""
    return 1.05 / (float(np.array([0.2126, 0.7152, 0.0722]) @ _linear(colour)) + 0.05)


def _lab(linear: np.ndarray) -> np.ndarray:
    share = TO_XYZ @ linear / WHITE
    x, y, z = np.where(share > 0.008856, np.cbrt(share), 7.787 * share + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.colour)
def test_every_series_stands_out_from_the_paper(style: object) -> None:
    colour = style.colour  # type: ignore[attr-defined]
    assert _contrast_on_white(colour) >= 3  # WCAG 2.1, 1.4.11: graphical objects
    assert 1.8 <= _contrast_on_white(lighter(colour)) < _contrast_on_white(colour)


@pytest.mark.parametrize("ink", [MUTED, UNKNOWN_INK])
def test_small_text_can_be_read(ink: str) -> None:
    assert _contrast_on_white(ink) >= 4.5


def test_a_number_can_be_read_on_every_shade() -> None:
    inks = [ink_on(blue(share)) for share in np.linspace(0, 1, 200)]
    for share, ink in zip(np.linspace(0, 1, 200), inks, strict=True):
        on_white, ink_on_white = _contrast_on_white(blue(share)), _contrast_on_white(ink)
        assert max(on_white / ink_on_white, ink_on_white / on_white) >= 4.5  # WCAG 2.1, 1.4.3
    assert inks == sorted(inks) and set(inks) == {"#000000", PAPER}, "dark on light, then light on dark"


@pytest.mark.parametrize("eyes", EYES)
def test_every_pair_of_series_stays_apart(eyes: str) -> None:
    seen = [_lab(np.clip(EYES[eyes] @ _linear(style.colour), 0, 1)) for style in STYLES]
    distances = [float(np.linalg.norm(one - other)) for one, other in combinations(seen, 2)]
    assert min(distances) >= 17


def test_every_series_has_a_mark_of_its_own() -> None:
    outlines = {Mark(0, 0, style.mark, 1, style.colour).outline for style in STYLES}
    assert len(outlines) == len({style.mark for style in STYLES}) == len(STYLES) == 7


def test_darker_means_more() -> None:
    shades = [_linear(blue(share)).sum() for share in np.linspace(0, 1, 50)]
    assert shades == sorted(shades, reverse=True)
    assert blue(-1) == blue(0) and blue(2) == blue(1)


def test_mixing_goes_from_one_to_the_other() -> None:
    assert mixed("#102030", "#ffffff", 0) == "#102030"
    assert mixed("#102030", PAPER, 1) == PAPER
    assert mixed("#000000", "#ff8000", 0.5) == "#804000"
