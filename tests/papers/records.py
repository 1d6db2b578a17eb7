"""Records as finished rows leave them."""

from collections.abc import Sequence
from typing import Any

from spanlm.papers.paper import WORD_CLASSES, Averaged, Cached, Dynamic, Plain
from spanlm.papers.plan import Plan
from spanlm.papers.registry import PAPERS
from spanlm.papers.request import Request
from spanlm.papers.table import Grid


def plan(corpus: object, *rows: str, **changes: Any) -> Plan:
    """What is to be done, at the scale smoke: Figure 2b of Daniluk et al., if nothing else is named."""
    asked = {"paper": "daniluk2017", "table": "2b", "scale": "smoke", "device": "cpu", "rows": rows or None, **changes}
    return Plan(Request(corpus=str(corpus), **asked))


def salton(corpus: object, *rows: str, **changes: Any) -> Plan:
    return plan(corpus, *rows, **{"paper": "salton2017", "table": "1", **changes})


ROWS = {name: row for paper in PAPERS.values() for name, row in paper.rows.items()}
MACHINE = {"processor": "A Processor", "threads": 1, "device": "cpu", "torch": "2"}
START = {"commit": "a" * 40, "changed": False, "command": "spanlm reproduce", **MACHINE}


def record(name: str, test: float, seed: int = 1, **more: Any) -> dict[str, Any]:
    """What a finished row leaves; valid is 5 higher, a buffer 20 worse than its encoder."""
    row = ROWS[name]
    found: dict[str, Any] = {"row": name, "corpus": "tiny", "all_parameters": 2_345_678, "starts": [START]}
    for split, ppl in (("valid", test + 5), ("test", test)):
        said = "state reset at each line" if row.by_sentence else "one stream"
        found[split] = {"perplexity": ppl, "protocol": said, "salton2017": None, "parts": None}
        if row.by_sentence:
            found[split]["salton2017"] = {"perplexity": ppl * 0.8, "perplexity_per_predicted": ppl * 0.9}
        if row.preset.name.startswith("li2020/"):
            parts = {"encoder": ppl + 3, "buffer": ppl + 23, "oracle": ppl - 4}
            found[split]["parts"] = {**parts, "utilisation": 0.1, "oracle_utilisation": 0.0725}
        if isinstance(row.evaluation, Cached):
            found[split]["without_cache"] = {"perplexity": ppl + 40}
    if isinstance(row.evaluation, Plain):
        found |= {
            "seed": seed,
            "units": 100,
            "readout": 50,
            "model_parameters": 1_234_567,
            "epochs": 8,
            "best_epoch": 6,
        }
        found |= {"train_perplexity_at_best": 55.5, "tokens_per_second": 10_000.0, "training_seconds": 600.0}
        if row.preset.name.startswith("li2020/"):
            found |= {"utilisation_by_epoch": [0.5, 0.0, 0.1], "oracle_utilisation_by_epoch": [0.4, 0.1, 0.07]}
    else:
        members = row.evaluation.members if isinstance(row.evaluation, Averaged) else 1
        found |= {
            "how": {"window": getattr(row.evaluation, "window", None)},
            "members": [{"seed": seed + n} for n in range(members)],
            "seconds": 120.0,
        }
        found["details"] = _details(row.evaluation)
    return found | more


def _details(how: object) -> dict[str, Any]:
    if isinstance(how, Averaged):
        return {split: {"members": [90.0, 94.0], "oracle_bound": 70.0} for split in ("valid", "test")}
    if isinstance(how, Cached):
        return {"cache": {"theta": 0.3, "lambda": 0.12}, "notes": ["cache.theta=0.3 is large."]}
    assert isinstance(how, Dynamic)
    settings = {"rate": 1e-4, "decay": 0.002, "epsilon": 2e-5}
    # one beyond all numbers, and some as older records have them
    points: list[dict[str, Any]] = [{"perplexity": None, "whole": True}, {"perplexity": 81.0}, {"perplexity": None}]
    statistics = {"whole": False, "tokens": 100_000}
    return {"dynamic": settings, "tried": 3, "grid": points, "notes": ["η is small."], "statistics": statistics}


def cloze(accuracy: float | None) -> dict[str, Any]:
    """Accuracies of all word classes."""
    score = {"accuracy": accuracy, "interval": None if accuracy is None else [accuracy - 0.02, accuracy + 0.02]}
    return {"cbt_like": True, "classes": {name: {"sentence": score, "candidate": score} for name in WORD_CLASSES}}


def attention(lags: Sequence[int]) -> dict[str, Any]:
    """Equal attention to all lags."""
    percent = [100 / len(lags)] * len(lags)
    return {"split": "test", "nearest_lag": lags[-1], "percent": percent, "positions": 9, "left_out": 1}


def ended(name: str, *tests: float, **more: Any) -> list[dict[str, Any]]:
    """A test perplexity for each of the seeds 1, 2, …."""
    return [record(name, test, seed, **more) for seed, test in enumerate(tests, 1)]


def cells(grid: Grid) -> dict[str, dict[str, str]]:
    """Cells by row and column."""
    return {row[0]: dict(zip(grid.header[1:], row[1:], strict=True)) for row in grid.rows}
