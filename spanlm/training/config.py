"""The configuration of a training run. No torch here: reading a configuration is quick."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import ClassVar, Literal, get_args

from spanlm.data.config import SHORTEST, LongSentences, SentenceRules, StreamRules
from spanlm.errors import InputError, as_written, require, require_defaults

USUAL_PAST = 5
"""n of the non-monotone test (Merity et al., 2018)."""


@dataclass(frozen=True, kw_only=True)  # jsonargparse would take other parents for a choice of subclasses
class _Options:
    """A group of fields that refuses values by their full names."""

    PREFIX: ClassVar[str]

    def __init_subclass__(cls, prefix: str) -> None:
        cls.PREFIX = prefix

    def _require(self, *checks: tuple[str, bool, str]) -> None:
        for name, fits, limit in checks:
            require(fits, f"{self.PREFIX}.{name}", getattr(self, name), limit)


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig(_Options, prefix="training.optimizer"):
    """The optimiser: from a gradient to an update.

    Attributes:
        kind: adam (Kingma & Ba, 2015; betas 0.9 and 0.999, epsilon 1e-8), adagrad (Duchi et al., 2011; sums of
            squares from 0, epsilon 1e-10), sgd (no momentum) or nt_asgd (Merity et al., 2018: sgd that, once
            validation stagnates, is judged and saved by the average of its weights over all steps since then).
        lr: learning rate at the start.
        weight_decay: L2, added to the gradient after clipping.
        clip: largest global gradient norm; null: never clipped.
        nonmonotone: of nt_asgd, n: averages begin after an epoch whose validation loss is above the best of all epochs
            but the last n before it.
        switch_after: of nt_asgd: averages begin after this many epochs instead, whatever the losses; fewer than
            training.epochs.
        lagged_rates: of nt_asgd: averages as torch.optim.ASGD, which the published numbers come from. Each step but
            the first has the rate of the step before (which matters where rates follow the drawn length), and the
            average leaves the first weights out.
    """

    kind: Literal["adam", "adagrad", "sgd", "nt_asgd"] = "adam"
    lr: float = 0.001
    weight_decay: float = 0.0
    clip: float | None = 5.0
    nonmonotone: int = USUAL_PAST
    switch_after: int | None = None
    lagged_rates: bool = False

    def __post_init__(self) -> None:
        by_test = (
            f"{USUAL_PAST}, its default, with training.optimizer.switch_after={self.switch_after}: averages then begin "
            "whatever the losses are. Use training.optimizer.switch_after=null for another"
        )
        self._require(
            ("lr", 0 < self.lr < math.inf, "positive and finite"),
            ("weight_decay", 0 <= self.weight_decay < math.inf, "0 or positive"),
            ("clip", self.clip is None or self.clip > 0, "positive, or null"),
            ("nonmonotone", self.nonmonotone >= 1, "at least 1"),
            ("switch_after", self.switch_after is None or self.switch_after >= 1, "at least 1, or null"),
        )
        if self.kind != "nt_asgd":
            of_averages = "nonmonotone", "switch_after", "lagged_rates"
            require_defaults(self, "training.optimizer", of_averages, "unless training.optimizer.kind is nt_asgd")
        switched = self.switch_after is not None and self.nonmonotone != USUAL_PAST
        self._require(("nonmonotone", not switched, by_test))


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig(_Options, prefix="training.schedule"):
    """The learning-rate schedule over epochs.

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
        self._require(
            ("factor", 1 <= self.factor < math.inf, "at least 1"),
            ("full_epochs", self.full_epochs >= 1, "at least 1"),
            ("warmup", self.warmup >= 0, "0 or more optimiser steps"),
        )
        for name, kinds in (("factor", ("step", "plateau")), ("full_epochs", ("step",))):
            if self.kind not in kinds:
                unless = f"unless training.schedule.kind is {' or '.join(kinds)}"
                require_defaults(self, "training.schedule", [name], unless)


@dataclass(frozen=True, kw_only=True)
class FinetuneConfig(_Options, prefix="training.finetune"):
    """Finetune stages after an nt_asgd training (Merity et al., 2018; Wang et al., 2019).

    Each loads the best weights so far and averages from its first step on. It ends when the test of
    `training.optimizer.nonmonotone`, here over its own validation losses, says so, or at `epochs`. Without stages all
    other fields keep their defaults; a run without stages may be given some later, with any of them.

    Attributes:
        stages: how many; 0: none.
        lr: of every stage; null: training.optimizer.lr.
        epochs: of a stage, at most.
        nonmonotone: n of the test that ends a stage.
        adversarial: ε of the adversarial softmax from the first stage on; null: as before.
        input_noise: model.input_noise from the first stage on; null: as before.
        last_latent_dropout: model.head.latent_dropout in the last stage; null: as before.
        partial_shuffle: training.batching.partial_shuffle from the first stage on; null: as before.
    """

    stages: int = 0
    lr: float | None = None
    epochs: int = 1000
    nonmonotone: int = USUAL_PAST
    adversarial: float | None = None
    input_noise: float | None = None
    last_latent_dropout: float | None = None
    partial_shuffle: bool | None = None

    def __post_init__(self) -> None:
        self._require(
            ("stages", self.stages >= 0, "0 or more"),
            ("lr", self.lr is None or 0 < self.lr < math.inf, "positive and finite, or null"),
            ("epochs", self.epochs >= 1, "at least 1"),
            ("nonmonotone", self.nonmonotone >= 1, "at least 1"),
        )
        idle = [  # all in one message: a preset may have set several
            f"training.finetune.{one.name}={as_written(getattr(self, one.name))} (default {as_written(one.default)})"
            for one in fields(self)
            if getattr(self, one.name) != one.default
        ]
        if idle and not self.stages:
            raise InputError(
                f"training.finetune.stages=0: nothing is finetuned, so that this does nothing: {', '.join(idle)}. "
                "Use training.finetune.stages=1 or more, or the defaults."
            )


