"""Recurrent language models that look back: train, evaluate, score and look into them.

>>> import spanlm
>>> model = spanlm.load("runs/demo")
>>> perplexity = model.evaluate(split="valid").perplexity
>>> [word.word for word in model.score("the name is bound .")]  # each with its surprisal, entropy and rank
['the', 'name', 'is', 'bound', '.']
>>> model.attend("the name is bound .").weights.shape  # <eos> and five words, looking back five words
(6, 5)
>>> text = " ".join(model.generate("the", length=20))
"""

from __future__ import annotations

from importlib.machinery import PathFinder as _PathFinder

from spanlm.store import VERSION

__version__ = VERSION

TYPE_CHECKING = False  # to type checkers it is true; `typing` takes most of the time in which Ctrl-C finds no handler
if TYPE_CHECKING:
    from typing import Any

    from spanlm.config import RunConfig as RunConfig
    from spanlm.data.corpora import Corpus as Corpus
    from spanlm.data.corpora import load_corpus as load_corpus
    from spanlm.errors import InputError as InputError
    from spanlm.errors import RunError as RunError
    from spanlm.interop.hf import to_hf as to_hf
    from spanlm.papers.registry import PRESETS as PRESETS
    from spanlm.papers.registry import find_preset as find_preset
    from spanlm.runs.ensemble import TrainedEnsemble as TrainedEnsemble
    from spanlm.runs.ensemble import load_ensemble as load_ensemble
    from spanlm.runs.loading import load as load
    from spanlm.runs.model import TrainedModel as TrainedModel
    from spanlm.scoring.options import CacheConfig as CacheConfig
    from spanlm.scoring.options import DynamicConfig as DynamicConfig
    from spanlm.scoring.options import NeighboursConfig as NeighboursConfig
    from spanlm.training.run import train as train

_HOMES = {
    "PRESETS": "spanlm.papers.registry",
    "CacheConfig": "spanlm.scoring.options",
    "Corpus": "spanlm.data.corpora",
    "DynamicConfig": "spanlm.scoring.options",
    "InputError": "spanlm.errors",
    "NeighboursConfig": "spanlm.scoring.options",
    "RunConfig": "spanlm.config",
    "RunError": "spanlm.errors",
    "TrainedEnsemble": "spanlm.runs.ensemble",
    "TrainedModel": "spanlm.runs.model",
    "find_preset": "spanlm.papers.registry",
    "load": "spanlm.runs.loading",
    "load_corpus": "spanlm.data.corpora",
    "load_ensemble": "spanlm.runs.ensemble",
    "to_hf": "spanlm.interop.hf",
    "train": "spanlm.training.run",
}

# without its extra, `help(spanlm)` and `from spanlm import *` would fail at this name
__all__ = [name for name in _HOMES if name != "to_hf" or _PathFinder.find_spec("transformers")]


def __dir__() -> list[str]:
    """Name what can be imported, for completion."""
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import spanlm` alone loads no torch."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'spanlm' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
