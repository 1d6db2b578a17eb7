"""What verbs that read trained models are asked. No torch here: help and wrong options are answered at once."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, get_args

from spanlm.cli.parser import Parser, add_cache, add_fields
from spanlm.cli.predictors import names_of_predictors
from spanlm.data.layouts import LAYOUTS, REPAIRS
from spanlm.errors import InputError, require
from spanlm.rescoring.formats import Format
from spanlm.scoring.options import (
    BASES,
    EXPECTED,
    EXPECTED_OF_PART,
    SPELL_UNKNOWN,
    ClozeOptions,
    ContextOptions,
    DynamicOptions,
    GenerationOptions,
    NeighboursGrid,
    ReadingOptions,
    ScoreOptions,
)
from spanlm.scoring.predictors import PREDICTORS, UNITS

EVALUATE = """
Perplexity of a trained model: exp(total NLL / predicted tokens), with every token of the split predicted exactly
once, <eos> counted, and words outside the vocabulary predicted as <unk>. A table has it without <unk>, without <eos>,
by word, by character and by byte, too.

  spanlm evaluate runs/demo
  spanlm evaluate runs/demo --cache 500 --tune-cache
  spanlm evaluate runs/demo --dynamic --tune-dynamic
  spanlm evaluate runs/demo --neighbours 64
  spanlm evaluate runs/spans --parts
  spanlm evaluate runs/family/seed-1 runs/family/seed-2 --tune-weights
  spanlm evaluate hf:models/gpt2 --corpus test.txt

Several runs are evaluated side by side in one pass: each alone, all as one (an ensemble), and the oracle bound, which
is what the best of them at each token would give and no model's perplexity.
"""
MORE_EVALUATE = """
A cache looks at the last words of the text for situations like now, and gives what followed them a share of the
probability (Grave et al., 2017). It is empty wherever --state begins anew, but goes on over lines. The
perplexity without it is shown, too; of several runs, which have one cache together, each run's is without it.

Neighbours are the states of the training text most similar to the present one; what followed them gets a share of the
probability (Khandelwal et al., 2020). All states are written once to the cache folder, as many bytes as 2 times their
size for each word. The perplexity without neighbours is shown, too.

Dynamic evaluation lets a copy of the weights go on learning from the text, each word after it was predicted (Krause et
al., 2018). It needs to know how large each weight's gradients were on the training text; that is found out once, for
each --gate-temperature, and kept in the run's folder. --tune-dynamic looks for the rates on the valid part; stopped,
the same command goes on with the trials that it had finished. The perplexity with the trained weights throughout is
shown, too.

A model with a span buffer mixes two predictions (Li et al., 2020). --parts shows each of them alone, the bound that no
choice between them passes, both mixed by the gate without its temperature and equally, and how often the gate prefers
the buffer (PoU) and the buffer is better (oracle PoU), from the same pass; with --dynamic those of the weights that
follow the text. --gate-temperature evaluates the same weights with another temperature of the gate than the run's (the
paper's "w/o annealing in test" is 1).

--spell-unknown gives a word outside the vocabulary p(<unk>) times p(spelling), by Kneser-Ney of order 6 over the
characters of the words that the training text has once. Bits per word, character and byte are then of an open
vocabulary, and stand beside those of models of sub-words, characters or bytes. An <unk> in the text itself costs no
spelling.

hf:FOLDER is a causal model of Hugging Face as a yardstick: what counts are words between white space and line ends, so
its numbers per word and per character stand beside a run's on the same text (extra `hf`; nothing is fetched).

