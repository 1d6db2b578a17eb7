"""What verbs that read words, sentences or questions of the user are asked. No torch here, as in `model_verbs`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spanlm.cli.parser import Attention, Parser, add_cache, add_fields
from spanlm.cli.predictors import names_of_predictors
from spanlm.data.layouts import LAYOUTS, REPAIRS
from spanlm.errors import InputError, require
from spanlm.rescoring.formats import Format
from spanlm.scoring.options import BASES, ClozeOptions, ReadingOptions, ScoreOptions
from spanlm.scoring.predictors import PREDICTORS, UNITS

SCORE = """
Surprisal −log p(word | context) of every word, the entropy of the distribution it was drawn from, its rank in it, and
whether the vocabulary has it. Text is cut into words as the training text was, and lines into sentences if its lines
were (data.lines=sentences: a sentence then is what a line is to others); it streams, whatever its size.

  spanlm score runs/demo stimuli.csv --text sentence --out surprisal.csv
  spanlm score runs/demo text.txt --base 2 > surprisal.tsv
  echo "the name is bound ." | spanlm score runs/demo - --format jsonl

Of a table (CSV, TSV, JSON lines) each row is an item, by default a context of its own. Each word of it as written gives
a row with its place, its tokens, its entropy reduction and the item's own columns, and so for each of several runs
(column `run`). Of plain text each token gives a row, and several runs are one.
"""
MORE_SCORE = """
The first word of a line is scored from the line end before it (<eos>), so no word is left out. A model that was trained
on sentences of which the first word is only read (training.batching.predict_first=false) has no distribution to draw
that word from: its row has NaN for surprisal, entropy and rank (null in jsonl), with a note on standard error. Each
line stands alone there; --state has no other choice.

Beside --out of a table OUT.meta.json says how the numbers were made, and what each column is. The kind that comes out
is that of --format, of --out's name, or of the table that was read; else TSV. Several runs of a table are one if
--combine or --weights is given; with --rows words plain text is treated as a table of lines.

A row that cannot be used (an empty cell, a number where text is needed) is left out, and a note names its line. Where a
table has a column that is called as one that is written, such as `word`, --prefix lm_ writes `lm_word`, `lm_surprisal`.

A neural cache (--cache) begins anew where the context does: at each line or item; with --state document, at each
document; with --state carry, at each file. Entropy and rank are then NaN (null). --tune-cache reads valid likewise.

