"""A training's numbers and a sample of text in an experiment tracker.

`tensorboard` (extra `track`) writes into the run's folder; `wandb` and `trackio`, which has the same interface, are the
user's own installations. metrics.jsonl stays the truth: what a tracker gets is read from the same events.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch

from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus
from spanlm.data.vocabulary import EOS
from spanlm.errors import InputError, installation
from spanlm.runs.loading import load
from spanlm.runs.model import TrainedModel, require_weights
from spanlm.store.files import run_name
from spanlm.training.progress import EpochEvent, StepEvent, Watcher
from spanlm.training.setup import WarmStart

Tracker = Literal["tensorboard", "wandb", "trackio"]

WORDS = 24
"""Words of the text that is generated after each epoch that was the best so far."""

_NUMBERS = {"loss", "perplexity", "train_loss", "rate", "gradient_norm", "tokens_per_second"}


class _TensorBoard:
    def __init__(self, folder: Path, config: RunConfig, step: int) -> None:
        _imported("tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        # what an interrupted run wrote after its checkpoint is written once more
        self._writer: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=step)
        self._writer.add_text("config", "\n".join(f"    {line}" for line in config.to_yaml().splitlines()), step)

    def write(self, values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def show(self, text: str, step: int) -> None:
        self._writer.add_text("generated", text, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _Api:
    """`wandb`, or what has its interface."""

    def __init__(self, name: str, folder: Path, config: RunConfig) -> None:
        self._api = _imported(name)
        self._run = self._api.init(project="spanlm", name=run_name(folder), config=config.to_tree())

    def write(self, values: Mapping[str, float], step: int) -> None:
        self._api.log(dict(values), step=step)

    def show(self, text: str, step: int) -> None:
        self._api.log({"generated": text}, step=step)

    def close(self) -> None:
        self._api.finish()


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        command = installation("track") if name == "tensorboard" else f"pip install {name}"
        raise InputError(f"track={name}: needs more: {command}") from None


class Tracked(Watcher):
    """Passes a training's events on to its watcher, and to a tracker.

    Raises:
        InputError: the tracker is not installed.
    """

    def __init__(self, watcher: Watcher, tracker: Tracker) -> None:
        _imported(tracker)
        self._watcher, self._tracker = watcher, tracker
        self._sink: _TensorBoard | _Api | None = None
        self.pauses = watcher.pauses

    def start(
        self, config: RunConfig, corpus: Corpus, folder: Path, device: str, predicted: int, started: WarmStart | None
    ) -> None:
        """Open the tracker."""
        self._watcher.start(config, corpus, folder, device, predicted, started)
        self._folder, self._config = folder, config

    def step(self, event: StepEvent) -> None:
        """Write the numbers of a step that has a row in metrics.jsonl."""
        self._watcher.step(event)
        if event.position.step % self._config.training.log_every == 0:
            self._write("train", event.row(), event.position.step)

    def epoch(self, event: EpochEvent) -> None:
        """Write the numbers of a validation and, of the best so far, a text."""
        self._watcher.epoch(event)
        step = event.position.step
        self._write("valid", {**event.row(), "tokens_per_second": event.tokens_per_second}, step)
        if event.improved:
            # a model that is made draws its first weights: the training's own draws stay as they are
            with torch.random.fork_rng():
                run = require_weights(load(self._folder, "cpu"), "tracking")
                self._opened(step).show(_generated(run), step)

    def note(self, text: str) -> None:
        """Pass it on."""
        self._watcher.note(text)

    def close(self) -> None:
        """Close the tracker."""
        if self._sink is not None:
            self._sink.close()

    def _write(self, event: str, row: Mapping[str, Any], step: int) -> None:
        self._opened(step).write({f"{event}/{name}": row[name] for name in sorted(row.keys() & _NUMBERS)}, step)

    def _opened(self, step: int) -> _TensorBoard | _Api:
        if self._sink is None:
            folder, config = self._folder, self._config
            board = self._tracker == "tensorboard"
            self._sink = _TensorBoard(folder, config, step) if board else _Api(self._tracker, folder, config)
        return self._sink


def _generated(run: TrainedModel) -> str:
    try:
        words = list(islice(run.words("", length=WORDS, temperature=0.8), WORDS))
    except InputError:  # a model that knows no first words
        return ""
    return " ".join("\n" if word == EOS else word for word in words)