--format prints what KenLM's `query` or SRILM's `ngram -ppl` (without -unk) prints, of runs and ARPA files alike. Each
line is read alone, from <s>, which is <eos> to a run, to </s>. Of a run the number after = is the word's place in the
vocabulary, from 1, and the one after that says how many words of the line were read, <s> and the word itself included.
"""


def evaluate(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("evaluate", EVALUATE, more=MORE_EVALUATE)
    parser.add_runs()
    parser.add_corpus()
    text = "a word's context: the whole split, its document, its line (default: as the model was trained)"
    parser.add_state(text)
    text = "streams side by side (default: as many as change nothing; 1 for one stream of text)"
    parser.add("--batch-size", text, int)
    parser.add_precision()
    text = "several runs: first find the weights that fit the valid part best (linear only)"
    parser.add("--tune-weights", text, bool, rare=True)
    text = "show also the perplexity over N words: the N - K that the vocabulary of K lacks share p(<unk>) equally"
    parser.add("--vocab-pad", text, int, rare=True)
    parser.add("--spell-unknown", SPELL_UNKNOWN, bool)
    add_cache(parser)
    near: dict[str, Any] = {"k": {"option": "--neighbours", "dest": "neighbours", "metavar": "K", "rare": False}}
    near |= {"temperatures": {"option": "--neighbours-temperature", "metavar": "T"}}
    near |= {"lambdas": {"option": "--neighbours-lambda", "metavar": "λ"}}
    add_fields(parser, NeighboursGrid, prefix="neighbours", rare="nearest neighbours", **near)
    text = "let the weights follow the text, which is read as one stream (Krause et al., 2018); the defaults of η, λ "
    text += "and ε are those published for AWD-LSTM on Penn Treebank: `spanlm presets --json` has those of other models"
    parser.add("--dynamic", text, bool)
    changes: dict[str, Any] = {"epsilon": {"metavar": "ε"}, "tune": {"option": "--tune-dynamic", "rare": False}}
    changes |= {"rates": {"option": "--dynamic-rate", "metavar": "η"}}
    changes |= {"decays": {"option": "--dynamic-decay", "metavar": "λ"}}
    add_fields(parser, DynamicOptions, prefix="dynamic", rare="dynamic evaluation", **changes)
    text = "of a model with a span buffer: what the encoder and the buffer are worth alone, and how much it is used"
    parser.add("--parts", text, bool, rare=True)
    parser.add_gate()
    parser.add_attention()
    parser.add("--json", "print one JSON object", bool)
    text = "print as KenLM's query or SRILM's ngram -ppl does"
    parser.add("--format", text, choices=("kenlm", "srilm"), metavar="kenlm|srilm")
    text = "of --format srilm: 1 prints each line, too, 2 each word, too (default: 0)"
    parser.add("--debug", text, int, rare=True, choices=(0, 1, 2), metavar=None)
    return parser.read(arguments)


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
    lists = {"--predictors": PREDICTORS, "--layout, before which other options go": layouts, "--repair": REPAIRS}
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
    parser.set_defaults(tune_weights=False, corpus=None, data_dir=None, download=False, over_lines=False)
    parser.add_as_text()
    parser.add("--out", "default: standard output", Path)
    options = parser.read(arguments)
    options.as_text = options.as_text or options.input == "text"
    _check_words(options)
    of_table, line = options.column or options.layout, options.line or options.layout
    names = "keep", "line", "document", "order", "region", "repair"
    if of_table is None and (table_options := [name for name in names if vars(options)[name] is not None]):
        raise InputError(f"--{table_options[0]}: is for tables; say by --text which column holds the text")
    if of_table is not None and options.as_text:
        option = "layout" if options.column is None else "text"
        raise InputError(f"--{option}={of_table}: is for tables, and --input text (--as-text) reads plain text")
    if options.document is not None and options.state == "line":
        each = "each row" if line is None else "each line"
        raise InputError(f"--document={options.document}: {each} is a context of its own; add --state carry")
    if options.order is not None and line is None and options.state == "line":
        raise InputError(f"--order={options.order}: each row is a context of its own; add --line or --state carry")
    if options.line is not None and options.rows == "tokens":
        raise InputError(f"--line={options.line}: words as written find their rows again; leave out --rows tokens")
    if of_table is not None and options.document is None and options.state == "document":
        raise InputError("--state=document: say by --document COLUMN what a document is, or take --state carry")
    return options


def _check_words(options: argparse.Namespace) -> None:
    """Refuse what is for written words beside tokens, and what does not go together."""
    names_of_predictors(options)
    require(options.spillover >= 0, "--spillover", options.spillover, "at least 0")
    given = [name for name in ("predictors", "spillover", "region", "layout") if vars(options)[name]]
    plain = options.column is None and options.layout is None
    if given and options.rows != "words" and (plain or options.rows == "tokens"):
        way = "Add --rows words" if plain else "Leave --rows tokens out"
        raise InputError(f"--{given[0]}", vars(options)[given[0]], "is for words as they are written", way)
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
    parser.add("--attention", text, _names, default=(), metavar="HOW[,…]")
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
    parser.add("--format", "of the lists (default: found out)", choices=get_args(Format))
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


GENERATE = """
Continue a prompt, word by word. Where the model ends a line (<eos>), a line ends.

  spanlm generate runs/demo --prompt "the name" --length 100
  spanlm generate runs/demo --prompt "the name" --temperature 0.8 --top-p 0.9
  spanlm generate runs/demo --prompt "the name" --samples 5 --length 20
