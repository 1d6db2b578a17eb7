"""Daniluk et al. (2017), "Frustratingly Short Attention Spans in Neural Language Modeling", ICLR.

The paper's symbols here: w = model.embedding_size, k = model.encoder.hidden_size (the full LSTM output, of which
memories use equal parts), a = model.memory.window, N = model.memory.order (of an N-gram RNN; of a HORNN
model.encoder.order). Recipe (§4.1): Adam 0.001, 64 streams,
20 steps of BPTT, gradient norm at most 5, forget-gate bias 1, every other weight uniform in ±0.1, one LSTM layer,
nothing tied, no dropout. The RNN, the HORNNs and the recurrent memory (RM) are their implementations of others'
models, for comparison; the number of epochs is not given: here the best by validation, patience 2.
Their Wikipedia corpus has 77,000 words of vocabulary. The state is reset between articles (data.documents=auto).

Figure 2d takes two rows of n-gram models from Hill, Bordes, Chopra & Weston, "The Goldilocks Principle" (ICLR 2016): a
5-gram Kneser-Ney model by KenLM, and the same interpolated with the unigram probabilities of the words of the context
(the cache of Kuhn & De Mori, 1990), whose weight they do not print. The cache here is that: as long as all contexts of
the Children's Book Test, with the weight that fits the validation text best.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.models.encoders import AnyEncoderConfig, HORNNConfig, LSTMConfig, RNNConfig
from spanlm.models.language_model import ModelConfig
from spanlm.models.memories import AnyMemoryConfig, KeyValueConfig, NGramConfig, NoMemoryConfig, RecurrentMemoryConfig
from spanlm.papers.paper import (
    WORD_CLASSES,
    Column,
    Details,
    NgramPreset,
    Paper,
    Preset,
    PublishedText,
    Quoted,
    Row,
    Table,
    by_name,
    row_of,
)
from spanlm.papers.scales import Matched, Scale, smoke_scale
from spanlm.scoring.ngram.config import NgramConfig, NgramRunConfig
from spanlm.training.config import BatchingConfig, OptimizerConfig, TrainingConfig

TEXT = PublishedText(
    name="Wikipedia",
    title="Wikipedia, 7,500 articles",
    vocabulary_size=77_000,
    registered=False,
    described="its own corpus, 7,500 Wikipedia articles with 77,000 words",
)
BOOKS = PublishedText(
    name="cbt",
    title="the Children's Book Test",
    vocabulary_size=0,  # not printed
    described="the Children's Book Test",
)
DEMO = Preset(
    name="demo",
    paper="none; a small version of Daniluk et al. (2017)",
    sources=("trains in about a minute on two CPU cores",),
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
"""The default of `spanlm train`: a small Key-Value-Predict model on the embedded corpus, in about a minute."""

_HILL = "Hill et al. 2016"
_COUNTED = {"kn-5": (0.390, 0.544, 0.778, 0.768), "kn-5-cache": (0.439, 0.577, 0.772, 0.679)}
_QUOTED = (
    Quoted(title="Humans (context + query)", quoted_from=_HILL, accuracies=(0.816, 0.816, 0.828, 0.708)),
    Quoted(title="LSTM (context + query)", quoted_from=_HILL, accuracies=(0.418, 0.560, 0.818, 0.791)),
    Quoted(title="Memory Network", quoted_from=_HILL, accuracies=(0.666, 0.630, 0.690, 0.703)),
    *(
        Quoted(title=title, quoted_from=source, accuracies=(*accuracies, None, None))
        for title, source, accuracies in (
            ("AS Reader, avg ensemble", "Kadlec et al. 2016", (0.706, 0.689)),
            ("AS Reader, greedy ensemble", "Kadlec et al. 2016", (0.710, 0.675)),
            ("QANN, 4 hops, GloVe", "Weissenborn 2016", (0.729, None)),
            ("AoA Reader, single model", "Cui et al. 2016a", (0.720, 0.694)),
            ("CAS Reader, mode avg", "Cui et al. 2016b", (0.692, 0.657)),
            ("GA Reader, ensemble", "Dhingra et al. 2016", (0.719, 0.694)),
            ("EpiReader, ensemble", "Trischler et al. 2016", (0.718, 0.706)),
        )
    ),
)
_ACCURACIES = {
    "fofe-hornn-3": (0.465, 0.497, 0.774, 0.741),
    "gated-hornn-3": (0.508, 0.547, 0.790, 0.774),
    "rm-w15": (0.525, 0.597, 0.817, 0.797),
    "lstm": (0.523, 0.604, 0.819, 0.786),
    "attention-w10": (0.538, 0.595, 0.826, 0.803),
    "kv-w10": (0.528, 0.601, 0.822, 0.813),
    "kvp-w5": (0.528, 0.599, 0.829, 0.803),
    "4-gram": (0.532, 0.598, 0.815, 0.800),
}
"""Figure 2d: accuracy on the real Children's Book Test, in the order of `WORD_CLASSES`."""


