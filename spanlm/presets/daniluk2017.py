"""Daniluk et al. (2017), "Frustratingly Short Attention Spans in Neural Language Modeling", ICLR.

The paper's symbols here: w = model.embedding_size, k = model.encoder.hidden_size (the full LSTM output, of which
memories use equal parts), a = model.memory.window, N = model.memory.order (of an N-gram RNN; of a HORNN
model.encoder.order). Recipe (§4.1): Adam 0.001, 64 streams,
20 steps of BPTT, gradient norm at most 5, forget-gate bias 1, every other weight uniform in ±0.1, one LSTM layer,
nothing tied, no dropout. The RNN, the HORNNs and the recurrent memory (RM) are their implementations of others'
models, for comparison; the number of epochs is not given: here the best by validation, patience 2.
Their Wikipedia corpus has 77,000 words of vocabulary. The state is reset between articles (data.documents=auto).
"""

from __future__ import annotations

from typing import Literal

from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.models.encoders import AnyEncoderConfig, HORNNConfig, LSTMConfig, RNNConfig
from spanlm.models.language_model import ModelConfig
from spanlm.models.memories import AnyMemoryConfig, KeyValueConfig, NGramConfig, NoMemoryConfig, RecurrentMemoryConfig
from spanlm.presets.preset import Preset, Reported
from spanlm.training.config import BatchingConfig, OptimizerConfig, TrainingConfig

PAPER = "Daniluk et al. 2017"
VOCABULARY_SIZE = 77_000
PUBLISHED_MODEL_PARAMETERS = 23.9
PUBLISHED_RECURRENT_MEMORY_PARAMETERS = 70.6

# Figure 2a: test perplexity by window; Figure 2c adds development perplexity at each model's best window
_WINDOWS = {
    "attention": ({1: 82.2, 5: 82.2, 10: 82.0, 15: 82.8}, {10: 80.6}),
    "kv": ({1: 78.7, 5: 79.0, 10: 78.2, 15: 78.9}, {10: 77.1}),
    "kvp": ({1: 76.1, 5: 75.8, 10: 76.0, 15: 75.8}, {5: 74.2}),
    "rm": ({1: 83.5, 5: 80.5, 10: 80.3, 15: 80.1}, {15: 78.2}),
}
_TITLES = {"attention": "Attention", "kv": "Key-Value", "kvp": "Key-Value-Predict", "rm": "RM(+tM-g)"}
_ROLES = {"attention": 1, "kv": 2, "kvp": 3}
# Figure 2c: test and development perplexity
_HORNN: tuple[tuple[Literal["fofe", "gated"], str, int, tuple[float, float], str], ...] = (
    ("fofe", "FOFE", 303, (120.5, 116.7), "23.77"),
    ("gated", "Gated", 297, (97.1, 93.9), "23.83"),
)
# Figure 2b: order -> hidden size, development and test perplexity
_NGRAM = {2: (564, 76.0, 77.1), 3: (786, 74.9, 75.9), 4: (968, 74.8, 75.9), 5: (1120, 76.0, 77.3)}

_KVP_REMARK = (
    "the paper's 834 units have 25.6M parameters, not the 23.9M it prints; 786 units have 23.9M: "
    "daniluk2017/kvp-786-w{window} is that"
)
_KVP_MATCHED_REMARK = "786 units, which fit the printed 23.9M; the paper's number is that of its 834 units"
_HORNN_REMARK = (
    "{units} units have {count}M parameters, not the 23.9M the paper prints; it does not give the equations it counted"
)


def _row(
    name: str,
    figures: tuple[str, ...],
    encoder: AnyEncoderConfig,
    memory: AnyMemoryConfig,
    test: float,
    valid: float | None,
    remark: str = "",
) -> Preset:
    model = ModelConfig(embedding_size=300, encoder=encoder, memory=memory)
    recurrent = isinstance(memory, RecurrentMemoryConfig)
    return Preset(
        name=f"daniluk2017/{name}",
        paper=PAPER,
        sources=figures,
        config=RunConfig(
            data=DataConfig(documents="auto"), model=model, training=TrainingConfig(epochs=50, patience=2)
        ),
        reported=Reported(
            valid_ppl=valid,
            test_ppl=test,
            model_parameters=PUBLISHED_RECURRENT_MEMORY_PARAMETERS if recurrent else PUBLISHED_MODEL_PARAMETERS,
            corpus="Wikipedia, 7,500 articles",
            vocabulary_size=VOCABULARY_SIZE,
        ),
        remark=remark,
    )


def _windows(name: str, hidden_size: int, label: str, remark: str = "") -> list[Preset]:
    def memory(window: int) -> AnyMemoryConfig:
        if name == "rm":
            return RecurrentMemoryConfig(window=window, temporal=True, composition="gated")
        return KeyValueConfig(roles=_ROLES[name], window=window)

    tests, valid = _WINDOWS[name]
    return [
        _row(
            f"{label}-w{window}",
            (f"Figure 2a, {_TITLES[name]}, window {window}", *(("Figure 2c",) if window in valid else ())),
            LSTMConfig(hidden_size=hidden_size),
            memory(window),
            test,
            valid.get(window),
            remark.format(window=window),
        )
        for window, test in tests.items()
    ]


DEMO = Preset(
    name="demo",
    paper="none; Daniluk et al. (2017) made small",
    sources=("the main job in about a minute on two CPU cores",),
    config=RunConfig(
        data=DataConfig(corpus="demo"),
        model=ModelConfig(
            embedding_size=100,
            output_dropout=0.5,
            init_range=0.2,  # the paper's 0.1 idles for two epochs on a text this short
            encoder=LSTMConfig(hidden_size=300),
            memory=KeyValueConfig(roles=3, window=5),
        ),
        training=TrainingConfig(
            optimizer=OptimizerConfig(lr=0.002),
            batching=BatchingConfig(batch_size=8, length=20, eval_batch_size=8),
            epochs=12,
            patience=2,
            log_every=20,
        ),
    ),
)
"""The main job in about a minute: a small Key-Value-Predict model on the embedded corpus."""

PRESETS = [
    DEMO,
    _row("rnn", ("Figure 2c, RNN",), RNNConfig(hidden_size=307), NoMemoryConfig(), 125.7, 121.7),
    _row("lstm", ("Figure 2c, LSTM",), LSTMConfig(hidden_size=300), NoMemoryConfig(), 85.2, 83.2),
    *(
        _row(
            f"{pooling}-hornn-3",
            (f"Figure 2c, {title} HORNN (3rd order)",),
            HORNNConfig(hidden_size=units, order=3, pooling=pooling),
            NoMemoryConfig(),
            *printed,
            _HORNN_REMARK.format(units=units, count=count),
        )
        for pooling, title, units, printed, count in _HORNN
    ),
    *_windows("rm", 300, "rm"),
    *_windows("attention", 296, "attention"),
    *_windows("kv", 560, "kv"),
    *_windows("kvp", 834, "kvp", _KVP_REMARK),
    *_windows("kvp", 786, "kvp-786", _KVP_MATCHED_REMARK),
    *(
        _row(
            f"{order}-gram",
            (f"Figure 2b, {order}-gram RNN", *(("Figure 2c",) if order == 4 else ())),
            LSTMConfig(hidden_size=hidden_size),
            NGramConfig(order=order),
            test,
            valid,
        )
        for order, (hidden_size, valid, test) in _NGRAM.items()
    ),
]