Words that hold a quotation mark are quoted, as R (read.delim, read.csv), pandas and spreadsheets read it. Of several
files the rows follow each other, and a first column (key, in jsonl) `file` names theirs; in each the context begins
anew and lines are numbered from 1.
"""


def _score_more() -> str:
    layouts = {name: layout.description for name, layout in LAYOUTS.items()}
    lists = {
        "--predictors": PREDICTORS,
        "--layout (your options take precedence)": layouts,
        "--repair": REPAIRS,
    }
    paragraphs = [MORE_SCORE]
    for option, meanings in lists.items():
        paragraphs += [f"The words of {option}:", *(f"{name}: {text}." for name, text in meanings.items())]
    return "\n\n".join(paragraphs)


def score(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("score", SCORE, more=_score_more)
    parser.add_runs("FILE", "text files or tables [.gz]; - or nothing: standard input")
    parser.add("--text --column", "score what is in this column", dest="column", metavar="COLUMN", group="tables")
    parser.add("--keep", "columns to repeat (default: all but the text's)", metavar="COLUMN[,…]", group="tables")
    text = "rows in succession that agree here are read as one line, as where each row is a word"
    parser.add("--line", text, metavar="COLUMN[,…]", group="tables")
    text = "with --state carry: a new value begins a new context"
    parser.add("--document", text, metavar="COLUMN[,…]", group="tables")
    text = "sort the rows of a line, or else of a document, by the numbers in these columns"
    parser.add("--order", text, rare=True, metavar="COLUMN[,…]")
    text = "columns of a published table of reading times:"
    parser.add("--layout", f"{text} {', '.join(LAYOUTS)}", choices=tuple(LAYOUTS), metavar="NAME", group="tables")
    text = "add columns for regressions: all, or some of length, frequency, position, …"
    parser.add("--predictors", text, metavar="NAME[,…]", group="tables")
    text = "add surprisal and these, of the K words before"
    parser.add("--spillover", text, int, default=0, metavar="K", group="tables")
    parser.add("--region", "a row a region (words that agree here): sums, means", metavar="COLUMN", group="tables")
    text = f"of words, for --predictors: a table with a column word and a column {', '.join(UNITS)}"
    parser.add("--frequencies", f"{text} (default: the training text)", Path, rare="reading times")
    text = "'' reads the rows of a --line without a space between two, as words of Chinese (default: a space)"
    parser.add("--separator", text, rare="reading times", choices=("", " "), default=" ", metavar="TEXT")
    text = f"of a table: none, or some of {', '.join(REPAIRS)} (default: those of --layout)"
    parser.add("--repair", text, rare="reading times", metavar="NAME[,…]")
    parser.add_row_options()
    text = "words as written, or what the model reads (default: words of tables, tokens of plain text)"
    parser.add("--rows", text, choices=("words", "tokens"))
    text = "of the output (default: by --out, or the table's own; else tsv)"
    parser.add("--format", text, choices=("csv", "tsv", "jsonl"))
    text = "what is read (default: by the file's name or first line; a table from standard input needs it)"
    parser.add("--input", text, rare=True, choices=("csv", "tsv", "jsonl", "text"))
    base = {"type": str, "choices": tuple(BASES), "default": "2"}
    changes: dict[str, Any] = {name: {"rare": True} for name in ("spell_unknown", "oov", "eos", "precision")}
    add_fields(parser, ScoreOptions, base=base, **changes)
    parser.add_gate(texts=True)
    parser.add_attention()
    add_cache(parser, rare="neural cache")
    parser.add("--data-dir", "where corpora are (default: $SPANLM_DATA)", rare=True, metavar="DIR")
    parser.set_defaults(tune_weights=False, corpus=None, download=False, over_lines=False)
    parser.add_as_text()
    parser.add("--out", "default: standard output", Path)
    options = parser.read(arguments)
    options.as_text = options.as_text or options.input == "text"
    _check_words(options)
    _check_columns(options)
    return options


def _check_columns(options: argparse.Namespace) -> None:
    """Refuse columns of a table beside plain text, and contexts that do not fit the columns."""
    of_table, line = options.column or options.layout, options.line or options.layout
    for name in ("keep", "line", "document", "order", "region", "repair"):
        if of_table is None and vars(options)[name] is not None:
            raise InputError(f"--{name}: is for tables; say by --text which column holds the text")
    if of_table is not None and options.as_text:
        option = "layout" if options.column is None else "text"
        raise InputError(f"--{option}={of_table}: is for tables, and --input text (--as-text) reads plain text")
    if options.document is not None and options.state == "line":
        unit = "row" if line is None else "line"
        raise InputError(f"--document={options.document}: each {unit} is a context of its own; add --state carry")
    if options.order is not None and line is None and options.state == "line":
        raise InputError(f"--order={options.order}: each row is a context of its own; add --line or --state carry")
    if options.line is not None and options.rows == "tokens":
        raise InputError(f"--line={options.line}: words as written find their rows again; leave out --rows tokens")
    if of_table is not None and options.document is None and options.state == "document":
        raise InputError("--state=document: say by --document COLUMN what a document is, or take --state carry")


def _check_words(options: argparse.Namespace) -> None:
    """Refuse what is for written words beside tokens, and what does not go together."""
    names_of_predictors(options)
    require(options.spillover >= 0, "--spillover", options.spillover, "at least 0")
    of_words = [name for name in ("predictors", "spillover", "region", "layout") if vars(options)[name]]
    plain = options.column is None and options.layout is None
    if of_words and options.rows != "words" and (plain or options.rows == "tokens"):
        way = "Add --rows words" if plain else "Leave --rows tokens out"
        raise InputError(f"--{of_words[0]}", vars(options)[of_words[0]], "is for words as they are written", way)
    if options.separator == "" and options.line is None and options.layout is None:
        raise InputError("--separator=''", limit="is for rows that are words of a line", way_out="Add --line COLUMN")
    if options.region is not None and options.eos:
        raise InputError("--eos", limit="a line end is in no --region", way_out="Leave one of them out")


READING = """
How much better are reading times predicted with a model's surprisal than without it? Two linear models, a baseline and
the same with surprisal of the word and of the words before it, are fit to all texts but some, and predict those: Δ is
what the surprisal adds to the log-likelihood of a word. Several runs, families of seeds, n-grams and models of Hugging
Face stand side by side.

  spanlm reading runs/demo times.csv --response RT --subject reader --item text
  spanlm reading runs/lstm runs/kvp kn5.arpa times.csv --response RT --item text
  spanlm reading runs/kvp times.csv --response RT --windows 1,2,5,10,all
  spanlm reading runs/kvp times.csv --response RT --subject reader --r fit

