"""Zaremba et al. (2014), "Recurrent Neural Network Regularization": LSTMs with dropout on non-recurrent connections.

Recipe of the paper and its code (2 layers, embedding as wide as a layer): SGD from 1, gradients of the loss summed over
time and averaged over 20 streams, every weight and every bias uniform, dropout on the embedded words,
between the layers and before the softmax, state carried on. The code divides the rate after each epoch whose number
is above `max_epoch`, so max_epoch + 1 epochs have the full rate. It trains to the last epoch and keeps its
weights; these presets train as long and keep the weights that are best on valid.
"""

from __future__ import annotations

from dataclasses import dataclass

from spanlm.config import RunConfig
from spanlm.models.encoders import LSTMConfig
from spanlm.models.heads import SoftmaxConfig
from spanlm.models.language_model import ModelConfig
from spanlm.models.memories import NoMemoryConfig
from spanlm.papers.paper import PENN_TREEBANK, Preset, preset_on
from spanlm.training.config import BatchingConfig, OptimizerConfig, ScheduleConfig, TrainingConfig

_SMALL_REMARK = "the published perplexities are from memory; the code says that it gives 115 on the test part"
_MEDIUM_REMARK = (
    "the factor 1.2 of the schedule is from memory of the paper; the TensorFlow port of it divides by 1.25, "
    "as press2017/medium-wt does"
)


@dataclass(frozen=True)
class Size:
    """One of the three published sizes with its schedule; `full_epochs` is the code's max_epoch + 1."""

    units: int
    length: int
    init_range: float
    dropout: float
    full_epochs: int
    factor: float
    epochs: int
    clip: float


SIZES = {
    "small": Size(200, 20, init_range=0.1, dropout=0.0, full_epochs=5, factor=2.0, epochs=13, clip=5.0),
    "medium": Size(650, 35, init_range=0.05, dropout=0.5, full_epochs=7, factor=1.2, epochs=39, clip=5.0),
    "large": Size(1500, 35, init_range=0.04, dropout=0.65, full_epochs=15, factor=1.15, epochs=55, clip=10.0),
}


def config_of(size: Size, *, tied: bool = False) -> RunConfig:
    return RunConfig(
        model=ModelConfig(
            embedding_size=size.units,
            input_dropout=size.dropout,
            output_dropout=size.dropout,
            init_range=size.init_range,
            encoder=LSTMConfig(hidden_size=size.units, layers=2, dropout=size.dropout, forget_bias=None),
            memory=NoMemoryConfig(),
            head=SoftmaxConfig(tied=tied),
        ),
        training=TrainingConfig(
            optimizer=OptimizerConfig(kind="sgd", lr=1.0, clip=size.clip),
            schedule=ScheduleConfig(kind="step", factor=size.factor, full_epochs=size.full_epochs),
            batching=BatchingConfig(kind="streams", batch_size=20, length=size.length, eval_batch_size=20),
            loss="time-sum",
            epochs=size.epochs,
            patience=None,
        ),
    )


def _preset(name: str, sources: tuple[str, ...], remark: str, *printed: float) -> Preset:
    more = {"name": f"zaremba2014/{name}", "paper": "Zaremba et al. 2014", "sources": sources, "remark": remark}
    return preset_on(PENN_TREEBANK, config_of(SIZES[name]), *printed, **more)


_SALTON = "Salton et al. 2017, Table 1"

PRESETS = [
    _preset("small", ("Table 1, non-regularized LSTM",), _SMALL_REMARK, 120.7, 114.5),
    _preset("medium", ("Table 1, medium regularized LSTM", _SALTON), _MEDIUM_REMARK, 86.2, 82.7, 20),
    _preset("large", ("Table 1, large regularized LSTM", _SALTON), "", 82.2, 78.4, 66),
]
