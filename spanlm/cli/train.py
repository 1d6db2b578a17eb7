"""`spanlm train [PRESET] [TEXT]`: one run, or with --seeds a family of runs that differ in nothing but their seed."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from spanlm.cli.demo_report import print_demo_report
from spanlm.cli.family import train_family
from spanlm.cli.options import Fields, Parser, field_values, free_folder, split_fields, text_and_preset
from spanlm.cli.render import out, quiet
from spanlm.cli.training_report import TrainingReport
from spanlm.config import (
    PARTS,
    ConfigParser,
    RunConfig,
    Tree,
    config_parser,
    flat,
    group_names,
    kinds_of,
    nested,
    parsed_config,
    read_config,
)
from spanlm.data.corpora import Corpus, load_corpus, with_own_documents
from spanlm.data.vocabulary import Vocabulary
from spanlm.errors import InputError, Interrupted, nearest, require
from spanlm.jobs import Engine
from spanlm.models.counting import count_configured, lstm_budget, match_parameters
from spanlm.models.encoders import AWDLSTMConfig
from spanlm.papers import NGRAM_PRESETS, PRESETS, find_preset
from spanlm.store.files import expanded
from spanlm.store.run_folder import CONFIG, SEED, VOCABULARY, seed_folders
from spanlm.training import distributed
from spanlm.training.distributed import ALONE, Ranks
from spanlm.training.progress import Watcher
from spanlm.training.run import train
from spanlm.training.setup import refuse_unfit

_DESCRIPTION = """
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
    "--precision": ("training.precision", "P", "fp32, or bf16, which is faster on most processors"),
    "--device": ("training.device", "NAME", "auto (a GPU if there is one), cpu or cuda"),
    "--data-dir": ("data.dir", "DIR", "where corpora are (default: $SPANLM_DATA)"),
}
"""Options that are short for a field of the configuration: its name, the metavariable, the help."""

_BUDGET = re.compile(r"LSTM(?P<units>\d{1,5})|(?P<number>\d{1,15}(\.\d*)?(E\d{1,2})?)(?P<scale>[KM]?)")
_DEFAULT_PRESET = "demo"


def run(arguments: list[str]) -> None:
    ranks = distributed.found()
    if ranks.rank:
        quiet()
    with distributed.joined(ranks):
        _run(arguments, ranks)


def _run(arguments: list[str], ranks: Ranks) -> None:
    if _of_ngram(arguments):
        from spanlm.cli import train_ngram

        require(ranks.count == 1, "WORLD_SIZE", ranks.count, "1 for an n-gram model, which one process counts")
        train_ngram.run(arguments)
        return
    own, fields = parsed_options(arguments)
    if own.help is not None:
        _print_help(own.help, own.preset, fields)
        return
    begun: Path | None = own.begun
    if begun is not None and own.preset is None and own.config is None:
        base = RunConfig.load(begun / CONFIG, whole=True)
    else:
        base = named_config(own.preset, own.config)
    config = with_words(with_options(base, fields), begun)
    if own.match_parameters is not None:
        refuse_twice(fields, matched_field(config), f"--match-parameters={own.match_parameters}")
    if own.print_config:
        if own.match_parameters is not None:
            out(f"# --match-parameters {own.match_parameters} chooses the hidden size when the text is read")
        out(config.to_yaml())
        return
    several = ranks.count > 1 and own.seeds is not None
    require(not several, "--seeds", own.seeds, "left out under torchrun, whose processes train one model together")
    with ranks.first_alone():
        refuse_unfit(config)  # before a large text is read
        ranks.refuse_unfit(config)
        # a resumed run's text was accepted when it began
        corpus = load_corpus(config.data, as_text=own.as_text or begun is not None)
        if own.match_parameters is not None:
            config = matched(config, own.match_parameters, len(corpus.vocabulary))
            count = count_configured(config.model, len(corpus.vocabulary))
            out(
                f"matched to {own.match_parameters}: {matched_field(config)}={config.model.encoder.output_size}, "
                f"θ_M {count.model:,} at a vocabulary of {len(corpus.vocabulary):,} words"
            )
    # where rank 0 begins the others would find no free folder
    folder = own.out or Path(ranks.from_first(str(free_folder(own.preset, config.data.corpus))))
    try:
        if own.seeds is not None:
            more = [f"--track={own.track}"] if own.track else []
            more += ["--as-text"] if own.as_text or begun is not None else []
            train_family(config, corpus, folder, own.seeds, own.engine, resume=own.resume, more=more)
        else:
            train_and_report(config, corpus, folder, resume=own.resume, track=own.track, ranks=ranks)
        if own.tour and ranks.rank == 0:
            print_demo_report(config, corpus, folder)
    except Interrupted as stop:
        if own.seeds is not None or ranks.count > 1:
            again = f"--out {shlex.quote(str(folder))} --resume auto"
            raise Interrupted(f"{stop}. The same command goes on, with {again}", stop.signal_number) from None
        given = {"threads": own.threads, "track": own.track}
        more = "".join(f" --{name} {value}" for name, value in given.items() if value) + " --tour" * own.tour
        again = f"spanlm train --out {shlex.quote(str(folder))} --resume auto{more}"
        raise Interrupted(f"{stop}. Go on with: {again}", stop.signal_number) from None


