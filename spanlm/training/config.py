"""The configuration of a training run; without torch, so that reading a configuration is quick."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Literal

from spanlm.data.config import SHORTEST, LongSentences, SentenceRules, StreamRules
from spanlm.errors import InputError, as_written, require, require_defaults
from spanlm.options import (
    NOT_NEGATIVE,
    POSITIVE,
    RATE,
    SEED,
    SHARE,
    Limit,
    Precision,
    at_least,
    option,
    options,
    require_fields,
    short_count,
    whole_count,
)

USUAL_PAST = 5
"""n of the non-monotone test (Merity et al., 2018)."""


@options("training.optimizer")
class OptimizerConfig:
    """The optimiser: from a gradient to an update."""

    kind: Literal["adam", "adamw", "adagrad", "sgd", "nt_asgd"] = option(
        "adam (Kingma & Ba, 2015; betas 0.9 and `beta2`, epsilon 1e-8), adamw (Loshchilov & Hutter, 2019: adam that "
        "shrinks matrices by lr · weight_decay at each step, but neither biases nor norms), adagrad (Duchi et al., "
        "2011; sums of squares from 0, epsilon 1e-10), sgd (no momentum) or nt_asgd (Merity et al., 2018: sgd that, "
        "once validation stagnates, is judged and saved by the average of its weights over all steps since then)",
        default="adam",
    )
    lr: float = option("learning rate at the start", default=0.001, limit=POSITIVE)
    weight_decay: float = option(
        "L2, added to the gradient after clipping; of adamw: decoupled from it", default=0.0, limit=NOT_NEGATIVE
    )
    beta2: float = option(
        "of adam and adamw: how slowly the mean square of a gradient changes", default=0.999, limit=RATE
    )
    clip: float | None = option(
        "largest global gradient norm; null: never clipped", default=5.0, limit=Limit(lambda clip: clip > 0, "positive")
    )
    nonmonotone: int = option(
        "n of nt_asgd: averages begin after an epoch whose validation loss is above the best of all earlier epochs but "
        "the last n",
        default=USUAL_PAST,
        limit=at_least(1),
    )
    switch_after: int | None = option(
        "for nt_asgd: averages begin after this many epochs, for any losses; fewer than training.epochs",
        default=None,
        limit=at_least(1),
    )
    lagged_rates: bool = option(
        "for nt_asgd: average like torch.optim.ASGD, which gave the published numbers. Each step but the first "
        "uses the rate of the step before (which matters if rates follow drawn lengths), and the average leaves "
        "the first weights out",
        default=False,
    )

    def __post_init__(self) -> None:
        by_test = (
            f"{USUAL_PAST}, its default, with training.optimizer.switch_after={self.switch_after}: averages then begin "
            "whatever the losses are. Use training.optimizer.switch_after=null for another"
        )
        if self.kind != "nt_asgd":
            of_averages = "nonmonotone", "switch_after", "lagged_rates"
            require_defaults(self, "training.optimizer", of_averages, "unless training.optimizer.kind is nt_asgd")
        if self.kind not in ("adam", "adamw"):
            require_defaults(self, "training.optimizer", ["beta2"], "unless training.optimizer.kind is adam or adamw")
        switched = self.switch_after is not None and self.nonmonotone != USUAL_PAST
        require_fields(self, ("nonmonotone", not switched, by_test))


@options("training.schedule")
class ScheduleConfig:
    """The learning-rate schedule over epochs."""

    kind: Literal["constant", "step", "milestones", "plateau", "cosine"] = option(
        "constant; step: divided by `factor` after every epoch once `full_epochs` epochs had the full rate; "
        "milestones: divided by `factor` after each of the epochs in `milestones`; "
        "plateau: divided by `factor` after every epoch whose validation loss is not the best so far; cosine: falls at "
        "every step, by half a cosine over training.epochs, which then is fixed, to `final_share` of it",
        default="constant",
    )
    factor: float = option(
        "divisor of the rate (Zaremba's medium model: 1.2, large: 1.15)",
        default=2.0,
        limit=Limit(lambda factor: 1 <= factor < math.inf, "at least 1"),
    )
    full_epochs: int = option(
        'for step. The published codes count from 0, so their "max_epoch" m means m + 1 here',
        default=5,
        limit=at_least(1),
    )
    final_share: float = option("for cosine: the last rate as a share of the first", default=0.1, limit=SHARE)
    milestones: tuple[int, ...] | None = option(
        "for milestones: epochs, as [300, 400]",
        default=None,
        limit=Limit(
            lambda epochs: epochs and [0, *epochs] == sorted({0, *epochs}),
            "one or more positive numbers that grow",
        ),
    )
    warmup: int = option(
        "first optimiser steps, over which the rate rises linearly from 0; 0: none", default=0, limit=at_least(0)
    )

    def __post_init__(self) -> None:
        of_kinds = {"full_epochs": ("step",), "milestones": ("milestones",), "final_share": ("cosine",)}
        for name, kinds in {"factor": ("step", "milestones", "plateau"), **of_kinds}.items():
            if self.kind not in kinds:
                unless = f"unless training.schedule.kind is {' or '.join(kinds)}"
                require_defaults(self, "training.schedule", [name], unless)
        listed = self.milestones is not None or self.kind != "milestones"
        require_fields(self, ("milestones", listed, "a list of epochs with training.schedule.kind=milestones"))

    def cosine(self, done: float) -> float:
        """Return the share of the rate when this share of the training is done."""
        return self.final_share + (1 - self.final_share) * (1 + math.cos(math.pi * min(1.0, done))) / 2


@options("training.finetune")
class FinetuneConfig:
    """Finetune stages after an nt_asgd training (Merity et al., 2018; Wang et al., 2019).

    A stage loads the best weights so far and averages from its first step on. It ends when the test of
    `training.optimizer.nonmonotone` fires on the stage's validation losses, or after `epochs`. Without stages all
    other fields keep their defaults; a resumed run may add stages, with any values.
    """

    stages: int = option("number of stages; 0: none", default=0, limit=at_least(0))
    lr: float | None = option("rate of every stage; null: training.optimizer.lr", default=None, limit=POSITIVE)
    epochs: int = option("most epochs of a stage", default=1000, limit=at_least(1))
    nonmonotone: int = option("n of the test that ends a stage", default=USUAL_PAST, limit=at_least(1))
    adversarial: float | None = option(
        "ε of the adversarial softmax from the first stage on; null: as before", default=None, limit=NOT_NEGATIVE
    )
    input_noise: float | None = option(
        "model.input_noise from the first stage on; null: as before", default=None, limit=NOT_NEGATIVE
    )
    last_latent_dropout: float | None = option(
        "model.head.latent_dropout in the last stage; null: as before", default=None, limit=RATE
    )
    partial_shuffle: bool | None = option(
        "training.batching.partial_shuffle from the first stage on; null: as before", default=None
    )

    def __post_init__(self) -> None:
        idle = [  # one message for all: a preset may have set several
            f"training.finetune.{x.name}={as_written(getattr(self, x.name))} (default {as_written(x.default)})"
            for x in fields(self)
            if getattr(self, x.name) != x.default
        ]
        if idle and not self.stages:
            raise InputError(
                "training.finetune.stages",
                "0",
                f"nothing is finetuned, so that this does nothing: {', '.join(idle)}",
                "Use training.finetune.stages=1 or more, or the defaults.",
            )


@options("training.batching")
class BatchingConfig:
    """How the text is cut into segments."""

    kind: Literal["auto", "streams", "documents", "sentences"] = option(
        "streams: the text as `batch_size` long columns, state carried over; documents: each document starts at a "
        "segment start with an empty state; sentences: each line by itself, padded; auto: documents where the "
        "corpus has several, else streams",
        default="auto",
    )
    batch_size: int = option("streams read side by side", default=64, limit=at_least(1))
    length: int = option(
        "BPTT, steps per segment; gradients stop at its start, state and memory do not. For sentences: the longest "
        "that long_sentences=cut leaves whole",
        default=20,
        limit=at_least(1),
    )
    shuffle: bool = option(
        "a new order of documents or sentences every epoch (streams have only one order)", default=False
    )
    eval_batch_size: int = option(
        "streams side by side in validation; fewer are slower, but give each word more context",
        default=16,
        limit=at_least(1),
    )
    bucket: bool = option("put sentences of similar length in a batch, for less padding; needs shuffle", default=False)
    long_sentences: LongSentences = option(
        "training sentences of more than `length` targets: keep (whole) or cut (the rest is dropped, as in Salton "
        "et al., 2017). Evaluation always reads them whole",
        default="keep",
    )
    predict_first: bool = option(
        "read <eos> before each sentence, and predict its first word; false: read the first word without "
        "predicting it, as in the code of Salton et al. (2017). Only for sentences",
        default=True,
    )
    length_spread: float = option(
        "draw the length of each training segment, at least 5, with this standard deviation around `length`, and "
        "scale its learning rate by it (Merity et al., 2018: 5); 0: fixed lengths. This and the next four are "
        "only for kind=streams",
        default=0.0,
    )
    short_share: float = option(
        "probability that a training segment is drawn around half the `length` (Merity et al., 2018: 0.05)",
        default=0.0,
        limit=SHARE,
    )
    longest_over: int | None = option(
        "a drawn segment is at most this many steps longer than `length`; null: no limit",
        default=None,
        limit=at_least(0),
    )
    length_multiple: int = option(
        "round a drawn length to a multiple of this, so that a GPU needs fewer graphs (training.graph)",
        default=1,
        limit=at_least(1),
    )
    partial_shuffle: bool = option(
        "rotate every stream by a uniform number of steps each epoch (Press, 2019)", default=False
    )
    group_size: int | None = option(
        "streams per backward pass: gradients of groups add up to the batch's, with less memory; must divide "
        "batch_size; null: all at once",
        default=None,
    )

    def __post_init__(self) -> None:
        size = self.group_size
        buckets = self.kind == "sentences" and self.shuffle
        in_buckets = "false unless training.batching.kind is sentences and training.batching.shuffle is true"
        divides = f"at least 1 and a divisor of training.batching.batch_size={self.batch_size}, or null"
        require_fields(self, ("bucket", not self.bucket or buckets, in_buckets))
        for kind, names in _OF_ONE_KIND.items():
            if self.kind != kind:
                require_defaults(self, "training.batching", names, f"unless training.batching.kind is {kind}")
        spread, over = self.length_spread, self.longest_over
        one_order = "false with training.batching.kind=streams, which have one order; use partial_shuffle"
        drawn = spread > 0 or self.short_share > 0
        longest = "at most training.batching.length + longest_over, the longest segment"
        require_fields(
            self,
            ("shuffle", not (self.kind == "streams" and self.shuffle), one_order),
            ("length_spread", 0 <= spread <= self.length, "in [0, training.batching.length]"),
            ("length", not drawn or self.length >= SHORTEST, f"at least {SHORTEST} where lengths are drawn"),
            ("length_multiple", over is None or self.length_multiple <= self.length + over, longest),
            ("longest_over", over is None or spread > 0, "null unless training.batching.length_spread is positive"),
            ("group_size", size is None or (size >= 1 and self.batch_size % size == 0), divides),
        )

    def streams(self, *, training: bool) -> StreamRules:
        """Return the random draws of streams; evaluation has none."""
        drawn = {rule.name: getattr(self, rule.name) for rule in fields(StreamRules)}
        return StreamRules(**drawn) if training else StreamRules()

    def sentences(self, *, training: bool) -> SentenceRules:
        """Return the rules for sentences; evaluation cuts none, and sorts them by length."""
        if not training:
            return SentenceRules(predict_first=self.predict_first, order="by-length")
        return SentenceRules(
            limit=self.length if self.long_sentences == "cut" else None,
            predict_first=self.predict_first,
            order="bucketed" if self.bucket else "drawn",
        )


_OF_ONE_KIND = {
    "sentences": ("long_sentences", "predict_first"),
    "streams": ("length_spread", "short_share", "length_multiple", "partial_shuffle"),
}
"""Fields that apply only to one kind of batches."""


@options("training")
class TrainingConfig:
    """The recipe of a training run."""

    optimizer: OptimizerConfig = option("how a gradient becomes an update", default_factory=OptimizerConfig)
    schedule: ScheduleConfig = option("how the learning rate changes", default_factory=ScheduleConfig)
    batching: BatchingConfig = option("how the text is cut", default_factory=BatchingConfig)
    finetune: FinetuneConfig = option(
        "stages after `epochs` are done or patience is out", default_factory=FinetuneConfig
    )
    activation_penalty: float = option(
        "α of activation regularisation (Merity et al., 2017): α · mean square of the head's input, after dropout",
        default=0.0,
        limit=NOT_NEGATIVE,
    )
    temporal_penalty: float = option(
        "β of temporal activation regularisation: β · mean square of the change of the encoder's output from step "
        "to step, before dropout",
        default=0.0,
        limit=NOT_NEGATIVE,
    )
    loss: Literal["mean", "time-sum"] = option(
        "the NLL to minimise: mean (per predicted token) or time-sum (summed over time, averaged over streams: "
        "Zaremba's and Salton's; about `length` times larger, so rates and clips differ). Penalties are added "
        "unscaled; logs always have the NLL per predicted token, without penalties",
        default="mean",
    )
    epochs: int = option(
        "most passes over the training part, without those of finetune.stages", default=10, limit=at_least(1)
    )
    patience: int | None = option(
        "stop after this many epochs in a row without a better validation loss; null: never. With nt_asgd, epochs "
        "count from the first average on; before that, a stagnating loss begins the averages",
        default=2,
        limit=at_least(1),
    )
    start_from: str | None = option(
        "folder of a run whose best weights this run begins with; parameters that it lacks (such as a span "
        "buffer's) are initialised as usual; null: all are",
        default=None,
    )
    learns: Literal["all", "memory"] = option(
        "which weights change: all, or memory, with start_from: only those of the memory. The others stay fixed; "
        "dropout acts",
        default="all",
    )
    seed: int = option("of initial weights, dropout and order", default=1, limit=SEED)
    precision: Precision = option(
        "fp32; bf16: products in bfloat16; master weights, losses and sums in float32; an LSTM's state has the "
        "type of torch's kernel; or tf32: products of float32 with 10 bits of precision, on GPUs that have it",
        default="fp32",
    )
    device: str = option("auto takes a GPU if there is one", default="auto")
    graph: Literal["auto", "off"] = option(
        "auto: on a GPU, replay each step as one CUDA graph, with the same numbers but for last bits; of at most 16 "
        "lengths, and not with adagrad or under torchrun. Not yet tried on a GPU, so off by default",
        default="off",
    )
    checkpoint_every: int = option(
        "optimiser steps between checkpoints; one is always written after an epoch", default=500, limit=at_least(1)
    )
    keep_at: tuple[int | str, ...] | None = option(
        "keep the weights after so many words (predicted tokens of training, each as often as it was predicted), as in "
        "[100K, 1M, 2M]: revisions/100K, … in the run's folder are runs that every verb reads; with nt_asgd they have "
        "the averages, once there are any; null: none",
        default=None,
    )
    log_every: int = option("optimiser steps between lines of metrics.jsonl", default=50, limit=at_least(1))

    def __post_init__(self) -> None:
        stages, switch_after = self.finetune.stages, self.optimizer.switch_after
        of_averages = "0 unless training.optimizer.kind is nt_asgd, whose averages are what a stage is judged by"
        too_late = (
            f"less than training.epochs={self.epochs}, or no epoch is left for averages; or null, for the test of "
            "training.optimizer.nonmonotone"
        )
        drawn = "all unless training.start_from names a run whose weights are to stay: what is drawn would never learn"
        falls = "another than cosine, which ends with training.epochs, where training.finetune.stages is not 0"
        averages = stages == 0 or self.optimizer.kind == "nt_asgd"
        require(not stages or self.schedule.kind != "cosine", "training.schedule.kind", "cosine", falls)
        require(averages, "training.finetune.stages", stages, of_averages)
        in_time = switch_after is None or switch_after < self.epochs
        if self.keep_at is not None:
            try:
                counts = [whole_count(count) for count in self.keep_at]
            except ValueError:
                counts = []
            grow = counts and [0, *counts] == sorted({0, *counts})
            require_fields(self, ("keep_at", bool(grow), "positive numbers that grow, as [100K, 1M], or null"))
            object.__setattr__(self, "keep_at", tuple(map(short_count, counts)))  # one form of each number
        require_fields(self, ("learns", self.learns == "all" or self.start_from is not None, drawn))
        require(in_time, "training.optimizer.switch_after", switch_after, too_late)

    @property
    def revisions(self) -> dict[str, int]:
        """The names of the revisions to keep, and the words after which."""
        return {str(name): whole_count(name) for name in self.keep_at or ()}


@options()
class BenchOptions:
    """Options of a timing.

    Raises:
        InputError: a number outside its range.
    """

    rounds: int = option(
        "timed steps of each configuration, from all over an epoch; the median counts", default=15, limit=at_least(1)
    )
    operations: int = option(
        "profile a step: the N longest operations, on a GPU by its own time (default 0)", default=0, limit=at_least(0)
    )
