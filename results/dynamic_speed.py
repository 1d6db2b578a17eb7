"""What dynamic evaluation of an AWD-LSTM of Penn Treebank's size costs, its layers read by the library or by our loop.

`python results/dynamic_speed.py THREADS` prints JSON: milliseconds a segment of 5 words, medians of seven texts of 10
segments after one that is not counted, on random tokens; for nothing but forward and backward passes, and for all.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import torch

from spanlm.benchmark.dynamic import ADAPTING_AWD, dynamic_step, passes_step
from spanlm.benchmark.groups import random_segments
from spanlm.cli.allocation import keep_freed_memory
from spanlm.evaluation.dynamic.statistics import LENGTH
from spanlm.models.encoders import awd_lstm
from spanlm.models.language_model import LanguageModel

LOOP = awd_lstm.loop_is_faster


def measure() -> dict[str, dict[str, dict[str, float]]]:
    """By precision, by what reads the layers, by what is done."""
    (text,) = random_segments(ADAPTING_AWD, 1)
    segments = len(text.inputs) / LENGTH
    found: dict[str, dict[str, dict[str, float]]] = {}
    for precision in ("fp32", "bf16"):
        for name, chosen in (("kernel", lambda units, x: False), ("loop", LOOP)):
            awd_lstm.loop_is_faster = chosen
            for what, make in (("passes", passes_step), ("dynamic evaluation", dynamic_step)):
                model = LanguageModel(ADAPTING_AWD.model, ADAPTING_AWD.vocabulary_size).eval()
                step, times = make(model, precision), []
                for _ in range(8):
                    began = time.perf_counter()
                    step(text)
                    times.append(time.perf_counter() - began)
                milliseconds = 1000 * statistics.median(times[1:]) / segments
                found.setdefault(precision, {}).setdefault(name, {})[what] = round(milliseconds, 1)
    return found


if __name__ == "__main__":
    keep_freed_memory()  # as every command of `spanlm` does
    torch.set_num_threads(int(sys.argv[1]))
    json.dump({"threads": int(sys.argv[1]), "milliseconds a segment": measure()}, sys.stdout)
