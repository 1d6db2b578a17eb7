"""`spanlm train [PRESET] [TEXT]`."""

from __future__ import annotations

import argparse
import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from spanlm.cli.allocation import keep_freed_memory
from spanlm.cli.arguments import add_as_text, add_threads
from spanlm.cli.configuring import named_config, print_fields, value_of, with_options
from spanlm.cli.family import members_begun, train_family
from spanlm.cli.main import VerbParser
from spanlm.cli.matching import matched
from spanlm.cli.report import TrainingReport
from spanlm.cli.terminal import out
from spanlm.cli.tour import tour
from spanlm.config import RunConfig, config_parser, kinds_of
from spanlm.data.corpora import Corpus, load_corpus
from spanlm.errors import InputError, Interrupted, require
from spanlm.presets import PRESETS
from spanlm.store.files import expanded
from spanlm.store.run_folder import CONFIG
from spanlm.training.run import train
from spanlm.training.stages import refuse_unfit

_DESCRIPTION = """
Train a language model. With nothing else: a small Key-Value-Predict model on the embedded corpus, in about a minute.

  spanlm train
  spanlm train daniluk2017/kvp-w5 --corpus ptb --match-parameters LSTM300
  spanlm train my-text.txt --epochs 5
  spanlm train --out runs/demo --resume auto
  spanlm train daniluk2017/kvp-w5 --corpus ptb --seeds 10 --out runs/family

On CPU a resumed run ends with the same weights, bit for bit, as one that was never stopped.
Every field of the configuration is an option, too (--training.epochs 5); `--print_config` shows them all as YAML,
`--config FILE` reads that.
"""


SHORT = {
    "--epochs": ("training.epochs", "N", "how often the text is read"),
    "--seed": ("training.seed", "N", "of the first weights, and of all that is drawn"),
    "--lr": ("training.optimizer.lr", "RATE", "the learning rate at first"),
    "--batch-size": ("training.batching.batch_size", "N", "streams, or sentences, side by side"),
    "--hidden-size": ("model.encoder.hidden_size", "N", "units of each layer of the encoder"),
    "--memory": ("model.memory.kind", "KIND", "what looks back: none, key_value, ngram, attentive, …"),
    "--precision": ("training.precision", "P", "fp32, or bf16, which is faster on most processors"),
    "--device": ("training.device", "NAME", "auto (a GPU if there is one), cpu or cuda"),
    "--data-dir": ("data.dir", "DIR", "where registered corpora are (default: $SPANLM_DATA)"),
}
"""Options that are short for a field of the configuration: its name, what stands for its value, what it means."""


@dataclass(frozen=True)
class Request:
    """What the command line asks for beside the configuration."""

    preset: str | None
    config: Path | None
    out: Path | None
    resume: bool
    begun: Path | None
    seeds: int | None
    match: str | None
    print_config: bool
    tour: bool
    as_text: bool
    threads: int | None


def run(arguments: list[str]) -> None:
    """Train."""
    keep_freed_memory()
    request, rest, asked = _request(arguments)
    if asked is not None:
        out(_own_parser().help_text(everything=True))
        if asked == "all":
            out("fields of the configuration:")
            print_fields(named_config(request.preset, None), rest)
        else:
            out("`spanlm train --help all` shows every field of the configuration.")
        return
    config = _with_words(with_options(_base_config(request), rest), request.begun)
    if request.print_config:
        out(config.to_yaml())
        return
    world = os.environ.get("WORLD_SIZE") or "1"
    require(world == "1", "WORLD_SIZE", world, "1: each process would train the same model. Start it without torchrun")
    refuse_unfit(config)  # before a large text is read
    # the text of a run that is begun was accepted then
    corpus = load_corpus(config.data, as_text=request.as_text or request.begun is not None)
    if request.match is not None:
        config = matched(config, request.match, len(corpus.vocabulary))
    folder = request.out or _free_folder(request, config)
    try:
        if request.seeds is not None:
            train_family(config, corpus, folder, request.seeds, train_and_tell, resume=request.resume)
        else:
            train_and_tell(config, corpus, folder, resume=request.resume)
        if request.tour:
            tour(config, corpus, folder)
    except Interrupted as stop:
        given = {"seeds": request.seeds, "threads": request.threads}
        more = "".join(f" --{name} {value}" for name, value in given.items() if value) + " --tour" * request.tour
        again = f"spanlm train --out {shlex.quote(str(folder))} --resume auto{more}"
        raise Interrupted(f"{stop}. Go on with: {again}", stop.signal_number) from None


def train_and_tell(config: RunConfig, corpus: Corpus, folder: Path, *, resume: bool) -> None:
    """Train with a report on the terminal."""
    with TrainingReport() as report:
        position = train(config, corpus, folder, report, resume=resume)
    report.ended(position, folder)


def _own_parser() -> VerbParser:
    parser = VerbParser("train", _DESCRIPTION, help_action="store")
    parser.elsewhere = config_parser(kinds_of({})).option_strings()
    parser.add_argument("names", nargs="*", metavar="PRESET|TEXT", help="a row of `spanlm presets`; a file or a folder")
    parser.add_argument("--corpus", metavar="NAME|PATH", help="short for --data.corpus")
    for option, (field, metavar, meaning) in SHORT.items():
        parser.add_argument(option, metavar=metavar, help=f"{meaning} ({field})")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run's folder (default: the next free in runs/)")
    parser.add_argument(
        "--resume",
        choices=("auto", "never"),
        default="never",
        help="auto: go on from the last checkpoint, if any",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        metavar="N",
        help="train N runs, with training.seed and the N - 1 numbers after it, in DIR/seed-1, DIR/seed-2, …; with "
        "--resume auto, those that are finished are passed over",
    )
    parser.add_argument(
        "--match-parameters",
        metavar="LSTMn|NUMBER",
        help="choose the hidden size so that θ_M (parameters without word representations) is this number, or that of "
        "a one-layer LSTM with n units",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="read the configuration from YAML")
    parser.add_argument("--print_config", action="store_true", help="print the configuration as YAML and stop")
    parser.add_argument(
        "--tour",
        action=argparse.BooleanOptionalAction,
        help="after training: test perplexity beside a same-size LSTM's, three generated lines and the attention page "
        "(default: of the demo alone)",
    )
    add_threads(parser)
    add_as_text(parser)
    return parser


