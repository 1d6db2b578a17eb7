"""What verbs that train, time and export are asked. No torch here: help and wrong options are answered at once."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from spanlm.cli.parser import Parser, add_fields, keep_freed_memory
from spanlm.cli.presets import read_listing
from spanlm.cli.render import out
from spanlm.data.config import CORPORA
from spanlm.errors import InputError, as_written, nearest
from spanlm.options import leaves
from spanlm.papers.request import Request
from spanlm.training.config import BenchOptions

BENCH = """
Time the training of presets, or of configurations in files, on this machine and on the corpus they name: a step, an
epoch and its validation, in float32 and in bfloat16, and the memory of a step. --operations shows where the time of a
step goes.

Times are medians over steps from a whole epoch. Averaged weights (training.optimizer.kind=nt_asgd), which begin in a
later epoch, make steps longer. Nothing is written.

  spanlm bench merity2018/awd-ptb yang2018/mos-ptb --operations 10
  spanlm bench daniluk2017/kvp-w5 --corpus wikitext-2
  spanlm bench mine.yaml --rounds 50
"""


def bench(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("bench", BENCH)
    text = "a published row (`spanlm presets` lists them), or a YAML file as `spanlm train --print_config` writes it"
    parser.add("names", text, nargs="*", metavar="PRESET|FILE")
    parser.add_device()
    add_fields(parser, BenchOptions, "rounds", "operations")
    parser.add("--corpus", "train all on this corpus (default: each on its own)", metavar="NAME|PATH")
    parser.add_as_text()
    parser.add("--data-dir", "where corpora are (default: $SPANLM_DATA)", metavar="DIR")
    parser.add("--json", "print one JSON object", bool)
    return parser.read(arguments)


EXPORT = """
Write a trained model in the format of another library. hf: a folder with model, tokenizer and model card (README.md)
for Hugging Face's transformers.

  spanlm export runs/demo --to hf --out demo-hf
  spanlm export runs/demo/revisions/1M --out demo-1M

The tokenizer puts <eos> before each text, so that its first word is scored. The folder holds no model code: in Python
`import spanlm.interop.hf` registers the classes, or trust_remote_code=True does. Needs the extra hf.
"""


def export(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("export", EXPORT)
    parser.add("run", "folder of a run", Path, metavar="RUN")
    parser.add("--to", "the library (default: hf)", choices=("hf",), default="hf")
    parser.add("--out", "a new folder", Path, required=True, metavar="DIR")
    return parser.read(arguments)


PRESETS = """
The rows of published tables that `spanlm train NAME` trains, with their sizes at the paper's vocabulary and the
perplexities the paper printed.

  spanlm presets
  spanlm presets daniluk2017
  spanlm presets daniluk2017/kvp-w5

On another corpus the embedding and the softmax have another size: `--match-parameters` keeps the comparison fair
there.
"""


def presets(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("presets", PRESETS, computes=False)
    parser.add("filter", "a preset, or a part of the names", nargs="?", default="", metavar="FILTER")
    parser.add("--json", "print a JSON list, one object a preset", bool)
    parser.add("--out", "write the list as a table (.md, .tex), too", Path)
    return parser.read(arguments)


DATA = f"""
Make a corpus of Wikipedia articles as Daniluk et al. (2017) describe theirs. Whole articles go to train, valid and
test, 22.5 to 1.2 to 1.2 by words. They are cut into sentences and words (Penn Treebank conventions, case kept); numbers
become N, words outside the vocabulary <unk>, and a blank line follows every article.

  spanlm data wikipedia --source wiki/ --out wiki-corpus
  spanlm data wikipedia --source enwiki.xml.bz2 --like daniluk2017 --out daniluk
  spanlm data wikipedia --source enwiki.xml.bz2 --category births --out people
  spanlm train daniluk2017/kvp-w5 --corpus wiki-corpus

--like daniluk2017 takes the first articles on people, cities, countries, universities and novels, 1,500 of each: the
paper has 7,500 articles of these five categories, and gives no shares. A category that the sources lack stays smaller,
and the counts are printed. WikiExtractor leaves categories out: give a dump, or add the field category. --articles N
takes N in place of 7,500.

