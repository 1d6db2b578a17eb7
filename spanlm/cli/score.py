"""`spanlm score RUN [FILE|- …]`."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict, fields
from itertools import chain, islice
from pathlib import Path

from spanlm.cli.evaluation_report import gate_note
from spanlm.cli.options import (
    add_as_text,
    add_attention,
    add_device,
    add_fields,
    add_gate,
    add_runs,
    field_values,
    load_runs,
    output,
    refuse_overwriting,
    runs_and_files,
    verb_parser,
)
from spanlm.cli.render import note
from spanlm.data.text import Text
from spanlm.evaluation.words import ScoreOptions, WordScore
from spanlm.store.plain import cells_line, finite

_DESCRIPTION = """
One row for every word: its surprisal −log p(word | context), the entropy of the distribution it was drawn from, its
rank in it, and whether the vocabulary has it. The first word of a line is scored from the line end before it (<eos>),
so no word is left out. Text is cut into words as the training text was, and lines into sentences if its lines were
(data.lines=sentences: a sentence then is what a line is to others); it streams, whatever its size.

A model that was trained on sentences of which the first word is only read (training.batching.predict_first=false) has
no distribution to draw that word from: its row has NaN for surprisal, entropy and rank (null in jsonl), with a note on
standard error. Each line stands alone there; --state has no other choice.

Rows are tab-separated; words that hold a quotation mark are quoted, as R (read.delim), pandas and spreadsheets read it.
Of several files the rows follow each other, and a first column (key, in jsonl) `file` names theirs; in each the context
begins anew and lines are numbered from 1.

  spanlm score runs/demo stimuli.txt --base 2 > surprisal.tsv
  echo "the name is bound ." | spanlm score runs/demo - --format jsonl
"""

BASES = {"2": 2.0, "e": math.e, "10": 10.0}
_UNSCORED = (
    "note: the first word of each line has no surprisal: in this model's training it was only read "
    "(training.batching.predict_first=false)"
)
COLUMNS = [field.name for field in fields(WordScore)]


def run(arguments: list[str]) -> None:
    """Score."""
    parser = verb_parser("score", _DESCRIPTION)
    add_runs(parser, "FILE", "text files [.gz]; - or nothing: standard input")
    add_device(parser)
    parser.add_argument("--format", choices=("tsv", "jsonl"), default="tsv")
    add_fields(parser, ScoreOptions, base={"type": str, "choices": tuple(BASES), "default": "2"})
    add_gate(parser)
    add_attention(parser)
    add_as_text(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: standard output")
    options = parser.parse_intermixed_args(arguments)
    runs, files = runs_and_files(options)
    texts = [Text(Path("/dev/stdin" if name == "-" else name), as_text=options.as_text) for name in files or ["-"]]
    refuse_overwriting(options.out, [text.path for text in texts])
    model = load_runs(runs, options)
    if not files and sys.stdin is not None and sys.stdin.isatty():
        note("reading standard input; end it with Ctrl-D")
    how = asdict(field_values(options, ScoreOptions, base=BASES[options.base]))
    names = [{"file": name} for name in files] if len(files) > 1 else [{}]
    rows = (name | vars(score) for name, text in zip(names, texts, strict=True) for score in model.score(text, **how))
    # before anything is written: a file that cannot be read leaves nothing behind; what is a pipe cannot be read twice
    for text in texts[1:]:
        if text.path.is_file() or text.path.is_dir() or not text.path.exists():
            next(model.texts.pieces(text), None)
    first = list(islice(rows, 1))
    unknown = False
    with output(options.out) as file:
        if options.format == "tsv":
            file.write(cells_line([*names[0], *COLUMNS]))
        for row in chain(first, rows):
            unknown = unknown or row["oov"]
            if options.format == "tsv":
                file.write(cells_line(map(cell, row.values())))
            else:
                file.write(json.dumps(finite(row), ensure_ascii=False, allow_nan=False) + "\n")
    unlearnt = [f"note: {line}" for line in model.texts.unk_notes()] if unknown else []
    for line in [*([] if model.texts.predict_first else [_UNSCORED]), *unlearnt, *gate_note(model)]:
        note(line)


def cell(value: object) -> object:
    """Return a value as a table has it: six decimals, 0 or 1 for a truth value, NaN for what is missing."""
    # NaN rather than an empty cell: R, pandas and float() all read it as a number
    if isinstance(value, float) and not math.isnan(value):
        return f"{value:z.6f}"  # z: nothing is ever minus zero
    return int(value) if isinstance(value, bool) else "NaN" if value is None or value != value else value