def _row(
    name: str,
    title: str,
    encoder: AnyEncoderConfig,
    memory: AnyMemoryConfig,
    test: float,
    valid: float | None = None,
    *,
    figures: tuple[str, ...] = ("2c",),
    curve: tuple[str, int] = ("", 0),
    millions: tuple[float, float] = (23.9, 47.0),  # θ_M and θ_W+M, which only Figure 2c prints
    **more: Any,
) -> Row:
    model, whole = millions
    first, *others = (f"Figure {figure}" for figure in figures)
    preset = Preset(
        name=f"daniluk2017/{name}",
        paper="Daniluk et al. 2017",
        sources=(f"{first}, {title}", *others),
        title=title,
        config=RunConfig(
            data=DataConfig(documents="auto"),
            model=ModelConfig(embedding_size=300, encoder=encoder, memory=memory),
            training=TrainingConfig(epochs=50, patience=2),
        ),
        reported=TEXT.reported(valid, test, whole if "2c" in figures else None, model_parameters=model),
        **more,
    )
    control, accuracies = "" if name == "lstm" else "lstm", _ACCURACIES.get(name, ())
    return row_of(preset, control=control, accuracies=accuracies, figures=figures, curve=curve)


def _windows(
    label: str,
    title: str,
    units: int,
    memory: KeyValueConfig | RecurrentMemoryConfig,
    tests: Mapping[int, float],
    valid: tuple[int, float],
    remark: str = "",
    **more: Any,
) -> list[Row]:
    """Figure 2a: test perplexity by window; Figure 2c has each model's best window, with the perplexity of valid."""
    best, valid_ppl = valid
    return [
        _row(
            f"{label}-w{window}",
            f"{title}, window {window}",
            LSTMConfig(hidden_size=units),
            replace(memory, window=window),
            test,
            valid_ppl if window == best else None,
            figures=("2a", "2c") if window == best else ("2a",),
            curve=(title, window),
            remark=remark.format(window=window),
            **more,
        )
        for window, test in tests.items()
    ]


def _hornn(pooling: Literal["fofe", "gated"], title: str, units: int, test: float, valid: float) -> Row:
    encoder, remark = HORNNConfig(hidden_size=units, pooling=pooling, newest_apart=True), _HORNN_REMARK
    name, title = f"{pooling}-hornn-3", f"{title} HORNN (3rd order)"
    return _row(name, title, encoder, NoMemoryConfig(), test, valid, remark=remark)


def _ngram(order: int, units: int, test: float, valid: float) -> Row:
    figures, curve = ("2b", "2c") if order == 4 else ("2b",), ("N-gram RNN", order)
    encoder, memory = LSTMConfig(hidden_size=units), NGramConfig(order=order)
    return _row(f"{order}-gram", f"{order}-gram RNN", encoder, memory, test, valid, figures=figures, curve=curve)


_HORNN_REMARK = (
    "the paper prints neither equations nor matrices; these units fit its 23.9M with the feedback of the simple RNN "
    "beside the three pooled outputs (encoder.newest_apart)"
)
_KVP_REMARK = (
    "the paper's 834 units have 25.6M parameters, not the 23.9M it prints; 786 units have 23.9M: "
    "daniluk2017/kvp-786-w{window} is that"
)
_KVP_MATCHED_REMARK = "786 units, which fit the printed 23.9M; the paper's number is that of its 834 units"
_KVP: dict[str, Any] = {
    "title": "Key-Value-Predict",
    "memory": KeyValueConfig(roles=3),
    "tests": {1: 76.1, 5: 75.8, 10: 76.0, 15: 75.8},
    "valid": (5, 74.2),
}
_MATCHED = _windows("kvp-786", units=786, remark=_KVP_MATCHED_REMARK, **_KVP)
_MODELS = [
    _row("rnn", "RNN", RNNConfig(hidden_size=307), NoMemoryConfig(), 125.7, 121.7),
    _row("lstm", "LSTM", LSTMConfig(hidden_size=300), NoMemoryConfig(), 85.2, 83.2),
    _hornn("fofe", "FOFE", 303, 120.5, 116.7),
    _hornn("gated", "Gated", 297, 97.1, 93.9),
    *_windows(
        "rm",
        "RM(+tM-g)",
        300,
        RecurrentMemoryConfig(),
        {1: 83.5, 5: 80.5, 10: 80.3, 15: 80.1},
        (15, 78.2),
        millions=(70.6, 93.7),
        own_size=True,
    ),
    *_windows(
        "attention", "Attention", 296, KeyValueConfig(roles=1), {1: 82.2, 5: 82.2, 10: 82.0, 15: 82.8}, (10, 80.6)
    ),
    *_windows("kv", "Key-Value", 560, KeyValueConfig(roles=2), {1: 78.7, 5: 79.0, 10: 78.2, 15: 78.9}, (10, 77.1)),
    *_windows("kvp", units=834, remark=_KVP_REMARK, **_KVP),
]
_ORDERS = [
    _ngram(2, 564, 77.1, 76.0),
    _ngram(3, 786, 75.9, 74.9),
    _ngram(4, 968, 75.9, 74.8),
    _ngram(5, 1120, 77.3, 76.0),
]
_ROWS = by_name(*_MODELS, *_ORDERS)

