"""Print mean attention by lag of trained runs beside the paper's Figure 3b, as Markdown.

    python results/lags.py valid runs/ptb/kvp-w5 runs/ptb/kv-w10

The paper's models had a window of 15. A shorter window cannot look further back, so the paper's row is cut to the
lags that the run has, and scaled to sum to 100 again.
"""

from __future__ import annotations

import sys

import spanlm
from spanlm.analysis.attend import attention_by_lag
from spanlm.analysis.by_lag import PUBLISHED
from spanlm.cli.attend import published_name
from spanlm.evaluation.perplexity import evaluation_batcher


def main() -> None:
    """Print two rows a run: measured, and the paper's."""
    split, *runs = sys.argv[1:]
    lags = range(10, 0, -1)
    print("| model |" + "".join(f" −{lag} |" for lag in lags) + "\n|---|" + "---|" * len(lags))
    for run in runs:
        model = spanlm.load(run, device="cpu")
        profile = attention_by_lag(model.model, evaluation_batcher(model.corpus(), split, "streams", 1))
        published = PUBLISHED[published_name(model.config) or ""][-profile.window :]
        whole = sum(published)
        print(_row(f"{model.folder.name}, measured", profile.percent, len(lags)))
        print(_row("the paper's, cut and scaled", [100 * x / whole for x in published], len(lags)))


def _row(name: str, percent: tuple[float, ...] | list[float], columns: int) -> str:
    cells = [""] * (columns - len(percent)) + [f"{x:.1f}" for x in percent]
    return f"| {name} | " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
