"""`spanlm attend RUN`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from spanlm.analysis.attend import attend_words, attention_by_lag, attention_flatness, check_attends
from spanlm.analysis.export import (
    check_attention_path,
    check_lag_comparison_path,
    save_attention,
    save_lag_comparison,
    save_lag_profile,
)
from spanlm.analysis.lag_comparison import MeasuredLags
from spanlm.analysis.published_lags import RECURRENT_MEMORY
from spanlm.analysis.record import AttentionRecord
from spanlm.analysis.sentence_export import (
    check_flatness_path,
    check_sentence_path,
    save_flatness,
    save_sentence_maps,
)
from spanlm.analysis.sentence_map import attend_sentence
from spanlm.analysis.utilisation_export import check_utilisation_path
from spanlm.cli.arguments import add_corpus, add_device, run_names, verb_parser
from spanlm.cli.attend_by_epoch import show_by_epoch
from spanlm.cli.attend_spans import check_spans, has_spans, show_spans
from spanlm.cli.attended_text import MOST_WORDS, WORDS, corpus_of, sentence_of, targets_of
from spanlm.cli.attention_prints import (
    print_flatness,
    print_lags,
    print_lags_of_several,
    print_maps,
    print_sentence_flatness,
)
from spanlm.cli.main import VerbParser
from spanlm.cli.terminal import out
from spanlm.config import RunConfig
from spanlm.data.batching import Batcher
from spanlm.data.corpora import Corpus
from spanlm.errors import InputError
from spanlm.evaluation.perplexity import evaluation_batcher
from spanlm.files import run_name
from spanlm.models.memories import KeyValueConfig, RecurrentMemoryConfig
from spanlm.trained import TrainedModel, load
from spanlm.training.setup import remembers_everything

_DESCRIPTION = """
Where the model looked.

  spanlm attend runs/demo --text "the name is bound to the object ." --out look.html
  spanlm attend runs/demo --file chapter.txt --out look.csv
  spanlm attend runs/demo --document 3 --split valid --words 60 --out article.svg
  spanlm attend runs/demo --by-lag --split valid --out lags.svg
  spanlm attend runs/kv runs/kvp runs/rm --by-lag --split valid --out lags.svg
  spanlm attend runs/single runs/combined --sentence "the law which he wrote was long ." --out triangles.svg
  spanlm attend runs/single runs/combined --flatness --split valid
  spanlm attend runs/spans --from 5000 --words 600 --out spans.svg
  spanlm attend runs/spans --by-epoch --out use.svg

Of one text, a file, or a stretch of the corpus the run was trained on: a page (.html, one self-contained file:
hover a word), a figure (.svg, .png) or data (.csv, .npz). It is read alone: nothing is known of what stands before.

With --by-lag, mean attention by distance over a whole split: a table, and (--out) a figure, data or a Markdown
table. Several runs stand side by side, each with what the paper printed. Of a memory that holds the whole sentence the
nearest 15 words are told apart, what is older is one number.

With --sentence, a triangle of weights: a row for each predicted word, a column for each word before it. Each sentence
is read alone, and every run that is named has a panel beside the others; printed where there is no --out (.svg, .png,
.csv, .json). With --flatness, how equal the weights are over a whole split: a table, and (--out) .csv or .json.

A model with a span buffer looks at spans of several words. What is printed of a text is which of them had the largest
weights when its last word was guessed, and what the buffer, the encoder and both expected there; a figure (.svg, .png)
shows the same, the whole buffer and the steps before it. The page (.html) and the data (.csv, .json) have it of every
word. With --by-epoch, how often its gate preferred the buffer on valid after each epoch of training, and how often the
buffer was better: a table, and (--out) a figure or data. A run that is still in training can be looked at, too.

Words are cut as in the training text, and lines into sentences if its lines were (data.lines=sentences). Write them as
it does: Penn Treebank is lower case, with N for numbers and 's and n't apart. A model that was trained on lines or
sentences that know nothing of each other takes one at a time.
"""

NEAREST = 15
"""Lags told apart of a memory that grows with the text: as many as the paper's windows have."""


def run(arguments: list[str]) -> None:
    """Attend."""
    options = _parser().parse_args(arguments)
    _check(options)
    if options.by_epoch:
        show_by_epoch(options)
    else:
        _look(options)
    if options.out is not None:
        out(f"wrote {options.out}")


def _look(options: argparse.Namespace) -> None:
    """Show what models look at."""
    models = [load(folder, options.device) for folder in options.runs]
    check_spans(models, options)
    if options.by_lag:
        _by_lag(models, options)
    elif options.flatness:
        _flatness(models, options)
    elif options.sentence:
        _sentences(models, options)
    elif has_spans(models[0]):
        show_spans(models[0], *targets_of(models[0], options), options)
    else:
        _require_out(options)
        save_attention(_record(models[0], options), options.out)


