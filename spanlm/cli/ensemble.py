"""Several runs where a verb takes one: `spanlm VERB RUN RUN …`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from spanlm.cli.arguments import run_names
from spanlm.cli.main import VerbParser
from spanlm.cli.option_names import refusing_options
from spanlm.cli.report import describe
from spanlm.cli.terminal import columns, console, out, out_json, table
from spanlm.cli.tuning import TUNED_ON, tuning_part
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError
from spanlm.evaluation.combination import EnsembleEvaluation, TunedWeights
from spanlm.evaluation.perplexity import Evaluation
from spanlm.evaluation.scoring import shown, usable
from spanlm.models.counting import count_parameters
from spanlm.models.ensemble import normalised
from spanlm.runs.ensemble import TrainedEnsemble, load_ensemble
from spanlm.runs.loading import load
from spanlm.runs.trained_model import LoadedModel
from spanlm.store.process import with_threads
from spanlm.store.run_folder import CONFIG

ORACLE = "oracle bound: at each token the best of them, chosen after the fact; no model's perplexity"


def add_runs(parser: VerbParser, files: str = "", files_help: str = "") -> None:
    """Add the runs, and how several of them are combined.

    Args:
        parser: of a verb; it must parse intermixed arguments.
        files: what may follow the runs, if anything does.
        files_help: what that is.
    """
    parser.add_argument("run", metavar="RUN", type=Path, help="the folder of a trained run")
    parser.add_argument(
        "more",
        metavar=f"RUN|{files}" if files else "RUN",
        nargs="*",
        default=[],
        help=f"more runs, which predict with it as one{f'; then {files_help}' if files else ''}",
    )
    parser.add_argument(
        "--combine",
        choices=("linear", "geometric"),
        help="several runs: the average of their probabilities (linear, the default) or their normalised product",
    )
    parser.add_argument(
        "--weights", type=float, nargs="+", metavar="W", help="of several runs, in their order (default: equal)"
    )


def runs_and_files(options: argparse.Namespace) -> tuple[list[Path], list[str]]:
    """Part the runs, which are folders with a configuration, from the files after them."""
    more: list[str] = options.more
    count = next((n for n, name in enumerate(more) if not (Path(name) / CONFIG).is_file()), len(more))
    return [options.run, *map(Path, more[:count])], more[count:]


def load_runs(runs: Sequence[Path], options: argparse.Namespace) -> LoadedModel:
    """Load one run, or several as one.

    Raises:
        InputError: see `load` and `load_ensemble`; or options for several runs where there is one.
    """
    if len(runs) > 1:
        with refusing_options({"weights=": "--weights "}):
            normalised(options.weights, len(runs))
        return load_ensemble(
            runs, combination=options.combine or "linear", weights=options.weights, device=options.device
        )
    for name, given in (("--combine", options.combine), ("--weights", options.weights)):
        if given is not None:
            raise InputError(f"{name}: is for several runs; name more than {runs[0]}")
    return load(runs[0], options.device)


def described(model: LoadedModel) -> list[str]:
    """Say in a line each what a model is, and what its members are."""
    if not isinstance(model, TrainedEnsemble):
        return [f"{model.folder}: {describe(model.config.model)}"]
    return [_how(model), *(f"  {line}" for run in model.runs for line in described(run))]


def run_field(model: LoadedModel) -> dict[str, Any]:
    """Return what identifies a model in JSON."""
    if not isinstance(model, TrainedEnsemble):
        return {"run": str(model.folder)}
    head = model.model.head
    runs = [str(run.folder) for run in model.runs]
    return {"runs": runs, "combination": head.combination, "weights": list(head.weights)}


def _how(model: TrainedEnsemble) -> str:
    head, count = model.model.head, len(model.runs)
    shown = " ".join(f"{weight:.3f}" for weight in head.weights)
    what = {"linear": "average of the probabilities", "geometric": "normalised product of the probabilities"}
    weights = "equal weights" if len(set(head.weights)) == 1 else f"weights {shown}"
    return f"{count} runs as one: {what[head.combination]} ({head.combination}), {weights}"


def evaluate_several(model: TrainedEnsemble, corpus: Corpus, options: argparse.Namespace) -> None:
    """Print each run's perplexity, that of all as one, and the oracle bound."""
    how = {"state": options.state, "batch_size": options.batch_size, "precision": options.precision}
    tuned = None
    if options.tune_weights:
        valid = tuning_part(model, options, "--tune-weights", "the weights by --weights")
        tuned = model.tune_weights(valid, TUNED_ON, **how)
        model = model.reweighted(tuned.weights)
    result = model.evaluate_members(corpus, options.split, **how)
    if options.json:
        used = {"precision": usable(options.precision, model.model.device)}
        out_json(used | _as_json(model, corpus, result, tuned))
    else:
        _show(model, corpus, result, tuned)


