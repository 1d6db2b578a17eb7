"""What verbs that read trained models are asked. No torch here: help and wrong options are answered at once."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from spanlm.cli.parser import Parser, add_cache, add_fields
from spanlm.scoring.options import (
    EXPECTED,
    EXPECTED_OF_PART,
    SPELL_UNKNOWN,
    ClozeOptions,
    ContextOptions,
    DynamicOptions,
    GenerationOptions,
    NeighboursGrid,
    State,
)

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
al., 2018). It needs to know how large each weight's gradients were on the training text; that is found out once (anew
for another --gate-temperature) and kept in the run's folder. --tune-dynamic looks for the rates on the valid part;
stopped, the same command goes on with the trials that it had finished. The perplexity with the trained weights
throughout is shown, too.

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
    parser.add("--state", text, State, default="auto")
    text = "streams side by side (default: as many as change nothing; 1 for one stream of text)"
    parser.add("--batch-size", text, int)
    parser.add_precision()
    text = "several runs: first find the weights that fit the valid part best"
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
    parser.add("--state", text, State, default="auto")
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
    parser.add("--state", text, State, default="auto")
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

Words are cut as in the training text, and lines into sentences if its lines were (data.lines=sentences). A model of ptb
or wikitext-2 reads them as its corpus is written (she doesn't: she does n't), unless --as-written is given.
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