@dataclass(frozen=True, kw_only=True)
class BatchingConfig(_Options, prefix="training.batching"):
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
        long_sentences: what becomes of training sentences of more than `length` targets: keep (whole) or cut (the rest
            is lost, as in Salton et al., 2017). In evaluation they are always whole.
        predict_first: <eos> is read before each sentence, and its first word predicted; false: that word is read
            without being predicted, as in the code of Salton et al. (2017). For sentences alone.
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
        choices, size = get_args(LongSentences), self.group_size
        buckets = self.kind == "sentences" and self.shuffle
        in_buckets = "false unless training.batching.kind is sentences and training.batching.shuffle is true"
        divides = f"at least 1 and a divisor of training.batching.batch_size={self.batch_size}, or null"
        self._require(
            ("batch_size", self.batch_size >= 1, "at least 1"),
            ("length", self.length >= 1, "at least 1"),
            ("eval_batch_size", self.eval_batch_size >= 1, "at least 1"),
            ("long_sentences", self.long_sentences in choices, " or ".join(choices)),
            ("bucket", not self.bucket or buckets, in_buckets),
        )
        for kind, names in _OF_ONE_KIND.items():
            if self.kind != kind:
                require_defaults(self, self.PREFIX, names, f"unless training.batching.kind is {kind}")
        spread, over = self.length_spread, self.longest_over
        one_order = "false with training.batching.kind=streams, which have one order; use partial_shuffle"
        drawn = spread > 0 or self.short_share > 0
        self._require(
            ("shuffle", not (self.kind == "streams" and self.shuffle), one_order),
            ("length_spread", 0 <= spread <= self.length, "in [0, training.batching.length]"),
            ("short_share", 0 <= self.short_share <= 1, "in [0, 1]"),
            ("length", not drawn or self.length >= SHORTEST, f"at least {SHORTEST} where lengths are drawn"),
            ("longest_over", over is None or spread > 0, "null unless training.batching.length_spread is positive"),
            ("longest_over", over is None or over >= 0, "at least 0, or null"),
            ("group_size", size is None or (size >= 1 and self.batch_size % size == 0), divides),
        )

    def streams(self, *, training: bool) -> StreamRules:
        """Return the random draws of streams; evaluation has none."""
        drawn = {each.name: getattr(self, each.name) for each in fields(StreamRules)}
        return StreamRules(**drawn) if training else StreamRules()

    def sentences(self, *, training: bool) -> SentenceRules:
        """Return the rules for sentences; in evaluation none is cut, and their order changes nothing."""
        if not training:
            return SentenceRules(predict_first=self.predict_first, order="by-length")
        return SentenceRules(
            limit=self.length if self.long_sentences == "cut" else None,
            predict_first=self.predict_first,
            order="bucketed" if self.bucket else "drawn",
        )


_OF_ONE_KIND = {
    "sentences": ("long_sentences", "predict_first"),
    "streams": ("length_spread", "short_share", "partial_shuffle"),
}
"""Fields that mean nothing for batches of another kind."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(_Options, prefix="training"):
    """The recipe of a training run.

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
            counted from the first average on: before that, averages begin when the loss stagnates.
        start_from: the folder of a run whose weights, the best until then, this one begins with; parameters that it
            lacks (those of a span buffer, say) begin as usual; null: all do.
        learns: which weights change: all, or memory: of a run that begins with another's, only those of its memory. The
            rest stays what it was; dropout acts.
        seed: of initial weights, dropout and order.
        precision: fp32, or bf16: products in bfloat16, master weights, losses and sums in float32; what an LSTM carries
            from step to step is as wide as the library's kernel has it.
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
        stages, switch_after = self.finetune.stages, self.optimizer.switch_after
        positive = "0 or positive, and finite"
        of_averages = "0 unless training.optimizer.kind is nt_asgd, whose averages are what a stage is judged by"
        too_late = (
            f"less than training.epochs={self.epochs}, or no epoch is left for averages; or null, for the test of "
            "training.optimizer.nonmonotone"
        )
        drawn = "all unless training.start_from names a run whose weights are to stay: what is drawn would never learn"
        averages = stages == 0 or self.optimizer.kind == "nt_asgd"
        require(averages, "training.finetune.stages", stages, of_averages)
        in_time = switch_after is None or switch_after < self.epochs
        self._require(
            ("activation_penalty", 0 <= self.activation_penalty < math.inf, positive),
            ("temporal_penalty", 0 <= self.temporal_penalty < math.inf, positive),
            ("epochs", self.epochs >= 1, "at least 1"),
            ("patience", self.patience is None or self.patience >= 1, "at least 1, or null"),
            ("learns", self.learns in ("all", "memory"), "all or memory"),
            ("learns", self.learns == "all" or self.start_from is not None, drawn),
            ("checkpoint_every", self.checkpoint_every >= 1, "at least 1"),
            ("log_every", self.log_every >= 1, "at least 1"),
            ("seed", 0 <= self.seed < 2**63, "in [0, 2^63)"),
        )
        require(in_time, "training.optimizer.switch_after", switch_after, too_late)
