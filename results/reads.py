"""What q reads, and how it is mixed in: `python -m results.reads CONTROL ONE FAMILY …`; li2020.jsonl.

They are folders of `spanlm sweep results/li2020/reads.yaml`, each with its seeds: without a buffer; with one span of
two words, which predicts twice, too, but has nothing to choose from; with buffers. All are compared with CONTROL, and
with ONE, on valid, by all seeds of both or, where one has a single seed, by that; those with more on test, too.
"""

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from results.record import asked, save
from spanlm.config import RunConfig
from spanlm.models.memories import SpanBufferConfig
from spanlm.store.provenance import starts
from spanlm.store.run_folder import epoch_rows

PARTS = "encoder", "buffer", "oracle", "untempered", "equal", "utilisation"


def _title(config: RunConfig) -> str:
    memory = config.model.memory
    if not isinstance(memory, SpanBufferConfig):
        return "no buffer"
    spans = f"{memory.slots} spans" if memory.slots > 1 else "one span"
    spans += f" of {memory.span_length}"
    gate = f"T {memory.gate.training_temperature:g} and {memory.gate.evaluation_temperature:g}"
    return f"{spans}, q of {memory.seen}, η {memory.reward.weight:g}, {gate}"


def _seeds(family: Path) -> list[Path]:
    return sorted(family.glob("seed-*"))


def _seed(run: Path, spans: bool, test: bool) -> dict[str, Any]:
    """Return what one training came to."""
    valid, test_split = (["evaluate", run, "--threads", 1, "--split", split] for split in ("valid", "test"))
    evaluation = asked(*valid, *["--parts"] * spans)
    parts = evaluation["parts"] or {}
    return {
        "starts": starts(run),
        "by_epoch": [row["perplexity"] for row in epoch_rows(run)],
        "perplexity": evaluation["perplexity"],
        **{name: parts.get(name) for name in PARTS},
        "uniform_attention": asked(*valid, "--attention", "uniform")["perplexity"] if spans else None,
        "test": asked(*test_split)["perplexity"] if test else None,
    }


def _against(baseline: Path, family: Path, split: str) -> dict[str, Any]:
    """Compare families, or where one has a single seed that seed of both."""
    single = next((runs[0].name for folder in (family, baseline) if len(runs := _seeds(folder)) == 1), None)
    pair = [folder if single is None else folder / single for folder in (baseline, family)]
    answer: dict[str, Any] = asked("compare", *pair, "--split", split, "--threads", 1)
    return {"seeds": [len(_seeds(folder)) if single is None else 1 for folder in pair], **answer["comparisons"][0]}


def _means(seeds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return means over seeds: of perplexities the geometric mean, which is that of bits."""
    means: dict[str, Any] = {
        "from": min(seed["perplexity"] for seed in seeds),
        "to": max(seed["perplexity"] for seed in seeds),
    }
    for name in ("perplexity", "test", "uniform_attention", *PARTS):
        values = [seed[name] for seed in seeds if seed[name] is not None]
        mean = statistics.mean if name == "utilisation" else statistics.geometric_mean
        means[name] = mean(values) if values else None
    return means


def main() -> None:
    """Ask, and write."""
    control, one_span, *others = map(Path, sys.argv[1:])
    families = control, one_span, *others
    configs = [RunConfig.load(_seeds(family)[0] / "config.yaml") for family in families]
    titles = list(map(_title, configs))
    assert len(set(titles)) == len(titles), "two families of one title"
    rows: dict[str, dict[str, Any]] = {}
    for family, config, title in zip(families, configs, titles, strict=True):
        runs = _seeds(family)
        spans, several = isinstance(config.model.memory, SpanBufferConfig), len(runs) > 1
        seeds = {run.name: _seed(run, spans, several) for run in runs}
        row: dict[str, Any] = {"count": len(runs), **_means(list(seeds.values())), "seeds": seeds}
        for name, baseline in {"against_control": control, "against_one_span": one_span}.items():
            if family not in (control, baseline):
                row[name] = _against(baseline, family, "valid")
                row[f"test_{name}"] = _against(baseline, family, "test") if several else None
        rows[title] = {"scale": "small"} | row
    save("li2020", "reads", "AWD-LSTM at a fifth of its width with other predictions beside its own", rows)


if __name__ == "__main__":
    main()
