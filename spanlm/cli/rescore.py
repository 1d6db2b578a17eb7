"""`spanlm rescore RUN… --nbest FILE`."""

from __future__ import annotations

import argparse
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spanlm.cli.evaluation_report import unpredicted_first_words
from spanlm.cli.options import check_kind, check_output, load_kenlm, load_run, output, run_names
from spanlm.cli.render import grid, note, out, out_json, paragraph, table
from spanlm.data.packed import opened
from spanlm.data.tables import DELIMITERS, table_kind
from spanlm.errors import InputError
from spanlm.models.ops.precision import usable
from spanlm.rescoring.formats import FOLDERS, Format, NBestList, read_nbest, without, write_nbest
from spanlm.rescoring.references import read_references
from spanlm.rescoring.rescore import WORDS, Scored, Weighted, WordErrors, plain_rate, weight_grid, word_errors
from spanlm.rescoring.weights import Array, Candidates, Tuned, bootstrap, edits, totals, tune
from spanlm.scoring.ngram.kenlm import Kenlm
from spanlm.scoring.prefix_tree import Prefixes
from spanlm.scoring.resampling import FEWEST_BLOCKS
from spanlm.store.machine import pick_device
from spanlm.store.plain import c_number, cell, cells_line, json_object

_LARGE = 0.05
"""Difference of word error rates, with case and punctuation and without, that is worth a note."""
_BARE: tuple[Format, ...] = ("moses", "nemo")
_SCORES = ("id", "rank", "new_rank", "hypothesis", "new_score", "errors")
"""Columns of --scores beside the scores."""


def run(options: argparse.Namespace) -> None:
    named_weights = _weights(options.weights or ())
    if options.tune and options.refs is None:
        raise InputError("--tune: needs --refs, what was said or meant, to count word errors")
    lists, form = read_nbest(options.nbest, options.format, options.list_size, strict=options.strict)
    references = None if options.refs is None else read_references(options.refs, lists, options.leave_out)
    _check_outputs(options, form, lists)
    # reject bad options before hours of scoring
    weighted, tuned = Weighted.of(lists, run_names(options.run)), None
    if options.scores is not None and (clash := {*_SCORES} & {*weighted.names}):
        raise InputError(
            f"--scores: has a column {min(clash)} of its own, and a score has that name. Rename the score."
        )
    if weighted.first and not named_weights and not options.tune:
        names = " ".join(f"{name}=…" for name in (*weighted.language, WORDS))
        raise InputError(f"--weights: say how much each score counts ({names}), or add --tune and --refs")
    weights = weighted.weights(named_weights)
    if references is not None:
        edits()
    scored, prefixes, oov = _scored(lists, options)
    candidates = None if references is None else scored.candidates(references)
    if options.tune:
        assert candidates is not None  # --tune needs --refs
        tuned = tune(candidates, weights)
        weights = tuned.weights
    errors: dict[str, WordErrors] = {}
    if candidates is not None and references is not None:
        best = {"first": [0] * len(lists), "rescored": scored.best(weights), "oracle": candidates.oracle}
        errors = {name: word_errors(scored.spoken, places, references, candidates) for name, places in best.items()}
        rate, plain = errors["rescored"].rate, plain_rate(scored.spoken, scored.best(weights), references)
        if plain <= rate / 2 and rate - plain >= _LARGE:
            note(f"note: the word error rate is {rate:.2%}; in lower case without punctuation it is {plain:.2%}")
    _write(scored, weights, candidates, form, options)
    if options.json:
        precision = usable(options.precision, pick_device(options.device, "device"))
        out_json({**_fields(scored, weights, tuned, errors, prefixes, form), "precision": precision})
        return
    _print(scored, weights, tuned, errors, prefixes, form, oov, candidates)


def _weights(items: Sequence[str]) -> dict[str, float]:
    weights: dict[str, float] = {}
    for item in items:
        pairs = [item.rpartition("=")[::2]] if "=" in item else _tuned_weights(Path(item))
        for name, text in pairs:
            if name in weights:
                raise InputError(f"--weights {item}: {name} has the weight {weights[name]:g} already; give it one")
            weights[name] = c_number(text)
            if not math.isfinite(weights[name]):
                raise InputError(f"--weights {item}: {name}={text} must be NAME=NUMBER, as lm=0.5")
    return weights


