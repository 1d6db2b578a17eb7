"""Evaluate a finished run once on valid and test, and keep everything that says what the numbers are.

python results/record.py runs/ptb/lstm results/daniluk2017-ptb/lstm.json \
        --command "spanlm train daniluk2017/lstm …" --commit HASH --machine "…"
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch

import spanlm
from spanlm.errors import InputError
from spanlm.models.counting import count_parameters
from spanlm.trained import TrainedModel


def main() -> None:
    """Write the record; refuse to test a run twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--command", required=True, help="what trained the run")
    parser.add_argument("--commit", required=True, help="of the code that trained it")
    parser.add_argument("--machine", required=True, help="what it ran on, and what else ran there")
    options = parser.parse_args()
    if options.out.exists():
        raise InputError(f"{options.out}: exists; the test part is touched once")
    model = spanlm.load(options.run, device="cpu")
    said = {name: getattr(options, name) for name in ("command", "commit", "machine")}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({**said, **record(model)}, indent=1, ensure_ascii=False) + "\n")


def record(model: TrainedModel) -> dict[str, Any]:
    """Return sizes, training history and evaluations of a run."""
    corpus = model.corpus()
    epochs = [row for row in _metrics(model.folder) if row["event"] == "valid"]
    best = min(epochs, key=lambda row: row["loss"])
    count = count_parameters(model.model)
    return {
        "seed": model.config.training.seed,
        "torch": torch.__version__,
        "model_parameters": count.model,
        "all_parameters": count.total,
        "epochs": len(epochs),
        "best_epoch": best["epoch"],
        "validation_perplexity_while_training": best["perplexity"],
        "train_perplexity_at_best": torch.tensor(best["train_loss"]).exp().item(),
        "tokens_per_second": statistics.median(row["tokens_per_second"] for row in epochs),
        "valid": model.evaluate(corpus, "valid").to_json(),
        "test": model.evaluate(corpus, "test").to_json(),
        "config": model.config.to_tree(),
    }


def _metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


if __name__ == "__main__":
    main()