A row of the table is a word, and a reader of it. Each text is scored once, however many have read it.
"""
MORE_READING = """
Predictors and surprisal are those of the word and of the --spillover words before it, never across a line. Frequencies
are counted in the first run's training text, or read from --frequencies. Readings are left out, and counted: without a
time, skipped (time 0), first and last of a line, without K words before them in their line, and beyond 3 standard
deviations of the subject's mean. Words outside a vocabulary stay in, unless --exclude names unknown.

Times are means over subjects, fit by ordinary least squares. --subjects random fits each reading with a random
intercept by subject, the variances by restricted maximum likelihood, as lme4 does. Δ is in nats, and of items that the
fit has not seen; to fit a useless surprisal costs a little, so that Δ is then a bit below 0. Intervals are of items
drawn anew, each draw fit anew, without this cost. Coefficients are of all items.

--windows W reads each word after the last W tokens of its context alone, from an empty state; `all` is the whole
context. --attention adds the same run with a lesion of its memory.
"""


def reading(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("reading", READING, more=MORE_READING)
    text = "a run's folder, one with seed-1 and so on (a family), NAME.arpa[.gz] or hf:FOLDER"
    parser.add("runs", text, Path, metavar="RUN", nargs="+")
    parser.add("table", "a table (CSV, TSV, JSON lines), a row a word and reader", Path, metavar="TABLE")
    parser.add_device()
    settings: dict[str, Any] = {name: {"metavar": "COLUMN"} for name in ("text", "response", "subject")}
    settings |= {name: {"metavar": "COLUMN[,…]"} for name in ("item", "line", "order")}
    settings |= {"baseline": {"metavar": "NAME[,…]"}, "spillover": {}, "subjects": {}}
    settings = {name: {"rare": "", **more} for name, more in settings.items()}
    settings["exclude"] = {"metavar": "NAME[,…]"}
    add_fields(parser, ReadingOptions, rare="models of times", **settings)
    text = f"columns of a published table: {', '.join(LAYOUTS)} (`spanlm help score`)"
    parser.add("--layout", text, choices=tuple(LAYOUTS), metavar="NAME")
    text = "words and their frequencies, for the baseline (default: the first run's training text)"
    parser.add("--frequencies", text, Path)
    text = "read each word after its last W tokens alone, too: 1,2,5,10,all"
    parser.add("--windows", text, _names, default=(), metavar="W[,…]")
    text = "add the runs with a lesion of their memory: some of uniform, none, window=K"
    parser.add("--attention", text, _names, default=(), action=Attention, metavar="HOW[,…]")
    text = "a word's context: its item (document) or its line (default: as the model was trained)"
    parser.add("--state", text, rare=True, choices=("document", "line"))
    parser.add_row_options(prefix=False)
    text = "write the readings, and an R script that fits the same models, to this folder"
    parser.add("--r", text, Path, metavar="DIR")
    parser.add("--out", "a table (.csv, .json), or Δ over perplexity or windows (.svg, .png, .pdf)", Path)
    parser.add("--json", "print one JSON object", bool)
    options = parser.read(arguments)
    for name in options.windows:
        limit = "whole numbers of at least 1, or all, as in 1,2,5,10,all"
        require(name == "all" or (name.isdecimal() and int(name) > 0), "--windows", name, limit)
    options.windows = [None if name == "all" else int(name) for name in options.windows]
    return options


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text.split(",")))


PAIRS = """
Minimal pairs: is the good sentence of each pair more probable than the bad one? A sentence's log-probability is the
sum over its words and its line end, each sentence read by itself. Equal ones are a wrong answer.

  spanlm pairs runs/demo pairs.jsonl --out answers.jsonl
  spanlm pairs runs/demo pairs.csv --good yes --bad no --by condition
  spanlm pairs runs/demo pairs.csv --critical region
  spanlm pairs kn5.arpa pairs.jsonl

