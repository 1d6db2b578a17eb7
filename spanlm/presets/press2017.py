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
from spanlm.presets import zaremba2014
from spanlm.presets.preset import PENN_TREEBANK, Preset, Reported, reported_on, row
from spanlm.training.config import TrainingConfig

PAPER = "Press & Wolf 2017"

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


def _with_decay(training: TrainingConfig, weight_decay: float) -> TrainingConfig:
    return replace(training, optimizer=replace(training.optimizer, weight_decay=weight_decay))


def _row(
    name: str, source: str, config: tuple[ModelConfig, TrainingConfig], reported: Reported, remark: str = ""
) -> Preset:
    sources = (source, *(("Salton et al. 2017, Table 1",) if name == "large-bd-wt" else ()))
    return row(f"press2017/{name}", PAPER, sources, PENN_TREEBANK, *config, reported, remark)


def _plain(size: str, head: SoftmaxConfig | None = None) -> tuple[ModelConfig, TrainingConfig]:
    model = zaremba2014.model_of(SIZES[size], tied=True)
    return replace(model, head=head or model.head), zaremba2014.training_of(SIZES[size])


_LARGE_TRAINING = zaremba2014.training_of(VARIATIONAL)

_PROJECTED = SoftmaxConfig(tied=True, projection=True, projection_penalty=PENALTY)

PRESETS = [
    _row(
        "small-wt-pr",
        "small + WT + PR, without dropout",
        _plain("small", _PROJECTED),
        reported_on(PENN_TREEBANK),
        _UNKNOWN,
    ),
    _row("medium-wt", "medium + WT", _plain("medium"), reported_on(PENN_TREEBANK), _UNKNOWN),
    _row(
        "large-wt",
        "large + WT",
        _plain("large"),
        reported_on(PENN_TREEBANK, valid_ppl=77.7, test_ppl=74.3, all_parameters=51),
        _FROM_MEMORY,
    ),
    _row(
        "large-bd",
        "large + BD",
        (variational_model(VARIATIONAL, tied=False), _with_decay(_LARGE_TRAINING, 1e-7)),
        reported_on(PENN_TREEBANK, valid_ppl=78.1, test_ppl=75.2, all_parameters=66),
        f"{_FROM_MEMORY}; Gal's code says that it gives 77.9 / 75.2. It decays weights by 1e-7 of their value a step, "
        "here times the learning rate",
    ),
    _row(
        "large-bd-wt",
        "large + BD + WT",
        (variational_model(VARIATIONAL, tied=True), _LARGE_TRAINING),
        reported_on(PENN_TREEBANK, valid_ppl=75.8, test_ppl=73.2, all_parameters=51),
    ),
]
