"""Dynamic evaluation of what `spanlm evaluate` evaluates: its options, and what they ask for."""

from __future__ import annotations

import argparse
import math
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, get_args

from spanlm.cli.main import VerbParser
from spanlm.cli.options import refusing_options
from spanlm.cli.render import note
from spanlm.cli.tuning import TUNED_ON, tuning_part
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError, Interrupted, require
from spanlm.evaluation.astray import AstrayError
from spanlm.evaluation.dynamic import require_loss
from spanlm.evaluation.dynamic_config import DynamicConfig
from spanlm.evaluation.dynamic_statistics import DynamicStatistics
from spanlm.evaluation.dynamic_tuning import DynamicTuning, dynamic_grid
from spanlm.evaluation.lessons import LessonLoss, Report
from spanlm.evaluation.scoring import shown
from spanlm.evaluation.search_log import SearchLog
from spanlm.runs.trained_model import TrainedModel

_USUAL = DynamicConfig()
_OPTIONS = {f"dynamic.{name}": f"--dynamic-{name}" for name in ("rate", "decay", "epsilon", "length")}


@dataclass(frozen=True)
class DynamicChoice:
    """What was asked for, with what it needs.

    Attributes:
        config: to evaluate with.
        statistics: of the model.
        tuning: how the configuration was found, if it was.
        sum_convention: it was given in that convention.
        log: what the search has read.
    """

    config: DynamicConfig
    statistics: DynamicStatistics
    tuning: DynamicTuning | None
    sum_convention: bool
    log: SearchLog | None = None

    @property
    def first_release(self) -> dict[str, float]:
        """η, λ and ε as the first release would have them."""
        values = self.config.sum_convention(self.statistics.segments, self.statistics.tensors)
        return dict(zip(("rate", "decay", "epsilon"), values, strict=True))


def add_dynamic(parser: VerbParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--dynamic",
        action="store_true",
        help="let the weights follow the text, which is read as one stream (Krause et al., 2018); the defaults of η, λ "
        "and ε are those published for AWD-LSTM on Penn Treebank: `spanlm presets --json` has those of other models",
    )
    parser.add_argument(
        "--dynamic-rate",
        rare=True,
        type=float,
        nargs="+",
        metavar="η",
        help=f"how fast they learn (default {_USUAL.rate:g}); several: a grid to tune",
    )
    parser.add_argument(
        "--dynamic-decay",
        rare=True,
        type=float,
        nargs="+",
        metavar="λ",
        help=f"how fast they come back (default {_USUAL.decay:g}); several: a grid to tune",
    )
    parser.add_argument(
        "--dynamic-epsilon",
        rare=True,
        type=float,
        metavar="ε",
        help=f"how much weights with small gradients are held (default {_USUAL.epsilon:g})",
    )
    parser.add_argument(
        "--dynamic-length",
        rare=True,
        type=int,
        metavar="N",
        help=f"they learn after every N words (default {_USUAL.length}; of others the defaults of η and λ are in "
        "proportion to N)",
    )
    parser.add_argument(
        "--dynamic-convention",
        rare=True,
        choices=("mean", "sum"),
        help="what η, λ and ε are given in: that of the authors' current code (mean, the default), or that of their "
        "first release and the copies of it, as in MoS (sum)",
    )
    parser.add_argument(
        "--dynamic-loss",
        rare=True,
        choices=get_args(LessonLoss),
        help="what they learn from: the likelihood (the default), or, of a model with a span buffer, the loss of its "
        "training (its temperature, if annealed the last, and the reward)",
    )
    parser.add_argument(
        "--dynamic-statistics",
        rare=True,
        type=int,
        metavar="N",
        help="the first N segments (of 100 streams) of the training text are enough for the gradient statistics "
        "(default: all of it)",
    )
    parser.add_argument(
        "--tune-dynamic", action="store_true", help="first find the η and λ that fit the valid part best"
    )


def check_dynamic(options: argparse.Namespace, runs: int) -> None:
    """Refuse what cannot be dynamic evaluation, before anything is loaded.

    Raises:
        InputError: an option without --dynamic, one that does not go with it, or a value outside its range.
    """
    if not options.dynamic:
        _refuse_options(options)
        return
    if runs > 1:
        raise InputError("--dynamic: is for one run; there are no gradient statistics of several as one")
    if options.cache is not None:
        raise InputError("--dynamic and --cache do not go together: measure the one, then the other")
    if options.batch_size not in (None, 1):
        raise InputError(f"--batch-size={options.batch_size}: must be 1 with --dynamic: its weights follow one text")
    for name, values in (("--dynamic-rate", options.dynamic_rate), ("--dynamic-decay", options.dynamic_decay)):
        if values is not None and len(values) > 1 and not options.tune_dynamic:
            raise InputError(f"{name}: {len(values)} values are a grid; choose one, or add --tune-dynamic")
    first = options.dynamic_statistics
    require(first is None or first >= 1, "--dynamic-statistics", first, "at least 1 segment")
    with refusing_options(_OPTIONS):
        _check_values(options)


def _refuse_options(options: argparse.Namespace) -> None:
    names = ("rate", "decay", "epsilon", "length", "convention", "loss", "statistics")
    for name in (*(f"dynamic_{name}" for name in names), "tune_dynamic"):
        if getattr(options, name) not in (None, False):
            raise InputError(f"--{name.replace('_', '-')}: is for dynamic evaluation; add --dynamic")