def _of_ngram(arguments: list[str]) -> bool:
    """Whether an operand, not the value of an option (`--memory ngram`), is the preset of an n-gram model."""
    flags = ("--print_config", "--as-text")
    return any(
        name in NGRAM_PRESETS and (before in flags or not before.startswith("-"))
        for before, name in pairwise(["", *arguments])
    )


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


def _print_help(asked: str, preset: str | None, fields: Fields) -> None:
    """Print the help; if `asked` is "all", that of every field with its value, too."""
    out(_own_parser().help_text(everything=asked == "all"))
    if asked != "all":
        out("It shows every field of the configuration, too.")
        return
    out("fields of the configuration:")
    parser = _field_parser(named_config(preset, None), fields)
    parser.prog, parser.usage = "spanlm train", argparse.SUPPRESS
    parser.print_help()


def _own_parser() -> Parser:
    parser = Parser("train", _DESCRIPTION, help_action="store")
    parser.elsewhere = lambda: config_parser(kinds_of({})).option_strings()
    parser.add_argument(
        "names", nargs="*", metavar="PRESET|TEXT", help="a row of `spanlm presets`; a file, folder or corpus"
    )
    parser.add_argument("--corpus", metavar="NAME|PATH", help="short for --data.corpus")
    for option, (field, metavar, meaning) in SHORT.items():
        parser.add_argument(option, metavar=metavar, help=f"{meaning} ({field})")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run's folder (default: the next free in runs/)")
    text = "auto: go on from the last checkpoint, if any"
    parser.add_argument("--resume", choices=("auto", "never"), default="never", help=text)
    text = "train N runs, of training.seed and the seeds after it, in DIR/seed-1, DIR/seed-2, …"
    parser.add_argument("--seeds", type=int, metavar="N", help=text)
    text = "choose the hidden size so that θ_M (parameters without word representations) is this number, or that of "
    text += "a one-layer LSTM with n units"
    parser.add_argument("--match-parameters", metavar="LSTMn|NUMBER", help=text)
    parser.add_argument("--config", type=Path, metavar="FILE", help="read the configuration from YAML")
    parser.add_argument("--print_config", action="store_true", help="print the configuration as YAML and stop")
    text = "write numbers and a generated text to this tracker, too"
    parser.add_argument("--track", rare=True, choices=("tensorboard", "wandb", "trackio"), help=text)
    text = "then test it beside a same-size LSTM, generate lines, draw the attention page (default: of the demo alone)"
    parser.add_argument("--tour", action=argparse.BooleanOptionalAction, help=text)
    parser.add_engine(rare="runs on Ray")
    parser.add_as_text()
    return parser


def parsed_options(arguments: list[str]) -> tuple[argparse.Namespace, Fields]:
    """Return this verb's own options and those of the configuration's fields.

    Beside the options, the former have `preset`, `begun` (the folder of the run to go on with, or of the first of a
    family), `engine`, and `resume` and `tour` as true or false.
    """
    mine, fields = split_fields(arguments, SHORT, group_names())
    own = _own_parser().parse_intermixed_args(mine)
    names = [*own.names, *([own.help] if own.help not in (None, "", "all") else [])]
    own.preset, own.corpus = text_and_preset(names, own.corpus, PRESETS)
    if own.preset is not None and own.preset not in PRESETS and "/" in own.preset:
        raise InputError(f"{own.preset}: neither a text that is there nor a preset.{nearest(own.preset, PRESETS)}")
    if own.corpus is not None:
        refuse_twice(fields, "data.corpus", f"--corpus={own.corpus}")
        fields["data.corpus"] = own.corpus
    own.resume = own.resume == "auto"
    own.begun = None
    if own.resume and own.out is not None:
        one = [own.out] if (own.out / CONFIG).exists() else []
        own.begun = next(iter(one if own.seeds is None else seed_folders(own.out)), None)
        if own.seeds is not None and own.begun is not None and own.preset is None and own.config is None:
            # a run that another process has just begun has no configuration yet: it counts by its folder
            there = [int(path.name.removeprefix(SEED)) for path in seed_folders(own.out, "*")]
            if "training.seed" not in fields and min(there) > 1 and max(there) <= own.seeds:
                raise InputError(
                    f"--seeds={own.seeds}: the runs of {own.out} begin with seed {min(there)}. Say which is the "
                    f"first of all: --seed {min(there)}, or --seed 1 if runs before it are gone."
                )
            fields.setdefault("training.seed", str(min(there)))
    require(own.seeds is None or own.seeds >= 1, "--seeds", own.seeds, "at least 1")
    own.engine = field_values(own, Engine)
    for option, value in (("--jobs", own.jobs), ("--on", own.on)):
        if own.seeds is None and value not in (1, None):
            raise InputError(f"{option}={value}: is for several runs, of --seeds N or of `spanlm sweep`")
    if own.seeds is not None and own.tour:
        raise InputError("--tour and --seeds do not go together: the demo report is of one run")
    if own.resume and own.out is None:
        raise InputError("--resume auto: needs --out, the folder of the run to go on with")
    if own.resume and own.seeds is None and own.begun is None and seed_folders(own.out):
        raise InputError(f"--out={own.out}: holds no run to go on with. It holds a family of runs: add --seeds.")
    nothing = own.preset is None and own.config is None and "data.corpus" not in fields and own.begun is None
    alone = not fields and own.seeds is None and own.tour is None and own.help is None
    if own.resume and nothing and alone:  # as in "Go on with: …", with another folder
        raise InputError(f"--out={own.out}: holds no run to go on with. To begin one there, name a text or a preset.")
    if own.tour is None:
        own.tour = nothing and own.seeds is None
    return own, fields


