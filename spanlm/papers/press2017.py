"""Press & Wolf (2017), "Using the Output Embedding to Improve Language Models", EACL, on Penn Treebank.

WT is weight tying: the softmax scores with the embedding's own matrix, its bias stays. PR is projection
regularisation: a square projection before that softmax, its squares penalised. BD is the variational ("Bayesian")
LSTM dropout of Gal & Ghahramani (2016). All settings but the published perplexities are those of the public code:

* without BD a TensorFlow port of Zaremba's models, whose medium schedule divides by 1.25, not 1.2; PR's penalty is
  ½‖P‖² / (6.5 · 20 streams) beside the loss summed over time and averaged over the streams. (The port starts the
  LSTM's biases at zero; here they are uniform like the others.)
* with BD Gal's code at 1500 units: 0.5 on what a layer reads from below and on what the softmax reads, 0.3 on the
  recurrent input and on whole words, masks of each gate locked in time; the rate is divided by 1.15 after 11 epochs.
  Its words were meant to be dropped as types; the version used compares tensors, so each occurrence was drawn by
  itself. Here they are dropped as types, as in the corrected version and in the paper of Gal & Ghahramani.
"""

from __future__ import annotations

from dataclasses import replace

from spanlm.models.encoders import VariationalLSTMConfig
from spanlm.models.heads import SoftmaxConfig
from spanlm.models.language_model import ModelConfig
from spanlm.models.memories import NoMemoryConfig
from spanlm.papers import zaremba2014
from spanlm.papers.paper import PENN_TREEBANK, Preset, preset_on
from spanlm.training.config import TrainingConfig

_UNKNOWN = "the paper's perplexities for it were not at hand"
_FROM_MEMORY = "the published perplexities are from memory"

SIZES = {**zaremba2014.SIZES, "medium": replace(zaremba2014.SIZES["medium"], factor=1.25)}
VARIATIONAL = replace(zaremba2014.SIZES["large"], dropout=0.5, full_epochs=11)
"""Gal's schedule: max_epoch is 10, and the rest is that of Zaremba's large model."""

PENALTY = 0.5 / (6.5 * 20)


def variational_model(size: zaremba2014.Size, *, tied: bool) -> ModelConfig:
    """Return Gal's variational LSTM with the dropout rates of his code."""
    return ModelConfig(
        embedding_size=size.units,
        embedding_dropout=0.3,
        output_dropout=size.dropout,
        locked_dropout=True,
        init_range=size.init_range,
        encoder=VariationalLSTMConfig(
            hidden_size=size.units, layers=2, input_dropout=size.dropout, recurrent_dropout=0.3, forget_bias=None
        ),
        memory=NoMemoryConfig(),
        head=SoftmaxConfig(tied=tied),
    )


def _preset(
    name: str, source: str, model: ModelConfig, training: TrainingConfig, remark: str = "", *printed: float
) -> Preset:
    sources = (source, *(("Salton et al. 2017, Table 1",) if name == "large-bd-wt" else ()))
    more = {"name": f"press2017/{name}", "paper": "Press & Wolf 2017", "sources": sources, "remark": remark}
    return preset_on(PENN_TREEBANK, model, training, *printed, **more)


_TIED = {name: zaremba2014.model_of(size, tied=True) for name, size in SIZES.items()}
_PROJECTED = replace(_TIED["small"], head=SoftmaxConfig(tied=True, projection=True, projection_penalty=PENALTY))
_TRAINING = {name: zaremba2014.training_of(size) for name, size in SIZES.items()}
_VARIATIONAL = zaremba2014.training_of(VARIATIONAL)
_DECAYED = replace(_VARIATIONAL, optimizer=replace(_VARIATIONAL.optimizer, weight_decay=1e-7))
_DECAY = (
    f"{_FROM_MEMORY}; Gal's code says that it gives 77.9 / 75.2. It decays weights by 1e-7 of their value a step, here "
    "times the learning rate"
)
_BD, _BD_WT = (variational_model(VARIATIONAL, tied=tied) for tied in (False, True))

PRESETS = [
    _preset("small-wt-pr", "small + WT + PR, without dropout", _PROJECTED, _TRAINING["small"], _UNKNOWN),
    _preset("medium-wt", "medium + WT", _TIED["medium"], _TRAINING["medium"], _UNKNOWN),
    _preset("large-wt", "large + WT", _TIED["large"], _TRAINING["large"], _FROM_MEMORY, 77.7, 74.3, 51),
    _preset("large-bd", "large + BD", _BD, _DECAYED, _DECAY, 78.1, 75.2, 66),
    _preset("large-bd-wt", "large + BD + WT", _BD_WT, _VARIATIONAL, "", 75.8, 73.2, 51),
]
