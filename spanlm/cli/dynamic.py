"""Dynamic evaluation of what `spanlm evaluate` evaluates: its options, its settings and its output."""

from __future__ import annotations

import argparse
import math
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, get_args

from spanlm.cli.evaluation_report import both_counts, tuned_rows
from spanlm.cli.main import VerbParser
from spanlm.cli.options import TUNED_ON, refusing_options, tuning_part
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError, Interrupted
from spanlm.evaluation.dynamic.statistics import DynamicLoss, DynamicStatistics
from spanlm.evaluation.dynamic.tuning import TRIALS, DynamicOptions, DynamicTuning
from spanlm.evaluation.dynamic.update import DynamicConfig, require_loss
from spanlm.evaluation.perplexity import Evaluation
from spanlm.evaluation.scoring import Report, edge_note
from spanlm.runs.trained_model import LoadedModel, TrainedModel

_USUAL = DynamicConfig()
_FIELDS = ("rate", "decay", "epsilon", "length", "loss", "convention", "statistics")
_OPTIONS = {f"dynamic.{name}": f"--dynamic-{name}" for name in _FIELDS} | {"dynamic.tune": "--tune-dynamic"}


@dataclass(frozen=True)
class DynamicChoice:
    """The settings of a dynamic evaluation, and where they come from.

    Attributes:
        config: to evaluate with.
        statistics: of the model.
        tuning: how the configuration was found, if it was.
        sum_convention: it was given in that convention.
    """

    config: DynamicConfig
    statistics: DynamicStatistics
    tuning: DynamicTuning | None
    sum_convention: bool

    @property
    def first_release(self) -> dict[str, float]:
        """η, λ and ε as the first release would have them."""
        values = self.config.sum_convention(self.statistics.segments, self.statistics.tensors)
        return dict(zip(("rate", "decay", "epsilon"), values, strict=True))


def add_dynamic(parser: VerbParser) -> None:
    """Add the options."""

    def add(name: str, text: str, **how: Any) -> None:
        parser.add_argument(f"--dynamic-{name}", rare=True, help=text, **how)

    text = "let the weights follow the text, which is read as one stream (Krause et al., 2018); the defaults of η, λ "
    text += "and ε are those published for AWD-LSTM on Penn Treebank: `spanlm presets --json` has those of other models"
    parser.add_argument("--dynamic", action="store_true", help=text)
    several = {"type": float, "nargs": "+"}
    add("rate", f"how fast they learn (default {_USUAL.rate:g}); several: a grid to tune", metavar="η", **several)
    add("decay", f"how fast they come back (default {_USUAL.decay:g}); several: a grid to tune", metavar="λ", **several)
    text = f"how much weights with small gradients are held (default {_USUAL.epsilon:g})"
    add("epsilon", text, type=float, metavar="ε")
    text = f"they learn after every N words (default {_USUAL.length}; of others the defaults of η and λ are in "
    add("length", f"{text}proportion to N)", type=int, metavar="N")
    text = "what η, λ and ε are given in: that of the authors' current code (mean, the default), or that of their "
    add("convention", f"{text}first release and the copies of it, as in MoS (sum)", choices=("mean", "sum"))
    text = "what they learn from: the likelihood (the default), or, of a model with a span buffer, the loss of its "
    add(
        "loss", f"{text}training (its temperature, if annealed the last, and the reward)", choices=get_args(DynamicLoss)
    )
    text = "the first N segments (of 100 streams) of the training text are enough for the gradient statistics "
    add("statistics", f"{text}(default: all of it)", type=int, metavar="N")
    text = "first find the η and λ that fit the valid part best"
    parser.add_argument("--tune-dynamic", action="store_true", help=text)


def check_dynamic(options: argparse.Namespace, runs: int) -> None:
    """Refuse what cannot be dynamic evaluation, before anything is loaded.

    Raises:
        InputError: an option without --dynamic, one that does not go with it, or a value outside its range.
    """
    if not options.dynamic:
        for name, value in vars(options).items():
            if (name.startswith("dynamic_") or name == "tune_dynamic") and value not in (None, False):
                raise InputError(f"--{name.replace('_', '-')}: is for dynamic evaluation; add --dynamic")
        return
    if runs > 1:
        raise InputError("--dynamic: is for one run; there are no gradient statistics of several as one")
    if options.cache is not None:
        raise InputError("--dynamic and --cache do not go together: measure the one, then the other")
    if options.batch_size not in (None, 1):
        raise InputError(f"--batch-size={options.batch_size}: must be 1 with --dynamic: its weights follow one text")
    with refusing_options(_OPTIONS):
        _settings(options)


def _settings(options: argparse.Namespace) -> DynamicOptions:
    given = {name: value for name in _FIELDS if (value := getattr(options, f"dynamic_{name}")) is not None}
    return DynamicOptions(tune=options.tune_dynamic, **given)


