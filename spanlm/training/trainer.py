"""The one trainer: truncated BPTT, validation after every epoch, stages, exact resume."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import torch

from spanlm.config import RunConfig, check_config, config_digest
from spanlm.data.batching import Segment
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError, Interrupted, RunError
from spanlm.evaluation.parts import log_of_training
from spanlm.evaluation.protocol import Protocol, usable
from spanlm.evaluation.scoring import score, tally, to_device
from spanlm.store.checkpoints import holds_checkpoints, load_last_checkpoint, save_checkpoint
from spanlm.store.files import expanded
from spanlm.store.process import StopRequest, pick_device, stop_request
from spanlm.store.provenance import read_precision, record_start
from spanlm.store.run_folder import CHECKPOINTS, CONFIG, MODEL, load_weights, save_model
from spanlm.training.journal import Journal, Watcher
from spanlm.training.optimizers import NTASGD, averaged, build_optimizer, next_rate
from spanlm.training.position import (
    Position,
    as_checkpoint,
    generator_states,
    restore_checkpoint,
    restore_generators,
)
from spanlm.training.setup import WarmStart, build_model, data_fingerprint, hold_all_but_new, split_batcher, warm_start
from spanlm.training.stages import averages_begin, refuse_unfit, run_over, stage_config, stage_over
from spanlm.training.step import backward, clip


class Trainer:
    """Trains one model in one run folder, which the caller has locked.

    Every step between two checkpoints is a function of the checkpoint and the configuration, on the same machine
    and number of threads: a run that is killed and resumed ends with the same weights, bit for bit. On a GPU some sums
    have no fixed order, and the last bits may differ, as they may between two runs that nobody disturbed.

    Args:
        config: the whole run's.
        corpus: its data.
        folder: holds `config.yaml` and `vocabulary.json` already.
        watcher: told of progress.
    """

    def __init__(self, config: RunConfig, corpus: Corpus, folder: Path, watcher: Watcher) -> None:
        self.config, self.corpus, self.folder = config, corpus, folder
        self._told_of_leftovers = False
        self.journal = Journal(config.training, watcher, folder)
        refuse_unfit(config)
        self.device = pick_device(config.training.device, "training.device")
        rate, digest, file = config.training.optimizer.lr, config_digest(config.to_tree()), folder / CONFIG
        self._found = config_digest(RunConfig.load(file, whole=True).to_tree()) if file.exists() else digest
        self.position = Position(rate=rate, data=data_fingerprint(corpus), config=digest)
        # streams of equal length in training; in validation the context of a word must not depend on the batch size
        self.valid = split_batcher(config, corpus, "valid", config.training.batching.eval_batch_size, whole=True)
        self._set_up()
        self.started: WarmStart | None = None
        origin = config.training.start_from
        # a run that goes on has its own weights and does not need the other any more
        if origin is not None and not holds_checkpoints(folder / CHECKPOINTS):
            self.started = warm_start(self.model, expanded(origin), corpus.vocabulary)

    def _set_up(self) -> None:
        """Make what the stage of the position trains: its model, its optimiser, its batches."""
        config = stage_config(self.config, self.position.stage)
        streams = config.training.batching.batch_size
        # before the model: refuses what does not fit in memory
        self.batcher = split_batcher(config, self.corpus, "train", streams, whole=False)
        self.model = build_model(config, len(self.corpus.vocabulary)).to(self.device)
        if config.training.learns == "memory":
            hold_all_but_new(self.model)
        self.optimizer = build_optimizer(config.training.optimizer, self.model)
        self.segments = self.batcher.count(self._order())
        self.state = self.initial = self.model.init_state(streams)

    def restore(self) -> None:
        """Go on from the last checkpoint, if there is one.

        Raises:
            InputError: it is of another text, or of another configuration than the folder has.
            RunError: all checkpoints are damaged, or lack something.
        """
        checkpoint, refused = load_last_checkpoint(self.folder / CHECKPOINTS)
        for text in refused:
            self.journal.watcher.note(text)
        if checkpoint is None:
            return
        position = Position.from_json(checkpoint.position)
        if position.data != self.position.data:
            raise InputError(
                f"{self.folder}: was trained on another text than {self.config.data.corpus} now holds; "
                "resuming would mix the two. Put the text back, or start with another --out."
            )
        check_config(position.config, self._found, self.folder / CHECKPOINTS)
        self.position = replace(position, config=self.position.config)
        if position.stage:
            self._set_up()
        self.state = restore_checkpoint(
            checkpoint, self.model, self.optimizer, self.initial, self.position, self.device
        )
        self.journal.watcher.note(
            f"finished before, after {position.epoch} epochs; more training.epochs go on"
            if self.finished
            else f"going on from step {position.step} (epoch {position.epoch + 1})"
        )

    def run(self) -> Position:
        """Train until the last stage has ended, from where it stands; see `restore`.

        Raises:
            Interrupted: Ctrl-C or SIGTERM; the state is saved.
            RunError: a loss that is not a number, or a full disk.
        """
        if not self.finished:
            self._record_start()
        with self.journal.open(self.position):
            if self.started is not None:
                self._checkpoint()  # before a better model takes the place of the one that was read
            with stop_request() as request:
                self.journal.request = request
                while not self.finished:
                    if stage_over(self.position, self.config.training):
                        self._next_stage()
                    self._epoch(request)
        return self.position

    @property
    def finished(self) -> bool:
        """Whether the last stage has ended."""
        return run_over(self.position, self.config.training)

    def _record_start(self) -> None:
        asked = self.config.training.precision
        now, before = usable(asked, self.device), read_precision(self.folder, asked)
        if self.position.step and now != before:
            self.journal.watcher.note(f"in {before} until now, in {now} from here on: the weights will differ")
        origin = None if self.started is None else self.started.weights
        start = (self.folder, self.device, origin, self.corpus.texts, now, self.corpus.unk_tokens("train"))
        self.journal.lasting(lambda: record_start(*start))

    def _order(self) -> int:
        # one order an epoch, known without having drawn those before it
        return self.config.training.seed * 1_000_003 + self.position.epoch

    def _epoch(self, request: StopRequest) -> None:
        self.model.train()
        self.journal.begin_epoch()
        self.segments = self.batcher.count(self._order())
        for segment in self.batcher.segments(self._order(), start=self.position.segment):
            self.step(segment)
            if request.signal_number is not None:
                self._interrupt(request.signal_number)
            if self.position.step % self.config.training.checkpoint_every == 0:
                self._checkpoint()
        self._validate(request)

    def step(self, segment: Segment) -> None:
        """Do one optimiser step on a segment, after those before it.

        Raises:
            RunError: the loss or the gradient is not finite; nothing was updated.
        """
        position, training = self.position, self.config.training
        state = self.state.reset(segment.reset, self.initial)
        result = backward(self.model, to_device(segment, self.device), state, training)
        norm = clip(self.model, training.optimizer.clip)
        # all that is asked of the device in a step is asked at once: each question waits for it
        numbers = torch.stack([result.nll, result.tokens.double(), norm.double()])
        nll, tokens, norm_value, *metrics = torch.cat([numbers, result.metrics]).tolist()
        self._refuse_not_finite(nll, norm_value)
        warmup = training.schedule.warmup
        rate = position.rate * min(1.0, (position.step + 1) / warmup) if warmup else position.rate
        (group,) = self.optimizer.param_groups
        group["lr"] = rate * segment.rate_share  # the segment's share of the epoch's rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.state = result.state
        position.advance(nll, int(tokens), dict(zip(result.names, metrics, strict=True)))
        self.journal.step(position, self.segments, group["lr"], norm_value, int(tokens))

    def _refuse_not_finite(self, nll: float, norm: float) -> None:
        if math.isfinite(nll) and math.isfinite(norm):
            return
        step, what = self.position.step + 1, "loss" if not math.isfinite(nll) else "gradient"
        raise RunError(
            f"step {step} (epoch {self.position.epoch + 1}, segment {self.position.segment + 1}): the {what} is not "
            f"finite (NLL {nll}, gradient norm {norm}). Nothing was updated; the last checkpoint is intact. "
            "Start again in another --out with a lower training.optimizer.lr or training.optimizer.clip."
        )

    def _validate(self, request: StopRequest) -> None:
        position, training = self.position, self.config.training
        train = position.epoch_nll / position.epoch_tokens, log_of_training(position.parts)
        with averaged(self.optimizer):
            segments = takewhile(lambda _: request.signal_number is None, self.valid.segments())
            scored = score(self.model, segments, Protocol(precision=training.precision))
            found = tally(scored, self.corpus.vocabulary.unk_id)
            stopped = request.signal_number
            improved = stopped is None and self._kept(found.loss)
        if stopped is not None:
            self._interrupt(stopped)
        event = self.journal.epoch(position, found, improved, *train)
        position.rate = next_rate(training.schedule, position.rate, position.stage_epochs, improved)
        self.state = self.initial
        begun = averages_begin(position, training, found.loss)
        if begun:
            self._begin_averages()
        self._checkpoint()
        self.journal.watcher.epoch(event)
        if begun:
            self.journal.watcher.note(f"averages of the weights begin after epoch {position.epoch}")

    def _kept(self, loss: float) -> bool:
        """Close the epoch; save the weights that the model has now if they are the best so far."""
        if not math.isfinite(loss):
            raise RunError(f"epoch {self.position.epoch + 1}: the validation loss is {loss}. Lower the learning rate.")
        improved = self.position.next_epoch(loss)
        if improved:
            digest = self.position.config.partition(" ")[0]  # what is measured does not depend on finetune stages
            best = (self.folder, self.model, self.corpus.vocabulary.hash, digest)
            self.position.best_weights = self.journal.lasting(lambda: save_model(*best))
        return improved

    def _next_stage(self) -> None:
        """Go on from the best weights so far, with the average of what comes from now on."""
        position, before = self.position, generator_states(self.device)
        position.begin_stage(stage_config(self.config, position.stage + 1).training.optimizer.lr)
        self._set_up()
        restore_generators(before, self.device)
        if load_weights(self.folder, self.model, self.corpus.vocabulary.hash) != position.best_weights:
            raise RunError(
                f"{self.folder / MODEL}: is not the model of epoch {position.best_epoch}, from which finetune stage "
                f"{position.stage} begins. Put that back, or start with another --out."
            )
        self._begin_averages()
        self._checkpoint()  # before a better model takes the place of the one that was loaded
        self.journal.watcher.note(
            f"finetune stage {position.stage} of {self.config.training.finetune.stages} begins with the weights of "
            f"epoch {position.best_epoch}"
        )

    def _begin_averages(self) -> None:
        assert isinstance(self.optimizer, NTASGD)  # a configuration that asks for averages has them
        self.optimizer.averaged_steps = 0

    def _checkpoint(self) -> None:
        self.journal.sync(self.position)
        checkpoint = as_checkpoint(self.model, self.optimizer, self.state, self.position, self.device)
        folder, step = self.folder / CHECKPOINTS, self.position.step
        left = self.journal.lasting(lambda: save_checkpoint(folder, step, checkpoint))
        if left and not self._told_of_leftovers:
            self.journal.watcher.note(f"{left[0]}: is not needed any more, and could not be removed")
            self._told_of_leftovers = True

    def _interrupt(self, number: int) -> None:
        self._checkpoint()
        name = {2: "Ctrl-C", 15: "SIGTERM"}.get(number, f"signal {number}")
        raise Interrupted(
            f"stopped by {name} after step {self.position.step}; everything is saved in {self.folder}", number
        )
