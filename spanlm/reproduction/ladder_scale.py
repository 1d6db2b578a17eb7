"""The scales of Li et al. (2020), whose rows are rungs: each is a rung below with one thing more.

What a rung adds is seen where all else is alike. The published recipes are not (AWD-LSTM has 20 streams and a rate of
30, MoS 12 and 20, and hundreds of epochs in which that may not matter); at a small scale all rows have one recipe in
few epochs: SGD, after a fixed share of the epochs averages, and one stage of finetuning, which is where the adversarial
rows get their larger ε. Widths, initial ranges and dropout are made smaller as in `proportional_scale`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spanlm.config import RunConfig
from spanlm.data.config import DataConfig
from spanlm.models.config import ModelConfig
from spanlm.models.heads import AnyHeadConfig, MixtureOfSoftmaxesConfig
from spanlm.models.memories import AnyMemoryConfig, SpanBufferConfig
from spanlm.reproduction.proportional_scale import OF_PRESETS, ProportionalScale
from spanlm.reproduction.scale import DynamicSearch
from spanlm.reproduction.wording import several
from spanlm.training.config import TrainingConfig


@dataclass(frozen=True, kw_only=True)
class Shortened:
    """One recipe in few epochs for all rows of a table.

    Attributes:
        batch_size: streams.
        length: BPTT, steps of the usual segment.
        lr: of all stages.
        epochs: of the main training.
        switch_after: epochs of SGD before averages begin.
        finetune_epochs: of the one stage after it.
    """

    batch_size: int
    length: int
    lr: float
    epochs: int
    switch_after: int
    finetune_epochs: int

    def of(self, training: TrainingConfig) -> TrainingConfig:
        """Return a published recipe made short: what is not named above stays, ε and noise of finetuning included."""
        return replace(
            training,
            optimizer=replace(training.optimizer, lr=self.lr, switch_after=self.switch_after),
            batching=replace(training.batching, batch_size=self.batch_size, length=self.length, group_size=None),
            epochs=self.epochs,
            finetune=replace(
                training.finetune,
                stages=1,
                lr=None,
                epochs=self.finetune_epochs,
                last_latent_dropout=None,
                partial_shuffle=None,
            ),
        )


@dataclass(frozen=True, kw_only=True)
class LadderScale(ProportionalScale):
    """A size at which all rungs have one short recipe.

    Attributes:
        recipe: that; None: each row's as published.
        experts: K of a mixture of softmaxes; None: as published.
        buffer_size: B, at most; None: as published.
    """

    recipe: Shortened | None = None
    experts: int | None = None
    buffer_size: int | None = None

    def configure(self, preset: RunConfig, data: DataConfig, vocabulary_size: int, tokens: int) -> RunConfig:
        """Return the configuration of a row at this scale; see `Scale`."""
        training = replace(preset.training, precision=self.precision)
        if self.recipe is not None:
            training = self.recipe.of(training)
        model = preset.model if self.width == 1 else self._narrowed(preset.model)
        return RunConfig(data=data, model=model, training=training)

    def describe(self, configs: Sequence[RunConfig], vocabulary_size: int) -> list[str]:
        """Say how sizes and recipes differ from the published ones."""
        if self.recipe is None:
            return super().describe(configs, vocabulary_size)
        short = self.recipe
        return [
            f"Sizes (scale {self.name}): {self.width:g} of every published width, {self.experts} softmaxes of 15, a "
            f"buffer of {self.buffer_size:,} words; dropout and weight drop {self.dropout:g} of the published; the "
            f"weights of embedding, softmaxes and buffer start in {self._range:.2f} times the published range.",
            f"Recipe: the same for all rows, which it is not in the papers, and short: {short.batch_size} streams × "
            f"{short.length} steps, give or take, rate {short.lr:g}, {several(short.epochs, 'epoch')}, of SGD until "
            f"averages begin after {short.switch_after}, whatever the validation losses are (published: hundreds, "
            "switched by the non-monotone test, for AT at 200); then one stage of finetuning of "
            f"{several(short.finetune_epochs, 'epoch')} (AT has four, the last with more dropout, which is left out). "
            "Where streams are shuffled, they are so in finetuning, too; rows with AT have its noise on the embedded "
            "words, too, as published. Clip, weight decay, AR, TAR, ε, temperatures and rewards as published; products "
            f"in {self.precision}.",
            f"{self.dynamic.describe()} (Published: a finer grid, over all of train.)",
            OF_PRESETS,
        ]

    def _narrowed(self, model: ModelConfig) -> ModelConfig:
        narrow = super()._narrowed(model)
        return replace(narrow, memory=self._shorter(model.memory), head=self._fewer(model.head))

    def _shorter(self, memory: AnyMemoryConfig) -> AnyMemoryConfig:
        """Return a buffer of this scale."""
        if not isinstance(memory, SpanBufferConfig):
            return memory
        size = memory.buffer_size if self.buffer_size is None else min(memory.buffer_size, self.buffer_size)
        return replace(memory, buffer_size=size, dropout=memory.dropout * self.dropout)

    def _fewer(self, head: AnyHeadConfig) -> AnyHeadConfig:
        """Return a mixture of softmaxes of this scale."""
        if not isinstance(head, MixtureOfSoftmaxesConfig):
            return head
        experts = head.experts if self.experts is None else min(head.experts, self.experts)
        return replace(head, experts=experts, latent_dropout=head.latent_dropout * self.dropout)


SCALES = {
    scale.name: scale
    for scale in (
        LadderScale(
            name="smoke",
            purpose="does everything run? minutes on the embedded corpus; the numbers mean nothing",
            corpus="demo",
            vocabulary_size=2_000,
            width=0.025,
            dropout=0.5,
            recipe=Shortened(batch_size=12, length=35, lr=10.0, epochs=2, switch_after=1, finetune_epochs=1),
            experts=2,
            buffer_size=64,
            dynamic=DynamicSearch(rates=(5e-5, 2e-4), decays=(0.002,), first_tokens=500, finalists=0, statistics=5),
        ),
        LadderScale(
            name="small",
            purpose="a fifth of every width; hours of two CPU cores (see --dry-run)",
            width=0.2,
            dropout=0.5,
            recipe=Shortened(batch_size=12, length=35, lr=20.0, epochs=6, switch_after=4, finetune_epochs=2),
            experts=3,
            buffer_size=256,
            precision="bf16",
            dynamic=DynamicSearch(
                rates=(5e-5, 1e-4, 2e-4, 4e-4),
                decays=(0.0005, 0.002, 0.008, 0.032),
                first_tokens=5_000,
                finalists=3,
                statistics=200,
            ),
        ),
        LadderScale(name="paper", purpose="the papers' sizes and recipes; for a GPU"),
    )
}
