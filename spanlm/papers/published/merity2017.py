"""Merity et al. (2017), "Pointer Sentinel Mixture Models", ICLR: the pointer, and the LSTMs it is compared with.

The recipe, from memory: 2 × 650 units, 32 streams of 100 steps, SGD from 1, halved when the validation loss is no
better, at most 64 epochs, stop after three without improvement, gradient norm at most 1; dropout 0.5 locked in time
on the input of each layer and on the last layer's output, zoneout 0.1 on the recurrent state. The loss is summed over
time: at a rate of 1 its mean would hardly train. Weights start in ±0.05, as Zaremba's do.

The row "Variational LSTM" is a run of Gal's public code at this size; here with that code's settings (see
`press2017`), and with the init and the clip of Zaremba's medium model.
"""

from __future__ import annotations

from dataclasses import replace

from spanlm.config import RunConfig
from spanlm.models.encoders import VariationalLSTMConfig
from spanlm.models.language_model import ModelConfig
from spanlm.models.memories import NoMemoryConfig, PointerSentinelConfig
from spanlm.papers.paper import TABLES, TEXTS, Preset, preset_on
from spanlm.papers.published import press2017
from spanlm.papers.scales import changed
from spanlm.training.config import BatchingConfig, OptimizerConfig, ScheduleConfig, TrainingConfig

UNITS = 650

_WORDS = "the printed {} are those of a vocabulary of 10,000 words; with WikiText-2's 33,278 the model has {}"
_GAL_REMARK = (
    "a run of Gal's code at 650 units; the paper does not say with which settings, here those of its 1500 units; "
    f"{_WORDS.format('20M', '50.1M')}"
)
_PENN_REMARK = "the recipe is from memory; by our count 20.2M parameters, not the 21M that is printed"
_ZONEOUT_REMARK = f"the recipe is from memory; {_WORDS.format('20M', '50.1M')}"
_POINTER_REMARK = f"the recipe is from memory; {_WORDS.format('21M', '50.5M')}"

_PLAIN = RunConfig(
    model=ModelConfig(
        embedding_size=UNITS,
        output_dropout=0.5,
        locked_dropout=True,
        init_range=0.05,
        encoder=VariationalLSTMConfig(
            hidden_size=UNITS,
            layers=2,
            input_dropout=0.5,
            per_gate=False,
            zoneout_h=0.1,
            zoneout_c=0.1,
            forget_bias=None,
        ),
        memory=NoMemoryConfig(),
    ),
    training=TrainingConfig(
        optimizer=OptimizerConfig(kind="sgd", lr=1.0, clip=1.0),
        schedule=ScheduleConfig(kind="plateau", factor=2.0),
        batching=BatchingConfig(kind="streams", batch_size=32, length=100, eval_batch_size=32),
        loss="time-sum",
        epochs=64,
        patience=3,
    ),
)
_POINTER = changed(_PLAIN, {"model.memory": PointerSentinelConfig(window=100)})
_GAL = press2017.variational(replace(press2017.VARIATIONAL, units=UNITS, init_range=0.05, clip=5.0), tied=False)


def _preset(name: str, label: str, source: str, config: RunConfig, remark: str, *printed: float) -> Preset:
    more = {"name": f"merity2017/{name}-{label}", "paper": "Merity et al. 2017", "remark": remark}
    sources = (source, f"Salton et al. 2017, {TABLES[label]}")
    return preset_on(TEXTS[label], config, *printed, sources=sources, **more)


PRESETS = [
    _preset("pointer", "ptb", "pointer sentinel-LSTM", _POINTER, _PENN_REMARK, 72.4, 70.9, 21),
    _preset("variational", "wt2", "variational LSTM", _GAL, _GAL_REMARK, 101.7, 96.3, 20),
    _preset("zoneout", "wt2", "zoneout + variational LSTM", _PLAIN, _ZONEOUT_REMARK, 108.7, 100.9, 20),
    _preset("pointer", "wt2", "pointer sentinel-LSTM, window 100", _POINTER, _POINTER_REMARK, 84.8, 80.8, 21),
]
