"""The configuration of a training run. No torch here: reading a configuration is quick."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from spanlm.data.config import SHORTEST, LongSentences, SentenceRules, StreamRules
from spanlm.errors import require, require_defaults
from spanlm.training.optimizer_config import FinetuneConfig, OptimizerConfig, ScheduleConfig

__all__ = ["BatchingConfig", "FinetuneConfig", "OptimizerConfig", "ScheduleConfig", "TrainingConfig"]


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
        length_spread: draw the length of each training segment, with this standard deviation around `length` and at
            least 5 steps, and scale its learning rate to it (Merity et al., 2018: 5); 0: none is drawn. This and the
            next three are for kind=streams alone.
        short_share: chance of a training segment to be drawn around half the `length` (Merity et al., 2018: 0.05).
        longest_over: a drawn segment is at most this many steps longer than `length`; null: there is no limit.
        partial_shuffle: each epoch every stream begins at another place, drawn uniformly, and reads what is before it
            at its end (Press, 2019).
        group_size: streams a backward pass: gradients of groups add up to that of the batch, which needs less memory;
            must divide batch_size; null: all at once.
    """

    kind: Literal["auto", "streams", "documents", "sentences"] = "auto"
    batch_size: int = 64
    length: int = 20
    shuffle: bool = False
    eval_batch_size: int = 16
    bucket: bool = False
    long_sentences: LongSentences = "keep"
    predict_first: bool = True
    length_spread: float = 0.0
    short_share: float = 0.0
    longest_over: int | None = None
    partial_shuffle: bool = False
    group_size: int | None = None

    def __post_init__(self) -> None:
        """Refuse empty batches, and rules for sentences or streams where there are none."""
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
        for kind, names in _OF_ONE_KIND.items():
            if self.kind != kind:
                require_defaults(self, "training.batching", names, f"unless training.batching.kind is {kind}")
        self._check_streams()
        size = self.group_size
        require(
            size is None or (size >= 1 and self.batch_size % size == 0),
            "training.batching.group_size",
            size,
            f"at least 1 and a divisor of training.batching.batch_size={self.batch_size}, or null",
        )

    def _check_streams(self) -> None:
        """Refuse what cannot be drawn, and to draw an order where there is one."""
        spread, over = self.length_spread, self.longest_over
        one_order = "false with training.batching.kind=streams, which have one order; use partial_shuffle"
        drawn = spread > 0 or self.short_share > 0
        for name, fits, limit in (
            ("shuffle", not (self.kind == "streams" and self.shuffle), one_order),
            ("length_spread", 0 <= spread <= self.length, "in [0, training.batching.length]"),
            ("short_share", 0 <= self.short_share <= 1, "in [0, 1]"),
            ("length", not drawn or self.length >= SHORTEST, f"at least {SHORTEST} where lengths are drawn"),
            ("longest_over", over is None or spread > 0, "null unless training.batching.length_spread is positive"),
            ("longest_over", over is None or over >= 0, "at least 0, or null"),
        ):
            require(fits, f"training.batching.{name}", getattr(self, name), limit)

    def streams(self, *, training: bool) -> StreamRules:
        """Return what is drawn for streams; in evaluation nothing is."""
        if not training:
            return StreamRules()
        return StreamRules(
            length_spread=self.length_spread,
            short_share=self.short_share,
            longest_over=self.longest_over,
            partial_shuffle=self.partial_shuffle,
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


_OF_ONE_KIND = {
    "sentences": ("long_sentences", "predict_first"),
    "streams": ("length_spread", "short_share", "partial_shuffle"),
}
"""What means nothing for batches of another kind."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How long and how exactly to train.

    Attributes:
        optimizer: how a gradient becomes an update.
        schedule: how the learning rate changes.
        batching: how the text is cut.
        finetune: what follows when `epochs` are done or patience is out.
        activation_penalty: α of activation regularisation (Merity et al., 2017): α · mean of the squares of what the
            head reads, after dropout.
        temporal_penalty: β of temporal activation regularisation: β · mean of the squares of how much the encoder's
            output changes from one step to the next, before dropout.
        loss: what is minimised: mean (per predicted token) or time-sum (summed over time, averaged over streams:
            Zaremba's and Salton's; about `length` times larger, so rates and clips are not interchangeable).
            Penalties are added as they are; what is logged is always the NLL per predicted token, without them.
        epochs: passes over the training part at most, those of finetune.stages not counted.
        patience: stop after this many epochs in a row without a better validation loss; null: never. With nt_asgd
            counted from the first average on: before that, no better loss is what averages wait for.
        start_from: the folder of a run whose weights, the best until then, this one begins with; parameters that it
            lacks (those of a span buffer, say) begin as usual; null: all do.
        learns: which weights change: all, or memory: of a run that begins with another's, only those of its memory
            (and of head.projection, a buffer's own way into the softmax). The rest stays what it was; dropout acts.
        seed: of initial weights, dropout and order.
        precision: fp32, or bf16: products in bfloat16, master weights, gates, losses and sums in float32.
        device: auto takes a GPU if there is one.
        checkpoint_every: optimiser steps between checkpoints; one is always written after an epoch.
        log_every: optimiser steps between lines of metrics.jsonl.
    """

    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    batching: BatchingConfig = field(default_factory=BatchingConfig)
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)
    activation_penalty: float = 0.0
    temporal_penalty: float = 0.0
    loss: Literal["mean", "time-sum"] = "mean"
    epochs: int = 10
    patience: int | None = 2
    start_from: str | None = None
    learns: Literal["all", "memory"] = "all"
    seed: int = 1
    precision: Literal["fp32", "bf16"] = "fp32"
    device: str = "auto"
    checkpoint_every: int = 500
    log_every: int = 50

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        require(
            self.finetune.stages == 0 or self.optimizer.kind == "nt_asgd",
            "training.finetune.stages",
            self.finetune.stages,
            "0 unless training.optimizer.kind is nt_asgd, whose averages are what a stage is judged by",
        )
        for name in ("activation_penalty", "temporal_penalty"):
            value = getattr(self, name)
            require(0 <= value < math.inf, f"training.{name}", value, "0 or positive, and finite")
        require(self.epochs >= 1, "training.epochs", self.epochs, "at least 1")
        switch_after = self.optimizer.switch_after
        require(
            switch_after is None or switch_after < self.epochs,
            "training.optimizer.switch_after",
            switch_after,
            f"less than training.epochs={self.epochs}, or no epoch is left for averages; or null, for the test of "
            "training.optimizer.nonmonotone",
        )
        require(
            self.patience is None or self.patience >= 1,
            "training.patience",
            self.patience,
            "at least 1, or null",
        )
        require(self.learns in ("all", "memory"), "training.learns", self.learns, "all or memory")
        require(
            self.learns == "all" or self.start_from is not None,
            "training.learns",
            self.learns,
            "all unless training.start_from names a run whose weights are to stay: what is drawn would never learn",
        )
        require(self.checkpoint_every >= 1, "training.checkpoint_every", self.checkpoint_every, "at least 1")
        require(self.log_every >= 1, "training.log_every", self.log_every, "at least 1")
        require(0 <= self.seed < 2**63, "training.seed", self.seed, "in [0, 2^63)")
