"""A tiny corpus and tiny runs, and what two runs must share to be the same run."""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.data.corpora import Corpus
from spanlm.data.token_files import TokenFile
from spanlm.data.vocabulary import EOS, UNK, Vocabulary
from spanlm.models.encoders import (
    AWDLSTMConfig,
    DeltaConfig,
    HORNNConfig,
    LSTMBlocksConfig,
    LSTMConfig,
    MinGRUConfig,
    MogrifierLSTMConfig,
    RNNConfig,
    TransformerConfig,
    VariationalLSTMConfig,
)
from spanlm.models.heads import MixtureOfSoftmaxesConfig, SoftmaxConfig
from spanlm.models.language_model import ModelConfig
from spanlm.models.memories import (
    MEMORIES,
    AnyMemoryConfig,
    AttentiveConfig,
    KeyValueConfig,
    NGramConfig,
    NoMemoryConfig,
    PointerSentinelConfig,
    RecurrentMemoryConfig,
    SpanBufferConfig,
)
from spanlm.scoring.tally import Tally
from spanlm.training import trainer
from spanlm.training.config import BatchingConfig, FinetuneConfig, OptimizerConfig, ScheduleConfig, TrainingConfig
from spanlm.training.progress import EpochEvent, StepEvent, Watcher
from spanlm.training.run import train
from spanlm.training.trainer import Trainer
from tests.goldens.small import rows
from tests.models.small import SMALL_MEMORIES

WORDS = (EOS, UNK, *(f"w{number}" for number in range(22)))


def _tokens(count: int, seed: int) -> TokenFile:
    """Lines of 3 to 8 words in which a word says much of the next one, and a document every few lines."""
    draw = np.random.default_rng(seed)
    ids, starts, lines = [], [0], 0
    while len(ids) < count:
        word = int(draw.integers(1, len(WORDS)))
        for _ in range(int(draw.integers(3, 9))):
            ids.append(word)
            word = 1 + (word * 7 + int(draw.integers(2))) % (len(WORDS) - 1)
        ids.append(0)
        lines += 1
        if lines % 4 == 0:
            starts.append(len(ids))
    starts = [start for start in starts if start < count]
    return TokenFile(np.array(ids[:count], dtype=np.int32), np.array(starts, dtype=np.int64))