"""
MORE_GENERATE = """
The prompt is cut into words as the training text was, and into sentences if its lines were (data.lines=sentences); a
line end in it is <eos>.

At a line end the model keeps its state and memory, unless it was trained on independent sentences
(training.batching.kind=sentences): then both are emptied, and only the last line of the prompt is read. A model that
does not predict first words (training.batching.predict_first=false) needs a prompt, and stops at the end of its line.

Of --samples N, text 1 has the words of --seed alone, text 2 those of the next seed, and so on.
"""


def generate(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("generate", GENERATE, more=MORE_GENERATE)
    parser.add_runs(hf=False)
    parser.add("--prompt", "words to continue (default: start a line)", default="", metavar="TEXT")
    parser.add("--samples", "draw N texts, each under its number", int, default=1)
    add_fields(parser, GenerationOptions)
    parser.add_gate(texts=True)
    return parser.read(arguments)


SERVE = """
A page to play with trained models, in your browser: type a text and see how surprising each word is and where the model
looked; let it write, and choose among its candidates; put runs side by side. Needs the extra serve. With no run it is
the demo, which is trained first if runs/demo is not there.

  spanlm serve
  spanlm serve runs/kvp runs/lstm --open
  spanlm serve runs/kvp --host 0.0.0.0 --token

Programs ask the same under /api; the page /schema says how.
"""
MORE_SERVE = """
Only this machine can reach it, unless --host names another address: then everything under /api needs the token, which
is printed once as part of the page's address. Models and texts stay on this machine, and nothing is written but the
demo's run. Traffic is not encrypted: on a network that you do not trust, use a tunnel (ssh -L) in place of --host.
"""


def serve(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("serve", SERVE, more=MORE_SERVE)
    parser.add("runs", "a run's folder, NAME.arpa[.gz] or hf:FOLDER", metavar="RUN", nargs="*")
    parser.add("--port", "default: 8000; 0: any that is free", int, default=8000)
    parser.add("--host", "where to listen (default: 127.0.0.1)", default="127.0.0.1", metavar="NAME")
    text = "ask for a token: TOKEN, or a new one; --host other than this machine needs it"
    parser.add("--token", text, nargs="?", const="", metavar="TOKEN")
    parser.add("--open", "open the page in the browser", bool)
    parser.add_device()
    return parser.read(arguments)


COMPARE = """
Is one model better than another, by how much, how surely, and at which words? The first run is the baseline. Each other
is compared with it at every token of one text: the difference in bits, its 95 % interval, and p, how often a
difference as large would come by chance. Negative: the run is better than the baseline.

  spanlm compare runs/demo/lstm runs/demo
  spanlm compare runs/demo --attention none
  spanlm compare runs/demo --cache 500 --tune-cache
  spanlm compare runs/lstm runs/kvp --cache 500 --tune-cache
  spanlm compare runs/lstm runs/kvp --out where.svg
  spanlm compare kn5.arpa runs/kvp --out words.html
  spanlm compare runs/lstm runs/kvp --questions cbtest_NE_test_2500ex.txt

A folder with seed-1, seed-2 and so on, as --seeds of `spanlm train` makes it, is a family: one model in several seeds,
of which the text and the seeds are both drawn anew. One run alone is compared with itself, changed by --attention or
--cache; of several, each has a cache.

With --questions, answers to cloze questions are compared in place of tokens: accuracies as of `spanlm cloze`, the
difference in points (positive: the run is better), its interval, and p of McNemar's exact test.
"""
MORE_COMPARE = """
Questions: those that every run can score are compared, in all and by the class in a file's name (NE, CN, V, P).
Questions are drawn with replacement for the interval; p is of discordant questions, those that one of the two runs
alone has right.

Interval: the text's documents, or blocks of it, are drawn with replacement (a paired bootstrap: both models read each).
Of families: seeds are drawn, too, from Student's distribution around their mean. p is the interval's: below 0.05 where
it is without 0. Classes of words are many, so that one in twenty has an interval without 0 by chance alone.

--tune-cache: each model has the θ and λ that fit it best, and a family those of its first seed. With --combine, the
runs are one without their caches, and have one cache together.