def check_tuning(options: argparse.Namespace, runs: int) -> None:
    """Refuse to tune what is not to be tuned.

    Raises:
        InputError: there is one run, or weights are given, or the product is asked for.
    """
    if not options.tune_weights:
        return
    if runs == 1:
        raise InputError(f"--tune-weights: is for several runs; name more than {options.run}")
    if options.weights is not None:
        raise InputError("--tune-weights and --weights do not go together: take one")
    if options.combine == "geometric":
        raise InputError(
            "--tune-weights: only the weights of --combine linear are tuned; those of geometric are equal, or given "
            "by --weights"
        )


def _as_json(
    model: TrainedEnsemble, corpus: Corpus, result: EnsembleEvaluation, tuned: TunedWeights | None
) -> dict[str, Any]:
    values = {**run_field(model), "notes": corpus.notes, **result.to_json(), **members_fields(model, result)}
    if tuned is not None:
        values["tuned"] = {"on": TUNED_ON, "steps": tuned.steps, "gap": tuned.gap}
    return values


def members_fields(model: TrainedEnsemble, result: EnsembleEvaluation) -> dict[str, Any]:
    """Return what JSON says of each run alone, and of the bound of any choice among them."""
    members = zip(model.runs, result.to_json()["members"], strict=True)
    return {
        "members": [{"run": str(run.folder), **member} for run, member in members],
        "oracle_bound": result.to_json()["oracle_bound"],
    }


def _show(model: TrainedEnsemble, corpus: Corpus, result: EnsembleEvaluation, tuned: TunedWeights | None) -> None:
    for note in corpus.notes:
        out(note)
    whole = result.ensemble
    count = count_parameters(model.model)
    rows = [
        ("models", f"{_how(model)}; together θ_M {count.model:,}, θ_W+M {count.total:,}"),
        ("text", f"{whole.corpus} {whole.split}: {whole.tokens:,} tokens"),
        ("protocol", whole.protocol),
        ("unknown", f"{whole.oov_tokens:,} words of the text are not in the vocabulary ({whole.oov_share:.2%})"),
        ("<unk>", f"{whole.unk_tokens:,} targets ({whole.unk_share:.2%})"),
        ("speed", f"{whole.tokens_per_second:,.0f} tokens/s, all models, on {with_threads(model.model.device)}"),
    ]
    if tuned is not None:
        shown = " ".join(f"{weight:.4f}" for weight in tuned.weights)
        close = f"{tuned.steps} steps of EM; no others are better by more than {tuned.gap:.0e} nats/token"
        same = "; the part shown here, too, so what follows is optimistic" if whole.split == TUNED_ON else ""
        rows.insert(1, ("weights", f"{shown}, tuned on {TUNED_ON} ({close}){same}"))
    table(rows)
    out()
    show_members(model, result)


def show_members(model: TrainedEnsemble, result: EnsembleEvaluation) -> None:
    """Print each run's perplexity, that of all as one, and the oracle bound, in a table."""
    console().print(_perplexities(model, result))
    if result.ensemble.salton2017 is not None:
        out(
            "Salton's count: the first word of each line is not predicted, but counted; per predicted: not counted "
            "either; no other paper's is comparable"
        )


def _perplexities(model: TrainedEnsemble, result: EnsembleEvaluation) -> Table:
    salton = [] if result.ensemble.salton2017 is None else ["Salton's count", "per predicted"]
    found = columns(["model"], ["weight", "perplexity", *salton, "without <unk>", "nats/token"])
    names = run_names([run.folder for run in model.runs])
    for name, run, weight, member in zip(names, model.runs, result.weights, result.members, strict=True):
        found.add_row(f"{name}: {describe(run.config.model)}", f"{weight:.3f}", *_cells(member))
    found.add_row(f"ensemble of {len(names)} ({result.combination})", "", *_cells(result.ensemble))
    oracle = result.oracle_bound
    found.add_row(ORACLE, "", shown(oracle.bound), *("" for _ in salton), "", f"{oracle.nll_per_token:.4f}")
    return found


def _cells(result: Evaluation) -> list[str]:
    without = "–" if result.perplexity_without_unk is None else shown(result.perplexity_without_unk)
    count = result.salton2017
    salton = [] if count is None else [shown(count.perplexity), shown(count.perplexity_per_predicted)]
    return [shown(result.perplexity), *salton, without, f"{result.nll_per_token:.4f}"]