The pairs are a row each of a CSV or TSV file with a line of names, or of JSON lines, as those of BLiMP
(sentence_good, sentence_bad, UID). Pairs with a word outside the vocabulary are counted apart, too: there both
sentences may hold the same <unk>.
"""


def pairs(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("pairs", PAIRS)
    parser.add_runs("PAIRS", "a file of pairs")
    parser.add("--good", "of the acceptable sentences", default="sentence_good", metavar="COLUMN")
    parser.add("--bad", "of the others", default="sentence_bad", metavar="COLUMN")
    text = "count pairs by this column, too (default: UID, paradigm or condition, if there)"
    parser.add("--by", text, metavar="COLUMN")
    text = "compare a region alone: a column with its words, or the number of its word (4, 4-6), in both sentences; "
    parser.add("--critical", f"{text}two columns: of the good, of the bad", metavar="COLUMN[,COLUMN]")
    parser.add("--format", "of the pairs (default: by the file's name)", choices=("csv", "tsv", "jsonl"))
    parser.add_gate(texts=True)
    parser.add_precision()
    parser.add_attention()
    parser.add("--out", "every pair with its log-probabilities (nats): .jsonl, .csv or .tsv", Path)
    parser.add_row_options()
    parser.add("--json", "print the counts as one JSON object", bool)
    return parser.read(arguments)


RESCORE = """
n-best lists of speech recognition or translation: score every hypothesis with language models, weight the scores, and
take the best of each list.

  spanlm rescore runs/kvp --nbest dev.nbest --refs dev.txt --tune
  spanlm rescore runs/kvp --nbest test.nbest --weights kvp=0.6 words=1.2

The score of a hypothesis is its own (or its own scores, each), log p by each model, and its number of words, each with
a weight; --tune searches for those with the fewest word errors against --refs. Tune on other lists than you report.
Formats: Moses, Kaldi, SRILM (plain, NBestList1.0), ESPnet folders, NeMo TSV, JSON lines; found out by themselves.
"""
MORE_RESCORE = """
Every score is a natural logarithm: SRILM's log10 and bytelogs are converted, Kaldi's costs negated. A list's
hypotheses are scored each by itself, from the beginning of a line; what several have in common at their beginning is
read once. The search moves one weight at a time, and sums of them, to the middle of the interval with the fewest
errors (Och, 2003); the first score keeps the weight 1. With one other weight it finds the fewest errors that there are,
with more a local optimum, the best of 8 starts. Intervals of error rates are those of 2,000 draws of lists.

