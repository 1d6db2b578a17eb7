"""Print the table of a folder of records, as Markdown.

python results/table.py results/daniluk2017-ptb
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from spanlm.presets import PRESETS

ORDER = ("lstm", "attention-w10", "kv-w10", "kvp-w5", "2-gram", "3-gram", "4-gram", "5-gram")
HEADER = (
    "| model | units | readout | θ_M | best epoch | train ppl | valid ppl | test ppl | tokens/s | paper: test |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def main() -> None:
    """Print one row a record."""
    records = {path.stem: json.loads(path.read_text()) for path in Path(sys.argv[1]).glob("*.json")}
    print(HEADER)
    for name in sorted(records, key=_place):
        print(_row(name, records[name]))


def _place(name: str) -> tuple[int, str]:
    stems = [stem for stem in ORDER if name.startswith(stem)]
    return (ORDER.index(stems[0]) if stems else len(ORDER), name)


def _row(name: str, record: dict[str, Any]) -> str:
    preset = PRESETS.get(f"daniluk2017/{name}")
    model = record["config"]["model"]
    memory = model["memory"]
    cells = [
        name,
        model["encoder"]["hidden_size"],
        model["encoder"]["hidden_size"] // memory.get("roles", memory.get("order", 1)),
        f"{record['model_parameters']:,}",
        f"{record['best_epoch']} of {record['epochs']}",
        f"{record['train_perplexity_at_best']:.1f}",
        f"{record['valid']['perplexity']:.2f}",
        f"{record['test']['perplexity']:.2f}",
        f"{record['tokens_per_second']:,.0f}",
        preset.reported.test_ppl if preset else "",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


if __name__ == "__main__":
    main()