The same command continues a stopped build: finished sources are kept, and the interrupted source starts again. The
corpus appears when it is complete, with its counts, options and sources in DIR/corpus.json and its articles in
DIR/articles.tsv. Nothing is downloaded; the extra wiki is needed. Published corpora need no making:
{", ".join(CORPORA)} (`spanlm train demo --corpus ptb`).
"""


def data(arguments: list[str]) -> argparse.Namespace:
    from spanlm.data.wikipedia import WikipediaConfig  # for this verb alone

    arguments = arguments or ["--help"]
    corpus = arguments[0]
    if corpus != "wikipedia" and not corpus.startswith("-"):
        raise InputError(f"{f'data {corpus}'.strip()}: no corpus that can be made.{nearest(corpus, ['wikipedia'])}")
    parser = Parser("data", DATA, computes=False)
    parser.add_argument("corpus", metavar="wikipedia", help=argparse.SUPPRESS)
    changes: dict[str, Any] = {"sources": {"option": "--source", "metavar": "PATH"}, "out": {"metavar": "DIR"}}
    changes |= {"category": {"metavar": "REGEX"}, "on": {"metavar": "ray[:ADDRESS]"}}
    add_fields(parser, WikipediaConfig, **changes)
    parser.add("--cut-only", "only cut the sources into words, as each task of --on does", bool, rare=True)
    return parser.read(arguments)


# --- many trainings ---

SWEEP = """
Train many settings of a model: every combination of a grid, or a list, over a preset. Runs are named by what differs;
at the end there are a table, sweep.csv, a figure and the best by valid.

  spanlm sweep lr.yaml --dry-run
  spanlm sweep lr.yaml --jobs 4
  spanlm sweep lr.yaml --on ray:auto --jobs 4 --gpus-per-run 0.25
  spanlm sweep lr.yaml --print-slurm > lr.sh

lr.yaml, whose other keys are config (a YAML file), runs (a list of groups of fields), match_parameters (as in `spanlm
train`) and out (the folder):

  preset: zaremba2014/medium
  corpus: ptb
  seeds: 3
  grid: {training.optimizer.lr: [0.5, 1, 2], model.memory.kind: [none, ngram]}

Each run is `spanlm train … --resume auto`: the same command goes on after a stop, passes over what is finished, and
can be given on several machines that share the folder. A run that fails does not stop the others.
"""
MORE_SWEEP = """
With both runs and grid, every run of the list is trained at every point of the grid. A run that another process
trains is passed over and looked at again; one that was killed is started again. On Ray so is a run whose worker or
machine is lost, from its last checkpoint. All machines need one disk: a task on one that does not see it fails.
"""


def sweep(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("sweep", SWEEP, more=MORE_SWEEP)
    parser.add("file", "a YAML file, as above", Path)
    parser.add_engine()
    parser.add("--dry-run", "print the runs, and the table of those that are done", bool)
    parser.add("--print-slurm", "print a script for sbatch: an array with a task for each run", bool)
    parser.add_as_text()
    parser.add("--out", "write the last table to a file (.md, .tex), too", Path)
    return parser.read(arguments)


REPRODUCE = """
Run the tables of a paper again: every row one after another, at matched parameters where the paper matches them, then
one Markdown page and one figure a table, measured and published side by side.

  spanlm reproduce daniluk2017 --scale smoke
  spanlm reproduce daniluk2017 --table 2c --corpus wikitext-2 --dry-run
  spanlm reproduce salton2017 --table 1 --scale small
  spanlm reproduce li2020 --corpus ptb --scale small --jobs 2

Finished runs are skipped and unfinished ones go on, so the same command can be given again at any time; a row that
fails does not stop the others.
"""
MORE_REPRODUCE = """
With --jobs N, N trainings run at a time, each as `spanlm train --resume auto` on its share of the threads (all share a
GPU); then N measurements of one model run at a time. The last rows of a table take longest and begin first. Small
models cannot use many threads, so several at a time finish sooner. Speeds and minutes in the tables are those of one
share.

