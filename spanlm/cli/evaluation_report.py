"""The output of `spanlm evaluate`, and the rows and notes on a model that other verbs print too."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from spanlm.cli.options import TUNED_ON, run_names
from spanlm.cli.render import grid, out, paragraph, table
from spanlm.data.corpora import shown_name
from spanlm.errors import told
from spanlm.models.counting import count_parameters
from spanlm.models.lesions import described_lesion
from spanlm.runs.ensemble import TrainedEnsemble
from spanlm.runs.model import Model
from spanlm.scoring.cache import GridTuning
from spanlm.scoring.combination import EnsembleEvaluation, TunedWeights
from spanlm.scoring.excess import Excess
from spanlm.scoring.perplexity import Evaluation
from spanlm.scoring.tally import shown
from spanlm.store.machine import with_threads

Rows = list[tuple[str, str]]

# --- the model ---


def described(model: Model) -> list[str]:
    """Describe a model in a line, and each member of an ensemble in one more."""
    if not isinstance(model, TrainedEnsemble):
        return [f"{model.folder}: {model.description}"]
    return [model.description, *(f"  {line}" for run in model.runs for line in described(run))]


def run_field(model: Model) -> dict[str, Any]:
    fields: dict[str, Any] = {"run": str(model.folder)}
    if isinstance(model, TrainedEnsemble):
        runs = [str(run.folder) for run in model.runs]
        fields = {"runs": runs, "combination": "linear", "weights": list(model.model.head.weights)}
    if lesions := _lesions(model):
        fields["attention"] = ", ".join(lesions)
    return fields if model.gate_temperature is None else {**fields, "gate_temperature": model.gate_temperature}


def model_rows(model: Model) -> Rows:
    """Return the lines of `described` as rows of a table."""
    return [("" if place else "model", line) for place, line in enumerate(described(model))]


def attention_rows(model: Model) -> Rows:
    return [("attention", f"{lesion}: {described_lesion(lesion)}; not trained so") for lesion in _lesions(model)]


def _lesions(model: Model) -> list[str]:
    return list(dict.fromkeys(run.attention for run in model.runs if run.attention))


def gate_rows(model: Model) -> Rows:
    used, trained = model.gate_temperature, model.own_gate_temperature
    if used is None:
        return []
    return [("gate's T", f"{used:g}" if used == trained else f"{used:g} in place of the run's {trained:g}")]


def departures(model: Model) -> list[str]:
    """Note a gate temperature or an attention that differs from training, for output without a table."""
    same = model.gate_temperature == model.own_gate_temperature
    return [f"note: {name}: {line}" for name, line in [*([] if same else gate_rows(model)), *attention_rows(model)]]


def unpredicted_first_words(model: Model, effect: str) -> list[str]:
    """Note the `effect` on the first word of a line if the model's training only read it."""
    why = "in this model's training it was only read (training.batching.predict_first=false)"
    return [] if model.texts.predict_first else [f"note: the first word of each {effect}: {why}"]


# --- an evaluation ---


def print_evaluation(model: Model, result: Evaluation, notes: Sequence[str], changed: Rows) -> None:
    """Print every number of an evaluation and its protocol, with extra rows (`changed`), as of a cache."""
    paragraph(*notes)
    count = count_parameters(model.model)
    summary, *members = described(model)
    unknown = f"{result.oov_tokens:,} because the vocabulary lacks the word"
    name = shown_name(result.corpus, model.texts.data.effective_tokenizer, model.texts.data.lines)
    table(
        [
            ("model", f"{summary}; θ_M {count.model:,}, θ_W+M {count.total:,}"),
            *(("", member) for member in members),
            ("text", f"{name} {result.split}: {result.tokens:,} tokens"),
            ("protocol", result.protocol),
            *gate_rows(model),
            *attention_rows(model),
            ("perplexity", shown(result.perplexity)),
            *changed,
            *_salton_rows(result),
            ("<unk>", f"{result.unk_tokens:,} targets ({result.unk_share:.2%}): {unknown} ({result.oov_share:.2%})"),
            *_spelling_rows(result),
            ("speed", f"{result.tokens_per_second:,.0f} tokens/s on {with_threads(model.model.device)}"),
        ]
    )
    out()
    rows = [
        [_SHARES[name], f"{x.count:,}", f"{x.nats:.4f}", f"{x.bits:.4f}", f"{x.log10:,.2f}", shown(x.perplexity)]
        for name, x in result.shares.items()
    ]
    grid(["", "count", "nats", "bits", "sum of log10", "perplexity"], rows)
    if result.tokens_per_word is not None:
        paragraph(
            "per word, character, byte: all targets shared out over the text as it is written: words between white "
            "space; their characters or bytes of UTF-8, one for the space or line end after each, and one for each "
            f"blank line. {result.tokens_per_word:.4f} tokens per word: perplexity to this power is that per word"
        )


_SHARES = {
    "all": "per target",
    "without_unk": "  without <unk>",
    "without_eos": "  without <eos>",
    "without_unk_and_eos": "  without both",
    "words": "per word",
    "characters": "per character",
    "bytes": "per byte",
}


def _spelling_rows(result: Evaluation) -> Rows:
    spelling = result.spelling
    if spelling is None:
        return []
    if not spelling.words:
        return [("spelled", "none: no word is unknown, so that every number is of an open vocabulary")]
    bits = spelling.nll / spelling.words / math.log(2)
    counted = f"{bits:.2f} bits each on average: every number but those without <unk> is of an open vocabulary"
    return [("spelled", f"{spelling.words:,} unknown words, {counted}")]


