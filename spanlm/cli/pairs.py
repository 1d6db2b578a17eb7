"""`spanlm pairs RUN… PAIRS`."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from spanlm.cli.evaluation_report import departures, model_rows, run_field, unpredicted_first_words
from spanlm.cli.options import check_output, load_kenlm, load_runs, output, runs_and_files
from spanlm.cli.render import grid, note, out, out_json, table
from spanlm.data.tables import DELIMITERS, Kind, Row, RowNotes, read_table, repeated, row_line, table_kind
from spanlm.data.text import without_marks
from spanlm.data.tokenizer import refuse_reserved
from spanlm.errors import InputError
from spanlm.models.ops.precision import usable
from spanlm.scoring.ngram.kenlm import Kenlm
from spanlm.scoring.pairs import ANSWERS, Accuracy, Pair, accuracies, compare_pairs, regions_of
from spanlm.store.plain import cells_line

_PARADIGMS = ("UID", "paradigm", "condition")


def run(options: argparse.Namespace) -> None:
    runs, files = runs_and_files(options)
    if len(files) != 1:
        raise InputError(f"{' '.join(files) or 'pairs'}: name one file of pairs after the models")
    path = Path(files[0])
    check_output(options.out, [path])
    bad, ties = RowNotes(strict=options.strict), RowNotes("counted as a tie", options.strict)
    pairs = _read(path, options, bad)
    kind = (options.out and table_kind(options.out)) or "jsonl"
    if options.out is not None:
        _check_fields(path, pairs, kind, options.prefix)
    for pair in (pair for pair in pairs if pair.same and pair.regions is None):
        ties.add(f"{path}, line {pair.line}", f"both sentences are {pair.good!r}")
    model = (load_kenlm(runs[0], options) if len(runs) == 1 else None) or load_runs(runs, options)
    compared = compare_pairs(pairs, lambda texts: model.score_texts(texts, precision=options.precision)[0])
    if options.out is not None:
        with output(options.out) as file:
            if kind != "jsonl":
                file.write(cells_line(compared[0].to_json(options.prefix), DELIMITERS[kind]))
            for result in compared:
                row = result.to_json(options.prefix)
                if kind != "jsonl":
                    fields = {name: row.pop(name) for name in pairs[0].fields}
                    row = repeated(fields, kind) | row
                file.write(row_line(row, kind))
    by = options.by or next((name for name in _PARADIGMS if name in pairs[0].fields), None)
    groups = accuracies(compared, by) if by is not None else {}
    whole = Accuracy.of(compared)
    note(*bad.lines(), *ties.lines())
    if options.json:
        out_json(
            {
                **({"run": str(runs[0])} if isinstance(model, Kenlm) else run_field(model)),
                "file": path.name,
                "critical": options.critical,
                **({} if isinstance(model, Kenlm) else {"precision": usable(options.precision, model.model.device)}),
                "pairs": whole.to_json(),
                "left_out": len(bad.reasons),
                "by": by,
                "groups": {name: accuracy.to_json() for name, accuracy in groups.items()},
            }
        )
        return
    table([("model", f"{runs[0]}: KenLM's binary format")] if isinstance(model, Kenlm) else model_rows(model))
    out()
    header = [by or "", "pairs", "accuracy", "95 %", "ties", "with OOV", "of them right"]
    grid(header, [[name.replace("\n", "\\n"), *_cells(row)] for name, row in (*groups.items(), ("all", whole))])
    if options.critical is not None:
        out("Only the words of the critical region are compared.")
    if isinstance(model, Kenlm):
        return
    note(*unpredicted_first_words(model, "sentence counts nothing"), *departures(model))


def _read(path: Path, options: argparse.Namespace, bad: RowNotes) -> list[Pair]:
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file of pairs")
    kind = options.format or table_kind(path)
    if kind is None:
        raise InputError(f"{path}: say by --format csv, tsv or jsonl what it is; the name does not")
    regions: list[str] = [] if options.critical is None else options.critical.split(",")
    if len(regions) > 2 or "" in regions:
        raise InputError(f"--critical={options.critical}: must be one column, or two with a comma between them")
    keys = [*regions, *([options.by] if options.by else [])]
    pair = partial(_pair, options=options, columns=regions)
    return [*map(pair, read_table(path, kind, [options.good, options.bad], keys=keys, check=pair, bad=bad))]


def _check_fields(path: Path, pairs: list[Pair], kind: Kind, prefix: str) -> None:
    """Reject fields that the answers would overwrite and, for a table, rows with other columns than the first."""
    for pair in pairs:
        place = f"{path}, line {pair.line}"
        if clash := next((prefix + name for name in ANSWERS if prefix + name in pair.fields), None):
            raise InputError(f"{place}: --out writes a column {clash}, too; put another text before it by --prefix")
        if kind != "jsonl" and pair.fields.keys() != pairs[0].fields.keys():
            raise InputError(f"{place}: has other columns than the first row; take a name for --out with .jsonl")


def _pair(row: Row, options: argparse.Namespace, columns: list[str]) -> Pair:
    values, regions = row.values, None
    good, bad = _unmarked(values[options.good]), _unmarked(values[options.bad])
    if columns:
        wanted = [str(values[name]) for name in columns]
        regions = regions_of(good, bad, wanted[0], wanted[-1])
    return Pair(good, bad, regions, values, row.line)


def _unmarked(sentence: str) -> str:
    """Return a sentence without the <eos> at its end, which not every model leaves out by itself."""
    plain = without_marks(sentence, keep_marks=True)
    refuse_reserved(plain)
    return sentence if plain == sentence else plain.rstrip(" \v\f")


def _cells(counted: Accuracy) -> list[str]:
    low, high = counted.interval
    with_oov = f"{counted.oov_correct / counted.oov:.1%}" if counted.oov else ""
    accuracy = [f"{counted.accuracy:.1%}", f"{low:.1%} to {high:.1%}"]
    return [f"{counted.pairs:,}", *accuracy, f"{counted.ties}", f"{counted.oov:,}", with_oov]
