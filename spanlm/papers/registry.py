"""The presets and papers of all files of `published/`."""

from importlib import import_module
from pkgutil import iter_modules

from spanlm.errors import InputError, nearest
from spanlm.papers import published
from spanlm.papers.paper import NgramPreset, Paper, Preset, Reported

_FILES = [import_module(f"{published.__name__}.{file.name}") for file in iter_modules(published.__path__)]

PRESETS: dict[str, Preset] = {preset.name: preset for file in _FILES for preset in file.PRESETS}

NGRAM_PRESETS: dict[str, NgramPreset] = {
    preset.name: preset for file in _FILES for preset in getattr(file, "NGRAM_PRESETS", ())
}
"""Those of n-gram models, which `spanlm train` takes, too."""

PAPERS: dict[str, Paper] = {file.PAPER.name: file.PAPER for file in _FILES if hasattr(file, "PAPER")}
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