@contextmanager
def stopping_search(model: LoadedModel, options: argparse.Namespace) -> Iterator[None]:
    """Say of a search that is stopped that the same command goes on with it.

    Raises:
        Interrupted: Ctrl-C, where the run has trials.
    """
    try:
        yield
    except KeyboardInterrupt:
        path = model.folder / TRIALS
        if not (options.tune_dynamic and path.is_file()):
            raise
        again = f"the finished trials are kept in {path}, and the same command goes on with them"
        raise Interrupted(f"stopped; {again}", signal.SIGINT) from None


def refusing_dynamic(options: argparse.Namespace) -> AbstractContextManager[None]:
    """Call η, λ and ε in errors what the options are called."""
    converted = options.dynamic_convention == "sum"
    which = " (These numbers are in the mean convention, the options in the other.)" if converted else ""
    return refusing_options(_OPTIONS, which)


def choose_dynamic(
    model: LoadedModel, corpus: Corpus, options: argparse.Namespace, report: Report
) -> DynamicChoice | None:
    """Return the settings and statistics of dynamic evaluation; None without --dynamic.

    Raises:
        InputError: no statistics can be had, or nothing to tune on.
    """
    if not options.dynamic:
        return None
    assert isinstance(model, TrainedModel)  # `check_dynamic` refuses several runs
    settings, valid = _settings(options), None
    # what cannot be evaluated or tuned is refused before minutes are spent on statistics
    model.texts.protocol(*model.texts.part(corpus, options.split), options.state)
    with refusing_options(_OPTIONS):
        require_loss(settings.loss, model.model)
    if settings.tune:
        valid = tuning_part(model, options, "--tune-dynamic", "--dynamic-rate and --dynamic-decay")
    where: dict[str, Any] = {"data_dir": options.data_dir, "download": options.download, "report": report}
    statistics = model.dynamic_statistics(segments=settings.statistics, length=settings.length, **where)
    points = settings.in_means(statistics)
    if valid is None:
        return DynamicChoice(points.points[0], statistics, None, settings.convention == "sum")
    tuning = model.tune_dynamic(
        valid,
        TUNED_ON,
        rates=points.rate,
        decays=points.decay,
        epsilon=points.points[0].epsilon,
        length=points.length,
        loss=points.loss,
        state=options.state,
        precision=options.precision,
        statistics=statistics,
        report=report,
    )
    return DynamicChoice(tuning.best, statistics, tuning, settings.convention == "sum")


def dynamic_fields(choice: DynamicChoice | None) -> dict[str, Any]:
    """Return the fields of JSON on dynamic evaluation."""
    if choice is None:
        return {}
    config = {**choice.config.to_json(), "sum_convention": choice.first_release}
    found = {"dynamic": config, "dynamic_statistics": choice.statistics.to_json()}
    return found if choice.tuning is None else {**found, "tuning": choice.tuning.to_json()}


def dynamic_rows(result: Evaluation, choice: DynamicChoice | None) -> list[tuple[str, str]]:
    """Return rows on the perplexity without, the statistics, and how η and λ were chosen."""
    if choice is None or result.without_dynamic is None:
        return []
    rows = [
        ("without dynamic", both_counts(result.without_dynamic)),
        ("statistics", f"{choice.statistics.description}; {choice.statistics.origin}"),
    ]
    if choice.sum_convention:
        rate, decay, epsilon = choice.first_release.values()
        rows.append(("convention", f"sum: η {rate:.3g}, λ {decay:.3g}, ε {epsilon:.3g} as given"))
    if choice.tuning is None:
        return rows
    tuning = replace(choice.tuning, notes=[_in_options(note, choice, choice.tuning) for note in choice.tuning.notes])
    whole, points = sum(point.whole for point in tuning.grid), len(tuning.grid)
    how = "" if whole == points else f", {whole} of them on all of it"
    best = f"η {tuning.best.rate:.3g}, λ {tuning.best.decay:.3g} of {points} pairs{how}"
    rows += tuned_rows(result, tuning, best)
    if count := tuning.read_before:
        trials = "1 trial was" if count == 1 else f"{count} trials were"
        rows.append(("resumed", f"{trials} read from {TRIALS} in the run's folder"))
    return rows


def _in_options(note: str, choice: DynamicChoice, tuning: DynamicTuning) -> str:
    """Name in a note the option whose best value is on the edge of the grid, and values beyond it, as given."""
    field = note.partition("=")[0]
    if field not in ("dynamic.rate", "dynamic.decay"):
        return note
    name, most = field.removeprefix("dynamic."), math.inf if field == "dynamic.rate" else 1.0
    best, tried = getattr(tuning.best, name), [getattr(point, name) for point in tuning.grid]
    given = choice.first_release[name] / best if choice.sum_convention else 1.0
    beyond = [best * factor for factor in ((1, 2, 4) if best == max(tried) else (1, 0.5, 0.25))]
    values = [f"{value * given:.3g}" for value in beyond if value <= most]
    more = f" Try {_OPTIONS[field]} {' '.join(values)}" if len(values) > 1 else ""
    return f"{edge_note(_OPTIONS[field], best * given, [value * given for value in tried])}{more}"
