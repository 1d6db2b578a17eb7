"""`spanlm cloze RUN QUESTIONS…`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from spanlm.cli.evaluation_report import departures, described, run_field
from spanlm.cli.options import check_kind, check_output, load_runs, output, runs_and_files
from spanlm.cli.parser import field_values
from spanlm.cli.render import Progress, grid, out, out_json, paragraph
from spanlm.data.cbt import Defect, is_cbt_like, read_questions, word_class
from spanlm.errors import InputError, require
from spanlm.models.ops.precision import usable
from spanlm.runs.model import Model
from spanlm.scoring.cloze import SCORES, Accuracy, ClozeTally, RankedQuestion, Score, macro_average
from spanlm.scoring.options import ClozeContext, ClozeOptions
from spanlm.store.files import is_pipe

CBT_LIKE_NOTE = "CBT-like questions are not those of CBT: do not compare these accuracies with published ones."
MOST_SHOWN = 20
"""Defects of a file to print; `--out` has all of them."""

TITLES: dict[ClozeContext, str] = {
    "full": "full: the context sentences, then the query",
    "query": "query: the query sentence alone",
}
_HEADER = (
    *("questions", "scored", "defects"),
    *(cell for score in SCORES for cell in (f"{score} [95 %]", "right", "ties")),
    "OOV",
)


@dataclass
class _File:
    """A file of questions, with the model's tallies on them."""

    path: Path
    name: str
    word_class: str
    cbt_like: bool
    tallies: dict[ClozeContext, ClozeTally] = field(default_factory=dict)
    defects: list[Defect] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "file": self.name,
            "class": self.word_class,
            "cbt_like": self.cbt_like,
            "contexts": {context: tally.to_json() for context, tally in self.tallies.items()},
            "defects": [asdict(defect) for defect in self.defects],
        }


def run(options: argparse.Namespace) -> None:
    runs, questions = runs_and_files(options)
    if not questions:
        raise InputError("QUESTIONS: name a file of questions after the models (see `spanlm cloze --help`)")
    require(options.limit is None or options.limit >= 1, "limit", options.limit, "at least 1")
    field_values(options, ClozeOptions, contexts=())  # checks the batch size before anything is loaded
    check_output(options.out, map(Path, questions))
    check_kind(options.out, "--out", ["jsonl"], "JSON lines are written, not a table. Name it .jsonl.")
    files = [_file(name, options.word_class) for name in questions]
    model = load_runs(runs, options)
    contexts = model.texts.cloze_contexts(options.contexts and list(dict.fromkeys(options.contexts)))
    settings: dict[str, Any] = {"contexts": contexts, "batch_size": options.batch_size, "precision": options.precision}
    with output(options.out) if options.out else nullcontext() as records, Progress(shown=not options.json) as progress:
        for file in files:
            file.tallies = {context: ClozeTally() for context in contexts}
            ranks = model.cloze(islice(read_questions(file.path, file.name), options.limit), **settings)
            _count(file, ranks, records, progress, options.strict)
    macro = {
        context: {score: macro_average(file.tallies[context].accuracy(score) for file in files) for score in SCORES}
        for context in contexts
    }
    if options.json:
        fields = {**run_field(model), "precision": usable(options.precision, model.model.device)}
        out_json({**fields, "files": [file.to_json() for file in files], "macro": macro})
    else:
        _show(model, files, macro)
    if all(tally.questions == 0 for file in files for tally in file.tallies.values()):
        raise InputError(f"{', '.join(file.name for file in files)}: no question could be scored")


def _file(name: str, given_class: str | None) -> _File:
    if name == "-":
        return _File(Path("/dev/stdin"), "standard input", given_class or "–", False)
    path = Path(name)
    if not is_pipe(path):
        next(read_questions(path))  # with --strict a defect ends the verb before any question is scored
    return _File(path, name, given_class or word_class(path), is_cbt_like(path))


def _count(
    file: _File, ranks: Iterable[RankedQuestion | Defect], records: TextIO | None, progress: Progress, strict: bool
) -> None:
    for ranked in ranks:
        if isinstance(ranked, Defect):
            if strict:
                raise InputError(f"{ranked}; repair it, or leave --strict out to score the others")
            file.defects.append(ranked)
            line, record = ranked.line, asdict(ranked)
        else:
            file.tallies[ranked.context].add(ranked)
            line, record = ranked.question.line, {**ranked.to_json(), "class": file.word_class}
        if records is not None:
            records.write(json.dumps(record, ensure_ascii=False) + "\n")
        progress.show(f"{file.name}: line {line:,}", 0, None)


def _show(model: Model, files: list[_File], macro: dict[ClozeContext, dict[Score, float | None]]) -> None:
    lines = list[str]()
    for file in files:
        lines += [f"not scored: {defect}" for defect in file.defects[:MOST_SHOWN]]
        if len(file.defects) > MOST_SHOWN:
            lines.append(f"not scored: {len(file.defects) - MOST_SHOWN:,} more of {file.name} (--out lists all)")
    lines += [*described(model), *departures(model)]
    if model.texts.line_by_line:
        lines.append("trained on independent lines: the sentences before a query are not read")
    if not model.texts.predict_first:
        why = "trained to read the first word of a line, not to predict it"
        lines.append(f"{why}: the first word of a query adds nothing to its scores")
    if any(tally.candidates_oov for file in files for tally in file.tallies.values()):
        lines += [f"note: {note}" for note in model.texts.unk_notes()]
    paragraph(*lines)
    for context, averages in macro.items():
        out()
        grid(_HEADER, _rows(context, files, averages), TITLES[context])
    if any(file.cbt_like for file in files):
        out()
        paragraph(CBT_LIKE_NOTE)


def _rows(context: ClozeContext, files: list[_File], averages: dict[Score, float | None]) -> Iterator[Sequence[str]]:
    for file in files:
        tally = file.tallies[context]
        known = [tally.accuracy_in_vocabulary(score) for score in SCORES]
        label = f"{file.word_class}{' (CBT-like)' if file.cbt_like else ''}  {Path(file.name).name}"
        cells = [cell for score in SCORES for cell in (*_cells(tally.accuracy(score)), f"{tally.ties[score]:,}")]
        yield label, f"{tally.questions:,}", f"{len(file.defects):,}", *cells, f"{tally.answers_oov:,}"
        cells = [cell for accuracy in known for cell in (*_cells(accuracy), "")]
        yield "  answer in the vocabulary", f"{known[0].questions:,}", "", *cells, ""
    if len(files) > 1:
        cells = [cell for score in SCORES for cell in (_percent(averages[score]), "", "")]
        yield f"mean of {len(files)} files", "", "", *cells, ""


def _cells(accuracy: Accuracy) -> tuple[str, str]:
    interval = "" if accuracy.interval is None else f" [{', '.join(f'{x:.1%}' for x in accuracy.interval)}]"
    return f"{_percent(accuracy.share)}{interval}", f"{accuracy.right:,}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"
