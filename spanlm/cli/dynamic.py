"""Options, settings and output of dynamic evaluation in `spanlm evaluate`."""

from __future__ import annotations

import argparse
import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from spanlm.cli.evaluation_report import both_counts, tuned_rows
from spanlm.cli.main import VerbParser, in_options
from spanlm.cli.options import TUNED_ON, add_fields, field_values, refuse_given, tuning_part
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError, Interrupted
from spanlm.evaluation.dynamic.statistics import DynamicStatistics
from spanlm.evaluation.dynamic.tuning import TRIALS, DynamicOptions, DynamicTuning
from spanlm.evaluation.dynamic.update import DynamicConfig, require_loss
from spanlm.evaluation.perplexity import Evaluation
from spanlm.evaluation.scoring import Report, edge_note
from spanlm.runs.trained_model import LoadedModel, require_weights

_METAVARS = {"rate": "η", "decay": "λ", "epsilon": "ε"}


@dataclass(frozen=True)
class DynamicChoice:
    """The settings of a dynamic evaluation, and the search that chose them, if any."""

    config: DynamicConfig
    statistics: DynamicStatistics
    tuning: DynamicTuning | None


def add_dynamic(parser: VerbParser) -> None:
    text = "let the weights follow the text, which is read as one stream (Krause et al., 2018); the defaults of η, λ "
    text += "and ε are those published for AWD-LSTM on Penn Treebank: `spanlm presets --json` has those of other models"
    parser.add_argument("--dynamic", action="store_true", help=text)
    changes: dict[str, Any] = {name: {"metavar": metavar} for name, metavar in _METAVARS.items()}
    changes["tune"] = {"option": "--tune-dynamic", "rare": False}
    add_fields(parser, DynamicOptions, prefix="dynamic", rare="dynamic evaluation", **changes)


def check_dynamic(options: argparse.Namespace, runs: int) -> None:
    if not options.dynamic:
        refuse_given(options, "dynamic", "needs dynamic evaluation; add --dynamic")
        return
    if runs > 1:
        raise InputError("--dynamic: is for one run; an ensemble has no gradient statistics")
    if options.cache is not None:
        raise InputError("--dynamic and --cache do not go together: measure one, then the other")
    if options.batch_size not in (None, 1):
        raise InputError(f"--batch-size={options.batch_size}: must be 1 with --dynamic: its weights follow one text")
    field_values(options, DynamicOptions, "dynamic")


@contextmanager
def stopping_search(model: LoadedModel, options: argparse.Namespace) -> Iterator[None]:
    """On Ctrl-C, tell the user that the same command continues the search from its finished trials."""
    try:
        yield
    except KeyboardInterrupt:
        path = model.folder / TRIALS
        if not (options.dynamic_tune and path.is_file()):
            raise
        again = f"finished trials are kept in {path}, and the same command reads none of them again"
        raise Interrupted(f"stopped; {again}", signal.SIGINT) from None


def choose_dynamic(
    model: LoadedModel, corpus: Corpus, options: argparse.Namespace, report: Report
) -> DynamicChoice | None:
    """Return the settings and statistics of dynamic evaluation; None without --dynamic."""
    if not options.dynamic:
        return None
    model = require_weights(model, "--dynamic")
    settings, valid = field_values(options, DynamicOptions, "dynamic"), None
    # refuses a missing part before minutes are spent on statistics
    model.texts.protocol(*model.texts.part(corpus, options.split), options.state)
    require_loss(settings.loss, model.model)
    if settings.tune:
        valid = tuning_part(model, options, "--tune-dynamic", "--dynamic-rate and --dynamic-decay")
    where: dict[str, Any] = {"data_dir": options.data_dir, "download": options.download, "report": report}
    statistics = model.dynamic_statistics(segments=settings.statistics, **where)
    if valid is None:
        return DynamicChoice(settings.points[0], statistics, None)
    tuning = model.tune_dynamic(
        valid,
        TUNED_ON,
        rates=settings.rate,
        decays=settings.decay,
        epsilon=settings.points[0].epsilon,
        loss=settings.loss,
        state=options.state,
        precision=options.precision,
        statistics=statistics,
        report=report,
    )
    return DynamicChoice(tuning.best, statistics, tuning)


def dynamic_fields(choice: DynamicChoice | None) -> dict[str, Any]:
    if choice is None:
        return {}
    first_release = choice.config.sum_convention(choice.statistics.segments, choice.statistics.tensors)
    values = dict(zip(("rate", "decay", "epsilon"), first_release, strict=True))
    found = {
        "dynamic": {**choice.config.to_json(), "sum_convention": values},
        "dynamic_statistics": choice.statistics.to_json(),
    }
    return found if choice.tuning is None else {**found, "tuning": choice.tuning.to_json()}


def dynamic_rows(result: Evaluation, choice: DynamicChoice | None) -> list[tuple[str, str]]:
    if choice is None or result.without_dynamic is None:
        return []
    rows = [
        ("without dynamic", both_counts(result.without_dynamic)),
        ("statistics", f"{choice.statistics.description}; {choice.statistics.origin}"),
    ]
    if choice.tuning is None:
        return rows
    tuning = replace(choice.tuning, notes=[_in_options(note, choice.tuning) for note in choice.tuning.notes])
    whole, points = sum(point.whole for point in tuning.grid), len(tuning.grid)
    how = "" if whole == points else f", {whole} of them on all of it"
    rows += tuned_rows(result, tuning, f"η {tuning.best.rate:.3g}, λ {tuning.best.decay:.3g} of {points} pairs{how}")
    if count := tuning.read_before:
        trials = "1 trial was" if count == 1 else f"{count} trials were"
        rows.append(("resumed", f"{trials} read from {TRIALS} in the run's folder"))
    return rows


def _in_options(note: str, tuning: DynamicTuning) -> str:
    """Note which option has its best value at the edge of the grid, and suggest values beyond it."""
    field = note.partition("=")[0]
    if field not in ("dynamic.rate", "dynamic.decay"):
        return note
    name, option, most = field.removeprefix("dynamic."), in_options(field), math.inf if field == "dynamic.rate" else 1.0
    best, tried = getattr(tuning.best, name), [getattr(point, name) for point in tuning.grid]
    beyond = [best * factor for factor in ((1, 2, 4) if best == max(tried) else (1, 0.5, 0.25))]
    values = [f"{value:.3g}" for value in beyond if value <= most]
    more = f" Try {option} {' '.join(values)}" if len(values) > 1 else ""
    return f"{edge_note(option, best, tried)}{more}"
