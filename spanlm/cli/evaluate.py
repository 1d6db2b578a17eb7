"""`spanlm evaluate RUN …`."""

from __future__ import annotations

import argparse
import math
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from spanlm.cli.cache import cache_fields, cache_notes, cache_rows, check_cache, choose_cache
from spanlm.cli.evaluation_report import (
    both_counts,
    members_fields,
    parts_rows,
    print_evaluation,
    print_excess,
    print_members,
    run_field,
    tuned_rows,
    weights_rows,
)
from spanlm.cli.neighbours import check_neighbours, choose_neighbours, neighbours_fields, neighbours_rows
from spanlm.cli.options import TUNED_ON, corpus_of, load_runs, output, tuning_part
from spanlm.cli.parser import field_values, refuse_given
from spanlm.cli.render import out_json, progress
from spanlm.data.corpora import Corpus
from spanlm.data.synthetic import PREFIX
from spanlm.errors import InputError, Interrupted, Note, named, require
from spanlm.models.memories import require_gate
from spanlm.models.ops.precision import usable
from spanlm.options import kinds
from spanlm.runs.ensemble import TrainedEnsemble
from spanlm.runs.model import Model, require_weights
from spanlm.scoring.dynamic.evaluate import require_loss
from spanlm.scoring.dynamic.statistics import DynamicStatistics
from spanlm.scoring.dynamic.tuning import TRIALS, DynamicTuning
from spanlm.scoring.excess import Excess
from spanlm.scoring.ngram.next_word import NgramModel
from spanlm.scoring.options import DynamicConfig, DynamicGrid, DynamicOptions
from spanlm.scoring.perplexity import Evaluation, padded_perplexity, require_pad
from spanlm.scoring.stream import Report
from spanlm.scoring.tally import edge_note, shown
from spanlm.scoring.toolkits import arpa_lines, kenlm_report, scored_lines, srilm_report


def run(options: argparse.Namespace) -> None:
    runs = [options.run, *options.more]
    check_cache(options)
    check_neighbours(options, len(runs))
    _check(options, len(runs))
    check_dynamic(options, len(runs))
    model = load_runs(runs, options)
    for name in ("parts", "dynamic", "neighbours"):
        if vars(options)[name]:
            require_weights(model, f"--{name}")
    if options.parts:
        require_gate(model.config.model.memory, "--parts")
    if options.vocab_pad is not None:  # reject it before an evaluation of minutes
        require_pad(model.vocabulary, options.vocab_pad)
    corpus, options.split = corpus_of(model, options)
    if options.format is not None:
        with output(None) as file:
            file.writelines(f"{line}\n" for line in _toolkit_report(model, corpus, options))
        return
    if isinstance(model, TrainedEnsemble) and options.cache is None:
        _evaluate_several(model, corpus, options)
        return
    try:
        _evaluate(model, corpus, options)
    except KeyboardInterrupt:
        path = model.folder / TRIALS
        if not (options.dynamic_tune and path.is_file()):
            raise
        again = f"finished trials are kept in {path}, and the same command reads none of them again"
        raise Interrupted(f"stopped; {again}", signal.SIGINT) from None


def _padded(model: Model, result: Evaluation, options: argparse.Namespace) -> dict[str, float]:
    if options.vocab_pad is None:
        return {}
    return {"perplexity_vocab_pad": padded_perplexity(result, model.vocabulary, options.vocab_pad)}


def _padded_rows(model: Model, result: Evaluation, options: argparse.Namespace) -> list[tuple[str, str]]:
    return [
        (f"of {options.vocab_pad:,} words", f"{shown(value)}: each <unk> is one of those that the vocabulary lacks")
        for value in _padded(model, result, options).values()
    ]


def _check(options: argparse.Namespace, runs: int) -> None:
    require(options.batch_size is None or options.batch_size >= 1, "batch_size", options.batch_size, "at least 1")
    if options.parts and runs > 1:
        raise InputError(f"--parts: is for one run; take each of the {runs} apart by itself")
    if options.parts and options.cache is not None:
        raise InputError("--parts and --cache do not go together: measure the one, then the other")
    if options.spell_unknown and options.vocab_pad is not None:
        raise InputError("--spell-unknown and --vocab-pad do not go together: each says what an <unk> costs")
    if options.debug is not None and options.format != "srilm":
        raise InputError(f"--debug={options.debug}: is for --format srilm")
    if options.format is not None:
        other = {"state": options.state not in ("auto", "line"), "precision": options.precision != "fp32"}
        names = ["batch_size", "cache", "dynamic", "neighbours", "parts", "tune_weights", "vocab_pad"]
        names += ["spell_unknown", "json"]
        other |= {name: vars(options)[name] not in (None, False) for name in names}
        for name in (name for name, is_set in other.items() if is_set):
            option = f"--{name.replace('_', '-')}"
            why = "it is a text of its own" if name == "json" else "each line is read alone"
            raise InputError(f"--format={options.format} and {option} do not go together: {why}")
    if not options.tune_weights:
        return
    if runs == 1:
        raise InputError(f"--tune-weights: is for several runs; name more than {options.run}")
    if options.weights is not None:
        raise InputError("--tune-weights and --weights do not go together: take one")


