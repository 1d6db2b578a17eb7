"""What `spanlm attend` can be asked for: its options, and which of them go together."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from spanlm.analysis.export import (
    ATTENTION_SUFFIXES,
    FLATNESS_SUFFIXES,
    LAG_SUFFIXES,
    SENTENCE_SUFFIXES,
    SPAN_SUFFIXES,
    UTILISATION_SUFFIXES,
    checked_suffix,
    listed,
)
from spanlm.analysis.figures import FIGURES
from spanlm.analysis.figures import check_lags as check_lags
from spanlm.analysis.figures import check_utilisation as check_utilisation
from spanlm.cli.arguments import add_corpus, add_device, verb_parser
from spanlm.cli.attended_text import MOST_WORDS, WORDS
from spanlm.cli.gate import GATE, add_gate, check_gate
from spanlm.cli.main import VerbParser
from spanlm.errors import InputError, require
from spanlm.evaluation.attention import EXPECTED
from spanlm.evaluation.spans import EXPECTED_OF_PART

_DESCRIPTION = """
Where the model looked.

  spanlm attend runs/demo --text "the name is bound ." --out look.html
  spanlm attend runs/demo --file chapter.txt --out look.csv
  spanlm attend runs/demo --document 3 --words 60 --out article.svg
  spanlm attend runs/demo --by-lag --split valid --out lags.svg
  spanlm attend runs/kv runs/kvp --by-lag --split valid --out lags.svg
  spanlm attend runs/single --sentence "the law which he wrote was long ."
  spanlm attend runs/single runs/combined --flatness --split valid

Of one text, a file, or a stretch of the corpus the run was trained on: a page (.html, one self-contained file:
hover a word), a figure (.svg, .png, .pdf) or data (.csv, .npz). It is read alone: nothing is known of what is before.
Nor does a line of a text or a file know of the others, as in `spanlm score`, unless --state says so.

Words are cut as in the training text. Write them as it does: Penn Treebank is lower case, with N for numbers and 's
and n't apart.
"""
_MORE = """
  spanlm attend runs/single runs/combined --sentence "the law was long ." --out triangles.svg
  spanlm attend runs/spans --from 5000 --words 600 --out spans.svg
  spanlm attend runs/spans --by-epoch --out use.svg

With --by-lag, mean attention by distance over a whole split: a table, and (--out) a figure, data or a Markdown
table. Several runs stand side by side, each with what the paper printed. Of a memory that holds the whole sentence the
nearest 15 words are told apart, what is older is one number. A table of more than 50 lags has groups of them.

With --sentence, a triangle of weights: a row for each predicted word, a column for each word before it. Each sentence
is read alone, and every run that is named has a panel beside the others; printed where there is no --out (.svg, .png,
.pdf, .csv, .json). With --flatness, how equal the weights are over a whole split: a table, and (--out) .csv or .json.

A model with a span buffer looks at spans of several words. What is printed of a text is which of them had the largest
weights when its last word was guessed, and what the buffer, the encoder and both expected there; a figure (.svg, .png,
.pdf) shows the same, the whole buffer and the steps before it. The page (.html) and .json have it of every word; .csv
has a row for every span that a word looked at, and the gate, λ before its temperature. Of spans, too, --flatness tells
how equal their weights are, and --by-lag which get them, by the lag of a span's last word; beside each other by lag
stand only runs whose spans have one length and grid. With --by-epoch, how often its gate preferred the buffer on valid
after each epoch of training, and how often the buffer was better: a table, and (--out) a figure or data. A run that is
still in training can be looked at, too. Every .json file has the command, the commit and the time that made it.