def _request(arguments: list[str]) -> tuple[Request, list[str], str | None]:
    mine, rest = _split(arguments)
    own = _own_parser().parse_intermixed_args(mine)
    own.names += [own.help] if own.help not in (None, "", "all") else []
    as_path = ("/", ".", "~"), (".txt", ".gz")
    files = [x for x in own.names if os.path.exists(x) or x.startswith(as_path[0]) or x.endswith(as_path[1])]
    texts = [name for name in files if name not in PRESETS]
    presets = [name for name in own.names if name not in texts]
    texts += [] if own.corpus is None else [own.corpus]
    if more := [*presets[1:], *texts[1:]]:
        raise InputError(f"unrecognized arguments: {' '.join(more)}: name one preset and one text, or one of them")
    own.preset, own.corpus = next(iter(presets), None), next(iter(texts), None)
    _refuse_twice_said(own, rest)
    if own.corpus is not None:
        rest += ["--data.corpus", own.corpus]
    begun = _begun(own) if own.resume == "auto" and own.out is not None else None
    names_corpus = any(field.partition("=")[0] == "--data.corpus" for field in rest)
    alone = own.preset is None and own.config is None and not names_corpus and begun is None
    require(own.seeds is None or own.seeds >= 1, "--seeds", own.seeds, "at least 1")
    if own.seeds is not None and own.tour:
        raise InputError("--tour and --seeds do not go together: the tour is of one run")
    if own.resume == "auto" and own.out is None:
        raise InputError("--resume auto: needs --out, the folder of the run to go on with")
    if own.resume == "auto" and own.seeds is None and begun is None and members_begun(own.out):
        raise InputError(f"--out={own.out}: holds no run to go on with. It holds a family of runs: add --seeds.")
    request = Request(
        preset=own.preset,
        config=own.config,
        out=own.out,
        resume=own.resume == "auto",
        begun=begun,
        seeds=own.seeds,
        match=own.match_parameters,
        print_config=own.print_config,
        tour=alone and own.seeds is None if own.tour is None else own.tour,
        as_text=own.as_text,
        threads=own.threads,
    )
    return request, rest, own.help


def _refuse_twice_said(own: argparse.Namespace, fields: list[str]) -> None:
    """Refuse a field beside the option that would take its place.

    Raises:
        InputError: both are given.
    """
    for option, value, field in (
        ("--corpus", own.corpus, "--data.corpus"),
        ("--match-parameters", own.match_parameters, "--model.encoder.hidden_size"),
    ):
        if value is not None and (given := value_of(field, fields)) is not None:
            raise InputError(f"{option}={value} and {field}={given}: say the same thing twice; take one")


def _begun(own: argparse.Namespace) -> Path | None:
    """Return the folder of the run to go on with, or of the first of a family; None if there is none."""
    if own.seeds is not None:
        return next(iter(members_begun(own.out)), None)
    return own.out if (own.out / CONFIG).exists() else None


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Part this verb's own arguments from the fields of the configuration: `--group.field VALUE` or `=VALUE`."""
    mine: list[str] = []
    fields: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        name, equals, given = argument.partition("=")
        if name in SHORT:
            name = f"--{SHORT[name][0]}"
            argument = f"{name}{equals}{given}"
        if name.startswith("--") and "." in name:
            value = None if equals else next(rest, None)
            if value is not None and value.startswith("--"):
                raise InputError(f"{name}: must have a value, not {value}")
            fields += [argument, *([] if value is None else [value])]
        else:
            mine.append(argument)
    return mine, fields


def _base_config(request: Request) -> RunConfig:
    """Return what the options change: the folder's own when going on, else what is named."""
    if request.preset is None and request.config is None and request.begun is not None:
        return RunConfig.load(request.begun / CONFIG, whole=True)
    return named_config(request.preset, request.config)


def _with_words(config: RunConfig, begun: Path | None) -> RunConfig:
    """Cut words as the run to go on with, or to start from, does (one of 0.1.0, maybe); else as new runs do."""
    data, started = config.data, config.training.start_from
    origin = begun or (expanded(started) if started else None)
    old = replace(data, tokenizer="straight-words")
    if origin is not None and (origin / CONFIG).is_file():
        old = RunConfig.load(origin / CONFIG, whole=True).data
    tokenizer = old.tokenizer if data.tokenizer == "words" and old.tokenizer != "whitespace" else data.tokenizer
    return replace(config, data=replace(data, tokenizer=tokenizer, min_count=data.min_count or old.min_count))


def _free_folder(request: Request, config: RunConfig) -> Path:
    corpus = Path(config.data.corpus).name.split(".")[0]
    stem = "-".join(dict.fromkeys([*(request.preset or "").split("/"), corpus]).keys()).strip("-")
    folder, number = Path("runs") / stem, 1
    while folder.exists():
        number += 1
        folder = Path("runs") / f"{stem}-{number}"
    return folder