No choice depends on the test part. It is read for the perplexity of every run and for how sure differences are, and
once more for every row that evaluates a trained model in another way: with a cache, with dynamic evaluation, or in an
ensemble. Such rows share trainings, and their settings are chosen on valid. A row whose dynamic evaluation diverged
stays failed: its record, named after the row under --out, lists the settings that were tried. Delete it to try the row
again.
"""


def reproduce(arguments: list[str]) -> argparse.Namespace:
    parser = Parser("reproduce", REPRODUCE, more=_of_papers)
    text = "whose tables: daniluk2017, salton2017, li2020, yardstick (texts with a known law) or neighbours (beside "
    text += "newer encoders)"
    parser.add("paper", text, metavar="PAPER")
    shown = {"scale": "NAME", "table": "NAME", "corpus": "NAME|PATH", "seeds": "N", "rows": "ROW"}
    shown |= {"runs": "DIR", "out": "DIR", "data_dir": "DIR", "questions": "FILE"}
    changes: dict[str, dict[str, Any]] = {name: {"metavar": metavar} for name, metavar in shown.items()}
    changes["questions"]["rare"] = True
    names = (field.name for field in fields(Request)[1:])
    add_fields(parser, Request, *names, prefix="", rare="", **changes)
    parser.add_engine(rare="runs on Ray")
    parser.add("--no-tables", "train and measure only, as each of --jobs does", bool, rare=True)
    parser.add("--dry-run", "print the plan, sizes and an estimate of the time", bool)
    return parser.read(arguments)


def _of_papers() -> str:
    from spanlm.papers.registry import PAPERS  # loads torch: only for all of the help

    more = [MORE_REPRODUCE]
    for paper in PAPERS.values():
        tables = "; ".join(f"{table.name}: {table.subject}" for table in paper.tables)
        scales = "; ".join(f"{scale.name}: {scale.purpose}" for scale in paper.scales)
        more.append(f"{paper.name}, --table {tables}; --scale {scales}.")
    return "\n\n".join(more)


# --- training ---

_GROUPS = "data", "model", "training", "ngram"

Fields = dict[str, str]
"""Options that are fields of the configuration: full name → value as it was typed."""

TRAIN = """
Train a language model. With nothing else: a small Key-Value-Predict model on the embedded corpus, in about a minute.

  spanlm train
  spanlm train daniluk2017/kvp-w5 --corpus ptb --match-parameters LSTM300
  spanlm train my-text.txt --epochs 5
  spanlm train ngram --order 5 --corpus ptb
  spanlm train --out runs/demo --resume auto
  spanlm train daniluk2017/kvp-w5 --corpus ptb --seeds 8 --jobs 2

On CPU a resumed run ends with the same weights, bit for bit, as one that was never stopped.
Every field of the configuration is an option, too (--training.epochs 5, --model.memory='{kind: ngram, order: 3}');
`--print_config` shows them all as YAML, `--config FILE` reads that.
"""

SHORT = {
    "--epochs": ("training.epochs", "N", "passes over the text, at most"),
    "--seed": ("training.seed", "N", "seed of the weights and of all random draws"),
    "--lr": ("training.optimizer.lr", "RATE", "the learning rate at first"),
    "--batch-size": ("training.batching.batch_size", "N", "streams, or sentences, side by side"),
    "--hidden-size": ("model.encoder.hidden_size", "N", "units of each layer of the encoder"),
    "--memory": ("model.memory.kind", "KIND", "the memory: none, key_value, ngram, attentive, …"),
    "--precision": ("training.precision", "P", "fp32, bf16, or tf32 (on a GPU)"),
    "--device": ("training.device", "NAME", "auto (a GPU if there is one), cpu or cuda"),
    "--tokenizer": ("data.tokenizer", "NAME", "whitespace, words, characters, bytes, bpe or unigram"),
    "--data-dir": ("data.dir", "DIR", "where corpora are (default: $SPANLM_DATA)"),
}
"""Options that are short for a field of the configuration: its name, the metavariable, the help."""


def train(arguments: list[str]) -> argparse.Namespace:
    """Return the verb's own options and, as `fields`, the fields of the configuration that are options, too."""
    ngram = is_ngram(arguments)
    if ngram:
        parser, short = Parser("train ngram", NGRAM, computes=False), NGRAM_SHORT
        keep_freed_memory()
    else:
        parser, short = Parser("train", TRAIN, help_action="store"), SHORT
    others, fields = split_fields(arguments, short)
    parser.set_defaults(ngram=ngram, fields=fields)
    parser.add("names", "a row of `spanlm presets`; a file, folder or corpus", nargs="*", metavar="PRESET|TEXT")
    parser.add("--corpus", f"{', '.join(['demo', *CORPORA])}; a folder, a file", metavar="NAME|PATH")
    for option, (field, metavar, meaning) in short.items():
        parser.add(option, f"{meaning} ({field})", metavar=metavar)
    parser.add("--out", "the run's folder (default: the next free in runs/)", Path, metavar="DIR")
    if not ngram:
        _add_training(parser)
    parser.add("--print_config", "print the configuration as YAML and stop", bool)
    parser.add_as_text()
    options = parser.read(others)
    if not ngram and options.help not in (None, "all"):
        out(f"{parser.help_text(everything=False)}It shows every field of the configuration, too.")
        parser.exit()
    return options