def _salton_rows(result: Evaluation) -> Rows:
    count = result.salton2017
    if count is None:
        return []
    return [
        ("Salton's count", f"{shown(count.perplexity)} = exp(NLL of {count.predicted:,} tokens / {count.counted:,})"),
        ("", f"{count.protocol}; not comparable with other papers;"),
        ("", f"per predicted token {shown(count.perplexity_per_predicted)}"),
    ]


def parts_rows(result: Evaluation) -> Rows:
    parts = result.parts
    if parts is None:
        return []
    nothing = result.tokens - parts.remembering
    instead = f"; at {nothing:,} tokens nothing is remembered: there it is the encoder" if nothing else ""
    rows = [
        ("encoder alone", shown(parts.encoder)),
        ("buffer alone", f"{shown(parts.buffer)}{instead}"),
        ("oracle bound", f"{shown(parts.oracle)}: at each token the better of the two, chosen after the fact;"),
        ("", "no model's perplexity"),
    ]
    if parts.utilisation is None or parts.oracle_utilisation is None:
        return rows
    return [
        *rows,
        ("gate at T 1", f"{shown(parts.untempered)}: the gate without its temperature"),
        ("equal shares", f"{shown(parts.equal)}: half of each, wherever there is anything to read (T → ∞)"),
        ("PoU", f"{parts.utilisation:.2%} of {parts.remembering:,} tokens: the gate prefers the buffer (a share ≥ ½)"),
        ("oracle PoU", f"{parts.oracle_utilisation:.2%}: the buffer gives the token more"),
        ("gate", f"buffer's share {parts.gate:.3f} before the temperature (mean); mean reward {parts.reward:.3f}"),
    ]


def both_counts(result: Evaluation) -> str:
    count = "" if result.salton2017 is None else f", Salton's count {shown(result.salton2017.perplexity)}"
    return f"{shown(result.perplexity)}{count}"


def tuned_rows(
    result: Evaluation,
    tuning: GridTuning[Any, Any],
    chosen: str,
    option_of: Callable[[str], str],
) -> Rows:
    """Return rows on a search: its text, the `chosen` values, the perplexity there, and notes, with options' names."""
    same = tuning.text == f"{result.corpus} {result.split}"
    text = f"{tuning.text}{', the text shown here, too, so this is optimistic' if same else ''}"
    closed = ", of the closed vocabulary" if result.spelling is not None else ""
    numbers = f"{shown(tuning.perplexity)} there, {shown(tuning.plain)} without{closed}"
    return [("tuned on", f"{text}: {chosen}; {numbers}"), *(("", told(note, option_of)) for note in tuning.notes)]


def weights_rows(result: Evaluation, tuned: TunedWeights | None) -> Rows:
    if tuned is None:
        return []
    weights = " ".join(f"{weight:.4f}" for weight in tuned.weights)
    close = f"{tuned.steps} steps of EM; no others are better by more than {tuned.gap:.0e} nats/token"
    same = "; the part shown here, too, so what follows is optimistic" if result.split == TUNED_ON else ""
    return [("weights", f"{weights}, tuned on {TUNED_ON} ({close}){same}")]


def print_excess(classes: Sequence[Excess]) -> None:
    """Print the model's excess bits over the law of the text, by the lag of the needed word."""
    out("\nbits a target: under the law of the text, and under the model")
    names = ["all", *("none" if row.lags[1] == 0 else "–".join(map(str, sorted({*row.lags}))) for row in classes[1:])]
    rows = [
        [name, f"{row.tokens:,}", f"{row.optimum:.4f}", f"{row.bits:.4f}", f"{row.excess:.4f}"]
        for name, row in zip(names, classes, strict=True)
    ]
    grid(["needed word, steps back", "targets", "law", "model", "excess"], rows)
    if any(row.excess < 0 for row in classes[1:]):
        paragraph(
            "No model is better than the law over all targets; over those that turned out as it guessed it may be."
        )


# --- members of an ensemble ---


def members_fields(model: TrainedEnsemble, result: EnsembleEvaluation) -> dict[str, Any]:
    """Return the JSON fields of each run alone, and of the oracle bound."""
    fields = result.to_json()
    members = [{"run": str(run.folder), **x} for run, x in zip(model.runs, fields["members"], strict=True)]
    return {"members": members, "oracle_bound": fields["oracle_bound"]}


def print_members(model: TrainedEnsemble, result: EnsembleEvaluation, title: str) -> None:
    counts = [] if result.ensemble.salton2017 is None else ["Salton's count", "per predicted"]
    names = run_names([run.folder for run in model.runs])
    rows = [
        [name, f"{weight:.3f}", *_cells(member)]
        for name, weight, member in zip(names, result.weights, result.members, strict=True)
    ]
    rows.append([f"ensemble of {len(names)} ({result.combination})", "", *_cells(result.ensemble)])
    bound = result.oracle_bound
    rows.append(["oracle bound", "", shown(bound.bound), *("" for _ in counts), "", f"{bound.nll_per_token:.4f}"])
    out(f"\n{title}")
    grid(["model", "weight", "perplexity", *counts, "without <unk>", "nats/token"], rows)
    paragraph("oracle bound: at each token the best of the runs, chosen after the fact; no model's perplexity")
    if counts:
        paragraph(
            "Salton's count: the first word of each line is not predicted, but counted; per predicted: not counted "
            "either; no other paper's is comparable"
        )


def _cells(result: Evaluation) -> list[str]:
    without = "–" if result.perplexity_without_unk is None else shown(result.perplexity_without_unk)
    count = result.salton2017
    counts = [] if count is None else [shown(count.perplexity), shown(count.perplexity_per_predicted)]
    return [shown(result.perplexity), *counts, without, f"{result.nll_per_token:.4f}"]