def _toolkit_report(model: Model, corpus: Corpus, options: argparse.Namespace) -> Iterator[str]:
    if not model.texts.predict_first:
        raise InputError(f"--format={options.format}: {model.folder} gives the first word of a line no probability")
    model, text = model.as_written(), corpus.written_lines(options.split)
    if isinstance(model.model, NgramModel) and model.model.cache is None:
        lines = arpa_lines(model.model.arpa, model.texts.pieces(text))
    else:
        lines = scored_lines(model.score(text, state="line", base=10, eos=True), model.vocabulary)
    if options.format == "kenlm":
        return kenlm_report(lines)
    return srilm_report(lines, options.corpus or f"{corpus.name}/{options.split}", options.debug or 0)


def _excess(model: Model, corpus: Corpus, options: argparse.Namespace) -> list[Excess]:
    """Compare the model, as trained, with the law of a synthetic text; empty for other texts, or if a word is <unk>."""
    changed = options.cache is not None or options.neighbours is not None or options.dynamic
    other = changed or corpus.oov.get(options.split)
    if other or not corpus.name.startswith(PREFIX) or not model.predicts_words:
        return []
    return model.excess(corpus, options.split, state=options.state)


def _evaluate(model: Model, corpus: Corpus, options: argparse.Namespace) -> None:
    cache, tuning = choose_cache(model, options)
    mode: dict[str, Any] = {"state": options.state, "batch_size": options.batch_size, "precision": options.precision}
    mode["spell_unknown"] = options.spell_unknown
    with progress(shown=not options.json) as report:
        adapted = choose_dynamic(model, corpus, options, report)
        if adapted is not None:
            mode |= {"dynamic": adapted.config, "statistics": adapted.statistics, "report": report}
        near = choose_neighbours(model, options, report)
        if near is not None:
            mode |= {"neighbours": near[0], "datastore": near[1]}
        result = model.evaluate(corpus, options.split, cache=cache, **mode)
    # the ensemble has one cache for all runs, so that each run alone needs a pass without it
    several = model.evaluate_members(corpus, options.split, **mode) if isinstance(model, TrainedEnsemble) else None
    notes = [*result.notes, *cache_notes(cache)]
    if options.json:
        temperature = model.gate_temperature
        gate = {} if temperature is None else {"gate_temperature": temperature}
        head = {**run_field(model), **gate, "precision": usable(options.precision, model.model.device), "notes": notes}
        fields = {**head, **result.to_json(), **cache_fields(cache, tuning), **dynamic_fields(adapted)}
        fields |= neighbours_fields(near) | _padded(model, result, options)
        if law := _excess(model, corpus, options):
            fields["excess"] = [row.to_json() for row in law]
        if isinstance(model, TrainedEnsemble) and several is not None:
            fields["without_cache"] |= members_fields(model, several)
        out_json(fields)
        return
    rows = [*_padded_rows(model, result, options), *cache_rows(result, tuning, options)]
    rows += [*dynamic_rows(result, adapted, options), *neighbours_rows(result, near, options)]
    print_evaluation(model, result, notes, rows + (parts_rows(result) if options.parts else []))
    if law := _excess(model, corpus, options):
        print_excess(law)
    if isinstance(model, TrainedEnsemble) and several is not None:
        print_members(model, several, "without the cache: each run alone, all as one, and the oracle bound")


