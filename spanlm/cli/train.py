"""`spanlm train [PRESET] [TEXT]`: one run, or with --seeds a family that differs only in the seed; an n-gram model."""

from __future__ import annotations

import argparse
import re
import shlex
import textwrap
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from spanlm.cli.demo_report import print_demo_report
from spanlm.cli.family import train_family
from spanlm.cli.options import free_folder, text_and_preset
from spanlm.cli.parser import field_values, filled
from spanlm.cli.render import out, paragraph, quiet, table
from spanlm.cli.training_report import TrainingReport
from spanlm.cli.training_verbs import Fields
from spanlm.config import RunConfig, nested, option_rows, overlaid, read_config, refuse_unknown, with_options
from spanlm.data.config import is_exact
from spanlm.data.corpora import Corpus, load_corpus
from spanlm.data.sources import with_own_documents, with_own_tokenizer
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError, Interrupted, as_written, named, nearest, require
from spanlm.jobs import Engine
from spanlm.models.counting import count_configured, lstm_budget, match_parameters
from spanlm.models.encoders import AWDLSTMConfig
from spanlm.options import leaves, read_group, whole_count
from spanlm.papers.registry import NGRAM_PRESETS, PRESETS, find_preset
from spanlm.runs.ngram import ARPA, train_ngram
from spanlm.scoring.ngram.config import NgramRunConfig
from spanlm.scoring.tally import shown
from spanlm.store.files import expanded
from spanlm.store.run_folder import CONFIG, PIECES, SEED, seed_folders, vocabulary_file
from spanlm.training import distributed
from spanlm.training.distributed import ALONE, Ranks
from spanlm.training.progress import Watcher
from spanlm.training.run import train
from spanlm.training.setup import refuse_unfit

_DEFAULT_PRESET = "demo"


def run(options: argparse.Namespace) -> None:
    ranks = distributed.found()
    if ranks.rank:
        quiet()
    with distributed.joined(ranks):
        _run(options, ranks)


def _run(options: argparse.Namespace, ranks: Ranks) -> None:
    if options.ngram:
        require(ranks.count == 1, "WORLD_SIZE", ranks.count, "1 for an n-gram model, which one process counts")
        _count_ngrams(options)
        return
    fields = completed(options)
    if options.help is not None:
        _print_help(named_config(options.preset, options.config), options)
        return
    begun: Path | None = options.begun
    if begun is not None and options.preset is None and options.config is None:
        base = RunConfig.load(begun / CONFIG, whole=True)
    else:
        base = named_config(options.preset, options.config)
    config = with_words(base, fields, begun)
    if options.match_parameters is not None:
        refuse_twice(fields, matched_field(config), "match_parameters", options.match_parameters)
    if options.print_config:
        if options.match_parameters is not None:
            out(f"# --match-parameters {options.match_parameters} chooses the hidden size when the text is read")
        out(config.to_yaml())
        return
    several = ranks.count > 1 and options.seeds is not None
    require(not several, "--seeds", options.seeds, "left out under torchrun, whose processes train one model together")
    with ranks.first_alone():
        refuse_unfit(config)  # before reading a large text
        ranks.refuse_unfit(config)
        # the text of a resumed run was accepted when the run began, and its pieces are learned
        pieces = None if begun is None or not (begun / PIECES).exists() else Vocabulary.load(begun / PIECES)
        corpus = load_corpus(config.data, pieces, as_text=options.as_text or begun is not None)
        if options.match_parameters is not None:
            config = matched(config, options.match_parameters, len(corpus.vocabulary))
            count = count_configured(config.model, len(corpus.vocabulary))
            out(
                f"matched to {options.match_parameters}: {matched_field(config)}={config.model.encoder.output_size}, "
                f"θ_M {count.model:,} at a vocabulary of {len(corpus.vocabulary):,} words"
            )
    # take the choice of rank 0: once it has made the folder, the others would find another
    folder = options.out or Path(ranks.from_first(str(free_folder(options.preset, config.data.corpus))))
    try:
        if options.seeds is not None:
            more = [f"--track={options.track}"] if options.track else []
            more += ["--as-text"] if options.as_text or begun is not None else []
            train_family(config, corpus, folder, options.seeds, options.engine, resume=options.resume, more=more)
        else:
            train_and_report(config, corpus, folder, resume=options.resume, track=options.track, ranks=ranks)
        if options.tour and ranks.rank == 0:
            print_demo_report(config, corpus, folder)
    except Interrupted as stop:
        if options.seeds is not None or ranks.count > 1:
            again = f"--out {shlex.quote(str(folder))} --resume auto"
            raise Interrupted(f"{stop}. The same command goes on, with {again}", stop.signal_number) from None
        settings = {"threads": options.threads, "track": options.track}
        more = "".join(f" --{name} {value}" for name, value in settings.items() if value) + " --tour" * options.tour
        again = f"spanlm train --out {shlex.quote(str(folder))} --resume auto{more}"
        raise Interrupted(f"{stop}. Go on with: {again}", stop.signal_number) from None