Words: by how often they stand in the baseline's training text; by how far back they last stood in the same text or
document; by their place in line and document; and, of a model with attention, by where it looked most. --tags has
the text's lines with each word as word_TAG. --words common compares models of different vocabularies at the words that
both know; they share out their probability over different words, so that the smaller vocabulary has it easier.
--spell-unknown compares them, and models that cut words differently, at every written word and line end, with the sum
of log p over a word's tokens; words outside a vocabulary cost their spelling, as in `spanlm evaluate`.
"""


def compare(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("compare", COMPARE, more=MORE_COMPARE)
    text = "a run's folder, one with seed-1 and so on (a family), NAME.arpa[.gz] or hf:FOLDER; the first: the baseline"
    parser.add("runs", text, Path, metavar="RUN", nargs="+")
    parser.add_device()
    parser.add_corpus()
    text = "a word's context: the whole split, its document, its line (default: as the models were trained)"
    parser.add_state(text)
    text = "models of different vocabularies: compare them at the words that all know"
    parser.add("--words", text, choices=("common",))
    text = "models of different vocabularies: compare them at every written word; unknown ones cost their spelling, too"
    parser.add("--spell-unknown", text, bool)
    parser.add("--tags", "parts of speech: a file with the text's lines, each word as word_TAG", Path)
    text = "the average of all runs' probabilities (linear) as one model more"
    parser.add("--combine", text, rare=True, choices=("linear",))
    parser.add_attention()
    add_cache(parser)
    parser.add("--questions", "compare answers to these questions; can be given again", Path, action="append")
    context: dict[str, Any] = {"option": "--context", "action": "append", "nargs": None}
    settings = {"contexts": context, "batch_size": {"option": "--batch-size"}, "precision": {"option": "--precision"}}
    add_fields(parser, ClozeOptions, prefix="cloze", rare="questions", **settings)
    text = "tables (.md, .tex), the classes (.svg, .png, .pdf, .csv), or the words that gain and lose most (.html)"
    parser.add("--out", text, Path)
    parser.add("--json", "print one JSON object", bool)
    parser.set_defaults(tune_weights=False, precision="fp32")
    return parser.read(arguments)


CONTEXT = """
How much context does a model use, and what of it? Words before a target are taken away, shuffled, thinned out or
replaced beyond the last n, for several n, and the loss is compared with that with the whole context (Khandelwal et al.,
2018). The effective context length is the n beyond which no more than 1 % of the gain over no context is left, lengths
aside at which more may be left by chance.

  spanlm context runs/demo --split valid
  spanlm context runs/kvp --lengths 1 2 5 10 20 --far 50 --out context.svg

Of a model with a memory, encoder and memory are emptied apart, too: what is left when only one of them has read more
than the last n words?
"""


def context(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("context", CONTEXT)
    parser.add_runs(hf=False)
    parser.add_corpus()
    text = "a word's whole context: the split before it, its document, its line (default: as the model was trained)"
    parser.add_state(text)
    shown = {"rare": ""}
    lengths = {**shown, "meaning": "the numbers n of words that stay as they are (default 1 to 200)"}
    add_fields(parser, ContextOptions, positions=shown, lengths=lengths, far=shown, seed={"rare": True})
    parser.add_precision(rare=True)
    parser.add_gate()
    parser.add("--out", "a figure (.svg, .png, .pdf) or a table (.csv)", Path)
    parser.add("--json", "print one JSON object", bool)
    return parser.read(arguments)


WORDS = 60
"""Of a stretch of a corpus to attend to, unless --words says another number."""

ATTEND = """
Where the model looked.

  spanlm attend runs/demo --text "the name is bound ." --out look.html
  spanlm attend runs/demo --file chapter.txt --out look.csv
  spanlm attend runs/demo --file stimuli.csv --column sentence --out look.csv
  spanlm attend runs/kv runs/kvp --by-lag --split valid --out lags.svg
  spanlm attend runs/single --sentence "the law which he wrote was long ."
  spanlm attend runs/demo --live --out page.html

Of one text, a file, or a stretch of the corpus the run was trained on: a page (.html, one self-contained file:
hover a word), a figure (.svg, .png, .pdf) or data (.csv, .npz). It is read alone, and so is each line of a text or a
file, as in `spanlm score`, unless --state says so.

Words are cut as in the training text, and lines into sentences if its lines were (data.lines=sentences). Write them as
it does: Penn Treebank is lower case, with N for numbers and 's and n't apart.
"""
MORE_ATTEND = """
  spanlm attend runs/demo --document 3 --words 60 --out article.svg
  spanlm attend runs/demo --by-lag --split valid --out lags.svg
  spanlm attend runs/single runs/combined --flatness --split valid
  spanlm attend runs/single runs/combined --sentence "the law was long ." --out maps.svg
  spanlm attend runs/spans --from 5000 --words 600 --out spans.html
  spanlm attend runs/spans --by-epoch --out use.svg