References are read as text, NIST's .trn (of alternatives { a / b / @ } the best counts) and .stm, or manifests of JSON
lines (audio_filepath's name or id, utt; text). Words to --leave-out are in no score and in no error, but are written.

--out has a line a list: `ID words`, or, of Moses and NeMo lists, which have numbers alone, the words. --nbest-out has
all hypotheses in the format that was read, best first, with the models' scores and the new total.
"""


def rescore(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("rescore", RESCORE, more=MORE_RESCORE)
    text = "a trained run's folder, an n-gram model, NAME.arpa[.gz] or KenLM's, or hf:FOLDER"
    parser.add("run", text, Path, metavar="RUN", nargs="+")
    parser.add_device()
    parser.add("--nbest", "the lists: a file, or a folder", Path, required=True)
    parser.add("--format", "of the lists (default: found out)", Format)
    parser.add("--list-size", "hypotheses a list; NeMo's files do not say it", int)
    text = "a line a list: `ID words`, or the words in their order; .trn, .stm, or a manifest of JSON lines"
    parser.add("--refs", text, Path)
    text = "words that do not count, as noises: -pau-,[laugh]"
    parser.add("--leave-out", text, lambda text: text.split(","), default=(), metavar="WORDS")
    text = "of scores by name, or the --json of a tuning; a score without one counts 1 (the list's own) or nothing"
    parser.add("--weights", text, nargs="+", metavar="NAME=W|FILE")
    parser.add("--tune", "search for the weights with the fewest word errors on these lists", bool)
    parser.add("--strict", "refuse a bad row; else it is named and left out", bool)
    parser.add("--out", "the best hypothesis of each list", Path)
    parser.add("--scores", "every hypothesis with all its scores, TSV or .csv", Path)
    parser.add("--nbest-out", "the lists, best first, in their format", Path)
    parser.add("--json", "print one JSON object", bool)
    parser.add_precision()
    parser.add_gate(texts=True)
    # a noise word may begin as an option does
    for place in reversed([place for place, word in enumerate(arguments[:-1]) if word == "--leave-out"]):
        arguments = [*arguments[:place], "=".join(arguments[place : place + 2]), *arguments[place + 2 :]]
    return parser.read(arguments)


CLOZE = """
Cloze questions in the format of the Children's Book Test: how often does the model put the right word into the gap?
Candidates are ranked by two scores, side by side: "sentence" is the log-probability of the whole query sentence with
the candidate in it, "candidate" that of the candidate at its place. An answer is right only if it scores higher than
every other candidate. Words outside the vocabulary are read and scored as <unk>.

  spanlm cloze runs/cbt cbtest_NE_test_2500ex.txt --out ranks.jsonl
  spanlm cloze runs/cbt questions.txt.gz --context full --context query

A question that cannot be scored is reported with its line and left out: a query without XXXXX, fewer than two
candidates, an answer that is none of them, no candidate in the vocabulary, a missing line; or, if the model predicts no
first words (training.batching.predict_first=false), a gap that comes first.
"""


def cloze(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("cloze", CLOZE)
    parser.add_runs("QUESTIONS", "files [.gz]; - is standard input", hf=False)
    parser.add_attention()
    context: dict[str, Any] = {"option": "--context", "action": "append", "nargs": None, "default": None}
    add_fields(parser, ClozeOptions, "contexts", contexts=context)
    parser.add("--out", "write a JSON object a line for every question", Path)
    text = "what the questions ask for (default: NE, CN, V or P from a file's name)"
    parser.add("--class", text, dest="word_class", metavar="NAME")
    parser.add("--limit", "of each file only the first N questions", int)
    parser.add("--strict", "stop at the first question that cannot be scored", bool)
    add_fields(parser, ClozeOptions, "batch_size", "precision")
    parser.add("--json", "print the accuracies as one JSON object", bool)
    return parser.read(arguments)