PRESETS: list[Preset | NgramPreset] = [DEMO, *(row.preset for row in (*_MODELS, *_MATCHED, *_ORDERS))]

_REMARK = "published accuracies on CBT, by class: NE {}, CN {}, V {}, P {}; from Hill et al. 2016, by KenLM"


def _counted(name: str, title: str, ngram: NgramConfig, more: str = "") -> NgramPreset:
    return NgramPreset(
        name=f"daniluk2017/{name}",
        paper="Daniluk et al. 2017",
        sources=(f"Figure 2d, {title}",),
        title=title,
        config=NgramRunConfig(data=DataConfig(documents="auto"), ngram=ngram),
        remark=_REMARK.format(*_COUNTED[name]) + more,
    )


_LONGER = "; the cache is a unigram cache of the last 1,000 words, which is longer than a context of CBT"
_COUNTED_PRESETS = [
    _counted("kn-5", "Kneser-Ney LM", NgramConfig()),
    _counted("kn-5-cache", "Kneser-Ney LM + cache", NgramConfig(cache=1000), _LONGER),
]
_COUNTED_ROWS = [
    row_of(preset, accuracies=accuracies, quoted_from=_HILL, figures=("2d",))
    for preset, accuracies in zip(_COUNTED_PRESETS, _COUNTED.values(), strict=True)
]
NGRAM_PRESETS = [
    NgramPreset(
        name="ngram",
        paper="none; Chen and Goodman 1998",
        sources=("interpolated modified Kneser-Ney, as KenLM's lmplz estimates it",),
        config=NgramRunConfig(),
    ),
    *_COUNTED_PRESETS,
]

_COLUMNS = (
    *("units", "readout", "θ_M", "seeds", "valid ppl", "test ppl", "paper: valid", "paper: test"),
    *("best epoch", "train ppl", "tokens/s", "minutes"),
)


def _figure(name: str, about: str, *rows: Row, text: PublishedText = TEXT, **more: Any) -> Table:
    """Return a figure of the rows that are in it, unless it names others."""
    rows = rows or tuple(row for row in _ROWS.values() if name in row.figures)
    return Table(name=name, kind="figure", about=about, rows=by_name(*rows), text=text, **more)


def _accuracy(score: str, words: str) -> Details:
    columns = (*(f"{score}: {title}" for title in WORD_CLASSES.values()), "test ppl")
    return Details(f"Accuracy by the probability of the {words}, with 95 % intervals", columns, notes=True)


PAPER = Paper(
    name="daniluk2017",
    title="Daniluk et al. 2017",
    scales=(
        smoke_scale(Matched(units=16, max_epochs=1, init_range=0.4), "a minute or two"),
        Scale(
            name="small",
            purpose="the paper's proportions at 64 units, until valid stagnates; an hour or two a row of one CPU core",
            corpus="wikitext-2",
            vocabulary_size=16_000,
            sizes=Matched(units=64, training_tokens=50_000_000, init_range=0.2),
        ),
        Scale(
            name="paper",
            purpose="the paper's sizes; for a GPU",
            corpus="wikipedia",
            sizes=Matched(units=300, published_vocabulary=TEXT.vocabulary_size),
        ),
    ),
    columns={
        "θ_W+M": Column("all_parameters", "{:.2f}M", 1e-6),
        "paper: θ_W+M": Column("published.all_parameters", "{:g}M", seeds="first"),
    },
    tables=(
        _figure("2a", "test perplexity by window size", columns=_COLUMNS, x_label="window"),
        _figure("2b", "N-gram RNN by order", columns=_COLUMNS, x_label="N"),
        _figure(
            "2c",
            "perplexity of all models",
            columns=(*_COLUMNS[:3], "paper: θ_M", "θ_W+M", "paper: θ_W+M", *_COLUMNS[3:]),
        ),
        _figure(
            "2d",
            "accuracy",
            *_COUNTED_ROWS,
            *map(_ROWS.__getitem__, _ACCURACIES),
            measure="cloze",
            text=BOOKS,
            quoted=_QUOTED,
            details=(
                _accuracy("sentence", "whole query sentence"),
                _accuracy("candidate", "candidate alone"),
                Details(
                    "The paper's accuracy, on the real Children's Book Test. Of the rows that it quotes from others "
                    "only those of counted models are run here",
                    (*(f"paper: {title}" for title in WORD_CLASSES.values()), "quoted from"),
                    quoted=True,
                ),
            ),
            corpus="cbt",
            remark="the paper does not give the windows it used here: those of Figure 2c are used",
        ),
        _figure(
            "3a",
            "attention in an article",
            _ROWS["kvp-w15"],
            measure="article",
            remark="the paper gives neither its article, drawn at random, nor the window: here the first document of "
            "test, its first words, and the window of Figure 3b",
        ),
        _figure(
            "3",
            "mean attention by lag",
            *(row for row in _ROWS.values() if row.curve[1] == 15),
            label="Figure 3b",
            measure="attention",
        ),
    ),
)
