"""Published tables: one file a paper, with a preset for each row, and how the rows are run again and shown."""

from spanlm.errors import InputError, nearest
from spanlm.papers import (
    daniluk2017,
    grave2017,
    li2020,
    merity2017,
    merity2018,
    ngram,
    press2017,
    salton2017,
    wang2019,
    yang2018,
    yardstick,
    zaremba2014,
)
from spanlm.papers.ngram import NgramPreset
from spanlm.papers.paper import Paper, Preset, Reported

_FILES = (
    daniluk2017,
    salton2017,
    zaremba2014,
    press2017,
    grave2017,
    merity2017,
    merity2018,
    yang2018,
    wang2019,
    li2020,
    yardstick,
)

PRESETS: dict[str, Preset] = {preset.name: preset for file in _FILES for preset in file.PRESETS}

NGRAM_PRESETS: dict[str, NgramPreset] = {preset.name: preset for preset in ngram.PRESETS}
"""Those of n-gram models, which `spanlm train` takes, too."""

PAPERS: dict[str, Paper] = {file.PAPER.name: file.PAPER for file in (daniluk2017, salton2017, li2020, yardstick)}
"""Those whose tables `spanlm reproduce` runs again."""


def find_preset(name: str) -> Preset:
    """Return the preset of that name.

    Raises:
        InputError: there is no such preset; the message names the nearest.

    Example:
        >>> spanlm.find_preset("daniluk2017/kvp-w5").config.model.memory.window
        5
    """
    if name in NGRAM_PRESETS:
        raise InputError(f"{name}: is the preset of an n-gram model, for `spanlm train {name}` alone")
    if name not in PRESETS:
        raise InputError(
            f"unknown preset {name}.{nearest(name, [*PRESETS, *NGRAM_PRESETS])} `spanlm presets` lists them all."
        )
    return PRESETS[name]


__all__ = ["NGRAM_PRESETS", "PAPERS", "PRESETS", "NgramPreset", "Preset", "Reported", "find_preset"]
