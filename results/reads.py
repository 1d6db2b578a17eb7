"""What q reads, and how it is mixed in: `python results/reads.py CONTROL ONE RUN …` writes reads.json, on valid.

They are folders of `spanlm sweep results/li2020/reads.yaml`: without a buffer; with one span of two words, which
predicts twice, too, but has nothing to choose from; with buffers. All are compared with CONTROL, and with ONE.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from record import asked, write

from spanlm.config import RunConfig
from spanlm.models.memories import SpanBufferConfig
from spanlm.store.provenance import starts
from spanlm.store.run_folder import epoch_rows

VALID = "--split", "valid", "--threads", 1
PARTS = "encoder", "buffer", "oracle", "untempered", "equal", "utilisation"


def _against(baseline: Path, others: Sequence[Path]) -> dict[Path, dict[str, Any]]:
    return dict(zip(others, asked("compare", baseline, *others, *VALID)["comparisons"], strict=True))


def _title(config: RunConfig) -> str:
    memory = config.model.memory
    if not isinstance(memory, SpanBufferConfig):
        return f"no buffer, seed {config.training.seed}"
    spans = f"{memory.count} spans" if memory.count > 1 else "one span"
    gate = f"T {memory.gate.training_temperature:g} and {memory.gate.evaluation_temperature:g}"
    return f"{spans}, q of {memory.seen}, η {memory.reward.weight:g}, {gate}, seed {config.training.seed}"


def main() -> None:
    """Ask, and write."""
    runs, found = list(map(Path, sys.argv[1:])), {}
    control, one_span, *others = runs
    against_control, against_one_span = _against(control, runs[1:]), _against(one_span, others)
    for run in runs:
        config = RunConfig.load(run / "config.yaml")
        one: dict[str, Any] = {"starts": starts(run), "by_epoch": [row["perplexity"] for row in epoch_rows(run)]}
        spans = isinstance(config.model.memory, SpanBufferConfig)
        evaluation = asked("evaluate", run, *VALID, *["--parts"] * spans)
        parts = evaluation["parts"] or {}
        one |= {"perplexity": evaluation["perplexity"], **{name: parts.get(name) for name in PARTS}}
        uniform = asked("evaluate", run, *VALID, "--attention", "uniform")["perplexity"] if spans else None
        one["uniform_attention"] = uniform
        one |= {"against_control": against_control.get(run), "against_one_span": against_one_span.get(run)}
        assert found.setdefault(_title(config), one) is one, "two runs of one title"
    write(__file__, "AWD-LSTM at a fifth of its width with other predictions beside its own, on valid", runs=found)


if __name__ == "__main__":
    main()
