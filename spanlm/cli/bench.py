"""`spanlm bench`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from spanlm.benchmark.measure import Report, benchmark
from spanlm.benchmark.recipe import TrainingReport, training_report
from spanlm.cli.allocation import keep_freed_memory
from spanlm.cli.arguments import add_device, verb_parser
from spanlm.cli.bench_tables import show_comparisons, show_trainings
from spanlm.cli.terminal import note, out
from spanlm.config import RunConfig
from spanlm.data.corpora import Corpus, load_corpus
from spanlm.errors import InputError, require
from spanlm.presets import find_preset

AnyReport = TypeVar("AnyReport", Report, TrainingReport)

_DESCRIPTION = """
Speed on this machine. What is compared takes turns on the same random tokens: training steps with those of a textbook
(embedding, nn.LSTM, linear, cross-entropy) and of ports of published code, a memory with the same model without it, a
cache and dynamic evaluation with the evaluation that they need anyway. Medians are shown, how much of a large matrix
product's speed they reach, and the memory that a step takes. Some five minutes on two quiet CPU cores; fewer --rounds
take less.

With presets, or configurations in files, how fast these train instead, on the corpus they name: what an epoch and its
validation take, and with --operations where a step's time goes. Steps from all over an epoch are timed, as the first
epochs have them: weights that are averaged later (training.optimizer.kind=nt_asgd) add to a step.

  spanlm bench
  spanlm bench merity2018/awd-ptb yang2018/mos-ptb --operations 10
  spanlm bench daniluk2017/kvp-w5 --corpus wikitext-2
  spanlm bench mine.yaml --rounds 50
"""


def run(arguments: list[str]) -> None:
    """Measure."""
    keep_freed_memory()
    parser = verb_parser("bench", _DESCRIPTION)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="PRESET|FILE",
        help="a published row (`spanlm presets` lists them), or a YAML file as `spanlm train --print_config` writes it",
    )
    add_device(parser)
    parser.add_argument("--rounds", type=int, default=15, help="steps of each; the median counts (default 15)")
    parser.add_argument(
        "--operations",
        type=int,
        default=0,
        metavar="N",
        help="of a step of each PRESET, the N operations that take longest, on a GPU by its own time (default 0)",
    )
    parser.add_argument("--corpus", metavar="NAME|PATH", help="another one for every PRESET")
    parser.add_argument("--data-dir", metavar="DIR", help="where registered corpora are (default: $SPANLM_DATA)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    _check(options)
    if options.names:
        named = {name: _with_corpus(name, options) for name in options.names}
        trainings = training_report(named, options.device, options.rounds, options.operations, _note)
        _print(trainings, options.json, show_trainings)
    else:
        _print(benchmark(options.device, options.rounds, _note), options.json, show_comparisons)


def _check(options: argparse.Namespace) -> None:
    require(options.rounds >= 1, "--rounds", options.rounds, "at least 1")
    require(options.operations >= 0, "--operations", options.operations, "at least 0")
    of_presets = {"--operations": options.operations, "--corpus": options.corpus, "--data-dir": options.data_dir}
    idle = [name for name, value in of_presets.items() if value and not options.names]
    if idle:
        raise InputError(f"{idle[0]}: is of a PRESET, and none is named. `spanlm presets` lists them.")
    twice = [name for name in options.names if options.names.count(name) > 1]
    if twice:
        raise InputError(f"{twice[0]}: is named twice; name each once")


def _with_corpus(name: str, options: argparse.Namespace) -> tuple[RunConfig, Corpus]:
    """Return a preset or a file's configuration, and its corpus."""
    path = Path(name)
    is_file = path.is_file() or path.suffix in (".yaml", ".yml")
    config = RunConfig.load(path) if is_file else find_preset(name).config
    asked = {"corpus": options.corpus, "dir": options.data_dir}
    data = replace(config.data, **{field: value for field, value in asked.items() if value is not None})
    return replace(config, data=data), load_corpus(data)


def _note(text: str) -> None:
    note(f"measuring: {text}")


def _print(report: AnyReport, as_json: bool, show: Callable[[AnyReport], None]) -> None:
    if as_json:
        out(json.dumps(report.to_json(), indent=1, ensure_ascii=False))
    else:
        show(report)