def _count_ngrams(options: argparse.Namespace) -> None:
    preset, corpus_name = text_and_preset(options.names, options.corpus, NGRAM_PRESETS)
    if corpus_name is not None:
        refuse_twice(options.fields, "data.corpus", "corpus", corpus_name)
        options.fields["data.corpus"] = corpus_name
    base = NGRAM_PRESETS[preset or "ngram"].config
    refuse_unknown(options.fields, [name for name, _, _ in leaves(base)])
    config = read_group(NgramRunConfig, overlaid(base.to_tree(), nested(options.fields)))
    # new runs of `spanlm train` use "straight-words", too
    data = with_own_tokenizer(config.data, options.fields)
    config = replace(config, data=replace(data, tokenizer="straight-words") if data.tokenizer == "words" else data)
    if options.print_config:
        out(config.to_yaml())
        return
    config = replace(config, data=with_own_documents(config.data))
    corpus = load_corpus(config.data, as_text=options.as_text)
    folder = options.out or free_folder(preset, config.data.corpus)
    paragraph(*corpus.notes)
    table([("model", config.description), ("data", corpus.description), ("folder", str(folder))])
    trained, results = train_ngram(config, corpus, folder, out)
    rows = [(f"{name} ppl", shown(result.perplexity)) for name, result in results.items()]
    table([("model", trained.description), *rows])
    out(f"{folder / ARPA} is written. Try it: spanlm evaluate {shlex.quote(str(folder))}")


def train_and_report(
    config: RunConfig, corpus: Corpus, folder: Path, *, resume: bool, track: Any, ranks: Ranks = ALONE
) -> None:
    if ranks.rank:
        train(config, corpus, folder, resume=resume, ranks=ranks)
        return
    with TrainingReport() as report, ExitStack() as stack:
        watcher: Watcher = report
        if track is not None:
            from spanlm.interop.tracking import Tracked

            watcher = stack.enter_context(closing(Tracked(report, track)))
        position = train(config, corpus, folder, watcher, resume=resume, ranks=ranks)
    report.ended(position, folder)


# --- options ---


def _print_help(base: RunConfig, options: argparse.Namespace) -> None:
    """Print the help of `--help all`, with every field of the configuration and its value."""
    out(options.parser.help_text(everything=True))
    out("fields of the configuration, each with its value:")
    for name, value, meaning in option_rows(base, options.fields):
        out(f"  --{name} {as_written(value)}")
        out(textwrap.indent(filled(meaning, 8), " " * 6))


