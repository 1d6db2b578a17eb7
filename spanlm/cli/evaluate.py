"""`spanlm evaluate RUN …`."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Iterator
from typing import Any

from spanlm.cli.adaptation import (
    cache_fields,
    cache_notes,
    cache_rows,
    check_cache,
    check_dynamic,
    check_neighbours,
    choose_cache,
    choose_dynamic,
    choose_neighbours,
)
from spanlm.cli.evaluation_report import (
    members_fields,
    parts_rows,
    print_evaluation,
    print_excess,
    print_members,
    run_field,
    weights_rows,
)
from spanlm.cli.options import TUNED_ON, corpus_of, load_runs, output, tuning_part
from spanlm.cli.render import Progress, out_json
from spanlm.data.corpora import Corpus
from spanlm.data.synthetic import PREFIX
from spanlm.errors import InputError, Interrupted, require
from spanlm.models.memories import require_gate
from spanlm.models.ops.precision import usable
from spanlm.runs.ensemble import TrainedEnsemble
from spanlm.runs.model import Model, require_weights
from spanlm.scoring.dynamic.tuning import TRIALS
from spanlm.scoring.excess import Excess
from spanlm.scoring.ngram.next_word import NgramModel
from spanlm.scoring.perplexity import Evaluation, padded_perplexity, require_pad
from spanlm.scoring.tally import shown
from spanlm.scoring.toolkits import arpa_lines, kenlm_report, scored_lines, srilm_report

_NOT_IN_FORMATS = (
    *("state", "precision", "batch_size", "cache", "dynamic", "neighbours", "parts", "tune_weights"),
    *("vocab_pad", "spell_unknown", "json"),
)
"""Options that --format, which reads each line alone, leaves no choice of; `--state line` says so, too."""


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
    for name in _NOT_IN_FORMATS if options.format is not None else ():
        if vars(options)[name] not in (options.parser.get_default(name), "line"):
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
    if options.format == "kenlm" and not model.predicts_words:
        raise InputError(f"--format=kenlm: {model.folder} is {model.kind}, whose words have no ids. Take srilm.")
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
    other = changed or corpus.exact or corpus.oov.get(options.split)  # a law is one of words
    if other or not corpus.name.startswith(PREFIX) or not model.predicts_words:
        return []
    return model.excess(corpus, options.split, state=options.state, precision=options.precision)


def _evaluate(model: Model, corpus: Corpus, options: argparse.Namespace) -> None:
    cache, tuning = choose_cache(model, options)
    mode: dict[str, Any] = {"state": options.state, "batch_size": options.batch_size, "precision": options.precision}
    mode["spell_unknown"] = options.spell_unknown
    with Progress(shown=not options.json) as report:
        chosen = choose_dynamic(model, corpus, options, report), choose_neighbours(model, options, report)
        adaptations = [adaptation for adaptation in chosen if adaptation is not None]
        for adaptation in adaptations:
            mode |= adaptation.mode
        result = model.evaluate(corpus, options.split, cache=cache, **mode)
    # the ensemble has one cache for all runs, so that each run alone needs a pass without it
    several = model.evaluate_members(corpus, options.split, **mode) if isinstance(model, TrainedEnsemble) else None
    notes = [*result.notes, *cache_notes(cache)]
    if options.json:
        head = {**run_field(model), "precision": usable(options.precision, model.model.device), "notes": notes}
        fields = {**head, **result.to_json(), **cache_fields(cache, tuning)}
        for adaptation in adaptations:
            fields |= adaptation.fields
        fields |= _padded(model, result, options)
        if law := _excess(model, corpus, options):
            fields["excess"] = [row.to_json() for row in law]
        if isinstance(model, TrainedEnsemble) and several is not None:
            fields["without_cache"] |= members_fields(model, several)
        out_json(fields)
        return
    rows = [*_padded_rows(model, result, options), *cache_rows(result, tuning, options)]
    rows += [row for adaptation in adaptations for row in adaptation.rows(result)]
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