def refuse_twice(fields: Mapping[str, str], field: str, option: str) -> None:
    if field in fields:
        raise InputError(f"{option} and --{field}={fields[field]}: say the same thing twice; take one")


# --- configuration ---


def named_config(preset: str | None, config: Path | None) -> RunConfig:
    """Return a preset's configuration, a file's, or a file's over a preset's; with neither, the demo's."""
    base = find_preset(preset or _DEFAULT_PRESET).config
    if config is None:
        return base
    tree = read_config(config, pipes=True)
    return RunConfig.from_tree(tree if preset is None else _overlaid(base.to_tree(), tree), str(config))


def with_options(base: RunConfig, options: Mapping[str, str]) -> RunConfig:
    """Apply fields by their full names, with values as they are typed."""
    if not options:
        return base
    fields = flat(nested(options))
    for name in group_names() & fields.keys():
        raise InputError(f"{name}={fields[name]}: must be a group of fields. Give one of them, as --{name}.FIELD VALUE")
    parser = _field_parser(base, fields)
    return parsed_config(parser, parser.parse_args([f"--{name}={value}" for name, value in fields.items()]))


def _field_parser(base: RunConfig, fields: Mapping[str, str]) -> ConfigParser:
    """Make the parser of the fields that there are with these options, with `base` as the defaults."""
    kinds = {name: fields[name] for name in (f"model.{part}.kind" for part in PARTS) if name in fields}
    stages = {name: 0 for name in ("training.finetune.stages",) if fields.get(name) == "0"}
    tree = _overlaid(base.to_tree(), nested(kinds | stages))
    parser = config_parser(kinds_of(tree))
    parser.set_defaults(flat(tree))
    return parser


def _overlaid(base: Tree, change: Tree) -> Tree:
    """Merge `change` into `base`; a group with another kind, or with no stages, keeps nothing of the old one."""
    merged = dict(base)
    for name, value in change.items():
        old = base.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            anew = value.get("kind", old.get("kind")) != old.get("kind") or value.get("stages") == 0
            value = value if anew else _overlaid(old, value)
        merged[name] = value
    return merged


def with_words(config: RunConfig, begun: Path | None) -> RunConfig:
    """Cut a text as the run to go on with, or to start from, does; else as new runs do."""
    data, started = config.data, config.training.start_from
    origin = begun or (expanded(started) if started else None)
    tokenizer, min_count, marks = data.tokenizer, data.min_count, data.marks
    if origin is not None and (origin / CONFIG).is_file():
        old = RunConfig.load(origin / CONFIG, whole=True).data
        min_count, words = min_count or old.min_count, origin / VOCABULARY
        if marks is None and old.keeps_marks(Vocabulary.load(words) if words.is_file() else ()):
            marks = "keep"
        if tokenizer == "words" and old.tokenizer != "whitespace":
            tokenizer = old.tokenizer
        data = data if old.documents == "auto" else with_own_documents(data)
    else:
        data = with_own_documents(data)
        tokenizer = "straight-words" if tokenizer == "words" else tokenizer
    return replace(config, data=replace(data, tokenizer=tokenizer, min_count=min_count, marks=marks))


def matched_field(config: RunConfig) -> str:
    return f"model.encoder.{'last_size' if isinstance(config.model.encoder, AWDLSTMConfig) else 'hidden_size'}"


def matched(config: RunConfig, wanted: str, vocabulary_size: int) -> RunConfig:
    """Choose the hidden size that meets a budget, θ_M or the LSTMn that has it."""
    found = _BUDGET.fullmatch(wanted.upper().replace("_", "").replace(",", ""))
    if found is None:
        raise InputError(
            f"--match-parameters={wanted}: must be a number (3731200, 3.7M) or LSTM and a hidden size (LSTM300)"
        )
    if found["units"]:
        budget = lstm_budget(int(found["units"]), config.model, vocabulary_size)
    else:
        budget = round(float(found["number"]) * {"": 1, "K": 1e3, "M": 1e6}[found["scale"]])
    return replace(config, model=match_parameters(config.model, vocabulary_size, budget))
