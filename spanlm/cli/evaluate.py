"""`spanlm evaluate RUN …`."""

from __future__ import annotations

import argparse
from typing import Any

from spanlm.cli.allocation import keep_freed_memory
from spanlm.cli.arguments import add_corpus, add_device, corpus_of, verb_parser
from spanlm.cli.cache import add_cache, cache_fields, cache_notes, cache_rows, check_cache, choose_cache
from spanlm.cli.dynamic import add_dynamic, check_dynamic, choose_dynamic, refusing_dynamic, searching, telling_choice
from spanlm.cli.dynamic_told import dynamic_fields, dynamic_rows
from spanlm.cli.ensemble import (
    add_runs,
    check_tuning,
    described,
    evaluate_several,
    load_runs,
    members_fields,
    run_field,
    show_members,
)
from spanlm.cli.gate import add_gate, check_gate, gate_fields, gate_rows, tempered
from spanlm.cli.parts import add_parts, check_has_parts, check_parts, parts_rows
from spanlm.cli.progress import progress
from spanlm.cli.terminal import out, out_json, table
from spanlm.data.corpora import Corpus
from spanlm.errors import require
from spanlm.evaluation.perplexity import Evaluation
from spanlm.evaluation.scoring import shown, usable
from spanlm.evaluation.search_log import SearchLog
from spanlm.models.counting import count_parameters
from spanlm.runs.ensemble import TrainedEnsemble
from spanlm.runs.trained_model import LoadedModel, TrainedModel
from spanlm.store.process import with_threads