With --live, a page (.html) with the weights of the run inside: in a browser, without server or network, it reads what
you type. It computes LSTMs with a key-value, an attentive or no memory and a softmax.

With --by-lag, mean attention by distance over a whole split: a table, and (--out) a figure, data (.csv, .json) or .md.
Several runs stand side by side, each with what the paper printed. Of a memory that holds the whole sentence the nearest
15 words are told apart, what is older is one number. A table of more than 50 lags has groups of them.

With --sentence, a map of weights: a row for each predicted word, a column for each word before it. Each sentence is
read alone, and every run that is named has a panel beside the others (.svg, .png, .pdf, .csv, .json; of one run .html).
Without --out the largest weights of each word are printed. With --flatness, how equal the weights are over a whole
split: a table, and (--out) .csv or .json.

A model with a span buffer looks at spans of several words. Of a text its last word is printed: which spans had the
largest weights, and what the buffer, the encoder and both expected. Of every word the page (.html) and .json have that;
.csv has a row for every span that a word looked at, and the gate, λ before its temperature. --flatness and --by-lag (by
a span's last word) are of spans, too; by lag only runs whose spans have one length stand beside each other. With
--by-epoch, how often its gate preferred the buffer on valid after each epoch, and how often the buffer was better: a
table, and (--out) a figure or data, also of a run that is still in training.
"""


def attend(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("attend", ATTEND, more=MORE_ATTEND)
    text = "the folder of a trained run; several with --sentence, --by-lag, --flatness, --by-epoch"
    parser.add("runs", text, Path, metavar="RUN", nargs="+")
    parser.add_device()
    parser.library_names |= {"start": "--from", "length": "--words"}
    group = "what to read, one of"
    parser.add("--text", "this text", group=group)
    parser.add("--file", "this file: plain text, or a table", Path, group=group)
    parser.add("--column", "of a table (CSV, TSV, JSON lines): this column", metavar="COLUMN", group=group)
    parser.add("--sentence", "this sentence; can be given again", action="append", metavar="WORDS", group=group)
    parser.add("--document", "document N of a split of a corpus; the first is 1", int, group=group)
    text = "a split, from the line that holds this token; the first is 1; with --document, a token of that"
    parser.add("--from", text, int, metavar="TOKEN", group=group)
    parser.add("--by-lag", "a whole split, for mean attention by lag", bool, group=group)
    parser.add("--flatness", "a whole split, for how equal the weights are", bool, group=group)
    parser.add("--by-epoch", "a span buffer's use while its run was trained", bool, group=group)
    parser.add("--live", "what you type into a page (.html)", bool, group=group)
    parser.add("--words", f"how much of --document or --from (default: {WORDS})", int)
    text = f"how many of the most probable next words to show (default: {EXPECTED}; of a span buffer, for each part, "
    text += f"{EXPECTED_OF_PART})"
    parser.add("--top", text, int, rare=True)
    text = "a word's context: all that is read, its line or its document (default: line; of a corpus as in training)"
    parser.add("--state", text, choices=("carry", "line", "document"))
    text = "of a run of characters, bytes or pieces: what the model reads, or words as written (default: tokens)"
    parser.add("--rows", text, choices=("words", "tokens"))
    parser.add_gate(texts=True)
    parser.add_row_options(prefix=False, default=None)
    parser.add_corpus()
    text = (
        "a page (.html), a figure (.svg, .png, .pdf), data (.csv, .npz, .json) or a table (.md); which: see --help all"
    )
    parser.add("--out", text, Path)
    return parser.read(arguments)


PLOT = """
Draw learning curves: the perplexity of valid after each epoch, and of train in it, from the runs' metrics.jsonl. A run
may still be in training. A folder that holds runs, as --seeds of `spanlm train` makes it, is one curve with a band; of
one that `spanlm sweep` or `reproduce` made, each run or family is a curve.

  spanlm plot runs/demo --out curves.svg
  spanlm plot runs/lstm runs/kvp --by seconds --out curves.png
"""


def plot(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("plot", PLOT)
    parser.add("runs", "folders of runs, or of families of runs", Path, nargs="+", metavar="RUN")
    units = ("tokens", "epochs", "steps", "seconds")
    parser.add("--by", "the horizontal axis (default: tokens)", choices=units, default="tokens")
    parser.add("--out", ".svg, .png or .pdf (default curves.svg)", Path, default=Path("curves.svg"))
    return parser.read(arguments)
