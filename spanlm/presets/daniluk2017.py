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

from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.models.config import ModelConfig
from spanlm.models.encoders import AnyEncoderConfig, HORNNConfig, LSTMConfig, RNNConfig
from spanlm.models.memories import (
    AnyMemoryConfig,
    KeyValueConfig,
    NGramConfig,
    NoMemoryConfig,
    RecurrentMemoryConfig,
)
from spanlm.presets.preset import Preset, Reported
from spanlm.training.config import TrainingConfig

PAPER = "Daniluk et al. 2017"
VOCABULARY_SIZE = 77_000
PUBLISHED_MODEL_PARAMETERS = 23.9
PUBLISHED_RECURRENT_MEMORY_PARAMETERS = 70.6

# Figure 2a: roles, test perplexity by window; Figure 2c adds development perplexity at each model's best window
_WINDOWS = (1, 5, 10, 15)
_ATTENTIVE = {
    "attention": (1, {1: 82.2, 5: 82.2, 10: 82.0, 15: 82.8}, {10: 80.6}),
    "kv": (2, {1: 78.7, 5: 79.0, 10: 78.2, 15: 78.9}, {10: 77.1}),
    "kvp": (3, {1: 76.1, 5: 75.8, 10: 76.0, 15: 75.8}, {5: 74.2}),
}
_TITLES = {"attention": "Attention", "kv": "Key-Value", "kvp": "Key-Value-Predict"}
_RECURRENT_MEMORY = ({1: 83.5, 5: 80.5, 10: 80.3, 15: 80.1}, {15: 78.2})
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
    sources: tuple[str, ...],
    encoder: AnyEncoderConfig,
    memory: AnyMemoryConfig,
    reported: Reported,
    remark: str = "",
) -> Preset:
    model = ModelConfig(embedding_size=300, encoder=encoder, memory=memory)
    config = RunConfig(data=DataConfig(documents="auto"), model=model, training=TrainingConfig(epochs=50, patience=2))
    return Preset(
        name=f"daniluk2017/{name}",
        paper=PAPER,
        sources=sources,
        config=config,
        reported=reported,
        remark=remark,
    )


def _reported(test: float, valid: float | None, model_parameters: float = PUBLISHED_MODEL_PARAMETERS) -> Reported:
    return Reported(
        valid_ppl=valid,
        test_ppl=test,
        model_parameters=model_parameters,
        corpus="Wikipedia, 7,500 articles",
        vocabulary_size=VOCABULARY_SIZE,
    )


def _attentive_rows(name: str, hidden_size: int, label: str, remark: str = "") -> list[Preset]:
    roles, test, valid = _ATTENTIVE[name]
    return [
        _row(
            f"{label}-w{window}",
            (f"Figure 2a, {_TITLES[name]}, window {window}", *(("Figure 2c",) if window in valid else ())),
            LSTMConfig(hidden_size=hidden_size),
            KeyValueConfig(roles=roles, window=window),
            _reported(test[window], valid.get(window)),
            remark.format(window=window),
        )
        for window in _WINDOWS
    ]


def _recurrent_memory_rows() -> list[Preset]:
    test, valid = _RECURRENT_MEMORY
    return [
        _row(
            f"rm-w{window}",
            (f"Figure 2a, RM(+tM-g), window {window}", *(("Figure 2c",) if window in valid else ())),
            LSTMConfig(hidden_size=300),
            RecurrentMemoryConfig(window=window, temporal=True, composition="gated"),
            _reported(test[window], valid.get(window), PUBLISHED_RECURRENT_MEMORY_PARAMETERS),
        )
        for window in _WINDOWS
    ]


PRESETS = [
    _row("rnn", ("Figure 2c, RNN",), RNNConfig(hidden_size=307), NoMemoryConfig(), _reported(125.7, 121.7)),
    _row("lstm", ("Figure 2c, LSTM",), LSTMConfig(hidden_size=300), NoMemoryConfig(), _reported(85.2, 83.2)),
    _row(
        "fofe-hornn-3",
        ("Figure 2c, FOFE HORNN (3rd order)",),
        HORNNConfig(hidden_size=303, order=3, pooling="fofe"),
        NoMemoryConfig(),
        _reported(120.5, 116.7),
        _HORNN_REMARK.format(units=303, count="23.77"),
    ),
    _row(
        "gated-hornn-3",
        ("Figure 2c, Gated HORNN (3rd order)",),
        HORNNConfig(hidden_size=297, order=3, pooling="gated"),
        NoMemoryConfig(),
        _reported(97.1, 93.9),
        _HORNN_REMARK.format(units=297, count="23.83"),
    ),
    *_recurrent_memory_rows(),
    *_attentive_rows("attention", 296, "attention"),
    *_attentive_rows("kv", 560, "kv"),
    *_attentive_rows("kvp", 834, "kvp", _KVP_REMARK),
    *_attentive_rows("kvp", 786, "kvp-786", _KVP_MATCHED_REMARK),
    *(
        _row(
            f"{order}-gram",
            (f"Figure 2b, {order}-gram RNN", *(("Figure 2c",) if order == 4 else ())),
            LSTMConfig(hidden_size=hidden_size),
            NGramConfig(order=order),
            _reported(test, valid),
        )
        for order, (hidden_size, valid, test) in _NGRAM.items()
    ),
]