def _tuned_weights(path: Path) -> list[tuple[str, str]]:
    if not path.is_file():
        raise InputError(f"--weights {path}: must be NAME=NUMBER, as lm=0.5, or a file of --tune --json")
    with opened(path) as file:
        try:
            return [(name, str(weight)) for name, weight in json_object(file.read())["weights"].items()]
        except (ValueError, KeyError, AttributeError):
            raise InputError(f"--weights {path}: is not what --tune --json prints, with weights by name") from None


def _scored(lists: list[NBestList], options: argparse.Namespace) -> tuple[Scored, Prefixes, int]:
    """Score every hypothesis with every model; count the unknown words over all models."""
    spoken = without(lists, options.leave_out)
    texts = [hypothesis.text for nbest in spoken for hypothesis in nbest.hypotheses]
    language: dict[str, list[list[float]]] = {}
    prefixes, oov = Prefixes(), 0
    for name, run in zip(run_names(options.run), options.run, strict=True):
        settings = options.device, options.gate_temperature, options.as_written
        model = load_kenlm(run, options) or load_run(run, *settings)
        if not isinstance(model, Kenlm):
            note(*unpredicted_first_words(model, "hypothesis counts nothing"))
        scores, read = model.score_texts(texts, precision=options.precision)
        prefixes, oov = prefixes + read, oov + sum(score.oov for score in scores)
        values = iter(score.log_prob for score in scores)
        language[name] = [[next(values) for _ in nbest.hypotheses] for nbest in lists]
    return Scored(lists, language, spoken), prefixes, oov


# --- files ---


def _check_outputs(options: argparse.Namespace, form: Format, lists: Sequence[NBestList]) -> None:
    short = form == "nemo" and any(len(nbest.hypotheses) != options.list_size for nbest in lists)
    if short and options.nbest_out is not None:
        why = f"NeMo's lists are known by their size, {options.list_size}, and bad rows were left out"
        raise InputError("--nbest-out", options.nbest_out, why, "Mend those rows")
    outputs = {"--out": options.out, "--scores": options.scores, "--nbest-out": options.nbest_out}
    paths = [path for path in outputs.values() if path is not None and not path.is_char_device()]
    if twice := [path for path in paths if paths.count(path) > 1]:
        raise InputError(f"{twice[0]}: is the file of two options. Choose another for one.")
    read = [path for path in (options.nbest, options.refs) if path is not None]
    for option, path in outputs.items():
        check_output(path, read, option, folder=option == "--nbest-out" and form in FOLDERS)
    check_kind(options.scores, "--scores", ["tsv", "csv"], "a table is written, TSV or CSV. Name it so.")


def _write(
    scored: Scored, weights: Array, candidates: Candidates | None, form: Format, options: argparse.Namespace
) -> None:
    if options.out is not None:
        with output(options.out) as file:
            for nbest, place in zip(scored.lists, scored.best(weights), strict=True):
                text = nbest.hypotheses[place].text
                file.write(f"{text}\n" if form in _BARE else f"{nbest.id} {text}".rstrip() + "\n")
    if options.nbest_out is not None:
        write_nbest(options.nbest_out, form, scored.reordered(weights))
    if options.scores is None:
        return
    between = DELIMITERS["csv" if table_kind(options.scores) == "csv" else "tsv"]
    with output(options.scores) as file:
        file.write(cells_line(["id", "rank", "new_rank", "hypothesis", *scored.names, "new_score", "errors"], between))
        for number, nbest in enumerate(scored.lists):
            sums = totals(scored.scores[number], weights)
            new = np.argsort(np.argsort(-sums, kind="stable"), kind="stable") + 1
            for rank, hypothesis in enumerate(nbest.hypotheses):
                values = [*scored.scores[number][rank].tolist(), float(sums[rank])]
                wrong = "NaN" if candidates is None else int(candidates.errors[number][rank])
                cells = [nbest.id, rank + 1, int(new[rank]), hypothesis.text, *values, wrong]
                file.write(cells_line(cells, between, cell))


# --- what is printed ---


