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

from spanlm.config import RunConfig
from spanlm.models.encoders import VariationalLSTMConfig
from spanlm.models.heads import SoftmaxConfig
from spanlm.papers.paper import PENN_TREEBANK, Preset, preset_on
from spanlm.papers.published import zaremba2014
from spanlm.papers.scales import changed

_UNKNOWN = "the paper's perplexities for it were not at hand"
_FROM_MEMORY = "the published perplexities are from memory"

SIZES = {**zaremba2014.SIZES, "medium": replace(zaremba2014.SIZES["medium"], factor=1.25)}
VARIATIONAL = replace(zaremba2014.SIZES["large"], dropout=0.5, full_epochs=11)
"""Gal's schedule: max_epoch is 10, and the rest is that of Zaremba's large model."""

PENALTY = 0.5 / (6.5 * 20)


def variational(size: zaremba2014.Size, *, tied: bool) -> RunConfig:
    """Return Gal's variational LSTM with the dropout rates of his code, trained by the schedule of a size."""
    encoder = VariationalLSTMConfig(
        hidden_size=size.units, layers=2, input_dropout=size.dropout, recurrent_dropout=0.3, forget_bias=None
    )
    changes = {"embedding_dropout": 0.3, "input_dropout": 0.0, "locked_dropout": True, "encoder": encoder}
    config = zaremba2014.config_of(size, tied=tied)
    return changed(config, {f"model.{name}": value for name, value in changes.items()})


def _preset(name: str, sources: tuple[str, ...], config: RunConfig, remark: str, *printed: float) -> Preset:
    more = {"name": f"press2017/{name}", "paper": "Press & Wolf 2017", "sources": sources, "remark": remark}
    return preset_on(PENN_TREEBANK, config, *printed, **more)


_SMALL, _MEDIUM, _LARGE = (zaremba2014.config_of(size, tied=True) for size in SIZES.values())
_SMALL_PR = changed(_SMALL, {"model.head": SoftmaxConfig(tied=True, projection=True, projection_penalty=PENALTY)})
_DECAY = (
    f"{_FROM_MEMORY}; Gal's code says that it gives 77.9 / 75.2. It decays weights by 1e-7 of their value a step, here "
    "times the learning rate"
)
_BD, _BD_WT = (variational(VARIATIONAL, tied=tied) for tied in (False, True))
_BD = changed(_BD, {"training.optimizer.weight_decay": 1e-7})

PRESETS = [
    _preset("small-wt-pr", ("small + WT + PR, without dropout",), _SMALL_PR, _UNKNOWN),
    _preset("medium-wt", ("medium + WT",), _MEDIUM, _UNKNOWN),
    _preset("large-wt", ("large + WT",), _LARGE, _FROM_MEMORY, 77.7, 74.3, 51),
    _preset("large-bd", ("large + BD",), _BD, _DECAY, 78.1, 75.2, 66),
    _preset("large-bd-wt", ("large + BD + WT", "Salton et al. 2017, Table 1"), _BD_WT, "", 75.8, 73.2, 51),
]
