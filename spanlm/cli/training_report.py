"""The report of a training run: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Mapping
from pathlib import Path

from spanlm.cli.render import Progress, duration, eta, out, paragraph, table
from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.models.counting import count_configured
from spanlm.models.ops.precision import usable
from spanlm.scoring.tally import perplexity, shown
from spanlm.store.machine import with_threads
from spanlm.training.config import BatchingConfig, TrainingConfig
from spanlm.training.position import Position
from spanlm.training.progress import EpochEvent, StepEvent, Watcher
from spanlm.training.setup import WarmStart

_UNTRAINED_UNK = (
    "occurs nowhere in the training text, so the probabilities of unknown words will mean nothing (a larger "
    "--data.min_count makes rare words <unk>)"
)


def ppl(loss: float) -> str:
    return shown(perplexity(loss))


class TrainingReport(Watcher):
    """Prints the sizes (with `notes` on the corpus), progress, a line for each epoch, and the best one."""

    def __init__(self, notes: bool = True) -> None:
        self._notes, self._progress, self._training = notes, Progress(), TrainingConfig()
        self._last_step, self._validation_seconds = time.monotonic(), 0.0

    def __enter__(self) -> TrainingReport:
        self._progress.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._progress.__exit__(None, None, None)

    def start(
        self, config: RunConfig, corpus: Corpus, folder: Path, device: str, predicted: int, started: WarmStart | None
    ) -> None:
        model, training = config.model, config.training
        self._training = training
        parameters = count_configured(model, len(corpus.vocabulary))
        stages = training.finetune.stages
        rows = {
            "model": f"{model.description}; embedding {model.embedding_size}",
            "parameters": f"θ_M {parameters.model:,} (without word representations), θ_W+M {parameters.total:,}",
            "data": corpus.description,
            "<unk>": "" if corpus.unk_tokens("train") or corpus.exact else _UNTRAINED_UNK,
            "training": f"{training.optimizer.kind}, lr {training.optimizer.lr:g}; {_batches(training.batching)}; "
            f"{usable(training.precision, device)} on {with_threads(device)}; seed {training.seed}"
            + (f"; then {stages} finetune stage{'s' * (stages > 1)}" if stages else ""),
            "left out": _left_out(training.batching, len(corpus.splits["train"]), predicted),
            "begins with": str(started or ""),
            "learns": "the memory alone" if training.learns == "memory" else "",
            "folder": str(folder),
        }
        paragraph(*corpus.notes if self._notes else ())
        table([(name, text) for name, text in rows.items() if text])

    def note(self, text: str) -> None:
        out(text)

    def step(self, event: StepEvent) -> None:
        self._last_step = time.monotonic()
        at, loss = event.position, event.position.epoch_nll / event.position.epoch_tokens
        label = ", ".join(filter(None, [f"epoch {at.stage_epochs + 1}/{self._epochs(at)}", self._phase(at)]))
        details = f"ppl {ppl(loss)}", f"{event.tokens_per_second:,.0f} tok/s", f"lr {event.rate:g}"
        place = f"{at.segment}/{event.segments}  loss {loss:.3f}"
        self._progress.show(label, at.segment, event.segments, self._left(event), details, place)

    def _epochs(self, at: Position) -> int:
        return self._training.finetune.epochs if at.stage else self._training.epochs

    def _phase(self, at: Position) -> str:
        stage = f"finetune {at.stage}/{self._training.finetune.stages}" if at.stage else ""
        return ", ".join(filter(None, [stage, "averaged" if at.averaged else ""]))

    def _left(self, event: StepEvent) -> str:
        """Return the time left in the epoch, and in all epochs with their validations."""
        at, finetune = event.position, self._training.finetune
        # from the mean segment so far, since lengths may differ
        whole = event.segments / at.segment * at.epoch_tokens / max(event.tokens_per_second, 1e-3)
        left = whole * (1 - at.segment / event.segments)
        later = self._epochs(at) - at.stage_epochs - 1 + (finetune.stages - at.stage) * finetune.epochs
        seconds = left + self._validation_seconds + later * (whole + self._validation_seconds)
        at_most = "at most " if self._training.patience is not None or finetune.stages else ""
        return f"{eta(left)}, all {at_most}{duration(seconds)}"

    def epoch(self, event: EpochEvent) -> None:
        self._validation_seconds = time.monotonic() - self._last_step
        self._progress.pause()
        remarks = ", ".join(filter(None, [self._phase(event.position), "best" if event.improved else ""]))
        line = (  # fits 80 columns with the commonest remark
            f"train ppl {ppl(event.train_loss):>8}  valid ppl {ppl(event.valid_loss):>8}  "
            f"{event.tokens_per_second:>7,.0f} tok/s  {event.seconds:>4.0f} s  {remarks}"
        )
        splits = (("train", event.train_parts), ("valid", event.valid_parts))
        parts = [("", f"{split} {_parts(parts)}") for split, parts in splits if parts]
        table([(f"epoch {event.position.epoch:>3}", line.rstrip()), *parts])

    def ended(self, position: Position, folder: Path) -> None:
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
    """Describe the training tokens that are never predicted; empty if there are none."""
    lost = tokens - predicted
    why = [f"what is beyond {batching.length} words of a sentence"] if batching.long_sentences == "cut" else []
    why += [] if batching.predict_first else ["the first word of each"]
    return f"{lost:,} of {tokens:,} training tokens ({lost / tokens:.1%}): {' and '.join(why)}" if lost else ""


def _parts(parts: Mapping[str, float]) -> str:
    return (
        f"encoder alone {ppl(parts['encoder_nll'])}, buffer alone {ppl(parts['buffer_nll'])}, "
        f"PoU {parts['utilisation']:.1%}, oracle PoU {parts['oracle_utilisation']:.1%}, "
        f"buffer's share {parts['gate']:.3f}, reward {parts['reward']:+.3f}"
    )
