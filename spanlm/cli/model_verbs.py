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
    parser.add_argument("--batch-size", type=int, metavar="N", help=text)
    parser.add_precision()
    text = "several runs: first find the weights that fit the valid part best (linear only)"
    parser.add_argument("--tune-weights", rare=True, action="store_true", help=text)
    text = "show also the perplexity over N words: the N - K that the vocabulary of K lacks share p(<unk>) equally"
    parser.add_argument("--vocab-pad", rare=True, type=int, metavar="N", help=text)
    parser.add_argument("--spell-unknown", action="store_true", help=SPELL_UNKNOWN)
    add_cache(parser)
    near: dict[str, Any] = {"k": {"option": "--neighbours", "dest": "neighbours", "metavar": "K", "rare": False}}
    near |= {"temperatures": {"option": "--neighbours-temperature", "metavar": "T"}}
    near |= {"lambdas": {"option": "--neighbours-lambda", "metavar": "λ"}}
    add_fields(parser, NeighboursGrid, prefix="neighbours", rare="nearest neighbours", **near)
    text = "let the weights follow the text, which is read as one stream (Krause et al., 2018); the defaults of η, λ "
    text += "and ε are those published for AWD-LSTM on Penn Treebank: `spanlm presets --json` has those of other models"
    parser.add_argument("--dynamic", action="store_true", help=text)
    changes: dict[str, Any] = {"epsilon": {"metavar": "ε"}, "tune": {"option": "--tune-dynamic", "rare": False}}
    changes |= {"rates": {"option": "--dynamic-rate", "metavar": "η"}}
    changes |= {"decays": {"option": "--dynamic-decay", "metavar": "λ"}}
    add_fields(parser, DynamicOptions, prefix="dynamic", rare="dynamic evaluation", **changes)
    text = "of a model with a span buffer: what the encoder and the buffer are worth alone, and how much it is used"
    parser.add_argument("--parts", rare=True, action="store_true", help=text)
    parser.add_gate()
    parser.add_attention()
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    text = "print as KenLM's query or SRILM's ngram -ppl does"
    parser.add_argument("--format", choices=("kenlm", "srilm"), metavar="kenlm|srilm", help=text)
    text = "of --format srilm: 1 prints each line, too, 2 each word, too (default: 0)"
    parser.add_argument("--debug", rare=True, type=int, choices=(0, 1, 2), help=text)
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
    table = parser.add_argument_group("tables")
    text = "score what is in this column"
    table.add_argument("--text", "--column", dest="column", metavar="COLUMN", help=text)
    text = "columns to repeat (default: all but the text's)"
    table.add_argument("--keep", metavar="COLUMN[,…]", help=text)
    text = "rows in succession that agree here are read as one line, as where each row is a word"
    table.add_argument("--line", metavar="COLUMN[,…]", help=text)
    text = "with --state carry: a new value begins a new context"
    table.add_argument("--document", metavar="COLUMN[,…]", help=text)
    text = "sort the rows of a line, or else of a document, by the numbers in these columns"
    parser.add_argument("--order", rare=True, metavar="COLUMN[,…]", help=text)
    text = "columns of a published table of reading times:"
    table.add_argument("--layout", choices=tuple(LAYOUTS), metavar="NAME", help=f"{text} {', '.join(LAYOUTS)}")
    text = "add columns for regressions: all, or some of length, frequency, position, …"
    table.add_argument("--predictors", metavar="NAME[,…]", help=text)
    text = "add surprisal and these, of the K words before"
    table.add_argument("--spillover", type=int, default=0, metavar="K", help=text)
    text = "a row a region (words that agree here): sums, means"
    table.add_argument("--region", metavar="COLUMN", help=text)
    text = f"of words, for --predictors: a table with a column word and a column {', '.join(UNITS)}"
    meaning = f"{text} (default: the training text)"
    parser.add_argument("--frequencies", rare="reading times", type=Path, metavar="FILE", help=meaning)
    text = "'' reads the rows of a --line without a space between two, as words of Chinese (default: a space)"
    parser.add_argument("--separator", rare="reading times", choices=("", " "), default=" ", metavar="TEXT", help=text)
    text = f"of a table: none, or some of {', '.join(REPAIRS)} (default: those of --layout)"
    parser.add_argument("--repair", rare="reading times", metavar="NAME[,…]", help=text)
    parser.add_row_options()
    text = "words as written, or what the model reads (default: words of tables, tokens of plain text)"
    parser.add_argument("--rows", choices=("words", "tokens"), help=text)
    text = "of the output (default: by --out, or the table's own; else tsv)"
    parser.add_argument("--format", choices=("csv", "tsv", "jsonl"), help=text)
    text = "what is read (default: by the file's name or first line; a table from standard input needs it)"
    parser.add_argument("--input", rare=True, choices=("csv", "tsv", "jsonl", "text"), help=text)
    base = {"type": str, "choices": tuple(BASES), "default": "2"}
    changes: dict[str, Any] = {name: {"rare": True} for name in ("spell_unknown", "oov", "eos", "precision")}
    add_fields(parser, ScoreOptions, base=base, **changes)
    parser.add_gate(texts=True)
    parser.add_attention()
    add_cache(parser, rare="neural cache")
    parser.set_defaults(tune_weights=False, corpus=None, data_dir=None, download=False, over_lines=False)
    parser.add_as_text()
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: standard output")
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
    parser.add_argument("--good", default="sentence_good", metavar="COLUMN", help="of the acceptable sentences")
    parser.add_argument("--bad", default="sentence_bad", metavar="COLUMN", help="of the others")
    text = "count pairs by this column, too (default: UID, paradigm or condition, if there)"
    parser.add_argument("--by", metavar="COLUMN", help=text)
    text = "compare a region alone: a column with its words, or the number of its word (4, 4-6), in both sentences; "
    parser.add_argument("--critical", metavar="COLUMN[,COLUMN]", help=f"{text}two columns: of the good, of the bad")
    parser.add_argument("--format", choices=("csv", "tsv", "jsonl"), help="of the pairs (default: by the file's name)")
    parser.add_gate(texts=True)
    parser.add_precision()
    parser.add_attention()
    text = "every pair with its log-probabilities (nats): .jsonl, .csv or .tsv"
    parser.add_argument("--out", type=Path, metavar="FILE", help=text)
    parser.add_row_options()
    parser.add_argument("--json", action="store_true", help="print the counts as one JSON object")
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
    parser.add_argument("run", metavar="RUN", nargs="+", type=Path, help=text)
    parser.add_device()
    parser.add_argument("--nbest", type=Path, required=True, metavar="FILE", help="the lists: a file, or a folder")
    parser.add_argument("--format", choices=get_args(Format), help="of the lists (default: found out)")
    parser.add_argument("--list-size", type=int, metavar="N", help="hypotheses a list; NeMo's files do not say it")
    text = "a line a list: `ID words`, or the words in their order; .trn, .stm, or a manifest of JSON lines"
    parser.add_argument("--refs", type=Path, metavar="FILE", help=text)
    text = "words that do not count, as noises: -pau-,[laugh]"
    parser.add_argument("--leave-out", type=lambda text: text.split(","), default=(), metavar="WORDS", help=text)
    text = "of scores by name, or the --json of a tuning; a score without one counts 1 (the list's own) or nothing"
    parser.add_argument("--weights", nargs="+", metavar="NAME=W|FILE", help=text)
    text = "search for the weights with the fewest word errors on these lists"
    parser.add_argument("--tune", action="store_true", help=text)
    parser.add_argument("--strict", action="store_true", help="refuse a bad row; else it is named and left out")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the best hypothesis of each list")
    parser.add_argument("--scores", type=Path, metavar="FILE", help="every hypothesis with all its scores, TSV or .csv")
    parser.add_argument("--nbest-out", type=Path, metavar="FILE", help="the lists, best first, in their format")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
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
    parser.add_argument("--out", type=Path, metavar="FILE", help="write a JSON object a line for every question")
    text = "what the questions ask for (default: NE, CN, V or P from a file's name)"
    parser.add_argument("--class", dest="word_class", metavar="NAME", help=text)
    parser.add_argument("--limit", type=int, metavar="N", help="of each file only the first N questions")
    parser.add_argument("--strict", action="store_true", help="stop at the first question that cannot be scored")
    add_fields(parser, ClozeOptions, "batch_size", "precision")
    parser.add_argument("--json", action="store_true", help="print the accuracies as one JSON object")
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
    parser.add_argument("--prompt", default="", metavar="TEXT", help="words to continue (default: start a line)")
    parser.add_argument("--samples", type=int, default=1, metavar="N", help="draw N texts, each under its number")
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
    parser.add_argument("runs", metavar="RUN", nargs="*", help="a run's folder, NAME.arpa[.gz] or hf:FOLDER")
    parser.add_argument("--port", type=int, default=8000, metavar="N", help="default: 8000; 0: any that is free")
    parser.add_argument("--host", default="127.0.0.1", metavar="NAME", help="where to listen (default: 127.0.0.1)")
    text = "ask for a token: TOKEN, or a new one; --host other than this machine needs it"
    parser.add_argument("--token", nargs="?", const="", metavar="TOKEN", help=text)
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
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
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help=text)
    parser.add_device()
    parser.add_corpus()
    text = "a word's context: the whole split, its document, its line (default: as the models were trained)"
    parser.add_state(text)
    text = "models of different vocabularies: compare them at the words that all know"
    parser.add_argument("--words", choices=("common",), help=text)
    text = "models of different vocabularies: compare them at every written word; unknown ones cost their spelling, too"
    parser.add_argument("--spell-unknown", action="store_true", help=text)
    text = "parts of speech: a file with the text's lines, each word as word_TAG"
    parser.add_argument("--tags", type=Path, metavar="FILE", help=text)
    text = "the average of all runs' probabilities (linear) as one model more"
    parser.add_argument("--combine", rare=True, choices=("linear",), help=text)
    parser.add_attention()
    add_cache(parser)
    text = "compare answers to these questions; can be given again"
    parser.add_argument("--questions", action="append", type=Path, metavar="FILE", help=text)
    context: dict[str, Any] = {"option": "--context", "action": "append", "nargs": None}
    settings = {"contexts": context, "batch_size": {"option": "--batch-size"}, "precision": {"option": "--precision"}}
    add_fields(parser, ClozeOptions, prefix="cloze", rare="questions", **settings)
    text = "tables (.md, .tex), the classes (.svg, .png, .pdf, .csv), or the words that gain and lose most (.html)"
    parser.add_argument("--out", type=Path, metavar="FILE", help=text)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
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
    lengths = {**shown, "metavar": "N", "help": "the numbers n of words that stay as they are (default 1 to 200)"}
    add_fields(parser, ContextOptions, positions=shown, lengths=lengths, far=shown, seed={"rare": True})
    parser.add_precision(rare=True)
    parser.add_gate()
    parser.add_argument("--out", type=Path, metavar="FILE", help="a figure (.svg, .png, .pdf) or a table (.csv)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
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
    parser.add_argument("runs", metavar="RUN", type=Path, nargs="+", help=text)
    parser.add_device()
    parser.library_names |= {"start": "--from", "length": "--words"}
    group = parser.add_argument_group("what to read, one of")
    group.add_argument("--text", help="this text")
    group.add_argument("--file", type=Path, help="this file: plain text, or a table")
    group.add_argument("--column", metavar="COLUMN", help="of a table (CSV, TSV, JSON lines): this column")
    group.add_argument("--sentence", action="append", metavar="WORDS", help="this sentence; can be given again")
    group.add_argument("--document", type=int, metavar="N", help="document N of a split of a corpus; the first is 1")
    text = "a split, from the line that holds this token; the first is 1; with --document, a token of that"
    group.add_argument("--from", type=int, metavar="TOKEN", help=text)
    group.add_argument("--by-lag", action="store_true", help="a whole split, for mean attention by lag")
    group.add_argument("--flatness", action="store_true", help="a whole split, for how equal the weights are")
    group.add_argument("--by-epoch", action="store_true", help="a span buffer's use while its run was trained")
    group.add_argument("--live", action="store_true", help="what you type into a page (.html)")
    parser.add_argument("--words", type=int, metavar="N", help=f"how much of --document or --from (default: {WORDS})")
    text = f"how many of the most probable next words to show (default: {EXPECTED}; of a span buffer, for each part, "
    text += f"{EXPECTED_OF_PART})"
    parser.add_argument("--top", type=int, metavar="N", rare=True, help=text)
    text = "a word's context: all that is read, its line or its document (default: line; of a corpus as in training)"
    parser.add_argument("--state", choices=("carry", "line", "document"), help=text)
    text = "of a run of characters, bytes or pieces: what the model reads, or words as written (default: tokens)"
    parser.add_argument("--rows", choices=("words", "tokens"), help=text)
    parser.add_gate(texts=True)
    parser.add_row_options(prefix=False, default=None)
    parser.add_corpus()
    text = (
        "a page (.html), a figure (.svg, .png, .pdf), data (.csv, .npz, .json) or a table (.md); which: see --help all"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help=text)
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
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="folders of runs, or of families of runs")
    units = ("tokens", "epochs", "steps", "seconds")
    parser.add_argument("--by", choices=units, default="tokens", help="the horizontal axis (default: tokens)")
    text = ".svg, .png or .pdf (default curves.svg)"
    parser.add_argument("--out", type=Path, default=Path("curves.svg"), metavar="FILE", help=text)
    return parser.read(arguments)
