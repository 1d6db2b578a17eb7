"""Sends a training's numbers and a sample of text to an experiment tracker.

`tensorboard` (extra `track`) writes into the run's folder; users install `wandb`, or `trackio` with the same interface,
themselves. metrics.jsonl stays the reference: trackers get the same events.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import torch

from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError, installation
from spanlm.runs.loading import load
from spanlm.runs.model import require_weights
from spanlm.store.files import run_name
from spanlm.training.progress import EpochEvent, StepEvent, Watcher
from spanlm.training.setup import WarmStart

Tracker = Literal["tensorboard", "wandb", "trackio"]

WORDS = 24
"""Words of the text generated after each epoch that is the best so far."""

_NUMBERS = {"loss", "perplexity", "train_loss", "rate", "gradient_norm", "tokens_per_second"}


class _TensorBoard:
    def __init__(self, folder: Path, config: RunConfig, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # a resumed run repeats the steps after its checkpoint
        self._writer: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=step)
        self._writer.add_text("config", "\n".join(f"    {line}" for line in config.to_yaml().splitlines()), step)

    def log(self, values: Mapping[str, float | str], step: int) -> None:
        for name, value in values.items():
            write = self._writer.add_text if isinstance(value, str) else self._writer.add_scalar
            write(name, value, step)

    def finish(self) -> None:
        self._writer.close()


class Tracked(Watcher):
    """Passes a training's events to its watcher and to a tracker.

    Raises:
        InputError: the tracker is not installed.
    """

    def __init__(self, watcher: Watcher, tracker: Tracker) -> None:
        try:
            self._api: Any = importlib.import_module(tracker)
        except ImportError:
            command = installation("track") if tracker == "tensorboard" else f"pip install {tracker}"
            raise InputError("track", tracker, f"needs more: {command}") from None
        self._watcher, self._tracker = watcher, tracker
        self._sink: Any = None

    def start(
        self, config: RunConfig, corpus: Corpus, folder: Path, device: str, predicted: int, started: WarmStart | None
    ) -> None:
        self._watcher.start(config, corpus, folder, device, predicted, started)
        self._folder, self._config = folder, config

    def step(self, event: StepEvent) -> None:
        self._watcher.step(event)
        if event.position.step % self._config.training.log_every == 0:
            self._log("train", event.row(), event.position.step)

    def epoch(self, event: EpochEvent) -> None:
        """Log the numbers of a validation and, if it is the best so far, a generated text."""
        self._watcher.epoch(event)
        step = event.position.step
        self._log("valid", {**event.row(), "tokens_per_second": event.tokens_per_second}, step)
        if event.improved:
            # loading a model draws weights, which must not disturb the training's random state
            with torch.random.fork_rng():
                run = require_weights(load(self._folder, "cpu"), "tracking")
                with suppress(InputError):  # the model never learnt to predict first words
                    words = run.generate(length=WORDS, temperature=0.8)
                    text = "".join(run.texts.tokenizer.readable(words))
                    self._open(step).log({"generated": text}, step=step)

    def note(self, text: str) -> None:
        self._watcher.note(text)

    def close(self) -> None:
        if self._sink is not None:
            self._sink.finish()

    def _log(self, event: str, row: Mapping[str, Any], step: int) -> None:
        numbers = {f"{event}/{name}": row[name] for name in sorted(row.keys() & _NUMBERS)}
        self._open(step).log(numbers, step=step)

    def _open(self, step: int) -> Any:
        """Return the tracker, opened at the first numbers: a `SummaryWriter`, `wandb` or `trackio`."""
        if self._sink is None and self._tracker == "tensorboard":
            self._sink = _TensorBoard(self._folder, self._config, step)
        elif self._sink is None:
            self._api.init(project="spanlm", name=run_name(self._folder), config=self._config.to_tree())
            self._sink = self._api
        return self._sink