_DESCRIPTION = """
Perplexity of a trained model: exp(total NLL / predicted tokens), with every token of the split predicted exactly
once and <eos> counted. Words outside the vocabulary are read and predicted as <unk>; their share is shown, and the
perplexity without them, since a vocabulary with more <unk> makes a text easier.

  spanlm evaluate runs/demo
  spanlm evaluate runs/demo --cache 500 --tune-cache
  spanlm evaluate runs/demo --dynamic --tune-dynamic
  spanlm evaluate runs/spans --parts
  spanlm evaluate runs/spans --gate-temperature 1
  spanlm evaluate runs/family/seed-1 runs/family/seed-2 --tune-weights

Several runs are evaluated side by side in one pass: each alone, all as one (an ensemble), and the oracle bound, which
is what the best of them at each token would give and no model's perplexity.
"""
_MORE = """
A cache looks at the last words of the text for situations like now, and gives what followed them a share of the
probability (Grave et al., 2017). It is empty wherever --state begins anew, but goes on over lines. The
perplexity without it is shown, too; of several runs, which have one cache together, each run's is without it.

Dynamic evaluation lets a copy of the weights go on learning from the text, each word after it was predicted (Krause et
al., 2018). It needs to know how large each weight's gradients were on the training text; that is found out once, for
each --gate-temperature, and kept in the run's folder. --tune-dynamic looks for the rates on the valid part; stopped,
the same command goes on with what it had read. The perplexity with the trained weights throughout is shown, too.

A model with a span buffer mixes two predictions (Li et al., 2020). --parts shows each of them alone, the bound that no
choice between them passes, and how often the gate prefers the buffer (PoU) and the buffer is better (oracle PoU), from
the same pass; with --dynamic those of the weights that follow the text. --gate-temperature evaluates the same weights
with another temperature of the gate than the run's (the paper's "w/o annealing in test" is 1).
"""


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = verb_parser("evaluate", _DESCRIPTION, more=_MORE)
    add_runs(parser)
    add_device(parser)
    add_corpus(parser)
    parser.add_argument(
        "--state",
        choices=("auto", "carry", "document", "line"),
        default="auto",
        help="a word's context: the whole split, its document, its line (default: as the model was trained)",
    )
    parser.add_argument(
        "--batch-size",
        type=int,
        help="streams side by side (default: as many as change nothing; 1 for one stream of text)",
    )
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument(
        "--tune-weights",
        rare=True,
        action="store_true",
        help="several runs: first find the weights that fit the valid part best (linear only)",
    )
    add_cache(parser)
    add_dynamic(parser)
    add_parts(parser)
    add_gate(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_intermixed_args(arguments)


def run(arguments: list[str]) -> None:
    """Evaluate."""
    keep_freed_memory()
    options = _parsed(arguments)
    check_cache(options)
    runs = [options.run, *options.more]
    check_tuning(options, len(runs))
    check_dynamic(options, len(runs))
    require(options.batch_size is None or options.batch_size >= 1, "--batch-size", options.batch_size, "at least 1")
    check_parts(options, len(runs))
    check_gate(options, len(runs))
    model = tempered(load_runs(runs, options), options)
    check_has_parts(options, model)
    corpus, options.split = corpus_of(model, options)
    if isinstance(model, TrainedEnsemble) and options.cache is None:
        evaluate_several(model, corpus, options)
        return
    log = model.search_log() if options.tune_dynamic and isinstance(model, TrainedModel) else None
    with searching(log):
        _evaluate(model, corpus, options, log)


def _evaluate(model: LoadedModel, corpus: Corpus, options: argparse.Namespace, log: SearchLog | None) -> None:
    """Tune what is to be tuned, measure, and tell."""
    cache, tuning = choose_cache(model, corpus, options)
    how: dict[str, Any] = {"state": options.state, "batch_size": options.batch_size, "precision": options.precision}
    with progress(shown=not options.json) as report, refusing_dynamic(options):
        adapted = choose_dynamic(model, corpus, options, report, log) if isinstance(model, TrainedModel) else None
        if adapted is not None:
            how |= {"dynamic": adapted.config, "statistics": adapted.statistics, "report": report, "log": adapted.log}
        with telling_choice(adapted):
            result = model.evaluate(corpus, options.split, cache=cache, **how)
    # the cache is one of all runs together; what each is alone takes a pass without it
    several = (
        (model, model.evaluate_members(corpus, options.split, **how)) if isinstance(model, TrainedEnsemble) else ()
    )
    notes = [*corpus.notes, *cache_notes(cache)]
    if options.json:
        precision = usable(options.precision, model.model.device)
        what = {**run_field(model), **gate_fields(model), "precision": precision, "notes": notes}
        found = {**what, **result.to_json(), **cache_fields(cache, tuning), **dynamic_fields(adapted)}
        if several:
            found["without_cache"] |= members_fields(*several)
        out_json(found)
    else:
        changed = [*cache_rows(result, tuning), *dynamic_rows(result, adapted), *parts_rows(result, options)]
        _show(model, result, notes, changed)
        if several:
            out("\nwithout the cache: each run alone, all as one, and the oracle bound")
            show_members(*several)


def _show(
    model: LoadedModel,
    result: Evaluation,
    notes: list[str],
    changed: list[tuple[str, str]],
) -> None:
    for note in notes:
        out(note)
    count = count_parameters(model.model)
    without = result.perplexity_without_unk
    what, *members = described(model)
    table(
        [
            ("model", f"{what}; θ_M {count.model:,}, θ_W+M {count.total:,}"),
            *(("", member) for member in members),
            ("text", f"{result.corpus} {result.split}: {result.tokens:,} tokens"),
            ("protocol", result.protocol),
            *gate_rows(model),
            ("perplexity", shown(result.perplexity)),
            *changed,
            *_unscored(result),
            (
                "NLL",
                f"{result.nll_per_token:.4f} nats = {result.bits_per_token:.4f} bits; total {result.nll:,.1f} nats",
            ),
            (
                "unknown",
                f"{result.oov_tokens:,} words of the text are not in the vocabulary ({result.oov_share:.2%})",
            ),
            (
                "<unk>",
                f"{result.unk_tokens:,} targets ({result.unk_share:.2%}); perplexity without them "
                + ("– (there are no others)" if without is None else shown(without)),
            ),
            ("speed", f"{result.tokens_per_second:,.0f} tokens/s on {with_threads(model.model.device)}"),
        ]
    )


def _unscored(result: Evaluation) -> list[tuple[str, str]]:
    """Say the count of Salton et al. (2017) beside the standard one, where each line begins anew."""
    found = result.salton2017
    if found is None:
        return []
    return [
        ("Salton's count", f"{shown(found.perplexity)} = exp(NLL of {found.predicted:,} tokens / {found.counted:,})"),
        ("", f"{found.protocol}; not comparable with other papers;"),
        ("", f"per predicted token {shown(found.perplexity_per_predicted)}"),
    ]
