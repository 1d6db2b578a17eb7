"""The configuration of a training run. No torch here: reading a configuration is quick."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from spanlm.data.sentence_rules import LongSentences, SentenceRules
from spanlm.errors import require


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """How a gradient becomes an update.

    Attributes:
        kind: adam (Kingma & Ba, 2015; betas 0.9 and 0.999, epsilon 1e-8), adagrad (Duchi et al., 2011; sums of
            squares from 0, epsilon 1e-10) or sgd (no momentum).
        lr: learning rate at the start.
        weight_decay: L2, added to the gradient after clipping.
        clip: largest global gradient norm; null: never clipped.
    """

    kind: Literal["adam", "adagrad", "sgd"] = "adam"
    lr: float = 0.001
    weight_decay: float = 0.0
    clip: float | None = 5.0

    def __post_init__(self) -> None:
        """Refuse values that cannot train."""
        require(0 < self.lr < math.inf, "training.optimizer.lr", self.lr, "positive and finite")
        require(
            0 <= self.weight_decay < math.inf, "training.optimizer.weight_decay", self.weight_decay, "0 or positive"
        )
        require(self.clip is None or self.clip > 0, "training.optimizer.clip", self.clip, "positive, or null")


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """How the learning rate changes from epoch to epoch.

    Attributes:
        kind: constant; step: divided by `factor` after every epoch once `full_epochs` epochs had the full rate;
            plateau: divided by `factor` after every epoch whose validation loss is not the best so far.
        factor: what the rate is divided by (Zaremba's medium model: 1.2, large: 1.15).
        full_epochs: for step. The published codes count from 0, so their "max_epoch" m means m + 1 here.
        warmup: optimiser steps at the start over which the rate rises from 0, in a line; 0: it is there at once.
    """

    kind: Literal["constant", "step", "plateau"] = "constant"
    factor: float = 2.0
    full_epochs: int = 5
    warmup: int = 0

    def __post_init__(self) -> None:
        """Refuse a rate that would grow."""
        require(1 <= self.factor < math.inf, "training.schedule.factor", self.factor, "at least 1")
        require(self.full_epochs >= 1, "training.schedule.full_epochs", self.full_epochs, "at least 1")
        require(self.warmup >= 0, "training.schedule.warmup", self.warmup, "0 or more optimiser steps")


@dataclass(frozen=True, kw_only=True)
class BatchingConfig:
    """How the text is cut into segments.

    Attributes:
        kind: streams: the text as `batch_size` long columns, state carried over; documents: each document starts
            at a segment start with an empty state; sentences: each line by itself, padded; auto: documents where
            the corpus has several, else streams.
        batch_size: streams read side by side.
        length: BPTT, steps a segment; gradients stop there, state and memory do not. Of sentences the longest that
            long_sentences leaves whole.
        shuffle: a new order of documents or sentences every epoch (streams have only one order).
        eval_batch_size: streams side by side when validating. Fewer are slower and give each stream more context.
        bucket: put sentences of similar length in a batch, so that there is little padding; needs shuffle.
        long_sentences: what becomes of training sentences of more than `length` targets: keep (whole), cut (the rest is
            lost, as in Salton et al., 2017), split (nothing is lost), refuse. In evaluation they are always whole.
        predict_first: each sentence is opened by <eos> and its first word predicted; false: that word is only read,
            as in the code of Salton et al. (2017). For sentences alone.
    """

    kind: Literal["auto", "streams", "documents", "sentences"] = "auto"
    batch_size: int = 64
    length: int = 20
    shuffle: bool = False
    eval_batch_size: int = 16
    bucket: bool = False
    long_sentences: LongSentences = "keep"
    predict_first: bool = True

    def __post_init__(self) -> None:
        """Refuse empty batches, and rules for sentences where there are none."""
        for name in ("batch_size", "length", "eval_batch_size"):
            value = getattr(self, name)
            require(value >= 1, f"training.batching.{name}", value, "at least 1")
        choices = get_args(LongSentences)
        require(
            self.long_sentences in choices,
            "training.batching.long_sentences",
            self.long_sentences,
            f"one of {', '.join(choices)}",
        )
        require(
            not self.bucket or (self.kind == "sentences" and self.shuffle),
            "training.batching.bucket",
            self.bucket,
            "false unless training.batching.kind is sentences and training.batching.shuffle is true",
        )
        for name, value, plain in (
            ("long_sentences", self.long_sentences, "keep"),
            ("predict_first", self.predict_first, True),
        ):
            require(
                self.kind == "sentences" or value == plain,
                f"training.batching.{name}",
                value,
                f"{str(plain).lower()} unless training.batching.kind is sentences",
            )

    def sentences(self, *, training: bool) -> SentenceRules:
        """Return what becomes of sentences; in evaluation none is cut and the order changes nothing."""
        if not training:
            return SentenceRules(opened=self.predict_first, order="by-length")
        return SentenceRules(
            limit=self.length,
            long=self.long_sentences,
            opened=self.predict_first,
            order="bucketed" if self.bucket else "drawn",
        )


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How long and how exactly to train.

    Attributes:
        optimizer: how a gradient becomes an update.
        schedule: how the learning rate changes.
        batching: how the text is cut.
        loss: what is minimised: mean (per predicted token) or time-sum (summed over time, averaged over streams:
            Zaremba's and Salton's; about `length` times larger, so rates and clips are not interchangeable).
            Penalties are added as they are; what is logged is always the NLL per predicted token, without them.
        epochs: passes over the training part at most.
        patience: stop after this many epochs in a row without a better validation loss; null: never.
        seed: of initial weights, dropout and order.
        precision: fp32, or bf16: products in bfloat16, master weights, gates, losses and sums in float32.
        device: auto takes a GPU if there is one.
        checkpoint_every: optimiser steps between checkpoints; one is always written after an epoch.
        log_every: optimiser steps between lines of metrics.jsonl.
    """

    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    batching: BatchingConfig = field(default_factory=BatchingConfig)
    loss: Literal["mean", "time-sum"] = "mean"
    epochs: int = 10
    patience: int | None = 2
    seed: int = 1
    precision: Literal["fp32", "bf16"] = "fp32"
    device: str = "auto"
    checkpoint_every: int = 500
    log_every: int = 50

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        require(self.epochs >= 1, "training.epochs", self.epochs, "at least 1")
        require(
            self.patience is None or self.patience >= 1,
            "training.patience",
            self.patience,
            "at least 1, or null",
        )
        require(self.checkpoint_every >= 1, "training.checkpoint_every", self.checkpoint_every, "at least 1")
        require(self.log_every >= 1, "training.log_every", self.log_every, "at least 1")
        require(0 <= self.seed < 2**63, "training.seed", self.seed, "in [0, 2^63)")
