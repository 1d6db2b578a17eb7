"""Recurrent language models that look back: train, evaluate, score and look into them.

import spanlm
model = spanlm.load("runs/demo")
model.evaluate(split="valid").perplexity
for word in model.score("the name is bound ."): ...
model.attend("the name is bound .").weights
" ".join(model.generate("the", length=20))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spanlm.store import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from spanlm.config import RunConfig
    from spanlm.data.corpora import Corpus, load_corpus
    from spanlm.evaluation.cache import CacheConfig
    from spanlm.evaluation.dynamic.update import DynamicConfig
    from spanlm.presets import PRESETS, find_preset
    from spanlm.runs.ensemble import TrainedEnsemble, load_ensemble
    from spanlm.runs.loading import load
    from spanlm.runs.trained_model import TrainedModel
    from spanlm.training.run import train

_HOMES = {
    "PRESETS": "spanlm.presets",
    "CacheConfig": "spanlm.evaluation.cache",
    "Corpus": "spanlm.data.corpora",
    "DynamicConfig": "spanlm.evaluation.dynamic.update",
    "RunConfig": "spanlm.config",
    "TrainedEnsemble": "spanlm.runs.ensemble",
    "TrainedModel": "spanlm.runs.trained_model",
    "find_preset": "spanlm.presets",
    "load": "spanlm.runs.loading",
    "load_corpus": "spanlm.data.corpora",
    "load_ensemble": "spanlm.runs.ensemble",
    "train": "spanlm.training.run",
}

__all__ = [
    "PRESETS",
    "CacheConfig",
    "Corpus",
    "DynamicConfig",
    "RunConfig",
    "TrainedEnsemble",
    "TrainedModel",
    "find_preset",
    "load",
    "load_corpus",
    "load_ensemble",
    "train",
]


def __dir__() -> list[str]:
    """Name what can be imported, for completion."""
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `import spanlm` alone loads no torch."""
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module 'spanlm' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