def make_corpus(train: int = 300, seed: int = 0, words: tuple[str, ...] = WORDS, documents: bool = True) -> Corpus:
    """V = 24; `train` training tokens, a third of that for validation and for test."""
    splits = {"train": _tokens(train, seed), "valid": _tokens(train // 3, seed + 1), "test": _tokens(train // 3, 3)}
    if not documents:
        splits = {name: replace(tokens, documents=np.zeros(1, np.int64)) for name, tokens in splits.items()}
    return Corpus(
        name="tiny",
        vocabulary=Vocabulary(words),
        splits=splits,
        notes=[],
        oov=dict.fromkeys(splits, 0),
        tokenizer="whitespace",
    )


def make_config(
    memory: AnyMemoryConfig | None = None, *, dropout: float = 0.2, layers: int = 1, tied: bool = False, **fields: Any
) -> RunConfig:
    """A model of 6 units in the shape of a real one; an epoch of `make_corpus()` has about 20 steps.

    `fields` are those of the model, the batching and the training, in one: no two have the same name.
    """
    model = {
        "embedding_size": 2 if tied else 5,
        "input_dropout": dropout,
        "output_dropout": dropout,
        "encoder": LSTMConfig(hidden_size=6, layers=layers, dropout=dropout),
        "memory": memory or KeyValueConfig(roles=3, window=4),
        "head": SoftmaxConfig(tied=tied),
    }
    batching = {"kind": "documents", "batch_size": 3, "length": 6, "shuffle": True, "eval_batch_size": 2}
    training = {"epochs": 2, "patience": None, "device": "cpu", "checkpoint_every": 7, "log_every": 3}
    training["optimizer"] = fields.pop("optimizer", None) or OptimizerConfig(lr=0.02)
    for name, value in fields.items():
        kinds = {ModelConfig: model, BatchingConfig: batching, TrainingConfig: training}
        (group,) = (group for kind, group in kinds.items() if name in kind.__dataclass_fields__)
        group[name] = value
    return RunConfig(
        data=DataConfig(corpus="tiny"),
        model=ModelConfig(**model),
        training=TrainingConfig(batching=BatchingConfig(**batching), **training),
    )


ADAGRAD = OptimizerConfig(kind="adagrad", lr=0.2, clip=0.1)
SGD = OptimizerConfig(kind="sgd", lr=2.0, clip=0.5, weight_decay=1e-4)
NT_ASGD = OptimizerConfig(kind="nt_asgd", lr=8.0, clip=0.5, weight_decay=1e-4, switch_after=1)
PLATEAU = ScheduleConfig(kind="plateau", factor=1.5)
STEP = ScheduleConfig(kind="step", factor=2.0, full_epochs=1)

STAGES = "mixture of softmaxes, span buffer, two finetune stages"
LAGGED = "AWD-LSTM, lagged averages, penalties, drawn lengths, groups of streams"
STEPS = 17
"""Of an epoch of `STAGES`: 300 words in 3 streams, 6 steps a segment."""

STREAMS: dict[str, Any] = {"kind": "streams", "shuffle": False}
CUT: dict[str, Any] = {"kind": "sentences", "long_sentences": "cut"}
DRAWN: dict[str, Any] = {**STREAMS, "length_spread": 1.0, "short_share": 0.2, "longest_over": 3}
VARIATIONAL = VariationalLSTMConfig(
    hidden_size=6, layers=2, input_dropout=0.2, recurrent_dropout=0.2, zoneout_h=0.1, zoneout_c=0.1
)
DELTA = DeltaConfig(hidden_size=6, heads=1, head_size=6, dropout=0.2)
FINETUNE = FinetuneConfig(
    stages=2, lr=0.5, epochs=1, adversarial=0.001, input_noise=0.01, last_latent_dropout=0.2, partial_shuffle=True
)

RUNS: dict[str, Callable[[], RunConfig]] = {
    "key-value-predict, shuffled documents, adam": make_config,
    "key-value, streams, adamw, cosine after a warm-up": lambda: make_config(
        KeyValueConfig(roles=3, window=4),
        **STREAMS,
        optimizer=OptimizerConfig(kind="adamw", lr=0.02, weight_decay=0.1, beta2=0.95),
        schedule=ScheduleConfig(kind="cosine", warmup=5),
    ),
    "transformer, documents, adamw": lambda: make_config(
        NoMemoryConfig(),
        encoder=TransformerConfig(hidden_size=6, heads=1, window=4, dropout=0.2),
        optimizer=OptimizerConfig(kind="adamw", lr=0.02),
    ),
    "n-gram, shuffled sentences, sgd, plateau": lambda: make_config(
        NGramConfig(order=3), kind="sentences", optimizer=SGD, schedule=PLATEAU, epochs=3
    ),
    "no memory, streams, sgd, step, two layers": lambda: make_config(
        NoMemoryConfig(), **STREAMS, optimizer=SGD, schedule=STEP, layers=2, loss="time-sum"
    ),
    "key-value, tied, documents, bf16": lambda: make_config(
        KeyValueConfig(roles=3, window=9), tied=True, shuffle=False, precision="bf16", seed=5
    ),
    "recurrent memory of one word, gated HORNN, streams": lambda: make_config(
        RecurrentMemoryConfig(window=1), **STREAMS, encoder=HORNNConfig(hidden_size=6, order=3, pooling="gated")
    ),
    "variational LSTM, locked, projection, adagrad, streams": lambda: make_config(
        NoMemoryConfig(),
        **STREAMS,
        optimizer=ADAGRAD,
        encoder=VARIATIONAL,
        embedding_dropout=0.2,
        locked_dropout=True,
        head=SoftmaxConfig(projection=True, projection_penalty=0.01),
    ),
    "recurrent memory, RNN, shuffled documents": lambda: make_config(
        RecurrentMemoryConfig(window=4), encoder=RNNConfig(hidden_size=6)
    ),
    "no memory, Mogrifier LSTM, streams, bf16": lambda: make_config(
        NoMemoryConfig(), **STREAMS, precision="bf16", encoder=MogrifierLSTMConfig(hidden_size=6, rank=2)
    ),
    "no memory, minGRU, documents": lambda: make_config(
        NoMemoryConfig(), encoder=MinGRUConfig(hidden_size=6, dropout=0.2)
    ),
    "no memory, LSTM in blocks, documents": lambda: make_config(
        NoMemoryConfig(), encoder=LSTMBlocksConfig(hidden_size=6, dropout=0.2)
    ),
    "no memory, Gated DeltaNet, streams, bf16": lambda: make_config(
        NoMemoryConfig(), **STREAMS, precision="bf16", optimizer=OptimizerConfig(kind="sgd", lr=0.01), encoder=DELTA
    ),
    "attentive single, bucketed sentences, cut": lambda: make_config(
        AttentiveConfig(score="single"), **CUT, loss="time-sum", optimizer=SGD, bucket=True
    ),
    "attentive combined, streams, bf16": lambda: make_config(
        AttentiveConfig(score="combined", window=3), **STREAMS, precision="bf16"
    ),
    "attentive combined, sentences cut and not opened": lambda: make_config(
        AttentiveConfig(score="combined"), **CUT, shuffle=False, predict_first=False
    ),
    "pointer sentinel, streams, sgd": lambda: make_config(PointerSentinelConfig(window=9), **STREAMS, optimizer=SGD),
    "key-value, streams of drawn lengths, partly shuffled, sgd": lambda: make_config(
        **{**DRAWN, "length_spread": 2.0}, optimizer=SGD, partial_shuffle=True
    ),
    LAGGED: lambda: make_config(
        NoMemoryConfig(),
        **DRAWN,
        batch_size=4,
        group_size=2,
        optimizer=replace(NT_ASGD, lagged_rates=True),
        activation_penalty=2.0,
        temporal_penalty=1.0,
        encoder=AWDLSTMConfig(hidden_size=7, layers=2, last_size=5),
        head=SoftmaxConfig(tied=True, adversarial=0.01),
        locked_dropout=True,
    ),
    STAGES: lambda: make_config(
        SpanBufferConfig(buffer_size=12, span_length=3, dropout=0.1),
        **STREAMS,
        dropout=0.0,
        seed=4,
        optimizer=replace(NT_ASGD, lr=1.0, clip=1.0),
        finetune=FINETUNE,
        init_range=1.0,
        head=MixtureOfSoftmaxesConfig(experts=3, latent_dropout=0.1),
    ),
    "span buffer that merges, streams, sgd": lambda: make_config(
        SpanBufferConfig(buffer_size=6, span_length=2, reads="merge", dropout=0.1),
        **STREAMS,
        dropout=0.0,
        optimizer=SGD,
    ),
}
"""Every encoder, memory, head, batching, optimiser, schedule, loss and precision; a window longer than a segment, too,
averages and stages."""
RUNS |= {  # of kinds of memory that none of these has
    f"{kind}, documents": partial(make_config, configs[0])
    for kind, configs in SMALL_MEMORIES.items()
    if kind in MEMORIES and kind not in {build().model.memory.kind for build in RUNS.values()}
}


def with_model(config: RunConfig, **fields: Any) -> RunConfig:
    return replace(config, model=replace(config.model, **fields))


def with_training(config: RunConfig, **fields: Any) -> RunConfig:
    return replace(config, training=replace(config.training, **fields))


def with_batching(config: RunConfig, **fields: Any) -> RunConfig:
    return with_training(config, batching=replace(config.training.batching, **fields))


def script(monkeypatch: pytest.MonkeyPatch, losses: Iterable[float]) -> None:
    """Validation gives these losses, whatever the model."""
    left = iter(losses)
    monkeypatch.setattr(trainer, "tally", lambda *a, **k: Tally(tokens=10, nll=10 * next(left)))


def checkpoints(folder: Path) -> list[Path]:
    return sorted((folder / "checkpoints").glob("step-*"))


def outcome(folder: Path) -> dict[str, Any]:
    """All that an uninterrupted run leaves, byte by byte: what a resumed one must leave, too.

    How often there was a checkpoint may differ, so the configuration that the files name is left out.
    """
    last = checkpoints(folder)[-1]
    position = json.loads((last / "position.json").read_text())
    del position["metrics_size"], position["metrics_checksum"], position["config"]  # clock times differ
    return {
        "model": _safetensors(folder / "model.safetensors"),
        "last": last.name,
        **{name: (last / f"{name}.safetensors").read_bytes() for name in ("weights", "optimizer", "carried")},
        "position": position,
        "rows": rows(folder),
        "vocabulary": (folder / "vocabulary.json").read_bytes(),
    }


def _safetensors(path: Path) -> tuple[Any, bytes]:
    """Header and bytes; the library writes the metadata in an order of its own choice."""
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    marks = json.loads(header["__metadata__"].pop("spanlm"))
    del marks["config"]
    return (header, marks), content[end:]


def differing(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """Names of what differs between two outcomes: a short assertion message."""
    return [name for name in first.keys() | second.keys() if first.get(name) != second.get(name)]


@cache
def undisturbed(config: RunConfig) -> dict[str, Any]:
    """The outcome of a run on `make_corpus()` that nothing stops."""
    with tempfile.TemporaryDirectory() as folder:
        train(config, make_corpus(), Path(folder))
        return outcome(Path(folder))


def goes_on_exactly(config: RunConfig, folder: Path) -> None:
    train(config, make_corpus(), folder, resume=True)
    assert not differing(outcome(folder), undisturbed(config))


def signed(checkpoint: Path, name: str, content: bytes) -> None:
    """Change a file and the manifest with it, as damage does not but another program might."""
    (checkpoint / name).write_bytes(content)
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest[name] = hashlib.sha256(content).hexdigest()
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))


class Heard(Watcher):
    """Keeps what a trainer tells, and acts after the step of a number."""

    def __init__(self, at: int | None = None, act: Callable[[], object] = lambda: None) -> None:
        self.at, self.act = at, act
        self.notes: list[str] = []
        self.steps: list[StepEvent] = []
        self.epochs: list[EpochEvent] = []

    def step(self, event: StepEvent) -> None:
        self.steps.append(event)
        if event.position.step == self.at:
            self.act()

    def epoch(self, event: EpochEvent) -> None:
        self.epochs.append(event)

    def note(self, text: str) -> None:
        self.notes.append(text)


class Follows(Heard):
    """Keeps the weights after every step, and those with which every stage begins."""

    def __init__(self) -> None:
        super().__init__()
        self.iterates: list[dict[str, Tensor]] = []
        self.begun: list[dict[str, Tensor]] = []
        self.after_epochs: list[dict[str, Tensor]] = []

    def follow(self, config: RunConfig, folder: Path, corpus: Corpus | None = None) -> Trainer:
        self.trainer = Trainer(config, corpus or make_corpus(), folder, self)
        self.trainer.run()
        return self.trainer

    def weights(self) -> dict[str, Tensor]:
        return {name: parameter.detach().clone() for name, parameter in self.trainer.model.named_parameters()}

    def step(self, event: StepEvent) -> None:
        super().step(event)
        self.iterates.append(self.weights())

    def epoch(self, event: EpochEvent) -> None:
        super().epoch(event)
        self.after_epochs.append(self.weights())

    def note(self, text: str) -> None:
        super().note(text)
        if text.startswith("finetune stage"):
            self.begun.append(self.weights())


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