Words are cut as in the training text, and lines into sentences if its lines were (data.lines=sentences). Write them as
it does: Penn Treebank is lower case, with N for numbers and 's and n't apart.
"""

CHECKS: dict[str, tuple[tuple[str, ...], Callable[[int], object]]] = {
    "--by-lag": (LAG_SUFFIXES, check_lags),
    "--flatness": (FLATNESS_SUFFIXES, id),
    "--by-epoch": (UTILISATION_SUFFIXES, check_utilisation),
    "--sentence": (SENTENCE_SUFFIXES, id),
}
"""What several runs can stand side by side with, what it is written to, and the check of how many a figure can hold."""


def parsed_options(arguments: list[str]) -> argparse.Namespace:
    """Parse the options; `what` names the one that says what to read.

    Raises:
        InputError: options that are none, or that do not go together, or a file that cannot be written; what a text can
            be written to depends on the model, and is checked by `require_out`.
    """
    options = _parser().parse_args(arguments)
    options.what = _what(options)
    _check_words(options)
    _check_corpus(options)
    if options.what not in CHECKS and len(options.runs) > 1:
        *others, last = CHECKS
        raise InputError(
            f"{len(options.runs)} runs: {options.what} takes one; several stand side by side with {', '.join(others)} "
            f"and {last}"
        )
    for name, value in ((GATE, options.gate_temperature), ("--top", options.top), ("--state", options.state)):
        if options.what in CHECKS and value is not None:
            raise InputError(
                f"{name}: changes nothing that {options.what} shows; it is for a text, --document or --from"
            )
    require(options.top is None or options.top >= 1, "--top", options.top, "at least 1")
    check_gate(options, len(options.runs))
    if options.what in CHECKS and options.out is not None:
        suffixes, check_drawable = CHECKS[options.what]
        if checked_suffix(options.out, suffixes) in FIGURES:
            check_drawable(len(options.runs))
    return options


def require_out(options: argparse.Namespace) -> None:
    """Refuse to write the attention of a text nowhere, or where it cannot be."""
    if options.out is None:
        raise InputError(f"--out is missing: name a file that ends in {listed(ATTENTION_SUFFIXES)}")
    checked_suffix(options.out, ATTENTION_SUFFIXES)


def _parser() -> VerbParser:
    parser = verb_parser("attend", _DESCRIPTION, more=_MORE)
    parser.add_argument(
        "runs",
        metavar="RUN",
        type=Path,
        nargs="+",
        help=f"the folder of a trained run; several with {', '.join(CHECKS)}",
    )
    add_device(parser)
    what = parser.add_argument_group("what to read, one of")
    what.add_argument("--text", help="this text")
    what.add_argument("--file", type=Path, help="this file")
    what.add_argument("--sentence", action="append", metavar="WORDS", help="this sentence; can be given again")
    what.add_argument("--document", type=int, metavar="N", help="document N of a split of a corpus; the first is 1")
    what.add_argument(
        "--from",
        dest="start",
        type=int,
        metavar="TOKEN",
        help="a split, from the line that holds this token; the first is 1; with --document, a token of that",
    )
    what.add_argument("--by-lag", action="store_true", help="a whole split, for mean attention by lag")
    what.add_argument("--flatness", action="store_true", help="a whole split, for how equal the weights are")
    what.add_argument("--by-epoch", action="store_true", help="a span buffer's use while its run was trained")
    parser.add_argument("--words", type=int, metavar="N", help=f"how much of --document or --from (default: {WORDS})")
    parser.add_argument(
        "--top",
        type=int,
        metavar="N",
        rare=True,
        help=f"how many of the most probable next words to tell (default: {EXPECTED}; of a span buffer, for each part, "
        f"{EXPECTED_OF_PART}, which are all that its figure has room for)",
    )
    parser.add_argument(
        "--state",
        choices=("carry", "line", "document"),
        help="a word's context: all that is read, its line or its document (default: line; of a corpus as in training)",
    )
    add_gate(parser)
    add_corpus(parser)
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help=f"{listed(ATTENTION_SUFFIXES)}; by lag {listed(LAG_SUFFIXES)}; of sentences {listed(SENTENCE_SUFFIXES)}; "
        f"of flatness {listed(FLATNESS_SUFFIXES)}; of spans {listed(SPAN_SUFFIXES)}; "
        f"by epoch {listed(UTILISATION_SUFFIXES)}",
    )
    return parser


def _what(options: argparse.Namespace) -> str:
    """Return what is asked for, of --document with --from the former."""
    named = {
        "--text": options.text is not None,
        "--file": options.file is not None,
        "--sentence": options.sentence is not None,
        "--by-lag": options.by_lag,
        "--flatness": options.flatness,
        "--document": options.document is not None,
        "--from": options.start is not None,
        "--by-epoch": options.by_epoch,
    }
    given = [name for name, there in named.items() if there]
    if not given:
        raise InputError(f"one of {' '.join(named)} is required (see `spanlm attend --help`)")
    if len(given) > 1 and given != ["--document", "--from"]:
        raise InputError(f"{' and '.join(given)} do not go together: take one (or --document with --from)")
    return given[0]


def _check_words(options: argparse.Namespace) -> None:
    """Refuse a length of what has none."""
    if options.words is None:
        return
    if options.what not in ("--document", "--from"):
        raise InputError(f"--words={options.words}: is for --document and --from, not for {options.what}")
    if not 1 <= options.words <= MOST_WORDS:
        raise InputError(f"--words={options.words}: must be from 1 to {MOST_WORDS:,}")


def _check_corpus(options: argparse.Namespace) -> None:
    """Refuse a corpus where none is read."""
    for name, value in (("corpus", options.corpus), ("split", options.split)):
        if options.what == "--by-epoch" and value is not None:
            raise InputError(f"--{name}={value}: --by-epoch reads no text, but what the run told of its own valid")
        if options.what in ("--text", "--file", "--sentence") and value is not None:
            raise InputError(f"--{name}={value}: is not read beside {options.what}, which is the text")
