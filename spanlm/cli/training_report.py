"""What the user sees of a training run: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType

from spanlm.cli.render import Progress, eta, out, paragraph, table
from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.evaluation.protocol import usable
from spanlm.evaluation.scoring import perplexity, shown
from spanlm.models.counting import count_configured
from spanlm.models.language_model import ModelConfig
from spanlm.store.process import with_threads
from spanlm.training.config import BatchingConfig, TrainingConfig
from spanlm.training.journal import EpochEvent, StepEvent, Watcher
from spanlm.training.position import Position
from spanlm.training.setup import WarmStart

_UNTRAINED_UNK = (
    "occurs nowhere in the training text, so the probabilities of unknown words will mean nothing (a larger "
    "--data.min_count makes rare words <unk>)"
)


def ppl(loss: float) -> str:
    """Show a loss in nats a token as perplexity."""
    return shown(perplexity(loss))


class TrainingReport(Watcher):
    """Prints sizes before the start, progress, a line an epoch, and the end.

    Args:
        notes: print what was decided about the corpus; not needed a second time.
    """

    def __init__(self, notes: bool = True) -> None:
        self._notes, self._progress, self._last_step = notes, Progress(), time.monotonic()
        self._validation, self._finetune_epochs, self._at_most = 0.0, 0, True

    def __enter__(self) -> TrainingReport:
        """Start the live bar where there is a terminal."""
        self._progress.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the bar away."""
        self._progress.__exit__(kind, value, trace)

    def start(
        self, config: RunConfig, corpus: Corpus, folder: Path, device: str, predicted: int, started: WarmStart | None
    ) -> None:
        """Print the sizes of model and data."""
        model, training, batching = config.model, config.training, config.training.batching
        parameters = count_configured(model, len(corpus.vocabulary))  # all of them, whichever learn
        sizes = ", ".join(f"{name} {len(tokens):,}" for name, tokens in corpus.splits.items())
        self._finetune_epochs = training.finetune.epochs
        self._at_most = training.patience is not None or training.finetune.stages > 0
        left_out = _left_out(batching, len(corpus.splits["train"]), predicted)
        for note in corpus.notes if self._notes else ():
            paragraph(note)
        table(
            [
                ("model", f"{describe(model)}; embedding {model.embedding_size}"),
                (
                    "parameters",
                    f"θ_M {parameters.model:,} (without word representations), θ_W+M {parameters.total:,}",
                ),
                ("data", f"{corpus.name}: {sizes} tokens; vocabulary {len(corpus.vocabulary):,}"),
                *([("<unk>", _UNTRAINED_UNK)] if not corpus.unk_tokens("train") else []),
                (
                    "training",
                    f"{training.optimizer.kind}, lr {training.optimizer.lr:g}; {_batches(batching)}; "
                    f"{usable(training.precision, device)} on {with_threads(device)}; "
                    f"seed {training.seed}{_stages(training)}",
                ),
                *([("left out", left_out)] if left_out else []),
                *([("begins with", str(started))] if started else []),
                *([("learns", "the memory alone")] if training.learns == "memory" else []),
                ("folder", str(folder)),
            ]
        )

    def note(self, text: str) -> None:
        """Print what the user should know."""
        out(text)

    def step(self, event: StepEvent) -> None:
        """Move the bar, or print a line now and then."""
        self._last_step = time.monotonic()
        label = ", ".join(filter(None, [f"epoch {event.epoch}/{event.epochs}", str(event.phase)]))
        details = f"ppl {ppl(event.loss)}", f"{event.tokens_per_second:,.0f} tok/s", f"lr {event.rate:g}"
        place = f"{event.segment}/{event.segments}  loss {event.loss:.3f}"
        self._progress.show(label, event.segment, event.segments, self._left(event), details, place)

    def _left(self, event: StepEvent) -> str:
        """Say how long the epoch will take still, and all epochs with their validations."""
        # a single segment says little: their lengths may be drawn, and those of sentences differ
        whole = event.segments / event.segment * event.epoch_tokens / max(event.tokens_per_second, 1e-3)
        left = whole * (1 - event.segment / event.segments)
        later = event.epochs - event.epoch + (event.phase.stages - event.phase.stage) * self._finetune_epochs
        training = timedelta(seconds=round(left + self._validation + later * (whole + self._validation)))
        return f"{eta(left)}, all {'at most ' * self._at_most}{training}"

    def epoch(self, event: EpochEvent) -> None:
        """Print an epoch's line."""
        self._validation = time.monotonic() - self._last_step
        self._progress.pause()
        said = ", ".join(filter(None, [str(event.phase), "best, saved" if event.improved else ""]))
        line = (
            f"epoch {event.epoch:>3}  train ppl {ppl(event.train_loss):>10}  valid ppl {ppl(event.valid_loss):>10}  "
            f"{event.tokens_per_second:>8,.0f} tok/s  {event.seconds:>5.0f} s  {said}"
        )
        out(line.rstrip())
        for split, parts in (("train", event.train_parts), ("valid", event.valid_parts)):
            if parts:
                out(f"           {split} {_parts(parts)}")

    def ended(self, position: Position, folder: Path) -> None:
        """Print where the run ended and what to do next."""
        if not math.isfinite(position.best_loss):
            out(f"no epoch was finished; {folder} has no model yet")
            return
        out(
            f"best epoch {position.best_epoch} of {position.epoch}: valid ppl {ppl(position.best_loss)}. "
            f"Test it once: spanlm evaluate {shlex.quote(str(folder))} --split test"
        )


def _batches(batching: BatchingConfig) -> str:
    if batching.kind != "sentences":
        return f"{batching.batch_size} streams × {batching.length} steps"
    return f"{batching.batch_size} sentences a step{', of similar length' if batching.bucket else ''}"


def _left_out(batching: BatchingConfig, tokens: int, predicted: int) -> str:
    """Say what of the training text is never predicted; nothing where all of it is."""
    lost = tokens - predicted
    why = [f"what is beyond {batching.length} words of a sentence"] if batching.long_sentences == "cut" else []
    why += [] if batching.predict_first else ["the first word of each"]
    return f"{lost:,} of {tokens:,} training tokens ({lost / tokens:.1%}): {' and '.join(why)}" if lost else ""


def _stages(training: TrainingConfig) -> str:
    stages = training.finetune.stages
    return f"; then {stages} finetune stage{'s' if stages > 1 else ''}" if stages else ""


def _parts(parts: Mapping[str, float]) -> str:
    """Say what each part is worth alone, and how the buffer was used where there was anything to read."""
    encoder, buffer = ppl(parts["encoder_nll"]), ppl(parts["buffer_nll"])
    return (
        f"encoder alone {encoder}, buffer alone {buffer}, PoU {parts['utilisation']:.1%}, "
        f"oracle PoU {parts['oracle_utilisation']:.1%}, buffer's share {parts['gate']:.3f}, "
        f"reward {parts['reward']:+.3f}"
    )


def describe(model: ModelConfig) -> str:
    """Name the rooms of a model in words."""
    return ", ".join(room.description for room in (model.encoder, model.memory, model.head))