def _parser() -> VerbParser:
    parser = verb_parser("attend", _DESCRIPTION)
    parser.add_argument(
        "runs",
        metavar="RUN",
        type=Path,
        nargs="+",
        help="the folder of a trained run; several with --by-lag, --by-epoch, --sentence, --flatness",
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
    what.add_argument("--by-epoch", action="store_true", help="what a run told of its span buffer while it was trained")
    parser.add_argument(
        "--words", type=int, metavar="N", help=f"how much of --document or --from, line ends counted (default: {WORDS})"
    )
    add_corpus(parser)
    parser.set_defaults(split=None)  # whether it was given matters to --by-epoch
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help=".html, .svg, .png, .csv or .npz; by lag .svg, .png, .csv, .json or .md; of sentences .svg, .png, .csv or "
        ".json; of flatness .csv or .json; of spans .html, .svg, .png, .csv or .json; by epoch .svg, .png, .csv or "
        ".json",
    )
    return parser


def _check(options: argparse.Namespace) -> None:
    """Refuse what cannot be done, before any work is."""
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
    if options.words is not None and not {"--document", "--from"} & set(given):
        raise InputError(f"--words={options.words}: is for --document and --from, not for {given[0]}")
    if options.words is not None and not 1 <= options.words <= MOST_WORDS:
        raise InputError(f"--words={options.words}: must be from 1 to {MOST_WORDS:,}")
    for name, value in (("corpus", options.corpus), ("split", options.split)):
        if options.by_epoch and value is not None:
            raise InputError(f"--{name}={value}: --by-epoch reads no text, but what the run told of its own valid")
    if options.by_lag or options.flatness or options.by_epoch or options.sentence is not None:
        if options.out is not None:
            _check_out(options)
        return
    if len(options.runs) > 1:
        raise InputError(
            f"{len(options.runs)} runs: {given[0]} takes one; several stand side by side with --by-lag, --flatness, "
            "--by-epoch and --sentence"
        )


def _require_out(options: argparse.Namespace) -> None:
    if options.out is None:
        raise InputError("--out is missing: name a file that ends in .html, .svg, .png, .csv or .npz")
    check_attention_path(options.out)


def _check_out(options: argparse.Namespace) -> None:
    if options.by_lag:
        check_lag_comparison_path(options.out, len(options.runs))
    elif options.flatness:
        check_flatness_path(options.out)
    elif options.by_epoch:
        check_utilisation_path(options.out, len(options.runs))
    else:
        check_sentence_path(options.out)


def _record(model: TrainedModel, options: argparse.Namespace) -> AttentionRecord:
    """Read what was asked for."""
    targets, source = targets_of(model, options)
    title = f"{run_name(model.folder)}, {model.config.model.memory.description}{source}"
    opened = model.config.training.batching.predict_first
    return attend_words(model.model, model.vocabulary, targets, title=title, opened=opened)


def _named(models: Sequence[TrainedModel]) -> dict[str, TrainedModel]:
    """Name models that attend to something."""
    for model in models:
        try:
            check_attends(model.model)
        except InputError as error:
            raise InputError(f"{model.folder}: {error}") from None
    return dict(zip(run_names([model.folder for model in models]), models, strict=True))


def _sentences(models: Sequence[TrainedModel], options: argparse.Namespace) -> None:
    """Print the triangles, or write them."""
    named = _named(models)
    sentences = [
        [
            attend_sentence(
                model.model,
                model.vocabulary,
                sentence_of(model, sentence),
                name=name,
                memory=model.config.model.memory.description,
                opened=model.config.training.batching.predict_first,
            )
            for name, model in named.items()
        ]
        for sentence in options.sentence
    ]
    if options.out is None:
        print_maps(sentences)
    print_sentence_flatness(sentences)
    if options.out is not None:
        save_sentence_maps(sentences, options.out)


def _flatness(models: Sequence[TrainedModel], options: argparse.Namespace) -> None:
    """Print the tables and write the file."""
    measured, text = {}, ""
    for name, model in _named(models).items():
        corpus, split = corpus_of(model, options)
        measured[name], text = attention_flatness(model.model, _batcher(model, corpus, split)), f"{corpus.name} {split}"
    print_flatness(text, measured)
    if options.out is not None:
        save_flatness(text, measured, options.out)


def _by_lag(models: Sequence[TrainedModel], options: argparse.Namespace) -> None:
    """Print the table and write the file."""
    measured = [_measured(model, name, options) for name, model in _named(models).items()]
    if len(measured) == 1:
        print_lags(measured[0])
    else:
        print_lags_of_several(measured)
    if options.out is None:
        return
    if len(measured) == 1 and options.out.suffix.lower() != ".md":
        save_lag_profile(measured[0].profile, options.out, measured[0].model)
    else:
        save_lag_comparison(measured, options.out)


def _measured(model: TrainedModel, name: str, options: argparse.Namespace) -> MeasuredLags:
    corpus, split = corpus_of(model, options)
    nearest = NEAREST if remembers_everything(model.config.model.memory) else None
    profile = attention_by_lag(model.model, _batcher(model, corpus, split), nearest)
    return MeasuredLags(name, f"{corpus.name} {split}", profile, published_name(model.config))


def _batcher(model: TrainedModel, corpus: Corpus, split: str) -> Batcher:
    """Cut a split as the training's text was."""
    rules = model.config.training.batching.sentences(training=False)
    return evaluation_batcher(corpus, split, model.batching(corpus, split), rules=rules)


def published_name(config: RunConfig) -> str | None:
    """Return which row of the paper's Figure 3b this model can stand beside."""
    match config.model.memory:
        case KeyValueConfig() as memory:
            return memory.name
        case RecurrentMemoryConfig(temporal=True, composition="gated"):
            return RECURRENT_MEMORY
    return None