def _fields(
    scored: Scored, weights: Array, tuned: Tuned | None, errors: Mapping[str, WordErrors], prefixes: Prefixes, form: str
) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "format": form,
        "lists": len(scored.lists),
        "hypotheses": sum(map(len, scored.scores)),
        "tokens": prefixes.tokens,
        "tokens_read": prefixes.read,
        "weights": dict(zip(scored.names, weights.tolist(), strict=True)),
        "errors": {name: counts.to_json() for name, counts in errors.items()},
    }
    if tuned is not None:
        intervals = dict(zip(scored.names, tuned.intervals, strict=True))
        fields["tuned"] = {
            "starts": tuned.starts,
            "optimum": "exact" if tuned.exact else "local",
            "intervals": {name: both for name, both in intervals.items() if both},
        }
    return fields


def _print(
    scored: Scored,
    weights: Array,
    tuned: Tuned | None,
    errors: Mapping[str, WordErrors],
    prefixes: Prefixes,
    form: str,
    oov: int,
    candidates: Candidates | None,
) -> None:
    hypotheses = sum(map(len, scored.scores))
    share = f"{prefixes.read / max(1, prefixes.tokens):.0%} of {prefixes.tokens:,} tokens, beginnings in common once"
    rows = [("lists", f"{len(scored.lists):,} with {hypotheses:,} hypotheses ({form})"), ("read", share)]
    for place, (name, weight) in enumerate(zip(scored.names, weights.tolist(), strict=True)):
        both = None if tuned is None else tuned.intervals[place]
        within = f"  as many errors from {both[0]:.4g} to {both[1]:.4g}" if both else ""
        rows.append(("" if place else "weights", f"{name} {weight:.4g}{within}"))
    table(rows)
    if errors and candidates is not None:
        out()
        _print_errors(scored, weights, errors, candidates)
    if tuned is not None and candidates is not None:
        _print_tuned(scored, tuned, candidates)
    if oov:
        note(f"note: {oov:,} words of hypotheses are outside a model's vocabulary, and are scored as <unk>")


def _print_errors(scored: Scored, weights: Array, errors: Mapping[str, WordErrors], candidates: Candidates) -> None:
    header = ["", "WER", "95 %", "errors", "subst.", "del.", "ins."]
    rows = []
    for name, result in errors.items():
        counts = (result.errors, result.substitutions, result.deletions, result.insertions)
        rows.append([name, _percent(result.rate), _interval(result.interval), *(f"{count:,}" for count in counts)])
    grid(header, rows)
    if not errors["rescored"].words:
        paragraph("The references have no words: every word of a hypothesis is an error, and there is no rate.")
        return
    first, best = candidates.errors_of([0] * len(scored.lists)), candidates.errors_of(scored.best(weights))
    words = candidates.words_of(scored.best(weights))
    interval = _interval(bootstrap(best, words, other=first))
    paragraph(
        f"first − rescored: {_percent((first.sum() - best.sum()) / words.sum())} (95 %: {interval}) of {words.sum():,} "
        "words of the references. oracle: the hypothesis with the fewest errors of each list"
    )
    if interval == "–":
        paragraph(f"– fewer than {FEWEST_BLOCKS} references with words say little of others")


def _percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{share:z.2%}".replace("-", "−")


def _interval(both: tuple[float, float]) -> str:
    return "–" if math.isnan(both[0]) else " to ".join(map(_percent, both))


def _print_tuned(scored: Scored, tuned: Tuned, candidates: Candidates) -> None:
    places, weights = range(1, len(scored.names)), tuned.weights
    grids = [weight_grid(candidates, weights, place) for place in places]
    out()
    header = [cell for place in places for cell in (scored.names[place], "WER")]
    rows = [
        [cell for value, rate in row for cell in (f"{value:.3g}", _percent(rate))] for row in zip(*grids, strict=True)
    ]
    grid(header, rows, "word error rate by each weight, the others as tuned")
    pairs = shlex.join(f"{name}={weight:.6g}" for name, weight in zip(scored.names, weights.tolist(), strict=True))
    optimum = "no weights have fewer errors" if tuned.exact else f"a local optimum, the best of {tuned.starts} starts"
    paragraph(f"Tuned on these lists: {optimum}. For others: --weights {pairs}")