def _add_training(parser: Parser) -> None:
    """Add what a training is asked that the counting of n-grams is not."""
    parser.elsewhere = _fields_of_runs
    parser.add("--resume", "auto: go on from the last checkpoint, if any", choices=("auto", "never"), default="never")
    parser.add("--seeds", "train N runs, of training.seed and the seeds after it, in DIR/seed-1, DIR/seed-2, …", int)
    text = "choose the hidden size so that θ_M (parameters without word representations) is this number, or that of "
    text += "a one-layer LSTM with n units"
    parser.add("--match-parameters", text, metavar="LSTMn|NUMBER")
    parser.add("--config", "read the configuration from YAML", Path)
    text = "write numbers and a generated text to this tracker, too"
    parser.add("--track", text, rare=True, choices=("tensorboard", "wandb", "trackio"))
    text = "then test it beside a same-size LSTM, generate lines, draw the attention page (default: of the demo alone)"
    parser.add_argument("--tour", action=argparse.BooleanOptionalAction, help=text)
    parser.add_engine(rare="runs on Ray")


def _fields_of_runs() -> list[str]:
    from spanlm.config import RunConfig  # loads torch: only for the nearest name of a wrong option

    return [f"--{name}" for name, _, _ in leaves(RunConfig())]


def is_ngram(arguments: list[str]) -> bool:
    """Whether an operand, not the value of an option (`--memory ngram`), is the preset of an n-gram model."""
    names = [row["name"] for row in read_listing() if not row["units"]]  # of a network
    flags = ("--print_config", "--as-text")
    return any(
        name in names and (before in flags or "=" in before or not before.startswith("-"))
        for before, name in pairwise(["", *arguments])
    )


NGRAM = """
Estimate an n-gram model: interpolated modified Kneser-Ney, as KenLM's lmplz does. Every
verb that needs no weights takes its folder as any run's; other tools read its model.arpa, too.

  spanlm train ngram --order 5 --corpus ptb --out runs/kn5
  spanlm train ngram my-text.txt --order 3
  spanlm train daniluk2017/kn-5-cache --corpus cbt

Every field of the configuration is an option, too (--ngram.fallback '[0.5, 1, 1.5]', --data.min_count 2);
`--print_config` shows them all as YAML.
"""

NGRAM_SHORT = {
    "--order": ("ngram.order", "N", "the length of the longest n-grams, 1 to 6"),
    "--cache": ("ngram.cache", "C", "mix in a unigram cache of the last C words, its share fitted on the valid part"),
    "--tokenizer": SHORT["--tokenizer"],
    "--data-dir": SHORT["--data-dir"],
}


def split_fields(arguments: list[str], short: Mapping[str, tuple[str, str, str]]) -> tuple[list[str], Fields]:
    """Separate this verb's own arguments from the fields of the configuration: `--group.field VALUE` or `=VALUE`.

    All fields of a group can be one option, as in YAML: `--group='{field: VALUE, …}'`.
    """
    others: list[str] = []
    fields: Fields = {}
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        name = f"--{short[name][0]}" if name in short else name
        field = name.removeprefix("--")
        if field == name or not ("." in field or field in _GROUPS):
            others.append(argument)
            continue
        value = value if equals else next(rest, "--")
        if not equals and value.startswith("--"):
            raise InputError(f"{name}: expected one argument")
        if field in _GROUPS or value.lstrip().startswith("{"):
            from spanlm.config import group_names, yaml_group  # loads torch: only where a group is given as one

            if field in _GROUPS or field in group_names():
                fields |= _of_group(field, yaml_group(value, field))
                continue
        fields[field] = value
    return others, fields


def _of_group(name: str, group: Mapping[str, Any]) -> Fields:
    if not group:
        raise InputError(name, "{}", "names no field")
    fields: Fields = {}
    for inner, value in group.items():
        full = f"{name}.{inner}"
        fields |= _of_group(full, value) if isinstance(value, dict) else {full: as_written(value)}
    return fields
