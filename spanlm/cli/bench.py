"""`spanlm bench`: how fast configurations train on this machine."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from spanlm.cli.parser import field_values
from spanlm.cli.render import grid, note, out
from spanlm.cli.train import with_words
from spanlm.config import RunConfig
from spanlm.data.corpora import load_corpus
from spanlm.errors import InputError
from spanlm.papers.registry import PRESETS, find_preset
from spanlm.store.machine import pick_device
from spanlm.store.provenance import provenance
from spanlm.store.run_folder import CONFIG
from spanlm.training.bench import TimedTraining, WatchedStep, time_training
from spanlm.training.config import BenchOptions


def run(options: argparse.Namespace) -> None:
    if not options.names:
        families = ", ".join(dict.fromkeys(name.replace("/", "/… ").split()[0] for name in PRESETS))
        raise InputError(
            "bench", limit=f"name a PRESET ({families}; `spanlm presets` lists all) or a YAML FILE to time."
        )
    if twice := [name for name in options.names if options.names.count(name) > 1]:
        raise InputError(f"{twice[0]}: is named twice; name each once")
    settings = field_values(options, BenchOptions)
    named = {}
    for name in options.names:
        path = Path(name)
        if path.is_dir():
            raise InputError(f"{name}: is a folder; name a preset, or a file such as {path / CONFIG}")
        is_file = path.is_file() or path.suffix in (".yaml", ".yml")
        config = RunConfig.load(path) if is_file else find_preset(name).config
        changes = {"data.corpus": options.corpus, "data.dir": options.data_dir}
        config = with_words(config, {name: value for name, value in changes.items() if value is not None}, None)
        named[name] = config, load_corpus(config.data, as_text=options.as_text)
    device = pick_device(options.device, "--device")
    started = provenance(device)
    timed = (
        (name, time_training(name, *pair, device, settings, note=lambda text: note(f"measuring: {text}")))
        for name, pair in named.items()
    )
    if options.json:
        trainings = {name: training.to_json() for name, training in timed}
        report = {"started": started, "rounds": options.rounds, "trainings": trainings}
        out(json.dumps(report, indent=1, ensure_ascii=False))
        return
    out(", ".join(f"{name} {value}" for name, value in started.items() if name != "command"))
    for name, training in timed:  # printed one by one: Ctrl-C loses only the training being timed
        out()
        _show_speeds(name, training)
        for speed in training.speeds:
            if speed.watched:
                _show_operations(speed.precision, speed.watched)


def _show_speeds(name: str, training: TimedTraining) -> None:
    rows = []
    for speed in training.speeds:
        step = [f"{speed.milliseconds:,.1f}", f"{speed.tokens_per_second:,.0f}"]
        memory = "–" if speed.step_megabytes is None else f"{speed.step_megabytes:,.0f}"
        epoch = [f"{speed.epoch_seconds:,.1f} s", f"{speed.validation_seconds:,.1f} s"]
        rows.append([speed.precision, *step, memory, *epoch])
    title = (
        f"{name} on {training.corpus}: V {training.vocabulary_size:,}, {training.epoch_tokens:,} tokens an epoch, "
        f"{training.parameters:,} parameters"
    )
    grid(["training", "ms a step", "tokens/s", "step MB", "an epoch", "its validation"], rows, title)
    count, waits = training.gpu_step.operations.total(), training.gpu_step.waits
    out(f"on a GPU a step in fp32 starts {count:,} operations and waits {waits:,} {'time' if waits == 1 else 'times'}")


def _show_operations(precision: str, step: WatchedStep) -> None:
    operations = [(operation.name, f"{operation.calls:,.1f}", operation.milliseconds) for operation in step.operations]
    if step.other_operations:
        operations.append((f"{step.other_operations} other operations", "", step.other_milliseconds))
    operations.append(("Python, waiting", "", max(0.0, step.milliseconds - sum(spent for *_, spent in operations))))
    rows = [(name, calls, f"{spent:,.1f}", f"{spent / step.milliseconds:.0%}") for name, calls, spent in operations]
    title = f"a step in {precision}, watched: {step.milliseconds:,.1f} ms"
    out()
    grid(["operation", "calls", "ms", "of the step"], rows, title)