def completed(options: argparse.Namespace) -> Fields:
    """Check the options, and return `fields` with those that options of the verb set.

    Sets these options: `preset`, `begun` (the folder of the run to resume, or of the first of a family), `engine`, and
    `resume` and `tour` as booleans.
    """
    fields: Fields = options.fields
    options.preset, options.corpus = text_and_preset(options.names, options.corpus, PRESETS)
    if (preset := options.preset) is not None and preset not in PRESETS and "/" in preset:
        raise InputError(f"{preset}: neither a text that is there nor a preset.{nearest(preset, PRESETS)}")
    if options.corpus is not None:
        refuse_twice(fields, "data.corpus", "corpus", options.corpus)
        fields["data.corpus"] = options.corpus
    options.resume = options.resume == "auto"
    options.begun, folder, unnamed = None, options.out, preset is None and options.config is None
    if options.resume and folder is not None:
        members = [folder] if (folder / CONFIG).exists() else []
        options.begun = next(iter(members if options.seeds is None else seed_folders(folder)), None)
        if options.seeds is not None and options.begun is not None and unnamed:
            # a run that another process has just begun has a folder and no configuration yet
            seeds = [int(path.name.removeprefix(SEED)) for path in seed_folders(folder, "*")]
            if "training.seed" not in fields and min(seeds) > 1 and max(seeds) <= options.seeds:
                raise InputError(
                    f"--seeds={options.seeds}: the runs of {folder} begin with seed {min(seeds)}. Say which is "
                    f"the first of all: --seed {min(seeds)}, or --seed 1 if runs before it are gone."
                )
            fields.setdefault("training.seed", str(min(seeds)))
    require(options.seeds is None or options.seeds >= 1, "--seeds", options.seeds, "at least 1")
    options.engine = field_values(options, Engine)
    for option, value in (("--jobs", options.jobs), ("--on", options.on)):
        if options.seeds is None and value not in (1, None):
            raise InputError(option, value, "is for several runs, of --seeds N or of `spanlm sweep`")
    if options.seeds is not None and options.tour:
        raise InputError("--tour and --seeds do not go together: the demo report is of one run")
    if options.resume and folder is None:
        raise InputError("--resume auto: needs --out, the folder of the run to go on with")
    if options.resume and options.seeds is None and options.begun is None and seed_folders(folder):
        raise InputError(f"--out={folder}: holds no run to go on with. It holds a family of runs: add --seeds.")
    nothing = unnamed and "data.corpus" not in fields and options.begun is None
    alone = not fields and options.seeds is None and options.tour is None and options.help is None
    if options.resume and nothing and alone:  # as in "Go on with: …", with another folder
        raise InputError(f"--out={folder}: holds no run to go on with. To begin one there, name a text or a preset.")
    if options.tour is None:
        options.tour = nothing and options.seeds is None
    return fields


def refuse_twice(fields: Mapping[str, str], field: str, option: str, value: str) -> None:
    """Reject an `option` if the field of the configuration that it sets is given, too."""
    if field in fields:
        both = f"{named(option)}={value} and {field}={fields[field]}"
        raise InputError(f"{both}: say the same thing twice; take one")


# --- configuration ---


def named_config(preset: str | None, config: Path | None) -> RunConfig:
    """Return the configuration of a preset (default: the demo), of a file, or of a file laid over a preset."""
    base = find_preset(preset or _DEFAULT_PRESET).config
    if config is None:
        return base
    tree = read_config(config, pipes=True)
    return RunConfig.from_tree(tree if preset is None else overlaid(base.to_tree(), tree), str(config))


def with_words(base: RunConfig, fields: Mapping[str, str], begun: Path | None) -> RunConfig:
    """Set fields; take the tokenisation from the run to resume or to start from; else that of new runs."""
    config = with_options(base, fields)
    started = config.training.start_from
    origin, old = begun or (expanded(started) if started else None), None
    if origin is not None and (origin / CONFIG).is_file():
        old = RunConfig.load(origin / CONFIG, whole=True).data
    # a run that goes on by its own configuration keeps its tokenizer
    goes_on = begun is not None and base.data == old and base.data.corpus == config.data.corpus
    data = config.data if goes_on else with_own_tokenizer(config.data, fields)
    tokenizer, min_count, marks = data.tokenizer, data.min_count, data.marks
    if origin is not None and old is not None:
        min_count = min_count or old.min_count
        if tokenizer == "words" and old.tokenizer == "straight-words":
            tokenizer = old.tokenizer
        if marks is None and not is_exact(data.effective_tokenizer):
            words = vocabulary_file(origin)
            marks = "keep" if old.keeps_marks(Vocabulary.load(words) if words.is_file() else ()) else None
        data = data if old.documents == "auto" else with_own_documents(data)
    else:
        data = with_own_documents(data)
        tokenizer = "straight-words" if tokenizer == "words" else tokenizer
    return replace(config, data=replace(data, tokenizer=tokenizer, min_count=min_count, marks=marks))


def matched_field(config: RunConfig) -> str:
    return f"model.encoder.{'last_size' if isinstance(config.model.encoder, AWDLSTMConfig) else 'hidden_size'}"


def matched(config: RunConfig, wanted: str, vocabulary_size: int) -> RunConfig:
    """Choose the hidden size that meets a budget: a number θ_M, or `LSTMn` for that of an LSTM of n units."""
    if units := re.fullmatch(r"LSTM(\d{1,5})", re.sub("[_,]", "", wanted.upper())):
        budget = lstm_budget(int(units[1]), config.model, vocabulary_size)
    else:
        try:
            budget = whole_count(wanted)
        except ValueError:
            limit = "must be a number (3731200, 3.7M) or LSTM and a hidden size (LSTM300)"
            raise InputError("match_parameters", wanted, limit) from None
    return replace(config, model=match_parameters(config.model, vocabulary_size, budget))