@contextmanager
def searching(log: SearchLog | None) -> Iterator[None]:
    """Forget what a search has read when its result is out; say of one that is stopped whether it goes on.

    Args:
        log: of the search, if there is one.

    Raises:
        Interrupted: Ctrl-C, where something is kept or could not be.
    """
    if log is not None and log.unkept:
        note(f"what this search reads is not kept, should it be stopped: {log.unkept}")
    try:
        with nullcontext() if log is None else log.until_over():
            yield
            sys.stdout.flush()  # fails while it can still be told anew
    except KeyboardInterrupt:
        said = "" if log is None else _kept(log)
        if not said:
            raise
        raise Interrupted(f"stopped; {said}", signal.SIGINT) from None


def _kept(log: SearchLog) -> str:
    """Say what there is to go on with; nothing where nothing was read."""
    if log.refused is not None:
        return f"what was read could not all be kept: {log.folder}: {log.refused.strerror}; {log.kept:,} of it were"
    readings = "1 reading is" if log.kept == 1 else f"{log.kept:,} readings are"
    return f"{readings} kept in {log.folder}, and the same command goes on with what is there" if log.kept else ""


@contextmanager
def telling_choice(choice: DynamicChoice | None) -> Iterator[None]:
    """Where the text goes astray at what a search has chosen, say what that was: it took long."""
    try:
        yield
    except AstrayError as error:
        if choice is None or choice.tuning is None:
            raise
        found, best = choice.tuning, choice.tuning.best
        said = f"On {found.text} η {best.rate:g} and λ {best.decay:g} were the best, with a perplexity of "
        read = "" if choice.log is None or not choice.log.kept else f"; what was read is kept in {choice.log.folder}"
        raise AstrayError(f"{error} {said}{shown(found.perplexity)}{read}") from None


def refusing_dynamic(options: argparse.Namespace) -> AbstractContextManager[None]:
    """Call η, λ and ε in errors what the options are called."""
    converted = options.dynamic_convention == "sum"
    which = " (These numbers are in the mean convention, the options in the other.)" if converted else ""
    return refusing_options(_OPTIONS, which)


def _check_values(options: argparse.Namespace) -> None:
    rates, decays, epsilon = options.dynamic_rate, options.dynamic_decay, options.dynamic_epsilon
    if options.dynamic_convention != "sum":
        dynamic_grid(rates, decays, _USUAL.epsilon if epsilon is None else epsilon, _length(options))
        return
    if rates is None or decays is None or epsilon is None:
        raise InputError(
            "--dynamic-convention=sum: says how --dynamic-rate, --dynamic-decay and --dynamic-epsilon are meant; give "
            "all three"
        )
    for decay in decays:
        # divided by the number of tensors, which the model tells
        require(0 <= decay < math.inf, "dynamic.decay", decay, "finite and at least 0")
    dynamic_grid(rates, [0.0], epsilon, _length(options))


def _length(options: argparse.Namespace) -> int:
    length: int | None = options.dynamic_length
    return _USUAL.length if length is None else length


def choose_dynamic(
    model: TrainedModel, corpus: Corpus, options: argparse.Namespace, report: Report, log: SearchLog | None
) -> DynamicChoice | None:
    """Return what to evaluate with, if dynamic evaluation is asked for; a log is for a search.

    Raises:
        InputError: no statistics can be had, or nothing to tune on.
    """
    if not options.dynamic:
        return None
    # what cannot be evaluated or tuned is refused before minutes are spent on statistics
    model.texts.batching(*model.texts.part(corpus, options.split), options.state)
    loss, length = options.dynamic_loss or _USUAL.loss, _length(options)
    with refusing_options({"dynamic.loss": "--dynamic-loss"}):
        require_loss(DynamicConfig(loss=loss), model.model)
    valid = None
    if options.tune_dynamic:
        valid = tuning_part(model, options, "--tune-dynamic", "--dynamic-rate and --dynamic-decay")
    where: dict[str, Any] = {"data_dir": options.data_dir, "download": options.download}
    statistics = model.dynamic_statistics(segments=options.dynamic_statistics, length=length, report=report, **where)
    in_sums = options.dynamic_convention == "sum"
    rates, decays, epsilon = _in_means(options, statistics, in_sums)
    if valid is None:
        share = length / _USUAL.length
        (rate,), (decay,) = rates or (_USUAL.rate * share,), decays or (_USUAL.decay * share,)
        config = DynamicConfig(rate=rate, decay=decay, epsilon=epsilon, length=length, loss=loss)
        return DynamicChoice(config, statistics, None, in_sums)
    how: dict[str, Any] = {"state": options.state, "precision": options.precision, "statistics": statistics}
    grid: dict[str, Any] = {"rates": rates, "decays": decays, "epsilon": epsilon, "length": length, "loss": loss}
    tuning = model.tune_dynamic(valid, TUNED_ON, report=report, log=log, **grid, **how)
    return DynamicChoice(tuning.best, statistics, tuning, in_sums, log)


def _in_means(
    options: argparse.Namespace, statistics: DynamicStatistics, in_sums: bool
) -> tuple[list[float] | None, list[float] | None, float]:
    """η, λ and ε as they were given, in this project's convention; None: not given."""
    rates, decays, epsilon = options.dynamic_rate, options.dynamic_decay, options.dynamic_epsilon
    if not in_sums:
        return rates, decays, _USUAL.epsilon if epsilon is None else epsilon

    def convert(rate: float = 0.0, decay: float = 0.0) -> DynamicConfig:
        sizes: dict[str, Any] = {"segments": statistics.segments, "tensors": statistics.tensors}
        return DynamicConfig.from_sum_convention(rate=rate, decay=decay, epsilon=epsilon, **sizes)

    return [convert(rate=x).rate for x in rates], [convert(decay=x).decay for x in decays], convert().epsilon