def _evaluate_several(model: TrainedEnsemble, corpus: Corpus, options: argparse.Namespace) -> None:
    mode = {"state": options.state, "batch_size": options.batch_size, "precision": options.precision}
    tuned = None
    if options.tune_weights:
        valid = tuning_part(model, options, "--tune-weights", "the weights by --weights")
        tuned = model.tune_weights(valid, TUNED_ON, **mode)
        model = model.reweighted(tuned.weights)
    result = model.evaluate_members(corpus, options.split, spell_unknown=options.spell_unknown, **mode)
    notes = result.ensemble.notes
    if not options.json:
        rows = [*_padded_rows(model, result.ensemble, options), *weights_rows(result.ensemble, tuned)]
        print_evaluation(model, result.ensemble, notes, rows)
        print_members(model, result, "each run alone, all as one, and the oracle bound")
        return
    fields = {"precision": usable(options.precision, model.model.device), **run_field(model), "notes": notes}
    fields |= result.to_json() | members_fields(model, result) | _padded(model, result.ensemble, options)
    if tuned is not None:
        fields["tuned"] = {"on": TUNED_ON, "steps": tuned.steps, "gap": tuned.gap}
    out_json(fields)


# --- dynamic evaluation ---


@dataclass(frozen=True)
class DynamicChoice:
    """Settings and statistics of a dynamic evaluation, and the search that chose the settings, if any."""

    config: DynamicConfig
    statistics: DynamicStatistics
    tuning: DynamicTuning | None


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


def choose_dynamic(model: Model, corpus: Corpus, options: argparse.Namespace, report: Report) -> DynamicChoice | None:
    """Return the settings and statistics of dynamic evaluation; None without --dynamic."""
    if not options.dynamic:
        return None
    model = require_weights(model, "--dynamic")
    settings, valid = field_values(options, DynamicOptions, "dynamic"), None
    # rejects a missing split before the statistics take minutes
    model.texts.protocol(*model.texts.part(corpus, options.split), options.state)
    require_loss(settings.loss, model.model)
    if settings.tune:
        valid = tuning_part(model, options, "--tune-dynamic", "--dynamic-rate and --dynamic-decay")
    where: dict[str, Any] = {"data_dir": options.data_dir, "download": options.download, "report": report}
    statistics = model.dynamic_statistics(segments=settings.statistics, **where)
    if valid is None:
        return DynamicChoice(settings.points[0], statistics, None)
    grid = {name: getattr(settings, name) for name in kinds(DynamicGrid)}
    reading: dict[str, Any] = {"state": options.state, "precision": options.precision, "report": report}
    tuning = model.tune_dynamic(valid, TUNED_ON, **grid, **reading, statistics=statistics)
    return DynamicChoice(tuning.best, statistics, tuning)


def dynamic_fields(choice: DynamicChoice | None) -> dict[str, Any]:
    if choice is None:
        return {}
    first_release = choice.config.sum_convention(choice.statistics.segments, choice.statistics.tensors)
    values = dict(zip(("rate", "decay", "epsilon"), first_release, strict=True))
    fields = {
        "dynamic": {**choice.config.to_json(), "sum_convention": values},
        "dynamic_statistics": choice.statistics.to_json(),
    }
    return fields if choice.tuning is None else {**fields, "tuning": choice.tuning.to_json()}


def dynamic_rows(
    result: Evaluation, choice: DynamicChoice | None, options: argparse.Namespace
) -> list[tuple[str, str]]:
    if choice is None or result.without_dynamic is None:
        return []
    rows = [
        ("without dynamic", both_counts(result.without_dynamic)),
        ("statistics", f"{choice.statistics.description}; {choice.statistics.origin}"),
    ]
    if choice.tuning is None:
        return rows
    tuning = replace(choice.tuning, notes=[_with_options(note, choice.tuning) for note in choice.tuning.notes])
    whole, points = sum(point.whole for point in tuning.grid), len(tuning.grid)
    full = "" if whole == points else f", {whole} of them on all of it"
    chosen = f"η {tuning.best.rate:.3g}, λ {tuning.best.decay:.3g} of {points} pairs{full}"
    rows += tuned_rows(result, tuning, chosen, options.parser.option_of)
    if count := tuning.read_before:
        trials = "1 trial was" if count == 1 else f"{count} trials were"
        rows.append(("resumed", f"{trials} read from {TRIALS} in the run's folder"))
    return rows


def _with_options(note: str, tuning: DynamicTuning) -> str:
    """Suggest values beyond the grid in a note that the best value is at its edge."""
    for name, most in (("rate", math.inf), ("decay", 1.0)):
        best, tried = getattr(tuning.best, name), [getattr(point, name) for point in tuning.grid]
        if note == (edge := edge_note(f"dynamic.{name}", best, tried)):
            beyond = [best * factor for factor in ((1, 2, 4) if best == max(tried) else (1, 0.5, 0.25))]
            values = [f"{value:.3g}" for value in beyond if value <= most]
            more = f" Try {named(f'dynamic.{name}')} {' '.join(values)}" if len(values) > 1 else ""
            return Note(f"{edge.marked}{more}")
    return note
