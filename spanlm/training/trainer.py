"""The trainer: truncated BPTT, validation after every epoch, stages, exact resume."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import torch
from torch import Tensor

from spanlm.config import RunConfig, check_config, config_digest
from spanlm.data.batching import Batcher, Segment
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError, Interrupted, RunError
from spanlm.models.interfaces import LMState
from spanlm.models.language_model import LanguageModel
from spanlm.models.ops.precision import products, usable
from spanlm.scoring.perplexity import log_of_training
from spanlm.scoring.protocol import KINDS, Protocol, lines_counted
from spanlm.scoring.stream import read
from spanlm.scoring.tally import tally
from spanlm.store.checkpoints import Checkpoint, holds_checkpoints, load_last_checkpoint, save_checkpoint
from spanlm.store.files import REVISIONS, expanded
from spanlm.store.machine import pick_device
from spanlm.store.provenance import last_fact, record_start
from spanlm.store.run_folder import (
    CHECKPOINTS,
    CONFIG,
    MODEL,
    LostWeights,
    copy_weights,
    load_weights,
    model_digest,
    read_weights,
    require_fit,
    save_model,
    save_revision,
)
from spanlm.store.signals import StopRequest, stop_request
from spanlm.training import optimizers, setup
from spanlm.training.distributed import ALONE, Ranks
from spanlm.training.graph import Computed, Graphs, Rate, RecordedSteps
from spanlm.training.position import Position
from spanlm.training.progress import Journal, Watcher
from spanlm.training.step import backward, clip


class Trainer:
    """Trains one model in one run folder, which the caller has locked.

    On the same machine, with the same number of threads, a killed and resumed run ends with the same weights bit for
    bit. On a GPU some sums have no fixed order, and the last bits may differ, as between two undisturbed runs.
    """

    def __init__(self, config: RunConfig, corpus: Corpus, folder: Path, watcher: Watcher, ranks: Ranks = ALONE) -> None:
        self.config: RunConfig = config
        self.corpus: Corpus = corpus
        self.folder: Path = folder
        self.ranks: Ranks = ranks
        self._watcher, self._journal, self._writes = watcher, Journal(config.training, watcher), ranks.rank == 0
        self.request: StopRequest = StopRequest()
        setup.refuse_unfit(config)
        ranks.refuse_unfit(config)
        self.device: torch.device = pick_device(config.training.device, "training.device")
        ranks.refuse_shared_gpu(self.device)
        self.position: Position = Position(
            rate=config.training.optimizer.lr,
            data=corpus.digest("train", "valid"),
            config=config_digest(config.to_tree()),
        )
        # training may cut documents and sentences; validation keeps them whole
        streams = config.training.batching.eval_batch_size
        self.valid: Batcher = setup.split_batcher(config, corpus, "valid", streams, whole=True)
        self._set_up()
        self.started: setup.WarmStart | None = None
        origin = config.training.start_from
        # a resumed run has its own weights, and no longer needs the other run
        if origin is not None and not holds_checkpoints(folder / CHECKPOINTS):
            self.started = setup.warm_start(self.model, expanded(origin), corpus.vocabulary)

    def _set_up(self) -> None:
        """Build the model, the optimiser and the batches of the position's stage."""
        config = setup.stage_config(self.config, self.position.stage)
        streams = config.training.batching.batch_size
        # before the model: refuses sizes that do not fit in memory
        self.batcher: Batcher = setup.split_batcher(config, self.corpus, "train", streams, whole=False)
        self.model: LanguageModel = setup.build_model(config, len(self.corpus.vocabulary)).to(self.device)
        if config.training.learns == "memory":
            setup.hold_all_but_new(self.model)
        self.optimizer: optimizers.Optimizer = optimizers.build_optimizer(config.training.optimizer, self.model)
        self.segments: int = self.batcher.count(self._order())
        self.streams: Tensor = self.ranks.streams(config.training.batching)
        self.initial: LMState = self.model.init_state(len(self.streams))
        self.state: LMState = self.initial
        # the fused kernel of adagrad takes its rate from the processor
        able = self.device.type == "cuda" and self.ranks.count == 1 and config.training.optimizer.kind != "adagrad"
        records = able and config.training.graph == "auto"
        self.graphs: RecordedSteps | None = Graphs(self.compute, self.device) if records else None

    def restore(self) -> None:
        """Resume from the last checkpoint, if there is one.

        Raises:
            InputError: the checkpoint has another text or configuration, or a finished run lost its best weights.
            RunError: all checkpoints are damaged or incomplete.
        """
        checkpoint, refused = load_last_checkpoint(self.folder / CHECKPOINTS)
        for text in refused:
            self._watcher.note(text)
        if checkpoint is None:
            return
        position, digest, file = Position.from_json(checkpoint.position), self.position.config, self.folder / CONFIG
        if position.data != self.position.data:
            raise InputError(
                f"{self.folder}: was trained on another text than {self.config.data.corpus} now holds; "
                "resuming would mix the two. Put the text back, or start with another folder."
            )
        configured = config_digest(RunConfig.load(file, whole=True).to_tree()) if file.exists() else digest
        check_config(position.config, configured, self.folder / CHECKPOINTS)
        self.position = replace(position, config=digest)
        if position.stage:
            self._set_up()
        self._load(checkpoint)
        if position.best_epoch and self._writes:
            self._find_best()
        self._watcher.note(
            f"finished before, after {position.epoch} epochs; more epochs, patience or finetune stages go on"
            if self.finished
            else f"going on from step {position.step} (epoch {position.epoch + 1})"
        )

    def _find_best(self) -> None:
        """Rebuild a lost `model.safetensors` if the checkpoint has its weights.

        Raises:
            InputError: the best weights are lost, and the run is finished, so that it finds no better ones.
        """
        try:
            # not compared with `best_weights`: a run may be killed after it saved better weights
            read_weights(self.folder, self.corpus.vocabulary.hash)
            return
        except LostWeights:
            at, file = self.position, self.folder / MODEL
        with optimizers.averaged(self.optimizer):
            if model_digest(self.model) == at.best_weights:
                self._save_best()
                self._watcher.note(f"{MODEL} was lost or damaged, and is made again from the last checkpoint")
                return
        lost = f"{file}: is lost or damaged, and the last checkpoint has not the weights of epoch {at.best_epoch}"
        if self.finished:
            raise InputError(f"{lost}, the best. Put it back, or start with another folder.")
        self._watcher.note(f"{lost}, the best so far: put it back, or there is none until a better one comes")

    def run(self) -> Position:
        """Train from the current position to the end of the last stage.

        Raises:
            Interrupted: Ctrl-C or SIGTERM; the state is saved.
            RunError: a loss that is not finite, or a full disk.
        """
        if not self.finished:
            self._record_start()
            self._note_averages()
        with self._journal.open(self.folder, self.position) if self._writes else nullcontext():
            if self.started is not None:
                self._checkpoint()  # before a better model can replace the weights that were read
            with stop_request() as signals:
                self.request, request = signals, self.ranks.stop(signals)
                while not self.finished:
                    if self.position.stage_over(self.config.training):
                        self._next_stage()
                    self._epoch(request)
                if request.signal_number is not None:  # came during the last save; a caller may have more to do
                    self._interrupt(request.signal_number)
        revisions = self.folder / REVISIONS
        if missed := [name for name in self.config.training.revisions if not (revisions / name).exists()]:
            read = f"the run read {self.position.tokens:,} words, and what it has passed it cannot keep"
            self._watcher.note(f"training.keep_at: {', '.join(missed)} not kept: {read}")
        return self.position

    @property
    def finished(self) -> bool:
        return self.position.run_over(self.config.training)

    def _record_start(self) -> None:
        wanted = self.config.training.precision
        now, before = usable(wanted, self.device), wanted
        with suppress(RunError):  # damaged: nothing is known
            before = last_fact(self.folder, "precision", wanted)
        if self.position.step and now != before:
            self._watcher.note(f"in {before} until now, in {now} from here on: the weights will differ")
        if self._writes:
            record_start(
                self.folder,
                self.device,
                precision=now,
                unk=self.corpus.unk_tokens("train"),
                ranks=self.ranks.count,
                texts=self.corpus.texts,
                validation=self._validation,
                started_from_weights=None if self.started is None else self.started.weights,
            )

    @property
    def _validation(self) -> str:
        batching = self.config.training.batching
        kind = setup.batching_kind(batching.kind, self.corpus.splits["train"])
        if not batching.predict_first:
            lines = lines_counted(self.corpus.lines)
            return f"every token but the first of each line predicted once, <eos> counted; state reset at each{lines}"
        context = next(context for context, cut in KINDS.items() if cut == kind)
        return Protocol(context=context, batch_size=batching.eval_batch_size).description(self.corpus, "valid")

    def _note_averages(self) -> None:
        training, optimizer = self.config.training, self.config.training.optimizer
        by_test = optimizer.kind == "nt_asgd" and optimizer.switch_after is None and not training.finetune.stages
        first = optimizer.nonmonotone + 2
        if by_test and training.epochs <= first:
            self._watcher.note(
                f"training.epochs={training.epochs}: averages of the weights would begin after epoch {first} at the "
                "earliest (training.optimizer.nonmonotone), so that this run has none"
            )

    def _order(self) -> int:
        # one seed per epoch, without drawing earlier orders
        return self.config.training.seed * 1_000_003 + self.position.epoch

    def _epoch(self, request: StopRequest) -> None:
        self.model.train()
        self._journal.begin_epoch()
        self.segments = self.batcher.count(self._order())
        for segment in self.batcher.segments(self._order(), start=self.position.segment):
            before = self.position.tokens
            self.step(segment)
            self._keep(before)
            if request.signal_number is not None:
                self._interrupt(request.signal_number)
            if self.position.step % self.config.training.checkpoint_every == 0:
                self._checkpoint()
        self._validate(request)

    def step(self, segment: Segment) -> None:
        """Do one optimiser step on the next segment.

        Raises:
            RunError: the loss or the gradient is not finite; nothing was updated.
        """
        position, schedule = self.position, self.config.training.schedule
        # before the segment moves to a GPU, where reading `reset` would wait for the device
        state = self.state.reset(segment.reset[self.streams], self.initial)
        if schedule.kind == "cosine":
            done = position.epoch + position.segment / self.segments
            position.rate = self.config.training.optimizer.lr * schedule.cosine(done / self.config.training.epochs)
        warmup = schedule.warmup
        rate = position.rate * min(1.0, (position.step + 1) / warmup) if warmup else position.rate
        self.optimizer.lr = rate * segment.rate_share
        self.optimizer.begin()
        if self.graphs is None:
            computed = self.compute(segment.to(self.device), state, self.optimizer.lr)
        else:
            computed = self.graphs(segment, state, self.optimizer.lr)
        # one transfer per step, since each transfer waits for the device
        nll, tokens, norm, *metrics = computed.numbers.tolist()
        self._refuse_not_finite(nll, norm)
        self.optimizer.finish()
        self.state = computed.state
        position.advance(nll, int(tokens), dict(zip(computed.names, metrics, strict=True)))
        self._journal.step(position, self.segments, self.optimizer.lr, norm, int(tokens))

    def compute(self, segment: Segment, state: LMState, rate: Rate) -> Computed:
        """Do a step on a segment on the device: gradients, clip, and the update if loss and gradient are finite."""
        training = self.config.training
        with products(self.device, training.precision):
            result = backward(self.model, segment, state, training, self.ranks)
        nll, metrics = self.ranks.total(self.model, [result.nll, result.metrics], self.request)
        norm = clip(self.model, training.optimizer.clip)
        numbers = torch.stack([nll, result.tokens.double(), norm.double()])
        self.optimizer.update(rate, unless=1.0 - numbers.isfinite().all().float())
        self.optimizer.zero_grad()
        return Computed(torch.cat([numbers, metrics]), result.state, result.names)

    def _refuse_not_finite(self, nll: float, norm: float) -> None:
        if math.isfinite(nll) and math.isfinite(norm):
            return
        step, quantity = self.position.step + 1, "loss" if not math.isfinite(nll) else "gradient"
        change = "a lower training.optimizer.lr or training.optimizer.clip"
        if step == 1:  # no learning rate was used yet
            change = "a smaller model.init_range, or from other weights (training.start_from)"
        last = "the last checkpoint is intact" if holds_checkpoints(self.folder / CHECKPOINTS) else "no checkpoint yet"
        raise RunError(
            f"step {step} (epoch {self.position.epoch + 1}, segment {self.position.segment + 1}): the {quantity} is "
            f"not finite (NLL {nll}, gradient norm {norm}). Nothing was updated; {last}. Start again in another folder "
            f"with {change}."
        )

    def _validate(self, request: StopRequest) -> None:
        position, training = self.position, self.config.training
        train = position.epoch_nll / position.epoch_tokens, log_of_training(position.parts)
        with optimizers.averaged(self.optimizer):
            signals = self.request
            segments = takewhile(lambda _: signals.signal_number is None, self.ranks.share(self.valid.segments()))
            scored = read(self.model, segments, Protocol(precision=training.precision))
            total = self.ranks.tally(tally(scored, self.corpus.vocabulary), signals)
            stopped = request.signal_number
            improved = stopped is None and self._close_epoch(total.loss)
        if stopped is not None:
            self._interrupt(stopped)
        event = self._journal.epoch(position, total, improved, *train)
        position.rate = optimizers.next_rate(training.schedule, position.rate, position.stage_epochs, improved)
        self.state = self.initial
        begun = position.averages_begin(training, total.loss)
        if begun:
            self._begin_averages()
        self._checkpoint()
        self._watcher.epoch(event)
        if begun and not self.finished:
            self._watcher.note(f"averages of the weights begin after epoch {position.epoch}")

    def _close_epoch(self, loss: float) -> bool:
        if not math.isfinite(loss):
            raise RunError(
                f"epoch {self.position.epoch + 1}: the validation loss is {loss}. Start again in another folder with a "
                "lower training.optimizer.lr or training.optimizer.clip."
            )
        improved = self.position.next_epoch(loss)
        if improved:
            self.position.best_weights = self._save_best()
        return improved

    def _save_best(self) -> str:
        if not self._writes:
            return model_digest(self.model)
        return save_model(self.folder, self.model, self.corpus.vocabulary.hash, self._config_digest)

    @property
    def _config_digest(self) -> str:
        return self.position.config.partition(" ")[0]  # weights do not depend on later finetune stages

    def _keep(self, before: int) -> None:
        """Keep the weights as validation would read them, if the step reached one of `training.keep_at`.

        A step that is done again after a lost process keeps them again.
        """
        for name, words in self.config.training.revisions.items():
            if self._writes and before < words <= self.position.tokens:
                with optimizers.averaged(self.optimizer):
                    save_revision(self.folder, name, self.model, self.corpus.vocabulary.hash, self._config_digest)

    def _next_stage(self) -> None:
        """Continue from the best weights so far, with averages from the next step on."""
        position, before = self.position, generator_states(self.device)
        position.begin_stage(setup.stage_config(self.config, position.stage + 1).training.optimizer.lr)
        self._set_up()
        restore_generators(before, self.device)
        self.ranks.from_first()  # wait until rank 0 has written the best weights
        if load_weights(self.folder, self.model, self.corpus.vocabulary.hash) != position.best_weights:
            raise RunError(
                f"{self.folder / MODEL}: is not the model of epoch {position.best_epoch}, from which finetune stage "
                f"{position.stage} begins. Put that back, or start with another folder."
            )
        self._begin_averages()
        self._checkpoint()  # before a better model can replace the weights that were loaded
        self._watcher.note(
            f"finetune stage {position.stage} of {self.config.training.finetune.stages} begins with the weights of "
            f"epoch {position.best_epoch}"
        )

    def _begin_averages(self) -> None:
        assert isinstance(self.optimizer, optimizers.NTASGD)  # only this kind of optimiser has averages and stages
        self.optimizer.averaged_steps = 0

    def _checkpoint(self) -> None:
        """Save everything that an exact resume needs."""
        state = self.ranks.gathered(self.state, self.config.training.batching)
        if not self._writes:
            return
        self._journal.sync(self.position)
        if isinstance(self.optimizer, optimizers.NTASGD):
            self.position.late_rate = self.optimizer.late_rate
        checkpoint = Checkpoint(
            weights=dict(self.model.named_parameters()),
            optimizer=optimizers.optimizer_state(self.optimizer, self.model),
            carried={**state.flat(), **generator_states(self.device)},
            position=self.position.to_json(),
        )
        save_checkpoint(self.folder / CHECKPOINTS, self.position.step, checkpoint)

    def _load(self, checkpoint: Checkpoint) -> None:
        """Undo `_checkpoint`; model and optimiser are new, the position is the checkpoint's."""
        position, model, optimizer, carried = self.position, self.model, self.optimizer, checkpoint.carried
        refuse_other_device(carried, self.device)
        expected = optimizers.expected_state(optimizer, model, position.step, position.averaged_steps)
        source = f"{self.folder / CHECKPOINTS}, step {position.step}"
        require_fit(checkpoint.optimizer, expected, f"{source}, optimizer.safetensors")
        require_fit(carried, self._carried_kinds(carried), f"{source}, carried.safetensors")
        copy_weights(checkpoint.weights, model, f"{source}, weights.safetensors")
        try:
            restore_generators(carried, self.device)
        except RuntimeError as error:
            raise RunError(f"{source}: no state of a random number generator: {error}. Use another folder.") from None
        optimizers.restore_optimizer(optimizer, model, checkpoint.optimizer)
        if isinstance(optimizer, optimizers.NTASGD):
            optimizer.averaged_steps, optimizer.late_rate = position.averaged_steps, position.late_rate
        of_streams = {name: x for name, x in carried.items() if not name.startswith("generator.")}
        state = LMState.from_flat(of_streams)
        self.state = (state if self.ranks.count == 1 else state.select(self.streams)).to(self.device)

    def _carried_kinds(self, carried: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return tensors of the shapes and types that a checkpoint carries: all streams, and grown memories."""
        initial, streams = self.initial.flat(), self.config.training.batching.batch_size
        lengths = {name: len(x) for name, x in initial.items()}
        if self.config.model.memory.slots is None:
            growing = [name for name, slots in lengths.items() if not slots]
            remembered = [len(carried[name]) for name in growing if name in carried and carried[name].dim()]
            lengths |= dict.fromkeys(growing, max(remembered, default=0))
        kinds = {}
        for name, x in initial.items():
            # with products in bfloat16, some states are bfloat16, too
            narrow = self.config.training.precision == "bf16" and x.is_floating_point()
            narrow = narrow and name in carried and carried[name].dtype == torch.bfloat16
            dtype, shape = torch.bfloat16 if narrow else x.dtype, (lengths[name], streams, *x.shape[2:])
            kinds[name] = x.new_empty(shape, dtype=dtype, device="meta")
        return {**kinds, **generator_states(self.device)}

    def _interrupt(self, number: int) -> None:
        self._checkpoint()
        name = {2: "Ctrl-C", 15: "SIGTERM"}.get(number, f"signal {number}")
        raise Interrupted(
            f"stopped by {name} after step {self.position.step}; everything is saved in {self.folder}", number
        )


def generator_states(device: torch.device) -> dict[str, Tensor]:
    """Return the states of the random number generators that training uses."""
    states = {"generator.cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["generator.cuda"] = torch.cuda.get_rng_state(device)
    return states


def refuse_other_device(carried: Mapping[str, Tensor], device: torch.device) -> None:
    """Raise InputError if a checkpoint comes from another kind of device, which draws other random numbers."""
    before = "cuda" if "generator.cuda" in carried else "cpu"
    if device.type != before:
        raise InputError(
            "training.device",
            device.type,
            f"the run was trained on {before}, and its random numbers go on only there",
            f"Use training.device={before}, or begin another run from its weights (training.start_from).",
        )


def restore_generators(carried: Mapping[str, Tensor], device: torch.device) -> None:
    """Undo `generator_states`."""
    torch.set_rng_state(carried["generator.cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(carried["generator.cuda"], device)
