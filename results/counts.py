"""What a training step asks of a GPU, in two versions of spanlm: `python -m results.counts OLDER`; speed.jsonl.

OLDER is a checkout of the older version. Counted without a GPU (spanlm/training/dispatch.py), at published sizes, on
Penn Treebank; the last row is a textbook's step of the first one's size, with torch's own optimiser.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.lstm import DROPPED_650, Textbook
from benchmarks.setting import plain_step, random_segments
from results.record import save
from spanlm.data.corpora import load_corpus
from spanlm.papers.registry import find_preset
from spanlm.training.bench import idle_trainer, spread
from spanlm.training.dispatch import counted, dispatched

PRESETS = (
    "zaremba2014/medium",
    *(f"daniluk2017/{row}" for row in ("lstm", "rnn", "gated-hornn-3", "4-gram", "kvp-w5", "attention-w10", "rm-w15")),
    *(f"salton2017/{row}-ptb" for row in ("lstm", "single", "combined")),
    *("merity2017/pointer-ptb", "merity2018/awd-ptb", "yang2018/mos-ptb", "wang2019/mos-ps-at-ptb"),
    "li2020/awd-snb-ptb",
)
HERE = Path(__file__).parents[1]


def count() -> dict[str, dict[str, int]]:
    """Return each preset's operations and waits, of a segment from the middle of the text."""
    found = {}
    for preset in PRESETS:
        config = find_preset(preset).config
        config = replace(config, data=replace(config.data, corpus="ptb"))
        trainer = idle_trainer(config, load_corpus(config.data))
        step = dispatched(trainer, spread(trainer.batcher, 2)[1])
        found[preset] = {"operations": sum(step.operations.values()), "waits": step.waits}
    return found


def textbook() -> dict[str, int]:
    """Count the second step of a textbook."""
    meta = torch.device("meta")
    step, (segment,) = plain_step(Textbook(DROPPED_650), DROPPED_650, "fp32", meta), random_segments(DROPPED_650, 1)
    with counted():
        step(segment)
    with counted() as second:
        step(segment)
    return {"operations": sum(second.operations.values()), "waits": second.waits}


def main() -> None:
    """Count in both versions, each in a process of its own, and write."""
    older = Path(sys.argv[1]).resolve()
    found = {}
    for name, tree in (("before", older), ("after", HERE)):
        command, path = [sys.executable, __file__, "--print"], {"PYTHONPATH": str(tree)}
        result = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=HERE, env=os.environ | path)
        found[name] = json.loads(result.stdout)
    rows = {preset: {name: counts[preset] for name, counts in found.items()} for preset in PRESETS}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=older, stdout=subprocess.PIPE, text=True, check=True)
    what = "operations that a step in fp32 starts on a GPU, and waits for it, counted on torch's device meta"
    about = {"older": commit.stdout.strip()}
    table = {name: about | row for name, row in rows.items()}
    save("speed", "counts", what, table | {"a textbook": {"after": textbook()}})


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(json.dumps(count()))
    else:
        main()
